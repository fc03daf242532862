"""The live files of a table version, immutable: a shared block of rows and a small overlay.

Owns how a commit changes the set of live files at a cost that depends on the commit, not on the
table. Knows nothing of tombstones or versions.

A block has Arrow columns from a checkpoint, or a list of `Add` values from JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import numpy as np
import pyarrow as pa

from txlake.log.block import (
    Block,
    BlockRows,
    Totals,
    canonical_key,
    canonical_path,
    totals_of_adds,
)
from txlake.log.file_columns import FileColumns
from txlake.protocol.actions import Add, FileKey
from txlake.protocol.file_rows import FILES_SCHEMA, adds_of, files_table, iterate_adds
from txlake.protocol.lazy_stats import LazyStats, Mask
from txlake.protocol.statistics import FileStatistics

__all__ = [
    "FILES_SCHEMA",
    "Files",
    "Totals",
    "adds_of",
    "canonical_key",
    "canonical_path",
    "files_table",
    "live_row_count",
]

_OVERLAY_MIN = 256
_SLICES_MAX = 128
_NOTHING = Totals()


class Files:
    """The live files of one version. Immutable; `apply` returns the next version's.

    Lazily computed values are kept, and reading from several threads is safe.
    """

    __slots__ = (
        "_base",
        "_gone",
        "_pending",
        "_table",
        "_tail",
        "_tail_by_path",
        "_tail_totals",
    )

    def __init__(
        self,
        base: Block,
        gone: frozenset[int] = frozenset(),
        pending: frozenset[FileKey] = frozenset(),
        tail: dict[FileKey, Add] | None = None,
        tail_totals: Totals = _NOTHING,
    ) -> None:
        self._base = base
        self._gone = gone  # rows of the base that are no longer live
        self._pending = pending  # keys that, if they are in the base, are no longer live
        self._tail = tail or {}  # live files on top of the base
        self._tail_totals = tail_totals
        self._table: pa.Table | None = None
        self._tail_by_path: dict[str, Add] | None = None

    @classmethod
    def of(cls, adds: Iterable[Add]) -> Files:
        """Return the files of these adds; of two with one key the later counts."""
        return cls.of_unique(list({canonical_key(add.key): add for add in adds}.values()))

    @classmethod
    def of_unique(cls, adds: list[Add]) -> Files:
        """Return the files of these adds, whose canonical keys are unique."""
        return cls(Block(adds=adds))

    @classmethod
    def of_table(cls, table: pa.Table) -> Files:
        """Return the files of a table in FILES_SCHEMA, whose keys must be unique. Copies
        nothing.
        """
        return cls(Block.of_table(table))

    @classmethod
    def of_columns(cls, columns: pa.Table, stats: LazyStats) -> Files:
        """Return the files of `columns` (FILES_SCHEMA without `stats`) and `stats`; keys must be
        unique.
        """
        return cls(Block(columns=columns, stats=stats))

    def __len__(self) -> int:
        return len(self._base) - len(self._dead()) + len(self._tail)

    def __contains__(self, key: FileKey) -> bool:
        key = canonical_key(key)
        return key in self._tail or self._base_row(key) is not None

    def without(self, keys: Iterable[FileKey]) -> set[FileKey]:
        """Return the canonical keys of those that no live file has; they are looked up together."""
        missing = {canonical_key(key) for key in keys} - self._tail.keys()
        dead = self._dead()
        return missing - {key for key, row in self._base.find(missing).items() if row not in dead}

    def get(self, key: FileKey) -> Add | None:
        """Return the live file with this key; None if there is none."""
        key = canonical_key(key)
        add = self._tail.get(key)
        if add is not None:
            return add
        row = self._base_row(key)
        return None if row is None else self._base.add_at(row)

    def by_path(self, path: str) -> Add | None:
        """Return the live file at a path as in the log, whatever its deletion vector; None if there
        is none.
        """
        path = canonical_path(path)
        add = self._in_tail(path)
        if add is not None:
            return add
        dead = self._dead()
        for row in self._base.rows_of_paths({path}):
            if row not in dead:
                return self._base.add_at(row)
        return None

    def adds(self) -> Iterator[Add]:
        """Return the live files as actions: those of the checkpoint first, then in commit order."""
        dead = self._dead()
        if self._base.has_adds:
            base = self._base.adds
            live = base if not dead else (add for row, add in enumerate(base) if row not in dead)
            return chain(live, self._tail.values())
        return chain(iterate_adds(_without(self._base.table, dead)), self._tail.values())

    @property
    def table(self) -> pa.Table:
        """The live files in FILES_SCHEMA. Columns of a large base are not copied."""
        if self._table is None:
            live = _without(self._base.table, self._dead())
            if self._tail:
                tail = files_table(list(self._tail.values()))
                live = pa.concat_tables([live, tail]) if live.num_rows else tail
            self._table = live
        return self._table

    def columns(self, *names: str) -> pa.Table:
        """Return some columns of the live files, in the order of `table`; the others aren't
        decoded.
        """
        if self._table is not None or self._base.has_adds or "stats" in names:
            return self.table.select(names)
        live = _without(self._base.columns.select(names), self._dead())
        if not self._tail:
            return live
        return pa.concat_tables([live, files_table(list(self._tail.values())).select(names)])

    def batches(self) -> Iterator[pa.Table]:
        """Yield the live files in FILES_SCHEMA, in the order of `table`.

        Statistics that aren't decoded yet are decoded batch by batch, and not kept.
        """
        if self._table is not None or self._base.has_adds:
            yield self.table
            return
        yield from BlockRows(self._base, self._live()).batches()
        if self._tail:
            yield files_table(list(self._tail.values()))

    def where(self, test: Callable[[FileColumns], pa.BooleanArray]) -> pa.Table:
        """Return the live files for which a test of columns is true, in FILES_SCHEMA.

        Columns that the test doesn't use are only decoded for these files.
        """
        rows = BlockRows(self._base, self._live())
        parts = [rows.filter(test(rows)).table()] if rows.num_rows else []
        if self._tail:
            parts.append(_tested(files_table(list(self._tail.values())), test))
        return pa.concat_tables(parts) if parts else FILES_SCHEMA.empty_table()

    @property
    def totals(self) -> Totals:
        """Sums over the live files."""
        dead = self._dead()
        totals = self._base.totals
        if dead:
            totals = totals.plus(self._base.totals_of(dead), -1)
        return totals.plus(self._tail_totals)

    def apply(self, adds: Iterable[Add], removed_keys: Iterable[FileKey]) -> Files:
        """Return the files after the removals and then the additions; the cost depends on the
        change alone.

        Removing a key that isn't live is no error; an add of a live key replaces it.
        """
        tail = dict(self._tail)
        touched: list[FileKey] = []
        came: list[Add] = []
        went: list[Add | None] = []
        for key in map(canonical_key, removed_keys):
            went.append(tail.pop(key, None))
            touched.append(key)
        for add in adds:
            key = canonical_key(add.key)
            went.append(tail.pop(key, None))
            tail[key] = add
            came.append(add)
            touched.append(key)
        if not touched:
            return self
        pending = self._pending.union(touched) if len(self._base) else frozenset[FileKey]()
        totals = self._tail_totals.plus(totals_of_adds(came))
        totals = totals.plus(totals_of_adds(add for add in went if add is not None), -1)
        changed = Files(self._base, self._gone, pending, tail, totals)
        overlay = len(tail) + len(self._gone) + len(pending)
        return changed._folded() if overlay > max(_OVERLAY_MIN, len(self._base) // 4) else changed

    def _folded(self) -> Files:
        """Return the same files with an empty overlay, so that later changes stay cheap."""
        if self._base.has_adds or not len(self._base):
            return Files(Block(adds=list(self.adds())))
        return Files(Block.of_table(self.table))

    def _in_tail(self, canonical: str) -> Add | None:
        """Return the file at a canonical path among those on top of the base; None if there is
        none.
        """
        if not self._tail_totals.deletion_vectors:
            return self._tail.get((canonical, None))
        if self._tail_by_path is None:
            self._tail_by_path = {key[0]: add for key, add in self._tail.items()}
        return self._tail_by_path.get(canonical)

    def _live(self) -> Mask | None:
        """Return a mask of the base's live rows; None when all are live."""
        dead = self._dead()
        if not dead:
            return None
        live = np.ones(len(self._base), np.bool_)
        live[list(dead)] = False
        return live

    def _dead(self) -> frozenset[int]:
        """Return the rows of the base that are no longer live; looks up the pending keys first."""
        if self._pending:
            found = self._base.find(self._pending)
            self._gone = self._gone.union(found.values())
            self._pending = frozenset()
        return self._gone

    def _base_row(self, key: FileKey) -> int | None:
        row = self._base.find((key,)).get(key)
        return None if row is None or row in self._dead() else row


def _tested(table: pa.Table, test: Callable[[FileColumns], pa.BooleanArray]) -> pa.Table:
    return table.filter(test(table)) if table.num_rows else table


def _without(table: pa.Table, dead: frozenset[int]) -> pa.Table:
    """Return the table without some rows: slices of it when they are few, else a filtered copy."""
    if not dead:
        return table
    if len(dead) > _SLICES_MAX:
        keep = np.ones(table.num_rows, np.bool_)
        keep[list(dead)] = False
        return table.filter(pa.array(keep))
    slices: list[pa.Table] = []
    start = 0
    for row in (*sorted(dead), table.num_rows):
        if row > start:
            slices.append(table.slice(start, row - start))
        start = row + 1
    return pa.concat_tables(slices) if slices else table.slice(0, 0)


def live_row_count(add: Add) -> int | None:
    """Return a file's number of live rows; None if its statistics don't count rows."""
    count = FileStatistics.from_json(add.stats).num_records
    if count is None:
        return None
    vector = add.deletion_vector
    return count - (0 if vector is None else vector.cardinality)
