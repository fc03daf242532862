"""The sources of new files' rows, from which the change data feed is derived.

Owns the two forms in which statements record them, and the trace of any row of a transaction's own
files back to a row of the version read. Rows are identified by file and physical position.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from txlake.conflict.positions import Vectors
from txlake.datafiles.origins import NO_FILE, Ordinals, Positions
from txlake.datafiles.stored_vectors import as_array
from txlake.log.files import canonical_path
from txlake.protocol.sources import Source

_Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Origins:
    """The sources of one new file's rows, in their order.

    Attributes:
        sources: paths, as in the log, of the source files.
        files: for each row the index of its source in `sources`; NO_FILE for a row without one.
        rows: for each row its position in the source.
        is_update: whether the rows have other values than their sources.
    """

    sources: tuple[str, ...]
    files: Ordinals
    rows: Positions
    is_update: bool


RowSources = Origins | tuple[Source, ...]
"""What is known of a new file's rows: the origins, or the runs of rows that it was packed of."""


def origins_of(
    written: Mapping[str, tuple[Ordinals, Positions]], sources: tuple[str, ...], *, is_update: bool
) -> dict[str, Origins]:
    """Return the origins by new files' paths; ordinals count the scanned files `sources`.

    `is_update`: the rows have other values now.
    """
    return {
        path: Origins(sources=sources, files=files, rows=rows, is_update=is_update)
        for path, (files, rows) in written.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRows:
    """Rows of a new file that come from one file of the version read.

    Attributes:
        path: canonical path of that file.
        before: their positions there.
        after: their positions in the new file, in the same order.
        is_update: which of them have other values now.
    """

    path: str
    before: Positions
    after: Positions
    is_update: _Flags


def trace(
    path: str, rows: Positions, row_sources: Mapping[str, RowSources], vectors: Vectors
) -> Iterator[TracedRows]:
    """Trace rows of a new file back to files of the version read, through all files in between.

    `row_sources`: the sources of the transaction's new files, by canonical path. Rows without a
    source are left out.
    """
    here = TracedRows(path=path, before=rows, after=rows, is_update=np.zeros(len(rows), np.bool_))
    pending = [here]
    while pending:
        one = pending.pop()
        known = row_sources.get(one.path)
        if known is None:
            if one.path != path:
                yield one
            continue
        found = known if isinstance(known, Origins) else _unpacked(known, vectors)
        files, positions = found.files[one.before], found.rows[one.before]
        for ordinal in np.unique(files[files != NO_FILE]):
            chosen = files == ordinal
            pending.append(
                TracedRows(
                    path=canonical_path(found.sources[int(ordinal)]),
                    before=positions[chosen],
                    after=one.after[chosen],
                    is_update=one.is_update[chosen] | found.is_update,
                )
            )


def without_vectors(
    row_sources: Mapping[str, RowSources], vectors: Vectors
) -> dict[str, RowSources]:
    """Return the same sources in a form that no deletion vector is needed to read."""
    return {
        path: one
        if isinstance(one, Origins) or not _names_vectors(one)
        else _unpacked(one, vectors)
        for path, one in row_sources.items()
    }


def _names_vectors(runs: tuple[Source, ...]) -> bool:
    return any(run.vector_id is not None or run.positions_id is not None for run in runs)


def _unpacked(runs: tuple[Source, ...], vectors: Vectors) -> Origins:
    """Return the origins of a file's rows that were packed of these runs, in order."""
    files = np.repeat(np.arange(len(runs), dtype=np.int32), [run.rows for run in runs])
    rows = [_live(run, vectors) for run in runs]
    return Origins(
        sources=tuple(run.path for run in runs),
        files=files,
        rows=np.concatenate([np.empty(0, np.int64), *rows]),
        is_update=False,
    )


def _live(run: Source, vectors: Vectors) -> Positions:
    """Return the physical positions of a run's rows, as recorded or by rank among live rows."""
    if run.positions_id is not None:
        return as_array(vectors.of_id(run.positions_id)).astype(np.int64)
    end = run.first + run.rows
    if run.vector_id is None:
        return np.arange(run.first, end, dtype=np.int64)
    deleted = as_array(vectors.of_id(run.vector_id)).astype(np.int64)
    every = np.ones(end + len(deleted), np.bool_)
    every[deleted[deleted < len(every)]] = False
    return np.flatnonzero(every)[run.first : end].astype(np.int64)
