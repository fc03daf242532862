"""ALTER TABLE ... ALTER COLUMN ... SYNC IDENTITY: the command."""

from __future__ import annotations

from txlake.commands.tables import environment_of
from txlake.conflict.locking import LockMode
from txlake.ddl.identity import require_identity, sync_identity
from txlake.protocol.identity import IdentityColumn, marks_of
from txlake.session.command import command, giving_nothing, its_table, served
from txlake.session.context import Context
from txlake.session.engine import Handle
from txlake.sql.statements import SyncIdentity
from txlake.sql.statements.names import quoted


def sync(context: Context, statement: SyncIdentity) -> None:
    """Carry out ALTER COLUMN ... SYNC IDENTITY: raise the high-water mark to the column's values.

    The counter of a table of the lake is raised at once, outside of the transaction. Raises
    InvalidRequest for a column that isn't an identity, and on a branch for a table that the branch
    began with: the counter is main's too.
    """
    handle = context.tables.require(statement.table)
    if handle.entry is not None and handle.entry.origin_id is not None:
        context.engine.require_main("SYNC IDENTITY")
    work = context.work(handle)
    table = work.snapshot
    column = require_identity(table, statement.column)
    value = _furthest_value(context, handle, column)
    change = sync_identity(table, column, value, environment_of(context, handle))
    context.transaction.stage(handle, change)
    after = context.snapshot(handle)
    mark = marks_of(after.schema, after.table).get(column.physical_name)
    if mark is not None:
        # The next INSERT takes its values from this counter, whichever version it reads.
        context.transaction.identities(handle).raise_to(table.metadata.id, column, mark)


def _furthest_value(context: Context, handle: Handle, column: IdentityColumn) -> int | None:
    """Return the column's furthest value in the direction of its step; None without values."""
    function = "max" if column.step > 0 else "min"
    text = f"SELECT {function}({quoted(column.name, always=True)}) AS mark FROM {{t}}"
    [row] = context.plane.query(text, {"t": context.scan(handle)}).collect()
    value: int | None = row[0]
    return value


COMMANDS = served(command(SyncIdentity, giving_nothing(sync), its_table(LockMode.SCH_M)))
