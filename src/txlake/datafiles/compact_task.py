"""The Spark task of compaction: the live rows of some files, in order, become one new file.

It reads and writes by pyarrow, a batch at a time, so that no row passes through the JVM. A file
that pyarrow can't copy exactly stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from txlake.datafiles.files import open_file
from txlake.datafiles.many_files import FILE_BYTES_MAX, SmallFiles, in_order
from txlake.datafiles.parquet import (
    OLD_TIMES,
    SHREDDED,
    Columns,
    corrupt_table_errors,
    has_old_times,
    is_shredded,
    iter_rows,
    open_parquet,
)
from txlake.datafiles.read_ahead import read_ahead
from txlake.datafiles.stored_vectors import StoredVector
from txlake.datafiles.write_task import Output, WriteTask, report, report_row

# The task's input: a row per bin; a vector has the fields of `StoredVector`.
_VECTOR = pa.struct(
    [
        ("url", pa.string()),
        ("offset", pa.int64()),
        ("size_in_bytes", pa.int64()),
        ("cardinality", pa.int64()),
        ("data", pa.binary()),
    ]
)
_FILE = pa.struct(
    [
        ("ordinal", pa.int64()),
        ("url", pa.string()),
        ("size", pa.int64()),
        ("base_row_id", pa.int64()),
        ("row_version", pa.int64()),
        ("vector", _VECTOR),
    ]
)
BINS = pa.schema(
    [
        ("number", pa.int64()),
        ("partition", pa.list_(pa.string())),
        ("files", pa.list_(_FILE)),
    ]
)

_MERGED_ROWS = 65_536
_MERGED_BYTES = 32 * 1024 * 1024
_AHEAD_BYTES = 64 * 1024 * 1024  # read while others are written
_FILES_TOGETHER = 64


@dataclass(frozen=True)
class CompactTask:
    """Writes bins of files; each input row is a bin, see BINS.

    Attributes:
        write: how files are written.
        by_id: columns are found by field id, else by name.
        row_id, row_version: the columns that preserve a moved row's id and version; None for none.
        options: those of the table's store.
        threads: how many read small files.
    """

    write: WriteTask
    by_id: bool
    row_id: str | None = None
    row_version: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    threads: int = 1

    def __call__(
        self, batches: Iterator[pa.RecordBatch], partition: int, attempt: int
    ) -> Iterator[pa.RecordBatch]:
        """Run the task over one of a job's partitions; `attempt` is unique in the job."""
        for batch in batches:
            for bin_row in batch.to_pylist():
                name = f"part-{bin_row['number']:05d}-{self.write.job_id}-{attempt}"
                yield report(self.compact_bin(bin_row, name))

    def compact_bin(self, bin_row: Mapping[str, Any], name: str) -> list[dict[str, object]]:
        """Write one bin to files whose names start with `name`; return the rows of the report.

        They are those of `write_task`, and "moved" and "skipped": a file that can't be copied
        exactly is skipped, and none of its rows are written. Raises CorruptTable for a file that
        can't be decoded, and FileNotFoundError; no new file stays then.
        """
        schema = pa.ipc.read_schema(pa.py_buffer(self.write.schema))
        columns = Columns(schema, by_id=self.by_id)
        output = Output(self.write, name)
        partition = tuple(bin_row["partition"])
        sources = [_Source(self, columns, file) for file in bin_row["files"]]
        try:
            rows = _merge_small_batches(self._rows(sources, SmallFiles(schema, by_id=self.by_id)))
            with read_ahead(rows, _AHEAD_BYTES) as batches:
                for batch in batches:
                    output.append(partition, batch)
            files = output.close()
        except BaseException:
            output.discard()
            raise
        number = bin_row["number"]
        skipped = [
            report_row("skipped", key=source.ordinal, text=source.skip_reason)
            for source in sources
            if source.skip_reason is not None
        ]
        counts = np.array([source.moved for source in sources], "<i8").tobytes()
        moved = report_row("moved", key=number, data=counts)
        return [*({**file, "group": number} for file in files), *skipped, moved]

    def _rows(self, sources: Sequence[_Source], small: SmallFiles) -> Iterator[pa.RecordBatch]:
        """Yield the live rows of the sources, in order. Raises as `_Source.batches`."""

        def read(part: Sequence[_Source]) -> list[tuple[_Source, pa.Table | None]]:
            """Return the small files of a part of the sources, read; None for others."""
            return [(one, small.read(one.url) if one.is_small else None) for one in part]

        parts = (
            sources[at : at + _FILES_TOGETHER] for at in range(0, len(sources), _FILES_TOGETHER)
        )
        for found in in_order(read, parts, self.threads):
            for is_read, group in groupby(found, lambda each: each[1] is not None):
                if is_read:
                    yield from small.as_rows([source.take(rows) for source, rows in group])
                else:
                    for source, _ in group:
                        yield from source.batches()

    def open(self, file: Mapping[str, Any]) -> pa.NativeFile:
        """Open a file, a row of `_FILE`. Raises FileNotFoundError."""
        return open_file(file["url"], self.options)

    def deleted_positions(self, vector: Mapping[str, Any] | None) -> np.ndarray:
        """Return the deleted positions of a row of `_VECTOR`, sorted; none for None. Raises
        CorruptTable.
        """
        if vector is None:
            return np.empty(0, np.int64)
        return StoredVector(**vector).positions(self.options).astype(np.int64)


