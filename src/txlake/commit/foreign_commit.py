"""Commits that other engines stage for open tables: read, checked, ratified and published.

Owns the steps and their order. The checks are in `conflict.foreign_rules` and `validation`. The
checked bytes are what is ratified: the ledger gets them, so that a later change
of the staged file doesn't change the table. The staged file belongs to its writer, who may be
reading it; the log clean-up removes it. Source: docs/internals/catalog.md; PROTOCOL.md,
"Catalog-managed tables".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from txlake.commit.catalog_managed import CatalogTable
from txlake.commit.checkpointing import after_commit
from txlake.commit.lake_commit import drop_staged, require_versions_free, stage_commit
from txlake.commit.membership import DOMAIN, TABLE_ID, is_open
from txlake.commit.publication import (
    Publication,
    RatifiedCommit,
    publish_ratified,
    staged_path,
)
from txlake.commit.table_log import TableLog
from txlake.commit.validation import validate
from txlake.conflict.foreign_rules import ForeignCommit, find_refusal
from txlake.conflict.group_rules import StagedVersion, group_refusals, same_transaction
from txlake.datafiles.vectors import VectorCache
from txlake.errors import (
    CorruptTable,
    InvalidRequest,
    OutcomeUnknown,
    TxlakeError,
    UnsupportedFeature,
)
from txlake.log.snapshot import Snapshot
from txlake.ports import HeadsMoved, Ratification, Ratified, TableCommit, TurnTaken
from txlake.protocol.actions import Action, CommitInfo, decode_actions
from txlake.protocol.file_names import StagedCommit, parse_name

_CATALOG_OWNED = frozenset({DOMAIN, TABLE_ID})
# A replaced table has the properties that it is given then.
_REMOVABLE = frozenset({DOMAIN})


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """A staged commit as its writer describes it.

    Attributes:
        version: the version that it is to create.
        name: its file in `_delta_log/_staged_commits`.
        timestamp_ms: its time, milliseconds since the epoch.
        size_bytes: the size of the file.
    """

    version: int
    name: str
    timestamp_ms: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """The commit is the table's version; `is_published`: its file is in the log too."""

    snapshot: Snapshot
    is_published: bool


