"""What carries out the statements that the classes here build, as a Protocol.

A `session.Session` is one, and so is a lake's transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from txlake.log.snapshot import Snapshot
from txlake.session import Session
from txlake.session.unknown_names import unknown_table
from txlake.statements import Statement, Table, TableName, TimeTravel
from txlake.tables.enabled import enabled_in
from txlake.tables.spark_sessions import for_spark, lake_of

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

    def glance(self, table: Table) -> Snapshot | None:
        """The table's state; None in an open transaction, which a look that fails would fail.

        Raises InvalidRequest when there is no such table.
        """
        ...

    def exists(self, table: Table) -> bool:
        """Whether there is such a table."""
        ...


def executor_for(spark: SparkSession, storage_options: Mapping[str, str] | None = None) -> Executor:
    """The session that carries out statements on path tables with this Spark session.

    In a session that `txlake.enable` gave to a lake it is the lake's, unless options are given.
    """
    enabled = None if storage_options else enabled_in(spark)
    return for_spark(spark, storage_options) if enabled is None else enabled.session


def knowing_names(executor: Executor) -> Executor:
    """The executor for a table's name: of the lake that is open in the Spark session.

    It is the same one where it is a lake's already, and where no lake is open. Raises
    InvalidRequest where several are.
    """
    if not isinstance(executor, Session) or executor.engine.warehouse is not None:
        return executor
    return lake_of(executor.spark) or executor


def missing(executor: Executor, table: Table) -> str:
    """What to say of a table that isn't there, and what to do."""
    if isinstance(table, TableName) and isinstance(executor, Session):
        if executor.engine.warehouse is None:
            return (
                f"{table} is not a Delta table: the Spark session's own catalog has no Delta "
                "tables, and no lake is open in it; open one with txlake.connect(..., spark=spark),"
                " or name the table delta.`/path`"
            )
        asked = unknown_table(executor.engine, executor.current, executor.database, table)
        return f"{table} is not a Delta table: {asked}"
    return f"{table} is not a Delta table; check the name or path, or create the table first"
