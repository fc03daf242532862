"""Data files of a table: rows become Parquet in the table's store, and rows again.

Owns the bytes of the row plane: real Parquet, real statistics, real deletion vectors. Everything
goes through the table's `Store`, one request after the other.

Where the table tracks rows, a row that was read has two values more behind its columns: its id and
the version of its last change. Written with them, it keeps them; None is given anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from tests.simulation.rows.frames import RowFrame
from tests.simulation.rows.scopes import ColumnName, Row, Rows
from tests.simulation.rows.values import LONG
from txlake.datafiles.exact_footers import change_footer, needs_change
from txlake.datafiles.vectors import load_vector
from txlake.datafiles.write_task import CHANGE_FOLDER, COPY
from txlake.errors import CorruptTable
from txlake.local.control_columns import FILE, ROW, ROW_ID, ROW_VERSION
from txlake.local.types import parquet_field
from txlake.local.writing import WriteResult, add_of, data_fields, partition_fields
from txlake.log.files import adds_of
from txlake.log.predicates import Predicate
from txlake.log.snapshot import Snapshot
from txlake.log.time_zones import UTC_ZONE, TimeZone
from txlake.ports import Store
from txlake.protocol import paths
from txlake.protocol.actions import Add
from txlake.protocol.partition_values import format_value, parse_value
from txlake.protocol.types import Field
from txlake.spark.table_access import TableAccess


@dataclass(frozen=True, slots=True, kw_only=True)
class RowAccess(TableAccess):
    """A table as a statement reads it, whose scans are rows.

    `store_at`: returns the store of a folder, for files outside of the table.
    """

    store_at: Callable[[str], Store]

    @property
    def time_zone(self) -> TimeZone:
        return UTC_ZONE

    def scan(
        self,
        files: pa.Table,
        *,
        positions: bool = False,
        deleted: Mapping[int, BitMap64] | None = None,
        where: Predicate | None = None,
        together: Collection[str] | None = None,
    ) -> Any:
        names = list(columns_of(self))
        if positions:
            names += [ColumnName(FILE, LONG, hidden=True), ColumnName(ROW, LONG, hidden=True)]
        rows: list[Row] = []
        for place, add in enumerate(adds_of(files)):
            for position, row in live_rows(self, add, (deleted or {}).get(place)):
                rows.append((*row, place, position) if positions else row)
        return RowFrame(Rows(tuple(names), rows))

    def with_deleted(
        self, files: Mapping[int, Add], deleted: Mapping[int, BitMap64]
    ) -> dict[int, BitMap64]:
        return {place: own_deleted(self, files[place]) | new for place, new in deleted.items()}

    def copied(self, files: pa.Table, deleted: Mapping[int, BitMap64]) -> WriteResult:
        found = [
            (row, (at, position))
            for at, add in enumerate(adds_of(files))
            for position, row in live_rows(self, add, deleted.get(at))
        ]
        rows, places = [row for row, _ in found], [place for _, place in found]
        return replace(write_images(self, rows, places), actions={COPY: len(rows)})


def columns_of(work: TableAccess, qualifier: str | None = None) -> tuple[ColumnName, ...]:
    """Return the columns of a scan as expressions name them."""
    names = [ColumnName(item.name, item.type, qualifier) for item in work.snapshot.schema]
    if work.tracks_rows:
        names += [ColumnName(ROW_ID, LONG, hidden=True), ColumnName(ROW_VERSION, LONG, hidden=True)]
    return tuple(names)


def live_rows(
    work: TableAccess, add: Add, deleted: BitMap64 | None = None
) -> list[tuple[int, Row]]:
    """Return the rows of a file that aren't deleted, with their positions.

    `deleted` replaces the positions of the file's own vector.
    """
    rows = list(enumerate(rows_of(work, add)))
    if deleted is None:
        deleted = own_deleted(work, add)
    return [(position, row) for position, row in rows if position not in deleted]


def own_deleted(work: TableAccess, add: Add) -> BitMap64:
    """Return the positions that a file's vector deletes."""
    if add.deletion_vector is None:
        return BitMap64()
    return load_vector(work.store, add.deletion_vector, work.external_vectors)


