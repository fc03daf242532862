"""The commit loop of one table: put-if-absent, checks against every winner, rebase, try again.

Owns the attempts and their outcomes. What is committed is made anew at each attempt from the state
that it follows: row ids, in-commit timestamp, commitInfo. Source: PROTOCOL.md, "Atomic commits";
DESIGN sections 2 and 4.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, assert_never

import msgspec

from txlake.conflict.check import check
from txlake.conflict.context import Context, RowProbe
from txlake.conflict.evidence import Conflicted, Fine, Rebased, conflict_error
from txlake.conflict.footprint import Footprint
from txlake.conflict.granularity import Granularity
from txlake.conflict.levels import Level
from txlake.conflict.winner import Winner, summarise
from txlake.errors import CorruptTable, InvalidRequest, OutcomeUnknown, Unavailable
from txlake.log.files import canonical_path
from txlake.log.snapshot import Snapshot
from txlake.ports import PutOutcome
from txlake.protocol.actions import Action, Add, Cdc, Metadata, Protocol, Remove
from txlake.protocol.file_names import commit_path
from txlake.transaction.checkpointing import after_commit
from txlake.transaction.commit_info import Provenance, commit_info
from txlake.transaction.in_commit_time import commit_time, with_provenance
from txlake.transaction.row_probe import FileProbe
from txlake.transaction.row_tracking import assign, preserved_tag
from txlake.transaction.table_log import TableLog
from txlake.transaction.vectors import StoredVectors, write_vectors

_logger = logging.getLogger(__name__)
_LOOKS = 3
_REPLIES_LOST_MAX = 5
_Setting = TypeVar("_Setting", Metadata, Protocol)


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A commit that stands.

    Attributes:
        version: the version that it made; the version read when there was nothing to commit.
        attempts: how many versions were tried; 0 when there was nothing to commit.
        rebased_over: the versions that it was checked against, in order.
        snapshot: the table at that version.
    """

    version: int
    attempts: int
    rebased_over: tuple[int, ...]
    snapshot: Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What is to be committed, at whatever version.

    Attributes:
        base: the snapshot that was read; version -1 for a new table.
        footprint: what was read and is changed, for the checks.
        actions: the net changes.
        level: the level at which reads are checked.
        about: what the commit says about itself.
        granularity: what two transactions may not both change.
        probe: looks at rows in doubt that are too many for the driver, or told by nothing else.
    """

    base: Snapshot
    footprint: Footprint
    actions: tuple[Action, ...]
    level: Level
    about: Provenance
    granularity: Granularity = Granularity.ROW
    probe: RowProbe | None = None


class CommitLoop:
    """Commits one proposal; every attempt follows the newest version known."""

    def __init__(self, log: TableLog, proposal: Proposal) -> None:
        self._log = log
        self._proposal = proposal
        self._state = proposal.base
        self._footprint = proposal.footprint
        self._checked: list[int] = []
        self._lost: int | None = None  # the version of a put whose reply was lost
        self._replies_lost = 0
        self._is_made = False
        vectors = StoredVectors(log.store)
        self._context = Context(
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
                beyond=proposal.probe,
            ),
        )

    def run(self) -> Committed:
        """Commits.

        Raises a Conflict when a winner stands in the way, Unavailable when there were more winners
        than attempts, OutcomeUnknown when a reply was lost and looking didn't settle it, and what
        the store raises. Unless the outcome is unknown, nothing was committed then.
        """
        try:
            with self._log.turn():
                committed = self._run()
        except (Unavailable, InvalidRequest, CorruptTable) as error:
            if self._lost is None:
                raise
            raise self._unknown(self._lost) from error
        if self._is_made:
            after_commit(self._log, committed.snapshot, txn_id=self._proposal.about.txn_id)
        return committed

    def _run(self) -> Committed:
        retry = self._log.settings.retry
        # Also where nobody came first: a version that was read long ago may be followed by a gap
        # in the log, after its cleanup, and the gap must not be filled.
        self._catch_up()
        for attempt in range(1, retry.commit_attempts_max + 1):
            if self._footprint.is_empty:
                return self._committed(attempt - 1, self._state)
            version = self._state.version + 1
            actions, snapshot = self._attempt(version, retries=attempt - 1)
            outcome = self._put(version, actions)
            match outcome:
                case PutOutcome.CREATED:
                    self._lost = None
                    self._log.adopt(snapshot)
                    self._is_made = True
                    return self._committed(attempt, snapshot)
                case PutOutcome.EXISTS:
                    self._wait(attempt)
                    found = self._catch_up(at_least=version)
                    if found is not None:
                        return self._committed(attempt, found)
                case PutOutcome.UNKNOWN:
                    self._wait(attempt)
                case _:
                    assert_never(outcome)
        raise Unavailable(
            f"{self._log.name}: read version {self._proposal.base.version}: "
            f"{retry.commit_attempts_max} attempts to commit lost to other writers, the newest at "
            f"version {self._state.version}; nothing was committed, run the transaction again"
        )

    def _committed(self, attempts: int, snapshot: Snapshot) -> Committed:
        return Committed(
            version=snapshot.version,
            attempts=attempts,
            rebased_over=tuple(self._checked),
            snapshot=snapshot,
        )

    def _attempt(self, version: int, *, retries: int) -> tuple[tuple[Action, ...], Snapshot]:
        """The actions of one attempt, and the table as it is when the attempt succeeds."""
        previous, about = self._state, self._proposal.about
        now_ms = self._log.system.now_ms()
        metadata = self._set(Metadata) or previous.metadata
        protocol = self._set(Protocol) or previous.protocol
        time_ms = commit_time(previous, metadata, now_ms)
        actions = [
            with_provenance(action, previous, version, time_ms)
            if isinstance(action, Metadata)
            else action
            for action in self._net_actions()
        ]
        numbered = assign(actions, previous, version, protocol=protocol, metadata=metadata)
        tags = preserved_tag(self._footprint, self._proposal.base, metadata)
        info = commit_info(
            about,
            now_ms=now_ms,
            in_commit_ms=time_ms,
            tags=tags,
            rebased_over=len(self._checked),
            retries=retries,
        )
        every = (info, *numbered)
        after = previous.apply(every, version=version, timestamp_ms=now_ms)
        return every, after

    def _net_actions(self) -> tuple[Action, ...]:
        """What was proposed, its files as they are after the winners so far."""
        if self._footprint.unwritten:
            self._footprint = self._with_vectors(self._footprint)
        others = (one for one in self._proposal.actions if not isinstance(one, Add | Remove | Cdc))
        changes = (one for one in self._proposal.actions if isinstance(one, Cdc))
        return (*others, *self._footprint.removed, *self._footprint.added, *changes)

    def _with_vectors(self, footprint: Footprint) -> Footprint:
        """Writes the deletion vectors that were united with the winners'."""
        log, unwritten = self._log, footprint.unwritten
        written = write_vectors(log.store, log.system, list(unwritten.values()))
        vectors = dict(zip(unwritten, written, strict=True))
        added = tuple(
            msgspec.structs.replace(file, deletion_vector=vectors[path])
            if (path := canonical_path(file.path)) in vectors
            else file
            for file in footprint.added
        )
        return replace(footprint, added=added, unwritten={})

    def _set(self, kind: type[_Setting]) -> _Setting | None:
        found = [action for action in self._proposal.actions if isinstance(action, kind)]
        return found[-1] if found else None

    def _put(self, version: int, actions: Sequence[Action]) -> PutOutcome:
        """Puts the commit. EXISTS: a commit is at that version, which may be our own.

        A request whose reply was lost may still arrive, unless another commit is at its version:
        so the same version is tried again, until one is there.
        """
        outcome = self._log.write_commit(version, actions)
        if outcome is not PutOutcome.UNKNOWN:
            return outcome
        self._lost = version
        self._replies_lost += 1
        if self._replies_lost > _REPLIES_LOST_MAX:
            raise self._unknown(version)
        for look in range(1, _LOOKS + 1):
            try:
                self._log.commit_info(version)
            except FileNotFoundError:
                return PutOutcome.UNKNOWN
            except Unavailable:
                self._wait(look)
            else:
                return PutOutcome.EXISTS
        raise self._unknown(version)

    def _unknown(self, version: int) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"{self._log.name}: the reply to the commit of version {version} was lost, and looking "
            f"did not settle it; look whether version {version} has the txnId "
            f"{self._proposal.about.txn_id} before running the transaction again"
        )

    def _catch_up(self, *, at_least: int = -1) -> Snapshot | None:
        """Checks against every version that came first, in order, and follows the newest.

        The answer is our own commit's snapshot, when one of those versions is ours after all: its
        reply was lost, or the store's client sent it twice.
        """
        log, known = self._log, self._state.version
        if known < 0 and not log.exists():
            return None
        latest = log.latest()
        if latest.version < known:
            raise InvalidRequest(
                f"{log.name}: version {known}, which this transaction read, is gone: the newest is "
                f"{latest.version}. The table was dropped or replaced; begin a new transaction"
            )
        if latest.version < at_least:
            raise CorruptTable(
                f"{log.name}: {commit_path(at_least)} exists, but the listing of _delta_log ends "
                f"at version {latest.version}; the store's listing is not consistent"
            )
        if known < 0 and log.commit(0) is None:
            known = latest.version - 1  # old versions were cleaned up; any one tells of the table
        winners = []
        for commit in log.commits(known, latest.version):
            winner = summarise(commit.version, commit.actions, commit.timestamp_ms)
            if winner.txn_id == self._proposal.about.txn_id:
                self._lost = winner.version  # until its snapshot is read
                found = log.snapshot(winner.version)
                self._lost = None
                return found
            if self._lost is not None and winner.version >= self._lost:
                self._lost = None
            winners.append(winner)
        self._context.expect(winners)
        for winner in winners:
            self._check(winner)
        self._state = latest
        return None

    def _check(self, winner: Winner) -> None:
        outcome = check(self._footprint, winner, self._context)
        match outcome:
            case Conflicted():
                raise conflict_error(outcome)
            case Rebased():
                self._footprint = outcome.footprint
                _logger.info(
                    "%s: rebased over version %d: adopted %s",
                    self._log.name,
                    winner.version,
                    ", ".join(outcome.adopted),
                )
            case Fine():
                pass
            case _:
                assert_never(outcome)
        self._context = outcome.context
        self._checked.append(winner.version)

    def _wait(self, attempt: int) -> None:
        """Grows from attempt to attempt, jittered, so that writers don't march in step."""
        retry, system = self._log.settings.retry, self._log.system
        longest = min(retry.wait_ms_max, retry.wait_ms_min * 2 ** min(attempt, 16))
        wait_ms = longest * system.random()
        _logger.debug(
            "%s: attempt %d of %d lost, waiting %.0f ms",
            self._log.name,
            attempt,
            retry.commit_attempts_max,
            wait_ms,
        )
        system.wait_ms(wait_ms)


def commit(log: TableLog, proposal: Proposal) -> Committed:
    """Commits the proposal, or answers with the version read when it changes nothing."""
    if proposal.footprint.is_empty:
        base = proposal.base
        return Committed(version=base.version, attempts=0, rebased_over=(), snapshot=base)
    return CommitLoop(log, proposal).run()
