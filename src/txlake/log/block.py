"""Rows of live files that many versions share, as Arrow columns or as values.

Owns the key by which files are identical, the lookup of a row by its key, and which columns are
decoded. Knows nothing of versions: a commit's changes are an overlay over a block, in `files`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from txlake.protocol.actions import Add, FileKey
from txlake.protocol.file_rows import FILES_SCHEMA, adds_of, files_table, vector_of
from txlake.protocol.lazy_stats import DecodedStats, LazyStats, Mask

Cached = TypeVar("Cached")
_LOCAL_ROOTS = ("/", "file:")
# The index takes as long as about four scans.
_SCANS_BEFORE_INDEX = 4
# A pass over all paths is sooner than the index for one path in so many.
_PATHS_OF_A_PASS = 8
_STATS_PLACE = FILES_SCHEMA.get_field_index("stats")


def canonical_path(path: str) -> str:
    """Return one spelling for an absolute local path: `/a`, `file:/a` and `file:///a` are
    `file:///a`.

    All other paths are returned unchanged.
    """
    if not path.startswith(_LOCAL_ROOTS):
        return path
    return "file:///" + path.removeprefix("file:").lstrip("/")


def canonical_key(key: FileKey) -> FileKey:
    """Return the key by which replay compares logical files."""
    path = key[0]
    return (canonical_path(path), key[1]) if path.startswith(_LOCAL_ROOTS) else key


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over live files: files, bytes, deletion vectors and the rows that those delete."""

    files: int = 0
    size_bytes: int = 0
    deletion_vectors: int = 0
    deleted_records: int = 0

    def plus(self, other: Totals, sign: int = 1) -> Totals:
        """Return the sums with `other` added, or subtracted when `sign` is -1."""
        return Totals(
            self.files + sign * other.files,
            self.size_bytes + sign * other.size_bytes,
            self.deletion_vectors + sign * other.deletion_vectors,
            self.deleted_records + sign * other.deleted_records,
        )


