"""Branches of the lake in a session: used, published, dropped.

Publishing is one transaction of the branch's parent. Of each table that the branch changed it
commits the net changes since the version that the branch began with, and it has read what the
branch's commits read: so the parent's commits since then are checked like those of any concurrent
transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from txlake.catalog.branch_rows import (
    MAIN_NAME,
    BranchEntry,
    BranchTable,
    of_kind,
    successor_name,
)
from txlake.catalog.names import MAIN, NAME_LENGTH_MAX
from txlake.commit.change import Change
from txlake.commit.table_log import TableLog
from txlake.commit.table_transaction import TableTransaction
from txlake.conflict.levels import parse_level, strictest
from txlake.conflict.locking import LockMode
from txlake.errors import (
    Conflict,
    CorruptTable,
    InvalidRequest,
    OutcomeUnknown,
    TxlakeError,
    UnsupportedFeature,
)
from txlake.ports import AdoptedTable, EndedBranch, RenamedTable
from txlake.protocol.actions import Add, Remove
from txlake.protocol.file_names import BRANCHES_FOLDER
from txlake.session.branch_changes import (
    BRANCH_TAG,
    CREATED_TAG,
    ChangedTable,
    NetChange,
    changed_table,
    conflict_on_branch,
    is_renamed,
    reported_rows,
)
from txlake.session.branch_use import (
    WAP_BRANCH,
    branch_by_number,
    parent_of,
    require_branch,
    require_branch_open,
)
from txlake.session.command import TableLock
from txlake.session.context import Context
from txlake.session.engine import Engine, Handle
from txlake.session.membership.attachment import stage_owner
from txlake.session.membership.dropping import drop, finish_interrupted
from txlake.session.session import Session
from txlake.sql.statements import TableName

_logger = logging.getLogger(__name__)

OPERATION = "PUBLISH BRANCH"
NAME, INSTANT, CREATED_MS = "branch", "branchInstant", "branchCreated"
"""Parameters of the operation: the branch, the instant that it began at, and when it was created,
or rebased the last time, in milliseconds since the epoch.
"""
_REBASE_MS_MAX = 3_600_000


@dataclass(frozen=True, slots=True)
class Judged:
    """A table that publishing would change or has read, and what it meets there.

    Attributes:
        name: the table's, on the branch's parent.
        base: the version that the branch began with; None for a new table.
        newest: the parent's newest version; None for a new table.
        conflict: what stops publishing; None if nothing does.
    """

    name: str
    base: int | None
    newest: int | None
    conflict: TxlakeError | None


def publish(
    session: Session, name: str, *, per_table: bool = False, user_metadata: str | None = None
) -> None:
    """Publish a branch: its parent gets all of its changes at one instant, and the branch ends.

    `per_table`: a table that has the version that the branch began with gets the branch's versions
    one by one, instead of one with the net changes. `user_metadata` becomes the `userMetadata` of
    commits with net changes.

    Raises:
        Conflict: the parent's commits since the branch began conflict with it; nothing is changed.
        InvalidRequest: there is no such branch, a transaction is open in the session, another
            branch was made from it, or a table or name isn't what it was when the branch began.
        Unavailable: another session committed on the branch meanwhile; publish again.
    """
    _refuse_in_transaction(session, f"PUBLISH BRANCH {name}")
    entry = require_branch(session.engine, name)
    engine = session.engine.main
    parent = parent_of(engine, entry)
    with _publication(session, entry, parent, per_table=per_table) as staged:
        staged.context.transaction.user_metadata = user_metadata
        staged.commit(_ended(entry, staged.tables))
    _remove_what_is_left(engine, entry, staged.tables)


def explain_publish(session: Session, name: str) -> list[Judged]:
    """Return what publishing a branch would meet now, table by table; change nothing.

    What concerns names alone, of views for instance, is told of the branch as a whole.

    Raises InvalidRequest if there is no such branch, and NotPermitted for one that isn't the
    user's.
    """
    entry = require_branch(session.engine, name)
    session.require_own(entry, f"EXPLAIN PUBLISH BRANCH {name}")
    parent = parent_of(session.engine.main, entry)
    problems: dict[str, TxlakeError] = {}
    with _publication(session, entry, parent, problems) as staged:
        transaction, tables = staged.context.transaction, staged.tables
        judged = [
            Judged(
                handle.name,
                part.base.version,
                handle.log.latest().version,
                None if conflict is None else staged.explained(conflict),
            )
            for handle, part, conflict in transaction.conflicts_now()
            if handle.name not in problems
        ]
        new = [table for table in tables if table.entry.base is None and not table.is_dropped]
        for table in new:
            taken = parent.catalog.find(table.entry.database, table.entry.name) is not None
            found = _taken_error(_name_of(table)) if taken else None
            judged.append(Judged(str(_name_of(table)), None, None, found))
        bases = {str(_name_of(table)): table.entry.base for table in tables}
        judged += [Judged(one, bases[one], None, problems[one]) for one in problems]
        if not any(one.conflict for one in judged):
            transaction.change_name(_ended(entry, tables), {})
            refusal = transaction.name_refusal()
            if refusal is not None:
                judged.append(Judged(f"branch {entry.name}", None, None, refusal))
    return sorted(judged, key=lambda one: one.name)


def rebase(session: Session, name: str) -> None:
    """Let a branch begin at its parent's newest instant, with its own changes on top.

    The parent's commits since it began are checked as by `publish`, and raise the same. Another
    branch takes its place; the one that a killed REBASE leaves is dropped with this one, or by
    whoever opens the lake after an hour.
    """
    _refuse_in_transaction(session, f"REBASE BRANCH {name}")
    entry = require_branch(session.engine, name)
    session.require_own(entry, f"REBASE BRANCH {name}")
    engine = session.engine.main
    branches = engine.catalog.of_lake().branches
    parent = MAIN_NAME if entry.parent == MAIN else branch_by_number(engine, entry.parent).name
    successor = branches.create(
        successor_name(entry.id, engine.system.new_id()),
        parent=parent,
        user_name=f"REBASE BRANCH {entry.name}"[:NAME_LENGTH_MAX],
        retention_ms=_REBASE_MS_MAX,
    )
    try:
        target = engine.on_branch(successor)
        with _publication(session, entry, target) as staged:
            staged.commit(_ended(entry, staged.tables, successor))
    except OutcomeUnknown:
        raise
    except BaseException:
        try:
            branches.drop(successor.name)
        except InvalidRequest:
            pass  # dropped with the branch, which has ended
        except TxlakeError as error:
            _logger.warning("branch %s is dropped later: %s", successor.name, error)
        raise
    _remove_what_is_left(engine, entry, staged.tables)


def _ended(
    entry: BranchEntry, tables: Sequence[BranchTable], successor: BranchEntry | None = None
) -> EndedBranch:
    """Return the end of a branch whose changes its parent, or a successor, takes over."""
    own = [table.entry for table in tables if table.entry.base is not None and not table.is_dropped]
    return EndedBranch(
        id=entry.id,
        tables={one.id: (one.head or 0, one.modified_ms) for one in own},
        target=entry.parent if successor is None else successor.number,
        successor=None if successor is None else successor.id,
    )


@dataclass(frozen=True, slots=True)
class _Publication:
    """A transaction on a branch's parent, or on another branch, that has its changes staged.

    Attributes:
        entry: the branch.
        tables: its tables.
        changed: those that it changed, or read for its changes, with the parent's logs, by their
            names there.
    """

    context: Context
    entry: BranchEntry
    tables: Sequence[BranchTable]
    changed: Mapping[str, tuple[ChangedTable, TableLog]]

    def commit(self, ended: EndedBranch) -> None:
        """Commit the changes and the end of the branch. A Conflict tells of the branch's commit."""
        transaction = self.context.transaction
        transaction.change_name(ended, {})
        try:
            transaction.commit()
        except Conflict as conflict:
            raise self.explained(conflict) from conflict

    def explained(self, conflict: Conflict) -> Conflict:
        """Return a conflict with the branch's commit that it is about."""
        facts = conflict.evidence
        found = None if facts is None else self.changed.get(facts.table)
        if found is None:
            return conflict
        one, log = found
        return conflict_on_branch(conflict, one, log, self.entry.name)


