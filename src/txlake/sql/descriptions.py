"""The grammar of DESCRIBE of a table, as a statement and in FROM (DESCRIBE HISTORY t)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from txlake.sql.cursor import Cursor
from txlake.sql.statements import DescribeDetail, DescribeHistory, DescribeTable, Description
from txlake.sql.tokens import Kind, SourceText, Token

_BEFORE_RELATION = frozenset({"FROM", "JOIN", ","})
_NAMES = frozenset({Kind.WORD, Kind.QUOTED})


@dataclass(frozen=True, slots=True)
class DescriptionSpan:
    """A DESCRIBE in parentheses; `start` and `end` (exclusive) are the parentheses' positions."""

    statement: Description
    start: int
    end: int


def find_descriptions(source: SourceText, tokens: Sequence[Token]) -> list[DescriptionSpan]:
    """Return the DESCRIBEs at positions where a query may have a table.

    Raises InvalidRequest for a DESCRIBE with a syntax error.
    """
    return [
        _parse_description(source, tokens, index)
        for index, token in enumerate(tokens[:-2])
        if token.text == "("
        and index
        and tokens[index - 1].upper in _BEFORE_RELATION
        and tokens[index + 1].upper in {"DESCRIBE", "DESC"}
        and tokens[index + 1].kind is Kind.WORD
        and tokens[index + 2].kind in {*_NAMES, Kind.STRING}
    ]


def _parse_description(source: SourceText, tokens: Sequence[Token], index: int) -> DescriptionSpan:
    """Parse the DESCRIBE in parentheses that open at `index`."""
    end = Token(Kind.END, "", tokens[-1].end, tokens[-1].end)
    cursor = Cursor(source, (*tokens[index + 1 :], end))
    cursor.expect_any("DESCRIBE", "DESC")
    is_branch = cursor.at("BRANCH") and cursor.ahead().kind in _NAMES
    if is_branch or cursor.at_any("DATABASE", "SCHEMA", "FUNCTION", "QUERY", "SELECT"):
        cursor.refuse("a query reads from DESCRIBE HISTORY, DETAIL or TABLE")
    statement = description(cursor)
    if not cursor.at(")"):
        cursor.fail(")")
    return DescriptionSpan(statement, tokens[index].start, cursor.token.end)


def description(cursor: Cursor) -> Description:
    """Parse HISTORY t [LIMIT n], DETAIL t or [TABLE] [EXTENDED] t [column], after DESCRIBE."""
    # A table may be called history or detail.
    names = cursor.ahead().kind in {*_NAMES, Kind.STRING}
    if names and cursor.accept("HISTORY"):
        table = cursor.table_or_place()
        limit = cursor.integer("a number of versions") if cursor.accept("LIMIT") else None
        return DescribeHistory(table, limit)
    if names and cursor.accept("DETAIL"):
        return DescribeDetail(cursor.table_or_place())
    return _describe_table(cursor)


def _describe_table(cursor: Cursor) -> DescribeTable:
    """Parse [TABLE] [EXTENDED | FORMATTED] t [column], after DESCRIBE."""
    if cursor.at("TABLE") and cursor.ahead().kind in _NAMES:
        cursor.advance()
    extended = False
    if cursor.at_any("EXTENDED", "FORMATTED") and cursor.ahead().kind in _NAMES:
        cursor.advance()
        extended = True
    table = cursor.table()
    if cursor.at("PARTITION"):
        cursor.refuse("a partition of a Delta table has no description of its own")
    if cursor.at("AS"):
        cursor.refuse("DESCRIBE ... AS JSON is not known")
    column = cursor.path() if cursor.token.kind in _NAMES else None
    return DescribeTable(table=table, extended=extended, column=column)
