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
from txlake.commit.feed_rules import has_feed
from txlake.commit.membership import DOMAIN
from txlake.commit.row_origins import RowSources, without_vectors
from txlake.commit.row_sources_codec import KnownSources, known_sources
from txlake.commit.row_tracking import RowIds, ids_of
from txlake.commit.table_log import TableLog
from txlake.conflict.adoption import only_moves_marks
from txlake.conflict.levels import parse_level, strictest
from txlake.conflict.locking import LockMode
from txlake.conflict.read_set import ReadSet, join_reads
from txlake.conflict.read_set_codec import decode_read_sets
from txlake.datafiles.vectors import VectorCache
from txlake.errors import CorruptTable, InvalidRequest, OutcomeUnknown, TxlakeError
from txlake.log.net_actions import Lineage, net_actions
from txlake.log.snapshot import Snapshot
from txlake.ports import AdoptedTable, EndedBranch, RenamedTable
from txlake.protocol.actions import Action, Add, DomainMetadata, Metadata, Protocol, Remove
from txlake.protocol.file_names import BRANCHES_FOLDER
from txlake.protocol.identity import marks_of
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
_REBASE_MS_MAX = 3_600_000


@dataclass(frozen=True, slots=True)
class _Changed:
    """A table that a branch changed, or read for its changes.

    Attributes:
        table: the branch's table.
        base: the version that the branch began with.
        read: what its commits read of the table.
        actions: the net changes since then; none for a table that was read only.
        marks: the last values of identity columns, by physical name.
        row_sources: what rows of new files were made of, for the change data feed.
        row_ids: those that the branch has handed out.
    """

    table: BranchTable
    base: Snapshot
    read: ReadSet
    actions: tuple[Action, ...]
    marks: Mapping[str, int]
    row_sources: Mapping[str, RowSources]
    row_ids: RowIds

    @property
    def lock(self) -> TableLock:
        """The lock that publishing takes on the parent's table."""
        origin = self.table.origin
        assert origin is not None, "a table without an origin isn't changed, but new"
        defines = any(isinstance(action, Metadata | Protocol) for action in self.actions)
        mode = LockMode.SCH_M if defines else LockMode.IX if self.actions else LockMode.SCH_S
        return TableName((origin.database, origin.name)), mode


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


def publish(session: Session, name: str) -> None:
    """Publish a branch: its parent gets all of its changes at one instant, and the branch ends.

    Raises:
        Conflict: the parent's commits since the branch began conflict with it; nothing is changed.
        InvalidRequest: there is no such branch, a transaction is open in the session, another
            branch was made from it, or a table or name isn't what it was when the branch began.
        Unavailable: another session committed on the branch meanwhile; publish again.
    """
    _refuse_in_transaction(session, f"PUBLISH BRANCH {name}")
    entry = require_branch(session.engine, name)
    engine = session.engine.main
    with _publication(session, entry, parent_of(engine, entry)) as (context, tables):
        ended = EndedBranch(id=entry.id, tables=_states(tables), target=entry.parent)
        context.transaction.change_name(ended, {})
        context.transaction.commit()
    _remove_logs(engine, entry, tables)
    _remove_folders(engine, [table for table in tables if table.is_dropped])


def explain_publish(session: Session, name: str) -> list[Judged]:
    """Return what publishing a branch would meet now, table by table; change nothing.

    Raises InvalidRequest as `publish`.
    """
    entry = require_branch(session.engine, name)
    parent = parent_of(session.engine.main, entry)
    with _publication(session, entry, parent) as (context, tables):
        judged = [
            Judged(handle.name, part.base.version, handle.log.latest().version, conflict)
            for handle, part, conflict in context.transaction.conflicts_now()
        ]
    new = [table for table in tables if table.entry.base is None and not table.is_dropped]
    taken = {
        _name_of(table): parent.catalog.find(table.entry.database, table.entry.name)
        for table in new
    }
    judged += [
        Judged(str(name), None, None, None if found is None else _taken_error(name))
        for name, found in taken.items()
    ]
    return sorted(judged, key=lambda one: one.name)


