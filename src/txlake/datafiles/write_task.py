"""The task that writes rows as Parquet files at their final place; also run on the driver.

A task gets Arrow batches. Their first columns are the data, in the order of the target schema; the
last columns are control columns that say what to do with a row (`Layout`). It yields report rows of
`REPORT_SCHEMA`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from txlake.datafiles import files
from txlake.datafiles.exact_footers import (
    Chunk,
    change_footer,
    leaf_count,
    leaves_with_nan,
    needs_change,
)
from txlake.datafiles.origins import NO_FILE, pack_origins
from txlake.datafiles.packed_positions import pack_positions
from txlake.datafiles.parquet import with_field_names
from txlake.protocol.partition_values import parse_column
from txlake.protocol.paths import encode_path, partition_folder
from txlake.protocol.types import DataType

# One report row. kind: "file" (text: path as in the log, values: partition values as text, data:
# Parquet footer, key: size in bytes, count: rows, group: the bin's number), "rows" (key: file
# ordinal, data: replaced positions, count: rows reported, duplicates included), "action" (key:
# action, count: rows), "source" (data: numbers of a MERGE's source rows that matched a target row),
# "origins" (text: path of a file, data: which rows its rows were made of, see `origins`),
# "violation" (text: constraint, values: [row as JSON]); of a compaction also "moved" (key: bin,
# data: the number of live rows of each of its files, 64 bits each) and "skipped" (key: file
# ordinal, text: why the file stays as it is); of rows that were sorted "piece" (`sort_task`).
# Quoted, because a session may reserve SQL's keywords.
REPORT_SCHEMA = (
    "`kind` string, `key` bigint, `count` bigint, `text` string, `values` array<string>, "
    "`data` binary, `group` bigint"
)
_REPORT = pa.schema(
    [
        ("kind", pa.string()),
        ("key", pa.int64()),
        ("count", pa.int64()),
        ("text", pa.string()),
        ("values", pa.list_(pa.string())),
        ("data", pa.binary()),
        ("group", pa.int64()),
    ]
)

# Actions on a row. Those below FIRST_WITHOUT_IMAGE write an image.
COPY, INSERT, UPDATE, UPDATE_BY_SOURCE, FIRST_WITHOUT_IMAGE = 0, 1, 2, 3, 10
DELETE, DELETE_BY_SOURCE, KEEP = 10, 11, 12

COMPRESSION = "snappy"
ROW_GROUP_ROWS = 1_000_000
CHANGE_FOLDER = "_change_data"

_SAMPLE_ROWS = 131_072
_DISTINCT_SHARE_MAX = 0.75
_DICTIONARY_BYTES_MAX = 700_000
_FRACTIONS_MIN = 1_000


@dataclass(frozen=True)
class Layout:
    """The indexes of a batch's control columns; None for absent columns.

    Attributes:
        data: the number of data columns.
        action: what is done with the row: COPY, INSERT, UPDATE, ...
        file, row: ordinal and position of the source row.
        violation: the name of the constraint that the row violates.
        violation_row: that row as JSON.
        source: the number of the MERGE source row.
        partition: the partition values, as texts.
    """

    data: int
    action: int | None = None
    file: int | None = None
    row: int | None = None
    violation: int | None = None
    violation_row: int | None = None
    source: int | None = None
    partition: tuple[int, ...] = ()


@dataclass(frozen=True)
class Materialized:
    """The partition columns of a table whose files hold them too.

    Attributes:
        schema: their fields in the files, serialised Arrow, in the order of the values.
        types: their types in the table.
    """

    schema: bytes
    types: tuple[DataType, ...]

    def columns(self, key: tuple[str | None, ...]) -> list[tuple[pa.Field, pa.Scalar]]:
        """Return the partition columns' fields and values for the partition with these texts, in
        order.
        """
        fields = pa.ipc.read_schema(pa.py_buffer(self.schema))
        return [
            (item, parse_column(pa.array([text], pa.string()), data_type).cast(item.type)[0])
            for item, text, data_type in zip(fields, key, self.types, strict=True)
        ]


@dataclass(frozen=True)
class WriteTask:
    """What a task needs to write rows.

    Attributes:
        schema: the rows' data columns as Parquet has them, serialised Arrow.
        layout: the control columns.
        root: the table's encoded URL.
        job_id: a unique id, part of the files' names.
        folder_of: returns a partition's folder, encoded, from its values; see `folder_of`.
        options: those of the table's store.
        row_group_rows, row_group_bytes: a row group ends at the first of these limits, in memory.
        rows_max: the most rows in a file; None for no limit.
        kind: the prefix of the files' names.
        reports_origins: whether it reports which rows each row of its files was made of.
        materialized: the partition columns that files have after the data columns; None for none.
        row_versions: the data column of row commit versions, and the last version that is written
            there; rows with a later one, or none, have the version of their new file. None where
            all versions are written.
    """

    schema: bytes
    layout: Layout
    root: str
    job_id: str
    folder_of: Callable[[tuple[str | None, ...]], str]
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    compression: str = COMPRESSION
    row_group_rows: int = ROW_GROUP_ROWS
    row_group_bytes: int = 128 * 1024 * 1024
    rows_max: int | None = None
    kind: str = "part"
    reports_origins: bool = False
    materialized: Materialized | None = None
    row_versions: tuple[str, int] | None = None

    def __call__(
        self, batches: Iterator[pa.RecordBatch], partition: int, attempt: int
    ) -> Iterator[pa.RecordBatch]:
        """Run the task over one of a job's partitions; `attempt` is unique in the job."""
        yield from run(self, batches, f"{self.kind}-{partition:05d}-{self.job_id}-{attempt}")


