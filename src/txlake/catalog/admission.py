"""Admit a statement in one transaction of the catalog's database: names, locks, instant,
versions.

A table name keeps the meaning that it has when its lock is granted until the transaction ends, and
the versions are those of the instant that the transaction reads. Requests of several threads share
a database transaction. Source: docs/internals/catalog.md, "Locks".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from txlake.catalog.database import Database
from txlake.catalog.fence import Fence
from txlake.catalog.group_commit import GroupCommit, Interrupted
from txlake.catalog.lock_errors import lost_error
from txlake.catalog.locks import LockResult, Locks, OwnerRequests
from txlake.catalog.lookup import (
    CatalogView,
    LookupRequest,
    Name,
    Newest,
    look_up,
    newest,
    versions_at,
)
from txlake.catalog.prepared import pipelined
from txlake.catalog.pruning import require_instant
from txlake.catalog.shielding import shielded
from txlake.catalog.transactions import Transactions
from txlake.catalog.unregistered import CatalogReply, UnregisteredWriters, read_fence
from txlake.conflict.locking import LockRequest, Owner, Queued
from txlake.errors import Unavailable


@dataclass(frozen=True, slots=True)
class Admission:
    """The catalog's reply to a statement.

    Attributes:
        view: the names, places and versions that the statement requested.
        is_granted: the statement may run: its transaction has the required locks, or needs none.
        is_known: the catalog knows the transaction.
    """

    view: CatalogView
    is_granted: bool
    is_known: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementTransaction:
    """The transaction that a statement runs in.

    Attributes:
        is_new: the catalog doesn't have the transaction yet.
        pins: the statement makes the transaction read the newest instant if it reads none yet.
        sequence: the instant that the transaction reads; None before its first read.
        holder: the transaction ends when this object is garbage-collected.
    """

    id: str
    session_id: int
    is_new: bool
    pins: bool
    sequence: int | None = None
    isolation: str | None = None
    read_only: bool = False
    explicit: bool = True
    holder: object = None

    @property
    def owner(self) -> Owner:
        """The owner of the transaction's locks."""
        return Owner(session=self.session_id, transaction=self.id)

    @property
    def row(self) -> dict[str, Any]:
        """The transaction's row for the catalog."""
        return {
            "id": self.id,
            "session_id": self.session_id,
            "name": None,
            "isolation": self.isolation,
            "read_only": self.read_only,
            "explicit": self.explicit,
            "sequence": None,
        }


RequiredLocks = Callable[[CatalogView], Sequence[LockRequest] | None]
"""Returns the locks that a statement requires for a view; None if it has to look up more first."""


