"""Statements about views: queries that have a name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from txlake.statements.expressions import SqlText
from txlake.statements.names import TableName

SchemaMode = Literal["binding", "compensation", "type evolution", "evolution"]
"""What becomes of a view's columns when a table changes that it reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSchema:
    """What a view promises of its columns, however the tables change that it reads.

    Attributes:
        output: the names of the query's columns when the query was given.
        columns: the view's columns then, a schema in Spark's JSON.
    """

    mode: SchemaMode
    output: tuple[str, ...]
    columns: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateView:
    """CREATE [OR REPLACE] VIEW [IF NOT EXISTS] name [(columns)] AS query, kept in the lake.

    Attributes:
        columns: names and comments of the columns; empty for those of the query.
        schema_mode: None for the one that the Spark session's settings give.
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
        query: the query in it, and where it begins.
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
    """DROP VIEW [IF EXISTS] name; `command` is the statement as Spark drops a temporary view."""

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
