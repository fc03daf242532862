"""The changes of one transaction, by table: the change feeds at one instant of the lake.

Owns the way from an instant to the versions that became true then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from txlake.commit.feed_rules import has_feed
from txlake.conflict.locking import LockMode
from txlake.errors import InvalidRequest
from txlake.session.session import Session
from txlake.sql.statements import ChangeRange, ReadChanges, TableName, TimeTravel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def changes_of(session: Session, sequence: int) -> dict[str, DataFrame]:
    """Return the changes that the transaction of an instant made, by table name, as DataFrames.

    Only tables that still exist and had the change feed at that version are included; empty if
    there are none. Raises InvalidRequest for an instant that doesn't exist or isn't an int, and
    Unavailable for one whose versions the catalog may have pruned (`Settings.commits_kept`).
    """
    if type(sequence) is not int:
        raise InvalidRequest(
            f"sequence={sequence!r}: expected the number of an instant of the lake"
        )
    session.follow_setting()
    catalog = session.engine.catalog.of_lake()
    made = {one.table_id: one.version for one in catalog.ledger.commits_at(sequence)}
    found = {}
    databases = (one.name for one in catalog.databases() if made)
    for entry in (entry for name in databases for entry in catalog.tables(name)):
        version = made.get(entry.id)
        if version is None:
            continue
        table = TableName((entry.database, entry.name))
        moment = TimeTravel(version=version)
        with session.statement_context(None, [(table, LockMode.SCH_S)]) as context:
            is_told = has_feed(context.snapshot(context.tables.require(table), moment))
        if is_told:
            frame = session.execute_in(None, ReadChanges(table, ChangeRange(moment, moment)))
            found[str(table)] = frame
    return found
