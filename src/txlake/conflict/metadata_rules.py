"""The conflict rules about protocol, metadata, domains and application ids.

Source: docs/how-a-commit-works.md, rules 1 to 3.
"""

from __future__ import annotations

from txlake.conflict.adoption import is_harmless, only_moves_marks
from txlake.conflict.concurrent_commit import ConcurrentCommit
from txlake.conflict.context import CheckContext
from txlake.conflict.evidence import Finding
from txlake.conflict.footprint import Footprint, MarkUse
from txlake.conflict.metadata_updates import Clash, rebase_metadata
from txlake.errors import (
    ConcurrentTransactionException,
    MetadataChangedException,
    ProtocolChangedException,
)
from txlake.protocol.actions import Metadata
from txlake.protocol.features import (
    ICEBERG,
    MATERIALIZED_PARTITIONS,
    protocol_for,
    supported_features,
    uses_feature,
)
from txlake.protocol.identity import marks_differ

# Features that every row written has to keep to, as soon as they are listed.
_OF_ROWS = frozenset(
    {
        "appendOnly",
        "checkConstraints",
        "columnMapping",
        "generatedColumns",
        "invariants",
    }
)
# And those that every file written has to keep to.
_OF_FILES = frozenset({ICEBERG, MATERIALIZED_PARTITIONS})
_AGAIN = "Run the transaction again on the newest version."


def table_created_by_both(
    footprint: Footprint, winner: ConcurrentCommit, context: CheckContext
) -> Finding | None:
    """Conflict if both create the table."""
    if footprint.read_version >= 0:
        return None
    return Finding(
        ProtocolChangedException,
        "created the table that this transaction creates too",
        retry=False,
        advice="The table exists now: write to it, or create yours in another place.",
    )


def protocol_changed_by_both(
    footprint: Footprint, winner: ConcurrentCommit, context: CheckContext
) -> Finding | None:
    """Conflict if both set the protocol."""
    if winner.protocol is None or footprint.protocol is None:
        return None
    return Finding(
        ProtocolChangedException,
        "changed the table's protocol, which this transaction changes too",
        advice=_AGAIN,
    )


def features_dropped(
    footprint: Footprint, winner: ConcurrentCommit, context: CheckContext
) -> Finding | None:
    """Conflict if the winner dropped any table feature: the transaction may rely on it."""
    if winner.protocol is None:
        return None
    dropped = supported_features(context.protocol) - supported_features(winner.protocol)
    if not dropped:
        return None
    return Finding(
        ProtocolChangedException,
        f"dropped the table features {', '.join(sorted(dropped))}",
        advice=_AGAIN,
    )


def feature_came_into_force(
    footprint: Footprint, winner: ConcurrentCommit, context: CheckContext
) -> Finding | None:
    """Conflict if the winner added a feature that constrains rows, the table's metadata uses it,
    and the transaction changes data.

    Likewise a feature that constrains files, if the transaction writes files.
    """
    if winner.protocol is None:
        return None
    added = supported_features(winner.protocol) - supported_features(context.protocol)
    asking = _OF_ROWS if footprint.changes_data else frozenset[str]()
    if footprint.writes_files:
        asking |= _OF_FILES
    found = [name for name in sorted(added & asking) if uses_feature(name, context.metadata)]
    if not found:
        return None
    return Finding(
        ProtocolChangedException,
        f"put the table features {', '.join(found)} into force, which new files have to keep to",
        advice=_AGAIN,
    )


def dropped_feature_used(
    footprint: Footprint, winner: ConcurrentCommit, context: CheckContext
) -> Finding | None:
    """Conflict if the transaction drops a feature that the winner's files or domains use."""
    if footprint.protocol is None:
        return None
    dropped = supported_features(context.protocol) - supported_features(footprint.protocol)
    found = sorted(dropped & winner.features_used)
    if not found:
        return None
    return Finding(
        ProtocolChangedException,
        f"used the table features {', '.join(found)}, which this transaction drops",
        advice=_AGAIN,
    )


def metadata_changed(
    footprint: Footprint, winner: ConcurrentCommit, context: CheckContext
) -> Finding | None:
    """Conflict if the winner changed the metadata and the transaction can't follow.

    A transaction that sets metadata too follows as `metadata_after` says; any other one follows if
    `is_harmless`.
    """
    if winner.metadata is None:
        return None
    if footprint.metadata is not None:
        outcome = metadata_after(footprint, winner.metadata, context)
        if not isinstance(outcome, Clash):
            return None
        finding = f"changed {outcome.part}, which this transaction changes too, or depends on"
    else:
        protocol = winner.protocol or context.protocol
        if is_harmless(
            context.metadata,
            winner.metadata,
            protocol,
            moves_marks=footprint.marks is MarkUse.MOVED,
        ):
            return None
        finding = "changed the table's metadata (schema, partitioning or properties)"
    return Finding(
        MetadataChangedException,
        finding,
        advice="Run the transaction again: it then sees the table's new metadata.",
    )


def metadata_after(
    footprint: Footprint, theirs: Metadata, context: CheckContext
) -> Metadata | Clash | None:
    """Return the metadata that the transaction sets after a winner's (`theirs`); None if it sets
    none.

    A `Clash` if it can't follow the winner's change. A transaction that read rows or changes files
    follows only moved marks of identity columns: it wrote its files under the metadata that it
    read. A transaction that moves marks follows no change of the metadata, and one that states
    marks follows no change that moves them: two writers that generate values beyond one mark
    generate the same values.
    """
    ours, base = footprint.metadata, context.metadata
    if ours is None or theirs == base:
        return ours
    if not footprint.changes_definition_only and not only_moves_marks(base, theirs):
        return Clash("the table's metadata")
    if footprint.marks is MarkUse.MOVED:
        return Clash("the metadata beside the high-water marks of identity columns")
    if footprint.marks is MarkUse.STATED and marks_differ(base, theirs):
        return Clash("the high-water marks of identity columns")
    found = rebase_metadata(ours, base, theirs, context.table)
    if isinstance(found, Clash) or footprint.protocol is None:
        return found
    if protocol_for(found, footprint.protocol) != footprint.protocol:
        return Clash("what needs table features that this transaction drops: its metadata")
    return found


def domain_changed(
    footprint: Footprint, winner: ConcurrentCommit, context: CheckContext
) -> Finding | None:
    """Conflict if the winner wrote a metadata domain that the transaction writes or read."""
    ours = {domain.domain for domain in footprint.domains} | footprint.read_domains
    shared = sorted(ours & winner.domains)
    if not shared:
        return None
    return Finding(
        MetadataChangedException,
        f"wrote the metadata domain {', '.join(shared)}, which this transaction uses too",
        advice=_AGAIN,
    )


def app_id_advanced(
    footprint: Footprint, winner: ConcurrentCommit, context: CheckContext
) -> Finding | None:
    """Conflict if the winner set an application id that the transaction depends on."""
    shared = sorted((footprint.read_app_ids | footprint.app_ids) & winner.app_ids)
    if not shared:
        return None
    return Finding(
        ConcurrentTransactionException,
        f"set the application id {', '.join(shared)}, on which this transaction depends",
        advice="Look up the application id's version first: this batch may be written already.",
    )
