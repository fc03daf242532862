"""The commit of a transaction over catalog tables: one ratification, all of it or nothing.

Owns the attempts: follow every table's winners, stage the commits, ratify, and what to do when
others were faster; then publication, which can't fail a commit any more. What a table's attempt
holds is `following`'s, who may commit `conflict`'s. Source: DESIGN section 5.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import assert_never

from txlake.conflict.concurrent_commit import ConcurrentCommit
from txlake.errors import InvalidRequest, OutcomeUnknown, TxlakeError, Unavailable
from txlake.log.snapshot import Snapshot
from txlake.ports import (
    Ledger,
    Moved,
    NameChange,
    Ratification,
    Ratified,
    Reserved,
    System,
    TableCommit,
)
from txlake.protocol.actions import encode_actions
from txlake.protocol.features import CATALOG_FEATURE
from txlake.protocol.file_names import StagedCommit, commit_path, log_path
from txlake.settings import Settings
from txlake.transaction.catalog_managed import CatalogManaged
from txlake.transaction.checkpointing import after_commit
from txlake.transaction.membership import is_catalog_managed
from txlake.transaction.publication import (
    Newest,
    Occupied,
    Publication,
    publish_newest,
    staged_path,
)
from txlake.transaction.rebase import Committed, Proposal, Rebase, wait_after
from txlake.transaction.table_log import TableLog

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Part:
    """What a transaction did, or only read, on one catalog table.

    Attributes:
        log: the table's, a governed one.
        proposal: what is to be committed, and what was read.
        is_told: whether there is a version though nothing changes, for the history to tell of it.
    """

    log: TableLog
    proposal: Proposal
    is_told: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedTogether:
    """A transaction that stands.

    Attributes:
        sequence: the instant of the lake since which it is true; None: there was nothing to commit.
        attempts: how often it was put to the ledger.
        tables: by table id, each part's outcome.
        occupied: why one of its commits can't be published, though it stands: another writer's file
            is at its version.
    """

    sequence: int | None
    attempts: int
    tables: Mapping[str, Committed]
    occupied: Occupied | None = None


def commit_together(
    ledger: Ledger,
    parts: Sequence[Part],
    *,
    transaction_id: str,
    names: Sequence[NameChange] = (),
    system: System,
    settings: Settings,
) -> CommittedTogether:
    """Commits all parts and changes of names at one instant.

    Parts that were only read are checked as far as their level asks, and their tables' heads are
    part of the ratification. A transaction that changes nothing is never checked.

    Raises a Conflict, which names its table, when a winner stands in the way, Unavailable when
    others were faster every time or the catalog or a store can't be reached, OutcomeUnknown when
    nobody can tell, InvalidRequest as `Ledger.ratify`, and CorruptTable when a table's log has
    versions that its catalog didn't ratify. Unless the outcome is unknown, nothing was committed
    then. After the ratification nothing is raised: what can't be published is logged, and whoever
    meets it next publishes it; `occupied` tells of what that won't mend.
    """
    return _LakeLoop(ledger, parts, transaction_id, names, system, settings).run()


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One table's next version: what is ratified, and the table after it."""

    following: Rebase
    commit: TableCommit
    content: bytes
    snapshot: Snapshot


