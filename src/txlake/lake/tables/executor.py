"""The port that carries out the statements which `DeltaTable` and its builders make.

`session.Session` and a lake's transaction implement it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from txlake.lake.tables.enabled_sessions import enabled_session
from txlake.lake.tables.session_lookup import lake_session, path_session
from txlake.log.snapshot import Snapshot
from txlake.session import Session
from txlake.session.unknown_names import unknown_table
from txlake.sql.statements import Statement, Table, TableName, TimeTravel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Executor(Protocol):
    """Carries out statements, in a transaction of its own or one transaction per statement."""

    @property
    def spark(self) -> SparkSession:
        """The Spark session, started on first use."""
        ...

    def execute(self, statement: Statement) -> DataFrame:
        """Carry out a statement. Returns its rows, or its counts."""
        ...

    def perform(self, statement: Statement) -> None:
        """Carry out a statement without making its result, which needs Spark."""
        ...

    def frame(self, table: Table, travel: TimeTravel | None = None) -> DataFrame:
        """Return the table's rows."""
        ...

    def snapshot(self, table: Table, travel: TimeTravel | None = None) -> Snapshot:
        """Return the table's state. Raises InvalidRequest if the table doesn't exist."""
        ...

    def glance(self, table: Table) -> Snapshot | None:
        """Return the table's state; None in an open transaction, which a failed lookup would abort.

        Raises InvalidRequest if the table doesn't exist.
        """
        ...

    def exists(self, table: Table) -> bool:
        """Return whether the table exists."""
        ...


def executor_of(spark: SparkSession, storage_options: Mapping[str, str] | None = None) -> Executor:
    """Return the session that carries out statements on path tables with this Spark session.

    If `txlake.enable` gave the Spark session to a lake, it is the lake's session, unless options
    are given.
    """
    enabled = None if storage_options else enabled_session(spark)
    return path_session(spark, storage_options) if enabled is None else enabled.session


def lake_executor(executor: Executor) -> Executor:
    """Return the executor for a named table: that of the lake open in the Spark session.

    Returns the given executor if it is a lake's already, or if no lake is open. Raises
    InvalidRequest if several lakes are open.
    """
    if not isinstance(executor, Session) or executor.engine.warehouse is not None:
        return executor
    return lake_session(executor.spark) or executor


def missing_table_message(executor: Executor, table: Table) -> str:
    """Return the message for a table that doesn't exist, with the next step and similar names."""
    if isinstance(table, TableName) and isinstance(executor, Session):
        if executor.engine.warehouse is None:
            return (
                f"{table} is not a Delta table: the Spark session's own catalog has no Delta "
                "tables, and no lake is open in it; open one with txlake.connect(..., spark=spark),"
                " or name the table delta.`/path`"
            )
        reason = unknown_table(executor.engine, executor.current, executor.database, table)
        return f"{table} is not a Delta table: {reason}"
    return f"{table} is not a Delta table; check the name or path, or create the table first"
