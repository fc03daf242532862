"""SHOW and DESCRIBE: the commands.

Owns the rows that come from the catalog; `session.views.describe` has those of a table's own state.
"""

from __future__ import annotations

import logging
from typing import get_args

from txlake.catalog import matches
from txlake.commands.views import DESCRIBED, describe_view, schema_rows
from txlake.conflict.locking import LockMode
from txlake.errors import InvalidRequest, TxlakeError
from txlake.protocol.type_text import short_text
from txlake.protocol.types import Field, Primitive, Struct
from txlake.session.command import command, giving_rows, its_table, no_table, served
from txlake.session.context import Context
from txlake.session.plain_queries import plain_schema
from txlake.session.unknown_names import tables_in
from txlake.session.view_queries import Viewed
from txlake.session.views.describe import Inspection, Rows
from txlake.session.views.table_extended import extended_text
from txlake.sql.statements import (
    DescribeDatabase,
    DescribeQuery,
    DescribeTable,
    ShowColumns,
    ShowCreateTable,
    ShowDatabases,
    ShowTables,
    Table,
    TableName,
)

_logger = logging.getLogger(__name__)

_TEXT = Primitive("string")
_TABLES = Struct(
    (
        Field("namespace", _TEXT, False),
        Field("tableName", _TEXT, False),
        Field("isTemporary", Primitive("boolean"), False),
    )
)


def show_databases(context: Context, statement: ShowDatabases) -> Rows:
    """Carry out SHOW DATABASES [LIKE pattern]."""
    databases = context.engine.catalog.databases()
    names = [(entry.name,) for entry in databases if matches(entry.name, statement.pattern)]
    return Rows(schema=_text_columns("namespace"), rows=names)


def show_tables(context: Context, statement: ShowTables) -> Rows:
    """Carry out SHOW TABLES and SHOW TABLE EXTENDED.

    The former lists tables only, with the transaction's own changes. Raises InvalidRequest for an
    unknown database.
    """
    if statement.extended:
        return show_table_extended(context, statement)
    tables = tables_in(
        context.engine, context.transaction, statement.database or context.tables.database
    )
    rows = [
        (entry.database, entry.name, False)
        for entry in tables
        if matches(entry.name, statement.pattern)
    ]
    return Rows(schema=_TABLES, rows=rows)


def show_table_extended(context: Context, statement: ShowTables) -> Rows:
    """Carry out SHOW TABLE EXTENDED: list tables and views with a text of details in Spark's form.

    The text of a table that can't be read has no columns. Raises InvalidRequest for an unknown
    database.
    """
    database = statement.database or context.tables.database
    rows: list[tuple[object, ...]] = []
    for entry in tables_in(context.engine, context.transaction, database):
        if matches(entry.name, statement.pattern):
            details = extended_text(
                entry.database,
                entry.name,
                kind="MANAGED" if entry.managed else "EXTERNAL",
                location=entry.location,
                schema=_schema_of(context, TableName((entry.database, entry.name))),
            )
            rows.append((entry.database, entry.name, False, details))
    for view in context.tables.lake_views(database):
        if matches(view.name, statement.pattern):
            details = extended_text(view.database, view.name, kind="VIEW", text=view.query)
            rows.append((view.database, view.name, False, details))
    return Rows(schema=Struct((*_TABLES.fields, Field("information", _TEXT, False))), rows=rows)


def _schema_of(context: Context, table: TableName) -> Struct | None:
    """Return the table's columns; None, with a warning in the log, where it can't be read."""
    try:
        return context.snapshot(context.tables.require(table)).schema
    except TxlakeError as error:
        _logger.warning("%s is listed without its columns: %s", table, error)
        return None


def describe_database(context: Context, statement: DescribeDatabase) -> Rows:
    """Carry out DESCRIBE DATABASE [EXTENDED]. Raises InvalidRequest for an unknown database."""
    entry = context.engine.catalog.database(statement.name)
    if entry is None:
        raise InvalidRequest(f"there is no database {statement.name!r}")
    rows = [
        ("Namespace Name", entry.name),
        ("Comment", entry.comment or ""),
        ("Isolation Level", entry.isolation or ""),
    ]
    if statement.extended:
        properties = (f"({key},{value})" for key, value in sorted(entry.properties.items()))
        rows.append(("Properties", f"({', '.join(properties)})" if entry.properties else ""))
    return Rows(schema=_text_columns("info_name", "info_value"), rows=rows)


def describe_query(context: Context, statement: DescribeQuery) -> Rows:
    """Carry out DESCRIBE QUERY. Of a plain query the driver knows the columns (`plain_schema`)."""
    plain = plain_schema(context, statement.query)
    if plain is None:
        return schema_rows(context.query(statement.query).schema)
    rows = [(item.name, short_text(item.type), None) for item in plain]
    return Rows(schema=DESCRIBED, rows=rows)


def show_table(context: Context, statement: Inspection) -> Rows:
    """Carry out a SHOW or DESCRIBE of one table or view.

    Raises InvalidRequest for an unknown name, and for a view where only tables have an answer.
    """
    if isinstance(statement, DescribeTable | ShowColumns | ShowCreateTable) and (
        view := _find_view(context, statement.table)
    ):
        return describe_view(context, statement, view)
    return context.described(statement)


def _find_view(context: Context, table: Table) -> Viewed | None:
    """Return the view of a name; None for tables, paths and unknown names."""
    if not isinstance(table, TableName) or context.tables.find(table) is not None:
        return None
    return context.tables.viewed(table)


def _text_columns(*names: str) -> Struct:
    return Struct(tuple(Field(name, _TEXT, False) for name in names))


COMMANDS = served(
    command(ShowDatabases, giving_rows(show_databases), no_table, writes=False),
    command(ShowTables, giving_rows(show_tables), no_table, writes=False),
    command(DescribeDatabase, giving_rows(describe_database), no_table, writes=False),
    command(DescribeQuery, giving_rows(describe_query), no_table, writes=False),
    *(
        command(kind, giving_rows(show_table), its_table(LockMode.SCH_S), writes=False)
        for kind in get_args(Inspection)
    ),
)
