"""Completion of a table's new metadata: checks, column mapping, protocol.

Owns what all statements that write a `metaData` action have in common. Source: PROTOCOL.md,
"Change Metadata", "Protocol Evolution", "Column Mapping", "Row Tracking".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from txlake.commit import row_tracking
from txlake.commit.checkpoint_protection import BEFORE_VERSION
from txlake.commit.membership import DOMAIN as MEMBERSHIP
from txlake.commit.membership import TABLE_ID, retained_properties
from txlake.commit.metadata_validation import complete_metadata
from txlake.ddl.clustering import check_indexed, clustering_domain, clustering_paths
from txlake.ddl.environment import Environment
from txlake.ddl.keys import check_keys
from txlake.ddl.stored_expressions import check_constraint
from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Action, DomainMetadata, Metadata
from txlake.protocol.clustering import DOMAIN, FEATURE
from txlake.protocol.column_mapping import (
    MAX_ID_PROPERTY,
    all_fields,
)
from txlake.protocol.features import check_writable, protocol_for
from txlake.protocol.iceberg import ENABLE as ICEBERG_COMPATIBLE
from txlake.protocol.identity import is_identity
from txlake.protocol.properties import (
    CONSTRAINT_PREFIX,
    KEY_PREFIX,
    column_list,
    is_true,
    is_valid_property,
    validate_set,
)
from txlake.protocol.schema_rules import column_text
from txlake.protocol.table_properties import TableProperties
from txlake.protocol.types import Struct, parse_schema, schema_to_string

IN_COMMIT_TIMESTAMPS = "delta.enableInCommitTimestamps"
DELETION_VECTORS = "delta.enableDeletionVectors"
_ENABLEMENT = (
    "delta.inCommitTimestampEnablementVersion",
    "delta.inCommitTimestampEnablementTimestamp",
)
# Properties that belong to one table's own log: a copy of the table starts without them.
INTERNAL_PROPERTIES = (
    MAX_ID_PROPERTY,
    row_tracking.ROW_ID_COLUMN,
    row_tracking.COMMIT_VERSION_COLUMN,
    *_ENABLEMENT,
    BEFORE_VERSION,
    TABLE_ID,
    MEMBERSHIP,
)
_STATS_COLUMNS = "delta.dataSkippingStatsColumns"
# Spark's reserved keys, and the clauses that set these parts of a table.
_RESERVED = {
    "location": "the clause LOCATION",
    "provider": "USING",
    "owner": "the catalog",
    "clusteringcolumns": "CLUSTER BY",
}


Refusal = InvalidRequest | UnsupportedFeature


def with_table_name(error: Refusal, table: str) -> Refusal:
    """Return the error with the table's name before its message; as it is if it begins with the
    name.
    """
    text = str(error)
    return error if text.startswith(f"{table}: ") else type(error)(f"{table}: {text}")


def metadata_actions(
    snapshot: Snapshot,
    metadata: Metadata,
    environment: Environment,
    *,
    features: Iterable[str] = (),
) -> tuple[Action, ...]:
    """Return the actions that give an existing table this metadata.

    New columns get ids and physical names; needed features are added to the protocol.
    `metadata.configuration` may have properties that request features (`delta.feature.*`).

    Returns:
        The protocol and the metadata, as far as they change.

    Raises:
        InvalidRequest: an invalid schema or property; the message names the table.
        UnsupportedFeature: the table would need a feature that txlake doesn't write.
    """
    return _complete(
        metadata, environment, table=snapshot.table, existing=snapshot, new=False, features=features
    )


def new_table_actions(
    schema: Struct,
    environment: Environment,
    *,
    table: str,
    existing: Snapshot | None = None,
    partition_by: Sequence[str] = (),
    cluster_by: Sequence[str] | None = None,
    properties: Iterable[tuple[str, str]] = (),
    constraints: Mapping[str, str] | None = None,
    keys: Mapping[str, str] | None = None,
    description: str | None = None,
    inherited: Mapping[str, str] | None = None,
    features: Iterable[str] = (),
    defaults: bool = True,
) -> tuple[Action, ...]:
    """Return the protocol, metadata and domains of a new table, or one that replaces another.

    Args:
        schema: the statement's schema; fields with column mapping keep it.
        environment: time and ids.
        table: the name for messages.
        existing: the table to replace: its protocol is never lowered, its column ids are never
            reused, its clustering ends unless `cluster_by` is given. The properties that attach an
            open table to its catalog stay, whatever `properties` say. The caller removes its files.
        partition_by: top-level columns, in any letter case.
        cluster_by: columns, `a.b` for fields of structs; None without the clause.
        properties: the statement's properties; keys are checked.
        constraints: CHECK conditions by name.
        keys: informational keys as properties (`keys.with_keys`).
        description: the table's comment.
        inherited: properties taken over unchecked; `properties` override them.
        features: further features besides those that the definition needs.
        defaults: whether to turn on txlake's default features (deletion vectors), and to leave the
            row tracking of `existing` on, unless the properties say otherwise.

    Raises:
        InvalidRequest: an invalid definition.
        UnsupportedFeature: the table would need a feature that txlake doesn't write. Both messages
            name the table.
    """
    try:
        configuration = dict(inherited or {})
        checked = _check_properties(properties)
        for key, value in checked.items():
            if key.startswith(CONSTRAINT_PREFIX):
                check_constraint(key[len(CONSTRAINT_PREFIX) :], value, schema)
        configuration.update(checked)
        comment = configuration.pop("comment", None)
        for name, condition in (constraints or {}).items():
            check_constraint(name, condition, schema)
            configuration[f"{CONSTRAINT_PREFIX}{name.lower()}"] = condition
        for stored in keys or {}:
            if stored.replace(KEY_PREFIX, CONSTRAINT_PREFIX, 1) in configuration:
                name = stored[len(KEY_PREFIX) :]
                raise InvalidRequest(f"constraint {name} is there twice")
        configuration.update(keys or {})
        columns = tuple(_schema_spelling(schema, name) for name in partition_by)
        for item in schema:
            if item.name in columns and is_identity(item):
                raise InvalidRequest(
                    "[DELTA_IDENTITY_COLUMNS_PARTITION_NOT_SUPPORTED] "
                    f"a table can't be partitioned by an identity column ({item.name!r}), which "
                    "has another value in each row; partition it by another column"
                )
        if columns and cluster_by:
            raise InvalidRequest("a table can't be both partitioned and clustered")
        paths = () if cluster_by is None else clustering_paths(schema, cluster_by)
        check_indexed(schema, TableProperties(configuration, table), paths)
    except (InvalidRequest, UnsupportedFeature) as error:
        raise with_table_name(error, table) from error
    if existing is not None and columns and FEATURE in existing.features:
        raise InvalidRequest(
            f"{table}: a clustered table can't be replaced by a partitioned one; drop it first"
        )
    if (
        defaults
        and DELETION_VECTORS not in configuration
        and _allows_defaults(configuration)
        and not is_true(configuration, ICEBERG_COMPATIBLE)
    ):
        configuration[DELETION_VECTORS] = "true"
    if defaults and existing is not None:
        configuration = {**row_tracking.kept(existing.metadata.configuration), **configuration}
    if existing is not None:
        configuration |= retained_properties(existing)
    metadata = Metadata(
        id=environment.new_id(),
        schema_string=schema_to_string(schema),
        partition_columns=columns,
        configuration=configuration,
        description=comment if description is None else description,
        created_time=environment.now_ms,
    )
    actions = _complete(
        metadata,
        environment,
        table=table,
        existing=existing,
        new=True,
        features=(*features, *(() if cluster_by is None else (FEATURE,))),
    )
    return (*actions, *_domains(actions, paths, cluster_by is not None, existing))


def check_not_reserved(key: str) -> None:
    """Raise InvalidRequest for a key that Spark reserves for another part of the table, and for a
    key constraint's.
    """
    place = _RESERVED.get(key.lower())
    if place is not None:
        raise InvalidRequest(f"table property {key!r} is reserved: it is given by {place}")
    if key.lower().startswith(KEY_PREFIX):
        raise InvalidRequest(
            f"table property {key!r} can't be set; ALTER TABLE ... ADD CONSTRAINT adds a key"
        )


def _check_properties(properties: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return a new table's properties as they are stored.

    Raises InvalidRequest for a reserved or unknown key, and an invalid value.
    """
    checked: dict[str, str] = {}
    for key, value in properties:
        check_not_reserved(key)
        stored, text = validate_set(key, value, creating=True)
        checked[stored] = text
    return checked


