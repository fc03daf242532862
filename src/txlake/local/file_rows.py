"""The rows of one data file as the driver reads them, on this machine or in another store.

Owns which parts of a file are read: row groups that may have the wanted rows, and their columns. Of
files in other stores those parts are fetched side by side: the footers in one round trip, and the
columns in another one; a small file is fetched as a whole in the first.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import repeat
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from txlake.commit.parallel import begin
from txlake.datafiles.files import open_file
from txlake.datafiles.footers import read_footer
from txlake.datafiles.parquet import Columns, chunk_ranges, iter_rows, open_parquet
from txlake.datafiles.stored_vectors import as_array
from txlake.local.remote_files import (
    Range,
    RemoteFile,
    likely_bytes_max,
    small_bytes_max,
)
from txlake.local.table import LocalTable
from txlake.local.types import is_plain, parquet_field
from txlake.log.predicates import Predicate
from txlake.log.skipping import ranges_may_match
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add
from txlake.protocol.types import Field, Primitive

# What reading a file raises that Spark might read in another way, or can explain better.
UNREADABLE = (pa.ArrowException, OSError, ValueError)

_THREADS_MAX = 8
Item = TypeVar("Item")
Value = TypeVar("Value")
_INTEGERS = frozenset({"byte", "short", "integer", "long"})


def threads_for(works: int) -> int:
    """Return how many threads decode files in so many works: at most 8, and one for each CPU."""
    return min(_THREADS_MAX, os.cpu_count() or 1, works)


def decode_each(decode: Callable[[Item], Value], files: Sequence[Item]) -> list[Value]:
    """Return the results of `decode` on each file, in order.

    Several files are decoded side by side, by at most 8 threads and at most one for each CPU; one
    by the caller's own thread. Raises the error of the first file that failed.
    """
    threads = threads_for(len(files))
    if threads < 2:
        return [decode(one) for one in files]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(decode, files))


def is_plain_field(item: Field) -> bool:
    """Return whether the driver reads the column's values as Spark does."""
    return isinstance(item.type, Primitive) and is_plain(item.type)


def fetch_beginnings(work: LocalTable, adds: Sequence[Add]) -> None:
    """Fetch the footers of files in other stores, small files as a whole, and the deletion vectors,
    all side by side.

    Reads nothing of files on this machine. Raises as `StatementReads.fetch` and
    `LocalTable.deleted`.
    """
    bytes_max = small_bytes_max(len(adds))
    remote = [(file, add) for add in adds if (file := work.remote_file(add)) is not None]
    vectors = [
        begin(partial(work.deleted, add), store=work.store)
        for _, add in remote
        if add.deletion_vector is not None
    ]
    work.reads.fetch([(file, [file.footer_range(bytes_max)]) for file, _ in remote])
    for vector in vectors:
        vector()


def fetch_columns(
    work: LocalTable,
    adds: Iterable[Add],
    items: Sequence[Field],
    *,
    positions: Iterable[np.ndarray] | None = None,
    known: Predicate | None = None,
    later: Sequence[Field] = (),
) -> None:
    """Fetch from files in other stores, side by side, what `read_rows` will read of each.

    `positions` are those of each file. Columns `later`, which will be read after that of the same
    row groups, are fetched too unless awaiting another request is better. Reads nothing of files on
    this machine. Raises as `StatementReads.fetch`, and one of UNREADABLE.
    """
    wanted: list[tuple[RemoteFile, list[Range]]] = []
    more: list[tuple[RemoteFile, list[Range]]] = []
    group_count = 0
    for add, places in zip(adds, repeat(None) if positions is None else positions, strict=False):
        remote = work.remote_file(add)
        if remote is None:
            continue
        with remote.open() as source:
            file = open_parquet(source)
            columns, groups = _plan(work, file, items, places, known)
            numbers = [number for number, _ in groups]
            group_count += len(numbers)
            wanted.append((remote, chunk_ranges(file, numbers, columns.names)))
            names = _names_of(work, file, later)
            more.append((remote, chunk_ranges(file, numbers, names)))
    more_bytes = sum(file.missing_bytes(ranges) for file, ranges in more)
    if more_bytes <= likely_bytes_max(len(more), group_count):
        wanted = [(file, [*one, *two]) for (file, one), (_, two) in zip(wanted, more, strict=True)]
    work.reads.fetch(wanted)


def deleted_rows(work: LocalTable, add: Add) -> np.ndarray:
    """Return the positions of a file's deleted rows, in ascending order.

    Raises CorruptTable and InvalidRequest as `LocalTable.deleted`.
    """
    return as_array(work.deleted(add)).astype(np.int64)


