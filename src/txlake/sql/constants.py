"""Literals as Python values: rows of VALUES that need no Spark, and constants in clauses."""

from __future__ import annotations

import datetime
import re
from decimal import Decimal

from txlake.log.coercion import as_date, as_timestamp, as_wall_time
from txlake.log.predicate_nodes import LocalTime
from txlake.log.text_rules import DEFAULT_RULES, StoreAssignment, TextRules
from txlake.protocol.times import FarTime, Time, is_zoned, micros_of, time_text
from txlake.sql.cursor import Cursor
from txlake.sql.markers import sql_literal
from txlake.sql.statements import DEFAULT, Constant, Default, Values
from txlake.sql.tokens import Kind, whole_number

_INTEGER_BITS = {"L": 64, "S": 16, "Y": 8}
_DECIMAL_DIGITS_MAX = 38
_NUMBERS = {int, float, Decimal}


class NotConstantError(Exception):
    """The next tokens aren't a literal; the caller falls back to an expression."""


def values_rows(cursor: Cursor) -> Values | None:
    """Parse VALUES (...), ... of literals and DEFAULT, to the end of the statement.

    Return None, with the cursor unmoved, where Spark has to evaluate them: expressions, literals of
    several types in one column, such as a date and a timestamp, and texts that the session's
    settings give another meaning.

    Raises InvalidRequest for rows of different lengths.
    """
    mark = cursor.mark
    if not cursor.at("VALUES"):
        return None
    rules, text = cursor.source.rules, cursor.source.text[cursor.token.start : cursor.last.start]
    if not rules.agrees_on(text) or rules.assignment is not StoreAssignment.ANSI:
        return None
    cursor.expect("VALUES")
    rows: list[tuple[Constant | Default, ...]] = []
    try:
        while True:
            start = cursor.token
            row = _row(cursor)
            if rows and len(row) != len(rows[0]):
                cursor.refuse(
                    f"row {len(rows) + 1} has {len(row)} values, the first has {len(rows[0])}",
                    start,
                )
            rows.append(row)
            if not cursor.accept(","):
                break
        if not cursor.at_end or any(_is_mixed(column) for column in zip(*rows, strict=True)):
            raise NotConstantError
    except NotConstantError:
        cursor.back(mark)
        return None
    return Values(tuple(rows))


def constant(cursor: Cursor) -> Constant:
    """Parse one literal, in any number of parentheses.

    Raises NotConstantError, with the cursor anywhere, if there is none.
    """
    token = cursor.token
    if cursor.accept("("):
        value = constant(cursor)
        if not cursor.accept(")"):
            raise NotConstantError
        return value
    if token.kind is Kind.STRING:
        return cursor.string()
    if token.kind is Kind.BYTES:
        cursor.advance()
        try:
            return bytes.fromhex(token.text[2:-1])
        except ValueError:
            raise NotConstantError from None
    if cursor.accept("NULL"):
        return None
    if cursor.at_any("TRUE", "FALSE"):
        return cursor.advance().upper == "TRUE"
    if cursor.at_any("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"):
        return _time(cursor)
    if cursor.at("CAST", "("):
        return _cast(cursor)
    sign = "-" if cursor.accept("-") else ""
    point = "." if cursor.accept(".") else ""
    if cursor.token.kind is not Kind.NUMBER:
        raise NotConstantError
    return _number(sign, point + cursor.advance().text)


def _is_mixed(column: tuple[Constant | Default, ...]) -> bool:
    """Return whether a column has several types; all numbers count as one."""
    kinds = {_kind(cell) for cell in column if cell is not None and cell is not DEFAULT}
    return len(kinds) > 1 and not kinds <= _NUMBERS


def _kind(cell: Constant | Default) -> object:
    """Return what cells of one column must have in common, only to be compared.

    It is the type, and for times whether they have a zone.
    """
    if isinstance(cell, datetime.datetime | FarTime):
        return LocalTime if is_zoned(cell) else FarTime
    return type(cell)


def _row(cursor: Cursor) -> tuple[Constant | Default, ...]:
    """Parse (cell, ...), or a cell alone. Raises NotConstantError."""
    if not cursor.accept("("):
        return (_cell(cursor),)
    cells = [_cell(cursor)]
    while cursor.accept(","):
        cells.append(_cell(cursor))
    if not cursor.accept(")"):
        raise NotConstantError
    return tuple(cells)


