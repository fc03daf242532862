"""Changes of a table's schema: evolution by a write, and the column DDL.

Every function takes a schema and returns the new one, or raises `InvalidRequest` with the column,
what was found and what was expected. Ids and physical names of new columns are assigned afterwards
(`column_mapping.assign_column_ids`). A column is named by its path, where `element`, `key` and
`value` lead into arrays and maps. Source: PROTOCOL.md, "Schema Serialization Format", "Type
Widening", "Column Mapping".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from txlake.errors import InvalidRequest
from txlake.protocol.schema_rules import Path, check_duplicates, column_text
from txlake.protocol.type_text import CHAR_VARCHAR_TYPE, COMMENT, quoted_name, short_text
from txlake.protocol.type_widening import (
    Widens,
    is_widening,
    never_widens,
    same_primitive,
    with_type,
)
from txlake.protocol.types import Array, DataType, Field, Map, Primitive, Struct

# The metadata kept of a new column that a write adds: what its author declared.
_KEPT_METADATA = (COMMENT, CHAR_VARCHAR_TYPE)


def merge_schemas(
    table: Struct,
    incoming: Struct,
    *,
    widens: Widens = never_widens,
    is_recorded: bool = True,
) -> Struct:
    """Return the table's schema after schema evolution by rows of another schema.

    Columns match by name, in any letter case, and keep the table's name, nullability and metadata.
    New columns are appended in their order, nullable; fields of structs likewise, also inside
    arrays and maps. Where types differ otherwise, the table's stays and the writer casts.

    Args:
        table: the table's schema.
        incoming: the rows' schema; its nullability doesn't count.
        widens: whether the table adopts the rows' type, given the two.
        is_recorded: whether the field's metadata records the change, as the table feature
            `typeWidening` demands.

    Raises:
        InvalidRequest: types that can't be merged, naming the column and both types; a column
            twice in `incoming`.
    """
    check_duplicates(incoming, "the incoming rows")
    return _merge_structs(table, incoming, (), _Merging(widens, is_recorded))


class _Merging:
    """The rules for merging types in one evolution."""

    __slots__ = ("is_recorded", "widens")

    def __init__(self, widens: Widens, is_recorded: bool) -> None:
        self.widens = widens
        self.is_recorded = is_recorded


def widened_paths(old: DataType, new: DataType, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of columns and parts that were widened between two schemas."""
    match old, new:
        case Struct(), Struct():
            for item in old:
                found = new.find(item.name)
                if found is not None:
                    yield from widened_paths(item.type, found.type, (*path, item.name))
        case Array(), Array():
            yield from widened_paths(old.element, new.element, (*path, "element"))
        case Map(), Map():
            yield from widened_paths(old.key, new.key, (*path, "key"))
            yield from widened_paths(old.value, new.value, (*path, "value"))
        case Primitive(), Primitive() if is_widening(old, new):
            yield path
        case _:
            pass


def _merge_structs(table: Struct, incoming: Struct, path: Path, how: _Merging) -> Struct:
    """Return the table's struct with fields merged by name, and new fields of `incoming` after
    them.
    """
    by_name = {item.name.lower(): item for item in incoming}
    known = {item.name.lower() for item in table}
    merged = []
    for item in table:
        other = by_name.get(item.name.lower())
        if other is None:
            merged.append(item)
        else:
            new = _merge_types(item.type, other.type, (*path, item.name), how)
            merged.append(with_type(item, new) if how.is_recorded else replace(item, type=new))
    added = [_as_new_column(item) for item in incoming if item.name.lower() not in known]
    return Struct((*merged, *added))


def _merge_types(old: DataType, new: DataType, path: Path, how: _Merging) -> DataType:
    """Return the table's type with new fields inside, widened where `how` allows it.

    Raises InvalidRequest, naming the column, for types of different kinds.
    """
    match old, new:
        case Struct(), Struct():
            return _merge_structs(old, new, path, how)
        case Array(), Array():
            merged = _merge_types(old.element, new.element, (*path, "element"), how)
            return replace(old, element=merged)
        case Map(), Map():
            return replace(
                old,
                key=_merge_types(old.key, new.key, (*path, "key"), how),
                value=_merge_types(old.value, new.value, (*path, "value"), how),
            )
        case Primitive(), Primitive():
            return _merge_primitives(old, new, how)
        case Primitive("void"), _:
            return _nullable(new)
        case _, Primitive("void"):
            return old
        case _:
            raise _incompatible(old, new, path)


