"""What is carried out for callers who may send SQL and don't own the machine.

Owns the list of statements that are served, to read and to change, and the judgement of a script
before it runs. What a query of one does is judged again on its analysed plan, before it runs
(`txlake.spark.served`).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence

from txlake.commands import COMMANDS
from txlake.session.command import words_of
from txlake.session.controls import CONTROLS
from txlake.statements import (
    AddColumns,
    AddConstraint,
    AddFeature,
    AlterColumn,
    AlterDatabase,
    AlterView,
    AlterViewSchema,
    AnalyzeTable,
    Atomic,
    Begin,
    Clone,
    ClusterBy,
    Commit,
    CreateDatabase,
    CreateTable,
    CreateTableLike,
    CreateView,
    Delete,
    DescribeDatabase,
    DescribeDetail,
    DescribeHistory,
    DescribeQuery,
    DescribeTable,
    DropColumns,
    DropConstraint,
    DropDatabase,
    DropFeature,
    DropKey,
    DropTable,
    DropView,
    ExplainConflicts,
    Insert,
    Kill,
    LockTable,
    Merge,
    Optimize,
    ReadChanges,
    ReleaseSavepoint,
    RenameColumn,
    RenameTable,
    RenameView,
    Reorg,
    ReplaceColumns,
    Restore,
    Rollback,
    RollbackTo,
    Savepoint,
    Select,
    SetComment,
    SetIsolation,
    SetLockTimeout,
    SetProperties,
    SetXactAbort,
    ShowColumns,
    ShowCreateTable,
    ShowDatabases,
    ShowDroppedTables,
    ShowIsolation,
    ShowPartitions,
    ShowProperties,
    ShowTables,
    ShowViews,
    SqlText,
    Statement,
    SyncIdentity,
    TableName,
    TablePath,
    TimeTravel,
    Truncate,
    UndropTable,
    UnsetProperties,
    Update,
    UpgradeProtocol,
    UseDatabase,
    Vacuum,
)
from txlake.statements.calls import NO_PLACES, refusal_of_expression, refusal_of_served
from txlake.statements.scripting import DeclareVariable, ForEach, SetVariables

READS: frozenset[type] = frozenset(
    {
        *(Select, ReadChanges, Begin, Commit, Rollback),
        *(Savepoint, RollbackTo, ReleaseSavepoint),
        *(SetIsolation, SetLockTimeout, SetXactAbort, ShowIsolation, UseDatabase),
        *(ShowColumns, ShowCreateTable, ShowDatabases, ShowDroppedTables, ShowPartitions),
        *(ShowProperties, ShowTables, ShowViews, ExplainConflicts),
        *(DescribeDatabase, DescribeDetail, DescribeHistory, DescribeQuery, DescribeTable),
    }
)
"""What a token that may only read may run."""

CHANGES: frozenset[type] = frozenset(
    {
        *(Insert, Update, Delete, Merge, Truncate, Atomic, LockTable, Kill),
        *(CreateTable, CreateTableLike, Clone, DropTable, UndropTable, RenameTable, Restore),
        *(AddColumns, DropColumns, ReplaceColumns, RenameColumn, AlterColumn, SyncIdentity),
        *(AddConstraint, DropConstraint, DropKey, SetComment, SetProperties, UnsetProperties),
        *(AddFeature, DropFeature, UpgradeProtocol, ClusterBy),
        *(CreateView, AlterView, AlterViewSchema, RenameView, DropView),
        *(CreateDatabase, AlterDatabase, DropDatabase),
        *(Optimize, Reorg, Vacuum, AnalyzeTable),
    }
)
"""What a token that may write may run besides."""

# They set variables of Spark's session, which all callers have in common.
_OF_THE_SESSION = frozenset({DeclareVariable, SetVariables, ForEach})
_KINDS = frozenset({*COMMANDS, *CONTROLS})
_PLACE = re.compile(r"[/\\:]")


def refusal(statements: Sequence[Statement]) -> str | None:
    """Return why a script isn't carried out; None where it may be."""
    parts = (part for statement in statements for part in parts_of(statement))
    reasons = map(_refusal_of, parts)
    return next((reason for reason in reasons if reason is not None), None)


def may_only_change(part: object) -> bool:
    """Whether a part of a script is a statement that a token which only reads may not run."""
    return type(part) in _KINDS and type(part) not in READS


def _refusal_of(part: object) -> str | None:
    kind = type(part)
    if kind in _OF_THE_SESSION:
        return "variables aren't served: they are of Spark's session, which all callers share"
    if kind in _KINDS and kind not in READS and kind not in CHANGES:
        return (
            f"{words_of(part)} isn't served: it reaches beyond the lake's tables, or changes what "  # type: ignore[arg-type]
            "all callers share"
        )
    if isinstance(part, SqlText):
        return refusal_of_served(part.text)
    if isinstance(part, TimeTravel) and part.timestamp_expression is not None:
        return refusal_of_expression(part.timestamp_expression)
    is_place = isinstance(part, TablePath) or getattr(part, "location", None) is not None
    if is_place or (isinstance(part, TableName) and any(map(_PLACE.search, part.parts))):
        return NO_PLACES
    return None


def parts_of(part: object) -> Iterator[object]:
    """A statement and all that it is made of."""
    yield part
    if isinstance(part, Mapping):
        for one in part.values():
            yield from parts_of(one)
    elif isinstance(part, tuple | list | frozenset):
        for one in part:
            yield from parts_of(one)
    elif dataclasses.is_dataclass(part):
        for item in dataclasses.fields(part):
            yield from parts_of(getattr(part, item.name))
