"""Rows of branches, read and changed in the caller's transaction, which has locked the sequence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog import counter_rows, names
from txlake.catalog.names import DatabaseEntry, TableEntry
from txlake.catalog.relations import (
    bare,
    branch_reads,
    branches,
    commits,
    databases,
    identities,
    tables,
    views,
)
from txlake.errors import InvalidRequest, Unavailable
from txlake.ports import AdoptedTable, EndedBranch, ReadRecord

MAIN_NAME = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchEntry:
    """A branch, or a tag, which is a branch that nobody writes.

    Attributes:
        number: marks its rows in the catalog.
        parent: the number of the branch that it was made from, 0 for main.
        fork_sequence: the instant of the lake that it began at.
        user_name: who made it, if that is known.
        kept_until_ms: when it may be dropped; None: it is kept until somebody drops it.
    """

    id: str
    number: int
    name: str
    parent: int
    fork_sequence: int
    created_ms: int
    user_name: str | None = None
    kept_until_ms: int | None = None
    is_tag: bool = False

    @property
    def kind(self) -> str:
        """What it is, in a message."""
        return "tag" if self.is_tag else "branch"

    def is_over(self, now_ms: int) -> bool:
        """Return whether it has expired, after which whoever maintains the lake drops it."""
        return self.kept_until_ms is not None and self.kept_until_ms <= now_ms

    def require_kept(self, now_ms: int) -> None:
        """Raise InvalidRequest if it has expired: its files may be deleted at any moment."""
        if self.is_over(now_ms):
            assert self.kept_until_ms is not None
            until = datetime.fromtimestamp(self.kept_until_ms / 1000, UTC)
            raise InvalidRequest(
                f"{self.kind} {self.name!r} has expired: it was kept until "
                f"{until:%Y-%m-%d %H:%M:%S} UTC, and VACUUM or whoever opens the lake drops it. "
                f"CREATE {self.kind.upper()} {self.name} makes a new one"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchTable:
    """A table of a branch.

    Attributes:
        entry: the table, under its name on the branch.
        is_dropped: it was dropped there.
        origin: the table that it was made from, under its name now; None if that was dropped, and
            for a table that was created on the branch.
        reads: what the branch's commits read of it, in their order.
    """

    entry: TableEntry
    is_dropped: bool
    origin: TableEntry | None
    reads: tuple[ReadRecord, ...]

    @property
    def is_changed(self) -> bool:
        """Whether the branch has versions of it that its origin didn't have."""
        return self.entry.base is not None and self.entry.head != self.entry.base


def find_branch(connection: Connection, name: str) -> BranchEntry | None:
    """Return the branch or tag of that name, in any letter case; None if there is none."""
    query = sa.select(branches).where(branches.c.folded_name == name.lower())
    row = connection.execute(query).first()
    return None if row is None else branch_entry(row)


def require_branch(connection: Connection, name: str, *, is_tag: bool = False) -> BranchEntry:
    """Return the branch or tag of that name. Raises InvalidRequest if there is none."""
    return of_kind(find_branch(connection, name), name, is_tag=is_tag)


def of_kind(entry: BranchEntry | None, name: str, *, is_tag: bool = False) -> BranchEntry:
    """Return what was found for the name of a branch, or of a tag.

    Raises InvalidRequest if nothing was found, or a tag in place of a branch or the reverse.
    """
    if entry is None and is_tag:
        raise InvalidRequest(f"there is no tag {name!r}: SHOW TAGS lists them")
    if entry is None:
        raise InvalidRequest(
            f"there is no branch {name!r}: SHOW BRANCHES lists them, CREATE BRANCH makes one. One "
            "that was published or dropped has ended"
        )
    if entry.is_tag and not is_tag:
        raise InvalidRequest(
            f"expected a branch, found the tag {name!r}: VERSION AS OF reads a table as of it, "
            "DROP TAG drops it, CREATE BRANCH makes a branch of another name"
        )
    if is_tag and not entry.is_tag:
        raise InvalidRequest(
            f"expected a tag, found the branch {name!r}: DROP BRANCH drops it, SHOW TAGS lists the "
            "tags"
        )
    return entry


def branch_entry(row: sa.Row[Any]) -> BranchEntry:
    """Return the entry of a row of `branches`."""
    return BranchEntry(
        id=row.id,
        number=row.number,
        name=row.name,
        parent=row.parent,
        fork_sequence=row.fork_sequence,
        created_ms=row.created_ms,
        user_name=row.user_name,
        kept_until_ms=row.kept_until_ms,
        is_tag=row.is_tag,
    )


