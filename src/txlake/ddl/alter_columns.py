"""ALTER TABLE on columns: add, drop, rename, replace, change.

Each public function returns the change that a statement makes to a table. Source: PROTOCOL.md,
"Column Mapping", "Type Widening", "Default Columns", "Column Invariants".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec

from txlake.commit.change import Change
from txlake.conflict.footprint import Read
from txlake.ddl.columns import (
    check_default_type,
    field_of_spec,
    resolve_type,
    with_comment,
)
from txlake.ddl.environment import EVERY_ROW, Environment
from txlake.ddl.feature_traces import with_schema
from txlake.ddl.operations import as_json, column_for_history
from txlake.ddl.stored_expressions import (
    CURRENT_DEFAULT,
    GENERATION,
    check_default,
    check_dependents,
)
from txlake.ddl.table_metadata import metadata_actions
from txlake.errors import InvalidRequest
from txlake.log.snapshot import Snapshot
from txlake.protocol.clustering import DOMAIN as CLUSTERING
from txlake.protocol.clustering import clustered_by
from txlake.protocol.column_mapping import all_fields
from txlake.protocol.identity import is_identity
from txlake.protocol.properties import column_list
from txlake.protocol.schema_change import (
    add_column,
    change_field,
    change_type,
    drop_column,
    field_at,
    move_column,
    rename_column,
)
from txlake.protocol.schema_rules import Path, check_duplicates, column_text
from txlake.protocol.type_text import (
    CHAR_VARCHAR_TYPE,
    COMMENT,
    declared_type,
    short_text,
    stored_field,
)
from txlake.protocol.types import Array, DataType, Field, Map, Primitive, Struct
from txlake.sql.statements import (
    AddColumns,
    AddedColumn,
    After,
    AlterColumn,
    ColumnSpec,
    DropColumns,
    First,
    Position,
    RenameColumn,
    ReplaceColumns,
)

_FieldChange = Callable[[Field], Field]
_PathChange = Callable[[Path], Path | None]
_NOT_ALTERED = "DELTA_IDENTITY_COLUMNS_ALTER_COLUMN_NOT_SUPPORTED"
_STATS_COLUMNS = "delta.dataSkippingStatsColumns"


def add_columns(statement: AddColumns, table: Snapshot, environment: Environment) -> Change:
    """Return the change of ADD COLUMNS.

    There are no actions if `if_not_exists` leaves no column. Raises InvalidRequest for a column
    that exists (unless `if_not_exists`), is NOT NULL, generated, an identity, or has a default, and
    for an unknown parent or position.
    """
    schema = table.schema
    added: list[dict[str, object]] = []
    for item in statement.columns:
        path = (*item.parent, item.column.name)
        if statement.if_not_exists and field_at(schema, path) is not None:
            continue
        column = _new_field(item)
        first, after = _first_or_after(item.position)
        schema = add_column(schema, column, parent=item.parent, first=first, after=after)
        entry: dict[str, object] = {"column": column_for_history(item.parent, column)}
        added.append({**entry, **_position_for_history(item.position)})
    return Change(
        operation="ADD COLUMNS",
        parameters={"columns": as_json(added)},
        actions=metadata_actions(table, with_schema(table.metadata, schema), environment),
    )


def _new_field(item: AddedColumn) -> Field:
    """Return the field of an added column.

    Raises InvalidRequest for a default, a generation expression, an identity and a NOT NULL field
    inside of its type, and as `field_of_spec`. A column that is NOT NULL itself is left to
    `add_column`, which refuses it.
    """
    spec, text = item.column, column_text((*item.parent, item.column.name))
    if spec.default is not None:
        raise InvalidRequest(
            f"column {text}: a column can't be added together with a default, the rows that are "
            f"there have none; add it, then ALTER COLUMN {text} SET DEFAULT {spec.default}"
        )
    if spec.generated is not None:
        raise InvalidRequest(
            f"column {text}: a generated column can't be added, the rows that are there weren't "
            "generated; create the table with it"
        )
    if spec.identity is not None:
        raise InvalidRequest(
            f"column {text}: an identity column can't be added, the rows that are there have no "
            "values; create the table with it"
        )
    column = field_of_spec(spec)
    if any(not inner.nullable for inner in all_fields(column.type)):
        raise InvalidRequest(f"column {text}: fields of a column that is added can't be NOT NULL")
    return column


def drop_columns(statement: DropColumns, table: Snapshot, environment: Environment) -> Change:
    """Return the change of DROP COLUMNS, which also drops them from the columns with statistics.

    There are no actions if `if_exists` leaves no column. Raises InvalidRequest for an unknown
    column, a table without column mapping, a partition or clustering column, and one that a
    constraint or a remaining generated column uses.
    """
    schema, configuration = table.schema, dict(table.metadata.configuration)
    paths = [
        path
        for path in statement.columns
        if not statement.if_exists or field_at(table.schema, path) is not None
    ]
    if not paths:
        return Change(operation="DROP COLUMNS")
    _require_mapping(table, "dropped")
    for path in paths:
        _check_layout(table, path, "dropped")
        schema = drop_column(schema, path)
        _drop_from_stats(configuration, path)
    constraints = table.properties.constraints
    for path in paths:
        # Generated columns dropped by the same statement don't block the others.
        check_dependents(schema, constraints, path, "be dropped")
    metadata = msgspec.structs.replace(
        with_schema(table.metadata, schema), configuration=configuration
    )
    return Change(
        operation="DROP COLUMNS",
        parameters={"columns": as_json([column_text(path) for path in paths])},
        actions=metadata_actions(table, metadata, environment),
        read_domains=(CLUSTERING,),
    )


def rename(statement: RenameColumn, table: Snapshot, environment: Environment) -> Change:
    """Return the change of RENAME COLUMN, also in the partitioning and the columns with statistics.

    Raises InvalidRequest for an unknown column, a taken name, a table without column mapping, and a
    column that a constraint or generated column uses.
    """
    path, new_name = statement.column, statement.new_name
    _require_mapping(table, "renamed")
    schema = rename_column(table.schema, path, new_name)
    if path[-1] != new_name:
        check_dependents(table.schema, table.properties.constraints, path, "be renamed")
    configuration = dict(table.metadata.configuration)
    _rename_in_stats(configuration, path, new_name)
    partitions = table.partition_columns
    if len(path) == 1:
        partitions = tuple(
            new_name if name.lower() == path[0].lower() else name for name in partitions
        )
    metadata = msgspec.structs.replace(
        with_schema(table.metadata, schema),
        configuration=configuration,
        partition_columns=partitions,
    )
    return Change(
        operation="RENAME COLUMN",
        parameters={
            "oldColumnPath": column_text(path),
            "newColumnPath": column_text((*path[:-1], new_name)),
        },
        actions=metadata_actions(table, metadata, environment),
    )


def replace_columns(statement: ReplaceColumns, table: Snapshot, environment: Environment) -> Change:
    """Return the change of REPLACE COLUMNS: order, comments, types; columns added or dropped.

    Raises InvalidRequest for a table with an identity column, columns added and dropped at once,
    and what ADD COLUMNS, DROP COLUMNS and ALTER COLUMN don't allow; also for NOT NULL of a nullable
    column.
    """
    for item in table.schema:
        if is_identity(item):
            raise InvalidRequest(
                "[DELTA_IDENTITY_COLUMNS_REPLACE_COLUMN_NOT_SUPPORTED] "
                f"REPLACE COLUMNS can't say that {item.name!r} is an identity column, and would "
                "make it a plain one; change the other columns one by one (ALTER COLUMN, "
                "ADD COLUMNS, DROP COLUMNS)"
            )
    new = tuple(_plain_field(spec) for spec in statement.columns)
    check_duplicates(Struct(new), "the statement")
    old = table.schema
    names = {item.name.lower() for item in new}
    dropped = [item.name for item in old if item.name.lower() not in names]
    added = [item for item in new if old.find(item.name) is None]
    if dropped and added:
        raise InvalidRequest(
            f"REPLACE COLUMNS can't drop {', '.join(map(repr, dropped))} and add "
            f"{', '.join(repr(item.name) for item in added)} at once, that could be a renaming; "
            "use RENAME COLUMN, or DROP COLUMNS and then ADD COLUMNS"
        )
    schema = old
    for name in dropped:
        _require_mapping(table, "dropped")
        _check_layout(table, (name,), "dropped")
        schema = drop_column(schema, (name,))
    for name in dropped:
        check_dependents(schema, table.properties.constraints, (name,), "be dropped")
    for item in added:
        schema = add_column(schema, item)
    for item in new:
        if item not in added:
            schema = _with_replaced_column(schema, item, table)
    ordered = Struct(tuple(column for item in new if (column := schema.find(item.name))))
    return Change(
        operation="REPLACE COLUMNS",
        parameters={"columns": as_json([column_for_history((), item) for item in new])},
        actions=metadata_actions(table, with_schema(table.metadata, ordered), environment),
        read_domains=(CLUSTERING,) if dropped else (),
    )


def _plain_field(spec: ColumnSpec) -> Field:
    """Return the field. Raises InvalidRequest for a default, a generation expression or an
    identity.
    """
    if spec.default is not None or spec.generated is not None or spec.identity is not None:
        raise InvalidRequest(
            f"column {spec.name}: REPLACE COLUMNS takes names, types, NOT NULL and comments"
        )
    return field_of_spec(spec)


def _with_replaced_column(schema: Struct, item: Field, table: Snapshot) -> Struct:
    """Return the schema in which an existing column has the type and nullability of `item`.

    It gets the comment of `item`, or keeps its own. Raises InvalidRequest for a change that isn't
    allowed.
    """
    old = schema.find(item.name)
    assert old is not None
    if old.nullable and not item.nullable:
        raise InvalidRequest(
            f"column {column_text((item.name,))}: REPLACE COLUMNS can't make it NOT NULL; use "
            "ALTER COLUMN ... SET NOT NULL, which checks the rows that are there"
        )
    schema = _with_type(schema, (item.name,), declared_type(item), table)
    comment = item.metadata.get(COMMENT)

    def redefine(column: Field) -> Field:
        loosened = replace(column, nullable=item.nullable)
        return with_comment(loosened, comment) if isinstance(comment, str) else loosened

    return change_field(schema, (item.name,), redefine)


def alter_column(statement: AlterColumn, table: Snapshot, environment: Environment) -> Change:
    """Return the change of ALTER COLUMN: type, comment, NOT NULL, default, position.

    The clauses apply in this order. Raises InvalidRequest: an unknown column, or a change that
    isn't allowed; for SET NOT NULL also where a row has a null.
    """
    path = statement.column
    change = _ColumnChange(table.schema, path)
    _check_identity(statement, table.schema)
    if statement.data_type is not None:
        new_type = resolve_type(statement.data_type)
        change.schema = _with_type(change.schema, path, new_type, table)
    if statement.comment is not None:
        change.set(lambda item: with_comment(item, statement.comment or ""))
    if statement.nullable is not None:
        _set_nullable(change, statement.nullable, environment)
    if statement.default is not None:
        _set_default(change, statement.default, environment)
    if statement.drop_default:
        change.set(_without_default)
    if statement.position is not None:
        first, after = _first_or_after(statement.position)
        change.schema = move_column(change.schema, path, first=first, after=after)
    altered = field_at(change.schema, path)
    entry = (
        {"name": column_text(path)} if altered is None else column_for_history(path[:-1], altered)
    )
    return Change(
        operation="CHANGE COLUMN",
        parameters={"column": as_json(entry), **_position_for_history(statement.position)},
        actions=metadata_actions(table, with_schema(table.metadata, change.schema), environment),
        reads=tuple(change.reads),
    )


def _check_identity(statement: AlterColumn, schema: Struct) -> None:
    """Raise InvalidRequest for another type, or a default, of an identity column."""
    item = schema.find(statement.column[0]) if len(statement.column) == 1 else None
    if item is None or not is_identity(item):
        return
    if statement.default is not None:
        raise InvalidRequest(
            f"[{_NOT_ALTERED}] identity column {item.name!r} can't have a default; it has values"
        )
    if statement.data_type is not None and resolve_type(statement.data_type) != item.type:
        raise InvalidRequest(
            f"[{_NOT_ALTERED}] identity column {item.name!r} is BIGINT, and stays so"
        )


@dataclass(slots=True)
class _ColumnChange:
    """The schema while the clauses of one ALTER COLUMN are applied to a column."""

    schema: Struct
    path: Path
    reads: list[Read] = field(default_factory=list)

    def set(self, change: _FieldChange) -> None:
        """Apply a change to the column. Raises InvalidRequest if it doesn't exist or is
        no field.
        """
        self.schema = change_field(self.schema, self.path, change)


def _with_type(schema: Struct, path: Path, new_type: DataType, table: Snapshot) -> Struct:
    """Return the schema with another type at a path, `new_type` as declared (CHAR, VARCHAR).

    Raises InvalidRequest for a change that isn't allowed, and, if the stored type changes, for a
    column that a constraint or generated column uses.
    """
    old = field_at(schema, path)
    if old is not None:
        _check_bounds(declared_type(old), new_type, path)
    stored = stored_field(Field(path[-1], new_type))
    new = change_type(schema, path, stored.type, allow_type_widening=table.properties.type_widening)
    if new != schema:
        check_dependents(schema, table.properties.constraints, path, "change its type")
    if old is None:
        return new

    def declare(item: Field) -> Field:
        metadata = {key: item.metadata[key] for key in item.metadata if key != CHAR_VARCHAR_TYPE}
        if CHAR_VARCHAR_TYPE in stored.metadata:
            metadata[CHAR_VARCHAR_TYPE] = stored.metadata[CHAR_VARCHAR_TYPE]
        return replace(item, metadata=metadata)

    return change_field(new, path, declare)


def _check_bounds(old: DataType, new: DataType, path: Path) -> None:
    """Raise InvalidRequest where existing texts may not fit the new char or varchar type.

    They fit STRING and a VARCHAR that is at least as long; a change to another CHAR is always
    refused. Looks into arrays and maps, not into structs; other changes aren't judged.
    """
    match old, new:
        case Primitive(), Primitive() if old.is_string and new.is_string and old != new:
            _, length = _kind_and_length(old)
            new_kind, new_length = _kind_and_length(new)
            wider = new_length is None or (length is not None and length <= new_length)
            if not wider or new_kind == "char":
                raise InvalidRequest(
                    f"column {column_text(path)}: its type can't change from {short_text(old)} "
                    f"to {short_text(new)}, the texts that are there may not fit"
                )
        case Array(), Array():
            _check_bounds(old.element, new.element, (*path, "element"))
        case Map(), Map():
            _check_bounds(old.key, new.key, (*path, "key"))
            _check_bounds(old.value, new.value, (*path, "value"))
        case _:
            pass


def _kind_and_length(data_type: Primitive) -> tuple[str, int | None]:
    """Return a type's name and length: ('varchar', 10) of `varchar(10)`, ('string', None)."""
    kind, _, length = data_type.name.rstrip(")").partition("(")
    return kind, int(length) if length.isdigit() else None


