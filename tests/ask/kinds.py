"""The types of random columns: their edge values, and the SQL text of each value."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

NAN, INFINITY = float("nan"), float("inf")
_CUT = "x" * 32  # the length to which statistics truncate texts
_LAST = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class Kind:
    """A column type.

    Attributes:
        sql: its SQL type, which is also its name here.
        group: types of one group are compared with each other without a cast.
        literal: returns the SQL text of a value other than None, of exactly this type.
        partitions: a table may be partitioned by it.
        wider: the types that ALTER TABLE may change it to.
    """

    sql: str
    arrow: pa.DataType
    group: str
    values: Sequence[Any]
    literal: Callable[[Any], str]
    partitions: bool = False
    wider: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)


def quoted(text: str) -> str:
    """Return a text as a SQL literal under the default settings."""
    shown = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{shown}'"


def _cast(sql: str) -> Callable[[Any], str]:
    return lambda value: f"CAST({_number(value)} AS {sql})"


def _number(value: Any) -> str:
    return f"({value})" if value < 0 else str(value)


def _floating(sql: str) -> Callable[[Any], str]:
    def text(value: float) -> str:
        if value != value:
            return f"CAST('NaN' AS {sql})"
        if value in (INFINITY, -INFINITY):
            return f"CAST('{'-' if value < 0 else ''}Infinity' AS {sql})"
        return f"CAST('{value!r}' AS {sql})"

    return text


def _decimal(sql: str) -> Callable[[Any], str]:
    return lambda value: f"CAST('{value:f}' AS {sql})"


def _bigint(value: int) -> str:
    return "(-9223372036854775807L - 1L)" if value == -(2**63) else f"({value}L)"


def time_text(value: datetime) -> str:
    """Return a time as in a literal, with the zone if it has one."""
    zone = "" if value.tzinfo is None else "Z"
    fraction = f".{value.microsecond:06}" if value.microsecond else ""
    return (
        f"{value.year:04}-{value.month:02}-{value.day:02} "
        f"{value.hour:02}:{value.minute:02}:{value.second:02}{fraction}{zone}"
    )


def _single(value: float) -> float:
    """Return the nearest single-precision number."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


TEXTS = (
    *("", "a", "b", "ab", "A", "B", " a ", "a%b", "a_b", "it's", "5", "05", "-1", "1e1", "NaN"),
    *("true", "2020-01-01", "2020-03-08 02:30:00", "null", "x" * 31, _CUT, _CUT + "x"),
    *(_CUT + "\x7f", _CUT + "y" * 9, "x" * 31 + "\U0001f600", _CUT + "\U0001f600z"),
    *("x" * 31 + _LAST * 2, _LAST * 33, "\uffff" * 33 + "a", "\u00e9" * 33, "\ue000", "\U00010000"),
    *("\ud7ff", "\uffff", "\u00df", "a\\b", "line\nbreak", "tab\there", "\x01", "z"),
)
DATES = (
    *(date(1, 1, 1), date(1, 1, 3), date(1000, 2, 28), date(1582, 10, 4), date(1582, 10, 5)),
    *(date(1582, 10, 10), date(1582, 10, 14), date(1582, 10, 15), date(1899, 12, 31)),
    *(date(1900, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2020, 1, 1)),
    *(date(2020, 2, 29), date(2020, 3, 8), date(9999, 12, 31)),
)
_WALL_TIMES = tuple(
    datetime.fromisoformat(text)
    for text in (
        *("0001-01-01 00:00:00", "0001-01-02 12:00:00", "1582-10-04 23:59:59.999999"),
        *("1582-10-05 00:00:00", "1582-10-10 07:08:09", "1582-10-15 00:00:00"),
        *("1883-11-18 17:00:00", "1899-12-31 23:59:59.999999", "1900-01-01 00:00:00"),
        *("1948-04-28 08:35:00", "1969-12-31 23:59:59.999999", "1970-01-01 00:00:00"),
        *("2020-01-01 00:00:00", "2020-01-01 05:00:00", "2020-01-01 05:00:00.000001"),
        *("2020-03-08 07:30:00", "2020-03-08 02:30:00", "2020-11-01 05:30:00"),
        *("2020-11-01 06:30:00", "2038-01-19 03:14:08", "9999-12-30 12:00:00"),
        *("9999-12-31 23:59:59", "9999-12-31 23:59:59.999999"),
    )
)
_INSTANTS = tuple(time.replace(tzinfo=UTC) for time in _WALL_TIMES)
_DOUBLES = (
    *(NAN, INFINITY, -INFINITY, 0.0, -0.0, 1.5, -1.5, 0.1, 2.0, 9007199254740992.0, 1e-300),
    *(5e-324, 1.7976931348623157e308, -1.7976931348623157e308, 16777217.0),
)
_FLOATS = (
    *(NAN, INFINITY, -INFINITY, 0.0, -0.0, 1.5, -1.5, _single(0.1), 2.0, 16777216.0),
    *(_single(1.4e-45), _single(3.4028234663852886e38), _single(-3.4028234663852886e38)),
)
_BYTES = (b"", b"\x00", b"\xff", b"a", b"b", b"\x00\xff", b"\x7f", b"\x80", b"x" * 40)
_STRUCT = pa.struct([("x", pa.int32()), ("y", pa.string()), ("z", pa.float64())])


