"""What a statement needs before it runs, in one database transaction.

Owns that the names, the locks, the instant and the versions which a statement gets belong together:
what its tables' names mean when it holds their locks is what they mean until it ends, and the
versions are those of the instant that its transaction reads. Source: DESIGN section 5, "Locks".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog import names
from txlake.catalog.database import Database
from txlake.catalog.fence import Fence
from txlake.catalog.locks import Locks
from txlake.catalog.names import DatabaseEntry, TableEntry
from txlake.catalog.prepared import Prepared
from txlake.catalog.pruning import require_instant
from txlake.catalog.relations import commits, tables
from txlake.catalog.shielding import shielded
from txlake.catalog.transactions import INSTANT, Transactions
from txlake.catalog.views import ViewEntry, view_named
from txlake.conflict.locking import LockRequest, Owner

Name = tuple[str, str]
"""Database and table, in lower case."""

# From the newest version back, so that a long history costs nothing.
_VERSION = (
    sa.select(commits.c.version)
    .where(commits.c.table_id == tables.c.id, commits.c.sequence <= sa.bindparam("at"))
    .order_by(commits.c.version.desc())
    .limit(1)
)
_VERSIONS = Prepared(
    lambda ids: sa.select(tables.c.id, _VERSION.scalar_subquery().label("version")).where(
        tables.c.id.in_(ids)
    ),
    "ids",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a statement asks for.

    Attributes:
        names: of tables and views; letter case doesn't count.
        places: URLs where tables may lie.
    """

    names: frozenset[Name] = frozenset()
    places: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What there is of it, at one moment.

    Attributes:
        databases: those that the names say, by name in lower case.
        places: the tables at the places asked for.
        instant: the instant of the lake that the transaction reads; None where it wasn't asked for.
        versions: which version each table had at that instant, by id; those that weren't in the
            lake then are left out.
    """

    databases: Mapping[str, DatabaseEntry] = field(default_factory=dict)
    tables: Mapping[Name, TableEntry] = field(default_factory=dict)
    views: Mapping[Name, ViewEntry] = field(default_factory=dict)
    places: Mapping[str, TableEntry] = field(default_factory=dict)
    instant: int | None = None
    versions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Admission:
    """What a statement was answered.

    Attributes:
        is_granted: it may run: its transaction has its locks, or needs none.
        is_known: the catalog knows the transaction.
    """

    seen: Seen
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
        }


Needs = Callable[[Seen], Sequence[LockRequest] | None]
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

    def look(self, asked: Asked, needs: Needs) -> Admission:
        """Admits a stranger who could have the locks at once, and takes none; it leaves no trace.

        Raises as `Fence.check`.
        """
        known = self._fence.newest
        with self._on.reading() as connection:
            seen = _seen(connection, asked)
            requests = needs(seen)
            if requests is None or self._locks.is_contested(connection, requests):
                return Admission(seen, is_granted=False, is_known=False)
            newest, epoch = INSTANT.rows(connection)[0]
            seen = _at(connection, seen, newest)
        self._fence.check(epoch, newest, known=known)
        return Admission(seen, is_granted=True, is_known=False)

    def admit(self, who: Entrant, asked: Asked, needs: Needs, *, timeout_ms: int) -> Admission:
        """Waits until the transaction has the locks.

        Nothing is granted and nothing changed where `needs` has to know more. A new transaction
        that needs no locks stays unknown, unless it was announced.

        Raises as `Locks.acquire` and `Fence.check`.
        """
        if who.holder is not None:
            self._transactions.hold(who.id, who.holder)
        try:
            return self._admitted(who, asked, needs, timeout_ms)
        except BaseException:
            self._locks.withdraw(who.owner)
            raise

    def _admitted(self, who: Entrant, asked: Asked, needs: Needs, timeout_ms: int) -> Admission:
        while True:
            heard = self._locks.heard
            known = self._fence.newest
            with self._transactions.taken(who.id) as announced, self._on.noting() as connection:
                seen = _seen(connection, asked)
                requests = needs(seen)
                if who.is_new and not requests:
                    self._transactions.forget(who.id)
                    return Admission(seen, is_granted=requests is not None, is_known=False)
                if who.is_new or announced:
                    self._transactions.enter(connection, announced or [who.row])
                if requests is None:
                    return Admission(seen, is_granted=False, is_known=True)
                self._locks.used(who.id)
                answer = self._locks.ask(connection, who.owner, requests, waits=timeout_ms != 0)
                if answer.granted and not self._on.writes_alone:
                    seen = _seen(connection, asked)
                is_done = answer.waiting is None and needs(seen) == requests
                pins = is_done and _reads_newest(who, seen)
                newest, epoch = self._instant(connection, who, is_noted=pins)
                if who.sequence is not None:
                    require_instant(connection, who.sequence)
                    seen = _at(connection, seen, who.sequence)
                elif pins:
                    seen = _at(connection, seen, newest)
            who = replace(who, is_new=False)
            self._locks.keep(who.owner, answer)
            self._fence.check(epoch, newest, known=known)
            if answer.waiting is not None:
                self._locks.wait(answer.waiting, heard, timeout_ms)
            elif is_done:
                return Admission(seen, is_granted=True, is_known=True)

    def _instant(self, connection: Connection, who: Entrant, *, is_noted: bool) -> tuple[int, int]:
        """The newest instant, noted as what the transaction reads if it is to be; the epoch."""
        if is_noted and who.explicit:
            return self._transactions.pinned(connection, who.id)
        newest, epoch = INSTANT.rows(connection)[0]
        return int(newest), int(epoch)


def _reads_newest(who: Entrant, seen: Seen) -> bool:
    """Whether the statement makes its transaction read the newest instant."""
    return who.sequence is None and who.pins and bool(seen.tables or seen.places)


def _seen(connection: Connection, asked: Asked) -> Seen:
    databases, tables = names.named(connection, asked.names)
    views: dict[Name, ViewEntry] = {}
    for name in sorted(asked.names - tables.keys()):
        view = view_named(connection, *name)
        if view is not None:
            views[name] = view
    places = {url: names.table_at(connection, url) for url in sorted(asked.places)}
    found = {url: entry for url, entry in places.items() if entry is not None}
    for owner in sorted({one.database.lower() for one in found.values()} - databases.keys()):
        entry = names.database(connection, owner)
        if entry is not None:
            databases[owner] = entry
    return Seen(databases=databases, tables=tables, views=views, places=found)


def _at(connection: Connection, seen: Seen, instant: int) -> Seen:
    entries: Iterable[TableEntry] = (*seen.tables.values(), *seen.places.values())
    ids = sorted({entry.id for entry in entries})
    rows = _VERSIONS.rows(connection, ids=ids, at=instant) if ids else ()
    versions = {row.id: int(row.version) for row in rows if row.version is not None}
    return replace(seen, instant=instant, versions=versions)
