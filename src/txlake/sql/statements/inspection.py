"""Statements on databases, and SHOW, DESCRIBE and EXPLAIN CONFLICTS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from txlake.sql.statements.data import Delete, Insert, Merge, Truncate, Update
from txlake.sql.statements.descriptions import DescribeTable
from txlake.sql.statements.expressions import SqlText
from txlake.sql.statements.maintenance import Optimize
from txlake.sql.statements.names import Table

ExplainableStatement = Insert | Delete | Update | Merge | Truncate | Optimize
Isolation = Literal["serializable", "write_serializable", "snapshot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDatabase:
    """CREATE { DATABASE | SCHEMA }, Redshift's ISOLATION LEVEL included."""

    name: str
    if_not_exists: bool = False
    comment: str | None = None
    location: str | None = None
    properties: tuple[tuple[str, str], ...] = ()
    isolation: Isolation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DropDatabase:
    """DROP { DATABASE | SCHEMA } [CASCADE]."""

    name: str
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class AlterDatabase:
    """ALTER DATABASE ... ISOLATION LEVEL, or SET DBPROPERTIES."""

    name: str
    isolation: Isolation | None = None
    properties: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class UseDatabase:
    """USE [DATABASE | SCHEMA] name."""

    name: str


@dataclass(frozen=True, slots=True)
class ShowDatabases:
    """SHOW { DATABASES | SCHEMAS } [[LIKE] 'pattern']."""

    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class ShowTables:
    """SHOW TABLES [{ FROM | IN } database] [[LIKE] 'pattern'].

    `extended`: SHOW TABLE EXTENDED, which adds views and a text of details for each table.
    """

    database: str | None = None
    pattern: str | None = None
    extended: bool = False


@dataclass(frozen=True, slots=True)
class ShowDroppedTables:
    """SHOW TABLES DROPPED [{ FROM | IN } database] [LIMIT n]."""

    database: str | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class ShowCreateTable:
    """SHOW CREATE TABLE."""

    table: Table


@dataclass(frozen=True, slots=True)
class ShowProperties:
    """SHOW TBLPROPERTIES t [(key)]."""

    table: Table
    key: str | None = None


@dataclass(frozen=True, slots=True)
class ShowColumns:
    """SHOW COLUMNS { FROM | IN } t."""

    table: Table


@dataclass(frozen=True, slots=True)
class ShowPartitions:
    """SHOW PARTITIONS t."""

    table: Table


@dataclass(frozen=True, slots=True)
class ExplainConflicts:
    """EXPLAIN CONFLICTS statement: which concurrent writers would abort the statement.

    It isn't run.
    """

    statement: ExplainableStatement


@dataclass(frozen=True, slots=True)
class DescribeDatabase:
    """DESCRIBE { DATABASE | SCHEMA } [EXTENDED] name."""

    name: str
    extended: bool = False


@dataclass(frozen=True, slots=True)
class DescribeQuery:
    """DESCRIBE [QUERY] SELECT ...: the columns of its result."""

    query: SqlText


DatabaseStatement = CreateDatabase | DropDatabase | AlterDatabase | UseDatabase
InspectionStatement = (
    ShowDatabases
    | ShowTables
    | ShowDroppedTables
    | ShowCreateTable
    | ShowProperties
    | ExplainConflicts
    | ShowColumns
    | ShowPartitions
    | DescribeTable
    | DescribeDatabase
    | DescribeQuery
)
