"""Row ids for the files of a table that hasn't had them: given in batches, before it tracks rows.

Owns the batches. The commit that turns row tracking on gives the rest, whatever came between. A
table with few files, and one that a transaction changes, needs no more than that commit. Source:
PROTOCOL.md, "Row Tracking".
"""

from __future__ import annotations

import msgspec
import pyarrow as pa

from txlake.commands.steps import committed
from txlake.ddl.alter import alter
from txlake.ddl.alter_features import numbered
from txlake.ddl.environment import Environment
from txlake.errors import InvalidRequest
from txlake.log.files import adds_of
from txlake.log.snapshot import Snapshot
from txlake.protocol.properties import FEATURE_PREFIX, canonical_key, is_true
from txlake.session.context import Context
from txlake.session.engine import Handle
from txlake.statements import SetProperties
from txlake.transaction import row_tracking
from txlake.transaction.change import Change
from txlake.transaction.table_transaction import TableTransaction


def backfilled(
    context: Context, handle: Handle, statement: SetProperties, environment: Environment
) -> bool:
    """Gives ids to the files that are there, where SET TBLPROPERTIES turns row tracking on.

    Whether it did: the statement goes on with the newest version then. It doesn't for few files.

    Raises InvalidRequest for what can't be set, and for a file whose statistics don't state its
    number of rows, before anything is committed.
    """
    at_once = context.engine.settings.relisted_files_max
    table = context.snapshot(handle)
    if context.transaction.explicit or not _turns_on(statement, table):
        return False
    if numbered(table).count(False) <= at_once:
        return False

    change = alter(statement, table, environment)
    TableTransaction(handle.log, table).stage(change.actions, operation=change.operation)
    _require_counts(table)

    def support(own: Context, where: Handle) -> Change | None:
        # From here on every new file gets ids: only those that are there now are left to do.
        now = own.snapshot(where)
        wanted = {f"{FEATURE_PREFIX}rowTracking": "supported"}
        if is_true(now.metadata.configuration, row_tracking.SUSPENDED):
            wanted[row_tracking.SUSPENDED] = "false"
        return alter(SetProperties(statement.table, tuple(wanted.items())), now, environment)

    def batch(own: Context, where: Handle) -> Change | None:
        return _batch(own.snapshot(where), at_once)

    committed(context, handle, support)
    while committed(context, handle, batch):
        pass
    return True


def _turns_on(statement: SetProperties, table: Snapshot) -> bool:
    """Whether files get ids by it; what can't be set is refused when the rest is."""
    before = table.metadata.configuration
    given = {canonical_key(key): value for key, value in statement.properties}
    after = {**before, **given}
    return (
        row_tracking.is_enabled(after)
        and not row_tracking.is_enabled(before)
        and row_tracking.contradiction(after) is None
    )


def _require_counts(table: Snapshot) -> None:
    """The number of rows of each file is known, by which they get ids."""
    files = table.select(None).filter(_lacking(table))
    for path, stats in zip(files["path"].to_pylist(), files["stats"].to_pylist(), strict=True):
        if row_tracking.num_records(stats) is None:
            raise InvalidRequest(
                f"{table.table}: file {path}: expected statistics with numRecords, by which "
                "its rows get ids; ANALYZE TABLE ... COMPUTE DELTA STATISTICS makes them"
            )


def _lacking(table: Snapshot) -> pa.Array:
    """Of each file, whether its rows have no ids."""
    return pa.array([not has for has in numbered(table)], pa.bool_())


def _batch(table: Snapshot, at_once: int) -> Change | None:
    """The next files without ids, listed again: the commit gives them some.

    Raises InvalidRequest where it wouldn't, as somebody else turned that off between batches.
    """
    adds = [
        msgspec.structs.replace(add, data_change=False)
        for add in adds_of(table.select(None).filter(_lacking(table)).slice(0, at_once))
    ]
    if adds and not row_tracking.assigns(table.protocol, table.metadata.configuration):
        raise InvalidRequest(
            f"{table.table} at version {table.version}: row tracking was suspended or dropped "
            f"while files got row ids, and is not turned on; {len(adds)} files or more have none. "
            "Set the properties again"
        )
    return Change(
        operation="ROW TRACKING BACKFILL",
        actions=tuple(adds),
        metrics={"numFiles": len(adds)},
    )
