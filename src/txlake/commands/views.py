"""CREATE, ALTER, DROP and SHOW of views, and DESCRIBE of a view.

Others see a transaction's changes of views once it commits. One that reads a view, or changes it,
holds a lock on it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.errors import AnalysisException
from pyspark.sql.types import StructType

from txlake.catalog import matches
from txlake.catalog.views import ViewEntry, stored_properties
from txlake.conflict.locking import LockMode
from txlake.errors import InvalidRequest
from txlake.ports import DroppedView, WrittenView
from txlake.protocol.type_text import quoted_text
from txlake.protocol.types import Field, Primitive, Struct
from txlake.session.command import TableLock, command, giving_nothing, giving_rows, no_table, served
from txlake.session.context import Context
from txlake.session.view_queries import Viewed, viewed_entry
from txlake.session.views.describe import Rows
from txlake.spark.scan_lineage import view_alias
from txlake.sql.statements import (
    AlterView,
    AlterViewSchema,
    CreateTemporaryView,
    CreateView,
    DescribeTable,
    DropView,
    RenameView,
    SchemaMode,
    ShowColumns,
    ShowCreateTable,
    ShowViews,
    SqlText,
    TableName,
    ViewSchema,
)
from txlake.sql.statements.names import quoted

_COMPENSATION = "spark.sql.legacy.viewSchemaCompensation"
_TEXT = Primitive("string")
DESCRIBED = Struct(tuple(Field(name, _TEXT) for name in ("col_name", "data_type", "comment")))
"""The columns of DESCRIBE QUERY."""
_VIEW_LIST = Struct(
    (
        Field("namespace", _TEXT, False),
        Field("viewName", _TEXT, False),
        Field("isTemporary", Primitive("boolean"), False),
    )
)


def create_view(context: Context, statement: CreateView) -> None:
    """Carry out CREATE [OR REPLACE] VIEW: the catalog keeps the view's text.

    Raises InvalidRequest for an unknown database, for a table of the name, for a view of the name
    without OR REPLACE or IF NOT EXISTS, and as `_view_schema`.
    """
    catalog = context.engine.catalog.of_lake()
    owner, name = context.tables.qualified(statement.view)
    database = catalog.database(owner)
    if database is None or context.tables.lacks_database(statement.view):
        raise InvalidRequest(f"there is no database {owner!r}; CREATE DATABASE {owner} makes it")
    if context.tables.find(statement.view) is not None:
        raise InvalidRequest(f"{statement.view} is a table; choose another name for the view")
    existing = context.tables.lake_view(owner, name)
    if existing is not None and statement.mode == "if_not_exists":
        return
    if existing is not None and statement.mode == "create":
        raise InvalidRequest(
            f"view {statement.view} exists already; use IF NOT EXISTS or OR REPLACE"
        )
    schema = _view_schema(
        context,
        TableName((owner, name)),
        statement.query,
        statement.columns,
        statement.schema_mode or _default_mode(context),
    )
    if existing is None:
        existing = ViewEntry(
            id=context.engine.system.new_id(),
            number=0,  # the catalog gives it one
            database=database.name,
            database_number=database.number,
            name=name,
            query="",
            columns=(),
        )
    _write(
        context,
        replace(
            existing,
            query=statement.query.text,
            columns=statement.columns,
            comment=statement.comment,
            properties=dict(statement.properties),
            schema=schema,
        ),
    )


def _write(context: Context, entry: ViewEntry, before: ViewEntry | None = None) -> None:
    """Stage a view as it is to be; `before` is the view under its earlier name.

    Raises as `Transaction.change_name`.
    """
    change = WrittenView(
        id=entry.id,
        database=entry.database,
        name=entry.name,
        query=entry.query,
        columns=entry.columns,
        comment=entry.comment,
        properties=stored_properties(entry.properties, entry.schema),
        is_new=not entry.number and not _is_staged(context, entry),
        branch=context.engine.catalog.branch,
    )
    gone = {} if before is None else {(before.database, before.name): None}
    context.transaction.change_name(change, views={**gone, (entry.database, entry.name): entry})


def _is_staged(context: Context, entry: ViewEntry) -> bool:
    """Return whether the transaction has written the view before."""
    changes = context.transaction.names.changes
    return any(isinstance(change, WrittenView) and change.id == entry.id for change in changes)


def _default_mode(context: Context) -> SchemaMode:
    """Return the session's default for WITH SCHEMA."""
    compensates = context.plane.setting(_COMPENSATION, "true").lower() == "true"
    return "compensation" if compensates else "binding"


