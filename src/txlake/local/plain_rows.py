"""Read few rows of a table, or all rows of a small one, in the driver, without a Spark session.

Owns when it may: the files are few and small, and every value is read exactly as Spark would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from txlake.errors import CorruptTable
from txlake.local.candidate_rows import arrow_rows_at, find_candidates, stored_fields
from txlake.local.choice import FILES_MAX, Declined, attempt
from txlake.local.file_rows import UNREADABLE, deleted_rows, fetch_beginnings, row_count
from txlake.local.table import LocalTable
from txlake.log.files import adds_of
from txlake.log.predicates import Predicate
from txlake.protocol.actions import Add
from txlake.protocol.collations import collated_columns
from txlake.protocol.statistics import FileStatistics
from txlake.protocol.types import Field

_BYTES_MAX = 64 * 1024 * 1024
_ROWS_MAX = 100_000


def plain_rows(
    work: LocalTable,
    files: pa.Table,
    predicate: Predicate | None,
    limit: int | None,
    columns: Sequence[str] | None = None,
) -> pa.Table | None:
    """Return the live rows of the files for which the predicate is true, at most `limit`.

    They have these columns of the table, by logical name; all in its order for None. Rows come by
    file and position. None if Spark has to read them: the driver can't decide the predicate or read
    a column exactly, or there are too many rows, files or bytes. Errors beside Declined pass.
    """
    names = work.snapshot.schema.names if columns is None else columns
    return attempt("SELECT", work, lambda: _plain_rows(work, files, predicate, limit, names))


def _plain_rows(
    work: LocalTable,
    files: pa.Table,
    predicate: Predicate | None,
    limit: int | None,
    columns: Sequence[str],
) -> pa.Table:
    """Return the rows as `plain_rows` does. Raises Declined where Spark has to read them."""
    snapshot = work.snapshot
    # Of files in other stores only the parts that are needed are read.
    reads_parts = work.is_remote and not (predicate is None and limit is None)
    is_large = not reads_parts and sum(add.size for add in adds_of(files)) > _BYTES_MAX
    if files.num_rows > FILES_MAX or is_large:
        raise Declined(f"there are more than {FILES_MAX} files, or {_BYTES_MAX:,} bytes")
    if collated_columns(snapshot.schema):
        raise Declined("the table has columns that the driver can't read as Spark does")
    positions = _positions(work, files, predicate, limit, stored_fields(work, columns))
    return arrow_rows_at(work, files, positions, columns=columns)


def _positions(
    work: LocalTable,
    files: pa.Table,
    predicate: Predicate | None,
    limit: int | None,
    later: Sequence[Field],
) -> Mapping[int, np.ndarray]:
    """Return the positions of the rows to return, ascending, by file ordinal.

    `later` as for `find_candidates`. Raises Declined if the predicate isn't certain for every
    candidate, and as `find_candidates`.
    """
    if predicate is None:
        positions = _all_positions(work, files, limit)
    else:
        candidates = find_candidates(work, files, predicate, _ROWS_MAX, later=later)
        if not candidates.certain:
            raise Declined("the driver can't decide the condition for every row")
        positions = candidates.positions
    return positions if limit is None else _first(positions, limit)


def _all_positions(
    work: LocalTable, files: pa.Table, limit: int | None
) -> Mapping[int, np.ndarray]:
    """Return the live rows' ascending positions, by file; files after those that fill the limit are
    left out.

    Raises Declined for a file that can't be read, and for too many rows.
    """
    live_positions: dict[int, np.ndarray] = {}
    count = 0
    adds = adds_of(files)
    try:
        fetch_beginnings(work, _first_files(adds, limit))
        for ordinal, add in enumerate(adds):
            if limit is not None and count >= limit:
                break
            is_live = np.ones(row_count(work, add), dtype=bool)
            deleted = deleted_rows(work, add)
            is_live[deleted[deleted < len(is_live)]] = False
            live = np.flatnonzero(is_live)
            if len(live):
                live_positions[ordinal] = live
                count += len(live)
    except (*UNREADABLE, CorruptTable) as error:
        raise Declined(str(error)) from error  # Spark says what is wrong with the file
    returned = count if limit is None else min(count, limit)
    if returned > _ROWS_MAX:
        raise Declined(f"there are more than {_ROWS_MAX:,} rows")
    return live_positions


def _first_files(adds: Sequence[Add], limit: int | None) -> Sequence[Add]:
    """Return the first files that have so many live rows by their statistics, all files without a
    limit. A file of which rows aren't counted ends them.
    """
    if limit is None:
        return adds
    for index, add in enumerate(adds):
        counted = FileStatistics.from_json(add.stats).num_records
        if counted is None or limit <= 0:
            return adds[: index + 1]
        limit -= counted - (0 if add.deletion_vector is None else add.deletion_vector.cardinality)
    return adds


def _first(positions: Mapping[int, np.ndarray], limit: int) -> Mapping[int, np.ndarray]:
    """Return the first `limit` positions, by file; files without any are left out."""
    first: dict[int, np.ndarray] = {}
    for ordinal, file_positions in positions.items():
        if limit > 0 and len(file_positions):
            first[ordinal] = file_positions[:limit]
            limit -= len(first[ordinal])
    return first
