"""Ratified commits become the files of a catalog table's log, which every Delta reader reads.

Owns the order (a version after the one before), and that a version's file holds just the ratified
bytes. Whoever meets commits that aren't published may do it. Source: DESIGN section 5.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from txlake.errors import CorruptTable, TxlakeError, Unavailable
from txlake.ports import Ledger, PutOutcome, Store, TableCommit
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


def published_or_logged(
    store: Store, ledger: Ledger, commits: Sequence[TableCommit], *, table: str
) -> bool:
    """As `publish`, where a failure is somebody else's to make good: it is logged.

    Whether they are published. Raises CorruptTable alone.
    """
    try:
        publish(store, ledger, commits, table=table)
    except CorruptTable:
        raise
    except (TxlakeError, FileNotFoundError) as error:
        _log.warning(
            "%s: versions %d to %d are committed, but not published yet: %s",
            table,
            commits[0].version,
            commits[-1].version,
            error,
        )
        return False
    return True


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
