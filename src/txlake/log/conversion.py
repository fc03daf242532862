"""Conversion of values to a column's type, where Arrow and Spark agree.

Owns which conversions those are. Tasks run it, so it needs pyarrow alone.
"""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa

_Values = TypeVar("_Values", pa.Array, pa.ChunkedArray)


def converts_as_spark(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether `convert` and Spark give the same for every value that `convert` accepts.

    Arrow rounds a float to a decimal by its binary value, Spark by its shortest text; a date begins
    at midnight of the session's time zone, which is unknown here.
    """
    t = pa.types
    if t.is_string(target) or t.is_timestamp(source):
        return bool(t.is_null(source))
    if t.is_timestamp(target) and target.tz is not None:
        return not t.is_date(source)
    return not (t.is_floating(source) and t.is_decimal(target))


def convert(values: _Values, target: pa.DataType) -> _Values:
    """Convert the values to a type. Raises ArrowException for an inexact or invalid value.

    `converts_as_spark` says where Spark gives the same.
    """
    if pa.types.is_decimal(values.type) and pa.types.is_floating(target):
        values = values.cast(pa.string())  # Arrow's own cast doesn't give the nearest number
    return values.cast(target, safe=True)