def _allows_defaults(configuration: Mapping[str, str]) -> bool:
    """Return whether the properties allow txlake's default features.

    They don't by an older protocol version than (3, 7), or by `delta.ignoreProtocolDefaults`.
    """
    old_reader = configuration.get("delta.minReaderVersion", "3") < "3"
    old_writer = configuration.get("delta.minWriterVersion", "7") < "7"
    return not (old_reader or old_writer or is_true(configuration, "delta.ignoreProtocolDefaults"))


def _schema_spelling(schema: Struct, name: str) -> str:
    """Return the column's name as the schema spells it; an unknown name stays."""
    column = schema.find(name)
    return name if column is None else column.name


def _domains(
    actions: Iterable[Action],
    paths: Sequence[tuple[str, ...]],
    clustered: bool,
    existing: Snapshot | None,
) -> tuple[DomainMetadata, ...]:
    """Return the domain metadata of clustering; () if the table isn't clustered, and wasn't.

    It is a removal where the new table isn't clustered and the one that it replaces is. `actions`
    have the new metadata.
    """
    if clustered:
        final = next(action for action in actions if isinstance(action, Metadata))
        return (clustering_domain(parse_schema(final.schema_string), paths),)
    before = None if existing is None else existing.domains.get(DOMAIN)
    if before is None:
        return ()
    return (DomainMetadata(domain=DOMAIN, configuration=before.configuration, removed=True),)


