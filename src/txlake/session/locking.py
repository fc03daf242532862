"""Which locks a statement takes on the tables that it names.

The modes are those of Microsoft's "Understanding Locking and DDL Blocking in Microsoft Fabric Data
Warehouse": Sch-S to read, IX to change rows, Sch-M to change what a table is. Statements that
Fabric doesn't have go by what they do. Owns the choice; the names become objects elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import assert_never

from txlake.conflict.locking import LockMode, combined
from txlake.statements import (
    AddColumns,
    AddConstraint,
    AddFeature,
    AlterColumn,
    AlterView,
    AnalyzeTable,
    Atomic,
    Clone,
    ClusterBy,
    ConvertToDelta,
    CopyInto,
    CreateTable,
    CreateTableLike,
    CreateTemporaryView,
    CreateView,
    Delete,
    DropColumns,
    DropConstraint,
    DropFeature,
    DropKey,
    DropTable,
    DropView,
    ExplainConflicts,
    Generate,
    Insert,
    KeyConstraint,
    LockTable,
    Merge,
    Optimize,
    Reference,
    RefreshTable,
    RenameColumn,
    RenameTable,
    RenameView,
    Reorg,
    ReplaceColumns,
    Restore,
    Select,
    SetComment,
    SetProperties,
    ShowColumns,
    ShowCreateTable,
    ShowDatabases,
    ShowDroppedTables,
    ShowPartitions,
    ShowProperties,
    ShowTables,
    ShowViews,
    SparkCommand,
    SqlText,
    Statement,
    Table,
    TableName,
    TablePath,
    Truncate,
    UndropTable,
    UnsetProperties,
    Update,
    UpgradeProtocol,
    Vacuum,
    Write,
)
from txlake.statements.control import ControlStatement
from txlake.statements.inspection import (
    DatabaseStatement,
    DescribeDatabase,
    DescribeQuery,
    DescribeTable,
)
from txlake.statements.maintenance import DescribeDetail, DescribeHistory

TableLock = tuple[Table, LockMode]


def locks_of(statement: Statement) -> list[TableLock]:
    """The locks that a statement takes: each table once, by the strongest mode that it needs.

    First what it changes, then what it reads: subqueries and tables of another time too, in the
    order of the text. What the texts name may be no table of a lake (a view of Spark's). For a
    table that a statement creates see `leaves_existing`. The statements of a BEGIN ATOMIC take
    theirs when they run.
    """
    read = [(reference.table, LockMode.SCH_S) for reference in references_of(statement)]
    found: dict[Table, TableLock] = {}
    for table, mode in (*_named(statement), *read):
        first, held = found.get(_folded(table), (table, mode))
        found[_folded(table)] = (first, combined(held, mode))
    return list(found.values())


def leaves_existing(statement: Statement) -> bool:
    """Whether it makes a table, and changes nothing where there is one: Sch-S will do on that."""
    if isinstance(statement, Write):
        return statement.mode in ("error", "ignore")
    if isinstance(statement, CreateTable | CreateTableLike | Clone):
        return statement.mode in ("create", "if_not_exists")
    return isinstance(statement, UndropTable)


def _named(statement: Statement) -> list[TableLock]:
    """The tables that the statement itself names, outside of its texts."""
    match statement:
        case (
            Insert()
            | Delete()
            | Update()
            | CopyInto()
            | Optimize()
            | Reorg()
            | Vacuum()
            | AnalyzeTable(delta=True)
        ):
            return [(statement.table, LockMode.IX)]
        case Write():
            mode = LockMode.SCH_M if leaves_existing(statement) else LockMode.IX
            return [(statement.table, mode)]
        case Merge():
            return [(statement.target, LockMode.IX)]
        case LockTable(tables=tables):
            return [(table, LockMode.X) for table in tables]
        case CreateView() | AlterView() | DropView():
            return [(statement.view, LockMode.SCH_M)]
        case RenameView(view, new_view):
            return [(view, LockMode.SCH_M), (new_view, LockMode.SCH_M)]
        case RenameTable(table, new_table):
            return [(table, LockMode.SCH_M), (new_table, LockMode.SCH_M)]
        case UndropTable(table):
            return [] if table is None else [(table, LockMode.SCH_M)]
        case CreateTableLike() | Clone():
            return [(statement.table, LockMode.SCH_M), (statement.source, LockMode.SCH_S)]
        case ConvertToDelta(location=location):
            return [(TablePath(location), LockMode.SCH_M)]
        case (
            CreateTable()
            | DropTable()
            | Truncate()
            | Restore()
            | SetProperties()
            | UnsetProperties()
            | AddColumns()
            | DropColumns()
            | ReplaceColumns()
            | RenameColumn()
            | AlterColumn()
            | AddConstraint()
            | DropConstraint()
            | DropKey()
            | AddFeature()
            | DropFeature()
            | UpgradeProtocol()
            | ClusterBy()
            | SetComment()
        ):
            return [(statement.table, LockMode.SCH_M), *_parents(statement)]
        case (
            Generate()
            | AnalyzeTable()
            | RefreshTable()
            | DescribeTable()
            | DescribeHistory()
            | DescribeDetail()
            | ShowCreateTable()
            | ShowProperties()
            | ShowColumns()
            | ShowPartitions()
        ):
            return [(statement.table, LockMode.SCH_S)]
        case ExplainConflicts(explained):
            return [(table, LockMode.SCH_S) for table, _ in _named(explained)]
        case (
            Select()
            | SparkCommand()
            | DescribeQuery()
            | DescribeDatabase()
            | ShowDatabases()
            | ShowTables()
            | ShowDroppedTables()
            | ShowViews()
            | CreateTemporaryView()
        ):
            return []
        case _ if isinstance(statement, DatabaseStatement | ControlStatement):
            return []
        case _:
            assert_never(statement)


def _parents(statement: Statement) -> list[TableLock]:
    """The tables that its foreign keys refer to."""
    constraints: tuple[object, ...] = ()
    if isinstance(statement, CreateTable):
        constraints = statement.keys
    elif isinstance(statement, AddConstraint):
        constraints = (statement.constraint,)
    return [
        (key.parent, LockMode.SCH_S)
        for key in constraints
        if isinstance(key, KeyConstraint) and key.parent is not None
    ]


def references_of(part: object) -> Iterator[Reference]:
    """What the texts in a statement, or in a part of one, read; those of BEGIN ATOMIC left out."""
    if isinstance(part, SqlText):
        yield from part.references
    elif isinstance(part, Atomic):
        return
    elif isinstance(part, tuple):
        for one in part:
            yield from references_of(one)
    elif is_dataclass(part):
        for item in fields(part):
            yield from references_of(getattr(part, item.name))


def _folded(table: Table) -> Table:
    if isinstance(table, TableName):
        return TableName(tuple(part.lower() for part in table.parts))
    return table
