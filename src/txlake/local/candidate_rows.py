"""The rows for which a condition may hold, found by the driver where the files are few.

Owns reading data files by pyarrow on the driver.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txlake.local.char_types import is_padded
from txlake.local.choice import FILES_MAX, Declined
from txlake.local.control_columns import FILE, ROW, ROW_ID, ROW_VERSION
from txlake.local.file_rows import (
    UNREADABLE,
    decode_each,
    deleted_rows,
    fetch_beginnings,
    fetch_columns,
    is_plain_field,
    read_rows,
)
from txlake.local.table import LocalTable
from txlake.local.writing import data_fields
from txlake.log.files import adds_of
from txlake.log.predicates import And, Opaque, Predicate, columns_of, conjuncts
from txlake.log.skipping import has_opaque, rows_may_match, rows_must_match
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add
from txlake.protocol.partition_values import parse_column
from txlake.protocol.types import Field, Primitive, Struct, to_arrow_type

_FILES_MAX = FILES_MAX
_ROWS_MAX = 24_000_000
_HELD_BYTES_MAX = 64 * 1024 * 1024
_LONG = Primitive("long")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Rows that may match a condition; no other row of the files does.

    Attributes:
        positions: ascending positions by file ordinal; files without candidates are left out.
        certain: whether the condition is true for all of these rows.
    """

    positions: Mapping[int, np.ndarray]
    certain: bool

    @property
    def count(self) -> int:
        """The number of candidate rows."""
        return sum(map(len, self.positions.values()))


def find_candidates(
    work: LocalTable,
    files: pa.Table,
    predicate: Predicate,
    rows_max: int,
    group_bytes_max: int | None = None,
    later: Sequence[Field] = (),
) -> Candidates:
    """Return the live rows of the files for which the predicate may hold, by the files' ordinals.

    `predicate` is bound; its opaque parts are taken as possibly true. `later`: the columns that the
    caller will read of these rows, which are fetched at once from files in other stores where that
    saves a round trip. Raises Declined if more than `rows_max` may match, if more than 24 million
    rows have to be read, if the row groups with matches exceed `group_bytes_max` uncompressed, if
    the predicate has no condition on a column that the driver can compare, if there are more than
    64 files, if more bytes of other stores have to be fetched than `choice` allows, and if a file
    might be read in another way than by Spark.
    """
    snapshot = work.snapshot
    known = And(tuple(part for part in conjuncts(predicate) if not isinstance(part, Opaque)))
    names = {path[0].lower() for path in columns_of(known) if len(path) == 1}
    items = [item for item in data_fields(snapshot) if item.name.lower() in names]
    items = [item for item in items if is_plain_field(item)]
    if not items:
        raise Declined("the condition compares no column that the driver can read")
    adds = _files_to_read(work, files)
    search = _Search(work, predicate, known, items, rows_max, group_bytes_max)
    try:
        fetch_beginnings(work, adds)
        fetch_columns(work, adds, items, known=known, later=later)
        positions_by_file = decode_each(search.of, adds)
    except UNREADABLE as error:
        raise Declined(str(error)) from error
    positions = {ordinal: places for ordinal, places in enumerate(positions_by_file) if len(places)}
    return Candidates(positions=positions, certain=search.certain)


def _files_to_read(work: LocalTable, files: pa.Table) -> list[Add]:
    """Return the files, their partition values in the session's zone. Raises Declined if there are
    more than 64.
    """
    if files.num_rows > _FILES_MAX:
        raise Declined(f"there are {files.num_rows} files, more than {_FILES_MAX}")
    return adds_of(work.in_zone(files))


@dataclass(slots=True)
class _Search:
    """A search over several files, possibly in parallel, with the sums over all files."""

    work: LocalTable
    predicate: Predicate
    known: Predicate
    items: Sequence[Field]
    rows_max: int
    group_bytes_max: int | None
    certain: bool = field(init=False)
    _rows_read: int = 0
    _count: int = 0
    _group_bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.certain = not has_opaque(self.predicate)

    def of(self, add: Add) -> np.ndarray:
        """Return the ascending positions of live rows in one file that may match.

        Clears `certain` if the predicate isn't certainly true for one of them. Raises Declined when
        all files together exceed a limit, and one of UNREADABLE for a file that Spark might read
        otherwise.
        """
        snapshot = self.work.snapshot
        deleted = deleted_rows(self.work, add)
        parts = [np.empty(0, np.int64)]
        last = None
        for group, start, rows in read_rows(self.work, add, self.items, known=self.known):
            count = rows.num_rows
            rows = _with_partitions(snapshot, add, rows)
            matches = np.flatnonzero(rows_may_match(self.known, rows, snapshot.schema))
            if len(deleted):
                matches = matches[~np.isin(matches + start, deleted)]
            is_new = len(matches) > 0 and group is not last
            self._add_up(count, len(matches), group.total_byte_size if is_new else 0)
            if len(matches):
                last = group
                if self.certain and not _hold(
                    self.predicate, rows.take(pa.array(matches)), snapshot
                ):
                    self.certain = False
                parts.append(matches + start)
        return np.concatenate(parts)

    def _add_up(self, rows: int, matches: int, group_bytes: int) -> None:
        """Add to the sums over all files. Raises Declined when one exceeds its limit."""
        with self._lock:
            self._rows_read += rows
            self._count += matches
            self._group_bytes += group_bytes
            is_large = self.group_bytes_max is not None and self._group_bytes > self.group_bytes_max
            if is_large or self._count > self.rows_max or self._rows_read > _ROWS_MAX:
                raise Declined("too many rows may match, or have to be read")


