"""ALTER TABLE on the protocol: features added and dropped, versions raised.

Source: PROTOCOL.md, "Table Features", "Protocol Evolution".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec
import pyarrow.compute as pc

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
from txlake.ddl.table_metadata import IN_COMMIT_TIMESTAMPS, changed
from txlake.errors import InvalidRequest
from txlake.log.snapshot import ROW_TRACKING_DOMAIN, Snapshot
from txlake.protocol.actions import Action, DomainMetadata, Metadata, Protocol
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
from txlake.statements import AddFeature, DropFeature, UpgradeProtocol
from txlake.transaction import row_tracking
from txlake.transaction.change import Change
from txlake.transaction.checkpoint_protection import BEFORE_VERSION
from txlake.transaction.checkpoint_protection import FEATURE as PROTECTION

# Features that others stand on.
_DEPENDENTS = {
    "domainMetadata": ("clustering", "rowTracking", CATALOG_FEATURE),
    "deletionVectors": (CATALOG_MANAGED,),
    "inCommitTimestamp": (CATALOG_MANAGED,),
    "v2Checkpoint": (CATALOG_MANAGED,),
    "vacuumProtocolCheck": (CATALOG_MANAGED,),
    "columnMapping": ("icebergCompatV1", ICEBERG, "icebergCompatV3"),
    "rowTracking": ("icebergCompatV3",),
}


def add_feature(statement: AddFeature, table: Snapshot, environment: Environment) -> Change:
    """delta-spark's `addFeatureSupport`. Raises InvalidRequest, UnsupportedFeature."""
    actions = changed(table, table.metadata, environment, features=(statement.feature,))
    return Change(
        operation="SET TBLPROPERTIES",
        parameters={
            "properties": as_json({f"delta.feature.{statement.feature}": "supported"}),
        },
        actions=actions,
    )


def upgrade_protocol(statement: UpgradeProtocol, table: Snapshot) -> Change:
    """delta-spark's `upgradeTableProtocol`; a protocol below the table's changes nothing."""
    reader, writer = statement.reader_version, statement.writer_version
    if not (1 <= reader <= 3 and 1 <= writer <= 7) or (reader == 3 and writer < 7):
        raise InvalidRequest(
            f"protocol ({reader}, {writer}): expected a reader version of 1 to 3 and a writer "
            "version of 1 to 7, 7 with reader version 3"
        )
    old = table.protocol
    have = supported_features(old)
    if writer < 7:
        asked = Protocol(min_reader_version=reader, min_writer_version=writer)
        lower = reader < old.min_reader_version or writer < old.min_writer_version
        new = old if lower or have - supported_features(asked) else asked
    elif old.min_writer_version == 7 and old.min_reader_version >= reader:
        new = old
    else:
        read = tuple(sorted(name for name in have if name in READABLE))
        high = max(reader, old.min_reader_version)
        new = Protocol(
            min_reader_version=high,
            min_writer_version=7,
            reader_features=read if high == 3 else None,
            writer_features=tuple(sorted(have)),
        )
    shown = {
        "minReaderVersion": new.min_reader_version,
        "minWriterVersion": new.min_writer_version,
        "readerFeatures": new.reader_features,
        "writerFeatures": new.writer_features,
    }
    return Change(
        operation="UPGRADE PROTOCOL",
        parameters={"newProtocol": as_json(shown)},
        actions=() if new == old else (new,),
    )


@dataclass(frozen=True, slots=True)
class _Cleaned:
    """A table without the traces of a feature: its metadata, and further actions."""

    metadata: Metadata
    actions: tuple[Action, ...] = ()