def _merge_primitives(old: Primitive, new: Primitive, how: _Merging) -> Primitive:
    return new if old.name == "void" or how.widens(old, new) else old


def _incompatible(old: DataType, new: DataType, path: Path) -> InvalidRequest:
    """Return the error for types that can't be merged, and name the column."""
    return InvalidRequest(
        f"column {column_text(path)}: the table has type {short_text(old)}, the incoming rows "
        f"have {short_text(new)}, and the two can't be merged; cast the rows"
    )


def _as_new_column(item: Field) -> Field:
    """Return a field as a new column: nullable throughout, of its metadata only what its author
    declared.

    Raises InvalidRequest for a type that Delta doesn't have.
    """
    _refuse_unknown(item.type, (item.name,))
    kept = {key: value for key, value in item.metadata.items() if key in _KEPT_METADATA}
    return Field(item.name, _nullable(item.type), True, kept)


def _nullable(data_type: DataType) -> DataType:
    """Return the type with all parts nullable, fields of structs as `_as_new_column` makes them."""
    match data_type:
        case Primitive():
            return data_type
        case Array(element, _):
            return Array(_nullable(element), True)
        case Map(key, value, _):
            return Map(_nullable(key), _nullable(value), True)
        case Struct(fields):
            return Struct(tuple(_as_new_column(item) for item in fields))


def _refuse_unknown(data_type: DataType, path: Path) -> None:
    """Raise InvalidRequest for types that Delta doesn't have, and for untyped elements as of
    `array()`.
    """
    match data_type:
        case Primitive(name) if name.startswith("interval"):
            raise InvalidRequest(
                f"[DELTA_UNSUPPORTED_DATA_TYPES] column {column_text(path)} is an {name.upper()}, "
                "which Delta tables don't have; cast it, to a text or a number of seconds"
            )
        case Struct(fields):
            for item in fields:
                _refuse_unknown(item.type, (*path, item.name))
        case Array(element):
            _refuse_untyped_part(element, (*path, "element"))
        case Map(key, value):
            _refuse_untyped_part(key, (*path, "key"))
            _refuse_untyped_part(value, (*path, "value"))
        case _:
            pass


def _refuse_untyped_part(part: DataType, path: Path) -> None:
    """Raise InvalidRequest where an element, key or value has no type, and as `_refuse_unknown`."""
    if part == Primitive("void"):
        raise InvalidRequest(
            f"column {column_text(path)} has no type, it is always NULL; cast the rows, such as "
            "CAST(array() AS ARRAY<INT>)"
        )
    _refuse_unknown(part, path)


def as_table_schema(rows: Struct) -> Struct:
    """Return the schema of a new table that takes rows of this schema: all nullable, comments kept.

    Raises InvalidRequest for an interval, and for an array or a map of only NULL, naming the
    column.
    """
    return Struct(tuple(_as_new_column(item) for item in rows))


# --- column DDL -----------------------------------------------------------------------------------


def add_column(
    schema: Struct,
    column: Field,
    *,
    parent: Path = (),
    first: bool = False,
    after: str | None = None,
) -> Struct:
    """Return the schema with a new column, last unless `first` or `after` gives its place.

    Raises InvalidRequest: the column exists, `parent` is no struct, `after` doesn't exist, or the
    column is NOT NULL, which existing rows can't satisfy.
    """
    if not column.nullable:
        raise InvalidRequest(
            f"column {column_text((*parent, column.name))}: a column that is added to a table "
            "can't be NOT NULL, the rows that are there have no value; add it without"
        )

    def add(struct: Struct) -> Struct:
        """Return the struct with the column. Raises InvalidRequest if its name is taken."""
        if struct.find(column.name) is not None:
            raise InvalidRequest(f"column {column_text((*parent, column.name))} exists already")
        position = _position(struct, parent, first=first, after=after)
        fields = struct.fields
        return Struct((*fields[:position], column, *fields[position:]))

    return _change_struct(schema, parent, add)