def branch_tables(connection: Connection, number: int) -> list[BranchTable]:
    """Return the tables of a branch, dropped ones included, by their names."""
    rows = connection.execute(sa.select(tables).where(tables.c.branch == number)).all()
    is_origin = tables.c.id.in_({row.origin_id for row in rows if row.origin_id is not None})
    live = is_origin & tables.c.dropped_sequence.is_(None)
    origins = {row.id: row for row in connection.execute(sa.select(tables).where(live))}
    owners = {row.id: names.database_entry(row) for row in connection.execute(sa.select(databases))}
    is_read = branch_reads.c.table_id.in_({row.id for row in rows})
    is_its_commit = (commits.c.table_id == branch_reads.c.table_id) & (
        commits.c.sequence == branch_reads.c.sequence
    )
    query = (
        sa.select(branch_reads, commits.c.version)
        .select_from(branch_reads.outerjoin(commits, is_its_commit))
        .where(is_read)
        .order_by(branch_reads.c.sequence, commits.c.version)
    )
    reads: dict[str, list[ReadRecord]] = {}
    for row in connection.execute(query):
        reads.setdefault(row.table_id, []).append(ReadRecord(row.record, row.level, row.version))

    def entry_of(row: sa.Row[Any]) -> TableEntry:
        return names.table_entry(row, owners[row.database_id])

    found = [
        BranchTable(
            entry=entry_of(row),
            is_dropped=row.dropped_sequence is not None,
            origin=entry_of(origins[row.origin_id]) if row.origin_id in origins else None,
            reads=tuple(reads.get(row.id, ())),
        )
        for row in rows
        if row.database_id is not None
    ]
    return sorted(found, key=lambda table: (table.entry.database, table.entry.name))


def record_reads(connection: Connection, reads: Mapping[str, ReadRecord], sequence: int) -> None:
    """Insert what the transaction read that made the instant, by table id."""
    rows = [
        {"table_id": table_id, "sequence": sequence, "record": read.record, "level": read.level}
        for table_id, read in sorted(reads.items())
    ]
    connection.execute(sa.insert(branch_reads), rows)


def adopt_table(connection: Connection, change: AdoptedTable, now_ms: int) -> None:
    """Make a table that was created on a branch one of the branch's parent.

    Raises InvalidRequest if the name is taken or the database missing there, or the table was
    dropped.
    """
    owner = names.database(connection, change.database, change.branch)
    if owner is None:
        owner = _moved_database(connection, change, now_ms)
    taken = names.table(connection, owner.name, change.name, change.branch)
    if taken is not None and taken.id != change.id:
        raise InvalidRequest(
            f"table {owner.name}.{change.name} exists already: it was created since the branch "
            "began; rename or drop one of the two, then publish again"
        )
    names.require_no_view(connection, owner, change.name)
    adopted = connection.execute(
        names.live_update(change.id).values(
            branch=change.branch, database_id=owner.id, modified_ms=now_ms
        )
    )
    if adopted.rowcount != 1:
        raise names.dropped_error(connection, change.id)


def _moved_database(connection: Connection, change: AdoptedTable, now_ms: int) -> DatabaseEntry:
    """Move the database of a table that is adopted to the branch's parent, and return it.

    Raises InvalidRequest if it was dropped there since the branch began.
    """
    query = (
        sa.select(databases, branches.c.created_ms.label("began_ms"))
        .select_from(
            tables.join(databases, tables.c.database_id == databases.c.id).join(
                branches, databases.c.branch == branches.c.number
            )
        )
        .where(tables.c.id == change.id)
    )
    row = connection.execute(query).first()
    if row is None or row.created_ms < row.began_ms:
        return names.require_database(connection, change.database, change.branch)
    _move_database(connection, row, change.branch, now_ms)
    return names.require_database(connection, change.database, change.branch)


def _move_database(connection: Connection, row: sa.Row[Any], target: int, now_ms: int) -> None:
    """Make a branch's database one of another branch, or of main, which is new there with its
    views: branches of the target that are there already didn't begin with them.
    """
    moved = sa.update(databases).where(databases.c.id == row.id)
    key = names.new_database_key(row.name, target)
    connection.execute(moved.values(branch=target, folded_name=key, created_ms=now_ms))
    shown = sa.update(views).where(views.c.database_id == row.id)
    connection.execute(shown.values(created_ms=now_ms, modified_ms=now_ms))


