"""The grammar of SHOW, DESCRIBE and USE."""

from __future__ import annotations

from txlake.sql.branches import at_branch, describe_branch, for_table, use_branch
from txlake.sql.clauses import QUERY_WORDS, database, property_key, rest_query
from txlake.sql.cursor import Cursor
from txlake.sql.descriptions import description
from txlake.sql.spark_commands import spark_command
from txlake.sql.statements import (
    DescribeDatabase,
    DescribeQuery,
    ShowBranches,
    ShowColumns,
    ShowCreateTable,
    ShowDatabases,
    ShowDroppedTables,
    ShowIsolation,
    ShowPartitions,
    ShowProperties,
    ShowTables,
    ShowTags,
    ShowViews,
    Statement,
    Table,
    TableName,
    UseBranch,
    UseDatabase,
)
from txlake.sql.tokens import Kind

_ISOLATION = ("TRANSACTION", "ISOLATION", "LEVEL")


def show(cursor: Cursor) -> Statement:
    """Parse SHOW; SHOW FUNCTIONS, USER, SYSTEM and ALL are commands for Spark."""
    cursor.expect("SHOW")
    statement: Statement
    table: Table | None
    if cursor.accept("TABLES", "DROPPED"):
        name = database(cursor) if cursor.accept_any("FROM", "IN") else None
        limit = _limit(cursor) if cursor.accept("LIMIT") else None
        statement = ShowDroppedTables(name, limit)
    elif cursor.accept("TABLES"):
        name = database(cursor) if cursor.accept_any("FROM", "IN") else None
        statement = ShowTables(name, _pattern(cursor))
    elif cursor.accept("TABLE", "EXTENDED"):
        name = database(cursor) if cursor.accept_any("FROM", "IN") else None
        cursor.expect("LIKE")
        statement = ShowTables(name, cursor.string("a pattern in quotes"), extended=True)
    elif cursor.accept_any("DATABASES", "SCHEMAS"):
        statement = ShowDatabases(_pattern(cursor))
    elif cursor.accept("CREATE"):
        cursor.expect("TABLE")
        statement = ShowCreateTable(cursor.table())
    elif cursor.accept("TBLPROPERTIES"):
        table = cursor.table()
        key = None
        if cursor.accept("("):
            key = property_key(cursor)
            cursor.expect(")")
        statement = ShowProperties(table, key)
    elif cursor.accept("COLUMNS"):
        cursor.expect_any("FROM", "IN")
        statement = ShowColumns(_in_database(cursor, cursor.table()))
    elif cursor.accept("PARTITIONS"):
        statement = ShowPartitions(cursor.table())
    elif cursor.accept("VIEWS"):
        name = database(cursor) if cursor.accept_any("FROM", "IN") else None
        statement = ShowViews(name, _pattern(cursor))
    elif cursor.accept("BRANCHES"):
        table = for_table(cursor)
        statement = ShowBranches(_pattern(cursor), table)
    elif cursor.accept("TAGS"):
        statement = ShowTags(_pattern(cursor))
    elif cursor.accept("TRANSACTION_ISOLATION") or cursor.accept(*_ISOLATION):
        statement = ShowIsolation()
    elif cursor.at_any("FUNCTIONS", "USER", "SYSTEM", "ALL"):
        return spark_command(cursor)
    else:
        cursor.fail(
            "TABLES, DATABASES, CREATE TABLE, TBLPROPERTIES, COLUMNS, PARTITIONS, VIEWS, "
            "BRANCHES, TAGS, FUNCTIONS or transaction_isolation"
        )
    cursor.expect_end()
    return statement


def describe(cursor: Cursor) -> Statement:
    """Parse { DESCRIBE | DESC } of a table, a database, a branch or a query.

    DESCRIBE FUNCTION is a command for Spark.
    """
    cursor.expect_any("DESCRIBE", "DESC")
    statement: Statement
    names = cursor.ahead().kind in {Kind.WORD, Kind.QUOTED, Kind.STRING}
    if cursor.at("FUNCTION") and names:
        return spark_command(cursor)
    if at_branch(cursor):
        return describe_branch(cursor)
    if cursor.at_any("DATABASE", "SCHEMA") and names:
        cursor.advance()
        extended = cursor.accept("EXTENDED")
        statement = DescribeDatabase(database(cursor), extended)
    elif cursor.accept("QUERY") or cursor.at_any(*(QUERY_WORDS - {"TABLE"})):
        return DescribeQuery(rest_query(cursor))
    else:
        statement = description(cursor)
    cursor.expect_end()
    return statement


def use(cursor: Cursor) -> UseDatabase | UseBranch:
    """Parse USE [DATABASE | SCHEMA | NAMESPACE] name or USE BRANCH name."""
    cursor.expect("USE")
    if at_branch(cursor):
        return use_branch(cursor)
    if cursor.at_any("DATABASE", "SCHEMA", "NAMESPACE") and cursor.ahead().kind is not Kind.END:
        cursor.advance()
    if cursor.at("CATALOG") and cursor.ahead().kind is not Kind.END:
        cursor.refuse("a lake has one catalog: USE names a database")
    name = database(cursor)
    cursor.expect_end()
    return UseDatabase(name)


def _limit(cursor: Cursor) -> int:
    """Parse a number of at least 0, after LIMIT."""
    start = cursor.token
    limit = cursor.integer()
    if limit < 0:
        cursor.refuse("expected a LIMIT of at least 0", start)
    return limit


def _pattern(cursor: Cursor) -> str | None:
    """Parse [[LIKE] 'pattern']; None without one."""
    if cursor.accept("LIKE") or cursor.token.kind is Kind.STRING:
        return cursor.string("a pattern in quotes")
    return None


def _in_database(cursor: Cursor, table: Table) -> Table:
    """Parse [{ FROM | IN } database], after SHOW COLUMNS FROM t, and return the table in it.

    Raises InvalidRequest if the table's name has another database.
    """
    if not cursor.accept_any("FROM", "IN"):
        return table
    start = cursor.token
    name = database(cursor)
    if isinstance(table, TableName) and [part.lower() for part in table.parts[:-1]] == [
        name.lower()
    ]:
        return table
    if not isinstance(table, TableName) or len(table.parts) > 1:
        cursor.refuse("the table has its database already", start)
    return TableName((name, *table.parts))
