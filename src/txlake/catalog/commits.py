"""The lake's book of commits in the catalog's database (`ports.Ledger`).

Owns what is asked of the book, the group commit of this process's threads, and the search for a
ratification whose reply was lost. How requests are decided is in `ratifying`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog import names
from txlake.catalog.database import CommitUnsettled, Database
from txlake.catalog.grouping import Group, Interrupted
from txlake.catalog.owners import KILLED, reap
from txlake.catalog.ratifying import RESERVED_SUBTYPE, RESERVED_TYPE, Decision, Ratifier, ended
from txlake.catalog.tables import bare, commits, databases, locks, tables, transactions
from txlake.errors import OutcomeUnknown, Unavailable
from txlake.ports import Head, Moved, Ratification, Ratified, Reserved, TableCommit

_LOOKS = 6
_LOOK_WAIT_MS = 50
_PENDING = (
    sa.select(
        tables.c.id,
        tables.c.location,
        tables.c.managed,
        tables.c.dropped_sequence,
        tables.c.head,
        commits.c.version,
        commits.c.content,
        commits.c.staged,
        commits.c.operation,
    )
    .select_from(tables)
    .order_by(tables.c.id, commits.c.version)
)
_OF_PENDING = (commits.c.table_id == tables.c.id) & (commits.c.version > tables.c.published)

_HEAD = _PENDING.outerjoin(commits, _OF_PENDING).where(
    tables.c.id == sa.bindparam("of"),
    tables.c.dropped_sequence.is_(None),
    tables.c.head.is_not(None),
)
_VERSION = (
    sa.select(commits.c.version)
    .where(commits.c.table_id == sa.bindparam("of"), commits.c.sequence <= sa.bindparam("at"))
    .order_by(commits.c.version.desc())
    .limit(1)
)
_STANDING = (
    sa.select(tables.c.id, tables.c.published, tables.c.head)
    .where(tables.c.id.in_(sa.bindparam("ids", expanding=True)))
    .order_by(tables.c.id)
    .with_for_update()
)
_CLEAR = (
    sa.update(commits)
    .where(
        commits.c.table_id == sa.bindparam("of"),
        commits.c.version > sa.bindparam("before"),
        commits.c.version <= sa.bindparam("until"),
    )
    .values(content=None)
)
_PUBLISH = (
    sa.update(tables)
    .where(tables.c.id == sa.bindparam("of"))
    .values(published=sa.bindparam("until"))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingTable:
    """A table with ratified commits that may not be published yet, by version.

    `is_dropped`: it has no name any more; published all the same, unless its folder is gone.
    """

    table_id: str
    location: str
    managed: bool
    is_dropped: bool
    pending: tuple[TableCommit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitEntry:
    """A ratified version; `table` is `database.name`, None for a dropped one that was cleaned."""

    sequence: int
    time_ms: int
    transaction_id: str
    table_id: str
    table: str | None
    version: int
    operation: str | None
    is_published: bool


class CommitLedger:
    """`ports.Ledger` on the catalog's database, for any number of threads and processes."""

    def __init__(self, on: Database) -> None:
        self._on = on
        self._ratifier = Ratifier(on)
        self._ratifying: Group[Ratification, Ratified | Moved | Reserved] = Group(self._ratified)
        self._publishing: Group[Mapping[str, int], bool] = Group(self._published)

    def sequence(self) -> int:
        with self._on.reading() as connection:
            return names.newest_sequence(connection)

    def head(self, table_id: str) -> Head | None:
        with self._on.reading() as connection:
            rows = connection.execute(_HEAD, {"of": table_id}).all()
        return Head(version=rows[0].head, pending=_commits_of(rows)) if rows else None

    def version_at(self, table_id: str, sequence: int) -> int | None:
        with self._on.reading() as connection:
            return connection.execute(_VERSION, {"of": table_id, "at": sequence}).scalar()

    def ratify(self, request: Ratification) -> Ratified | Moved | Reserved:
        while True:
            try:
                return self._ratifying.ask(request)
            except Interrupted:
                found = self._looked_up([request.transaction_id])
                if request.transaction_id in found:
                    return found[request.transaction_id]

    def reserve(self, transaction_id: str, table_ids: Collection[str]) -> bool:
        owner = sa.select(transactions.c.session_id).where(
            transactions.c.id == transaction_id, transactions.c.state != KILLED
        )
        with self._on.noting() as connection:
            # The counter's row first: who reserves comes one after the other.
            first = names.next_number(connection, names.LOCK, len(table_ids))
            reap(self._on, connection)
            session_id = connection.execute(owner.with_for_update(read=True)).scalar()
            if session_id is None:
                raise ended(transaction_id)
            found = connection.execute(self._ratifier.tables, {"ids": sorted(table_ids)}).all()
            if any(row.holder not in (None, transaction_id) for row in found):
                return False
            new = [row for row in found if row.holder is None]
            if new:
                rows = [
                    {
                        "id": first + place,
                        "session_id": session_id,
                        "transaction_id": transaction_id,
                        "resource_type": RESERVED_TYPE,
                        "resource_subtype": RESERVED_SUBTYPE,
                        "database_number": row.database_number,
                        "entity": row.number,
                        "description": "",
                        "mode": "X",
                        "status": "GRANT",
                        "asked_ms": self._on.now(),
                    }
                    for place, row in enumerate(new)
                ]
                connection.execute(sa.insert(locks).values(rows))
        return True

    def publishes(self, versions: Mapping[str, int]) -> None:
        while True:
            try:
                self._publishing.ask(versions)
            except Interrupted:
                continue  # noting it twice is as good as once
            return

    def pending_tables(self) -> list[PendingTable]:
        """The tables with commits that may not be published yet, dropped ones too."""
        with self._on.reading() as connection:
            rows = connection.execute(_PENDING.join(commits, _OF_PENDING)).all()
        return [_pending_table(list(of_one)) for _, of_one in groupby(rows, lambda row: row.id)]

    def dropped_tables(self) -> list[PendingTable]:
        """The tables that have no name any more and whose rows weren't forgotten yet."""
        query = _PENDING.outerjoin(commits, _OF_PENDING)
        with self._on.reading() as connection:
            rows = connection.execute(query.where(tables.c.dropped_sequence.is_not(None))).all()
        return [_pending_table(list(of_one)) for _, of_one in groupby(rows, lambda row: row.id)]

    def note_clearing(self, table_id: str) -> bool:
        """Keeps other tables out of a dropped one's folder for ever, before it is cleared away.

        False when somebody else has cleared it away.
        """
        with self._on.writing() as connection:
            names.lock_sequence(connection)
            return names.note_clearing(connection, table_id)

    def forget(self, table_id: str) -> None:
        """Removes a dropped table's row once all of its commits are noted as published.

        Raises InvalidRequest before.
        """
        with self._on.noting() as connection:
            names.lock_sequence(connection)
            names.forget_table(connection, table_id)

    def commits_listed(self, limit: int = 1000) -> list[CommitEntry]:
        """The newest ratified versions, the newest first."""
        query = (
            sa.select(
                commits.c.sequence,
                commits.c.time_ms,
                commits.c.transaction_id,
                commits.c.table_id,
                commits.c.version,
                commits.c.operation,
                tables.c.name,
                tables.c.published,
                databases.c.name.label("database_name"),
            )
            .select_from(
                commits.outerjoin(tables, tables.c.id == commits.c.table_id).outerjoin(
                    databases, databases.c.id == tables.c.database_id
                )
            )
            .order_by(commits.c.sequence.desc(), commits.c.table_id, commits.c.version.desc())
            .limit(limit)
        )
        with self._on.reading() as connection:
            return [_commit_entry(row) for row in connection.execute(query)]

    def _ratified(self, requests: Sequence[Ratification]) -> Sequence[Decision]:
        decisions: list[Decision] = []
        try:
            with self._on.writing() as connection:
                decisions = self._ratifier.ratify(connection, requests)
        except CommitUnsettled as error:
            return self._settled(requests, decisions, error)
        return decisions

    def _settled(
        self,
        requests: Sequence[Ratification],
        decisions: Sequence[Decision],
        error: CommitUnsettled,
    ) -> Sequence[Decision]:
        """The decisions after a COMMIT whose reply was lost: what was found in the database."""
        try:
            found = self._looked_up([request.transaction_id for request in requests])
        except OutcomeUnknown as unknown:
            return [unknown if isinstance(made, Ratified) else made for made in decisions]
        return [
            found.get(request.transaction_id, Unavailable(str(error)))
            if isinstance(decision, Ratified)
            else decision
            for request, decision in zip(requests, decisions)
        ]

    def _looked_up(self, transaction_ids: Sequence[str]) -> Mapping[str, Ratified]:
        """Which of the transactions were ratified. Raises OutcomeUnknown when that can't be seen.

        Who has the lock of the sequence sees the end of everything that had it before.
        """
        system, wait_ms = self._on.system, float(_LOOK_WAIT_MS)
        for look in range(1, _LOOKS + 1):
            try:
                with self._on.writing() as connection:
                    names.lock_sequence(connection)
                    return _traces(connection, transaction_ids)
            except Unavailable as error:
                if look == _LOOKS:
                    raise OutcomeUnknown(
                        f"whether transactions {', '.join(transaction_ids)} were ratified can't be "
                        f"seen: {error}; look at their tables before running them again"
                    ) from error
                system.wait_ms(wait_ms * (1 + system.random()))
                wait_ms *= 2
        raise AssertionError("the last look returns or raises")

    def _published(self, noted: Sequence[Mapping[str, int]]) -> Sequence[bool]:
        newest: dict[str, int] = {}
        for versions in noted:
            for table_id, version in versions.items():
                newest[table_id] = max(version, newest.get(table_id, version))
        with self._on.noting() as connection:
            known = connection.execute(_STANDING, {"ids": sorted(newest)}).all()
            steps = [
                {"of": row.id, "before": row.published, "until": min(newest[row.id], row.head)}
                for row in known
                if row.head is not None and min(newest[row.id], row.head) > row.published
            ]
            if steps:
                connection.execute(_CLEAR, steps)
                connection.execute(_PUBLISH, steps)
        return [True] * len(noted)


