"""Rows that the driver holds become data files, and reports of tasks become actions.

Owns what a task of a write is given. `spark.writing` lets tasks of Spark run it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from txlake.commit.branch_store import fork_version
from txlake.datafiles import write_task
from txlake.datafiles.files import Uploads
from txlake.datafiles.footers import filter_safe_tags, statistics_of
from txlake.datafiles.origins import Ordinals, Positions, unpack_origins
from txlake.datafiles.parquet import with_field_names
from txlake.datafiles.partition_texts import partition_texts
from txlake.datafiles.vectors import bitmap_of_report
from txlake.errors import InvalidRequest
from txlake.local.control_columns import (
    ACTION,
    FILE,
    ROW,
    ROW_ID,
    ROW_VERSION,
    SOURCE_ROW,
    VIOLATION,
    VIOLATION_ROW,
)
from txlake.local.memory_tables import import_files, task_root
from txlake.local.types import parquet_field
from txlake.log.snapshot import Snapshot
from txlake.ports import Store, System
from txlake.protocol import paths
from txlake.protocol.actions import Add
from txlake.protocol.clustering import clustered_by
from txlake.protocol.iceberg import VERSION_TAG
from txlake.protocol.types import Field, Primitive, Struct

_BATCH_ROWS = 131_072


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTarget:
    """The table that rows are written to, as it is after the commit.

    `storage_options` travel with the tasks; `rows_max` bounds the rows of one file. With
    `reports_origins` the tasks say which rows each row that they write was made of. With
    `as_changes` the files are change data files.
    """

    snapshot: Snapshot
    store: Store
    system: System
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    data_change: bool = True
    rows_max: int | None = None
    reports_origins: bool = False
    as_changes: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive rows of a new file: the file that they come from, and their positions in it."""

    ordinal: int
    positions: BitMap64


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """The result of a write.

    Attributes:
        adds: the new files.
        groups: each new file's bin, where a compaction wrote it.
        replaced: positions of the rows replaced or deleted, by file ordinal of the scan.
        replaced_rows: how many rows named those positions; more than positions when two rows
            named one.
        actions: rows by action (`write_task.COPY`, `INSERT`, ...).
        sources: the numbers in SOURCE_ROW.
        identity_marks: by physical name, the last values that were given in identity columns.
        pieces: of each new file, by its path, where its rows come from, in their order.
        origins: by path of a new file, the ordinal and the position of the row that each of its
            rows was made of; files of which no row was made of another are left out.
    """

    adds: tuple[Add, ...] = ()
    groups: tuple[int, ...] = ()
    replaced: Mapping[int, BitMap64] = field(default_factory=dict)
    replaced_rows: int = 0
    actions: Mapping[int, int] = field(default_factory=dict)
    sources: BitMap64 = field(default_factory=BitMap64)
    identity_marks: Mapping[str, int] = field(default_factory=dict)
    pieces: Mapping[str, tuple[Piece, ...]] = field(default_factory=dict)
    origins: Mapping[str, tuple[Ordinals, Positions]] = field(default_factory=dict)


def write_arrow(
    table: pa.Table, target: WriteTarget, uploads: Uploads | None = None
) -> WriteResult:
    """Write rows that the driver holds, without Spark; columns as for `write_frame`.

    New files exist when it returns, with `uploads` when the caller has waited for these; the caller
    commits them. Raises InvalidRequest for a row that violates a constraint; its new files are
    deleted.
    """
    given = TaskColumns.of(target.snapshot, table.column_names)
    task = given.task(target)
    arrays = [_physical(table.column(item.name), parquet_field(item).type) for item in given.data]
    arrays += [table.column(name) for name in given.tracked]
    arrays += [
        partition_texts(table.column(item.name).combine_chunks(), item) for item in given.partitions
    ]
    arrays += [table.column(name) for name in given.controls.values()]
    rows = pa.Table.from_arrays(arrays, [f"__c{place}" for place in range(len(arrays))])
    return result_of(target, run_in_driver(task, rows, uploads))


def task_for(target: WriteTarget) -> write_task.WriteTask:
    """Return a task for rows of the table's data columns, then texts of partition columns, without
    control columns.
    """
    return TaskColumns.of(target.snapshot, ()).task(target)