@contextmanager
def _publication(
    session: Session,
    entry: BranchEntry,
    target: Engine,
    problems: dict[str, TxlakeError] | None = None,
    *,
    per_table: bool = False,
) -> Iterator[_Publication]:
    """Yield a transaction on another branch or main that has a branch's changes staged.

    Errors that concern one table are collected in `problems`, by its name on the parent; without it
    the first one is raised.
    """
    engine = session.engine.main
    tables = engine.catalog.of_lake().branches.tables(entry)
    on_branch = engine.on_branch(entry)
    changed: list[ChangedTable] = []
    try:
        for table in tables:
            with _noting(problems, table):
                found = changed_table(
                    on_branch, table, entry.name, onto_branch=target.branch is not None
                )
                changed += [] if found is None else [found]
    except (CorruptTable, InvalidRequest) as error:
        require_branch_open(on_branch, error)
        raise
    dropped = [table for table in tables if table.is_dropped and table.entry.base is not None]
    new = [table for table in tables if table.entry.base is None and not table.is_dropped]
    renamed = [table for table in tables if is_renamed(table, entry)]
    wanted: list[TableLock] = [one.lock for one in changed]
    wanted += [(_name_of(table), LockMode.SCH_M) for table in (*dropped, *new, *renamed)]
    made = Session(target, session.handlers, level=session.level)
    made.lock_timeout_ms = session.lock_timeout_ms
    try:
        with made.alone(wanted) as context:
            levels = {parse_level(one.level) for table in tables for one in table.reads}
            if levels:
                context.transaction.set_level(strictest(context.transaction.level, *levels))
            logs: dict[str, tuple[ChangedTable, TableLog]] = {}
            for one in changed:
                with _noting(problems, one.table):
                    handle = _stage(context, one, entry, per_table=per_table)
                    logs[handle.name] = (one, handle.log)
            for table in dropped:
                with _noting(problems, table):
                    _drop(context, table, entry.name)
            for table in _in_order(renamed, entry, problems):
                with _noting(problems, table):
                    _rename(context, table, entry)
            for table in new:
                own = table.entry
                adopted = AdoptedTable(
                    id=own.id, database=own.database, name=own.name, branch=target.catalog.branch
                )
                context.transaction.change_name(adopted, {})
            yield _Publication(context, entry, tables, logs)
    finally:
        made.close()