@shielded(waits=("admit",))
class Admissions:
    """Admits statements of one lake, for any number of threads and processes."""

    def __init__(
        self,
        database: Database,
        fence: Fence,
        transactions: Transactions,
        locks: Locks,
        unregistered: UnregisteredWriters,
    ) -> None:
        self._database = database
        self._fence = fence
        self._transactions = transactions
        self._locks = locks
        self._unregistered = unregistered
        self._group: GroupCommit[_AdmissionRequest, _Outcome] = GroupCommit(
            self._admit_batch, turn=database.turn
        )

    def admit_without_locks(
        self, lookup: LookupRequest, required_locks: RequiredLocks
    ) -> Admission:
        """Admit a statement whose locks are free at this moment, without taking them or leaving
        a trace.

        If a lock isn't free, or `required_locks` returns None, the admission isn't granted. Raises
        Unavailable and CorruptTable as `Fence.check`.
        """
        known = self._fence.newest
        with self._database.reading() as connection:
            view = look_up(connection, lookup)()
            requests = required_locks(view)
            if requests is None or self._locks.is_contested(connection, requests):
                return Admission(view, is_granted=False, is_known=False)
            now = newest(connection, view.ids)()
        self._fence.check(now.epoch, now.instant, known=known)
        view = view.at(now.instant, now.versions)
        return Admission(view, is_granted=True, is_known=False)

    def admit_unregistered(
        self,
        transaction: StatementTransaction,
        lookup: LookupRequest,
        required_locks: RequiredLocks,
        *,
        looks: bool,
    ) -> Admission:
        """Admit a statement as `admit_without_locks` does; the transaction's ratification checks
        the reply again (`UnregisteredWriters.check`).

        `looks`: the reply has what was committed before the call, unless the transaction reads an
        instant already; without it, what this process knows of the catalog.
        """
        known = self._fence.newest if looks else 0
        looks = looks and transaction.sequence is None
        with self._database.reading() if looks else self._database.reading_known() as connection:
            view = look_up(connection, lookup)()
            requests = required_locks(view)
            if requests is None or self._locks.is_contested(connection, requests):
                return Admission(view, is_granted=False, is_known=False)
            fence, now = read_fence(connection), newest(connection, view.ids)()
            instant, versions = transaction.sequence, now.versions
            if instant is None:
                instant = now.instant
                self._fence.check(now.epoch, now.instant, known=known)
            else:
                require_instant(connection, instant)
                versions = versions_at(connection, view.ids, instant)
        if requests:
            row = {**transaction.row, "sequence": instant if transaction.explicit else None}
            reply = CatalogReply(lookup, required_locks, tuple(requests), view.ids)
            self._unregistered.add(transaction.owner, row, fence, reply)
            self._locks.note_use(transaction.id)
        return Admission(view.at(instant, versions), is_granted=True, is_known=False)

    def admit(
        self,
        transaction: StatementTransaction,
        lookup: LookupRequest,
        required_locks: RequiredLocks,
        *,
        timeout_ms: int,
    ) -> Admission:
        """Wait until the transaction has its locks.

        If `required_locks` returns None, because the statement has to look up more first, nothing
        is granted or changed. A new transaction that needs no locks stays unknown to the catalog,
        unless it was announced. Concurrent requests are admitted together, so another thread may
        call `required_locks`.

        Raises as `Locks.acquire` and `Fence.check`.
        """
        self._unregistered.register_all()
        try:
            admission = self._admit_repeatedly(
                _AdmissionRequest(transaction, lookup, required_locks, timeout_ms != 0), timeout_ms
            )
        except BaseException:
            self._locks.withdraw(transaction.owner)
            raise
        if not admission.is_known:
            self._transactions.forget(transaction.id)
        return admission

    def _admit_repeatedly(self, request: _AdmissionRequest, timeout_ms: int) -> Admission:
        """Submit a request, and wait for its lock, until there is an admission. Raises as `admit`.

        The request is submitted again after a wait for a lock, if its locks have changed, and if
        the batch's leader was interrupted.
        """
        while True:
            transaction, since = request.transaction, self._locks.change_count
            if transaction.holder is not None:
                self._transactions.hold(transaction.id, transaction.holder)
            try:
                outcome = self._group.submit(request)
            except Interrupted:
                if transaction.is_new:
                    self._transactions.end(transaction.id)  # its row may have been written
                continue
            if outcome.locks is not None:
                self._locks.note_use(transaction.id)
                self._locks.remember(transaction.owner, outcome.locks)
                if outcome.locks.waiting is not None:
                    self._locks.wait(outcome.locks.waiting, since, timeout_ms)
            if outcome.admission is not None:
                return outcome.admission
            request = replace(request, transaction=replace(transaction, is_new=False))

    def _admit_batch(self, requests: Sequence[_AdmissionRequest]) -> list[_Outcome | None]:
        """Admit statements in one transaction of the database. Return their outcomes in order,
        None for a statement that has to be admitted alone.
        """
        known = self._fence.newest
        ids = [request.transaction.id for request in requests]

        def work(connection: Connection) -> tuple[_Batch, Newest | None]:
            batch = _Batch(self._database, self._transactions, self._locks, connection, requests)
            return batch, batch.admit(announced)

        with self._transactions.announced_rows(ids) as announced:
            batch, now = self._database.write_relaxed(work)
        if now is not None:
            self._fence.check(now.epoch, now.instant, known=known)
        return [statement.outcome for statement in batch.statements]


