"""Partition values: conversion between the texts in `add.partitionValues` and typed values.

Owns the serialisation of one value of each type. Source: PROTOCOL.md, "Partition Value
Serialization". Two texts for one value (`01` and `1`, a timestamp in two notations) parse to equal
values; an empty text is null for every type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Context, Decimal, InvalidOperation
from typing import TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc

from txlake.errors import CorruptTable
from txlake.protocol.times import (
    OFFSET_MAX,
    FarTime,
    Time,
    is_zoned,
    micros_of,
    parse_time,
    time_of,
    time_text,
)
from txlake.protocol.types import DataType, Primitive, to_arrow_type

PartitionScalar: TypeAlias = (
    int | float | Decimal | str | bytes | bool | date | datetime | FarTime | None
)

_INTEGER_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_TIMESTAMP = Primitive("timestamp")
_TIME_TYPES = ("timestamp", "timestamp_ntz")
_EXACT = Context(prec=76)  # Python's default rounds to 28 digits, a decimal has up to 38
# As Spark casts texts. delta-rs writes "inf".
_INFINITY = {"infinity": "inf", "+infinity": "inf", "inf": "inf", "+inf": "inf"}
_FLOATS = {"nan": "nan", **_INFINITY, "-infinity": "-inf", "-inf": "-inf"}


def parse_value(text: str | None, data_type: DataType) -> PartitionScalar:
    """Return the value of a partition text; None for null.

    Integers are int, floats float, decimals Decimal, text str, binary bytes, dates date; timestamps
    are datetime in UTC, timestamp_ntz is a datetime without a zone; times beyond datetime's range
    are `FarTime`. Raises CorruptTable when the text is no value of the type, and for the text of a
    TIMESTAMP without a time zone, whose instant depends on the reader's zone, see `local_time`.
    """
    if text is None or text == "":
        return None
    if not isinstance(data_type, Primitive):
        raise CorruptTable(f"a partition column has the type {data_type!r}; found {text!r}")
    try:
        return _parse(text, data_type)
    except _NoZone as error:
        raise CorruptTable(
            f"partition value {text!r}: a TIMESTAMP without a time zone, whose instant depends on "
            "the time zone of the Spark session that reads it, found where that isn't known: read "
            "the table by SQL, or rewrite its files once, by UPDATE in a session of the writer's "
            "time zone, which writes the values in UTC"
        ) from error
    except (ValueError, ArithmeticError) as error:
        raise CorruptTable(
            f"partition value {text!r}: expected a value of type {data_type.name}"
        ) from error


class _NoZone(ValueError):
    """A timestamp without a zone."""


def check_value(text: str | None, data_type: DataType) -> None:
    """Raise CorruptTable when a text is no value of the type in any reader's time zone."""
    if local_time(text, data_type) is None:
        parse_value(text, data_type)


def local_time(text: str | None, data_type: DataType) -> int | None:
    """Return the wall clock time, in microseconds, of a TIMESTAMP's text without a time zone.

    None for every other text, invalid ones included. Delta Spark wrote such texts before it wrote
    UTC, and reads them in its session's time zone.
    """
    if not text or data_type != _TIMESTAMP:
        return None
    try:
        found = parse_time(text)
    except ValueError:
        return None
    return found.wall if found.offset_s is None else None


def possible_instants(text: str | None) -> tuple[int, int] | None:
    """Return the earliest and the latest instant, in microseconds, that a TIMESTAMP's text can be.

    None for null. Raises CorruptTable when the text is no timestamp.
    """
    wall = local_time(text, _TIMESTAMP)
    if wall is not None:
        return wall - OFFSET_MAX, wall + OFFSET_MAX
    found = parse_value(text, _TIMESTAMP)
    return (micros_of(found), micros_of(found)) if isinstance(found, datetime | FarTime) else None


def has_local_times(texts: pa.Array | pa.ChunkedArray, data_type: DataType) -> bool:
    """Return whether some of a column's texts are timestamps without a zone, see `local_time`."""
    if data_type != _TIMESTAMP:
        return False
    return any(local_time(text, data_type) is not None for text in pc.unique(texts).to_pylist())


def _parse(text: str, data_type: Primitive) -> PartitionScalar:
    """Return the value of a non-empty text.

    Raises _NoZone for a TIMESTAMP without a zone, ValueError or ArithmeticError for a text that is
    no value of the type.
    """
    name = data_type.name
    bits = _INTEGER_BITS.get(name)
    if bits is not None:
        return _integer(text, bits)
    if data_type.is_string:
        return text
    if name == "double":
        return _float(text)
    if name == "float":
        return float(pa.scalar(_float(text), pa.float32()).as_py())
    if name == "boolean":
        return _boolean(text)
    if name == "date":
        return _date(text)
    if name in _TIME_TYPES:
        return time_of(_micros(text, name), zoned=name == "timestamp")
    if name == "binary":
        return text.encode()  # as Spark casts text to binary
    if data_type.decimal is not None:
        return _decimal(text, *data_type.decimal)
    raise ValueError(f"type {name} can't be a partition's")


def _integer(text: str, bits: int) -> int:
    """Return the whole number.

    Raises ValueError for other texts, and for one that `bits` can't hold.
    """
    if re.fullmatch(r"\s*[+-]?\d+\s*", text) is None:
        raise ValueError(text)
    value = int(text)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"out of range: {text}")
    return value


def _float(text: str) -> float:
    """Return the number as Spark casts it: `inf`, `NaN` and a final `d` or `f` are accepted; -0.0
    gives 0.0.

    Raises ValueError for another text.
    """
    folded = text.strip().lower()
    value = float(_FLOATS.get(folded, folded.rstrip("df") if folded[-1:] in "df" else folded))
    return value + 0.0  # -0.0 and 0.0 are one value