def _traces(connection: Connection, transaction_ids: Sequence[str]) -> dict[str, Ratified]:
    found: dict[str, Ratified] = {}
    for relation in (commits, bare):
        query = sa.select(relation.c.transaction_id, relation.c.sequence, relation.c.time_ms).where(
            relation.c.transaction_id.in_(transaction_ids)
        )
        for row in connection.execute(query):
            found[row.transaction_id] = Ratified(sequence=row.sequence, time_ms=row.time_ms)
    return found


def _commits_of(rows: Sequence[sa.Row[*tuple[Any, ...]]]) -> tuple[TableCommit, ...]:
    return tuple(
        TableCommit(
            table_id=row.id,
            version=row.version,
            content=row.content,
            staged=row.staged,
            operation=row.operation,
        )
        for row in rows
        if row.version is not None
    )


def _pending_table(rows: Sequence[sa.Row[*tuple[Any, ...]]]) -> PendingTable:
    return PendingTable(
        table_id=rows[0].id,
        location=rows[0].location,
        managed=rows[0].managed,
        is_dropped=rows[0].dropped_sequence is not None,
        pending=_commits_of(rows),
    )


def _commit_entry(row: sa.Row[*tuple[Any, ...]]) -> CommitEntry:
    shown = ".".join(part for part in (row.database_name, row.name) if part)
    return CommitEntry(
        sequence=row.sequence,
        time_ms=row.time_ms,
        transaction_id=row.transaction_id,
        table_id=row.table_id,
        table=shown or None,
        version=row.version,
        operation=row.operation,
        is_published=row.published is None or row.version <= row.published,
    )
