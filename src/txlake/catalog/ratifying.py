"""Ratify a batch of requests in one database transaction.

Requests are decided in their order, independently: a refused one changes nothing, and a later one
sees the heads that earlier ones have moved. The sequence is locked first, so that no head, name or
reservation that was read changes before the transaction ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog import branch_rows, counter_rows, drop_rows, names
from txlake.catalog.database import Database
from txlake.catalog.fence import EPOCH, Fence, epoch_of
from txlake.catalog.owners import ACTIVE, end_transactions, ended_error, is_expired, killed_error
from txlake.catalog.prepared import Prepared, pipelined
from txlake.catalog.publishing import (
    PublicationNote,
    PublicationStep,
    publication_step,
    send_confirmation,
    write_steps,
)
from txlake.catalog.relations import (
    bare,
    commits,
    counters,
    databases,
    locks,
    sessions,
    tables,
    transactions,
)
from txlake.catalog.unregistered import UnregisteredWriters
from txlake.catalog.views import drop_view, write_view
from txlake.errors import InvalidRequest, TxlakeError, Unavailable
from txlake.ports import (
    AdoptedTable,
    DroppedTable,
    DroppedView,
    EndedBranch,
    HeadsMoved,
    NewTable,
    Ratification,
    Ratified,
    RenamedTable,
    TableCommit,
    TurnTaken,
    UndroppedTable,
    VersionRange,
    WrittenView,
)

Decision = Ratified | HeadsMoved | TurnTaken | TxlakeError

# The resource that a transaction holds in `locks` while it has its turn to commit to a table.
RESERVED_TYPE, RESERVED_SUBTYPE = "OBJECT", "COMMIT"

_OPERATION_LENGTH = 64

_ADD_COMMITS = Prepared(
    sa.insert(commits),
    columns=(
        "sequence",
        "transaction_id",
        "time_ms",
        "table_id",
        "version",
        "operation",
        "content",
        "staged",
    ),
)
_NEWEST = sa.select(sa.func.max(commits.c.version)).where(commits.c.table_id == tables.c.id)
_ADVANCE = Prepared(
    lambda ids: (
        sa.update(tables).where(tables.c.id.in_(ids)).values(head=_NEWEST.scalar_subquery())
    ),
    "ids",
)
_LOSE = Prepared(
    lambda ids: (
        sa.update(transactions)
        .where(transactions.c.id.in_(ids))
        .values(lost_attempts=transactions.c.lost_attempts + 1)
    ),
    "ids",
)


@dataclass(slots=True)
class _TableState:
    """A table's state within the batch.

    Attributes:
        head: the newest ratified version; None for a name without an attached table.
        published: the newest published version, the batch's notes included.
        holder: the transaction that has the turn to commit to the table.
    """

    number: int
    head: int | None
    published: int
    is_dropped: bool = False
    holder: str | None = None


class Ratifier:
    """Decides batches of requests, each in the caller's transaction."""

    def __init__(self, database: Database, fence: Fence, unregistered: UnregisteredWriters) -> None:
        self.database = database
        self.fence = fence
        self.unregistered = unregistered
        # Locks the sequence too, and reads it after that.
        self.owners = Prepared(
            lambda ids: (
                sa.select(
                    transactions.c.id,
                    transactions.c.state,
                    counters.c.value.label("sequence"),
                    database.now().label("now_ms"),
                    EPOCH,
                )
                .join_from(transactions, counters, counters.c.name == counter_rows.SEQUENCE)
                .where(transactions.c.id.in_(ids))
                .order_by(transactions.c.id)
                .with_for_update(of=[transactions, counters])
            ),
            "ids",
        )
        locks_of_sessions = locks.join(sessions, locks.c.session_id == sessions.c.id)
        reserved = tables.outerjoin(databases).outerjoin(
            locks_of_sessions,
            (locks.c.resource_type == RESERVED_TYPE)
            & (locks.c.entity == tables.c.number)
            & (locks.c.resource_subtype == RESERVED_SUBTYPE)
            & (~is_expired(database)),
        )
        self.tables = Prepared(
            lambda ids: (
                sa.select(
                    tables.c.id,
                    tables.c.number,
                    databases.c.number.label("database_number"),
                    tables.c.head,
                    tables.c.published,
                    tables.c.dropped_sequence,
                    locks.c.transaction_id.label("holder"),
                )
                .select_from(reserved)
                .where(tables.c.id.in_(ids))
                # Rows are locked in the order of their ids, as where publications are noted.
                .order_by(tables.c.id)
                .with_for_update(of=tables)
            ),
            "ids",
        )

    def decide(
        self,
        connection: Connection,
        requests: Sequence[Ratification],
        notes: Sequence[PublicationNote] = (),
    ) -> Decided:
        """Decide requests. The decisions take effect when `commit` of what this returns has
        returned, in the caller's transaction.

        `notes`: of earlier publications, written in the same transaction. Raises as `Fence.check`
        for the whole batch.
        """
        batch = _Batch(self, connection, requests, notes)
        return Decided([batch.decide(request) for request in requests], batch.commit)


