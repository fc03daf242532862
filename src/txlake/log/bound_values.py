"""The values of bounds in statistics: from the texts of the log to Arrow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, timedelta
from decimal import Context, Decimal, DecimalException
from functools import lru_cache
from typing import TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txlake.errors import CorruptTable
from txlake.protocol.partition_values import (
    PartitionScalar,
    possible_instants,
)
from txlake.protocol.times import parse_time
from txlake.protocol.types import Field, Primitive, to_arrow_type


@lru_cache(maxsize=128)
def decoder_for(names: tuple[str, ...]) -> msgspec.json.Decoder[msgspec.Struct]:
    """Return a decoder of statistics that decodes these top-level columns and skips all others.

    It returns a struct with `numRecords`, `minValues`, `maxValues` and `nullCount`; the columns of
    the last three are named `c0`, `c1`, ... by their place in `names`, and None where missing.
    """
    columns = msgspec.defstruct(
        "Columns",
        [(f"c{place}", object, None) for place, _ in enumerate(names)],
        rename={f"c{place}": name for place, name in enumerate(names)},
        frozen=True,
        gc=False,
    )
    statistics = msgspec.defstruct(
        "Statistics",
        [
            ("numRecords", int | None, None),
            ("minValues", columns | None, columns()),
            ("maxValues", columns | None, columns()),
            ("nullCount", columns | None, columns()),
        ],
        gc=False,
    )
    return msgspec.json.Decoder(statistics, float_hook=Decimal)


def decode_statistics(decode: Callable[[str], msgspec.Struct], text: str | None) -> msgspec.Struct:
    """Return what `decode` makes of a file's statistics; empty ones where they are missing or
    invalid.
    """
    try:
        return decode(text or "{}")
    except (msgspec.MsgspecError, ArithmeticError, RecursionError):
        return decode("{}")


_Reader: TypeAlias = Callable[[object], PartitionScalar]


def bound_array(values: Sequence[object], item: Field, *, upper: bool) -> pa.Array:
    """Return the bounds of the primitive column `item` as an array, null where missing or invalid.

    Integers become int64 and floats double; binary bounds are all null. Bounds are widened where
    writers cut or round values: texts, times, floats and decimals.
    """
    kind = item.type
    assert isinstance(kind, Primitive)
    name = kind.name
    if name in _INTEGERS:
        return _converted(values, pa.int64(), _integer)
    if name in ("float", "double"):
        rounded = name == "float" or _was_float(item)
        return _each(values, pa.float64(), lambda value: _float(value, rounded, upper))
    if kind.is_string:
        return _text_bounds(values, upper)
    if kind.decimal is not None:
        size = kind.decimal
        return _each(values, pa.decimal128(*size), lambda value: _decimal(value, *size, upper))
    if name == "date":
        return _cast(values, pa.date32(), _date)
    if name in ("timestamp", "timestamp_ntz"):
        zoned = name == "timestamp"
        times = _cast(values, to_arrow_type(kind), lambda value: _time(value, zoned, upper))
        # Times are cut down to milliseconds, so that the greatest may lie above its bound.
        # Created only here: pyarrow loads pandas for the first timedelta that it converts.
        return pc.add(times, pa.scalar(_MILLISECOND, pa.duration("us"))) if upper else times
    if name == "boolean":
        return _each(values, pa.bool_(), _boolean)
    return pa.nulls(len(values), pa.binary())


def _converted(values: Sequence[object], arrow_type: pa.DataType, read: _Reader) -> pa.Array:
    """Return the values converted all at once if every value is valid, else one by one with
    `read`.
    """
    try:
        return pa.array(values, arrow_type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return _each(values, arrow_type, read)


def _cast(values: Sequence[object], arrow_type: pa.DataType, read: _Reader) -> pa.Array:
    """Return texts cast to a type all at once if every value is valid, else one by one with
    `read`.
    """
    try:
        return pa.array(values, pa.string()).cast(arrow_type)
    except (pa.ArrowException, TypeError, ValueError):
        return _each(values, arrow_type, read)


def _each(values: Sequence[object], arrow_type: pa.DataType, read: _Reader) -> pa.Array:
    """Return the values converted one by one with `read`, null where it fails."""
    return pa.array(
        [None if value is None else _tried(read, value) for value in values], arrow_type
    )


def _tried(read: _Reader, value: object) -> PartitionScalar:
    """Return what `read` makes of a value; None if it fails."""
    try:
        return read(value)
    except (ValueError, TypeError, ArithmeticError, CorruptTable):
        return None


def _text_bounds(values: Sequence[object], upper: bool) -> pa.Array:
    """Return text bounds, null for what isn't text.

    An upper bound as long as cut texts may be a bare prefix, so it is extended by the last
    character.
    """
    texts = _converted(values, pa.string(), _text)
    if not upper:
        return texts
    extended = pc.binary_join_element_wise(texts, pa.scalar(_LAST_CHARACTER), "")
    is_cut = pc.greater_equal(pc.utf8_length(texts), _CUT_TEXT_LENGTH)
    return pc.if_else(is_cut, extended, texts)


def _integer(value: object) -> int | None:
    """Return a whole number of 64 bits; None for anything else."""
    if isinstance(value, Decimal) and value == value.to_integral_value():
        value = int(value)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and isinstance(value, int) and -(2**63) <= value < 2**63 else None


def _was_float(item: Field) -> bool:
    """Return whether the column was widened from float."""
    changes = item.metadata.get("delta.typeChanges")
    return isinstance(changes, list) and any(
        isinstance(change, dict) and change.get("fromType") == "float" for change in changes
    )


def _float(value: object, rounded: bool, upper: bool) -> float | None:
    """Return a bound as a double; None for what is no number.

    With `rounded` it is widened by the rounding of a float's shortest decimal text: the float's own
    value may lie on either side of the text's.
    """
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None  # the texts "NaN" and "Infinity" are no bounds
    number = float(value)
    if rounded:
        with np.errstate(over="ignore"):
            single = float(np.float32(number))
        number = max(number, single) if upper else min(number, single)
    return None if number != number else number


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _decimal(value: object, precision: int, scale: int, upper: bool) -> Decimal | None:
    """Return a bound as a decimal; None where the type can't hold it.

    It is rounded outwards to the scale, and with more than 15 digits widened for writers that pass
    it through a double. Raises ArithmeticError for a text that is no number.
    """
    if isinstance(value, str):
        value = Decimal(value)
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    exact = Decimal(value)
    if precision > _DIGITS_OF_DOUBLE:
        slack = _WIDE.multiply(exact.copy_abs(), _DOUBLE_STEP)
        exact = _WIDE.add(exact, slack) if upper else _WIDE.subtract(exact, slack)
    rounding = "ROUND_CEILING" if upper else "ROUND_FLOOR"
    try:
        result = exact.quantize(Decimal(1).scaleb(-scale), rounding=rounding, context=_WIDE)
    except DecimalException:
        return None
    return result if result == 0 or result.adjusted() < precision - scale else None


def _date(value: object) -> date | None:
    """Return the date that a text begins with; None for what isn't text. Raises ValueError."""
    if not isinstance(value, str):
        return None
    return date.fromisoformat(value[:10])


def _time(value: object, zoned: bool, upper: bool) -> int | None:
    """Return the microseconds of a time; None for what isn't text. Raises ValueError, or
    CorruptTable if `zoned`, for a text that is no time.

    An instant without a zone may be in any zone: its earliest or, as `upper`, latest instant
    counts.
    """
    if not isinstance(value, str):
        return None
    if not zoned:
        return parse_time(value).wall
    found = possible_instants(value)
    return None if found is None else found[1 if upper else 0]


def _boolean(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


_INTEGERS = ("byte", "short", "integer", "long")


_CUT_TEXT_LENGTH = 32


_LAST_CHARACTER = "\U0010ffff"


_MILLISECOND = timedelta(milliseconds=1)


_DIGITS_OF_DOUBLE = 15


_DOUBLE_STEP = Decimal(2) ** -51  # to the double, and to its shortest text


_WIDE = Context(prec=100)
