"""The few rows for which a condition may hold, found by this process where the files are few.

Owns reading them by pyarrow, without a Spark job over whole files. What isn't certain to come out
as Spark would read it answers None, and Spark reads the files as it reads any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from txlake.log.files import adds_of
from txlake.log.predicates import And, Opaque, Predicate, columns_of, conjuncts
from txlake.log.skipping import has_opaque, rows_may_match, rows_must_match
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add
from txlake.protocol.partition_values import parse_column
from txlake.protocol.types import Field, Primitive
from txlake.spark import executor_files
from txlake.spark.bounded_text import is_padded
from txlake.spark.executor_compact import is_legacy
from txlake.spark.executor_reads import as_type, place_of
from txlake.spark.native_writer import is_plain
from txlake.spark.reading import FILE, ROW
from txlake.spark.scan import ROW_ID, ROW_VERSION
from txlake.spark.table_access import TableAccess
from txlake.spark.types import parquet_field, spark_type, visible_metadata
from txlake.spark.vectors import as_array, load_vectors
from txlake.spark.writing import data_fields

_FILES_MAX = 16
_ROWS_MAX = 8_000_000
_HELD_BYTES_MAX = 64 * 1024 * 1024
_BATCH_ROWS = 262_144
_TEXT_BATCH_ROWS = 16_384  # a file holds a long text once that many rows share
_LOCAL = "file://"
_LONG = Primitive("long")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Rows that may match, all others don't.

    Attributes:
        positions: in ascending order, by file ordinal; files without any are left out.
        certain: whether the condition is true of every one of them.
    """

    positions: Mapping[int, np.ndarray]
    certain: bool


def find(
    work: TableAccess, files: pa.Table, predicate: Predicate, rows_max: int
) -> Candidates | None:
    """The live rows of the files for which the predicate may hold.

    None where more than `rows_max` may, where the predicate says nothing of columns that this
    process can compare, and where a file is large or isn't certain to be read as Spark reads it.
    """
    snapshot = work.snapshot
    told = And(tuple(part for part in conjuncts(predicate) if not isinstance(part, Opaque)))
    named = {path[0].lower() for path in columns_of(told) if len(path) == 1}
    items = [item for item in data_fields(snapshot) if item.name.lower() in named]
    items = [item for item in items if _is_plain(item)]
    if not items or files.num_rows > _FILES_MAX:
        return None
    adds = adds_of(files)
    if not all(_url_of(work, add).startswith(_LOCAL) for add in adds):
        return None
    positions: dict[int, np.ndarray] = {}
    certain = not has_opaque(predicate)
    looked_at = count = 0
    try:
        for ordinal, add in enumerate(adds):
            deleted = _deleted(work, add)
            parts = []
            for start, rows in _read(work, add, items):
                looked_at += rows.num_rows
                rows = _with_partitions(snapshot, add, rows)
                places = np.flatnonzero(rows_may_match(told, rows, snapshot.schema))
                places = places[~np.isin(places + start, deleted)]
                count += len(places)
                if count > rows_max or looked_at > _ROWS_MAX:
                    return None
                if len(places):
                    certain = certain and _hold(predicate, rows.take(pa.array(places)), snapshot)
                    parts.append(places + start)
            if parts:
                positions[ordinal] = np.concatenate(parts)
    except (pa.ArrowException, OSError, ValueError):
        return None
    return Candidates(positions=positions, certain=certain)


def rows_at(
    work: TableAccess, files: pa.Table, positions: Mapping[int, np.ndarray]
) -> DataFrame | None:
    """The rows at these positions, with them, as `TableAccess.scan` gives them; None as above."""
    if not positions:
        return work.scan(files.slice(0, 0), positions=True)
    snapshot = work.snapshot
    data = data_fields(snapshot)
    partitions = len(snapshot.partition_columns)
    if len(data) + partitions < len(snapshot.schema.fields) or not all(map(_is_plain, data)):
        return None
    if any(map(is_padded, snapshot.schema)):
        return None
    fields = [
        T.StructField(item.name, spark_type(item.type), True, visible_metadata(item))
        for item in snapshot.schema
    ]
    fields += [T.StructField(name, T.LongType()) for name in _extra_names(work)]
    adds = adds_of(files)
    try:
        parts = [
            _rows_of_file(work, ordinal, adds[ordinal], wanted, [item.name for item in fields])
            for ordinal, wanted in positions.items()
        ]
    except (pa.ArrowException, OSError, ValueError):
        return None
    held = pa.concat_tables(parts)
    if held.nbytes > _HELD_BYTES_MAX:
        return None
    return work.spark.createDataFrame(held, T.StructType(fields))


def _extra_names(work: TableAccess) -> list[str]:
    return [FILE, ROW, ROW_ID, ROW_VERSION] if work.tracks_rows else [FILE, ROW]


def _rows_of_file(
    work: TableAccess, ordinal: int, add: Add, wanted: np.ndarray, names: list[str]
) -> pa.Table:
    snapshot = work.snapshot
    properties = snapshot.properties
    tracked = {
        ROW_ID: properties.materialized_row_id_column,
        ROW_VERSION: properties.materialized_row_commit_version_column,
    }
    kept = [Field(name, _LONG) for name in tracked.values() if work.tracks_rows and name]
    parts = []
    for start, rows in _read(work, add, [*data_fields(snapshot), *kept], wanted):
        first, last = np.searchsorted(wanted, [start, start + rows.num_rows])
        if first == last:
            continue
        positions = pa.array(wanted[first:last], pa.int64())
        rows = rows.take(pa.array(wanted[first:last] - start))
        columns = dict(zip(rows.column_names, rows.columns, strict=True))
        if work.tracks_rows:
            base = pa.scalar(add.base_row_id, pa.int64())
            version = pa.scalar(add.default_row_commit_version, pa.int64())
            for name, given in ((ROW_ID, pc.add(positions, base)), (ROW_VERSION, version)):
                stored = columns.get(tracked[name] or "", pa.nulls(len(positions), pa.int64()))
                columns[name] = pc.coalesce(stored, given)
        columns[FILE] = pa.array(np.full(len(positions), ordinal), pa.int64())
        columns[ROW] = positions
        rows = _with_partitions(snapshot, add, pa.table(columns))
        parts.append(rows.select(names))
    return pa.concat_tables(parts)


