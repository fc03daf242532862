"""Statements that create, change and drop tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from txlake.sql.statements.expressions import Expression, NativeType, SqlText
from txlake.sql.statements.names import Table, TableName, TimeTravel

Properties = tuple[tuple[str, str], ...]
CreateMode = Literal["create", "if_not_exists", "or_replace", "replace"]


@dataclass(frozen=True, slots=True)
class Identity:
    """GENERATED { ALWAYS | BY DEFAULT } AS IDENTITY."""

    always: bool
    start: int = 1
    step: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSpec:
    """A column's definition.

    Attributes:
        data_type: as DDL text (`decimal(10,2)`, `struct<a: int>`) or as PySpark's type.
        generated: the expression of GENERATED ALWAYS AS, as text.
        default: the expression of DEFAULT, as text.
    """

    name: str
    data_type: str | NativeType
    nullable: bool = True
    comment: str | None = None
    generated: str | None = None
    default: str | None = None
    identity: Identity | None = None


@dataclass(frozen=True, slots=True)
class CheckConstraint:
    """CONSTRAINT name CHECK (condition)."""

    name: str
    condition: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyConstraint:
    """[CONSTRAINT name] { PRIMARY | FOREIGN } KEY (columns): informational, never enforced.

    Attributes:
        parent: the table that a foreign key refers to; None for a primary key.
        parent_columns: empty for the parent's primary key.
        rely: whether the clause has RELY: optimizers may assume that the key holds.
    """

    name: str | None = None
    columns: tuple[str, ...]
    parent: Table | None = None
    parent_columns: tuple[str, ...] = ()
    rely: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable:
    """CREATE TABLE, with OR REPLACE and AS SELECT; delta-spark's table builder.

    Attributes:
        mode: `create` refuses an existing table, `if_not_exists` leaves it, `or_replace`
            replaces it, `replace` needs one.
        columns: empty where `query` defines them.
        partition_by, cluster_by: top-level columns; None without the clause, and `cluster_by` may
            name fields of structs (`a.b`).
    """

    table: Table
    columns: tuple[ColumnSpec, ...] = ()
    partition_by: tuple[str, ...] | None = None
    cluster_by: tuple[str, ...] | None = None
    properties: Properties = ()
    constraints: tuple[CheckConstraint, ...] = ()
    keys: tuple[KeyConstraint, ...] = ()
    location: str | None = None
    comment: str | None = None
    mode: CreateMode = "create"
    query: SqlText | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTableLike:
    """CREATE TABLE t LIKE other: its columns, partitioning and properties, no rows."""

    table: Table
    source: Table
    mode: CreateMode = "create"
    location: str | None = None
    properties: Properties = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Clone:
    """CREATE TABLE t [SHALLOW | DEEP] CLONE source."""

    table: Table
    source: Table
    travel: TimeTravel | None = None
    shallow: bool = False
    mode: CreateMode = "create"
    properties: Properties = ()
    location: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTable:
    """DROP TABLE. `purge`: remove the files at once; UNDROP TABLE can't restore the table."""

    table: Table
    if_exists: bool = False
    purge: bool = False


@dataclass(frozen=True, slots=True)
class UndropTable:
    """UNDROP TABLE { name | WITH ID 'id' }: exactly one of the two is set."""

    table: TableName | None = None
    table_id: str | None = None


@dataclass(frozen=True, slots=True)
class First:
    """The column comes first."""


@dataclass(frozen=True, slots=True)
class After:
    """The column comes after `column` of the same struct."""

    column: str


Position = First | After


@dataclass(frozen=True, slots=True)
class SetProperties:
    """ALTER TABLE ... SET TBLPROPERTIES."""

    table: Table
    properties: Properties


@dataclass(frozen=True, slots=True)
class UnsetProperties:
    """ALTER TABLE ... UNSET TBLPROPERTIES."""

    table: Table
    keys: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedColumn:
    """A new column in the struct at the path `parent` (() for the table itself)."""

    column: ColumnSpec
    parent: tuple[str, ...] = ()
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class AddColumns:
    """ALTER TABLE ... ADD COLUMNS."""

    table: Table
    columns: tuple[AddedColumn, ...]
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropColumns:
    """ALTER TABLE ... DROP COLUMNS; each column is a path."""

    table: Table
    columns: tuple[tuple[str, ...], ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ReplaceColumns:
    """ALTER TABLE ... REPLACE COLUMNS."""

    table: Table
    columns: tuple[ColumnSpec, ...]


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """ALTER TABLE ... RENAME COLUMN path TO new_name."""

    table: Table
    column: tuple[str, ...]
    new_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterColumn:
    """ALTER TABLE ... ALTER COLUMN; None leaves an attribute as it is.

    Attributes:
        nullable: True for DROP NOT NULL, False for SET NOT NULL.
        default: the text of SET DEFAULT.
    """

    table: Table
    column: tuple[str, ...]
    data_type: str | NativeType | None = None
    comment: str | None = None
    nullable: bool | None = None
    default: str | None = None
    drop_default: bool = False
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class SyncIdentity:
    """ALTER TABLE ... ALTER COLUMN column SYNC IDENTITY."""

    table: Table
    column: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AddConstraint:
    """ALTER TABLE ... ADD CONSTRAINT name { CHECK (condition) | key }."""

    table: Table
    constraint: CheckConstraint | KeyConstraint


@dataclass(frozen=True, slots=True)
class DropConstraint:
    """ALTER TABLE ... DROP CONSTRAINT."""

    table: Table
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropKey:
    """ALTER TABLE ... DROP { PRIMARY KEY | FOREIGN KEY (columns) }; None for the primary key."""

    table: Table
    columns: tuple[str, ...] | None = None
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameTable:
    """ALTER TABLE ... RENAME TO."""

    table: Table
    new_table: Table


@dataclass(frozen=True, slots=True)
class AddFeature:
    """delta-spark's `addFeatureSupport`: turn on a table feature."""

    table: Table
    feature: str


@dataclass(frozen=True, slots=True)
class DropFeature:
    """ALTER TABLE ... DROP FEATURE."""

    table: Table
    feature: str
    truncate_history: bool = False


@dataclass(frozen=True, slots=True)
class UpgradeProtocol:
    """delta-spark's `upgradeTableProtocol`."""

    table: Table
    reader_version: int
    writer_version: int


@dataclass(frozen=True, slots=True)
class ClusterBy:
    """ALTER TABLE ... CLUSTER BY; no columns for CLUSTER BY NONE."""

    table: Table
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetComment:
    """COMMENT ON TABLE; None for IS NULL."""

    table: Table
    comment: str | None


AlterStatement = (
    SetProperties
    | UnsetProperties
    | AddColumns
    | DropColumns
    | ReplaceColumns
    | RenameColumn
    | AlterColumn
    | AddConstraint
    | DropConstraint
    | DropKey
    | RenameTable
    | AddFeature
    | DropFeature
    | UpgradeProtocol
    | ClusterBy
    | SetComment
)
TableStatement = (
    CreateTable | CreateTableLike | Clone | DropTable | UndropTable | SyncIdentity | AlterStatement
)