@dataclass(frozen=True, slots=True)
class Decided:
    """A batch's decisions, known before they are committed.

    Attributes:
        decisions: in the order of the requests.
        commit: writes them and commits the transaction, which can have no further statement.
    """

    decisions: Sequence[Decision]
    commit: Callable[[], None]


class _Batch:
    """A batch of requests: what was read for it, and what is to be written."""

    def __init__(
        self,
        queries: Ratifier,
        connection: Connection,
        requests: Sequence[Ratification],
        notes: Sequence[PublicationNote],
    ) -> None:
        self._database = queries.database
        self._unregistered = queries.unregistered
        self._connection = connection
        ids = {commit.table_id for request in requests for commit in request.commits}
        ids.update(table_id for request in requests for table_id in request.unchanged)
        ids.update(change.id for request in requests for change in request.names)
        ids.update(note.table_id for note in notes)
        owners = sorted({request.transaction_id for request in requests})
        with pipelined(connection):
            # The first query locks the sequence; the others read what is there after that.
            read_owners = queries.owners.send(connection, ids=owners)
            read_tables = queries.tables.send(connection, ids=sorted(ids))
            read_confirmed = send_confirmation(connection, notes)
        self._owners = {row.id: row for row in read_owners()}
        self._tables = {
            row.id: _TableState(
                row.number, row.head, row.published, row.dropped_sequence is not None, row.holder
            )
            for row in read_tables()
        }
        # The clock is read after the sequence was locked, so that later instants have later times.
        self._sequence = max((row.sequence for row in self._owners.values()), default=0)
        self._now_ms = max((row.now_ms for row in self._owners.values()), default=0)
        if self._owners:
            queries.fence.check(max(row.epoch for row in self._owners.values()), self._sequence)
        elif any(map(self._unregistered.has, owners)):
            self._read_instant(queries.fence)
        else:  # no transaction is registered any more, most likely because of a recovery
            queries.fence.check_epoch(epoch_of(connection))
        self._steps = self._apply_notes(read_confirmed())
        self._ended: list[str] = []
        self._lost: list[str] = []
        self._commits: list[dict[str, object]] = []

    def _read_instant(self, fence: Fence) -> None:
        """Read the newest instant and the time, where no transaction is registered."""
        self._sequence = counter_rows.lock_sequence(self._connection)
        self._now_ms = self._database.now_ms(self._connection)
        fence.check(epoch_of(self._connection), self._sequence)

    def _apply_notes(
        self, confirmed: Mapping[str, Sequence[VersionRange]]
    ) -> list[PublicationStep]:
        """Raise the tables' published versions by the notes' confirmed ones; return the steps."""
        steps: list[PublicationStep] = []
        for table_id, versions in confirmed.items():
            table = self._tables.get(table_id)
            if table is None:
                continue
            step = publication_step(table_id, table.published, table.head, versions)
            if step is not None:
                table.published = step.until
                steps.append(step)
        return steps

    def decide(self, request: Ratification) -> Decision:
        """Return the decision on a request; an error is returned, not raised.

        The commits of a ratified request are kept for `commit`, its changes of names are made now.
        """
        new = {change.id for change in request.names if isinstance(change, NewTable)}
        existing = [commit for commit in request.commits if commit.table_id not in new]
        try:
            self._check_writer(request.transaction_id)
            for table_id in (*(commit.table_id for commit in existing), *request.unchanged):
                self._check_attached(table_id)
            holder = self._holder(existing, request.transaction_id)
            if holder is not None:
                return TurnTaken(transaction_id=holder)
            moved = self._moved_heads(existing, request.unchanged)
            if moved:
                self._lost.append(request.transaction_id)
                return HeadsMoved(heads=moved)
            if request.names:
                self._write_commits()  # the changes of names read the database
                with self._connection.begin_nested():
                    changed = self._change_names(request)
                self._tables.update(changed)
        except (InvalidRequest, Unavailable) as error:
            return error
        self._sequence += 1
        self._record(request)
        published = {
            commit.table_id: self._tables[commit.table_id].published for commit in request.commits
        }
        return Ratified(sequence=self._sequence, time_ms=self._now_ms, published=published)

    def commit(self) -> None:
        """Write what the decisions have recorded, and commit."""
        with pipelined(self._connection, commits=True):
            write_steps(self._connection, self._steps)
            if self._lost:
                _LOSE.run(self._connection, ids=self._lost)
            self._write_commits()
            if not self._ended:
                return
            end_transactions(self._connection, self._ended)
            counter_rows.set_sequence(self._connection, self._sequence)

    def _write_commits(self) -> None:
        """Insert the ratified commits that aren't written yet, and advance their tables' heads."""
        if self._commits:
            _ADD_COMMITS.run_all(self._connection, self._commits)
            advanced = {commit["table_id"] for commit in self._commits}
            _ADVANCE.run(self._connection, ids=advanced)
            self._commits = []

    def _check_writer(self, transaction_id: str) -> None:
        """Raise as `_check_owner`, and AdmissionOutdated for an unregistered writer that has to run
        again.
        """
        is_registered = transaction_id in self._owners or transaction_id in self._ended
        if is_registered or not self._unregistered.has(transaction_id):
            self._check_owner(transaction_id)
        self._unregistered.check(self._connection, transaction_id)

    def _check_owner(self, transaction_id: str) -> None:
        """Raise Unavailable for a transaction that was ended or killed, InvalidRequest for one that
        this batch has ratified.
        """
        owner = self._owners.get(transaction_id)
        if transaction_id in self._ended:
            raise InvalidRequest(f"transaction {transaction_id} was ratified already")
        if owner is None:
            raise ended_error(transaction_id)
        if owner.state != ACTIVE:
            raise killed_error(transaction_id)

    def _check_attached(self, table_id: str) -> None:
        """Raise InvalidRequest for a table that was dropped, or isn't attached yet."""
        table = self._tables.get(table_id)
        if table is None or table.is_dropped:
            raise names.dropped_error(self._connection, table_id)
        if table.head is None:
            raise InvalidRequest(
                f"table {table_id} is a name alone in the catalog; attach it before it commits here"
            )

    def _holder(self, table_commits: Sequence[TableCommit], transaction_id: str) -> str | None:
        """Return another transaction that has the turn to commit to one of the tables; None if
        there is none.
        """
        holders = (self._tables[commit.table_id].holder for commit in table_commits)
        others = (holder for holder in holders if holder not in (None, transaction_id))
        return next(others, None)

    def _moved_heads(
        self, table_commits: Sequence[TableCommit], unchanged: Mapping[str, int]
    ) -> dict[str, int]:
        """Return the present heads of the tables whose head isn't the one that the request
        expects.
        """
        expected = dict(unchanged)
        for commit in reversed(table_commits):
            expected[commit.table_id] = commit.version - 1
        heads = {table_id: self._tables[table_id].head for table_id in expected}
        return {
            table_id: head
            for table_id, head in heads.items()
            if head is not None and head != expected[table_id]
        }

    def _change_names(self, request: Ratification) -> dict[str, _TableState]:
        """Make a request's changes of names; return the new states of the tables that were created,
        dropped or undropped, or went with their branch.

        Raises InvalidRequest if a change isn't possible, Unavailable as `drop_rows.undrop_table`.
        """
        first = {commit.table_id: commit.version for commit in request.commits}
        changed: dict[str, _TableState] = {}
        for change in request.names:
            match change:
                case NewTable():
                    changed[change.id] = self._add_table(
                        change, first.get(change.id), request.transaction_id
                    )
                case RenamedTable():
                    names.rename_table(
                        self._connection,
                        change.id,
                        change.database,
                        change.name,
                        self._now_ms,
                        change.branch,
                    )
                case DroppedTable():
                    drop_rows.drop_table(
                        self._connection,
                        change.id,
                        self._sequence + 1,
                        keeps_files=change.keeps_files,
                        dropped_ms=self._now_ms if change.dropped_ms is None else change.dropped_ms,
                        retention_ms=change.retention_ms,
                    )
                    table = self._tables.get(change.id)
                    published = -1 if table is None else table.published
                    changed[change.id] = _TableState(0, None, published, is_dropped=True)
                case UndroppedTable():
                    changed[change.id] = self._undrop_table(change, request.transaction_id)
                case WrittenView():
                    write_view(self._connection, change, self._now_ms)
                case DroppedView():
                    drop_view(self._connection, change.id)
                case AdoptedTable():
                    branch_rows.adopt_table(self._connection, change, self._now_ms)
                case EndedBranch():
                    branch_rows.end_branch(self._connection, change, self._now_ms)
                    changed.update(self._gone_tables())
                case _:
                    assert_never(change)
        return changed

    def _gone_tables(self) -> dict[str, _TableState]:
        """Return the batch's tables that have gone with a branch, as dropped ones."""
        is_live = tables.c.id.in_(self._tables) & tables.c.dropped_sequence.is_(None)
        live = set(self._connection.scalars(sa.select(tables.c.id).where(is_live)))
        gone = (item for item in self._tables.items() if item[0] not in live)
        return {table_id: replace(state, is_dropped=True) for table_id, state in gone}

    def _undrop_table(self, change: UndroppedTable, transaction_id: str) -> _TableState:
        """Undrop a table, with the head that its log has now if the change gives one; return its
        state. Raises as `drop_rows.undrop_table`.
        """
        drop_rows.undrop_table(
            self._connection,
            change.id,
            change.database,
            change.name,
            self._now_ms,
            change.branch,
        )
        table = replace(self._tables[change.id], is_dropped=False)
        if change.head is not None:
            names.set_head(self._connection, change.id, change.head)
            self._set_first_version(change.id, change.head, transaction_id)
            table.head = table.published = change.head
        return table

    def _add_table(self, change: NewTable, first: int | None, transaction_id: str) -> _TableState:
        """Insert a table, unless the catalog has its id, and attach it; return its state.

        `first`: the version of its first commit in the request; None without a commit. A table
        with neither a head nor a commit is only inserted. Raises InvalidRequest if `first` doesn't
        follow the head, if the name is taken or the database missing, or the place is in use.
        """
        head = -1 if change.head is None else change.head
        if first is not None and first != head + 1:
            raise InvalidRequest(
                f"table {change.database}.{change.name} comes with the head {head}: expected "
                f"version {head + 1} as its first commit, found {first}"
            )
        number = self._table_number(change)
        if change.head is None and first is None:
            return _TableState(number, None, -1)
        names.attach_table(self._connection, change.id, change.location, head, self._now_ms)
        self._set_first_version(change.id, head, transaction_id)
        return _TableState(number, head, head)

    def _table_number(self, change: NewTable) -> int:
        """Return the number of a table, which is inserted unless the catalog has its id.

        If the catalog has the id of a dropped table, that table's row is removed first.
        """
        table = self._tables.get(change.id)
        if table is not None and not table.is_dropped:
            return table.number
        if table is not None:
            drop_rows.forget_table(self._connection, change.id)
        return names.add_table(
            self._connection,
            change.id,
            change.database,
            change.name,
            change.location,
            self._now_ms,
            managed=change.managed,
            number=change.number,
            branch=change.branch,
        ).number

    def _set_first_version(self, table_id: str, head: int, transaction_id: str) -> None:
        """Record the version that a table has when it comes into the lake, at this instant."""
        # The table may have been in the lake before, with later versions that were lost since.
        stale = (commits.c.table_id == table_id) & (commits.c.version >= head)
        self._connection.execute(sa.delete(commits).where(stale))
        if head >= 0:
            self._connection.execute(
                sa.insert(commits).values(
                    table_id=table_id,
                    version=head,
                    sequence=self._sequence + 1,
                    transaction_id=transaction_id,
                    time_ms=self._now_ms,
                )
            )

    def _record(self, request: Ratification) -> None:
        """Keep the commits of a ratified request for `write`. For a request without commits, insert
        the row that shows its ratification.
        """
        self._ended.append(request.transaction_id)
        instant = {
            "sequence": self._sequence,
            "transaction_id": request.transaction_id,
            "time_ms": self._now_ms,
        }
        if not request.commits:
            self._connection.execute(sa.insert(bare).values(instant))
        if request.reads:
            branch_rows.record_reads(self._connection, request.reads, self._sequence)
        for commit in request.commits:
            self._tables[commit.table_id].head = commit.version
            self._commits.append(
                {
                    **instant,
                    "table_id": commit.table_id,
                    "version": commit.version,
                    "operation": commit.operation and commit.operation[:_OPERATION_LENGTH],
                    "content": commit.content,
                    "staged": commit.staged,
                }
            )