def rows_of(work: TableAccess, add: Add) -> tuple[Row, ...]:
    """Return all rows of a file, in its order."""
    snapshot = work.snapshot
    data = _bytes(work, add.path)
    rows = _with_partition(snapshot, add, _decoded(data, _layout(snapshot)))
    if not work.tracks_rows:
        return rows
    kept = _decoded(data, _tracking(snapshot))
    assert add.base_row_id is not None, f"{add.path} has no row ids"
    return tuple(
        (
            *row,
            add.base_row_id + position if row_id is None else row_id,
            add.default_row_commit_version if version is None else version,
        )
        for position, (row, (row_id, version)) in enumerate(zip(rows, kept, strict=True))
    )


def _with_partition(snapshot: Snapshot, add: Add, physical: tuple[Row, ...]) -> tuple[Row, ...]:
    values = add.partition_values
    partition = {
        item.name: parse_value(values.get(item.physical_name), item.type)
        for item in partition_fields(snapshot)
    }
    if not partition:
        return physical
    rows = []
    for row in physical:
        cells = iter(row)
        names = snapshot.schema.names
        rows.append(tuple(partition[n] if n in partition else next(cells) for n in names))
    return tuple(rows)


def _bytes(work: TableAccess, path: str) -> bytes:
    url = work.reach.url(path)
    try:
        if not paths.is_absolute(path):
            return work.store.get(paths.decode_path(path))
        assert isinstance(work, RowAccess)
        folder, _, name = url.rpartition("/")
        return work.store_at(folder).get(paths.decode_path(name))
    except FileNotFoundError as error:
        raise CorruptTable(
            f"{work.snapshot.table}: data file {path} is in the log but not in the store"
        ) from error


@dataclass(frozen=True, slots=True)
class _Layout:
    """The content of a schema's data files, or a part of it; `key` is unique to it."""

    key: Hashable
    fields: tuple[Field, ...]
    schema: pa.Schema


_LAYOUTS: dict[tuple[str, tuple[str, ...]], _Layout] = {}


def _layout(snapshot: Snapshot) -> _Layout:
    text = snapshot.metadata.schema_string
    assert text is not None
    key = text, tuple(snapshot.partition_columns)
    if key not in _LAYOUTS:
        fields = tuple(data_fields(snapshot))
        _LAYOUTS[key] = _Layout(key, fields, pa.schema([parquet_field(item) for item in fields]))
    return _LAYOUTS[key]


def _tracking(snapshot: Snapshot) -> _Layout:
    """Return the hidden columns of a table with row tracking, as far as its files have them."""
    properties = snapshot.properties
    names = (
        properties.materialized_row_id_column,
        properties.materialized_row_commit_version_column,
    )
    return _Layout(names, (), pa.schema([(name, pa.int64()) for name in names if name]))


_KNOWN_MAX = 4096
_known: dict[tuple[bytes, Hashable], tuple[Row, ...]] = {}


def _decoded(data: bytes, layout: _Layout) -> tuple[Row, ...]:
    """Return the rows in a file's bytes, with the layout's columns; each file is decoded once."""
    key = data, layout.key
    if key not in _known:
        table = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
        columns = []
        for wanted in layout.schema:
            if wanted.name in table.column_names:
                columns.append(table.column(wanted.name).cast(wanted.type).to_pylist())
            else:
                columns.append([None] * table.num_rows)
        _remember(key, tuple(zip(*columns, strict=True)) if columns else ((),) * table.num_rows)
    return _known[key]


def _remember(key: tuple[bytes, Hashable], rows: tuple[Row, ...]) -> None:
    if len(_known) >= _KNOWN_MAX:
        _known.clear()
    _known[key] = rows


# Writing