def folder_of(names: tuple[str, ...], values: tuple[str | None, ...]) -> str:
    """Return the folder, encoded, of the partition with these columns and values; '' without
    columns.
    """
    return encode_path(partition_folder(list(zip(names, values, strict=True))))


def change_folder_of(names: tuple[str, ...], values: tuple[str | None, ...]) -> str:
    """Return the folder of a partition's change data. Source: PROTOCOL.md, "Change Data Files"."""
    return f"{CHANGE_FOLDER}/{folder_of(names, values)}".rstrip("/")


def run(
    task: WriteTask,
    batches: Iterator[pa.RecordBatch],
    name: str,
    uploads: files.Uploads | None = None,
) -> Iterator[pa.RecordBatch]:
    """Write the batches to files whose names start with `name`; yield the report, one batch.

    Rows of a partition must come one after the other, or it gets several files. With `uploads` the
    caller waits for files of other stores than this machine. At a violated constraint, the files
    are removed and only the first violation is reported. No file stays if an error is raised.
    """
    output = Output(task, name, uploads)
    replaced = ReplacedPositions()
    sources: list[np.ndarray] = []
    actions: dict[int, int] = {}
    layout = task.layout
    try:
        for batch in batches:
            if batch.num_rows == 0:
                continue
            violation = _violation(batch, layout)
            if violation is not None:
                output.discard()
                yield report([violation])
                return
            _count_actions(batch, layout, actions)
            if layout.file is not None and layout.row is not None:
                replaced.collect(batch.column(layout.file), batch.column(layout.row))
            if layout.source is not None:
                numbers = batch.column(layout.source).drop_null()
                sources.append(numbers.to_numpy(zero_copy_only=False).astype(np.int64))
            output.write(_images(batch, layout))
        written = output.close()
    except BaseException:
        output.discard()
        raise
    rows = replaced.report()
    if sources:
        matched = pack_positions(_distinct(np.concatenate(sources)))
        rows.append(report_row("source", data=matched))
    counts = [report_row("action", key=action, count=count) for action, count in actions.items()]
    yield report([*written, *rows, *counts])


def report_row(
    kind: str,
    *,
    key: int | None = None,
    count: int | None = None,
    text: str | None = None,
    values: list[str | None] | None = None,
    data: bytes | None = None,
    group: int | None = None,
) -> dict[str, object]:
    """Return one row of the report; see REPORT_SCHEMA."""
    return {
        "kind": kind,
        "key": key,
        "count": count,
        "text": text,
        "values": values,
        "data": data,
        "group": group,
    }


def report(rows: list[dict[str, object]]) -> pa.RecordBatch:
    """Return report rows as a batch of REPORT_SCHEMA."""
    return pa.RecordBatch.from_pylist(rows, schema=_REPORT)


def _violation(batch: pa.RecordBatch, layout: Layout) -> dict[str, object] | None:
    """Return the report row of the batch's first row that violates a constraint; None if none does,
    or without control columns for it.
    """
    if layout.violation is None or layout.violation_row is None:
        return None
    names = batch.column(layout.violation)
    if names.null_count == len(names):
        return None
    index = int(np.argmax(pc.is_valid(names).to_numpy(zero_copy_only=False)))
    row = batch.column(layout.violation_row)[index].as_py()
    return report_row("violation", text=names[index].as_py(), values=[row])


