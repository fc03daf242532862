"""Checkpoint protection: the version since which a table's history needs no dropped feature.

Owns the property that says so, which is set anew at every attempt and never decreases. Clients that
don't know a dropped feature start at the checkpoints around that version; log clean-up keeps the
rule by itself, since it deletes only what is before an existing checkpoint. Source: Delta Lake's
documentation, "Drop Delta table features".
"""

from __future__ import annotations

import msgspec

from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Metadata, Protocol
from txlake.protocol.features import supported_features

FEATURE = "checkpointProtection"
BEFORE_VERSION = "delta.requireCheckpointProtectionBeforeVersion"


def protected_before(metadata: Metadata) -> int:
    """Return the version before which checkpoints are protected; 0 if none are, or the text is
    invalid.
    """
    text = metadata.configuration.get(BEFORE_VERSION, "0").strip()
    return int(text) if text.isdecimal() else 0


def with_protection(
    metadata: Metadata, previous: Snapshot, protocol: Protocol, version: int
) -> Metadata:
    """Return the metadata to commit as `version`, with its checkpoint protection.

    A commit that asks for protection before a later version than the table has gets its own
    version; any other keeps the table's. Nothing is changed in a table's first version, and where
    `protocol`, which is in force after the commit, lacks the feature.
    """
    if previous.version < 0 or FEATURE not in supported_features(protocol):
        return metadata
    known = protected_before(previous.metadata)
    kept = version if protected_before(metadata) > known else known
    if kept == protected_before(metadata):
        return metadata
    configuration = {**metadata.configuration, BEFORE_VERSION: str(kept)}
    return msgspec.structs.replace(metadata, configuration=configuration)
