"""What a Spark task does to compact: the live rows of some files, in order, become one new file.

This module travels with the job, see `executor`. It reads and writes by pyarrow alone, a batch at a
time, so no row passes through the JVM. A file that can't be taken over exactly is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from txlake.errors import CorruptTable
from txlake.spark import executor_files
from txlake.spark.executor import Output, WriteTask, report, report_row, unpack_positions
from txlake.spark.executor_reads import StoredVector, as_type, place_of

# A row of the task's input: one bin. Of a vector, `data` holds packed positions, see `executor`;
# without them the executor reads the vector itself.
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

_BATCH_ROWS = 131_072
_BATCH_ROWS_MIN = 64
_GATHERED_ROWS = 65_536
_BATCH_BYTES = 32 * 1024 * 1024
# What writers of the calendar that was in use before 1582 leave in a footer; since when both
# calendars tell the same days and instants. Source: Spark, "Parquet Files", rebase modes.
_SPARK = b"org.apache.spark.version"
_LEGACY = frozenset({b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"})
_PROLEPTIC_SINCE = (3, 1)
_SAME_DAYS_FROM = -141_427  # 1582-10-15
_SAME_MICROS_FROM = -2_208_988_800_000_000  # 1900-01-01, UTC
_VERSION = re.compile(rb"(\d+)\.(\d+)")
_SHREDDED = "typed_value"
_VARIANT = {"value", "metadata"}


@dataclass(frozen=True)
class CompactTask:
    """Writes bins of files; each row of the input is one, see BINS.

    Attributes:
        write: how files are written.
        by_id: columns are found by field id, else by name.
        row_id, row_version: the columns that keep what a moved row had; None for none.
        decode: gives the positions of the bytes of a vector that executors read.
    """

    write: WriteTask
    by_id: bool
    row_id: str | None = None
    row_version: str | None = None
    decode: Callable[[bytes, StoredVector], Any] | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs the task over one Spark partition."""
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = context.taskAttemptId() if context else 0
        for batch in batches:
            for one in batch.to_pylist():
                name = f"part-{one['number']:05d}-{self.write.job_id}-{attempt}"
                yield report(self.compacted(one, name))

    def compacted(self, one: Mapping[str, Any], name: str) -> list[dict[str, object]]:
        """Writes one bin to a file whose name starts with `name`; the report, see `executor`."""
        schema = pa.ipc.read_schema(pa.py_buffer(self.write.schema))
        columns = _Columns(schema, self.by_id)
        output = Output(self.write, name)
        partition = tuple(one["partition"])
        sources = [_Source(self, columns, file) for file in one["files"]]
        try:
            for batch in _gathered(chain.from_iterable(map(_Source.batches, sources))):
                output.append(partition, batch)
            files = output.close()
        except BaseException:
            output.discard()
            raise
        number = one["number"]
        kept = [
            report_row("kept", key=source.ordinal, text=source.kept_because)
            for source in sources
            if source.kept_because is not None
        ]
        counts = np.array([source.moved for source in sources], "<i8").tobytes()
        moved = report_row("moved", key=number, data=counts)
        return [*({**file, "group": number} for file in files), *kept, moved]

    def deleted(self, vector: Mapping[str, Any] | None) -> np.ndarray:
        """The deleted positions, sorted."""
        if vector is None:
            return np.empty(0, np.int64)
        if vector["data"] is not None:
            return unpack_positions(vector["data"]).astype(np.int64)
        assert self.decode is not None
        stored = StoredVector(**vector)
        length = stored.size_in_bytes + 8
        data = executor_files.read_range(stored.url, stored.offset, length, self.options)
        positions = self.decode(data, stored)
        return np.fromiter(positions, np.int64, len(positions))


