"""Commands that read: SELECT, reads of tables and of their changes, statements of Spark."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from txlake.conflict.locking import LockMode
from txlake.errors import InvalidRequest
from txlake.log.snapshot import unknown_column
from txlake.session.branch_changes import branch_table, changed_rows
from txlake.session.command import (
    Answer,
    command,
    giving_frame,
    its_table,
    no_table,
    served,
)
from txlake.session.context import Context
from txlake.session.plain_queries import plain_answer
from txlake.session.view_queries import Viewed
from txlake.sql.statements import (
    Expression,
    ReadChanges,
    ReadTable,
    Select,
    SparkCommand,
    TableName,
    TimeTravel,
    condition_text,
)
from txlake.sql.statements.names import quoted


def select(context: Context, statement: Select) -> Answer:
    """Carry out a query. The driver answers a plain one if values suffice (`plain_answer`)."""
    rows = plain_answer(context, statement.query) if statement.as_values else None
    if rows is not None:
        return lambda by: by.frame(rows.schema, rows.rows)
    frame = context.query(statement.query, at_once=True)
    return lambda _: frame


def spark_command(context: Context, statement: SparkCommand) -> DataFrame:
    """Carry out a statement that Spark runs as it is."""
    try:
        return context.command(statement.command)
    finally:
        context.plane.forget_settings()  # SET and RESET are among them


def read(context: Context, statement: ReadTable) -> DataFrame:
    """Carry out `lake.read`: the columns of the rows for which the condition is true.

    Raises InvalidRequest for an unknown table, version or column, and for travel in a view.
    """
    table, travel = statement.table, statement.travel
    condition, columns = statement.condition, statement.columns
    view = None
    if isinstance(table, TableName) and context.tables.find(table) is None:
        view = context.tables.viewed(table)
    if view is not None:
        return _read_view(context, view, travel, condition, columns)
    handle = context.tables.require(table)
    snapshot = context.snapshot(handle, travel)
    work = context.work_on(handle, snapshot)
    predicate = work.predicate(condition, None)
    if condition is None or predicate is None:
        frame = context.scan(handle, travel)
    else:
        row_condition = work.row_condition(predicate, condition, None)
        frame = context.scan(handle, travel, predicate, condition_text(condition), row_condition)
    if condition is not None:
        frame = work.qualified(frame, None).where(context.column_of(condition))
    if columns is None:
        return frame
    for name in columns:
        if snapshot.schema.find(name) is None:
            raise unknown_column(name, snapshot)
    return _with_columns(frame, columns)


def read_changes(context: Context, statement: ReadChanges) -> DataFrame:
    """Carry out `lake.changes`: read the change data feed, or what the branch has changed."""
    if statement.change_range is not None:
        return context.changes(statement.table, statement.change_range)
    handle = context.tables.require(statement.table)
    return changed_rows(context.engine, branch_table(context.engine, handle))


def _with_columns(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    return frame.select(*[quoted(name, always=True) for name in columns])


def _read_view(
    context: Context,
    view: Viewed,
    travel: TimeTravel | None,
    condition: Expression | None,
    columns: Sequence[str] | None,
) -> DataFrame:
    """Return the rows of a view, as `read` does. Raises InvalidRequest for travel."""
    if travel is not None:
        raise InvalidRequest(f"{view.name} is a view: {travel} goes with a table")
    frame = context.view_rows(view)
    if condition is not None:
        frame = frame.where(context.column_of(condition))
    return frame if columns is None else _with_columns(frame, columns)


COMMANDS = {
    **served(
        command(Select, select, no_table, writes=False),
        command(ReadChanges, giving_frame(read_changes), its_table(LockMode.SCH_S), writes=False),
    ),
    **dict(
        (
            command(ReadTable, giving_frame(read), its_table(LockMode.SCH_S), writes=False),
            command(SparkCommand, giving_frame(spark_command), no_table),
        )
    ),
}
