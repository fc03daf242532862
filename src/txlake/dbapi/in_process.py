"""A lake in this process, as a connection's backend."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from txlake.conflict.levels import parse_level
from txlake.dbapi.fetching import ResultSet, of_frame, of_rows
from txlake.errors import InvalidRequest
from txlake.lake.lake import Lake, local_spark, open_session
from txlake.session.command import AsRows
from txlake.session.views.describe import Rows
from txlake.settings import Settings
from txlake.sql import parse
from txlake.sql.markers import Arguments
from txlake.sql.statements import Begin, Commit, Rollback, Statement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Value = TypeVar("Value")
_logger = logging.getLogger(__name__)


class InProcess:
    """A backend that opens a lake, and closes it with the connection."""

    def __init__(
        self,
        location: str | None,
        *,
        catalog: str | None,
        token: str | None,
        spark: SparkSession | None,
        storage_options: Mapping[str, str] | None,
        isolation: str | None,
        settings: Settings | None,
        database: str | None,
    ) -> None:
        self._session = open_session(
            location,
            make_spark=lambda: _started() if spark is None else spark,
            catalog=catalog,
            token=token,
            storage_options=storage_options,
            isolation=isolation,
            settings=settings,
        )
        self._lake = Lake(self._session)
        if database is not None:
            self._use(database)

    def _use(self, database: str) -> None:
        """Make a database the current one. Raises InvalidRequest, and closes, if it isn't there."""
        try:
            if self._session.engine.catalog.database(database) is None:
                raise InvalidRequest(f"there is no database {database!r}; create it first")
        except BaseException:
            self._lake.close()
            raise
        self._session.database = database

    @property
    def in_transaction(self) -> bool:
        return self._session.current is not None

    @property
    def isolation(self) -> str | None:
        level = self._session.level
        return None if level is None else level.value

    def set_isolation(self, level: str | None) -> None:
        self._session.level = None if level is None else parse_level(level)

    def parsed(self, text: str, args: Arguments | None) -> Sequence[Statement]:
        plane = self._session.engine.plane
        try:
            return parse(text, args, plane.text_rules, reader=plane.relations)
        except BaseException as error:
            self._session.fail(error)
            raise

    def begin(self) -> None:
        self._session.perform(Begin())

    def commit(self) -> None:
        self._session.perform(Commit())

    def rollback(self) -> None:
        self._session.perform(Rollback())

    def run(
        self, text: str, args: Arguments | None, statements: Sequence[Statement] | None = None
    ) -> ResultSet:
        reader = self._session.engine.plane.relations
        self._session.last_identity = None
        rows = self._lake._run_sql(text, args, AsRows(), reader=reader, parsed=statements)
        made = of_rows(rows) if isinstance(rows, Rows) else of_frame(rows, self._asking)
        made.identity = self._session.last_identity
        return made

    def _asking(self, ask: Callable[[], Value]) -> Value:
        """Call a function that asks Spark. Raises its errors as txlake's, which fail the open
        transaction.
        """
        from txlake.spark.spark_errors import spark_errors

        try:
            with spark_errors():
                return ask()
        except BaseException as error:
            self._session.fail(error)
            raise

    def close(self) -> None:
        self._lake.close()


def _started() -> SparkSession:
    """Return the active Spark session, or start one, and say so."""
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is None:
        _logger.info("Spark starts for a statement that needs it; this takes some seconds, once")
    return local_spark()
