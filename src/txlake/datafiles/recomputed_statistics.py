"""A table's file, whoever wrote it: its Parquet footer, and statistics made anew from that.

Owns what of a footer is trusted: a column is found by its name, and a bound counts where its value
is one of the column's type. What the footer doesn't tell stays as it was. Source: PROTOCOL.md,
"Per-file Statistics".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from txlake.datafiles.files import Options, read_range
from txlake.datafiles.footers import (
    WITHOUT_BOUNDS,
    chunk_bounds,
    indexed_columns,
    is_old_time,
    leaves,
    put,
    read_footer,
)
from txlake.datafiles.parquet import is_legacy
from txlake.errors import CorruptTable
from txlake.log.snapshot import Snapshot
from txlake.ports import Store
from txlake.protocol.actions import Add
from txlake.protocol.clustering import clustered_by
from txlake.protocol.paths import decode_path, is_absolute
from txlake.protocol.reach import Reach
from txlake.protocol.statistics import Bounds, FileStatistics
from txlake.protocol.types import Array, DataType, Map, Primitive

_Path = tuple[str, ...]


def footer_of(
    snapshot: Snapshot, add: Add, store: Store, reach: Reach, options: Options
) -> pq.FileMetaData:
    """The footer of a file of the table. `options` are the store's, for a file of another table.

    Raises CorruptTable where it isn't there, or is no Parquet file.
    """
    read = partial(store.get_range, decode_path(add.path))
    if is_absolute(add.path):
        read = partial(read_range, reach.url(add.path), options=options)
    try:
        return read_footer(read, add.size)
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise CorruptTable(
            f"{snapshot.table}: {add.path}: expected a Parquet file of {add.size} bytes, as "
            f"the log says: {error}"
        ) from error


def recomputed_statistics(footer: pq.FileMetaData, add: Add, snapshot: Snapshot) -> FileStatistics:
    """The statistics that a live file gets, for the columns that the table's properties choose.

    A footer doesn't say whether there are NaNs, which are greater than its maximum: columns of
    fractions keep the bounds that they had. Where columns are found by field ids (column mapping
    `id`) only the number of rows is the footer's.
    """
    before = FileStatistics.from_json(add.stats)
    if snapshot.column_mapping_mode == "id":
        return replace(before, num_records=footer.num_rows)
    columns = [item for item in snapshot.schema if item.name not in snapshot.partition_columns]
    clustered = clustered_by(snapshot.schema, snapshot.domains, table=snapshot.table)
    wanted = indexed_columns(columns, snapshot.properties).union(clustered)
    places = _places(footer)
    is_old = is_legacy(footer.metadata)
    minimum: dict[str, object] = {}
    maximum: dict[str, object] = {}
    lists = {item.physical_name for item in columns if isinstance(item.type, Array | Map)}
    nulls = {name: count for name, count in before.null_count.items() if name in lists}
    for path, logical, data_type in leaves(columns):
        if path is None or logical not in wanted:
            continue
        told_by = (*path, "metadata") if data_type == Primitive("variant") else path
        place = places.get(_folded(told_by))
        found = None if place is None else chunk_bounds(footer, place)
        null_count = None if found is None else found.null_count
        low, high = _at(before.min_values, path), _at(before.max_values, path)
        if (
            found is not None
            and _is_bound(found.minimum, data_type)
            and not (is_old and is_old_time(found.minimum))
        ):
            low, high = found.minimum, found.maximum
        for values, value in (
            (minimum, low),
            (maximum, high),
            (nulls, _at(before.null_count, path) if null_count is None else null_count),
        ):
            if value is not None:
                put(values, path, value)
    return FileStatistics(
        num_records=footer.num_rows,
        min_values=minimum,
        max_values=maximum,
        null_count=nulls,
        tight_bounds=before.tight_bounds and add.deletion_vector is None,
    )


def _places(footer: pq.FileMetaData) -> Mapping[_Path, int]:
    """The Parquet leaves outside of lists and maps; names don't tell case apart, as in Spark."""
    try:
        found = [path for item in footer.schema.to_arrow_schema() for path in _paths(item, ())]
    except (pa.ArrowException, NotImplementedError):  # a type that Arrow has no name for
        return {}
    if len(found) != footer.num_columns:
        return {}
    times = Counter(found)
    return {
        path: place for place, path in enumerate(found) if path is not None and times[path] == 1
    }


def _paths(item: pa.Field, above: _Path | None) -> Iterator[_Path | None]:
    path = None if above is None else (*above, item.name.lower())
    if pa.types.is_struct(item.type):
        parts, within = _fields(item.type), path
    elif pa.types.is_nested(item.type):
        parts, within = _fields(item.type), None
    else:
        yield path
        return
    for part in parts:
        yield from _paths(part, within)


def _fields(data_type: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(data_type):
        return [data_type.key_field, data_type.item_field]
    return [data_type.field(place) for place in range(data_type.num_fields)]


def _folded(path: _Path) -> _Path:
    return tuple(name.lower() for name in path)


def _at(bounds: Bounds, path: _Path) -> object:
    value: object = bounds
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return None if isinstance(value, Mapping) else value


def _is_bound(value: object, data_type: DataType) -> bool:
    """Whether a footer's minimum is one of the column's type, and so its maximum another."""
    if value is None or not isinstance(data_type, Primitive) or data_type.name in WITHOUT_BOUNDS:
        return False
    match value:
        case str():
            return data_type.is_string
        case datetime():
            return data_type.name == ("timestamp_ntz" if value.tzinfo is None else "timestamp")
        case date():
            return data_type.name == "date"
        case bool() | float():
            return False
        case int() | Decimal():
            return data_type.name in _WHOLE or data_type.decimal is not None
    return False


_WHOLE = frozenset({"byte", "short", "integer", "long"})
