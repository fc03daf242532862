"""ANALYZE TABLE: what the log says of each file's columns, made anew from the files' footers.

Reads footers only, on the driver. Source: PROTOCOL.md, "Add File and Remove File" (a file is listed
again to update its statistics), "Per-file Statistics".
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec

from txlake.conflict.locking import LockMode
from txlake.datafiles.restating import restated
from txlake.log.files import Files
from txlake.log.snapshot import unknown_column
from txlake.protocol.actions import Add
from txlake.protocol.statistics import FileStatistics
from txlake.session.command import TableLock, command, giving_nothing
from txlake.session.context import Context
from txlake.statements import AnalyzeTable
from txlake.transaction.change import Change
from txlake.transaction.data_plane import TableData

_THREADS = 16


def analyze(context: Context, statement: AnalyzeTable) -> None:
    """ANALYZE TABLE: with DELTA, files get the statistics that their footers tell.

    The plain one writes nothing: what it would collect is kept nowhere but in the log.

    Raises InvalidRequest for a column that there isn't.
    """
    handle = context.require(statement.table)
    table = context.snapshot(handle)
    for column in statement.columns:
        if table.schema.resolve(column) is None:
            raise unknown_column(".".join(column), table)
    if statement.delta:
        before = context.transaction.open(handle).base.files
        context.transaction.stage(handle, recomputed(context.work(handle), before))


def recomputed(work: TableData, before: Files) -> Change:
    """The change that lists the files anew whose statistics aren't those of their footers.

    `before`: the files that the transaction read; of its own ones the rows stay new. Raises
    CorruptTable for a file that isn't there, or is no Parquet.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        found = pool.map(partial(_restated, work), work.snapshot.files.adds())
        listed = [
            add if add.key not in before else msgspec.structs.replace(add, data_change=False)
            for add in found
            if add is not None
        ]
    return Change(
        operation="COMPUTE STATS",
        parameters={"predicate": []},
        actions=tuple(listed),
        metrics={"numFiles": len(listed)},
    )


def _restated(work: TableData, add: Add) -> Add | None:
    """The file with other statistics; None where they are the same."""
    stats = restated(work.footer(add), add, work.snapshot).to_json()
    if FileStatistics.from_json(stats) == FileStatistics.from_json(add.stats):
        return None
    return msgspec.structs.replace(add, stats=stats)


def _its_lock(statement: AnalyzeTable) -> Sequence[TableLock]:
    return [(statement.table, LockMode.IX if statement.delta else LockMode.SCH_S)]


COMMANDS = dict([command(AnalyzeTable, giving_nothing(analyze), _its_lock)])