def rebase(session: Session, name: str) -> None:
    """Let a branch begin at its parent's newest instant, with its own changes on top.

    The parent's commits since it began are checked as by `publish`, and raise the same. Another
    branch takes its place; the one that a killed REBASE leaves is dropped with this one, or by
    whoever opens the lake after an hour.
    """
    _refuse_in_transaction(session, f"REBASE BRANCH {name}")
    entry = require_branch(session.engine, name)
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
        with _publication(session, entry, target) as (context, tables):
            ended = EndedBranch(
                id=entry.id,
                tables=_states(tables),
                target=successor.number,
                successor=successor.id,
            )
            context.transaction.change_name(ended, {})
            context.transaction.commit()
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
    _remove_logs(engine, entry, tables)
    _remove_folders(engine, [table for table in tables if table.is_dropped])


def _states(tables: Sequence[BranchTable]) -> Mapping[str, tuple[int, int]]:
    """Return the `EndedBranch.tables` of the tables that a branch began with and still has."""
    own = (table.entry for table in tables if table.entry.base is not None and not table.is_dropped)
    return {entry.id: (entry.head or 0, entry.modified_ms) for entry in own}


@contextmanager
def _publication(
    session: Session, entry: BranchEntry, target: Engine
) -> Iterator[tuple[Context, Sequence[BranchTable]]]:
    """Yield the context of a transaction on another branch or main that has a branch's changes
    staged, and the branch's tables. The caller commits it.
    """
    engine = session.engine.main
    tables = engine.catalog.of_lake().branches.tables(entry)
    on_branch = engine.on_branch(entry)
    try:
        onto_branch = target.branch is not None
        changed = _all_changed(on_branch, tables, entry.name, onto_branch=onto_branch)
    except (CorruptTable, InvalidRequest) as error:
        require_branch_open(on_branch, error)
        raise
    dropped = [table for table in tables if table.is_dropped and table.entry.base is not None]
    new = [table for table in tables if table.entry.base is None and not table.is_dropped]
    renamed = [table for table in tables if _is_renamed(table, entry)]
    wanted: list[TableLock] = [one.lock for one in changed]
    wanted += [(_name_of(table), LockMode.SCH_M) for table in (*dropped, *new, *renamed)]
    made = Session(target, session.handlers, level=session.level)
    try:
        with made.alone(wanted) as context:
            levels = {parse_level(one.level) for table in tables for one in table.reads}
            if levels:
                context.transaction.set_level(strictest(context.transaction.level, *levels))
            for one in changed:
                _stage(context, one, entry)
            for table in dropped:
                _drop(context, table, entry.name)
            for table in _in_order(renamed, entry):
                _rename(context, table, entry)
            for table in new:
                own = table.entry
                adopted = AdoptedTable(
                    id=own.id, database=own.database, name=own.name, branch=target.catalog.branch
                )
                context.transaction.change_name(adopted, {})
            yield context, tables
    finally:
        made.close()


def _all_changed(
    on_branch: Engine, tables: Sequence[BranchTable], name: str, *, onto_branch: bool
) -> Sequence[_Changed]:
    """Return what a branch changed, table by table. Raises as `_changed`, and CorruptTable if a
    commit of the branch is missing, or damaged.
    """
    found = (_changed(on_branch, table, name, onto_branch=onto_branch) for table in tables)
    return [one for one in found if one is not None]


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
    _remove_files(engine, entry, branches.drop(name, is_tag=is_tag))


def _remove_files(engine: Engine, entry: BranchEntry, tables: Sequence[BranchTable]) -> None:
    """Remove the folders of what only a dropped branch had; log failures."""
    _remove_logs(engine, entry, tables)
    _remove_folders(engine, tables)


def _remove_folders(engine: Engine, tables: Sequence[BranchTable]) -> None:
    """Remove the folders of tables that a branch created in the warehouse; log failures."""
    if any(table.entry.base is None and table.entry.managed for table in tables):
        finish_interrupted(engine)


def _changed(
    on_branch: Engine, table: BranchTable, name: str, *, onto_branch: bool
) -> _Changed | None:
    """Return what a branch changed of a table that it began with; None if it changed and read
    nothing.

    Raises InvalidRequest if the origin of a changed table was dropped, a newer txlake has committed
    what this one can't read, and as `_row_sources`.
    """
    own = table.entry
    if own.base is None or table.is_dropped or not (table.is_changed or table.reads):
        return None
    if table.origin is None:
        raise InvalidRequest(
            f"branch {name!r}: {own.database}.{own.name} was dropped where the branch began, "
            "and the branch changed or read it; bring it back (UNDROP TABLE), or drop the branch"
        )
    log = on_branch.at_entry(own).log
    base, head = log.snapshot(own.base), log.snapshot(own.head)
    read = join_reads(decode_read_sets([each.record for each in table.reads], base))
    if not read.is_complete:
        raise InvalidRequest(
            f"branch {name!r}: {log.name}: a newer txlake has committed on the branch; publish it "
            "by that one"
        )
    commits = list(log.commits(base.version, head.version))
    every = [commit.actions for commit in commits]
    actions = net_actions(base, head, every, timestamp_ms=on_branch.system.now_ms())
    sources = _row_sources(
        log,
        head,
        Lineage(base.files, every),
        known_sources(base, commits),
        onto_branch=onto_branch,
    )
    marks: Mapping[str, int] = {}
    if only_moves_marks(base.metadata, head.metadata):
        marks = marks_of(head.schema, log.name)
        actions = tuple(action for action in actions if not isinstance(action, Metadata))
    kept = tuple(action for action in actions if not _is_owner(action))
    return _Changed(table, base, read, kept, marks, sources, ids_of(base, head, every))


