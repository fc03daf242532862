"""The connection to the catalog's database, SQLite or PostgreSQL, and its kinds of transactions.

Owns the kinds of transactions and the translation of errors; knows no relation.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from txlake.catalog import shielding
from txlake.catalog.database_errors import display_url, translate_error
from txlake.catalog.engines import (
    READS,
    READS_ONCE,
    Liveness,
    clock,
    lease_clock,
    postgresql_engine,
    sqlite_engine,
)
from txlake.catalog.forks import Origin
from txlake.catalog.mounts import network_file_system
from txlake.catalog.prepared import CommitUnanswered
from txlake.errors import InvalidRequest, OutcomeUnknown, Unavailable
from txlake.ports import System

Value = TypeVar("Value")

_POSTGRESQL = "postgresql+psycopg"
_DRIVERS = ("sqlite", "sqlite+pysqlite", _POSTGRESQL)


class CommitUnsettled(Unavailable):
    """The database failed at COMMIT: the transaction's changes may be there, or may not."""


def sqlite_url(path: str) -> sa.URL:
    """Return the URL of a SQLite file, whatever characters its path has."""
    return sa.URL.create("sqlite", database=path)


class Database:
    """A database, shared by threads and processes. `url` is SQLAlchemy's.

    Transactions are of three kinds. `reading` waits for no writer, and no writer waits for it.
    `write` is durable when it returns: a ratification survives a power failure. `write_relaxed`
    is atomic too, but a power failure may undo the most recent ones: it is for locks and leases,
    which end with their owners anyway. Transactions are not nested, and run only in `shielded`
    work, where no signal handler runs.

    A SQLite file that was removed or replaced while it was open is not used any more: writes to an
    unlinked file are lost. A fork of the process that opened the database is refused.

    Raises InvalidRequest for a malformed URL or an unusable database, Unavailable when the database
    can't be reached, is busy for too long or is another file than the one that was opened,
    CommitUnsettled when it failed at COMMIT.
    """

    def __init__(self, url: str | sa.URL, system: System, *, busy_timeout_s: float = 30.0) -> None:
        self.system = system
        self._busy_timeout_s = busy_timeout_s
        self._liveness = Liveness(system)
        try:
            self.url = _parse_url(url)
            self.is_sqlite = self.url.get_backend_name() == "sqlite"
            self._durable = self._engine(is_durable=True)
            self._light = self._durable if self.is_in_memory else self._engine(is_durable=False)
        except ImportError as error:
            raise InvalidRequest(
                f"catalog {self.display_url}: {error}; install the driver, for PostgreSQL with "
                "pip install 'txlake[postgresql]'"
            ) from error
        except ArgumentError as error:
            raise InvalidRequest(
                "catalog: expected 'warehouse', or a URL like sqlite:///path, "
                f"postgresql+psycopg://host/db or s3://bucket/folder: "
                f"{error}"
            ) from error
        self._reads = self._light.execution_options(**{READS: True})
        self._reads_once = self._light.execution_options(**{READS: True, READS_ONCE: True})
        self._clock = clock(is_sqlite=self.is_sqlite)
        self._lease_clock = lease_clock(is_sqlite=self.is_sqlite)
        self._file: tuple[int, int] | None = None  # device and inode of the file that was opened
        # The threads share the only connection of a database in memory, one at a time. A SQLite
        # file's writers wait for a turn here, which wakes them at once; SQLite itself polls.
        self._writing_turn: AbstractContextManager[object] = nullcontext()
        self._reading_turn: AbstractContextManager[object] = nullcontext()
        if self.is_in_memory:
            self._reading_turn = self._writing_turn = threading.RLock()
        elif self.is_sqlite:
            self._warn_of_network()
            self._writing_turn = _Turn(f"catalog {self.display_url}", busy_timeout_s)
        engines = () if self.is_in_memory else (self._durable, self._light)
        self._origin = Origin(
            engines, self.display_url, self.url.database if self.is_sqlite and engines else None
        )

    @property
    def is_in_memory(self) -> bool:
        """Whether the database lives only as long as this object."""
        return self.is_sqlite and self.url.database in (None, "", ":memory:")

    @property
    def has_single_writer(self) -> bool:
        """Whether no other transaction writes while the work of `write` or `write_relaxed` runs."""
        return self.is_sqlite

    @property
    def display_url(self) -> str:
        """The URL without its password."""
        return display_url(self.url)

    def run_shielded(self, work: Callable[[], Value], *, waits: bool = False) -> Value:
        """Run work that no signal interrupts, and return its value; `waits`: it may wait for other
        threads for long, and polls `is_interrupted`.
        """
        return shielding.run_shielded(work, waits=waits)

    def is_interrupted(self) -> bool:
        """Return whether the caller of the work that this thread runs was interrupted."""
        return shielding.is_interrupted()

    def caller(self) -> threading.Thread:
        """Return the thread that requested the work that this thread runs."""
        return shielding.caller()

    def reading(self) -> AbstractContextManager[Connection]:
        """Return a read-only transaction, which sees one state of the database."""
        return self._transaction(self._reads, self._reading_turn)

    def reading_once(self, *, known: bool = False) -> AbstractContextManager[Connection]:
        """Return a connection for one query, which sees one state of the database by itself.

        A server is waited for once, where a transaction needs BEGIN and COMMIT besides. `known`: as
        `reading_known`.
        """
        if self.is_sqlite:
            return self.reading_known() if known else self.reading()
        return self._transaction(self._reads_once, self._reading_turn)

    def reading_known(self) -> AbstractContextManager[Connection]:
        """Return a read-only transaction, which sees at least what this process has seen before."""
        return self.reading()

    def write(self, work: Callable[[Connection], Value]) -> Value:
        """Run work in a transaction that is durable when this returns, and return its result.

        The work changes nothing outside of the transaction: a catalog may run it again, if another
        process wrote first.
        """
        with self._transaction(self._durable, self._writing_turn) as connection:
            return work(connection)

    def change(self, work: Callable[[Connection], Value]) -> Value:
        """Run work that a user's statement consists of, as `write` does.

        Raises OutcomeUnknown instead of CommitUnsettled.
        """
        try:
            return self.write(work)
        except CommitUnsettled as error:
            raise OutcomeUnknown(
                f"whether the catalog was changed is unknown: {error}; look whether it was before "
                "running the statement again"
            ) from error

    def write_relaxed(self, work: Callable[[Connection], Value]) -> Value:
        """Run work as `write` does, in a transaction that a power failure may undo."""
        with self._transaction(self._light, self._writing_turn) as connection:
            return work(connection)

    def turn(self) -> AbstractContextManager[object]:
        """Return the context of this process's turn to write, which `write` and `write_relaxed`
        enter too. Entering it raises Unavailable if another thread writes for too long.

        Take the turn before any lock that is held during such a transaction.
        """
        return self._writing_turn

    def now(self) -> sa.ColumnElement[int]:
        """Return the database's clock as an SQL expression, milliseconds since the epoch."""
        return self._clock

    def now_ms(self, connection: Connection) -> int:
        """Return the time of the database's clock, the same for all hosts."""
        return int(connection.execute(sa.select(self._clock)).scalar_one())

    def lease_now(self) -> sa.ColumnElement[int]:
        """Return the clock of leases as an SQL expression, the same for all hosts; milliseconds."""
        return self._lease_clock

    def lease_end(
        self,
        lease_ms: sa.Column[int],
        length_ms: sa.Column[int],
        holder: sa.Column[str],
    ) -> sa.ColumnElement[int]:
        """Return when a session's lease ends as an SQL expression, by the clock of leases.

        The parameters are columns of the session's row.
        """
        return lease_ms

    @property
    def is_replicated(self) -> bool:
        """Whether this is a replica, in which each change costs a request to a store.

        Sessions then have no row before they need one, and their leases are outside of the
        database.
        """
        return False

    @property
    def known_state(self) -> Hashable:
        """The state that `reading_known` reads, to be compared; None if it is always the newest."""
        return None

    @property
    def holder(self) -> str | None:
        """The name of this process's lease outside of the database; None if there is none."""
        return None

    @property
    def poll_pause_ms(self) -> float:
        """How long a waiting thread pauses at least before it looks again."""
        return 0.0

    def observe_leases(self, *, is_urgent: bool = False) -> bool:
        """Look at the leases that are outside of the database.

        Returns False if there are none, or they were looked at recently and it isn't urgent.
        """
        return False

    def keep_alive(self) -> frozenset[int]:
        """Renew this process's lease outside of the database, if it holds something; return the
        numbers of its sessions that have rows.
        """
        return frozenset()

    def delete_strays(self) -> None:
        """Delete what processes wrote that didn't know yet that an older catalog was put in place,
        if that can be beside the catalog.
        """

    @property
    def leases_may_step(self) -> bool:
        """Whether the clock of leases can be set: a lease that seems expired may not be."""
        return not self.is_sqlite

    def close(self) -> None:
        """Close the connections; a database in memory keeps its only one."""
        if not self.is_in_memory:
            self._durable.dispose()
            self._light.dispose()

    def _require_same_file(self) -> None:
        """Raise Unavailable if the file at the path isn't the one that was opened first.

        Call it in a transaction, which keeps the file open.
        """
        if not self.is_sqlite or self.is_in_memory:
            return
        try:
            status = os.stat(self.url.database or "")
        except OSError as error:
            if self._file is None:
                return  # a URL of SQLite's own, which names no path
            raise self._exchanged("removed") from error
        present = (status.st_dev, status.st_ino)
        if self._file is None:
            self._file = present
        if self._file != present:
            raise self._exchanged("exchanged for another")

    def _exchanged(self, how: str) -> Unavailable:
        """Return the error for a file that was removed or replaced, as `how` says."""
        return Unavailable(
            f"catalog {self.display_url}: the file was {how} while this process had it open. "
            "Nothing was committed; connect again (txlake.connect). If the catalog was lost, or "
            "comes from a backup, lake.recover() brings it up to the tables' logs"
        )

    def _warn_of_network(self) -> None:
        """Warn if the SQLite file is on a network file system."""
        kind = network_file_system(self.url.database or "")
        if kind is not None:
            warnings.warn(
                f"catalog {self.display_url} is on a network file system ({kind}), where "
                "SQLite loses "
                "commits when several hosts write; put it on a local disk, or use PostgreSQL",
                stacklevel=2,
            )

    def _engine(self, *, is_durable: bool) -> sa.Engine:
        """Return a new engine for the database; a durable one waits for the disk at COMMIT."""
        if not self.is_sqlite:
            return postgresql_engine(
                self.url, self._liveness, self._busy_timeout_s, is_durable=is_durable
            )
        return sqlite_engine(
            self.url,
            self.system,
            self._busy_timeout_s,
            is_durable=is_durable,
            is_in_memory=self.is_in_memory,
        )

    @contextmanager
    def _transaction(
        self, engine: sa.Engine, turn: AbstractContextManager[object]
    ) -> Iterator[Connection]:
        """Yield a connection in a transaction, which is committed at the block's end and rolled
        back if the block raises. Raises as the class says.
        """
        self._origin.require()
        assert not shielding.is_interruptible(), "an interrupt would leave the transaction open"
        is_ending = False
        try:
            with turn, self._connected(engine) as connection, connection.begin():
                self._require_same_file()
                yield connection
                is_ending = True
        except CommitUnanswered as lost:
            raise CommitUnsettled(str(translate_error(lost.error, self.url))) from lost
        except SQLAlchemyError as error:
            txlake_error = translate_error(error, self.url)
            raise (CommitUnsettled(str(txlake_error)) if is_ending else txlake_error) from error

    @contextmanager
    def _connected(self, engine: sa.Engine) -> Iterator[Connection]:
        """Yield a connection, which is invalidated if the thread is stopped meanwhile."""
        with engine.connect() as connection:
            try:
                yield connection
            except Exception:
                raise
            except BaseException:
                if not self.is_in_memory:  # without its only connection the database is lost
                    connection.invalidate()
                raise


def _parse_url(url: str | sa.URL) -> sa.URL:
    """Return the parsed URL, with the driver that is used. Raises InvalidRequest for a port that is
    no number, and SQLAlchemy's ArgumentError for another malformed URL, or another database or
    driver.
    """
    try:
        parsed = make_url(url)
        if parsed.drivername == "postgresql":
            return parsed.set(drivername=_POSTGRESQL)
        if parsed.drivername in _DRIVERS:
            return parsed
        raise ArgumentError(f"found one of {parsed.drivername}")
    except ValueError:
        pass  # the error quotes the port, which may be part of a password: it isn't a cause
    raise InvalidRequest(
        "catalog: expected a URL like sqlite:///path or postgresql+psycopg://host/db, found one "
        "whose port is no number; percent-encode the signs '/', ':' and '@' of a password"
    )


class _Turn:
    """The turn of this process's threads to write. Waiting for it times out after `timeout_s`."""

    def __init__(self, display_url: str, timeout_s: float) -> None:
        self._display_url = display_url
        self._timeout_s = timeout_s
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=self._timeout_s):
            raise Unavailable(
                f"{self._display_url}: another thread has written for {self._timeout_s:g} s; "
                "try again"
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()