def _date(value: date) -> str:
    return f"DATE'{value.isoformat()[:10]}'"


def _timestamp(value: datetime) -> str:
    return f"TIMESTAMP'{time_text(value)}'"


def _wall_time(value: datetime) -> str:
    return f"TIMESTAMP_NTZ'{time_text(value)}'"


def _struct(value: Mapping[str, Any]) -> str:
    parts = (f"'{name}', {literal(_STRUCT_FIELDS[name], value[name])}" for name in _STRUCT_FIELDS)
    return f"named_struct({', '.join(parts)})"


def _array(sql: str) -> Callable[[Any], str]:
    def text(values: Sequence[Any]) -> str:
        shown = ", ".join(literal(sql, value) for value in values)
        return f"CAST(array({shown}) AS ARRAY<{sql}>)"

    return text


def _map(values: Sequence[tuple[str, int | None]]) -> str:
    shown = ", ".join(f"{quoted(key)}, {literal('INT', value)}" for key, value in values)
    return f"CAST(map({shown}) AS MAP<STRING,INT>)"


def _nested(value: Mapping[str, Any]) -> str:
    inner = value["s"]
    shown = "NULL" if inner is None else f"named_struct('d', {literal('DATE', inner['d'])})"
    return (
        f"CAST(named_struct('s', {shown}, 'f', {literal('FLOAT', value['f'])}) "
        "AS STRUCT<s:STRUCT<d:DATE>,f:FLOAT>)"
    )


