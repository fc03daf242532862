"""The end of a path table's branch: its log is closed first, then main's log decides.

Owns how a branch's log is closed and opened again, and commits that change the registry of
branches (`protocol.branching`). Delta's branching RFC has commits on a branch and the publishing
commit in two logs, and nothing that orders them: a commit on the branch could be acknowledged after
the publisher has read the branch, and would be lost. txlake orders them so:

1. To publish, rebase or drop a branch, a session puts a *closing* as the next version of the
   branch's log, by put-if-absent as any commit. It changes nothing but the protocol, which gets a
   writer feature that no engine writes: so no writer, txlake's or another one that heeds the
   protocol, commits after it, and the branch's content is what it was before the closing. The
   closing names the number `reopened` that the registry had.
2. The session then commits on main. This commit contains the registry with the branch published or
   discarded, computed from the version of main that it follows; it is made only if the branch is
   open there with that same number. Main's put-if-absent lets one of several sessions do it.
3. A session that can't commit (a conflict) opens the branch again: it commits on main the registry
   with `reopened` + 1, if the branch is open there with the closing's number, and puts an *opening*
   after the closing, which takes the writer feature away.

So after a closing either the branch ends with exactly the content before it, or, before any other
version follows the closing, main's log voids it for everybody who would end the branch by it.

A session that dies after step 1 leaves a closed branch, which can be read and not written. Whoever
publishes, rebases or drops it next works from the closing that is there. One that dies in step 3
leaves a closing with another number than the registry's: whoever comes next puts the opening.

The files of a branch that has ended are removed by VACUUM (`commit.table_branches`) once they are
older than the retention, except for the newest version, the closing: it keeps a writer that
was suspended so long from putting a version in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import msgspec

from txlake.commit.commit_info import Provenance, commit_info
from txlake.commit.in_commit_time import commit_time
from txlake.commit.read_records import read_tags
from txlake.commit.rebase import Committed, Proposal
from txlake.commit.row_tracking import block_after
from txlake.commit.table_log import TableLog
from txlake.commit.table_transaction import TableTransaction
from txlake.conflict.footprint import Footprint
from txlake.conflict.levels import Level
from txlake.errors import CorruptTable, OutcomeUnknown
from txlake.log.snapshot import Snapshot
from txlake.ports import PutOutcome
from txlake.protocol.actions import Action, Protocol
from txlake.protocol.branching import CLOSED, CLOSING, Registry, TableBranch, registry_of

_REPLIES_LOST_MAX = 5


@dataclass(frozen=True, slots=True)
class BranchEnd:
    """The end of a branch's log.

    Attributes:
        head: the newest version of the branch's content.
        closing: the version that closes the log; None while it is open.
        reopened: the number that the closing names.
    """

    head: Snapshot
    closing: int | None = None
    reopened: int = 0

    def is_closed_for(self, branch: TableBranch) -> bool:
        """Return whether the log is closed by a closing that counts by the registry's entry."""
        return self.closing is not None and self.reopened == branch.reopened


def find_end(log: TableLog) -> BranchEnd:
    """Return the end of a branch's log. Raises CorruptTable for a damaged log."""
    latest = log.latest()
    if CLOSED not in (latest.protocol.writer_features or ()):
        return BranchEnd(latest)
    info = log.commit_info(latest.version)
    tags = None if info is None else info.values.get("tags")
    number = tags.get(CLOSING) if isinstance(tags, dict) else None
    if not isinstance(number, str) or not number.isdecimal():
        raise CorruptTable(
            f"{log.name}: version {latest.version} has the feature {CLOSED} and no tag {CLOSING}: "
            "another engine wrote it. DROP BRANCH gives the branch up"
        )
    return BranchEnd(log.snapshot(latest.version - 1), latest.version, int(number))


def close(log: TableLog, end: BranchEnd, branch: TableBranch) -> BranchEnd | None:
    """Close an open log after its head; return its new end, None if another version came first.

    Raises OutcomeUnknown if it isn't known whether the log is closed: a later statement finds out.
    """
    head = end.head
    features = (*(head.protocol.writer_features or ()), CLOSED)
    protocol = msgspec.structs.replace(head.protocol, writer_features=tuple(sorted(features)))
    tags = {CLOSING: str(branch.reopened)}
    if not _put(log, head, protocol, "CLOSE BRANCH", tags):
        return None
    return BranchEnd(head, head.version + 1, branch.reopened)


