"""Publication: ratified commits become files of a catalog table's log.

Owns the order (a version after the previous one), and that a version's file holds just the ratified
bytes. Any process that finds unpublished commits may publish them. Source:
docs/internals/catalog.md, "Recovery".
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from txlake.commit.commit_info import PRODUCT
from txlake.commit.parallel import parallel_map
from txlake.errors import CorruptTable, TxlakeError, Unavailable
from txlake.log.replay import commit_info_of
from txlake.ports import Head, Ledger, PutOutcome, Store, TableCommit, VersionRange
from txlake.protocol.file_names import STAGED_FOLDER, commit_path
from txlake.telemetry import span

_log = logging.getLogger(__name__)

_PUTS = 3


def staged_path(name: str) -> str:
    """Return the path, relative to the table, of a staged commit of that name."""
    return f"{STAGED_FOLDER}/{name}"


def commit_content(store: Store, commit: TableCommit) -> bytes:
    """Return the bytes of a ratified commit: its own, those of its staged file, or of the log's.

    Raises FileNotFoundError if they are in none of these.
    """
    if commit.content is not None:
        return commit.content
    try:
        return store.get(staged_path(commit.staged or ""))
    except FileNotFoundError:
        # The process that published it has deleted the staged file since.
        return store.get(commit_path(commit.version))


class Occupied(CorruptTable):
    """Another commit's file is at a version that was ratified.

    `by_txlake`: txlake wrote it. Then two catalogs have ratified the version, one of which doesn't
    know of the other: it was restored from a backup, or rebuilt.
    """

    by_txlake: bool


def _occupied(table: str, version: int, found: bytes) -> Occupied:
    """Return the error for a ratified version at which the log holds the bytes `found`."""
    by_txlake = made_by_txlake(found)
    other = (
        "txlake itself wrote it, for a catalog that was restored from a backup or rebuilt since"
        if by_txlake
        else "a writer that doesn't know the table feature txlakeCatalog wrote it"
    )
    error = Occupied(
        f"{table}: {commit_path(version)} holds another commit than the one that the lake's "
        f"catalog ratified as version {version}: {other}. The ratified commit is kept in the "
        "catalog; stop that writer, then lake.recover() settles it"
    )
    error.by_txlake = by_txlake
    return error


def made_by_txlake(data: bytes) -> bool:
    """Return whether a commit's bytes say that txlake made it."""
    try:
        info = commit_info_of(data, file="")
    except CorruptTable:
        return False
    return ((info and info.text("engineInfo")) or "").startswith(f"{PRODUCT}/")


@dataclass(frozen=True, slots=True)
class RatifiedCommit:
    """A table's commit that was just ratified; `table` is its name in messages.

    `published`: the version up to which the table's log was published then; None: unknown.
    """

    store: Store
    commit: TableCommit
    table: str
    published: int | None


@dataclass(frozen=True, slots=True)
class Publication:
    """The outcome of publishing a transaction's commits.

    Attributes:
        tables: the ids of the tables whose logs have the commits' files; the ledger has noted them,
            unless it couldn't be reached.
        occupied: why another table's commit can't be published: foreign bytes at a ratified
            version.
    """

    tables: frozenset[str]
    occupied: Occupied | None = None


def publish(store: Store, ledger: Ledger, commits: Sequence[TableCommit], *, table: str) -> None:
    """Put a table's ratified commits into its log, in the order of their versions.

    Then the publication is noted in the ledger, and their staged files are deleted unless others
    may read them. The versions before them have to be published. Raises Occupied, naming the file,
    when another writer's bytes are at a ratified version, and what the store and the ledger raise;
    the commits stay ratified in any case.
    """
    for commit in commits:
        put_ratified(store, commit, table)
    if commits:
        ledger.record_publication({commits[-1].table_id: _versions(commits)})
        _delete_staged(store, commits)


@span("publish")
def publish_ratified(
    ledger: Ledger, newest: Sequence[RatifiedCommit], *, soon: str | None = None
) -> Publication:
    """Publish a transaction's ratified commits, after earlier unpublished ones.

    All published tables are noted in the ledger at once; with `soon`, the transaction's id, tables
    without earlier unpublished commits are noted by this process's next ratification. Staged files
    are deleted unless others may read them. Never raises: failures are logged, and the next process
    that finds an unpublished commit publishes it.
    """
    put = parallel_map(partial(_put, ledger), newest, store=lambda one: one.store)
    made = [(one.newest, one.commits) for one in put if one.commits]
    if soon is not None:
        alone = [one.commit for one, commits in made if _is_alone(one, commits)]
        made = [(one, commits) for one, commits in made if not _is_alone(one, commits)]
        if alone:
            ledger.record_publication_soon(
                soon, {commit.table_id: commit.version for commit in alone}
            )
    if made:
        _note(ledger, made)
    return Publication(
        tables=frozenset(one.newest.commit.table_id for one in put if one.is_there),
        occupied=next((one.occupied for one in put if one.occupied is not None), None),
    )