def _publish_databases(
    connection: Connection, entry: BranchEntry, target: int, now_ms: int
) -> None:
    """Move the databases that a branch created to its parent, unless that has them too."""
    is_new = (databases.c.branch == entry.number) & (databases.c.created_ms >= entry.created_ms)
    for row in connection.execute(sa.select(databases).where(is_new)).all():
        if names.database(connection, row.name, target) is None:
            _move_database(connection, row, target, now_ms)


def _publish_views(connection: Connection, entry: BranchEntry, target: int, now_ms: int) -> None:
    """Let the parent have the views that a branch created, changed, renamed or dropped.

    Raises InvalidRequest if the parent has changed one of them too.
    """
    here, there = (_views_of(connection, number) for number in (entry.number, target))
    removed_ms = _remove_views(connection, entry, here, there)
    for name, row in here.items():
        if row.modified_ms < entry.created_ms:
            continue
        same = there.get(name)
        if same is not None:
            _require_unchanged(same, entry)
            connection.execute(sa.delete(views).where(views.c.id == same.id))
        elif row.created_ms < entry.created_ms and row.created_ms not in removed_ms:
            raise InvalidRequest(
                f"view {row.owner}.{row.name} was changed by branch {entry.name!r}, and dropped or "
                "renamed where the branch began; drop it on the branch, or drop it and create it "
                "anew if it is to be there, then publish again"
            )
        owner = names.require_database(connection, row.owner, target)
        if names.table(connection, owner.name, row.name, target) is not None:
            raise InvalidRequest(f"{owner.name}.{row.name} is a table now; rename the view")
        created_ms = row.created_ms if row.created_ms < entry.created_ms else now_ms
        moved = sa.update(views).where(views.c.id == row.id)
        connection.execute(
            moved.values(database_id=owner.id, created_ms=created_ms, modified_ms=now_ms)
        )


def _views_of(connection: Connection, branch: int) -> dict[tuple[str, str], sa.Row[Any]]:
    """Return the views of a branch, or of main, by their database's name and their own."""
    named = sa.select(views, databases.c.name.label("owner")).join(
        databases, views.c.database_id == databases.c.id
    )
    rows = connection.execute(named.where(databases.c.branch == branch))
    return {(row.owner.lower(), row.folded_name): row for row in rows}


def _remove_views(
    connection: Connection,
    entry: BranchEntry,
    here: Mapping[tuple[str, str], sa.Row[Any]],
    there: Mapping[tuple[str, str], sa.Row[Any]],
) -> set[int]:
    """Remove the views of the parent that a branch dropped or renamed; return when they were
    created. One that the parent alone renamed stays.

    Raises InvalidRequest if the parent has changed one of them too.
    """
    renamed_there = {
        _definition(row)
        for name, row in here.items()
        if name not in there and row.modified_ms < entry.created_ms
    }
    removed_ms: set[int] = set()
    for name, row in there.items():
        began_with_it = row.created_ms < entry.created_ms
        if began_with_it and name not in here and _definition(row) not in renamed_there:
            _require_unchanged(row, entry)
            connection.execute(sa.delete(views).where(views.c.id == row.id))
            removed_ms.add(row.created_ms)
    return removed_ms


def _definition(row: sa.Row[Any]) -> tuple[object, ...]:
    """Return what a view keeps when it is renamed."""
    return row.created_ms, row.query, row.columns, row.comment, row.properties


def _require_unchanged(row: sa.Row[Any], entry: BranchEntry) -> None:
    """Raise InvalidRequest if a view of the parent was changed since the branch began."""
    if row.modified_ms >= entry.created_ms:
        raise InvalidRequest(
            f"view {row.owner}.{row.name} was changed by branch {entry.name!r}, and where the "
            "branch began too; make one of the two as the other is, then publish again"
        )


