"""A table's columns in the forms of Unity Catalog's two APIs.

Source: Unity Catalog's Delta API, "Delta Data Types"; its older API, `ColumnInfo`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from txlake.protocol.type_text import short_text
from txlake.protocol.types import Primitive, Struct, schema_to_string

_OF_NESTED = {
    "elementType": "element-type",
    "containsNull": "contains-null",
    "keyType": "key-type",
    "valueType": "value-type",
    "valueContainsNull": "value-contains-null",
}
_TYPE_NAMES = {
    "boolean": "BOOLEAN",
    "byte": "BYTE",
    "short": "SHORT",
    "integer": "INT",
    "long": "LONG",
    "float": "FLOAT",
    "double": "DOUBLE",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamp_ntz": "TIMESTAMP_NTZ",
    "string": "STRING",
    "binary": "BINARY",
    "variant": "VARIANT",
}


def delta_columns(schema: Struct) -> object:
    """Return the columns in the Delta API's form."""
    return _spelled(json.loads(schema_to_string(schema)))


def _spelled(value: object) -> object:
    """Return a data type with the Delta API's keys; a field's metadata stays as it is."""
    if isinstance(value, list):
        return [_spelled(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        _OF_NESTED.get(key, key): one if key == "metadata" else _spelled(one)
        for key, one in value.items()
    }


def column_infos(schema: Struct, partition_columns: Sequence[str]) -> list[dict[str, object]]:
    """Return the columns in the older API's form."""
    infos: list[dict[str, object]] = []
    for place, field in enumerate(json.loads(schema_to_string(schema))["fields"]):
        item = schema.fields[place]
        info: dict[str, object] = {
            "name": item.name,
            "type_text": short_text(item.type),
            "type_json": json.dumps(field, separators=(",", ":"), ensure_ascii=False),
            "type_name": _type_name(field["type"]),
            "position": place,
            "nullable": item.nullable,
        }
        if isinstance(item.type, Primitive) and item.type.name.startswith("decimal("):
            precision, _, scale = item.type.name[len("decimal(") : -1].partition(",")
            info |= {"type_precision": int(precision), "type_scale": int(scale or 0)}
        comment = item.metadata.get("comment")
        if isinstance(comment, str):
            info["comment"] = comment
        if item.name in partition_columns:
            info["partition_index"] = list(partition_columns).index(item.name)
        infos.append(info)
    return infos


def _type_name(data_type: object) -> str:
    """Return the older API's name of a type, given in its JSON form."""
    if isinstance(data_type, dict):
        return str(data_type["type"]).upper()
    name = str(data_type)
    if name.startswith("decimal"):
        return "DECIMAL"
    return _TYPE_NAMES.get(name, "USER_DEFINED_TYPE")
