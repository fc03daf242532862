"""`connect`, and a connection: its transaction, its cursors, its end."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from txlake.dbapi import exceptions
from txlake.dbapi.cursor import Cursor
from txlake.dbapi.exceptions import InterfaceError, ProgrammingError, translated_errors
from txlake.dbapi.fetching import ResultSet
from txlake.dbapi.in_process import InProcess
from txlake.dbapi.ports import Backend
from txlake.dbapi.transactions import Start, start_of, undoes
from txlake.settings import Settings
from txlake.sql.markers import Arguments
from txlake.sql.statements import Statement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOST = "the transaction was rolled back before all rows were fetched; run the query again"


def connect(
    dsn: str | None = None,
    *,
    token: str | None = None,
    catalog: str | None = None,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
    isolation: str | None = None,
    settings: Settings | None = None,
    database: str | None = None,
    autocommit: bool = False,
    timeout_s: float = 330.0,
) -> Connection:
    """Open a connection to a lake in this process, which is created on first use, or to one that
    `txlake serve` serves.

    Args:
        dsn: the warehouse, a folder or a URL; or a server: `txlake+http://host:8080`,
            `txlake+https://host`.
        token: of the server, or of a Unity Catalog.
        catalog, spark, storage_options, settings: of a lake in this process, as `txlake.connect`
            has them.
        isolation: the level of transactions: "serializable", "write_serializable" or "snapshot".
        database: the current database at first.
        autocommit: whether each statement is a transaction of its own.
        timeout_s: how long a response of the server is waited for.

    Raises PEP 249's errors for those of `txlake.connect`: ProgrammingError for an unusable location
    or option, OperationalError if the store, the catalog or the server can't be reached.
    """
    in_process = {
        "catalog": catalog,
        "spark": spark,
        "storage_options": storage_options,
        "settings": settings,
    }
    if dsn is not None and dsn.startswith("txlake+"):
        return _to_server(
            dsn, token, isolation, database, in_process, autocommit=autocommit, timeout_s=timeout_s
        )
    with translated_errors():
        backend = InProcess(
            dsn,
            catalog=catalog,
            token=token,
            spark=spark,
            storage_options=storage_options,
            isolation=isolation,
            settings=settings,
            database=database,
        )
    return Connection(backend, autocommit=autocommit)


def _to_server(
    dsn: str,
    token: str | None,
    isolation: str | None,
    database: str | None,
    in_process: Mapping[str, object],
    *,
    autocommit: bool,
    timeout_s: float,
) -> Connection:
    """Open a connection to a server, as `connect`. `in_process`: options that it can't have."""
    from txlake.dbapi.over_http import OverHttp, address_of

    given = [name for name, value in in_process.items() if value is not None]
    if given:
        raise ProgrammingError(f"{given[0]}: the server opened the lake, and has its options")
    with translated_errors():
        backend = OverHttp(
            address_of(dsn, token), isolation=isolation, database=database, timeout_s=timeout_s
        )
    return Connection(backend, autocommit=autocommit)