def _set_nullable(change: _ColumnChange, nullable: bool, environment: Environment) -> None:
    """Make the column nullable or NOT NULL; NOT NULL checks the rows and adds the read of all rows.

    Raises InvalidRequest for a row with a null, and for a field of a struct that can be null.
    """
    path = change.path
    old = field_at(change.schema, path)
    if old is None:
        # Raises for an invalid path; parts of arrays and maps have no nullability of their own.
        change.set(lambda item: item)
        return
    if not nullable and old.nullable:
        for depth in range(1, len(path)):
            outer = change.schema.resolve(path[:depth])
            if outer is not None and outer.nullable:
                raise InvalidRequest(
                    f"column {column_text(path)} can't be NOT NULL while "
                    f"{column_text(path[:depth])} can be null"
                )
        change.reads.append(EVERY_ROW)
        row = environment.violating_row(f"{column_text(path)} IS NOT NULL")
        if row is not None:
            raise InvalidRequest(
                f"column {column_text(path)} can't be NOT NULL, a row has null there: {dict(row)}"
            )
    change.set(lambda item: replace(item, nullable=nullable))


def _set_default(change: _ColumnChange, text: str, environment: Environment) -> None:
    """Set the column's default for new rows.

    Raises InvalidRequest for a nested or generated column, and for an expression that is invalid or
    doesn't fit the column's type.
    """
    path = change.path
    if len(path) > 1:
        raise InvalidRequest(f"column {column_text(path)}: only top-level columns have defaults")
    old = change.schema.resolve(path)
    if old is not None:
        if GENERATION in old.metadata:
            raise InvalidRequest(
                f"column {column_text(path)} is generated and can't have a default"
            )
        check_default(column_text(path), text)
        check_default_type(old, text, environment)
    change.set(lambda item: replace(item, metadata={**item.metadata, CURRENT_DEFAULT: text}))


