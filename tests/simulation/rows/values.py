"""SQL values as Python's: the type of what two operands make, casts, store assignment, text.

Owns what ANSI SQL does with single values. A value that doesn't fit is an InvalidRequest, as it is
where Spark refuses it; a pair of types that nobody needed yet is an AssertionError.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import cache
from typing import Any

from txlake.errors import CorruptTable, InvalidRequest
from txlake.local.types import can_store, reads_text, same_type, type_text
from txlake.protocol.partition_values import format_value, local_time, parse_value
from txlake.protocol.times import time_of
from txlake.protocol.types import Array, DataType, Field, Primitive

Value = Any
Convert = Callable[[Value], Value]

VOID = Primitive("void")
BOOLEAN = Primitive("boolean")
INTEGER = Primitive("integer")
LONG = Primitive("long")
FLOAT = Primitive("float")
DOUBLE = Primitive("double")
STRING = Primitive("string")
DATE = Primitive("date")
TIMESTAMP = Primitive("timestamp")

BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 20}
_EXACT = Context(prec=80, rounding=ROUND_HALF_UP)
_PRECISION_MAX = 38
_WHOLE = re.compile(r"\s*[+-]?\d+\s*")
_NOT_FINITE = re.compile(r"nan|[+-]?inf(inity)?", re.IGNORECASE)
_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*")


def is_integer(kind: DataType) -> bool:
    return isinstance(kind, Primitive) and kind.name in BITS


def _bits(kind: DataType) -> int:
    assert isinstance(kind, Primitive)
    return BITS[kind.name]


def is_decimal(kind: DataType) -> bool:
    return isinstance(kind, Primitive) and kind.decimal is not None


def is_float(kind: DataType) -> bool:
    return kind in (FLOAT, DOUBLE)


def is_number(kind: DataType) -> bool:
    return is_integer(kind) or is_float(kind) or is_decimal(kind)


def decimal_type(precision: int, scale: int) -> Primitive:
    return Primitive(f"decimal({precision},{scale})")


def type_of_integer(value: int) -> Primitive:
    """Return the type of a literal."""
    for kind in (INTEGER, LONG):
        if fits(value, kind):
            return kind
    return decimal_type(len(str(abs(value))), 0)


def type_of_decimal(value: Decimal) -> Primitive:
    """Return the type of a literal."""
    scale = max(0, -int(value.as_tuple().exponent))
    return decimal_type(max(len(value.as_tuple().digits), scale), scale)


def fits(value: int, kind: Primitive) -> bool:
    limit = 1 << BITS[kind.name] - 1
    return -limit <= value < limit


def as_decimal(kind: DataType) -> tuple[int, int]:
    """Return precision and scale of the decimal type that holds a whole number's type."""
    assert isinstance(kind, Primitive)
    return kind.decimal or (_DIGITS[kind.name], 0)


def common_type(left: DataType, right: DataType) -> DataType:
    """Return the type in which two values are compared, and which CASE or UNION has."""
    if left == VOID or same_type(left, right):
        return right
    if right == VOID:
        return left
    if is_integer(left) and is_integer(right):
        return left if _bits(left) > _bits(right) else right
    if is_number(left) and is_number(right):
        if is_float(left) or is_float(right):
            return DOUBLE  # one of 32 bits doesn't hold every whole number
        (p, s), (q, t) = as_decimal(left), as_decimal(right)
        return decimal_type(min(_PRECISION_MAX, max(p - s, q - t) + max(s, t)), max(s, t))
    if isinstance(left, Array) and isinstance(right, Array):
        return Array(common_type(left.element, right.element), True)
    times = {"date": 0, "timestamp_ntz": 1, "timestamp": 2}
    names = [kind.name for kind in (left, right) if isinstance(kind, Primitive)]
    if all(name in times for name in names):
        return Primitive(max(names, key=lambda name: times[name]))
    if STRING in (left, right):
        other = right if left == STRING else left
        if is_integer(other):
            return LONG
        if is_number(other):
            return DOUBLE
        if isinstance(other, Primitive) and other.name in {*times, "boolean"}:
            return other
    raise AssertionError(f"no common type of {type_text(left)} and {type_text(right)} here")


def arithmetic(operator: str, left: DataType, right: DataType) -> DataType:
    """Return the type of `left operator right`."""
    if STRING in (left, right):
        other = right if left == STRING else left
        numeric = LONG if is_integer(other) else DOUBLE
        left, right = (numeric if kind == STRING else kind for kind in (left, right))
    if VOID in (left, right):
        left = right = left if right == VOID else right
        if left == VOID:
            left = right = DOUBLE
    known = is_number(left) and is_number(right)
    assert known, f"{type_text(left)} {operator} {type_text(right)} isn't known here"
    if is_float(left) or is_float(right):
        return common_type(left, right) if operator != "/" else DOUBLE
    if is_decimal(left) or is_decimal(right):
        return _decimal_result(operator, as_decimal(left), as_decimal(right))
    return DOUBLE if operator == "/" else common_type(left, right)


def _decimal_result(operator: str, left: tuple[int, int], right: tuple[int, int]) -> Primitive:
    (p, s), (q, t) = left, right
    if operator in "+-":
        precision, scale = max(p - s, q - t) + max(s, t) + 1, max(s, t)
    elif operator == "*":
        precision, scale = p + q + 1, s + t
    elif operator == "%":
        precision, scale = min(p - s, q - t) + max(s, t), max(s, t)
    else:
        scale = max(6, s + q + 1)
        precision = p - s + t + scale
    if precision > _PRECISION_MAX:
        whole = precision - scale
        scale = max(_PRECISION_MAX - whole, min(scale, 6))
        precision = _PRECISION_MAX
    return decimal_type(precision, scale)