class Block:
    """Rows of files, immutable. Lazily computed values are cached, and reading from any thread is
    safe.

    Using statistics may raise CorruptTable: see `LazyStats`.
    """

    __slots__ = (
        "_adds",
        "_columns",
        "_hashes",
        "_order",
        "_plain",
        "_rows",
        "_scans",
        "_stats",
        "_stats_cache",
        "_table",
        "_totals",
    )

    def __init__(
        self,
        *,
        adds: list[Add] | None = None,
        columns: pa.Table | None = None,
        stats: LazyStats | None = None,
    ) -> None:
        """Build the block from `adds`, or from `columns` (FILES_SCHEMA without `stats`) and
        `stats`.
        """
        self._adds = adds
        self._columns = columns
        self._stats = stats
        self._table: pa.Table | None = None
        self._rows: int = len(adds) if adds is not None else columns.num_rows if columns else 0
        self._scans = 0
        self._plain: bool | None = None
        self._hashes: array[int] | None = None
        self._order: npt.NDArray[np.int64] | None = None
        self._totals: Totals | None = None
        self._stats_cache: dict[str, object] = {}

    @classmethod
    def of_table(cls, table: pa.Table) -> Block:
        """Return the rows of a table in FILES_SCHEMA. Nothing is copied."""
        stats = LazyStats((DecodedStats(table["stats"]),))
        block = cls(columns=table.drop_columns("stats"), stats=stats)
        block._table = table
        return block

    def __len__(self) -> int:
        return self._rows

    @property
    def has_adds(self) -> bool:
        return self._adds is not None

    @property
    def adds(self) -> Sequence[Add]:
        """The rows as actions, decoded on first use."""
        if self._adds is None:
            self._adds = adds_of(self.table)
        return self._adds

    @property
    def columns(self) -> pa.Table:
        """All columns but `stats`."""
        if self._columns is None:
            self._columns = self.table.drop_columns("stats")
        return self._columns

    @property
    def stats(self) -> LazyStats:
        """The statistics, a text or null for each row."""
        if self._stats is None:
            self._stats = LazyStats((DecodedStats(self.table["stats"]),))
        return self._stats

    @property
    def table(self) -> pa.Table:
        """The rows in FILES_SCHEMA, statistics included."""
        if self._table is None:
            if self._columns is None or self._stats is None:
                self._table = files_table(self._adds or [])
            else:
                self._table = _with_stats(self._columns, self._stats.column())
        return self._table

    @property
    def totals(self) -> Totals:
        """The sums over all rows, computed on first use."""
        if self._totals is None:
            self._totals = (
                totals_of_adds(self._adds)
                if self._adds is not None
                else _totals_of_table(self.columns)
            )
        return self._totals

    def totals_of(self, rows: frozenset[int]) -> Totals:
        """Return the sums over the rows with these numbers."""
        if self._adds is not None:
            adds = self._adds
            return totals_of_adds(adds[row] for row in rows)
        columns = self.columns.select(["size", "deletion_vector"])
        return _totals_of_table(columns.take(pa.array(sorted(rows), pa.int64())))

    def add_at(self, row: int) -> Add:
        """Return one row as an action, decoding no other."""
        if self._adds is not None:
            return self._adds[row]
        keep = np.zeros(self._rows, np.bool_)
        keep[row] = True
        stats = self.stats.filter(keep)
        return adds_of(_with_stats(self.columns.slice(row, 1), stats))[0]

    @property
    def stats_cache(self) -> dict[str, object]:
        """A cache for what other modules compute from the statistics or the partition values of
        all rows, by a key of theirs.
        """
        return self._stats_cache

    def row_keys(self) -> Iterator[FileKey]:
        """Return the canonical key of each row."""
        if self._adds is not None:
            return (canonical_key(add.key) for add in self._adds)
        return map(self._key_at, range(self._rows))

    def find(self, keys: Iterable[FileKey]) -> dict[FileKey, int]:
        """Return the row number of each of these canonical keys that is in the block."""
        wanted = keys if isinstance(keys, AbstractSet) else frozenset(keys)
        found: dict[FileKey, int] = {}
        for row in self.rows_of_paths({path for path, _ in wanted}):
            key = self._key_at(row)
            if key in wanted:
                found[key] = row
        return found

    def rows_of_paths(self, paths: set[str]) -> list[int]:
        """Return the numbers of all rows with these canonical paths, in no order.

        The first few calls scan all rows, and so do calls with many paths; others use an index.
        """
        if not self._rows:
            return []
        if len(paths) > self._rows // _PATHS_OF_A_PASS:
            return [row for row, path in enumerate(self._paths()) if path in paths]
        if self._hashes is None and self._adds is None and self._scan_is_cheaper(len(paths)):
            return self._scan(paths)
        return list(chain.from_iterable(map(self._indexed, paths)))

    def _indexed(self, path: str) -> list[int]:
        """Return the rows of a canonical path, by the index."""
        hashes, order = self._index()
        value = hash(path)
        start = bisect_left(hashes, value)
        if start == self._rows or hashes[start] != value:
            return []
        end = bisect_right(hashes, value, start)
        return [row for row in order[start:end].tolist() if self._path_at(row) == path]

    def _scan_is_cheaper(self, keys: int) -> bool:
        """Return whether to scan for this many keys, and count the call: an index pays off after a
        few.
        """
        self._scans += 1
        return self._scans <= _SCANS_BEFORE_INDEX and keys <= 1_000 and self._is_plain()

    def _is_plain(self) -> bool:
        """Return whether every path is its own canonical form."""
        if self._plain is None:
            column = self.columns["path"]
            local = [pc.any(pc.starts_with(column, root)).as_py() for root in _LOCAL_ROOTS]
            self._plain = not any(local)
        return self._plain

    def _scan(self, paths: set[str]) -> list[int]:
        mask = pc.is_in(self.columns["path"], value_set=pa.array(paths, pa.string()))
        return cast(list[int], pc.indices_nonzero(mask).to_pylist())

    def _index(self) -> tuple[array[int], npt.NDArray[np.int64]]:
        """Return sorted hashes of the paths and their rows: 16 bytes a file, where a dict takes
        200.

        Bisecting an `array` takes a fifth of the time that numpy takes for a single hash.
        """
        if self._hashes is None or self._order is None:
            hashes = np.fromiter(map(hash, self._paths()), np.int64, self._rows)
            order = np.argsort(hashes, kind="stable")
            self._order = order
            self._hashes = array("q", hashes[order].tobytes())
        return self._hashes, self._order

    def _paths(self) -> Iterator[str]:
        """Yield the canonical path of each row."""
        if self._adds is not None:
            return (canonical_path(add.path) for add in self._adds)
        paths = chain.from_iterable(chunk.to_pylist() for chunk in self.columns["path"].chunks)
        return paths if self._is_plain() else map(canonical_path, paths)

    def _path_at(self, row: int) -> str:
        """Return a row's canonical path."""
        if self._adds is not None:
            return canonical_path(self._adds[row].path)
        return canonical_path(cast(str, self.columns["path"][row].as_py()))

    def _key_at(self, row: int) -> FileKey:
        """Return a row's canonical key."""
        if self._adds is not None:
            return canonical_key(self._adds[row].key)
        vector = self.columns["deletion_vector"][row].as_py()
        return (self._path_at(row), None if vector is None else vector_of(vector).unique_id)