@dataclass(frozen=True, slots=True)
class _Put:
    """The outcome of putting a table's newest commit into its log.

    Attributes:
        newest: the commit.
        is_there: whether the log has it.
        commits: the commit and earlier ones that were put now.
        occupied: why one of them couldn't be put.
    """

    newest: RatifiedCommit
    is_there: bool = False
    commits: Sequence[TableCommit] = ()
    occupied: Occupied | None = None


def _put(ledger: Ledger, newest: RatifiedCommit) -> _Put:
    """Put a table's commits into its log; earlier ones first. Never raises: a failure is logged."""
    commits: Sequence[TableCommit] = (newest.commit,)
    try:
        found = _with_pending(ledger, newest)
        if found is None:
            return _Put(newest)
        commits = found
        for commit in commits:
            put_ratified(newest.store, commit, newest.table)
    except Exception as error:
        _log_unpublished(newest.table, commits, error)
        return _Put(newest, occupied=error if isinstance(error, Occupied) else None)
    return _Put(newest, is_there=True, commits=commits)


def _is_alone(newest: RatifiedCommit, commits: Sequence[TableCommit]) -> bool:
    """Return whether the commit is the only one to publish, and has no staged file to delete."""
    return tuple(commits) == (newest.commit,) and newest.commit.staged is None


def _note(ledger: Ledger, made: Sequence[tuple[RatifiedCommit, Sequence[TableCommit]]]) -> None:
    """Note in the ledger what was published, and delete the staged files; failures are logged."""
    try:
        ledger.record_publication(
            {one.commit.table_id: _versions(commits) for one, commits in made}
        )
    except Exception as error:
        for one, commits in made:
            _log_unpublished(one.table, commits, error)
        return
    for one, commits in made:
        try:
            _delete_staged(one.store, commits)
        except Exception as error:
            _log.info("%s: a staged commit was left behind: %s", one.table, error)


def publish_pending(store: Store, ledger: Ledger, table_id: str, *, table: str) -> Head | None:
    """Publish a table's unpublished commits; return its head, None if not in the catalog.

    Commits that couldn't be published stay pending in the head, and are logged. Raises CorruptTable
    as `publish`, and Unavailable from the ledger.
    """
    head = ledger.head(table_id)
    if head is None or not head.pending:
        return head
    try:
        publish(store, ledger, head.pending, table=table)
    except CorruptTable:
        raise
    except (TxlakeError, FileNotFoundError) as error:
        _log_unpublished(table, head.pending, error)
        return head
    return Head(version=head.version)


def _with_pending(ledger: Ledger, newest: RatifiedCommit) -> Sequence[TableCommit] | None:
    """Return the commit and those before it that aren't published; None when the table was dropped.

    The ledger is asked, unless the commit is version 0, or `published` is the version before and
    its file exists: a file at a version may be another writer's, and a missing one a dropped
    table's. The file isn't looked for where late requests are possible anyway: there no table is
    made in the place of a dropped one. The result is empty if others have published all of them
    meanwhile.
    """
    commit = newest.commit
    before = commit.version - 1
    if before < 0 or (newest.published == before and _has_file(newest.store, before)):
        return (commit,)
    head = ledger.head(commit.table_id)
    return None if head is None else head.pending


def _has_file(store: Store, version: int) -> bool:
    """Return whether a version's file exists, or it makes no difference."""
    return not store.excludes_late_writes or store.head(commit_path(version)) is not None


def _versions(commits: Sequence[TableCommit]) -> VersionRange:
    return VersionRange(commits[0].version, commits[-1].version)


def _delete_staged(store: Store, commits: Sequence[TableCommit]) -> None:
    """Delete the staged files of published commits, unless others may read them. Raises the store's
    errors.
    """
    staged = [
        staged_path(commit.staged)
        for commit in commits
        if commit.staged is not None and not commit.is_shared
    ]
    if staged:
        store.delete(staged)


def _log_unpublished(table: str, commits: Sequence[TableCommit], error: Exception) -> None:
    versions = ", ".join(str(commit.version) for commit in commits)
    _log.warning("%s: committed, but not published yet: %s: %s", table, versions, error)


def put_ratified(store: Store, commit: TableCommit, table: str) -> None:
    """Put the file of a ratified commit into the log; the version before has to be there already.

    Nothing happens if the file exists with these bytes. Raises Occupied when another commit's file
    is there, Unavailable when replies were lost, FileNotFoundError as `commit_content`.
    """
    path, content = commit_path(commit.version), commit_content(store, commit)
    for _ in range(_PUTS):
        if store.put_if_absent(path, content) is PutOutcome.CREATED:
            return
        try:
            found = store.get(path)
        except FileNotFoundError:
            continue  # the reply was lost, and so was the request
        if found != content:
            raise _occupied(table, commit.version, found)
        return
    raise Unavailable(f"{table}: {path}: the replies to {_PUTS} puts were lost")
