"""Rows by their positions in files: which rows a commit removed, and where a rewrite moved rows.

Owns the arithmetic over deletion vectors, as sets of positions. A live row's rank is the number of
live rows before it in its file; a rewrite that keeps order records by ranks where rows went, and
one that sorts by sets of positions. Source: PROTOCOL.md, "Deletion Vectors"; `protocol.sources`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol as Port

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from txlake.conflict.compaction_tags import recorded_sources
from txlake.errors import TxlakeError
from txlake.log.files import canonical_path
from txlake.protocol.actions import Add, DeletionVector, Remove
from txlake.protocol.sources import SOURCES_TAG, Source, parse_sources
from txlake.protocol.statistics import FileStatistics

_Numbers = npt.NDArray[np.uint64]


class Vectors(Port):
    """Reads deletion vectors, as positions."""

    def of(self, vector: DeletionVector) -> BitMap64:
        """Return the deleted positions. Raises TxlakeError when the vector can't be read."""
        ...

    def of_id(self, vector_id: str) -> BitMap64:
        """Return the deleted positions of the vector with that id (`DeletionVector.unique_id`)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedRows:
    """Rows that a commit deleted from one file, or moved out of it.

    Attributes:
        before: the file as it was.
        after: the file listed again, with another vector; None if the whole file was removed.
    """

    before: Remove
    after: Add | None = None

    @property
    def is_rewrite(self) -> bool:
        """Whether the rows are in other files now."""
        return self.after is None and not self.before.data_change

    def positions(self, vectors: Vectors) -> BitMap64 | None:
        """Return the newly deleted positions; None for the whole file."""
        if self.after is None:
            return None
        return deleted_positions(self.after, vectors) - deleted_positions(self.before, vectors)

    def returned(self, vectors: Vectors) -> BitMap64:
        """Return the positions of rows that the new vector restores; none if the whole file was
        removed.
        """
        if self.after is None:
            return BitMap64()
        return deleted_positions(self.before, vectors) - deleted_positions(self.after, vectors)


def removed_rows_by_path(removed: Iterable[Remove], added: Iterable[Add]) -> dict[str, RemovedRows]:
    """Return by canonical path the rows that a commit of these files removed from files."""
    found = {canonical_path(file.path): file for file in removed}
    listed = {canonical_path(file.path): file for file in added if found}
    every = {path: removed_rows(file, listed.get(path)) for path, file in found.items()}
    return {path: one for path, one in every.items() if one is not None}


def removed_rows(
    before: Remove, after: Add | None, *, is_written: bool = True
) -> RemovedRows | None:
    """Return the rows removed from one file; None if it is listed again with the same vector.

    Without `is_written` the new vector isn't written yet, and the result is never None.
    """
    if after is not None and is_written and after.key[1] == before.key[1]:
        return None
    return RemovedRows(before=before, after=after)


def deleted_positions(file: Add | Remove, vectors: Vectors) -> BitMap64:
    """Return the positions that a file's vector deletes."""
    return BitMap64() if file.deletion_vector is None else vectors.of(file.deletion_vector)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Live rows of one source file that are consecutive in one output file.

    Attributes:
        output: the output's path, as in the log.
        offset: the position of the first row in the output.
        source: the rows of the source file.
    """

    output: str
    offset: int
    source: Source

    def places(self, positions: BitMap64, vectors: Vectors) -> BitMap64:
        """Return the positions in the output of the live rows at these positions of the source.

        Positions that the run doesn't hold, and those deleted before the rewrite, are left out.
        """
        source = self.source
        if source.positions_id is not None:
            taken = vectors.of_id(source.positions_id)
            places = np.searchsorted(_as_array(taken), _as_array(positions & taken))
            return BitMap64((places + self.offset).tolist())
        before = BitMap64() if source.vector_id is None else vectors.of_id(source.vector_id)
        ranks = _ranks(_as_array(positions - before), _as_array(before))
        first = np.uint64(source.first)
        inside = ranks[(ranks >= first) & (ranks < first + np.uint64(source.rows))]
        return BitMap64((inside - first + np.uint64(self.offset)).tolist())

    def all_places(self) -> BitMap64:
        """Return the positions of all rows of the run in the output."""
        return BitMap64(range(self.offset, self.offset + self.source.rows))


def _as_array(positions: BitMap64) -> _Numbers:
    return np.fromiter(positions, dtype=np.uint64, count=len(positions))


def _ranks(live: _Numbers, gone: _Numbers) -> _Numbers:
    """Return how many live positions come before each of these."""
    before: _Numbers = np.searchsorted(gone, live).astype(np.uint64)
    ranks: _Numbers = live - before
    return ranks


class RowMoves:
    """Where a commit that rewrote files moved their rows, as far as it records it.

    txlake's outputs have a tag of their sources; one that doesn't fit the number of rows records
    nothing. The tag may name a file that the commit doesn't remove: another commit had removed it,
    and the rows are deleted in the output. Outputs without the tag are other engines', whose
    tombstones may record it (`compaction_tags`).
    """

    def __init__(self, removed: Sequence[Remove], added: Sequence[Add]) -> None:
        self._sources = {
            canonical_path(file.path): file for file in removed if not file.data_change
        }
        self._runs_by_source: dict[str, list[Run]] = {}
        self._sources_by_output: dict[str, set[str]] = {}
        self._is_complete_by_source: dict[str, bool] = {}
        outputs = added if self._sources else ()
        by_tombstones = recorded_sources(removed, outputs)
        for output in outputs:
            path = canonical_path(output.path)
            if path in self._sources:
                runs = []
            elif SOURCES_TAG in (output.tags or {}):
                runs = tagged_runs(output)
            else:
                runs = _runs(output, by_tombstones.get(path, ()))
            self._sources_by_output[path] = {canonical_path(run.source.path) for run in runs}
            for run in runs:
                self._runs_by_source.setdefault(canonical_path(run.source.path), []).append(run)

    def of(self, path: str, vectors: Vectors) -> list[Run] | None:
        """Return the runs of a source, by canonical path; None if live rows aren't all recorded.

        None too for a path that the commit doesn't rewrite.
        """
        runs = self._runs_by_source.get(path)
        if runs is None or path not in self._sources:
            return None
        if path not in self._is_complete_by_source:
            self._is_complete_by_source[path] = _is_complete(runs, self._sources[path], vectors)
        return runs if self._is_complete_by_source[path] else None

    def linked(self, path: str, vectors: Vectors) -> tuple[set[str], set[str]] | None:
        """Return the sources and outputs that share rows with a source, directly or through others.

        None if rows of one of the sources may be in further outputs.
        """
        sources, outputs, new = {path}, set[str](), {path}
        while new:
            runs = [self.of(one, vectors) for one in new]
            found = {canonical_path(run.output) for told in runs for run in told or ()} - outputs
            if None in runs:
                return None
            outputs |= found
            new = {one for output in found for one in self._sources_by_output[output]} - sources
            sources |= new
        return sources, outputs


def tagged_runs(output: Add) -> list[Run]:
    """Return the runs that an output's tag `txlake.sources` records, in order.

    None are there if the file is a change of data, or its tag is missing, can't be read or doesn't
    fit the number of rows.
    """
    text = (output.tags or {}).get(SOURCES_TAG)
    if not text or output.data_change:
        return []
    try:
        sources = parse_sources(text)
        rows = FileStatistics.from_json(output.stats).num_records
    except TxlakeError:
        return []
    return _runs(output, sources) if rows == sum(one.rows for one in sources) else []


def _runs(output: Add, sources: Sequence[Source]) -> list[Run]:
    """Return an output's rows, which are those of the sources in this order, as runs."""
    offsets = accumulate((one.rows for one in sources), initial=0)
    return [
        Run(output=output.path, offset=offset, source=one)
        for offset, one in zip(offsets, sources, strict=False)
    ]


