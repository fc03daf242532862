"""Every form of CREATE TABLE as a change: protocol, metadata, domains, removed files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from txlake.commit.change import Change
from txlake.commit.validation import check_removable
from txlake.ddl.clustering import clustering_paths
from txlake.ddl.columns import same_type, schema_of_specs
from txlake.ddl.environment import EVERY_ROW, Environment
from txlake.ddl.keys import primary_columns, with_keys
from txlake.ddl.operations import as_json
from txlake.ddl.table_metadata import INTERNAL_PROPERTIES, new_table_actions, with_table_name
from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Action, Metadata
from txlake.protocol.clustering import clustered_by
from txlake.protocol.column_mapping import without_column_ids
from txlake.protocol.identity import without_marks
from txlake.protocol.properties import validate_set
from txlake.protocol.schema_change import as_table_schema
from txlake.protocol.schema_rules import column_text
from txlake.protocol.type_text import short_text
from txlake.protocol.types import Field, Struct
from txlake.sql.statements import (
    CheckConstraint,
    CreateMode,
    CreateTable,
    CreateTableLike,
    SqlText,
    TableName,
)


def create(
    statement: CreateTable,
    existing: Snapshot | None,
    environment: Environment,
    *,
    query_schema: Struct | None = None,
    managed: bool | None = None,
) -> Change | None:
    """Return the change that creates or replaces a table.

    Args:
        statement: the CREATE TABLE.
        existing: the existing table; None, or a snapshot of version -1, if there is none.
        environment: time and ids.
        query_schema: the schema of `statement.query`'s rows; the caller adds the rows' files to the
            actions of this change.
        managed: whether the catalog owns the table's folder; by default, whether the statement
            names a table and no location.

    Returns:
        The change; None when `if_not_exists` finds a table.

    Raises:
        InvalidRequest: the statement's mode doesn't allow that the table exists, or doesn't; an
            invalid definition.
        UnsupportedFeature: the table would need a feature that txlake doesn't write.
    """
    table = str(statement.table)
    existing = existing_table(existing)
    if not should_create(statement.mode, existing, table):
        return None
    if managed is None:
        managed = isinstance(statement.table, TableName) and statement.location is None
    try:
        schema = _table_schema(statement, environment, query_schema)
        constraints = _conditions(statement.constraints)
        keys = with_keys({}, statement.table, statement.keys)
    except (InvalidRequest, UnsupportedFeature) as error:
        raise with_table_name(error, table) from error
    actions = new_table_actions(
        schema,
        environment,
        table=table,
        existing=existing,
        partition_by=statement.partition_by or (),
        cluster_by=statement.cluster_by,
        properties=(*environment.table_defaults().items(), *statement.properties),
        constraints=constraints,
        keys=keys,
        description=statement.comment,
    )
    return _creation_change(
        actions,
        existing,
        environment,
        mode=statement.mode,
        managed=managed,
        as_select=statement.query is not None,
        cluster_by=statement.cluster_by,
    )


def create_like(
    statement: CreateTableLike,
    source: Snapshot,
    existing: Snapshot | None,
    environment: Environment,
    *,
    managed: bool | None = None,
) -> Change | None:
    """Return the change that creates a table with another's columns, partitioning and properties.

    Also its clustering and comment; the statement's properties override. Rows and what belongs to
    the source's own log (ids, marks, commit times) aren't taken. Returns None when `if_not_exists`
    finds a table. Raises as `create`.
    """
    table = str(statement.table)
    existing = existing_table(existing)
    if not should_create(statement.mode, existing, table):
        return None
    if managed is None:
        managed = isinstance(statement.table, TableName) and statement.location is None
    clustered = clustered_by(source.schema, source.domains, table=source.table)
    cluster_by = tuple(map(column_text, clustered)) if clustered else None
    actions = new_table_actions(
        without_marks(without_column_ids(source.schema)),
        environment,
        table=table,
        existing=existing,
        partition_by=source.partition_columns,
        cluster_by=cluster_by,
        properties=statement.properties,
        description=source.metadata.description,
        inherited={
            key: value
            for key, value in source.metadata.configuration.items()
            if key not in INTERNAL_PROPERTIES
        },
    )
    return _creation_change(
        actions,
        existing,
        environment,
        mode=statement.mode,
        managed=managed,
        as_select=False,
        cluster_by=cluster_by,
    )


def check_same_definition(
    statement: CreateTable, existing: Snapshot, environment: Environment
) -> None:
    """Raise InvalidRequest, naming the first difference, unless a statement's definition is that of
    the table that exists at its location.

    A statement with columns has to state the table's columns, partitioning and clustering, so
    without these clauses the table has to be neither partitioned nor clustered. One without columns
    accepts any table with its properties. Of properties only the statement's are compared, except
    requests for features and protocol versions. Comments and constraints never are.
    """
    table = str(statement.table)
    place = f"the Delta table at its location ({existing.table})"
    if statement.columns:
        columns = schema_of_specs(statement.columns, environment)
        _check_same_schema(columns, existing.schema, table, place)
        partition_by = tuple(name.lower() for name in statement.partition_by or ())
        if partition_by != tuple(name.lower() for name in existing.partition_columns):
            raise InvalidRequest(
                f"{table}: partitioned by ({', '.join(statement.partition_by or ())}) in the "
                f"statement, by ({', '.join(existing.partition_columns)}) in {place}"
            )
        clustered = clustered_by(existing.schema, existing.domains, table=existing.table)
        cluster_by = clustering_paths(existing.schema, statement.cluster_by or ())
        if cluster_by != clustered:
            raise InvalidRequest(
                f"{table}: clustered by ({', '.join(map(column_text, cluster_by))}) in the "
                f"statement, by ({', '.join(map(column_text, clustered))}) in {place}"
            )
    for key, value in statement.properties:
        stored, as_stored = validate_set(key, value, creating=True)
        actual = existing.metadata.configuration.get(stored)
        is_same = actual in (value, as_stored)  # another engine may store it as it was written
        if not is_same and not stored.startswith(("delta.feature.", "delta.min")):
            raise InvalidRequest(
                f"{table}: property {stored!r} is {value!r} in the statement, {actual!r} in {place}"
            )


def _check_same_schema(
    stated_schema: Struct, actual_schema: Struct, table: str, place: str
) -> None:
    """Raise InvalidRequest unless names, order, types and nullability of the columns are the same.

    Types are compared as by `same_type`. Letter case doesn't count. `table` and `place` name the
    two in the message.
    """
    names = (
        [item.name.lower() for item in stated_schema],
        [item.name.lower() for item in actual_schema],
    )
    if names[0] != names[1]:
        raise InvalidRequest(
            f"{table}: columns ({', '.join(stated_schema.names)}) in the statement, "
            f"({', '.join(actual_schema.names)}) in {place}"
        )
    for stated, actual in zip(stated_schema, actual_schema, strict=True):
        if not same_type(stated.type, actual.type) or stated.nullable != actual.nullable:
            raise InvalidRequest(
                f"{table}: column {column_text((stated.name,))} is {_type_text(stated)} in the "
                f"statement, {_type_text(actual)} in {place}"
            )


def _type_text(item: Field) -> str:
    return f"{short_text(item.type)}{'' if item.nullable else ' NOT NULL'}"


def existing_table(existing: Snapshot | None) -> Snapshot | None:
    """Return the existing table; None for no snapshot and for one before the first commit."""
    return existing if existing is not None and existing.is_created else None


def should_create(mode: CreateMode, existing: Snapshot | None, table: str) -> bool:
    """Return whether a statement of this mode creates the table; False only for `if_not_exists`.

    Raises InvalidRequest where the mode doesn't allow that the table exists, or doesn't, and for
    the replacement of an append-only table that has files.
    """
    if existing is None:
        if mode == "replace":
            raise InvalidRequest(
                f"[TABLE_OR_VIEW_NOT_FOUND] {table}: there is no table to replace; "
                "CREATE OR REPLACE TABLE makes one"
            )
        return True
    if mode == "create":
        raise InvalidRequest(
            f"[TABLE_OR_VIEW_ALREADY_EXISTS] {table}: the table exists already; "
            "CREATE TABLE IF NOT EXISTS leaves it, CREATE OR REPLACE TABLE replaces it"
        )
    if mode == "if_not_exists":
        return False
    if existing.files:
        check_removable(existing)
    return True


def _table_schema(
    statement: CreateTable, environment: Environment, query_schema: Struct | None
) -> Struct:
    """Return the new table's schema: the query's, or the statement's columns. Raises InvalidRequest
    for both, and an invalid column; UnsupportedFeature.
    """
    if statement.query is not None:
        if statement.columns:
            raise InvalidRequest(
                "CREATE TABLE ... AS SELECT takes its columns from the query; leave the list out, "
                "and cast in the query"
            )
        assert query_schema is not None
        return _with_not_null_keys(as_table_schema(query_schema), statement)
    return _with_not_null_keys(schema_of_specs(statement.columns, environment), statement)


def _with_not_null_keys(schema: Struct, statement: CreateTable) -> Struct:
    """Return the schema with the columns of the primary key NOT NULL, as in Databricks."""
    primary = primary_columns(statement.keys)
    return Struct(
        tuple(
            replace(item, nullable=False) if item.name.lower() in primary else item
            for item in schema
        )
    )


def _conditions(constraints: Iterable[CheckConstraint]) -> dict[str, str]:
    """Return the CHECK conditions as SQL text by lower-case name.

    Raises InvalidRequest for a condition that isn't SQL text, and a name given twice.
    """
    conditions: dict[str, str] = {}
    for constraint in constraints:
        if not isinstance(constraint.condition, SqlText):
            raise InvalidRequest(
                f"constraint {constraint.name}: a table keeps its constraints as SQL text; give "
                "the condition as text"
            )
        if constraint.name.lower() in conditions:
            raise InvalidRequest(f"constraint {constraint.name} is there twice")
        conditions[constraint.name.lower()] = constraint.condition.text
    return conditions


def _creation_change(
    actions: tuple[Action, ...],
    existing: Snapshot | None,
    environment: Environment,
    *,
    mode: CreateMode,
    managed: bool,
    as_select: bool,
    cluster_by: tuple[str, ...] | None,
) -> Change:
    """Return the change with these actions, and the removal of all files of the table that it
    replaces.

    `managed` and `cluster_by` are for the history. A replacement reads every row.
    """
    final = next((action for action in actions if isinstance(action, Metadata)), None)
    if final is None:
        assert existing is not None
        final = existing.metadata
    name = {"or_replace": "CREATE OR REPLACE TABLE", "replace": "REPLACE TABLE"}.get(
        mode, "CREATE TABLE"
    )
    removes: tuple[Action, ...] = ()
    if existing is not None:
        removes = tuple(
            add.tombstone(timestamp_ms=environment.now_ms) for add in existing.files.adds()
        )
    return Change(
        operation=f"{name} AS SELECT" if as_select else name,
        parameters={
            "isManaged": "true" if managed else "false",
            "description": final.description,
            "partitionBy": as_json(final.partition_columns),
            "clusterBy": as_json(cluster_by or ()),
            "properties": as_json(final.configuration),
        },
        actions=(*actions, *removes),
        metrics={"numRemovedFiles": len(removes)} if removes else {},
        reads=() if existing is None else (EVERY_ROW,),
    )