def _view_schema(
    context: Context,
    view: TableName,
    query: SqlText,
    columns: Sequence[tuple[str, str | None]],
    mode: SchemaMode,
) -> ViewSchema:
    """Plan a view's query. Return the schema that the view keeps.

    Raises InvalidRequest for a query that reads the view itself or a temporary view, that can't be
    planned, or has a column name twice, and for a column list whose length isn't the query's.
    """
    for reference in query.references:
        if isinstance(reference.table, TableName) and context.tables.is_temporary(reference.table):
            raise InvalidRequest(
                f"view {view} can't read {reference.table}, a temporary view of this Spark session "
                "alone; CREATE TEMPORARY VIEW can"
            )
    planned = Viewed(
        name=str(view),
        database=view.parts[0],
        query=query,
        columns=tuple(name for name, _ in columns),
    )
    # Names in a view's text are resolved in the view's database, now and later.
    schema, names = _planned_schema(context, planned, mode)
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise InvalidRequest(
            f"view {view}: column {duplicate!r} is there twice; give it another name"
        )
    return schema


def _planned_schema(
    context: Context, view: Viewed, mode: SchemaMode
) -> tuple[ViewSchema, list[str]]:
    """Plan a view's query. Return the schema that the view keeps, in which `mode` is recorded, and
    the view's column names in lower case: its own, if it has a column list, else the query's.
    """
    # No rows are read: what others commit to the tables meanwhile doesn't matter.
    planning = replace(context, records_reads=False)
    rows = planning.view_rows(replace(view, columns=()))
    columns = planning.named(view, rows).schema
    schema = ViewSchema(mode=mode, output=tuple(rows.columns), columns=columns.json())
    return schema, [name.lower() for name in columns.names]


def create_temporary_view(context: Context, statement: CreateTemporaryView) -> None:
    """Carry out CREATE TEMPORARY VIEW in Spark.

    A view over tables of the lake is planned anew whenever SQL of this lake uses it; Spark itself
    reads the table versions of its creation.
    """
    query = statement.query
    if not any(_is_of_lake(context, reference.table) for reference in query.references):
        context.command(statement.command)
        return
    name = TableName(statement.name)
    mark = view_alias(str(name), context.engine.system.new_id())
    view = Viewed(
        name=str(name), database=context.tables.database, query=query, columns=statement.columns
    )
    schema, _ = _planned_schema(context, view, _default_mode(context))
    start, end = f"{statement.command.text[: statement.query_at]}SELECT * FROM (", f") AS `{mark}`"
    references = tuple(reference.moved(len(start)) for reference in query.references)
    context.command(SqlText(start + query.text + end, references))
    context.engine.temporary_views.put(mark, replace(view, schema=schema))


def _is_of_lake(context: Context, table: object) -> bool:
    """Return whether a reference is a table, view or system view of the lake; True for paths."""
    if not isinstance(table, TableName):
        return True
    return (
        context.tables.find(table) is not None
        or context.tables.viewed(table) is not None
        or context.catalog_view(table.parts) is not None
    )


def _require_view(context: Context, view: TableName) -> Viewed:
    """Return the lake's view of a name. Raises InvalidRequest for a table and for unknown names."""
    owner, _ = context.tables.qualified(view)
    existing = context.tables.viewed(view)
    if existing is None or existing.entry is None:
        problem = "is a table" if context.tables.find(view) is not None else "doesn't exist"
        raise InvalidRequest(f"view {view} {problem}; SHOW VIEWS IN {owner} lists the views")
    return existing


def alter_view(context: Context, statement: AlterView) -> None:
    """Carry out ALTER VIEW ... AS. Raises InvalidRequest as `_view_schema`.

    The column names stay if the new query has as many columns.
    """
    entry = _require_view(context, statement.view).entry
    assert entry is not None, "the lake's own"
    name = TableName((entry.database, entry.name))
    mode = _default_mode(context) if entry.schema is None else entry.schema.mode
    schema = _view_schema(context, name, statement.query, (), mode)
    columns = entry.columns if len(entry.columns) == len(schema.output) else ()
    if columns:
        schema = _view_schema(context, name, statement.query, columns, mode)
    _write(context, replace(entry, query=statement.query.text, columns=columns, schema=schema))


