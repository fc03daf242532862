"""Ratified commits become the files of a catalog table's log, which every Delta reader reads.

Owns the order (a version after the one before), and that a version's file holds just the ratified
bytes. Whoever meets commits that aren't published may do it. Source: DESIGN section 5.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from txlake.errors import CorruptTable, TxlakeError, Unavailable
from txlake.ports import Head, Ledger, PutOutcome, Store, TableCommit
from txlake.protocol.file_names import STAGED_FOLDER, commit_path

_log = logging.getLogger(__name__)

_PUTS = 3


def staged_path(name: str) -> str:
    """The path, relative to the table, of a staged commit of that name."""
    return f"{STAGED_FOLDER}/{name}"


def content_of(store: Store, commit: TableCommit) -> bytes:
    """The bytes of a ratified commit, wherever they stand.

    Raises FileNotFoundError where they stand nowhere any more.
    """
    if commit.content is not None:
        return commit.content
    try:
        return store.get(staged_path(commit.staged or ""))
    except FileNotFoundError:
        # Who published it has tidied up since.
        return store.get(commit_path(commit.version))


@dataclass(frozen=True, slots=True)
class Newest:
    """A table's newest commit, which was just ratified; `table` is what messages call it."""

    store: Store
    commit: TableCommit
    table: str


def publish(store: Store, ledger: Ledger, commits: Sequence[TableCommit], *, table: str) -> None:
    """Makes the files of a table's ratified commits, in the order of their versions.

    The versions before the first of them are published. Raises CorruptTable, naming the file, when
    another writer's bytes are at a version that was ratified, and what the store and the ledger
    raise; the commits stand whatever happens here.
    """
    for commit in commits:
        _publish(store, commit, table)
    if commits:
        ledger.publishes({commits[-1].table_id: commits[-1].version})
        _tidy(store, commits)


def publish_newest(ledger: Ledger, newest: Sequence[Newest]) -> frozenset[str]:
    """Publishes what a transaction ratified, after what came before it and isn't published yet.

    The ids of the tables on which that was done, all noted at once. Never raises: the commits
    stand, what fails is logged, and whoever meets a commit next publishes it.
    """
    made: list[tuple[Newest, Sequence[TableCommit]]] = []
    for one in newest:
        commits: Sequence[TableCommit] = (one.commit,)
        try:
            commits = _with_those_before(ledger, one)
            for commit in commits:
                _publish(one.store, commit, one.table)
        except Exception as error:
            _log_unpublished(one.table, commits, error)
        else:
            if commits:
                made.append((one, commits))
    if not made:
        return frozenset()
    try:
        ledger.publishes({one.commit.table_id: commits[-1].version for one, commits in made})
    except Exception as error:
        for one, commits in made:
            _log_unpublished(one.table, commits, error)
        return frozenset()
    for one, commits in made:
        try:
            _tidy(one.store, commits)
        except Exception as error:
            _log.info("%s: a staged commit was left behind: %s", one.table, error)
    return frozenset(one.commit.table_id for one, _ in made)


def publish_pending(store: Store, ledger: Ledger, table_id: str, *, table: str) -> Head | None:
    """Publishes what isn't yet, for who opens a table; where it stands then, None: nowhere.

    What couldn't be published is still pending, and logged. Raises CorruptTable as `publish`, and
    Unavailable from the ledger.
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


def _with_those_before(ledger: Ledger, newest: Newest) -> Sequence[TableCommit]:
    """The commit and those before it that aren't published; none when the table was dropped."""
    commit = newest.commit
    if commit.version == 0 or newest.store.head(commit_path(commit.version - 1)) is not None:
        return (commit,)
    head = ledger.head(commit.table_id)
    return () if head is None else head.pending


def _tidy(store: Store, commits: Sequence[TableCommit]) -> None:
    """Deletes what commits that are published now were staged in."""
    staged = [staged_path(commit.staged) for commit in commits if commit.staged is not None]
    if staged:
        store.delete(staged)


def _log_unpublished(table: str, commits: Sequence[TableCommit], error: Exception) -> None:
    versions = ", ".join(str(commit.version) for commit in commits)
    _log.warning("%s: committed, but not published yet: %s: %s", table, versions, error)


def _publish(store: Store, commit: TableCommit, table: str) -> None:
    path, content = commit_path(commit.version), content_of(store, commit)
    for _ in range(_PUTS):
        if store.put_if_absent(path, content) is PutOutcome.CREATED:
            return
        try:
            found = store.get(path)
        except FileNotFoundError:
            continue  # the reply was lost, and so was the request
        if found != content:
            raise CorruptTable(
                f"{table}: {path} holds another commit than the one that the lake's catalog "
                f"ratified as version {commit.version}: a writer that doesn't know the table "
                "feature txlakeCatalog wrote it. Move the file away; the ratified commit is in "
                "the catalog, and is published when the table is used next"
            )
        return
    raise Unavailable(f"{table}: {path}: the replies to {_PUTS} puts were lost")
