"""SHOW, DESCRIBE and database statements in a session.

Owns what comes from the catalog; what comes from a table's own state is `describe`'s business.
"""

from __future__ import annotations

from txlake.catalog import Catalog
from txlake.conflict.granularity import PROPERTY as GRANULARITY
from txlake.conflict.granularity import parse_granularity
from txlake.errors import InvalidRequest
from txlake.protocol.types import Field, Primitive, Struct
from txlake.session import describe
from txlake.session.context import Context
from txlake.session.describe import Rows
from txlake.session.explaining import explain_conflicts
from txlake.session.isolation import IGNORED, parse_ignored
from txlake.session.results import schema_rows
from txlake.statements import (
    AlterDatabase,
    CreateDatabase,
    DatabaseStatement,
    DescribeDatabase,
    DescribeQuery,
    DropDatabase,
    ExplainConflicts,
    InspectionStatement,
    ShowDatabases,
    ShowTables,
)
from txlake.statements.maintenance import DescribeDetail, DescribeHistory

_TEXT = Primitive("string")


def catalog_of(context: Context) -> Catalog:
    """The lake's catalog. Raises InvalidRequest where there is none."""
    if context.engine.catalog is None:
        raise InvalidRequest("there is no lake here; open one with txlake.connect")
    return context.engine.catalog


def change_database(context: Context, statement: DatabaseStatement) -> None:
    """CREATE, ALTER and DROP DATABASE."""
    catalog = catalog_of(context)
    match statement:
        case CreateDatabase():
            context.engine.place_of(statement.name, "t")
            catalog.create_database(
                statement.name,
                if_not_exists=statement.if_not_exists,
                comment=statement.comment,
                isolation=statement.isolation,
                properties=_checked(statement.properties),
            )
        case AlterDatabase(name, isolation, properties):
            if isolation is not None:
                catalog.set_isolation(name, isolation)
            if properties:
                catalog.set_properties(name, _checked(properties))
        case DropDatabase():
            _drop_database(context, statement)
        case _:
            raise AssertionError(statement)


def _checked(properties: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """A database's properties. Raises InvalidRequest for a value that means nothing."""
    given = dict(properties)
    if GRANULARITY in given:
        parse_granularity(given[GRANULARITY])
    if IGNORED in given:
        parse_ignored(given[IGNORED])
    return given


def _drop_database(context: Context, statement: DropDatabase) -> None:
    catalog = catalog_of(context)
    if statement.if_exists and catalog.database(statement.name) is None:
        return
    for entry in catalog.drop_database(statement.name, cascade=statement.cascade):
        handle = context.engine.at_entry(entry)
        context.engine.forget(handle)
        if entry.managed:
            handle.store.delete([stored.path for stored in handle.store.list("")])


def show(
    context: Context, statement: InspectionStatement | DescribeHistory | DescribeDetail
) -> Rows:
    """The rows that the statement answers with."""
    match statement:
        case ShowDatabases(pattern):
            names = [(entry.name,) for entry in catalog_of(context).databases(pattern)]
            return Rows(schema=_texts("namespace"), rows=names)
        case ShowTables(database=database, pattern=pattern):
            owner = database or context.database
            found = catalog_of(context).tables(owner, pattern)
            return Rows(
                schema=Struct(
                    (
                        Field("namespace", _TEXT, False),
                        Field("tableName", _TEXT, False),
                        Field("isTemporary", Primitive("boolean"), False),
                    )
                ),
                rows=[(entry.database, entry.name, False) for entry in found],
            )
        case DescribeDatabase(name=name):
            entry = catalog_of(context).database(name)
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
            handle = context.require(statement.table)
            return describe.describe(statement, context.snapshot(handle), handle.log)


def _texts(*names: str) -> Struct:
    return Struct(tuple(Field(name, _TEXT, False) for name in names))
