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
from txlake.commands.steps import commit_step
from txlake.commit.change import Change
from txlake.commit.data_plane import Placement
from txlake.commit.membership import ATTACH, Membership, membership_of, required_actions
from txlake.conflict.locking import LockMode
from txlake.ddl.alter import alter
from txlake.ddl.create import check_same_definition, create, create_like
from txlake.ddl.environment import Environment
from txlake.ddl.keys import keys_of
from txlake.errors import CorruptTable, InvalidRequest
from txlake.log.snapshot import Snapshot, unknown_column
from txlake.ports import NewTable, RenamedTable
from txlake.protocol.file_names import LOG_FOLDER, commit_path
from txlake.protocol.types import Struct
from txlake.session.admission import admit_new
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
from txlake.session.membership.attachment import attach_path_table, new_entry, stage_owner
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
    Table,
    TableName,
    TablePath,
    Write,
)

_COPIERS = 8


def environment_of(context: Context, handle: Handle | None = None) -> Environment:
    """Return what DDL needs from outside: the time, ids, checks of the table's rows."""
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
    assert handle is not None
    return context.work(handle).violating_row(condition)


def locate_target(context: Context, table: Table, location: str | None = None) -> Handle:
    """Return the table, or a handle for where to create it: `location` or a warehouse folder.

    A Delta table at the location that has no name yet is returned as a path table;
    `attach_if_unnamed` makes it a table of the lake.
    """
    existing = context.tables.find(table)
    if isinstance(table, TablePath):
        if location is not None:
            raise InvalidRequest(f"{table}: the table is named by its place; leave out LOCATION")
        assert existing is not None
        return existing
    if existing is not None:
        if (
            location is not None
            and context.engine.at(location, table).store.url != existing.store.url
        ):
            raise InvalidRequest(
                f"{table} is at {existing.store.url}, not at {location}; drop it first"
            )
        return existing
    owner, name = context.tables.qualified(table)
    if not context.engine.catalog.has_names:
        context.engine.catalog.of_lake()  # raises: the session has no catalog
    database = context.engine.catalog.database(owner)
    if database is None or context.tables.lacks_database(table):
        raise InvalidRequest(f"there is no database {owner!r}; CREATE DATABASE {owner} makes it")
    owner = database.name
    assigned = context.engine.catalog.new_place(owner, name)
    if assigned is not None:
        if location is not None:
            raise InvalidRequest(f"{table}: its catalog chooses its place; leave out LOCATION")
        return context.engine.at_entry(assigned.entry, is_new=True)
    if context.engine.catalog.of_lake().views.find(owner, name) is not None:
        raise InvalidRequest(f"{table} is a view; choose another name, or DROP VIEW it")
    if location is None:
        url = context.engine.place_of(owner, name)
    else:
        url = context.engine.store_at(location).url
    entry = new_entry(context.engine, owner, name, url, managed=location is None)
    target = context.engine.at(url, TableName((owner, name)))
    snapshot = (
        _table_in_folder(context, target) if location is None else target.log.latest_or_none()
    )
    if snapshot is None and (location or _is_unused(context, target)):
        return context.engine.at_entry(entry, is_new=True)
    membership = None if snapshot is None else membership_of(snapshot)
    if snapshot is not None and (
        membership is None
        or location is not None
        or membership.lake != context.engine.catalog.of_lake().lake_id
    ):
        return target
    _require_dropped(context, target, membership)
    # The folder of a dropped table, which another process may still be removing.
    other_folder = replace(entry, location=f"{url}-{entry.id[:8]}")
    return context.engine.at_entry(other_folder, is_new=True)


def _table_in_folder(context: Context, target: Handle) -> Snapshot | None:
    """Return the table in a folder of the warehouse.

    None where there is none, where it is being removed, or where a slow writer left files after the
    removal; the newest commit's file is missing then. Raises CorruptTable.
    """
    try:
        latest = target.log.latest_or_none()
    except CorruptTable:
        if context.engine.catalog.of_lake().is_cleared(target.store.url):
            return None
        if not target.log.listing().commits:
            return None
        latest = target.log.latest_or_none()  # it may have been removed while it was read
    if latest is None or target.store.head(commit_path(latest.version)) is None:
        return None
    return latest


