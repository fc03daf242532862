"""The grammar of commands that Spark carries out as written: views, settings, EXPLAIN."""

from __future__ import annotations

from txlake.sql.clauses import rest_query
from txlake.sql.cursor import Cursor
from txlake.sql.statements import RefreshTable, SparkCommand, SqlText


def spark_command(cursor: Cursor, *, query: bool = False) -> SparkCommand:
    """Return the whole statement for Spark, and consume the rest of it.

    With `query` the cursor is at the query that ends it, whose tables become the command's
    references.
    """
    first = cursor.first
    if not query:
        cursor.skip()
        cursor.expect_end()
        return SparkCommand(SqlText(cursor.source.text[first.start : cursor.token.end]))
    shift = cursor.token.start - first.start
    sql = rest_query(cursor)
    return SparkCommand(sql.with_prefix(cursor.source.text[first.start : first.start + shift]))


def explain(cursor: Cursor) -> SparkCommand:
    """Parse EXPLAIN [EXTENDED | CODEGEN | COST | FORMATTED] query."""
    cursor.expect("EXPLAIN")
    cursor.accept_any("EXTENDED", "CODEGEN", "COST", "FORMATTED")
    if cursor.at_any("INSERT", "UPDATE", "DELETE", "MERGE", "CREATE"):
        cursor.refuse("EXPLAIN shows the plan of a query only; EXPLAIN CONFLICTS takes the others")
    return spark_command(cursor, query=True)


def cache(cursor: Cursor) -> SparkCommand | RefreshTable:
    """Parse CACHE [LAZY] TABLE name [OPTIONS (...)] [[AS] query].

    Return RefreshTable without a query.
    """
    cursor.expect("CACHE")
    cursor.accept("LAZY")
    cursor.expect("TABLE")
    table = cursor.table("a name")
    if cursor.accept("OPTIONS"):
        cursor.expect("(")
        cursor.skip()
        cursor.expect(")")
    if cursor.at_end:
        return RefreshTable(table, spark_command(cursor).command)
    cursor.accept("AS")
    return spark_command(cursor, query=True)


def uncache(cursor: Cursor) -> RefreshTable:
    """Parse UNCACHE TABLE [IF EXISTS] name."""
    cursor.expect("UNCACHE")
    cursor.expect("TABLE")
    if_exists = cursor.accept("IF", "EXISTS")
    table = cursor.table("a name")
    cursor.expect_end()
    return RefreshTable(table, spark_command(cursor).command, if_exists=if_exists)