class _Source:
    """A file that is read: its live rows as the table's columns, and its outcome.

    Attributes:
        ordinal: the file's ordinal in the job.
        moved: how many live rows were moved so far.
        skip_reason: why the file stays as it is; None if it was moved.
    """

    def __init__(self, task: CompactTask, columns: Columns, file: Mapping[str, Any]) -> None:
        self._task = task
        self._columns = columns
        self._file = file
        self.ordinal: int = file["ordinal"]
        self.moved = 0
        self.skip_reason: str | None = None

    @property
    def url(self) -> str:
        """The file's encoded URL."""
        url: str = self._file["url"]
        return url

    @property
    def is_small(self) -> bool:
        """Whether all rows of a small file are moved as they are."""
        task, file = self._task, self._file
        keeps_ids = task.row_id is not None or task.row_version is not None
        return not keeps_ids and file["vector"] is None and file["size"] <= FILE_BYTES_MAX

    def take(self, rows: pa.Table) -> pa.Table:
        """Count rows that were read together with other files', and return them."""
        self.moved = rows.num_rows
        return rows

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the live rows, in order; none if the file stays as it is.

        Sets `skip_reason` before the first batch, and counts in `moved`. Raises CorruptTable for a
        file that can't be decoded, and FileNotFoundError.
        """
        url = self.url
        deleted_positions = self._task.deleted_positions(self._file["vector"])
        with self._task.open(self._file) as source, corrupt_table_errors(url):
            file = open_parquet(source)
            self.skip_reason = self._obstacle(file)
            if self.skip_reason is None:
                self._columns.find(file)
                yield from self._live(file, deleted_positions)

    def _obstacle(self, file: pq.ParquetFile) -> str | None:
        """Return why the file can't be copied exactly; None if it can. May read the whole file."""
        if any(is_shredded(item.type) for item in file.schema_arrow):
            return SHREDDED
        return OLD_TIMES if has_old_times(file) else None

    def _live(
        self, file: pq.ParquetFile, deleted_positions: np.ndarray
    ) -> Iterator[pa.RecordBatch]:
        """Yield the file's live rows as the table's columns, with row ids and versions filled in.

        `deleted_positions` are sorted. A batch may be empty.
        """
        start = 0
        for rows in iter_rows(file, self._columns):
            end = start + rows.num_rows
            first, last = np.searchsorted(deleted_positions, [start, end])
            live = _live_mask(deleted_positions[first:last], start, rows.num_rows)
            rows = self._with_row_ids(rows, start)
            yield rows if live is None else rows.filter(live)
            self.moved += rows.num_rows - int(last - first)
            start = end

    def _with_row_ids(self, rows: pa.RecordBatch, start: int) -> pa.RecordBatch:
        """Return the rows with the row ids and versions that follow from their positions, `start`
        first.

        Stored ids and versions stay; columns and bases that don't exist are left alone.
        """
        base, version = self._file["base_row_id"], self._file["row_version"]
        if self._task.row_id is not None and base is not None:
            ids = pa.array(np.arange(base + start, base + start + rows.num_rows))
            rows = _fill_nulls(rows, self._task.row_id, ids)
        if self._task.row_version is not None and version is not None:
            rows = _fill_nulls(rows, self._task.row_version, pa.scalar(version, pa.int64()))
        return rows


def _fill_nulls(rows: pa.RecordBatch, name: str, values: pa.Array | pa.Scalar) -> pa.RecordBatch:
    """Return the rows with a column's nulls replaced by `values`: one, or one for each row."""
    place = rows.schema.get_field_index(name)
    column = pc.coalesce(rows.column(place), values)
    return rows.set_column(place, rows.schema.field(place), column)


def _merge_small_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in fewer batches: each has at least 65,536 rows or 32 MiB, but
    the last.
    """
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        pending.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _MERGED_ROWS or size >= _MERGED_BYTES:
            yield pending[0] if len(pending) == 1 else pa.concat_batches(pending)
            pending, rows, size = [], 0, 0
    if pending:
        yield pa.concat_batches(pending)


def _live_mask(deleted_positions: np.ndarray, start: int, count: int) -> pa.Array | None:
    """Return a mask of a batch's live rows; None if all are live.

    `deleted_positions` are positions in the file inside the batch, which begins at `start`.
    """
    if not len(deleted_positions):
        return None
    live = np.ones(count, dtype=bool)
    live[deleted_positions - start] = False
    return pa.array(live)
