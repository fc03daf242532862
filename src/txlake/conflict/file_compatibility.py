"""Whether files written under one metadata are valid in a table under another.

Used for a transaction that changes a table's settings while others write files under the old ones:
with the old partition values, columns and checks. In doubt a file is incompatible. Source:
PROTOCOL.md, "Change Metadata", "Column Invariants", "CHECK Constraints", "Column Mapping", "Type
Widening".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from txlake.errors import CorruptTable
from txlake.protocol.actions import Metadata
from txlake.protocol.iceberg import is_enabled
from txlake.protocol.mapping_change import schema_by_metadata
from txlake.protocol.properties import CONSTRAINT_PREFIX
from txlake.protocol.type_text import CHAR_VARCHAR_TYPE
from txlake.protocol.type_widening import is_widening, same_primitive
from txlake.protocol.types import Array, DataType, Field, Map, Primitive, Struct

# What the metadata of a field asks of values; the first of it also where a file lacks the column.
_CHECKED_WHERE_NULL = ("delta.invariants", "delta.generationExpression")
_CHECKED = (*_CHECKED_WHERE_NULL, CHAR_VARCHAR_TYPE)


def incompatibility(before: Metadata, after: Metadata) -> str | None:
    """Return why a file written under `before` may be invalid under `after`, in words for a
    message.

    None if all such files are valid.
    """
    if before == after:
        return None
    try:
        old, new = schema_by_metadata(before), schema_by_metadata(after)
    except CorruptTable:
        return "its schema can't be read"
    if _partitioning(old, before) != _partitioning(new, after):
        return "the table is partitioned by other columns"
    if is_enabled(after) and not is_enabled(before):
        return "the table is to be one that Iceberg's readers know"
    constraint = next(_new_constraints(before.configuration, after.configuration), None)
    if constraint is not None:
        return f"constraint {constraint} is new"
    return next(_struct(old, new, ""), None)


def _partitioning(schema: Struct, metadata: Metadata) -> frozenset[str]:
    """Return the keys of partition values: physical names, without an order."""
    fields = {item.name: item for item in schema}
    return frozenset(
        fields[name].physical_name if name in fields else name
        for name in metadata.partition_columns
    )


def _new_constraints(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    """Yield the names of CHECK constraints that are new or changed."""
    known = {key.lower(): text for key, text in before.items()}
    for key, text in after.items():
        if key.lower().startswith(CONSTRAINT_PREFIX) and known.get(key.lower()) != text:
            yield key[len(CONSTRAINT_PREFIX) :]


def _struct(old: Struct, new: Struct, above: str) -> Iterator[str]:
    """Yield why files of the old columns are invalid for the new ones; `above` is the path of the
    struct, with a dot at its end, or ''.

    A column that files lack is fine if it is nullable and nothing checks its nulls. Dropped columns
    are fine.
    """
    by_name = {item.physical_name: item for item in old}
    logical = {item.name: item for item in old}
    for item in new:
        name = f"{above}{item.name}"
        before = by_name.get(item.physical_name)
        same_name = logical.get(item.name)
        if before is None and same_name is not None:
            yield f"column {name} has another physical name"
        elif before is None and not item.nullable:
            yield f"column {name} is new and NOT NULL"
        elif before is None:
            yield from _checked({}, item, name, _CHECKED_WHERE_NULL)
        else:
            yield from _field(before, item, name)


def _field(old: Field, new: Field, name: str) -> Iterator[str]:
    """Yield why values of the old column are invalid for the new one."""
    if old.nullable and not new.nullable:
        yield f"column {name} is NOT NULL now"
    yield from _checked(old.metadata, new, name, _CHECKED)
    yield from _type(old.type, new.type, name)


def _checked(
    before: Mapping[str, object], new: Field, name: str, keys: tuple[str, ...]
) -> Iterator[str]:
    """Yield a reason for each of these keys of field metadata that the new column has with another
    value.
    """
    for key in keys:
        if key in new.metadata and new.metadata[key] != before.get(key):
            yield f"values of column {name} are checked otherwise"


def _type(old: DataType, new: DataType, name: str) -> Iterator[str]:
    """Yield why values of the old type are invalid for the new one; equal and widened types are
    fine.
    """
    match old, new:
        case Primitive(), Primitive():
            if not (same_primitive(old, new) or is_widening(old, new)):
                yield f"column {name} was of type {old.name}"
        case Array(), Array():
            if old.contains_null and not new.contains_null:
                yield f"elements of column {name} are NOT NULL now"
            yield from _type(old.element, new.element, f"{name}.element")
        case Map(), Map():
            if old.value_contains_null and not new.value_contains_null:
                yield f"values of column {name} are NOT NULL now"
            yield from _type(old.key, new.key, f"{name}.key")
            yield from _type(old.value, new.value, f"{name}.value")
        case Struct(), Struct():
            yield from _struct(old, new, f"{name}.")
        case _:
            yield f"column {name} was of another type"
