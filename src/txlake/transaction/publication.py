"""Ratified commits become the files of a catalog table's log, which every Delta reader reads.

Owns the order (a version after the one before), and that a version's file holds just the ratified
bytes. Whoever meets commits that aren't published may do it. Source: DESIGN section 5.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

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


def publish(store: Store, ledger: Ledger, commits: Sequence[TableCommit], *, table: str) -> None:
    """Makes the files of a table's ratified commits, in the order of their versions.

    The versions before the first of them are published. Raises CorruptTable, naming the file, when
    another writer's bytes are at a version that was ratified, and what the store and the ledger
    raise; the commits stand whatever happens here.
    """
    for commit in commits:
        _publish(store, commit, table)
    if not commits:
        return
    ledger.publishes(commits[-1].table_id, commits[-1].version)
    staged = [staged_path(commit.staged) for commit in commits if commit.staged is not None]
    if staged:
        store.delete(staged)


def publish_newest(store: Store, ledger: Ledger, commit: TableCommit, *, table: str) -> bool:
    """Publishes a commit that was just ratified, after those before it that aren't published.

    Whether it is published. Never raises: the commit stands, what fails is logged, and whoever
    meets the commit next publishes it.
    """
    commits: Sequence[TableCommit] = (commit,)
    try:
        if commit.version > 0 and store.head(commit_path(commit.version - 1)) is None:
            head = ledger.head(commit.table_id)
            if head is None:
                return False  # dropped since
            commits = head.pending
        publish(store, ledger, commits, table=table)
    except Exception as error:
        _log_unpublished(table, commits, error)
        return False
    return True


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