class _Source:
    """One file that is read: its live rows as the table's columns, and what became of it."""

    def __init__(self, task: CompactTask, columns: _Columns, file: Mapping[str, Any]) -> None:
        self._task = task
        self._columns = columns
        self._file = file
        self.ordinal: int = file["ordinal"]
        self.moved = 0
        self.kept_because: str | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The live rows, in order; none when the file stays as it is."""
        url = self._file["url"]
        deleted = self._task.deleted(self._file["vector"])
        with executor_files.open_file(url, self._task.options) as opened:
            try:
                file = pq.ParquetFile(opened, coerce_int96_timestamp_unit="us", pre_buffer=False)
                self._columns.find(file.schema_arrow)
                self.kept_because = self._obstacle(file)
                if self.kept_because is None:
                    yield from self._live(file, deleted)
            except (pa.ArrowException, OSError, ValueError) as error:
                if getattr(error, "errno", None) is not None:
                    raise
                raise CorruptTable(f"data file {url} can't be read: {error}") from error

    def _obstacle(self, file: pq.ParquetFile) -> str | None:
        if self._columns.shredded:
            return "it holds shredded variants"
        if is_legacy(file.metadata.metadata or {}) and _has_old_times(file):
            return "it holds times before 1900 in the calendar of old Spark versions"
        return None

    def _live(self, file: pq.ParquetFile, deleted: np.ndarray) -> Iterator[pa.RecordBatch]:
        names = self._columns.names
        start = 0
        for batch in file.iter_batches(
            _batch_rows(file.metadata), columns=names, use_threads=False
        ):
            first, last = np.searchsorted(deleted, [start, start + batch.num_rows])
            live = _live_places(deleted[first:last], start, batch.num_rows)
            rows = self._tracked(self._columns.of(batch), start)
            yield rows if live is None else rows.filter(live)
            self.moved += batch.num_rows - int(last - first)
            start += batch.num_rows
        if start != file.metadata.num_rows:
            raise ValueError(f"expected {file.metadata.num_rows} rows, found {start}")

    def _tracked(self, rows: pa.RecordBatch, start: int) -> pa.RecordBatch:
        """The rows with the ids and versions that they have by their places in the file."""
        base, version = self._file["base_row_id"], self._file["row_version"]
        if self._task.row_id is not None and base is not None:
            ids = pa.array(np.arange(base + start, base + start + rows.num_rows))
            rows = _filled(rows, self._task.row_id, ids)
        if self._task.row_version is not None and version is not None:
            rows = _filled(rows, self._task.row_version, pa.scalar(version, pa.int64()))
        return rows


class _Columns:
    """How a file's columns become those of the new file; remembered while files are alike.

    Attributes:
        names: the columns to read.
        shredded: whether the file has variants whose values stand in columns of their own.
    """

    def __init__(self, schema: pa.Schema, by_id: bool) -> None:
        self._schema = schema
        self._by_id = by_id
        self._found: pa.Schema | None = None
        self._sources: list[str | None] = []
        self.names: list[str] = []
        self.shredded = False

    def find(self, found: pa.Schema) -> None:
        """Looks the columns up in a file with this schema."""
        if self._found is not None and found.equals(self._found, check_metadata=True):
            return
        fields = list(found)
        places = [place_of(fields, wanted, self._by_id) for wanted in self._schema]
        self._sources = [None if place is None else fields[place].name for place in places]
        self._found = found
        # A file without any of the columns has rows all the same.
        self.names = [name for name in self._sources if name is not None] or found.names[:1]
        self.shredded = any(_is_shredded(item.type) for item in found)

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch that was read."""
        places = {name: place for place, name in enumerate(batch.schema.names)}
        columns = [
            pa.nulls(batch.num_rows, wanted.type)
            if name is None
            else as_type(batch.column(places[name]), wanted.type, self._by_id)
            for wanted, name in zip(self._schema, self._sources, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


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
        if rows >= _GATHERED_ROWS or size >= _BATCH_BYTES:
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


def _batch_rows(footer: pq.FileMetaData) -> int:
    """How many rows take about as much memory as a batch may."""
    groups = (footer.row_group(number) for number in range(footer.num_row_groups))
    widest = max((one.total_byte_size // max(1, one.num_rows) for one in groups), default=1)
    return max(_BATCH_ROWS_MIN, min(_BATCH_ROWS, _BATCH_BYTES // max(1, widest)))


def _is_shredded(data_type: pa.DataType) -> bool:
    """Whether a type has a variant inside whose values stand in columns of their own."""
    if isinstance(data_type, pa.ExtensionType):
        return _is_shredded(data_type.storage_type)
    names = {item.name for item in _parts(data_type)}
    if pa.types.is_struct(data_type) and _SHREDDED in names and names & _VARIANT:
        return True
    return any(_is_shredded(item.type) for item in _parts(data_type))


def _parts(data_type: pa.DataType) -> list[pa.Field]:
    return [data_type.field(place) for place in range(data_type.num_fields)]


def is_legacy(footer: Mapping[bytes, bytes]) -> bool:
    """Whether times in a file may be of the old calendar; writers other than Spark know one."""
    if _SPARK not in footer:
        return False
    version = _VERSION.match(footer[_SPARK])
    known = version is not None and (int(version[1]), int(version[2])) >= _PROLEPTIC_SINCE
    return not known or not _LEGACY.isdisjoint(footer)


def _has_old_times(file: pq.ParquetFile) -> bool:
    batches = file.iter_batches(_batch_rows(file.metadata), use_threads=False)
    return any(_is_old(column) for batch in batches for column in batch.columns)


def _is_old(array: pa.Array) -> bool:
    """Whether a time in an array, or inside its values, is one that the calendars tell apart."""
    if pa.types.is_date32(array.type):
        first, limit = pc.min(array.cast(pa.int32())).as_py(), _SAME_DAYS_FROM
        return first is not None and first < limit
    if pa.types.is_timestamp(array.type):
        micros = array.cast(pa.timestamp("us", array.type.tz), safe=False).cast(pa.int64())
        first, limit = pc.min(micros).as_py(), _SAME_MICROS_FROM
        return first is not None and first < limit
    if pa.types.is_struct(array.type):
        return any(_is_old(part) for part in array.flatten())
    if pa.types.is_map(array.type):
        return _is_old(array.keys) or _is_old(array.items)
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        return _is_old(array.flatten())
    return False
