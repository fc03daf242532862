"""Prune the ledger of commits: remove, in small steps, the rows that no reader can need any more.

The floor is the instant from which on the ledger is complete: for the floor and each later instant
the version of every table is known, and so is whether a transaction was ratified. Commits that wait
to be published stay, whatever their age.

A step runs in database transactions of its own, at a heartbeat and when a session is opened. Only
ratifications wait for it, and only for a moment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog.counter_rows import lock_sequence, newest_sequence
from txlake.catalog.database import Database
from txlake.catalog.owners import reap_due
from txlake.catalog.prepared import Prepared, Row
from txlake.catalog.relations import bare, commits, counters, tables, transactions
from txlake.catalog.shielding import shielded
from txlake.errors import InvalidRequest, OutcomeUnknown, TxlakeError, Unavailable

_log = logging.getLogger(__name__)

_FLOOR = "floor"
_BATCH_ROWS = 1_000
# A session may be alive although its lease has expired: it is removed only after this time.
_DEAD_MS = 3_600_000
_FLOOR_VALUE = sa.select(counters.c.value).where(counters.c.name == _FLOOR)
_READ_FLOOR = Prepared(_FLOOR_VALUE)


@shielded()
class Pruner:
    """Removes old commits of one catalog, except those that open transactions read.

    `commits_kept`: how many of the lake's newest instants are never pruned. Raises InvalidRequest
    if that is less than 1.
    """

    def __init__(self, database: Database, commits_kept: int) -> None:
        if commits_kept < 1:
            raise InvalidRequest(f"commits_kept={commits_kept}: expected at least 1")
        self._database = database
        self._commits_kept = commits_kept

    def step(self) -> None:
        """Remove old rows and dead sessions. Never raises; a failure is logged.

        Costs two queries if there is nothing to remove.
        """
        try:
            reap_due(self._database, _DEAD_MS)
            if self._raise_floor():
                while self._delete_stale():
                    pass
        except TxlakeError as error:
            _log.warning("the catalog isn't pruned now: %s", error)

    def _raise_floor(self) -> bool:
        """Raise the floor if a tenth of `commits_kept` can go; return whether it was raised."""
        with self._database.reading() as connection:
            floor, new = self._floors(connection)
        if new - floor < max(1, self._commits_kept // 10):
            return False

        def work(connection: Connection) -> bool:
            lock_sequence(connection)  # no other transaction ratifies or inserts the floor
            floor, new = self._floors(connection)
            if new <= floor:
                return False
            change = sa.update(counters).where(counters.c.name == _FLOOR).values(value=new)
            if connection.execute(change).rowcount == 0:
                connection.execute(sa.insert(counters).values(name=_FLOOR, value=new))
            return True

        return self._database.write(work)

    def _floors(self, connection: Connection) -> tuple[int, int]:
        """Return the present floor, and the highest floor that is allowed now."""
        new = newest_sequence(connection) - self._commits_kept + 1
        reads = sa.func.coalesce(transactions.c.sequence, transactions.c.begin_sequence)
        pinned = connection.scalar(sa.select(sa.func.min(reads)))
        return floor_of(connection), new if pinned is None else min(new, int(pinned))

    def _delete_stale(self) -> bool:
        """Delete a batch of rows below the floor; return whether there may be more."""

        def work(connection: Connection) -> bool:
            # Locked, so that processes prune one after the other: two that delete the same rows
            # would wait for each other row by row.
            floor = int(connection.execute(_FLOOR_VALUE.with_for_update()).scalar_one())
            counts = [
                connection.execute(deletion).rowcount
                for deletion in (_delete_superseded(floor), _delete_bare(floor))
            ]
            return max(counts) == _BATCH_ROWS

        return self._database.write_relaxed(work)


def floor_of(connection: Connection) -> int:
    """Return the instant from which on the ledger is complete; 0 if nothing was pruned yet."""
    return _floor_in(_READ_FLOOR.rows(connection))


def require_instant(connection: Connection, sequence: int) -> None:
    """Raise Unavailable for an instant below the floor, whose versions may be pruned."""
    send_instant_check(connection, sequence)()


def send_instant_check(connection: Connection, sequence: int) -> Callable[[], None]:
    """Send the query of `require_instant`; return a function that waits for it, and raises."""
    read_floor = _READ_FLOOR.send(connection)

    def check() -> None:
        floor = _floor_in(read_floor())
        if sequence < floor:
            raise Unavailable(
                f"instant {sequence} of the lake is too old: expected instant {floor} or a later "
                "one, from which on the catalog knows the tables' versions; run the transaction "
                "again, as an explicit one (BEGIN), whose instant is kept, or raise "
                "Settings.commits_kept"
            )

    return check


def _floor_in(rows: Sequence[Row]) -> int:
    return int(rows[0].value) if rows else 0


def require_traces(connection: Connection, transaction_ids: Collection[str], since: int) -> None:
    """Check that transactions without a row in the ledger were never ratified.

    `since`: an instant before which none of them was ratified. Raises OutcomeUnknown if the row of
    one may have been pruned.
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


def _delete_superseded(floor: int) -> sa.Delete:
    """Return the statement that deletes the oldest published versions that no instant from the
    floor on reads, and those of tables whose rows were removed.
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
    stale = (
        sa.select(commits.c.table_id, commits.c.version)
        .where(commits.c.sequence < floor, ~waits, is_superseded | ~is_known)
        .order_by(commits.c.sequence)
        .limit(_BATCH_ROWS)
    )
    return sa.delete(commits).where(sa.tuple_(commits.c.table_id, commits.c.version).in_(stale))


def _delete_bare(floor: int) -> sa.Delete:
    stale = sa.select(bare.c.transaction_id).where(bare.c.sequence < floor).limit(_BATCH_ROWS)
    return sa.delete(bare).where(bare.c.transaction_id.in_(stale))