@dataclass(frozen=True, slots=True)
class _AdmissionRequest:
    """A statement's request in a batch. `waits`: it waits if a lock isn't free."""

    transaction: StatementTransaction
    lookup: LookupRequest
    required_locks: RequiredLocks
    waits: bool


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The outcome of a request.

    Attributes:
        admission: None if the statement has to be requested again.
        locks: None if no locks were requested.
    """

    admission: Admission | None
    locks: LockResult | None = None


class _Statement:
    """A statement in its batch.

    Attributes:
        is_apart: it is admitted again, alone; nothing was written for it in this batch.
        is_settled: it has its locks, and they are still the required ones.
        locks: the result of its lock requests, if it made any.
        grants: the granted locks that aren't written yet.
    """

    __slots__ = ("grants", "is_apart", "is_settled", "locks", "request", "requests", "view")

    def __init__(self, request: _AdmissionRequest) -> None:
        self.request = request
        self.view = CatalogView()
        self.requests: Sequence[LockRequest] | None = None
        self.locks: LockResult | None = None
        self.grants: Sequence[Queued] = ()
        self.is_apart = self.is_settled = False

    @property
    def transaction(self) -> StatementTransaction:
        """The statement's transaction."""
        return self.request.transaction

    @property
    def requests_locks(self) -> bool:
        """Whether the statement requests locks; an empty request checks that the transaction is
        still open.
        """
        return self.requests is not None and (bool(self.requests) or not self.transaction.is_new)

    @property
    def reads_newest(self) -> bool:
        """Whether the statement makes its transaction read the newest instant."""
        reads = self.transaction.sequence is None and self.transaction.pins
        return reads and self.is_settled and bool(self.view.tables or self.view.places)

    def use_view(self, view: CatalogView) -> None:
        """Set the statement's view and compute the required locks."""
        self.view = view
        self.requests = self.request.required_locks(view)

    @property
    def outcome(self) -> _Outcome | None:
        """The outcome; None if the statement has to be admitted alone."""
        if self.is_apart:
            return None
        is_known = self.locks is not None or not self.transaction.is_new
        admission = Admission(self.view, is_granted=self.requests is not None, is_known=is_known)
        is_final = self.locks is None or self.is_settled
        return _Outcome(admission if is_final else None, self.locks)


