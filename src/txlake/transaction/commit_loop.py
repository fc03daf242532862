"""The commit loop: follow what came first, check it, hand what is left to a committer, try again.

Owns the attempts, what is waited for and for how long, and what follows a commit. Who makes a
version true is the committer's business, who may commit `conflict`'s, what an attempt holds
`rebase`'s. Source: docs/internals/conflict-rules.md, docs/internals/catalog.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol, assert_never

from txlake.conflict.concurrent_commit import ConcurrentCommit
from txlake.errors import (
    CorruptTable,
    InvalidRequest,
    OutcomeUnknown,
    Unavailable,
    UnsupportedFeature,
)
from txlake.log.snapshot import Snapshot
from txlake.ports import Moved, Reserved, System
from txlake.settings import Settings
from txlake.telemetry import count, span, timed
from txlake.transaction.checkpointing import after_commit
from txlake.transaction.parallel import parallel_map
from txlake.transaction.publication import Occupied, Publication
from txlake.transaction.rebase import Committed, Rebase, wait_after


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedAttempt:
    """An attempt that stands.

    Attributes:
        snapshots: by table id, the tables that got a version, at that version.
        publication: which of these versions are in their tables' logs.
        sequence: the instant of the lake since which it is true, where there is a lake.
    """

    snapshots: Mapping[str, Snapshot]
    publication: Publication
    sequence: int | None = None


@dataclass(frozen=True, slots=True)
class ReplyLost:
    """The reply was lost; nothing is there, but the request may still arrive."""


class Committer(Protocol):
    """Makes the versions of one attempt true, all of them or none; used for one transaction.

    Tables are named by their ids, each with its proposal as it is after the winners so far. Every
    method may raise what stores and catalogs raise.
    """

    @property
    def name(self) -> str:
        """Who commits, as a log line names it."""
        ...

    def outdated(self, tables: Mapping[str, Rebase]) -> Iterable[str]:
        """The tables that are followed before the first attempt."""
        ...

    def winners(
        self, following: Rebase, latest: Snapshot
    ) -> Sequence[ConcurrentCommit] | CommittedAttempt:
        """The commits that came first on one table, in order, up to the latest.

        Made where one of them is the transaction's own after all.
        """
        ...

    def commit(
        self, written: Mapping[str, Rebase], unchanged: Mapping[str, int], *, retries: int
    ) -> CommittedAttempt | Moved | Reserved | ReplyLost:
        """One attempt: the next version of each table that is written, when no other came first.

        `unchanged`: the heads that other tables must still have. What was staged for an attempt
        that is known to have failed is deleted. Where the outcome isn't known: OutcomeUnknown.
        After the attempt stands nothing is raised.
        """
        ...

    def reserve(self, table_ids: Sequence[str]) -> bool:
        """The next turn to commit to these tables, where there are turns."""
        ...

    def unknown_outcome(self) -> OutcomeUnknown | None:
        """The error to raise in place of another one where an attempt before it may stand."""
        ...

    def attempts_exhausted(self, tables: Mapping[str, Rebase], attempts: int) -> Unavailable:
        """The error when others were faster every time."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedTogether:
    """A transaction that stands.

    Attributes:
        sequence: the instant of the lake since which it is true; None: there was nothing to commit,
            or there is no lake.
        attempts: how often it was put to the committer.
        tables: by table id, each part's outcome.
        occupied: why one of its commits can't be published, though it stands: another writer's file
            is at its version.
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
        """Commits.

        Raises a Conflict when a winner stands in the way, Unavailable when there were more winners
        than attempts, OutcomeUnknown when it can't be found out, and what the committer raises.
        Unless the outcome is unknown, nothing was committed then.
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
        publication = made.publication
        published = [table_id for table_id in made.snapshots if table_id in publication.tables]
        parallel_map(
            lambda table_id: self._after_commit(table_id, made.snapshots[table_id]),
            published,
            store=lambda table_id: self._tables[table_id].log.store,
        )
        if publication.occupied is not None:
            for table_id in made.snapshots.keys() - published:
                self._tables[table_id].log.forget()  # who uses it next is to meet the wrong file
        return CommittedTogether(
            sequence=made.sequence,
            attempts=attempts,
            tables={
                table_id: one.committed(attempts, made.snapshots.get(table_id, one.state))
                for table_id, one in self._tables.items()
            },
            occupied=publication.occupied,
        )

    def _after_commit(self, table_id: str, snapshot: Snapshot) -> None:
        one = self._tables[table_id]
        after_commit(one.log, snapshot, txn_id=one.proposal.provenance.txn_id)

    def _run(self) -> tuple[int, CommittedAttempt]:
        """What stands, and after how many attempts."""
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
                case Moved() as moved:
                    self._attempt_lost(attempt)
                    found = self._catch_up(
                        self._involved_tables() if self._is_reserved else self._moved_tables(moved)
                    )
                    if found is not None:
                        return attempt, found
                case Reserved():
                    self._wait(attempt)
                    self._catch_up(self._involved_tables())
                case ReplyLost():
                    self._wait(attempt)
                case other:
                    assert_never(other)
        raise self._committer.attempts_exhausted(self._tables, self._retry.commit_attempts_max)

    @span("attempt")
    def _attempt(self, *, retries: int) -> CommittedAttempt | Moved | Reserved | ReplyLost:
        written = self.written()
        unchanged = {
            table_id: one.state.version
            for table_id, one in self._involved_tables().items()
            if table_id not in written
        }
        return self._committer.commit(written, unchanged, retries=retries)

    def written(self) -> dict[str, Rebase]:
        """The tables that get a version, as far as it is known; it may be fewer after winners."""
        return {
            table_id: one
            for table_id, one in self._tables.items()
            if table_id in self._always_commits or not one.footprint.is_empty
        }

    def _has_work(self) -> bool:
        return self._has_names or bool(self.written())

    def _involved_tables(self) -> dict[str, Rebase]:
        """The tables whose heads matter: those that are written, and those that are validated."""
        written = self.written()
        return {
            table_id: one
            for table_id, one in self._tables.items()
            if table_id in written or _is_validated(one)
        }

    # Following others

    def _moved_tables(self, moved: Moved) -> list[str]:
        heads = moved.heads
        return [
            table_id
            for table_id, one in self._involved_tables().items()
            if heads.get(table_id, one.state.version) != one.state.version
        ]

    @span("rebase")
    @timed("txlake.rebase.duration")
    def _catch_up(self, table_ids: Iterable[str]) -> CommittedAttempt | None:
        """Checks these tables against all that came first, and follows the newest versions.

        The SELECTs of all tables come first: whether the transaction fits into a serial order at
        all is told before what happened on any one table. The answer is the transaction's own
        commit, when that is what came first.
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
        """After so many losses the next turn is asked for; others are waited for until then.

        Not after the first: what came before is known now, and nothing says that more will come.
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
    return following.state.version >= 0 and following.footprint.depends_on_table(
        following.proposal.level
    )
