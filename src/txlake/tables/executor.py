"""What carries out the statements that the classes here build, as a Protocol.

A `session.Session` is one, and so is a lake's transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from txlake.log.snapshot import Snapshot
from txlake.session import for_spark
from txlake.statements import Statement, Table, TimeTravel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Executor(Protocol):
    """Carries out statements, in a transaction of its own or in each statement's."""

    @property
    def spark(self) -> SparkSession:
        """The Spark session, started when it is first asked for."""
        ...

    def execute(self, statement: Statement) -> DataFrame:
        """Carries out a statement; its rows, or its counts."""
        ...

    def frame(self, table: Table, travel: TimeTravel | None = None) -> DataFrame:
        """The table's rows."""
        ...

    def snapshot(self, table: Table, travel: TimeTravel | None = None) -> Snapshot:
        """The table's state. Raises InvalidRequest when there is no such table."""
        ...

    def exists(self, table: Table) -> bool:
        """Whether there is such a table."""
        ...


def executor_for(spark: SparkSession, storage_options: Mapping[str, str] | None = None) -> Executor:
    """The session that carries out statements on path tables with this Spark session."""
    return for_spark(spark, storage_options)
