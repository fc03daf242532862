"""Backfill of row ids: files without them get ids in batches before row tracking is turned on.

The commit that turns row tracking on gives ids to files that were added meanwhile. For a table with
few files, and inside an explicit transaction, that commit is enough. Source: PROTOCOL.md, "Row
Tracking".
"""

from __future__ import annotations

import msgspec
import pyarrow as pa

from txlake.commands.steps import commit_step
from txlake.commit import row_tracking
from txlake.commit.change import Change
from txlake.commit.table_transaction import TableTransaction
from txlake.ddl.alter import alter
from txlake.ddl.alter_features import has_row_ids
from txlake.ddl.environment import Environment
from txlake.errors import InvalidRequest
from txlake.log.files import adds_of
from txlake.log.snapshot import Snapshot
from txlake.protocol.properties import FEATURE_PREFIX, canonical_key, is_true
from txlake.session.context import Context
from txlake.session.engine import Handle
from txlake.sql.statements import SetProperties


def backfill_row_ids(
    context: Context, handle: Handle, statement: SetProperties, environment: Environment
) -> bool:
    """Give row ids to a table's files in batches, if SET TBLPROPERTIES turns row tracking on.

    Return whether it did; the statement then has to go on with the newest version. Otherwise
    nothing is done: in an explicit transaction, and for at most `Settings.relisted_files_max` files
    without ids.

    Raises InvalidRequest, before anything is committed, for properties that can't be set and for a
    file whose statistics don't state its number of rows.
    """
    batch_size = context.engine.settings.relisted_files_max
    table = context.snapshot(handle)
    if context.transaction.explicit or not _enables_row_tracking(statement, table):
        return False
    if has_row_ids(table).count(False) <= batch_size:
        return False

    change = alter(statement, table, environment)
    TableTransaction(handle.log, table).stage(change.actions, operation=change.operation)
    _require_counts(table)

    def add_support(own: Context, target: Handle) -> Change | None:
        """Return the change after which every new file gets ids."""
        # After this commit every new file gets ids: only the existing files are left.
        table = own.snapshot(target)
        properties = {f"{FEATURE_PREFIX}rowTracking": "supported"}
        if is_true(table.metadata.configuration, row_tracking.SUSPENDED):
            properties[row_tracking.SUSPENDED] = "false"
        return alter(SetProperties(statement.table, tuple(properties.items())), table, environment)

    def assign_batch(own: Context, target: Handle) -> Change | None:
        return _next_batch(own.snapshot(target), batch_size)

    commit_step(context, handle, add_support)
    while commit_step(context, handle, assign_batch):
        pass
    return True


def _enables_row_tracking(statement: SetProperties, table: Snapshot) -> bool:
    """Return whether the statement turns row tracking on; invalid properties are refused later."""
    before = table.metadata.configuration
    properties = {canonical_key(key): value for key, value in statement.properties}
    after = {**before, **properties}
    return (
        row_tracking.is_enabled(after)
        and not row_tracking.is_enabled(before)
        and row_tracking.contradiction(after) is None
    )


def _require_counts(table: Snapshot) -> None:
    """Raise InvalidRequest for a file without ids whose number of rows is unknown."""
    files = table.select(None).filter(_without_row_ids(table))
    for path, stats in zip(files["path"].to_pylist(), files["stats"].to_pylist(), strict=True):
        if row_tracking.num_records(stats) is None:
            raise InvalidRequest(
                f"{table.table}: file {path}: expected statistics with numRecords, by which "
                "its rows get ids; ANALYZE TABLE ... COMPUTE DELTA STATISTICS makes them"
            )


def _without_row_ids(table: Snapshot) -> pa.Array:
    """Return, for each live file, whether its rows have no ids."""
    return pa.array([not has_ids for has_ids in has_row_ids(table)], pa.bool_())


def _next_batch(table: Snapshot, batch_size: int) -> Change:
    """Return the change that adds the next files without ids again, so that its commit assigns ids.

    It has no actions if no file lacks ids. Raises InvalidRequest if the commit wouldn't assign ids,
    because another transaction suspended or dropped row tracking between batches.
    """
    adds = [
        msgspec.structs.replace(add, data_change=False)
        for add in adds_of(table.select(None).filter(_without_row_ids(table)).slice(0, batch_size))
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