def _is_unused(context: Context, target: Handle) -> bool:
    """Return whether a dropped table left nothing in the folder and no write can still arrive."""
    if next(iter(target.store.list(LOG_FOLDER)), None) is not None:
        return False
    return not context.engine.catalog.of_lake().is_cleared(target.store.url)


def _require_dropped(context: Context, target: Handle, membership: Membership | None) -> None:
    """Raise CorruptTable for a table of this lake that its catalog neither has nor dropped."""
    catalog, location = context.engine.catalog.of_lake(), target.store.url
    if membership is None or catalog.is_cleared(location) or catalog.at_place(location) is not None:
        return  # a table that this transaction drops still exists for others
    latest = _table_in_folder(context, target)
    if latest is None:
        return  # removed since it was read
    info = target.log.commit_info(latest.version)
    if info is not None and info.text("operation") == ATTACH:
        return  # another process is attaching the table, or was interrupted
    raise CorruptTable(
        f"{target.store.url} holds {membership.name}, a table of this lake that its catalog "
        "doesn't know: the catalog was restored from a backup. lake.recover() takes it in again"
    )


def register(context: Context, handle: Handle, operation: str, *, opens: bool = False) -> None:
    """Stage a new table's name, which others see once the transaction commits.

    `operation`: the operation in the history. `opens`: whether other engines may write the table.
    """
    entry, transaction = handle.entry, context.transaction
    if entry is None or not handle.is_new:
        if opens:
            open_to_others(context, handle, operation)
        return
    if transaction.names.has((entry.database, entry.name)):
        named = transaction.names.meaning_of((entry.database, entry.name))
        if named is not None and named.key == handle.key:
            if opens:
                open_to_others(context, handle, operation)
            return  # the transaction created the table itself and now replaces it
    new_table = NewTable(
        id=entry.id,
        database=entry.database,
        name=entry.name,
        location=entry.location,
        managed=entry.managed,
        number=entry.number,
    )
    required = context.engine.catalog.requirements_of(entry.id)
    if required is None:
        admit_new(context, entry)
    context.transaction.change_name(new_table, {(entry.database, entry.name): handle})
    if required is None:
        stage_owner(context.transaction, handle, operation, opens=opens)
        return
    actions = required_actions(
        context.transaction.open(handle).view, required.features, required.properties
    )
    context.transaction.stage(handle, Change(operation=operation, actions=actions))


def attach_if_unnamed(context: Context, handle: Handle, *, managed: bool) -> Handle:
    """Return the table's handle; attach a Delta table that has no name yet to the lake at once.

    Raises InvalidRequest inside an explicit transaction.
    """
    if handle.in_lake or isinstance(handle.table, TablePath):
        return handle
    transaction = context.transaction
    if transaction.explicit:
        raise InvalidRequest(
            f"{handle.table}: {handle.store.url} holds a table already, which can't be attached to "
            "the lake inside a transaction; COMMIT or ROLLBACK first"
        )
    owner, name = handle.table.parts
    transaction.tables.remove(handle)
    entry = attach_path_table(
        context.engine, transaction.session_number, handle, owner, name, managed=managed
    )
    return context.engine.at_entry(entry)


def create_table(context: Context, statement: CreateTable) -> None:
    """Carry out CREATE TABLE, also with AS SELECT."""
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
    """Carry out CREATE TABLE ... LIKE."""
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
    """Carry out CREATE TABLE ... CLONE. Return Delta's counts."""
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
        folder, _, name = copy.source.rpartition("/")
        source = context.engine.store_at(folder)
        handle.store.put(copy.target, source.get(unquote(name)))

    with ThreadPoolExecutor(_COPIERS) as pool:
        list(pool.map(copy_file, copies))


def _existing(context: Context, handle: Handle) -> Snapshot | None:
    view = context.transaction.open(handle).view
    return view if view.is_created else None


def create_from_rows(context: Context, handle: Handle, statement: Write, schema: Struct) -> None:
    """Create the table that a write needs, with the rows' schema."""
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
    """Carry out DROP TABLE: remove the name, and the folder of a managed table."""
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
    """Carry out every form of ALTER TABLE."""
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
    """Raise InvalidRequest for a foreign key to an unknown table or column."""
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
        RenamedTable(id=entry.id, database=database.name, name=name),
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