@dataclass(frozen=True, slots=True)
class AlreadyCommitted:
    """The commit was the table's version before; `snapshot` is the table now."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Overtaken:
    """Another commit came first, or an earlier one is missing; `version` is the table's."""

    version: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The commit is invalid; `is_permanent` as in `foreign_rules.Refusal`."""

    reason: str
    is_permanent: bool = False


@dataclass(frozen=True, slots=True)
class Busy:
    """Another transaction has its turn to commit; the commit may be retried."""

    reason: str


Outcome = Accepted | AlreadyCommitted | Overtaken | Refused | Busy


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """A staged commit, and the log of the table that it is for."""

    log: TableLog
    staged: StagedFile


Cause = Overtaken | Refused | Busy


@dataclass(frozen=True, slots=True)
class Rejected:
    """None of several commits happened: the tables in the way, by name, each with its cause."""

    causes: Mapping[str, Cause]


def commit_foreign(
    log: TableLog, staged: StagedFile, *, transaction_id: str, bytes_max: int
) -> Outcome:
    """Commit a staged file as the next version of an open table of a lake.

    Arguments and errors as those of `commit_foreign_together`, for one table.
    """
    found = commit_foreign_together(
        [CommitRequest(log, staged)], {}, transaction_id=transaction_id, bytes_max=bytes_max
    )
    return next(iter(found.causes.values())) if isinstance(found, Rejected) else found[0]


def commit_foreign_together(
    requests: Sequence[CommitRequest],
    unchanged: Mapping[str, int],
    *,
    transaction_id: str,
    group_id: str | None = None,
    bytes_max: int,
) -> Sequence[Accepted | AlreadyCommitted] | Rejected:
    """Commit staged files as the next versions of open tables at one instant, all or none.

    `unchanged`: by table id, the versions that other tables must still have. `transaction_id`: a
    transaction of the catalog, which ends with the ratification. `group_id`: the writer's own
    transaction, which the commits name (`group_rules`). `bytes_max`: the size limit of a commit.

    A commit that was made before counts as made: one with the same content, and any of the same
    transaction over the same versions of the same tables.

    Raises InvalidRequest if a table isn't open, or a file is missing or differs from its
    description; Unavailable; OutcomeUnknown when it may have been ratified. Only in the last case
    may something have changed.
    """
    with ExitStack() as turns:
        for one in sorted(requests, key=lambda one: _catalog_table(one.log).table_id):
            turns.enter_context(one.log.turn())
        staged = [_read_request(one, bytes_max) for one in requests]
        causes = _group_refusals(staged, group_id)
        if causes:
            return Rejected(causes)
        checked: list[_CheckedCommit] = []
        resent: dict[str, AlreadyCommitted] = {}
        for commit in staged:
            match _check_staged(commit):
                case _CheckedCommit() as found:
                    checked.append(found)
                case AlreadyCommitted() as found:
                    resent[commit.log.name] = found
                case cause:
                    causes[commit.log.name] = cause
        if not checked and not causes:
            return list(resent.values())
        # What was committed before was the transaction as a whole, so this is another one.
        causes |= {name: Overtaken(made.snapshot.version) for name, made in resent.items()}
        return Rejected(causes) if causes else _ratify_all(checked, unchanged, transaction_id)


@dataclass(frozen=True, slots=True)
class _StagedCommit:
    """A staged commit as it was read, and its table's newest version then."""

    log: TableLog
    staged: StagedFile
    before: Snapshot
    content: bytes
    actions: tuple[Action, ...]


def _read_request(request: CommitRequest, bytes_max: int) -> _StagedCommit:
    """Read a staged commit. Raises InvalidRequest if the table isn't open, or the file is missing,
    too large, not as described, or not valid.
    """
    log, staged = request.log, request.staged
    before = log.latest()
    if not is_open(before.protocol):
        raise InvalidRequest(
            f"{log.name}: only txlake writes it: it lacks the table feature catalogManaged. "
            "ALTER TABLE ... SET TBLPROPERTIES ('delta.feature.catalogManaged' = 'supported') "
            "opens it to other engines"
        )
    content = _read(log, staged, bytes_max)
    return _StagedCommit(log, staged, before, content, tuple(_decoded(content, log, staged)))


def _group_refusals(commits: Sequence[_StagedCommit], group_id: str | None) -> dict[str, Cause]:
    """Return, by the table's name, the refusal of commits that name another transaction than the
    one that they are ratified in.
    """
    versions = [
        StagedVersion(
            table_id=_catalog_table(one.log).table_id,
            version=one.staged.version,
            actions=one.actions,
        )
        for one in commits
    ]
    reasons = group_refusals(versions, group_id)
    return {
        one.log.name: Refused(reasons[version.table_id], is_permanent=True)
        for one, version in zip(commits, versions, strict=True)
        if version.table_id in reasons
    }


def _check_staged(
    commit: _StagedCommit,
) -> _CheckedCommit | AlreadyCommitted | Overtaken | Refused:
    """Check a staged commit against the table's newest version. Changes nothing.

    Overtaken: its version isn't the next one.
    """
    version, newest = commit.staged.version, commit.before.version
    if version <= newest:
        return _already_committed(commit)
    return Overtaken(newest) if version > newest + 1 else _check(commit)


def _catalog_table(log: TableLog) -> CatalogTable:
    assert log.catalog_table is not None, "only a lake's tables have commits of others"
    return log.catalog_table


