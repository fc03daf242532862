"""CREATE, DROP, ALTER and CLONE of tables: resolve names, stage changes, update the catalog.

Owns the location of a new table and the changes of its name; `ddl.create`, `ddl.alter` and
`commands.clone` make the changes themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, get_args
from urllib.parse import unquote

from txlake.commands.backfill import backfill_row_ids
from txlake.commands.catalog_managed import open_to_others, split_alter_request, split_open_request
from txlake.commands.clone import FileCopy, clone
from txlake.commands.drop_feature import drop_feature
from txlake.commands.frame_reads import recording_frame_reads
from txlake.commands.placement import attach_if_unnamed, locate_target, register
from txlake.commands.steps import commit_step
from txlake.commit.change import Change
from txlake.commit.data_plane import Placement
from txlake.conflict.locking import LockMode
from txlake.ddl.alter import alter
from txlake.ddl.create import check_same_definition, create, create_like
from txlake.ddl.environment import Environment
from txlake.ddl.keys import keys_of
from txlake.errors import InvalidRequest
from txlake.log.snapshot import Snapshot, unknown_column
from txlake.ports import RenamedTable
from txlake.protocol.types import Struct
from txlake.session.command import (
    TableLock,
    command,
    giving_counts,
    giving_nothing,
    its_table,
    served,
)
from txlake.session.context import Context
from txlake.session.engine import Handle
from txlake.session.membership.attachment import stage_owner
from txlake.session.membership.dropping import drop
from txlake.sql.statements import (
    AddConstraint,
    AlterStatement,
    CheckConstraint,
    Clone,
    CreateTable,
    CreateTableLike,
    DropFeature,
    DropTable,
    KeyConstraint,
    RenameTable,
    SetProperties,
    SqlText,
    TableName,
    TablePath,
    Write,
)

_COPIERS = 8


def environment_of(context: Context, handle: Handle | None = None) -> Environment:
    """Return what DDL needs from outside: time, ids, Spark's types, new tables' defaults.

    With a `handle` also a check of that table's rows; without one no row violates anything.
    """
    system = context.transaction.staging
    return Environment(
        now_ms=system.now_ms(),
        new_id=system.new_id,
        violating_row=partial(_violating_row, context, handle) if handle else _no_row,
        type_of=context.plane.type_of,
        table_defaults=context.plane.table_defaults,
    )


def _no_row(condition: str) -> None:
    return None


def _violating_row(
    context: Context, handle: Handle | None, condition: str
) -> Mapping[str, object] | None:
    """Return a row of the table for which a condition isn't true; None without one."""
    assert handle is not None
    return context.work(handle).violating_row(condition)


def create_table(context: Context, statement: CreateTable) -> None:
    """Carry out CREATE TABLE, also with AS SELECT.

    A Delta table at the location gets the name at once, if the definition is the same. Raises
    InvalidRequest as `locate_target` and `create`, and for a foreign key to an unknown table or
    column.
    """
    statement = replace(
        statement, keys=tuple(_qualify_parent(context, key) for key in statement.keys)
    )
    opens, properties = split_open_request(statement.properties)
    statement = replace(statement, properties=properties)
    handle = locate_target(context, statement.table, statement.location)
    existing = _existing(context, handle)
    managed = isinstance(statement.table, TableName) and statement.location is None
    unnamed = not handle.in_lake and isinstance(statement.table, TableName)
    if existing is not None and unnamed and statement.mode in ("create", "if_not_exists"):
        if statement.query is not None:
            raise InvalidRequest(
                f"{statement.table}: {handle.store.url} holds a table already; "
                "CREATE OR REPLACE TABLE replaces it"
            )
        check_same_definition(statement, existing, environment_of(context))
        attach_if_unnamed(context, handle, managed=managed)
        return
    handle = attach_if_unnamed(context, handle, managed=managed)
    frame = None if statement.query is None else context.query(statement.query)
    change = create(
        statement,
        existing,
        environment_of(context),
        query_schema=None if frame is None else context.plane.schema_of(frame),
        managed=managed,
    )
    if change is None:
        return
    if frame is None:
        context.transaction.stage(handle, change)
    else:
        # The history states the query's number of rows, even if that is 0.
        context.transaction.stage(handle, replace(change, metrics={"numOutputRows": 0}))
        written = context.work(handle).append(frame, Placement(by_name=True))
        context.transaction.stage(
            handle,
            Change(
                operation=change.operation,
                parameters=change.parameters,
                actions=written.actions,
                metrics=written.metrics,
            ),
        )
    register(context, handle, change.operation, opens=opens)
    _check_parents(context, statement.keys)


