"""The catalog's database in the simulated world: SQLite in memory, with replies that get lost.

Each process has a `SimulatedDatabase`, and all share one SQLite connection. A transaction is one
step: other tasks get turns before and after it, never within. A power loss takes the last
transactions that weren't durable.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import StaticPool

from tests.simulation.faults import FaultKind
from tests.simulation.threads import THREADS
from txlake.catalog.database import CommitUnsettled, Database
from txlake.catalog.database_errors import translate_error
from txlake.errors import TxlakeError, Unavailable

if TYPE_CHECKING:
    from tests.simulation.process import Process

Value = TypeVar("Value")
# Factors of the likelihood of a lost reply: it matters most for durable transactions.
_WEIGHTS = {"read": 0.3, "note": 1.0, "write": 8.0}
URL = "sqlite://simulated/"


class SharedDatabase:
    """The one database of a Python process, used by one run after the other.

    It is shared so that SQLAlchemy compiles its statements once.
    """

    def __init__(self) -> None:
        self.now_ms = 0
        self.monotonic_ms = 0
        self._durable = b""
        self._connection: sqlite3.Connection | None = None
        # No event listeners: they make SQLAlchemy much slower.
        self.engine = sa.create_engine(
            "sqlite://", poolclass=StaticPool, pool_reset_on_return=None, creator=self._connect
        )
        self.engine.dialect.do_begin = _begin  # type: ignore[method-assign,assignment]
        self._opened: Connection | None = None
        # The number of the file at the catalog's path, and the contents of earlier files.
        self.file = 0
        self._replaced_files: dict[int, bytes | Connection] = {}

    def load(self, content: bytes) -> None:
        """Begin again with the bytes of a database; empty bytes make a new one."""
        if self._opened is not None:
            self._opened.close()
        self.engine.dispose()
        connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        if content:
            connection.deserialize(content)
        connection.create_function("txlake_now_ms", 0, lambda: self.now_ms)
        connection.create_function("txlake_monotonic_ms", 0, lambda: self.monotonic_ms)
        connection.execute("PRAGMA foreign_keys=ON")
        self._connection = connection
        self._opened = self.engine.connect()
        self.make_durable()

    def replace_file(self, content: bytes) -> None:
        """Replace the file at the catalog's path; processes that have the old file open keep
        using it.
        """
        self._replaced_files[self.file] = self.content()
        self.file += 1
        self.load(content)

    def opened(self, file: int | None = None) -> Connection:
        """Return the connection, without an open transaction; `file` chooses a replaced file."""
        if file is not None and file in self._replaced_files:
            return self._replaced_connection(file)
        assert self._opened is not None
        return self._opened

    def _replaced_connection(self, file: int) -> Connection:
        found = self._replaced_files[file]
        if isinstance(found, bytes):
            connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
            connection.deserialize(found)
            connection.create_function("txlake_now_ms", 0, lambda: self.now_ms)
            engine = sa.create_engine(
                "sqlite://",
                poolclass=StaticPool,
                pool_reset_on_return=None,
                creator=lambda: connection,
            )
            engine.dialect.do_begin = _begin  # type: ignore[method-assign,assignment]
            found = self._replaced_files[file] = engine.connect()
        return found

    @property
    def raw(self) -> sqlite3.Connection:
        """The database itself, for reading between transactions."""
        assert self._connection is not None
        return self._connection

    def content(self) -> bytes:
        """Return the bytes of the database."""
        assert self._connection is not None
        return bytes(self._connection.serialize())

    def copy(self) -> sqlite3.Connection:
        """Return another database with the same content."""
        made = sqlite3.connect(":memory:")
        made.deserialize(self.content())
        return made

    def make_durable(self) -> None:
        """Make the present content durable."""
        self._durable = self.content()

    def lose_power(self) -> None:
        """Go back to the last durable content."""
        self.load(self._durable)

    def _connect(self) -> sqlite3.Connection:
        assert self._connection is not None
        return self._connection


@cache
def shared_database() -> SharedDatabase:
    """Return the database of this Python process."""
    return SharedDatabase()


def _begin(connection: Any) -> None:
    connection.execute("BEGIN")


class SimulatedDatabase(Database):
    """`Database` of one simulated process."""

    def __init__(self, process: Process, **given: Any) -> None:
        self._process = process
        self._opened_file: int | None = None
        self._writes = 0
        super().__init__("sqlite://", process.system, **given)

    @property
    def is_in_memory(self) -> bool:
        return False  # it outlives the process

    @property
    def display_url(self) -> str:
        return URL

    def run_shielded(self, work: Callable[[], Value], *, waits: bool = False) -> Value:
        return self._process.run_shielded(work)

    def is_interrupted(self) -> bool:
        return self._process.is_interrupted

    def caller(self) -> Any:
        return THREADS.current_thread()

    def reading(self) -> AbstractContextManager[Connection]:
        return self._simulated_transaction("read", is_durable=False)

    def write(self, work: Callable[[Connection], Value]) -> Value:
        return self._write(work, "write", is_durable=True)

    def write_relaxed(self, work: Callable[[Connection], Value]) -> Value:
        return self._write(work, "note", is_durable=False)

    def _write(self, work: Callable[[Connection], Value], kind: str, *, is_durable: bool) -> Value:
        """Run the work, every third time after an attempt that is rolled back.

        So does a catalog in a store when another process has written first.
        """
        with self._simulated_transaction(kind, is_durable=is_durable) as connection:
            self._writes += 1
            if self._writes % 3 == 0:
                attempt = connection.begin_nested()
                with suppress(TxlakeError, SQLAlchemyError):
                    work(connection)
                attempt.rollback()
            return work(connection)

    def lease_now(self) -> sa.ColumnElement[int]:
        return self.now() if self.leases_may_step else super().lease_now()

    @property
    def leases_may_step(self) -> bool:
        return self._process.world.config.is_server

    def close(self) -> None:
        pass

    def _warn_of_network(self) -> None:
        pass

    def _require_same_file(self) -> None:
        if self._opened_file != shared_database().file:
            raise self._exchanged("exchanged for another")

    def _engine(self, *, is_durable: bool) -> sa.Engine:
        return shared_database().engine

    @contextmanager
    def _simulated_transaction(self, kind: str, *, is_durable: bool) -> Iterator[Connection]:
        process, world = self._process, self._process.world
        weight = _WEIGHTS[kind]
        process.step(kind, "database")
        if process.fault_occurs(FaultKind.DATABASE_AWAY, kind):
            process.sleep(world.injector.random() * 200)
            raise Unavailable(f"catalog {URL}: it can't be reached; try again")
        shared_database().now_ms = world.time_of_day_ms
        shared_database().monotonic_ms = int(world.scheduler.now_ms)
        process.is_in_database = True
        try:
            if self._opened_file is None:
                self._opened_file = shared_database().file
            connection = shared_database().opened(self._opened_file)
            with connection.begin():
                self._require_same_file()
                yield connection
                if process.fault_occurs(FaultKind.REPLY_LOST, kind, weight):
                    raise _ReplyLost
        except _ReplyLost:
            raise self._lost_reply(kind) from None
        except SQLAlchemyError as error:
            raise translate_error(error, self.url) from error
        finally:
            process.is_in_database = False
        if kind == "write" and world.journal is not None:
            world.journal.record(shared_database().raw)
        if (
            kind == "write"
            and world.lake_faults is not None
            and self._opened_file == shared_database().file
        ):
            world.lake_faults.on_catalog_write()
        if is_durable and FaultKind.POWER_LOSS in world.injector.kinds:
            shared_database().make_durable()
        if process.fault_occurs(FaultKind.REPLY_UNANSWERED, kind, weight):
            raise self._lost_reply(kind)
        process.step(f"{kind} done", "database")

    def _lost_reply(self, kind: str) -> Unavailable:
        what = f"catalog {URL}: the connection was lost"
        return Unavailable(what) if kind == "read" else CommitUnsettled(what)


class _ReplyLost(Exception):
    """Rolls back a transaction whose caller gets no reply."""