def _complete(
    metadata: Metadata,
    environment: Environment,
    *,
    table: str,
    existing: Snapshot | None,
    new: bool,
    features: Iterable[str],
) -> tuple[Action, ...]:
    """Return the protocol and the metadata, completed and checked, as far as they differ from the
    table's.

    `new`: the metadata replaces the table's, if there is one. `features` are needed besides those
    that the metadata shows. Raises InvalidRequest and UnsupportedFeature, which name the table.
    """
    before = None if existing is None or not existing.is_created else existing
    try:
        _check_stats_columns(metadata, before)
        final = complete_metadata(metadata, before, environment.new_id, replaces=new, table=table)
        needed = set(features)
        schema = parse_schema(final.schema_string)
        check_keys(final.configuration, schema)
        if any(not item.nullable for item in all_fields(schema)):
            needed.add("invariants")
        old_protocol = None if before is None else before.protocol
        requesting = {**metadata.configuration, **final.configuration}
        protocol = protocol_for(
            msgspec.structs.replace(final, configuration=requesting),
            old_protocol,
            features=sorted(needed),
        )
    except (InvalidRequest, UnsupportedFeature) as error:
        raise with_table_name(error, table) from error
    if before is not None and schema == parse_schema(before.metadata.schema_string):
        # An equal schema keeps the JSON text of its author.
        final = msgspec.structs.replace(final, schema_string=before.metadata.schema_string)
    check_writable(protocol, final, table=table)
    actions: list[Action] = []
    if protocol != old_protocol:
        actions.append(protocol)
    if before is None or final != before.metadata:
        actions.append(final)
    return tuple(actions)


def _check_stats_columns(metadata: Metadata, before: Snapshot | None) -> None:
    """Raise InvalidRequest if `delta.dataSkippingStatsColumns` names an unknown column.

    Passes where neither the property nor the schema changes.
    """
    text = metadata.configuration.get(_STATS_COLUMNS)
    if text is None or not is_valid_property(_STATS_COLUMNS, text):
        return
    known = None if before is None else before.metadata
    same_text = known is not None and known.configuration.get(_STATS_COLUMNS) == text
    if known is not None and same_text and known.schema_string == metadata.schema_string:
        return
    schema = parse_schema(metadata.schema_string)
    for path in column_list(text):
        if schema.resolve(path) is None:
            raise InvalidRequest(
                f"table property {_STATS_COLUMNS!r}: there is no column {column_text(path)}; "
                f"there are: {', '.join(column_text((item.name,)) for item in schema)}"
            )
