"""ANALYZE TABLE: recompute the column statistics in the log from the files' footers.

Reads footers only, on the driver. Source: PROTOCOL.md, "Add File and Remove File" (a file is added
again to update its statistics), "Per-file Statistics".
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec

from txlake.commit.change import Change
from txlake.commit.data_plane import TableData
from txlake.conflict.locking import LockMode
from txlake.datafiles.recomputed_statistics import recomputed_statistics
from txlake.log.files import Files, live_row_count
from txlake.log.snapshot import unknown_column
from txlake.protocol.actions import Add
from txlake.protocol.statistics import FileStatistics
from txlake.session.command import TableLock, command, giving_nothing, served
from txlake.session.context import Context
from txlake.sql.statements import AnalyzeTable

_THREADS = 16


def analyze(context: Context, statement: AnalyzeTable) -> None:
    """Carry out ANALYZE TABLE: with DELTA, replace the files' statistics by their footers'.

    Without DELTA nothing is written: the log is the only place that keeps statistics.

    Raises InvalidRequest for an unknown table or column, and as `recompute_statistics`.
    """
    handle = context.tables.require(statement.table)
    table = context.snapshot(handle)
    for column in statement.columns:
        if table.schema.resolve(column) is None:
            raise unknown_column(".".join(column), table)
    if statement.delta:
        before = context.transaction.open(handle).base.files
        change = recompute_statistics(
            context.work(handle), before, only_missing=statement.only_missing
        )
        context.transaction.stage(handle, change)


def recompute_statistics(work: TableData, before: Files, *, only_missing: bool = False) -> Change:
    """Return the change that adds again each file whose statistics differ from its footer's.

    `before`: the files at the transaction's read version. Files that the transaction added itself
    keep `dataChange`. With `only_missing` the footers of files with statistics aren't read.

    Raises CorruptTable for a file that is missing or isn't Parquet.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        files = [
            add
            for add in work.snapshot.files.adds()
            if not only_missing or live_row_count(add) is None
        ]
        updated = pool.map(partial(_with_footer_statistics, work), files)
        adds = [
            add if add.key not in before else msgspec.structs.replace(add, data_change=False)
            for add in updated
            if add is not None
        ]
    return Change(
        operation="COMPUTE STATS",
        parameters={"predicate": []},
        actions=tuple(adds),
        metrics={"numFiles": len(adds)},
    )


def _with_footer_statistics(work: TableData, add: Add) -> Add | None:
    """Return the file with its footer's statistics; None if it has them already."""
    stats = recomputed_statistics(work.footer(add), add, work.snapshot).to_json()
    if FileStatistics.from_json(stats) == FileStatistics.from_json(add.stats):
        return None
    return msgspec.structs.replace(add, stats=stats)


def _locks(statement: AnalyzeTable) -> Sequence[TableLock]:
    return [(statement.table, LockMode.IX if statement.delta else LockMode.SCH_S)]


COMMANDS = served(command(AnalyzeTable, giving_nothing(analyze), _locks))
