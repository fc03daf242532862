"""The ledger of commits in the catalog's database (`ports.Ledger`).

Owns the ledger's queries, the group commit of this process's threads, and the search for a
ratification whose reply was lost. `ratifying` decides the requests.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from itertools import dropwhile, groupby
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog import counter_rows, drop_rows, place_facts
from txlake.catalog.database import CommitUnsettled, Database
from txlake.catalog.fence import EPOCH, Fence, epoch_of
from txlake.catalog.group_commit import GroupCommit, Interrupted
from txlake.catalog.names import MAIN, Chain, chain_of
from txlake.catalog.owners import KILLED, ended_error, reap
from txlake.catalog.prepared import Prepared, pipelined
from txlake.catalog.pruning import require_instant, require_traces
from txlake.catalog.publishing import Publications
from txlake.catalog.ratifying import RESERVED_SUBTYPE, RESERVED_TYPE, Decision, Ratifier
from txlake.catalog.relations import bare, commits, databases, locks, tables, transactions
from txlake.catalog.shielding import shielded
from txlake.catalog.unregistered import UnregisteredWriters
from txlake.errors import InvalidRequest, OutcomeUnknown, TxlakeError, Unavailable
from txlake.ports import (
    Head,
    HeadsMoved,
    Ratification,
    Ratified,
    TableCommit,
    TurnTaken,
    VersionRange,
)

_ATTEMPTS = 6
_WAIT_MS = 50
_PENDING = (
    sa.select(
        tables.c.id,
        tables.c.location,
        tables.c.chain,
        tables.c.managed,
        tables.c.dropped_sequence,
        tables.c.kept_until_ms,
        tables.c.is_told,
        tables.c.head,
        commits.c.version,
        commits.c.content,
        commits.c.staged,
        commits.c.operation,
        commits.c.transaction_id,
    )
    .select_from(tables)
    .order_by(tables.c.id, commits.c.version)
)
_OF_PENDING = (commits.c.table_id == tables.c.id) & (commits.c.version > tables.c.published)

_HEAD = Prepared(
    _PENDING.outerjoin(commits, _OF_PENDING).where(
        tables.c.id == sa.bindparam("of"),
        tables.c.dropped_sequence.is_(None),
        tables.c.head.is_not(None),
    )
)
_INSTANT = Prepared(counter_rows.INSTANT)
_VERSION = (
    sa.select(commits.c.version)
    .where(commits.c.table_id == sa.bindparam("of"), commits.c.sequence <= sa.bindparam("at"))
    .order_by(commits.c.version.desc())
    .limit(1)
)
_AT = counter_rows.NEWEST_SEQUENCE.add_columns(EPOCH, _VERSION.scalar_subquery().label("version"))
_NEWEST_COMMITS = (
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
    .where(tables.c.branch.is_(None) | (tables.c.branch == MAIN))
    .order_by(commits.c.sequence.desc(), commits.c.table_id, commits.c.version.desc())
)
_INSTANTS = sa.union_all(
    sa.select(
        sa.func.coalesce(transactions.c.sequence, transactions.c.begin_sequence).label("at")
    ).where(transactions.c.state != KILLED),
    counter_rows.NEWEST_SEQUENCE,
).subquery()
_OLDEST_INSTANT = sa.select(sa.func.min(_INSTANTS.c.at))
# Of a table's branches, and of its own branch, which publishing compares with its base.
_CHAINS = sa.select(tables.c.chain).where(
    (tables.c.origin_id == sa.bindparam("of")) | (tables.c.id == sa.bindparam("of")),
    tables.c.chain.is_not(None),
    tables.c.dropped_sequence.is_(None),
)
_FIRST_VERSION = sa.select(sa.func.min(commits.c.version)).where(
    commits.c.table_id == sa.bindparam("of")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingTable:
    """A table with ratified commits that may not be published yet, by version.

    Attributes:
        is_dropped: it has no name any more; its commits are published unless its folder is gone.
        is_retained: it was dropped and may come back; its folder isn't removed yet.
        has_drop_note: its folder holds the note that it was dropped.
        chain: as `TableEntry.chain`.
    """

    table_id: str
    location: str
    chain: Chain
    managed: bool
    is_dropped: bool
    is_retained: bool
    has_drop_note: bool
    pending: tuple[TableCommit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitEntry:
    """A ratified version. `table`: `database.name`; None for a dropped table that was removed."""

    sequence: int
    time_ms: int
    transaction_id: str
    table_id: str
    table: str | None
    version: int
    operation: str | None
    is_published: bool


class _Undone(Exception):
    """Ends a database transaction that was only to show what it would decide."""


@shielded()
class CommitLedger:
    """`ports.Ledger` on the catalog's database, for any number of threads and processes."""

    def __init__(
        self,
        database: Database,
        fence: Fence,
        unregistered: UnregisteredWriters,
    ) -> None:
        self._database = database
        self._fence = fence
        self._unregistered = unregistered
        self._ratifier = Ratifier(database, fence, unregistered)
        self._group: GroupCommit[Ratification, Ratified | HeadsMoved | TurnTaken] = GroupCommit(
            self._ratify_batch, turn=database.turn
        )
        self._publications = Publications(database, fence)

    def sequence(self) -> int:
        """Return the newest instant of the lake. Raises Unavailable and CorruptTable as
        `Fence.check`.
        """
        known = self._fence.newest
        with self._database.reading_once() as connection:
            now = connection.execute(counter_rows.INSTANT).one()
        self._fence.check(now.epoch, now.value, known=known)
        return int(now.value)

    def head(self, table_id: str) -> Head | None:
        """Return a table's head, without pending commits that this process has published; None if
        the table isn't in the catalog, was dropped or isn't attached. Raises Unavailable.
        """
        return self._head(self._database.reading(), table_id)

    def known_head(self, table_id: str) -> Head | None:
        """Return a table's head as `head`, without a look for what other processes have written if
        this process has a copy of the catalog.
        """
        return self._head(self._database.reading_known(), table_id)

    def _head(self, reading: AbstractContextManager[Connection], table_id: str) -> Head | None:
        """Return a table's head in a read-only transaction."""
        with reading as connection:
            with pipelined(connection, commits=True):
                read_now, read_head = _INSTANT.send(connection), _HEAD.send(connection, of=table_id)
            [now], rows = read_now(), read_head()
        self._fence.check_epoch(now.epoch)
        if not rows:
            return None
        deferred = self._publications.deferred_of(table_id)
        pending = dropwhile(lambda row: (row.version, row.transaction_id) in deferred, rows)
        return Head(version=rows[0].head, pending=table_commits(list(pending)))

    def version_at(self, table_id: str, sequence: int) -> int | None:
        """Return a table's version at an instant; None if it wasn't in the catalog then.

        Raises Unavailable if the instant was pruned, and as `Fence.check`.
        """
        known = self._fence.newest
        with self._database.reading() as connection:
            row = connection.execute(_AT, {"of": table_id, "at": sequence}).one()
            require_instant(connection, sequence)
        self._fence.check(row.epoch, row.value, known=known)
        return None if row.version is None else int(row.version)

    def oldest_read(self, table_id: str, *, by_branches: bool = True) -> int | None:
        """Return the oldest version of a table that an open transaction reads or may come to read,
        or, if `by_branches` is set, that a branch began with, its own included, else its newest;
        None if the catalog has no version of it.
        """
        with self._database.reading() as connection:
            oldest = connection.execute(_OLDEST_INSTANT).scalar_one()
            version = connection.execute(_VERSION, {"of": table_id, "at": oldest}).scalar()
            if version is None:  # the table was added later
                version = connection.execute(_FIRST_VERSION, {"of": table_id}).scalar()
            rows = connection.execute(_CHAINS, {"of": table_id}).all() if by_branches else ()
        bases = [chain_of(row)[-1][1] for row in rows]
        return version if version is None else min([version, *bases])

    def ratify(self, request: Ratification) -> Ratified | HeadsMoved | TurnTaken:
        """Ratify a request whole, in a batch with those of other threads, or nothing of it.

        Raises:
            OutcomeUnknown: the reply was lost, and a lookup couldn't determine the outcome.
            InvalidRequest: a name is taken, or a table or a database is missing.
            Unavailable: the transaction was ended or killed, or the database can't be reached.
            CorruptTable: the catalog was restored to an earlier instant.
        """
        while True:
            try:
                return self._submit(request)
            except Interrupted:
                ratified = self._find_ratified([request.transaction_id])
                if request.transaction_id in ratified:
                    return ratified[request.transaction_id]

    def refusal_of(self, request: Ratification) -> TxlakeError | None:
        """Return the error that a request without commits would be refused with now; None if there
        is none. Nothing is changed.
        """
        decisions: list[Decision] = []

        def work(connection: Connection) -> None:
            decisions.extend(self._ratifier.decide(connection, [request]).decisions)
            raise _Undone

        with suppress(_Undone):
            self._database.write(work)
        return decisions[-1] if isinstance(decisions[-1], TxlakeError) else None

    def _submit(self, request: Ratification) -> Ratified | HeadsMoved | TurnTaken:
        """Ratify a request in a batch, as `ratify`. Raises Interrupted if the batch's thread was.

        Before a turn counts as taken, its owner's lease is looked at.
        """
        decision = self._group.submit(request)
        if isinstance(decision, TurnTaken) and self._database.observe_leases():
            decision = self._group.submit(request)
        return decision

    def reserve(self, transaction_id: str, table_ids: Collection[str]) -> bool:
        """Reserve the next turn to commit to all of the tables, until the transaction ends.

        Return False if another transaction has the turn on one of them. Raises Unavailable if the
        transaction was ended or killed.
        """
        self._database.observe_leases()
        self._unregistered.register()
        return self._reserve(transaction_id, table_ids)

    def _reserve(self, transaction_id: str, table_ids: Collection[str]) -> bool:
        """Reserve the turn as `reserve`; remove owners whose leases are known to have ended."""
        owner = sa.select(transactions.c.session_id).where(
            transactions.c.id == transaction_id, transactions.c.state != KILLED
        )

        def work(connection: Connection) -> bool:
            # The counter's row is locked first: reservations are made one after the other.
            first = counter_rows.next_number(connection, counter_rows.LOCK, len(table_ids))
            reap(self._database, connection)
            session_id = connection.execute(owner.with_for_update(read=True)).scalar()
            if session_id is None:
                raise ended_error(transaction_id)
            states = self._ratifier.tables.rows(connection, ids=sorted(table_ids))
            if any(row.holder not in (None, transaction_id) for row in states):
                return False
            new = [row for row in states if row.holder is None]
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
                        "asked_ms": self._database.now(),
                    }
                    for place, row in enumerate(new)
                ]
                connection.execute(sa.insert(locks).values(rows))
            return True

        return self._database.write_relaxed(work)

    def record_publication(self, versions: Mapping[str, VersionRange]) -> None:
        self._publications.note(versions)

    def record_publication_soon(self, transaction_id: str, versions: Mapping[str, int]) -> None:
        self._publications.defer(transaction_id, versions)

    def close(self) -> None:
        """Write the deferred publication notes; log those that can't be written."""
        self._publications.close()

    def pending_tables(self) -> list[PendingTable]:
        """Return the tables with commits that may not be published yet, dropped ones included."""
        self._publications.write_deferred()
        with self._database.reading_once() as connection:
            rows = connection.execute(_PENDING.join(commits, _OF_PENDING)).all()
        return [_pending_table(list(of_table)) for _, of_table in groupby(rows, lambda row: row.id)]

    def dropped_tables(self) -> list[PendingTable]:
        """Return the dropped tables whose rows are to be removed.

        A dropped table that a branch began with stays, until the branch is dropped.
        """
        self._publications.write_deferred()
        query = _PENDING.outerjoin(commits, _OF_PENDING)
        is_dropped = tables.c.dropped_sequence.is_not(None) & tables.c.origin_id.is_(None)
        with self._database.reading_once() as connection:
            rows = connection.execute(query.where(is_dropped)).all()
        return [_pending_table(list(of_table)) for _, of_table in groupby(rows, lambda row: row.id)]

    def note_clearing(self, table_id: str) -> bool:
        """Reserve a dropped table's location for ever, before its folder is removed.

        Returns False if another process has already removed the folder.
        """

        def work(connection: Connection) -> bool:
            counter_rows.lock_sequence(connection)
            return place_facts.note_clearing(connection, table_id)

        return self._database.write(work)

    def forget(self, table_id: str) -> None:
        """Remove a dropped table's row. Raises InvalidRequest until all its commits are noted as
        published.
        """
        self._publications.write_deferred()

        def work(connection: Connection) -> None:
            counter_rows.lock_sequence(connection)
            place_facts.forget_shared(connection, table_id)
            drop_rows.forget_table(connection, table_id)

        self._database.write_relaxed(work)

    def newest_commits(self, limit: int = 1000) -> list[CommitEntry]:
        """Return the newest ratified versions of main's tables, newest first."""
        self._publications.write_deferred()
        with self._database.reading_once() as connection:
            return [_commit_entry(row) for row in connection.execute(_NEWEST_COMMITS.limit(limit))]

    def commits_between(self, from_ms: int, to_ms: int, limit: int) -> list[CommitEntry]:
        """Return the versions ratified between two times, both included, newest first."""
        self._publications.write_deferred()
        within = _NEWEST_COMMITS.where(commits.c.time_ms.between(from_ms, to_ms)).limit(limit)
        with self._database.reading_once() as connection:
            return [_commit_entry(row) for row in connection.execute(within)]

    def commits_at(self, sequence: int) -> list[CommitEntry]:
        """Return the versions that one instant made.

        Raises InvalidRequest for an instant that the lake hasn't reached, Unavailable for one that
        was pruned.
        """
        with self._database.reading() as connection:
            newest = counter_rows.newest_sequence(connection)
            if not 0 <= sequence <= newest:
                raise InvalidRequest(
                    f"there is no instant {sequence} of the lake: expected 0 to {newest}, the "
                    "newest (txlake.commits lists them)"
                )
            require_instant(connection, sequence)
            rows = connection.execute(_NEWEST_COMMITS.where(commits.c.sequence == sequence))
            return [_commit_entry(row) for row in rows]

    def _ratify_batch(self, requests: Sequence[Ratification]) -> Sequence[Decision]:
        """Decide the requests in one database transaction, which also writes the deferred
        publication notes. Return the decisions in their order.

        If COMMIT's reply was lost, the ratified ones are looked up: one that isn't in the database
        becomes Unavailable, and all become OutcomeUnknown if that can't be determined.
        """
        decisions: Sequence[Decision] = ()

        def work(connection: Connection) -> None:
            nonlocal decisions
            decided = self._ratifier.decide(connection, requests, notes)
            decisions = decided.decisions  # needed if COMMIT isn't answered
            decided.commit()

        try:
            with self._publications.take_deferred() as notes:
                self._database.write(work)
        except CommitUnsettled as error:
            decisions = self._resolve_unknown(requests, decisions, error)
        for decision in decisions:
            if isinstance(decision, Ratified):
                self._fence.newest = max(self._fence.newest, decision.sequence)
        self._unregistered.forget_ratified(
            [
                request.transaction_id
                for request, decision in zip(requests, decisions)
                if isinstance(decision, Ratified)
            ]
        )
        return decisions

    def _resolve_unknown(
        self,
        requests: Sequence[Ratification],
        decisions: Sequence[Decision],
        error: CommitUnsettled,
    ) -> Sequence[Decision]:
        """Return the decisions after a COMMIT whose reply was lost. Ratified ones that aren't in
        the database become Unavailable, or all OutcomeUnknown if that can't be determined.
        """
        try:
            instants = [
                decision.sequence for decision in decisions if isinstance(decision, Ratified)
            ]
            ratified = self._find_ratified(
                [request.transaction_id for request in requests], min(instants, default=1)
            )
        except OutcomeUnknown as unknown:
            return [
                unknown if isinstance(decision, Ratified) else decision for decision in decisions
            ]
        return [
            ratified.get(request.transaction_id, Unavailable(str(error)))
            if isinstance(decision, Ratified)
            else decision
            for request, decision in zip(requests, decisions)
        ]

    def _find_ratified(
        self, transaction_ids: Sequence[str], since: int = 1
    ) -> Mapping[str, Ratified]:
        """Return the transactions that were ratified. Raises OutcomeUnknown if that can't be
        determined.

        `since`: the instant before which none of them was ratified. The lock on the sequence is
        taken first, so that every transaction that held it before has ended.
        """

        def work(connection: Connection) -> Mapping[str, Ratified]:
            self._fence.check(epoch_of(connection), counter_rows.lock_sequence(connection))
            ratified = _read_traces(connection, transaction_ids)
            require_traces(connection, set(transaction_ids) - set(ratified), since)
            return ratified

        system, wait_ms = self._database.system, float(_WAIT_MS)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._database.write(work)
            except OutcomeUnknown:
                raise
            except TxlakeError as error:
                if attempt == _ATTEMPTS or not isinstance(error, Unavailable):
                    raise OutcomeUnknown(
                        f"whether transactions {', '.join(transaction_ids)} were ratified can't be "
                        f"seen: {error}; look at their tables before running them again"
                    ) from error
                system.wait_ms(wait_ms * (1 + system.random()))
                wait_ms *= 2
        raise AssertionError("the last attempt returns or raises")


