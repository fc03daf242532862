"""The net row changes of a transaction: deleted, inserted and updated rows.

A row that was added and deleted again is left out; of a row that was changed twice the first and
the last image count. Works on positions only: the writer of the change data files reads the values.
Source: PROTOCOL.md, "Change Data Files".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from txlake.commit.merge_actions import StagedChanges
from txlake.commit.row_origins import RowSources, trace
from txlake.conflict.positions import Vectors, deleted_positions
from txlake.datafiles.origins import Positions
from txlake.datafiles.stored_vectors import as_array
from txlake.log.files import Files, canonical_path
from txlake.protocol.actions import Add

INSERT = "insert"
DELETE = "delete"
PREIMAGE = "update_preimage"
POSTIMAGE = "update_postimage"

CountRows = Callable[[Add], int]
"""How many rows a file has, the deleted ones included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRows:
    """Rows of one file with one type of change.

    Attributes:
        file: the file, as it was or as it will be.
        positions: the rows' positions in it.
        count: the file's number of rows, deleted ones included.
        change_type: INSERT, DELETE, PREIMAGE or POSTIMAGE.
    """

    file: Add
    positions: BitMap64
    count: int
    change_type: str


def net_changes(
    staged: StagedChanges,
    base: Files,
    row_sources: Mapping[str, RowSources],
    vectors: Vectors,
    count_rows: CountRows,
) -> tuple[ChangedRows, ...] | None:
    """Return the row changes of what is staged; None if the files alone define them.

    They do if no row lives on in another file: then rows of added files are inserts, those of
    removed files deletes, and no change data file is needed.

    Args:
        staged: the net changes of files.
        base: the files of the version that was read.
        row_sources: by canonical path, the sources of new files' rows.
        vectors: reads deletion vectors.
        count_rows: counts a file's rows.
    """
    if not row_sources:
        return None
    lost, new, lives_on = _traced(staged, base, row_sources, vectors, count_rows)
    return _by_change_type(lost, new) if lives_on else None


def net_rows(
    staged: StagedChanges,
    base: Files,
    row_sources: Mapping[str, RowSources],
    vectors: Vectors,
    count_rows: CountRows,
) -> tuple[ChangedRows, ...]:
    """Return the row changes of what is staged, whether the files alone define them or not.

    Arguments as in `net_changes`.
    """
    lost, new, _ = _traced(staged, base, row_sources, vectors, count_rows)
    return _by_change_type(lost, new)


def _traced(
    staged: StagedChanges,
    base: Files,
    row_sources: Mapping[str, RowSources],
    vectors: Vectors,
    count_rows: CountRows,
) -> tuple[dict[str, _File], dict[str, _File], bool]:
    """Return the files that lose rows, those that get new rows, and whether rows of the first live
    on in the second, where they are then known as such.
    """
    lost, new = _files(staged, base, vectors, count_rows)
    lives_on = False
    for path, after in new.items():
        if path not in row_sources:
            continue
        for part in trace(path, _as_positions(after.rows), row_sources, vectors):
            before = lost.get(part.path)
            if before is None:
                continue  # of a file that came and went with this transaction
            lives = before.had(part.before)
            if not lives.any():
                continue
            lives_on = True
            changed, same = lives & part.is_update, lives & ~part.is_update
            before.move(part.before[changed], part.before[same])
            after.move(part.after[changed], part.after[same])
    return lost, new, lives_on


def _by_change_type(lost: Mapping[str, _File], new: Mapping[str, _File]) -> tuple[ChangedRows, ...]:
    """Return the rows of the files by type of change."""
    changes = [
        *(one.by_change_type(PREIMAGE, DELETE) for one in lost.values()),
        *(one.by_change_type(POSTIMAGE, INSERT) for one in new.values()),
    ]
    return tuple(change for some in changes for change in some)


def other_positions(positions: BitMap64, count: int) -> BitMap64:
    """Return the positions below `count` that aren't among these."""
    every = BitMap64()
    if count:
        every.add_range(0, count)
    return every - positions


@dataclass(slots=True)
class _File:
    """Deleted or inserted rows of one file; `changed` have an image in another file.

    `all_rows` has all of them by position, computed on first use.
    """

    file: Add
    rows: BitMap64
    count: int
    changed: BitMap64 = field(default_factory=BitMap64)
    all_rows: npt.NDArray[np.bool_] | None = None

    def had(self, positions: Positions) -> npt.NDArray[np.bool_]:
        """Return for each position whether its row was among them, moved ones included."""
        if self.all_rows is None:
            self.all_rows = np.zeros(self.count, np.bool_)
            self.all_rows[_as_positions(self.rows | self.changed)] = True
        return self.all_rows[positions]

    def move(self, changed: Positions, same: Positions) -> None:
        """Record rows that live on in another file, changed or unchanged."""
        every = BitMap64(changed.tolist())
        self.changed |= every
        self.rows -= every
        self.rows -= BitMap64(same.tolist())

    def by_change_type(self, image: str, otherwise: str) -> list[ChangedRows]:
        """Return its rows by type of change."""
        return [
            ChangedRows(file=self.file, positions=positions, count=self.count, change_type=kind)
            for kind, positions in ((image, self.changed), (otherwise, self.rows))
            if positions
        ]


def _files(
    staged: StagedChanges, base: Files, vectors: Vectors, count_rows: CountRows
) -> tuple[dict[str, _File], dict[str, _File]]:
    """Return the files that lose rows, and those that get new rows, by canonical path.

    Files whose rows were only moved are left out.
    """
    lost: dict[str, _File] = {}
    new: dict[str, _File] = {}
    listed = {canonical_path(add.path): add for add in staged.added_files}
    for remove in staged.removed_files:
        add = base.get(remove.key) if remove.data_change else None
        if add is None:
            continue
        path, before = canonical_path(add.path), deleted_positions(add, vectors)
        after = listed.pop(path, None)
        count = count_rows(add)
        if after is None:
            lost[path] = _File(add, other_positions(before, count), count)
            continue
        gone = deleted_positions(after, vectors)
        lost[path] = _File(add, gone - before, count)
        new[path] = _File(after, before - gone, count)
    for path, add in listed.items():
        if not add.data_change:
            continue
        count = count_rows(add)
        new[path] = _File(add, other_positions(deleted_positions(add, vectors), count), count)
    return lost, new


def _as_positions(rows: BitMap64) -> Positions:
    return as_array(rows).astype(np.int64)
