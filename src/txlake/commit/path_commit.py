"""The commit of one path table, whose log is the authority: put-if-absent of the next file.

Owns the put, what a lost reply means, and the check that a log clean-up didn't free the version
before the put; the attempts are `commit_loop`'s. Source: PROTOCOL.md, "Delta Log Entries" and
"Metadata Cleanup".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from txlake.commit.commit_loop import CommitLoop, CommittedAttempt, ReplyLost
from txlake.commit.membership import bypass_error, is_catalog_managed
from txlake.commit.publication import Publication
from txlake.commit.read_records import read_tags
from txlake.commit.rebase import Committed, Proposal, Rebase, wait_after
from txlake.commit.table_log import LogReading, TableLog
from txlake.conflict.concurrent_commit import ConcurrentCommit
from txlake.errors import CorruptTable, OutcomeUnknown, Unavailable
from txlake.log.snapshot import Snapshot
from txlake.ports import HeadsMoved, PutOutcome
from txlake.protocol.actions import Action, Protocol
from txlake.protocol.file_names import commit_path

_LOOKS = 3
_REPLIES_LOST_MAX = 5


def commit(log: TableLog, proposal: Proposal, reading: LogReading | None = None) -> Committed:
    """Commit the proposal; return the version read if it changes nothing.

    `reading`: of the log, begun after the transaction began. Raises as `CommitLoop.run`, and
    InvalidRequest when the table belongs to a lake's catalog.
    """
    key = log.store.url
    loop = CommitLoop(
        PathCommitter(log, proposal, key, reading),
        {key: Rebase(log, proposal)},
        always_commits=frozenset() if proposal.derive is None else frozenset({key}),
        system=log.system,
        settings=log.settings,
    )
    return loop.run().tables[key]


class PathCommitter:
    """A Committer that creates a version by putting the next file of the log."""

    def __init__(
        self, log: TableLog, proposal: Proposal, key: str, reading: LogReading | None = None
    ) -> None:
        self._reading = reading
        self._log = log
        self._proposal = proposal
        self._key = key
        self._tags = read_tags(log, proposal)
        self._lost: int | None = None  # the version of a put that may be there, or arrive
        self._replies_lost = 0
        self._listed = self._clocks()

    @property
    def name(self) -> str:
        """The table's."""
        return self._log.name

    def outdated(self, tables: Mapping[str, Rebase]) -> Iterable[str]:
        # Also where there is no winner: a version that was read long ago may be followed by a gap
        # in the log, after its cleanup, and the gap must not be filled.
        if self._reading is not None:
            self._listed = self._reading.begun
            newest = self._reading.newest()
            is_foreign = is_catalog_managed(newest.protocol)
            return [
                key
                for key, one in tables.items()
                if is_foreign or one.state.version < newest.version
            ]
        self._listed = self._clocks()
        return tables

    def winners(
        self, following: Rebase, latest: Snapshot
    ) -> Sequence[ConcurrentCommit] | CommittedAttempt:
        """Return the winners, as `Committer.winners`; a commit with the transaction's txnId is its
        own.

        Raises InvalidRequest when the table belongs to a catalog, CorruptTable when the listing
        lacks a commit that exists, and as `_check_newest`.
        """
        log, txn_id = self._log, self._proposal.provenance.txn_id
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
                self._check_newest(winner.version)
                self._lost = None
                return self._made(own)
            if self._lost is not None and winner.version >= self._lost:
                self._lost = None
            found.append(winner)
        if is_catalog_managed(latest.protocol) and not self._attaches():
            raise bypass_error(log.name, latest.version, tuple(latest.domains.values()))
        return found

    def commit(
        self, written: Mapping[str, Rebase], unchanged: Mapping[str, int], *, retries: int
    ) -> CommittedAttempt | HeadsMoved | ReplyLost:
        """Put the next file of the log, once. HeadsMoved also if the file that exists may be our
        own.

        Raises OutcomeUnknown, and Unavailable as `_check_newest`.
        """
        actions, snapshot = written[self._key].attempt(retries=retries, tags=self._tags)
        version = snapshot.version
        match self._put(version, actions):
            case PutOutcome.CREATED:
                if self._is_listing_old():
                    self._lost = version
                    self._check_newest(version)
                self._lost = None
                self._log.adopt(snapshot)
                return self._made(snapshot)
            case PutOutcome.EXISTS:
                self._lost = version  # until it is seen whose it is: a client may send twice
                self._listed = self._clocks()  # the loop lists the log before the next attempt
                return HeadsMoved(heads={self._key: version})
            case PutOutcome.UNKNOWN:
                return ReplyLost()

    def _put(self, version: int, actions: Sequence[Action]) -> PutOutcome:
        """Put the commit. EXISTS: a commit is at that version, which may be our own.

        UNKNOWN: the reply was lost, and there is no commit so far. The request may still arrive,
        unless another commit is at its version: so the same version is tried again, until one is
        there. Raises OutcomeUnknown if that isn't settled.
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

    def _clocks(self) -> tuple[float, int]:
        """Return the monotonic time and the time of day, both in ms.

        The first one doesn't step, the second one goes on while the machine is suspended.
        """
        return self._log.system.monotonic_ms(), self._log.system.now_ms()

    def _is_listing_old(self) -> bool:
        """Return whether commits may have been made and cleaned up since the last listing."""
        now = self._clocks()
        age_ms = max(now[0] - self._listed[0], now[1] - self._listed[1])
        return age_ms > self._log.settings.listing_age_ms_max

    def _check_newest(self, version: int) -> None:
        """Check that our commit is the newest version, or that later commits followed it.

        A suspended writer may put a version that others had committed and a log clean-up had
        deleted: no reader of a newer version sees that commit. That is proven if the next version
        is missing and a file of a later one is not younger than ours by the store's times.

        Raises Unavailable when our commit fills such a gap (it is deleted, nothing was committed),
        and OutcomeUnknown when the files prove neither.
        """
        log = self._log
        listing = log.listing(version)
        own = listing.commits.get(version)
        later = [
            *(entry for number, entry in listing.commits.items() if number > version),
            *(c.parts[0] for c in listing.checkpoints if c.version > version),
        ]
        if own is not None and not later:
            return
        is_followed = version + 1 in listing.commits
        is_not_younger = own is not None and any(
            one.modified_ms <= own.modified_ms for one in later
        )
        if own is not None and is_followed and not is_not_younger:
            return
        if not is_followed and is_not_younger:
            log.store.delete([commit_path(version)])
            self._lost = None
            raise Unavailable(
                f"{log.name}: version {version} was free because a clean-up of the log had deleted "
                f"it; the log goes on to version {listing.latest_version}, and what this "
                f"transaction read (version {self._proposal.base.version}) is too old to be "
                "checked; nothing was committed, run the transaction again"
            )
        raise OutcomeUnknown(
            f"{log.name}: version {version} was written a long time after the log had been listed, "
            f"and its files don't prove that version {version + 1} follows it; look whether the "
            f"newest version contains the changes of txnId "
            f"{self._proposal.provenance.txn_id} before running the transaction again"
        )

    def _made(self, snapshot: Snapshot) -> CommittedAttempt:
        """Return the successful attempt: a version that was put is published."""
        return CommittedAttempt(
            snapshots={self._key: snapshot}, publication=Publication(frozenset({self._key}))
        )

    def reserve(self, table_ids: Sequence[str]) -> bool:
        """Return False: a log has no turns."""
        return False

    def unknown_outcome(self) -> OutcomeUnknown | None:
        """Return the error if a put may have succeeded, or may still arrive; else None."""
        return None if self._lost is None else self._unknown(self._lost)

    def _unknown(self, version: int) -> OutcomeUnknown:
        """Return the error for a version that may be the transaction's."""
        return OutcomeUnknown(
            f"{self._log.name}: the reply to the commit of version {version} was lost, and looking "
            f"did not settle it; look whether version {version} has the txnId "
            f"{self._proposal.provenance.txn_id} before running the transaction again"
        )

    def attempts_exhausted(self, tables: Mapping[str, Rebase], attempts: int) -> Unavailable:
        """Return the error, with the version of the last attempt."""
        return Unavailable(
            f"{self._log.name}: read version {self._proposal.base.version}: "
            f"{attempts} attempts to commit lost to other writers, the newest at "
            f"version {tables[self._key].state.version}; nothing was committed, run the "
            "transaction again"
        )

    def _attaches(self) -> bool:
        """Return whether the commit itself is what makes the table a catalog's."""
        protocols = (one for one in self._proposal.actions if isinstance(one, Protocol))
        return not is_catalog_managed(self._proposal.base.protocol) and any(
            map(is_catalog_managed, protocols)
        )
