"""One proposal on one table, rebased onto the commits that came first.

Owns reading the winners, checking against them, adopting their changes, and making an attempt's
actions anew from the state that it follows. `commit_loop` decides when. Source:
docs/how-a-commit-works.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

import msgspec

from txlake.commit.checkpoint_protection import with_protection
from txlake.commit.commit_info import Provenance, commit_info
from txlake.commit.in_commit_time import (
    check_times,
    commit_time,
    is_enabled,
    with_enablement,
)
from txlake.commit.row_probe import FileProbe
from txlake.commit.row_tracking import NO_ROW_IDS, RowIds, assign, preserved_tag
from txlake.commit.staging import StagingSystem
from txlake.commit.table_log import TableLog
from txlake.commit.tombstone_tags import with_compaction_tags
from txlake.conflict.adoption import only_moves_marks
from txlake.conflict.check import check_all, check_selects
from txlake.conflict.concurrent_commit import ConcurrentCommit
from txlake.conflict.context import CheckContext, RowProbe
from txlake.conflict.evidence import Conflicted, NoConflict, Rebased, conflict_error
from txlake.conflict.footprint import Footprint, Read, ReadKind
from txlake.conflict.granularity import Granularity
from txlake.conflict.levels import Level
from txlake.conflict.read_set import ReadSet
from txlake.conflict.rules import RULES_AFTER_SELECTS
from txlake.datafiles.vectors import VectorCache, write_vectors
from txlake.errors import InvalidRequest
from txlake.log.files import canonical_path
from txlake.log.snapshot import Snapshot
from txlake.ports import System
from txlake.protocol.actions import Action, Add, Cdc, CommitInfo, Metadata, Remove
from txlake.protocol.identity import metadata_with_marks
from txlake.settings import RetrySettings

_logger = logging.getLogger(__name__)
# By which Delta Spark knows a commit whose metadata tolerates those of others.
_MARKS_ALONE = "delta.identity.schemaUpdate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A commit that succeeded.

    Attributes:
        version: the version that it created; the version read if there was nothing to commit.
        attempts: the number of versions tried; 0 if there was nothing to commit.
        rebased_over: the versions that it was checked against, in order.
        snapshot: the table at that version.
    """

    version: int
    attempts: int
    rebased_over: tuple[int, ...]
    snapshot: Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A change to commit, at whatever version.

    Attributes:
        base: the snapshot that was read; version -1 for a new table.
        footprint: the reads and changes, for the checks.
        actions: the net changes.
        identity_marks: by physical name, the last value generated for an identity column.
        level: the level at which reads are checked.
        provenance: the constant parts of the commitInfo.
        granularity: what two transactions may not both change.
        probe: evaluates rows in doubt that are too many for the driver, or that it can't evaluate.
        row_ids: those of a commit on a branch, or that publishes one.
        derive: returns further actions, given the version that an attempt follows.
        line: commits that lead from the base to what is proposed; they are committed one by one
            instead if the table still has the version that was read.
    """

    base: Snapshot
    footprint: Footprint
    actions: tuple[Action, ...]
    level: Level
    provenance: Provenance
    identity_marks: Mapping[str, int] = field(default_factory=dict)
    granularity: Granularity = Granularity.ROW
    probe: RowProbe | None = None
    row_ids: RowIds = NO_ROW_IDS
    derive: Callable[[Snapshot], tuple[Action, ...]] | None = None
    line: tuple[tuple[Action, ...], ...] = ()


class Rebase:
    """A proposal rebased onto the winners so far.

    Attributes:
        log: the table's log.
        proposal: the original proposal.
        state: the newest version that it was checked against; every attempt follows it.
        footprint: the proposal's, with the changes adopted from winners.
        checked: the versions that it was checked against, in order.
    """

    def __init__(self, log: TableLog, proposal: Proposal) -> None:
        self.log = log
        self.proposal = proposal
        self.state = proposal.base
        self.footprint = proposal.footprint
        self.checked: list[int] = []
        vectors = VectorCache(log.store, log.external_vectors, log.recent_vectors)
        self._context = CheckContext(
            base=proposal.base,
            metadata=proposal.base.metadata,
            protocol=proposal.base.protocol,
            level=proposal.level,
            granularity=proposal.granularity,
            vectors=vectors,
            probe=FileProbe(
                proposal.base,
                log.store,
                vectors,
                bytes_max=log.settings.probe_bytes_max,
                fallback=proposal.probe,
            ),
        )

    def latest(self) -> Snapshot | None:
        """Return the table's newest version; None where there is no table yet.

        Raises InvalidRequest when the version that was read is gone.
        """
        log, known = self.log, self.state.version
        if known < 0 and not log.exists():
            return None
        latest = log.latest()
        if latest.version < known:
            raise InvalidRequest(
                f"{log.name}: version {known}, which this transaction read, is gone: the newest is "
                f"{latest.version}. The table was dropped or replaced; begin a new transaction"
            )
        return latest

    def winners(self, latest: Snapshot) -> Iterator[ConcurrentCommit]:
        """Yield the commits after the state, up to the latest, in order; read one by one.

        For a new table whose version 0 was cleaned up, only the latest. Raises CorruptTable when
        one is missing or damaged.
        """
        log, known = self.log, self.state.version
        if known < 0 and log.commit(0) is None:
            known = latest.version - 1  # old versions were cleaned up; any one tells of the table
        yield from log.concurrent_commits(known, latest.version)

    def check_selects(self, winners: Sequence[ConcurrentCommit]) -> None:
        """Raise SerializableIsolationViolation if a winner invalidates a SELECT."""
        found = check_selects(self.footprint, winners, self._context)
        if found is not None:
            raise conflict_error(found)

    def follow(self, winners: Sequence[ConcurrentCommit], latest: Snapshot) -> None:
        """Check against the winners and adopt their changes; SELECTs are checked already.

        Raises the Conflict; CorruptTable naming a winner that lacks its in-commit timestamp, unless
        the proposal turns these timestamps off; UnsupportedFeature for a winner's protocol that
        txlake can't write. The state stays as it was then.
        """
        after = self.footprint.metadata or latest.metadata
        if not self.footprint.is_empty and is_enabled(after.configuration):
            check_times(winners, self.state)
        outcome = check_all(self.footprint, winners, self._context, RULES_AFTER_SELECTS)
        match outcome:
            case Conflicted():
                raise conflict_error(outcome)
            case Rebased():
                self.footprint = outcome.footprint
                adopted = ", ".join(outcome.adopted)
                _logger.info("%s: rebased, having adopted %s", self.log.name, adopted)
            case NoConflict():
                pass
            case _:
                assert_never(outcome)
        self._context = outcome.context
        self.checked += [winner.version for winner in winners]
        self.state = latest

    def attempt(
        self, *, retries: int, tags: Mapping[str, str] | None = None
    ) -> tuple[tuple[Action, ...], Snapshot]:
        """Return the next version's actions, and the table after them.

        Deletion vectors that were united with the winners' are written to the store. `retries`: the
        number of lost attempts; `tags` are added to the commit's own. Raises CorruptTable as
        `commit_time`, InvalidRequest as `assign`, and what the proposal's `derive` raises.
        """
        previous, provenance = self.state, self.proposal.provenance
        version = previous.version + 1
        now_ms = self.log.system.now_ms()
        metadata = self._with_marks(self.footprint.metadata or previous.metadata)
        protocol = self.footprint.protocol or previous.protocol
        time_ms = commit_time(previous, metadata, now_ms)
        actions = [
            with_enablement(
                with_protection(metadata, previous, protocol, version), previous, version, time_ms
            )
            if isinstance(action, Metadata)
            else action
            for action in self._net_actions()
        ]
        if self.footprint.metadata is None and metadata is not previous.metadata:
            actions.insert(0, metadata)
        if self.proposal.derive is not None:
            actions += self.proposal.derive(previous)
        numbered = assign(
            actions,
            previous,
            version,
            protocol=protocol,
            metadata=metadata,
            ids=self.proposal.row_ids,
        )
        told = {**preserved_tag(self.footprint, self.proposal.base, metadata), **(tags or {})}
        if only_moves_marks(previous.metadata, metadata):
            told[_MARKS_ALONE] = "true"
        info = commit_info(
            provenance,
            now_ms=now_ms,
            in_commit_ms=time_ms,
            tags=told,
            rebased_over=len(self.checked),
            retries=retries,
        )
        every = (info, *numbered)
        after = previous.apply(every, version=version, timestamp_ms=now_ms)
        return every, after

    def line(self, tags: Mapping[str, str]) -> Iterator[tuple[tuple[Action, ...], Snapshot]]:
        """Yield the actions of each commit of the proposal's line, and the table after it.

        Nothing if the table has got another version than the one that was read. `tags` are added to
        each commit's own.
        """
        after = self.state
        for actions in self.proposal.line if after.version == self.proposal.base.version else ():
            every = tuple(
                _with_tags(action, tags) if isinstance(action, CommitInfo) else action
                for action in actions
            )
            now_ms = self.log.system.now_ms()
            after = after.apply(every, version=after.version + 1, timestamp_ms=now_ms)
            yield every, after

    def _with_marks(self, metadata: Metadata) -> Metadata:
        """Return the metadata with the marks of generated values, if its own are behind."""
        return metadata_with_marks(metadata, self.proposal.identity_marks, self.log.name)

    def committed(self, attempts: int, snapshot: Snapshot) -> Committed:
        """Return the outcome at that version."""
        return Committed(
            version=snapshot.version,
            attempts=attempts,
            rebased_over=tuple(self.checked),
            snapshot=snapshot,
        )

    def _net_actions(self) -> tuple[Action, ...]:
        """Return what was proposed, its files as they are after the winners so far, with written
        vectors.
        """
        if self.footprint.unwritten:
            self.footprint = self._with_vectors(self.footprint)
        others = (one for one in self.proposal.actions if not isinstance(one, Add | Remove | Cdc))
        changes = (one for one in self.proposal.actions if isinstance(one, Cdc))
        added = self.footprint.added
        removed = with_compaction_tags(self.footprint.removed, added)
        return (*others, *removed, *added, *changes)

    def _with_vectors(self, footprint: Footprint) -> Footprint:
        """Return the footprint with its unwritten deletion vectors, which are written to
        the store.
        """
        log, unwritten = self.log, footprint.unwritten
        staging = StagingSystem(log.system, self.proposal.provenance.txn_id)
        written = write_vectors(log.store, staging, list(unwritten.values()))
        vectors = dict(zip(unwritten, written, strict=True))
        for path, vector in vectors.items():
            log.recent_vectors.add(vector.unique_id, unwritten[path])
        added = tuple(
            msgspec.structs.replace(file, deletion_vector=vectors[path])
            if (path := canonical_path(file.path)) in vectors
            else file
            for file in footprint.added
        )
        return replace(footprint, added=added, unwritten={})


def _with_tags(info: CommitInfo, tags: Mapping[str, str]) -> CommitInfo:
    own = info.values.get("tags")
    return CommitInfo({**info.values, "tags": {**(own if isinstance(own, dict) else {}), **tags}})


def check_reads(log: TableLog, proposal: Proposal) -> None:
    """Check reads of a table whose head can't be part of the commit, as of now.

    Raises the Conflict, and what `Rebase.latest` raises. Changes between this check and the commit
    go unnoticed.
    """
    if proposal.base.version >= 0 and proposal.footprint.depends_on_table(proposal.level):
        check_now(log, proposal)


def check_now(log: TableLog, proposal: Proposal) -> None:
    """Check a proposal against what was committed so far. Raises as `check_reads`."""
    following = Rebase(log, proposal)
    latest = following.latest()
    if latest is not None and latest.version > following.state.version:
        winners = list(following.winners(latest))
        following.check_selects(winners)
        following.follow(winners, latest)


def check_read_set(log: TableLog, base: Snapshot, read: ReadSet, level: Level) -> None:
    """Check what a transaction that changed other tables read against what was committed since.

    Raises as `check_reads`.
    """
    footprint = Footprint(
        read_version=base.version,
        reads=read.reads,
        read_files=read.read_files,
        read_app_ids=read.read_app_ids,
        read_domains=read.read_domains,
        changes_elsewhere=True,
    )
    check_now(log, _read_only_proposal(log, base, footprint, level))


def _read_only_proposal(
    log: TableLog, base: Snapshot, footprint: Footprint, level: Level
) -> Proposal:
    """Return a proposal that changes nothing, to be checked."""
    provenance = Provenance(
        operation="READ",
        level=level,
        is_blind_append=False,
        read_version=base.version,
        txn_id=log.system.new_id(),
    )
    return Proposal(base=base, footprint=footprint, actions=(), level=level, provenance=provenance)


def check_read_unchanged(log: TableLog, older: Snapshot, newer: Snapshot, read: Read) -> None:
    """Check that the newer version has the same rows of a read as the older.

    Raises the Conflict of the first commit between them that changed these rows, whatever the
    level.
    """
    footprint = Footprint(
        read_version=older.version,
        reads=(replace(read, kind=ReadKind.GUARD),),
        changes_elsewhere=True,
    )
    following = Rebase(log, _read_only_proposal(log, older, footprint, Level.SERIALIZABLE))
    following.follow(list(following.winners(newer)), newer)


def wait_after(retry: RetrySettings, system: System, attempt: int, who: str) -> None:
    """Wait with jitter, longer from attempt to attempt, so that writers don't retry in step.

    At most `retry.wait_ms_max`, and on average half of what doubles with each attempt.
    """
    longest = min(retry.wait_ms_max, retry.wait_ms_min * 2 ** min(attempt, 16))
    wait_ms = longest * system.random()
    _logger.debug(
        "%s: attempt %d of %d lost, waiting %.0f ms",
        who,
        attempt,
        retry.commit_attempts_max,
        wait_ms,
    )
    system.wait_ms(wait_ms)
