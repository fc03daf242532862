"""The commit loop: rebase onto newer commits, check them, commit, and retry.

Owns the attempts, the waits between them, and what follows a commit. A committer creates the
versions, `conflict` decides who may commit, `rebase` has the content of an attempt. Source:
docs/how-a-commit-works.md, docs/internals/catalog.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol, assert_never

from txlake.commit.checkpointing import after_commit
from txlake.commit.parallel import follow, is_far, parallel_map
from txlake.commit.publication import Occupied, Publication
from txlake.commit.rebase import Committed, Rebase, wait_after
from txlake.conflict.concurrent_commit import ConcurrentCommit
from txlake.errors import (
    CorruptTable,
    InvalidRequest,
    OutcomeUnknown,
    Unavailable,
    UnsupportedFeature,
)
from txlake.log.snapshot import Snapshot
from txlake.ports import HeadsMoved, System, TurnTaken
from txlake.settings import Settings
from txlake.telemetry import count, span, timed


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedAttempt:
    """A successful attempt.

    Attributes:
        snapshots: by table id, the tables that got a version, at that version.
        publication: which of these versions are in their tables' logs; None if that follows the
            answer.
        sequence: the instant of the lake since which it is visible, for a lake.
        publish: publishes the versions, if that follows the answer.
    """

    snapshots: Mapping[str, Snapshot]
    publication: Publication | None
    sequence: int | None = None
    publish: Callable[[], Publication] | None = None


@dataclass(frozen=True, slots=True)
class ReplyLost:
    """The reply was lost; nothing was written so far, but the request may still arrive."""


class Committer(Protocol):
    """Creates the versions of one attempt, all of them or none; used for one transaction.

    Tables are named by their ids, each with its proposal rebased onto the winners so far. Every
    method may raise what stores and catalogs raise.
    """

    @property
    def name(self) -> str:
        """The committer's name in log lines."""
        ...

    def outdated(self, tables: Mapping[str, Rebase]) -> Iterable[str]:
        """Return the tables to rebase before the first attempt."""
        ...

    def winners(
        self, following: Rebase, latest: Snapshot
    ) -> Sequence[ConcurrentCommit] | CommittedAttempt:
        """Return the commits that came first on one table, in order, up to the latest.

        CommittedAttempt if one of them is the transaction's own.
        """
        ...

    def commit(
        self, written: Mapping[str, Rebase], unchanged: Mapping[str, int], *, retries: int
    ) -> CommittedAttempt | HeadsMoved | TurnTaken | ReplyLost:
        """Try to commit: the next version of each written table, unless another commit came first.

        `unchanged`: the heads that other tables must still have. Files staged for an attempt that
        is known to have failed are deleted. Raises OutcomeUnknown when the outcome is unknown.
        After a successful attempt nothing is raised.
        """
        ...

    def reserve(self, table_ids: Sequence[str]) -> bool:
        """Request the next turn to commit to these tables, without waiting for it.

        Returns False if another transaction has it, or if there are no turns.
        """
        ...

    def unknown_outcome(self) -> OutcomeUnknown | None:
        """Return the error to raise instead of another if an earlier attempt may have committed;
        None if none may have.
        """
        ...

    def attempts_exhausted(self, tables: Mapping[str, Rebase], attempts: int) -> Unavailable:
        """Return the error for a transaction that lost every attempt."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedTogether:
    """A committed transaction.

    Attributes:
        sequence: the instant of the lake since which it is visible; None if there was nothing to
            commit, or there is no lake.
        attempts: the number of attempts.
        tables: by table id, each part's outcome.
        occupied: why one of its commits can't be published, though it is committed: another
            writer's file is at its version.
    """

    sequence: int | None
    attempts: int
    tables: Mapping[str, Committed]
    occupied: Occupied | None = None


class CommitLoop:
    """The attempts of one transaction.

    `tables` are all tables that it wrote or read, in the order in which they are checked. Those in
    `always_commits` get a version even if nothing changes. `has_names`: changes of names are
    committed too, even if no table gets a version.
    """

    def __init__(
        self,
        committer: Committer,
        tables: Mapping[str, Rebase],
        *,
        always_commits: frozenset[str] = frozenset(),
        has_names: bool = False,
        system: System,
        settings: Settings,
    ) -> None:
        self._committer = committer
        self._tables = tables
        self._always_commits = always_commits
        self._has_names = has_names
        self._system = system
        self._retry = settings.retry
        self._losses = 0
        self._is_reserved = False

    def run(self) -> CommittedTogether:
        """Commit the transaction, and do the work after a commit on its tables.

        No table gets a version if there is nothing to commit. Raises a Conflict when a winner
        conflicts with it, Unavailable when every attempt was lost, OutcomeUnknown when the outcome
        can't be determined, and what the committer raises. Unless the outcome is unknown, nothing
        was committed then.
        """
        try:
            with ExitStack() as turns:
                for one in self.written().values():
                    turns.enter_context(one.log.turn())
                attempts, made = self._run()
        except (Unavailable, InvalidRequest, CorruptTable, UnsupportedFeature) as error:
            unknown_outcome = self._committer.unknown_outcome()
            if unknown_outcome is None:
                raise
            raise unknown_outcome from error
        for one in self._tables.values():
            one.log.is_contended = bool(one.checked)
        self._follow_up(made)
        return CommittedTogether(
            sequence=made.sequence,
            attempts=attempts,
            tables={
                table_id: one.committed(attempts, made.snapshots.get(table_id, one.state))
                for table_id, one in self._tables.items()
            },
            occupied=None if made.publication is None else made.publication.occupied,
        )

    def _follow_up(self, made: CommittedAttempt) -> None:
        """Do what follows a commit: publish it unless that was done, and write the checksums and
        checkpoints of what is published. Where a store is far the answer doesn't wait for it.
        """
        logs = [self._tables[table_id].log for table_id in made.snapshots]

        def work() -> None:
            publication = made.publication if made.publish is None else made.publish()
            assert publication is not None, "a commit that isn't published says how it will be"
            published = [table_id for table_id in made.snapshots if table_id in publication.tables]
            parallel_map(
                lambda table_id: self._after_commit(table_id, made.snapshots[table_id]),
                published,
                store=lambda table_id: self._tables[table_id].log.store,
            )
            if publication.occupied is not None:
                for table_id in made.snapshots.keys() - published:
                    self._tables[table_id].log.forget()  # the next use has to find the other file

        if logs:
            far = next((log.store for log in logs if is_far(log.store)), logs[0].store)
            follow([log.following for log in logs], work, store=far)

    def _after_commit(self, table_id: str, snapshot: Snapshot) -> None:
        one = self._tables[table_id]
        after_commit(one.log, snapshot, txn_id=one.proposal.provenance.txn_id)

    def _run(self) -> tuple[int, CommittedAttempt]:
        """Return the number of attempts, and the successful one, which is empty if there is no
        work. Raises Unavailable after the last attempt, and what an attempt raises.
        """
        if self._has_work():
            self._catch_up(self._committer.outdated(self._involved_tables()))
        for attempt in range(1, self._retry.commit_attempts_max + 1):
            if not self._has_work():
                return attempt - 1, CommittedAttempt(
                    snapshots={}, publication=Publication(frozenset())
                )
            match self._attempt(retries=attempt - 1):
                case CommittedAttempt() as made:
                    return attempt, made
                case HeadsMoved() as moved:
                    self._attempt_lost(attempt)
                    found = self._catch_up(
                        self._involved_tables() if self._is_reserved else self._moved_tables(moved)
                    )
                    if found is not None:
                        return attempt, found
                case TurnTaken():
                    self._wait(attempt)
                    self._catch_up(self._involved_tables())
                case ReplyLost():
                    self._wait(attempt)
                case other:
                    assert_never(other)
        raise self._committer.attempts_exhausted(self._tables, self._retry.commit_attempts_max)

    @span("attempt")
    def _attempt(self, *, retries: int) -> CommittedAttempt | HeadsMoved | TurnTaken | ReplyLost:
        """Make one attempt with the tables as they are rebased now."""
        written = self.written()
        unchanged = {
            table_id: one.state.version
            for table_id, one in self._involved_tables().items()
            if table_id not in written
        }
        return self._committer.commit(written, unchanged, retries=retries)

    def written(self) -> dict[str, Rebase]:
        """Return the tables that get a version if it commits now; after winners it may be fewer."""
        return {
            table_id: one
            for table_id, one in self._tables.items()
            if table_id in self._always_commits or not one.footprint.is_empty
        }

    def _has_work(self) -> bool:
        return self._has_names or bool(self.written())

    def _involved_tables(self) -> dict[str, Rebase]:
        """Return the tables whose heads matter: written ones, and those with validated reads."""
        written = self.written()
        return {
            table_id: one
            for table_id, one in self._tables.items()
            if table_id in written or _is_validated(one)
        }

    # Following others

    def _moved_tables(self, moved: HeadsMoved) -> list[str]:
        """Return the tables whose heads aren't the versions that this attempt followed."""
        heads = moved.heads
        return [
            table_id
            for table_id, one in self._involved_tables().items()
            if heads.get(table_id, one.state.version) != one.state.version
        ]

    @span("rebase")
    @timed("txlake.rebase.duration")
    def _catch_up(self, table_ids: Iterable[str]) -> CommittedAttempt | None:
        """Check these tables against newer commits, and rebase onto their newest versions.

        The SELECTs of all tables come first: that the transaction fits into no serial order is
        reported before conflicts on any one table. Returns the transaction's own commit, if that is
        what came first, else None. Raises the Conflict.
        """
        news: list[tuple[Rebase, Sequence[ConcurrentCommit], Snapshot]] = []
        for table_id in table_ids:
            one = self._tables[table_id]
            latest = one.latest()
            if latest is None:
                continue
            winners = self._committer.winners(one, latest)
            if isinstance(winners, CommittedAttempt):
                return winners
            news.append((one, winners, latest))
        for one, winners, _ in news:
            one.check_selects(winners)
        for one, winners, latest in news:
            one.follow(winners, latest)
        return None

    def _attempt_lost(self, attempt: int) -> None:
        """Count a lost attempt, reserve the next turn after `reserve_after` of them, and wait.

        There is no wait once the turn is reserved, and none after the first loss: the winner is
        known now, and nothing says that more follow.
        """
        self._losses += 1
        count("txlake.commit.retries")
        if self._losses >= self._retry.reserve_after:
            tables = [
                table_id
                for table_id, one in self._involved_tables().items()
                if one.state.version >= 0
            ]
            self._is_reserved = self._committer.reserve(tables)
        if self._losses > 1 and not self._is_reserved:
            self._wait(attempt)

    def _wait(self, attempt: int) -> None:
        wait_after(self._retry, self._system, attempt, self._committer.name)


def _is_validated(following: Rebase) -> bool:
    """Return whether an existing table was read in a way that its head's move may invalidate."""
    return following.state.version >= 0 and following.footprint.depends_on_table(
        following.proposal.level
    )
