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


@dataclass(frozen=True, slots=True)
class Rejected:
    """None of several commits happened: the table in the way, and the cause."""

    table: str
    cause: Overtaken | Refused | Busy


def commit_foreign(
    log: TableLog, staged: StagedFile, *, transaction_id: str, bytes_max: int
) -> Outcome:
    """Commit a staged file as the next version of an open table of a lake.

    Arguments and errors as those of `commit_foreign_together`, for one table.
    """
    found = commit_foreign_together(
        [CommitRequest(log, staged)], {}, transaction_id=transaction_id, bytes_max=bytes_max
    )
    return found.cause if isinstance(found, Rejected) else found[0]


def commit_foreign_together(
    requests: Sequence[CommitRequest],
    unchanged: Mapping[str, int],
    *,
    transaction_id: str,
    bytes_max: int,
) -> Sequence[Accepted | AlreadyCommitted] | Rejected:
    """Commit staged files as the next versions of open tables at one instant, all or none.

    `unchanged`: by table id, the versions that other tables must still have. `transaction_id`: a
    transaction of the catalog, which ends with the ratification. `bytes_max`: the size limit of a
    commit.

    Raises InvalidRequest if a table isn't open, or a file is missing or differs from its
    description; Unavailable; OutcomeUnknown when it may have been ratified. Only in the last case
    may something have changed.
    """
    with ExitStack() as turns:
        for one in sorted(requests, key=lambda one: _catalog_table(one.log).table_id):
            turns.enter_context(one.log.turn())
        checked: list[_CheckedCommit] = []
        resent: list[tuple[TableLog, AlreadyCommitted]] = []
        for one in requests:
            match _check_request(one, bytes_max):
                case _CheckedCommit() as found:
                    checked.append(found)
                case AlreadyCommitted() as found:
                    resent.append((one.log, found))
                case cause:
                    return Rejected(one.log.name, cause)
        if not checked:
            return [found for _, found in resent]
        if resent:  # so it isn't the commit that came before, which was of all of them
            log, found = resent[0]
            return Rejected(log.name, Overtaken(found.snapshot.version))
        return _ratify_all(checked, unchanged, transaction_id)


def _check_request(
    request: CommitRequest, bytes_max: int
) -> _CheckedCommit | AlreadyCommitted | Overtaken | Refused:
    """Check one request against the table's newest version. Changes nothing.

    Overtaken: its version isn't the next one. Raises InvalidRequest if the table isn't open, or the
    file is missing, too large, or not as described.
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
    if staged.version <= before.version:
        return _already_committed(log, staged, content, before)
    if staged.version > before.version + 1:
        return Overtaken(before.version)
    return _check(log, staged, content, before)


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


def _already_committed(
    log: TableLog, staged: StagedFile, content: bytes, now: Snapshot
) -> AlreadyCommitted | Overtaken:
    """Return whether the commit was sent again after a lost reply: AlreadyCommitted, else
    Overtaken.

    A commit names its transaction, so that no other one has the same bytes.
    """
    known = log.commit(staged.version)
    mine = tuple(_decoded(content, log, staged))
    if known is None or known.actions != mine or known.info is None:
        return Overtaken(now.version)
    return AlreadyCommitted(now) if known.info.text("txnId") else Overtaken(now.version)


def _decoded(content: bytes, log: TableLog, staged: StagedFile) -> Sequence[Action]:
    """Return the staged actions. Raises InvalidRequest for bytes that aren't valid."""
    try:
        return decode_actions(content, file=f"{log.name}: {staged.name}")
    except CorruptTable as error:
        raise InvalidRequest(str(error)) from error


def _check(
    log: TableLog, staged: StagedFile, content: bytes, before: Snapshot
) -> _CheckedCommit | Refused:
    """Return the commit if it may follow `before`, else why not. Raises InvalidRequest for bytes
    that aren't valid.
    """
    actions = tuple(_decoded(content, log, staged))
    commit = ForeignCommit(
        version=staged.version,
        actions=actions,
        timestamp_ms=staged.timestamp_ms,
        catalog_owned=_CATALOG_OWNED,
        removable=_REMOVABLE,
    )
    found = find_refusal(commit, before, VectorCache(log.store, log.external_vectors))
    if found is not None:
        return Refused(found.reason, found.is_permanent)
    info = next(action for action in actions if isinstance(action, CommitInfo))
    try:
        validate(actions, before, operation=info.text("operation") or "", is_foreign=True)
    except (InvalidRequest, UnsupportedFeature, CorruptTable) as error:
        return Refused(str(error))
    return _CheckedCommit(log, before, staged.version, content, actions, info)


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
            return _overtaken_table(checked, unchanged, heads)
        case TurnTaken():
            _drop_all(staged_commits)
            name = checked[0].log.name
            return Rejected(name, Busy(f"{name}: it is another transaction's turn to commit"))
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


def _overtaken_table(
    checked: Sequence[_CheckedCommit], unchanged: Mapping[str, int], heads: Mapping[str, int]
) -> Rejected:
    """Return the rejection for the table that another transaction changed meanwhile.

    The first one whose head moved; for a table that was only read, its id stands for its name.
    """
    for one in checked:
        if heads.get(one.table_id, one.before.version) != one.before.version:
            return Rejected(one.log.name, Overtaken(heads[one.table_id]))
    for table_id, version in unchanged.items():
        if heads.get(table_id, version) != version:
            return Rejected(table_id, Overtaken(heads[table_id]))
    first = checked[0]
    return Rejected(first.log.name, Overtaken(heads.get(first.table_id, first.before.version)))


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