_CONTROLS: Mapping[str, str] = {
    "action": ACTION,
    "file": FILE,
    "row": ROW,
    "source": SOURCE_ROW,
    "violation": VIOLATION,
    "violation_row": VIOLATION_ROW,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskColumns:
    """The columns of the rows that a task gets, in this order.

    Attributes:
        data: columns of the table that files hold.
        tracked: control columns of row tracking, which the table's files have columns for.
        names: those columns.
        partitions: partition columns, as texts.
        controls: by what `write_task.Layout` calls them.
    """

    data: tuple[Field, ...]
    tracked: tuple[str, ...]
    names: tuple[str, ...]
    partitions: tuple[Field, ...]
    controls: Mapping[str, str]

    @classmethod
    def of(
        cls, snapshot: Snapshot, present: Collection[str], *, images: bool = True
    ) -> TaskColumns:
        """Return the columns for rows that have the columns `present`.

        All of the table's columns, and the control columns in `present`. Without `images` (rows
        that only say what is deleted) only the control columns.
        """
        tracked = {
            control: name
            for control, name in _tracking(snapshot)
            if name is not None and control in present
        }
        return cls(
            data=tuple(data_fields(snapshot)) if images else (),
            tracked=tuple(tracked),
            names=tuple(tracked.values()),
            partitions=tuple(partition_fields(snapshot)) if images else (),
            controls={key: name for key, name in _CONTROLS.items() if name in present},
        )

    def task(self, target: WriteTarget) -> write_task.WriteTask:
        """Return the task for rows of these columns, in the order data, tracked, partitions,
        controls.
        """
        first = len(self.data) + len(self.tracked)
        partition = tuple(range(first, first + len(self.partitions)))
        after = first + len(self.partitions)
        places = {key: after + place for place, key in enumerate(self.controls)}
        layout = write_task.Layout(data=first, partition=partition, **places)
        return _task(target, _arrow_schema(list(self.data), list(self.names)), layout)


def run_in_driver(
    task: write_task.WriteTask, rows: pa.Table, uploads: Uploads | None = None
) -> list[dict[str, object]]:
    """Run a task in this process on rows in any order; return its reports in the order of
    its work. `uploads` as for `write_task.run`.
    """
    if task.layout.partition:
        keys = [(rows.column_names[index], "ascending") for index in task.layout.partition]
        rows = rows.take(pc.sort_indices(rows, sort_keys=keys))
    reports: list[dict[str, object]] = []
    name = f"{task.kind}-00000-{task.job_id}"
    for batch in write_task.run(task, iter(rows.to_batches(_BATCH_ROWS)), name, uploads):
        reports += batch.to_pylist()
    return reports


def moving_task(target: WriteTarget, tracked: tuple[str, ...]) -> write_task.WriteTask:
    """Return the task that writes moved rows, with no partition or control columns.

    `tracked`: the names of row tracking columns in files, which come after the table's.
    """
    schema = _arrow_schema(data_fields(target.snapshot), list(tracked))
    return _task(target, schema, write_task.Layout(data=len(schema)))


def _physical(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """Return the values with the field names of the data files."""
    return pa.chunked_array([with_field_names(chunk, wanted) for chunk in column.chunks], wanted)


def partition_fields(snapshot: Snapshot) -> list[Field]:
    """Return the partition columns, in the order of the table's partitioning."""
    found = [snapshot.schema.find(name) for name in snapshot.partition_columns]
    return [item for item in found if item is not None]


def data_fields(snapshot: Snapshot) -> list[Field]:
    """Return the columns of data files, in the schema's order: all but partition and void
    columns.
    """
    return [
        item
        for item in snapshot.schema
        if item.name not in snapshot.partition_columns and item.type != Primitive("void")
    ]


def _tracking(snapshot: Snapshot) -> tuple[tuple[str, str | None], ...]:
    """Return the control columns of row tracking, each with its column in files, None if it has
    none.
    """
    properties = snapshot.properties
    return (
        (ROW_ID, properties.materialized_row_id_column),
        (ROW_VERSION, properties.materialized_row_commit_version_column),
    )


def _arrow_schema(data: list[Field], tracked: list[str]) -> pa.Schema:
    fields = [parquet_field(item) for item in data]
    return pa.schema([*fields, *(pa.field(name, pa.int64()) for name in tracked)])


def _task(
    target: WriteTarget, schema: pa.Schema, layout: write_task.Layout
) -> write_task.WriteTask:
    """Return a task with a new job id that writes into the target's folder."""
    partitions = partition_fields(target.snapshot)
    names = tuple(item.physical_name for item in partitions)
    return write_task.WriteTask(
        schema=schema.serialize().to_pybytes(),
        layout=layout,
        root=task_root(target.store),
        job_id=target.system.new_id(),
        folder_of=partial(
            write_task.change_folder_of if target.as_changes else write_task.folder_of, names
        ),
        options=dict(target.storage_options),
        rows_max=target.rows_max,
        kind="cdc" if target.as_changes else "part",
        reports_origins=target.reports_origins,
        materialized=_materialized(target.snapshot),
        row_versions=_row_versions(target),
    )


def _row_versions(target: WriteTarget) -> tuple[str, int] | None:
    """Return the column of row commit versions, and the last that a branch may write there: its
    own versions mean nothing once it is published. None for other tables.
    """
    column = target.snapshot.properties.materialized_row_commit_version_column
    base = fork_version(target.store)
    return None if column is None or base is None else (column, base)


def _materialized(snapshot: Snapshot) -> write_task.Materialized | None:
    """Return the partition columns as data files have them; None if the table doesn't
    store them.
    """
    fields = partition_fields(snapshot)
    if not fields or not snapshot.materializes_partitions:
        return None
    schema = pa.schema([parquet_field(item) for item in fields])
    types = tuple(item.type for item in fields)
    return write_task.Materialized(schema.serialize().to_pybytes(), types)


def result_of(target: WriteTarget, reports: Iterable[Mapping[str, object]]) -> WriteResult:
    """Return what tasks wrote, by their reports (`write_task`).

    Imports the new files into a table in memory. If a row violates a constraint, deletes the new
    files and raises InvalidRequest with the row. `identity_marks` is left empty.
    """
    adds: list[Add] = []
    groups: list[int] = []
    replaced: dict[int, BitMap64] = {}
    replaced_rows = 0
    actions: dict[int, int] = {}
    sources = BitMap64()
    pieces: dict[str, list[Piece]] = {}
    origins: dict[str, tuple[Ordinals, Positions]] = {}
    violations: list[tuple[str, str]] = []
    now_ms = target.system.now_ms()
    for report in reports:
        key, count = report["key"], report["count"]
        match report["kind"]:
            case "file":
                adds.append(_reported(target, report, now_ms))
                group = report["group"]
                if isinstance(group, int):
                    groups.append(group)
            case "rows":
                assert isinstance(key, int)
                assert isinstance(count, int)
                data = report["data"]
                assert isinstance(data, bytes | bytearray)
                bitmap = bitmap_of_report(bytes(data))
                replaced[key] = replaced[key] | bitmap if key in replaced else bitmap
                replaced_rows += count
            case "action":
                assert isinstance(key, int)
                assert isinstance(count, int)
                actions[key] = actions.get(key, 0) + count
            case "source":
                data = report["data"]
                assert isinstance(data, bytes | bytearray)
                sources |= bitmap_of_report(bytes(data))
            case "piece":
                assert isinstance(key, int)
                data = report["data"]
                assert isinstance(data, bytes | bytearray)
                piece = Piece(key, bitmap_of_report(bytes(data)))
                pieces.setdefault(str(report["text"]), []).append(piece)
            case "origins":
                data = report["data"]
                assert isinstance(data, bytes | bytearray)
                origins[str(report["text"])] = unpack_origins(bytes(data))
            case "violation":
                values = report["values"]
                assert isinstance(values, list)
                violations.append((str(report["text"]), str(values[0])))
    if violations:
        target.store.delete(paths.decode_path(add.path) for add in adds)
        constraint, row = violations[0]
        raise InvalidRequest(
            f"{target.snapshot.table}: {constraint} is violated by the row {row}; "
            "nothing was written"
        )
    import_files(target.store, (paths.decode_path(add.path) for add in adds))
    return WriteResult(
        adds=tuple(adds),
        groups=tuple(groups),
        replaced=replaced,
        replaced_rows=replaced_rows,
        actions=actions,
        sources=sources,
        pieces={path: tuple(found) for path, found in pieces.items()},
        origins=origins,
    )


def add_of(
    target: WriteTarget,
    path: str,
    size: int,
    footer: pq.FileMetaData,
    now_ms: int,
    *,
    partition: Sequence[str | None] = (),
) -> Add:
    """Return the action for a new file, with its statistics from the footer.

    `path` is encoded as in the log; `partition` has the values of the partition columns in their
    order, () for none; `size` is in bytes. Raises CorruptTable if the clustering columns can't be
    read.
    """
    snapshot = target.snapshot
    columns = Struct(tuple(item for item in snapshot.schema if item.type != Primitive("void")))
    statistics = statistics_of(
        footer,
        columns,
        snapshot.partition_columns,
        snapshot.properties,
        clustered=clustered_by(snapshot.schema, snapshot.domains, table=snapshot.table),
    )
    tags: dict[str, str | None] = dict(
        filter_safe_tags(footer, columns, snapshot.partition_columns)
    )
    if snapshot.is_iceberg_compatible:
        tags.update(VERSION_TAG)
    physical = [item.physical_name for item in partition_fields(snapshot)]
    return Add(
        path=path,
        partition_values=dict(zip(physical, partition, strict=True)),
        size=size,
        modification_time=now_ms,
        data_change=target.data_change,
        stats=statistics.to_json(),
        tags=tags or None,
    )


def _reported(target: WriteTarget, report: Mapping[str, object], now_ms: int) -> Add:
    """Return the action for a file that a task reported."""
    values, data = report["values"], report["data"]
    size = report["key"]
    assert isinstance(values, list)
    assert isinstance(data, bytes | bytearray)
    assert isinstance(size, int)
    return add_of(
        target,
        str(report["text"]),
        size,
        pq.read_metadata(pa.BufferReader(bytes(data))),
        now_ms,
        partition=values,
    )
