"""Branches of the lake: each has databases, tables and views of its own.

A branch begins with copies of its parent's rows. A copied table lies at its origin's location, and
has the version that its origin had at the branch's first instant as its base: its later versions
are the branch's own. Whoever makes or drops a branch has locked the sequence.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog import branch_usage, counter_rows, names
from txlake.catalog.branch_rows import (
    MAIN_NAME,
    BranchEntry,
    BranchTable,
    branch_entry,
    branch_tables,
    delete_branch,
    find_branch,
    require_branch,
    require_no_child,
)
from txlake.catalog.branch_usage import BranchCommit, BranchUsage
from txlake.catalog.database import Database
from txlake.catalog.lookup import versions_at
from txlake.catalog.names import MAIN, TableEntry
from txlake.catalog.pruning import require_instant
from txlake.catalog.relations import bare, branches, commits, databases, tables, views
from txlake.catalog.shielding import shielded
from txlake.errors import InvalidRequest
from txlake.ports import System

_OBJECT = "object"
_BATCH_IDS = 500
_READINGS_MAX = 500


@shielded()
class Branches:
    """The branches of one lake."""

    def __init__(self, database: Database, system: System) -> None:
        self._database = database
        self._system = system

    def find(self, name: str) -> BranchEntry | None:
        """Return the branch or tag of that name, in any letter case; None if there is none."""
        with self._database.reading_once() as connection:
            return find_branch(connection, name)

    def entries(self) -> list[BranchEntry]:
        """Return the branches and tags, ordered by name."""
        with self._database.reading_once() as connection:
            rows = connection.execute(sa.select(branches).order_by(branches.c.folded_name))
            return [branch_entry(row) for row in rows]

    def usage(self) -> list[BranchUsage]:
        """Return the branches and tags by name, with what is known of their use."""
        with self._database.reading() as connection:
            return branch_usage.usage(connection, self._database.now_ms(connection))

    def commits_between(self, from_ms: int, to_ms: int, limit: int) -> list[BranchCommit]:
        """Return the versions committed on branches between two times, both included, the newest
        first.
        """
        with self._database.reading() as connection:
            return branch_usage.commits_between(connection, from_ms, to_ms, limit)

    def shared_tables(self) -> list[list[TableEntry]]:
        """Return the tables that branches or tags have, those of main included: a list for each
        location, in the order of their numbers.
        """
        with self._database.reading() as connection:
            return branch_usage.shared_tables(connection)

    def expired(self) -> list[BranchEntry]:
        """Return the branches and tags that have expired by the database's clock, and from which
        none was made that is kept longer; the newest first, which is the order to drop them in.
        """
        with self._database.reading() as connection:
            now_ms = self._database.now_ms(connection)
            rows = connection.execute(sa.select(branches).order_by(branches.c.number.desc()))
            entries = [branch_entry(row) for row in rows]
        found: list[BranchEntry] = []
        parents: set[int] = set()
        for entry in entries:
            if entry.is_over(now_ms) and entry.number not in parents:
                found.append(entry)
            else:
                parents.add(entry.parent)
        return found

    def expire(self, branch_id: str) -> Sequence[BranchTable] | None:
        """Drop an expired branch or tag, and return its tables; None if it has ended
        already, or hasn't expired.

        Raises InvalidRequest if another was made from it.
        """

        def work(connection: Connection) -> Sequence[BranchTable] | None:
            counter_rows.lock_sequence(connection)
            row = connection.execute(sa.select(branches).where(branches.c.id == branch_id)).first()
            if row is None or not branch_entry(row).is_over(self._database.now_ms(connection)):
                return None
            return _drop(connection, branch_entry(row))

        return self._database.change(work)

    def create(
        self,
        name: str,
        *,
        parent: str = MAIN_NAME,
        instant: int | None = None,
        user_name: str | None = None,
        retention_ms: int | None = None,
        if_not_exists: bool = False,
        is_tag: bool = False,
    ) -> BranchEntry:
        """Create a branch or a tag and return it, or the one that has the name if `if_not_exists`
        is set and it hasn't expired.

        Args:
            parent: the branch that it is made from.
            instant: the instant of the lake that it begins at; None for the newest.
            user_name: who makes it.
            retention_ms: after that time it may be dropped; None: it is kept until it is dropped.
            if_not_exists: whether the name may be taken by one of its kind.
            is_tag: a tag is created.

        Raises InvalidRequest if the name is taken, reserved or too long, or the parent or the
        instant doesn't exist, and Unavailable for an instant that the catalog no longer keeps.
        """
        names.check_name(name)
        if name.lower() == MAIN_NAME:
            raise InvalidRequest(f"{name!r} is the lake itself: choose another name for a branch")

        def work(connection: Connection) -> BranchEntry:
            newest = counter_rows.lock_sequence(connection)
            existing = find_branch(connection, name)
            now_ms = self._database.now_ms(connection)
            if existing is not None:
                if if_not_exists and existing.is_tag == is_tag and not existing.is_over(now_ms):
                    return existing
                raise InvalidRequest(
                    f"there is a {existing.kind} {name!r} already: choose another name, or drop it"
                )
            owner = _parent(connection, parent, now_ms)
            at = newest if instant is None else instant
            first = 0 if owner is None else owner.fork_sequence
            if not first <= at <= newest:
                raise InvalidRequest(
                    f"{name}: expected an instant from {first} to {newest}, the "
                    f"newest, found {at} (txlake.commits lists them)"
                )
            require_instant(connection, at)
            now_ms = self._later_than_names(connection, MAIN if owner is None else owner.number)
            entry = BranchEntry(
                id=self._system.new_id(),
                number=names.new_number(connection),
                name=name,
                parent=MAIN if owner is None else owner.number,
                fork_sequence=at,
                created_ms=now_ms,
                user_name=user_name,
                kept_until_ms=None if retention_ms is None else now_ms + retention_ms,
                is_tag=is_tag,
            )
            _insert(connection, entry)
            self._copy_names(connection, entry)
            return entry

        return self._database.change(work)

    def tables(self, entry: BranchEntry) -> list[BranchTable]:
        """Return the tables of a branch, dropped ones included, by their names."""
        with self._database.reading() as connection:
            return branch_tables(connection, entry.number)

    def instant_at(self, time_ms: int) -> int:
        """Return the last instant of the lake at or before a time.

        Raises InvalidRequest if there is none, and for a time in the future, whose last instant may
        be another one yet.
        """
        by_then = sa.union_all(
            *(
                sa.select(sa.func.max(relation.c.sequence).label("at")).where(
                    relation.c.time_ms <= time_ms
                )
                for relation in (commits, bare)
            )
        ).subquery()
        with self._database.reading() as connection:
            found = connection.scalar(sa.select(sa.func.max(by_then.c.at)))
            now_ms = self._database.now_ms(connection)
        if time_ms > now_ms:
            raise InvalidRequest(
                f"that time is {(time_ms - now_ms) / 1000:,.0f} seconds in the future: leave it "
                "out for the newest instant"
            )
        if found is None:
            raise InvalidRequest(
                "the lake's catalog has no instant as old as that time; txlake.commits lists them"
            )
        return int(found)

    def drop(
        self, name: str, *, is_tag: bool = False, branch_id: str | None = None
    ) -> Sequence[BranchTable]:
        """Drop a branch or a tag with its names and versions, and return its tables.

        Raises InvalidRequest if there is none of that name, it isn't the one of the id, if one is
        given, or a branch was made from it.
        """

        def work(connection: Connection) -> Sequence[BranchTable]:
            counter_rows.lock_sequence(connection)
            entry = require_branch(connection, name, is_tag=is_tag)
            if branch_id not in {None, entry.id}:
                raise InvalidRequest(
                    f"{entry.kind} {name!r} has ended meanwhile, and there is another one of its "
                    "name now; drop that one if it is to go"
                )
            return _drop(connection, entry)

        return self._database.change(work)

    def _later_than_names(self, connection: Connection, parent: int) -> int:
        """Return the time, after that of each change of the parent's databases, tables and views.

        Publishing tells by the times which changes came after a branch was created, so they mustn't
        be of the same millisecond. A clock that doesn't go on is waited for no longer than for 500
        readings.
        """
        owned = views.join(databases, views.c.database_id == databases.c.id)
        newest = (
            sa.select(sa.func.max(databases.c.created_ms)).where(databases.c.branch == parent),
            sa.select(sa.func.max(tables.c.modified_ms)).where(tables.c.branch == parent),
            sa.select(sa.func.max(views.c.modified_ms))
            .select_from(owned)
            .where(databases.c.branch == parent),
        )
        latest_ms = max(connection.scalar(query) or 0 for query in newest)
        now_ms = self._database.now_ms(connection)
        for _ in range(_READINGS_MAX):
            if now_ms > latest_ms:
                break
            now_ms = self._database.now_ms(connection)
        return now_ms

    def _copy_names(self, connection: Connection, entry: BranchEntry) -> None:
        """Copy the parent's databases, and its tables and views of the branch's first instant."""
        owners = _rows(connection, databases, databases.c.branch == entry.parent)
        by_owner = {row["id"]: self._system.new_id() for row in owners}
        is_theirs = (tables.c.branch == entry.parent) & tables.c.database_id.is_not(None)
        forks = tables.alias()
        has_files = tables.c.kept_until_ms.is_not(None) | sa.exists().where(
            (forks.c.root_id == tables.c.id) & forks.c.dropped_sequence.is_(None)
        )
        is_kept = tables.c.dropped_sequence.is_(None) | (
            (tables.c.dropped_sequence > entry.fork_sequence) & has_files
        )
        members = _rows(connection, tables, is_theirs & is_kept & tables.c.head.is_not(None))
        versions = _versions(connection, [row["id"] for row in members], entry.fork_sequence)
        members = [row for row in members if row["id"] in versions]
        shown = _rows(connection, views, views.c.database_id.in_(list(by_owner)))
        count = len(owners) + len(members) + len(shown)
        numbers = itertools.count(counter_rows.next_number(connection, _OBJECT, count))
        _insert_all(
            connection,
            databases,
            (
                {
                    **row,
                    "id": by_owner[row["id"]],
                    "number": next(numbers),
                    "folded_name": names.new_database_key(row["name"], entry.number),
                    "branch": entry.number,
                }
                for row in owners
            ),
        )
        copies = [
            self._copy_of(row, versions[row["id"]], by_owner[row["database_id"]], entry)
            for row in members
        ]
        _insert_all(connection, tables, ({**copy, "number": next(numbers)} for copy in copies))
        _insert_all(
            connection,
            commits,
            (
                {
                    "table_id": copy["id"],
                    "version": copy["head"],
                    "sequence": entry.fork_sequence,
                    "transaction_id": entry.id,
                    "time_ms": entry.created_ms,
                }
                for copy in copies
            ),
        )
        _insert_all(
            connection,
            views,
            (
                {
                    **row,
                    "id": self._system.new_id(),
                    "number": next(numbers),
                    "database_id": by_owner[row["database_id"]],
                }
                for row in shown
            ),
        )

    def _copy_of(
        self, row: Mapping[str, Any], version: int, database_id: str, entry: BranchEntry
    ) -> dict[str, Any]:
        """Return the row of a branch's table, without a number."""
        return {
            **row,
            "id": self._system.new_id(),
            "database_id": database_id,
            "managed": False,
            "head": version,
            "published": version,
            "dropped_sequence": None,
            "dropped_ms": None,
            "kept_until_ms": None,
            "dropped_from": None,
            "is_told": False,
            "branch": entry.number,
            "origin_id": row["id"],
            "root_id": row["root_id"] or row["id"],
            "chain": json.dumps([*json.loads(row["chain"] or "[]"), (entry.id, version)]),
        }


