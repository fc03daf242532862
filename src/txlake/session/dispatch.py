"""Which handler carries out which statement, and how its outcome becomes an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias, assert_never

from pyspark.sql import DataFrame, SparkSession

from txlake.protocol.types import Field, Primitive, Struct
from txlake.session import copying, data, definitions, showing, upkeep
from txlake.session.analyze import analyze
from txlake.session.context import Context
from txlake.session.databases import change_database
from txlake.session.describe import Rows
from txlake.session.results import counts_frame, nothing, rows_frame
from txlake.session.undrop import undrop_table
from txlake.session.view_statements import view_statement
from txlake.statements import (
    AlterDatabase,
    AlterView,
    AnalyzeTable,
    Clone,
    ConvertToDelta,
    CopyInto,
    CreateDatabase,
    CreateTable,
    CreateTableLike,
    CreateView,
    DataStatement,
    Delete,
    DropDatabase,
    DropTable,
    DropView,
    Generate,
    Insert,
    MaintenanceStatement,
    Merge,
    Optimize,
    RefreshTable,
    RenameView,
    Reorg,
    Restore,
    Select,
    SparkCommand,
    Statement,
    TableStatement,
    Truncate,
    UndropTable,
    Update,
    UseDatabase,
    Vacuum,
    ViewStatement,
    Write,
)
from txlake.statements.control import ControlStatement
from txlake.statements.inspection import DatabaseStatement, InspectionStatement
from txlake.statements.maintenance import DescribeDetail, DescribeHistory

Answer: TypeAlias = Callable[[SparkSession], DataFrame]
_PATHS = Struct((Field("path", Primitive("string"), False),))


def changes_catalog(statement: Statement) -> bool:
    """Whether the statement can't be part of a transaction: DDL of databases and views, UNDROP,
    VACUUM.
    """
    return isinstance(
        statement,
        CreateDatabase
        | DropDatabase
        | AlterDatabase
        | CreateView
        | AlterView
        | RenameView
        | DropView
        | UndropTable
        | Vacuum,
    )


def run(context: Context, statement: Statement) -> Answer:
    """Carries out a statement in the context's transaction."""
    assert not isinstance(statement, ControlStatement | UseDatabase), "the session's own"
    if isinstance(statement, DatabaseStatement):
        change_database(context, statement)
        return nothing
    if isinstance(statement, ViewStatement):
        return _answered(view_statement(context, statement))
    if isinstance(statement, DataStatement):
        return _run_data(context, statement)
    if isinstance(statement, TableStatement):
        return _run_definition(context, statement)
    if isinstance(statement, MaintenanceStatement):
        return _run_upkeep(context, statement)
    return _shown(context, statement)


def _counted(counts: Mapping[str, int]) -> Answer:
    return partial(counts_frame, counts=counts)


def _shown(
    context: Context, statement: InspectionStatement | DescribeHistory | DescribeDetail
) -> Answer:
    return _answered(showing.show(context, statement))


def _answered(rows: Rows) -> Answer:
    return lambda spark: rows_frame(spark, rows.schema, rows.rows)


def _run_data(context: Context, statement: DataStatement) -> Answer:
    match statement:
        case Select(query):
            frame = context.query(query)
            return lambda _: frame
        case SparkCommand(command):
            frame = context.command(command)
            return lambda _: frame
        case Insert():
            return _counted(data.insert(context, statement))
        case Write():
            return _counted(data.write(context, statement))
        case Delete():
            return _counted(data.delete(context, statement))
        case Update():
            return _counted(data.update(context, statement))
        case Merge():
            return _counted(data.merge(context, statement))
        case CopyInto(validate_rows=int()):
            valid = copying.validate(context, statement)
            return lambda _: valid
        case CopyInto():
            return _counted(copying.copy_into(context, statement))
        case Truncate():
            data.truncate(context, statement)
            return nothing
        case _:
            assert_never(statement)


def _run_definition(context: Context, statement: TableStatement) -> Answer:
    match statement:
        case Clone():
            counts = definitions.clone_table(context, statement)
            return _counted(counts) if counts else nothing
        case CreateTable():
            definitions.create_table(context, statement)
        case CreateTableLike():
            definitions.create_table_like(context, statement)
        case DropTable():
            definitions.drop_table(context, statement)
        case UndropTable():
            undrop_table(context, statement)
        case _:
            definitions.alter_table(context, statement)
    return nothing


def _run_upkeep(context: Context, statement: MaintenanceStatement) -> Answer:
    match statement:
        case Optimize():
            return upkeep.optimize(context, statement)
        case Reorg():
            return upkeep.reorg(context, statement)
        case Restore():
            return _counted(upkeep.restore_table(context, statement))
        case Vacuum():
            paths = upkeep.vacuum_table(context, statement)
            return lambda spark: rows_frame(spark, _PATHS, [(path,) for path in paths])
        case Generate():
            upkeep.generate(context, statement)
            return nothing
        case ConvertToDelta():
            upkeep.convert(context, statement)
            return nothing
        case AnalyzeTable():
            analyze(context, statement)
            return nothing
        case RefreshTable():
            upkeep.refresh(context, statement)
            return nothing
        case DescribeHistory() | DescribeDetail():
            return _shown(context, statement)
        case _:
            assert_never(statement)
