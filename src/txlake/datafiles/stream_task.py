"""What Spark's tasks do for a data source: data files become rows with the table's columns.

Owns the way of a file's rows to those that Spark takes: live rows, partition values, logical names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txlake.datafiles.files import open_file
from txlake.datafiles.live_rows import contained_in
from txlake.datafiles.parquet import (
    Columns,
    corrupt_table_errors,
    iter_rows,
    open_parquet,
    with_field_names,
)
from txlake.datafiles.stored_vectors import StoredVector
from txlake.errors import CorruptTable
from txlake.protocol.partition_values import PartitionScalar, arrow_values


@dataclass(frozen=True)
class StreamedFile:
    """One file.

    Attributes:
        url: where it is, encoded.
        vector: its deletion vector.
        partition: the values of the table's partition columns, in order.
        only: the positions of the rows to read, whatever the vector says; None for the live ones.
    """

    url: str
    vector: StoredVector | None
    partition: tuple[PartitionScalar, ...]
    only: StoredVector | None = None


@dataclass(frozen=True)
class StreamTask:
    """Reads files by pyarrow, in order.

    Attributes:
        schema: the columns that files hold, serialised Arrow, physical names.
        shown: the columns of the rows, serialised Arrow.
        sources: for each of those, its place among the files' columns; (-1 - n) for the n-th
            partition column; None for a column without values.
        padded: the lengths that texts are filled up to with spaces, by place among `shown`.
        by_id: whether columns are found by field id, else by name; absent ones are null.
        options: those of the table's store.
    """

    schema: bytes
    shown: bytes
    sources: tuple[int | None, ...]
    padded: Mapping[int, int]
    by_id: bool
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def rows(self, files: Sequence[StreamedFile]) -> Iterator[pa.RecordBatch]:
        """The rows of the files."""
        shown = pa.ipc.read_schema(pa.py_buffer(self.shown))
        columns = Columns(pa.ipc.read_schema(pa.py_buffer(self.schema)), by_id=self.by_id)
        for one in files:
            for batch in self._live(one, columns):
                if batch.num_rows:
                    yield self._shown(batch, one, shown)

    def _live(self, one: StreamedFile, columns: Columns) -> Iterator[pa.RecordBatch]:
        chosen = one.vector if one.only is None else one.only
        among = None if chosen is None else chosen.positions(self.options)
        try:
            source = open_file(one.url, self.options)
        except FileNotFoundError as error:
            raise CorruptTable(
                f"data file {one.url} is gone, and wasn't read yet: VACUUM removed it. Read again; "
                "a stream goes on as a new query with a new checkpoint. Keep files longer than a "
                "stream may stop (delta.deletedFileRetentionDuration)"
            ) from error
        with source, corrupt_table_errors(one.url):
            file = open_parquet(source)
            columns.find(file)
            start = 0
            for batch in iter_rows(file, columns):
                end = start + batch.num_rows
                if among is not None and len(among):
                    found = contained_in(among, np.arange(start, end, dtype=np.uint64))
                    batch = batch.filter(pa.array(found if one.only is not None else ~found))
                start = end
                yield batch

    def _shown(self, batch: pa.RecordBatch, one: StreamedFile, shown: pa.Schema) -> pa.RecordBatch:
        arrays = []
        for place, (item, source) in enumerate(zip(shown, self.sources, strict=True)):
            if source is None:
                array = pa.nulls(batch.num_rows, item.type)
            elif source < 0:
                value = arrow_values((one.partition[-1 - source],), item.type)[0]
                array = pa.repeat(value, batch.num_rows)
            else:
                array = batch.column(source)
            array = with_field_names(array, item.type)
            if place in self.padded:
                array = pc.utf8_rpad(array, self.padded[place], " ")
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=shown)