def _cell(cursor: Cursor) -> Constant | Default:
    """Parse DEFAULT or a literal that a comma, a parenthesis or the end follows.

    Raises NotConstantError.
    """
    value = DEFAULT if cursor.accept("DEFAULT") else constant(cursor)
    if not cursor.at_any(",", ")") and not cursor.at_end:
        raise NotConstantError
    return value


def _number(sign: str, text: str) -> int | float | Decimal:
    """Return a number of the literal's type: int, float or Decimal.

    Raises NotConstantError for a 32-bit float, and where Spark would report an overflow.
    """
    suffix = re.search(r"[A-Za-z]+$", text)
    kind = suffix[0].upper() if suffix is not None else ""
    digits = text[: -len(kind)] if kind else text
    value = whole_number(digits)
    if value is not None and sign == "-":
        value = -value
    if kind in _INTEGER_BITS and digits.isdecimal():
        if value is None or not -(2 ** (_INTEGER_BITS[kind] - 1)) <= value < 2 ** (
            _INTEGER_BITS[kind] - 1
        ):
            raise NotConstantError  # Spark's error message is better
        return value
    if kind not in {"", "D", "BD"}:
        raise NotConstantError  # a float of 32 bits, or no number at all
    if kind == "D" or (not kind and "e" in digits.lower()):
        return float(sign + digits)
    if not kind and value is not None and -(2**63) <= value < 2**63:
        return value
    number = Decimal(sign + digits)
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or exponent > 0:
        raise NotConstantError
    if max(len(number.as_tuple().digits), -exponent) > _DECIMAL_DIGITS_MAX:
        raise NotConstantError
    return number


def _time(cursor: Cursor) -> datetime.date | Time | LocalTime:
    """Parse { DATE | TIMESTAMP | TIMESTAMP_NTZ } 'text'.

    Raises NotConstantError for a text that isn't understood here.
    """
    kind = cursor.advance().upper
    if cursor.token.kind is not Kind.STRING:
        raise NotConstantError
    read = {"DATE": as_date, "TIMESTAMP": as_timestamp, "TIMESTAMP_NTZ": as_wall_time}[kind]
    value = read(cursor.string())
    if value is None:
        raise NotConstantError
    return value


def constant_text(value: Constant, rules: TextRules = DEFAULT_RULES) -> str:
    """Return the SQL literal of a constant, or of a partition value, for a session with the rules.

    Unlike in `sql_literal`, which makes literals of parameters, a datetime without a zone is a
    TIMESTAMP_NTZ. Raises InvalidRequest as `sql_literal`.
    """
    match value:
        case LocalTime(wall):
            return f"{_zoned_type(rules)} '{time_text(micros_of(wall), zoned=False)}'"
        case datetime.datetime() | FarTime():
            zoned = is_zoned(value)
            kind = _zoned_type(rules) if zoned else "TIMESTAMP_NTZ"
            return f"{kind} '{time_text(micros_of(value), zoned=zoned)}'"
        case _:
            return sql_literal(value, rules=rules)


def _zoned_type(rules: TextRules) -> str:
    """Return the name of the timestamp type with a zone; TIMESTAMP may be the type without."""
    return "TIMESTAMP" if rules.zoned else "TIMESTAMP_LTZ"


def _cast(cursor: Cursor) -> float | str:
    """Parse the casts that `sql_literal` writes for values without a literal.

    They are CAST('nan' AS DOUBLE), and CAST(X'5c' AS STRING) for a text whose literal the session
    would read differently. Raises NotConstantError for any other cast.
    """
    cursor.expect("CAST", "(")
    if cursor.token.kind is Kind.BYTES:
        digits = cursor.advance().text[2:-1]
        if not cursor.accept("AS", "STRING", ")"):
            raise NotConstantError
        try:
            return bytes.fromhex(digits).decode()
        except ValueError:
            raise NotConstantError from None
    if cursor.token.kind is not Kind.STRING:
        raise NotConstantError
    text = cursor.string().lower()
    if text not in {"nan", "inf", "-inf"} or not cursor.accept("AS", "DOUBLE", ")"):
        raise NotConstantError
    return float(text)
