"""The lake's counters, rows of `txlake_counters`, read and advanced in the caller's transaction.

The counter `sequence` has the newest instant of the lake; the other counters number objects,
sessions, transactions and locks.
"""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog.fence import EPOCH
from txlake.catalog.prepared import Prepared
from txlake.catalog.relations import counters

LOCK = "lock"
SEQUENCE = "sequence"

NEWEST_SEQUENCE = sa.select(counters.c.value).where(counters.c.name == SEQUENCE)
INSTANT = NEWEST_SEQUENCE.add_columns(EPOCH)
"""The query for the lake's newest instant and the catalog's epoch."""
_NEWEST = Prepared(NEWEST_SEQUENCE)
_LOCKED = Prepared(NEWEST_SEQUENCE.with_for_update())
_SET_SEQUENCE = Prepared(
    sa.update(counters).where(counters.c.name == SEQUENCE).values(value=sa.bindparam("new"))
)
_ADVANCE_COUNTER = Prepared(
    sa.update(counters)
    .where(counters.c.name == sa.bindparam("counter"))
    .values(value=counters.c.value + sa.bindparam("count"))
    .returning(counters.c.value)
)


def newest_sequence(connection: Connection) -> int:
    """Return the lake's newest instant."""
    return _NEWEST.number(connection)


def lock_sequence(connection: Connection) -> int:
    """Return the lake's newest instant, locked: no other transaction advances it before this one
    has ended.
    """
    return _LOCKED.number(connection)


def set_sequence(connection: Connection, sequence: int) -> None:
    """Set the newest instant. The caller has locked the sequence."""
    _SET_SEQUENCE.run(connection, new=sequence)


def next_number(connection: Connection, counter: str, count: int = 1) -> int:
    """Take `count` new numbers of a counter and return the first.

    The counter's row stays locked until the transaction ends.
    """
    return send_next_number(connection, counter, count)()


def send_next_number(connection: Connection, counter: str, count: int) -> Callable[[], int]:
    """Send the query of `next_number`; return a function that waits for the first number."""
    advanced = _ADVANCE_COUNTER.send(connection, counter=counter, count=count)
    return lambda: int(advanced()[0].value) - count + 1


def raise_number(connection: Connection, counter: str, number: int) -> None:
    """Raise a counter to `number`, unless it is higher already."""
    behind = (counters.c.name == counter) & (counters.c.value < number)
    connection.execute(sa.update(counters).where(behind).values(value=number))
