"""Column mapping: the assignment of ids and physical names to columns.

Reading them is `types.Field.physical_name` and `.column_id`. Source: PROTOCOL.md, "Column Mapping".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache

from txlake.protocol.types import (
    COLUMN_ID,
    PHYSICAL_NAME,
    Array,
    DataType,
    Field,
    Map,
    Primitive,
    Struct,
    parse_schema,
)

MODE_PROPERTY = "delta.columnMapping.mode"
MAX_ID_PROPERTY = "delta.columnMapping.maxColumnId"
NESTED_IDS = "delta.columnMapping.nested.ids"
_KEYS = (COLUMN_ID, PHYSICAL_NAME, NESTED_IDS, "parquet.field.id", "parquet.field.nested.ids")


def map_fields(data_type: DataType, change: Callable[[Field], Field]) -> DataType:
    """Return the type with `change` applied to every struct field, outer fields before
    inner ones.
    """
    match data_type:
        case Primitive():
            return data_type
        case Array(element, contains_null):
            return Array(map_fields(element, change), contains_null)
        case Map(key, value, contains_null):
            return Map(map_fields(key, change), map_fields(value, change), contains_null)
        case Struct(fields):
            return Struct(tuple(_map_field(item, change) for item in fields))


def _map_field(item: Field, change: Callable[[Field], Field]) -> Field:
    changed = change(item)
    return replace(changed, type=map_fields(changed.type, change))


def map_schema(schema: Struct, change: Callable[[Field], Field]) -> Struct:
    """Return the schema with `change` applied to every field, nested ones too, outer
    before inner.
    """
    return Struct(tuple(_map_field(item, change) for item in schema))


def all_fields(data_type: DataType) -> Iterator[Field]:
    """Yield every struct field of the type, nested ones too, outer before inner."""
    match data_type:
        case Primitive():
            return
        case Array(element, _):
            yield from all_fields(element)
        case Map(key, value, _):
            yield from all_fields(key)
            yield from all_fields(value)
        case Struct(fields):
            for item in fields:
                yield item
                yield from all_fields(item.type)


@lru_cache(maxsize=256)
def effective_schema(schema_string: str | None, is_mapped: bool, *, file: str) -> Struct:
    """Parse the schema text; ids and physical names are kept only where columns are mapped.

    Raises CorruptTable naming `file`.
    """
    schema = parse_schema(schema_string, file=file)
    return schema if is_mapped else without_column_ids(schema)


def max_column_id(schema: Struct) -> int:
    """Return the greatest id in use, ids of elements, keys and values included; 0 without any."""
    highest = 0
    for item in all_fields(schema):
        highest = max(highest, item.column_id or 0)
        nested = item.metadata.get(NESTED_IDS)
        if isinstance(nested, dict):
            highest = max([highest, *(value for value in nested.values() if type(value) is int)])
    return highest


def assign_column_ids(
    schema: Struct,
    max_id: int,
    new_id: Callable[[], str],
    *,
    keep_names: bool = False,
) -> tuple[Struct, int]:
    """Give an id and a physical name to every field, nested ones too, that has none.

    Args:
        schema: fields that have an id or a physical name keep them.
        max_id: the table's `delta.columnMapping.maxColumnId`, 0 without one; ids continue from it.
        new_id: a new UUID for each call; physical names are `col-<uuid>`.
        keep_names: whether the table has data files without mapping, so that physical names are the
            logical ones.

    Returns:
        The schema and the new maximum id, never less than `max_id`.
    """
    highest = max(max_id, max_column_id(schema))

    def assign(item: Field) -> Field:
        """Give the field the next id and a physical name where it has none."""
        nonlocal highest
        metadata = dict(item.metadata)
        if COLUMN_ID not in metadata:
            highest += 1
            metadata[COLUMN_ID] = highest
        if PHYSICAL_NAME not in metadata:
            metadata[PHYSICAL_NAME] = item.name if keep_names else f"col-{new_id()}"
        return replace(item, metadata=metadata)

    return map_schema(schema, assign), highest


def nested_ids(item: Field) -> dict[str, int]:
    """Return the ids of a column's list elements, map keys and map values, by `nested_keys`."""
    given = item.metadata.get(NESTED_IDS)
    if not isinstance(given, dict):
        return {}
    return {str(key): value for key, value in given.items() if type(value) is int}


def nested_keys(item: Field) -> Iterator[str]:
    """Yield the names of a column's elements, keys and values: `col.element`, `col.value.element`.

    Struct fields inside have names of their own. Source: PROTOCOL.md, "Iceberg Compatibility V2".
    """
    yield from _nested(item.type, item.physical_name)


def _nested(data_type: DataType, path: str) -> Iterator[str]:
    """Yield the paths of a type's elements, keys and values below `path`, outer before inner."""
    match data_type:
        case Array(element, _):
            parts = {f"{path}.element": element}
        case Map(key, value, _):
            parts = {f"{path}.key": key, f"{path}.value": value}
        case _:
            return
    for inner, part in parts.items():
        yield inner
        yield from _nested(part, inner)


def assign_nested_ids(schema: Struct, max_id: int) -> tuple[Struct, int]:
    """Give ids to list elements, map keys and map values that have none; `max_id` was the highest.

    Returns the schema and the new highest id.
    """
    highest = max(max_id, max_column_id(schema))

    def assign(item: Field) -> Field:
        """Give the next ids to the field's elements, keys and values that have none."""
        nonlocal highest
        ids = nested_ids(item)
        for key in nested_keys(item):
            if key not in ids:
                highest += 1
                ids[key] = highest
        if ids == nested_ids(item):
            return item
        return replace(item, metadata={**item.metadata, NESTED_IDS: ids})

    return map_schema(schema, assign), highest


def without_column_ids(schema: Struct) -> Struct:
    """Return the schema without ids, nested ids and physical names."""

    def strip(item: Field) -> Field:
        kept = {key: value for key, value in item.metadata.items() if key not in _KEYS}
        return replace(item, metadata=kept)

    return map_schema(schema, strip)
