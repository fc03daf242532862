"""What branches and tags have done, and who is at work on them, by the catalog's rows alone."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog import names
from txlake.catalog.branch_rows import MAIN_NAME, BranchEntry, branch_entry
from txlake.catalog.names import MAIN, TableEntry
from txlake.catalog.relations import branches, commits, databases, locks, tables


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchUsage:
    """A branch or a tag, and what is known of its use.

    Attributes:
        parent: the name of the branch that it was made from, or `main`.
        age_ms: how long ago it was created.
        is_expired: it is no longer kept.
        changed_tables: the number of tables that it changed, created or dropped.
        versions: the number of versions that were committed on it, of the tables that it has.
        is_in_use: a session that has a transaction open on it, or has had one, has locks there.
    """

    entry: BranchEntry
    parent: str
    age_ms: int
    is_expired: bool
    changed_tables: int
    versions: int
    is_in_use: bool


def usage(connection: Connection, now_ms: int) -> list[BranchUsage]:
    """Return the branches and tags by name. `now_ms`: the database's time."""
    rows = connection.execute(sa.select(branches).order_by(branches.c.folded_name))
    entries = [branch_entry(row) for row in rows]
    named = {MAIN: MAIN_NAME} | {entry.number: entry.name for entry in entries}
    changed, versions = _commits(connection)
    used = set(
        connection.scalars(
            sa.select(databases.c.branch).where(
                databases.c.branch != MAIN,
                databases.c.number.in_(sa.select(locks.c.database_number)),
            )
        )
    )
    return [
        BranchUsage(
            entry=entry,
            parent=named[entry.parent],
            age_ms=max(0, now_ms - entry.created_ms),
            is_expired=entry.is_over(now_ms),
            changed_tables=changed[entry.number],
            versions=versions[entry.number],
            is_in_use=entry.number in used,
        )
        for entry in entries
    ]


def _commits(connection: Connection) -> tuple[Counter[int], Counter[int]]:
    """Return by branch the number of tables that it changed, and that of the versions."""
    changed: Counter[int] = Counter()
    versions: Counter[int] = Counter()
    columns = (tables.c.branch, tables.c.head, tables.c.chain, tables.c.dropped_sequence)
    query = sa.select(*columns).where(tables.c.branch != MAIN, tables.c.head.is_not(None))
    for branch, head, encoded, dropped_sequence in connection.execute(query):
        chain = json.loads(encoded or "[]")
        base = chain[-1][1] if chain else -1
        versions[branch] += head - base
        is_dropped = dropped_sequence is not None
        # A table that was created on the branch and dropped there again leaves no change.
        changed[branch] += (is_dropped or head != base) if chain else not is_dropped
    return changed, versions


def shared_tables(connection: Connection) -> list[list[TableEntry]]:
    """Return the tables that branches or tags have, those of main included: a list for each
    location, in the order of their numbers.
    """
    of_branches = sa.select(tables.c.location).where(
        tables.c.branch != MAIN, tables.c.dropped_sequence.is_(None)
    )
    query = (
        sa.select(
            tables,
            databases.c.name.label("database_name"),
            databases.c.number.label("database_number"),
        )
        .join(databases, databases.c.id == tables.c.database_id)
        .where(
            tables.c.dropped_sequence.is_(None),
            tables.c.head.is_not(None),
            tables.c.location.in_(of_branches),
        )
        .order_by(tables.c.number)
    )
    found: dict[str, list[TableEntry]] = {}
    for row in connection.execute(query):
        entry = names.entry_in(row, row.database_name, row.database_number)
        found.setdefault(entry.location, []).append(entry)
    return list(found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchCommit:
    """A version that was committed on a branch that hasn't ended.

    Attributes:
        branch: the branch's number.
        table: `database.table`, as the branch has it.
    """

    branch: int
    time_ms: int
    table: str
    version: int
    operation: str | None


def commits_between(
    connection: Connection, from_ms: int, to_ms: int, limit: int
) -> list[BranchCommit]:
    """Return the versions committed on branches between two times, both included, the newest
    first.
    """
    query = (
        sa.select(
            tables.c.branch,
            commits.c.time_ms,
            tables.c.name,
            databases.c.name.label("database_name"),
            commits.c.version,
            commits.c.operation,
        )
        .select_from(
            commits.join(tables, tables.c.id == commits.c.table_id)
            .join(branches, branches.c.number == tables.c.branch)
            .join(databases, databases.c.id == tables.c.database_id)
        )
        # The versions that a branch began with have its id in place of a transaction's.
        .where(commits.c.transaction_id != branches.c.id, commits.c.time_ms.between(from_ms, to_ms))
        .order_by(commits.c.sequence.desc(), commits.c.table_id)
        .limit(limit)
    )
    return [
        BranchCommit(
            branch=row.branch,
            time_ms=row.time_ms,
            table=f"{row.database_name}.{row.name}",
            version=row.version,
            operation=row.operation,
        )
        for row in connection.execute(query)
    ]