def create_table_like(context: Context, statement: CreateTableLike) -> None:
    """Carry out CREATE TABLE ... LIKE.

    Raises InvalidRequest for an unknown source, and as `locate_target` and `create_like`.
    """
    source = context.snapshot(context.tables.require(statement.source))
    opens, properties = split_open_request(statement.properties)
    statement = replace(statement, properties=properties)
    handle = locate_target(context, statement.table, statement.location)
    if statement.mode in ("or_replace", "replace"):
        handle = attach_if_unnamed(context, handle, managed=statement.location is None)
    change = create_like(statement, source, _existing(context, handle), environment_of(context))
    if change is not None:
        context.transaction.stage(handle, change)
        register(context, handle, change.operation, opens=opens)


def clone_table(context: Context, statement: Clone) -> Mapping[str, int]:
    """Carry out CREATE TABLE ... CLONE and return Delta's counts; none if the table is left alone.

    Files of a deep clone are copied before the commit. Raises as `locate_target` and `clone`.
    """
    origin = context.tables.require(statement.source)
    opens, properties = split_open_request(statement.properties)
    statement = replace(statement, properties=properties)
    handle = locate_target(context, statement.table, statement.location)
    change = clone(
        statement,
        context.snapshot(origin, statement.travel),
        _existing(context, handle),
        environment_of(context),
        origin=context.engine.reach(origin),
        target_url=handle.store.url,
        share=partial(context.engine.share, handle),
        copy=partial(_copy, context, handle),
    )
    if change is None:
        return {}
    context.transaction.stage(handle, change)
    register(context, handle, change.operation, opens=opens)
    return change.affected


def _copy(context: Context, handle: Handle, copies: Sequence[FileCopy]) -> None:
    """Copy files into the table's folder, several at once."""
    handle.store.ensure_safe()

    def copy_file(copy: FileCopy) -> None:
        """Copy one file, through memory."""
        folder, _, name = copy.source.rpartition("/")
        source = context.engine.store_at(folder)
        handle.store.put(copy.target, source.get(unquote(name)))

    with ThreadPoolExecutor(_COPIERS) as pool:
        list(pool.map(copy_file, copies))


def _existing(context: Context, handle: Handle) -> Snapshot | None:
    view = context.transaction.open(handle).view
    return view if view.is_created else None


def create_from_rows(context: Context, handle: Handle, statement: Write, schema: Struct) -> None:
    """Stage the creation of the table that a write needs, with the rows' schema.

    Raises InvalidRequest for rows without columns, and as `create`.
    """
    if not schema.fields:
        raise InvalidRequest(
            f"[DELTA_EMPTY_DATA] {statement.table}: the rows have no columns; a table without any "
            "is made by CREATE TABLE"
        )
    definition = CreateTable(
        table=statement.table,
        partition_by=statement.partition_by,
        cluster_by=statement.cluster_by,
        location=statement.location,
        properties=statement.properties,
        query=SqlText("the rows written"),
    )
    managed = statement.location is None
    change = create(definition, None, environment_of(context), query_schema=schema, managed=managed)
    assert change is not None
    context.transaction.stage(handle, Change(operation="WRITE", actions=change.actions))


def drop_table(context: Context, statement: DropTable) -> None:
    """Carry out DROP TABLE: remove the name, and the folder of a managed table.

    Raises InvalidRequest for a path table, for an unknown name without IF EXISTS, and as `drop`.
    """
    handle = context.tables.find(statement.table)
    if handle is None and statement.if_exists:
        return
    if handle is None:
        handle = context.tables.require(statement.table)
    if isinstance(statement.table, TablePath) or not handle.in_lake:
        raise InvalidRequest(
            f"DROP TABLE {statement.table}: only a named table is dropped; remove the folder of a "
            "table that has none"
        )
    drop(context.transaction, handle, purge=statement.purge)


def alter_table(context: Context, statement: AlterStatement) -> None:
    """Carry out every form of ALTER TABLE.

    DROP FEATURE, and turning row tracking on for many files, take several commits. Raises
    InvalidRequest and UnsupportedFeature as `alter`.
    """
    handle = context.tables.require(statement.table)
    if isinstance(statement, RenameTable):
        _rename(context, handle, statement)
        return
    if isinstance(statement, DropFeature):
        drop_feature(context, handle, statement)
        return
    if isinstance(statement, AddConstraint) and isinstance(statement.constraint, KeyConstraint):
        statement = AddConstraint(statement.table, _qualify_parent(context, statement.constraint))
    opens, rest = split_alter_request(statement)
    if opens:
        open_to_others(context, handle, "SET TBLPROPERTIES")
    if rest is None:
        return
    statement = rest
    environment = environment_of(context, handle)
    if isinstance(statement, SetProperties) and backfill_row_ids(
        context, handle, statement, environment
    ):
        commit_step(
            context,
            handle,
            lambda own, target: alter(statement, own.snapshot(target), environment),
        )
        return
    change = alter(statement, context.snapshot(handle), environment)
    context.transaction.stage(handle, change)
    if isinstance(statement, AddConstraint) and isinstance(statement.constraint, KeyConstraint):
        _check_parents(context, [statement.constraint])


