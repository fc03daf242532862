"""Tables as the two APIs show them, and the tags by which clients notice that they changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from txlake.catalog import TableEntry
from txlake.errors import Unavailable
from txlake.log.replay import commit_info_of
from txlake.log.snapshot import ROW_TRACKING_DOMAIN, Snapshot
from txlake.ports import TableCommit
from txlake.protocol.clustering import FEATURE, clustered_by
from txlake.protocol.unity_columns import column_infos, delta_columns
from txlake.server.definitions import Defined, defined_since
from txlake.session.engine import Engine, Handle
from txlake.transaction.membership import is_open
from txlake.transaction.publication import content_of, publish_pending, staged_path
from txlake.transaction.table_log import TableLog

_FORMAT = "DELTA"
_LOOKS = 4


@dataclass(frozen=True, slots=True)
class Shown:
    """A table as it is at one moment; `commits`: those that aren't in its log yet, newest first."""

    entry: TableEntry
    log: TableLog
    snapshot: Snapshot
    commits: Sequence[dict[str, object]] = ()

    @property
    def defined(self) -> Defined | None:
        """Since when it is defined as it is."""
        return defined_since(self.log, self.entry.id, etag_of(self), self.snapshot.version)


def shown(engine: Engine, handle: Handle) -> Shown:
    """The table as its catalog has it now, everything published.

    What can't be published is told, where it was staged under a name. Raises Unavailable where it
    wasn't, and the store is away: what the table is can't be told then.
    """
    entry = handle.entry
    assert entry is not None
    ledger = engine.catalog.of_lake().ledger
    for _ in range(_LOOKS):
        head = publish_pending(handle.store, ledger, entry.id, table=handle.name)
        if head is None or head.version < 0:
            break
        told = [_pending(handle, commit) for commit in reversed(head.pending)]
        snapshot = handle.log.snapshot(head.version)
        return Shown(entry, handle.log, snapshot, told)
    raise Unavailable(f"{handle.name}: it is being made or dropped; look again")


def _pending(handle: Handle, commit: TableCommit) -> dict[str, object]:
    stored = None if commit.staged is None else handle.store.head(staged_path(commit.staged))
    if stored is None:
        raise Unavailable(
            f"{handle.name}: version {commit.version} is committed, and can't be published now; "
            "try again"
        )
    info = commit_info_of(content_of(handle.store, commit), file=f"{handle.name}: {commit.staged}")
    return {
        "version": commit.version,
        "timestamp": (info and info.in_commit_timestamp_ms) or stored.modified_ms,
        "file-name": commit.staged,
        "file-size": stored.size_bytes,
        "file-modification-timestamp": stored.modified_ms,
    }


def table_type(table: Shown) -> str:
    """`MANAGED` for what clients write through this server, `EXTERNAL` for what they only read."""
    return "MANAGED" if is_open(table.snapshot.protocol) else "EXTERNAL"


def etag_of(table: Shown) -> str:
    """Changes with the table's definition, not with its rows."""
    snapshot, entry = table.snapshot, table.entry
    own = {
        name: domain.configuration
        for name, domain in snapshot.domains.items()
        if name != ROW_TRACKING_DOMAIN
    }
    parts = [
        msgspec.to_builtins(snapshot.metadata),
        msgspec.to_builtins(snapshot.protocol),
        own,
        [entry.id, entry.database, entry.name],
    ]
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def properties_of(table: Shown) -> dict[str, str]:
    """The table's properties, and those that its protocol, its domains and its history make."""
    snapshot, defined = table.snapshot, table.defined
    protocol = snapshot.protocol
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    found = {
        **snapshot.metadata.configuration,
        **{f"delta.feature.{name}": "supported" for name in sorted(features)},
        "delta.minReaderVersion": str(protocol.min_reader_version),
        "delta.minWriterVersion": str(protocol.min_writer_version),
    }
    if defined is not None:
        found["delta.lastUpdateVersion"] = str(defined.version)
        found["delta.lastCommitTimestamp"] = str(defined.time_ms)
    found |= {f"delta.{key}": text for key, text in _clustering(snapshot).items()}
    if ROW_TRACKING_DOMAIN in snapshot.domains:
        found["delta.rowTracking.rowIdHighWaterMark"] = str(snapshot.row_id_high_water_mark)
    return found


def _clustering(snapshot: Snapshot) -> dict[str, str]:
    """The columns, none of a table that isn't clustered any more."""
    clustered = clustered_by(snapshot.schema, snapshot.domains, table=snapshot.table)
    if not clustered and FEATURE not in snapshot.features:
        return {}
    return {"clusteringColumns": json.dumps(clustered, ensure_ascii=False)}


def loaded(table: Shown) -> dict[str, object]:
    """The Delta API's answer about a table."""
    entry, snapshot = table.entry, table.snapshot
    metadata: dict[str, object] = {
        "etag": etag_of(table),
        "table-type": table_type(table),
        "table-uuid": entry.id,
        "location": entry.location,
        "created-time": entry.created_ms,
        "updated-time": max(entry.modified_ms, snapshot.timestamp_ms),
        "columns": delta_columns(snapshot.schema),
        "partition-columns": list(snapshot.partition_columns),
        "properties": properties_of(table),
    }
    defined = table.defined
    if defined is not None:
        metadata["last-commit-version"] = defined.version
        metadata["last-commit-timestamp-ms"] = defined.time_ms
    answer: dict[str, object] = {"metadata": metadata, "commits": list(table.commits)}
    if is_open(snapshot.protocol):
        answer["latest-table-version"] = snapshot.version
    return answer


def table_info(catalog: str, table: Shown) -> dict[str, object]:
    """The older API's answer about a table."""
    entry, snapshot = table.entry, table.snapshot
    info: dict[str, object] = {
        "name": entry.name,
        "catalog_name": catalog,
        "schema_name": entry.database,
        "table_type": table_type(table),
        "data_source_format": _FORMAT,
        "columns": column_infos(snapshot.schema, snapshot.partition_columns),
        "storage_location": entry.location,
        "properties": properties_of(table) | _clustering(snapshot),
        "created_at": entry.created_ms,
        "updated_at": max(entry.modified_ms, snapshot.timestamp_ms),
        "table_id": entry.id,
    }
    if snapshot.metadata.description is not None:
        info["comment"] = snapshot.metadata.description
    return info
