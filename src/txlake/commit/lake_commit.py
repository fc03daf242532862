"""The commit of a transaction over catalog tables: one ratification, all or nothing.

Owns what an attempt stages, its ratification, and its publication, which can't fail a commit;
`commit_loop` has the attempts. Source: docs/internals/catalog.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from txlake.commit.catalog_managed import CatalogTable
from txlake.commit.commit_loop import CommitLoop, CommittedAttempt, CommittedTogether
from txlake.commit.membership import is_catalog_managed, is_open
from txlake.commit.parallel import is_far, parallel_map
from txlake.commit.publication import (
    Publication,
    RatifiedCommit,
    publish_ratified,
    staged_path,
)
from txlake.commit.read_records import read_record
from txlake.commit.rebase import Proposal, Rebase
from txlake.commit.table_log import TableLog
from txlake.commit.transaction_group import group_tags, transaction_group, with_group
from txlake.conflict.concurrent_commit import ConcurrentCommit
from txlake.errors import InvalidRequest, OutcomeUnknown, TxlakeError, Unavailable
from txlake.log.snapshot import Snapshot
from txlake.ports import (
    HeadsMoved,
    Ledger,
    NameChange,
    Ratification,
    Ratified,
    ReadRecord,
    System,
    TableCommit,
    TurnTaken,
)
from txlake.protocol.actions import Action, CommitInfo, encode_actions
from txlake.protocol.features import CATALOG_FEATURE
from txlake.protocol.file_names import StagedCommit, commit_path, log_path
from txlake.settings import AFTER_ANSWER, Settings

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Part:
    """A transaction's changes or reads of one catalog table.

    Attributes:
        log: the log of the catalog table.
        proposal: the changes and reads.
        always_commits: whether the table gets a version even if nothing changes, for its history.
    """

    log: TableLog
    proposal: Proposal
    always_commits: bool = False


def commit_together(
    ledger: Ledger,
    parts: Sequence[Part],
    *,
    transaction_id: str,
    names: Sequence[NameChange] = (),
    keeps_reads: bool = False,
    system: System,
    settings: Settings,
) -> CommittedTogether:
    """Commit all parts and changes of names at one instant.

    `keeps_reads`: the ledger keeps records of what the parts read, as on a branch.

    Parts that were only read are checked as far as their isolation level requires, and their
    tables' heads are part of the ratification. A transaction that changes nothing is never checked.

    Raises a Conflict, which names its table, when a winner conflicts; Unavailable when every
    attempt was lost or the catalog or a store can't be reached; OutcomeUnknown when the outcome
    can't be determined; InvalidRequest as `Ledger.ratify`; and CorruptTable when a log has versions
    that its catalog didn't ratify. Unless the outcome is unknown, nothing was committed then. After
    the ratification nothing is raised: failures of the publication are logged, and the next process
    that finds the commits publishes them; `occupied` reports a failure that publishing again won't
    repair.
    """
    tables = {_table_id(part.log): Rebase(part.log, part.proposal) for part in parts}
    if len(tables) < len(parts):
        raise InvalidRequest(
            f"transaction {transaction_id}: expected one part for each table, found two for one"
        )
    # In one order, so that which conflict is raised doesn't depend on chance.
    tables = dict(sorted(tables.items(), key=lambda item: (item[1].log.name, item[0])))
    loop = CommitLoop(
        LakeCommitter(ledger, transaction_id, names, _read_records(parts) if keeps_reads else {}),
        tables,
        always_commits=frozenset(_table_id(part.log) for part in parts if part.always_commits),
        has_names=bool(names),
        system=system,
        settings=settings,
    )
    for one in loop.written().values():
        one.log.store.ensure_safe()
    return loop.run()


def _read_records(parts: Sequence[Part]) -> dict[str, ReadRecord]:
    """Return what the parts read that has to stay true at their levels, by table id, for tables
    that existed before.
    """
    return {
        _table_id(part.log): read_record(part.proposal)
        for part in parts
        if part.proposal.base.version >= 0
    }


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One table's next version: what is ratified, and the table after it."""

    following: Rebase
    commit: TableCommit
    content: bytes
    snapshot: Snapshot

    @property
    def whole(self) -> TableCommit:
        """The commit with its bytes, even if they are staged in a file."""
        commit = self.commit
        return commit if commit.staged is None else replace(commit, content=self.content)