def _boolean(text: str) -> bool:
    """Return the boolean of `true` or `false` in any letter case.

    Raises ValueError for another text.
    """
    folded = text.strip().lower()
    if folded not in ("true", "false"):
        raise ValueError(text)
    return folded == "true"


def _date(text: str) -> date:
    # Some writers add a time of day: `2021-01-01 00:00:00`.
    year, month, day = text.strip().split(" ")[0].split("T")[0].split("-")
    return date(int(year), int(month), int(day))


def _decimal(text: str, precision: int, scale: int) -> Decimal:
    """Return the decimal at the type's scale.

    Raises ValueError where the type can't hold it exactly.
    """
    try:
        value = Decimal(text.strip())
    except InvalidOperation as error:
        raise ValueError(text) from error
    if not value.is_finite():
        raise ValueError(text)
    exact = None
    if _fits(value, precision, scale):
        exact = value.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    if exact is None or exact != value:
        raise ValueError(f"not a decimal({precision},{scale}): {text}")
    return exact


def _fits(value: Decimal, precision: int, scale: int) -> bool:
    return value == 0 or value.adjusted() < precision - scale


def _micros(text: str, name: str) -> int:
    """Return the microseconds since 1970 of an instant, or of a wall time for `timestamp_ntz`.

    Raises _NoZone for an instant without a zone, ValueError for other texts.
    """
    found = parse_time(text)
    if name == "timestamp_ntz":
        return found.wall  # as Spark casts it: a zone is ignored
    if found.instant is None:
        raise _NoZone(text)
    return found.instant


def format_value(value: PartitionScalar, data_type: DataType) -> str | None:
    """Return the text of a partition value, which `parse_value` reads as an equal value.

    Timestamps are written in UTC as `2020-01-01T00:00:00.000000Z`, timestamp_ntz as `2020-01-01
    00:00:00`, with microseconds unless they are zero. None and the empty text give None: the log
    has no empty text. Raises ValueError for a value that the type can't hold, and for binary values
    that are no UTF-8 text, which the log's JSON can't hold.
    """
    if value is None or value == "" or value == b"":
        return None
    if not isinstance(data_type, Primitive):
        raise ValueError(f"a partition column can't have the type {data_type!r}")
    text = _format(value, data_type)
    if text is None:
        raise ValueError(f"partition value {value!r}: expected a value of type {data_type.name}")
    return text


def _format(value: PartitionScalar, data_type: Primitive) -> str | None:
    """Return the text of a value; None if it isn't of the type.

    Raises ValueError where it doesn't fit.
    """
    name = data_type.name
    match value:
        case bool():
            return str(value).lower() if name == "boolean" else None
        case int() if name in _INTEGER_BITS:
            return str(value)
        case int() | float() if name in ("float", "double"):
            return _format_float(float(value))
        case int() | Decimal() if data_type.decimal is not None:
            return f"{_decimal(str(value), *data_type.decimal):f}"
        case str() if data_type.is_string:
            return value
        case bytes() if name == "binary":
            return value.decode()
        case datetime() | FarTime() if name in _TIME_TYPES:
            return _format_time(value, zoned=name == "timestamp")
        case date() if name == "date" and not isinstance(value, datetime):
            return f"{value.year:04d}-{value.month:02d}-{value.day:02d}"
    return None


def _format_float(value: float) -> str:
    """Return the number as Spark writes it: `NaN`, `Infinity`, and 0.0 for -0.0."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value + 0.0)


def _format_time(value: Time, *, zoned: bool) -> str | None:
    """Return the text; None for an instant where a wall time is expected, or the reverse."""
    return time_text(micros_of(value), zoned=zoned) if is_zoned(value) == zoned else None


def parse_column(texts: pa.Array | pa.ChunkedArray, data_type: DataType) -> pa.Array:
    """Return the values of many partition texts as an Arrow array of the column's type.

    Each distinct text is parsed once. Raises CorruptTable when a text is no value of the type.
    """
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    arrow_type = to_arrow_type(data_type)
    encoded = pc.dictionary_encode(texts.cast(pa.string()))
    distinct = [parse_value(text, data_type) for text in encoded.dictionary.to_pylist()]
    return arrow_values(distinct, arrow_type).take(encoded.indices)


def arrow_values(values: Iterable[PartitionScalar], arrow_type: pa.DataType) -> pa.Array:
    """Return the values as an Arrow array, times beyond datetime's range included."""
    if not pa.types.is_timestamp(arrow_type):
        return pa.array(values, arrow_type)
    return pa.array(
        [micros_of(value) if isinstance(value, datetime | FarTime) else None for value in values],
        arrow_type,
    )


def scalars_of(values: pa.Array | pa.ChunkedArray) -> list[PartitionScalar]:
    """Return the values of an Arrow array, times beyond datetime's range included."""
    kind = values.type
    if not pa.types.is_timestamp(kind):
        return cast("list[PartitionScalar]", values.to_pylist())
    zoned = kind.tz is not None
    every = values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).to_pylist()
    return [None if micros is None else time_of(micros, zoned=zoned) for micros in every]


def format_column(values: pa.Array, data_type: DataType) -> list[str | None]:
    """Return the texts of an Arrow array of the column's type; None for a null and an empty text.
    Raises as `format_value`.
    """
    if not isinstance(data_type, Primitive) or data_type.name not in _TIME_TYPES:
        return [format_value(value, data_type) for value in values.to_pylist()]
    zoned = data_type.name == "timestamp"
    return [
        None if micros is None else time_text(micros, zoned=zoned)
        for micros in values.cast(to_arrow_type(data_type)).cast(pa.int64()).to_pylist()
    ]