def live_values(
    work: LocalTable,
    files: pa.Table,
    items: Sequence[Field],
    possible: Predicate,
    later: Sequence[Field] = (),
) -> Iterator[Iterator[tuple[np.ndarray, pa.Table]]]:
    """Yield for each file, in order, an iterator over its live rows: positions, and the columns
    `items`.

    The rows have the table's partition columns too. Row groups in which the bound predicate can't
    be true may be left out. `later` as for `find_candidates`. The inner iterators may be read in
    parallel. Both kinds raise Declined, or one of UNREADABLE, where the result might differ from
    Spark's.
    """
    snapshot = work.snapshot
    names = {name.lower() for name in snapshot.partition_columns}
    data = [item for item in items if item.name.lower() not in names]
    if not data or not all(map(is_plain_field, data)):
        raise Declined("the keys are in columns that the driver can't read")
    known = And(tuple(part for part in conjuncts(possible) if not isinstance(part, Opaque)))
    adds = _files_to_read(work, files)
    fetch_beginnings(work, adds)
    fetch_columns(work, adds, data, known=known, later=later)
    for add in adds:
        yield _live_in(work, add, data, known)


def _live_in(
    work: LocalTable, add: Add, items: Sequence[Field], known: Predicate
) -> Iterator[tuple[np.ndarray, pa.Table]]:
    """Yield one file's live rows in batches: ascending positions, and the columns, partition
    columns too.

    A batch may be empty. Raises one of UNREADABLE.
    """
    deleted = deleted_rows(work, add)
    for _, start, rows in read_rows(work, add, items, known=known):
        places = np.arange(start, start + rows.num_rows)
        rows = _with_partitions(work.snapshot, add, rows)
        first, last = np.searchsorted(deleted, [start, start + rows.num_rows])
        if first < last:
            is_live = np.ones(rows.num_rows, dtype=bool)
            is_live[deleted[first:last] - start] = False
            places, rows = places[is_live], rows.filter(pa.array(is_live))
        yield places, rows


