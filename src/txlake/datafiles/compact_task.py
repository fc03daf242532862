"""What a Spark task does to compact: the live rows of some files, in order, become one new file.

It reads and writes by pyarrow alone, a batch at a time, so no row passes through the JVM. A file
that can't be taken over exactly is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from txlake.datafiles.files import open_file
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

# A row of the task's input: one bin, its vectors those of `StoredVector`.
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

_GATHERED_ROWS = 65_536
_GATHERED_BYTES = 32 * 1024 * 1024
_AHEAD_BYTES = 64 * 1024 * 1024  # that are read while others are written


@dataclass(frozen=True)
class CompactTask:
    """Writes bins of files; each row of the input is one, see BINS.

    Attributes:
        write: how files are written.
        by_id: columns are found by field id, else by name.
        row_id, row_version: the columns that keep what a moved row had; None for none.
    """

    write: WriteTask
    by_id: bool
    row_id: str | None = None
    row_version: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __call__(
        self, batches: Iterator[pa.RecordBatch], partition: int, attempt: int
    ) -> Iterator[pa.RecordBatch]:
        """Runs the task over one of a job's partitions; no other attempt has this number."""
        for batch in batches:
            for one in batch.to_pylist():
                name = f"part-{one['number']:05d}-{self.write.job_id}-{attempt}"
                yield report(self.compact_bin(one, name))

    def compact_bin(self, one: Mapping[str, Any], name: str) -> list[dict[str, object]]:
        """Writes one bin to a file whose name starts with `name`; the report, see `write_task`."""
        schema = pa.ipc.read_schema(pa.py_buffer(self.write.schema))
        columns = Columns(schema, by_id=self.by_id)
        output = Output(self.write, name)
        partition = tuple(one["partition"])
        sources = [_Source(self, columns, file) for file in one["files"]]
        try:
            rows = _gathered(chain.from_iterable(map(_Source.batches, sources)))
            with read_ahead(rows, _AHEAD_BYTES) as batches:
                for batch in batches:
                    output.append(partition, batch)
            files = output.close()
        except BaseException:
            output.discard()
            raise
        number = one["number"]
        kept = [
            report_row("kept", key=source.ordinal, text=source.skip_reason)
            for source in sources
            if source.skip_reason is not None
        ]
        counts = np.array([source.moved for source in sources], "<i8").tobytes()
        moved = report_row("moved", key=number, data=counts)
        return [*({**file, "group": number} for file in files), *kept, moved]

    def deleted(self, vector: Mapping[str, Any] | None) -> np.ndarray:
        """The deleted positions, sorted."""
        if vector is None:
            return np.empty(0, np.int64)
        return StoredVector(**vector).positions(self.options).astype(np.int64)


class _Source:
    """One file that is read: its live rows as the table's columns, and what became of it."""

    def __init__(self, task: CompactTask, columns: Columns, file: Mapping[str, Any]) -> None:
        self._task = task
        self._columns = columns
        self._file = file
        self.ordinal: int = file["ordinal"]
        self.moved = 0
        self.skip_reason: str | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The live rows, in order; none when the file stays as it is."""
        url = self._file["url"]
        deleted = self._task.deleted(self._file["vector"])
        with open_file(url, self._task.options) as source, corrupt_table_errors(url):
            file = open_parquet(source)
            self.skip_reason = self._obstacle(file)
            if self.skip_reason is None:
                self._columns.find(file)
                yield from self._live(file, deleted)

    def _obstacle(self, file: pq.ParquetFile) -> str | None:
        if any(is_shredded(item.type) for item in file.schema_arrow):
            return SHREDDED
        return OLD_TIMES if has_old_times(file) else None

    def _live(self, file: pq.ParquetFile, deleted: np.ndarray) -> Iterator[pa.RecordBatch]:
        start = 0
        for rows in iter_rows(file, self._columns):
            end = start + rows.num_rows
            first, last = np.searchsorted(deleted, [start, end])
            live = _live_places(deleted[first:last], start, rows.num_rows)
            rows = self._tracked(rows, start)
            yield rows if live is None else rows.filter(live)
            self.moved += rows.num_rows - int(last - first)
            start = end

    def _tracked(self, rows: pa.RecordBatch, start: int) -> pa.RecordBatch:
        """The rows with the ids and versions that they have by their places in the file."""
        base, version = self._file["base_row_id"], self._file["row_version"]
        if self._task.row_id is not None and base is not None:
            ids = pa.array(np.arange(base + start, base + start + rows.num_rows))
            rows = _filled(rows, self._task.row_id, ids)
        if self._task.row_version is not None and version is not None:
            rows = _filled(rows, self._task.row_version, pa.scalar(version, pa.int64()))
        return rows


def _filled(rows: pa.RecordBatch, name: str, values: pa.Array | pa.Scalar) -> pa.RecordBatch:
    """The rows with these values where a column is null."""
    place = rows.schema.get_field_index(name)
    column = pc.coalesce(rows.column(place), values)
    return rows.set_column(place, rows.schema.field(place), column)


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches, where they are small."""
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        pending.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _GATHERED_ROWS or size >= _GATHERED_BYTES:
            yield pending[0] if len(pending) == 1 else pa.concat_batches(pending)
            pending, rows, size = [], 0, 0
    if pending:
        yield pa.concat_batches(pending)


def _live_places(deleted: np.ndarray, start: int, count: int) -> pa.Array | None:
    """Which rows of a batch live; None for all."""
    if not len(deleted):
        return None
    live = np.ones(count, dtype=bool)
    live[deleted - start] = False
    return pa.array(live)
