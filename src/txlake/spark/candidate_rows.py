"""The few rows for which a condition may hold, found by this process where the files are few.

Owns reading them by pyarrow, without a Spark job over whole files. What isn't certain to come out
as Spark would read it answers None, and Spark reads the files as it reads any.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from txlake.datafiles.files import open_file
from txlake.datafiles.parquet import Columns, iter_rows, open_parquet
from txlake.datafiles.stored_vectors import as_array
from txlake.datafiles.vectors import load_vector
from txlake.log.files import adds_of
from txlake.log.predicates import And, Opaque, Predicate, columns_of, conjuncts
from txlake.log.skipping import has_opaque, ranges_may_match, rows_may_match, rows_must_match
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add
from txlake.protocol.collations import collated_columns
from txlake.protocol.partition_values import parse_column
from txlake.protocol.types import Field, Primitive, to_arrow_type
from txlake.spark.bounded_text import is_padded, length_metadata
from txlake.spark.native_writer import is_plain
from txlake.spark.reading import FILE, ROW
from txlake.spark.scan import ROW_ID, ROW_VERSION
from txlake.spark.table_access import TableAccess
from txlake.spark.types import parquet_field, spark_type, visible_metadata
from txlake.spark.writing import data_fields, partition_fields

_FILES_MAX = 64
_ROWS_MAX = 24_000_000
_THREADS_MAX = 8
_GROUP_BYTES_MAX = 128 * 1024 * 1024
_READ_ROWS_MAX = 1_000
_HELD_BYTES_MAX = 64 * 1024 * 1024
_LOCAL = "file://"
_LONG = Primitive("long")
_INTEGERS = frozenset({"byte", "short", "integer", "long"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Rows that may match, all others don't.

    Attributes:
        positions: in ascending order, by file ordinal; files without any are left out.
        certain: whether the condition is true of every one of them.
    """

    positions: Mapping[int, np.ndarray]
    certain: bool

    @property
    def count(self) -> int:
        """How many they are."""
        return sum(map(len, self.positions.values()))


def find_candidates(
    work: TableAccess,
    files: pa.Table,
    predicate: Predicate,
    rows_max: int,
    group_bytes_max: int | None = None,
) -> Candidates | None:
    """The live rows of the files for which the predicate may hold.

    None where more than `rows_max` may, where the row groups that they are in become more than
    `group_bytes_max` in memory, where the predicate says nothing of columns that this
    process can compare, and where a file is large or isn't certain to be read as Spark reads it.
    """
    snapshot = work.snapshot
    told = And(tuple(part for part in conjuncts(predicate) if not isinstance(part, Opaque)))
    named = {path[0].lower() for path in columns_of(told) if len(path) == 1}
    items = [item for item in data_fields(snapshot) if item.name.lower() in named]
    items = [item for item in items if _is_plain(item)]
    if not items or files.num_rows > _FILES_MAX:
        return None
    adds = adds_of(work.in_zone(files))
    if not all(is_local(work, add) for add in adds):
        return None
    search = _Search(work, predicate, told, items, rows_max, group_bytes_max)
    try:
        if len(adds) == 1:
            found = [search.of(adds[0])]
        else:
            with ThreadPoolExecutor(threads_for(files)) as pool:
                found = list(pool.map(search.of, adds))
    except (pa.ArrowException, OSError, ValueError):
        return None
    positions = {ordinal: places for ordinal, places in enumerate(found) if len(places)}
    return Candidates(positions=positions, certain=search.certain)


def threads_for(files: pa.Table) -> int:
    """How many threads read these files."""
    count: int = files.num_rows
    return max(1, min(_THREADS_MAX, os.cpu_count() or 1, count))