def arrow_rows_at(
    work: LocalTable,
    files: pa.Table,
    positions: Mapping[int, np.ndarray],
    bytes_max: int | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Return the rows at these positions, by file ordinal, with the columns of a scan with
    positions.

    They are the table's columns by logical name, then those of `extra_names`; with `columns` only
    these of both. The rows come by file, in the order of their positions. Raises Declined if one of
    the columns is nested, CHAR or void, if a file might be read otherwise by Spark, and if the rows
    exceed `bytes_max` (64 MiB by default).
    """
    schema = work.snapshot.schema
    items = [item for item in schema if columns is None or item.name in columns]
    if not all(map(is_plain_field, items)):
        raise Declined("the table has columns that the driver can't read as Spark does")
    if any(map(is_padded, items)):
        raise Declined("the table has a CHAR column, which Spark pads")
    names = [*schema.names, *extra_names(work)] if columns is None else list(columns)
    stored = stored_fields(work, columns)
    adds = adds_of(work.in_zone(files))
    budget = _ByteBudget(_HELD_BYTES_MAX if bytes_max is None else bytes_max)

    def of_file(item: tuple[int, np.ndarray]) -> pa.Table:
        ordinal, file_positions = item
        return _rows_of_file(work, ordinal, adds[ordinal], file_positions, stored, names, budget)

    try:
        chosen = [adds[ordinal] for ordinal in positions] if stored else []
        fetch_columns(work, chosen, stored, positions=positions.values())
        parts = decode_each(of_file, list(positions.items()))
    except UNREADABLE as error:
        raise Declined(str(error)) from error
    return pa.concat_tables(parts) if parts else _no_rows(schema, names)


@dataclass(slots=True)
class _ByteBudget:
    """A budget of bytes that the rows of several files share."""

    bytes_max: int
    _taken: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, rows: pa.Table) -> None:
        """Use up the rows' size. Raises Declined when the budget is exceeded."""
        with self._lock:
            self._taken += rows.nbytes
            if self._taken > self.bytes_max:
                raise Declined(f"the rows have more than {self.bytes_max:,} bytes")


def _no_rows(schema: Struct, names: Sequence[str]) -> pa.Table:
    """Return no rows, with the columns `names`: those of the table, and control columns as
    bigint.
    """
    types = {item.name: to_arrow_type(item.type) for item in schema}
    return pa.schema([(name, types.get(name, pa.int64())) for name in names]).empty_table()


def extra_names(work: LocalTable) -> list[str]:
    """Return the names of the control columns of candidate rows: file ordinal, position, and for
    row tracking the row's id and commit version.
    """
    return [FILE, ROW, ROW_ID, ROW_VERSION] if work.tracks_rows else [FILE, ROW]


def stored_fields(work: LocalTable, columns: Sequence[str] | None = None) -> list[Field]:
    """Return the columns of data files that `arrow_rows_at` reads; `columns` as there."""
    data = [item for item in data_fields(work.snapshot) if columns is None or item.name in columns]
    wanted = extra_names(work) if columns is None else columns
    tracked = _tracking_columns(work)
    names = [tracked[name] for name in (ROW_ID, ROW_VERSION) if name in wanted]
    return [*data, *(Field(name, _LONG) for name in names if name is not None)]


def _tracking_columns(work: LocalTable) -> Mapping[str, str | None]:
    """Return the columns of data files that hold the control columns of row tracking, None for
    none.
    """
    properties = work.snapshot.properties
    return {
        ROW_ID: properties.materialized_row_id_column,
        ROW_VERSION: properties.materialized_row_commit_version_column,
    }


def _rows_of_file(
    work: LocalTable,
    ordinal: int,
    add: Add,
    positions: np.ndarray,
    fields: Sequence[Field],
    names: list[str],
    budget: _ByteBudget,
) -> pa.Table:
    """Return the rows at ascending positions of one file, with the columns `names`, of which the
    file stores `fields`; it isn't read if there are none.

    Row ids and versions that the file doesn't store are derived from the add action. Raises
    Declined when the budget is exceeded, and one of UNREADABLE.
    """
    snapshot = work.snapshot
    tracked = _tracking_columns(work)
    parts = []
    for rows_positions, columns in _stored_at(work, add, positions, fields):
        position_column = pa.array(rows_positions, pa.int64())
        if ROW_ID in names:
            base = pa.scalar(add.base_row_id, pa.int64())
            version = pa.scalar(add.default_row_commit_version, pa.int64())
            for name, default in ((ROW_ID, pc.add(position_column, base)), (ROW_VERSION, version)):
                stored = columns.get(
                    tracked[name] or "", pa.nulls(len(position_column), pa.int64())
                )
                columns[name] = pc.coalesce(stored, default)
        columns[FILE] = pa.array(np.full(len(position_column), ordinal), pa.int64())
        columns[ROW] = position_column
        rows = _with_partitions(snapshot, add, pa.table(columns)).select(names)
        budget.take(rows)
        parts.append(rows)
    return pa.concat_tables(parts)


def _stored_at(
    work: LocalTable, add: Add, positions: np.ndarray, fields: Sequence[Field]
) -> Iterator[tuple[np.ndarray, dict[str, pa.ChunkedArray]]]:
    """Yield the ascending positions in batches, with the columns `fields` that the file stores."""
    if not fields:
        yield positions, {}
        return
    for _, start, rows in read_rows(work, add, fields, positions):
        first, last = np.searchsorted(positions, [start, start + rows.num_rows])
        if first < last:
            rows = rows.take(pa.array(positions[first:last] - start))
            yield positions[first:last], dict(zip(rows.column_names, rows.columns, strict=True))


def _hold(predicate: Predicate, rows: pa.Table, snapshot: Snapshot) -> bool:
    return bool(pc.all(rows_must_match(predicate, rows, snapshot.schema)).as_py())


def _with_partitions(snapshot: Snapshot, add: Add, rows: pa.Table) -> pa.Table:
    """Return the rows with the partition columns appended, which are constant in a file."""
    for name in snapshot.partition_columns:
        item = snapshot.schema.find(name)
        assert item is not None
        text = pa.array([add.partition_values.get(item.physical_name)], pa.string())
        value = parse_column(text, item.type)
        places = pa.array(np.zeros(rows.num_rows, np.int64))
        rows = rows.append_column(item.name, value.take(places))
    return rows
