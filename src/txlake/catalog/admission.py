"""Admit a statement in one transaction of the catalog's database: names, locks, instant,
versions.

A table name keeps the meaning that it has when its lock is granted until the transaction ends, and
the versions are those of the instant that the transaction reads. Requests of several threads share
a database transaction. Source: docs/internals/catalog.md, "Locks".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
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
    SeenNames,
    look_up,
    look_up_as_expected,
    newest,
    send_versions,
    versions_at,
)
from txlake.catalog.prepared import pipelined
from txlake.catalog.pruning import require_instant, send_instant_check
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
        self._seen = SeenNames()
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
        expected = self._expected([lookup])
        found = None
        if expected is not None:
            found = self._free_as_expected(lookup, required_locks, expected[0])
        if found is None:
            with self._database.reading() as connection:
                view = look_up(connection, lookup)()
                requests = required_locks(view)
                if requests is None or self._locks.is_contested(connection, requests):
                    return Admission(view, is_granted=False, is_known=False)
                found = view, newest(connection, view.ids)()
        view, now = found
        self._fence.check(now.epoch, now.instant, known=known)
        self._seen.note(lookup, view)
        view = view.at(now.instant, now.versions)
        return Admission(view, is_granted=True, is_known=False)

    def _expected(self, lookups: Sequence[LookupRequest]) -> Sequence[CatalogView] | None:
        """Return what the lookups are expected to find; None if that isn't known of all, or isn't
        needed, because the database is in this process.
        """
        if self._database.has_single_writer:
            return None
        views = [self._seen.expected(lookup) for lookup in lookups]
        known = [view for view in views if view is not None]
        return known if len(known) == len(views) else None

    def _free_as_expected(
        self, lookup: LookupRequest, required_locks: RequiredLocks, expected: CatalogView
    ) -> tuple[CatalogView, Newest] | None:
        """Look the names up, together with what follows if they mean what is expected: whether the
        locks are free, and the newest versions. Return None if they don't, or a lock isn't free.
        """
        try:
            requests = required_locks(expected)
        except Exception:
            return None  # if it is still so, the lookup without an expectation raises it
        if requests is None:
            return None
        with self._database.reading() as connection:
            with pipelined(connection, commits=True):
                read_view = look_up_as_expected(connection, lookup, tables=expected.tables)
                read_contest = self._locks.send_contest_query(connection, requests)
                read_newest = newest(connection, expected.ids)
            view = read_view()
            if view is None or read_contest():
                return None
            if view.ids != expected.ids or required_locks(view) != requests:
                return None
            return view, read_newest()

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

        expected = self._expected([request.lookup for request in requests])

        def work(connection: Connection) -> tuple[_Batch, Newest | None]:
            batch = _Batch(self._database, self._transactions, self._locks, connection, requests)
            if expected is not None:
                return batch, batch.admit_as_expected(expected, announced)
            return batch, batch.admit(announced)

        with self._transactions.announced_rows(ids) as announced:
            batch, now = self._database.write_relaxed(work)
            if expected is not None and now is None:
                expected = None
                batch, now = self._database.write_relaxed(work)
        if now is not None:
            self._fence.check(now.epoch, now.instant, known=known)
        for statement in batch.statements:
            self._seen.note(statement.request.lookup, statement.view)
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
        # By instant: whether it can be read still, and the versions at it.
        self._versions: dict[int, tuple[Callable[[], None], Callable[[], Mapping[str, int]]]] = {}

    def admit(self, announced: Sequence[dict[str, Any]]) -> Newest | None:
        """Admit the statements, and commit; return the newest instant and versions, or None if no
        locks were requested.

        `announced`: rows of other transactions to register in the same database transaction.
        """
        with pipelined(self._connection):
            read_view = look_up(self._connection, self._lookup)
        view = read_view()
        self._use_view(self.statements, view)
        requesting = [statement for statement in self.statements if statement.requests_locks]
        rows = self._rows(requesting, announced)
        if not requesting:
            self._transactions.register(self._connection, rows)
            return None
        again = None if self._database.has_single_writer else look_up
        rows, second_view, now = self._request_locks(requesting, rows, view.ids, again)
        if second_view is not None:
            self._use_second_view(
                [statement for statement in requesting if statement.grants], second_view
            )
        self._settle(requesting, view.ids)
        if self._is_alone and requesting[0].locks is None:
            self._transactions.insert(self._connection, rows)
            rows, now = [], self._request_alone(requesting[0])
        self._set_versions(now)
        self._write(rows, now.instant)
        return now

    def admit_as_expected(
        self, expected: Sequence[CatalogView], announced: Sequence[dict[str, Any]]
    ) -> Newest | None:
        """Admit the statements, and commit, if their names mean what is expected and all of their
        locks are free; return the newest instant and versions. Two round trips, one if there is
        nothing to write.

        Return None if not: nothing was written, and the transaction may be over.
        """
        try:
            for statement, its_view in zip(self.statements, expected):
                statement.use_view(its_view)
        except Exception:
            return None  # if it is still so, the lookup without an expectation raises it
        if not all(statement.requests_locks for statement in self.statements):
            return None
        if any(map(self._converts, self.statements)):
            return None
        rows = self._rows(self.statements, announced)
        ids = frozenset[str]().union(*(view.ids for view in expected))
        tables = {name for view in expected for name in view.tables}
        look = partial(look_up_as_expected, tables=tables)
        writes = bool(rows) or not all(map(self._has_all, self.statements))
        rows, view, now = self._request_locks(self.statements, rows, ids, look, commits=not writes)
        if view is None:
            return None
        self._use_second_view(self.statements, view)
        self._settle(self.statements, ids)
        if any(each.is_apart or not each.is_settled for each in self.statements):
            return None
        self._set_versions(now)
        if writes:
            self._write(rows, now.instant)
        return now

    def _has_all(self, statement: _Statement) -> bool:
        """Return whether a statement's transaction has its locks, and the instant it reads."""
        transaction = statement.transaction
        reads = transaction.sequence is not None or not transaction.pins
        return reads and self._locks.holds(transaction.owner, statement.requests or ())

    def _converts(self, statement: _Statement) -> bool:
        """Return whether a statement's transaction has a weaker lock than it needs."""
        return self._locks.converts(statement.transaction.owner, statement.requests or ())

    @staticmethod
    def _rows(
        requesting: Sequence[_Statement], announced: Sequence[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return the rows of the transactions to register."""
        new = (statement.transaction for statement in requesting)
        return [*announced, *(transaction.row for transaction in new if transaction.is_new)]

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
        self,
        requesting: Sequence[_Statement],
        rows: list[dict[str, Any]],
        ids: frozenset[str],
        look: Callable[[Connection, LookupRequest], Callable[[], CatalogView | None]] | None,
        *,
        commits: bool = False,
    ) -> tuple[list[dict[str, Any]], CatalogView | None, Newest]:
        """Request all locks; return the new transactions' rows with numbers, what `look` finds
        after that, and the newest versions of the tables with the ids.

        If other processes may write meanwhile, the names have to be looked up again: nobody else is
        granted a lock until the batch ends, so the second view is valid for every statement that
        gets its locks. `commits`: nothing is to be written, and the transaction is over.
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
        with pipelined(self._connection, commits=commits):
            number_rows = self._transactions.send_registration(self._connection, rows)
            read_results = self._locks.send_requests(self._connection, batches)
            read_view = None if look is None else look(self._connection, self._lookup)
            read_newest = newest(self._connection, ids)
            self._send_versions(requesting, ids)
        rows = number_rows()
        for statement, result in zip(requesting, read_results()):
            statement.locks, statement.is_settled = result, result is not None
            statement.is_apart = result is None and not self._is_alone
            statement.grants = () if result is None else result.granted
        return rows, None if read_view is None else read_view(), read_newest()

    def _send_versions(self, requesting: Sequence[_Statement], ids: frozenset[str]) -> None:
        """Send the queries for the versions at the instants that the statements read already."""
        self._versions = {
            instant: (
                send_instant_check(self._connection, instant),
                send_versions(self._connection, ids, instant),
            )
            for instant in {statement.transaction.sequence for statement in requesting}
            if instant is not None
        }

    @staticmethod
    def _settle(requesting: Sequence[_Statement], ids: frozenset[str]) -> None:
        """Leave statements unsettled that name other tables than those with the ids."""
        for statement in requesting:
            statement.is_settled = statement.is_settled and statement.view.ids <= ids

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
        with pipelined(self._connection):
            read_newest = newest(self._connection, statement.view.ids)
            self._send_versions([statement], statement.view.ids)
        return read_newest()

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
            require_readable, read_versions = self._versions[instant]
            try:
                require_readable()
            except Unavailable:
                if self._is_alone:
                    raise
                for statement in statements:
                    statement.is_apart = True
            versions = read_versions()
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
            with pipelined(self._connection, commits=True):
                self._transactions.insert(self._connection, entered)
                self._locks.write_grants(self._connection, granted)
                self._transactions.set_instant(self._connection, pinned, instant)
        except IntegrityError as error:  # a session's row was removed
            if self._is_alone:
                raise lost_error(self.statements[0].transaction.owner) from error
            raise