def drop_column(schema: Struct, path: Path) -> Struct:
    """Return the schema without a column.

    Raises InvalidRequest: it doesn't exist, or it is the only column of its struct.
    """

    def drop(struct: Struct) -> Struct:
        """Return the struct without the column. Raises InvalidRequest if none would be left."""
        gone = _member(struct, path)
        kept = tuple(item for item in struct if item is not gone)
        if not kept:
            raise InvalidRequest(
                f"column {column_text(path)} is the only one of its struct and can't be dropped"
            )
        return Struct(kept)

    return _change_struct(schema, path[:-1], drop)


def rename_column(schema: Struct, path: Path, new_name: str) -> Struct:
    """Return the schema with a column renamed.

    Raises InvalidRequest if it doesn't exist, or another of its struct has the name.
    """

    def rename(struct: Struct) -> Struct:
        """Return the struct with the column renamed. Raises InvalidRequest if the name is taken."""
        old = _member(struct, path)
        taken = next(
            (i for i in struct if i.name.lower() == new_name.lower() and i is not old), None
        )
        if taken is not None:
            raise InvalidRequest(
                f"column {column_text(path)} can't be renamed to {quoted_name(new_name)}: "
                f"there is a column {quoted_name(taken.name)}"
            )
        return Struct(tuple(replace(i, name=new_name) if i is old else i for i in struct))

    return _change_struct(schema, path[:-1], rename)


def move_column(
    schema: Struct, path: Path, *, first: bool = False, after: str | None = None
) -> Struct:
    """Return the schema with a column at another place of its struct, last by default.

    Raises InvalidRequest if it or `after` doesn't exist.
    """

    def move(struct: Struct) -> Struct:
        """Return the struct with the column moved; as it is where the column is to follow
        itself.
        """
        moved = _member(struct, path)
        rest = Struct(tuple(item for item in struct if item is not moved))
        if after is not None and after.lower() == moved.name.lower():
            return struct
        position = _position(rest, path[:-1], first=first, after=after)
        return Struct((*rest.fields[:position], moved, *rest.fields[position:]))

    return _change_struct(schema, path[:-1], move)


def field_at(schema: Struct, path: Path) -> Field | None:
    """Return the field at a path, also inside arrays and maps.

    None when it doesn't exist, and for an array's or map's part, which is no field.
    """
    here: DataType = schema
    found: Field | None = None
    for part in path:
        step = part.lower()
        match here:
            case Struct():
                found = here.find(part)
                if found is None:
                    return None
                here = found.type
            case Array() if step == "element":
                here, found = here.element, None
            case Map() if step in ("key", "value"):
                here, found = (here.key if step == "key" else here.value), None
            case _:
                return None
    return found


def change_field(schema: Struct, path: Path, change: Callable[[Field], Field]) -> Struct:
    """Return the schema with one field changed.

    Raises InvalidRequest if it doesn't exist, or the path leads to an array's or map's part.
    """

    def apply(struct: Struct) -> Struct:
        old = _member(struct, path)
        return Struct(tuple(change(item) if item is old else item for item in struct))

    return _change_struct(schema, path[:-1], apply)


def change_type(
    schema: Struct, path: Path, new_type: DataType, *, allow_type_widening: bool
) -> Struct:
    """Return the schema with another type for a column, or for an array's or map's part.

    Without type widening only changes that need no rewriting of files are allowed: the same type,
    another bound of a text (`varchar`, which the caller records in the field's metadata), `void` to
    anything.

    Raises InvalidRequest: missing, or a change that isn't allowed, naming both types.
    """

    def change(old: DataType) -> DataType:
        return _changed_type(old, new_type, path, allow_type_widening)

    *outer, last = path if path else ("",)
    if last.lower() not in ("element", "key", "value") or field_at(schema, path):
        return change_field(schema, path, lambda item: with_type(item, change(item.type)))
    # The type change is recorded by the nearest field around.
    depth = len(outer)
    while depth and field_at(schema, tuple(outer[:depth])) is None:
        depth -= 1
    if depth == 0:
        raise _no_such_column(path, schema)
    inside = path[depth:]
    return change_field(
        schema,
        path[:depth],
        lambda item: with_type(item, _change_inside(item.type, inside, change, path)),
    )


