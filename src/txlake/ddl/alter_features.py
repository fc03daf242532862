"""ALTER TABLE on the protocol: add and drop features, raise versions.

Source: PROTOCOL.md, "Table Features", "Protocol Evolution".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec
import pyarrow.compute as pc

from txlake.commit import row_tracking
from txlake.commit.change import Change
from txlake.commit.checkpoint_protection import BEFORE_VERSION
from txlake.commit.checkpoint_protection import FEATURE as PROTECTION
from txlake.ddl.environment import Environment
from txlake.ddl.feature_traces import (
    TRACES,
    VECTORS,
    VECTORS_ENABLED,
    has_type_changes,
    without_mapping,
    without_properties,
)
from txlake.ddl.operations import as_json
from txlake.ddl.stored_expressions import CURRENT_DEFAULT, GENERATION
from txlake.ddl.table_metadata import IN_COMMIT_TIMESTAMPS, metadata_actions
from txlake.errors import InvalidRequest
from txlake.log.snapshot import ROW_TRACKING_DOMAIN, Snapshot
from txlake.protocol.actions import Action, DomainMetadata, Metadata, Protocol
from txlake.protocol.branching import DOMAIN as BRANCHES
from txlake.protocol.branching import FEATURE as BRANCHING
from txlake.protocol.branching import registry_of
from txlake.protocol.clustering import DOMAIN
from txlake.protocol.column_mapping import all_fields, map_schema
from txlake.protocol.features import (
    CATALOG_FEATURE,
    CATALOG_MANAGED,
    ICEBERG,
    MATERIALIZED_PARTITIONS,
    READABLE,
    protocol_for,
    protocol_of,
    supported_features,
)
from txlake.protocol.types import schema_to_string
from txlake.sql.statements import AddFeature, DropFeature, UpgradeProtocol

# By feature, the features that depend on it.
_DEPENDENTS = {
    "domainMetadata": ("clustering", "rowTracking", CATALOG_FEATURE, BRANCHING),
    "deletionVectors": (CATALOG_MANAGED,),
    "inCommitTimestamp": (CATALOG_MANAGED,),
    "v2Checkpoint": (CATALOG_MANAGED,),
    "vacuumProtocolCheck": (CATALOG_MANAGED,),
    "columnMapping": ("icebergCompatV1", ICEBERG, "icebergCompatV3"),
    "rowTracking": ("icebergCompatV3",),
}


def add_feature(statement: AddFeature, table: Snapshot, environment: Environment) -> Change:
    """Return the change of delta-spark's `addFeatureSupport`; no actions if the table has the
    feature.

    Features that it needs are added too. Raises InvalidRequest for an unknown feature, and
    UnsupportedFeature for one that txlake doesn't write.
    """
    actions = metadata_actions(table, table.metadata, environment, features=(statement.feature,))
    return Change(
        operation="SET TBLPROPERTIES",
        parameters={
            "properties": as_json({f"delta.feature.{statement.feature}": "supported"}),
        },
        actions=actions,
    )


def upgrade_protocol(statement: UpgradeProtocol, table: Snapshot) -> Change:
    """Return the change of delta-spark's `upgradeTableProtocol`; a protocol is never lowered.

    There are no actions where the versions asked for are lower, or would lose a feature. Raises
    InvalidRequest for versions that don't exist.
    """
    reader, writer = statement.reader_version, statement.writer_version
    if not (1 <= reader <= 3 and 1 <= writer <= 7) or (reader == 3 and writer < 7):
        raise InvalidRequest(
            f"protocol ({reader}, {writer}): expected a reader version of 1 to 3 and a writer "
            "version of 1 to 7, 7 with reader version 3"
        )
    old = table.protocol
    current_features = supported_features(old)
    if writer < 7:
        requested = Protocol(min_reader_version=reader, min_writer_version=writer)
        lower = reader < old.min_reader_version or writer < old.min_writer_version
        new = old if lower or current_features - supported_features(requested) else requested
    elif old.min_writer_version == 7 and old.min_reader_version >= reader:
        new = old
    else:
        read = tuple(sorted(name for name in current_features if name in READABLE))
        high = max(reader, old.min_reader_version)
        new = Protocol(
            min_reader_version=high,
            min_writer_version=7,
            reader_features=read if high == 3 else None,
            writer_features=tuple(sorted(current_features)),
        )
    new_protocol = {
        "minReaderVersion": new.min_reader_version,
        "minWriterVersion": new.min_writer_version,
        "readerFeatures": new.reader_features,
        "writerFeatures": new.writer_features,
    }
    return Change(
        operation="UPGRADE PROTOCOL",
        parameters={"newProtocol": as_json(new_protocol)},
        actions=() if new == old else (new,),
    )


@dataclass(frozen=True, slots=True)
class _Removal:
    """The metadata without a feature, and further actions that remove its traces."""

    metadata: Metadata
    actions: tuple[Action, ...] = ()


def feature_to_drop(statement: DropFeature, table: Snapshot) -> str:
    """Return the name, as the protocol spells it, of the feature to drop.

    Raises InvalidRequest where the table doesn't have the feature, another feature needs it, or it
    can't be dropped, or only with or without TRUNCATE HISTORY.
    """
    name = next(
        (known for known in table.features if known.lower() == statement.feature.lower()), None
    )
    if name is None:
        known = ", ".join(sorted(table.features))
        raise InvalidRequest(
            "[DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT] "
            f"the table doesn't have the feature {statement.feature}; it has: {known}"
        )
    dependents = [other for other in _DEPENDENTS.get(name, ()) if other in table.features]
    if dependents:
        raise InvalidRequest(
            f"[DELTA_FEATURE_DROP_DEPENDENT_FEATURE] feature {name} can't be dropped, "
            f"{', '.join(dependents)} "
            f"need{'' if len(dependents) > 1 else 's'} it; drop that first"
        )
    if name not in _REMOVALS:
        raise InvalidRequest(
            f"[DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE] feature {name} can't be dropped: "
            f"{_NOT_REMOVABLE.get(name, _NEEDED_BY_HISTORY)}; write the rows to a new table "
            "without it"
        )
    if statement.truncate_history and name not in TRACES and name != PROTECTION:
        raise InvalidRequest(
            f"feature {name} leaves nothing in the history that readers have to know; drop it "
            "without TRUNCATE HISTORY"
        )
    if name == PROTECTION and not statement.truncate_history:
        raise InvalidRequest(
            f"feature {name} protects versions that need a feature which was dropped: it goes with "
            f"them. ALTER TABLE ... DROP FEATURE {name} TRUNCATE HISTORY deletes them"
        )
    return name


def drop_feature(statement: DropFeature, table: Snapshot, *, protects: bool = False) -> Change:
    """Return the change that drops a feature which the table's current state doesn't use any more.

    It also removes the feature's properties, domains and column metadata. The caller checks the
    table's history (`feature_traces.newest_trace`). With `protects` the table gets
    checkpointProtection for its versions so far.

    Raises InvalidRequest as `feature_to_drop`, and where the feature is in use.
    """
    name = feature_to_drop(statement, table)
    removal = _REMOVALS[name](table)
    metadata, features = removal.metadata, table.features - {name}
    if protects:
        features |= {PROTECTION}
        configuration = {**metadata.configuration, BEFORE_VERSION: str(table.version + 1)}
        metadata = msgspec.structs.replace(metadata, configuration=configuration)
    protocol = protocol_of(features)
    # What the rest of the table needs must still be there.
    if protocol_for(metadata, protocol) != protocol:
        raise InvalidRequest(f"feature {name} is in use and can't be dropped")
    changes: list[Action] = [protocol]
    if metadata != table.metadata:
        changes.append(metadata)
    return Change(
        operation="DROP FEATURE",
        parameters={"featureName": name, "truncateHistory": statement.truncate_history},
        actions=(*changes, *removal.actions),
    )


_NEEDED_BY_HISTORY = "readers of the table's history would not know any more that they need it"
_NOT_REMOVABLE = {
    "appendOnly": "every Delta table may have it",
    "invariants": "every Delta table may have it",
    CATALOG_FEATURE: "the lake's catalog holds the table until it is detached",
    CATALOG_MANAGED: "the lake's catalog holds the table until it is detached",
    ICEBERG: (
        "Delta Lake has no way to drop it; ALTER TABLE ... SET TBLPROPERTIES ("
        "'delta.enableIcebergCompatV2' = 'false') ends its rules"
    ),
}


def _check_constraints(table: Snapshot) -> _Removal:
    """Return the metadata as it is. Raises InvalidRequest if the table has CHECK constraints."""
    names = ", ".join(table.properties.constraints)
    if names:
        raise InvalidRequest(
            f"feature checkConstraints can't be dropped while there are constraints: {names}; "
            "drop them first"
        )
    return _Removal(table.metadata)


def _require_no_field_with(key: str, feature: str, advice: str) -> Callable[[Snapshot], _Removal]:
    """Return a removal that changes nothing, and raises InvalidRequest if a field's metadata has
    `key`.
    """

    def clean(table: Snapshot) -> _Removal:
        names = [item.name for item in all_fields(table.schema) if key in item.metadata]
        if names:
            raise InvalidRequest(
                f"feature {feature} can't be dropped while columns use it: {', '.join(names)}; "
                f"{advice}"
            )
        return _Removal(table.metadata)

    return clean


def _without_defaults(table: Snapshot) -> _Removal:
    """Return the metadata without the columns' defaults (CURRENT_DEFAULT)."""
    schema = map_schema(
        table.schema,
        lambda item: replace(
            item, metadata={k: v for k, v in item.metadata.items() if k != CURRENT_DEFAULT}
        ),
    )
    if schema == table.schema:
        return _Removal(table.metadata)
    return _Removal(msgspec.structs.replace(table.metadata, schema_string=schema_to_string(schema)))


