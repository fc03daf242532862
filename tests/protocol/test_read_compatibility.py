"""Which rows of an older schema can be shown in a newer one's columns."""

from __future__ import annotations

import pytest

from txlake.protocol.column_mapping import assign_column_ids
from txlake.protocol.read_compatibility import read_incompatibility
from txlake.protocol.type_text import parse_columns

READABLE = {
    "the same": ("a INT, b STRING", "a INT, b STRING"),
    "in another order": ("a INT, b STRING", "b STRING, a INT"),
    "a column more": ("a INT", "a INT, b STRING"),
    "a wider type": ("a INT, s STRUCT<x: FLOAT>", "a BIGINT, s STRUCT<x: DOUBLE>"),
    "another length": ("a VARCHAR(3)", "a VARCHAR(5)"),
    "another constraint on nulls": ("a INT, b INT NOT NULL", "a INT NOT NULL, b INT"),
    "more inside": (
        "a ARRAY<STRUCT<x: INT>>, m MAP<INT, STRUCT<y: INT>>",
        "a ARRAY<STRUCT<x: BIGINT, z: INT>>, m MAP<BIGINT, STRUCT<y: INT, z: INT>>",
    ),
    "of no type": ("a VOID, b ARRAY<VOID>", "a INT, b ARRAY<STRUCT<x: INT>>"),
}
UNREADABLE = {
    "a column less": ("a INT, b INT", "a INT", "column b was dropped or renamed"),
    "a field less": (
        "a ARRAY<STRUCT<x: INT, y: INT>>",
        "a ARRAY<STRUCT<x: INT>>",
        "column a.element.y was dropped or renamed",
    ),
    "a narrower type": ("a BIGINT", "a INT", "the type of column a was bigint, and is int"),
    "another type": ("a INT", "a STRING", "the type of column a was int, and is string"),
    "another key": ("m MAP<INT, INT>", "m MAP<STRING, INT>", "column m.key was int"),
    "another value": ("m MAP<INT, INT>", "m MAP<INT, DATE>", "column m.value was int"),
    "another kind": ("a STRUCT<x: INT>", "a INT", "column a was struct"),
}


@pytest.mark.parametrize("name", READABLE)
def test_readable(name: str) -> None:
    old, new = map(parse_columns, READABLE[name])
    assert read_incompatibility(old, new) is None


@pytest.mark.parametrize("name", UNREADABLE)
def test_unreadable(name: str) -> None:
    old, new, why = UNREADABLE[name]
    found = read_incompatibility(parse_columns(old), parse_columns(new))
    assert found is not None
    assert why in found


def test_a_column_of_a_former_ones_name() -> None:
    old, _ = assign_column_ids(parse_columns("a INT"), 0, lambda: "x")
    new, _ = assign_column_ids(parse_columns("a INT"), 1, lambda: "x")
    assert read_incompatibility(old, old) is None
    assert read_incompatibility(old, new) == "column a was dropped or renamed"
