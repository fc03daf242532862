"""The third tier of conflict checks by Spark: a statement's own condition over the rows in doubt.

Owns that one job, over just the files concerned and in them just the rows that a winner took or
brought. What fails leaves the doubt. Source: docs/how-a-commit-works.md, rule 4.
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
from txlake.log.files import files_table
from txlake.protocol.statistics import FileStatistics
from txlake.spark.reading import FILE, ROW
from txlake.spark.spark_errors import spark_errors
from txlake.sql.statements import condition_text

_ROWS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class SparkProbe:
    """`conflict.context.RowProbe` by Spark, for reads that carry their condition.

    Attributes:
        work: gives the table as the transaction read it; None where Spark isn't running, and
            starting it would take longer than running the transaction again.
        active: as `DataPlane.active`.
    """

    work: Callable[[], TableData | None]
    active: Callable[[], AbstractContextManager[None]] = nullcontext

    def matching(self, read: Read, rows: Sequence[FileRows]) -> Sequence[FileRows] | None:
        """Those of the rows that the read matches, up to 1,000; None when that can't be told."""
        condition = read.condition
        others = [_others(one) for one in rows]
        if not isinstance(condition, Condition) or None in others:
            return None
        if len({one.file.path for one in rows}) < len(rows):  # a scan knows a file by its path
            return None
        work = self.work()
        if work is None:
            return None
        try:
            if condition.zone not in (
                None,
                work.time_zone.name,
            ):  # it was set since the statement ran
                return None
            if not work.rules.agrees_on(
                condition_text(condition.expression)
            ):  # it may mean another
                return None
            with spark_errors(), self.active():
                found = _matches(work, condition, rows, others)
        except TxlakeError:  # a file that is gone, a value that fails the condition: doubt
            return None
        return [
            replace(one, positions=found[place]) for place, one in enumerate(rows) if place in found
        ]


def _others(one: FileRows) -> BitMap64 | None:
    """The positions that aren't asked about, beyond the file's own deleted ones; None: unknown."""
    others = BitMap64()
    if one.positions is not None:
        count = FileStatistics.from_json(one.file.stats).num_records
        if count is None:
            return None
        others.add_range(0, count)
        others -= one.positions
    return others


def _matches(
    work: TableData,
    condition: Condition,
    rows: Sequence[FileRows],
    others: Sequence[BitMap64 | None],
) -> dict[int, BitMap64]:
    """By place in `rows`, the positions of rows for which the condition is true."""
    files = files_table([one.file for one in rows])
    hidden = {place: gone for place, gone in enumerate(others) if gone}
    frame = work.qualified(work.scan(files, positions=True, deleted=hidden), condition.alias).where(
        work.column_of(condition.expression)
    )
    found: dict[int, BitMap64] = {}
    for place, position in frame.select(FILE, ROW).limit(_ROWS_MAX).collect():
        found.setdefault(place, BitMap64()).add(position)
    return found
