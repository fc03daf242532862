"""The declared lengths of CHAR(n) and VARCHAR(n) columns."""

from __future__ import annotations

import re

from txlake.protocol.type_text import CHAR_VARCHAR_TYPE, declared_type, short_text
from txlake.protocol.types import Array, DataType, Field, Map, Primitive, Struct

_BOUNDED = re.compile(r"(char|varchar)\(\s*(\d+)\s*\)", re.IGNORECASE)


def length_of(item: Field) -> int | None:
    """Return the maximum length in characters of a CHAR or VARCHAR column; None for any other
    column.
    """
    bound = _bound(declared_type(item))
    return None if bound is None else bound[1]


def is_bounded(item: Field) -> bool:
    """Return whether the column is a CHAR or VARCHAR, or contains one."""
    return _has_bound(declared_type(item)) or _has_bound(item.type)


def is_padded(item: Field) -> bool:
    """Return whether the column itself is a CHAR, whose values Spark pads with blanks."""
    bound = _bound(declared_type(item))
    return bound is not None and bound[0]


def length_metadata(item: Field) -> dict[str, object]:
    """Return the metadata by which a frame's column carries its declared CHAR or VARCHAR type; {}
    for any other column, nested types included.
    """
    is_bounded = length_of(item) is not None
    return {CHAR_VARCHAR_TYPE: short_text(declared_type(item))} if is_bounded else {}


def _bound(data_type: DataType) -> tuple[bool, int] | None:
    """Return whether the type is CHAR (else VARCHAR) and its length; None for any other type."""
    match = _BOUNDED.fullmatch(data_type.name) if isinstance(data_type, Primitive) else None
    return None if match is None else (match[1].lower() == "char", int(match[2]))


def _has_bound(data_type: DataType) -> bool:
    """Return whether the type is CHAR or VARCHAR, or contains one at any depth."""
    match data_type:
        case Struct(fields):
            return any(is_bounded(item) for item in fields)
        case Array(element, _):
            return _has_bound(element)
        case Map(key, value, _):
            return _has_bound(key) or _has_bound(value)
        case _:
            return _bound(data_type) is not None
