"""CREATE TABLE in all its forms becomes a change: protocol, metadata, domains, removed files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from txlake.ddl.clustering import clustering_paths
from txlake.ddl.columns import same_type, schema_of
from txlake.ddl.environment import EVERY_ROW, Environment
from txlake.ddl.keys import primary_columns, with_keys
from txlake.ddl.table_metadata import INTERNAL_PROPERTIES, named, new_table
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
from txlake.statements import (
    CheckConstraint,
    CreateMode,
    CreateTable,
    CreateTableLike,
    SqlText,
    TableName,
)
from txlake.transaction.change import Change
from txlake.transaction.validation import check_removable


def create(
    statement: CreateTable,
    existing: Snapshot | None,
    environment: Environment,
    *,
    query_schema: Struct | None = None,
    managed: bool | None = None,
) -> Change | None:
    """The change that creates or replaces a table.

    Args:
        statement: what to create.
        existing: the table that is there; None, or a snapshot of version -1, when there is none.
        environment: time and ids.
        query_schema: the schema of `statement.query`'s rows; the rows' files are added by the
            caller, to the actions of this change.
        managed: whether the catalog owns the place; by default, whether the statement names a
            table and no location.

    Returns:
        The change; None when `if_not_exists` finds a table.

    Raises:
        InvalidRequest: the table exists or doesn't, against the statement's mode; a definition
            that can't be.
        UnsupportedFeature: the table would need a feature that txlake doesn't write.
    """
    table = str(statement.table)
    existing = created(existing)
    if not proceeds(statement.mode, existing, table):
        return None
    if managed is None:
        managed = isinstance(statement.table, TableName) and statement.location is None
    try:
        schema = _schema(statement, environment, query_schema)
        constraints = _conditions(statement.constraints)
        keys = with_keys({}, statement.table, statement.keys)
    except (InvalidRequest, UnsupportedFeature) as error:
        raise named(error, table) from error
    actions = new_table(
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
    return _change(
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
    """The change that creates a table with another one's columns, partitioning and properties.

    Returns None when `if_not_exists` finds a table. Raises as `create`.
    """
    table = str(statement.table)
    existing = created(existing)
    if not proceeds(statement.mode, existing, table):
        return None
    if managed is None:
        managed = isinstance(statement.table, TableName) and statement.location is None
    clustered = clustered_by(source.schema, source.domains, table=source.table)
    cluster_by = tuple(map(column_text, clustered)) if clustered else None
    actions = new_table(
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
    return _change(
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
    """Checks that a statement describes the table that its location holds already.

    What the statement doesn't say isn't compared: a statement without columns takes the table as
    it is.

    Raises InvalidRequest that names the first difference.
    """
    table = str(statement.table)
    place = f"the Delta table at its location ({existing.table})"
    if statement.columns:
        columns = schema_of(statement.columns, environment)
        _check_same_schema(columns, existing.schema, table, place)
        partition_by = tuple(name.lower() for name in statement.partition_by or ())
        if partition_by != tuple(name.lower() for name in existing.partition_columns):
            raise InvalidRequest(
                f"{table}: partitioned by ({', '.join(statement.partition_by or ())}) in the "
                f"statement, by ({', '.join(existing.partition_columns)}) in {place}"
            )
        clustered = clustered_by(existing.schema, existing.domains, table=existing.table)
        wanted = clustering_paths(existing.schema, statement.cluster_by or ())
        if wanted != clustered:
            raise InvalidRequest(
                f"{table}: clustered by ({', '.join(map(column_text, wanted))}) in the statement, "
                f"by ({', '.join(map(column_text, clustered))}) in {place}"
            )
    for key, value in statement.properties:
        stored, _ = validate_set(key, value, creating=True)
        found = existing.metadata.configuration.get(stored)
        if found != value and not stored.startswith(("delta.feature.", "delta.min")):
            raise InvalidRequest(
                f"{table}: property {stored!r} is {value!r} in the statement, {found!r} in {place}"
            )


def _check_same_schema(wanted: Struct, found: Struct, table: str, place: str) -> None:
    names = [item.name.lower() for item in wanted], [item.name.lower() for item in found]
    if names[0] != names[1]:
        raise InvalidRequest(
            f"{table}: columns ({', '.join(wanted.names)}) in the statement, "
            f"({', '.join(found.names)}) in {place}"
        )
    for one, other in zip(wanted, found, strict=True):
        if not same_type(one.type, other.type) or one.nullable != other.nullable:
            raise InvalidRequest(
                f"{table}: column {column_text((one.name,))} is {_described(one)} in the "
                f"statement, {_described(other)} in {place}"
            )


def _described(item: Field) -> str:
    return f"{short_text(item.type)}{'' if item.nullable else ' NOT NULL'}"


def created(existing: Snapshot | None) -> Snapshot | None:
    """The table that is there; None for no snapshot and for one before the first commit."""
    return existing if existing is not None and existing.is_created else None


def proceeds(mode: CreateMode, existing: Snapshot | None, table: str) -> bool:
    """Whether a statement of this mode makes a table; False for `if_not_exists` when there is one.

    Raises InvalidRequest when the table exists, or doesn't, against the mode, or when it's to be
    replaced, has files and only takes appends.
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


def _schema(
    statement: CreateTable, environment: Environment, query_schema: Struct | None
) -> Struct:
    if statement.query is not None:
        if statement.columns:
            raise InvalidRequest(
                "CREATE TABLE ... AS SELECT takes its columns from the query; leave the list out, "
                "and cast in the query"
            )
        assert query_schema is not None
        return _keyed(as_table_schema(query_schema), statement)
    return _keyed(schema_of(statement.columns, environment), statement)


def _keyed(schema: Struct, statement: CreateTable) -> Struct:
    """The columns of a primary key are NOT NULL, as in Databricks."""
    primary = primary_columns(statement.keys)
    return Struct(
        tuple(
            replace(item, nullable=False) if item.name.lower() in primary else item
            for item in schema
        )
    )


def _conditions(constraints: Iterable[CheckConstraint]) -> dict[str, str]:
    found: dict[str, str] = {}
    for constraint in constraints:
        if not isinstance(constraint.condition, SqlText):
            raise InvalidRequest(
                f"constraint {constraint.name}: a table keeps its constraints as SQL text; give "
                "the condition as text"
            )
        if constraint.name.lower() in found:
            raise InvalidRequest(f"constraint {constraint.name} is there twice")
        found[constraint.name.lower()] = constraint.condition.text
    return found


def _change(
    actions: tuple[Action, ...],
    existing: Snapshot | None,
    environment: Environment,
    *,
    mode: CreateMode,
    managed: bool,
    as_select: bool,
    cluster_by: tuple[str, ...] | None,
) -> Change:
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
            add.removed(timestamp_ms=environment.now_ms) for add in existing.files.adds()
        )
    return Change(
        operation=f"{name} AS SELECT" if as_select else name,
        parameters={
            "isManaged": "true" if managed else "false",
            "description": final.description,
            "partitionBy": _json(final.partition_columns),
            "clusterBy": _json(cluster_by or ()),
            "properties": _json(final.configuration),
        },
        actions=(*actions, *removes),
        metrics={"numRemovedFiles": len(removes)} if removes else {},
        reads=() if existing is None else (EVERY_ROW,),
    )


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
