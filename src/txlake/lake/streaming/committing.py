"""The commit of files that Spark's tasks staged, in a process without a Spark session.

Files of a commit that has certainly failed are removed; files of a commit with an unknown outcome
stay.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from txlake.catalog import DEFAULT_DATABASE
from txlake.commit.change import Change
from txlake.conflict.locking import LockMode
from txlake.errors import Conflict, InvalidRequest, TxlakeError
from txlake.lake.streaming.staged import Reports, StagedFiles
from txlake.lake.streaming.staging import fingerprint
from txlake.local.writing import result_of
from txlake.ports import Store
from txlake.protocol import paths
from txlake.protocol.actions import Txn
from txlake.session.session import Session
from txlake.spark import inserts
from txlake.spark.table_access import TableAccess
from txlake.sql.statements import Table

_ATTEMPTS = 5
_READERS = 16
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitDetails:
    """How to commit staged files, and what the commit records.

    Attributes:
        app: the application's id and its version, which makes the commit idempotent; or None.
        newest: the application's newest version found in commits, after its `txn` has expired from
            the snapshot; -1 otherwise.
        overwrite: whether the rows replace all others.
        operation, parameters: for the history; None for those of an append.
    """

    app: tuple[str, int] | None = None
    newest: int = -1
    overwrite: bool = False
    operation: str | None = None
    parameters: Mapping[str, str] | None = None
    user_metadata: str | None = None


def commit_staged(
    session: Session, table: Table, staged: StagedFiles, commit: CommitDetails
) -> None:
    """Commit the staged files, unless the application's version was committed before.

    Retries after conflicts, up to 5 attempts in all. Files that certainly aren't committed are
    deleted.

    Raises InvalidRequest when the table's definition changed since the rows were written or a file
    is missing, and as `Transaction.commit`.
    """
    try:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                if not _try_commit(session, table, staged, commit):
                    discard(session, table, staged.reports)
                return
            except Conflict as conflict:
                if attempt == _ATTEMPTS:
                    raise
                _logger.info("attempt %d of %d lost: %s", attempt, _ATTEMPTS, conflict)
    except (Conflict, InvalidRequest):  # the commit has certainly failed
        discard(session, table, staged.reports)
        raise


def discard(session: Session, table: Table, reports: Reports) -> None:
    """Delete staged files; log a failure, after which VACUUM removes the rest."""
    files = _staged_paths(reports)
    try:
        handle = session.engine.find(table, DEFAULT_DATABASE)
        if handle is not None:
            handle.store.delete(files)
    except (TxlakeError, OSError) as error:
        _logger.warning("%s: %d staged files stay for VACUUM: %s", table, len(files), error)


def _staged_paths(reports: Reports) -> list[str]:
    files = (report for report in reports if report["kind"] == "file")
    return [paths.decode_path(str(file["text"])) for file in files]


def _require_files(table: str, store: Store, reports: Reports) -> None:
    """Raise InvalidRequest where a staged file is missing.

    No transaction is open while tasks write, so a VACUUM with a retention shorter than the write
    removes their files.
    """
    files = _staged_paths(reports)
    with ThreadPoolExecutor(max(1, min(_READERS, len(files)))) as pool:
        heads = pool.map(store.head, files)
        missing = [path for path, head in zip(files, heads, strict=True) if not head]
    if missing:
        raise InvalidRequest(
            f"{table}: {len(missing)} of {len(files)} files that were written for this commit are "
            f"gone, {missing[0]} among them: VACUUM removed them, with a retention shorter than "
            "the write. Nothing was committed; run it again, and VACUUM with a longer retention"
        )


def _try_commit(session: Session, table: Table, staged: StagedFiles, commit: CommitDetails) -> bool:
    """Commit the staged files in a new transaction. Returns False if they were committed before.

    Raises as `commit_staged`.
    """
    with session.alone([(table, LockMode.IX)]) as context:
        handle = context.tables.require(table)
        changes = []
        if commit.app is not None:
            app_id, number = commit.app
            newest = context.transaction.open(handle).app_version(app_id)
            if max(-1 if newest is None else newest, commit.newest) >= number:
                return False
            now_ms = session.engine.system.now_ms()
            txn = Txn(app_id=app_id, version=number, last_updated=now_ms)
            changes.append(Change(operation="WRITE", actions=(txn,)))
        work = context.work(handle, removes_rows=commit.overwrite)
        assert isinstance(work, TableAccess)
        if fingerprint(work.snapshot) != staged.fingerprint:
            raise InvalidRequest(
                f"{work.snapshot.table}: its schema, its properties or its features changed while "
                "the rows were written; start the query again"
            )
        _require_files(work.snapshot.table, handle.store, staged.reports)
        files = result_of(work.target(), staged.reports)
        make_change = inserts.overwrite_change if commit.overwrite else inserts.append_change
        changes.append(make_change(work, files))
        context.transaction.user_metadata = commit.user_metadata
        for change in changes:
            if commit.operation is not None:
                change = replace(
                    change, operation=commit.operation, parameters=commit.parameters or {}
                )
            context.transaction.stage(handle, change)
        context.transaction.commit()
        return True
