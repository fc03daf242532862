"""The commit loop of one path table: put-if-absent, following every winner, try again.

Owns the attempts and their outcomes; `following` owns the checks and what an attempt holds. Source:
PROTOCOL.md, "Atomic commits"; DESIGN sections 2 and 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from txlake.conflict.concurrent_commit import ConcurrentCommit
from txlake.errors import CorruptTable, InvalidRequest, OutcomeUnknown, Unavailable
from txlake.log.snapshot import Snapshot
from txlake.ports import PutOutcome
from txlake.protocol.actions import Action, Protocol
from txlake.protocol.file_names import commit_path
from txlake.transaction.checkpointing import after_commit
from txlake.transaction.membership import is_catalog_managed, refusal
from txlake.transaction.rebase import Committed, Proposal, Rebase, wait_after
from txlake.transaction.table_log import TableLog

_LOOKS = 3
_REPLIES_LOST_MAX = 5


class CommitLoop:
    """Commits one proposal; every attempt follows the newest version known."""

    def __init__(self, log: TableLog, proposal: Proposal) -> None:
        self._log = log
        self._proposal = proposal
        self._following = Rebase(log, proposal)
        self._lost: int | None = None  # the version of a put that may be there, or arrive
        self._replies_lost = 0

    def run(self) -> Committed:
        """Commits.

        Raises a Conflict when a winner stands in the way, InvalidRequest when the table belongs to
        a lake's catalog, Unavailable when there were more winners than attempts, OutcomeUnknown
        when a reply was lost and looking didn't settle it, and what the store raises. Unless the
        outcome is unknown, nothing was committed then.
        """
        try:
            with self._log.turn():
                committed = self._run()
        except (Unavailable, InvalidRequest, CorruptTable) as error:
            if self._lost is None:
                raise
            raise self._unknown(self._lost) from error
        if committed.snapshot is not self._following.state:  # a version was made
            after_commit(self._log, committed.snapshot, txn_id=self._proposal.about.txn_id)
        return committed

    def _run(self) -> Committed:
        retry, following = self._log.settings.retry, self._following
        # Also where nobody came first: a version that was read long ago may be followed by a gap
        # in the log, after its cleanup, and the gap must not be filled.
        self._catch_up()
        for attempt in range(1, retry.commit_attempts_max + 1):
            if following.footprint.is_empty:
                return following.committed(attempt - 1, following.state)
            actions, snapshot = following.attempt(retries=attempt - 1)
            version = snapshot.version
            outcome = self._put(version, actions)
            match outcome:
                case PutOutcome.CREATED:
                    self._lost = None
                    self._log.adopt(snapshot)
                    return following.committed(attempt, snapshot)
                case PutOutcome.EXISTS:
                    self._lost = version  # until it is seen whose it is: a client may send twice
                    self._wait(attempt)
                    found = self._catch_up(at_least=version)
                    if found is not None:
                        return following.committed(attempt, found)
                case PutOutcome.UNKNOWN:
                    self._wait(attempt)
                case _:
                    assert_never(outcome)
        raise Unavailable(
            f"{self._log.name}: read version {self._proposal.base.version}: "
            f"{retry.commit_attempts_max} attempts to commit lost to other writers, the newest at "
            f"version {following.state.version}; nothing was committed, run the transaction again"
        )

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
        log, following = self._log, self._following
        latest = following.latest()
        if latest is None:
            return None
        if latest.version < at_least:
            if log.find_txn_id(at_least) != self._proposal.about.txn_id:
                self._lost = None
            raise CorruptTable(
                f"{log.name}: {commit_path(at_least)} exists, but the listing of _delta_log ends "
                f"at version {latest.version}; the store's listing is not consistent"
            )
        winners: list[ConcurrentCommit] = []
        for winner in following.winners(latest):
            if winner.txn_id == self._proposal.about.txn_id:
                self._lost = winner.version  # until its snapshot is read
                found = log.snapshot(winner.version)
                self._lost = None
                return found
            if self._lost is not None and winner.version >= self._lost:
                self._lost = None
            winners.append(winner)
        if is_catalog_managed(latest.protocol) and not self._attaches():
            raise refusal(log.name, latest.version, tuple(latest.domains.values()))
        following.check_selects(winners)
        following.follow(winners, latest)
        return None

    def _attaches(self) -> bool:
        """Whether the commit itself is what makes the table a catalog's."""
        protocols = (one for one in self._proposal.actions if isinstance(one, Protocol))
        return not is_catalog_managed(self._proposal.base.protocol) and any(
            map(is_catalog_managed, protocols)
        )

    def _wait(self, attempt: int) -> None:
        log = self._log
        wait_after(log.settings.retry, log.system, attempt, log.name)


def commit(log: TableLog, proposal: Proposal) -> Committed:
    """Commits the proposal, or answers with the version read when it changes nothing."""
    if proposal.footprint.is_empty:
        base = proposal.base
        return Committed(version=base.version, attempts=0, rebased_over=(), snapshot=base)
    return CommitLoop(log, proposal).run()
