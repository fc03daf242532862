"""What Spark's tasks do with files that Spark can't decode: pyarrow reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from txlake.datafiles.files import open_file
from txlake.datafiles.parquet import Columns, corrupt_table_errors, iter_rows, open_parquet


@dataclass(frozen=True)
class DecodeTask:
    """Reads Parquet files by pyarrow: rows of (ordinal, URL) become the files' rows.

    `schema`: the wanted columns, serialised Arrow, the last two being the file's ordinal and the
    row's position. Columns are found by field id with `by_id`, else by name; absent ones are null.
    """

    schema: bytes
    by_id: bool
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __call__(
        self, batches: Iterator[pa.RecordBatch], partition: int, attempt: int
    ) -> Iterator[pa.RecordBatch]:
        """Runs the task over one of a job's partitions."""
        schema = pa.ipc.read_schema(pa.py_buffer(self.schema))
        columns = Columns(pa.schema(list(schema)[:-2]), by_id=self.by_id)
        for batch in batches:
            for ordinal, url in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                start = 0
                for rows in self._rows(url, columns):
                    count = rows.num_rows
                    places = (np.full(count, ordinal), np.arange(start, start + count))
                    positions = [pa.array(each, pa.int64()) for each in places]
                    start += count
                    yield pa.RecordBatch.from_arrays([*rows.columns, *positions], schema=schema)

    def _rows(self, url: str, columns: Columns) -> Iterator[pa.RecordBatch]:
        with open_file(url, self.options) as source, corrupt_table_errors(url):
            file = open_parquet(source)
            columns.find(file)
            yield from iter_rows(file, columns)
