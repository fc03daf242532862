"""The commit loop of one table: put-if-absent, checks against every winner, rebase, try again.

Owns the attempts and their outcomes. What is committed is made anew at each attempt from the state
that it follows: row ids, in-commit timestamp, commitInfo. Source: PROTOCOL.md, "Atomic commits";
DESIGN sections 2 and 4.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar, assert_never

from txlake.conflict.check import check
from txlake.conflict.context import Context
from txlake.conflict.evidence import Conflicted, Fine, Rebased, conflict_error
from txlake.conflict.footprint import Footprint
from txlake.conflict.levels import Level
from txlake.conflict.winner import summarise
from txlake.errors import CorruptTable, OutcomeUnknown, Unavailable
from txlake.log.snapshot import Snapshot
from txlake.ports import PutOutcome
from txlake.protocol.actions import Action, Metadata, Protocol
from txlake.transaction.checkpointing import after_commit
from txlake.transaction.commit_info import Provenance, commit_info
from txlake.transaction.in_commit_time import commit_time, with_provenance
from txlake.transaction.row_tracking import assign
from txlake.transaction.table_log import TableLog

_logger = logging.getLogger(__name__)
_LOOKS = 3
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
    """

    base: Snapshot
    footprint: Footprint
    actions: tuple[Action, ...]
    level: Level
    about: Provenance
    table_granularity: bool = False


class CommitLoop:
    """Commits one proposal; every attempt follows the newest version known."""

    def __init__(self, log: TableLog, proposal: Proposal) -> None:
        self._log = log
        self._proposal = proposal
        self._state = proposal.base
        self._footprint = proposal.footprint
        self._checked: list[int] = []
        self._lost: int | None = None  # the version of a put whose reply was lost
        self._context = Context(
            base=proposal.base,
            metadata=proposal.base.metadata,
            protocol=proposal.base.protocol,
            level=proposal.level,
            table_granularity=proposal.table_granularity,
        )

    def run(self) -> Committed:
        """Commits.

        Raises a Conflict when a winner stands in the way, Unavailable when there were more winners
        than attempts, OutcomeUnknown when a reply was lost and looking didn't settle it, and what
        the store raises. Unless the outcome is unknown, nothing was committed then.
        """
        retry = self._log.settings.retry
        for attempt in range(1, retry.commit_attempts_max + 1):
            version = self._state.version + 1
            actions, snapshot = self._attempt(version)
            outcome = self._put(version, actions)
            match outcome:
                case PutOutcome.CREATED:
                    self._log.adopt(snapshot)
                    after_commit(self._log, snapshot, txn_id=self._proposal.about.txn_id)
                    return Committed(
                        version=version,
                        attempts=attempt,
                        rebased_over=tuple(self._checked),
                        snapshot=snapshot,
                    )
                case PutOutcome.EXISTS:
                    self._rebase()
                    self._wait(attempt)
                case PutOutcome.UNKNOWN:
                    self._wait(attempt)
                case _:
                    assert_never(outcome)
        if self._lost is not None:
            raise self._unknown(self._lost)
        raise Unavailable(
            f"{self._log.name}: read version {self._proposal.base.version}: "
            f"{retry.commit_attempts_max} attempts to commit lost to other writers, the newest at "
            f"version {self._state.version}; nothing was committed, run the transaction again"
        )

    def _attempt(self, version: int) -> tuple[tuple[Action, ...], Snapshot]:
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
            for action in self._proposal.actions
        ]
        numbered = assign(actions, previous, version, protocol=protocol, metadata=metadata)
        info = commit_info(about, now_ms=now_ms, in_commit_ms=time_ms)
        every = (info, *numbered)
        after = previous.apply(every, version=version, timestamp_ms=now_ms)
        return every, after

    def _set(self, kind: type[_Setting]) -> _Setting | None:
        found = [action for action in self._proposal.actions if isinstance(action, kind)]
        return found[-1] if found else None

    def _put(self, version: int, actions: Sequence[Action]) -> PutOutcome:
        """Puts the commit; a lost reply is resolved by looking for our own `txnId`.

        A request whose reply was lost may still arrive: nobody else's commit can then be at that
        version, so the same version is tried again until one of the two is there.
        """
        outcome = self._log.write_commit(version, actions)
        if outcome is PutOutcome.UNKNOWN:
            self._lost = version
        if outcome is PutOutcome.CREATED or self._lost != version:
            return outcome
        for look in range(1, _LOOKS + 1):
            try:
                found = self._log.commit_info(version)
            except FileNotFoundError:
                return PutOutcome.UNKNOWN
            except Unavailable:
                self._wait(look)
                continue
            self._lost = None
            ours = found is not None and found.text("txnId") == self._proposal.about.txn_id
            return PutOutcome.CREATED if ours else PutOutcome.EXISTS
        raise self._unknown(version)

    def _unknown(self, version: int) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"{self._log.name}: the reply to the commit of version {version} was lost, and looking "
            f"did not settle it; look whether version {version} has the txnId "
            f"{self._proposal.about.txn_id} before running the transaction again"
        )

    def _rebase(self) -> None:
        """Checks against every version that came first, in order, and follows the newest."""
        latest = self._log.latest()
        if latest.version <= self._state.version:
            raise CorruptTable(
                f"{self._log.name}: version {self._state.version + 1} exists, but the listing of "
                f"_delta_log ends at {latest.version}; the store's listing is not consistent"
            )
        for commit in self._log.commits(self._state.version, latest.version):
            winner = summarise(commit.version, commit.actions, commit.timestamp_ms)
            outcome = check(self._footprint, winner, self._context)
            match outcome:
                case Conflicted():
                    raise conflict_error(outcome)
                case Rebased():
                    self._footprint = outcome.footprint
                    self._context = outcome.context
                    _logger.info(
                        "%s: rebased over version %d: adopted %s",
                        self._log.name,
                        commit.version,
                        ", ".join(outcome.adopted),
                    )
                case Fine():
                    self._context = outcome.context
                case _:
                    assert_never(outcome)
            self._checked.append(commit.version)
        self._state = latest

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
