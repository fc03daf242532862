"""The change data files of a transaction, written at its commit, when its net changes are known.

Owns when they are written. Which rows they hold is `net_changes`' business, how they are written
the data plane's.
"""

from __future__ import annotations

from collections.abc import Callable

from txlake.commit.data_plane import TableData
from txlake.commit.feed_rules import without_row_tracking
from txlake.commit.table_transaction import TableTransaction
from txlake.datafiles.vectors import VectorCache
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add
from txlake.protocol.statistics import FileStatistics


def write_changes(table: TableTransaction, work_on: Callable[[Snapshot], TableData]) -> None:
    """Write and stage the change data files that a transaction needs for a table, if any.

    If its statements changed no rows on balance, the table's files are marked as unchanged: without
    change data files a reader of the feed would take all of their rows as changes. A table without
    the change feed is left as it is.

    `work_on` returns the data plane's access to the table at a snapshot.
    """

    def open_work() -> TableData:
        return work_on(table.view.apply([without_row_tracking(table.view.metadata)]))

    vectors = VectorCache(table.log.store, table.log.external_vectors)
    changed = table.changes(vectors, lambda add: rows_of(add, open_work))
    if changed is None:
        return
    if not changed:
        table.mark_rows_unchanged()
    else:
        table.add_change_files(open_work().write_changes(changed))


def rows_of(add: Add, open_work: Callable[[], TableData]) -> int:
    """Return a file's number of rows, from its statistics or else from its footer."""
    count = FileStatistics.from_json(add.stats).num_records
    return open_work().footer(add).num_rows if count is None else count
