"""The live files of a table version, immutable: a shared block of rows and a small overlay.

Owns how a commit changes the set of live files at a cost that depends on the commit, not on the
table, and by which key files are the same. Knows nothing of tombstones or versions.

A block is either Arrow (it came from a checkpoint) or a list of `Add` values (it came from JSON);
the other form and the index by path are made when first asked for, and shared by later versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from txlake.protocol.actions import Add, FileKey
from txlake.protocol.file_rows import (
    FILES_SCHEMA,
    adds_of,
    files_table,
    iterate_adds,
    vector_of,
)

__all__ = [
    "FILES_SCHEMA",
    "Files",
    "Totals",
    "adds_of",
    "canonical_key",
    "canonical_path",
    "files_table",
]

_LOCAL_ROOTS = ("/", "file:")
_OVERLAY_MIN = 2_048
_SLICES_MAX = 128
_SCANS_BEFORE_INDEX = 16


def canonical_path(path: str) -> str:
    """One spelling for the ways to write an absolute local path: `/a`, `file:/a`, `file:///a`.

    All other paths are themselves.
    """
    if not path.startswith(_LOCAL_ROOTS):
        return path
    return "file:///" + path.removeprefix("file:").lstrip("/")


def canonical_key(key: FileKey) -> FileKey:
    """The key by which replay compares logical files."""
    path = key[0]
    return (canonical_path(path), key[1]) if path.startswith(_LOCAL_ROOTS) else key


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the live files: bytes, deletion vectors and the rows those delete."""

    files: int = 0
    size_bytes: int = 0
    deletion_vectors: int = 0
    deleted_records: int = 0

    def plus(self, other: Totals, sign: int = 1) -> Totals:
        """The sums with `other` added, or taken away when `sign` is -1."""
        return Totals(
            self.files + sign * other.files,
            self.size_bytes + sign * other.size_bytes,
            self.deletion_vectors + sign * other.deletion_vectors,
            self.deleted_records + sign * other.deleted_records,
        )


