"""Identity columns: their values, and the high-water mark up to which values are used.

Values are `start + k * step` with k from 0 on, each beyond the mark; beyond is greater for a
positive step and less for a negative one. Source: PROTOCOL.md, "Identity Columns".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from txlake.errors import CorruptTable
from txlake.protocol.actions import Metadata
from txlake.protocol.types import Field, Primitive, Struct, parse_schema, schema_to_string

START = "delta.identity.start"
STEP = "delta.identity.step"
HIGH_WATER_MARK = "delta.identity.highWaterMark"
ALLOWS_EXPLICIT = "delta.identity.allowExplicitInsert"
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityColumn:
    """An identity column of a table.

    Attributes:
        physical_name: its name in the data files.
        mark: the last value that counts as used; None where none was.
        allows_explicit: whether writers may insert values of their own: BY DEFAULT.
    """

    name: str
    physical_name: str
    start: int
    step: int
    mark: int | None
    allows_explicit: bool

    def next_value(self, mark: int | None) -> int:
        """Return the first value beyond a mark; it may exceed the range of a long."""
        if mark is None:
            return self.start
        return self.start + max(0, (mark - self.start) // self.step + 1) * self.step

    def later_mark(self, one: int | None, other: int | None) -> int | None:
        """Return the mark that leaves fewer values; None only if both are None."""
        if one is None or other is None:
            return other if one is None else one
        return max(one, other) if self.step > 0 else min(one, other)

    def values_left(self, first: int) -> int:
        """Return how many values a long can hold from the generated value `first` on."""
        last = LONG_MAX if self.step > 0 else LONG_MIN
        return max(0, (last - first) // self.step + 1)

    def mark_covering(self, value: int) -> int | None:
        """Return the mark for a column that holds `value`: the generated value at it or next beyond
        it.

        None for a value before the start, which no generated value can equal. The mark may exceed
        the range of a long.
        """
        if (value - self.start) * self.step < 0:
            return None
        return self.start - (self.start - value) // self.step * self.step


def is_identity(item: Field) -> bool:
    """Return whether a column is an identity column."""
    return START in item.metadata or STEP in item.metadata


def identity_of(item: Field, table: str) -> IdentityColumn | None:
    """Return the identity column that a field's metadata describes; None for any other column.

    Raises CorruptTable for inconsistent metadata.
    """
    if not is_identity(item):
        return None
    start, step = item.metadata.get(START), item.metadata.get(STEP)
    explicit, mark = item.metadata.get(ALLOWS_EXPLICIT), item.metadata.get(HIGH_WATER_MARK)
    is_whole = (
        _is_long(start)
        and _is_long(step)
        and step != 0
        and isinstance(explicit, bool)
        and (mark is None or _is_long(mark))
        and item.type == Primitive("long")
    )
    if not is_whole:
        found = {key: item.metadata.get(key) for key in (START, STEP, ALLOWS_EXPLICIT)}
        raise CorruptTable(
            f"{table}: identity column {item.name!r}: expected a bigint with a start, a step other "
            f"than 0 and whether values may be given, found {found}; another writer left it so"
        )
    assert isinstance(start, int)
    assert isinstance(step, int)
    assert mark is None or isinstance(mark, int)
    return IdentityColumn(
        name=item.name,
        physical_name=item.physical_name,
        start=start,
        step=step,
        mark=mark,
        allows_explicit=explicit is True,
    )


def _is_long(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and LONG_MIN <= value <= LONG_MAX


def identity_columns(schema: Struct, table: str) -> tuple[IdentityColumn, ...]:
    """Return the table's identity columns, in order. Raises CorruptTable as `identity_of`."""
    found = (identity_of(item, table) for item in schema)
    return tuple(one for one in found if one is not None)


def marks_of(schema: Struct, table: str) -> dict[str, int]:
    """Return the existing marks by physical name. Raises CorruptTable as `identity_of`."""
    found = identity_columns(schema, table)
    return {one.physical_name: one.mark for one in found if one.mark is not None}


def marks_differ(before: Metadata, after: Metadata) -> bool:
    """Return whether the identity columns' marks differ; True where they can't be read."""
    if before.schema_string == after.schema_string:
        return False
    try:
        old, new = (marks_of(parse_schema(one.schema_string), "") for one in (before, after))
    except CorruptTable:
        return True
    return old != new


def with_marks(schema: Struct, marks: Mapping[str, int], table: str) -> Struct:
    """Return the schema with its marks advanced to cover these values, by physical name; no mark
    moves back.

    Raises CorruptTable as `identity_of`.
    """
    return Struct(tuple(_with_mark(item, marks, table) for item in schema))


def _with_mark(item: Field, marks: Mapping[str, int], table: str) -> Field:
    """Return the field with its mark advanced to cover its value in `marks`; the same field if none
    does.
    """
    given = marks.get(item.physical_name)
    column = None if given is None else identity_of(item, table)
    if column is None or given is None:
        return item
    reached = column.mark_covering(given)
    if reached is None:
        return item
    if not LONG_MIN <= reached <= LONG_MAX:
        reached -= column.step  # no value is left beyond it
    mark = column.later_mark(column.mark, reached)
    if mark == column.mark:
        return item
    return replace(item, metadata={**item.metadata, HIGH_WATER_MARK: mark})


def metadata_with_marks(metadata: Metadata, marks: Mapping[str, int], table: str) -> Metadata:
    """Return the metadata with its schema's marks advanced as by `with_marks`; the same object if
    none moves.
    """
    if not marks:
        return metadata
    schema = parse_schema(metadata.schema_string)
    moved = with_marks(schema, marks, table)
    if moved == schema:
        return metadata
    return msgspec.structs.replace(metadata, schema_string=schema_to_string(moved))


def without_marks(schema: Struct) -> Struct:
    """Return the schema without high-water marks, so that identity columns start again."""
    return Struct(
        tuple(
            replace(item, metadata={k: v for k, v in item.metadata.items() if k != HIGH_WATER_MARK})
            if HIGH_WATER_MARK in item.metadata
            else item
            for item in schema
        )
    )