def _parent(connection: Connection, name: str, now_ms: int) -> BranchEntry | None:
    """Return the branch of that name; None for main. Raises InvalidRequest if there is none, or it
    has expired.
    """
    if name.lower() == MAIN_NAME:
        return None
    entry = require_branch(connection, name)
    entry.require_kept(now_ms)
    return entry


def _drop(connection: Connection, entry: BranchEntry) -> Sequence[BranchTable]:
    """Delete a branch or a tag and return its tables. Raises InvalidRequest if another was made
    from it.
    """
    require_no_child(connection, entry, f"DROP {entry.kind.upper()} {entry.name}")
    dropped = branch_tables(connection, entry.number)
    delete_branch(connection, entry)
    return dropped


def _insert(connection: Connection, entry: BranchEntry) -> None:
    connection.execute(
        sa.insert(branches).values(
            id=entry.id,
            number=entry.number,
            folded_name=entry.name.lower(),
            name=entry.name,
            parent=entry.parent,
            fork_sequence=entry.fork_sequence,
            user_name=entry.user_name,
            created_ms=entry.created_ms,
            kept_until_ms=entry.kept_until_ms,
            is_tag=entry.is_tag,
        )
    )


def _rows(
    connection: Connection, relation: sa.Table, condition: sa.ColumnElement[bool]
) -> list[dict[str, Any]]:
    """Return the rows that meet a condition, by their numbers."""
    query = sa.select(relation).where(condition).order_by(relation.c.number)
    return [dict(row._mapping) for row in connection.execute(query)]


def _versions(connection: Connection, ids: Sequence[str], instant: int) -> dict[str, int]:
    """Return the versions that tables had at an instant; those that weren't there are left out."""
    found: dict[str, int] = {}
    for first in range(0, len(ids), _BATCH_IDS):
        found.update(versions_at(connection, ids[first : first + _BATCH_IDS], instant))
    return found


def _insert_all(
    connection: Connection, relation: sa.Table, rows: Iterable[Mapping[str, Any]]
) -> None:
    whole = list(rows)
    if whole:
        connection.execute(sa.insert(relation), whole)
