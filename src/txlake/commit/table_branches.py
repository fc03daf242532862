"""The branches of a path table as VACUUM and the clean-up of its log see them.

Owns what main keeps for open branches, and what is removed of those that have ended. A table of a
lake has no registry: its catalog knows its branches.
"""

from __future__ import annotations

import logging
from collections import defaultdict

from txlake.commit.branch_store import BranchStore
from txlake.commit.table_log import TableLog
from txlake.errors import TxlakeError
from txlake.log.snapshot import Snapshot
from txlake.ports import StoredObject
from txlake.protocol.actions import Protocol, decode_actions
from txlake.protocol.branching import CLOSED, Registry, registry_of
from txlake.protocol.file_names import BRANCHES_FOLDER, CommitFile, parse_name

_log = logging.getLogger(__name__)


def branches_in(snapshot: Snapshot) -> Registry:
    """Return the registry of a table's version. Raises CorruptTable if it can't be read."""
    return registry_of(snapshot.domains, table=snapshot.table)


def open_branch_logs(log: TableLog) -> list[TableLog]:
    """Return the logs of the open branches in the registry of a table's main."""
    return [
        TableLog(
            BranchStore(log.store, branch.id, branch.base),
            log.system,
            log.settings,
            name=f"{log.name}@branch:{branch.name}",
            external_vectors=log.external_vectors,
        )
        for branch in branches_in(log.latest()).open
    ]


def oldest_needed(log: TableLog, *, by_branches: bool = True) -> int | None:
    """Return the oldest version that is read or may be: by the catalog of a table of a lake, by the
    open branches of a path table, and on such a branch the one that it began with.

    None for a path table without branches. `by_branches`: as in `Ledger.oldest_read`.
    """
    table = log.catalog_table
    if table is not None:
        return table.ledger.oldest_read(table.table_id, by_branches=by_branches)
    if isinstance(log.store, BranchStore):
        return log.store.base
    return min((branch.base for branch in branches_in(log.latest()).open), default=None)


def remove_ended(log: TableLog, before_ms: int) -> None:
    """Remove the logs of a table's branches that have ended and have no file since `before_ms`,
    except for the newest version; log what can't be removed.
    """
    folders: dict[str, list[StoredObject]] = defaultdict(list)
    for item in log.store.list(BRANCHES_FOLDER):
        folders[item.path.removeprefix(f"{BRANCHES_FOLDER}/").partition("/")[0]].append(item)
    # After the listing: a branch that was created later has no file in it.
    registry = branches_in(log.latest())
    is_open = {one.id: one.is_open for one in registry.branches}
    for branch_id, items in folders.items():
        if is_open.get(branch_id) or any(item.modified_ms >= before_ms for item in items):
            continue
        try:
            _remove_log(log, branch_id, items, has_ended=branch_id in is_open)
        except TxlakeError as error:
            _log.warning("%s: the log of branch %s is left: %s", log.name, branch_id, error)


def _remove_log(
    log: TableLog, branch_id: str, items: list[StoredObject], *, has_ended: bool
) -> None:
    """Remove a branch's files except for the newest commit.

    Nothing is removed unless the branch `has_ended` by the registry, or that commit is a closing:
    what neither says may be a branch of a lake.
    """
    own = f"{BRANCHES_FOLDER}/{branch_id}/"
    commits = {
        name.version: item.path
        for item in items
        if isinstance(name := parse_name(item.path.removeprefix(own)), CommitFile)
    }
    newest = None if not commits else commits[max(commits)]
    rest = [item.path for item in items if item.path != newest]
    if rest and (has_ended or (newest is not None and _is_closing(log, newest))):
        log.store.delete(sorted(rest))


def _is_closing(log: TableLog, path: str) -> bool:
    """Return whether a commit closes a branch's log."""
    actions = decode_actions(log.store.get(path), file=f"{log.name}: {path}")
    return any(
        isinstance(action, Protocol) and CLOSED in (action.writer_features or ())
        for action in actions
    )
