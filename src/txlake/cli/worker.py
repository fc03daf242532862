"""One session of a lake for the command line: runs SQL texts, and returns results.

Owns the translation of Spark's errors and the handling of the session's transaction. Prints
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from txlake.cli.background import BackgroundThread
from txlake.errors import TxlakeError
from txlake.session.views.describe import Rows
from txlake.session.views.results import Result, frame_result, rows_result

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from txlake.lake.lake import Lake
    from txlake.session.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """A session's state between two statements.

    Attributes:
        database: the current database.
        isolation: the isolation level in force, as Python writes it.
        transaction: the open transaction's id; None without one.
        failed: the open transaction was rolled back, and waits for ROLLBACK or COMMIT.
        branch: the branch in use; None on main.
    """

    database: str
    isolation: str
    transaction: str | None = None
    failed: bool = False
    read_only: bool = False
    branch: str | None = None


class Worker(Protocol):
    """A session, as scripts and the prompt use it."""

    def run(self, text: str, rows_max: int | None) -> Result:
        """Run one statement. Raises a TxlakeError."""

    def parse_failed(self, error: TxlakeError) -> None:
        """Fail the open transaction because of a syntax error, as a failed statement does."""

    def state(self) -> SessionState:
        """Return the session's state."""

    def use(self, database: str) -> None:
        """Set the current database, to one that was current before."""

    def rollback(self) -> bool:
        """Roll back the open transaction. Returns whether there was one."""

    def names(self) -> Sequence[str]:
        """Return the tables and databases that a statement can name, for completion."""

    def branches(self) -> Sequence[str]:
        """Return the branches and tags that a statement can name, for completion."""


class LakeWorker:
    """A worker on a lake, whose statements run on a thread of their own."""

    def __init__(self, lake: Lake, session: Session) -> None:
        self._lake = lake
        self._session = session
        self._background = BackgroundThread(self._cancel)

    def run(self, text: str, rows_max: int | None) -> Result:
        """Run one statement, with a progress line on a terminal."""
        from txlake.cli.progress import progress
        from txlake.session.command import AsRows

        with progress(text):
            return self.fetch(lambda: self._lake._run_sql(text, None, AsRows()), rows_max)

    def fetch(self, call: Callable[[], DataFrame | Rows], rows_max: int | None = None) -> Result:
        """Return the rows of a call of the lake, at most `rows_max`; all of them for None.

        An error fails the open transaction. Ctrl-C cancels the call, as in `BackgroundThread.run`.
        """
        return self._background.run(lambda: self._fetch(call, rows_max))

    def _cancel(self) -> None:
        """Cancel all of Spark's work for this process; nothing if Spark hasn't started."""
        from txlake.spark.spark_sessions import is_connect

        engine = self._session.engine
        if engine.plane.is_started and is_connect(engine.spark):
            engine.spark.interruptAll()
        elif engine.plane.is_started:
            engine.spark.sparkContext.cancelAllJobs()

    def _fetch(self, call: Callable[[], DataFrame | Rows], rows_max: int | None) -> Result:
        """Return the rows of a call, with Spark's errors as txlake's; an error fails the
        transaction.
        """
        from txlake.spark.spark_errors import spark_errors

        rows = call()
        if isinstance(rows, Rows):
            return rows_result(rows, rows_max)
        try:
            with spark_errors():
                return frame_result(rows, rows_max)
        except BaseException as error:
            self._session.fail(error)
            raise

    def parse_failed(self, error: TxlakeError) -> None:
        self._session.fail(error)

    def state(self) -> SessionState:
        """Return the session's state; the level is the stricter one of the database's and its
        own.
        """
        from txlake.conflict.levels import parse_level, strictest
        from txlake.session.transaction import State

        session, current = self._session, self._session.current
        database = session.engine.catalog.database(session.database)
        database_level = None if database is None else database.isolation
        level = session.level if current is None else current.level
        in_force = strictest(None if database_level is None else parse_level(database_level), level)
        return SessionState(
            database=session.database,
            isolation=in_force.value,
            transaction=None if current is None else current.id,
            failed=current is not None and current.state is not State.ACTIVE,
            read_only=current is not None and current.read_only,
            branch=None if session.engine.branch is None else session.engine.branch.name,
        )

    def use(self, database: str) -> None:
        self._session.database = database

    def rollback(self) -> bool:
        """Roll back the open transaction. Returns whether there was one."""
        from txlake.sql.statements import Rollback

        if self._session.current is None:
            return False
        self._background.run(lambda: self._session.execute(Rollback()))
        return True

    def names(self) -> Sequence[str]:
        """Return the current database's tables, then each database with its tables' full names."""
        catalog = self._session.engine.catalog
        names: list[str] = []
        for database in catalog.databases():
            tables = [table.name for table in catalog.tables(database.name)]
            if database.name == self._session.database:
                names.extend(tables)
            names.append(database.name)
            names.extend(f"{database.name}.{table}" for table in tables)
        return names

    def branches(self) -> Sequence[str]:
        """Return the branches and tags by name; none where another system's catalog has the
        names.
        """
        catalog = self._session.engine.catalog
        if not catalog.is_lake:
            return []
        return [entry.name for entry in catalog.of_lake().branches.entries()]
