"""The grammar of CREATE, ALTER and DROP of views, the lake's and Spark's temporary ones."""

from __future__ import annotations

from typing import Literal

from txlake.sql.clauses import properties, rest_query
from txlake.sql.cursor import Cursor
from txlake.sql.spark_commands import spark_command
from txlake.sql.statements import (
    AlterView,
    AlterViewSchema,
    CreateTemporaryView,
    CreateView,
    DropView,
    RenameView,
    SchemaMode,
    SqlText,
    Statement,
    TableName,
)
from txlake.sql.tokens import Kind


def create_view(cursor: Cursor, *, or_replace: bool) -> CreateView:
    """Parse VIEW [IF NOT EXISTS] name [(columns)] [clauses] AS query, after CREATE [OR REPLACE]."""
    cursor.expect("VIEW")
    mode: Literal["create", "or_replace", "if_not_exists"] = "create"
    if or_replace:
        mode = "or_replace"
    start = cursor.token
    if cursor.accept("IF", "NOT", "EXISTS"):
        if or_replace:
            cursor.refuse("OR REPLACE and IF NOT EXISTS exclude each other", start)
        mode = "if_not_exists"
    view = view_name(cursor)
    columns = _columns(cursor)
    comment, pairs, schema_mode = _clauses(cursor)
    if schema_mode == "evolution" and columns:
        schema_mode = "type evolution"  # as in Spark: explicit column names stay
    cursor.expect("AS")
    return CreateView(
        view=view,
        query=_query(cursor),
        columns=columns,
        comment=comment,
        properties=pairs,
        mode=mode,
        schema_mode=schema_mode,
    )


def create_temporary(cursor: Cursor) -> Statement:
    """Parse [GLOBAL] { TEMP | TEMPORARY } { VIEW | FUNCTION } ..., after CREATE [OR REPLACE].

    A function, and a view of files, are commands for Spark.
    """
    start = cursor.mark
    cursor.accept("GLOBAL")
    cursor.expect_any("TEMP", "TEMPORARY")
    if cursor.at("TABLE"):
        cursor.refuse("a temporary table is not known: CREATE TEMPORARY VIEW is")
    if cursor.at("FUNCTION"):
        cursor.back(start)
        return spark_command(cursor)
    cursor.expect("VIEW")
    cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.path("the view's name")
    if cursor.at("USING"):
        cursor.skip()
        return spark_command(cursor)
    mark = cursor.mark
    if cursor.accept("("):  # of files, with types
        cursor.skip()
        cursor.expect(")")
    if cursor.at("USING"):
        cursor.skip()
        return spark_command(cursor)
    cursor.back(mark)
    columns = _columns(cursor)
    _clauses(cursor)
    cursor.expect("AS")
    if cursor.token.kind is Kind.END:
        cursor.fail("a query")
    at = cursor.mark
    query = rest_query(cursor)
    cursor.back(at)
    begin = cursor.token.start - cursor.first.start
    return CreateTemporaryView(
        name=name,
        columns=tuple(column for column, _ in columns),
        command=spark_command(cursor, query=True).command,
        query=query,
        query_at=begin,
    )


def alter_view(cursor: Cursor) -> AlterView | AlterViewSchema | RenameView:
    """Parse VIEW name { AS query | RENAME TO other | WITH SCHEMA mode }, after ALTER."""
    cursor.expect("VIEW")
    view = view_name(cursor)
    if cursor.accept("RENAME", "TO"):
        renamed = RenameView(view, view_name(cursor))
        cursor.expect_end()
        return renamed
    if cursor.at("WITH"):
        mode = _schema_mode(cursor)
        cursor.expect_end()
        return AlterViewSchema(view, mode)
    if not cursor.accept("AS"):
        cursor.fail("AS, RENAME TO or WITH SCHEMA")
    return AlterView(view, _query(cursor))


def drop_view(cursor: Cursor) -> DropView:
    """Parse VIEW [IF EXISTS] name, after DROP."""
    start = cursor.mark
    cursor.expect("VIEW")
    if_exists = cursor.accept("IF", "EXISTS")
    view = view_name(cursor)
    cursor.expect_end()
    cursor.back(start)
    return DropView(view=view, command=spark_command(cursor).command, if_exists=if_exists)


def view_name(cursor: Cursor) -> TableName:
    """Parse a view's name. Raises InvalidRequest for a location."""
    start = cursor.token
    name = cursor.table("the view's name")
    if not isinstance(name, TableName):
        cursor.refuse("a view has a name, and no place", start)
    return name


def _columns(cursor: Cursor) -> tuple[tuple[str, str | None], ...]:
    """Parse [(name [COMMENT 'text'], ...)]; () without columns."""
    if not cursor.at("("):
        return ()
    names: set[str] = set()

    def column() -> tuple[str, str | None]:
        """Parse name [COMMENT 'text']."""
        start = cursor.token
        name = cursor.name("a column")
        if name.lower() in names:
            cursor.refuse(f"column {name} is there twice", start)
        names.add(name.lower())
        return name, cursor.string("the comment in quotes") if cursor.accept("COMMENT") else None

    return cursor.parenthesized(column)


def _clauses(
    cursor: Cursor,
) -> tuple[str | None, tuple[tuple[str, str], ...], SchemaMode | None]:
    """Parse [COMMENT 'text'] [TBLPROPERTIES (...)] [WITH SCHEMA mode], in any order.

    Return the three, None or () for one that isn't there.
    """
    comment: str | None = None
    pairs: tuple[tuple[str, str], ...] = ()
    mode: SchemaMode | None = None
    while cursor.at_any("COMMENT", "TBLPROPERTIES", "WITH"):
        if cursor.accept("COMMENT"):
            comment = cursor.string("the comment in quotes")
        elif cursor.at("WITH"):
            mode = _schema_mode(cursor)
        else:
            cursor.advance()
            pairs = properties(cursor)
    return comment, pairs, mode


def _schema_mode(cursor: Cursor) -> SchemaMode:
    """Parse WITH SCHEMA { BINDING | COMPENSATION | [TYPE] EVOLUTION }."""
    cursor.expect("WITH", "SCHEMA")
    if cursor.accept("TYPE", "EVOLUTION"):
        return "type evolution"
    word = cursor.expect_any("BINDING", "COMPENSATION", "EVOLUTION")
    modes: dict[str, SchemaMode] = {
        "BINDING": "binding",
        "COMPENSATION": "compensation",
        "EVOLUTION": "evolution",
    }
    return modes[word]


def _query(cursor: Cursor) -> SqlText:
    """Parse the rest of the statement as a query, after AS."""
    if cursor.token.kind is Kind.END:
        cursor.fail("a query")
    return rest_query(cursor)
