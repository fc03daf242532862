"""ALTER TABLE ... ALTER COLUMN ... SYNC IDENTITY: set the high water mark by the rows' values."""

from __future__ import annotations

from txlake.commit.change import Change
from txlake.ddl.environment import EVERY_ROW, Environment
from txlake.ddl.feature_traces import with_schema
from txlake.ddl.operations import as_json, column_for_history
from txlake.ddl.table_metadata import metadata_actions
from txlake.errors import InvalidRequest
from txlake.log.snapshot import Snapshot, unknown_column
from txlake.protocol.identity import LONG_MAX, LONG_MIN, IdentityColumn, identity_of, with_marks
from txlake.protocol.schema_rules import Path, column_text


def require_identity(table: Snapshot, path: Path) -> IdentityColumn:
    """Return the identity column at a path. Raises InvalidRequest for any other column."""
    item = table.schema.resolve(path)
    if item is None:
        raise unknown_column(".".join(path), table)
    column = identity_of(item, table.table) if len(path) == 1 else None
    if column is None:
        raise InvalidRequest(
            f"{table.table}: [DELTA_IDENTITY_COLUMNS_ALTER_NON_IDENTITY_COLUMN] column "
            f"{column_text(path)} is no identity column: SYNC IDENTITY is "
            "for one GENERATED ... AS IDENTITY"
        )
    return column


def sync_identity(
    table: Snapshot, column: IdentityColumn, value: int | None, environment: Environment
) -> Change:
    """Return the change by which the next identity value follows the rows' furthest value.

    `value`: the furthest value in the direction of the step; None without rows. The change has no
    actions where the high water mark is that far already: it never moves back.

    Raises InvalidRequest when no BIGINT is left beyond the value.
    """
    reached = None if value is None else column.mark_covering(value)
    if reached is not None and not LONG_MIN <= reached <= LONG_MAX:
        raise InvalidRequest(
            f"{table.table}: identity column {column.name!r} (START WITH {column.start} INCREMENT "
            f"BY {column.step}) can't go on beyond {value}, which a row has: no BIGINT is left; "
            "delete that row, or give it a smaller value"
        )
    marks = {} if reached is None else {column.physical_name: reached}
    schema = with_marks(table.schema, marks, table.table)
    item = schema.find(column.name)
    assert item is not None
    return Change(
        operation="CHANGE COLUMN",
        parameters={"column": as_json(column_for_history((), item))},
        actions=metadata_actions(table, with_schema(table.metadata, schema), environment),
        reads=(EVERY_ROW,),
    )