def _without_default(item: Field) -> Field:
    metadata = {key: value for key, value in item.metadata.items() if key != CURRENT_DEFAULT}
    return replace(item, metadata=metadata)


# --- uses of a column ---


def _require_mapping(table: Snapshot, operation: str) -> None:
    """Raise InvalidRequest if the table has no column mapping; `operation`: 'dropped' or
    'renamed'.
    """
    if table.column_mapping_mode == "none":
        raise InvalidRequest(
            f"columns can't be {operation} without column mapping: data files have their names; "
            "set the table property delta.columnMapping.mode to 'name' first"
        )


def _check_layout(table: Snapshot, path: Path, operation: str) -> None:
    """Raise InvalidRequest for a partition column, and a clustering column or a struct that holds
    one.
    """
    if path[0].lower() in {name.lower() for name in table.partition_columns}:
        raise InvalidRequest(f"partition column {column_text(path)} can't be {operation}")
    folded = tuple(part.lower() for part in path)
    for clustered in clustered_by(table.schema, table.domains, table=table.table):
        if tuple(part.lower() for part in clustered[: len(path)]) == folded:
            raise InvalidRequest(
                f"clustering column {column_text(clustered)} can't be {operation}; change CLUSTER "
                "BY first"
            )


def _drop_from_stats(configuration: dict[str, str], path: Path) -> None:
    """Drop a column and its fields from the property `delta.dataSkippingStatsColumns`, in place."""
    _change_stats(configuration, lambda item: None if _starts_with(item, path) else item)


