"""The database of a catalog in a store: a replica in a SQLite file, kept current by a log.

A transaction that writes runs on the replica, and the rows that it changed become the log's next
entry: that put is its commit. If another process has written first, the other's entry is applied
and the work runs again. A transaction that only reads sees all that was committed before it began.

Threads that write while an entry is under way share the next one: one thread runs the work of all.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import tempfile
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from math import ceil
from typing import Any, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from txlake.catalog import shielding
from txlake.catalog.database import CommitUnsettled, Database, sqlite_url
from txlake.catalog.database_errors import translate_error
from txlake.catalog.engines import sqlite_engine
from txlake.catalog.group_commit import GroupCommit, Interrupted
from txlake.catalog.replicated.entries import LogEntry
from txlake.catalog.replicated.leases import Leases
from txlake.catalog.replicated.log import CatalogLog, Superseded, new_entry_id
from txlake.catalog.replicated.replica import (
    ChangeRecorder,
    database_bytes,
    write_position,
)
from txlake.catalog.replicated.turns import WriterTurns
from txlake.errors import InvalidRequest, TxlakeError, Unavailable
from txlake.ports import Store, System

_log = logging.getLogger(__name__)

Value = TypeVar("Value")
_Work = Callable[[Connection], object]
_RECORDER = "txlake_recorder"
_LEASE_END = "txlake_lease_end_ms"
_SESSIONS = "txlake_sessions"
_FILE = "replica.db"


_looking_since_ms: ContextVar[float | None] = ContextVar("looking_since_ms", default=None)


@contextmanager
def looking_once(since_ms: float) -> Iterator[None]:
    """Let all reads of the block see at least what was committed before `since_ms` (monotonic).

    Each read of a catalog in a store otherwise looks for newer entries of its own, which costs a
    request. What the process knows of later entries is seen too.
    """
    token = _looking_since_ms.set(since_ms)
    try:
        yield
    finally:
        _looking_since_ms.reset(token)


class ReplicatedDatabase(Database):
    """The database of the catalog whose log is in `store`, shared by any number of hosts.

    `lease_ms`: how long a process counts as alive after a heartbeat. `retention_ms`: how long the
    log's entries are kept, None for good. Raises as `Database`, `CatalogLog`, and as the store.
    """

    def __init__(
        self,
        store: Store,
        system: System,
        *,
        lease_ms: float = 90_000.0,
        retention_ms: int | None = None,
        busy_timeout_s: float = 30.0,
    ) -> None:
        self._store = store
        self._folder = tempfile.mkdtemp(prefix="txlake-catalog-")
        weakref.finalize(self, _remove, self._folder, os.getpid())
        self._path = os.path.join(self._folder, _FILE)
        self.leases = Leases(store, system, lease_ms)
        self.log = CatalogLog(store, system, self._path, self.leases.holder, retention_ms)
        self._may_delete = True
        self._turns = WriterTurns(self.log, system)
        self._group: GroupCommit[_Work, _Outcome] = GroupCommit(self._write_batch, turn=self.turn)
        super().__init__(
            sqlite_url(self._path), _LogClock(system, self.log), busy_timeout_s=busy_timeout_s
        )
        self.log.load()

    @property
    def display_url(self) -> str:
        return self._store.url

    @property
    def is_replicated(self) -> bool:
        return True

    @property
    def poll_pause_ms(self) -> float:
        return max(20.0, 2 * self.log.latency_ms)

    @property
    def holder(self) -> str | None:
        return self.leases.holder

    def lease_end(
        self,
        lease_ms: sa.Column[int],
        length_ms: sa.Column[int],
        holder: sa.Column[str],
    ) -> sa.ColumnElement[int]:
        return sa.Function(_LEASE_END, holder, length_ms, type_=sa.BigInteger())

    def reading(self) -> AbstractContextManager[Connection]:
        self._origin.require()
        self._catch_up(_looking_since_ms.get())
        return super().reading()

    def reading_known(self) -> AbstractContextManager[Connection]:
        self._origin.require()
        with self._replica_errors():
            self._ensure_replica()
        return super().reading()

    @property
    def known_state(self) -> Hashable:
        return self.log.position

    def write(self, work: Callable[[Connection], Value]) -> Value:
        self._origin.require()
        assert not shielding.is_interruptible(), "an interrupt would leave the transaction open"
        try:
            return cast(Value, self._result(self._group.submit(work)))
        except Interrupted:
            raise CommitUnsettled(
                f"catalog {self.display_url}: the thread that wrote the work of several was stopped"
            ) from None

    def write_relaxed(self, work: Callable[[Connection], Value]) -> Value:
        return self.write(work)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for this process's turn to write, which several of its threads have at a time: what
        they write in the block shares an entry.
        """
        with self._writing_turn, self._replica_errors():
            self._ensure_replica()
            self._turns.wait()
        yield

    def observe_leases(self, *, is_urgent: bool = False) -> bool:
        with self.reading() if is_urgent else super().reading() as connection:
            holders = _holders(connection) - {self.leases.holder}
        return bool(holders) and self.leases.observe(holders, is_urgent=is_urgent)

    def keep_alive(self) -> frozenset[int]:
        with super().reading() as connection:
            query = sa.text(
                f"SELECT id, EXISTS (SELECT 1 FROM txlake_transactions t WHERE t.session_id = s.id)"
                " OR EXISTS (SELECT 1 FROM txlake_locks l WHERE l.session_id = s.id) "
                f"FROM {_SESSIONS} s WHERE holder = :holder"
            )
            rows = connection.execute(query, {"holder": self.leases.holder}).all()
        if any(is_holding for _, is_holding in rows):
            self.leases.beat()
        return frozenset(session_id for session_id, _ in rows)

    def delete_strays(self) -> None:
        self._catch_up()
        self.log.delete_strays()

    def close(self) -> None:
        super().close()
        self.log.close()
        _remove(self._folder, os.getpid())
        try:
            self.leases.remove()
        except TxlakeError as error:  # its sessions have ended, or end with their leases
            _log.warning("a heartbeat of catalog %s stays: %s", self.display_url, error)

    def _write_batch(self, works: Sequence[_Work]) -> Sequence[_Outcome]:
        """Run works in one transaction, again until no other process has written first; return
        their outcomes in order. Raises as `write`.
        """
        begun_ms, losses = self.system.monotonic_ms(), 0
        with self._writing_turn, self._replica_errors():
            while True:
                self._ensure_replica()
                self._turns.wait()
                base = self.log.position
                try:
                    outcomes, is_settled = self._attempt(works)
                    # What wrote nothing, or was refused, is checked against the newest state.
                    if not is_settled:
                        self._catch_up()
                    if is_settled or self.log.position == base:
                        return outcomes
                except Superseded as superseded:
                    self.log.apply_taken(superseded)
                if self.system.monotonic_ms() - begun_ms > 1000 * self._busy_timeout_s:
                    raise Unavailable(
                        f"catalog {self.display_url}: other processes have written first for "
                        f"{self._busy_timeout_s:g} s; try again"
                    )
                losses += 1
                self._turns.note_loss(losses)

    def _result(self, outcome: _Outcome) -> object:
        """Return what the work returned, or raise what it raised."""
        if isinstance(outcome.error, SQLAlchemyError):
            raise translate_error(outcome.error, self.url) from outcome.error
        if isinstance(outcome.error, sqlite3.Error):
            raise Unavailable(f"catalog {self.display_url}: {outcome.error}") from outcome.error
        if outcome.error is not None:
            raise outcome.error
        return outcome.value

    def _warn_of_network(self) -> None:
        """Warn of nothing: no other process uses the replica."""

    def _require_same_file(self) -> None:
        """Require nothing: `_catch_up` has checked the file."""

    def _engine(self, *, is_durable: bool) -> sa.Engine:
        engine = sqlite_engine(
            self.url, self.system, self._busy_timeout_s, is_durable=False, is_in_memory=False
        )

        def prepare(connection: sqlite3.Connection, _record: object) -> None:
            connection.create_function(_LEASE_END, 2, self.leases.end_ms)
            connection.execute("PRAGMA recursive_triggers=ON")  # rows that REPLACE removes

        event.listen(engine, "connect", prepare)
        return engine

    def _catch_up(self, since_ms: float | None = None) -> None:
        """Make the replica current: as of now, or at least as of `since_ms` (monotonic)."""
        with self._replica_errors():
            self._ensure_replica()
            self.log.catch_up(since_ms)

    def _ensure_replica(self) -> None:
        """Make the replica anew if its file was removed."""
        if not os.path.exists(self._path):
            with self.log.lock:
                super().close()
                os.makedirs(self._folder, exist_ok=True)
                self.log.reopen()

    @contextmanager
    def _replica_errors(self) -> Iterator[None]:
        """Raise Unavailable for errors of SQLite."""
        try:
            yield
        except (sqlite3.Error, SQLAlchemyError) as error:
            cause = getattr(error, "orig", None) or error
            raise Unavailable(
                f"catalog {self.display_url}: its replica in {self._folder}: {cause}; try again"
            ) from error

    def _attempt(self, works: Sequence[_Work]) -> tuple[Sequence[_Outcome], bool]:
        """Run the works in a transaction, and append what they changed.

        Returns the outcomes, and whether the log has their changes; if not, none changed anything.
        Raises Superseded if another process has written since the replica was current,
        CommitUnsettled if the store doesn't say.
        """
        is_settled = False
        outcomes: Sequence[_Outcome] = ()
        with self.log.lock, self._connected(self._durable) as connection:
            raw: Any = connection.connection.driver_connection
            recorder = connection.info.setdefault(_RECORDER, ChangeRecorder(raw))
            recorder.prepare()
            transaction = connection.begin()
            try:
                outcomes = [_run(work, connection, raw) for work in works]
                entry = self._entry(raw, recorder)
                if entry is None:
                    return outcomes, False
                if any(change.relation == _SESSIONS and change.rows for change in entry.changes):
                    self.leases.ensure()
                self._store.ensure_safe()
                position = self.log.append(entry)
                is_settled = True
                write_position(raw, position)
                transaction.commit()
                self.log.note_written(position)
            except CommitUnsettled:
                raise
            except (TxlakeError, SQLAlchemyError, sqlite3.Error) as error:
                if is_settled:  # the log has it, and the replica gets it from there
                    _log.debug("the replica of %s didn't take an entry: %s", self.url, error)
                    return outcomes, True
                return [_Outcome(error=error)] * len(works), False
            finally:
                if transaction.is_active:
                    transaction.rollback()
        if self.log.is_snapshot_due(position):
            self._write_snapshot_beside()
        return outcomes, True

    def _entry(self, raw: sqlite3.Connection, recorder: ChangeRecorder) -> LogEntry | None:
        """Return the entry for the open transaction; None if there is nothing to write."""
        is_new_schema = recorder.has_new_schema()
        changes = [] if is_new_schema else recorder.changes()
        # After a put that may still arrive the number is taken even by an entry without changes.
        if not is_new_schema and not changes and not self.log.is_undecided:
            return None
        base = self.log.position
        return LogEntry(
            id=new_entry_id(self.system),
            previous=base.entry_id,
            writer=self.log.writer,
            time_ms=self.system.now_ms(),
            changes=changes,
            database=database_bytes(raw) if is_new_schema else b"",
            latency_ms=ceil(self.log.latency_ms),
        )

    def _write_snapshot_beside(self) -> None:
        """Write a snapshot in a thread of its own, and delete what it replaces; log failures."""

        def write() -> None:
            try:
                self.log.write_snapshot()
            except (TxlakeError, sqlite3.Error) as error:
                _log.info("no snapshot of catalog %s was written: %s", self.display_url, error)
            else:
                self._delete_surplus()

        threading.Thread(target=write, name="txlake-snapshot", daemon=True).start()

    def _delete_surplus(self) -> None:
        """Delete old objects of the catalog, unless the store has refused that; log failures."""
        if not self._may_delete:
            return
        try:
            self.log.delete_surplus()
            with super().reading() as connection:
                holders = _holders(connection)
            self.leases.remove_abandoned(holders)
        except InvalidRequest as error:
            self._may_delete = False
            _log.warning(
                "old objects of catalog %s aren't deleted by this process: %s",
                self.display_url,
                error,
            )
        except (TxlakeError, SQLAlchemyError, sqlite3.Error) as error:
            _log.info("old objects of catalog %s stay for now: %s", self.display_url, error)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a work returned, or raised."""

    value: object = None
    error: Exception | None = None


def _run(work: _Work, connection: Connection, raw: sqlite3.Connection) -> _Outcome:
    """Run one of a transaction's works and return its outcome. If it raises, what it changed is
    rolled back, and nothing else; raises its error if SQLite has rolled back the transaction.
    """
    raw.execute("SAVEPOINT txlake_work")
    try:
        outcome = _Outcome(work(connection))
    except Exception as error:
        if not raw.in_transaction:
            raise
        raw.execute("ROLLBACK TO txlake_work")
        outcome = _Outcome(error=error)
    raw.execute("RELEASE txlake_work")
    return outcome


class _LogClock:
    """A system whose time of day is never earlier than that of the log's newest entry."""

    def __init__(self, system: System, log: CatalogLog) -> None:
        self._system = system
        self._log = log

    def now_ms(self) -> int:
        return max(self._system.now_ms(), self._log.position.time_ms)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the system's other methods
        return getattr(self._system, name)


def _holders(connection: Connection) -> set[str]:
    """Return the heartbeat objects of the processes that have sessions in the catalog."""
    query = sa.text(f"SELECT DISTINCT holder FROM {_SESSIONS} WHERE holder IS NOT NULL")
    return {str(holder) for holder in connection.scalars(query)}


def _remove(folder: str, process: int) -> None:
    """Remove a replica's folder, unless this process is a fork of the one that made it."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