@dataclass(slots=True)
class _Search:
    """What is looked for in all files, some of them at a time, and how much was found so far."""

    work: TableAccess
    predicate: Predicate
    told: Predicate
    items: Sequence[Field]
    rows_max: int
    group_bytes_max: int | None
    certain: bool = field(init=False)
    _looked_at: int = 0
    _count: int = 0
    _group_bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.certain = not has_opaque(self.predicate)

    def of(self, add: Add) -> np.ndarray:
        """The places in one file. Raises ValueError where it becomes too much in all of them."""
        snapshot = self.work.snapshot
        deleted = deleted_rows(self.work, add)
        parts = [np.empty(0, np.int64)]
        last = None
        for group, start, rows in _read(self.work, add, self.items, told=self.told):
            count = rows.num_rows
            rows = _with_partitions(snapshot, add, rows)
            places = np.flatnonzero(rows_may_match(self.told, rows, snapshot.schema))
            if len(deleted):
                places = places[~np.isin(places + start, deleted)]
            is_new = len(places) > 0 and group is not last
            self._seen(count, len(places), group.total_byte_size if is_new else 0)
            if len(places):
                last = group
                if self.certain and not _hold(
                    self.predicate, rows.take(pa.array(places)), snapshot
                ):
                    self.certain = False
                parts.append(places + start)
        return np.concatenate(parts)

    def _seen(self, rows: int, found: int, group_bytes: int) -> None:
        with self._lock:
            self._looked_at += rows
            self._count += found
            self._group_bytes += group_bytes
            is_large = self.group_bytes_max is not None and self._group_bytes > self.group_bytes_max
            if is_large or self._count > self.rows_max or self._looked_at > _ROWS_MAX:
                raise ValueError("they aren't few")


def live_values(
    work: TableAccess, files: pa.Table, items: Sequence[Field], possible: Predicate
) -> Iterator[Iterator[tuple[np.ndarray, pa.Table]]]:
    """Of each file, in order, the positions of live rows and their values in these columns.

    Row groups in which the bound predicate can't be true may be left out, as may rows. Raises
    ValueError, or what Arrow raises, for what isn't certain to be read as Spark reads it.
    """
    snapshot = work.snapshot
    names = {name.lower() for name in snapshot.partition_columns}
    data = [item for item in items if item.name.lower() not in names]
    if not data or not all(map(_is_plain, data)) or files.num_rows > _FILES_MAX:
        raise ValueError("they can't be read here")
    told = And(tuple(part for part in conjuncts(possible) if not isinstance(part, Opaque)))
    for add in adds_of(work.in_zone(files)):
        if not is_local(work, add):
            raise ValueError("a file is elsewhere")
        yield _live_in(work, add, data, told)


def _live_in(
    work: TableAccess, add: Add, items: Sequence[Field], told: Predicate
) -> Iterator[tuple[np.ndarray, pa.Table]]:
    deleted = deleted_rows(work, add)
    for _, start, rows in _read(work, add, items, told=told):
        places = np.arange(start, start + rows.num_rows)
        rows = _with_partitions(work.snapshot, add, rows)
        if len(deleted):
            is_live = ~np.isin(places, deleted)
            places, rows = places[is_live], rows.filter(pa.array(is_live))
        yield places, rows


def arrow_rows_at(
    work: TableAccess,
    files: pa.Table,
    positions: Mapping[int, np.ndarray],
    bytes_max: int | None = None,
) -> pa.Table | None:
    """The rows at these positions, as `TableAccess.scan` gives them, positions included.

    None as `find`, and where they are more than `bytes_max`.
    """
    snapshot = work.snapshot
    data = data_fields(snapshot)
    partitions = len(snapshot.partition_columns)
    if len(data) + partitions < len(snapshot.schema.fields) or not all(map(_is_plain, data)):
        return None
    if any(map(is_padded, snapshot.schema)):
        return None
    names = [*snapshot.schema.names, *_extra_names(work)]
    adds = adds_of(work.in_zone(files))
    room = _Room(_HELD_BYTES_MAX if bytes_max is None else bytes_max)

    def of_file(item: tuple[int, np.ndarray]) -> pa.Table:
        ordinal, wanted = item
        return _rows_of_file(work, ordinal, adds[ordinal], wanted, names, room)

    try:
        with ThreadPoolExecutor(threads_for(files)) as pool:
            parts = list(pool.map(of_file, positions.items()))
    except (pa.ArrowException, OSError, ValueError):
        return None
    return pa.concat_tables(parts) if parts else _no_rows(snapshot, names)


