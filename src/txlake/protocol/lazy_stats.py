"""The statistics of a checkpoint's files, decoded from its bytes when someone asks for them.

Owns that they cost nothing before: they are most of a checkpoint, and opening a table, counting its
files or choosing some by partition needs none. Source: PROTOCOL.md, "Per-file Statistics".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from txlake.errors import CorruptTable
from txlake.protocol.checkpoint_stats import stats_to_json
from txlake.protocol.parquet_sizes import require_bounded

Mask: TypeAlias = npt.NDArray[np.bool_]
PARQUET_ERRORS = (pa.ArrowException, OSError, ValueError, KeyError, TypeError)
"""What pyarrow raises for bytes that are no Parquet, or not what they should be."""

BATCH_ROWS = 65_536
_PASSES_BEFORE_KEPT = 3


def damaged(file: str, error: Exception) -> CorruptTable:
    """The error for a file of a checkpoint that can't be decoded."""
    return CorruptTable(f"{file}: not a readable checkpoint: {error}")


class StatsPart:
    """The statistics in one Parquet file: of those of its rows where `present` is true."""

    __slots__ = ("_columns", "_data", "_file", "_metadata", "_present", "rows")

    def __init__(
        self,
        data: bytes,
        metadata: pq.FileMetaData,
        fields: Sequence[str],
        present: Mask,
        file: str,
    ) -> None:
        """`fields`: which of `stats` and `stats_parsed` there are to read, at least one."""
        self._data = data
        self._metadata = metadata
        self._columns = [f"add.{name}" for name in fields]
        self._present = present
        self._file = file
        self.rows = int(np.count_nonzero(present))

    def chunks(self, keep: Mask | None) -> Iterator[pa.Array]:
        """The texts in order; only those of the rows kept. Raises CorruptTable naming the file."""
        try:
            yield from self._chunks(keep)
        except PARQUET_ERRORS as error:
            raise damaged(self._file, error) from error

    def _chunks(self, keep: Mask | None) -> Iterator[pa.Array]:
        wanted = self._present
        if keep is not None:
            wanted = wanted.copy()
            wanted[self._present] = keep
        require_bounded(self._data, self._metadata, self._columns)
        parquet = pq.ParquetFile(pa.BufferReader(self._data), metadata=self._metadata)
        start = 0
        for group in range(self._metadata.num_row_groups):
            end = start + self._metadata.row_group(group).num_rows
            if wanted[start:end].any():
                for batch in parquet.iter_batches(
                    BATCH_ROWS, row_groups=[group], columns=self._columns
                ):
                    rows = wanted[start : start + batch.num_rows]
                    start += batch.num_rows
                    texts = _texts(batch.column(0))
                    yield texts if rows.all() else texts.filter(pa.array(rows))
            start = end


def _texts(adds: pa.StructArray) -> pa.Array:
    """The statistics as JSON: from the text, else from the struct."""
    names = {item.name for item in adds.type}
    texts = pc.struct_field(adds, "stats").cast(pa.string()) if "stats" in names else None
    if "stats_parsed" not in names or (texts is not None and not texts.null_count):
        return texts
    parsed = stats_to_json(pc.struct_field(adds, "stats_parsed"))
    return parsed if texts is None else pc.coalesce(texts, parsed)


class GivenStats:
    """Statistics that are there already."""

    __slots__ = ("_column", "rows")

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._column = column
        self.rows = len(column)

    def chunks(self, keep: Mask | None) -> Iterator[pa.Array]:
        """The texts in order; only those of the rows kept."""
        column = self._column if keep is None else self._column.filter(pa.array(keep))
        yield from column.iterchunks()

    def column(self) -> pa.ChunkedArray:
        """All of them."""
        return self._column


class LazyStats:
    """The statistics of many files, as JSON texts or null, in order.

    They are decoded at each use, until there were so many uses that it is cheaper to keep them.
    Using them raises CorruptTable naming the damaged file, unless `instead` gives, for that error,
    the texts from elsewhere. Reading from several threads is safe.
    """

    __slots__ = ("_instead", "_passes", "_source", "rows")

    def __init__(
        self,
        parts: Sequence[StatsPart | GivenStats],
        *,
        instead: Callable[[CorruptTable], pa.ChunkedArray] | None = None,
    ) -> None:
        # Replaced as a whole when the texts are kept, so that no thread sees half of it.
        self._source: tuple[StatsPart | GivenStats, ...] | GivenStats = tuple(parts)
        self._instead = instead
        self._passes = 0
        self.rows = sum(part.rows for part in parts)

    def column(self) -> pa.ChunkedArray:
        """All of them. They are kept from now on, and the checkpoint's bytes aren't."""
        source = self._source
        if not isinstance(source, GivenStats):
            source = GivenStats(pa.chunked_array(self._decoded(source, None), pa.string()))
            self._source = source
        return source.column()

    def filter(self, keep: Mask | None) -> pa.ChunkedArray:
        """Those of the rows kept (all when None)."""
        return self.column() if keep is None else pa.chunked_array(self.chunks(keep), pa.string())

    def chunks(self, keep: Mask | None = None) -> Iterator[pa.Array]:
        """As `filter`, chunk by chunk: only one of them need be in memory."""
        self._passes += 1
        source = self._source
        if not isinstance(source, GivenStats) and self._passes <= _PASSES_BEFORE_KEPT:
            yield from self._decoded(source, keep)
        else:
            yield from GivenStats(self.column()).chunks(keep)

    def _decoded(
        self, parts: Sequence[StatsPart | GivenStats], keep: Mask | None
    ) -> Iterator[pa.Array]:
        done = start = 0
        try:
            for part in parts:
                rows = None if keep is None else keep[start : start + part.rows]
                start += part.rows
                for chunk in part.chunks(rows):
                    yield chunk
                    done += len(chunk)
        except CorruptTable as error:
            if self._instead is None:
                raise
            known = GivenStats(self._instead(error))
            self._source = known
            for chunk in known.chunks(keep):
                # Those before the damage were given already.
                if done < len(chunk):
                    yield chunk.slice(done)
                done = max(done - len(chunk), 0)