@contextmanager
def _noting(problems: dict[str, TxlakeError] | None, *tables: BranchTable) -> Iterator[None]:
    """Note an error of the block as one of these tables, if `problems` collects them."""
    try:
        yield
    except (Conflict, CorruptTable, InvalidRequest, UnsupportedFeature) as error:
        if problems is None:
            raise
        for table in tables:
            problems.setdefault(str(_name_of(table)), error)


def _refuse_in_transaction(session: Session, what: str) -> None:
    """Raise InvalidRequest if a transaction is open in the session."""
    if session.current is not None:
        raise InvalidRequest(f"{what}: a transaction is open; COMMIT or ROLLBACK first")


def _taken_error(name: TableName) -> InvalidRequest:
    """Return the error for the name of a new table that another one has got."""
    return InvalidRequest(
        f"table {name} exists already: it was created since the branch began; rename or drop one "
        "of the two"
    )


def drop_branch(session: Session, name: str, *, is_tag: bool = False) -> None:
    """Drop a branch or a tag, and the folders of what only it had. What can't be removed is logged.

    Raises InvalidRequest if there is none of that name, a branch was made from it, or the session
    uses it.
    """
    session.follow_setting(missing_ok=True)
    if session.engine.branch is not None and session.engine.branch.name.lower() == name.lower():
        raise InvalidRequest(
            f"DROP BRANCH {name}: this session uses it; USE BRANCH main, and RESET {WAP_BRANCH} if "
            "that is set"
        )
    engine = session.engine.main
    branches = engine.catalog.of_lake().branches
    entry = of_kind(branches.find(name), name, is_tag=is_tag)
    session.require_own(entry, f"DROP {entry.kind.upper()} {name}")
    _remove_files(engine, entry, branches.drop(name, is_tag=is_tag, branch_id=entry.id))


