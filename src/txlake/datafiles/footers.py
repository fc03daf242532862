"""A data file's Parquet footer, and the statistics in it.

Owns which columns get statistics; their JSON is `protocol.statistics`' business. Source:
PROTOCOL.md, "Per-file Statistics".
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
# Since when the calendar of old Spark versions tells the same days and instants as today's.
_SAME_DAYS_FROM = date(1582, 10, 15)
_SAME_TIMES_FROM = datetime(1900, 1, 1, tzinfo=UTC)

SAFE_FOR_FILTERS: Mapping[str, str] = {"txlake.filters": "safe"}
"""The tag of files of which no row is lost to a filter that Spark gives to Parquet: floating-point
columns as `exact_footers` leaves them, timestamps in microseconds, no date or timestamp so early
that java.sql.Date or Timestamp changes it."""
SAME_DATES_FROM = date(1583, 1, 1)
_SAME_IN_JAVA_SQL_FROM = datetime(1900, 1, 3, tzinfo=UTC)
_INEXACT = frozenset({"float", "double", "date", "timestamp"})


def read_footer(read: Callable[[int, int], bytes], size_bytes: int) -> pq.FileMetaData:
    """The footer of a file of that size. `read` gives bytes of it by offset and length.

    Raises pyarrow.ArrowInvalid when it is no Parquet file.
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
    """The statistics of a file that holds `schema` without its partition columns, in order.

    `clustered`: the clustering columns, logical paths, which have statistics always.
    `with_nan`: leaf columns that may hold a NaN where the footer has bounds, paths of physical
    names; they get no bounds, since NaN is greater than the maximum of the rest. Nor do times that
    may be of the old calendar.
    """
    columns = [item for item in schema if item.name not in partition_columns]
    wanted = indexed_columns(columns, properties).union(clustered)
    minimum: dict[str, object] = {}
    maximum: dict[str, object] = {}
    nulls: dict[str, object] = {}
    is_old = is_legacy(footer.metadata)
    for index, (path, logical, data_type) in enumerate(leaves(columns)):
        if path is None or logical not in wanted:
            continue
        found = chunk_bounds(footer, index)
        if is_old and is_old_time(found.minimum):
            found = ChunkBounds(null_count=found.null_count)
        if found.null_count is not None:
            put(nulls, path, found.null_count)
        bounded = isinstance(data_type, Primitive) and data_type.name not in WITHOUT_BOUNDS
        if bounded and found.minimum is not None and path not in with_nan:
            put(minimum, path, found.minimum)
            put(maximum, path, found.maximum)
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
    """Return the tag of a file of this engine's in which Spark's filters lose no row, or no tag.

    Arguments as those of `statistics_of`; the footer is one that `exact_footers` has gone over. A
    file whose columns filters never mislead needs no tag.
    """
    columns = [item for item in schema if item.name not in partition_columns]
    is_needed = False
    for index, (path, _, data_type) in enumerate(leaves(columns)):
        if path is None or not isinstance(data_type, Primitive):
            continue
        is_needed = is_needed or data_type.name in _INEXACT
        if data_type.name in ("date", "timestamp"):
            found = chunk_bounds(footer, index)
            is_absent = found.null_count == footer.num_rows
            if not is_absent and not _is_modern(found.minimum):
                return {}
    return SAFE_FOR_FILTERS if is_needed else {}


def is_filter_safe(add: Add) -> bool:
    """Return whether Spark's filters lose no row of a file, whatever its columns hold."""
    name, value = next(iter(SAFE_FOR_FILTERS.items()))
    return (add.tags or {}).get(name) == value


def _is_modern(value: object) -> bool:
    """Whether a time, and all later ones, come out of java.sql.Date and Timestamp unchanged."""
    match value:
        case datetime():
            return value.replace(tzinfo=value.tzinfo or UTC) >= _SAME_IN_JAVA_SQL_FROM
        case date():
            return value >= SAME_DATES_FROM
    return False


def indexed_columns(columns: list[Field], properties: TableProperties) -> set[tuple[str, ...]]:
    """The leaf columns, as logical paths, that the table's properties give statistics to."""
    found = [logical for path, logical, _ in leaves(columns) if path is not None]
    named = properties.data_skipping_stats_columns
    if named is not None:
        chosen = [tuple(part.lower() for part in name) for name in named]
        return {
            leaf
            for leaf in found
            if any(tuple(p.lower() for p in leaf[: len(name)]) == name for name in chosen)
        }
    limit = properties.data_skipping_num_indexed_cols
    return set(found if limit < 0 else found[:limit])


@dataclass(slots=True)
class ChunkBounds:
    """What is known of one leaf column; bounds are None when any row group has none."""

    minimum: Any = None
    maximum: Any = None
    null_count: int | None = 0


def chunk_bounds(footer: pq.FileMetaData, index: int) -> ChunkBounds:
    """The statistics of one leaf column over all row groups."""
    found = ChunkBounds()
    bounded = True
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(index)
        statistics = chunk.statistics
        nulls = None
        if statistics is not None and statistics.has_null_count:
            nulls = statistics.null_count
        if found.null_count is not None:
            found.null_count = None if nulls is None else found.null_count + nulls
        if nulls == chunk.num_values:
            continue
        limits = _limits(statistics)
        if limits is None:
            bounded = False
        elif bounded:
            low, high = limits
            found.minimum = low if found.minimum is None else min(found.minimum, low)
            found.maximum = high if found.maximum is None else max(found.maximum, high)
    return found if bounded else ChunkBounds(null_count=found.null_count)


def _limits(statistics: Any) -> tuple[Any, Any] | None:  # noqa: ANN401 - pyarrow has no types
    """A row group's bounds; None where it has none, or they say nothing of a NaN."""
    if statistics is None or not statistics.has_min_max:
        return None
    try:
        low, high = statistics.min, statistics.max
    except (ValueError, OverflowError):  # a time that Python has no value for
        return None
    if not isinstance(low, float):
        return low, high
    if math.isnan(low) or math.isnan(high):
        return None
    # Zero of either sign is within the bounds, whichever sign sorts first.
    return (low or -0.0), (high or 0.0)


def is_old_time(value: object) -> bool:
    """Whether a value is a time that the old calendar and today's tell apart."""
    match value:
        case datetime():
            return value.replace(tzinfo=value.tzinfo or UTC) < _SAME_TIMES_FROM
        case date():
            return value < _SAME_DAYS_FROM
    return False


def put(values: dict[str, object], path: tuple[str, ...], value: object) -> None:
    """Sets a leaf in nested dicts."""
    for part in path[:-1]:
        inner = values.setdefault(part, {})
        assert isinstance(inner, dict)
        values = inner
    values[path[-1]] = value


_Leaf = tuple[tuple[str, ...] | None, tuple[str, ...], DataType]


def leaves(columns: list[Field]) -> Iterator[_Leaf]:
    """Each Parquet leaf in file order: physical path, None inside a list or map; logical path."""
    for item in columns:
        yield from _leaves_of(item.type, (item.physical_name,), (item.name,))


def _leaves_of(
    data_type: DataType, path: tuple[str, ...] | None, logical: tuple[str, ...]
) -> Iterator[_Leaf]:
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
        case Primitive("variant"):  # its value, and its metadata, which tells where it is null
            yield None, logical, data_type
            yield path, logical, data_type
        case _:
            yield path, logical, data_type