class _Batch:
    """Statements that are admitted in one transaction of the database.

    In a batch of several, a statement that would wait or be refused is left to be admitted alone.
    """

    def __init__(
        self,
        database: Database,
        transactions: Transactions,
        locks: Locks,
        connection: Connection,
        requests: Sequence[_AdmissionRequest],
    ) -> None:
        self.statements = [_Statement(request) for request in requests]
        self._database = database
        self._transactions = transactions
        self._locks = locks
        self._connection = connection
        self._is_alone = len(requests) == 1
        names = frozenset[Name]().union(*(request.lookup.names for request in requests))
        places = frozenset[str]().union(*(request.lookup.places for request in requests))
        [branch] = {request.lookup.branch for request in requests}
        self._lookup = LookupRequest(names=names, places=places, branch=branch)

    def admit(self, announced: Sequence[dict[str, Any]]) -> Newest | None:
        """Admit the statements; return the newest instant and versions, or None if no locks were
        requested.

        `announced`: rows of other transactions to register in the same database transaction.
        """
        with pipelined(self._connection):
            read_view = look_up(self._connection, self._lookup)
        view = read_view()
        self._use_view(self.statements, view)
        requesting = [statement for statement in self.statements if statement.requests_locks]
        rows = [
            *announced,
            *(
                statement.transaction.row
                for statement in requesting
                if statement.transaction.is_new
            ),
        ]
        if not requesting:
            self._transactions.register(self._connection, rows)
            return None
        rows, now = self._request_locks(requesting, rows, view)
        if self._is_alone and requesting[0].locks is None:
            self._transactions.insert(self._connection, rows)
            rows, now = [], self._request_alone(requesting[0])
        self._set_versions(now)
        self._write(rows, now.instant)
        return now

    def _use_view(self, statements: Sequence[_Statement], view: CatalogView) -> None:
        """Set the statements' view.

        A statement whose locks can't be computed is set apart; if it is alone, its error is raised.
        """
        for statement in statements:
            try:
                statement.use_view(view if self._is_alone else view.part(statement.request.lookup))
            except Exception:
                if self._is_alone:
                    raise
                statement.is_apart = True

    def _request_locks(
        self, requesting: Sequence[_Statement], rows: list[dict[str, Any]], view: CatalogView
    ) -> tuple[list[dict[str, Any]], Newest]:
        """Request all locks; return the new transactions' rows with numbers, and the newest
        versions.

        If other processes may write meanwhile, the names are looked up again: nobody else is
        granted a lock until the batch ends, so the second view is valid for every statement that
        gets its locks.
        """
        new = {row["id"] for row in rows}
        batches = [
            OwnerRequests(
                statement.transaction.owner,
                statement.requests or (),
                statement.transaction.id in new,
            )
            for statement in requesting
        ]
        with pipelined(self._connection):
            number_rows = self._transactions.send_registration(self._connection, rows)
            read_results = self._locks.send_requests(self._connection, batches)
            read_view = (
                None
                if self._database.has_single_writer
                else look_up(self._connection, self._lookup)
            )
            read_newest = newest(self._connection, view.ids)
        rows = number_rows()
        for statement, result in zip(requesting, read_results()):
            statement.locks, statement.is_settled = result, result is not None
            statement.is_apart = result is None and not self._is_alone
            statement.grants = () if result is None else result.granted
        if read_view is not None:
            self._use_second_view(
                [statement for statement in requesting if statement.grants], read_view()
            )
        for statement in requesting:
            statement.is_settled = statement.is_settled and statement.view.ids <= view.ids
        return rows, read_newest()

    def _request_alone(self, statement: _Statement) -> Newest:
        """Request the locks of a single statement: raise why they can't be granted, or let it
        wait.
        """
        statement.locks = self._locks.request(
            self._connection,
            statement.transaction.owner,
            statement.requests or (),
            waits=statement.request.waits,
        )
        statement.is_settled = statement.locks.waiting is None
        if not self._database.has_single_writer:
            self._use_second_view([statement], look_up(self._connection, self._lookup)())
        return newest(self._connection, statement.view.ids)()

    def _use_second_view(self, statements: Sequence[_Statement], view: CatalogView) -> None:
        """Compute the required locks again; a statement whose locks change isn't settled."""
        before = [statement.requests for statement in statements]
        self._use_view(statements, view)
        for statement, requests in zip(statements, before):
            statement.is_settled = statement.is_settled and statement.requests == requests

    def _set_versions(self, now: Newest) -> None:
        """Set each statement's versions to those of the instant that its transaction reads."""
        reading: dict[int, list[_Statement]] = {}
        for statement in self.statements:
            if statement.reads_newest:
                statement.view = statement.view.at(now.instant, now.versions)
            elif statement.is_settled and statement.transaction.sequence is not None:
                reading.setdefault(statement.transaction.sequence, []).append(statement)
        for instant, statements in reading.items():
            try:
                require_instant(self._connection, instant)
            except Unavailable:
                if self._is_alone:
                    raise
                for statement in statements:
                    statement.is_apart = True
            ids = frozenset[str]().union(*(statement.view.ids for statement in statements))
            versions = versions_at(self._connection, ids, instant)
            for statement in statements:
                statement.view = statement.view.at(instant, versions)

    def _write(self, rows: Sequence[dict[str, Any]], instant: int) -> None:
        """Write new transactions, granted locks, and the newly pinned instants.

        If a session's row was removed, raise Unavailable for a single statement, and SQLAlchemy's
        IntegrityError for a batch of several.
        """
        staying = [
            statement
            for statement in self.statements
            if statement.locks is not None and not statement.is_apart
        ]
        apart = {
            statement.transaction.id
            for statement in self.statements
            if statement.is_apart and statement.transaction.is_new
        }
        granted = [lock for statement in staying for lock in statement.grants]
        pinned = {
            statement.transaction.id
            for statement in staying
            if statement.reads_newest and statement.transaction.explicit
        }
        entered = [
            {**row, "sequence": instant} if row["id"] in pinned else row
            for row in rows
            if row["id"] not in apart
        ]
        pinned.difference_update(row["id"] for row in entered)
        try:
            with pipelined(self._connection):
                self._transactions.insert(self._connection, entered)
                self._locks.write_grants(self._connection, granted)
                self._transactions.set_instant(self._connection, pinned, instant)
        except IntegrityError as error:  # a session's row was removed
            if self._is_alone:
                raise lost_error(self.statements[0].transaction.owner) from error
            raise
