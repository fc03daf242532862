"""The grammar of clauses that several statements share: aliases, conditions, properties, ..."""

from __future__ import annotations

from collections.abc import Collection

from txlake.sql.cursor import Cursor
from txlake.sql.references import Scope, expression_text, query_text
from txlake.sql.statements import (
    DEFAULT,
    Assignment,
    Default,
    SqlText,
    Table,
    TableName,
    TimeTravel,
)
from txlake.sql.tokens import Kind, Token, words
from txlake.sql.travel import parse_clause

QUERY_WORDS = words("SELECT WITH VALUES FROM TABLE")


def alias(cursor: Cursor, stops: Collection[str]) -> str | None:
    """Parse [[AS] name], unless one of the stops is next; None without an alias.

    The stops are words in capitals.
    """
    if cursor.accept("AS"):
        return cursor.name("an alias")
    if cursor.at_end or cursor.at_any(*stops):
        return None
    if cursor.token.kind in {Kind.WORD, Kind.QUOTED}:
        return cursor.advance().name
    return None


def scope_of(table: Table, alias_name: str | None) -> Scope:
    """Return the full name by which expressions may qualify a statement's target table.

    Empty for a table with an alias, with a name of one part, and by its location.
    """
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
    """Parse an expression up to one of the stops, or with `comma` up to a comma, outside
    parentheses.

    It also ends at a closing parenthesis and at the end of the statement. `what` is what an error
    says was expected.
    """
    tokens = cursor.skip(stops, comma=comma)
    if not tokens:
        cursor.fail(what)
    return expression_text(cursor.source, tokens, scope)


def constant_expression(cursor: Cursor, stops: Collection[str] = ()) -> str:
    """Parse an expression that reads no table, as text: a default, a generation expression.

    Ends at a comma or a stop. Raises InvalidRequest for a query.
    """
    start = cursor.token
    sql = expression(cursor, (), stops, comma=True)
    if sql.references:
        cursor.refuse("this expression can't have a query", start)
    return sql.text


def value(cursor: Cursor, scope: Scope, stops: Collection[str] = ()) -> SqlText | Default:
    """Parse the right side of an assignment: an expression or DEFAULT, up to a comma or a stop."""
    if cursor.at("DEFAULT"):
        following = cursor.ahead()
        if following.kind is Kind.END or following.text in {",", ")"} or following.upper in stops:
            cursor.advance()
            return DEFAULT
    return expression(cursor, scope, stops, comma=True, what="a value")


def assignments(cursor: Cursor, scope: Scope, stops: Collection[str]) -> tuple[Assignment, ...]:
    """Parse column = value, ..., each column once."""
    assigned: set[tuple[str, ...]] = set()

    def assignment() -> Assignment:
        """Parse column = value."""
        start = cursor.token
        column = cursor.path()
        cursor.expect("=")
        check_assigned_once(cursor, column, assigned, start)
        return Assignment(column, value(cursor, scope, stops))

    return cursor.comma_separated(assignment)


def check_assigned_once(
    cursor: Cursor, column: tuple[str, ...], assigned: set[tuple[str, ...]], start: Token
) -> None:
    """Add a column to the assigned ones, in lower case.

    Raises InvalidRequest at `start` if it was assigned before.
    """
    key = tuple(part.lower() for part in column)
    if key in assigned:
        cursor.refuse(f"column {'.'.join(column)} is assigned twice", start)
    assigned.add(key)


def as_query(value: SqlText) -> SqlText:
    """Return the one-row query SELECT with an expression."""
    start = "SELECT "
    return SqlText(
        f"{start}{value.text}", tuple(reference.moved(len(start)) for reference in value.references)
    )


def rest_query(cursor: Cursor) -> SqlText:
    """Parse the rest of the statement as a query."""
    if not (cursor.at_any(*QUERY_WORDS) or cursor.at("(")):
        cursor.fail("a query (SELECT, WITH, VALUES, TABLE, FROM)")
    tokens = cursor.skip()
    cursor.expect_end()
    return query_text(cursor.source, tokens)


def properties(cursor: Cursor) -> tuple[tuple[str, str], ...]:
    """Parse ('key' = 'value', ...), in the order written.

    A key may be dotted words, a value a number or a word; the equals sign is optional.
    """
    pairs: dict[str, str] = {}

    def pair() -> None:
        """Parse one property into `pairs`. Raises InvalidRequest for a key given twice."""
        start = cursor.token
        key = property_key(cursor)
        cursor.accept("=")
        if key in pairs:
            cursor.refuse(f"property {key!r} is given twice", start)
        pairs[key] = property_value(cursor)

    cursor.parenthesized(pair)
    return tuple(pairs.items())


def property_key(cursor: Cursor) -> str:
    """Parse a property's key: a string, or words with dots."""
    if cursor.token.kind is Kind.STRING:
        return cursor.string()
    return ".".join(cursor.path("a property's key"))


def property_value(cursor: Cursor) -> str:
    """Parse a property's value and return its text; numbers and booleans in lower case."""
    if cursor.token.kind is Kind.STRING:
        return cursor.string()
    if cursor.token.kind is Kind.WORD and not cursor.at_any("TRUE", "FALSE"):
        return cursor.advance().text
    sign = "-" if cursor.accept("-") else ""
    if cursor.token.kind is not Kind.NUMBER and (sign or not cursor.at_any("TRUE", "FALSE")):
        cursor.fail("a property's value, in quotes")
    return sign + cursor.advance().text.lower()


def time_travel(cursor: Cursor) -> TimeTravel | None:
    """Parse [FOR] { VERSION | TIMESTAMP } AS OF moment; None if it isn't next."""
    mark = cursor.mark
    tokens = cursor.remaining()
    clause = parse_clause(cursor.source, tokens, 0)
    if clause is None:
        return None
    travel, length = clause
    cursor.back(mark + length)
    return travel


def database(cursor: Cursor) -> str:
    """Parse a database's name, of one part."""
    start = cursor.token
    parts = cursor.path("a database's name")
    if len(parts) > 1:
        cursor.refuse(f"a database's name has one part, found {'.'.join(parts)}", start)
    return parts[0]