@dataclass(slots=True)
class _Room:
    """The bytes that rows of several files may take together."""

    bytes_max: int
    _taken: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, rows: pa.Table) -> None:
        """Raises ValueError where there isn't so much left."""
        with self._lock:
            self._taken += rows.nbytes
            if self._taken > self.bytes_max:
                raise ValueError("they are too large to be held")


def _no_rows(snapshot: Snapshot, names: Sequence[str]) -> pa.Table:
    fields = [(item.name, to_arrow_type(item.type)) for item in snapshot.schema]
    fields += [(name, pa.int64()) for name in names[len(fields) :]]
    return pa.schema(fields).empty_table()


def rows_at(
    work: TableAccess, files: pa.Table, positions: Mapping[int, np.ndarray]
) -> DataFrame | None:
    """As `arrow_rows_at`, given to Spark."""
    if not positions:
        return work.scan(files.slice(0, 0), positions=True)
    held = arrow_rows_at(work, files, positions)
    if held is None:
        return None
    fields = [*_fields(work), *(T.StructField(name, T.LongType()) for name in _extra_names(work))]
    return work.spark.createDataFrame(held, T.StructType(fields))


def few_rows(work: TableAccess, files: pa.Table, predicate: Predicate) -> DataFrame | None:
    """The live rows of the files for which the predicate may hold, where they are few.

    As `TableAccess.scan` gives them, though Spark doesn't know of files. None as `find`.
    """
    if collated_columns(work.snapshot.schema) or not all(
        item.nullable for item in partition_fields(work.snapshot)
    ):
        return None  # a scan shows collations, and NOT NULL of partition columns
    found = find_candidates(work, files, predicate, _READ_ROWS_MAX, _GROUP_BYTES_MAX)
    held = None if found is None else arrow_rows_at(work, files, found.positions)
    if held is None:
        return None
    rows = held.select(work.snapshot.schema.names)
    return work.spark.createDataFrame(rows, T.StructType(_fields(work)))


def _fields(work: TableAccess) -> list[T.StructField]:
    return [
        T.StructField(
            item.name,
            spark_type(item.type),
            True,
            {**visible_metadata(item), **length_metadata(item)},
        )
        for item in work.snapshot.schema
    ]


def _extra_names(work: TableAccess) -> list[str]:
    return [FILE, ROW, ROW_ID, ROW_VERSION] if work.tracks_rows else [FILE, ROW]


def _rows_of_file(
    work: TableAccess,
    ordinal: int,
    add: Add,
    wanted: np.ndarray,
    names: list[str],
    room: _Room,
) -> pa.Table:
    snapshot = work.snapshot
    properties = snapshot.properties
    tracked = {
        ROW_ID: properties.materialized_row_id_column,
        ROW_VERSION: properties.materialized_row_commit_version_column,
    }
    kept = [Field(name, _LONG) for name in tracked.values() if work.tracks_rows and name]
    parts = []
    for _, start, rows in _read(work, add, [*data_fields(snapshot), *kept], wanted):
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
        rows = _with_partitions(snapshot, add, pa.table(columns)).select(names)
        room.take(rows)
        parts.append(rows)
    return pa.concat_tables(parts)


def _hold(predicate: Predicate, rows: pa.Table, snapshot: Snapshot) -> bool:
    return bool(pc.all(rows_must_match(predicate, rows, snapshot.schema)).as_py())


def _is_plain(item: Field) -> bool:
    return isinstance(item.type, Primitive) and is_plain(item.type)