def row_count(work: LocalTable, add: Add) -> int:
    """Return the number of a file's rows, deleted ones included, by its footer.

    Raises CorruptTable, or one of UNREADABLE.
    """
    file = work.remote_file(add)
    footer = work.footer(add) if file is None else read_footer(file.read, add.size)
    return int(footer.num_rows)


def read_rows(
    work: LocalTable,
    add: Add,
    items: Sequence[Field],
    positions: np.ndarray | None = None,
    known: Predicate | None = None,
) -> Iterator[tuple[pq.RowGroupMetaData, int, pa.Table]]:
    """Yield the columns by logical name in batches: row group, first position in the file, rows.

    With `positions`, ascending, row groups without one are left out, and so are a row group's
    batches after its last one. With `known`, row groups in which that predicate can't be true are
    left out. Raises Declined if the statement would fetch too much, and one of UNREADABLE:
    ValueError where Spark might read other values.
    """
    remote = work.remote_file(add)
    url = work.reach.url(add.path)
    source = open_file(url, work.storage_options) if remote is None else remote.open()
    with source:
        file = open_parquet(source)
        columns, groups = _plan(work, file, items, positions, known)
        for number, start in groups:
            group = file.metadata.row_group(number)
            last = None if positions is None else positions[positions < start + group.num_rows][-1]
            for batch in iter_rows(file, columns, [number]):
                yield group, start, pa.table(batch.columns, [item.name for item in items])
                start += batch.num_rows
                if last is not None and start > last:
                    break


def _plan(
    work: LocalTable,
    file: pq.ParquetFile,
    items: Sequence[Field],
    positions: np.ndarray | None,
    known: Predicate | None,
) -> tuple[Columns, list[tuple[int, int]]]:
    """Return the columns to read of a file, and the row groups: their numbers and first positions.

    Raises as `read_rows`.
    """
    columns = exact_columns(file, items, by_id=work.snapshot.column_mapping_mode == "id")
    groups = list(_needed_groups(file, positions))
    if known is not None:
        may_match = _groups(file, columns, items, known, work.snapshot)
        groups = [(number, start) for number, start in groups if may_match[number]]
    return columns, groups


def _needed_groups(file: pq.ParquetFile, positions: np.ndarray | None) -> Iterator[tuple[int, int]]:
    """Yield the row groups that have one of the ascending positions, or all without positions:
    their numbers and first positions.
    """
    start = 0
    for number in range(file.num_row_groups):
        end = start + file.metadata.row_group(number).num_rows
        if positions is None or np.any((positions >= start) & (positions < end)):
            yield number, start
        start = end


def _groups(
    file: pq.ParquetFile,
    columns: Columns,
    items: Sequence[Field],
    predicate: Predicate,
    snapshot: Snapshot,
) -> Sequence[bool]:
    """Return for each row group whether its statistics allow a row that meets the predicate.

    Only statistics of top-level integer columns count: no writer truncates them or orders them
    differently.
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
    return ranges_may_match(predicate, ranges, len(groups), snapshot.schema)


def _range(chunk: pq.ColumnChunkMetaData) -> tuple[int, int] | None:
    """Return the least and greatest value of an integer column in a row group; None if unknown."""
    statistics = chunk.statistics
    if statistics is None or not statistics.has_min_max:
        return None
    bounds = (statistics.min, statistics.max)
    return bounds if all(type(bound) is int for bound in bounds) else None


def exact_columns(file: pq.ParquetFile, items: Sequence[Field], *, by_id: bool) -> Columns:
    """Find the columns in the file; a missing one is null.

    Raises ValueError where Spark might read other values: a type that isn't exactly the table's,
    INT96 times, or names that are doubled or in other letter case.
    """
    schema = pa.schema([parquet_field(item) for item in items])
    columns = Columns(schema, by_id=by_id, exact=True)
    columns.find(file)
    names = file.schema_arrow.names
    if len({name.lower() for name in names}) < len(names):
        raise ValueError("two columns have one name")
    if not by_id and not set(columns.sources) <= {*schema.names, None}:
        raise ValueError("a column's name is in other letter case")
    leaves = (file.schema.column(place) for place in range(len(file.schema.names)))
    if any(leaf.physical_type == "INT96" for leaf in leaves):
        raise ValueError("times are INT96")
    return columns


def _names_of(work: LocalTable, file: pq.ParquetFile, items: Sequence[Field]) -> list[str]:
    """Return the file's names of these columns; none if one of them can't be read as by Spark."""
    try:
        by_id = work.snapshot.column_mapping_mode == "id"
        return exact_columns(file, items, by_id=by_id).names if items else []
    except ValueError:
        return []