def _without_properties(*keys: str) -> Callable[[Snapshot], _Removal]:
    """Return a removal of these properties."""

    def clean(table: Snapshot) -> _Removal:
        return _Removal(without_properties(table.metadata, *keys))

    return clean


def _without_domains(*names: str) -> Callable[[Snapshot], _Removal]:
    """Return a removal of the table's domains with these names; without `names` of all
    its domains.
    """

    def clean(table: Snapshot) -> _Removal:
        removed = tuple(
            DomainMetadata(domain=name, configuration=domain.configuration, removed=True)
            for name, domain in table.domains.items()
            if not names or name in names
        )
        return _Removal(table.metadata, removed)

    return clean


def _without_vectors(table: Snapshot) -> _Removal:
    """Return the metadata with deletion vectors turned off. Raises InvalidRequest if a file has
    one.
    """
    vectors = table.files.columns("deletion_vector")["deletion_vector"]
    if vectors.null_count < len(vectors):
        raise InvalidRequest(
            f"feature {VECTORS} can't be dropped while files have deletion vectors, found "
            f"{len(vectors) - vectors.null_count} of {len(vectors)}; set "
            f"'{VECTORS_ENABLED}' = 'false' and run REORG TABLE ... APPLY (PURGE) first"
        )
    return _disabled(VECTORS)(table)


