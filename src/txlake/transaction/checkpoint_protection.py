"""Checkpoint protection: since which version a table's history needs no feature that was dropped.

Owns the property that says so, which is made anew at every attempt and never goes back. Clients
that don't know a dropped feature start at the checkpoints around that version; log clean-up keeps
to the rule by itself, since it deletes only what lies before a checkpoint that is there. Source:
Delta Lake's documentation, "Drop Delta table features".
"""

from __future__ import annotations

import msgspec

from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Metadata, Protocol
from txlake.protocol.features import supported_features

FEATURE = "checkpointProtection"
BEFORE_VERSION = "delta.requireCheckpointProtectionBeforeVersion"


def protected_before(metadata: Metadata) -> int:
    """The version before which checkpoints are protected; 0 where none is."""
    text = metadata.configuration.get(BEFORE_VERSION, "0").strip()
    return int(text) if text.isdecimal() else 0


def with_protection(
    metadata: Metadata, previous: Snapshot, protocol: Protocol, version: int
) -> Metadata:
    """The metadata to commit as `version`, with the version before which checkpoints are protected.

    A commit that asks for a later one than the table has gets its own; any other keeps the table's,
    as long as `protocol`, which is in force after it, has the feature.
    """
    if previous.version < 0 or FEATURE not in supported_features(protocol):
        return metadata
    known = protected_before(previous.metadata)
    kept = version if protected_before(metadata) > known else known
    if kept == protected_before(metadata):
        return metadata
    configuration = {**metadata.configuration, BEFORE_VERSION: str(kept)}
    return msgspec.structs.replace(metadata, configuration=configuration)
