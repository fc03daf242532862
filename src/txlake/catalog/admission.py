"""What a statement needs before it runs, in one database transaction.

Owns that the names, the locks, the instant and the versions which a statement gets belong together:
what its tables' names mean when it holds their locks is what they mean until it ends, and the
versions are those of the instant that its transaction reads. Threads that ask at the same time
share the database transaction. Source: docs/internals/catalog.md, "Locks".
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
from txlake.catalog.locks import Answer, Ask, Locks, lost
from txlake.catalog.lookup import (
    CatalogView,
    LookupRequest,
    Name,
    Newest,
    look_up,
    newest,
    versions_at,
)
from txlake.catalog.prepared import together
from txlake.catalog.pruning import require_instant
from txlake.catalog.shielding import shielded
from txlake.catalog.transactions import Transactions
from txlake.conflict.locking import LockRequest, Owner, Queued
from txlake.errors import Unavailable


@dataclass(frozen=True, slots=True)
class Admission:
    """What a statement was answered.

    Attributes:
        is_granted: it may run: its transaction has its locks, or needs none.
        is_known: the catalog knows the transaction.
    """

    seen: CatalogView
    is_granted: bool
    is_known: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrant:
    """The transaction that a statement runs in.

    Attributes:
        is_new: the catalog doesn't have it yet.
        pins: whether the statement makes it read the newest instant, where it reads none yet.
        sequence: the instant that it reads, if it does.
        holder: it ends when that is gone.
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
        """By which its locks are known."""
        return Owner(session=self.session_id, transaction=self.id)

    @property
    def row(self) -> dict[str, Any]:
        """What the catalog notes of it."""
        return {
            "id": self.id,
            "session_id": self.session_id,
            "name": None,
            "isolation": self.isolation,
            "read_only": self.read_only,
            "explicit": self.explicit,
            "sequence": None,
        }


Needs = Callable[[CatalogView], Sequence[LockRequest] | None]
"""The locks that a statement needs where that is so; None where it has to ask for more first."""


@shielded(waits=("admit",))
class Admissions:
    """Admits statements of one lake, for any number of threads and processes."""

    def __init__(
        self, on: Database, fence: Fence, transactions: Transactions, locks: Locks
    ) -> None:
        self._on = on
        self._fence = fence
        self._transactions = transactions
        self._locks = locks
        self._rounds: GroupCommit[_Asking, _Outcome] = GroupCommit(self._round, turn=on.turn)

    def look(self, asked: LookupRequest, needs: Needs) -> Admission:
        """Admits a stranger who could have the locks at once, and takes none; it leaves no trace.

        Raises as `Fence.check`.
        """
        known = self._fence.newest
        with self._on.reading() as connection:
            seen = look_up(connection, asked)()
            requests = needs(seen)
            if requests is None or self._locks.is_contested(connection, requests):
                return Admission(seen, is_granted=False, is_known=False)
            now = newest(connection, seen.ids)()
        self._fence.check(now.epoch, now.instant, known=known)
        seen = seen.at(now.instant, now.versions)
        return Admission(seen, is_granted=True, is_known=False)

    def admit(
        self, who: Entrant, asked: LookupRequest, needs: Needs, *, timeout_ms: int
    ) -> Admission:
        """Waits until the transaction has the locks.

        Nothing is granted and nothing changed where `needs` has to know more. A new transaction
        that needs no locks stays unknown, unless it was announced. Threads that ask at the same
        time are admitted together, so that another one may call `needs`.

        Raises as `Locks.acquire` and `Fence.check`.
        """
        try:
            admission = self._admitted(_Asking(who, asked, needs, timeout_ms != 0), timeout_ms)
        except BaseException:
            self._locks.withdraw(who.owner)
            raise
        if not admission.is_known:
            self._transactions.forget(who.id)
        return admission

    def _admitted(self, asking: _Asking, timeout_ms: int) -> Admission:
        while True:
            who, heard = asking.who, self._locks.heard
            if who.holder is not None:
                self._transactions.hold(who.id, who.holder)
            try:
                outcome = self._rounds.submit(asking)
            except Interrupted:
                if who.is_new:
                    self._transactions.end(who.id)  # where it was noted all the same
                continue
            if outcome.locks is not None:
                self._locks.used(who.id)
                self._locks.keep(who.owner, outcome.locks)
                if outcome.locks.waiting is not None:
                    self._locks.wait(outcome.locks.waiting, heard, timeout_ms)
            if outcome.admission is not None:
                return outcome.admission
            asking = replace(asking, who=replace(who, is_new=False))

    def _round(self, group: Sequence[_Asking]) -> list[_Outcome | None]:
        """Admits statements in one transaction of the database."""
        known = self._fence.newest
        ids = [asking.who.id for asking in group]
        with self._transactions.taken(ids) as announced, self._on.noting() as connection:
            made = _Round(self._on, self._transactions, self._locks, connection, group)
            now = made.carried_out(announced)
        if now is not None:
            self._fence.check(now.epoch, now.instant, known=known)
        return [guest.outcome for guest in made.guests]