def _count_actions(batch: pa.RecordBatch, layout: Layout, actions: dict[int, int]) -> None:
    """Add the batch's rows by action to `actions`; rows without an action are inserts."""
    if layout.action is None:
        actions[INSERT] = actions.get(INSERT, 0) + batch.num_rows
        return
    for item in pc.value_counts(batch.column(layout.action)).to_pylist():
        actions[item["values"]] = actions.get(item["values"], 0) + item["counts"]


def _images(batch: pa.RecordBatch, layout: Layout) -> pa.RecordBatch:
    """Return the rows that are written: those whose action has an image, all without an action
    column.
    """
    if layout.action is None:
        return batch
    writes = pc.less(batch.column(layout.action), FIRST_WITHOUT_IMAGE)
    return batch if pc.all(writes).as_py() else batch.filter(writes)


class ReplacedPositions:
    """The positions of replaced or deleted rows, by file ordinal."""

    def __init__(self) -> None:
        self._positions: dict[int, list[np.ndarray]] = {}

    def collect(self, files: pa.Array, rows: pa.Array) -> None:
        """Add the rows whose file isn't null: their file ordinals and positions."""
        valid = pc.is_valid(files)
        ordinals = files.filter(valid).to_numpy(zero_copy_only=False).astype(np.int64)
        positions = rows.filter(valid).to_numpy(zero_copy_only=False).astype(np.int64)
        if len(ordinals) and np.all(ordinals == ordinals[0]):
            self._positions.setdefault(int(ordinals[0]), []).append(positions)
            return
        for ordinal in np.unique(ordinals):
            self._positions.setdefault(int(ordinal), []).append(positions[ordinals == ordinal])

    def report(self) -> list[dict[str, object]]:
        """Return a "rows" report row per file: its distinct packed positions, and how many were
        collected.
        """
        rows = []
        for ordinal, parts in self._positions.items():
            every = np.concatenate(parts)
            rows.append(
                report_row(
                    "rows", key=ordinal, count=len(every), data=pack_positions(_distinct(every))
                )
            )
        return rows


def _distinct(positions: np.ndarray) -> np.ndarray:
    """Return the distinct positions, ascending.

    Positions mostly come sorted already; numpy's `unique` would hash all of them.
    """
    if np.all(positions[1:] > positions[:-1]):
        return positions
    ordered = np.sort(positions)
    distinct: np.ndarray = ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])]
    return distinct


