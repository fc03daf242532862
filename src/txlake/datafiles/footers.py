"""Data files' Parquet footers, and the statistics in them.

Owns which columns get statistics; `protocol.statistics` owns their JSON. Source: PROTOCOL.md,
"Per-file Statistics".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from txlake.datafiles.parquet import is_legacy
from txlake.protocol.actions import Add
from txlake.protocol.statistics import FileStatistics
from txlake.protocol.table_properties import TableProperties
from txlake.protocol.types import Array, DataType, Field, Map, Primitive, Struct

_TAIL_BYTES = 65_536
WITHOUT_BOUNDS = frozenset({"boolean", "binary", "variant", "void"})
# From these on, the calendars of old Spark versions and of today agree.
_SAME_DAYS_FROM = date(1582, 10, 15)
_SAME_TIMES_FROM = datetime(1900, 1, 1, tzinfo=UTC)

SAFE_FOR_FILTERS: Mapping[str, str] = {"txlake.filters": "safe"}
"""The tag of files of which a filter that Spark pushes down to Parquet never loses a row.

`exact_footers` has corrected their floating-point columns, timestamps are in microseconds, and
no date or timestamp is so early that java.sql.Date or Timestamp changes it."""
SAME_DATES_FROM = date(1583, 1, 1)
_SAME_IN_JAVA_SQL_FROM = datetime(1900, 1, 3, tzinfo=UTC)
_INEXACT = frozenset({"float", "double", "date", "timestamp"})


def read_footer(read: Callable[[int, int], bytes], size_bytes: int) -> pq.FileMetaData:
    """Return the footer of a file of `size_bytes`. `read` returns bytes by offset and length.

    Reads the last 64 KiB, and a longer footer again as a whole. Raises pyarrow.ArrowInvalid if it
    isn't a Parquet file, and what `read` raises.
    """
    start = max(0, size_bytes - _TAIL_BYTES)
    tail = read(start, size_bytes - start)
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if len(tail) < length <= size_bytes:
        tail = read(size_bytes - length, length)
    return pq.read_metadata(pa.BufferReader(tail))


def statistics_of(
    footer: pq.FileMetaData,
    schema: Struct,
    partition_columns: Collection[str],
    properties: TableProperties,
    with_nan: Collection[tuple[str, ...]] = (),
    clustered: Collection[tuple[str, ...]] = (),
) -> FileStatistics:
    """Return the statistics of a file that holds `schema` without its partition columns, in order.

    Only indexed columns have some. Columns in lists and maps have none, and booleans, binary and
    variants no bounds. Times that may be of the calendar before 1582 get no bounds.

    `with_nan`: physical paths of leaf columns that may hold a NaN where the footer has bounds. They
    get no bounds, since NaN is greater than the maximum of the rest.

    `clustered`: logical paths of the clustering columns, which always have statistics.
    """
    columns = [item for item in schema if item.name not in partition_columns]
    indexed = indexed_columns(columns, properties).union(clustered)
    minimum: dict[str, object] = {}
    maximum: dict[str, object] = {}
    nulls: dict[str, object] = {}
    is_old = is_legacy(footer.metadata)
    for index, (path, logical, data_type) in enumerate(leaves(columns)):
        if path is None or logical not in indexed:
            continue
        bounds = chunk_bounds(footer, index)
        if is_old and is_old_time(bounds.minimum):
            bounds = ChunkBounds(null_count=bounds.null_count)
        if bounds.null_count is not None:
            set_leaf(nulls, path, bounds.null_count)
        bounded = isinstance(data_type, Primitive) and data_type.name not in WITHOUT_BOUNDS
        if bounded and bounds.minimum is not None and path not in with_nan:
            set_leaf(minimum, path, bounds.minimum)
            set_leaf(maximum, path, bounds.maximum)
    return FileStatistics(
        num_records=footer.num_rows,
        min_values=minimum,
        max_values=maximum,
        null_count=nulls,
        tight_bounds=True,
    )


def filter_safe_tags(
    footer: pq.FileMetaData, schema: Struct, partition_columns: Collection[str]
) -> Mapping[str, str]:
    """Return SAFE_FOR_FILTERS if Spark's filters lose no row of a txlake file, else {}.

    The arguments are as in `statistics_of`; `exact_footers` has corrected the footer. A file whose
    columns never mislead a filter needs no tag, and gets none.
    """
    columns = [item for item in schema if item.name not in partition_columns]
    is_needed = False
    for index, (path, _, data_type) in enumerate(leaves(columns)):
        if path is None or not isinstance(data_type, Primitive):
            continue
        is_needed = is_needed or data_type.name in _INEXACT
        if data_type.name in ("date", "timestamp"):
            bounds = chunk_bounds(footer, index)
            is_all_null = bounds.null_count == footer.num_rows
            if not is_all_null and not _is_modern(bounds.minimum):
                return {}
    return SAFE_FOR_FILTERS if is_needed else {}


def is_filter_safe(add: Add) -> bool:
    """Return whether the file's tag says that Spark's filters lose no row of it."""
    name, value = next(iter(SAFE_FOR_FILTERS.items()))
    return (add.tags or {}).get(name) == value


def _is_modern(value: object) -> bool:
    """Return whether java.sql.Date and Timestamp keep this time, and all later ones, unchanged.

    False for anything but a date or datetime; one without a zone is taken as UTC.
    """
    match value:
        case datetime():
            return value.replace(tzinfo=value.tzinfo or UTC) >= _SAME_IN_JAVA_SQL_FROM
        case date():
            return value >= SAME_DATES_FROM
    return False


def indexed_columns(columns: list[Field], properties: TableProperties) -> set[tuple[str, ...]]:
    """Return the leaf columns, as logical paths, that the table's properties give statistics to.

    `delta.dataSkippingStatsColumns` names columns or whole structs, in any letter case; else the
    first `delta.dataSkippingNumIndexedCols` count, all if it is negative.
    """
    paths = [logical for path, logical, _ in leaves(columns) if path is not None]
    names = properties.data_skipping_stats_columns
    if names is not None:
        chosen = [tuple(part.lower() for part in name) for name in names]
        return {
            leaf
            for leaf in paths
            if any(tuple(p.lower() for p in leaf[: len(name)]) == name for name in chosen)
        }
    limit = properties.data_skipping_num_indexed_cols
    return set(paths if limit < 0 else paths[:limit])


@dataclass(slots=True)
class ChunkBounds:
    """The statistics of one leaf column.

    The bounds are None if a row group with values has none, or no row group has values; the count
    is None if a row group has none.
    """

    minimum: Any = None
    maximum: Any = None
    null_count: int | None = 0


def chunk_bounds(footer: pq.FileMetaData, index: int) -> ChunkBounds:
    """Return the statistics of one leaf column over all row groups.

    Row groups that hold only nulls don't count for the bounds.
    """
    bounds = ChunkBounds()
    has_bounds = True
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(index)
        statistics = chunk.statistics
        nulls = None
        if statistics is not None and statistics.has_null_count:
            nulls = statistics.null_count
        if bounds.null_count is not None:
            bounds.null_count = None if nulls is None else bounds.null_count + nulls
        if nulls == chunk.num_values:
            continue
        group_bounds = _bounds_of(statistics)
        if group_bounds is None:
            has_bounds = False
        elif has_bounds:
            low, high = group_bounds
            bounds.minimum = low if bounds.minimum is None else min(bounds.minimum, low)
            bounds.maximum = high if bounds.maximum is None else max(bounds.maximum, high)
    return bounds if has_bounds else ChunkBounds(null_count=bounds.null_count)


def _bounds_of(statistics: Any) -> tuple[Any, Any] | None:  # noqa: ANN401 - pyarrow has no types
    """Return a row group's bounds; None if it has none, one is NaN, or a time is beyond Python's
    range.

    A lower bound of zero is -0.0, an upper one 0.0.
    """
    if statistics is None or not statistics.has_min_max:
        return None
    try:
        low, high = statistics.min, statistics.max
    except (ValueError, OverflowError):  # a time beyond Python's range
        return None
    if not isinstance(low, float):
        return low, high
    if math.isnan(low) or math.isnan(high):
        return None
    # Zero of either sign is within the bounds, whichever sign sorts first.
    return (low or -0.0), (high or 0.0)


def is_old_time(value: object) -> bool:
    """Return whether a time is so early that the old and today's calendar tell it apart.

    Dates before 1582-10-15, timestamps before 1900; False for anything else.
    """
    match value:
        case datetime():
            return value.replace(tzinfo=value.tzinfo or UTC) < _SAME_TIMES_FROM
        case date():
            return value < _SAME_DAYS_FROM
    return False


def set_leaf(values: dict[str, object], path: tuple[str, ...], value: object) -> None:
    """Set a leaf in nested dicts, creating the ones that are missing on the path."""
    for part in path[:-1]:
        inner = values.setdefault(part, {})
        assert isinstance(inner, dict)
        values = inner
    values[path[-1]] = value


_Leaf = tuple[tuple[str, ...] | None, tuple[str, ...], DataType]


def leaves(columns: list[Field]) -> Iterator[_Leaf]:
    """Yield the Parquet leaves in file order: physical path, logical path, type.

    The physical path is None inside a list or map, whose elements add no name to the logical path.
    A variant has two leaves: without a physical path its value, then its metadata.
    """
    for item in columns:
        yield from _leaves_of(item.type, (item.physical_name,), (item.name,))


def _leaves_of(
    data_type: DataType, path: tuple[str, ...] | None, logical: tuple[str, ...]
) -> Iterator[_Leaf]:
    """Yield the leaves of a type at a path, as `leaves` does."""
    match data_type:
        case Struct(fields):
            for item in fields:
                inner = None if path is None else (*path, item.physical_name)
                yield from _leaves_of(item.type, inner, (*logical, item.name))
        case Array(element, _):
            yield from _leaves_of(element, None, logical)
        case Map(key, value, _):
            yield from _leaves_of(key, None, logical)
            yield from _leaves_of(value, None, logical)
        case Primitive("variant"):  # its value, then its metadata, which says where it is null
            yield None, logical, data_type
            yield path, logical, data_type
        case _:
            yield path, logical, data_type
