"""Branches of path tables: created, listed, published, rebased, dropped.

The registry is in the table's log (`protocol.branching`), and a branch ends as
`commit.branch_fence` says. What publishing commits is the same as for a branch of a lake
(`session.branches`): one transaction of main with the branch's net changes, which has read what the
branch's commits read. They have recorded that in their own log (`commit.read_records`); a commit
without a record, which another engine made, counts as one that read the whole table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from txlake.catalog import matches
from txlake.commands.tables import environment_of
from txlake.commit.branch_fence import (
    BranchEnd,
    change_registry,
    close,
    derive_registry,
    find_end,
    open_again,
    reopen,
    with_created,
)
from txlake.commit.change import Change
from txlake.commit.read_records import records_in
from txlake.commit.table_branches import branches_in
from txlake.commit.table_transaction import TableTransaction
from txlake.conflict.levels import Level, parse_level, strictest
from txlake.conflict.locking import LockMode
from txlake.conflict.read_set import ReadSet, join_reads
from txlake.conflict.read_set_codec import decode_read_sets, encode_read_set
from txlake.ddl.table_metadata import metadata_actions
from txlake.errors import (
    Conflict,
    CorruptTable,
    InvalidRequest,
    OutcomeUnknown,
    TxlakeError,
    Unavailable,
)
from txlake.log.snapshot import Snapshot
from txlake.ports import ReadRecord
from txlake.protocol.branching import DOMAIN, FEATURE, TableBranch
from txlake.session.branch_changes import (
    NetChange,
    conflict_on_branch,
    count_changes,
    net_change,
)
from txlake.session.branches import NAME, OPERATION, Judged, stage_net_change
from txlake.session.context import Context
from txlake.session.engine import Handle
from txlake.session.session import Session
from txlake.sql.statements import Table

_logger = logging.getLogger(__name__)

_ATTEMPTS_MAX = 100
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Found:
    """A branch as a session has found it.

    Attributes:
        main: the table.
        line: the table on the branch.
        end: the end of the branch's log.
    """

    main: Handle
    branch: TableBranch
    line: Handle
    end: BranchEnd


def create_branch(session: Session, table: Table, name: str, *, if_not_exists: bool) -> None:
    """Create a branch of a path table, from its newest version.

    Raises InvalidRequest if there is no such path table, or the name is taken, and as a commit.
    """
    main = _main(session, table)
    for _ in range(_ATTEMPTS_MAX):
        latest = main.log.latest()
        latest.require_writable()
        if if_not_exists and branches_in(latest).find(name) is not None:
            return
        if FEATURE in latest.features:
            break
        _add_feature(session, main)
    system = session.engine.system
    made = TableBranch(
        id=system.new_id(), name=name, base=0, created_version=0, created_ms=system.now_ms()
    )
    change_registry(
        main.log,
        "CREATE BRANCH",
        made,
        lambda registry, previous: with_created(registry, made, previous),
    )


def _add_feature(session: Session, main: Handle) -> None:
    """Commit the table feature, unless another session sets the protocol first."""
    with _alone(session, main, LockMode.SCH_M) as context:
        table = context.snapshot(main)
        actions = metadata_actions(
            table, table.metadata, environment_of(context, main), features=(FEATURE,)
        )
        properties = f'{{"delta.feature.{FEATURE}":"supported"}}'
        context.transaction.stage(
            main,
            Change(
                operation="SET TBLPROPERTIES",
                parameters={"properties": properties},
                actions=actions,
            ),
        )
        try:
            context.transaction.commit()
        except Conflict as conflict:
            _logger.debug("%s: the protocol is read again: %s", main.name, conflict)


def open_branches(session: Session, table: Table, pattern: str | None = None) -> list[TableBranch]:
    """Return the open branches of a path table whose names match the pattern, by name.

    Raises InvalidRequest if there is no such path table.
    """
    found = branches_in(_main(session, table).log.latest()).open
    return sorted((one for one in found if matches(one.name, pattern)), key=lambda one: one.name)


def changes_of(session: Session, table: Table, name: str) -> tuple[object, ...] | None:
    """Return the row of DESCRIBE BRANCH; None for a branch that has changed nothing.

    Raises InvalidRequest if there is no such branch.
    """
    found = _find(session, table, name)
    base, head = found.branch.base, found.end.head
    if head.version == base:
        return None
    counts = count_changes(session.engine.main, found.line, base, head)
    numbers = (counts.inserted, counts.updated, counts.deleted)
    return (found.main.name, "changed", base, head.version, *numbers)


def explain_publish(session: Session, table: Table, name: str) -> Judged:
    """Return what publishing a branch would meet now; change nothing. Raises as `publish`."""
    found = _find(session, table, name)
    net = _net_change(found)
    conflict = _conflict_now(session, found, net)
    return Judged(found.main.name, net.base.version, found.main.log.latest().version, conflict)


def publish(session: Session, table: Table, name: str) -> None:
    """Publish a branch: main gets all of its changes as one version, and the branch ends.

    Raises:
        Conflict: main's commits since the branch began conflict with it; nothing is changed.
        InvalidRequest: there is no such branch, or its changes can't be published as they are.
        OutcomeUnknown: it may be published; look whether the branch is there.
        Unavailable: other writers came first each time; nothing is changed.
    """
    found, net = _close(session, table, name)
    with _reopening(found):
        _publish(session, found, net)


def rebase(session: Session, table: Table, name: str) -> None:
    """Let a branch begin at main's newest version, with its own changes on top.

    Another log takes its place. Raises as `publish`; the branch stays as it was then.
    """
    found, net = _close(session, table, name, onto_branch=True)
    with _reopening(found):
        _rebase(session, found, net)


def drop_branch(session: Session, table: Table, name: str, *, if_exists: bool = False) -> None:
    """Drop a branch. VACUUM removes its files.

    Raises InvalidRequest if there is no such branch, unless `if_exists`, and as a commit.
    """
    main = _main(session, table)
    if if_exists and branches_in(main.log.latest()).find(name) is None:
        return
    try:
        found = _closed(lambda: _close_once(_find(session, table, name)), name)
    except CorruptTable as error:
        _logger.warning("%s: branch %s is dropped though damaged: %s", main.name, name, error)
        _discard(main, branches_in(main.log.latest()).require(name))
        return
    with _reopening(found):
        _discard(main, found.branch)


def _close(
    session: Session, table: Table, name: str, *, onto_branch: bool = False
) -> tuple[_Found, NetChange]:
    """Close a branch's log; return the branch, and what it changed.

    Raises the Conflict that its changes would meet now, and leaves the log as it is then.
    """

    def closed() -> tuple[_Found, NetChange] | None:
        found = _find(session, table, name)
        net = _net_change(found, onto_branch=onto_branch)
        if found.end.closing is None:
            conflict = _conflict_now(session, found, net)
            if conflict is not None:
                raise conflict
        made = _close_once(found)
        return None if made is None else (made, net)

    return _closed(closed, name)


def _closed(attempt: Callable[[], _T | None], name: str) -> _T:
    """Return what the first successful attempt to close a branch's log returns.

    Raises Unavailable if other writers come first each time.
    """
    for _ in range(_ATTEMPTS_MAX):
        made = attempt()
        if made is not None:
            return made
    raise Unavailable(
        f"{name}: {_ATTEMPTS_MAX} attempts to close the branch lost to other writers; run the "
        "statement again when fewer write"
    )


def _close_once(found: _Found) -> _Found | None:
    """Return the branch with its log closed after its head; None if the log has to be read again:
    another version came first, or the closing that was there is void.
    """
    line, branch, end = found.line, found.branch, found.end
    if end.is_closed_for(branch):
        return found
    if end.closing is not None:
        open_again(line.log, end)
        return None
    closed = close(line.log, end, branch)
    return None if closed is None else replace(found, end=closed)


@contextmanager
def _reopening(found: _Found) -> Iterator[None]:
    """Open a branch's log again if the block fails, and it is known that it ended nothing.

    A failure to do so is logged: the branch stays closed then.
    """
    try:
        yield
    except OutcomeUnknown:
        raise
    except Exception:
        try:
            reopen(found.main.log, found.line.log, found.end, found.branch)
        except TxlakeError as error:
            _logger.warning(
                "%s stays closed until it is published, rebased or dropped: %s",
                found.line.name,
                error,
            )
        raise


def _publish(session: Session, found: _Found, net: NetChange) -> None:
    """Commit the net changes on main, with the registry in which the branch is published."""
    branch = found.branch
    with _staged(session, found.main, net, branch.name) as (context, part):
        part.derive(
            derive_registry(
                lambda registry, previous: registry.with_published(branch, previous.version + 1),
                table=found.main.name,
            ),
            operation=OPERATION,
            parameters={"branch": branch.name},
        )
        _commit(context, found, net)


def _rebase(session: Session, found: _Found, net: NetChange) -> None:
    """Commit the net changes as the first version of another branch, which begins at main's newest
    version, and let it take the branch's place in the registry.
    """
    branch, main = found.branch, found.main
    system = session.engine.system
    successor = replace(
        branch,
        id=system.new_id(),
        base=main.log.latest().version,
        reopened=0,
        created_ms=system.now_ms(),
    )
    line = session.engine.main.at_branch(main, successor)
    with _staged(session, line, net, branch.name) as (context, _):
        _commit(context, found, net)
    change_registry(
        main.log,
        "REBASE BRANCH",
        branch,
        lambda registry, previous: with_created(
            registry.with_discarded(branch), successor, previous, base=successor.base
        ),
    )


def _commit(context: Context, found: _Found, net: NetChange) -> None:
    """Commit a branch's changes. A Conflict tells of the branch's commit."""
    try:
        context.transaction.commit()
    except Conflict as conflict:
        raise _explained(conflict, found, net) from conflict


def _explained(conflict: Conflict, found: _Found, net: NetChange) -> Conflict:
    return conflict_on_branch(conflict, net, found.main.log, found.branch.name)


def _discard(main: Handle, branch: TableBranch) -> None:
    """Commit on main the registry in which the branch is discarded."""
    change_registry(
        main.log, "DROP BRANCH", branch, lambda registry, _: registry.with_discarded(branch)
    )


def _conflict_now(session: Session, found: _Found, net: NetChange) -> Conflict | None:
    """Return the conflict that committing the net changes on main would meet now."""
    with _staged(session, found.main, net, found.branch.name) as (context, _):
        [(_, _, conflict)] = context.transaction.conflicts_now()
        return None if conflict is None else _explained(conflict, found, net)


@contextmanager
def _staged(
    session: Session, handle: Handle, net: NetChange, name: str
) -> Iterator[tuple[Context, TableTransaction]]:
    """Yield the context of a transaction that has a branch's changes staged on a table, and its
    part on it.
    """
    with _alone(session, handle, LockMode.IX) as context:
        levels = {parse_level(one.level) for one in net.records}
        context.transaction.set_level(strictest(context.transaction.level, *levels))
        yield context, stage_net_change(context, handle, net, {NAME: name})


@contextmanager
def _alone(session: Session, handle: Handle, mode: LockMode) -> Iterator[Context]:
    """Yield the context of a transaction of main beside the session's own."""
    made = Session(session.engine.main, session.handlers, level=session.level)
    try:
        with made.alone([(handle.table, mode)]) as context:
            yield context
    finally:
        made.close()


