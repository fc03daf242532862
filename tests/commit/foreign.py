"""Another engine, played: it stages commits for open tables as one does that knows the protocol."""

from __future__ import annotations

from txlake.commit.foreign_commit import StagedFile
from txlake.ports import Store
from txlake.protocol.actions import Action, CommitInfo, encode_actions
from txlake.protocol.file_names import STAGED_FOLDER

_NAMES = iter(range(10**6))


def told(time_ms: int, txn_id: str, operation: str = "WRITE") -> CommitInfo:
    """What a commit of another engine says of itself."""
    return CommitInfo(
        {
            "inCommitTimestamp": time_ms,
            "timestamp": time_ms,
            "operation": operation,
            "operationParameters": {},
            "engineInfo": "another/1",
            "txnId": txn_id,
        }
    )


def stage(store: Store, version: int, time_ms: int, *actions: Action, txn: str = "") -> StagedFile:
    """A commit staged for a version; what to ask the catalog for."""
    name = f"{version:020d}.{next(_NAMES):08x}-0000-4000-8000-000000000000.json"
    content = encode_actions([told(time_ms, txn or name), *actions])
    store.put(f"{STAGED_FOLDER}/{name}", content)
    return StagedFile(version=version, name=name, timestamp_ms=time_ms, size_bytes=len(content))