def write_rows(
    work: TableAccess, rows: Sequence[Row], *, data_change: bool = True, change_data: bool = False
) -> tuple[Add, ...]:
    """Write rows as new data files, one for each partition; return their actions."""
    members = ((row, None) for row in rows)
    return tuple(add for add, _ in _written(work, list(members), data_change, change_data))


def write_images(
    work: TableAccess, rows: Sequence[Row], places: Sequence[tuple[int, int]]
) -> WriteResult:
    """Write the images of rows that were at these places: the file's ordinal and the position."""
    written = _written(work, list(zip(rows, places, strict=True)))
    origins = {
        add.path: (
            np.array([at for at, _ in told], np.int32),
            np.array([position for _, position in told], np.int64),
        )
        for add, told in written
    }
    return WriteResult(
        adds=tuple(add for add, _ in written), origins=origins if work.reports_origins else {}
    )


def _written(
    work: TableAccess,
    told_rows: Sequence[tuple[Row, Any]],
    data_change: bool = True,
    change_data: bool = False,
) -> list[tuple[Add, list[Any]]]:
    """Return the actions of new files, each with the data of its rows."""
    if not told_rows:
        return []
    rows = [row for row, _ in told_rows]
    snapshot = work.snapshot
    layout = _layout(snapshot)
    target = work.target(data_change=data_change)
    partitions = partition_fields(snapshot)
    names = snapshot.schema.names
    places = [names.index(item.name) for item in partitions]
    data_places = [names.index(item.name) for item in layout.fields]
    schema, is_tracked = layout.schema, len(rows[0]) > len(names)
    if is_tracked:
        schema = pa.schema([*schema, *_tracking(snapshot).schema])
        data_places += [len(names), len(names) + 1]
    groups: dict[tuple[str | None, ...], list[tuple[Row, Any]]] = {}
    for row, told in told_rows:
        key = tuple(
            format_value(row[place], item.type) or None
            for place, item in zip(places, partitions, strict=True)
        )
        groups.setdefault(key, []).append((row, told))
    job_id, now_ms = work.system.new_id(), work.system.now_ms()
    physical = [item.physical_name for item in partitions]
    adds = []
    for number, (values, members) in enumerate(groups.items()):
        name = f"part-00000-{job_id}.c{number:03d}.snappy.parquet"
        folder = paths.partition_folder(list(zip(physical, values, strict=True)))
        path = f"{folder}/{name}" if folder else name
        if change_data:
            path = f"{CHANGE_FOLDER}/{path}"
        cells = tuple(tuple(row[place] for place in data_places) for row, _ in members)
        data, footer = _encoded(schema, cells)
        work.store.put(path, data)
        if not is_tracked:
            _remember((data, layout.key), cells)
        add = add_of(
            target,
            paths.encode_path(path),
            len(data),
            footer,
            now_ms,
            partition=values,
        )
        adds.append((add, [told for _, told in members]))
    return adds


def _encoded(schema: pa.Schema, rows: Sequence[Row]) -> tuple[bytes, pq.FileMetaData]:
    columns = zip(*rows, strict=True) if len(schema) else ()
    arrays = [pa.array(column, item.type) for column, item in zip(columns, schema, strict=True)]
    footers: list[pq.FileMetaData] = []
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        schema,
        compression="snappy",
        version="2.6",
        store_schema=False,
        use_dictionary=False,
        metadata_collector=footers,
    ) as writer:
        writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
    data, footer = sink.getvalue().to_pybytes(), footers[0]
    with_nan = {(0, place) for place in _with_nan(schema, rows)}
    if needs_change(footer, with_nan):
        file = BytesIO(data)
        footer, _ = change_footer(file, with_nan)
        data = file.getvalue()
    return data, footer


def _with_nan(schema: pa.Schema, rows: Iterable[Row]) -> set[int]:
    """Return the indexes of the columns with a NaN."""
    floats = [place for place, item in enumerate(schema) if pa.types.is_floating(item.type)]
    if not floats:
        return set()
    return {
        place
        for row in rows
        for place in floats
        if row[place] is not None and math.isnan(row[place])
    }
