"""The third tier of conflict checks, by Spark: the read's condition on the winner's rows.

Owns that one job, over only the files concerned and in them only the rows that the winning
transaction deleted or added. If it fails, the conflict stands. Source: docs/how-a-commit-works.md,
rule 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from pyroaring import BitMap64

from txlake.commit.data_plane import Condition, TableData
from txlake.conflict.context import FileRows
from txlake.conflict.footprint import Read
from txlake.errors import TxlakeError
from txlake.local.control_columns import FILE, ROW
from txlake.log.files import files_table
from txlake.protocol.statistics import FileStatistics
from txlake.spark.spark_errors import spark_errors
from txlake.sql.statements import condition_text

_ROWS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class SparkProbe:
    """Implements `conflict.context.RowProbe` by Spark, for reads that carry their condition.

    Attributes:
        work: returns the table as the transaction read it; None if Spark isn't running, since
            starting it would take longer than repeating the transaction.
        active: as `DataPlane.active`.
    """

    work: Callable[[], TableData | None]
    active: Callable[[], AbstractContextManager[None]] = nullcontext

    def matching(self, read: Read, rows: Sequence[FileRows]) -> Sequence[FileRows] | None:
        """Return the rows that the read matches, by file, up to 1,000; None if that is unknown.

        Files without a matching row are left out. Runs a Spark job; a TxlakeError gives None.
        """
        condition = read.condition
        excluded = [_excluded_positions(candidate) for candidate in rows]
        if not isinstance(condition, Condition) or None in excluded:
            return None
        if len({candidate.file.path for candidate in rows}) < len(
            rows
        ):  # a scan identifies files by path
            return None
        work = self.work()
        if work is None:
            return None
        try:
            if condition.zone not in (
                None,
                work.time_zone.name,
            ):  # the session's zone has changed
                return None
            if not work.rules.agrees_on(
                condition_text(condition.expression)
            ):  # the text may mean something else now
                return None
            with spark_errors(), self.active():
                matches = _matching_positions(work, condition, rows, excluded)
        except TxlakeError:  # e.g. a missing file, or a value that the condition fails on
            return None
        return [
            replace(candidate, positions=matches[ordinal])
            for ordinal, candidate in enumerate(rows)
            if ordinal in matches
        ]


def _excluded_positions(candidate: FileRows) -> BitMap64 | None:
    """Return the positions of the file's rows that aren't candidates; None if its rows aren't
    counted.

    Empty if all rows are candidates (`positions` is None).
    """
    excluded = BitMap64()
    if candidate.positions is not None:
        count = FileStatistics.from_json(candidate.file.stats).num_records
        if count is None:
            return None
        excluded.add_range(0, count)
        excluded -= candidate.positions
    return excluded


def _matching_positions(
    work: TableData,
    condition: Condition,
    rows: Sequence[FileRows],
    excluded: Sequence[BitMap64 | None],
) -> dict[int, BitMap64]:
    """Return the positions of rows for which the condition is true, by index in `rows`.

    At most 1,000 in all.
    """
    files = files_table([candidate.file for candidate in rows])
    deleted = {ordinal: positions for ordinal, positions in enumerate(excluded) if positions}
    frame = work.qualified(
        work.scan(files, positions=True, deleted=deleted), condition.alias
    ).where(work.column_of(condition.expression))
    matches: dict[int, BitMap64] = {}
    for ordinal, position in frame.select(FILE, ROW).limit(_ROWS_MAX).collect():
        matches.setdefault(ordinal, BitMap64()).add(position)
    return matches