@dataclass(frozen=True, slots=True)
class _Asking:
    """What a statement asks of a round. `waits`: where it can't have a lock at once."""

    who: Entrant
    asked: LookupRequest
    needs: Needs
    waits: bool


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What came of it. `locks`: where they were asked for; no `admission`: it has to ask again."""

    admission: Admission | None
    locks: Answer | None = None


class _Guest:
    """A statement in its round.

    Attributes:
        is_apart: it needs a round of its own; nothing was written for it in this one.
        is_settled: it has its locks, and they are what it needs.
        locks: the answer, where it asked for them.
        grants: those that are still to be written.
    """

    __slots__ = ("asking", "grants", "is_apart", "is_settled", "locks", "requests", "seen")

    def __init__(self, asking: _Asking) -> None:
        self.asking = asking
        self.seen = CatalogView()
        self.requests: Sequence[LockRequest] | None = None
        self.locks: Answer | None = None
        self.grants: Sequence[Queued] = ()
        self.is_apart = self.is_settled = False

    @property
    def who(self) -> Entrant:
        """Its transaction."""
        return self.asking.who

    @property
    def asks(self) -> bool:
        """Whether it asks for locks; for none where its transaction is only to be there still."""
        return self.requests is not None and (bool(self.requests) or not self.who.is_new)

    @property
    def reads_newest(self) -> bool:
        """Whether it makes its transaction read the newest instant."""
        reads = self.who.sequence is None and self.who.pins
        return reads and self.is_settled and bool(self.seen.tables or self.seen.places)

    def look(self, seen: CatalogView) -> None:
        """Finds out what it needs where that is so."""
        self.seen = seen
        self.requests = self.asking.needs(seen)

    @property
    def outcome(self) -> _Outcome | None:
        """What came of it; None: it needs a round of its own."""
        if self.is_apart:
            return None
        is_known = self.locks is not None or not self.who.is_new
        admission = Admission(self.seen, is_granted=self.requests is not None, is_known=is_known)
        is_final = self.locks is None or self.is_settled
        return _Outcome(admission if is_final else None, self.locks)


class _Round:
    """Statements that are admitted in one transaction of the database.

    Of several one that would have to wait, or be refused, is left for a round of its own.
    """

    def __init__(
        self,
        on: Database,
        transactions: Transactions,
        locks: Locks,
        connection: Connection,
        group: Sequence[_Asking],
    ) -> None:
        self.guests = [_Guest(asking) for asking in group]
        self._on = on
        self._transactions = transactions
        self._locks = locks
        self._connection = connection
        self._is_alone = len(group) == 1
        names = frozenset[Name]().union(*(asking.asked.names for asking in group))
        places = frozenset[str]().union(*(asking.asked.places for asking in group))
        self._asked = LookupRequest(names=names, places=places)

    def carried_out(self, announced: Sequence[dict[str, Any]]) -> Newest | None:
        """Admits them; what is newest in the lake, None where nobody asks for locks.

        `announced`: transactions to note besides.
        """
        with together(self._connection):
            looking = look_up(self._connection, self._asked)
        seen = looking()
        self._look(self.guests, seen)
        asking = [guest for guest in self.guests if guest.asks]
        rows = [*announced, *(guest.who.row for guest in asking if guest.who.is_new)]
        if not asking:
            self._transactions.enter(self._connection, rows)
            return None
        rows, now = self._asked_for_locks(asking, rows, seen)
        if self._is_alone and asking[0].locks is None:
            self._transactions.insert(self._connection, rows)
            rows, now = [], self._asked_alone(asking[0])
        self._tell(now)
        self._write(rows, now.instant)
        return now

    def _look(self, guests: Sequence[_Guest], seen: CatalogView) -> None:
        for guest in guests:
            try:
                guest.look(seen if self._is_alone else seen.part(guest.asking.asked))
            except Exception:
                if self._is_alone:
                    raise
                guest.is_apart = True

    def _asked_for_locks(
        self, asking: Sequence[_Guest], rows: list[dict[str, Any]], seen: CatalogView
    ) -> tuple[list[dict[str, Any]], Newest]:
        """Asks for all locks; the new transactions with their numbers, and what is newest.

        Where others may write meanwhile the names are looked at again: until the round ends nobody
        is granted a lock, so that they stay what they are then for who gets theirs.
        """
        new = {row["id"] for row in rows}
        asks = [Ask(one.who.owner, one.requests or (), one.who.id in new) for one in asking]
        with together(self._connection):
            entering = self._transactions.entering(self._connection, rows)
            answering = self._locks.asking(self._connection, asks)
            again = None if self._on.writes_alone else look_up(self._connection, self._asked)
            now = newest(self._connection, seen.ids)
        rows = entering()
        for guest, answer in zip(asking, answering()):
            guest.locks, guest.is_settled = answer, answer is not None
            guest.is_apart = answer is None and not self._is_alone
            guest.grants = () if answer is None else answer.granted
        if again is not None:
            self._look_again([guest for guest in asking if guest.grants], again())
        for guest in asking:
            guest.is_settled = guest.is_settled and guest.seen.ids <= seen.ids
        return rows, now()

    def _asked_alone(self, guest: _Guest) -> Newest:
        """Finds out why it can't have its locks at once: raises that, or has it wait."""
        guest.locks = self._locks.ask(
            self._connection, guest.who.owner, guest.requests or (), waits=guest.asking.waits
        )
        guest.is_settled = guest.locks.waiting is None
        if not self._on.writes_alone:
            self._look_again([guest], look_up(self._connection, self._asked)())
        return newest(self._connection, guest.seen.ids)()

    def _look_again(self, guests: Sequence[_Guest], seen: CatalogView) -> None:
        """Whether they still need the locks that they have."""
        before = [guest.requests for guest in guests]
        self._look(guests, seen)
        for guest, requests in zip(guests, before):
            guest.is_settled = guest.is_settled and guest.requests == requests

    def _tell(self, now: Newest) -> None:
        """Tells each the versions at the instant that its transaction reads."""
        reading: dict[int, list[_Guest]] = {}
        for guest in self.guests:
            if guest.reads_newest:
                guest.seen = guest.seen.at(now.instant, now.versions)
            elif guest.is_settled and guest.who.sequence is not None:
                reading.setdefault(guest.who.sequence, []).append(guest)
        for instant, guests in reading.items():
            try:
                require_instant(self._connection, instant)
            except Unavailable:
                if self._is_alone:
                    raise
                for guest in guests:
                    guest.is_apart = True
            ids = frozenset[str]().union(*(guest.seen.ids for guest in guests))
            versions = versions_at(self._connection, ids, instant)
            for guest in guests:
                guest.seen = guest.seen.at(instant, versions)

    def _write(self, rows: Sequence[dict[str, Any]], instant: int) -> None:
        """Notes new transactions, locks, and the instant for those who read it from now on."""
        staying = [guest for guest in self.guests if guest.locks is not None and not guest.is_apart]
        apart = {guest.who.id for guest in self.guests if guest.is_apart and guest.who.is_new}
        granted = [lock for guest in staying for lock in guest.grants]
        pinned = {one.who.id for one in staying if one.reads_newest and one.who.explicit}
        entered = [
            {**row, "sequence": instant} if row["id"] in pinned else row
            for row in rows
            if row["id"] not in apart
        ]
        pinned.difference_update(row["id"] for row in entered)
        try:
            with together(self._connection):
                self._transactions.insert(self._connection, entered)
                self._locks.grant(self._connection, granted)
                self._transactions.note_instant(self._connection, pinned, instant)
        except IntegrityError as error:  # a session isn't there any more; each alone finds out
            if self._is_alone:
                raise lost(self.guests[0].who.owner) from error
            raise
