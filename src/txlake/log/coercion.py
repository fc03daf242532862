"""Coercion of literals to the type of the column that they are compared with.

Owns which comparisons of a column with a literal of another type mean the same as one with a
literal of the column's own type, under Spark's rules, ANSI mode or not. Where the two modes or
rounding could differ, there is no such literal, and Spark evaluates the comparison.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from datetime import date, datetime
from decimal import ROUND_FLOOR, Context, Decimal
from typing import TypeAlias

from txlake.errors import CorruptTable
from txlake.log.predicate_nodes import LiteralValue, LocalTime, Operator
from txlake.log.time_zones import TimeZone
from txlake.protocol.collations import collated_type
from txlake.protocol.partition_values import PartitionScalar, parse_value
from txlake.protocol.times import (
    BLANKS,
    OFFSET_MAX,
    FarTime,
    Time,
    is_zoned,
    micros_of,
    parse_time,
    time_of,
)
from txlake.protocol.types import Field, Primitive

CoercedComparison: TypeAlias = tuple[Operator, PartitionScalar | LocalTime]

_INTEGER_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_EXACT_IN_DOUBLE = 1 << 53
_EXACT_IN_FLOAT = 1 << 24
_WIDE = Context(prec=100)
_CHAR_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
# The operator with which a value between two steps is replaced by the step below it.
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
_ROUNDED_DOWN: Mapping[Operator, Operator] = {
    Operator.LESS: Operator.LESS_OR_EQUAL,
    Operator.LESS_OR_EQUAL: Operator.LESS_OR_EQUAL,
    Operator.GREATER: Operator.GREATER,
    Operator.GREATER_OR_EQUAL: Operator.GREATER,
}


def has_plain_text(item: Field) -> bool:
    """Return whether a text column compares byte by byte: neither collated nor padded."""
    kind = item.type
    if not isinstance(kind, Primitive) or not kind.is_string:
        return False
    declared = str(item.metadata.get(_CHAR_TYPE, kind.name)).lower()
    return collated_type(item) == Primitive("string") and not declared.startswith("char")


def coerce(operator: Operator, value: LiteralValue, item: Field) -> CoercedComparison | None:
    """Return the equal comparison with a value of the column's own type; None when there is none.

    `value` may be of another type; None for a null. A `LocalTime` stays one where the column is a
    timestamp. If no value of the type equals `value`, `=` and `<=>` become a `<` that is never
    true.
    """
    kind = item.type
    if not isinstance(kind, Primitive) or value is None:
        return None
    name = kind.name
    if name in _INTEGER_BITS:
        bits = _INTEGER_BITS[name]
        return _with_integer(operator, value, -(1 << bits - 1), (1 << bits - 1) - 1)
    if name in ("float", "double"):
        return _with_float(operator, value, single=name == "float")
    if kind.decimal is not None:
        return _with_decimal(operator, value, *kind.decimal)
    if kind.is_string:
        fits = isinstance(value, str) and has_plain_text(item)
        return (operator, value) if fits and isinstance(value, str) else None
    if name == "boolean":
        return (operator, value) if isinstance(value, bool) else None
    if name == "binary":
        return (operator, value) if isinstance(value, bytes) else None
    if name == "date":
        return _with_date(operator, value)
    if name in ("timestamp", "timestamp_ntz"):
        return _with_time(operator, value, zoned=name == "timestamp")
    return None


def _with_integer(
    operator: Operator, value: LiteralValue, low: int, high: int
) -> CoercedComparison | None:
    """Return the comparison of a column of whole numbers from `low` to `high`; None if Spark must
    decide.
    """
    match value:
        case bool():
            return None
        case int():
            if operator in _ROUNDED_DOWN and not _LONG_MIN <= value <= _LONG_MAX:
                return None  # true or false to Spark even where the column is null
            exact = Decimal(value)
        case Decimal() if len(value.as_tuple().digits) <= 18:
            exact = value
        case float() if abs(value) < _EXACT_IN_DOUBLE:
            exact = Decimal(value)
        case str() if re.fullmatch(r"[+-]?\d{1,19}", value) and low <= int(value) <= high:
            exact = Decimal(value)
        case _:
            return None
    return _stepped(operator, exact, 0, Decimal(low), Decimal(high), whole=True)


def _with_decimal(
    operator: Operator, value: LiteralValue, precision: int, scale: int
) -> CoercedComparison | None:
    """Return the comparison of a decimal column with a whole number or decimal; None if Spark must
    decide.
    """
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    exact = Decimal(value)
    _sign, digits, exponent = exact.as_tuple()
    if not isinstance(exponent, int):
        return None
    # Spark compares in a type that holds both, if 38 digits do.
    fraction = max(-exponent, 0)
    whole = max(len(digits) + exponent, 1)
    if max(whole, precision - scale) + max(fraction, scale) > 38:
        return None
    limit = Decimal(10**precision - 1).scaleb(-scale, _WIDE)
    return _stepped(operator, exact, scale, -limit, limit, whole=False)


def _stepped(
    operator: Operator, exact: Decimal, scale: int, low: Decimal, high: Decimal, *, whole: bool
) -> CoercedComparison:
    """Return the comparison on a type's steps: multiples of 10^-scale from low to high."""
    step = exact.quantize(Decimal(1).scaleb(-scale), rounding=ROUND_FLOOR, context=_WIDE)
    between = step != exact
    if low <= step <= high and not between:
        return operator, _value(step, whole)
    equality = operator in (Operator.EQUAL, Operator.SAME)
    if equality or operator is Operator.NOT_EQUAL:
        # No value of the type equals the literal: false, or unknown for a null.
        never = Operator.LESS if equality else Operator.GREATER_OR_EQUAL
        return never, _value(low, whole)
    if step < low:
        above = operator in (Operator.GREATER, Operator.GREATER_OR_EQUAL)
        return Operator.GREATER_OR_EQUAL if above else Operator.LESS, _value(low, whole)
    if step > high:
        below = operator in (Operator.LESS, Operator.LESS_OR_EQUAL)
        return Operator.LESS_OR_EQUAL if below else Operator.GREATER, _value(high, whole)
    return _ROUNDED_DOWN[operator], _value(step, whole)


