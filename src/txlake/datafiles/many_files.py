"""Many small Parquet files of this machine, read whole, some of them side by side.

To open a file by itself, find its columns and convert its batches takes longer than to decode its
hundred rows. What was found for one file counts for all that have its schema.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from txlake.datafiles.parquet import Columns, as_they_are, is_legacy, is_shredded, open_parquet
from txlake.errors import UnsupportedFeature
from txlake.storage import local_path

Item = TypeVar("Item")
Value = TypeVar("Value")

FILE_BYTES_MAX = 256 * 1024
"""A file is small up to this size."""

# A few bytes of a run or a dictionary may stand for any number of values.
_ROWS_MAX = 16_384
_DECODED_BYTES_MAX = 8 * 1024 * 1024
_BATCH_ROWS = 65_536
_AHEAD = 2
_UNREADABLE = (pa.ArrowException, OSError, ValueError, UnsupportedFeature)


class SmallFiles:
    """Reads small files whose columns are those of a table as they are, all with one schema.

    Safe to use from many threads.
    """

    def __init__(self, schema: pa.Schema, *, by_id: bool) -> None:
        """Read the columns of `schema`, found by field id or else by name, as `Columns` does."""
        self._schema = schema
        self._by_id = by_id
        # The schema of the files, and their columns in the order of the table's.
        self._known: tuple[pa.Schema, list[str]] | None = None

    def read(self, url: str) -> pa.Table | None:
        """Return all rows of a file, in order, with the names of its own columns; None for one that
        has to be read by itself.

        That is a file of another store, with another schema than the first one, with columns that
        have to be converted, with times that may be of an old calendar, with more than 16,384 rows
        or 8 MiB uncompressed, or one that is missing or damaged. For `as_rows`.
        """
        path = _path_of(url)
        if path is None:
            return None
        try:
            with open(path, "rb", buffering=0) as stream:
                data = stream.read()
            file = open_parquet(pa.BufferReader(data))
            names = self._names_in(file) if _is_plain(file.metadata) else None
            if names is None:
                return None
            rows = file.read(names, use_threads=False)
        except _UNREADABLE:
            return None  # another reader says what is wrong
        return rows if rows.num_rows == file.metadata.num_rows else None

    def as_rows(self, tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of files that `read` returned, in order, with the table's columns."""
        assert self._known is not None, "read before"
        rows = pa.concat_tables(tables).select(self._known[1]).combine_chunks()
        yield from pa.Table.from_arrays(rows.columns, schema=self._schema).to_batches(_BATCH_ROWS)

    def _names_in(self, file: pq.ParquetFile) -> list[str] | None:
        """Return the file's names of the columns; None if the file needs another reader.

        Raises as `Columns.find`.
        """
        schema = file.schema_arrow
        if self._known is None:
            columns = Columns(self._schema, by_id=self._by_id)
            columns.find(file)
            if any(is_shredded(item.type) for item in schema) or not as_they_are(columns, schema):
                return None
            self._known = schema, columns.names
        known, names = self._known
        return names if schema.equals(known, check_metadata=True) else None


def _is_plain(footer: pq.FileMetaData) -> bool:
    """Return whether a file is small when it is decoded, and has no times of an old calendar."""
    if footer.num_rows > _ROWS_MAX or is_legacy(footer.metadata):
        return False
    groups = range(footer.num_row_groups)
    size: int = sum(footer.row_group(group).total_byte_size for group in groups)
    return size <= _DECODED_BYTES_MAX


def in_order(work: Callable[[Item], Value], items: Iterable[Item], threads: int) -> Iterator[Value]:
    """Yield the results of `work` on each item, in order, of so many threads; few are ahead.

    Raises the error of the first item that failed.
    """
    if threads < 2:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        pending: deque[Future[Value]] = deque()
        for item in items:
            pending.append(pool.submit(work, item))
            if len(pending) > threads * _AHEAD:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _path_of(url: str) -> str | None:
    """Return the local path of a file's encoded URL; None for one in another store."""
    folder, _, name = url.rpartition("/")
    path = _folder_of(folder)
    return None if path is None else f"{path}/{unquote(name, errors='surrogateescape')}"


@lru_cache(maxsize=64)
def _folder_of(url: str) -> str | None:
    return local_path(url)
