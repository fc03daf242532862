"""The commit of one path table, whose log is the authority: put-if-absent of the next file.

Owns the put and what a lost reply means; the attempts are `commit_loop`'s. Source: PROTOCOL.md,
"Atomic commits"; DESIGN sections 2 and 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from txlake.conflict.concurrent_commit import ConcurrentCommit
from txlake.errors import CorruptTable, OutcomeUnknown, Unavailable
from txlake.log.snapshot import Snapshot
from txlake.ports import Moved, PutOutcome
from txlake.protocol.actions import Action, Protocol
from txlake.protocol.file_names import commit_path
from txlake.transaction.commit_loop import CommitLoop, Made, Unanswered
from txlake.transaction.membership import is_catalog_managed, refusal
from txlake.transaction.publication import Publication
from txlake.transaction.rebase import Committed, Proposal, Rebase, wait_after
from txlake.transaction.table_log import TableLog

_LOOKS = 3
_REPLIES_LOST_MAX = 5


def commit(log: TableLog, proposal: Proposal) -> Committed:
    """Commits the proposal, or answers with the version read when it changes nothing.

    Raises as `CommitLoop.run`, and InvalidRequest when the table belongs to a lake's catalog.
    """
    key = log.store.url
    loop = CommitLoop(
        PathCommitter(log, proposal, key),
        {key: Rebase(log, proposal)},
        system=log.system,
        settings=log.settings,
    )
    return loop.run().tables[key]


class PathCommitter:
    """A Committer: whose file is the next in the log has made the version."""

    def __init__(self, log: TableLog, proposal: Proposal, key: str) -> None:
        self._log = log
        self._proposal = proposal
        self._key = key
        self._lost: int | None = None  # the version of a put that may be there, or arrive
        self._replies_lost = 0

    @property
    def name(self) -> str:
        """The table's."""
        return self._log.name

    def outdated(self, asked: Mapping[str, Rebase]) -> Iterable[str]:
        # Also where there is no winner: a version that was read long ago may be followed by a gap
        # in the log, after its cleanup, and the gap must not be filled.
        return asked

    def winners(self, following: Rebase, latest: Snapshot) -> Sequence[ConcurrentCommit] | Made:
        """As `Committer.winners`: a reply was lost, or the store's client sent the commit twice.

        Raises InvalidRequest when the table belongs to a catalog.
        """
        log, txn_id = self._log, self._proposal.about.txn_id
        sent = self._lost
        if sent is not None and latest.version < sent:
            if log.find_txn_id(sent) != txn_id:
                self._lost = None
            raise CorruptTable(
                f"{log.name}: {commit_path(sent)} exists, but the listing of _delta_log ends "
                f"at version {latest.version}; the store's listing is not consistent"
            )
        found: list[ConcurrentCommit] = []
        for winner in following.winners(latest):
            if winner.txn_id == txn_id:
                self._lost = winner.version  # until its snapshot is read
                own = log.snapshot(winner.version)
                self._lost = None
                return self._made(own)
            if self._lost is not None and winner.version >= self._lost:
                self._lost = None
            found.append(winner)
        if is_catalog_managed(latest.protocol) and not self._attaches():
            raise refusal(log.name, latest.version, tuple(latest.domains.values()))
        return found

    def commit(
        self, written: Mapping[str, Rebase], unchanged: Mapping[str, int], *, retries: int
    ) -> Made | Moved | Unanswered:
        actions, snapshot = written[self._key].attempt(retries=retries)
        version = snapshot.version
        match self._put(version, actions):
            case PutOutcome.CREATED:
                self._lost = None
                self._log.adopt(snapshot)
                return self._made(snapshot)
            case PutOutcome.EXISTS:
                self._lost = version  # until it is seen whose it is: a client may send twice
                return Moved(heads={self._key: version})
            case PutOutcome.UNKNOWN:
                return Unanswered()

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
                log = self._log
                wait_after(log.settings.retry, log.system, look, log.name)
            else:
                return PutOutcome.EXISTS
        raise self._unknown(version)

    def _made(self, snapshot: Snapshot) -> Made:
        """What is put is published."""
        return Made(
            snapshots={self._key: snapshot}, publication=Publication(frozenset({self._key}))
        )

    def reserve(self, table_ids: Sequence[str]) -> bool:
        """A log has no turns."""
        return False

    def doubt(self) -> OutcomeUnknown | None:
        return None if self._lost is None else self._unknown(self._lost)

    def _unknown(self, version: int) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"{self._log.name}: the reply to the commit of version {version} was lost, and looking "
            f"did not settle it; look whether version {version} has the txnId "
            f"{self._proposal.about.txn_id} before running the transaction again"
        )

    def exhausted(self, tables: Mapping[str, Rebase], attempts: int) -> Unavailable:
        return Unavailable(
            f"{self._log.name}: read version {self._proposal.base.version}: "
            f"{attempts} attempts to commit lost to other writers, the newest at "
            f"version {tables[self._key].state.version}; nothing was committed, run the "
            "transaction again"
        )

    def _attaches(self) -> bool:
        """Whether the commit itself is what makes the table a catalog's."""
        protocols = (one for one in self._proposal.actions if isinstance(one, Protocol))
        return not is_catalog_managed(self._proposal.base.protocol) and any(
            map(is_catalog_managed, protocols)
        )
