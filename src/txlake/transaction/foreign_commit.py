"""Another engine's commit of one open table: read where it was staged, judged, ratified, published.

Owns the steps and their order; why a commit is refused is `conflict.judging`'s and `validation`'s.
What was judged is what is ratified: the ledger gets the bytes that were read, so that nothing which
happens to the staged file afterwards changes the table. The staged file itself stays its writer's,
who may be reading it; the log's clean-up removes it. Source: DESIGN section 5; PROTOCOL.md,
"Catalog-managed tables".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from txlake.conflict.judging import ForeignCommit, refusal_of
from txlake.datafiles.vectors import StoredVectors
from txlake.errors import (
    CorruptTable,
    InvalidRequest,
    OutcomeUnknown,
    TxlakeError,
    UnsupportedFeature,
)
from txlake.log.snapshot import Snapshot
from txlake.ports import Ledger, Moved, Ratification, Ratified, Reserved, TableCommit
from txlake.protocol.actions import Action, CommitInfo, decode_actions
from txlake.protocol.file_names import StagedCommit, commit_path, log_path, parse_name
from txlake.transaction.checkpointing import after_commit
from txlake.transaction.membership import DOMAIN, TABLE_ID, is_open
from txlake.transaction.publication import Newest, Publication, publish_newest, staged_path
from txlake.transaction.table_log import TableLog
from txlake.transaction.validation import validated

_KEPT = frozenset({DOMAIN, TABLE_ID})


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A commit that was staged, as its writer tells of it.

    Attributes:
        version: the version that it is to make.
        name: its file in `_delta_log/_staged_commits`.
        timestamp_ms: when it happened.
        size_bytes: of the file.
    """

    version: int
    name: str
    timestamp_ms: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """It is the table's version; `is_published`: in the log too."""

    snapshot: Snapshot
    is_published: bool


@dataclass(frozen=True, slots=True)
class Resent:
    """It was the table's version already; `snapshot` is the table now."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Overtaken:
    """Another commit came first, or one before it is missing: the table is at this version."""

    version: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The table would not be whole after it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Busy:
    """A transaction that lost too often has its turn; it may be tried again."""

    reason: str


Outcome = Accepted | Resent | Overtaken | Refused | Busy


def commit_foreign(
    log: TableLog, staged: Staged, *, transaction_id: str, bytes_max: int
) -> Outcome:
    """Makes a staged commit the next version of an open table of a lake, or says why not.

    `transaction_id`: one that the catalog knows, which ends with the ratification. `bytes_max`: how
    large a commit may be.

    Raises InvalidRequest where the table isn't open, or the file isn't there or isn't what was
    told; Unavailable; OutcomeUnknown when it may have been ratified. Nothing was changed then but
    in the last case.
    """
    governed = log.governed
    assert governed is not None, "only a lake's tables have commits of others"
    with log.turn():
        before = log.latest()
        if not is_open(before.protocol):
            raise InvalidRequest(
                f"{log.name}: only txlake writes it: it lacks the table feature catalogManaged. "
                "ALTER TABLE ... SET TBLPROPERTIES ('delta.feature.catalogManaged' = 'supported') "
                "opens it to other engines"
            )
        content = _read(log, staged, bytes_max)
        if staged.version <= before.version:
            return _told_before(log, staged, content, before)
        if staged.version > before.version + 1:
            return Overtaken(before.version)
        found = _judged(log, staged, content, before)
        if isinstance(found, Refused):
            return found
        return _ratified(log, governed.ledger, governed.table_id, found, before, transaction_id)


@dataclass(frozen=True, slots=True)
class _Sound:
    """A commit that may follow."""

    version: int
    content: bytes
    actions: tuple[Action, ...]
    info: CommitInfo
    inline_bytes_max: int


def _read(log: TableLog, staged: Staged, bytes_max: int) -> bytes:
    """The staged bytes. Raises InvalidRequest where they aren't as they were told."""
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


