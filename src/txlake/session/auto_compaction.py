"""Compaction by itself: a commit that leaves many small files is followed by one that packs them.

Owns for which tables, by the property `delta.autoOptimize.autoCompact` and Delta Spark's settings
of the session, and that it never makes a commit fail. Which files: `log.small_files`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from txlake.commit.parallel import begin_work, is_far
from txlake.commit.table_log import TableLog
from txlake.errors import InvalidRequest, TxlakeError
from txlake.log.small_files import PackingLimits, is_packing_due
from txlake.log.snapshot import Snapshot
from txlake.protocol.properties import size_bytes
from txlake.session.engine import Engine, Handle
from txlake.session.transaction import Transaction
from txlake.sql.statements import Optimize, TablePath
from txlake.telemetry import count, span

_ENABLED = "spark.databricks.delta.autoCompact.enabled"
_FILES_MIN = "spark.databricks.delta.autoCompact.minNumFiles"
_FILE_SIZE = "spark.databricks.delta.autoCompact.maxFileSize"
_BYTES_MAX_IN_SPARK = 512 * 1024 * 1024

_logger = logging.getLogger(__name__)


class Packer(Protocol):
    """Runs one statement in a transaction of its own, without waiting for a lock."""

    def __call__(self, statement: Optimize) -> None: ...


def packing_limits(engine: Engine, table: Snapshot) -> PackingLimits | None:
    """Return the limits by which a table's small files are packed by themselves; None if they
    aren't.

    The session's setting comes before the table's property. Without a running Spark only as much
    is packed at once as the driver packs itself. Raises InvalidRequest for a setting that can't be
    read, and CorruptTable for such a property.
    """
    properties = table.properties
    chosen = "true" if properties.auto_optimize else properties.auto_compact
    setting = engine.plane.setting
    if setting(_ENABLED, chosen).lower() not in ("true", "auto", "legacy"):
        return None
    default = PackingLimits()
    return PackingLimits(
        files_min=_number(setting, _FILES_MIN, default.files_min),
        file_bytes_max=properties.target_file_size
        or _number(setting, _FILE_SIZE, default.file_bytes_max),
        bytes_max=_BYTES_MAX_IN_SPARK if engine.plane.is_started else default.bytes_max,
    )


def _number(setting: Callable[[str, str], str], key: str, default: int) -> int:
    """Return a setting that is a number or a size from 1 on. Raises InvalidRequest."""
    text = setting(key, str(default))
    try:
        number = size_bytes(text)
    except ValueError as error:
        raise InvalidRequest(f"{key}: expected a whole number or a size, found {text!r}") from error
    if number < 1:
        raise InvalidRequest(f"{key}: expected at least 1, found {text!r}")
    return number


def pack_after(transaction: Transaction, packer: Packer) -> None:
    """Pack the small files of the tables that a committed transaction wrote, where that is due.

    Nothing is packed on a branch, whose publication would conflict with changes on main. Of a table
    in a far store the files are packed while the session goes on. Raises nothing but interrupts:
    what fails is logged, and done after a later commit.
    """
    if transaction.engine.branch is not None:
        return
    for handle, part in transaction.tables.written():
        added = part.added_count
        if added and handle.branch is None and _is_due(transaction.engine, handle, added):
            _pack(handle, packer)


def _is_due(engine: Engine, handle: Handle, added_count: int) -> bool:
    """Return whether a table's small files are to be packed now; False if that can't be said."""
    table = handle.log.known
    if table is None:
        return False
    try:
        limits = packing_limits(engine, table)
        return limits is not None and is_packing_due(table, added_count, limits)
    except TxlakeError as error:
        _logger.warning("%s: its small files aren't packed: %s", handle.name, error)
        return False


def _pack(handle: Handle, packer: Packer) -> None:
    """Pack a table's small files, unless another thread of this process is at it."""
    statement = Optimize(table=TablePath(handle.place), is_automatic=True)

    def run() -> None:
        with _turn(handle.log) as is_own:
            if not is_own:
                return
            try:
                with span("auto_compaction", table=handle.name):
                    packer(statement)
                count("txlake.auto_compactions", outcome="committed")
            except Exception as error:  # the user's transaction is committed all the same
                count("txlake.auto_compactions", outcome=type(error).__name__)
                _logger.info("%s: its small files stay for now: %s", handle.name, error)

    wait = begin_work(run, store=handle.log.store)
    if not is_far(handle.log.store):
        wait()


@contextmanager
def _turn(log: TableLog) -> Iterator[bool]:
    """Yield whether this thread alone packs the table's files in the block."""
    is_own = log.packing.acquire(blocking=False)
    try:
        yield is_own
    finally:
        if is_own:
            log.packing.release()
