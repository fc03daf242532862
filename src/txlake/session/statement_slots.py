"""How many statements that change rows of one table run at a time in one process.

Of many that run together each reads a version that all others overtake, is checked against every
one of them, and shares the processors with them. A few are enough to keep these busy: the others
wait for a slot before they choose the version that they read. A slot is a courtesy: who waits too
long for one goes on without. Source: docs/how-a-commit-works.md, "Put if absent".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from weakref import WeakValueDictionary

from txlake.commit.fifo_lock import FifoLock
from txlake.ports import System
from txlake.sql.statements import Delete, Statement, Table, Update

# One more than processors: it works while another one waits for the disk.
SLOTS = (os.cpu_count() or 1) + 1


def table_changed(statement: Statement) -> Table | None:
    """Return the table of a DELETE or UPDATE; None for other statements.

    A MERGE's source may take long, and an INSERT is checked against little.
    """
    return statement.table if isinstance(statement, Delete | Update) else None


class StatementSlots:
    """The slots of all tables of a lake, for the threads of this process.

    `count`: how many each table has.
    """

    def __init__(self, system: System, *, count: int = SLOTS) -> None:
        self._system = system
        self._count = count
        # By the current database and a table's name or path, while a statement holds one or waits.
        # Two names of one table have slots of their own.
        self._locks: WeakValueDictionary[tuple[str, Table], FifoLock] = WeakValueDictionary()

    @contextmanager
    def taken(
        self, database: str, table: Table | None, timeout_ms: float
    ) -> Iterator[Callable[[], None]]:
        """Wait for one of a table's slots, and hold it until the block ends, or calls the function
        that it gets; without a table nothing is waited for.

        After `timeout_ms` the block runs without a slot.
        """
        with ExitStack() as slot:
            if table is not None:
                new = FifoLock(self._system, holders=self._count)
                lock = self._locks.setdefault((database, table), new)
                slot.enter_context(lock.acquired(timeout_ms))
            yield slot.close
