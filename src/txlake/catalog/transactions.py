"""The open transactions of the lake: who began what, when, and whether it still counts.

A transaction lives while its session's lease does, until it is ended, ratified (`commits`) or
killed. One that has begun and done nothing yet is noted with its first statement, or when somebody
in this process asks for the list.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog import lock_rows
from txlake.catalog.abandoned import AbandonedResources
from txlake.catalog.counter_rows import INSTANT, NEWEST_SEQUENCE, send_next_number
from txlake.catalog.database import CommitUnsettled, Database
from txlake.catalog.fence import Fence
from txlake.catalog.group_commit import GroupCommit, Interrupted
from txlake.catalog.owners import (
    ACTIVE,
    KILLED,
    end_transactions,
    ended_error,
    is_expired,
    killed_error,
    reap_due,
    release_locks,
    state_of,
)
from txlake.catalog.prepared import Prepared, pipelined
from txlake.catalog.relations import sessions, transactions
from txlake.catalog.sessions import Sessions
from txlake.catalog.shielding import shielded
from txlake.ports import OpenTransactions

_COUNTER = "transaction"
_NAME_LENGTH = 255
_PIN = Prepared(
    lambda ids: (
        sa.update(transactions)
        .where(transactions.c.id.in_(ids), transactions.c.state != KILLED)
        .values(sequence=sa.bindparam("at"))
    ),
    "ids",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionEntry:
    """An open transaction.

    Attributes:
        number: for views that need an integer.
        isolation: the level asked for, if one was.
        explicit: begun by BEGIN, not by a statement for itself.
        state: `active` or `killed`.
        begin_sequence: the newest instant of the lake when it began.
        sequence: the instant that it reads; None before its first read.
        lost_attempts: how many of its attempts to commit lost to another transaction's commit.
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
    begin_sequence: int
    sequence: int | None
    lost_attempts: int
    host: str
    process: int
    user_name: str | None