def rounded(value: Decimal, kind: DataType) -> Decimal:
    """Return the value with the scale of its type. Raises InvalidRequest if it is too large."""
    assert isinstance(kind, Primitive)
    assert kind.decimal is not None
    precision, scale = kind.decimal
    made = value.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    if len(made.as_tuple().digits) > precision:
        raise InvalidRequest(f"NUMERIC_VALUE_OUT_OF_RANGE: {value} doesn't fit {kind.name}")
    return made


def exact(operation: Callable[[Context, Decimal, Decimal], Decimal]) -> Callable[..., Decimal]:
    """Return an operation on two decimals with enough digits for any operands in SQL."""
    return lambda left, right: operation(_EXACT, Decimal(left), Decimal(right))


@cache
def cast(source: DataType, target: DataType) -> Convert:
    """Return a function that converts values of one type to another; NULL stays NULL.

    The function raises InvalidRequest for a value that the target type doesn't have.
    """
    if same_type(source, target) or source == VOID:
        return _same
    convert = _converter(source, target)

    def converted(value: Value) -> Value:
        return None if value is None else convert(value)

    return converted


def _same(value: Value) -> Value:
    return value


def _converter(source: DataType, target: DataType) -> Convert:
    if isinstance(source, Array) and isinstance(target, Array):
        element = cast(source.element, target.element)
        return lambda value: [element(one) for one in value]
    assert isinstance(source, Primitive), source
    assert isinstance(target, Primitive), target
    if target.is_string:
        return lambda value: text_of(value, source)
    if source.is_string:
        return _parser(target)
    if is_number(target) and (is_number(source) or source == BOOLEAN):
        return _number_converter(target)
    if target == BOOLEAN and is_number(source):
        return bool
    if source == DATE and target.name in {"timestamp", "timestamp_ntz"}:
        zone = UTC if target == TIMESTAMP else None
        return lambda value: datetime(value.year, value.month, value.day, tzinfo=zone)
    if target == DATE and source.name in {"timestamp", "timestamp_ntz"}:
        return lambda value: value.date()
    if {source.name, target.name} == {"timestamp", "timestamp_ntz"}:
        zone = UTC if target == TIMESTAMP else None
        return lambda value: value.replace(tzinfo=zone)
    raise AssertionError(f"CAST({source.name} AS {target.name}) isn't known here")


def _number_converter(target: Primitive) -> Convert:
    if target.name in BITS:

        def whole(value: Value) -> int:
            made = None
            if not isinstance(value, float) or math.isfinite(value):
                made = int(value)
            if made is None or not fits(made, target):
                raise InvalidRequest(f"CAST_OVERFLOW: {value} doesn't fit {type_text(target)}")
            return made

        return whole
    if target == DOUBLE:
        return float
    if target == FLOAT:
        return to_float
    return lambda value: rounded(_decimal_of(value), target)


def _decimal_of(value: Value) -> Decimal:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidRequest(f"CAST_OVERFLOW: {value} is no decimal")
        return Decimal(repr(value))
    return Decimal(value)


def to_float(value: Value) -> float:
    """Return the nearest single-precision number."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _parser(target: Primitive) -> Convert:
    def parsed(value: str) -> Value:
        text = value.strip()
        if target.name in BITS and _WHOLE.fullmatch(text):
            return _number_converter(target)(int(text))
        if is_number(target) and target.name not in BITS and _NUMBER.fullmatch(text):
            made = float(text) if is_float(target) else Decimal(text)
            return _number_converter(target)(made)
        if is_float(target) and _NOT_FINITE.fullmatch(text):
            return float(text)
        if target == BOOLEAN and text.lower() in _BOOLEANS:
            return _BOOLEANS[text.lower()]
        if target.name in {"date", "timestamp", "timestamp_ntz"}:
            wall = local_time(text, target)
            if wall is not None:
                return time_of(wall, zoned=True)  # the session's zone is UTC
            try:
                return parse_value(text, target)
            except CorruptTable:
                pass
        raise InvalidRequest(f"CAST_INVALID_INPUT: {value!r} is no {type_text(target)}")

    return parsed


_BOOLEANS = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}


def text_of(value: Value, kind: DataType) -> str:
    """Return the value as CAST AS STRING writes it."""
    assert isinstance(kind, Primitive), f"text of {type_text(kind)}"
    match value:
        case bool():
            return str(value).lower()
        case str():
            return value
        case int():
            return str(value)
        case datetime():
            text = value.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
            return text.rstrip("0").rstrip(".") if "." in text else text
        case _:
            text_or_none = format_value(value, kind)
            assert text_or_none is not None
            return text_or_none


_storable = cache(can_store)


def assignment(source: DataType, target: Field, table: str) -> Convert:
    """Return a function that converts a value to a column's type by ANSI store assignment.

    Raises InvalidRequest for types that don't fit; the function does so for a value that is too
    large.
    """
    if not reads_text(source, target.type) and not _storable(source, target.type):
        raise InvalidRequest(
            f"{table}: column {target.name!r} is {type_text(target.type)}, the value is "
            f"{type_text(source)}, which can't be stored there; cast it"
        )
    convert = cast(source, target.type)
    if convert is _same:
        return _same

    def assigned(value: Value) -> Value:
        try:
            return convert(value)
        except (InvalidRequest, InvalidOperation) as error:
            raise InvalidRequest(
                f"{table}: column {target.name!r} is {type_text(target.type)}, which can't hold "
                f"the value {value}; nothing was written"
            ) from error

    return assigned


def json_of(value: Value) -> object:
    """Return the value as in the JSON of a row in a message."""
    if isinstance(value, list):
        return [json_of(one) for one in value]
    if isinstance(value, date):
        return value.isoformat()
    return str(value) if isinstance(value, bytes) else value
