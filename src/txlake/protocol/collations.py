"""Collations of text columns: which one the schema gives to which text.

They stand in the metadata of the nearest field, by the path of the text in it: `s`, `m.key`,
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
    """The field's type with `string collate UTF8_LCASE` where it has that for a text.

    A collation of plain bytes is none.
    """
    found = item.metadata.get(COLLATIONS)
    names = {path: str(name) for path, name in (found.items() if isinstance(found, dict) else ())}
    return _collated(item.type, item.name, names)


def with_collations(schema: Struct) -> Struct:
    """The schema with `collated_type` of its columns."""
    return Struct(tuple(replace(item, type=collated_type(item)) for item in schema))


def collation_of(data_type: Primitive) -> str | None:
    """The collation that `collated_type` tells of a text; None where there is none."""
    name = data_type.name
    return name[len(_COLLATED) :] if name.lower().startswith(_COLLATED) else None


def collated_columns(schema: Struct) -> list[str]:
    """The columns that have a collation, or in which a text has one."""
    return [item.name for item in schema if _has_collation(collated_type(item))]


def _collated(data_type: DataType, path: str, names: Mapping[str, str]) -> DataType:
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
    """`spark.UTF8_LCASE` is a provider's, who isn't part of the type; a version may follow."""
    parts = collation.strip().split(".")
    name = parts[1] if len(parts) > 1 else parts[0]
    return Primitive("string" if name.lower() == _BINARY else _COLLATED + name)


def _has_collation(data_type: DataType) -> bool:
    match data_type:
        case Primitive():
            return collation_of(data_type) is not None
        case Array(element, _):
            return _has_collation(element)
        case Map(key, value, _):
            return _has_collation(key) or _has_collation(value)
        case Struct(fields):
            return any(_has_collation(item.type) for item in fields)