@shielded(unshielded=("abandon", "announce", "forget", "hold", "announced_rows"))
class Transactions:
    """The transactions of one catalog, whoever began them."""

    def __init__(self, on: Database, fence: Fence, of: Sessions) -> None:
        self._on = on
        self._fence = fence
        self._sessions = of
        self._begin_group: GroupCommit[dict[str, Any], int] = GroupCommit(
            self._begin_batch, turn=on.turn
        )
        self._resources: AbandonedResources[str] = AbandonedResources()
        self._announced: dict[str, dict[str, Any]] = {}
        self._registering = threading.Lock()  # taken outside of the database's transactions only
        of.on_heartbeat(self._end_abandoned)
        self._insertion = Prepared(
            sa.insert(transactions).values(
                begin_ms=on.now(), begin_sequence=NEWEST_SEQUENCE.scalar_subquery(), state=ACTIVE
            ),
            columns=(*_row("", 0, None, None, False, True), "number"),
        )

    def begin(
        self,
        transaction_id: str,
        session_id: int,
        *,
        name: str | None = None,
        isolation: str | None = None,
        read_only: bool = False,
        explicit: bool = True,
        holder: object = None,
    ) -> int:
        """Notes a new transaction and gives its number; it ends when its holder is gone."""
        row = _row(transaction_id, session_id, name, isolation, read_only, explicit)
        while True:
            if holder is not None:
                self.hold(transaction_id, holder)
            try:
                return self._begin_group.submit(row)
            except Interrupted:
                self.end(transaction_id)  # where it was noted all the same

    def announce(
        self,
        transaction_id: str,
        session_id: int,
        *,
        isolation: str | None = None,
        read_only: bool = False,
        holder: object = None,
    ) -> None:
        """As `begin`, for an explicit transaction, when it is needed. Touches no database."""
        if holder is not None:
            self.hold(transaction_id, holder)
        row = _row(transaction_id, session_id, None, isolation, read_only, explicit=True)
        self._announced[transaction_id] = row

    @contextmanager
    def announced_rows(
        self, transaction_ids: Collection[str]
    ) -> Iterator[Sequence[dict[str, Any]]]:
        """The rows to note in this block, where one of the transactions was announced.

        With it go those that were announced before and after it: who began first has the lower
        number. They stay announced where the block fails; not where nobody knows whether they were
        noted.
        """
        with ExitStack() as held:
            held.enter_context(self._registering)
            rows = list(self._announced.values())
            if self._announced.keys().isdisjoint(transaction_ids):
                held.close()
                rows = []
            try:
                yield rows
            except BaseException as error:
                # Of a thread that was stopped nobody knows either how far it came.
                if isinstance(error, CommitUnsettled) or not isinstance(error, Exception):
                    self._forget_announced(rows)
                raise
            self._forget_announced(rows)

    def _forget_announced(self, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            self._announced.pop(row["id"], None)

    def _withdrawn(self, transaction_id: str) -> bool:
        """Whether it was announced, and isn't any more."""
        with self._registering:
            return self._announced.pop(transaction_id, None) is not None

    def register_announced(self) -> None:
        """Notes the transactions that were announced."""
        with self._on.turn(), self._registering:
            rows = list(self._announced.values())
            if rows:
                with self._on.writing_relaxed() as connection:
                    self.register(connection, rows)
            self._forget_announced(rows)

    def hold(self, transaction_id: str, holder: object) -> None:
        """Notes that a transaction has to end when its holder is gone. Touches no database."""
        self._resources.track(transaction_id, holder)

    def register(self, connection: Connection, rows: Sequence[dict[str, Any]]) -> Sequence[int]:
        """Notes new transactions, as `begin` does, and gives their numbers."""
        with pipelined(connection):
            numbered = self.send_registration(connection, rows)
        found = numbered()
        self.insert(connection, found)
        return [row["number"] for row in found]

    def send_registration(
        self, connection: Connection, rows: Sequence[dict[str, Any]]
    ) -> Callable[[], list[dict[str, Any]]]:
        """Renews the leases of new transactions' sessions, and gives what waits for their numbers.

        The rows with these are for `insert`. A session that isn't there any more is by then.
        """
        if not rows:
            return list
        sessions_of = {row["session_id"] for row in rows}
        renewed = self._sessions.send_renewal(connection, sessions_of)
        first = send_next_number(connection, _COUNTER, len(rows))

        def numbered() -> list[dict[str, Any]]:
            self._sessions.revive(connection, sessions_of - renewed())
            return [{**row, "number": number} for number, row in enumerate(rows, first())]

        return numbered

    def insert(self, connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
        """Notes new transactions that have their numbers, and the instant that they read."""
        self._insertion.run_all(connection, rows)

    def set_isolation(self, transaction_id: str, isolation: str) -> None:
        """Notes which level an open transaction asks for now."""
        self.register_announced()
        noted = sa.update(transactions).where(transactions.c.id == transaction_id)
        with self._on.writing_relaxed() as connection:
            connection.execute(noted.values(isolation=isolation))

    def pin(self, transaction_id: str) -> int:
        """The lake's newest instant, noted as what the transaction reads, if it is there."""
        self.register_announced()
        known = self._fence.newest
        with self._on.writing_relaxed() as connection:
            found = connection.execute(INSTANT).one()
            self.set_instant(connection, [transaction_id], found.value)
            self._fence.check(found.epoch, found.value, known=known)
        return int(found.value)

    def set_instant(
        self, connection: Connection, transaction_ids: Collection[str], sequence: int
    ) -> None:
        """Notes which instant open transactions read from now on."""
        if transaction_ids:
            _PIN.run(connection, ids=transaction_ids, at=sequence)

    def end(self, transaction_id: str) -> None:
        """Ends a transaction, its locks and its reservations; one that isn't there is no error."""
        if not self._withdrawn(transaction_id):
            with self._on.writing_relaxed() as connection:
                end_transactions(connection, [transaction_id])
        self._resources.forget(transaction_id)

    def abandon(self, transaction_id: str) -> None:
        """Notes that a transaction has to end. Touches no database."""
        self._resources.abandon(transaction_id)

    def forget(self, transaction_id: str) -> None:
        """Notes that a transaction has ended, by its ratification. Touches no database."""
        self._resources.forget(transaction_id)

    def end_abandoned(self) -> Sequence[str]:
        """Ends the transactions that were abandoned, or that nobody holds any more; their ids.

        Done at each heartbeat too.
        """
        found = self._resources.abandoned()
        entered = [
            transaction_id for transaction_id in found if not self._withdrawn(transaction_id)
        ]
        if entered:
            with self._on.writing_relaxed() as connection:
                end_transactions(connection, entered)
        for transaction_id in found:
            self._resources.forget(transaction_id)
        return found

    def _end_abandoned(self) -> None:
        self.end_abandoned()

    def kill(self, transaction_id: str) -> bool:
        """Whether there was one to kill: it can't be ratified any more, and its locks are gone."""
        self.register_announced()
        with self._on.writing() as connection:
            # Nobody is granted a lock meanwhile: what it asked for before is there to be removed.
            lock_rows.lock_queue(connection)
            change = sa.update(transactions).where(transactions.c.id == transaction_id)
            if connection.execute(change.values(state=KILLED)).rowcount == 0:
                return False
            release_locks(connection, [transaction_id])
        return True

    def require_unkilled(self, transaction_id: str) -> None:
        """Raises Unavailable for one that was killed."""
        if transaction_id in self._announced:
            return
        with self._on.reading() as connection:
            if state_of(connection, transaction_id) == KILLED:
                raise killed_error(transaction_id)

    def require_open(self, transaction_id: str) -> None:
        """Raises Unavailable for one that was ended, or killed, by somebody else."""
        if transaction_id in self._announced:
            return
        with self._on.reading() as connection:
            state = state_of(connection, transaction_id)
        if state is None:
            raise ended_error(transaction_id)
        if state == KILLED:
            raise killed_error(transaction_id)

    def entries(self) -> list[TransactionEntry]:
        """The transactions of living sessions, killed ones too, the oldest first."""
        self.register_announced()
        query = (
            sa.select(transactions, sessions.c.host, sessions.c.process, sessions.c.user_name)
            .join_from(transactions, sessions)
            .where(~is_expired(self._on))
            .order_by(transactions.c.number)
        )
        with self._on.reading() as connection:
            found = connection.execute(query).all()
        return [TransactionEntry(**row._mapping) for row in found]

    def others_open(self, besides: str) -> OpenTransactions:
        """Return the transactions that may still be ratified, except the one with the id
        `besides`.

        A transaction that isn't among them can't be ratified any more: files that only it could own
        may be deleted.
        """
        reap_due(self._on)
        query = sa.select(transactions.c.id, transactions.c.begin_ms).where(
            transactions.c.state != KILLED, transactions.c.id != besides
        )
        with self._on.reading() as connection:
            found = connection.execute(query).all()
        return OpenTransactions(
            ids=frozenset(row.id for row in found),
            begin_ms=min((row.begin_ms for row in found), default=None),
        )

    def _begin_batch(self, rows: Sequence[dict[str, Any]]) -> Sequence[int]:
        with self._on.writing_relaxed() as connection:
            return self.register(connection, rows)


def _row(
    transaction_id: str,
    session_id: int,
    name: str | None,
    isolation: str | None,
    read_only: bool,
    explicit: bool,
) -> dict[str, Any]:
    return {
        "id": transaction_id,
        "session_id": session_id,
        "name": name and name[:_NAME_LENGTH],
        "isolation": isolation,
        "read_only": read_only,
        "explicit": explicit,
        "sequence": None,
    }