class LakeCommitter:
    """A Committer whose versions the lake's ledger ratifies, all or nothing."""

    def __init__(
        self,
        ledger: Ledger,
        transaction_id: str,
        names: Sequence[NameChange],
        reads: Mapping[str, ReadRecord],
    ) -> None:
        self._ledger = ledger
        self._transaction_id = transaction_id
        self._names = tuple(names)
        self._reads = reads

    @property
    def name(self) -> str:
        """The transaction's."""
        return f"transaction {self._transaction_id}"

    def outdated(self, tables: Mapping[str, Rebase]) -> Iterable[str]:
        """Return the tables that probably have newer versions; the ledger finds others.

        These are the tables with newer versions in the cache, and, if looking costs less than a
        lost attempt, those whose last transaction met commits of others.
        """
        return [
            table_id
            for table_id, one in tables.items()
            if one.state.version >= 0
            and (
                one.log.newest_known > one.state.version
                or (one.log.is_contended and not is_far(one.log.store))
            )
        ]

    def winners(self, following: Rebase, latest: Snapshot) -> Sequence[ConcurrentCommit]:
        return list(following.winners(latest))

    def commit(
        self, written: Mapping[str, Rebase], unchanged: Mapping[str, int], *, retries: int
    ) -> CommittedAttempt | HeadsMoved | TurnTaken:
        """Stage the next versions, have the ledger ratify them, and publish them.

        Staged files are deleted unless the versions are, or may be, ratified.
        """
        made = self._attempts(written, retries=retries)
        answer = self._ratify(made, unchanged)
        if not isinstance(answer, Ratified):
            self._drop(made)
            return answer
        for one in made:
            one.following.log.adopt(one.snapshot)
        publish = partial(self._publish, made, answer)
        publishes_later = self._may_publish_later(made)
        return CommittedAttempt(
            snapshots={one.commit.table_id: one.snapshot for one in made},
            publication=None if publishes_later else publish(),
            sequence=answer.sequence,
            publish=publish if publishes_later else None,
        )

    def _may_publish_later(self, made: Sequence[_Attempt]) -> bool:
        """Return whether the answer comes before the publication: by the settings, in far stores,
        and unless names change or other engines find commits by the log.
        """
        return not self._names and all(
            one.following.log.settings.publish == AFTER_ANSWER
            and is_far(one.following.log.store)
            and not is_open(one.snapshot.protocol)
            for one in made
        )

    def reserve(self, table_ids: Sequence[str]) -> bool:
        return self._ledger.reserve(self._transaction_id, table_ids)

    def unknown_outcome(self) -> None:
        """Return None: the ledger itself looks up the outcome of a request without a reply."""

    def attempts_exhausted(self, tables: Mapping[str, Rebase], attempts: int) -> Unavailable:
        """Return the error, with the versions that the tables had at the last attempt."""
        versions = ", ".join(
            f"{one.log.name} at version {one.state.version}" for one in tables.values()
        )
        return Unavailable(
            f"transaction {self._transaction_id}: {attempts} attempts to commit lost to other "
            f"writers, the newest with {versions}; nothing was committed, run the transaction again"
        )

    # One attempt

    def _attempts(self, written: Mapping[str, Rebase], *, retries: int) -> list[_Attempt]:
        """Return the staged next versions of the tables, several of one in their order. What was
        staged is deleted if one of them fails.
        """
        made: list[_Attempt] = []
        tags = group_tags(self._transaction_id, written.keys())
        versions = {
            table_id: self._versions(following, tags, retries)
            for table_id, following in written.items()
        }
        group = transaction_group(
            self._transaction_id,
            {table_id: [after for _, after in every] for table_id, every in versions.items()},
        )
        try:
            for table_id, following in written.items():
                for actions, after in versions[table_id]:
                    every = with_group(actions, group)
                    made.append(self._attempt(table_id, following, every, after))
        except Exception:
            self._drop(made)
            raise
        return made

    def _versions(
        self, following: Rebase, tags: Mapping[str, str], retries: int
    ) -> Sequence[tuple[tuple[Action, ...], Snapshot]]:
        """Return the actions of a table's next versions, each with the table after it: one, or a
        line of commits.
        """
        return list(following.line(tags)) or [following.attempt(retries=retries, tags=tags)]

    def _attempt(
        self, table_id: str, following: Rebase, actions: Sequence[Action], after: Snapshot
    ) -> _Attempt:
        """Return a staged version of a table. Raises InvalidRequest if the table was detached."""
        before = after if following.state.version < 0 else following.state
        if not is_catalog_managed(before.protocol):
            raise InvalidRequest(
                f"{following.log.name}: version {before.version} isn't held by the lake's catalog: "
                f"it lacks the table feature {CATALOG_FEATURE}. The table was detached, and is "
                "written by its place now"
            )
        info = next((each for each in actions if isinstance(each, CommitInfo)), CommitInfo({}))
        content = encode_actions(actions)
        commit = stage_commit(
            following.log,
            table_id=table_id,
            version=after.version,
            content=content,
            operation=info.text("operation"),
            # Others have to find what isn't published yet, and the folder where they stage theirs.
            always_staged=is_open(after.protocol),
        )
        return _Attempt(following, commit, content, after)

    def _ratify(
        self, made: Sequence[_Attempt], unchanged: Mapping[str, int]
    ) -> Ratified | HeadsMoved | TurnTaken:
        """Ratify the versions together with the changes of names.

        Staged files are deleted if it raises, unless the outcome is unknown.
        """
        request = Ratification(
            transaction_id=self._transaction_id,
            commits=tuple(one.commit for one in made),
            unchanged=unchanged,
            names=self._names,
            reads=self._reads,
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
        for one in made:
            drop_staged(one.following.log, one.commit)

    def _check_free(self, made: Sequence[_Attempt]) -> None:
        require_versions_free([(one.following.log, one.commit.version) for one in made])

    def _publish(self, made: Sequence[_Attempt], ratified: Ratified) -> Publication:
        """Publish the commits; a failure is logged, not raised.

        Of several versions of a table the last one's publication brings the others.
        """
        last = {one.commit.table_id: one for one in made}
        newest = [
            RatifiedCommit(
                one.following.log.store,
                one.whole,
                one.following.log.name,
                ratified.published.get(table_id),
            )
            for table_id, one in last.items()
        ]
        publication = publish_ratified(
            self._ledger,
            newest,
            # A transaction that reuses a name or place freed by this one finds all of it published.
            soon=None if self._names else self._transaction_id,
        )
        for one in made:
            if one.commit.table_id in publication.tables:
                one.following.log.note_file(one.commit.version)
        return publication


def stage_commit(
    log: TableLog,
    *,
    table_id: str,
    version: int,
    content: bytes,
    operation: str | None,
    always_staged: bool,
) -> TableCommit:
    """Return the commit for the ledger; a large one, or with `always_staged` any, is put into a
    file.

    The file is in `_delta_log/_staged_commits`, under a new name.
    """
    if not always_staged and len(content) <= log.settings.inline_commit_bytes_max:
        return TableCommit(table_id=table_id, version=version, content=content, operation=operation)
    path = log_path(StagedCommit(version, log.system.new_id()))
    log.store.put(path, content)
    staged = path.rpartition("/")[2]
    return TableCommit(table_id=table_id, version=version, staged=staged, operation=operation)


def drop_staged(log: TableLog, kept: TableCommit) -> None:
    """Delete the staged file of a commit that wasn't ratified; a failure is logged."""
    if kept.staged is None:
        return
    try:
        log.store.delete([staged_path(kept.staged)])
    except TxlakeError as error:
        _logger.info("%s: a staged commit was left behind: %s", log.name, error)


def require_versions_free(versions: Sequence[tuple[TableLog, int]]) -> None:
    """Raise unless each log ends just before the version to commit.

    A file at that version belongs to a transaction that was ratified meanwhile, or to one that the
    catalog doesn't know; a missing previous version isn't published yet, or was removed. Raises
    CorruptTable for a log ahead of its catalog, or behind it, and InvalidRequest for a table that
    is being created where another table is. Nothing is raised for a version that was ratified
    meanwhile: the ledger reports that.
    """
    parallel_map(_require_version_free, versions, store=lambda one: one[0].store)


def _require_version_free(following: tuple[TableLog, int]) -> None:
    """Raise CorruptTable or InvalidRequest unless a log ends just before the version to commit, as
    `require_versions_free` says.
    """
    log, version = following
    path, before = commit_path(version), version - 1
    has_version = log.look_for(version)
    has_before = log.look_for(before) if before >= 0 else lambda: True
    if not has_version():
        if not has_before():
            log.following.wait()  # this process may be about to publish it
            if not log.look_for(before)():
                log.require_published()
        return
    if before < 0:
        raise InvalidRequest(
            f"{log.name}: {log.store.url}/{path} exists already: another writer has made a "
            "table at this place; choose another place, or attach that table"
        )
    log.latest()


def _table_id(log: TableLog) -> str:
    """Return the catalog's id of the table. Raises InvalidRequest for a path table."""
    catalog_table: CatalogTable | None = log.catalog_table
    if catalog_table is None:
        raise InvalidRequest(
            f"{log.name}: a path table can't be part of a transaction over tables of a lake; "
            "attach it to the lake first"
        )
    return catalog_table.table_id
