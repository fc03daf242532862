"""The catalog's part of a recovery, which reconciles it with the tables' logs.

Owns the epoch, which fences other processes off from the beginning of a recovery on, and the
changes to a table whose log has more, or fewer, versions than the catalog. `commit.reconciliation`
decides those changes. Source: docs/internals/catalog.md, "Recovery".
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
from txlake.catalog.names import MAIN, TableEntry
from txlake.catalog.owners import end_sessions
from txlake.catalog.relations import commits, databases, sessions, tables
from txlake.catalog.sessions import SESSION_COUNTER
from txlake.catalog.shielding import shielded
from txlake.errors import InvalidRequest, Unavailable
from txlake.ports import LoggedVersion, TableCommit

_LAKE = "lake"
RECOVERING_FACT = "recovering"
MOVED_FACT = "moved"  # where the lake's catalog is now, in the one that it was moved from
_ID_LENGTH = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """The state of a table in the catalog.

    Attributes:
        entry: the table's entry.
        is_dropped: the table was dropped with its files kept: it stays as a path table.
        published: the newest version that is known to be in the log.
        pending: the ratified commits after `published`, by version.
    """

    entry: TableEntry
    is_dropped: bool
    published: int
    pending: tuple[TableCommit, ...]

    @property
    def head(self) -> int:
        """The newest ratified version; -1 if there is none."""
        return -1 if self.entry.head is None else self.entry.head


@shielded()
class Recovery:
    """The catalog's side of recoveries. Only one recovery at a time has the catalog's epoch."""

    def __init__(self, database: Database, fence: Fence) -> None:
        self._database = database
        self._fence = fence

    def is_unfinished(self) -> bool:
        """Return whether a recovery has begun and not ended."""
        with self._database.reading() as connection:
            return fact(connection, RECOVERING_FACT) is not None

    def begin(self, lake_id: str, epoch_min: int, session_id: int) -> int:
        """Begin a new epoch, in which only this process works, and return it.

        All sessions except `session_id` end, with their transactions and locks. An empty catalog
        becomes the lake's. The epoch is at least `epoch_min`.

        Raises InvalidRequest if the catalog is another lake's and has tables.
        """
        others = sa.select(sessions.c.id).where(sessions.c.id != session_id).with_for_update()

        def work(connection: Connection) -> tuple[int, int]:
            # Sessions are locked before the sequence, as in all transactions that lock both.
            end_sessions(connection, connection.scalars(others.order_by(sessions.c.id)).all())
            sequence = max(counter_rows.lock_sequence(connection), self._fence.newest)
            self._adopt(connection, lake_id)
            epoch = max(epoch_min, epoch_of(connection) + 1)
            set_fact(connection, EPOCH_FACT, str(epoch))
            set_fact(connection, RECOVERING_FACT, str(epoch))
            # Instants and the session number that this process has used aren't given out again.
            counter_rows.set_sequence(connection, sequence)
            counter_rows.raise_number(connection, SESSION_COUNTER, session_id)
            return epoch, sequence

        self._database.delete_strays()
        self._fence.epoch, self._fence.newest = self._database.write(work)
        return self._fence.epoch

    def require(self, epoch: int) -> None:
        """Raise Unavailable if another recovery has begun. `epoch`: the one that `begin`
        returned.
        """
        with self._database.reading() as connection:
            self._check(epoch, epoch_of(connection))

    def end(self, epoch: int) -> None:
        """End the recovery: other processes can work again after connecting anew.

        `epoch`: the one that `begin` returned. Raises Unavailable if another recovery has begun.
        """

        def work(connection: Connection) -> None:
            self._lock(connection, epoch)
            remove_fact(connection, RECOVERING_FACT)
            remove_fact(connection, MOVED_FACT)

        self._database.write(work)

    def branch_locations(self) -> set[str]:
        """Return the locations of the tables that branches have, dropped ones included."""
        query = sa.select(tables.c.location).where(tables.c.branch != MAIN).distinct()
        with self._database.reading() as connection:
            return set(connection.scalars(query))

    def table_states(self) -> list[TableState]:
        """Return the states of main's attached tables, and of dropped ones that stay path tables.

        A retained table whose files stay is left out once its commits are published: other writers
        may commit to it.
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
                tables.c.branch == MAIN,
                tables.c.dropped_sequence.is_(None)
                | (
                    tables.c.managed.is_(False)
                    & (tables.c.kept_until_ms.is_(None) | (tables.c.published < tables.c.head))
                ),
            )
            .order_by(tables.c.id, commits.c.version)
        )
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        states = []
        for _, of_table in groupby(rows, lambda row: row.id):
            table_rows = list(of_table)
            table = table_rows[0]
            entry = TableEntry(
                id=table.id,
                number=table.number,
                database=table.database_name or "",
                database_number=table.database_number or 0,
                name=table.name,
                location=table.location,
                managed=table.managed,
                created_ms=table.created_ms,
                modified_ms=table.modified_ms,
                head=table.head,
            )
            states.append(
                TableState(
                    entry=entry,
                    is_dropped=table.dropped_sequence is not None,
                    published=table.published,
                    pending=table_commits(table_rows),
                )
            )
        return states

    def settle(
        self, epoch: int, table_id: str, common: int, logged: Sequence[LoggedVersion]
    ) -> None:
        """Replace a table's versions by those of its log, all of them published.

        The catalog's versions up to `common` stay. The versions `logged` follow in the log: they
        are added at one new instant of the lake. `epoch`: the one that `begin` returned.

        Raises Unavailable if another recovery has begun.
        """

        def work(connection: Connection) -> int:
            sequence = self._lock(connection, epoch) + 1
            now_ms = self._database.now_ms(connection)
            of_table = commits.c.table_id == table_id
            connection.execute(sa.delete(commits).where(of_table, commits.c.version > common))
            connection.execute(sa.update(commits).where(of_table).values(content=None))
            if logged:
                rows = [
                    {
                        "table_id": table_id,
                        "version": commit.version,
                        "sequence": sequence,
                        "transaction_id": commit.txn_id
                        if commit.txn_id and len(commit.txn_id) <= _ID_LENGTH
                        else self._database.system.new_id(),
                        "time_ms": now_ms,
                        "operation": commit.operation and commit.operation[:64],
                    }
                    for commit in logged
                ]
                connection.execute(sa.insert(commits), rows)
            head = logged[-1].version if logged else common
            changed = sa.update(tables).where(tables.c.id == table_id)
            connection.execute(changed.values(head=head, published=head))
            counter_rows.set_sequence(connection, sequence)
            return sequence

        self._fence.newest = self._database.write(work)

    def _lock(self, connection: Connection, epoch: int) -> int:
        """Lock the sequence and return the newest instant. Raises Unavailable unless the epoch is
        this recovery's.
        """
        sequence = counter_rows.lock_sequence(connection)
        self._check(epoch, epoch_of(connection))
        return sequence

    def _check(self, epoch: int, present: int) -> None:
        """Raise Unavailable if another recovery has begun since."""
        self._fence.check_epoch(present)
        if present != epoch:  # another thread of this process, which has the same fence
            raise Unavailable(
                f"catalog {self._database.display_url}: another lake.recover() of this process has "
                f"begun (epoch {present}) since this one did (epoch {epoch}); that one goes on, "
                "wait for it or run lake.recover() again"
            )

    def _adopt(self, connection: Connection, lake_id: str) -> None:
        """Make the catalog that of the lake. Raises InvalidRequest if it is another lake's and has
        tables.
        """
        if fact(connection, _LAKE) == lake_id:
            return
        if connection.execute(sa.select(tables.c.id).limit(1)).first() is not None:
            raise InvalidRequest(
                f"catalog {self._database.display_url}: it has tables of its own and can't become "
                f"that of lake {lake_id}; give an empty one"
            )
        set_fact(connection, _LAKE, lake_id)