def _value(step: Decimal, whole: bool) -> int | Decimal:
    return int(step) if whole else step


def _with_float(
    operator: Operator, value: LiteralValue, *, single: bool
) -> CoercedComparison | None:
    """Return the comparison of a double or, if `single`, float column; None if Spark must
    decide.
    """
    match value:
        case bool():
            return None
        case int():
            limit = _EXACT_IN_FLOAT if single else _EXACT_IN_DOUBLE
            return (operator, float(value)) if abs(value) <= limit else None
        case float() | Decimal():
            # Spark compares a float column with either as doubles.
            return operator, float(value)
        case str() if re.fullmatch(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", value):
            number = float(value)
            # A float column may be compared as float or as double: the same only if exact.
            return (operator, number) if not single or _is_single(number) else None
    return None


def _is_single(number: float) -> bool:
    """Return whether a number is exact as a float of 32 bits."""
    try:
        return bool(struct.unpack("<f", struct.pack("<f", number))[0] == number)
    except OverflowError:
        return math.isinf(number)


def _with_date(operator: Operator, value: LiteralValue) -> CoercedComparison | None:
    """Return the comparison of a date column with a date or the text of one; None for other
    values.
    """
    match value:
        case datetime():
            return None
        case date():
            return operator, value
        case str():
            day = as_date(value)
            return None if day is None else (operator, day)
    return None


def _with_time(operator: Operator, value: LiteralValue, *, zoned: bool) -> CoercedComparison | None:
    """Return the comparison of a timestamp column; None for a value that isn't a time of its kind.

    A date or a text without a zone is a local time where the column is `zoned`.
    """
    found: Time | LocalTime | None = None
    match value:
        case LocalTime():
            found = value if zoned else None
        case datetime() | FarTime():
            found = value if is_zoned(value) == zoned else None
        case date():
            start = day_start(value)
            found = start if zoned else start.wall
        case str():
            found = as_timestamp(value) if zoned else as_wall_time(value)
    return None if found is None else (operator, found)


def is_canonical(text: str, kind: str) -> bool:
    """Return whether a text is the text form of a value of the type, a whole number or a date.

    Then a comparison as texts, which IN makes in one of Spark's modes, has the same result. False
    for all other types.
    """
    if kind in _INTEGER_BITS:
        return re.fullmatch(r"0|-?[1-9]\d*", text) is not None
    day = as_date(text) if kind == "date" else None
    return day is not None and day.isoformat() == text


def instant_in_zone(local: LocalTime, zone: TimeZone) -> Time | None:
    """Return the instant of a local time in a zone; None where the zone's rules don't give it."""
    found = zone.day_starts if local.starts_day else zone.instants
    (instant,) = found([micros_of(local.wall)])
    return None if instant is None else time_of(instant, zoned=True)


def instant_range(local: LocalTime) -> tuple[Time, Time]:
    """Return the earliest and the latest instant that a local time can have in any zone."""
    wall = micros_of(local.wall)
    return time_of(wall - OFFSET_MAX, zoned=True), time_of(wall + OFFSET_MAX, zoned=True)


def day_start(day: date) -> LocalTime:
    """Return a date as a timestamp: the first instant of the day in the session's zone."""
    return LocalTime(datetime(day.year, day.month, day.day), starts_day=True)  # noqa: DTZ001


def as_date(text: str) -> date | None:
    """Return the date of a text in the form `2020-01-31`, in which month and day may have one
    digit; else None.
    """
    if re.fullmatch(r"\d{4}-\d{1,2}-\d{1,2}", text.strip(BLANKS), re.ASCII) is None:
        return None
    try:
        value = parse_value(text.strip(BLANKS), Primitive("date"))
    except CorruptTable:
        return None
    return value if isinstance(value, date) else None


def as_wall_time(text: str) -> Time | None:
    """Return the wall clock time of a text without a zone; None when it has one or is no time."""
    value = as_timestamp(text)
    return value.wall if isinstance(value, LocalTime) else None


def as_timestamp(text: str) -> Time | LocalTime | None:
    """Return a text as a TIMESTAMP: an instant if it has a zone, else a local time; None if it is
    no time.

    The only conversion of literals, and of texts compared with a timestamp, to times.
    """
    try:
        found = parse_time(text)
    except ValueError:
        return None
    if found.instant is not None:
        return time_of(found.instant, zoned=True)
    return LocalTime(time_of(found.wall, zoned=False))