def _read_traces(connection: Connection, transaction_ids: Sequence[str]) -> dict[str, Ratified]:
    """Return the transactions that have rows in the ledger, by id."""
    ratified: dict[str, Ratified] = {}
    for relation in (commits, bare):
        query = sa.select(relation.c.transaction_id, relation.c.sequence, relation.c.time_ms).where(
            relation.c.transaction_id.in_(transaction_ids)
        )
        for row in connection.execute(query):
            ratified[row.transaction_id] = Ratified(sequence=row.sequence, time_ms=row.time_ms)
    return ratified


def table_commits(rows: Sequence[sa.Row[*tuple[Any, ...]]]) -> tuple[TableCommit, ...]:
    """Return the ratified commits of one table from rows of an outer join, whose version may be
    NULL.
    """
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
    """Return the entry of one table's rows of `_PENDING`."""
    return PendingTable(
        table_id=rows[0].id,
        location=rows[0].location,
        chain=chain_of(rows[0]),
        managed=rows[0].managed,
        is_dropped=rows[0].dropped_sequence is not None,
        is_retained=rows[0].dropped_sequence is not None and rows[0].kept_until_ms is not None,
        has_drop_note=rows[0].is_told,
        pending=table_commits(rows),
    )


def _commit_entry(row: sa.Row[*tuple[Any, ...]]) -> CommitEntry:
    """Return the entry of a row of `_NEWEST_COMMITS`."""
    full_name = ".".join(part for part in (row.database_name, row.name) if part)
    return CommitEntry(
        sequence=row.sequence,
        time_ms=row.time_ms,
        transaction_id=row.transaction_id,
        table_id=row.table_id,
        table=full_name or None,
        version=row.version,
        operation=row.operation,
        is_published=row.published is None or row.version <= row.published,
    )
