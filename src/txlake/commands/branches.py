"""Branches and tags: the commands. `session.branches` has what they do."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from txlake.catalog import matches
from txlake.catalog.branch_rows import MAIN_NAME, BranchEntry, BranchTable
from txlake.catalog.names import MAIN
from txlake.commands import table_branches
from txlake.errors import InvalidRequest
from txlake.protocol.types import Field, Primitive, Struct
from txlake.session.branch_changes import is_renamed, row_counts
from txlake.session.branch_use import require_branch
from txlake.session.branches import (
    drop_branch,
    drop_expired,
    explain_publish,
    publish,
    rebase,
)
from txlake.session.command import Answer, answering, nothing
from txlake.session.engine import Engine
from txlake.session.session import Control, ControlScope, Session
from txlake.session.views.describe import Rows, utc_time
from txlake.sql.statements import (
    CreateBranch,
    CreateTag,
    DescribeBranch,
    DropBranch,
    DropTag,
    ExplainPublish,
    LakeInstant,
    PublishBranch,
    RebaseBranch,
    ShowBranches,
    ShowTags,
    Table,
    TimeTravel,
    UseBranch,
)

_TEXT, _LONG, _TIME = Primitive("string"), Primitive("long"), Primitive("timestamp")
_BRANCHES = Struct(
    (
        Field("name", _TEXT, False),
        Field("parent", _TEXT, False),
        Field("sequence", _LONG, False),
        Field("user_name", _TEXT),
        Field("created_time", _TIME, False),
        Field("kept_until", _TIME),
    )
)
_TABLE_BRANCHES = Struct(
    (
        Field("name", _TEXT, False),
        Field("base_version", _LONG, False),
        Field("created_version", _LONG, False),
        Field("created_time", _TIME),
    )
)
_TABLES = Struct(
    (
        Field("table", _TEXT, False),
        Field("change", _TEXT, False),
        Field("base_version", _LONG),
        Field("version", _LONG),
        Field("rows_inserted", _LONG),
        Field("rows_updated", _LONG),
        Field("rows_deleted", _LONG),
    )
)
_PUBLICATION = Struct(
    (
        Field("table", _TEXT, False),
        Field("base_version", _LONG),
        Field("newest_version", _LONG),
        Field("answer", _TEXT, False),
        Field("detail", _TEXT),
    )
)


def _create_branch(scope: ControlScope, statement: CreateBranch) -> Answer:
    """Carry out CREATE BRANCH, at once. Raises as `Branches.create`."""
    if statement.table is not None:
        _refuse_in_transaction(scope, "CREATE BRANCH ... FOR TABLE")
        table_branches.create_branch(
            scope.session,
            statement.table,
            statement.name,
            if_not_exists=statement.if_not_exists,
        )
        return nothing
    _refuse_in_transaction(scope, "CREATE BRANCH")
    scope.session.follow_setting(missing_ok=True)
    engine = scope.session.engine
    current = MAIN_NAME if engine.branch is None else engine.branch.name
    create = partial(
        engine.catalog.of_lake().branches.create,
        statement.name,
        parent=statement.origin or current,
        instant=_instant(engine, statement.at),
        user_name=_user(scope),
        retention_ms=statement.retain_ms,
        if_not_exists=statement.if_not_exists,
    )
    _create_in_place_of_expired(engine, statement.name, create)
    return nothing


def _create_tag(scope: ControlScope, statement: CreateTag) -> Answer:
    """Carry out CREATE TAG, at once. Raises as `Branches.create`."""
    _refuse_in_transaction(scope, "CREATE TAG")
    scope.session.follow_setting()
    engine = scope.session.engine
    current = MAIN_NAME if engine.branch is None else engine.branch.name
    create = partial(
        engine.catalog.of_lake().branches.create,
        statement.name,
        parent=current,
        instant=_instant(engine, statement.at),
        user_name=_user(scope),
        retention_ms=statement.retain_ms,
        if_not_exists=statement.if_not_exists,
        is_tag=True,
    )
    _create_in_place_of_expired(engine, statement.name, create)
    return nothing


def _create_in_place_of_expired(
    engine: Engine, name: str, create: Callable[[], BranchEntry]
) -> None:
    """Create a branch or a tag, after an expired one that has the name is dropped.

    Raises as `Branches.create`.
    """
    try:
        create()
    except InvalidRequest:
        expired = {entry.name.lower() for entry in engine.catalog.of_lake().branches.expired()}
        if name.lower() not in expired:
            raise
        drop_expired(engine)
        create()


def _instant(engine: Engine, at: LakeInstant | None) -> int | None:
    """Return the number of an instant; None for the newest. Raises InvalidRequest for a time
    before the lake's first instant or in the future, and for a text that is no time.
    """
    if at is None or at.sequence is not None:
        return None if at is None else at.sequence
    time_ms = engine.plane.timestamp_ms(TimeTravel(timestamp=at.timestamp))
    return engine.catalog.of_lake().branches.instant_at(time_ms)


def _user(scope: ControlScope) -> str | None:
    """Return the name of the session's user; without one that of the user whose process this is, if
    the system knows it.
    """
    if scope.session.user_name is not None:
        return scope.session.user_name
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return None


def _use_branch(scope: ControlScope, statement: UseBranch) -> Answer:
    """Carry out USE BRANCH. Raises InvalidRequest in a transaction of `lake.transaction()` too."""
    if scope.transaction is not None:
        raise InvalidRequest(
            f"USE BRANCH {statement.name}: a transaction is open, and belongs to the branch that "
            "it began on; COMMIT or ROLLBACK first"
        )
    scope.session.use_branch(statement.name)
    return nothing


def _publish(scope: ControlScope, statement: PublishBranch) -> Answer:
    """Carry out PUBLISH BRANCH. Raises as `publish`."""
    _refuse_in_transaction(scope, "PUBLISH BRANCH")
    if statement.table is not None:
        table_branches.publish(scope.session, statement.table, statement.name)
        return nothing
    publish(scope.session, statement.name, per_table=statement.per_table)
    return nothing


def _rebase(scope: ControlScope, statement: RebaseBranch) -> Answer:
    """Carry out REBASE BRANCH. Raises as `rebase`."""
    _refuse_in_transaction(scope, "REBASE BRANCH")
    if statement.table is not None:
        table_branches.rebase(scope.session, statement.table, statement.name)
        return nothing
    rebase(scope.session, statement.name)
    return nothing


def _drop_branch(scope: ControlScope, statement: DropBranch | DropTag) -> Answer:
    """Carry out DROP BRANCH and DROP TAG. Raises as `drop_branch`."""
    _refuse_in_transaction(scope, "DROP BRANCH")
    if isinstance(statement, DropBranch) and statement.table is not None:
        table_branches.drop_branch(
            scope.session, statement.table, statement.name, if_exists=statement.if_exists
        )
        return nothing
    branches = scope.session.engine.catalog.of_lake().branches
    if statement.if_exists and branches.find(statement.name) is None:
        return nothing
    drop_branch(scope.session, statement.name, is_tag=isinstance(statement, DropTag))
    return nothing


def _refuse_in_transaction(scope: ControlScope, what: str) -> None:
    """Raise InvalidRequest if a transaction is open."""
    if scope.transaction is not None:
        raise InvalidRequest(f"{what}: a transaction is open; COMMIT or ROLLBACK first")


def _show_branches(scope: ControlScope, statement: ShowBranches | ShowTags) -> Answer:
    """Return the branches, or the tags, whose names match the pattern."""
    is_tag = isinstance(statement, ShowTags)
    if isinstance(statement, ShowBranches) and statement.table is not None:
        return answering(table_branch_rows(scope.session, statement.table, statement.pattern))
    return answering(branch_rows(scope.session.engine, statement.pattern, is_tag=is_tag))


def table_branch_rows(session: Session, table: Table, pattern: str | None = None) -> Rows:
    """Return the rows of SHOW BRANCHES FOR TABLE. Raises InvalidRequest if it is no path table."""
    rows = [
        (
            one.name,
            one.base,
            one.created_version,
            None if one.created_ms is None else utc_time(one.created_ms),
        )
        for one in table_branches.open_branches(session, table, pattern)
    ]
    return Rows(schema=_TABLE_BRANCHES, rows=rows)


def branch_rows(engine: Engine, pattern: str | None, *, is_tag: bool = False) -> Rows:
    """Return the rows of SHOW BRANCHES or SHOW TAGS."""
    entries = engine.catalog.of_lake().branches.entries()
    named = {MAIN: MAIN_NAME} | {entry.number: entry.name for entry in entries}
    shown = [
        _branch_row(entry, named)
        for entry in entries
        if entry.is_tag == is_tag and matches(entry.name, pattern)
    ]
    return Rows(schema=_BRANCHES, rows=shown)


def _branch_row(entry: BranchEntry, named: Mapping[int, str]) -> tuple[object, ...]:
    kept_until = None if entry.kept_until_ms is None else utc_time(entry.kept_until_ms)
    return (
        entry.name,
        named[entry.parent],
        entry.fork_sequence,
        entry.user_name,
        utc_time(entry.created_ms),
        kept_until,
    )


def _describe_branch(scope: ControlScope, statement: DescribeBranch) -> Answer:
    """Return the tables that a branch changed. Raises InvalidRequest if there is no such branch."""
    if statement.table is not None:
        found = table_branches.changes_of(scope.session, statement.table, statement.name)
        return answering(Rows(schema=_TABLES, rows=[] if found is None else [found]))
    return answering(changed_rows(scope.session.engine, statement.name))


def changed_rows(engine: Engine, name: str) -> Rows:
    """Return the rows of DESCRIBE BRANCH. Raises InvalidRequest if there is no such branch."""
    entry = require_branch(engine, name)
    on_branch = engine.main.on_branch(entry)
    rows: list[tuple[object, ...]] = []
    for table in engine.catalog.of_lake().branches.tables(entry):
        change = _change_of(table, entry)
        if change is None:
            continue
        own = table.entry
        counted: tuple[int | None, ...] = (None, None, None)
        if not table.is_dropped:
            counts = row_counts(on_branch, table)
            counted = (counts.inserted, counts.updated, counts.deleted)
        rows.append((f"{own.database}.{own.name}", change, own.base, own.head, *counted))
    return Rows(schema=_TABLES, rows=rows)


def _change_of(table: BranchTable, entry: BranchEntry) -> str | None:
    """Return how a branch changed a table; None if it didn't, or dropped what it had created."""
    if table.entry.base is None:
        return None if table.is_dropped else "created"
    if table.is_dropped:
        return "dropped"
    found = {"changed": table.is_changed, "renamed": is_renamed(table, entry)}
    return ", ".join(what for what, holds in found.items() if holds) or None


