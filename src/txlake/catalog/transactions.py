"""The lake's open transactions, a row each.

A transaction is open until it is ended, ratified (`commits`) or killed, or its session's lease
expires. An explicit transaction is announced first: its row is written with its first statement,
or when this process lists the open transactions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog import lock_rows
from txlake.catalog.abandoned import AbandonedResources
from txlake.catalog.counter_rows import (
    INSTANT,
    NEWEST_SEQUENCE,
    lock_sequence,
    send_next_number,
)
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
    registered_among,
    release_locks,
    state_of,
)
from txlake.catalog.prepared import Prepared, pipelined
from txlake.catalog.relations import sessions, transactions
from txlake.catalog.sessions import Sessions
from txlake.catalog.shielding import shielded
from txlake.catalog.unregistered import raise_fence
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
        number: an integer id, for views that need one.
        isolation: the isolation level; None if none was requested.
        explicit: begun by BEGIN; false for an autocommitted statement.
        state: `active` or `killed`.
        begin_sequence: the newest instant of the lake when the transaction began.
        sequence: the instant that the transaction reads; None before its first read.
        lost_attempts: how many attempts to commit lost to another transaction's commit.
        host, process, user_name: those of the session.
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


class DeferredTransactions(Protocol):
    """The transactions that register at their commit, or when others look for them."""

    def has(self, transaction_id: str) -> bool:
        """Return whether a transaction is deferred."""
        ...

    def register_all(self) -> None:
        """Register them, with their locks."""
        ...


class _NoneDeferred:
    def has(self, transaction_id: str) -> bool:
        return False

    def register_all(self) -> None: ...


@shielded(
    unshielded=(
        *("abandon", "announce", "forget", "hold", "announced_rows"),
        *("is_announced", "withdraw"),
    )
)
class Transactions:
    """The open transactions of one catalog, of all processes."""

    def __init__(self, database: Database, fence: Fence, sessions: Sessions) -> None:
        self._database = database
        self._fence = fence
        self._sessions = sessions
        self._begin_group: GroupCommit[dict[str, Any], int] = GroupCommit(
            self._begin_batch, turn=database.turn
        )
        self._resources: AbandonedResources[str] = AbandonedResources()
        self._announced: dict[str, dict[str, Any]] = {}
        self.deferred: DeferredTransactions = _NoneDeferred()
        self._registering = threading.Lock()  # taken outside of the database's transactions only
        sessions.on_heartbeat(self._end_abandoned)
        self._insertion = Prepared(
            sa.insert(transactions).values(
                begin_ms=database.now(),
                begin_sequence=NEWEST_SEQUENCE.scalar_subquery(),
                state=ACTIVE,
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
        """Register a new transaction and return its number.

        `explicit`: begun by BEGIN. The transaction ends when `holder` is garbage-collected.
        """
        row = _row(transaction_id, session_id, name, isolation, read_only, explicit)
        while True:
            if holder is not None:
                self.hold(transaction_id, holder)
            try:
                return self._begin_group.submit(row)
            except Interrupted:
                self.end(transaction_id)  # its row may have been written all the same

    def announce(
        self,
        transaction_id: str,
        session_id: int,
        *,
        isolation: str | None = None,
        read_only: bool = False,
        holder: object = None,
    ) -> None:
        """Prepare an explicit transaction, which is registered (`begin`) when it is needed.
        Touches no database.
        """
        if holder is not None:
            self.hold(transaction_id, holder)
        row = _row(transaction_id, session_id, None, isolation, read_only, explicit=True)
        self._announced[transaction_id] = row

    @contextmanager
    def announced_rows(
        self, transaction_ids: Collection[str]
    ) -> Iterator[Sequence[dict[str, Any]]]:
        """Yield the rows that the block has to write: all announced ones, if one of the given
        transactions is among them, else none.

        Announced transactions are written together, so that one that began earlier has a lower
        number. If the block fails they stay announced, unless it is unknown whether their rows
        were written.
        """
        with ExitStack() as stack:
            stack.enter_context(self._registering)
            rows = self._rows_to_register(transaction_ids)
            if self._announced.keys().isdisjoint(transaction_ids):
                stack.close()
                rows = []
            try:
                yield rows
            except BaseException as error:
                # How far a stopped thread came is unknown too.
                if isinstance(error, CommitUnsettled) or not isinstance(error, Exception):
                    self._forget_announced(rows)
                raise
            self._forget_announced(rows)

    def _forget_announced(self, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            self._announced.pop(row["id"], None)

    def _rows_to_register(self, transaction_ids: Collection[str] = ()) -> list[dict[str, Any]]:
        """Return the rows of the announced transactions, without deferred ones that aren't among
        those given.
        """
        return [
            row
            for transaction_id, row in self._announced.items()
            if transaction_id in transaction_ids or not self.deferred.has(transaction_id)
        ]

    def is_announced(self, transaction_id: str) -> bool:
        """Return whether an explicit transaction is open, and not registered yet. Touches no
        database.
        """
        return transaction_id in self._announced

    def withdraw(self, transaction_id: str) -> bool:
        """Withdraw an announced transaction; return False if it isn't announced. Touches no
        database.
        """
        return self._withdraw(transaction_id)

    def _withdraw(self, transaction_id: str) -> bool:
        """Withdraw an announced transaction; return False if it isn't announced."""
        with self._registering:
            return self._announced.pop(transaction_id, None) is not None

    def register_announced(self) -> None:
        """Register the announced transactions, and the deferred ones with their locks."""
        self.deferred.register_all()
        with self._database.turn(), self._registering:
            rows = self._rows_to_register()
            if rows:
                self._database.write_relaxed(partial(self._register_missing, rows))
            self._forget_announced(rows)

    def _register_missing(self, rows: Sequence[dict[str, Any]], connection: Connection) -> None:
        """Register transactions, unless another thread that shares the database transaction has."""
        present = registered_among(connection, [row["id"] for row in rows])
        self.register(connection, [row for row in rows if row["id"] not in present])

    def hold(self, transaction_id: str, holder: object) -> None:
        """Track the transaction's holder: the transaction ends when `holder` is garbage-collected.
        Touches no database.
        """
        self._resources.track(transaction_id, holder)

    def register(self, connection: Connection, rows: Sequence[dict[str, Any]]) -> Sequence[int]:
        """Register new transactions, as `begin` does, and return their numbers."""
        with pipelined(connection):
            number_rows = self.send_registration(connection, rows)
        numbered = number_rows()
        self.insert(connection, numbered)
        return [row["number"] for row in numbered]

    def send_registration(
        self, connection: Connection, rows: Sequence[dict[str, Any]]
    ) -> Callable[[], list[dict[str, Any]]]:
        """Send the queries that renew the leases of new transactions' sessions and number the
        transactions; return a function that waits and returns the rows, with numbers, for
        `insert`.

        That function also inserts again the sessions whose rows were removed.
        """
        if not rows:
            return list
        sessions_of = {row["session_id"] for row in rows}
        renewed = self._sessions.send_renewal(connection, sessions_of)
        first = send_next_number(connection, _COUNTER, len(rows))

        def number_rows() -> list[dict[str, Any]]:
            self._sessions.revive(connection, sessions_of - renewed())
            return [{**row, "number": number} for number, row in enumerate(rows, first())]

        return number_rows

    def insert(self, connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
        """Insert the rows of new transactions, which have their numbers and instants."""
        self._insertion.run_all(connection, rows)

    def set_isolation(self, transaction_id: str, isolation: str) -> None:
        """Record the isolation level that an open transaction now has."""
        self.register_announced()
        change = sa.update(transactions).where(transactions.c.id == transaction_id)
        self._database.write_relaxed(
            lambda connection: connection.execute(change.values(isolation=isolation))
        )

    def pin(self, transaction_id: str) -> int:
        """Make an open transaction read the lake's newest instant, and return the instant.

        Raises as `Fence.check`.
        """
        self.register_announced()
        known = self._fence.newest

        def work(connection: Connection) -> int:
            now = connection.execute(INSTANT).one()
            self.set_instant(connection, [transaction_id], now.value)
            self._fence.check(now.epoch, now.value, known=known)
            return int(now.value)

        return self._database.write_relaxed(work)

    def set_instant(
        self, connection: Connection, transaction_ids: Collection[str], sequence: int
    ) -> None:
        """Record the instant that open transactions read from now on."""
        if transaction_ids:
            _PIN.run(connection, ids=transaction_ids, at=sequence)

    def end(self, transaction_id: str) -> None:
        """End a transaction with its locks and reservations, if it is open."""
        if not self._withdraw(transaction_id):
            self._database.write_relaxed(partial(_end, transaction_ids=[transaction_id]))
        self._resources.forget(transaction_id)

    def abandon(self, transaction_id: str) -> None:
        """Mark a transaction as abandoned, for `end_abandoned` to end. Touches no database."""
        self._resources.abandon(transaction_id)

    def forget(self, transaction_id: str) -> None:
        """Stop tracking a transaction, which was ratified or left no trace. Touches no
        database.
        """
        self._resources.forget(transaction_id)

    def end_abandoned(self) -> Sequence[str]:
        """End the abandoned transactions, and those whose holders were garbage-collected.

        Returns their ids. Each heartbeat calls it too.
        """
        abandoned = self._resources.abandoned()
        registered = [
            transaction_id for transaction_id in abandoned if not self._withdraw(transaction_id)
        ]
        if registered:
            self._database.write_relaxed(partial(_end, transaction_ids=registered))
        for transaction_id in abandoned:
            self._resources.forget(transaction_id)
        return abandoned

    def _end_abandoned(self) -> None:
        self.end_abandoned()

    def kill(self, transaction_id: str) -> bool:
        """Kill a transaction: release its locks and prevent its ratification.

        Returns False if it isn't open.
        """
        self.register_announced()

        def work(connection: Connection) -> bool:
            # With the queue locked no request of the transaction is added or granted meanwhile.
            lock_rows.lock_queue(connection)
            change = sa.update(transactions).where(transactions.c.id == transaction_id)
            if connection.execute(change.values(state=KILLED)).rowcount == 0:
                return False
            release_locks(connection, [transaction_id])
            return True

        return self._database.change(work)

    def require_unkilled(self, transaction_id: str) -> None:
        """Raise Unavailable if the transaction was killed."""
        if transaction_id in self._announced:
            return
        with self._database.reading_once() as connection:
            if state_of(connection, transaction_id) == KILLED:
                raise killed_error(transaction_id)

    def require_open(self, transaction_id: str) -> None:
        """Raise Unavailable if another session ended or killed the transaction."""
        if transaction_id in self._announced:
            return
        with self._database.reading_once() as connection:
            state = state_of(connection, transaction_id)
        if state is None:
            raise ended_error(transaction_id)
        if state == KILLED:
            raise killed_error(transaction_id)

    def entries(self) -> list[TransactionEntry]:
        """Return the transactions of living sessions, killed ones included, oldest first."""
        self.register_announced()
        query = (
            sa.select(transactions, sessions.c.host, sessions.c.process, sessions.c.user_name)
            .join_from(transactions, sessions)
            .where(~is_expired(self._database))
            .order_by(transactions.c.number)
        )
        self._database.observe_leases(is_urgent=True)
        with self._database.reading_once() as connection:
            rows = connection.execute(query).all()
        return [TransactionEntry(**row._mapping) for row in rows]

    def others_open(self, besides: str) -> OpenTransactions:
        """Return the transactions that may still be ratified, except the one with the id
        `besides`. Dead sessions are removed first (`reap_due`), and writers that aren't registered
        have to run again.

        A transaction that isn't among them can't be ratified any more: files that only it could own
        may be deleted.
        """
        self.register_announced()
        self._exclude_unregistered()
        reap_due(self._database)
        query = sa.select(transactions.c.id, transactions.c.begin_ms).where(
            transactions.c.state != KILLED, transactions.c.id != besides
        )
        with self._database.reading_once() as connection:
            rows = connection.execute(query).all()
        return OpenTransactions(
            ids=frozenset(row.id for row in rows),
            begin_ms=min((row.begin_ms for row in rows), default=None),
        )

    def _exclude_unregistered(self) -> None:
        """Make writers outdated that aren't registered, in a catalog where there are such."""

        def work(connection: Connection) -> None:
            lock_sequence(connection)
            raise_fence(connection)

        if self._database.is_replicated:
            self._database.write(work)

    def _begin_batch(self, rows: Sequence[dict[str, Any]]) -> Sequence[int]:
        return self._database.write_relaxed(lambda connection: self.register(connection, rows))


def _row(
    transaction_id: str,
    session_id: int,
    name: str | None,
    isolation: str | None,
    read_only: bool,
    explicit: bool,
) -> dict[str, Any]:
    """Return a new transaction's row, without its number; the name is cut to 255 characters."""
    return {
        "id": transaction_id,
        "session_id": session_id,
        "name": name and name[:_NAME_LENGTH],
        "isolation": isolation,
        "read_only": read_only,
        "explicit": explicit,
        "sequence": None,
    }


def _end(connection: Connection, transaction_ids: Collection[str]) -> None:
    """End transactions with their locks and reservations, and commit that."""
    with pipelined(connection, commits=True):
        end_transactions(connection, transaction_ids)