def end_branch(connection: Connection, change: EndedBranch, now_ms: int) -> None:
    """Delete a branch that is published.

    Raises InvalidRequest if it has ended already, or another was made from it, and Unavailable if
    it got commits that aren't published.
    """
    row = connection.execute(sa.select(branches).where(branches.c.id == change.id)).first()
    if row is None:
        raise InvalidRequest("the branch has ended meanwhile: it was published or dropped")
    entry = branch_entry(row)
    what = "PUBLISH" if change.successor is None else "REBASE"
    require_no_child(connection, entry, f"{what} BRANCH {entry.name}")
    is_live = (tables.c.branch == entry.number) & tables.c.dropped_sequence.is_(None)
    query = sa.select(tables.c.id, tables.c.head, tables.c.modified_ms).where(is_live)
    states = {row.id: (row.head, row.modified_ms) for row in connection.execute(query)}
    if states != change.tables:
        raise Unavailable(
            f"branch {entry.name!r} got another commit while it was published; nothing was "
            "published, do it again"
        )
    _publish_databases(connection, entry, change.target, now_ms)
    _publish_views(connection, entry, change.target, now_ms)
    delete_branch(connection, entry, successor=change.successor)
    if change.successor is not None:
        renamed = sa.update(branches).where(branches.c.id == change.successor)
        connection.execute(
            renamed.values(
                folded_name=entry.name.lower(),
                name=entry.name,
                user_name=entry.user_name,
                kept_until_ms=entry.kept_until_ms,
            )
        )


def require_no_child(connection: Connection, entry: BranchEntry, what: str) -> None:
    """Raise InvalidRequest if another branch was made from this one. `what`: the statement."""
    query = sa.select(branches).where(branches.c.parent == entry.number).limit(1)
    row = connection.execute(query).first()
    if row is not None:
        child = branch_entry(row)
        ends = "drop that one" if child.is_tag else "publish or drop that one"
        raise InvalidRequest(f"{what}: {child.kind} {child.name!r} was made from it; {ends} first")


def successor_name(branch_id: str, own_id: str) -> str:
    """Return the name of a branch that is to succeed another one, until it does."""
    return f"{branch_id}.rebased.{own_id}"


def delete_branch(
    connection: Connection, entry: BranchEntry, *, successor: str | None = None
) -> None:
    """Delete a branch's rows, and those of branches that were to succeed it, except `successor`:
    their REBASE was killed, or fails now.
    """
    named = branches.c.folded_name.startswith(successor_name(entry.id, ""), autoescape=True)
    is_other = branches.c.id != ("" if successor is None else successor)
    for row in connection.execute(sa.select(branches).where(named & is_other)).all():
        _delete_rows(connection, branch_entry(row))
    _delete_rows(connection, entry)


def _delete_rows(connection: Connection, entry: BranchEntry) -> None:
    """Delete a branch's rows. A table that was created on it becomes a dropped one of the lake,
    whose folder is removed as theirs are, also if this process is killed.
    """
    is_own = tables.c.branch == entry.number
    own_ids = sa.select(tables.c.id).where(is_own)
    own_databases = sa.select(databases.c.id).where(databases.c.branch == entry.number)
    connection.execute(sa.delete(branch_reads).where(branch_reads.c.table_id.in_(own_ids)))
    has_folder = tables.c.origin_id.is_(None) & tables.c.managed & tables.c.head.is_not(None)
    newest = counter_rows.NEWEST_SEQUENCE.scalar_subquery()
    connection.execute(
        sa.update(tables)
        .where(is_own, has_folder)
        .values(
            branch=names.MAIN,
            database_id=None,
            dropped_sequence=sa.func.coalesce(tables.c.dropped_sequence, newest),
            dropped_ms=None,
            kept_until_ms=None,
            dropped_from=None,
        )
    )
    _keep_traces(connection, entry, own_ids)
    for relation in (commits, identities):
        connection.execute(sa.delete(relation).where(relation.c.table_id.in_(own_ids)))
    connection.execute(sa.delete(views).where(views.c.database_id.in_(own_databases)))
    connection.execute(sa.delete(tables).where(is_own))
    connection.execute(sa.delete(databases).where(databases.c.branch == entry.number))
    connection.execute(sa.delete(branches).where(branches.c.id == entry.id))


def _keep_traces(
    connection: Connection, entry: BranchEntry, own_ids: sa.Select[tuple[str]]
) -> None:
    """Keep, without their commits, the instants of the transactions that committed on a branch: one
    that got no reply to its commit looks there whether it was ratified.
    """
    is_kept = sa.exists().where(bare.c.transaction_id == commits.c.transaction_id)
    made = (
        sa.select(commits.c.transaction_id, commits.c.sequence, commits.c.time_ms)
        .where(commits.c.table_id.in_(own_ids), commits.c.transaction_id != entry.id)
        .where(~is_kept)
        .distinct()
    )
    connection.execute(sa.insert(bare).from_select(["transaction_id", "sequence", "time_ms"], made))
