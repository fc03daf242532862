"""Replay of log files into a snapshot: a checkpoint's rows, then commits in order.

Pure: the caller reads the files that `segment` chose and passes their actions one by one, so that
only one file is in memory. Source: PROTOCOL.md, "Action Reconciliation".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import pyarrow as pa

from txlake.errors import CorruptTable
from txlake.log.block import Block, canonical_key
from txlake.log.files import Files
from txlake.log.segment import Checkpoint, Segment
from txlake.log.snapshot import Changes, Snapshot
from txlake.log.tombstones import LoadRemoves, Tombstones
from txlake.protocol.actions import (
    Action,
    CheckpointMetadata,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    Sidecar,
    Txn,
    decode_actions,
)
from txlake.protocol.checkpoints import CheckpointRows
from txlake.protocol.lazy_stats import LazyStats

Rebuild: TypeAlias = Callable[[CorruptTable], Snapshot]


def sidecars_of(checkpoint: Checkpoint, others: Iterable[Action]) -> tuple[Sidecar, ...]:
    """Return the sidecars that a checkpoint's own rows name. Reads none of them.

    Raises CorruptTable when the rows are of another version's checkpoint.
    """
    sidecars: list[Sidecar] = []
    for action in others:
        if isinstance(action, Sidecar):
            sidecars.append(action)
        elif isinstance(action, CheckpointMetadata) and action.version != checkpoint.version:
            raise CorruptTable(
                f"{checkpoint.paths[0]}: expected the checkpoint of version {checkpoint.version}, "
                f"found that of {action.version}"
            )
    return tuple(sidecars)


def state_of_checkpoint(
    table: str,
    checkpoint: Checkpoint,
    rows: Sequence[CheckpointRows],
    load_removes: LoadRemoves,
    rebuild: Rebuild,
) -> Snapshot:
    """Return the snapshot that a checkpoint's files and sidecars hold.

    Statistics are decoded when they are used; if that fails, the statistics of the snapshot that
    `rebuild` makes from other files of the log are used. Raises CorruptTable naming the checkpoint
    when protocol or metadata is missing.
    """
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    app_transactions: dict[str, Txn] = {}
    domains: dict[str, DomainMetadata] = {}
    for action in (action for part in rows for action in part.others):
        if isinstance(action, Protocol):
            protocol = action
        elif isinstance(action, Metadata):
            metadata = action
        elif isinstance(action, Txn):
            app_transactions[action.app_id] = action
        elif isinstance(action, DomainMetadata) and not action.removed:
            domains[action.domain] = action
    if protocol is None or metadata is None:
        missing = "protocol" if protocol is None else "metaData"
        raise CorruptTable(
            f"{table}: {checkpoint.paths[0]}: the checkpoint of version {checkpoint.version} has "
            f"no {missing} action"
        )
    columns = pa.concat_tables([part.columns for part in rows])

    def fallback(error: CorruptTable) -> pa.ChunkedArray:
        return _stats_from(columns, rebuild(error), error)

    stats = LazyStats([part.stats for part in rows], fallback=fallback)
    return Snapshot(
        table=table,
        version=checkpoint.version,
        timestamp_ms=checkpoint.parts[-1].modified_ms,
        protocol=protocol,
        metadata=metadata,
        files=Files.of_columns(columns, stats),
        app_transactions=app_transactions,
        domains=domains,
        tombstones=Tombstones(load_removes),
    )


def _stats_from(columns: pa.Table, state: Snapshot, error: CorruptTable) -> pa.ChunkedArray:
    """Return the statistics of the same files, in the order of `columns`, from another snapshot.

    Raises `error` if that doesn't have all of these files.
    """
    stats = {canonical_key(add.key): add.stats for add in state.files.adds()}
    try:
        texts = [stats[key] for key in Block(columns=columns).row_keys()]
    except KeyError:
        raise error from None  # another set of files: not the same version after all
    return pa.chunked_array([pa.array(texts, pa.string())])


def replay(base: Snapshot, deltas: Iterable[Iterable[Action]], segment: Segment) -> Snapshot:
    """Return the snapshot at the segment's version: `base`, then the actions of each commit or
    compaction in order.

    Raises CorruptTable saying that protocol or metadata is missing.
    """
    changes = Changes()
    for actions in deltas:
        changes.add(actions)
    newest = segment.newest
    timestamp = base.timestamp_ms if newest is None else newest.modified_ms
    state = changes.apply_to(base, version=segment.version, timestamp_ms=timestamp)
    require_created(state, segment)
    return state


def require_created(state: Snapshot, segment: Segment) -> None:
    """Raise CorruptTable when protocol or metadata is missing, naming the files that were read."""
    if state.is_created:
        return
    first = segment.deltas[0].path if segment.deltas else "the checkpoint"
    missing = "metaData" if state.has_protocol else "protocol"
    raise CorruptTable(
        f"{state.table}: version {state.version} can't be built: no {missing} action in {first} or "
        "any later commit; the first commit of a table must hold protocol and metaData"
    )


def commit_info_of(data: bytes, *, file: str) -> CommitInfo | None:
    """Return the commitInfo of a commit's bytes; None if it has none.

    If the first line is a whole commitInfo, the other lines aren't decoded and may be cut off.
    Raises CorruptTable for bytes that are decoded and aren't valid.
    """
    line, _, rest = data.lstrip().partition(b"\n")
    if line.startswith(b'{"commitInfo"') and (rest or line.rstrip().endswith(b"}}")):
        actions = decode_actions(line, file=file)
    else:
        actions = decode_actions(data, file=file)
    return next((action for action in actions if isinstance(action, CommitInfo)), None)