class BlockRows:
    """Some rows of a block; only requested columns are decoded."""

    __slots__ = ("_block", "_keep", "num_rows")

    def __init__(self, block: Block, keep: Mask | None = None) -> None:
        self._block = block
        self._keep = keep
        self.num_rows = len(block) if keep is None else int(np.count_nonzero(keep))

    def column(self, name: str) -> pa.ChunkedArray | RowStats:
        """Return one column. Statistics can only be iterated, chunk by chunk."""
        if name == "stats":
            return RowStats(self._block, self._keep)
        column = self._block.columns[name]
        return column if self._keep is None else column.filter(pa.array(self._keep))

    def filter(self, mask: pa.BooleanArray) -> BlockRows:
        """Return the rows for which the mask is true."""
        keep = np.asarray(mask)
        if self._keep is not None:
            every = self._keep.copy()
            every[self._keep] = keep
            keep = every
        return BlockRows(self._block, keep)

    def table(self) -> pa.Table:
        """Return the rows in FILES_SCHEMA."""
        if self._keep is None or self.num_rows == len(self._block):
            return self._block.table
        columns = self._block.columns.filter(pa.array(self._keep))
        return _with_stats(columns, self._block.stats.filter(self._keep))

    def batches(self) -> Iterator[pa.Table]:
        """Yield the rows in FILES_SCHEMA, as many at a time as there are statistics in a chunk."""
        columns, keep = self._block.columns, self._keep
        rows = None if keep is None else np.flatnonzero(keep)
        start = 0
        for texts in self._block.stats.chunks(keep):
            if not len(texts):
                continue
            if keep is None or rows is None:
                part = columns.slice(start, len(texts))
            else:
                first, last = int(rows[start]), int(rows[start + len(texts) - 1])
                live = pa.array(keep[first : last + 1])
                part = columns.slice(first, last + 1 - first).filter(live)
            yield _with_stats(part, pa.chunked_array([texts], pa.string()))
            start += len(texts)

    def of_block(self, key: str, make: Callable[[BlockRows], Cached]) -> Cached:
        """Return what `make` returns for all rows of the block, made once.

        The key is for all blocks' values of that kind.
        """
        known = self._block.stats_cache
        if key not in known:
            known[key] = make(BlockRows(self._block))
        return cast("Cached", known[key])

    @property
    def keep(self) -> Mask | None:
        """A mask of the block's rows that these are; None for all."""
        return self._keep


@dataclass(frozen=True, slots=True, eq=False)
class RowStats:
    """The statistics of some rows of a block; of all rows when `keep` is None."""

    block: Block
    keep: Mask | None

    def iterchunks(self) -> Iterator[pa.Array]:
        """Return the rows' texts in order, null where a row has none."""
        return self.block.stats.chunks(self.keep)

    @property
    def covers_most_rows(self) -> bool:
        """Whether the rows are so many that decoding the statistics of all rows is no waste."""
        return self.keep is None or 2 * int(np.count_nonzero(self.keep)) > len(self.keep)


def _with_stats(columns: pa.Table, stats: pa.ChunkedArray) -> pa.Table:
    return columns.add_column(_STATS_PLACE, "stats", stats)


def totals_of_adds(adds: Iterable[Add]) -> Totals:
    """Return the sums over these files."""
    files = size = vectors = deleted = 0
    for add in adds:
        files += 1
        size += add.size
        if add.deletion_vector is not None:
            vectors += 1
            deleted += add.deletion_vector.cardinality
    return Totals(files, size, vectors, deleted)


def _totals_of_table(table: pa.Table) -> Totals:
    """Return the sums over the rows of a table with the columns `size` and `deletion_vector`."""
    vectors = table["deletion_vector"]
    present = table.num_rows - vectors.null_count
    deleted = pc.sum(pc.struct_field(vectors, "cardinality")).as_py() if present else 0
    size = pc.sum(table["size"]).as_py()
    return Totals(table.num_rows, size or 0, present, deleted or 0)
