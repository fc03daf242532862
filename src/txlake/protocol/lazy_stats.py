"""The statistics of a checkpoint's files, decoded from its bytes only when they are used.

They are most of a checkpoint, and opening a table, counting its files or choosing some by partition
needs none. Source: PROTOCOL.md, "Per-file Statistics".
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
from txlake.protocol.parquet_sizes import Budget

Mask: TypeAlias = npt.NDArray[np.bool_]
PARQUET_ERRORS = (pa.ArrowException, OSError, ValueError, KeyError, TypeError)
"""What pyarrow raises for bytes that are no Parquet, or have unexpected content."""

BATCH_ROWS = 65_536
_PASSES_BEFORE_KEPT = 3
# About two million files' statistics; those of more files are decoded at each use.
_KEPT_BYTES_MAX = 512 * 1024 * 1024


def unreadable_checkpoint(file: str, error: Exception) -> CorruptTable:
    """Return the error for a file of a checkpoint that can't be decoded."""
    return CorruptTable(f"{file}: not a readable checkpoint: {error}")


class ParquetStats:
    """The statistics in some row groups of one Parquet file, of the rows where `present` is
    true.
    """

    __slots__ = ("_columns", "_data", "_file", "_groups", "_metadata", "_present", "rows")

    def __init__(
        self,
        data: bytes,
        metadata: pq.FileMetaData,
        fields: Sequence[str],
        groups: Sequence[int],
        present: Mask,
        file: str,
    ) -> None:
        """`fields`: which of `stats` and `stats_parsed` the file has, at least one. `present`: for
        each row of the `groups`.
        """
        self._data = data
        self._metadata = metadata
        self._columns = [f"add.{name}" for name in fields]
        self._groups = groups
        self._present = present
        self._file = file
        self.rows = int(np.count_nonzero(present))

    def decoded_bytes(self) -> int:
        """Return about how many bytes the texts of all rows take."""
        columns = (
            self._metadata.row_group(group).column(place)
            for group in self._groups
            for place in range(self._metadata.num_columns)
        )
        found = (one for one in columns if one.path_in_schema.startswith(tuple(self._columns)))
        return sum(one.total_uncompressed_size for one in found)

    def chunks(self, keep: Mask | None) -> Iterator[pa.Array]:
        """Yield the texts of the kept rows in order (all when None).

        Raises CorruptTable naming the file.
        """
        try:
            yield from self._chunks(keep)
        except PARQUET_ERRORS as error:
            raise unreadable_checkpoint(self._file, error) from error

    def _chunks(self, keep: Mask | None) -> Iterator[pa.Array]:
        """Yield the texts of the kept rows, reading only row groups that have some.

        Raises one of PARQUET_ERRORS for damage, and for a size out of proportion.
        """
        wanted = self._present
        if keep is not None:
            wanted = wanted.copy()
            wanted[self._present] = keep
        budget = Budget(self._data, self._metadata, self._columns)
        parquet = pq.ParquetFile(pa.BufferReader(self._data), metadata=self._metadata)
        start = 0
        for group in self._groups:
            end = start + self._metadata.row_group(group).num_rows
            if wanted[start:end].any():
                budget.spend(group)
                for batch in parquet.iter_batches(
                    BATCH_ROWS, row_groups=[group], columns=self._columns
                ):
                    rows = wanted[start : start + batch.num_rows]
                    start += batch.num_rows
                    texts = _texts(batch.column(0))
                    yield texts if rows.all() else texts.filter(pa.array(rows))
            start = end


def _texts(adds: pa.StructArray) -> pa.Array:
    """Return the statistics as JSON: from the text, else from the struct."""
    names = {item.name for item in adds.type}
    texts = pc.struct_field(adds, "stats").cast(pa.string()) if "stats" in names else None
    if "stats_parsed" not in names or (texts is not None and not texts.null_count):
        return texts
    parsed = stats_to_json(pc.struct_field(adds, "stats_parsed"))
    return parsed if texts is None else pc.coalesce(texts, parsed)


class DecodedStats:
    """Statistics that are decoded already."""

    __slots__ = ("_column", "rows")

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._column = column
        self.rows = len(column)

    def chunks(self, keep: Mask | None) -> Iterator[pa.Array]:
        """Yield the texts of the kept rows in order (all when None)."""
        column = self._column if keep is None else self._column.filter(pa.array(keep))
        yield from column.iterchunks()

    def column(self) -> pa.ChunkedArray:
        """Return the texts of all rows."""
        return self._column


class LazyStats:
    """The statistics of many files, as JSON texts or null, in order.

    They are decoded at each use, until keeping the texts is cheaper, if they aren't too large for
    that. Using them raises CorruptTable
    naming the damaged file, unless `fallback` returns, for that error, the texts from another
    source. Reading from several threads is safe.
    """

    __slots__ = ("_fallback", "_passes", "_source", "rows")

    def __init__(
        self,
        parts: Sequence[ParquetStats | DecodedStats],
        *,
        fallback: Callable[[CorruptTable], pa.ChunkedArray] | None = None,
    ) -> None:
        # Replaced as a whole when the texts are kept, so that no thread sees an intermediate state.
        self._source: tuple[ParquetStats | DecodedStats, ...] | DecodedStats = tuple(parts)
        self._fallback = fallback
        self._passes = 0
        self.rows = sum(part.rows for part in parts)

    def column(self) -> pa.ChunkedArray:
        """Return the texts of all rows, and keep them from now on instead of the checkpoint's
        bytes.
        """
        source = self._source
        if not isinstance(source, DecodedStats):
            source = DecodedStats(pa.chunked_array(self._decoded(source, None), pa.string()))
            self._source = source
        return source.column()

    def filter(self, keep: Mask | None) -> pa.ChunkedArray:
        """Return the texts of the kept rows (all when None)."""
        return self.column() if keep is None else pa.chunked_array(self.chunks(keep), pa.string())

    def chunks(self, keep: Mask | None = None) -> Iterator[pa.Array]:
        """Yield the texts of the kept rows chunk by chunk: only one chunk need be in memory."""
        self._passes += 1
        source = self._source
        is_first = self._passes <= _PASSES_BEFORE_KEPT
        if not isinstance(source, DecodedStats) and (is_first or not _may_be_kept(source)):
            yield from self._decoded(source, keep)
        else:
            yield from DecodedStats(self.column()).chunks(keep)

    def _decoded(
        self, parts: Sequence[ParquetStats | DecodedStats], keep: Mask | None
    ) -> Iterator[pa.Array]:
        """Yield the texts of the kept rows from the parts.

        If one is damaged, the fallback's texts replace all parts, and those that weren't yielded
        yet follow. Without a fallback raises CorruptTable.
        """
        done = start = 0
        try:
            for part in parts:
                rows = None if keep is None else keep[start : start + part.rows]
                start += part.rows
                for chunk in part.chunks(rows):
                    yield chunk
                    done += len(chunk)
        except CorruptTable as error:
            if self._fallback is None:
                raise
            known = DecodedStats(self._fallback(error))
            self._source = known
            for chunk in known.chunks(keep):
                # The texts before the damage were yielded already.
                if done < len(chunk):
                    yield chunk.slice(done)
                done = max(done - len(chunk), 0)


def _may_be_kept(parts: Sequence[ParquetStats | DecodedStats]) -> bool:
    """Return whether the texts of all parts may be kept in memory."""
    encoded = (part for part in parts if isinstance(part, ParquetStats))
    return sum(part.decoded_bytes() for part in encoded) <= _KEPT_BYTES_MAX