def reopen(main: TableLog, log: TableLog, end: BranchEnd, branch: TableBranch) -> None:
    """Void a closing by main's log unless it is void, and open the branch's log after it.

    Nothing happens if the branch has ended. Raises as `change_registry`.
    """
    registry = registry_of(main.latest().domains, table=main.name)
    entry = next((one for one in registry.open if one.id == branch.id), None)
    if entry is None:
        return
    if end.is_closed_for(entry):
        change_registry(
            main, "REOPEN BRANCH", entry, lambda registry, _: registry.with_reopened(entry)
        )
    open_again(log, end)


def open_again(log: TableLog, end: BranchEnd) -> None:
    """Put the opening after a closing that is void by main's log, unless a version is there."""
    assert end.closing is not None, "only a closed log is opened"
    _put(log, log.snapshot(end.closing), end.head.protocol, "OPEN BRANCH", {})


def _put(
    log: TableLog, after: Snapshot, protocol: Protocol, operation: str, tags: Mapping[str, str]
) -> bool:
    """Put a version of a branch's log that sets its protocol; return whether it is there, and not
    another one.
    """
    provenance = Provenance(
        operation=operation,
        level=Level.SNAPSHOT,
        is_blind_append=False,
        read_version=after.version,
        txn_id=log.system.new_id(),
        tags=tags,
    )
    proposal = Proposal(
        base=after,
        footprint=Footprint(read_version=after.version),
        actions=(),
        level=Level.SNAPSHOT,
        provenance=provenance,
    )
    now_ms = log.system.now_ms()
    time_ms = commit_time(after, after.metadata, now_ms)
    info = commit_info(
        provenance, now_ms=now_ms, in_commit_ms=time_ms, tags=read_tags(log, proposal)
    )
    version = after.version + 1
    for _ in range(_REPLIES_LOST_MAX):
        outcome = log.write_commit(version, [info, protocol])
        if outcome is PutOutcome.UNKNOWN:
            continue  # the same version again, until one is there
        return outcome is PutOutcome.CREATED or log.find_txn_id(version) == provenance.txn_id
    raise OutcomeUnknown(
        f"{log.name}: {operation}: the replies to {_REPLIES_LOST_MAX} requests for version "
        f"{version} of the branch's log were lost; run the statement again"
    )


RegistryChange = Callable[[Registry, Snapshot], Registry]
"""Returns the registry after a change, given the one before it, and the version that has that."""


def with_created(
    registry: Registry, branch: TableBranch, previous: Snapshot, *, base: int | None = None
) -> Registry:
    """Return the registry with a new branch that is registered by the next version of main.

    It begins with `base`, by default with the version before. Raises InvalidRequest if its name is
    taken.
    """
    mark = previous.row_id_high_water_mark
    return registry.with_created(
        replace(
            branch,
            base=previous.version if base is None else base,
            created_version=previous.version + 1,
            row_id_block=block_after(registry.row_id_blocks, mark),
        )
    )


def derive_registry(
    change: RegistryChange, *, table: str
) -> Callable[[Snapshot], tuple[Action, ...]]:
    """Return the function for a commit's `derive`: the registry after the version it follows."""

    def derived(previous: Snapshot) -> tuple[Action, ...]:
        registry = registry_of(previous.domains, table=table)
        return (change(registry, previous).action(),)

    return derived


def change_registry(
    main: TableLog, operation: str, branch: TableBranch, change: RegistryChange
) -> Committed:
    """Commit a change of the registry on main, which conflicts with no other commit.

    `change` raises InvalidRequest where it doesn't fit the registry that it finds. Raises as
    `path_commit.commit`.
    """
    part = TableTransaction(main, main.latest())
    part.derive(
        derive_registry(change, table=main.name),
        operation=operation,
        parameters={"branch": branch.name},
    )
    return part.commit()
