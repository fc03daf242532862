"""The Spark task that reads files that Spark can't decode: pyarrow reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from txlake.datafiles.files import open_file
from txlake.datafiles.parquet import Columns, corrupt_table_errors, iter_rows, open_parquet


@dataclass(frozen=True)
class DecodeTask:
    """Reads Parquet files by pyarrow: turns rows of (file ordinal, URL) into the files' rows.

    Attributes:
        schema: serialised Arrow: the columns to read, then the file's ordinal and the row's
            position.
        by_id: whether columns are found by field id, else by name; absent columns are null.
        options: those of the table's store.
    """

    schema: bytes
    by_id: bool
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __call__(
        self, batches: Iterator[pa.RecordBatch], partition: int, attempt: int
    ) -> Iterator[pa.RecordBatch]:
        """Run the task over one of a job's partitions."""
        schema = pa.ipc.read_schema(pa.py_buffer(self.schema))
        columns = Columns(pa.schema(list(schema)[:-2]), by_id=self.by_id)
        for batch in batches:
            for ordinal, url in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                start = 0
                for rows in self._rows(url, columns):
                    count = rows.num_rows
                    constants = (np.full(count, ordinal), np.arange(start, start + count))
                    positions = [pa.array(each, pa.int64()) for each in constants]
                    start += count
                    yield pa.RecordBatch.from_arrays([*rows.columns, *positions], schema=schema)

    def _rows(self, url: str, columns: Columns) -> Iterator[pa.RecordBatch]:
        """Yield a file's rows in order, deleted ones too, as the columns of the table that are
        read.

        Raises FileNotFoundError, and CorruptTable for a file that can't be decoded, and
        UnsupportedFeature for shredded variants.
        """
        with open_file(url, self.options) as source, corrupt_table_errors(url):
            file = open_parquet(source)
            columns.find(file)
            yield from iter_rows(file, columns)
