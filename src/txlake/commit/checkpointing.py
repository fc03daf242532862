"""The work after a commit: checksum, checkpoint when due, log clean-up, Iceberg metadata.

Owns which kind of checkpoint is written, under which names and in which order. None of it can make
a commit fail. Source: PROTOCOL.md, "Checkpoints", "Last Checkpoint File", "Version Checksum File".
"""

from __future__ import annotations

import logging

from txlake.commit.iceberg_publication import publish_after
from txlake.commit.log_cleanup import clean_log_once
from txlake.commit.log_reading import facts_of
from txlake.commit.table_log import TableLog
from txlake.errors import CorruptTable, InvalidRequest, TxlakeError
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Sidecar, Txn
from txlake.protocol.checkpoint_writing import (
    CheckpointState,
    classic_checkpoint,
    manifest,
    multi_part_checkpoint,
    sidecar_files,
)
from txlake.protocol.checksums import write_checksum as checksum_bytes
from txlake.protocol.file_names import (
    LAST_CHECKPOINT_PATH,
    SIDECAR_FOLDER,
    ClassicCheckpoint,
    MultiPartCheckpoint,
    V2Checkpoint,
    checksum_path,
    log_path,
)
from txlake.protocol.last_checkpoint import Hint, read_hint, write_hint

_log = logging.getLogger(__name__)

_INTERVAL_KEY = "delta.checkpointInterval"
_ROWS_PER_INTERVAL, _INTERVALS_MAX = 1000, 10


def after_commit(log: TableLog, snapshot: Snapshot, *, txn_id: str | None = None) -> None:
    """Do what is due after an own commit: checksum, checkpoint, log clean-up, Iceberg metadata.

    `snapshot` is that version, without staged changes. Never raises: failures are logged.
    """
    write_checksum(log, snapshot, txn_id=txn_id)
    publish_after(log, snapshot)
    maybe_checkpoint(log, snapshot)


def write_checksum(log: TableLog, snapshot: Snapshot, *, txn_id: str | None = None) -> None:
    """Write the version's checksum file unless there is one. Never raises: failures are logged."""
    try:
        data = checksum_bytes(
            facts_of(snapshot),
            protocol=snapshot.protocol,
            metadata=snapshot.metadata,
            app_transactions=list(snapshot.app_transactions.values()),
            domains=list(snapshot.domains.values()),
            in_commit_timestamp_ms=snapshot.in_commit_timestamp_ms,
            txn_id=txn_id,
        )
        log.store.put_unsynced(checksum_path(snapshot.version), data)
    except Exception as error:
        _log.warning("%s: no checksum at version %d: %s", log.name, snapshot.version, error)


def maybe_checkpoint(log: TableLog, snapshot: Snapshot) -> bool:
    """Write a checkpoint when the version is a multiple of `checkpoint_interval`, 0 excepted.

    Then the log is cleaned up if `delta.enableExpiredLogCleanup` is on. Never raises: a failure is
    logged. Returns whether a checkpoint was written.
    """
    try:
        properties = snapshot.properties
        if snapshot.version < 1 or snapshot.version % checkpoint_interval(snapshot):
            return False
        write_checkpoint(log, snapshot)
    except Exception as error:
        _log.warning("%s: no checkpoint at version %d: %s", log.name, snapshot.version, error)
        return False
    try:
        if properties.enable_expired_log_cleanup:
            clean_log_once(log, retention_ms=properties.log_retention_ms)
    except Exception as error:
        _log.warning("%s: the log was not cleaned up: %s", log.name, error)
    return True


