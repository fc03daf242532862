"""SQLAlchemy engines for SQLite and PostgreSQL, with the drivers' settings.

A durable engine waits for the disk at each commit. Every SQLite connection has the functions
`txlake_now_ms` and `txlake_monotonic_ms`; PostgreSQL has the server's clock (`clock`,
`lease_clock`).
"""

from __future__ import annotations

import math
import select
import sqlite3
from functools import partial
from typing import Any, Protocol, cast

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import Connection
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection, StaticPool

from txlake.catalog.prepared import (
    Prepared,
    begin_nothing,
    begin_with,
    end_begun,
    send_begin,
)
from txlake.ports import System

READS = "txlake_reads"
READS_ONCE = "txlake_reads_once"
_BEGIN = Prepared(sa.text("BEGIN"))
_BEGIN_TO_WRITE = Prepared(sa.text("BEGIN IMMEDIATE"))
_BEGIN_IN_SERVER = "BEGIN ISOLATION LEVEL READ COMMITTED"
_BEGIN_TO_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ"
_NOW, _MONOTONIC = "txlake_now_ms", "txlake_monotonic_ms"
_WAL_ATTEMPTS = 100
# A process's threads ratify in groups: connections are few, as a server's many hosts share them.
_POOL_SIZE, _POOL_OVERFLOW = 4, 28
# A connection that was used within this time isn't pinged: a ping takes as long as a statement. A
# firewall on the way may drop one that is idle for longer, without a word to either end.
_SURE_MS = 60_000.0
_USED = "txlake_used_ms"
_IS_POOLED = "txlake_is_pooled"


def clock(*, is_sqlite: bool) -> sa.ColumnElement[int]:
    """Return the database's clock as an SQL expression, milliseconds since the epoch."""
    if is_sqlite:  # a file's hosts share a clock, as they share the machine
        return sa.Function(_NOW, type_=sa.BigInteger())
    return sa.literal_column(
        "(extract(epoch FROM clock_timestamp()) * 1000)::bigint", sa.BigInteger
    )


def lease_clock(*, is_sqlite: bool) -> sa.ColumnElement[int]:
    """Return the clock of leases as an SQL expression, milliseconds.

    For SQLite it is the machine's monotonic clock, shared by all of its processes: setting the time
    of day doesn't move it, it stops while the machine is suspended, and it restarts with the
    machine. A server has no such clock: its leases use its time of day.
    """
    if is_sqlite:
        return sa.Function(_MONOTONIC, type_=sa.BigInteger())
    return clock(is_sqlite=False)


def sqlite_engine(
    url: sa.URL, system: System, busy_timeout_s: float, *, is_durable: bool, is_in_memory: bool
) -> sa.Engine:
    """Return an engine for a SQLite file; for a database in memory, one with a single connection.

    A durable engine waits for the disk at each commit.
    """
    options: dict[str, Any] = {
        "connect_args": {"timeout": busy_timeout_s, "check_same_thread": False}
    }
    if is_in_memory:
        options["poolclass"] = StaticPool
    else:
        options |= _pool(busy_timeout_s)
    engine = sa.create_engine(url, **options)

    def prepare(connection: sqlite3.Connection, _record: object) -> None:
        # Transactions are ours to begin: the driver begins too late.
        connection.isolation_level = None
        connection.create_function(_NOW, 0, system.now_ms)
        connection.create_function(_MONOTONIC, 0, lambda: int(system.monotonic_ms()))
        cursor = connection.cursor()
        _log_ahead(cursor, system)
        # With the log ahead NORMAL leaves out only the wait for the disk at each commit.
        cursor.execute(f"PRAGMA synchronous={'FULL' if is_durable else 'NORMAL'}")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def postgresql_engine(
    url: sa.URL, liveness: Liveness, busy_timeout_s: float, *, is_durable: bool
) -> sa.Engine:
    """Return an engine for a PostgreSQL server, reached directly or through a pooler.

    A pooler such as pgbouncer in transaction mode gives each transaction another server connection:
    settings and prepared statements of one connection are missing on the next, and reach other
    clients. Through a pooler, settings are therefore made in each transaction, and nothing is
    prepared.

    The driver is in autocommit mode, so that what begins a transaction can be sent with its first
    statement (`prepared`).
    """
    engine = sa.create_engine(
        url,
        isolation_level="AUTOCOMMIT",
        use_native_hstore=False,  # no column has that type, and a connection would ask for it
        paramstyle="format",  # the driver finds the places of named ones at each execution
        **_pool(busy_timeout_s),
    )
    settings = [f"lock_timeout = {max(1, round(busy_timeout_s * 1000))}"]
    if not is_durable:
        settings.append("synchronous_commit = off")

    def prepare(connection: _Psycopg, record: ConnectionPoolEntry) -> None:
        record.info[_IS_POOLED] = is_pooled = _is_pooled(connection)
        if is_pooled:
            connection.prepare_threshold = None
        else:
            cursor = connection.cursor()
            cursor.execute("; ".join(f"SET {setting}" for setting in settings))
            cursor.close()

    def begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        if options.get(READS_ONCE, False):
            begin_nothing(connection)
            return
        reads = options.get(READS, False)
        texts = [_BEGIN_TO_READ if reads else _BEGIN_IN_SERVER]
        if connection.info.get(_IS_POOLED):
            texts += [f"SET LOCAL {setting}" for setting in settings]
        begin_with(connection, texts)

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", begin)
    event.listen(engine, "commit", end_begun)
    event.listen(engine, "rollback", end_begun)
    event.listen(engine, "before_cursor_execute", lambda connection, *_: send_begin(connection))
    liveness.watch(engine)
    return engine


