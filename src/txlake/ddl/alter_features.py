"""ALTER TABLE on the protocol: features added and dropped, versions raised.

Source: PROTOCOL.md, "Table Features", "Protocol Evolution".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from txlake.ddl.environment import Environment
from txlake.ddl.operations import as_json
from txlake.ddl.stored_expressions import CURRENT_DEFAULT, GENERATION
from txlake.ddl.table_metadata import IN_COMMIT_TIMESTAMPS, changed
from txlake.errors import InvalidRequest
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Action, Add, DomainMetadata, Metadata, Protocol, Remove
from txlake.protocol.clustering import DOMAIN
from txlake.protocol.column_mapping import all_fields, map_schema
from txlake.protocol.features import (
    CATALOG_FEATURE,
    READABLE,
    protocol_for,
    supported_features,
)
from txlake.protocol.types import schema_to_string
from txlake.statements import AddFeature, DropFeature, UpgradeProtocol
from txlake.transaction.change import Change
from txlake.transaction.table_log import TableLog

VECTORS = "deletionVectors"
_VECTORS_ENABLED = "delta.enableDeletionVectors"
# Features that others stand on.
_DEPENDENTS = {
    "domainMetadata": ("clustering", "rowTracking", CATALOG_FEATURE),
    "columnMapping": ("icebergCompatV1", "icebergCompatV2", "icebergCompatV3"),
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


def check_history(statement: DropFeature, table: Snapshot, log: TableLog) -> None:
    """Raises InvalidRequest when versions that the log can show have vectors that are to go.

    A reader without the feature may start at any checkpoint, and would show their deleted rows; a
    checkpoint without it can't tell removed files by their vectors.
    """
    if statement.feature.lower() != VECTORS.lower() or table.version < 0:
        return
    version = _newest_with_vectors(log, table.version)
    if version is not None:
        raise InvalidRequest(
            f"{table.table}: feature {VECTORS} can't be dropped while the log has versions with "
            f"deletion vectors, the newest is {version}; a checkpoint takes versions out of the "
            "log that are older than delta.logRetentionDuration: drop it then, or write the rows "
            "to a new table without it"
        )
    if any(vector is not None for _, vector in table.tombstones):
        raise InvalidRequest(
            f"{table.table}: feature {VECTORS} can't be dropped while the log lists removed files "
            "that had deletion vectors; checkpoints leave them out after "
            "delta.deletedFileRetentionDuration: drop it then"
        )


def _newest_with_vectors(log: TableLog, up_to: int) -> int | None:
    listing = log.listing()
    for version in sorted(listing.commits, reverse=True):
        commit = log.commit(version) if version <= up_to else None
        if commit is not None and any(
            isinstance(action, Add | Remove) and action.deletion_vector is not None
            for action in commit.actions
        ):
            return version
    first = listing.earliest_version
    if first is None:
        return None
    state = log.snapshot(first)
    keys = (*state.tombstones, *(add.key for add in state.files.adds()))
    return first if any(vector is not None for _, vector in keys) else None


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


def drop_feature(statement: DropFeature, table: Snapshot) -> Change:
    """ALTER TABLE ... DROP FEATURE, for features that have left no trace in the table's files.

    What the history has of `deletionVectors` is for the caller to ask: `check_history`. Raises
    InvalidRequest: the table doesn't have it, it is in use, another feature needs it, or its
    traces in files or history would have to be rewritten.
    """
    name = next(
        (known for known in table.features if known.lower() == statement.feature.lower()), None
    )
    if name is None:
        known = ", ".join(sorted(table.features))
        raise InvalidRequest(
            f"the table doesn't have the feature {statement.feature}; it has: {known}"
        )
    needed = [other for other in _DEPENDENTS.get(name, ()) if other in table.features]
    if needed:
        raise InvalidRequest(
            f"feature {name} can't be dropped, {', '.join(needed)} "
            f"need{'' if len(needed) > 1 else 's'} it; drop that first"
        )
    clean = _CLEANERS.get(name)
    if clean is None:
        raise InvalidRequest(
            f"feature {name} can't be dropped: {_WHY_NOT.get(name, _HISTORY)}; write the rows to "
            "a new table without it"
        )
    if statement.truncate_history:
        raise InvalidRequest(
            f"feature {name} can only be dropped where nothing in the history needs it; drop it "
            "without TRUNCATE HISTORY"
        )
    cleaned = clean(table)
    protocol = _without(name, table.protocol)
    # What the rest of the table needs must still be there.
    if protocol_for(cleaned.metadata, protocol) != protocol:
        raise InvalidRequest(f"feature {name} is in use and can't be dropped")
    changes: list[Action] = [protocol]
    if cleaned.metadata != table.metadata:
        changes.append(cleaned.metadata)
    return Change(
        operation="DROP FEATURE",
        parameters={"featureName": name, "truncateHistory": False},
        actions=(*changes, *cleaned.actions),
    )


def _without(name: str, old: Protocol) -> Protocol:
    """The protocol without a feature; reader version 1 when it was the last one of readers."""
    readers = old.reader_features
    version = old.min_reader_version
    if readers is not None and name in readers:
        readers = tuple(one for one in readers if one != name) or None
        version = version if readers else 1
    return msgspec.structs.replace(
        old,
        min_reader_version=version,
        min_writer_version=7,
        reader_features=readers,
        writer_features=tuple(sorted(supported_features(old) - {name})),
    )


_HISTORY = "readers of the table's history would not know any more that they need it"
_WHY_NOT = {
    "columnMapping": "all data files would have to be rewritten with the columns' names",
    "typeWidening": "files with the narrower types would have to be rewritten",
    "rowTracking": "row ids stay in the log",
    "appendOnly": "every Delta table may have it",
    "invariants": "every Delta table may have it",
    CATALOG_FEATURE: "the lake's catalog holds the table until it is detached",
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
        configuration = {k: v for k, v in table.metadata.configuration.items() if k not in keys}
        return _Cleaned(msgspec.structs.replace(table.metadata, configuration=configuration))

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
            f"'{_VECTORS_ENABLED}' = 'false' and run REORG TABLE ... APPLY (PURGE) first"
        )
    return _without_properties(_VECTORS_ENABLED)(table)


_CLEANERS: dict[str, Callable[[Snapshot], _Cleaned]] = {
    "allowColumnDefaults": _without_defaults,
    "changeDataFeed": _without_properties(
        "delta.enableChangeDataFeed", "delta.enableChangeDataCapture"
    ),
    "checkConstraints": _check_constraints,
    "clustering": _without_domains(DOMAIN),
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
}