def alter_view_schema(context: Context, statement: AlterViewSchema) -> None:
    """Carry out ALTER VIEW ... WITH SCHEMA: keep the view's columns by another mode.

    Raises InvalidRequest if there is no such view.
    """
    entry = _require_view(context, statement.view).entry
    assert entry is not None, "the lake's own"
    schema = entry.schema
    if schema is None:
        view = viewed_entry(entry, context.plane.relations)
        name = TableName((entry.database, entry.name))
        schema = _view_schema(context, name, view.query, entry.columns, statement.schema_mode)
    _write(context, replace(entry, schema=replace(schema, mode=statement.schema_mode)))


def rename_view(context: Context, statement: RenameView) -> None:
    """Carry out ALTER VIEW ... RENAME TO.

    Raises InvalidRequest if there is no such view or database, or a table or another view has the
    new name.
    """
    entry = _require_view(context, statement.view).entry
    assert entry is not None, "the lake's own"
    new = statement.new_view
    owner, name = (entry.database, new.name) if len(new.parts) == 1 else new.parts
    if context.tables.find(TableName((owner, name))) is not None:
        raise InvalidRequest(f"{owner}.{name} is a table; choose another name for the view")
    database = context.engine.catalog.database(owner)
    if database is None:
        raise InvalidRequest(f"there is no database {owner!r}; CREATE DATABASE {owner} makes it")
    other = context.tables.lake_view(owner, name)
    if other is not None and other.id != entry.id:
        raise InvalidRequest(f"view {owner}.{name} exists already; choose another name")
    renamed = replace(entry, database=database.name, database_number=database.number, name=name)
    _write(context, renamed, before=entry)


def drop_view(context: Context, statement: DropView) -> None:
    """Drop the lake's view of the name, or else Spark's temporary one.

    Raises InvalidRequest for a table, and for no view without IF EXISTS.
    """
    view = statement.view
    existing = context.tables.viewed(view)
    if existing is not None and existing.entry is not None:
        entry = existing.entry
        dropped = DroppedView(id=entry.id)
        context.transaction.change_name(dropped, views={(entry.database, entry.name): None})
    elif context.tables.find(view) is not None:
        raise InvalidRequest(f"{view} is a table; DROP TABLE {view} drops it")
    elif existing is not None or context.tables.is_temporary(view):
        context.command(statement.command)
    elif not statement.if_exists:
        raise InvalidRequest(f"there is no view {view}; SHOW VIEWS lists them")


def show_views(context: Context, statement: ShowViews) -> Rows:
    """Carry out SHOW VIEWS, Spark's temporary views included, whose namespace is empty."""
    database = statement.database or context.tables.database
    rows: list[tuple[object, ...]] = [
        (entry.database, entry.name, False)
        for entry in context.tables.lake_views(database)
        if matches(entry.name, statement.pattern)
    ]
    rows += [
        ("", name, True)
        for name in context.tables.temporary_names()
        if matches(name, statement.pattern)
    ]
    return Rows(schema=_VIEW_LIST, rows=rows)


def describe_view(
    context: Context, statement: DescribeTable | ShowColumns | ShowCreateTable, view: Viewed
) -> Rows:
    """Carry out DESCRIBE, SHOW COLUMNS and SHOW CREATE TABLE of a view.

    Raises InvalidRequest for an unknown column.
    """
    if isinstance(statement, ShowCreateTable):
        return Rows(
            schema=Struct((Field("createtab_stmt", _TEXT, False),)),
            rows=[(_create_statement(view),)],
        )
    schema = _schema_of(context, view)
    if isinstance(statement, ShowColumns):
        names = [(name,) for name in schema.names]
        return Rows(schema=Struct((Field("col_name", _TEXT, False),)), rows=names)
    comments = dict(view.entry.columns) if view.entry is not None else {}
    column_rows = schema_rows(schema)
    if statement.column is not None:
        return _describe_column(view, statement.column, column_rows, comments)
    rows: list[tuple[object, ...]] = [
        (name, kind, comments.get(str(name))) for name, kind, _ in column_rows.rows
    ]
    if statement.extended:
        rows += _detail_rows(view)
    return replace(column_rows, rows=rows)