class Output:
    """The files of one task: one is open at a time, and each change of partition begins a
    new one.
    """

    def __init__(self, task: WriteTask, name: str, uploads: files.Uploads | None = None) -> None:
        """With `uploads` the caller waits for files of other stores than this machine."""
        self._task = task
        self._name = name
        self._awaits_uploads = uploads is None
        self._uploads = uploads or files.Uploads()
        self._schema = pa.ipc.read_schema(pa.py_buffer(task.schema))
        self._key: tuple[str | None, ...] | None = None
        self._constants: list[tuple[pa.Field, pa.Scalar]] = []
        self._file: _OpenFile | None = None
        self._written: list[dict[str, object]] = []
        self._paths: list[str] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Append the rows in their order, each to the file of the partition in its partition
        columns.
        """
        if batch.num_rows == 0:
            return
        indexes = self._task.layout.partition
        start = 0
        for end in run_ends(batch, indexes):
            key = tuple(batch.column(index)[start].as_py() for index in indexes)
            self.append(key, batch.slice(start, end - start))
            start = end

    def append(self, key: tuple[str | None, ...], batch: pa.RecordBatch) -> None:
        """Append rows of one partition; `key`: its values as texts.

        Begins a new file if the partition changes, or when `rows_max` is reached.
        """
        if self._file is not None and key != self._key:
            self._close_file()
        rows_max = self._task.rows_max
        while batch.num_rows:
            if self._file is None:
                self._key = key
                if self._task.materialized is not None:
                    self._constants = self._task.materialized.columns(key)
                self._file = self._open(key)
            room = batch.num_rows if rows_max is None else rows_max - self._file.rows
            part = batch.slice(0, room)
            self._file.append(self._data(part))
            if self._task.reports_origins:
                self._file.add_origins(part)
            batch = batch.slice(room)
            if rows_max is not None and self._file.rows >= rows_max:
                self._close_file()

    def _data(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the data columns with the names of the file, nested ones too, and materialized
        partition columns.
        """
        # Rename fields as in the file, nested ones too.
        columns = [
            with_field_names(batch.column(i), field.type) for i, field in enumerate(self._schema)
        ]
        if self._task.row_versions is not None:
            name, last = self._task.row_versions
            place = self._schema.get_field_index(name)
            if place >= 0:
                known = columns[place]
                columns[place] = pc.if_else(pc.less_equal(known, last), known, None)
        columns += [pa.repeat(value, batch.num_rows) for _, value in self._constants]
        return pa.RecordBatch.from_arrays(columns, schema=self._file_schema())

    def _file_schema(self) -> pa.Schema:
        """Return the schema of the files: the data columns, then materialized partition columns."""
        if not self._constants:
            return self._schema
        return pa.schema([*self._schema, *(item for item, _ in self._constants)])

    def _open(self, values: tuple[str | None, ...]) -> _OpenFile:
        """Create the next file of the partition with these values, and note its path for
        `discard`.
        """
        folder = self._task.folder_of(values)
        name = f"{self._name}.c{len(self._paths):03d}.{self._task.compression}.parquet"
        path = f"{folder}/{name}" if folder else name
        self._paths.append(path)
        return _OpenFile(self._task, self._file_schema(), path, list(values))

    def _close_file(self) -> None:
        """Finish the open file, if there is one, and add its report rows."""
        if self._file is not None:
            self._written += self._file.close(self._uploads)
            self._file = None

    def close(self) -> list[dict[str, object]]:
        """Finish the last file; return the files' report rows, in the order written: "file", and
        "origins" if rows were made of others.
        """
        self._close_file()
        if self._awaits_uploads:
            files.wait_or_defer(self._uploads)
        return self._written

    def discard(self) -> None:
        """Abandon the open file and remove the files written so far.

        Files that can't be removed are orphans for VACUUM.
        """
        if self._file is not None:
            self._file.abandon()
            self._file = None
        self._uploads.discard()
        for path in self._paths:
            files.remove(f"{self._task.root}/{path}", self._task.options)


def run_ends(batch: pa.RecordBatch, indexes: tuple[int, ...]) -> list[int]:
    """Return the ends (exclusive) of the runs of rows with equal values in the columns `indexes`.

    Null equals null. The batch has rows; without columns it is one run.
    """
    if not indexes or batch.num_rows == 1:
        return [batch.num_rows]
    changed = np.zeros(batch.num_rows - 1, dtype=bool)
    for index in indexes:
        codes = pc.dictionary_encode(batch.column(index), null_encoding="encode")
        numbers = codes.indices.to_numpy(zero_copy_only=False)
        changed |= numbers[1:] != numbers[:-1]
    return [*(np.flatnonzero(changed) + 1).tolist(), batch.num_rows]


