"""The bodies of requests to a Unity Catalog's Delta API: commits, definitions and tables as JSON.

Owns their form; `ledger` sends them. Source: Unity Catalog's Delta API, its request schemas.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from txlake.protocol.actions import Action, CommitInfo, Metadata, Protocol
from txlake.protocol.types import parse_schema
from txlake.protocol.unity_columns import delta_columns

_ASSERT_UUID = "assert-table-uuid"
# Properties that the catalog adds to those in the table's metadata.
_DERIVED_PREFIXES = ("delta.feature.", "delta.minReaderVersion", "delta.minWriterVersion")
_DERIVED_NAMES = frozenset(
    {"delta.lastUpdateVersion", "delta.lastCommitTimestamp", "delta.clusteringColumns"}
    | {"delta.rowTracking.rowIdHighWaterMark"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTable:
    """A table as the catalog last described it. `is_new`: the table has a location and no name."""

    id: str
    schema: str
    name: str
    location: str
    is_new: bool = False

    @property
    def full_name(self) -> str:
        """The table's name with its schema, for messages."""
        return f"{self.schema}.{self.name}"


def creation_body(name: str, location: str, actions: Collection[Action]) -> dict[str, object]:
    """Return the body that creates a table with a name at a location, from its first commit."""
    metadata = next(action for action in actions if isinstance(action, Metadata))
    protocol = next(action for action in actions if isinstance(action, Protocol))
    body: dict[str, object] = {
        "name": name,
        "location": location,
        "table-type": "MANAGED",
        "columns": delta_columns(parse_schema(metadata.schema_string)),
        "partition-columns": list(metadata.partition_columns),
        "protocol": _protocol_json(protocol),
        "properties": dict(metadata.configuration),
        "last-commit-timestamp-ms": commit_time_ms(actions),
    }
    if metadata.description is not None:
        body["comment"] = metadata.description
    return body


def update_body(known: KnownTable, *updates: dict[str, Any]) -> dict[str, object]:
    """Return the body that updates a table if it still has the known id."""
    return {
        "requirements": [{"type": _ASSERT_UUID, "uuid": known.id}],
        "updates": list(updates),
    }


def protocol_update(protocol: Protocol) -> dict[str, object]:
    """Return the update for a commit that changes the table's protocol."""
    return {"action": "set-protocol", "protocol": _protocol_json(protocol)}


def metadata_updates(metadata: Metadata, before: Mapping[str, str]) -> list[dict[str, object]]:
    """Return the updates for a commit that changes the table's metadata.

    `before`: the properties that the catalog has for the table.
    """
    updates: list[dict[str, object]] = []
    after = metadata.configuration
    changed = {key: text for key, text in after.items() if before.get(key) != text}
    removed = [key for key in before if key not in after and not _is_derived(key)]
    if changed:
        updates.append({"action": "set-properties", "updates": changed})
    if removed:
        updates.append({"action": "remove-properties", "removals": removed})
    updates.append(
        {"action": "set-columns", "columns": delta_columns(parse_schema(metadata.schema_string))}
    )
    if metadata.description is not None:
        updates.append({"action": "set-table-comment", "comment": metadata.description})
    return updates


def table_reference(known: KnownTable) -> dict[str, object]:
    """Return the part of a body that names a table."""
    return {"schema": known.schema, "table": known.name, "uuid": known.id}


def commit_time_ms(actions: Collection[Action]) -> int:
    """Return a commit's in-commit timestamp, which catalog-managed tables have."""
    info = next((action for action in actions if isinstance(action, CommitInfo)), None)
    time = None if info is None else info.in_commit_timestamp_ms
    assert time is not None, "catalog-managed tables have in-commit timestamps"
    return time


def _protocol_json(protocol: Protocol) -> dict[str, object]:
    """Return a protocol in the Delta API's form."""
    return {
        "min-reader-version": protocol.min_reader_version,
        "min-writer-version": protocol.min_writer_version,
        "reader-features": list(protocol.reader_features or ()),
        "writer-features": list(protocol.writer_features or ()),
    }


def _is_derived(key: str) -> bool:
    return key.startswith(_DERIVED_PREFIXES) or key in _DERIVED_NAMES
