"""Names and ids of columns in data files, for tables that map them.

Owns the assignment of physical names and column ids to the columns that have none. Source:
PROTOCOL.md, "Writer Requirements for Column Mapping".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import msgspec

from txlake.protocol.actions import Metadata
from txlake.protocol.types import (
    COLUMN_ID,
    PHYSICAL_NAME,
    Array,
    DataType,
    Field,
    Map,
    Struct,
    parse_schema,
    schema_to_string,
)

MODE = "delta.columnMapping.mode"
MAX_COLUMN_ID = "delta.columnMapping.maxColumnId"


def mode_of(metadata: Metadata) -> str:
    """`none`, `name` or `id`."""
    return metadata.configuration.get(MODE, "none").strip().lower()


def fields_of(data_type: DataType) -> Iterator[Field]:
    """All fields of structs at every depth, outer ones first."""
    match data_type:
        case Struct(fields):
            for item in fields:
                yield item
                yield from fields_of(item.type)
        case Array(element, _):
            yield from fields_of(element)
        case Map(key, value, _):
            yield from fields_of(key)
            yield from fields_of(value)
        case _:
            return


def assign(
    metadata: Metadata, previous: Metadata | None, new_id: Callable[[], str]
) -> Metadata:
    """The metadata with a physical name and an id for every column that lacks them.

    Columns that were in the table before it mapped columns keep their names in the data files; new
    columns get a name that no column ever had. `previous` is None for a new table.
    """
    if mode_of(metadata) == "none":
        return metadata
    schema = parse_schema(metadata.schema_string)
    mapped_before = previous is None or mode_of(previous) != "none"
    known = set[str]()
    if previous is not None and not mapped_before:
        known = {_path_key(path) for path in _paths(parse_schema(previous.schema_string))}
    last = max((item.column_id or 0 for item in fields_of(schema)), default=0)
    for origin in (metadata, previous):
        text = "" if origin is None else origin.configuration.get(MAX_COLUMN_ID, "")
        last = max(last, int(text) if text.isdigit() else 0)

    def struct(value: Struct, path: tuple[str, ...]) -> Struct:
        return Struct(tuple(named(item, (*path, item.name)) for item in value.fields))

    def nested(value: DataType, path: tuple[str, ...]) -> DataType:
        match value:
            case Struct():
                return struct(value, path)
            case Array(element, contains_null):
                return Array(nested(element, (*path, "element")), contains_null)
            case Map(key, item, contains_null):
                return Map(
                    nested(key, (*path, "key")), nested(item, (*path, "value")), contains_null
                )
            case _:
                return value

    def named(item: Field, path: tuple[str, ...]) -> Field:
        nonlocal last
        about = dict(item.metadata)
        if not isinstance(about.get(COLUMN_ID), int):
            last += 1
            about[COLUMN_ID] = last
        if not isinstance(about.get(PHYSICAL_NAME), str):
            kept = _path_key(path) in known
            about[PHYSICAL_NAME] = item.name if kept else f"col-{new_id()}"
        return replace(item, metadata=about, type=nested(item.type, path))

    mapped = struct(schema, ())
    configuration = {**metadata.configuration, MAX_COLUMN_ID: str(last)}
    if mapped == schema and configuration == metadata.configuration:
        return metadata
    return msgspec.structs.replace(
        metadata, schema_string=schema_to_string(mapped), configuration=configuration
    )


def _paths(schema: Struct) -> Iterator[tuple[str, ...]]:
    def walk(value: DataType, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        match value:
            case Struct(fields):
                for item in fields:
                    yield (*path, item.name)
                    yield from walk(item.type, (*path, item.name))
            case Array(element, _):
                yield from walk(element, (*path, "element"))
            case Map(key, item_type, _):
                yield from walk(key, (*path, "key"))
                yield from walk(item_type, (*path, "value"))
            case _:
                return

    return walk(schema, ())


def _path_key(path: tuple[str, ...]) -> str:
    return "\0".join(path).lower()