def _rename_in_stats(configuration: dict[str, str], path: Path, new_name: str) -> None:
    """Rename a column in the property `delta.dataSkippingStatsColumns`, in place."""
    renamed = (*path[:-1], new_name)
    _change_stats(
        configuration,
        lambda item: (*renamed, *item[len(path) :]) if _starts_with(item, path) else item,
    )


def _starts_with(item: Path, path: Path) -> bool:
    return tuple(part.lower() for part in item[: len(path)]) == tuple(part.lower() for part in path)


def _change_stats(configuration: dict[str, str], change: _PathChange) -> None:
    """Change each path of the property `delta.dataSkippingStatsColumns` in place; None drops it.

    A property that isn't set, or isn't a list of columns, stays.
    """
    text = configuration.get(_STATS_COLUMNS)
    if text is None:
        return
    try:
        columns = column_list(text)
    except ValueError:
        return
    changed = [path for item in columns if (path := change(item)) is not None]
    configuration[_STATS_COLUMNS] = ",".join(map(column_text, changed))


# --- positions ---


def _first_or_after(position: Position | None) -> tuple[bool, str | None]:
    """Return the position as (FIRST, the column of AFTER); (False, None) without a position."""
    match position:
        case First():
            return True, None
        case After(column):
            return False, column
        case None:
            return False, None


def _position_for_history(position: Position | None) -> dict[str, object]:
    """Return the history's entry: {'position': 'FIRST'} or 'AFTER column'; {} without a
    position.
    """
    match position:
        case First():
            return {"position": "FIRST"}
        case After(column):
            return {"position": f"AFTER {column_text((column,))}"}
        case None:
            return {}