_STRUCT_FIELDS = {"x": "INT", "y": "STRING", "z": "DOUBLE"}
_ALL = (
    Kind(
        "TINYINT",
        pa.int8(),
        "number",
        (0, 1, -1, 2, 5, 127, -128),
        _cast("TINYINT"),
        True,
        ("INT", "DOUBLE"),
    ),
    Kind(
        "SMALLINT",
        pa.int16(),
        "number",
        (0, 1, -1, 2, 5, 127, 128, 32767, -32768),
        _cast("SMALLINT"),
        True,
        ("INT", "BIGINT"),
    ),
    Kind(
        "INT",
        pa.int32(),
        "number",
        (0, 1, -1, 2, 5, 16777217, 2**31 - 1, -(2**31)),
        _cast("INT"),
        True,
        ("BIGINT", "DOUBLE"),
    ),
    Kind(
        "BIGINT",
        pa.int64(),
        "number",
        (0, 1, -1, 2, 5, 2**31, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)),
        _bigint,
        True,
    ),
    Kind("FLOAT", pa.float32(), "number", _FLOATS, _floating("FLOAT"), True, ("DOUBLE",)),
    Kind("DOUBLE", pa.float64(), "number", _DOUBLES, _floating("DOUBLE"), True),
    Kind(
        "DECIMAL(5,2)",
        pa.decimal128(5, 2),
        "number",
        tuple(map(Decimal, ("0.00", "1.00", "1.50", "-1.50", "0.01", "999.99", "-999.99"))),
        _decimal("DECIMAL(5,2)"),
        True,
        ("DECIMAL(12,4)",),
    ),
    Kind(
        "DECIMAL(18,4)",
        pa.decimal128(18, 4),
        "number",
        tuple(map(Decimal, ("0", "1.0000", "1.5000", "-0.0001", "99999999999999.9999"))),
        _decimal("DECIMAL(18,4)"),
        True,
    ),
    Kind(
        "DECIMAL(38,10)",
        pa.decimal128(38, 10),
        "number",
        tuple(
            map(
                Decimal,
                (
                    *("0", "1", "1.5", "0.0000000001", "9007199254740993"),
                    "9999999999999999999999999999.9999999999",
                    "-9999999999999999999999999999.9999999999",
                ),
            )
        ),
        _decimal("DECIMAL(38,10)"),
        True,
    ),
    Kind("STRING", pa.string(), "text", TEXTS, quoted, True),
    Kind("BOOLEAN", pa.bool_(), "boolean", (True, False), lambda one: str(one).lower(), True),
    Kind("BINARY", pa.binary(), "binary", _BYTES, lambda one: f"X'{one.hex()}'", True),
    Kind("DATE", pa.date32(), "time", DATES, _date, True, ("TIMESTAMP_NTZ",)),
    Kind("TIMESTAMP", pa.timestamp("us", "UTC"), "time", _INSTANTS, _timestamp, True),
    Kind("TIMESTAMP_NTZ", pa.timestamp("us"), "time", _WALL_TIMES, _wall_time, True),
    Kind(
        "STRUCT<x:INT,y:STRING,z:DOUBLE>",
        _STRUCT,
        "struct",
        (
            {"x": 1, "y": "a", "z": 1.5},
            {"x": None, "y": "b", "z": NAN},
            {"x": 2**31 - 1, "y": None, "z": -0.0},
            {"x": 0, "y": _CUT + "z", "z": INFINITY},
            {"x": -1, "y": "", "z": None},
        ),
        _struct,
        fields=_STRUCT_FIELDS,
    ),
    Kind(
        "STRUCT<s:STRUCT<d:DATE>,f:FLOAT>",
        pa.struct([("s", pa.struct([("d", pa.date32())])), ("f", pa.float32())]),
        "struct",
        (
            {"s": {"d": date(1582, 10, 10)}, "f": NAN},
            {"s": {"d": date(2020, 1, 1)}, "f": -0.0},
            {"s": {"d": None}, "f": 0.0},
            {"s": None, "f": 2.0},
        ),
        _nested,
        fields={"s.d": "DATE", "f": "FLOAT"},
    ),
    Kind(
        "ARRAY<INT>",
        pa.list_(pa.int32()),
        "array",
        ([], [1], [1, 2], [2, None], [None], [2**31 - 1]),
        _array("INT"),
    ),
    Kind(
        "ARRAY<DOUBLE>",
        pa.list_(pa.float64()),
        "array",
        ([], [NAN], [0.0], [-0.0], [1.5, None]),
        _array("DOUBLE"),
    ),
    Kind(
        "MAP<STRING,INT>",
        pa.map_(pa.string(), pa.int32()),
        "map",
        ([], [("k", 1)], [("k", 2), ("l", None)], [("", 0)]),
        _map,
    ),
)
KINDS: Mapping[str, Kind] = {kind.sql: kind for kind in _ALL}
# A type that columns get by ALTER TABLE only.
DECIMAL_WIDE = Kind(
    "DECIMAL(12,4)",
    pa.decimal128(12, 4),
    "number",
    tuple(map(Decimal, ("0", "1.5000", "0.0001", "99999999.9999"))),
    _decimal("DECIMAL(12,4)"),
)
EVERY: Mapping[str, Kind] = {**KINDS, DECIMAL_WIDE.sql: DECIMAL_WIDE}


def literal(sql: str, value: Any) -> str:
    """Return the SQL text of a value of this type."""
    return f"CAST(NULL AS {sql})" if value is None else EVERY[sql].literal(value)


def random_value(rng: Random, kind: Kind, pool: Sequence[Any], nulls: float) -> Any:
    """Return a value of the pool, or NULL with the likelihood `nulls`."""
    return None if rng.random() < nulls else rng.choice(pool)
