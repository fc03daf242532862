"""The grammar of `table_changes('t', first [, last])` in FROM: the change data feed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from txlake.errors import InvalidRequest
from txlake.sql.cursor import Cursor
from txlake.sql.statements import ChangeRange, Table, TablePath, TimeTravel, table_of
from txlake.sql.strings import string_value
from txlake.sql.tokens import Kind, SourceText, Token, whole_number

_NAME, _BY_PATH = "TABLE_CHANGES", "TABLE_CHANGES_BY_PATH"
_BEFORE = frozenset({"FROM", "JOIN", ",", "("})
_MOMENT = "a version or a timestamp"


@dataclass(frozen=True, slots=True)
class TableChangesCall:
    """A call; `start` and `end` (exclusive) include its arguments."""

    table: Table
    change_range: ChangeRange
    start: int
    end: int


def find_table_changes(source: SourceText, tokens: Sequence[Token]) -> list[TableChangesCall]:
    """Return the calls at positions where a query may have a table.

    Raises InvalidRequest for invalid arguments.
    """
    return [
        _call(source, tokens, index)
        for index, token in enumerate(tokens[:-1])
        if token.kind is Kind.WORD
        and token.upper in {_NAME, _BY_PATH}
        and tokens[index + 1].text == "("
        and index
        and tokens[index - 1].upper in _BEFORE
    ]


def _call(source: SourceText, tokens: Sequence[Token], index: int) -> TableChangesCall:
    """Parse the call whose name is at `index`."""
    end = Token(Kind.END, "", tokens[-1].end, tokens[-1].end)
    cursor = Cursor(source, (*tokens[index + 1 :], end))
    cursor.expect("(")
    table = _table(cursor, by_path=tokens[index].upper == _BY_PATH)
    if not cursor.accept(","):
        cursor.fail(f", and {_MOMENT} from which on changes are asked for")
    first = _time_travel(source, cursor)
    last = _time_travel(source, cursor) if cursor.accept(",") else None
    if not cursor.at(")"):
        cursor.fail(")")
    return TableChangesCall(table, ChangeRange(first, last), tokens[index].start, cursor.token.end)


def _table(cursor: Cursor, *, by_path: bool) -> Table:
    """Parse a table's name as a string or as it is, or with `by_path` a location as a string."""
    token = cursor.token
    if token.kind is not Kind.STRING:
        return cursor.table("the name of a table as a string, 'sales.orders'")
    text = cursor.string()
    if by_path:
        return TablePath(text)
    try:
        return table_of(text)
    except InvalidRequest as error:
        raise cursor.source.error(str(error), token.start) from error


def _time_travel(source: SourceText, cursor: Cursor) -> TimeTravel:
    """Parse a version or a timestamp, a constant, up to a comma or the closing parenthesis. Raises
    InvalidRequest for anything else.
    """
    tokens = cursor.skip(comma=True)
    if not tokens:
        cursor.fail(_MOMENT)
    text = source.text[tokens[0].start : tokens[-1].end]
    unsigned = tokens[1:] if tokens[0].text == "-" else tokens
    if len(unsigned) == 1 and unsigned[0].kind is Kind.NUMBER:
        version = whole_number(text.rstrip("lL"))
        if version is None:
            raise source.error("a version is a whole number, 0 or more", tokens[0].start)
        return TimeTravel(version=version)
    if all(token.kind is Kind.STRING for token in tokens):
        return TimeTravel(timestamp=string_value(tokens))
    if any(token.upper == "SELECT" for token in tokens):
        raise source.error(
            f"[DELTA_CDC_NON_CONSTANT_ARGUMENT] {_MOMENT} is a constant, no query", tokens[0].start
        )
    return TimeTravel(timestamp_expression=text)