def _schema_of(context: Context, view: Viewed) -> StructType:
    """Return a view's columns; as it was created if its query can't be planned any more.

    Raises the error of the plan for a view that recorded no columns.
    """
    try:
        return context.view_rows(view).schema
    except (AnalysisException, InvalidRequest):
        if view.schema is None:
            raise
        return StructType.fromJson(json.loads(view.schema.columns))


def _describe_column(
    view: Viewed, path: Sequence[str], column_rows: Rows, comments: Mapping[str, str | None]
) -> Rows:
    """Return the rows of DESCRIBE for one column, as for a table's column.

    Raises InvalidRequest for an unknown or nested column.
    """
    name = ".".join(path)
    column = next((row for row in column_rows.rows if str(row[0]).lower() == name.lower()), None)
    if column is None:
        raise InvalidRequest(f"{view.name} has no column {name}; DESCRIBE {view.name} lists them")
    schema = Struct(tuple(Field(field, _TEXT, False) for field in ("info_name", "info_value")))
    facts = (
        ("col_name", column[0]),
        ("data_type", column[1]),
        ("comment", comments.get(str(column[0]))),
    )
    return Rows(
        schema=schema, rows=[(label, "NULL" if value is None else value) for label, value in facts]
    )


def schema_rows(schema: StructType) -> Rows:
    """Return the rows of DESCRIBE QUERY for a schema."""
    rows = [(item.name, item.dataType.simpleString(), None) for item in schema]
    return Rows(schema=DESCRIBED, rows=rows)


def _detail_rows(view: Viewed) -> list[tuple[object, ...]]:
    """Return the rows that DESCRIBE EXTENDED adds for a view."""
    comment = "" if view.entry is None else view.entry.comment or ""
    return [
        ("", "", ""),
        ("# Detailed Table Information", "", ""),
        ("Name", view.name, ""),
        ("Type", "VIEW", ""),
        ("Comment", comment, ""),
        ("View Text", view.query.text, ""),
        *([] if view.schema is None else [("View Schema Mode", view.schema.mode.upper(), "")]),
    ]


def _create_statement(view: Viewed) -> str:
    """Return the CREATE VIEW statement of a view."""
    entry = view.entry
    kind = "TEMPORARY VIEW" if entry is None else "VIEW"
    parts = [f"CREATE {kind} {view.name}"]
    columns = entry.columns if entry is not None else tuple((name, None) for name in view.columns)
    if columns:
        listed = (
            quoted(name) + ("" if comment is None else f" COMMENT {quoted_text(comment)}")
            for name, comment in columns
        )
        parts.append(f"({', '.join(listed)})")
    if entry is not None and entry.comment is not None:
        parts.append(f"COMMENT {quoted_text(entry.comment)}")
    if entry is not None and entry.properties:
        properties = (f"{quoted_text(k)} = {quoted_text(v)}" for k, v in entry.properties.items())
        parts.append(f"TBLPROPERTIES ({', '.join(properties)})")
    return "\n".join((*parts, f"AS {view.query.text}"))


def _view_lock(
    statement: CreateView | AlterView | AlterViewSchema | DropView,
) -> Sequence[TableLock]:
    return [(statement.view, LockMode.SCH_M)]


def _rename_locks(statement: RenameView) -> Sequence[TableLock]:
    return [(statement.view, LockMode.SCH_M), (statement.new_view, LockMode.SCH_M)]


COMMANDS = {
    **served(
        command(CreateView, giving_nothing(create_view), _view_lock),
        command(AlterView, giving_nothing(alter_view), _view_lock),
        command(AlterViewSchema, giving_nothing(alter_view_schema), _view_lock),
        command(RenameView, giving_nothing(rename_view), _rename_locks),
        command(DropView, giving_nothing(drop_view), _view_lock),
        command(ShowViews, giving_rows(show_views), no_table, writes=False),
    ),
    **dict(
        (
            command(
                CreateTemporaryView, giving_nothing(create_temporary_view), no_table, writes=False
            ),
        )
    ),
}