def _remove_files(engine: Engine, entry: BranchEntry, tables: Sequence[BranchTable]) -> None:
    """Remove the folders of what only a dropped branch had; log failures."""
    _remove_logs(engine, entry, tables)
    _remove_folders(engine, tables)


def _remove_what_is_left(engine: Engine, entry: BranchEntry, tables: Sequence[BranchTable]) -> None:
    """Remove the folders of what only a published branch had; log failures."""
    _remove_logs(engine, entry, tables)
    _remove_folders(engine, [table for table in tables if table.is_dropped])


def _remove_folders(engine: Engine, tables: Sequence[BranchTable]) -> None:
    """Remove the folders of tables that a branch created in the warehouse; log failures."""
    if any(table.entry.base is None and table.entry.managed for table in tables):
        finish_interrupted(engine)


def _name_of(table: BranchTable) -> TableName:
    """Return the name that a table has, or gets, on the parent."""
    entry = table.entry if table.origin is None else table.origin
    return TableName((entry.database, entry.name))


def _stage(context: Context, one: ChangedTable, entry: BranchEntry, *, per_table: bool) -> Handle:
    """Stage a table's net changes on the version that the branch began with; return its handle on
    the parent.
    """
    handle = _origin_of(context, one.table)
    fork = {INSTANT: str(entry.fork_sequence), CREATED_MS: str(entry.created_ms)}
    part = stage_net_change(context, handle, one, {NAME: entry.name, **fork})
    if per_table:
        tags = {BRANCH_TAG: entry.name, CREATED_TAG: fork[CREATED_MS]}
        part.line = one.line(tags, onto_branch=context.engine.branch is not None)
    return handle


def stage_net_change(
    context: Context, handle: Handle, one: NetChange, parameters: Mapping[str, object]
) -> TableTransaction:
    """Stage a branch's net changes of a table on the version that the branch began with.

    `parameters`: the operation's, which name the branch.
    """
    part = context.transaction.tables.open_at(handle, one.base)
    part.row_ids = one.row_ids
    for read in one.read.reads:
        part.add_read(read)
    part.read_files(one.read.read_files)
    for app_id in one.read.read_app_ids:
        part.app_version(app_id)
    for domain in one.read.read_domains:
        part.read_domain(domain)
    context.transaction.stage(handle, _change(one, parameters))
    return part


def _change(one: NetChange, parameters: Mapping[str, object]) -> Change:
    """Return the change of a table. Its history has the sums of what the branch's statements
    reported.
    """
    actions, rows = one.actions, reported_rows(one.commits)
    return Change(
        operation=OPERATION,
        actions=actions,
        identity_marks=one.marks,
        origins=one.row_sources,
        parameters=parameters,
        metrics={
            "numAddedFiles": sum(isinstance(action, Add) for action in actions),
            "numRemovedFiles": sum(isinstance(action, Remove) for action in actions),
            "numOutputRows": rows.inserted,
            "numUpdatedRows": rows.updated,
            "numDeletedRows": rows.deleted,
        },
    )


def _origin_of(context: Context, table: BranchTable) -> Handle:
    """Return the handle of the table that a branch's table was made from.

    Raises InvalidRequest if the name has become another table's meanwhile.
    """
    origin = table.origin
    assert origin is not None, "the caller has checked that"
    handle = context.tables.require(TableName((origin.database, origin.name)))
    if handle.entry is None or origin.id not in {handle.entry.id, handle.entry.origin_id}:
        raise InvalidRequest(
            f"{origin.database}.{origin.name} was replaced or renamed meanwhile; publish again"
        )
    return handle


