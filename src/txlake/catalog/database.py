"""The connection to the catalog's database: SQLite or PostgreSQL, and what its transactions are.

Owns the driver's settings and the translation of its errors; knows no relation.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import Connection, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from txlake.catalog.translation import shown, translated
from txlake.errors import InvalidRequest, Unavailable
from txlake.ports import System

_SERVERS_CLOCK: sa.ColumnElement[int] = sa.literal_column(
    "(extract(epoch FROM clock_timestamp()) * 1000)::bigint", sa.BigInteger
)
_READS = "txlake_reads"
_WAL_ATTEMPTS = 100
# A process's threads ratify in groups: connections are few, and the servers' many hosts share them.
_POOL = {"pool_size": 4, "max_overflow": 12}


def sqlite_url(path: str) -> sa.URL:
    """The URL of a SQLite file, whatever signs its path has."""
    return sa.URL.create("sqlite", database=path)


class Database:
    """One database, shared by threads and processes. `url` is SQLAlchemy's.

    Transactions are of three kinds. `reading` doesn't wait for those who write, nor they for it.
    `writing` is durable when it returns: what was ratified outlives a power failure. `noting` is
    atomic too, but a power failure may take the last ones back: locks and leases, which end with
    their owners anyway.

    Raises InvalidRequest for a URL that isn't one or a database that can't be used, Unavailable
    when it can't be reached or is busy for too long.
    """

    def __init__(self, url: str | sa.URL, system: System, *, busy_timeout_s: float = 30.0) -> None:
        self.system = system
        self._turn: AbstractContextManager[object] = nullcontext()
        try:
            self.url = make_url(url)
            self.is_sqlite = self.url.get_backend_name() == "sqlite"
            self._durable = self._made_engine(busy_timeout_s, durable=True)
            self._light = (
                self._made_engine(busy_timeout_s, durable=False)
                if self.is_sqlite and not self.is_in_memory
                else self._durable
            )
        except (ArgumentError, NoSuchModuleError, ImportError) as error:
            raise InvalidRequest(
                "catalog: expected a URL like sqlite:///path or postgresql+psycopg://host/db: "
                f"{error}"
            ) from error
        self._reads = self._light.execution_options(**{_READS: True})
        if not self.is_sqlite:
            self._reads = self._light.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )

    @property
    def is_in_memory(self) -> bool:
        """Whether it lives only as long as this object."""
        return self.is_sqlite and self.url.database in (None, "", ":memory:")

    @property
    def shown(self) -> str:
        """The URL without its password."""
        return shown(self.url)

    def reading(self) -> AbstractContextManager[Connection]:
        """A transaction that only reads: one state of the database."""
        return self._transaction(self._reads)

    def writing(self) -> AbstractContextManager[Connection]:
        """A transaction that is durable once it ended."""
        return self._transaction(self._durable)

    @contextmanager
    def noting(self) -> Iterator[Connection]:
        """A transaction that others see once it ended, and that a power failure may undo."""
        with self._transaction(self._light) as connection:
            if not self.is_sqlite:
                connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
            yield connection

    def now(self) -> sa.ColumnElement[int]:
        """The database's own clock in a statement, milliseconds since the epoch."""
        if self.is_sqlite:  # a file's hosts share a clock, as they share the machine
            return sa.literal(self.system.now_ms(), sa.BigInteger)
        return _SERVERS_CLOCK

    def now_ms(self, connection: Connection) -> int:
        """What the database's own clock says now: one for all hosts."""
        return int(connection.execute(sa.select(self.now())).scalar_one())

    def close(self) -> None:
        """Closes the connections; a database in memory keeps its one."""
        if not self.is_in_memory:
            self._durable.dispose()
            self._light.dispose()

    def _made_engine(self, busy_timeout_s: float, *, durable: bool) -> sa.Engine:
        if not self.is_sqlite:
            return self._made_server_engine(busy_timeout_s)
        options: dict[str, Any] = {
            "connect_args": {"timeout": busy_timeout_s, "check_same_thread": False}
        }
        if self.is_in_memory:
            # One connection for all threads, each in its turn: another would see another database.
            self._turn = threading.RLock()
            options["poolclass"] = StaticPool
        engine = sa.create_engine(self.url, **options)
        level = "FULL" if durable else "NORMAL"

        def prepare(connection: sqlite3.Connection, _record: object) -> None:
            self._prepare_sqlite(connection, level)

        event.listen(engine, "connect", prepare)
        event.listen(engine, "begin", _begin_sqlite)
        return engine

    def _made_server_engine(self, busy_timeout_s: float) -> sa.Engine:
        engine = sa.create_engine(
            self.url,
            isolation_level="READ COMMITTED",
            pool_pre_ping=True,
            pool_timeout=busy_timeout_s,
            **_POOL,
        )
        busy_timeout_ms = max(1, round(busy_timeout_s * 1000))

        def prepare(connection: DBAPIConnection, _record: object) -> None:
            cursor = connection.cursor()
            cursor.execute(f"SET lock_timeout = {busy_timeout_ms}")
            cursor.close()
            connection.commit()

        event.listen(engine, "connect", prepare)
        return engine

    def _prepare_sqlite(self, connection: sqlite3.Connection, level: str) -> None:
        """Transactions are ours to begin: the driver begins too late."""
        connection.isolation_level = None
        cursor = connection.cursor()
        for attempt in range(1, _WAL_ATTEMPTS + 1):
            try:
                cursor.execute("PRAGMA journal_mode=WAL")
                break
            except sqlite3.OperationalError as error:
                # Turning it on doesn't wait for other processes that open the new file too.
                busy = (error.sqlite_errorname or "").startswith("SQLITE_BUSY")
                if not busy or attempt == _WAL_ATTEMPTS:
                    raise
                self.system.wait_ms(attempt * 5 * (1 + self.system.random()))
        # In WAL mode NORMAL leaves out only the wait for the disk at each commit.
        cursor.execute(f"PRAGMA synchronous={level}")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    @contextmanager
    def _transaction(self, engine: sa.Engine) -> Iterator[Connection]:
        ending = False
        try:
            with self._turn, engine.begin() as connection:
                yield connection
                ending = True
        except SQLAlchemyError as error:
            made = translated(error, self.url)
            raise (CommitUnsettled(str(made)) if ending else made) from error


class CommitUnsettled(Unavailable):
    """The database failed at COMMIT: what the transaction did may be there, or may not."""


def _begin_sqlite(connection: Connection) -> None:
    """A transaction that writes takes its turn at once, so that it can't find out too late."""
    reads = connection.get_execution_options().get(_READS, False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
