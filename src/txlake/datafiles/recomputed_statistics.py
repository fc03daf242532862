"""Statistics of a table's file recomputed from its Parquet footer, whatever engine wrote it.

Owns what is trusted in a footer: a column is found by its name, and a bound counts only if its
value has the column's type. What the footer doesn't say keeps its old value. Source: PROTOCOL.md,
"Per-file Statistics".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq

from txlake.datafiles.footers import (
    WITHOUT_BOUNDS,
    chunk_bounds,
    indexed_columns,
    is_old_time,
    leaves,
    read_footer,
    set_leaf,
)
from txlake.datafiles.parquet import is_legacy
from txlake.errors import CorruptTable
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add
from txlake.protocol.clustering import clustered_by
from txlake.protocol.statistics import Bounds, FileStatistics
from txlake.protocol.types import Array, DataType, Map, Primitive

_Path = tuple[str, ...]


def footer_of(snapshot: Snapshot, add: Add, read: Callable[[int, int], bytes]) -> pq.FileMetaData:
    """Return the footer of a file of the table. `read` returns bytes of it by offset and length.

    Raises CorruptTable if the file is missing or isn't a Parquet file.
    """
    try:
        return read_footer(read, add.size)
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise CorruptTable(
            f"{snapshot.table}: {add.path}: expected a Parquet file of {add.size} bytes, as "
            f"the log says: {error}"
        ) from error


def recomputed_statistics(footer: pq.FileMetaData, add: Add, snapshot: Snapshot) -> FileStatistics:
    """Return a live file's recomputed statistics, for the columns that table properties choose.

    A footer doesn't say whether there are NaNs, which are greater than its maximum, so columns of
    floating-point numbers keep their old bounds. So does a column that isn't found in the file, or
    whose bound has another type. Where columns are found by field ids (column mapping `id`) only
    the number of rows is taken from the footer. Counts are of the file's rows, deleted ones too.
    """
    before = FileStatistics.from_json(add.stats)
    if snapshot.column_mapping_mode == "id":
        return replace(before, num_records=footer.num_rows)
    columns = [item for item in snapshot.schema if item.name not in snapshot.partition_columns]
    clustered = clustered_by(snapshot.schema, snapshot.domains, table=snapshot.table)
    indexed = indexed_columns(columns, snapshot.properties).union(clustered)
    leaf_indexes = _leaf_indexes(footer)
    is_old = is_legacy(footer.metadata)
    minimum: dict[str, object] = {}
    maximum: dict[str, object] = {}
    lists = {item.physical_name for item in columns if isinstance(item.type, Array | Map)}
    nulls = {name: count for name, count in before.null_count.items() if name in lists}
    for path, logical, data_type in leaves(columns):
        if path is None or logical not in indexed:
            continue
        leaf_path = (*path, "metadata") if data_type == Primitive("variant") else path
        leaf_index = leaf_indexes.get(_lower(leaf_path))
        bounds = None if leaf_index is None else chunk_bounds(footer, leaf_index)
        null_count = None if bounds is None else bounds.null_count
        low, high = _bound_at(before.min_values, path), _bound_at(before.max_values, path)
        if (
            bounds is not None
            and _is_bound(bounds.minimum, data_type)
            and not (is_old and is_old_time(bounds.minimum))
        ):
            low, high = bounds.minimum, bounds.maximum
        for values, value in (
            (minimum, low),
            (maximum, high),
            (nulls, _bound_at(before.null_count, path) if null_count is None else null_count),
        ):
            if value is not None:
                set_leaf(values, path, value)
    return FileStatistics(
        num_records=footer.num_rows,
        min_values=minimum,
        max_values=maximum,
        null_count=nulls,
        tight_bounds=before.tight_bounds and add.deletion_vector is None,
    )


def _leaf_indexes(footer: pq.FileMetaData) -> Mapping[_Path, int]:
    """Return the index of each Parquet leaf outside of lists and maps by its lower-case path.

    Ambiguous paths are left out; {} if Arrow has no such types or other leaves. Spark matches names
    without regard to case, too.
    """
    try:
        paths = [path for item in footer.schema.to_arrow_schema() for path in _paths(item, ())]
    except (pa.ArrowException, NotImplementedError):  # a type that Arrow lacks
        return {}
    if len(paths) != footer.num_columns:
        return {}
    counts = Counter(paths)
    return {
        path: index for index, path in enumerate(paths) if path is not None and counts[path] == 1
    }


def _paths(item: pa.Field, parent: _Path | None) -> Iterator[_Path | None]:
    """Yield the lower-case path of each leaf of a field, in order; None for one inside a list or
    map.
    """
    path = None if parent is None else (*parent, item.name.lower())
    if pa.types.is_struct(item.type):
        children, child_parent = _fields(item.type), path
    elif pa.types.is_nested(item.type):
        children, child_parent = _fields(item.type), None
    else:
        yield path
        return
    for child in children:
        yield from _paths(child, child_parent)


def _fields(data_type: pa.DataType) -> list[pa.Field]:
    """Return the fields of a nested type, in order: of a map its key and its value."""
    if pa.types.is_map(data_type):
        return [data_type.key_field, data_type.item_field]
    return [data_type.field(place) for place in range(data_type.num_fields)]


def _lower(path: _Path) -> _Path:
    return tuple(name.lower() for name in path)


def _bound_at(bounds: Bounds, path: _Path) -> object:
    """Return the value at a path of nested bounds; None if there is none, or it is a struct's."""
    value: object = bounds
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return None if isinstance(value, Mapping) else value


def _is_bound(value: object, data_type: DataType) -> bool:
    """Return whether a footer's minimum, and so its maximum, has the column's type.

    False for floating-point numbers, booleans and bytes, of which bounds aren't taken.
    """
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