@dataclass(frozen=True, slots=True)
class _CheckedCommit:
    """A commit that may follow `before`."""

    log: TableLog
    before: Snapshot
    version: int
    content: bytes
    actions: tuple[Action, ...]
    info: CommitInfo

    @property
    def table_id(self) -> str:
        """The catalog's id of the table."""
        return _catalog_table(self.log).table_id

    def table_commit(self) -> TableCommit:
        """Return the commit for the ledger: the checked bytes, whatever becomes of the file."""
        return stage_commit(
            self.log,
            table_id=self.table_id,
            version=self.version,
            content=self.content,
            operation=self.info.text("operation"),
            always_staged=False,
        )


def _read(log: TableLog, staged: StagedFile, bytes_max: int) -> bytes:
    """Return the staged bytes. Raises InvalidRequest for a missing or too large file, and if its
    name or size isn't as described.
    """
    path = staged_path(staged.name)
    match parse_name(path):
        case StagedCommit(version, _) if version == staged.version:
            pass
        case _:
            raise InvalidRequest(
                f"{log.name}: expected <version {staged.version}, of 20 digits>.<uuid>.json as the "
                f"name of the staged commit, found {staged.name!r:.120}"
            )
    stored = log.store.head(path)
    if stored is None:
        raise InvalidRequest(f"{log.name}: there is no staged commit {path}")
    if stored.size_bytes > bytes_max:
        raise InvalidRequest(
            f"{log.name}: {path} has {stored.size_bytes} bytes, and a commit at most {bytes_max}"
        )
    if stored.size_bytes != staged.size_bytes:
        raise InvalidRequest(
            f"{log.name}: {path} has {stored.size_bytes} bytes, and {staged.size_bytes} were told"
        )
    try:
        return log.store.get(path)
    except FileNotFoundError as error:
        raise InvalidRequest(f"{log.name}: there is no staged commit {path}") from error


def _already_committed(commit: _StagedCommit) -> AlreadyCommitted | Overtaken:
    """Return whether the commit was sent again after a lost reply: AlreadyCommitted, else
    Overtaken.

    A commit names its transaction, so that no other one has the same bytes. One of a transaction
    over several tables may have been staged anew meanwhile.
    """
    known = commit.log.commit(commit.staged.version)
    if known is None or known.info is None or not known.info.text("txnId"):
        return Overtaken(commit.before.version)
    is_own = known.actions == commit.actions or same_transaction(known.actions, commit.actions)
    return AlreadyCommitted(commit.before) if is_own else Overtaken(commit.before.version)


def _decoded(content: bytes, log: TableLog, staged: StagedFile) -> Sequence[Action]:
    """Return the staged actions. Raises InvalidRequest for bytes that aren't valid."""
    try:
        return decode_actions(content, file=f"{log.name}: {staged.name}")
    except CorruptTable as error:
        raise InvalidRequest(str(error)) from error


def _check(commit: _StagedCommit) -> _CheckedCommit | Refused:
    """Return the commit if it may follow its table's newest version, else why not."""
    log, staged, before, actions = commit.log, commit.staged, commit.before, commit.actions
    foreign = ForeignCommit(
        version=staged.version,
        actions=actions,
        timestamp_ms=staged.timestamp_ms,
        catalog_owned=_CATALOG_OWNED,
        removable=_REMOVABLE,
    )
    found = find_refusal(foreign, before, VectorCache(log.store, log.external_vectors))
    if found is not None:
        return Refused(found.reason, found.is_permanent)
    info = next(action for action in actions if isinstance(action, CommitInfo))
    try:
        validate(actions, before, operation=info.text("operation") or "", is_foreign=True)
    except (InvalidRequest, UnsupportedFeature, CorruptTable) as error:
        return Refused(str(error))
    return _CheckedCommit(log, before, staged.version, commit.content, actions, info)


