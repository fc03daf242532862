"""Whether rows of an older schema can be read in a newer schema's columns.

They can if the newer schema only adds columns or widens types; a null can be read even where none
is allowed any more. Physical names and column ids count: a column dropped and added again by its
name is another one.
"""

from __future__ import annotations

from txlake.protocol.schema_rules import column_text
from txlake.protocol.type_text import short_text
from txlake.protocol.type_widening import is_widening, same_primitive
from txlake.protocol.types import Array, DataType, Field, Map, Primitive, Struct

_Path = tuple[str, ...]


def read_incompatibility(old: Struct, new: Struct) -> str | None:
    """Return why rows of the old schema can't be read in the new one; None where they can."""
    return _struct(old, new, ())


def _struct(old: Struct, new: Struct, path: _Path) -> str | None:
    """Return the first field's reason why it can't be read; None if all can.

    New fields don't matter.
    """
    for item in old:
        found = _field(item, new.find(item.name), (*path, item.name))
        if found is not None:
            return found
    return None


def _field(old: Field, new: Field | None, path: _Path) -> str | None:
    """Return why the field at `path` can't be read; None if it can.

    It has to be the same column.
    """
    if new is None or new.physical_name != old.physical_name or new.column_id != old.column_id:
        return f"column {column_text(path)} was dropped or renamed"
    return _type(old.type, new.type, path)


def _type(old: DataType, new: DataType, path: _Path) -> str | None:
    """Return why values of the old type can't be read in the new one, parts included; None if they
    can.
    """
    match old, new:
        case Struct(), Struct():
            return _struct(old, new, path)
        case Array(), Array():
            return _type(old.element, new.element, (*path, "element"))
        case Map(), Map():
            key = _type(old.key, new.key, (*path, "key"))
            return key or _type(old.value, new.value, (*path, "value"))
        case Primitive(), Primitive():
            texts = old.is_string and new.is_string
            if texts or same_primitive(old, new) or is_widening(old, new) or old.name == "void":
                return None
        case Primitive("void"), _:
            return None
        case _:
            pass
    return f"the type of column {column_text(path)} was {short_text(old)}, and is {short_text(new)}"