def checkpoint_interval(snapshot: Snapshot) -> int:
    """Return the number of versions from one checkpoint to the next.

    It is `delta.checkpointInterval` if that is set, else ten, and more for a table of many files
    and tombstones, so that a commit doesn't cost more as they grow.
    """
    interval = snapshot.properties.checkpoint_interval
    if _INTERVAL_KEY in snapshot.properties.configuration:
        return interval
    rows = len(snapshot.files) + snapshot.tombstones.loaded_count
    return interval * min(max(rows // _ROWS_PER_INTERVAL, 1), _INTERVALS_MAX)


def write_checkpoint(log: TableLog, snapshot: Snapshot | None = None) -> int:
    """Write the checkpoint of a committed version (the latest when None); return the version.

    V2 with sidecars where `delta.checkpointPolicy` is `v2` and the protocol has `v2Checkpoint`;
    else one classic file, or parts when there are more rows than one part may have. The hint is
    written last; failing to write it is only logged. Raises InvalidRequest for a table that isn't
    created, InvalidRequest and Unavailable from the store, CorruptTable when the tombstones of the
    checkpoint before can't be read.
    """
    snapshot = log.latest() if snapshot is None else snapshot
    if snapshot.version < 0 or not snapshot.is_created:
        raise InvalidRequest(f"{log.name}: a table that isn't created has nothing to checkpoint")
    now_ms = log.system.now_ms()
    expired_ms = _expired_until(snapshot, now_ms)
    try:
        state = _state(snapshot, now_ms, expired_ms)
    except CorruptTable:
        # The checkpoint that the snapshot was built from may have been cleaned up since.
        log.forget()
        snapshot = log.snapshot(snapshot.version)
        state = _state(snapshot, now_ms, expired_ms)
    is_v2 = snapshot.properties.checkpoint_policy == "v2" and "v2Checkpoint" in snapshot.features
    rows_max = log.settings.checkpoint_part_rows_max
    if is_v2:
        hint = _write_v2(log, snapshot.version, state, rows_max)
    else:
        parts = 1 if "v2Checkpoint" in snapshot.features else -(-state.file_actions // rows_max)
        hint = _write_classic(log, snapshot.version, state, max(parts, 1))
    _write_hint(log, hint)
    snapshot.tombstones.forget_until(expired_ms)
    return snapshot.version


def _expired_until(snapshot: Snapshot, now_ms: int) -> int:
    """Return the time up to which removed files have expired, in ms since 1970; -1 if the table
    doesn't say how long it keeps them.
    """
    try:
        return now_ms - snapshot.properties.deleted_file_retention_ms
    except CorruptTable as error:
        _log.warning("%s: no remove action is left out of the checkpoint", error)
        return -1


def _state(snapshot: Snapshot, now_ms: int, expired_ms: int) -> CheckpointState:
    """Return what the checkpoint holds: the state without expired tombstones and application ids.

    `expired_ms`: as `_expired_until`. Raises CorruptTable when the tombstones can't be read.
    """
    properties = snapshot.properties
    retention = properties.transaction_retention_ms
    removes = snapshot.tombstones.removed_after(expired_ms)
    transactions = snapshot.app_transactions.values()
    return CheckpointState(
        protocol=snapshot.protocol,
        metadata=snapshot.metadata,
        app_transactions=[
            txn
            for txn in transactions
            if retention is None or not _is_expired(txn, now_ms, retention)
        ],
        domains=list(snapshot.domains.values()),
        files=snapshot.files,
        removes=removes,
        schema=snapshot.schema,
        partition_columns=snapshot.partition_columns,
        stats_as_json=properties.checkpoint_write_stats_as_json,
        stats_as_struct=properties.checkpoint_write_stats_as_struct,
        # Removed files may have vectors still after the feature was dropped.
        has_vectors="deletionVectors" in snapshot.features
        or any(remove.deletion_vector is not None for remove in removes),
    )


def _is_expired(txn: Txn, now_ms: int, retention_ms: int) -> bool:
    return txn.last_updated is not None and txn.last_updated < now_ms - retention_ms


def _write_classic(log: TableLog, version: int, state: CheckpointState, parts: int) -> Hint:
    """Write a checkpoint of one file, or in so many parts; return the hint for it."""
    size = 0
    if parts == 1:
        data = classic_checkpoint(state)
        log.store.put(log_path(ClassicCheckpoint(version)), data)
        size = len(data)
    else:
        for part, data in enumerate(multi_part_checkpoint(state, parts), 1):
            log.store.put(log_path(MultiPartCheckpoint(version, part, parts)), data)
            size += len(data)
    return Hint(
        version=version,
        actions=state.file_actions + len(state.others),
        parts=None if parts == 1 else parts,
        size_bytes=size,
        add_files=len(state.files),
    )


def _write_v2(log: TableLog, version: int, state: CheckpointState, rows_max: int) -> Hint:
    """Write the sidecars, and then the checkpoint that names them; return the hint for it."""
    sidecars: list[Sidecar] = []
    for data in sidecar_files(state, rows_max):
        name = f"{log.system.new_id()}.parquet"
        log.store.put(f"{SIDECAR_FOLDER}/{name}", data)
        sidecars.append(
            Sidecar(path=name, size_in_bytes=len(data), modification_time=log.system.now_ms())
        )
    data = manifest(state, version, sidecars)
    file = V2Checkpoint(version, log.system.new_id(), "parquet")
    log.store.put(log_path(file), data)
    return Hint(
        version=version,
        actions=state.file_actions + len(state.others) + len(sidecars) + 1,
        size_bytes=len(data) + sum(item.size_in_bytes for item in sidecars),
        add_files=len(state.files),
        v2_path=log_path(file).rpartition("/")[2],
        v2_size_bytes=len(data),
        v2_modified_ms=log.system.now_ms(),
    )


def _write_hint(log: TableLog, hint: Hint) -> None:
    """Write the hint, unless there is one for a newer checkpoint; log a failure of the store."""
    try:
        try:
            known = read_hint(log.store.get(LAST_CHECKPOINT_PATH))
        except FileNotFoundError:
            known = None
        if known is None or known.version <= hint.version:
            log.store.put(LAST_CHECKPOINT_PATH, write_hint(hint))
    except TxlakeError as error:
        _log.warning("%s: _last_checkpoint was not written: %s", log.name, error)
