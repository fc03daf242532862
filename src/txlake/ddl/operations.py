"""Operation parameters of DDL in the history, as Delta writes them into `commitInfo`."""

from __future__ import annotations

import json

from txlake.protocol.schema_rules import Path, column_text
from txlake.protocol.types import Array, Field, Map, Primitive, Struct


def as_json(value: object) -> str:
    """Return a value of operationParameters that is JSON in a string."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def column_for_history(parent: Path, item: Field) -> dict[str, object]:
    """Return a column as the history shows it: path, type name, nullability, and its metadata
    without column mapping and type changes.
    """
    match item.type:
        case Primitive(name):
            kind = name
        case Struct():
            kind = "struct"
        case Array():
            kind = "array"
        case Map():
            kind = "map"
    metadata = {
        key: value
        for key, value in item.metadata.items()
        if not key.startswith(("delta.columnMapping.", "delta.typeChanges"))
    }
    return {
        "name": column_text((*parent, item.name)),
        "type": kind,
        "nullable": item.nullable,
        "metadata": metadata,
    }
