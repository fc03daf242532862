"""One session of a lake as the command line uses it: SQL texts become results.

Owns the meeting of SQL, Spark's errors and the session's own transaction; what is printed is not
its business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from txlake.cli.background import Background
from txlake.errors import TxlakeError
from txlake.views.describe import Rows
from txlake.views.results import Result, collected, held

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from txlake.lake.lake import Lake
    from txlake.session.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a session stands between two statements.

    Attributes:
        database: the current one.
        isolation: the level in force, as Python writes it.
        transaction: the open one's id; None without one.
        failed: the open transaction was rolled back and waits for its end.
    """

    database: str
    isolation: str
    transaction: str | None = None
    failed: bool = False
    read_only: bool = False


class Worker(Protocol):
    """What scripts and the prompt need of a session."""

    def run(self, text: str, rows_max: int | None) -> Result:
        """Runs one statement. Raises a TxlakeError."""

    def misread(self, error: TxlakeError) -> None:
        """A text that isn't understood fails the open transaction, as a failed statement does."""

    def standing(self) -> Standing:
        """Where the session stands."""

    def use(self, database: str) -> None:
        """Makes a database that was the current one the current one again."""

    def rollback(self) -> bool:
        """Ends the open transaction; whether there was one."""

    def names(self) -> Sequence[str]:
        """The tables and databases that a statement can name, for completion."""


class LakeWorker:
    """A worker on a lake."""

    def __init__(self, lake: Lake, session: Session) -> None:
        self._lake = lake
        self._session = session
        self._background = Background(self._cancel)

    def run(self, text: str, rows_max: int | None) -> Result:
        from txlake.cli.progress import progress
        from txlake.session.command import AsRows

        with progress(text):
            return self.shown(lambda: self._lake._answered(text, None, AsRows()), rows_max)

    def shown(self, ask: Callable[[], DataFrame | Rows], rows_max: int | None = None) -> Result:
        """The rows that a call of the lake answers with; a failure fails the open transaction."""
        return self._background.do(lambda: self._shown(ask, rows_max))

    def _cancel(self) -> None:
        """Ends what Spark does for this process."""
        from txlake.spark.spark_sessions import is_connect

        engine = self._session.engine
        if engine.plane.is_started and is_connect(engine.spark):
            engine.spark.interruptAll()
        elif engine.plane.is_started:
            engine.spark.sparkContext.cancelAllJobs()

    def _shown(self, ask: Callable[[], DataFrame | Rows], rows_max: int | None) -> Result:
        from txlake.spark.spark_errors import spark_errors

        answer = ask()
        if isinstance(answer, Rows):
            return held(answer, rows_max)
        try:
            with spark_errors():
                return collected(answer, rows_max)
        except BaseException as error:
            self._session.fail(error)
            raise

    def misread(self, error: TxlakeError) -> None:
        self._session.fail(error)

    def standing(self) -> Standing:
        from txlake.conflict.levels import parse_level, strictest
        from txlake.session.transaction import State

        session, current = self._session, self._session.current
        database = session.engine.catalog.database(session.database)
        of_database = None if database is None else database.isolation
        level = session.level if current is None else current.level
        in_force = strictest(None if of_database is None else parse_level(of_database), level)
        return Standing(
            database=session.database,
            isolation=in_force.value,
            transaction=None if current is None else current.id,
            failed=current is not None and current.state is not State.ACTIVE,
            read_only=current is not None and current.read_only,
        )

    def use(self, database: str) -> None:
        self._session.database = database

    def rollback(self) -> bool:
        from txlake.statements import Rollback

        if self._session.current is None:
            return False
        self._background.do(lambda: self._session.execute(Rollback()))
        return True

    def names(self) -> Sequence[str]:
        catalog = self._session.engine.catalog
        found: list[str] = []
        for database in catalog.databases():
            tables = [table.name for table in catalog.tables(database.name)]
            if database.name == self._session.database:
                found.extend(tables)
            found.append(database.name)
            found.extend(f"{database.name}.{table}" for table in tables)
        return found