def _explain_publish(scope: ControlScope, statement: ExplainPublish) -> Answer:
    """Return what publishing a branch would meet now. Raises as `explain_publish`."""
    if statement.table is not None:
        judged = [table_branches.explain_publish(scope.session, statement.table, statement.name)]
    else:
        judged = explain_publish(scope.session, statement.name)
    rows = [
        (
            one.name,
            one.base,
            one.newest,
            "publishes" if one.conflict is None else type(one.conflict).__name__,
            None if one.conflict is None else str(one.conflict),
        )
        for one in judged
    ]
    return answering(Rows(schema=_PUBLICATION, rows=rows))


CONTROLS: Mapping[type[Any], Control] = {
    CreateBranch: Control(run=_create_branch, is_served=True),
    CreateTag: Control(run=_create_tag, is_served=True),
    UseBranch: Control(run=_use_branch, writes=False, is_served=True),
    PublishBranch: Control(run=_publish, is_served=True),
    RebaseBranch: Control(run=_rebase, is_served=True),
    DropBranch: Control(run=_drop_branch, is_served=True),
    DropTag: Control(run=_drop_branch, is_served=True),
    ShowBranches: Control(run=_show_branches, writes=False, is_served=True),
    ShowTags: Control(run=_show_branches, writes=False, is_served=True),
    DescribeBranch: Control(run=_describe_branch, writes=False, is_served=True),
    ExplainPublish: Control(run=_explain_publish, is_served=True),
}
