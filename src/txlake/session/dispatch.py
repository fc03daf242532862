"""Which handler carries out which statement, and how its outcome becomes an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from pyspark.sql import DataFrame, SparkSession

from txlake.errors import InvalidRequest
from txlake.protocol.types import Field, Primitive, Struct
from txlake.session import copying, data, definitions, showing, upkeep
from txlake.session.context import Context
from txlake.session.results import counts_frame, nothing, rows_frame
from txlake.statements import (
    AlterDatabase,
    Clone,
    ConvertToDelta,
    CopyInto,
    CreateDatabase,
    CreateTable,
    CreateTableLike,
    Delete,
    DropDatabase,
    DropTable,
    Generate,
    Insert,
    InspectionStatement,
    Merge,
    Optimize,
    Reorg,
    Restore,
    Select,
    SparkCommand,
    Statement,
    Truncate,
    Update,
    Vacuum,
    Write,
)
from txlake.statements.inspection import DatabaseStatement
from txlake.statements.maintenance import DescribeDetail, DescribeHistory
from txlake.statements.tables import AlterStatement

Answer: TypeAlias = Callable[[SparkSession], DataFrame]

_COUNTED: Mapping[type, Callable[[Context, object], Mapping[str, int]]] = {
    Delete: data.delete,
    Update: data.update,
    Merge: data.merge,
    Insert: data.insert,
    Write: data.write,
    CopyInto: copying.copy_into,
    Restore: upkeep.restore_table,
}  # type: ignore[dict-item]
_SILENT: Mapping[type, Callable[[Context, object], None]] = {
    Truncate: data.truncate,
    CreateTable: definitions.create_table,
    CreateTableLike: definitions.create_table_like,
    DropTable: definitions.drop_table,
}  # type: ignore[dict-item]
_PATHS = Struct((Field("path", Primitive("string"), False),))


def changes_catalog(statement: Statement) -> bool:
    """Whether the statement can't be part of a transaction: database DDL and VACUUM."""
    return isinstance(statement, CreateDatabase | DropDatabase | AlterDatabase | Vacuum)


def run(context: Context, statement: Statement) -> Answer:
    """Carries out a statement in the context's transaction."""
    kind = type(statement)
    if kind in _COUNTED:
        counts = _COUNTED[kind](context, statement)
        return partial(counts_frame, counts=counts)
    if kind in _SILENT:
        _SILENT[kind](context, statement)
        return nothing
    match statement:
        case Select(query):
            frame = context.query(query)
            return lambda _: frame
        case SparkCommand(command):
            frame = context.spark.sql(command.text)
            return lambda _: frame
        case Optimize():
            return upkeep.optimize(context, statement)
        case Reorg():
            return upkeep.reorg(context, statement)
        case Vacuum():
            paths = upkeep.vacuum_table(context, statement)
            return lambda spark: rows_frame(spark, _PATHS, [(path,) for path in paths])
    if isinstance(statement, AlterStatement):
        definitions.alter_table(context, statement)
        return nothing
    if isinstance(statement, DatabaseStatement):
        showing.change_database(context, statement)
        return nothing
    if isinstance(statement, InspectionStatement | DescribeHistory | DescribeDetail):
        rows = showing.show(context, statement)
        return lambda spark: rows_frame(spark, rows.schema, rows.rows)
    raise InvalidRequest(f"{kind.__name__} isn't a statement that runs by itself")
