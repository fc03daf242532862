"""Identity columns: their values, and how their marks move."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from txlake.errors import CorruptTable
from txlake.protocol.actions import Metadata
from txlake.protocol.identity import (
    LONG_MAX,
    LONG_MIN,
    IdentityColumn,
    identity_columns,
    identity_of,
    marks_of,
    metadata_with_marks,
    with_marks,
    without_marks,
)
from txlake.protocol.types import Field, Primitive, Struct, parse_schema, schema_to_string

LONG = Primitive("long")


def column(start: int = 1, step: int = 1, mark: int | None = None) -> IdentityColumn:
    return IdentityColumn(
        name="id", physical_name="id", start=start, step=step, mark=mark, allows_explicit=False
    )


def field(
    name: str = "id", *, start: Any = 1, step: Any = 1, mark: Any = None, explicit: Any = False,
    kind: Primitive = LONG,
) -> Field:  # fmt: skip
    about = {
        "delta.identity.start": start,
        "delta.identity.step": step,
        "delta.identity.highWaterMark": mark,
        "delta.identity.allowExplicitInsert": explicit,
    }
    known = {key: value for key, value in about.items() if value is not None}
    return Field(name, kind, True, known)


@pytest.mark.parametrize(
    ("start", "step", "mark", "next_one"),
    [
        (1, 1, None, 1),
        (1, 1, 1, 2),
        (10, 5, None, 10),
        (10, 5, 20, 25),
        (10, 5, 21, 25),  # another writer left it between two
        (10, 5, 24, 25),
        (10, 5, 3, 10),  # before the start
        (10, -5, None, 10),
        (10, -5, 0, -5),
        (10, -5, -1, -5),
        (10, -5, 30, 10),
        (1, 1, LONG_MAX, LONG_MAX + 1),
    ],
)
def test_the_next_value(start: int, step: int, mark: int | None, next_one: int) -> None:
    assert column(start, step).next_value(mark) == next_one


@pytest.mark.parametrize(
    ("step", "one", "other", "further"),
    [(1, 3, 7, 7), (-1, 3, 7, 3), (1, None, 7, 7), (-2, 7, None, 7), (1, None, None, None)],
)
def test_the_further_mark(
    step: int, one: int | None, other: int | None, further: int | None
) -> None:
    assert column(step=step).later_mark(one, other) == further
    assert column(step=step).later_mark(other, one) == further


@pytest.mark.parametrize(
    ("step", "first", "count"),
    [
        (1, LONG_MAX, 1),
        (1, LONG_MAX + 1, 0),
        (2, LONG_MAX - 1, 1),
        (2, LONG_MAX - 2, 2),
        (-1, LONG_MIN, 1),
        (-1, LONG_MIN - 1, 0),
        (-3, LONG_MIN + 3, 2),
        (LONG_MAX, LONG_MIN, 3),
    ],
)
def test_how_many_values_are_left(step: int, first: int, count: int) -> None:
    assert column(step=step).values_left(first) == count


@pytest.mark.parametrize(
    ("start", "step", "value", "mark"),
    [
        (1, 10, 1, 1),
        (1, 10, 2, 11),
        (1, 10, 11, 11),
        (1, 10, 0, None),
        (1, -10, 1, 1),
        (1, -10, 0, -9),
        (1, -10, 2, None),
        (0, 2, LONG_MAX, LONG_MAX + 1),
    ],
)
def test_the_mark_for_a_value(start: int, step: int, value: int, mark: int | None) -> None:
    assert column(start, step).mark_covering(value) == mark


def test_what_a_schema_says() -> None:
    named = field("b", start=5, step=-2, mark=1, explicit=True)
    schema = Struct(
        (
            field(),
            Field("n", LONG, True, {}),
            replace(named, metadata={**named.metadata, "delta.columnMapping.physicalName": "p"}),
        )
    )
    assert identity_columns(schema, "t") == (
        column(),
        IdentityColumn(name="b", physical_name="p", start=5, step=-2, mark=1, allows_explicit=True),
    )
    assert marks_of(schema, "t") == {"p": 1}
    assert identity_of(schema.fields[1], "t") is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"start": None},
        {"step": None},
        {"explicit": None},
        {"step": 0},
        {"start": "1"},
        {"start": True},
        {"start": LONG_MAX + 1},
        {"mark": "5"},
        {"explicit": "true"},
        {"kind": Primitive("integer")},
    ],
    ids=str,
)
def test_what_cant_be_followed_is_corrupt(wrong: dict[str, Any]) -> None:
    with pytest.raises(CorruptTable, match="t: identity column 'id': expected a bigint"):
        identity_of(field(**wrong), "t")


@pytest.mark.parametrize(
    ("step", "before", "given", "after"),
    [
        (5, None, 11, 11),
        (5, 11, 6, 11),  # it never moves back
        (5, 11, 12, 16),  # other engines want it on a value
        (5, 11, 0, 11),
        (5, None, 0, None),
        (-5, -4, -9, -9),
        (-5, -9, -4, -9),
        (2, None, LONG_MAX - 1, LONG_MAX),
        (4, None, LONG_MAX, LONG_MAX - 2),  # nothing is left beyond it
    ],
)
def test_marks_move_on(step: int, before: int | None, given: int, after: int | None) -> None:
    schema = Struct((field(step=step, mark=before), Field("n", LONG, True, {})))
    moved = with_marks(schema, {"id": given, "n": 7, "gone": 8}, "t")
    assert moved == Struct((field(step=step, mark=after), Field("n", LONG, True, {})))
    assert without_marks(moved) == Struct((field(step=step), Field("n", LONG, True, {})))


def test_metadata_is_left_alone_where_no_mark_moves() -> None:
    odd = json.dumps(json.loads(schema_to_string(Struct((field(mark=5),)))), indent=1)
    metadata = Metadata(id="m", schema_string=odd)
    for marks in ({}, {"id": 5}, {"id": 2}, {"n": 9}):
        assert metadata_with_marks(metadata, marks, "t") is metadata
    moved = metadata_with_marks(metadata, {"id": 6}, "t")
    assert marks_of(parse_schema(moved.schema_string), "t") == {"id": 6}
