"""The catalog is kept short: what nobody can ask for any more is removed, in small steps.

Owns what may go of the book of commits, and from which instant on the book is whole (its floor).
For each instant from there on each table's version is known, and so is whether a transaction was
ratified. Commits that wait to be published stay, whatever their age.

A step is one or more database transactions of its own. Nothing waits for it but, for a moment, who
ratifies: the heartbeat of a session does it, and who opens one.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog.counter_rows import lock_sequence, newest_sequence
from txlake.catalog.database import Database
from txlake.catalog.owners import reap_due
from txlake.catalog.relations import bare, commits, counters, tables, transactions
from txlake.catalog.shielding import shielded
from txlake.errors import InvalidRequest, OutcomeUnknown, TxlakeError, Unavailable

_log = logging.getLogger(__name__)

_FLOOR = "floor"
_ROWS_AT_ONCE = 1_000
# Sessions may be found alive again after their lease: they are removed when they surely aren't.
_DEAD_MS = 3_600_000


@shielded()
class Pruner:
    """Keeps the newest commits of one catalog, and what open transactions still read.

    `kept`: how many of the lake's newest instants are kept in any case, at least one.

    Raises InvalidRequest for fewer.
    """

    def __init__(self, on: Database, commits_kept: int) -> None:
        if commits_kept < 1:
            raise InvalidRequest(f"commits_kept={commits_kept}: expected at least 1")
        self._on = on
        self._commits_kept = commits_kept

    def step(self) -> None:
        """Removes what there is to remove; costs one look when there is nothing. Never raises."""
        try:
            reap_due(self._on, _DEAD_MS)
            if self._raise_floor():
                while self._delete_stale():
                    pass
        except TxlakeError as error:
            _log.warning("the catalog isn't pruned now: %s", error)

    def _raise_floor(self) -> bool:
        """Raises the floor where that is worth it; whether it did."""
        with self._on.reading() as connection:
            floor, new = self._floors(connection)
        if new - floor < max(1, self._commits_kept // 10):
            return False
        with self._on.writing() as connection:
            lock_sequence(connection)  # nobody ratifies, nor makes the row, at the same time
            floor, new = self._floors(connection)
            if new <= floor:
                return False
            change = sa.update(counters).where(counters.c.name == _FLOOR).values(value=new)
            if connection.execute(change).rowcount == 0:
                connection.execute(sa.insert(counters).values(name=_FLOOR, value=new))
        return True

    def _floors(self, connection: Connection) -> tuple[int, int]:
        """The floor as it is, and as it may be."""
        new = newest_sequence(connection) - self._commits_kept + 1
        reads = sa.func.coalesce(transactions.c.sequence, transactions.c.begin_sequence)
        pinned = connection.scalar(sa.select(sa.func.min(reads)))
        return floor_of(connection), new if pinned is None else min(new, int(pinned))

    def _delete_stale(self) -> bool:
        """Deletes some of what is below the floor; whether there may be more."""
        with self._on.writing_relaxed() as connection:
            # One after the other: who deletes the same rows would wait for each in turn.
            floor = int(connection.execute(_floor().with_for_update()).scalar_one())
            gone = [
                connection.execute(each).rowcount
                for each in (_delete_superseded(floor), _delete_bare(floor))
            ]
        return max(gone) == _ROWS_AT_ONCE


def floor_of(connection: Connection) -> int:
    """The instant from which on the book is whole; 0 where nothing was removed yet."""
    return int(connection.execute(_floor()).scalar() or 0)


def require_instant(connection: Connection, sequence: int) -> None:
    """Raises Unavailable for an instant that the book can't tell of any more."""
    floor = floor_of(connection)
    if sequence < floor:
        raise Unavailable(
            f"instant {sequence} of the lake is too old: expected instant {floor} or a later one, "
            "from which on the catalog knows the tables' versions; run the transaction again, as "
            "an explicit one (BEGIN), whose instant is kept, or raise Settings.commits_kept"
        )


def require_traces(connection: Connection, transaction_ids: Collection[str], since: int) -> None:
    """Checks that transactions of which no trace was found, were not ratified.

    `since`: an instant before which they surely weren't. Raises OutcomeUnknown.
    """
    floor = floor_of(connection)
    if floor <= since:
        return
    registered = sa.select(transactions.c.id).where(transactions.c.id.in_(transaction_ids))
    lost = set(transaction_ids) - set(connection.scalars(registered))
    if lost:
        raise OutcomeUnknown(
            f"whether transactions {', '.join(sorted(lost))} were ratified can't be seen: the "
            f"catalog keeps the commits from instant {floor} on, and theirs may be older; look at "
            "their tables before running them again"
        )


def _floor() -> sa.Select[int]:
    return sa.select(counters.c.value).where(counters.c.name == _FLOOR)


def _delete_superseded(floor: int) -> sa.Delete:
    """Deletes the oldest versions that no instant from the floor on needs, and that are published.

    Of a table that the lake has forgotten nobody asks for a version.
    """
    newer = commits.alias()
    is_superseded = sa.exists().where(
        newer.c.table_id == commits.c.table_id,
        newer.c.version > commits.c.version,
        newer.c.sequence <= floor,
    )
    is_known = sa.exists().where(tables.c.id == commits.c.table_id)
    waits = sa.exists().where(
        tables.c.id == commits.c.table_id, tables.c.published < commits.c.version
    )
    found = (
        sa.select(commits.c.table_id, commits.c.version)
        .where(commits.c.sequence < floor, ~waits, is_superseded | ~is_known)
        .order_by(commits.c.sequence)
        .limit(_ROWS_AT_ONCE)
    )
    return sa.delete(commits).where(sa.tuple_(commits.c.table_id, commits.c.version).in_(found))


def _delete_bare(floor: int) -> sa.Delete:
    found = sa.select(bare.c.transaction_id).where(bare.c.sequence < floor).limit(_ROWS_AT_ONCE)
    return sa.delete(bare).where(bare.c.transaction_id.in_(found))