def _hold(predicate: Predicate, rows: pa.Table, snapshot: Snapshot) -> bool:
    return bool(pc.all(rows_must_match(predicate, rows, snapshot.schema)).as_py())


def _is_plain(item: Field) -> bool:
    return isinstance(item.type, Primitive) and is_plain(item.type)


def _url_of(work: TableAccess, add: Add) -> str:
    return work.reach.url(add.path)


def _deleted(work: TableAccess, add: Add) -> np.ndarray:
    if add.deletion_vector is None:
        return np.empty(0, np.int64)
    loaded = load_vectors(work.store, work.reach, [(0, add.deletion_vector)], work.storage_options)
    return as_array(loaded[0]).astype(np.int64)


def _with_partitions(snapshot: Snapshot, add: Add, rows: pa.Table) -> pa.Table:
    """The rows with the partition columns, which are the same in all of a file."""
    for name in snapshot.partition_columns:
        item = snapshot.schema.find(name)
        assert item is not None
        text = pa.array([add.partition_values.get(item.physical_name)], pa.string())
        value = parse_column(text, item.type)
        places = pa.array(np.zeros(rows.num_rows, np.int64))
        rows = rows.append_column(item.name, value.take(places))
    return rows


def _read(
    work: TableAccess, add: Add, items: Sequence[Field], wanted: np.ndarray | None = None
) -> Iterator[tuple[int, pa.Table]]:
    """The columns by logical name, some rows at a time, each with the first one's position.

    With `wanted`, positions in ascending order, rows far from them are left out. Raises ValueError
    for what Spark may read otherwise.
    """
    with _opened(_url_of(work, add), work.storage_options) as file:
        sources = _sources(file, items, work.snapshot)
        start = 0
        for number in range(file.num_row_groups):
            end = start + file.metadata.row_group(number).num_rows
            last = None if wanted is None else wanted[wanted < end][-1:]
            if last is None or (len(last) and last[0] >= start):
                for rows in _batches(file, number, items, sources):
                    yield start, rows
                    start += rows.num_rows
                    if last is not None and start > last[0]:
                        break
            start = end


def _batches(
    file: pq.ParquetFile, number: int, items: Sequence[Field], sources: Mapping[str, str]
) -> Iterator[pa.Table]:
    """A row group's rows; `sources` names the file's columns for those that it has."""
    types = {item.name: parquet_field(item).type for item in items}
    if not sources:
        count = file.metadata.row_group(number).num_rows
        yield pa.table({name: pa.nulls(count, kind) for name, kind in types.items()})
        return
    names = sorted(set(sources.values()))
    is_narrow = all(pa.types.is_primitive(kind) for kind in types.values())
    rows = _BATCH_ROWS if is_narrow else _TEXT_BATCH_ROWS
    for batch in file.iter_batches(rows, row_groups=[number], columns=names):
        yield pa.table(
            {
                name: as_type(batch.column(sources[name]), kind, by_id=False)
                if name in sources
                else pa.nulls(batch.num_rows, kind)
                for name, kind in types.items()
            }
        )


def _sources(file: pq.ParquetFile, items: Sequence[Field], snapshot: Snapshot) -> Mapping[str, str]:
    """The file's columns by the logical names of those it has. Raises ValueError, see above."""
    by_id = snapshot.column_mapping_mode == "id"
    found = list(file.schema_arrow)
    if len({item.name.lower() for item in found}) < len(found):
        raise ValueError("two columns have one name")
    sources: dict[str, str] = {}
    for item in items:
        wanted = parquet_field(item)
        place = place_of(found, wanted, by_id)
        if place is None:
            continue
        source = found[place]
        if not _agrees(source.type, wanted.type) or (not by_id and source.name != wanted.name):
            raise ValueError(f"column {source.name!r} is {source.type}")
        sources[item.name] = source.name
    return sources


@contextmanager
def _opened(url: str, options: Mapping[str, str]) -> Iterator[pq.ParquetFile]:
    """The file. Raises ValueError for times of the old calendar, and for INT96."""
    with executor_files.open_file(url, options) as source:
        file = pq.ParquetFile(source)
        if is_legacy(file.metadata.metadata or {}):
            raise ValueError("times may be in the calendar of old Spark versions")
        leaves = (file.schema.column(place) for place in range(len(file.schema.names)))
        if any(leaf.physical_type == "INT96" for leaf in leaves):
            raise ValueError("times are INT96")
        yield file


def _agrees(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether the file's values are the table's, as they are or in a wider type."""
    if found.equals(wanted):
        return True
    return _are_numbers(found, wanted) and bool(found.bit_width < wanted.bit_width)


def _are_numbers(found: pa.DataType, wanted: pa.DataType) -> bool:
    signed, floating = pa.types.is_signed_integer, pa.types.is_floating
    both_float = floating(found) and floating(wanted) and not pa.types.is_float16(found)
    return (signed(found) and signed(wanted)) or both_float
