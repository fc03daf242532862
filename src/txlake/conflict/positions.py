"""Rows by their positions in files: which ones a commit took, and where a rewrite moved them.

Owns the arithmetic over deletion vectors, as sets of positions. A live row's rank is the number of
live rows before it in its file; a rewrite that keeps order says by ranks where rows went. Source:
PROTOCOL.md, "Deletion Vectors"; API.md, `txlake.sources`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol as Port

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from txlake.errors import InvalidRequest
from txlake.log.files import canonical_path
from txlake.protocol.actions import Add, DeletionVector, Remove
from txlake.protocol.sources import SOURCES_TAG, Source, parse_sources
from txlake.protocol.statistics import FileStatistics

_Numbers = npt.NDArray[np.uint64]


class Vectors(Port):
    """Reads deletion vectors, as positions."""

    def of(self, vector: DeletionVector) -> BitMap64:
        """The deleted positions. Raises TxlakeError when the vector can't be read."""
        ...

    def of_id(self, vector_id: str) -> BitMap64:
        """The deleted positions of the vector with that id (`DeletionVector.unique_id`)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Rows that a commit took from one file, or moved out of it.

    Attributes:
        before: the file as it was.
        after: the file listed again, with another vector; None when the whole file went.
    """

    before: Remove
    after: Add | None = None

    @property
    def is_rewrite(self) -> bool:
        """Whether the rows live on in other files."""
        return self.after is None and not self.before.data_change

    def positions(self, vectors: Vectors) -> BitMap64 | None:
        """The positions newly deleted; None for the whole file."""
        if self.after is None:
            return None
        return deleted(self.after, vectors) - deleted(self.before, vectors)

    def returned(self, vectors: Vectors) -> BitMap64:
        """The positions that are live again."""
        if self.after is None:
            return BitMap64()
        return deleted(self.before, vectors) - deleted(self.after, vectors)


def losses(
    removed: Iterable[Remove], added: Iterable[Add], unwritten: Container[str] = ()
) -> dict[str, Loss]:
    """By canonical path, what a commit with these files took from files that were there.

    `unwritten`: paths of added files whose new vectors aren't written yet.
    """
    listed = {canonical_path(file.path): file for file in added}
    found = {}
    for file in removed:
        path = canonical_path(file.path)
        after = listed.get(path)
        if after is None or path in unwritten or after.key[1] != file.key[1]:
            found[path] = Loss(before=file, after=after)
    return found


def deleted(file: Add | Remove, vectors: Vectors) -> BitMap64:
    """The positions that a file's vector deletes."""
    return BitMap64() if file.deletion_vector is None else vectors.of(file.deletion_vector)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Live rows of one source that stand in a row in one output.

    Attributes:
        output: the output's path, as in the log.
        offset: the position of the first of them in the output.
        source: which rows they are.
    """

    output: str
    offset: int
    source: Source

    def places(self, positions: BitMap64, vectors: Vectors) -> BitMap64:
        """Where the rows at these positions of the source stand in the output, if they live."""
        source = self.source
        before = BitMap64() if source.vector_id is None else vectors.of_id(source.vector_id)
        ranks = _ranks(_numbers(positions - before), _numbers(before))
        first = np.uint64(source.first)
        inside = ranks[(ranks >= first) & (ranks < first + np.uint64(source.rows))]
        return BitMap64((inside - first + np.uint64(self.offset)).tolist())

    def every_place(self) -> BitMap64:
        """Where all of the rows stand in the output."""
        return BitMap64(range(self.offset, self.offset + self.source.rows))


def _numbers(positions: BitMap64) -> _Numbers:
    return np.fromiter(positions, dtype=np.uint64, count=len(positions))


def _ranks(live: _Numbers, gone: _Numbers) -> _Numbers:
    """How many live positions come before each of these."""
    before: _Numbers = np.searchsorted(gone, live).astype(np.uint64)
    ranks: _Numbers = live - before
    return ranks


def recorded_runs(
    outputs: Iterable[Add], sources: Mapping[str, Remove], vectors: Vectors
) -> dict[str, list[Run]]:
    """By canonical path of the source, the runs that a rewrite's outputs say they hold.

    An output whose tag doesn't fit its number of rows, or that names a file which the rewrite
    didn't remove, says nothing; nor does a source of which not every live row is accounted for.
    """
    runs: dict[str, list[Run]] = {}
    for output in outputs:
        own = _runs(output)
        if all(canonical_path(run.source.path) in sources for run in own):
            for run in own:
                runs.setdefault(canonical_path(run.source.path), []).append(run)
    return {path: found for path, found in runs.items() if _is_whole(found, sources[path], vectors)}


def _runs(output: Add) -> list[Run]:
    text = (output.tags or {}).get(SOURCES_TAG)
    if not text or output.data_change:
        return []
    try:
        sources = parse_sources(text)
    except InvalidRequest:
        return []
    if FileStatistics.from_json(output.stats).num_records != sum(one.rows for one in sources):
        return []
    offsets = accumulate((one.rows for one in sources), initial=0)
    return [
        Run(output=output.path, offset=offset, source=one)
        for offset, one in zip(offsets, sources, strict=False)
    ]


def _is_whole(runs: list[Run], source: Remove, vectors: Vectors) -> bool:
    """Whether the runs are of one reading of the source and hold every row live in it."""
    vector_ids = {run.source.vector_id for run in runs}
    if len(vector_ids) > 1:
        return False
    counted = 0
    for run in sorted(runs, key=lambda one: one.source.first):
        if run.source.first != counted:
            return False
        counted += run.source.rows
    vector_id = vector_ids.pop()
    gone = 0 if vector_id is None else len(vectors.of_id(vector_id))
    return FileStatistics.from_json(source.stats).num_records == counted + gone