def _url_of(work: TableAccess, add: Add) -> str:
    return work.reach.url(add.path)


def is_local(work: TableAccess, add: Add) -> bool:
    """Whether the file lies on this machine."""
    return _url_of(work, add).startswith(_LOCAL)


def deleted_rows(work: TableAccess, add: Add) -> np.ndarray:
    """The positions of a file's deleted rows, in ascending order."""
    if add.deletion_vector is None:
        return np.empty(0, np.int64)
    return as_array(load_vector(work.store, add.deletion_vector, work.external_vectors)).astype(
        np.int64
    )


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
    work: TableAccess,
    add: Add,
    items: Sequence[Field],
    wanted: np.ndarray | None = None,
    told: Predicate | None = None,
) -> Iterator[tuple[pq.RowGroupMetaData, int, pa.Table]]:
    """The columns by logical name, some rows at a time, with their group and the first's position.

    With `wanted`, positions in ascending order, rows far from them are left out; with `told` groups
    without a row of which it may be true. Raises ValueError for what Spark may read otherwise.
    """
    with open_file(_url_of(work, add), work.storage_options) as source:
        file = open_parquet(source)
        columns = _columns(file, items, by_id=work.snapshot.column_mapping_mode == "id")
        may_have = None if told is None else _groups(file, columns, items, told, work.snapshot)
        start = 0
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            end = start + group.num_rows
            last = None if wanted is None else wanted[wanted < end][-1:]
            is_asked = last is None or (len(last) and last[0] >= start)
            if is_asked and (may_have is None or may_have[number]):
                for batch in iter_rows(file, columns, [number]):
                    yield group, start, pa.table(batch.columns, [item.name for item in items])
                    start += batch.num_rows
                    if last is not None and start > last[0]:
                        break
            start = end


def _groups(
    file: pq.ParquetFile,
    columns: Columns,
    items: Sequence[Field],
    told: Predicate,
    snapshot: Snapshot,
) -> Sequence[bool]:
    """Of each row group whether it may have such a row, as far as its statistics tell.

    Asked of whole numbers alone, whose bounds no writer cuts or orders in another way.
    """
    metadata = file.metadata
    groups = [metadata.row_group(number) for number in range(file.num_row_groups)]
    columns_of_file = map(file.schema.column, range(len(file.schema.names)))
    leaves = {
        leaf.name: place for place, leaf in enumerate(columns_of_file) if leaf.name == leaf.path
    }
    ranges = {}
    for item, name in zip(items, columns.sources, strict=True):
        place = leaves.get(name or "")
        if place is not None and isinstance(item.type, Primitive) and item.type.name in _INTEGERS:
            ranges[item.name] = [_range(group.column(place)) for group in groups]
    return ranges_may_match(told, ranges, len(groups), snapshot.schema)


def _range(chunk: pq.ColumnChunkMetaData) -> tuple[int, int] | None:
    """The least and the greatest number of a column in a row group; None where it isn't known."""
    found = chunk.statistics
    if found is None or not found.has_min_max:
        return None
    bounds = (found.min, found.max)
    return bounds if all(type(bound) is int for bound in bounds) else None


def _columns(file: pq.ParquetFile, items: Sequence[Field], *, by_id: bool) -> Columns:
    """Where the columns are in the file. Raises ValueError for what Spark may read otherwise."""
    schema = pa.schema([parquet_field(item) for item in items])
    columns = Columns(schema, by_id=by_id, exact=True)
    columns.find(file)
    found = file.schema_arrow.names
    if len({name.lower() for name in found}) < len(found):
        raise ValueError("two columns have one name")
    if not by_id and not set(columns.sources) <= {*schema.names, None}:
        raise ValueError("a column's name is in other letter case")
    leaves = (file.schema.column(place) for place in range(len(file.schema.names)))
    if any(leaf.physical_type == "INT96" for leaf in leaves):
        raise ValueError("times are INT96")
    return columns