def _disabled(name: str) -> Callable[[Snapshot], _Removal]:
    """Return a removal by which the table stops using the feature `name`
    (`feature_traces.TRACES`).
    """
    return lambda table: _Removal(TRACES[name].disable(table.metadata))


def _without_widening(table: Snapshot) -> _Removal:
    """Return the metadata with widening turned off. Raises InvalidRequest if a type was widened."""
    if has_type_changes(table.metadata):
        raise InvalidRequest(
            "feature typeWidening can't be dropped while columns are wider than in data files"
        )
    return _disabled("typeWidening")(table)


def _without_mapping(table: Snapshot) -> _Removal:
    """Return the metadata without column ids. Raises InvalidRequest while columns are mapped."""
    if table.column_mapping_mode != "none":
        raise InvalidRequest(
            "feature columnMapping can't be dropped while data files have names of their own for "
            "the columns"
        )
    return _Removal(without_mapping(table.metadata))


def _without_row_ids(table: Snapshot) -> _Removal:
    """Return the metadata and actions without row tracking.

    Raises InvalidRequest while it is enabled, or a file has row ids.
    """
    if row_tracking.is_enabled(table.metadata.configuration) or any(has_row_ids(table)):
        raise InvalidRequest("feature rowTracking can't be dropped while files have row ids")
    metadata = without_properties(
        table.metadata,
        row_tracking.ENABLE,
        row_tracking.SUSPENDED,
        row_tracking.ROW_ID_COLUMN,
        row_tracking.COMMIT_VERSION_COLUMN,
    )
    return _Removal(metadata, _without_domains(ROW_TRACKING_DOMAIN)(table).actions)


def has_row_ids(table: Snapshot) -> list[bool]:
    """Return, for each live file in order, whether it has a base row id or a default commit
    version.
    """
    names = ("base_row_id", "default_row_commit_version")
    columns = table.files.columns(*names)
    ids, versions = (pc.is_valid(columns[name]) for name in names)
    has_ids: list[bool] = pc.or_(ids, versions).to_pylist()
    return has_ids


def _without_branches(table: Snapshot) -> _Removal:
    """Return the actions that remove the registry. Raises InvalidRequest if a branch is open."""
    names = ", ".join(one.name for one in registry_of(table.domains, table=table.table).open)
    if names:
        raise InvalidRequest(
            f"feature {BRANCHING} can't be dropped while the table has branches: {names}; PUBLISH "
            "BRANCH or DROP BRANCH first"
        )
    return _Removal(table.metadata, _without_domains(BRANCHES)(table).actions)


def _unchanged(table: Snapshot) -> _Removal:
    return _Removal(table.metadata)


_REMOVALS: dict[str, Callable[[Snapshot], _Removal]] = {
    "allowColumnDefaults": _without_defaults,
    "changeDataFeed": _without_properties(
        "delta.enableChangeDataFeed", "delta.enableChangeDataCapture"
    ),
    "checkConstraints": _check_constraints,
    PROTECTION: _without_properties(BEFORE_VERSION),
    "clustering": _without_domains(DOMAIN),
    BRANCHING: _without_branches,
    "columnMapping": _without_mapping,
    VECTORS: _without_vectors,
    "domainMetadata": _without_domains(),
    "generatedColumns": _require_no_field_with(
        GENERATION, "generatedColumns", "write the rows to a new table"
    ),
    "identityColumns": _require_no_field_with(
        "delta.identity.step", "identityColumns", "write the rows to a new table"
    ),
    "inCommitTimestamp": _without_properties(
        IN_COMMIT_TIMESTAMPS,
        "delta.inCommitTimestampEnablementVersion",
        "delta.inCommitTimestampEnablementTimestamp",
    ),
    MATERIALIZED_PARTITIONS: _without_properties("delta.enableMaterializePartitionColumnsFeature"),
    "rowTracking": _without_row_ids,
    "typeWidening": _without_widening,
    "typeWidening-preview": _without_widening,
    "v2Checkpoint": _disabled("v2Checkpoint"),
    "vacuumProtocolCheck": _unchanged,
}