def _ratify_all(
    checked: Sequence[_CheckedCommit], unchanged: Mapping[str, int], transaction_id: str
) -> Sequence[Accepted | AlreadyCommitted] | Rejected:
    """Ratify and publish the checked commits, or reject them.

    What was put beside the logs for it is deleted unless the commits are, or may be, ratified.
    """
    staged_commits: list[tuple[_CheckedCommit, TableCommit]] = []
    try:
        staged_commits.extend((one, one.table_commit()) for one in checked)
        answer = _ratify(staged_commits, unchanged, transaction_id)
    except OutcomeUnknown:
        raise
    except TxlakeError:
        _drop_all(staged_commits)
        raise
    match answer:
        case HeadsMoved(heads=heads):
            _drop_all(staged_commits)
            return Rejected(_overtaken_tables(checked, unchanged, heads))
        case TurnTaken():
            _drop_all(staged_commits)
            name = checked[0].log.name
            return Rejected({name: Busy(f"{name}: it is another transaction's turn to commit")})
        case Ratified():
            return _publish(staged_commits, answer, transaction_id)


def _ratify(
    staged_commits: Sequence[tuple[_CheckedCommit, TableCommit]],
    unchanged: Mapping[str, int],
    transaction_id: str,
) -> Ratified | HeadsMoved | TurnTaken:
    """Ask the ledger to ratify the commits. Raises as `require_versions_free` if a log doesn't end
    just before its commit's version.
    """
    require_versions_free([(one.log, commit.version) for one, commit in staged_commits])
    request = Ratification(
        transaction_id=transaction_id,
        commits=tuple(commit for _, commit in staged_commits),
        unchanged=unchanged,
    )
    return _catalog_table(staged_commits[0][0].log).ledger.ratify(request)


def _overtaken_tables(
    checked: Sequence[_CheckedCommit], unchanged: Mapping[str, int], heads: Mapping[str, int]
) -> dict[str, Cause]:
    """Return the tables that another transaction changed meanwhile, with their heads.

    The first commit's table if no head differs; for a table that was only read, its id stands for
    its name.
    """
    expected = {one.table_id: one.before.version for one in checked} | dict(unchanged)
    names = {one.table_id: one.log.name for one in checked}
    moved = [table for table, version in expected.items() if heads.get(table, version) != version]
    first = checked[0]
    return {
        names.get(table_id, table_id): Overtaken(heads.get(table_id, first.before.version))
        for table_id in moved or [first.table_id]
    }


def _drop_all(staged_commits: Iterable[tuple[_CheckedCommit, TableCommit]]) -> None:
    for one, commit in staged_commits:
        drop_staged(one.log, commit)


def _publish(
    staged_commits: Sequence[tuple[_CheckedCommit, TableCommit]],
    ratified: Ratified,
    transaction_id: str,
) -> Sequence[Accepted | AlreadyCommitted]:
    """Publish ratified commits, and do the work after a commit. Never raises: they are
    committed.
    """
    now_ms = staged_commits[0][0].log.system.now_ms()
    snapshots: list[Snapshot] = []
    newest: list[RatifiedCommit] = []
    for one, commit in staged_commits:
        made = one.before.apply(one.actions, version=one.version, timestamp_ms=now_ms)
        one.log.adopt(made)
        snapshots.append(made)
        published = ratified.published.get(commit.table_id)
        known = replace(commit, content=one.content)
        newest.append(RatifiedCommit(one.log.store, known, one.log.name, published))
    ledger = _catalog_table(staged_commits[0][0].log).ledger
    publication: Publication = publish_ratified(ledger, newest, soon=transaction_id)
    outcomes: list[Accepted | AlreadyCommitted] = []
    for (one, commit), made in zip(staged_commits, snapshots, strict=True):
        is_published = commit.table_id in publication.tables
        if is_published:
            after_commit(one.log, made, txn_id=one.info.text("txnId"))
        elif publication.occupied is not None:
            one.log.forget()  # the next use has to find the other file
        outcomes.append(Accepted(made, is_published))
    return outcomes