class _Psycopg(DBAPIConnection, Protocol):
    """Attributes of psycopg's connections.

    Attributes:
        info: `backend_pid` is the server process that the connection was opened with.
        prepare_threshold: the number of executions before a statement is prepared; None: never.
    """

    info: Any
    prepare_threshold: int | None

    def fileno(self) -> int:
        """Return the socket."""
        ...


def _is_pooled(connection: _Psycopg) -> bool:
    """Return whether a pooler is between this process and the server.

    If so, another server process answers than the one that the connection was opened with.
    """
    cursor = connection.cursor()
    cursor.execute("SELECT pg_backend_pid()")
    answering = cursor.fetchone()
    cursor.close()
    return answering != (connection.info.backend_pid,)


class Liveness:
    """Pings the connections of a server's engines before use, if they may be lost.

    A connection that was used in the last minute isn't pinged, unless a connection was lost since,
    or there is something to be read from it: that it was closed.
    """

    def __init__(self, system: System) -> None:
        self._system = system
        self._lost_ms = -math.inf

    def watch(self, engine: sa.Engine) -> None:
        """Ping the engine's connections before use."""
        event.listen(engine, "connect", self._note_use)
        event.listen(engine, "checkin", self._note_use)
        event.listen(engine, "invalidate", self._note_loss)
        event.listen(engine, "checkout", partial(self._try_out, engine.dialect))

    def _note_use(self, _connection: DBAPIConnection | None, record: ConnectionPoolEntry) -> None:
        record.info[_USED] = self._system.monotonic_ms()

    def _note_loss(self, *_: object) -> None:
        self._lost_ms = self._system.monotonic_ms()

    def _try_out(
        self,
        dialect: sa.Dialect,
        connection: DBAPIConnection,
        record: ConnectionPoolEntry,
        _proxy: PoolProxiedConnection,
    ) -> None:
        """Ping a connection that may have been lost. Raises SQLAlchemy's InvalidatePoolError if it
        was: the pool then opens a new one.
        """
        used_ms = record.info.get(_USED, -math.inf)
        is_sure = used_ms > max(self._lost_ms, self._system.monotonic_ms() - _SURE_MS)
        try:
            if not is_sure or _has_input(cast(_Psycopg, connection)):
                dialect.do_ping(connection)
        except dialect.loaded_dbapi.Error as error:
            raise InvalidatePoolError from error  # the pool's other connections are lost as well


def _has_input(connection: _Psycopg) -> bool:
    """Return whether something can be read from an idle connection, such as its end. Raises the
    driver's error for one that was closed here.
    """
    waiting = select.poll()
    waiting.register(connection.fileno(), select.POLLIN)
    return bool(waiting.poll(0))


def _pool(busy_timeout_s: float) -> dict[str, Any]:
    """Return the options of an engine's pool, in which a thread waits up to `busy_timeout_s`."""
    return {
        "pool_size": _POOL_SIZE,
        "max_overflow": _POOL_OVERFLOW,
        "pool_timeout": busy_timeout_s,
    }


def _log_ahead(cursor: sqlite3.Cursor, system: System) -> None:
    """Turn SQLite's write-ahead log on; repeat that while the file is busy, up to 100 times.

    Raises sqlite3.OperationalError.
    """
    for attempt in range(1, _WAL_ATTEMPTS + 1):
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            # Turning it on doesn't wait for other processes that open the new file too.
            busy = (error.sqlite_errorname or "").startswith("SQLITE_BUSY")
            if not busy or attempt == _WAL_ATTEMPTS:
                raise
            system.wait_ms(attempt * 5 * (1 + system.random()))


def _begin_sqlite(connection: Connection) -> None:
    """Begin a transaction; one that writes takes the write lock at once, so that it can't fail
    later.
    """
    reads = connection.get_execution_options().get(READS, False)
    (_BEGIN if reads else _BEGIN_TO_WRITE).run(connection)
