"""The type changes that the protocol allows, and their record in the schema.

Source: PROTOCOL.md, "Type Widening".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from txlake.protocol.types import Array, DataType, Field, Map, Primitive

TYPE_CHANGES = "delta.typeChanges"
FEATURES = frozenset({"typeWidening", "typeWidening-preview"})
Widens: TypeAlias = Callable[[Primitive, Primitive], bool]
"""A rule: whether rows of the second type widen a column of the first type to theirs."""
_INTEGERS = ("byte", "short", "integer", "long")
# The decimal precision of a whole number, as readers of Parquet's INT32 and INT64 take it.
_INTEGER_PRECISION = {"byte": 10, "short": 10, "integer": 10, "long": 20}


def is_widening(old: Primitive, new: Primitive) -> bool:
    """Return whether the protocol lets a column of type `old` become `new`, a different type."""
    if old == new or same_primitive(old, new):
        return False
    if old.name in _INTEGERS and new.name in _INTEGERS:
        return _INTEGERS.index(old.name) < _INTEGERS.index(new.name)
    if new.name == "double":
        return old.name in ("float", "byte", "short", "integer")
    if (old.name, new.name) == ("date", "timestamp_ntz"):
        return True
    target = new.decimal
    if target is None:
        return False
    source = old.decimal
    if source is None:
        if old.name not in _INTEGER_PRECISION:
            return False
        source = (_INTEGER_PRECISION[old.name], 0)
    added_precision, added_scale = target[0] - source[0], target[1] - source[1]
    return added_precision >= added_scale >= 0


def is_evolution(old: Primitive, new: Primitive) -> bool:
    """Return whether a write may widen `old` to `new` by itself.

    Whole numbers become floating-point or decimal only when a user requests that type by name.
    """
    crosses = old.name in _INTEGERS and new.name not in _INTEGERS
    return is_widening(old, new) and not crosses


def is_same_in_files(old: Primitive, new: Primitive) -> bool:
    """Return whether `new` is wider and stored alike in Parquet: byte, short and integer, as INT32.

    Readers read each of the three in files of the others, so no table feature is needed.
    """
    return is_widening(old, new) and new.name in ("short", "integer")


def never_widens(old: Primitive, new: Primitive) -> bool:
    """Return False: types stay, and the writer casts."""
    return False


def same_primitive(one: Primitive, other: Primitive) -> bool:
    """Return whether both name one type: `decimal(10, 2)` is `decimal(10,2)`."""
    return one.name == other.name or (one.decimal is not None and one.decimal == other.decimal)


def type_changes(
    old: DataType, new: DataType, path: tuple[str, ...] = ()
) -> tuple[dict[str, object], ...]:
    """Return the widenings between two types of one field, as `delta.typeChanges` holds them.

    Goes through arrays and maps; fields of structs record their own changes.
    """
    match old, new:
        case Primitive(), Primitive():
            if not is_widening(old, new):
                return ()
            change: dict[str, object] = {"fromType": _recorded(old), "toType": _recorded(new)}
            return ({**change, "fieldPath": ".".join(path)} if path else change,)
        case Array(), Array():
            return type_changes(old.element, new.element, (*path, "element"))
        case Map(), Map():
            return type_changes(old.key, new.key, (*path, "key")) + type_changes(
                old.value, new.value, (*path, "value")
            )
        case _:
            return ()


def with_type(item: Field, new: DataType) -> Field:
    """Return the field with a new type; a widening is recorded in its metadata."""
    changes = type_changes(item.type, new)
    if not changes:
        return replace(item, type=new)
    before = item.metadata.get(TYPE_CHANGES)
    recorded = [*(before if isinstance(before, list) else ()), *changes]
    return replace(item, type=new, metadata={**item.metadata, TYPE_CHANGES: recorded})


def _recorded(data_type: Primitive) -> str:
    decimal = data_type.decimal
    return data_type.name if decimal is None else f"decimal({decimal[0]},{decimal[1]})"
