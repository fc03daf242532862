"""Clauses that several statements have: aliases, conditions, properties, time travel."""

from __future__ import annotations

from collections.abc import Collection

from txlake.sql.cursor import Cursor
from txlake.sql.references import Scope, expression_text, query_text
from txlake.sql.tokens import Kind, Token, words
from txlake.sql.travel import parse_clause
from txlake.statements import (
    DEFAULT,
    Assignment,
    Default,
    SqlText,
    Table,
    TableName,
    TimeTravel,
)

QUERY_WORDS = words("SELECT WITH VALUES FROM TABLE")


def alias(cursor: Cursor, stops: Collection[str]) -> str | None:
    """`[AS] name`, unless one of the stops comes next."""
    if cursor.accept("AS"):
        return cursor.name("an alias")
    if cursor.at_end or cursor.at_any(*stops):
        return None
    if cursor.token.kind in {Kind.WORD, Kind.QUOTED}:
        return cursor.advance().name
    return None


def scope_of(table: Table, alias_name: str | None) -> Scope:
    """How a statement's own table may be named in full by its expressions."""
    if alias_name is None and isinstance(table, TableName) and len(table.parts) > 1:
        return ((table, table.name),)
    return ()


def expression(
    cursor: Cursor,
    scope: Scope = (),
    stops: Collection[str] = (),
    *,
    comma: bool = False,
    what: str = "an expression",
) -> SqlText:
    """An expression up to a stop."""
    tokens = cursor.skip(stops, comma=comma)
    if not tokens:
        cursor.fail(what)
    return expression_text(cursor.source, tokens, scope)


def constant_expression(cursor: Cursor, stops: Collection[str] = ()) -> str:
    """An expression without tables, as text: a default, a generation expression."""
    start = cursor.token
    sql = expression(cursor, (), stops, comma=True)
    if sql.references:
        cursor.refuse("this expression can't have a query", start)
    return sql.text


def value(cursor: Cursor, scope: Scope, stops: Collection[str] = ()) -> SqlText | Default:
    """The right side of an assignment: an expression or DEFAULT."""
    if cursor.at("DEFAULT"):
        following = cursor.ahead()
        if following.kind is Kind.END or following.text in {",", ")"} or following.upper in stops:
            cursor.advance()
            return DEFAULT
    return expression(cursor, scope, stops, comma=True, what="a value")


def assignments(cursor: Cursor, scope: Scope, stops: Collection[str]) -> tuple[Assignment, ...]:
    """`column = value, ...`, each column once."""
    seen: set[tuple[str, ...]] = set()

    def one() -> Assignment:
        start = cursor.token
        column = cursor.path()
        cursor.expect("=")
        assigned_once(cursor, column, seen, start)
        return Assignment(column, value(cursor, scope, stops))

    return cursor.listed(one)


def assigned_once(
    cursor: Cursor, column: tuple[str, ...], seen: set[tuple[str, ...]], start: Token
) -> None:
    """Raises when a column was assigned before; notes it otherwise."""
    key = tuple(part.lower() for part in column)
    if key in seen:
        cursor.refuse(f"column {'.'.join(column)} is assigned twice", start)
    seen.add(key)


def selected(value: SqlText) -> SqlText:
    """The query of a value."""
    start = "SELECT "
    return SqlText(f"{start}{value.text}", tuple(one.moved(len(start)) for one in value.references))


def rest_query(cursor: Cursor) -> SqlText:
    """Everything that is left, as a query."""
    if not (cursor.at_any(*QUERY_WORDS) or cursor.at("(")):
        cursor.fail("a query (SELECT, WITH, VALUES, TABLE, FROM)")
    tokens = cursor.skip()
    cursor.expect_end()
    return query_text(cursor.source, tokens)


def properties(cursor: Cursor) -> tuple[tuple[str, str], ...]:
    """`('key' = 'value', ...)`; a key may be words with dots, a value a number or a word too."""
    seen: dict[str, str] = {}

    def one() -> None:
        start = cursor.token
        key = property_key(cursor)
        cursor.accept("=")
        if key in seen:
            cursor.refuse(f"property {key!r} is given twice", start)
        seen[key] = property_value(cursor)

    cursor.enclosed(one)
    return tuple(seen.items())


def property_key(cursor: Cursor) -> str:
    """A property's key: a string, or words with dots."""
    if cursor.token.kind is Kind.STRING:
        return cursor.string()
    return ".".join(cursor.path("a property's key"))


def property_value(cursor: Cursor) -> str:
    """A property's value as its text."""
    if cursor.token.kind is Kind.STRING:
        return cursor.string()
    if cursor.token.kind is Kind.WORD and not cursor.at_any("TRUE", "FALSE"):
        return cursor.advance().text
    sign = "-" if cursor.accept("-") else ""
    if cursor.token.kind is not Kind.NUMBER and (sign or not cursor.at_any("TRUE", "FALSE")):
        cursor.fail("a property's value, in quotes")
    return sign + cursor.advance().text.lower()


def time_travel(cursor: Cursor) -> TimeTravel | None:
    """`[FOR] { VERSION | TIMESTAMP } AS OF ...`, if it comes next."""
    mark = cursor.mark
    tokens = cursor.remaining()
    taken = parse_clause(cursor.source, tokens, 0)
    if taken is None:
        return None
    travel, length = taken
    cursor.back(mark + length)
    return travel


def database(cursor: Cursor) -> str:
    """A database's name: one part."""
    start = cursor.token
    parts = cursor.path("a database's name")
    if len(parts) > 1:
        cursor.refuse(f"a database's name has one part, found {'.'.join(parts)}", start)
    return parts[0]