def _drop(context: Context, table: BranchTable, name: str) -> None:
    """Stage the drop of a table that the branch dropped.

    Raises InvalidRequest if the parent has changed it since the branch began. Does nothing if it
    was dropped there too.
    """
    if table.origin is None:
        return
    handle = _origin_of(context, table)
    base = context.transaction.open(handle).base
    if base.version != table.entry.base:
        raise InvalidRequest(
            f"branch {name!r} dropped {handle.name}, which has changed since it "
            "began; drop the table where the branch began if it is to go, then publish again"
        )
    drop(context.transaction, handle)


def _in_order(
    renamed: Sequence[BranchTable],
    entry: BranchEntry,
    problems: dict[str, TxlakeError] | None,
) -> Sequence[BranchTable]:
    """Return renamed tables so that each name is free before another table gets it.

    Raises InvalidRequest if tables have exchanged their names, or notes it of them and leaves them
    out.
    """
    ordered: list[BranchTable] = []
    left = list(renamed)
    while left:
        names = {str(_name_of(table)).lower() for table in left}
        free = [
            table
            for table in left
            if f"{table.entry.database}.{table.entry.name}".lower()
            not in names - {str(_name_of(table)).lower()}
        ]
        if not free:
            with _noting(problems, *left):
                raise InvalidRequest(
                    f"branch {entry.name!r} has exchanged the names of "
                    f"{' and '.join(sorted(names))}: give each a name on the branch that none of "
                    "them had where it began, and rename them after publishing"
                )
            break
        ordered += free
        left = [table for table in left if table not in free]
    return ordered


def _rename(context: Context, table: BranchTable, entry: BranchEntry) -> None:
    """Stage the new name of a table that the branch renamed.

    Raises InvalidRequest if the table was dropped or renamed on the parent since the branch began.
    """
    own, origin = table.entry, table.origin
    if origin is None or origin.modified_ms >= entry.created_ms:
        raise InvalidRequest(
            f"branch {entry.name!r} renamed a table to {own.database}.{own.name}, which was "
            "dropped or renamed where the branch began; give it the name that it has there"
        )
    if context.engine.catalog.database(own.database) is None:
        raise InvalidRequest(
            f"branch {entry.name!r} renamed {origin.database}.{origin.name} to {own.database}."
            f"{own.name}, into a database that it created: CREATE DATABASE {own.database} where "
            "the branch began, then publish again"
        )
    handle = _origin_of(context, table)
    before = handle.entry
    assert before is not None, "it is a table of the lake"
    named = context.engine.at_entry(replace(before, database=own.database, name=own.name))
    context.transaction.change_name(
        RenamedTable(id=before.id, database=own.database, name=own.name, branch=before.branch),
        {(before.database, before.name): None, (own.database, own.name): named},
    )
    stage_owner(context.transaction, named, "RENAME TABLE")


def drop_expired(engine: Engine) -> list[BranchEntry]:
    """Drop the expired branches and tags, and return them; log what can't be dropped yet."""
    main, dropped = engine.main, []
    branches = main.catalog.of_lake().branches
    for entry in branches.expired():
        try:
            tables = branches.expire(entry.id)
            if tables is not None:
                dropped.append(entry)
                _remove_files(main, entry, tables)
        except TxlakeError as error:
            _logger.warning("%s %s stays for now: %s", entry.kind, entry.name, error)
    return dropped


def _remove_logs(engine: Engine, entry: BranchEntry, tables: Sequence[BranchTable]) -> None:
    """Remove the folders of a branch's versions; log failures."""
    for table in tables:
        if not table.is_changed:
            continue
        try:
            store = engine.store_at(table.entry.location)
            folder = f"{BRANCHES_FOLDER}/{entry.id}"
            store.delete([item.path for item in store.list(folder)])
        except TxlakeError as error:
            _logger.warning("%s: a branch's log is left behind: %s", table.entry.location, error)
