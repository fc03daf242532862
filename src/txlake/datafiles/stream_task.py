"""The task of a Spark data source that reads data files as rows with the table's columns.

Owns what becomes of a file's rows: deleted rows are left out, partition values are added, and
columns get their logical names.
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
    """A file to read.

    Attributes:
        url: its encoded URL.
        vector: its deletion vector.
        partition: the values of the table's partition columns, in order.
        only: the positions of the rows to read, whatever `vector` says; None for all live rows.
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
        row_schema: the columns of the rows, serialised Arrow, logical names.
        sources: for each column of `row_schema` its index among the files' columns; (-1 - n) for
            the n-th partition column; None for a column without values.
        padded: the lengths that texts are padded to with spaces, by index in `row_schema`.
        by_id: whether columns are found by field id, else by name; absent columns are null.
        options: those of the table's store.
    """

    schema: bytes
    row_schema: bytes
    sources: tuple[int | None, ...]
    padded: Mapping[int, int]
    by_id: bool
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def rows(self, files: Sequence[StreamedFile]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the files, in order, in batches of `row_schema` that aren't empty.

        Raises CorruptTable for a file that is missing or damaged, or whose deletion vector is, and
        UnsupportedFeature for shredded variants.
        """
        row_schema = pa.ipc.read_schema(pa.py_buffer(self.row_schema))
        columns = Columns(pa.ipc.read_schema(pa.py_buffer(self.schema)), by_id=self.by_id)
        for file in files:
            for batch in self._live_batches(file, columns):
                if batch.num_rows:
                    yield self._as_rows(batch, file, row_schema)

    def _live_batches(self, file: StreamedFile, columns: Columns) -> Iterator[pa.RecordBatch]:
        """Yield the file's live rows, or the rows `only`, with the files' columns.

        Batches may be empty. Raises as `rows`.
        """
        vector = file.vector if file.only is None else file.only
        positions = None if vector is None else vector.positions(self.options)
        try:
            source = open_file(file.url, self.options)
        except FileNotFoundError as error:
            raise CorruptTable(
                f"data file {file.url} is gone, and wasn't read yet: VACUUM removed it. Read "
                "again; a stream goes on as a new query with a new checkpoint. Keep files longer "
                "than a stream may stop (delta.deletedFileRetentionDuration)"
            ) from error
        with source, corrupt_table_errors(file.url):
            parquet = open_parquet(source)
            columns.find(parquet)
            start = 0
            for batch in iter_rows(parquet, columns):
                end = start + batch.num_rows
                if positions is not None and len(positions):
                    matches = contained_in(positions, np.arange(start, end, dtype=np.uint64))
                    batch = batch.filter(pa.array(matches if file.only is not None else ~matches))
                elif file.only is not None:
                    batch = batch.slice(0, 0)
                start = end
                yield batch

    def _as_rows(
        self, batch: pa.RecordBatch, file: StreamedFile, row_schema: pa.Schema
    ) -> pa.RecordBatch:
        """Return a batch with the columns of `row_schema`, partition values added and
        texts padded.
        """
        arrays = []
        for index, (item, source) in enumerate(zip(row_schema, self.sources, strict=True)):
            if source is None:
                array = pa.nulls(batch.num_rows, item.type)
            elif source < 0:
                value = arrow_values((file.partition[-1 - source],), item.type)[0]
                array = pa.repeat(value, batch.num_rows)
            else:
                array = batch.column(source)
            array = with_field_names(array, item.type)
            if index in self.padded:
                array = pc.utf8_rpad(array, self.padded[index], " ")
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=row_schema)