def _told_before(log: TableLog, staged: Staged, content: bytes, now: Snapshot) -> Outcome:
    """Whether it is the commit that made its version: its reply was lost, and it was sent again.

    A commit names its transaction, so that no other one has the same bytes.
    """
    known = log.commit(staged.version)
    mine = tuple(_decoded(content, log, staged))
    if known is None or known.actions != mine or known.info is None:
        return Overtaken(now.version)
    return Resent(now) if known.info.text("txnId") else Overtaken(now.version)


def _decoded(content: bytes, log: TableLog, staged: Staged) -> Sequence[Action]:
    try:
        return decode_actions(content, file=f"{log.name}: {staged.name}")
    except CorruptTable as error:
        raise InvalidRequest(str(error)) from error


def _judged(log: TableLog, staged: Staged, content: bytes, before: Snapshot) -> _Sound | Refused:
    actions = tuple(_decoded(content, log, staged))
    commit = ForeignCommit(
        version=staged.version, actions=actions, timestamp_ms=staged.timestamp_ms, is_kept=_KEPT
    )
    reason = refusal_of(commit, before, StoredVectors(log.store, log.elsewhere))
    if reason is not None:
        return Refused(reason)
    info = next(action for action in actions if isinstance(action, CommitInfo))
    try:
        validated(actions, before, operation=info.text("operation") or "", is_foreign=True)
    except (InvalidRequest, UnsupportedFeature, CorruptTable) as error:
        return Refused(str(error))
    inline = log.settings.inline_commit_bytes_max
    return _Sound(staged.version, content, actions, info, inline)


def _ratified(
    log: TableLog,
    ledger: Ledger,
    table_id: str,
    sound: _Sound,
    before: Snapshot,
    transaction_id: str,
) -> Outcome:
    commit = TableCommit(
        table_id=table_id,
        version=sound.version,
        content=sound.content,
        operation=sound.info.text("operation"),
    )
    kept = commit
    if len(sound.content) > sound.inline_bytes_max:
        path = log_path(StagedCommit(sound.version, log.system.new_id()))
        log.store.put(path, sound.content)
        kept = replace(commit, content=None, staged=path.rpartition("/")[2])
    try:
        answer = _ratify(log, ledger, transaction_id, kept)
    except OutcomeUnknown:
        raise
    except TxlakeError:
        _drop(log, kept)
        raise
    match answer:
        case Moved(heads=heads):
            _drop(log, kept)
            return Overtaken(heads.get(table_id, before.version))
        case Reserved():
            _drop(log, kept)
            return Busy(f"{log.name}: it is another transaction's turn to commit")
        case Ratified():
            return _published(
                log, ledger, replace(kept, content=sound.content), sound, before, answer
            )


def _ratify(
    log: TableLog, ledger: Ledger, transaction_id: str, commit: TableCommit
) -> Ratified | Moved | Reserved:
    if log.store.head(commit_path(commit.version)) is not None:
        log.latest()  # raises where the log is ahead of its catalog
    return ledger.ratify(Ratification(transaction_id=transaction_id, commits=(commit,)))


def _drop(log: TableLog, kept: TableCommit) -> None:
    if kept.staged is not None:
        log.store.delete([staged_path(kept.staged)])


def _published(
    log: TableLog,
    ledger: Ledger,
    commit: TableCommit,
    sound: _Sound,
    before: Snapshot,
    ratified: Ratified,
) -> Accepted:
    """Never raises: the commit stands."""
    now_ms = log.system.now_ms()
    snapshot = before.apply(sound.actions, version=sound.version, timestamp_ms=now_ms)
    log.adopt(snapshot)
    published = ratified.published.get(commit.table_id)
    newest = Newest(log.store, commit, log.name, published)
    publication: Publication = publish_newest(ledger, [newest])
    is_published = commit.table_id in publication.tables
    if is_published:
        after_commit(log, snapshot, txn_id=sound.info.text("txnId"))
    elif publication.occupied is not None:
        log.forget()  # who uses it next is to meet the wrong file
    return Accepted(snapshot, is_published)
