"""The catalog's part in bringing it and the tables' logs together again.

Owns the epoch, by which other processes are kept out from the beginning of a recovery on, and what
is written for a table whose log tells more, or less, than the catalog knew. What that is, is
decided in `commit.reconciliation`. Source: docs/internals/catalog.md, "Recovery".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog import counter_rows
from txlake.catalog.commits import table_commits
from txlake.catalog.database import Database
from txlake.catalog.fact_rows import fact, remove_fact, set_fact
from txlake.catalog.fence import EPOCH_FACT, Fence, epoch_of
from txlake.catalog.names import TableEntry
from txlake.catalog.owners import end_sessions
from txlake.catalog.relations import commits, databases, sessions, tables
from txlake.catalog.sessions import SESSION_COUNTER
from txlake.catalog.shielding import shielded
from txlake.errors import InvalidRequest, Unavailable
from txlake.ports import LoggedVersion, TableCommit

_LAKE = "lake"
_RECOVERING = "recovering"
_ID_LENGTH = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """Where the catalog has a table.

    Attributes:
        entry: the table's.
        is_dropped: it has no name any more, and stays as a path table.
        published: the newest version that is known to be in the log.
        pending: the ratified commits after it, by version.
    """

    entry: TableEntry
    is_dropped: bool
    published: int
    pending: tuple[TableCommit, ...]

    @property
    def head(self) -> int:
        """The newest ratified version."""
        return -1 if self.entry.head is None else self.entry.head


@shielded()
class Recovery:
    """What a recovery reads and writes. One of them at a time has the catalog's epoch."""

    def __init__(self, on: Database, fence: Fence) -> None:
        self._on = on
        self._fence = fence

    def is_unfinished(self) -> bool:
        """Whether a recovery has begun that didn't end."""
        with self._on.reading() as connection:
            return fact(connection, _RECOVERING) is not None

    def begin(self, lake_id: str, epoch_min: int, session_id: int) -> int:
        """A new epoch, of at least that number, in which this process alone works.

        Sessions of others end with their transactions and locks. An empty catalog becomes that of
        the lake. Raises InvalidRequest when it is another lake's and has tables.
        """
        others = sa.select(sessions.c.id).where(sessions.c.id != session_id).with_for_update()
        with self._on.writing() as connection:
            # Before the sequence, as all do who lock both: who ratifies waits here.
            end_sessions(connection, connection.scalars(others.order_by(sessions.c.id)).all())
            sequence = max(counter_rows.lock_sequence(connection), self._fence.newest)
            self._adopt(connection, lake_id)
            epoch = max(epoch_min, epoch_of(connection) + 1)
            set_fact(connection, EPOCH_FACT, str(epoch))
            set_fact(connection, _RECOVERING, str(epoch))
            # What was told of this process's instants and session isn't told of others again.
            counter_rows.set_sequence(connection, sequence)
            counter_rows.raise_number(connection, SESSION_COUNTER, session_id)
        self._fence.epoch, self._fence.newest = epoch, sequence
        return epoch

    def require(self, epoch: int) -> None:
        """Raises Unavailable unless this recovery still has the catalog. `epoch` as for `end`."""
        with self._on.reading() as connection:
            self._check(epoch, epoch_of(connection))

    def end(self, epoch: int) -> None:
        """Others may work again, once they have connected anew.

        `epoch`: the one that `begin` gave. Raises Unavailable when another recovery has begun.
        """
        with self._on.writing() as connection:
            self._lock(connection, epoch)
            remove_fact(connection, _RECOVERING)

    def table_states(self) -> list[TableState]:
        """Where the attached tables stand, and those dropped ones that stay as path tables.

        A table that is kept is one for itself once it is published: others write it.
        """
        of_pending = (commits.c.table_id == tables.c.id) & (commits.c.version > tables.c.published)
        query = (
            sa.select(
                tables,
                databases.c.name.label("database_name"),
                databases.c.number.label("database_number"),
                commits.c.version,
                commits.c.content,
                commits.c.staged,
                commits.c.operation,
            )
            .select_from(
                tables.outerjoin(databases, tables.c.database_id == databases.c.id).outerjoin(
                    commits, of_pending
                )
            )
            .where(
                tables.c.head.is_not(None),
                tables.c.dropped_sequence.is_(None)
                | (
                    tables.c.managed.is_(False)
                    & (tables.c.kept_until_ms.is_(None) | (tables.c.published < tables.c.head))
                ),
            )
            .order_by(tables.c.id, commits.c.version)
        )
        with self._on.reading() as connection:
            rows = connection.execute(query).all()
        found = []
        for _, of_one in groupby(rows, lambda row: row.id):
            one = list(of_one)
            entry = TableEntry(
                id=one[0].id,
                number=one[0].number,
                database=one[0].database_name or "",
                database_number=one[0].database_number or 0,
                name=one[0].name,
                location=one[0].location,
                managed=one[0].managed,
                created_ms=one[0].created_ms,
                modified_ms=one[0].modified_ms,
                head=one[0].head,
            )
            found.append(
                TableState(
                    entry=entry,
                    is_dropped=one[0].dropped_sequence is not None,
                    published=one[0].published,
                    pending=table_commits(one),
                )
            )
        return found

    def settle(self, epoch: int, table_id: str, kept: int, found: Sequence[LoggedVersion]) -> None:
        """Makes a table's versions those of its log, all of them published.

        Of the versions that the catalog has, those up to `kept` stay; `found` are those that follow
        in the log, which it learns now, at one new instant of the lake. `epoch` as for `end`.
        """
        with self._on.writing() as connection:
            sequence = self._lock(connection, epoch) + 1
            now_ms = self._on.now_ms(connection)
            of_table = commits.c.table_id == table_id
            connection.execute(sa.delete(commits).where(of_table, commits.c.version > kept))
            connection.execute(sa.update(commits).where(of_table).values(content=None))
            if found:
                rows = [
                    {
                        "table_id": table_id,
                        "version": one.version,
                        "sequence": sequence,
                        "transaction_id": one.txn_id
                        if one.txn_id and len(one.txn_id) <= _ID_LENGTH
                        else self._on.system.new_id(),
                        "time_ms": now_ms,
                        "operation": one.operation and one.operation[:64],
                    }
                    for one in found
                ]
                connection.execute(sa.insert(commits), rows)
            head = found[-1].version if found else kept
            changed = sa.update(tables).where(tables.c.id == table_id)
            connection.execute(changed.values(head=head, published=head))
            counter_rows.set_sequence(connection, sequence)
            self._fence.newest = sequence

    def _lock(self, connection: Connection, epoch: int) -> int:
        """The newest instant, locked, in this recovery's epoch. Raises Unavailable in another."""
        sequence = counter_rows.lock_sequence(connection)
        self._check(epoch, epoch_of(connection))
        return sequence

    def _check(self, epoch: int, found: int) -> None:
        self._fence.check_epoch(found)
        if found != epoch:  # a thread of this process, which has the same fence
            raise Unavailable(
                f"catalog {self._on.display_url}: another lake.recover() of this process has begun "
                f"(epoch {found}) since this one did (epoch {epoch}); that one goes on, wait for "
                "it or run lake.recover() again"
            )

    def _adopt(self, connection: Connection, lake_id: str) -> None:
        if fact(connection, _LAKE) == lake_id:
            return
        if connection.execute(sa.select(tables.c.id).limit(1)).first() is not None:
            raise InvalidRequest(
                f"catalog {self._on.display_url}: it has tables of its own and can't become "
                "that of "
                f"lake {lake_id}; give an empty one"
            )
        set_fact(connection, _LAKE, lake_id)
