"""Tables in the form of the two APIs, and the etags by which clients notice changed definitions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from txlake.catalog import TableEntry
from txlake.commit.membership import is_open
from txlake.commit.publication import commit_content, publish_pending, staged_path
from txlake.commit.table_log import TableLog
from txlake.errors import Unavailable
from txlake.log.replay import commit_info_of
from txlake.log.snapshot import ROW_TRACKING_DOMAIN, Snapshot
from txlake.ports import TableCommit
from txlake.protocol.clustering import FEATURE, clustered_by
from txlake.protocol.unity_columns import column_infos, delta_columns
from txlake.server.definitions import DefinitionVersion, definition_version
from txlake.session.engine import Engine, Handle

_FORMAT = "DELTA"


@dataclass(frozen=True, slots=True)
class TableState:
    """A table at one moment; `commits`: the commits that its log lacks, newest first."""

    entry: TableEntry
    log: TableLog
    snapshot: Snapshot
    commits: Sequence[dict[str, object]] = ()

    @property
    def definition(self) -> DefinitionVersion | None:
        """Return the version that defined the table as it is; None where it is too far back."""
        return definition_version(
            self.log, self.entry.id, definition_etag(self), self.snapshot.version
        )


def table_state(engine: Engine, handle: Handle) -> TableState:
    """Publish the table's commits, and return the table as its catalog has it now.

    A commit that can't be published now is listed from its staged file. Raises Unavailable if there
    is no such file, and if the table is being made or dropped.
    """
    entry = handle.entry
    assert entry is not None
    ledger = engine.catalog.of_lake().ledger
    head = publish_pending(handle.store, ledger, entry.id, table=handle.name)
    if head is None or head.version < 0:
        raise Unavailable(f"{handle.name}: it is being made or dropped; look again")
    unpublished = [_pending(handle, commit) for commit in reversed(head.pending)]
    snapshot = handle.log.snapshot(head.version)
    return TableState(entry, handle.log, snapshot, unpublished)


def _pending(handle: Handle, commit: TableCommit) -> dict[str, object]:
    """Return an unpublished commit in the form of the Delta API.

    Raises Unavailable if it has no staged file.
    """
    stored = None if commit.staged is None else handle.store.head(staged_path(commit.staged))
    if stored is None:
        raise Unavailable(
            f"{handle.name}: version {commit.version} is committed, and can't be published now; "
            "try again"
        )
    info = commit_info_of(
        commit_content(handle.store, commit), file=f"{handle.name}: {commit.staged}"
    )
    return {
        "version": commit.version,
        "timestamp": (info and info.in_commit_timestamp_ms) or stored.modified_ms,
        "file-name": commit.staged,
        "file-size": stored.size_bytes,
        "file-modification-timestamp": stored.modified_ms,
    }


def table_type(table: TableState) -> str:
    """Return `MANAGED` for a table that clients may write through this server, else `EXTERNAL`."""
    return "MANAGED" if is_open(table.snapshot.protocol) else "EXTERNAL"


def definition_etag(table: TableState) -> str:
    """Return a tag that changes with the table's definition, not with its rows."""
    snapshot, entry = table.snapshot, table.entry
    domains = {
        name: domain.configuration
        for name, domain in snapshot.domains.items()
        if name != ROW_TRACKING_DOMAIN
    }
    parts = [
        msgspec.to_builtins(snapshot.metadata),
        msgspec.to_builtins(snapshot.protocol),
        domains,
        [entry.id, entry.database, entry.name],
    ]
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def all_properties(table: TableState) -> dict[str, str]:
    """Return the table's properties, with those derived from its protocol, domains and history."""
    snapshot, definition = table.snapshot, table.definition
    protocol = snapshot.protocol
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    properties = {
        **snapshot.metadata.configuration,
        **{f"delta.feature.{name}": "supported" for name in sorted(features)},
        "delta.minReaderVersion": str(protocol.min_reader_version),
        "delta.minWriterVersion": str(protocol.min_writer_version),
    }
    if definition is not None:
        properties["delta.lastUpdateVersion"] = str(definition.version)
        properties["delta.lastCommitTimestamp"] = str(definition.time_ms)
    properties |= {f"delta.{key}": text for key, text in _clustering(snapshot).items()}
    if ROW_TRACKING_DOMAIN in snapshot.domains:
        properties["delta.rowTracking.rowIdHighWaterMark"] = str(snapshot.row_id_high_water_mark)
    return properties


def _clustering(snapshot: Snapshot) -> dict[str, str]:
    """Return the clustering columns as a property: empty if clustering was removed, absent if it
    never was.
    """
    clustered = clustered_by(snapshot.schema, snapshot.domains, table=snapshot.table)
    if not clustered and FEATURE not in snapshot.features:
        return {}
    return {"clusteringColumns": json.dumps(clustered, ensure_ascii=False)}


def load_response(table: TableState) -> dict[str, object]:
    """Return the Delta API's response about a table, commits that its log lacks included."""
    entry, snapshot = table.entry, table.snapshot
    metadata: dict[str, object] = {
        "etag": definition_etag(table),
        "table-type": table_type(table),
        "table-uuid": entry.id,
        "location": entry.location,
        "created-time": entry.created_ms,
        "updated-time": max(entry.modified_ms, snapshot.timestamp_ms),
        "columns": delta_columns(snapshot.schema),
        "partition-columns": list(snapshot.partition_columns),
        "properties": all_properties(table),
    }
    definition = table.definition
    if definition is not None:
        metadata["last-commit-version"] = definition.version
        metadata["last-commit-timestamp-ms"] = definition.time_ms
    response: dict[str, object] = {"metadata": metadata, "commits": list(table.commits)}
    if is_open(snapshot.protocol):
        response["latest-table-version"] = snapshot.version
    return response


def table_info(catalog: str, table: TableState) -> dict[str, object]:
    """Return the older API's response about a table."""
    entry, snapshot = table.entry, table.snapshot
    info: dict[str, object] = {
        "name": entry.name,
        "catalog_name": catalog,
        "schema_name": entry.database,
        "table_type": table_type(table),
        "data_source_format": _FORMAT,
        "columns": column_infos(snapshot.schema, snapshot.partition_columns),
        "storage_location": entry.location,
        "properties": all_properties(table) | _clustering(snapshot),
        "created_at": entry.created_ms,
        "updated_at": max(entry.modified_ms, snapshot.timestamp_ms),
        "table_id": entry.id,
    }
    if snapshot.metadata.description is not None:
        info["comment"] = snapshot.metadata.description
    return info
