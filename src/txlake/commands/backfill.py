"""Row ids for the files of a table that hasn't had them: given in batches, before it tracks rows.

Owns the batches. The commit that turns row tracking on gives the rest, whatever came between. A
table with few files, and one that a transaction changes, needs no more than that commit. Source:
PROTOCOL.md, "Row Tracking".
"""

from __future__ import annotations

import msgspec
import pyarrow as pa

from txlake.commands.steps import committed
from txlake.ddl.alter_features import add_feature, numbered
from txlake.ddl.environment import Environment
from txlake.errors import InvalidRequest
from txlake.log.files import adds_of
from txlake.log.snapshot import Snapshot
from txlake.protocol.properties import canonical_key
from txlake.session.context import Context
from txlake.session.engine import Handle
from txlake.statements import AddFeature, SetProperties
from txlake.transaction import row_tracking
from txlake.transaction.change import Change

_FEATURE = "rowTracking"


def backfilled(
    context: Context, handle: Handle, statement: SetProperties, environment: Environment
) -> bool:
    """Gives ids to the files that are there, where SET TBLPROPERTIES turns row tracking on.

    Whether it did: the statement goes on with the newest version then. It doesn't for few files.

    Raises InvalidRequest for a file whose statistics don't state its number of rows.
    """
    at_once = context.engine.settings.relisted_files_max
    table = context.snapshot(handle)
    if context.transaction.explicit or not _turns_on(statement, table):
        return False
    if numbered(table).count(False) <= at_once:
        return False

    def support(own: Context, where: Handle) -> Change | None:
        # From here on every new file gets ids: only those that are there now are left to do.
        wanted = AddFeature(statement.table, _FEATURE)
        return add_feature(wanted, own.snapshot(where), environment)

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


def _batch(table: Snapshot, at_once: int) -> Change | None:
    """The next files without ids, listed again: the commit gives them some."""
    lacking = pa.array([not has for has in numbered(table)], pa.bool_())
    adds = [
        msgspec.structs.replace(add, data_change=False)
        for add in adds_of(table.select(None).filter(lacking).slice(0, at_once))
    ]
    for add in adds:
        if row_tracking.num_records(add.stats) is None:
            raise InvalidRequest(
                f"{table.table}: file {add.path}: expected statistics with numRecords, by which "
                "its rows get ids; ANALYZE TABLE ... COMPUTE DELTA STATISTICS makes them"
            )
    return Change(
        operation="ROW TRACKING BACKFILL",
        actions=tuple(adds),
        metrics={"numFiles": len(adds)},
    )