def feature_to_drop(statement: DropFeature, table: Snapshot) -> str:
    """The feature's name as the protocol spells it.

    Raises InvalidRequest: the table doesn't have it, another feature needs it, it can't be dropped,
    or not in this way.
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
    needed = [other for other in _DEPENDENTS.get(name, ()) if other in table.features]
    if needed:
        raise InvalidRequest(
            f"[DELTA_FEATURE_DROP_DEPENDENT_FEATURE] feature {name} can't be dropped, "
            f"{', '.join(needed)} "
            f"need{'' if len(needed) > 1 else 's'} it; drop that first"
        )
    if name not in _CLEANERS:
        raise InvalidRequest(
            f"[DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE] feature {name} can't be dropped: "
            f"{_WHY_NOT.get(name, _HISTORY)}; write the rows to a new table without it"
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
    """ALTER TABLE ... DROP FEATURE, for a table in whose state nothing is left of the feature.

    What its history has of it is for the caller to ask: `feature_traces.newest_trace`. With
    `protects` the table gets checkpointProtection, for the versions so far.

    Raises InvalidRequest as `feature_to_drop`, and where the feature is in use.
    """
    name = feature_to_drop(statement, table)
    cleaned = _CLEANERS[name](table)
    metadata, features = cleaned.metadata, table.features - {name}
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
        actions=(*changes, *cleaned.actions),
    )


_HISTORY = "readers of the table's history would not know any more that they need it"
_WHY_NOT = {
    "appendOnly": "every Delta table may have it",
    "invariants": "every Delta table may have it",
    CATALOG_FEATURE: "the lake's catalog holds the table until it is detached",
    CATALOG_MANAGED: "the lake's catalog holds the table until it is detached",
    ICEBERG: (
        "Delta Lake has no way to drop it; ALTER TABLE ... SET TBLPROPERTIES ("
        "'delta.enableIcebergCompatV2' = 'false') ends its rules"
    ),
}


def _check_constraints(table: Snapshot) -> _Cleaned:
    names = ", ".join(table.properties.constraints)
    if names:
        raise InvalidRequest(
            f"feature checkConstraints can't be dropped while there are constraints: {names}; "
            "drop them first"
        )
    return _Cleaned(table.metadata)


def _no_field_has(key: str, feature: str, advice: str) -> Callable[[Snapshot], _Cleaned]:
    def clean(table: Snapshot) -> _Cleaned:
        names = [item.name for item in all_fields(table.schema) if key in item.metadata]
        if names:
            raise InvalidRequest(
                f"feature {feature} can't be dropped while columns use it: {', '.join(names)}; "
                f"{advice}"
            )
        return _Cleaned(table.metadata)

    return clean


def _without_defaults(table: Snapshot) -> _Cleaned:
    schema = map_schema(
        table.schema,
        lambda item: replace(
            item, metadata={k: v for k, v in item.metadata.items() if k != CURRENT_DEFAULT}
        ),
    )
    if schema == table.schema:
        return _Cleaned(table.metadata)
    return _Cleaned(msgspec.structs.replace(table.metadata, schema_string=schema_to_string(schema)))


def _without_properties(*keys: str) -> Callable[[Snapshot], _Cleaned]:
    def clean(table: Snapshot) -> _Cleaned:
        return _Cleaned(without_properties(table.metadata, *keys))

    return clean


def _without_domains(*names: str) -> Callable[[Snapshot], _Cleaned]:
    def clean(table: Snapshot) -> _Cleaned:
        removed = tuple(
            DomainMetadata(domain=name, configuration=domain.configuration, removed=True)
            for name, domain in table.domains.items()
            if not names or name in names
        )
        return _Cleaned(table.metadata, removed)

    return clean


def _without_vectors(table: Snapshot) -> _Cleaned:
    vectors = table.files.columns("deletion_vector")["deletion_vector"]
    if vectors.null_count < len(vectors):
        raise InvalidRequest(
            f"feature {VECTORS} can't be dropped while files have deletion vectors, found "
            f"{len(vectors) - vectors.null_count} of {len(vectors)}; set "
            f"'{VECTORS_ENABLED}' = 'false' and run REORG TABLE ... APPLY (PURGE) first"
        )
    return _turned_off(VECTORS)(table)


def _turned_off(name: str) -> Callable[[Snapshot], _Cleaned]:
    return lambda table: _Cleaned(TRACES[name].turned_off(table.metadata))


def _without_widening(table: Snapshot) -> _Cleaned:
    if has_type_changes(table.metadata):
        raise InvalidRequest(
            "feature typeWidening can't be dropped while columns are wider than in data files"
        )
    return _turned_off("typeWidening")(table)


def _without_mapping(table: Snapshot) -> _Cleaned:
    if table.column_mapping_mode != "none":
        raise InvalidRequest(
            "feature columnMapping can't be dropped while data files have names of their own for "
            "the columns"
        )
    return _Cleaned(without_mapping(table.metadata))


def _without_row_ids(table: Snapshot) -> _Cleaned:
    if row_tracking.is_enabled(table.metadata.configuration) or any(numbered(table)):
        raise InvalidRequest("feature rowTracking can't be dropped while files have row ids")
    metadata = without_properties(
        table.metadata,
        row_tracking.ENABLE,
        row_tracking.SUSPENDED,
        row_tracking.ROW_ID_COLUMN,
        row_tracking.COMMIT_VERSION_COLUMN,
    )
    return _Cleaned(metadata, _without_domains(ROW_TRACKING_DOMAIN)(table).actions)


def numbered(table: Snapshot) -> list[bool]:
    """Of each live file, whether its rows have ids."""
    names = ("base_row_id", "default_row_commit_version")
    columns = table.files.columns(*names)
    ids, versions = (pc.is_valid(columns[name]) for name in names)
    found: list[bool] = pc.or_(ids, versions).to_pylist()
    return found


def _as_it_is(table: Snapshot) -> _Cleaned:
    return _Cleaned(table.metadata)


_CLEANERS: dict[str, Callable[[Snapshot], _Cleaned]] = {
    "allowColumnDefaults": _without_defaults,
    "changeDataFeed": _without_properties(
        "delta.enableChangeDataFeed", "delta.enableChangeDataCapture"
    ),
    "checkConstraints": _check_constraints,
    PROTECTION: _without_properties(BEFORE_VERSION),
    "clustering": _without_domains(DOMAIN),
    "columnMapping": _without_mapping,
    VECTORS: _without_vectors,
    "domainMetadata": _without_domains(),
    "generatedColumns": _no_field_has(
        GENERATION, "generatedColumns", "write the rows to a new table"
    ),
    "identityColumns": _no_field_has(
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
    "v2Checkpoint": _turned_off("v2Checkpoint"),
    "vacuumProtocolCheck": _as_it_is,
}