def _changed_type(old: DataType, new: DataType, path: Path, widen: bool) -> DataType:
    """Return the type for a column of `old` that is to become `new`; parts change one by one.

    Nullability and the fields' metadata stay. Raises InvalidRequest naming the part that can't
    change.
    """
    match old, new:
        case Primitive(), Primitive():
            if same_primitive(old, new) or (old.is_string and new.is_string):
                return old if same_primitive(old, new) else new
            if old.name == "void" or (widen and is_widening(old, new)):
                return new
        case Array(), Array():
            element = _changed_type(old.element, new.element, (*path, "element"), widen)
            return replace(old, element=element)
        case Map(), Map():
            key = _changed_type(old.key, new.key, (*path, "key"), widen)
            value = _changed_type(old.value, new.value, (*path, "value"), widen)
            return replace(old, key=key, value=value)
        case Struct(), Struct():
            if [i.name.lower() for i in old] == [i.name.lower() for i in new]:
                fields = (
                    with_type(i, _changed_type(i.type, j.type, (*path, i.name), widen))
                    for i, j in zip(old, new, strict=True)
                )
                return Struct(tuple(fields))
        case Primitive("void"), _:
            return _nullable(new)
        case _:
            pass
    could = isinstance(old, Primitive) and isinstance(new, Primitive) and is_widening(old, new)
    advice = (
        "; set the table property delta.enableTypeWidening to true first"
        if could
        else "; write the rows to a new table, or overwrite this one with its new schema"
    )
    raise InvalidRequest(
        f"column {column_text(path)}: its type can't change from {short_text(old)} to "
        f"{short_text(new)}{advice}"
    )


# --- paths ----------------------------------------------------------------------------------------


def _member(struct: Struct, path: Path) -> Field:
    """Return the struct's field that the last part of a path names.

    Raises InvalidRequest without one.
    """
    found = struct.find(path[-1]) if path else None
    if found is None:
        raise _no_such_column(path, struct)
    return found


def _no_such_column(path: Path, struct: Struct) -> InvalidRequest:
    known = ", ".join(quoted_name(item.name) for item in struct)
    return InvalidRequest(f"there is no column {column_text(path)}; there are: {known}")


def _position(struct: Struct, parent: Path, *, first: bool, after: str | None) -> int:
    """Return the index for a field: 0 if `first`, behind `after`, or at the end.

    Raises InvalidRequest if `after` doesn't exist.
    """
    if first:
        return 0
    if after is None:
        return len(struct.fields)
    neighbour = _member(struct, (*parent, after))
    return next(i for i, item in enumerate(struct) if item is neighbour) + 1


def _change_struct(schema: Struct, path: Path, change: Callable[[Struct], Struct]) -> Struct:
    """Return the schema with the struct at a path changed; () is the schema itself.

    Raises InvalidRequest where the path doesn't exist, or leads to another type.
    """

    def apply(data_type: DataType) -> DataType:
        """Return the changed struct. Raises InvalidRequest for another type."""
        if not isinstance(data_type, Struct):
            raise InvalidRequest(
                f"{column_text(path)} has type {short_text(data_type)}; expected a struct"
            )
        return change(data_type)

    changed = _change_inside(schema, path, apply, path)
    assert isinstance(changed, Struct)
    return changed


def _change_inside(
    data_type: DataType, path: Path, change: Callable[[DataType], DataType], full: Path
) -> DataType:
    """Return the type with the part at `path` changed; `full` is the path from the schema, for
    errors.

    Raises InvalidRequest where the path doesn't exist.
    """
    if not path:
        return change(data_type)
    step = path[0].lower()
    match data_type:
        case Struct(fields):
            found = _member(data_type, (*full[: len(full) - len(path)], path[0]))
            new = _change_inside(found.type, path[1:], change, full)
            return Struct(tuple(replace(i, type=new) if i is found else i for i in fields))
        case Array() if step == "element":
            return replace(
                data_type, element=_change_inside(data_type.element, path[1:], change, full)
            )
        case Map() if step == "key":
            return replace(data_type, key=_change_inside(data_type.key, path[1:], change, full))
        case Map() if step == "value":
            new = _change_inside(data_type.value, path[1:], change, full)
            return replace(data_type, value=new)
        case _:
            here = column_text(full[: len(full) - len(path)])
            raise InvalidRequest(
                f"there is no column {column_text(full)}: {here} has type {short_text(data_type)}"
            )
