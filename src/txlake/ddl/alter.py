"""ALTER TABLE and COMMENT ON TABLE as changes: properties, constraints, features, clustering.

`alter_columns` has the changes of columns. Source: PROTOCOL.md, "Table Features", "CHECK
Constraints", "Clustered Table".
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from txlake.commit.change import Change
from txlake.ddl.alter_columns import (
    add_columns,
    alter_column,
    drop_columns,
    rename,
    replace_columns,
)
from txlake.ddl.alter_features import add_feature, drop_feature, upgrade_protocol
from txlake.ddl.clustering import check_statistics, clustering_domain, clustering_paths
from txlake.ddl.environment import EVERY_ROW, Environment
from txlake.ddl.keys import Key, keys_of, with_keys
from txlake.ddl.operations import as_json
from txlake.ddl.stored_expressions import check_constraint
from txlake.ddl.table_metadata import check_not_reserved, metadata_actions, with_table_name
from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Metadata
from txlake.protocol.clustering import FEATURE, clustered_by
from txlake.protocol.properties import CONSTRAINT_PREFIX, KEY_PREFIX, validate_set, validate_unset
from txlake.protocol.schema_rules import column_text
from txlake.protocol.type_text import short_text
from txlake.protocol.types import Primitive
from txlake.sql.statements import (
    AddColumns,
    AddConstraint,
    AddFeature,
    AlterColumn,
    AlterStatement,
    ClusterBy,
    DropColumns,
    DropConstraint,
    DropFeature,
    DropKey,
    KeyConstraint,
    RenameColumn,
    RenameTable,
    ReplaceColumns,
    SetComment,
    SetProperties,
    SqlText,
    Table,
    UnsetProperties,
    UpgradeProtocol,
)

_COMMENT = "comment"


def alter(statement: AlterStatement, table: Snapshot, environment: Environment) -> Change:
    """Return the change that an ALTER TABLE makes; without actions if nothing changes.

    Raises:
        InvalidRequest: the statement is invalid for the table; the message names the table.
        UnsupportedFeature: the table would need a feature that txlake doesn't write.
    """
    try:
        return _change_for(statement, table, environment)
    except (InvalidRequest, UnsupportedFeature) as error:
        raise with_table_name(error, table.table) from error


def _change_for(statement: AlterStatement, table: Snapshot, environment: Environment) -> Change:
    """Return the change of a statement, by its kind.

    Raises as `alter`, without the table's name; InvalidRequest for RENAME TO, which the catalog
    does.
    """
    match statement:
        case SetProperties():
            return _set_properties(statement, table, environment)
        case UnsetProperties():
            return _unset_properties(statement, table, environment)
        case AddColumns():
            return add_columns(statement, table, environment)
        case DropColumns():
            return drop_columns(statement, table, environment)
        case ReplaceColumns():
            return replace_columns(statement, table, environment)
        case RenameColumn():
            return rename(statement, table, environment)
        case AlterColumn():
            return alter_column(statement, table, environment)
        case AddConstraint():
            return _add_constraint(statement, table, environment)
        case DropConstraint():
            return _drop_constraint(statement, table, environment)
        case DropKey():
            return _drop_key(statement, table, environment)
        case AddFeature():
            return add_feature(statement, table, environment)
        case DropFeature():
            return drop_feature(statement, table)
        case UpgradeProtocol():
            return upgrade_protocol(statement, table)
        case ClusterBy():
            return _cluster_by(statement, table, environment)
        case SetComment():
            return _set_comment(statement, table, environment)
        case RenameTable():
            raise InvalidRequest("a table's name is its catalog's; only a lake renames tables")
        case _:
            assert_never(statement)


def _set_properties(statement: SetProperties, table: Snapshot, environment: Environment) -> Change:
    """Return the change of SET TBLPROPERTIES; the key `comment` is the table's comment.

    Raises InvalidRequest for a reserved or unknown key, an invalid value, and the clustering
    feature.
    """
    metadata = table.metadata
    configuration = dict(metadata.configuration)
    description = metadata.description
    for key, value in statement.properties:
        check_not_reserved(key)
        if key == f"delta.feature.{FEATURE}":
            raise InvalidRequest(
                f"table property {key!r} can't be set; ALTER TABLE ... CLUSTER BY turns it on"
            )
        if key.lower() == _COMMENT:
            description = value
            continue
        stored, text = validate_set(key, value)
        configuration[stored] = text
    new = msgspec.structs.replace(metadata, configuration=configuration, description=description)
    return Change(
        operation="SET TBLPROPERTIES",
        parameters={"properties": as_json(dict(statement.properties))},
        actions=metadata_actions(table, new, environment),
    )


def _unset_properties(
    statement: UnsetProperties, table: Snapshot, environment: Environment
) -> Change:
    """Return the change of UNSET TBLPROPERTIES; a key that isn't set is ignored, as in Spark.

    The key `comment` removes the table's comment. Raises InvalidRequest for a reserved key, a
    constraint's, and one that only the engine removes.
    """
    metadata = table.metadata
    configuration = dict(metadata.configuration)
    description = metadata.description
    for key in statement.keys:
        check_not_reserved(key)
        if key.lower() == _COMMENT:
            description = None
            continue
        stored = key if key in configuration else validate_unset(key)
        validate_unset(stored)
        configuration.pop(stored, None)  # a key that isn't set is ignored, as in Spark
    new = msgspec.structs.replace(metadata, configuration=configuration, description=description)
    return Change(
        operation="UNSET TBLPROPERTIES",
        parameters={
            "properties": as_json(list(statement.keys)),
            "ifExists": statement.if_exists,
        },
        actions=metadata_actions(table, new, environment),
    )


def _add_constraint(statement: AddConstraint, table: Snapshot, environment: Environment) -> Change:
    """Return the change of ADD CONSTRAINT, a condition or a key; a condition's rows are checked
    here.

    Raises InvalidRequest for a name that is taken, a condition that isn't SQL text, isn't over a
    row (`check_constraint`) or isn't boolean, and a row that violates it. The type is only checked
    where the environment knows types.
    """
    constraint = statement.constraint
    if isinstance(constraint, KeyConstraint):
        return _add_key(statement.table, constraint, table, environment)
    name = constraint.name.lower()
    if not isinstance(constraint.condition, SqlText):
        raise InvalidRequest(
            f"constraint {constraint.name}: a table keeps its constraints as SQL text; give the "
            "condition as text"
        )
    text = constraint.condition.text
    existing = _constraint_key(table.metadata, name)
    if existing is not None:
        raise InvalidRequest(
            f"constraint {constraint.name} is there already: "
            f"{table.metadata.configuration[existing]}; drop it first"
        )
    check_constraint(constraint.name, text, table.schema)
    if environment.type_of is not None:
        condition_type = environment.type_of(text, table.schema)
        if condition_type != Primitive("boolean"):
            raise InvalidRequest(
                f"constraint {constraint.name} ({text}) has type {short_text(condition_type)}; "
                "expected a condition"
            )
    row = environment.violating_row(text)
    if row is not None:
        raise InvalidRequest(
            f"constraint {constraint.name} ({text}) can't be added, a row violates it: {dict(row)}"
        )
    configuration = {**table.metadata.configuration, f"{CONSTRAINT_PREFIX}{name}": text}
    new = msgspec.structs.replace(table.metadata, configuration=configuration)
    return Change(
        operation="ADD CONSTRAINT",
        parameters={"name": constraint.name, "expr": text},
        actions=metadata_actions(table, new, environment),
        reads=(EVERY_ROW,),
    )


def _constraint_key(metadata: Metadata, name: str) -> str | None:
    """Return the property that holds the constraint or key of this name, in any letter case; else
    None.
    """
    keys = {f"{prefix}{name}".lower() for prefix in (CONSTRAINT_PREFIX, KEY_PREFIX)}
    return next((key for key in metadata.configuration if key.lower() in keys), None)


def _add_key(name: Table, key: KeyConstraint, table: Snapshot, environment: Environment) -> Change:
    """Return the change that adds a primary or foreign key. Raises InvalidRequest for a
    taken name.
    """
    before = table.metadata.configuration
    configuration = with_keys(before, name, [key])
    [added] = configuration.keys() - before.keys()
    new = msgspec.structs.replace(table.metadata, configuration=configuration)
    return Change(
        operation="ADD CONSTRAINT",
        parameters={"name": added[len(KEY_PREFIX) :], "expr": configuration[added]},
        actions=metadata_actions(table, new, environment),
    )


def _drop_key(statement: DropKey, table: Snapshot, environment: Environment) -> Change:
    """Return the change of DROP PRIMARY KEY, or DROP FOREIGN KEY (columns).

    Without such a key there are no actions if `if_exists`, else InvalidRequest is raised.
    """
    keys = keys_of(table.metadata.configuration)
    key = next((key for key in keys if _matches(key, statement)), None)
    if key is None and statement.if_exists:
        return Change(operation="DROP CONSTRAINT")
    if key is None:
        known = ", ".join(f"{key.name} ({key.text})" for key in keys) or "none"
        raise InvalidRequest(
            f"there is no such key; there are: {known}; IF EXISTS passes over one that isn't there"
        )
    return _drop_constraint(DropConstraint(statement.table, key.name), table, environment)


def _matches(key: Key, statement: DropKey) -> bool:
    """Return whether the statement drops this key: the primary one, or a foreign one of these
    columns.

    The order of columns counts, their letter case doesn't.
    """
    if statement.columns is None:
        return key.is_primary
    columns = [name.lower() for name in statement.columns]
    return not key.is_primary and [name.lower() for name in key.columns] == columns


def _drop_constraint(
    statement: DropConstraint, table: Snapshot, environment: Environment
) -> Change:
    """Return the change that drops a constraint or key by its name, in any letter case.

    Without one there are no actions if `if_exists`, else InvalidRequest is raised.
    """
    key = _constraint_key(table.metadata, statement.name)
    if key is None:
        if statement.if_exists:
            return Change(operation="DROP CONSTRAINT")
        keys = (key.name for key in keys_of(table.metadata.configuration))
        known = ", ".join((*table.properties.constraints, *keys)) or "none"
        raise InvalidRequest(
            f"there is no constraint {statement.name}; there are: {known}; "
            "DROP CONSTRAINT IF EXISTS passes over it"
        )
    configuration = dict(table.metadata.configuration)
    text = configuration.pop(key)
    new = msgspec.structs.replace(table.metadata, configuration=configuration)
    return Change(
        operation="DROP CONSTRAINT",
        parameters={"name": statement.name, "expr": text, "existed": "true"},
        actions=metadata_actions(table, new, environment),
    )


def _cluster_by(statement: ClusterBy, table: Snapshot, environment: Environment) -> Change:
    """Return the change of CLUSTER BY (columns) or NONE: the feature and the domain metadata.

    There are no actions if nothing changes. Raises InvalidRequest for a partitioned table, unless
    it is NONE and the table lacks the feature; for an unsuitable column, and for files without
    statistics of a new clustering column.
    """
    before = clustered_by(table.schema, table.domains, table=table.table)
    if not statement.columns and FEATURE not in table.features:
        return Change(operation="CLUSTER BY")
    if table.partition_columns:
        raise InvalidRequest(
            f"a table that is partitioned (by {', '.join(table.partition_columns)}) can't be "
            "clustered"
        )
    paths = clustering_paths(table.schema, statement.columns)
    check_statistics(table, tuple(path for path in paths if path not in before))
    domain = clustering_domain(table.schema, paths)
    protocol = metadata_actions(table, table.metadata, environment, features=(FEATURE,))
    unchanged = paths == before and not protocol
    return Change(
        operation="CLUSTER BY",
        parameters={
            "oldClusteringColumns": ",".join(map(column_text, before)),
            "newClusteringColumns": ",".join(map(column_text, paths)),
        },
        actions=() if unchanged else (*protocol, domain),
    )


def _set_comment(statement: SetComment, table: Snapshot, environment: Environment) -> Change:
    """Return the change of COMMENT ON TABLE; None removes the comment."""
    new = msgspec.structs.replace(table.metadata, description=statement.comment)
    actions = metadata_actions(table, new, environment)
    if statement.comment is None:
        return Change(
            operation="UNSET TBLPROPERTIES",
            parameters={"properties": as_json([_COMMENT]), "ifExists": True},
            actions=actions,
        )
    return Change(
        operation="SET TBLPROPERTIES",
        parameters={"properties": as_json({_COMMENT: statement.comment})},
        actions=actions,
    )
