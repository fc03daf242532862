"""Partition values: the texts in `add.partitionValues` and the values that they stand for.

Owns the serialisation of one value of each type. Source: PROTOCOL.md, "Partition Value
Serialization". Two texts that stand for one value (`01` and `1`, a timestamp in two notations)
parse to equal values; an empty text is null for every type.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from txlake.errors import CorruptTable
from txlake.protocol.types import DataType, Primitive, to_arrow_type

PartitionScalar: TypeAlias = int | float | Decimal | str | bytes | bool | date | datetime | None

_INTEGER_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_TIMESTAMP = re.compile(
    r"(?P<date>[+-]?\d{4,6}-\d{1,2}-\d{1,2})"
    r"(?:[ T](?P<time>\d{1,2}:\d{1,2}:\d{1,2})(?:\.(?P<fraction>\d{1,9}))?"
    r"\s*(?P<zone>Z|UTC|GMT|[+-]\d{1,2}(?::?\d{2})?(?::?\d{2})?)?)?"
)
_EXACT = Context(prec=76)  # Python's default rounds to 28 digits, a decimal has up to 38
# As Spark casts texts. delta-rs writes "inf".
_INFINITY = {"infinity": "inf", "+infinity": "inf", "inf": "inf", "+inf": "inf"}
_FLOATS = {"nan": "nan", **_INFINITY, "-infinity": "-inf", "-inf": "-inf"}


def parse_value(text: str | None, data_type: DataType) -> PartitionScalar:
    """The value of a partition text; None for null.

    Integers are int, floats float, decimals Decimal, text str, binary bytes, dates date;
    timestamps are datetime in UTC, those without a zone in the text taken as UTC; timestamp_ntz
    is a datetime without a zone. Raises CorruptTable when the text is no value of the type.
    """
    if text is None or text == "":
        return None
    if not isinstance(data_type, Primitive):
        raise CorruptTable(f"a partition column has the type {data_type!r}; found {text!r}")
    try:
        return _parse(text, data_type)
    except (ValueError, ArithmeticError) as error:
        raise CorruptTable(
            f"partition value {text!r}: expected a value of type {data_type.name}"
        ) from error


def _parse(text: str, data_type: Primitive) -> PartitionScalar:
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
    if name == "timestamp":
        return _timestamp(text, zoned=True)
    if name == "timestamp_ntz":
        return _timestamp(text, zoned=False)
    if name == "binary":
        return text.encode()  # as Spark casts text to binary
    if data_type.decimal is not None:
        return _decimal(text, *data_type.decimal)
    raise ValueError(f"type {name} can't be a partition's")


def _integer(text: str, bits: int) -> int:
    if re.fullmatch(r"\s*[+-]?\d+\s*", text) is None:
        raise ValueError(text)
    value = int(text)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"out of range: {text}")
    return value


def _float(text: str) -> float:
    folded = text.strip().lower()
    value = float(_FLOATS.get(folded, folded.rstrip("df") if folded[-1:] in "df" else folded))
    return value + 0.0  # -0.0 and 0.0 are one value


def _boolean(text: str) -> bool:
    folded = text.strip().lower()
    if folded not in ("true", "false"):
        raise ValueError(text)
    return folded == "true"


def _date(text: str) -> date:
    # Some writers add a time of day: `2021-01-01 00:00:00`.
    year, month, day = text.strip().split(" ")[0].split("T")[0].split("-")
    return date(int(year), int(month), int(day))


def _decimal(text: str, precision: int, scale: int) -> Decimal:
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


def _timestamp(text: str, *, zoned: bool) -> datetime:
    match = _TIMESTAMP.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    day = _date(match["date"])
    hour, minute, second = (int(part) for part in (match["time"] or "0:0:0").split(":"))
    microsecond = int((match["fraction"] or "").ljust(6, "0")[:6])
    value = datetime(day.year, day.month, day.day, hour, minute, second, microsecond)  # noqa: DTZ001
    if not zoned:
        return value
    return (value - _offset(match["zone"])).replace(tzinfo=UTC)


def _offset(zone: str | None) -> timedelta:
    if zone is None or zone in ("Z", "UTC", "GMT"):
        return timedelta()
    digits = [int(part) for part in re.findall(r"\d{1,2}", zone)]
    hours, minutes, seconds = (*digits, 0, 0)[:3]
    span = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return -span if zone[0] == "-" else span


def format_value(value: PartitionScalar, data_type: DataType) -> str | None:
    """The text of a partition value: what `parse_value` reads back as an equal value.

    Timestamps are written in UTC as `2020-01-01T00:00:00.000000Z`, timestamp_ntz as
    `2020-01-01 00:00:00` with microseconds where there are any. None and the empty text give
    None: the log knows no empty text. Raises ValueError for a value that the type can't hold, and
    for binary values that are no UTF-8 text, which the log's JSON can't hold.
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
        case datetime() if name in ("timestamp", "timestamp_ntz"):
            return _format_timestamp(value, zoned=name == "timestamp")
        case date() if name == "date" and not isinstance(value, datetime):
            return f"{value.year:04d}-{value.month:02d}-{value.day:02d}"
    return None


def _format_float(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value + 0.0)


def _format_timestamp(value: datetime, *, zoned: bool) -> str:
    if zoned:
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        # strftime pads years below 1000 by the platform; isoformat always has four digits.
        utc = aware.astimezone(UTC).replace(tzinfo=None)
        return f"{utc.isoformat(timespec='microseconds')}Z"
    wall = value.replace(tzinfo=None)
    return wall.isoformat(sep=" ", timespec="microseconds" if wall.microsecond else "seconds")


def parse_column(texts: pa.Array | pa.ChunkedArray, data_type: DataType) -> pa.Array:
    """The values of many partition texts as an Arrow array of the column's type, of equal length.

    Each distinct text is parsed once. Raises CorruptTable when a text is no value of the type.
    """
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    arrow_type = to_arrow_type(data_type)
    encoded = pc.dictionary_encode(texts.cast(pa.string()))
    distinct = [parse_value(text, data_type) for text in encoded.dictionary.to_pylist()]
    return pa.array(distinct, arrow_type).take(encoded.indices)
