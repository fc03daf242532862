"""Statements about views: queries that have a name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from txlake.sql.statements.expressions import SqlText
from txlake.sql.statements.names import TableName

SchemaMode = Literal["binding", "compensation", "type evolution", "evolution"]
"""WITH SCHEMA: what happens to a view's columns when the tables that it reads change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSchema:
    """The columns that a view keeps when the tables that it reads change.

    Attributes:
        output: the names of the query's columns when the view was defined.
        columns: the view's columns at that time, a schema in Spark's JSON.
    """

    mode: SchemaMode
    output: tuple[str, ...]
    columns: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateView:
    """CREATE [OR REPLACE] VIEW [IF NOT EXISTS] name [(columns)] AS query, kept in the lake.

    Attributes:
        columns: names and comments of the columns; empty for the query's own.
        schema_mode: None for the default by the Spark session's settings.
    """

    view: TableName
    query: SqlText
    columns: tuple[tuple[str, str | None], ...] = ()
    comment: str | None = None
    properties: tuple[tuple[str, str], ...] = ()
    mode: Literal["create", "or_replace", "if_not_exists"] = "create"
    schema_mode: SchemaMode | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTemporaryView:
    """CREATE [OR REPLACE] [GLOBAL] TEMPORARY VIEW name [(columns)] AS query, of the Spark session.

    Attributes:
        command: the whole statement, for Spark.
        query: the query of the statement.
        query_at: the position of the query in the text of `command`.
    """

    name: tuple[str, ...]
    columns: tuple[str, ...]
    command: SqlText
    query: SqlText
    query_at: int


@dataclass(frozen=True, slots=True)
class AlterView:
    """ALTER VIEW name AS query."""

    view: TableName
    query: SqlText


@dataclass(frozen=True, slots=True)
class AlterViewSchema:
    """ALTER VIEW name WITH SCHEMA mode."""

    view: TableName
    schema_mode: SchemaMode


@dataclass(frozen=True, slots=True)
class RenameView:
    """ALTER VIEW name RENAME TO other."""

    view: TableName
    new_view: TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class DropView:
    """DROP VIEW [IF EXISTS] name.

    `command` is the statement for Spark, if the view is temporary.
    """

    view: TableName
    command: SqlText
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ShowViews:
    """SHOW VIEWS [{ FROM | IN } database] [[LIKE] 'pattern']."""

    database: str | None = None
    pattern: str | None = None


ViewStatement = (
    CreateView
    | CreateTemporaryView
    | AlterView
    | AlterViewSchema
    | RenameView
    | DropView
    | ShowViews
)