def _net_change(found: _Found, *, onto_branch: bool = False) -> NetChange:
    """Return what a branch changed. Raises InvalidRequest as `net_change`, and if a newer txlake
    has committed on the branch.
    """
    log, head = found.line.log, found.end.head
    base = log.snapshot(found.branch.base)
    commits = tuple(log.commits(base.version, head.version))
    records = tuple(
        _of_everything(base, commit.version) if record is None else record
        for commit, record in zip(commits, records_in(commits), strict=True)
    )
    read = join_reads(decode_read_sets([one.record for one in records], base))
    if not read.is_complete:
        raise InvalidRequest(
            f"{log.name}: a newer txlake has committed on the branch; publish it by that one"
        )
    return net_change(log, base, head, commits, records, read, onto_branch=onto_branch)


def _of_everything(base: Snapshot, version: int) -> ReadRecord:
    """Return the record of a commit that says nothing about what it read."""
    read = replace(
        ReadSet.unknown(),
        read_app_ids=frozenset(base.app_transactions),
        read_domains=frozenset(base.domains) - {DOMAIN},
        is_complete=True,
    )
    return ReadRecord(encode_read_set(read, base), Level.SERIALIZABLE.value, version)


def _find(session: Session, table: Table, name: str) -> _Found:
    """Return an open branch of a path table. Raises InvalidRequest if there is none."""
    main = _main(session, table)
    branch = branches_in(main.log.latest()).require(name)
    line = session.engine.main.at_branch(main, branch)
    return _Found(main, branch, line, find_end(line.log))


def _main(session: Session, table: Table) -> Handle:
    """Return the handle of an existing path table.

    Raises InvalidRequest for a table of the lake, a branch, and where there is no table.
    """
    handle = session.engine.main.find(table, session.database)
    if handle is None or handle.entry is not None:
        raise InvalidRequest(
            f"{table}: FOR TABLE is for a table that is addressed by its path, delta.`/path`; the "
            "branches of a lake have all of its tables: leave FOR TABLE out"
        )
    if handle.branch is not None:
        raise InvalidRequest(
            f"{handle.name} is a branch: branches begin with a version of the table itself; give "
            "its path alone"
        )
    return handle
