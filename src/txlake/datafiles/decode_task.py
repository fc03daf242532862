"""Spark tasks that read files by pyarrow: files that Spark can't decode, and many small ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import pyarrow as pa

from txlake.datafiles.files import open_file
from txlake.datafiles.many_files import SmallFiles
from txlake.datafiles.parquet import Columns, corrupt_table_errors, iter_rows, open_parquet
from txlake.errors import CorruptTable

GONE = "a data file is gone: "
"""The first words of the error for a missing file, before its URL."""
_FILES_TOGETHER = 64


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
                for rows in _rows_of(url, columns, self.options):
                    count = rows.num_rows
                    constants = (np.full(count, ordinal), np.arange(start, start + count))
                    positions = [pa.array(each, pa.int64()) for each in constants]
                    start += count
                    yield pa.RecordBatch.from_arrays([*rows.columns, *positions], schema=schema)


@dataclass(frozen=True)
class SmallFilesTask:
    """Reads many small Parquet files by pyarrow: turns rows of (URL) into the files' rows.

    Attributes:
        schema: serialised Arrow: the columns to read.
        by_id: whether columns are found by field id, else by name; absent columns are null.
        options: those of the table's store.
    """

    schema: bytes
    by_id: bool
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __call__(
        self, batches: Iterator[pa.RecordBatch], partition: int, attempt: int
    ) -> Iterator[pa.RecordBatch]:
        """Run the task over one of a job's partitions. Raises as `_rows_of`."""
        schema = pa.ipc.read_schema(pa.py_buffer(self.schema))
        small = SmallFiles(schema, by_id=self.by_id)
        columns = Columns(schema, by_id=self.by_id)
        for batch in batches:
            urls = batch.column(0).to_pylist()
            for start in range(0, len(urls), _FILES_TOGETHER):
                found = [(url, small.read(url)) for url in urls[start : start + _FILES_TOGETHER]]
                for is_read, group in groupby(found, lambda each: each[1] is not None):
                    if is_read:
                        yield from small.as_rows([rows for _, rows in group])
                    else:
                        for url, _ in group:
                            yield from _rows_of(url, columns, self.options)


def _rows_of(url: str, columns: Columns, options: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows in order, deleted ones too, as the columns of the table that are read.

    Raises CorruptTable for a file that can't be decoded or is gone, and UnsupportedFeature for
    shredded variants.
    """
    try:
        opened = open_file(url, options)
    except FileNotFoundError as error:
        raise CorruptTable(f"{GONE}{url}: a VACUUM or somebody else removed it") from error
    with opened as source, corrupt_table_errors(url):
        file = open_parquet(source)
        columns.find(file)
        yield from iter_rows(file, columns)
