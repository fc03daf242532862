"""Files that Spark's tasks staged become part of their table, in one commit.

Called in a process that has no Spark session. Files of a commit that is known not to stand are
removed; those of one whose outcome is unknown stay.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from txlake.catalog import DEFAULT_DATABASE
from txlake.conflict.locking import LockMode
from txlake.errors import Conflict, InvalidRequest, TxlakeError
from txlake.ports import Store
from txlake.protocol import paths
from txlake.protocol.actions import Txn
from txlake.session.session import Session
from txlake.spark import inserts
from txlake.spark.table_access import TableAccess
from txlake.spark.writing import written
from txlake.statements import Table
from txlake.streaming.staged import Reports, Staged
from txlake.streaming.staging import fingerprint
from txlake.transaction.change import Change

_ATTEMPTS = 5
_READERS = 16
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What the commit of staged files says.

    Attributes:
        app: the application's id and the version of its work, which is committed once; or None.
        newest: the application's newest version in the table's log, where it is known from commits
            whose `txn` the snapshot has let go; -1 otherwise.
        overwrite: whether the rows replace all others.
        operation, parameters: for the history; None: those of an append.
    """

    app: tuple[str, int] | None = None
    newest: int = -1
    overwrite: bool = False
    operation: str | None = None
    parameters: Mapping[str, str] | None = None
    user_metadata: str | None = None


def commit_staged(session: Session, table: Table, staged: Staged, commit: Commit) -> None:
    """Commits what tasks wrote, unless the application's work was committed before.

    Conflicts are tried again.

    Raises InvalidRequest when the table isn't as it was when the rows were written, or the files
    aren't all there, and as `Transaction.commit`.
    """
    try:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                if not _committed(session, table, staged, commit):
                    discard(session, table, staged.reports)
                return
            except Conflict as conflict:
                if attempt == _ATTEMPTS:
                    raise
                _logger.info("attempt %d of %d lost: %s", attempt, _ATTEMPTS, conflict)
    except (Conflict, InvalidRequest):  # it is known not to stand
        discard(session, table, staged.reports)
        raise


def discard(session: Session, table: Table, reports: Reports) -> None:
    """Removes staged files, as far as that works; the rest are orphans for VACUUM."""
    found = _files(reports)
    try:
        handle = session.engine.find(table, DEFAULT_DATABASE)
        if handle is not None:
            handle.store.delete(found)
    except (TxlakeError, OSError) as error:
        _logger.warning("%s: %d staged files stay for VACUUM: %s", table, len(found), error)


def _files(reports: Reports) -> list[str]:
    return [paths.decode_path(str(one["text"])) for one in reports if one["kind"] == "file"]


def _require_kept(table: str, store: Store, reports: Reports) -> None:
    """Raises InvalidRequest where a staged file is gone.

    No transaction is open while tasks write, so that a VACUUM whose retention is shorter than they
    take doesn't know the files.
    """
    found = _files(reports)
    with ThreadPoolExecutor(max(1, min(_READERS, len(found)))) as pool:
        gone = [
            path for path, one in zip(found, pool.map(store.head, found), strict=True) if not one
        ]
    if gone:
        raise InvalidRequest(
            f"{table}: {len(gone)} of {len(found)} files that were written for this commit are "
            f"gone, {gone[0]} among them: VACUUM removed them, with a retention shorter than the "
            "write. Nothing was committed; run it again, and VACUUM with a longer retention"
        )


def _committed(session: Session, table: Table, staged: Staged, commit: Commit) -> bool:
    """Whether it was committed now; False where it had been before."""
    with session.alone([(table, LockMode.IX)]) as context:
        handle = context.require(table)
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
        if fingerprint(work.snapshot) != staged.fit:
            raise InvalidRequest(
                f"{work.snapshot.table}: its schema, its properties or its features changed while "
                "the rows were written; start the query again"
            )
        _require_kept(work.snapshot.table, handle.store, staged.reports)
        found = written(work.target(), staged.reports)
        made = inserts.overwrite_change if commit.overwrite else inserts.append_change
        changes.append(made(work, found))
        context.transaction.user_metadata = commit.user_metadata
        for change in changes:
            if commit.operation is not None:
                change = replace(
                    change, operation=commit.operation, parameters=commit.parameters or {}
                )
            context.transaction.stage(handle, change)
        context.transaction.commit()
        return True