class Connection:
    """One session of a lake. Threads may share it: statements run one after the other.

    A `with` block commits at its end, rolls back after an exception, and closes.
    """

    Warning = exceptions.Warning
    Error = exceptions.Error
    InterfaceError = exceptions.InterfaceError
    DatabaseError = exceptions.DatabaseError
    DataError = exceptions.DataError
    OperationalError = exceptions.OperationalError
    IntegrityError = exceptions.IntegrityError
    InternalError = exceptions.InternalError
    ProgrammingError = exceptions.ProgrammingError
    NotSupportedError = exceptions.NotSupportedError

    def __init__(self, backend: Backend, *, autocommit: bool) -> None:
        self._backend = backend
        self._autocommit = bool(autocommit)
        self._is_closed = False
        self._is_together = False
        self._cursors: weakref.WeakSet[Cursor] = weakref.WeakSet()
        self._lock = threading.RLock()

    def cursor(self) -> Cursor:
        """Return a new cursor. Raises InterfaceError if the connection is closed."""
        self._require_open()
        made = Cursor(self)
        self._cursors.add(made)
        return made

    def execute(self, operation: str, parameters: Arguments | None = None) -> Cursor:
        """Run a statement on a new cursor, and return that. Raises as `Cursor.execute`."""
        return self.cursor().execute(operation, parameters)

    def commit(self) -> None:
        """Make the transaction's changes visible, all or none; do nothing without a transaction.

        The transaction ends in any case. Raises OperationalError with `evidence` if a concurrent
        commit conflicts, ProgrammingError if one of its statements failed, InterfaceError if the
        connection is closed.
        """
        with self._lock:
            self._require_open()
            if self._backend.in_transaction:
                with self._reading():
                    self._backend.commit()

    def rollback(self) -> None:
        """Undo the transaction's changes; do nothing without a transaction.

        Rows that weren't read yet can't be fetched any more. Raises InterfaceError if the
        connection is closed.
        """
        with self._lock:
            self._require_open()
            if self._backend.in_transaction:
                self._lose_rows()
                with translated_errors():
                    self._backend.rollback()

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, also one that failed and waits for `rollback`."""
        return not self._is_closed and self._backend.in_transaction

    @property
    def autocommit(self) -> bool:
        """Whether each statement is a transaction of its own; settable between transactions."""
        return self._autocommit

    @autocommit.setter
    def autocommit(self, on: bool) -> None:
        with self._lock:
            self._require_between("autocommit")
            self._autocommit = bool(on)

    @property
    def isolation_level(self) -> str | None:
        """The level of transactions to come: "serializable", "write_serializable" or "snapshot";
        None for the database's. Settable between transactions.
        """
        return self._backend.isolation

    @isolation_level.setter
    def isolation_level(self, level: str | None) -> None:
        with self._lock:
            self._require_between("isolation_level")
            with translated_errors():
                self._backend.set_isolation(level)

    def _require_between(self, what: str) -> None:
        """Raise ProgrammingError while a transaction is open, InterfaceError if closed."""
        self._require_open()
        if self._backend.in_transaction:
            raise ProgrammingError(f"{what}: a transaction is open; commit or roll back first")

    def _run(
        self, operation: str, args: Arguments | None
    ) -> tuple[ResultSet, Sequence[Statement] | None]:
        """Run a script, in a transaction as the connection has them, for a cursor.

        Returns its result and statements. Raises as `Cursor.execute`.
        """
        if not isinstance(operation, str):
            raise ProgrammingError(f"expected SQL, found a {type(operation).__name__}")
        with self._reading():
            statements = self._backend.parsed(operation, args)
            if not self._autocommit or self._is_together:
                self._begin_for(statements)
            if statements is not None and undoes(statements):
                self._lose_rows()
            return self._backend.run(operation, args, statements), statements

    def _begin_for(self, statements: Sequence[Statement] | None) -> None:
        """Begin a transaction if a script needs one and none is open."""
        start = Start.TRANSACTION if statements is None else start_of(statements)
        if start is Start.TRANSACTION and not self._backend.in_transaction:
            self._backend.begin()

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Run the block's statements in one transaction, which with autocommit ends with it."""
        if not self._autocommit or self._backend.in_transaction:
            yield
            return
        self._is_together = True
        try:
            yield
            self.commit()
        except BaseException:
            self.rollback()
            raise
        finally:
            self._is_together = False

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Raise errors of the block as PEP 249's. In a transaction they take away the rows that
        weren't read yet, since the transaction failed.
        """
        try:
            with translated_errors():
                yield
        except BaseException:
            if not self._is_closed and self._backend.in_transaction:
                self._lose_rows()
            raise

    def _keep_rows(self, most: int) -> None:
        """Let the rows of open cursors outlast a rollback, unless one has more than `most` left."""
        with self._lock:
            if self.in_transaction:
                for cursor in list(self._cursors):
                    cursor._keep_rows(most)

    def _lose_rows(self) -> None:
        for cursor in list(self._cursors):
            cursor._lose_rows(_LOST)

    def _require_open(self) -> None:
        """Raise InterfaceError if the connection is closed."""
        if self._is_closed:
            raise InterfaceError("the connection is closed; open another with connect()")

    def close(self) -> None:
        """Roll back the open transaction, which frees its locks, and end the session.

        Closing again does nothing.
        """
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            for cursor in list(self._cursors):
                cursor.close()
            with translated_errors():
                self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._is_closed:
            return
        try:
            if kind is None:
                self.commit()
        finally:
            self.close()