def _is_complete(runs: list[Run], source: Remove, vectors: Vectors) -> bool:
    """Return whether the runs come from one read of the source and hold all of its live rows.

    False where a vector or a statistic can't be read.
    """
    vector_ids = {run.source.vector_id for run in runs}
    if len(vector_ids) > 1:
        return False
    vector_id = vector_ids.pop()
    try:
        gone = BitMap64() if vector_id is None else vectors.of_id(vector_id)
        rows = FileStatistics.from_json(source.stats).num_records
        if any(run.source.positions_id is not None for run in runs):
            return rows is not None and _sets_cover_file(runs, rows, gone, vectors)
        counted = _contiguous_rows(runs)
        return counted is not None and rows == counted + len(gone)
    except TxlakeError:  # a vector or a statistic that can't be read
        return False


def _contiguous_rows(runs: list[Run]) -> int | None:
    """Return how many live rows the runs hold, from the file's first live row on; None if there is
    a gap or an overlap.
    """
    counted = 0
    for run in sorted(runs, key=lambda one: one.source.first):
        if run.source.first != counted:
            return None
        counted += run.source.rows
    return counted


def _sets_cover_file(runs: list[Run], rows: int, gone: BitMap64, vectors: Vectors) -> bool:
    """Return whether each row of a file is in exactly one run's set of positions, or deleted."""
    told = BitMap64(gone)
    counted = len(gone)
    for run in runs:
        if run.source.positions_id is None:
            return False
        taken = vectors.of_id(run.source.positions_id)
        if len(taken) != run.source.rows:
            return False
        told |= taken
        counted += len(taken)
    every = BitMap64()
    every.add_range(0, rows)
    return counted == rows and told == every
