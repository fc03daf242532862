"""The version checksum file (`n.crc`): facts about the state at a version, to find damage.

Owns the file's fields. A missing or unreadable file is no error; a contradicting one is reported
and never stops a read, because another writer may have left it stale. Source: PROTOCOL.md, "Version
Checksum File".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from txlake.protocol.actions import (
    Action,
    DomainMetadata,
    JsonObject,
    Metadata,
    Protocol,
    Txn,
    action_to_object,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFacts:
    """The facts of a checksum file about one version. Sizes in bytes, None for unknown facts."""

    table_size_bytes: int
    files: int
    table_id: str | None = None
    deletion_vectors: int | None = None
    deleted_records: int | None = None

    def contradictions(self, actual: StateFacts) -> list[str]:
        """Return the differing facts as `name: expected 3, found 4`; facts unknown on either side
        are left out.
        """
        pairs = (
            ("numFiles", self.files, actual.files),
            ("tableSizeBytes", self.table_size_bytes, actual.table_size_bytes),
            ("metadata.id", self.table_id, actual.table_id),
            ("numDeletionVectorsOpt", self.deletion_vectors, actual.deletion_vectors),
            ("numDeletedRecordsOpt", self.deleted_records, actual.deleted_records),
        )
        return [
            f"{name}: expected {expected}, found {found}"
            for name, expected, found in pairs
            if expected is not None and found is not None and expected != found
        ]


class _Table(msgspec.Struct, frozen=True):
    id: str | None = None


class _Stored(msgspec.Struct, frozen=True, rename="camel"):
    table_size_bytes: int
    num_files: int
    metadata: _Table | None = None
    num_deletion_vectors_opt: int | None = None
    num_deleted_records_opt: int | None = None


_DECODER = msgspec.json.Decoder(_Stored)


def read_checksum(data: bytes) -> StateFacts | None:
    """Return the facts of a checksum file; None when it can't be read."""
    try:
        stored = _DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return StateFacts(
        table_size_bytes=stored.table_size_bytes,
        files=stored.num_files,
        table_id=None if stored.metadata is None else stored.metadata.id,
        deletion_vectors=stored.num_deletion_vectors_opt,
        deleted_records=stored.num_deleted_records_opt,
    )


def write_checksum(
    facts: StateFacts,
    *,
    protocol: Protocol,
    metadata: Metadata,
    app_transactions: Sequence[Txn],
    domains: Sequence[DomainMetadata],
    in_commit_timestamp_ms: int | None,
    txn_id: str | None,
) -> bytes:
    """Return the file's bytes: all required fields, and the optional ones that are known at no
    cost.
    """
    value: JsonObject = {}
    if txn_id is not None:
        value["txnId"] = txn_id
    value |= {
        "tableSizeBytes": facts.table_size_bytes,
        "numFiles": facts.files,
        "numMetadata": 1,
        "numProtocol": 1,
    }
    if facts.deletion_vectors is not None:
        value["numDeletedRecordsOpt"] = facts.deleted_records or 0
        value["numDeletionVectorsOpt"] = facts.deletion_vectors
    if in_commit_timestamp_ms is not None:
        value["inCommitTimestampOpt"] = in_commit_timestamp_ms
    value |= {
        "setTransactions": [_fields(txn) for txn in app_transactions],
        "domainMetadata": [_fields(domain) for domain in domains],
        "metadata": _fields(metadata),
        "protocol": _fields(protocol),
    }
    return msgspec.json.encode(value) + b"\n"


def _fields(action: Action) -> object:
    return next(iter(action_to_object(action).values()))
