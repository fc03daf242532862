"""SHOW and DESCRIBE in a session.

Owns what comes from the catalog; what comes from a table's own state is `describe`'s business.
"""

from __future__ import annotations

from txlake.catalog import matches
from txlake.errors import InvalidRequest
from txlake.protocol.types import Field, Primitive, Struct
from txlake.session.belongings import catalog_of
from txlake.session.context import Context
from txlake.session.describe import Rows
from txlake.session.explaining import explain_conflicts
from txlake.session.results import schema_rows
from txlake.session.undrop import dropped_tables
from txlake.session.unknown import tables_in
from txlake.session.view_statements import described
from txlake.session.viewed import Viewed
from txlake.statements import (
    DescribeDatabase,
    DescribeQuery,
    DescribeTable,
    ExplainConflicts,
    InspectionStatement,
    ShowColumns,
    ShowCreateTable,
    ShowDatabases,
    ShowDroppedTables,
    ShowTables,
    Table,
    TableName,
)
from txlake.statements.maintenance import DescribeDetail, DescribeHistory

_TEXT = Primitive("string")


def show(
    context: Context, statement: InspectionStatement | DescribeHistory | DescribeDetail
) -> Rows:
    """The rows that the statement answers with."""
    match statement:
        case ShowDatabases(pattern):
            names = [(entry.name,) for entry in catalog_of(context.engine).databases(pattern)]
            return Rows(schema=_texts("namespace"), rows=names)
        case ShowTables(database=database, pattern=pattern):
            return Rows(
                schema=Struct(
                    (
                        Field("namespace", _TEXT, False),
                        Field("tableName", _TEXT, False),
                        Field("isTemporary", Primitive("boolean"), False),
                    )
                ),
                rows=[
                    (entry.database, entry.name, False)
                    for entry in tables_in(
                        context.engine, context.transaction, database or context.database
                    )
                    if matches(entry.name, pattern)
                ],
            )
        case ShowDroppedTables(database=database, limit=limit):
            return dropped_tables(context, database or context.database, limit)
        case DescribeDatabase(name=name):
            entry = catalog_of(context.engine).database(name)
            if entry is None:
                raise InvalidRequest(f"there is no database {name!r}")
            rows = [
                ("Namespace Name", entry.name),
                ("Comment", entry.comment or ""),
                ("Isolation Level", entry.isolation or ""),
            ]
            if statement.extended:
                given = (f"({key},{value})" for key, value in sorted(entry.properties.items()))
                rows.append(("Properties", f"({', '.join(given)})" if entry.properties else ""))
            return Rows(schema=_texts("info_name", "info_value"), rows=rows)
        case ExplainConflicts(explained):
            return explain_conflicts(context, explained)
        case DescribeQuery(query):
            return schema_rows(context.query(query).schema)
        case _:
            if isinstance(statement, DescribeTable | ShowColumns | ShowCreateTable) and (
                view := _view(context, statement.table)
            ):
                return described(context, statement, view)
            return context.described(statement)


def _view(context: Context, table: Table) -> Viewed | None:
    if not isinstance(table, TableName) or context.find(table) is not None:
        return None
    return context.viewed(table)


def _texts(*names: str) -> Struct:
    return Struct(tuple(Field(name, _TEXT, False) for name in names))