def _qualify_parent(context: Context, key: KeyConstraint) -> KeyConstraint:
    """Return the key with its parent's full name, which doesn't depend on the current database."""
    if not isinstance(key.parent, TableName):
        return key
    return replace(key, parent=TableName(context.tables.qualified(key.parent)))


def _check_parents(context: Context, keys: Sequence[KeyConstraint]) -> None:
    """Raise InvalidRequest for a foreign key to an unknown table or column.

    And for one whose columns aren't as many as the parent's.
    """
    for key in keys:
        if key.parent is None:
            continue
        parent = context.snapshot(context.tables.require(key.parent))
        columns = key.parent_columns
        if not columns:
            parent_keys = keys_of(parent.metadata.configuration)
            columns = next(
                (parent_key.columns for parent_key in parent_keys if parent_key.is_primary), ()
            )
        for column in columns:
            if parent.schema.find(column) is None:
                raise unknown_column(column, parent)
        if len(columns) != len(key.columns):
            raise InvalidRequest(
                f"a foreign key on ({', '.join(key.columns)}) refers to {parent.table}, whose "
                f"primary key is ({', '.join(columns)}): name as many columns of it"
            )


def _rename(context: Context, handle: Handle, statement: RenameTable) -> None:
    """Stage the renaming of a table, also in its log.

    Raises InvalidRequest for a path table, a name that is taken and an unknown database.
    """
    entry = handle.entry
    if entry is None or not isinstance(statement.new_table, TableName):
        raise InvalidRequest(
            f"ALTER TABLE {statement.table} RENAME TO {statement.new_table}: only a named table "
            "has another name"
        )
    owner, name = context.engine.qualified(statement.new_table, entry.database)
    if context.tables.find(statement.new_table) is not None:
        raise InvalidRequest(f"{statement.new_table} exists already")
    database = context.engine.catalog.database(owner)
    if database is None or context.tables.lacks_database(statement.new_table):
        raise InvalidRequest(f"there is no database {owner!r}; CREATE DATABASE {owner} makes it")
    renamed = context.engine.at_entry(
        replace(entry, database=database.name, name=name), is_new=handle.is_new
    )
    context.transaction.change_name(
        RenamedTable(id=entry.id, database=database.name, name=name, branch=entry.branch),
        {(entry.database, entry.name): None, (database.name, name): renamed},
    )
    if context.engine.catalog.is_lake:
        stage_owner(context.transaction, renamed, "RENAME TABLE")


def _create_locks(statement: CreateTable) -> Sequence[TableLock]:
    return [(statement.table, LockMode.SCH_M), *_parent_locks(statement.keys)]


def _source_locks(statement: CreateTableLike | Clone) -> Sequence[TableLock]:
    return [(statement.table, LockMode.SCH_M), (statement.source, LockMode.SCH_S)]


def _constraint_locks(statement: AddConstraint) -> Sequence[TableLock]:
    return [(statement.table, LockMode.SCH_M), *_parent_locks([statement.constraint])]


def _rename_locks(statement: RenameTable) -> Sequence[TableLock]:
    return [(statement.table, LockMode.SCH_M), (statement.new_table, LockMode.SCH_M)]


def _parent_locks(constraints: Sequence[KeyConstraint | CheckConstraint]) -> Sequence[TableLock]:
    """Return the locks of the tables that foreign keys refer to."""
    return [
        (key.parent, LockMode.SCH_S)
        for key in constraints
        if isinstance(key, KeyConstraint) and key.parent is not None
    ]


def _leaves_existing(statement: CreateTable | CreateTableLike | Clone) -> bool:
    """Return whether the statement leaves an existing table unchanged."""
    return statement.mode in ("create", "if_not_exists")


_ALTER = giving_nothing(alter_table)
_SPECIAL_LOCKS: dict[type[Any], Callable[[Any], Sequence[TableLock]]] = {
    AddConstraint: _constraint_locks,
    RenameTable: _rename_locks,
}
COMMANDS = served(
    command(
        CreateTable,
        recording_frame_reads(giving_nothing(create_table)),
        _create_locks,
        leaves_existing=_leaves_existing,
    ),
    command(
        CreateTableLike,
        giving_nothing(create_table_like),
        _source_locks,
        leaves_existing=_leaves_existing,
    ),
    command(Clone, giving_counts(clone_table), _source_locks, leaves_existing=_leaves_existing),
    command(DropTable, giving_nothing(drop_table), its_table(LockMode.SCH_M)),
    *(
        command(kind, _ALTER, _SPECIAL_LOCKS.get(kind, its_table(LockMode.SCH_M)))
        for kind in get_args(AlterStatement)
    ),
)