class _OpenFile:
    """A Parquet file that is being written."""

    def __init__(
        self,
        task: WriteTask,
        schema: pa.Schema,
        path: str,
        values: list[str | None],
    ) -> None:
        self._task = task
        self._schema = schema
        self._path = path
        self._values = values
        self._footers: list[pq.FileMetaData] = []
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self.rows = 0
        self._groups = 0
        self._with_nan: set[Chunk] = set()
        self._origins: list[tuple[np.ndarray, np.ndarray]] = []
        self._url = f"{task.root}/{path}"
        self._sink = files.create(self._url)
        self._writer: pq.ParquetWriter | None = None

    def append(self, batch: pa.RecordBatch) -> None:
        """Add rows with the file's columns; a row group is written when it is large enough."""
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        self._pending_bytes += batch.nbytes
        self.rows += batch.num_rows
        self._note_nan(batch)
        if (
            self._pending_rows >= self._task.row_group_rows
            or self._pending_bytes >= self._task.row_group_bytes
        ):
            self._flush()

    def add_origins(self, batch: pa.RecordBatch) -> None:
        """Record the origins of these rows, which have their control columns; none
        without those.
        """
        layout = self._task.layout
        if layout.file is None or layout.row is None:
            return
        files = pc.fill_null(batch.column(layout.file), NO_FILE)
        rows = pc.fill_null(batch.column(layout.row), 0)
        self._origins.append(
            (
                files.to_numpy(zero_copy_only=False).astype(np.int32),
                rows.to_numpy(zero_copy_only=False).astype(np.int64),
            )
        )

    def _note_nan(self, batch: pa.RecordBatch) -> None:
        """Note which leaf columns of the current row group have a NaN."""
        first = 0
        for column in batch.columns:
            self._with_nan.update((self._groups, leaf) for leaf in leaves_with_nan(column, first))
            first += leaf_count(column.type)

    def _flush(self) -> None:
        """Write the pending rows as one row group; creates the writer at the first."""
        if self._pending:
            table = pa.Table.from_batches(self._pending)
            if self._writer is None:
                self._writer = self._create_writer(table)
            self._writer.write_table(table, row_group_size=table.num_rows)
            self._groups += 1
            self._pending, self._pending_rows, self._pending_bytes = [], 0, 0

    def _create_writer(self, rows: pa.Table) -> pq.ParquetWriter:
        """Return the file's writer; the first row group decides which columns try a dictionary."""
        return pq.ParquetWriter(
            self._sink,
            self._schema,
            compression=self._task.compression,
            version="2.6",
            store_schema=False,
            use_dictionary=_repetitive_leaves(rows),
            metadata_collector=self._footers,
        )

    def close(self, uploads: files.Uploads) -> list[dict[str, object]]:
        """Complete the file, correct its footer, and make it durable or hand it to `uploads`;
        return its report rows.

        "file", then "origins" if a row has one. The file has rows.
        """
        self._flush()
        assert self._writer is not None
        self._writer.close()
        footer, size = self._footers[0], self._sink.tell()

        def change(file: BinaryIO) -> None:
            nonlocal footer, size
            footer, size = change_footer(file, self._with_nan)

        misleads = needs_change(footer, self._with_nan)
        files.finish(
            self._sink, self._url, self._task.options, uploads, change if misleads else None
        )
        framed = pa.BufferOutputStream()
        footer.write_metadata_file(framed)
        reports = [
            report_row(
                "file",
                key=size,
                count=self.rows,
                text=self._path,
                values=self._values,
                data=framed.getvalue().to_pybytes(),
            )
        ]
        if self._origins:
            ordinals, rows = (np.concatenate(parts) for parts in zip(*self._origins, strict=True))
            if np.any(ordinals != NO_FILE):
                data = pack_origins(ordinals, rows)
                reports.append(report_row("origins", text=self._path, data=data))
        return reports

    def abandon(self) -> None:
        """Close the file as it is, ignoring errors, for an error is being raised already."""
        for part in (self._writer, self._sink):
            try:
                if part is not None:
                    part.close()
            except Exception:  # the original error is being raised
                continue


def _repetitive_leaves(rows: pa.Table) -> list[str]:
    """Return the Parquet columns that may profit from a dictionary, judged by a sample of the rows.

    All leaves of nested columns are among them. Trying a dictionary costs more than writing the
    values; it is given up when it outgrows a page.
    """
    step = max(1, rows.num_rows // _SAMPLE_ROWS)
    places = pa.array(np.arange(0, rows.num_rows, step))
    leaves = []
    for item in rows.schema:
        if pa.types.is_nested(item.type):
            leaves += _leaf_paths(item.name, item.type)
        elif _is_repetitive(rows.column(item.name).take(places)):
            leaves.append(item.name)
    return leaves


def _is_repetitive(sample: pa.ChunkedArray) -> bool:
    """Return whether a dictionary may pay: at most 75 % of the values are distinct, and the
    distinct ones take at most 700,000 bytes.

    Never for booleans, or less than 1,000 floating-point numbers.
    """
    if pa.types.is_boolean(sample.type):
        return False
    if pa.types.is_floating(sample.type) and len(sample) < _FRACTIONS_MIN:
        return False  # a zero in a dictionary makes the footer be written twice
    distinct = len(sample.unique())
    width = sample.nbytes / len(sample)
    repeats: bool = distinct <= len(sample) * _DISTINCT_SHARE_MAX
    return repeats and distinct * width <= _DICTIONARY_BYTES_MAX


def _leaf_paths(path: str, data_type: pa.DataType) -> list[str]:
    """Return the Parquet columns of an Arrow column, as pyarrow names them."""
    if pa.types.is_struct(data_type):
        children = [(f"{path}.{item.name}", item.type) for item in data_type]
    elif pa.types.is_map(data_type):
        entry = f"{path}.key_value"
        children = [(f"{entry}.key", data_type.key_type), (f"{entry}.value", data_type.item_type)]
    elif pa.types.is_list(data_type):
        children = [(f"{path}.list.element", data_type.value_type)]
    else:
        return [path]
    return [leaf for name, child_type in children for leaf in _leaf_paths(name, child_type)]
