"""dbt's connections, each of which is one of the unit's, and their statements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
from dbt.adapters.contracts.connection import AdapterResponse, Connection, ConnectionState
from dbt.adapters.events.logging import AdapterLogger
from dbt.adapters.sql import SQLConnectionManager
from dbt.adapters.txlake.outcome import Outcome
from dbt.adapters.txlake.units import Unit, unit_of
from dbt_common.exceptions import DbtDatabaseError, DbtRuntimeError

import txlake.dbapi

_logger = AdapterLogger("txlake")


class Statement:
    """A cursor whose statement the unit runs."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._cursor = handle.con.cursor()

    def execute(self, sql: str, bindings: Sequence[Any] | None = None) -> Statement:
        self._cursor = self._handle.unit.run(self._handle.con, sql, bindings)
        return self

    def executemany(self, sql: str, rows: Sequence[Any]) -> Statement:
        self._cursor = self._handle.unit.run(self._handle.con, sql, rows, many=True)
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


class Handle:
    """What dbt keeps of an open connection."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.con = unit.take()
        self.closed = False

    def cursor(self) -> Statement:
        return Statement(self)

    def begin(self) -> None:
        self.unit.begin(self.con)

    def commit(self) -> None:
        self.unit.commit(self.con)

    def rollback(self) -> None:
        self.unit.rollback(self.con)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.unit.give_back(self.con)


class TxlakeConnectionManager(SQLConnectionManager):
    """The connections of one dbt command, which end with it as the profile's unit says."""

    TYPE = "txlake"

    def __init__(self, profile: Any, mp_context: Any) -> None:
        super().__init__(profile, mp_context)
        self._unit: Unit | None = None
        self._outcome = Outcome()
        self._outcome.listen()
        self._command = _command_of(profile)

    @property
    def unit(self) -> Unit:
        """What becomes visible together."""
        with self.lock:
            if self._unit is None:
                self._unit = unit_of(self.profile.credentials, self._command)
            return self._unit

    def open(self, connection: Connection) -> Connection:  # type: ignore[override]
        if connection.state == ConnectionState.OPEN:
            return connection
        try:
            connection.handle = Handle(self.unit)
        except txlake.dbapi.Error as error:
            connection.handle = None
            connection.state = ConnectionState.FAIL
            raise DbtDatabaseError(str(error)) from error
        connection.state = ConnectionState.OPEN
        return connection

    @contextmanager
    def exception_handler(self, sql: str) -> Iterator[None]:
        try:
            yield
        except txlake.dbapi.Error as error:
            _logger.debug(f"txlake: {error}")
            self.rollback_if_open()
            raise DbtDatabaseError(str(error)) from error
        except DbtRuntimeError:
            self.rollback_if_open()
            raise

    def begin(self) -> Connection:
        connection = self.get_thread_connection()
        if not connection.transaction_open:
            connection.handle.begin()
            connection.transaction_open = True
        return connection

    def commit(self) -> Connection:
        connection = self.get_thread_connection()
        if connection.transaction_open:
            with self.exception_handler("COMMIT"):
                connection.handle.commit()
            connection.transaction_open = False
        return connection

    def cancel(self, connection: Connection) -> None:
        """Do nothing: a statement ends by itself, and its transaction is rolled back."""

    @classmethod
    def get_response(cls, cursor: Any) -> AdapterResponse:
        rows = None if cursor.rowcount < 0 else cursor.rowcount
        return AdapterResponse(_message="OK" if rows is None else f"OK {rows}", rows_affected=rows)

    @classmethod
    def data_type_code_to_name(cls, type_code: int | str) -> str:
        return str(type_code)

    def insert_rows(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run an INSERT of one row of markers with many rows, as one write."""
        self.begin()
        connection = self.get_thread_connection()
        with self.exception_handler(sql):
            connection.handle.cursor().executemany(sql, rows)

    def cleanup_all(self) -> None:
        """Close all connections, and end the command's unit.

        Raises DbtRuntimeError if it should have become visible and couldn't.
        """
        super().cleanup_all()
        with self.lock:
            unit, self._unit = self._unit, None
        if unit is not None:
            unit.end(self._outcome.fault())


def _command_of(profile: Any) -> str | None:
    """Return the word of dbt's command line; None outside of one.

    `dbt retry` gives its tasks the arguments of the command that it goes on with, so the command
    line itself comes first.
    """
    line = click.get_current_context(silent=True)
    if line is not None and line.info_name == "retry":
        return "retry"
    return getattr(getattr(profile, "args", None), "which", None)
