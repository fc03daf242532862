"""The open transactions of the lake: who began what, when, and whether it still counts.

A transaction lives while its session's lease does, until it is ended, ratified (`commits`) or
killed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from txlake.catalog.database import Database
from txlake.catalog.grouping import Group, Interrupted
from txlake.catalog.names import NEWEST_SEQUENCE, newest_sequence, next_number
from txlake.catalog.owners import (
    ACTIVE,
    KILLED,
    end_transactions,
    is_killed,
    reap,
    release_locks,
)
from txlake.catalog.sessions import Sessions
from txlake.catalog.tables import sessions, transactions

_COUNTER = "transaction"
_NAME_LENGTH = 255
_PIN = (
    sa.update(transactions)
    .where(transactions.c.id == sa.bindparam("which"), transactions.c.state != KILLED)
    .values(sequence=NEWEST_SEQUENCE.scalar_subquery())
    .returning(transactions.c.sequence)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionEntry:
    """An open transaction.

    Attributes:
        number: for views that need an integer.
        isolation: the level asked for, if one was.
        explicit: begun by BEGIN, not by a statement for itself.
        state: `active` or `killed`.
        sequence: the instant of the lake that it reads; None before its first read.
        host, process, user_name: of its session.
    """

    id: str
    number: int
    session_id: int
    name: str | None
    begin_ms: int
    isolation: str | None
    read_only: bool
    explicit: bool
    state: str
    sequence: int | None
    host: str
    process: int
    user_name: str | None


class Transactions:
    """The transactions of one catalog, whoever began them."""

    def __init__(self, on: Database, of: Sessions) -> None:
        self._on = on
        self._sessions = of
        self._beginning: Group[dict[str, Any], int] = Group(self._begun)
        self._abandoned: deque[str] = deque()
        self._insertion = sa.insert(transactions).values(begin_ms=on.now(), state=ACTIVE)

    def begin(
        self,
        transaction_id: str,
        session_id: int,
        *,
        name: str | None = None,
        isolation: str | None = None,
        read_only: bool = False,
        explicit: bool = True,
    ) -> int:
        """Notes a new transaction and gives its number."""
        row: dict[str, Any] = {
            "id": transaction_id,
            "session_id": session_id,
            "name": name and name[:_NAME_LENGTH],
            "isolation": isolation,
            "read_only": read_only,
            "explicit": explicit,
        }
        while True:
            try:
                return self._beginning.ask(row)
            except Interrupted:
                self.end(transaction_id)  # where it was noted all the same

    def pin(self, transaction_id: str) -> int:
        """The lake's newest instant, noted as what the transaction reads, if it is there."""
        with self._on.noting() as connection:
            noted = connection.execute(_PIN, {"which": transaction_id}).scalar()
            return newest_sequence(connection) if noted is None else int(noted)

    def end(self, transaction_id: str) -> None:
        """Ends a transaction, its locks and its reservations; one that isn't there is no error."""
        with self._on.noting() as connection:
            end_transactions(connection, [transaction_id])

    def abandon(self, transaction_id: str) -> None:
        """Notes that nobody holds a transaction any more; `end_abandoned` ends it.

        Touches no database: Python may find that out at any moment, in any thread.
        """
        self._abandoned.append(transaction_id)

    def end_abandoned(self) -> Sequence[str]:
        """Ends the transactions that were abandoned; their ids."""
        found: list[str] = []
        while self._abandoned:
            found.append(self._abandoned.popleft())
        try:
            if found:
                with self._on.noting() as connection:
                    end_transactions(connection, found)
        except BaseException:
            self._abandoned.extend(found)
            raise
        return found

    def kill(self, transaction_id: str) -> bool:
        """Whether there was one to kill: it can't be ratified any more, and its locks are gone."""
        with self._on.writing() as connection:
            change = sa.update(transactions).where(transactions.c.id == transaction_id)
            if connection.execute(change.values(state=KILLED)).rowcount == 0:
                return False
            release_locks(connection, [transaction_id])
        return True

    def is_killed(self, transaction_id: str) -> bool:
        """Whether it was killed and isn't ended yet."""
        with self._on.reading() as connection:
            return is_killed(connection, transaction_id)

    def listed(self) -> list[TransactionEntry]:
        """The transactions of living sessions, killed ones too, the oldest first."""
        query = (
            sa.select(transactions, sessions.c.host, sessions.c.process, sessions.c.user_name)
            .join_from(transactions, sessions)
            .where(sessions.c.lease_ms > self._on.now())
            .order_by(transactions.c.number)
        )
        with self._on.reading() as connection:
            found = connection.execute(query).all()
        return [TransactionEntry(**row._mapping) for row in found]

    def oldest_begin_ms(self, *, besides: str | None = None) -> int | None:
        """When the oldest transaction began that may still be ratified; None when there is none.

        `besides`: the id of one that doesn't count. Those that are dead by then stay dead: files
        that only they could own may be deleted.
        """
        over = sa.select(sa.literal(1)).where(sessions.c.lease_ms <= self._on.now())
        oldest = sa.select(sa.func.min(transactions.c.begin_ms)).where(
            transactions.c.state != KILLED,
            sa.true() if besides is None else transactions.c.id != besides,
        )
        with self._on.reading() as connection:
            if connection.execute(over).first() is None:
                return connection.execute(oldest).scalar()
        with self._on.writing() as connection:
            reap(self._on, connection)
            return connection.execute(oldest).scalar()

    def _begun(self, rows: Sequence[dict[str, Any]]) -> Sequence[int]:
        with self._on.noting() as connection:
            self._sessions.ensure(connection, {row["session_id"] for row in rows})
            first = next_number(connection, _COUNTER, len(rows))
            numbers = range(first, first + len(rows))
            numbered = [{**row, "number": number} for row, number in zip(rows, numbers)]
            connection.execute(self._insertion, numbered)
        return numbers