class _LakeLoop:
    """The attempts of one transaction."""

    def __init__(
        self,
        ledger: Ledger,
        parts: Sequence[Part],
        transaction_id: str,
        names: Sequence[NameChange],
        system: System,
        settings: Settings,
    ) -> None:
        self._ledger = ledger
        self._transaction_id = transaction_id
        self._names = tuple(names)
        self._system = system
        self._settings = settings
        tables = {_table_id(part.log): Rebase(part.log, part.proposal) for part in parts}
        if len(tables) < len(parts):
            raise InvalidRequest(
                f"transaction {transaction_id}: expected one part for each table, found two for one"
            )
        self._told = frozenset(_table_id(part.log) for part in parts if part.is_told)
        # In one order whoever asks: which conflict is told doesn't hang on chance.
        self._tables = dict(sorted(tables.items(), key=lambda item: (item[1].log.name, item[0])))
        self._losses = 0
        self._is_reserved = False

    def run(self) -> CommittedTogether:
        """Commits, as `commit_together` promises."""
        with ExitStack() as turns:
            for one in self._written().values():
                one.log.store.ensure_safe()
                turns.enter_context(one.log.turn())
            outcome, made, publication = self._run()
        for attempt in made:
            if attempt.commit.table_id in publication.tables:
                about = attempt.following.proposal.about
                after_commit(attempt.following.log, attempt.snapshot, txn_id=about.txn_id)
            elif publication.occupied is not None:
                attempt.following.log.forget()  # who uses it next is to meet the wrong file
        return replace(outcome, occupied=publication.occupied)

    def _run(self) -> tuple[CommittedTogether, Sequence[_Attempt], Publication]:
        """The outcome, what was committed, and what of that is published."""
        attempts_max = self._settings.retry.commit_attempts_max
        self._catch_up(self._overtaken())
        for attempt in range(1, attempts_max + 1):
            if not self._names and not self._written():
                return self._outcome(None, attempt - 1, ()), (), Publication(frozenset())
            made = self._attempts(retries=attempt - 1)
            answer = self._ratify(made)
            match answer:
                case Ratified():
                    for one in made:
                        one.following.log.adopt(one.snapshot)
                    outcome = self._outcome(answer.sequence, attempt, made)
                    return outcome, made, self._publish(made, answer)
                case Moved():
                    self._drop(made)
                    self._lost(attempt)
                    self._catch_up(self._asked() if self._is_reserved else self._moved(answer))
                case Reserved():
                    self._drop(made)
                    self._wait(attempt)
                    self._catch_up(self._asked())
                case _:
                    assert_never(answer)
        versions = ", ".join(
            f"{one.log.name} at version {one.state.version}" for one in self._tables.values()
        )
        raise Unavailable(
            f"transaction {self._transaction_id}: {attempts_max} attempts to commit lost to other "
            f"writers, the newest with {versions}; nothing was committed, run the transaction again"
        )

    def _outcome(
        self, sequence: int | None, attempts: int, made: Sequence[_Attempt]
    ) -> CommittedTogether:
        after = {one.commit.table_id: one.snapshot for one in made}
        return CommittedTogether(
            sequence=sequence,
            attempts=attempts,
            tables={
                table_id: one.committed(attempts, after.get(table_id, one.state))
                for table_id, one in self._tables.items()
            },
        )

    def _written(self) -> dict[str, Rebase]:
        """The tables that get a version, as far as it is known; it may be fewer after winners."""
        return {
            table_id: one
            for table_id, one in self._tables.items()
            if table_id in self._told or not one.footprint.is_empty
        }

    def _asked(self) -> dict[str, Rebase]:
        """The tables whose heads matter: those that are written, and those that are validated."""
        written = self._written()
        return {
            table_id: one
            for table_id, one in self._tables.items()
            if table_id in written or _is_validated(one)
        }

    # Following others

    def _overtaken(self) -> list[str]:
        """The tables of which newer versions are known here already."""
        return [
            table_id
            for table_id, one in self._asked().items()
            if one.log.newest_known > one.state.version >= 0
        ]

    def _moved(self, moved: Moved) -> list[str]:
        heads = moved.heads
        return [
            table_id
            for table_id, one in self._asked().items()
            if heads.get(table_id, one.state.version) != one.state.version
        ]

    def _catch_up(self, table_ids: Iterable[str]) -> None:
        """Checks these tables against all that came first, and follows.

        The SELECTs of all tables come first: whether the transaction fits into a serial order at
        all is told before what happened on any one table.
        """
        news: list[tuple[Rebase, list[ConcurrentCommit], Snapshot]] = []
        for table_id in table_ids:
            following = self._tables[table_id]
            latest = following.latest()
            if latest is not None and latest.version > following.state.version:
                news.append((following, list(following.winners(latest)), latest))
        for following, winners, _ in news:
            following.check_selects(winners)
        for following, winners, latest in news:
            following.follow(winners, latest)

    def _lost(self, attempt: int) -> None:
        """After so many losses the next turn is asked for; others are waited for until then."""
        self._losses += 1
        if self._losses >= self._settings.retry.reserve_after:
            tables = [table_id for table_id, one in self._asked().items() if one.state.version >= 0]
            self._is_reserved = self._ledger.reserve(self._transaction_id, tables)
        if not self._is_reserved:
            self._wait(attempt)

    def _wait(self, attempt: int) -> None:
        wait_after(
            self._settings.retry, self._system, attempt, f"transaction {self._transaction_id}"
        )

    # One attempt

    def _attempts(self, *, retries: int) -> list[_Attempt]:
        made: list[_Attempt] = []
        try:
            for table_id, following in self._written().items():
                made.append(self._attempt(table_id, following, retries))
        except Exception:
            self._drop(made)
            raise
        return made

    def _attempt(self, table_id: str, following: Rebase, retries: int) -> _Attempt:
        actions, snapshot = following.attempt(retries=retries)
        before = snapshot if following.state.version < 0 else following.state
        if not is_catalog_managed(before.protocol):
            raise InvalidRequest(
                f"{following.log.name}: version {before.version} isn't held by the lake's catalog: "
                f"it lacks the table feature {CATALOG_FEATURE}. The table was detached, and is "
                "written by its place now"
            )
        content = encode_actions(actions)
        staged = None
        if len(content) > self._settings.inline_commit_bytes_max:
            path = log_path(StagedCommit(snapshot.version, self._system.new_id()))
            following.log.store.put(path, content)
            staged = path.rpartition("/")[2]
        commit = TableCommit(
            table_id=table_id,
            version=snapshot.version,
            content=None if staged else content,
            staged=staged,
            operation=following.proposal.about.operation,
        )
        return _Attempt(following, commit, content, snapshot)

    def _ratify(self, made: Sequence[_Attempt]) -> Ratified | Moved | Reserved:
        written = self._written()
        request = Ratification(
            transaction_id=self._transaction_id,
            commits=tuple(one.commit for one in made),
            unchanged={
                table_id: one.state.version
                for table_id, one in self._asked().items()
                if table_id not in written
            },
            names=self._names,
        )
        try:
            self._check_free(made)
            return self._ledger.ratify(request)
        except OutcomeUnknown:
            raise  # what was staged may be ratified
        except TxlakeError:
            self._drop(made)
            raise

    def _drop(self, made: Iterable[_Attempt]) -> None:
        """Deletes the files of an attempt that wasn't ratified."""
        for one in made:
            if one.commit.staged is not None:
                log = one.following.log
                try:
                    log.store.delete([staged_path(one.commit.staged)])
                except TxlakeError as error:
                    _logger.info("%s: a staged commit was left behind: %s", log.name, error)

    def _check_free(self, made: Sequence[_Attempt]) -> None:
        """Looks whether the logs end where the attempts go on.

        A file at an attempt's version is that of a transaction which was ratified meanwhile, or one
        that the catalog doesn't know; the version before isn't published yet, or its file was
        removed. A log that is ahead of its catalog, or behind it, raises CorruptTable. Of a table
        that is only being made it is another's table: InvalidRequest.
        """
        for one in made:
            log, before = one.following.log, one.following.state.version
            path = commit_path(one.commit.version)
            if log.store.head(path) is None:
                if before >= 0 and log.store.head(commit_path(before)) is None:
                    log.require_published()
                continue
            if before < 0:
                raise InvalidRequest(
                    f"{log.name}: {log.store.url}/{path} exists already: another writer has made a "
                    "table at this place; choose another place, or attach that table"
                )
            log.latest()

    def _publish(self, made: Sequence[_Attempt], ratified: Ratified) -> Publication:
        """Never raises."""
        newest = [
            Newest(
                one.following.log.store,
                replace(one.commit, content=one.content),
                one.following.log.name,
                ratified.published.get(one.commit.table_id),
            )
            for one in made
        ]
        return publish_newest(
            self._ledger,
            newest,
            # Who takes up a name, or a place, that this one gave away finds all of it published.
            soon=None if self._names else self._transaction_id,
        )


def _table_id(log: TableLog) -> str:
    governed: CatalogManaged | None = log.governed
    if governed is None:
        raise InvalidRequest(
            f"{log.name}: a path table can't be part of a transaction over tables of a lake; "
            "attach it to the lake first"
        )
    return governed.table_id


def _is_validated(following: Rebase) -> bool:
    return following.state.version >= 0 and following.footprint.depends_on_table(
        following.proposal.level
    )