def _row_sources(
    log: TableLog, head: Snapshot, lineage: Lineage, known: KnownSources, *, onto_branch: bool
) -> Mapping[str, RowSources]:
    """Return what the rows of a branch's files were made of, for the change data feed.

    `onto_branch`: another branch takes them over, and outlives the vectors that only this one
    keeps.

    Raises InvalidRequest if the feed couldn't tell how rows changed.
    """
    if not has_feed(head):
        return {}
    if known.has_gaps:
        raise InvalidRequest(
            f"{log.name}: the branch changed rows while the table had no change data feed, which "
            "it has now: the feed couldn't tell how they changed. Turn it off on the branch, and "
            "on again after publishing"
        )
    if any(map(lineage.changes_data, known.untracked_files)):
        raise InvalidRequest(
            f"{log.name}: the table has a change data feed, and the branch has changed rows that "
            "it rewrote in an order that isn't recorded (a ZORDER BY or clustering of more than "
            "Settings.told_rows_max rows): the feed couldn't tell which. Make the changes on a new "
            "branch, and run OPTIMIZE after it is published"
        )
    if not onto_branch:
        return known.row_sources
    return without_vectors(known.row_sources, VectorCache(log.store, log.external_vectors))


def _is_owner(action: Action) -> bool:
    """Return whether an action says whose table it is, which a branch doesn't change."""
    return isinstance(action, DomainMetadata) and action.domain == DOMAIN


def _name_of(table: BranchTable) -> TableName:
    """Return the name that a table has, or gets, on the parent."""
    entry = table.entry if table.origin is None else table.origin
    return TableName((entry.database, entry.name))


def _stage(context: Context, one: _Changed, entry: BranchEntry) -> None:
    """Stage a table's net changes on the version that the branch began with."""
    handle = _origin_of(context, one.table)
    part = context.transaction.tables.open_at(handle, one.base)
    part.row_ids = one.row_ids
    for read in one.read.reads:
        part.add_read(read)
    part.read_files(one.read.read_files)
    for app_id in one.read.read_app_ids:
        part.app_version(app_id)
    for domain in one.read.read_domains:
        part.read_domain(domain)
    if one.actions:
        context.transaction.stage(handle, _change(one, entry))


def _change(one: _Changed, entry: BranchEntry) -> Change:
    """Return the change of a table."""
    actions = one.actions
    return Change(
        operation=OPERATION,
        actions=actions,
        identity_marks=one.marks,
        origins=one.row_sources,
        parameters={"branch": entry.name},
        metrics={
            "numAddedFiles": sum(isinstance(action, Add) for action in actions),
            "numRemovedFiles": sum(isinstance(action, Remove) for action in actions),
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


def _is_renamed(table: BranchTable, entry: BranchEntry) -> bool:
    """Return whether a table that the branch began with has got another name there."""
    own, origin = table.entry, table.origin
    if own.base is None or table.is_dropped or own.modified_ms < entry.created_ms:
        return False
    return origin is None or (own.database, own.name) != (origin.database, origin.name)


def _in_order(renamed: Sequence[BranchTable], entry: BranchEntry) -> Sequence[BranchTable]:
    """Return renamed tables so that each name is free before another table gets it.

    Raises InvalidRequest if tables have exchanged their names.
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
            raise InvalidRequest(
                f"branch {entry.name!r} has exchanged the names of {' and '.join(sorted(names))}: "
                "give each a name on the branch that none of them had where it began, and rename "
                "them after publishing"
            )
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
    """Drop the branches and tags whose time is over, and return them; log what can't be dropped
    yet.
    """
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