class Files:
    """The live files of one version. Immutable; `apply` gives the next version's.

    What is computed lazily is kept, and reading from several threads is safe.
    """

    __slots__ = ("_base", "_gone", "_pending", "_table", "_tail", "_tail_by_path")

    def __init__(
        self,
        base: _Block,
        gone: frozenset[int] = frozenset(),
        pending: frozenset[FileKey] = frozenset(),
        tail: dict[FileKey, Add] | None = None,
    ) -> None:
        self._base = base
        self._gone = gone  # rows of the base that are live no more
        self._pending = pending  # keys that may be in the base and, if so, are live no more
        self._tail = tail or {}  # live files on top of the base
        self._table: pa.Table | None = None
        self._tail_by_path: dict[str, Add] | None = None

    @classmethod
    def of(cls, adds: Iterable[Add]) -> Files:
        """The files of these adds; of two with one key the later counts."""
        return cls.of_unique(list({canonical_key(add.key): add for add in adds}.values()))

    @classmethod
    def of_unique(cls, adds: list[Add]) -> Files:
        """The files of these adds, whose canonical keys are unique."""
        return cls(_Block(adds=adds))

    @classmethod
    def of_table(cls, table: pa.Table) -> Files:
        """The files of a table in FILES_SCHEMA, whose keys must be unique. Nothing is copied."""
        return cls(_Block(table=table))

    def __len__(self) -> int:
        return len(self._base) - len(self._dead()) + len(self._tail)

    def __contains__(self, key: FileKey) -> bool:
        key = canonical_key(key)
        return key in self._tail or self._base_row(key) is not None

    def get(self, key: FileKey) -> Add | None:
        """The live file of that key."""
        key = canonical_key(key)
        add = self._tail.get(key)
        if add is not None:
            return add
        row = self._base_row(key)
        return None if row is None else self._base.add_at(row)

    def by_path(self, path: str) -> Add | None:
        """The live file at a path as in the log, whatever its deletion vector."""
        path = canonical_path(path)
        if self._tail_by_path is None:
            self._tail_by_path = {key[0]: add for key, add in self._tail.items()}
        add = self._tail_by_path.get(path)
        if add is not None:
            return add
        dead = self._dead()
        for row in self._base.rows_of_path(path):
            if row not in dead:
                return self._base.add_at(row)
        return None

    def adds(self) -> Iterator[Add]:
        """The live files as actions: those of the checkpoint first, then in commit order."""
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

    @property
    def totals(self) -> Totals:
        """Number, bytes and deletion vectors of the live files."""
        dead = self._dead()
        totals = self._base.totals
        if dead:
            totals = totals.plus(self._base.totals_of(dead), -1)
        return totals.plus(_totals_of_adds(self._tail.values()))

    def apply(self, adds: Iterable[Add], removed_keys: Iterable[FileKey]) -> Files:
        """The files after the removals and then the additions; costs what the change costs.

        A key that isn't live is no error to remove; an add of a live key replaces it.
        """
        tail = dict(self._tail)
        touched: list[FileKey] = []
        for key in map(canonical_key, removed_keys):
            tail.pop(key, None)
            touched.append(key)
        for add in adds:
            key = canonical_key(add.key)
            tail.pop(key, None)
            tail[key] = add
            touched.append(key)
        if not touched:
            return self
        pending = self._pending.union(touched) if len(self._base) else frozenset[FileKey]()
        changed = Files(self._base, self._gone, pending, tail)
        overlay = len(tail) + len(self._gone) + len(pending)
        return changed._folded() if overlay > max(_OVERLAY_MIN, len(self._base) // 4) else changed

    def _folded(self) -> Files:
        """The same files with an empty overlay, so that later changes stay cheap."""
        if self._base.has_adds or not len(self._base):
            return Files(_Block(adds=list(self.adds())))
        return Files(_Block(table=self.table))

    def _dead(self) -> frozenset[int]:
        if self._pending:
            found = self._base.find(self._pending)
            self._gone = self._gone.union(found.values())
            self._pending = frozenset()
        return self._gone

    def _base_row(self, key: FileKey) -> int | None:
        row = self._base.find((key,)).get(key)
        return None if row is None or row in self._dead() else row


class _Block:
    """Rows of files that many versions share; Arrow or values, whichever is asked for."""

    __slots__ = ("_adds", "_hashes", "_order", "_plain", "_rows", "_scans", "_table", "_totals")

    def __init__(self, *, adds: list[Add] | None = None, table: pa.Table | None = None) -> None:
        self._adds = adds
        self._table = table
        self._rows: int = len(adds) if adds is not None else table.num_rows if table else 0
        self._scans = 0
        self._plain: bool | None = None
        self._hashes: npt.NDArray[np.int64] | None = None
        self._order: npt.NDArray[np.int64] | None = None
        self._totals: Totals | None = None

    def __len__(self) -> int:
        return self._rows

    @property
    def has_adds(self) -> bool:
        return self._adds is not None

    @property
    def adds(self) -> Sequence[Add]:
        if self._adds is None:
            self._adds = adds_of(self.table)
        return self._adds

    @property
    def table(self) -> pa.Table:
        if self._table is None:
            self._table = files_table(self._adds or [])
        return self._table

    @property
    def totals(self) -> Totals:
        if self._totals is None:
            self._totals = (
                _totals_of_adds(self._adds)
                if self._adds is not None
                else _totals_of_table(self.table)
            )
        return self._totals

    def totals_of(self, rows: frozenset[int]) -> Totals:
        """The sums over some rows."""
        if self._adds is not None:
            adds = self._adds
            return _totals_of_adds(adds[row] for row in rows)
        columns = self.table.select(["size", "deletion_vector"])
        return _totals_of_table(columns.take(pa.array(sorted(rows), pa.int64())))

    def add_at(self, row: int) -> Add:
        if self._adds is not None:
            return self._adds[row]
        return adds_of(self.table.slice(row, 1))[0]

    def find(self, keys: Iterable[FileKey]) -> dict[FileKey, int]:
        """The rows of those of the keys that are here."""
        wanted = keys if isinstance(keys, frozenset) else frozenset(keys)
        found: dict[FileKey, int] = {}
        if self._hashes is None and self._adds is None and self._scan_is_cheaper(len(wanted)):
            rows: Iterable[int] = self._scan({path for path, _ in wanted})
        else:
            rows = chain.from_iterable(self.rows_of_path(path) for path, _ in wanted)
        for row in rows:
            key = self._key_at(row)
            if key in wanted:
                found[key] = row
        return found

    def rows_of_path(self, path: str) -> list[int]:
        """All rows of a canonical path, by the index."""
        if not self._rows:
            return []
        hashes, order = self._index()
        value = hash(path)
        start, end = np.searchsorted(hashes, value, "left"), np.searchsorted(hashes, value, "right")
        return [row for row in order[start:end].tolist() if self._path_at(row) == path]

    def _scan_is_cheaper(self, keys: int) -> bool:
        self._scans += 1
        return self._scans <= _SCANS_BEFORE_INDEX and keys <= 1_000 and self._is_plain()

    def _is_plain(self) -> bool:
        """Whether every path is its own canonical form."""
        if self._plain is None:
            column = self.table["path"]
            local = [pc.any(pc.starts_with(column, root)).as_py() for root in _LOCAL_ROOTS]
            self._plain = not any(local)
        return self._plain

    def _scan(self, paths: set[str]) -> list[int]:
        mask = pc.is_in(self.table["path"], value_set=pa.array(paths, pa.string()))
        return cast(list[int], pc.indices_nonzero(mask).to_pylist())

    def _index(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Sorted hashes of the paths and their rows: 16 bytes a file, where a dict takes 200."""
        if self._hashes is None or self._order is None:
            hashes = np.fromiter(map(hash, self._paths()), np.int64, self._rows)
            order = np.argsort(hashes, kind="stable")
            self._order = order
            self._hashes = hashes[order]
        return self._hashes, self._order

    def _paths(self) -> Iterator[str]:
        if self._adds is not None:
            return (canonical_path(add.path) for add in self._adds)
        paths = chain.from_iterable(chunk.to_pylist() for chunk in self.table["path"].chunks)
        return paths if self._is_plain() else map(canonical_path, paths)

    def _path_at(self, row: int) -> str:
        if self._adds is not None:
            return canonical_path(self._adds[row].path)
        return canonical_path(cast(str, self.table["path"][row].as_py()))

    def _key_at(self, row: int) -> FileKey:
        if self._adds is not None:
            return canonical_key(self._adds[row].key)
        vector = self.table["deletion_vector"][row].as_py()
        return (self._path_at(row), None if vector is None else vector_of(vector).unique_id)


def _without(table: pa.Table, dead: frozenset[int]) -> pa.Table:
    """The table without some rows: slices of it when they are few, else a filtered copy."""
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


def _totals_of_adds(adds: Iterable[Add]) -> Totals:
    files = size = vectors = deleted = 0
    for add in adds:
        files += 1
        size += add.size
        if add.deletion_vector is not None:
            vectors += 1
            deleted += add.deletion_vector.cardinality
    return Totals(files, size, vectors, deleted)


def _totals_of_table(table: pa.Table) -> Totals:
    vectors = table["deletion_vector"]
    present = table.num_rows - vectors.null_count
    deleted = pc.sum(pc.struct_field(vectors, "cardinality")).as_py() if present else 0
    size = pc.sum(table["size"]).as_py()
    return Totals(table.num_rows, size or 0, present, deleted or 0)
