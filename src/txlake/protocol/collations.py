"""Collations of text columns, from the schema.

A collation is in the metadata of the nearest field, keyed by the text's path in it: `s`, `m.key`,
`a.element`. The log has such texts as plain strings, and their minima and maxima in the order of
bytes. Source: the RFC "Collated String Type" of Delta.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from txlake.protocol.types import Array, DataType, Field, Map, Primitive, Struct

COLLATIONS = "__COLLATIONS"
_BINARY = "utf8_binary"
_COLLATED = "string collate "


def collated_type(item: Field) -> DataType:
    """Return the field's type with `string collate UTF8_LCASE` for each collated text.

    The binary collation counts as none.
    """
    found = item.metadata.get(COLLATIONS)
    names = {path: str(name) for path, name in (found.items() if isinstance(found, dict) else ())}
    return _collated(item.type, item.name, names)


def with_collations(schema: Struct) -> Struct:
    """Return the schema with the `collated_type` of each column."""
    return Struct(tuple(replace(item, type=collated_type(item)) for item in schema))


def collation_of(data_type: Primitive) -> str | None:
    """Return the collation of a text in a `collated_type`; None without one."""
    name = data_type.name
    return name[len(_COLLATED) :] if name.lower().startswith(_COLLATED) else None


def collated_columns(schema: Struct) -> list[str]:
    """Return the names of columns with a collation, or with a collated text inside."""
    return [item.name for item in schema if _has_collation(collated_type(item))]


def _collated(data_type: DataType, path: str, names: Mapping[str, str]) -> DataType:
    """Return the type with the collations that `names` has by path; a struct's fields have theirs
    in their own metadata.

    A text that is written as collated without an entry keeps its collation, without provider and
    version.
    """
    match data_type:
        case Primitive(name):
            if name == "string" and path in names:
                return _text(names[path])
            own = collation_of(data_type)
            return data_type if own is None else _text(own)
        case Array(element, _):
            return replace(data_type, element=_collated(element, f"{path}.element", names))
        case Map(key, value, _):
            return replace(
                data_type,
                key=_collated(key, f"{path}.key", names),
                value=_collated(value, f"{path}.value", names),
            )
        case Struct():
            return with_collations(data_type)


def _text(collation: str) -> Primitive:
    """Return the text's type; the provider (`spark.UTF8_LCASE`) and a version aren't part of it."""
    parts = collation.strip().split(".")
    name = parts[1] if len(parts) > 1 else parts[0]
    return Primitive("string" if name.lower() == _BINARY else _COLLATED + name)


def _has_collation(data_type: DataType) -> bool:
    """Return whether a `collated_type` is a collated text, or contains one."""
    match data_type:
        case Primitive():
            return collation_of(data_type) is not None
        case Array(element, _):
            return _has_collation(element)
        case Map(key, value, _):
            return _has_collation(key) or _has_collation(value)
        case Struct(fields):
            return any(_has_collation(item.type) for item in fields)
