"""The rows that have a key of the source are those that a dictionary finds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from txlake.local import key_join
from txlake.local.key_join import SourceKeys

LEAST, GREATEST = -(2**63), 2**63 - 1
INTEGERS = st.none() | st.integers(-20, 20) | st.sampled_from([LEAST, GREATEST, 10**6])


def expected(
    theirs: Sequence[tuple[object, ...]], ours: Sequence[tuple[object, ...]]
) -> tuple[list[int], list[int]]:
    numbers = {key: number for number, key in enumerate(theirs) if None not in key}
    pairs = [(index, numbers[key]) for index, key in enumerate(ours) if key in numbers]
    return [index for index, _ in pairs], [number for _, number in pairs]


def columns(rows: Sequence[tuple[object, ...]], *types: pa.DataType) -> list[pa.ChunkedArray]:
    """The rows' columns, each in two chunks."""
    half = len(rows) // 2
    return [
        pa.chunked_array(
            [[row[place] for row in rows[:half]], [row[place] for row in rows[half:]]], kind
        )
        for place, kind in enumerate(types)
    ]


def found(source: SourceKeys, keys: list[pa.ChunkedArray]) -> tuple[list[int], list[int]]:
    indexes, numbers = source.matches(keys)
    return indexes.tolist(), numbers.tolist()


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(INTEGERS), unique=True, max_size=20),
    st.lists(st.tuples(INTEGERS), max_size=40),
    st.sampled_from([0, 8]),
)
def test_one_integer(
    theirs: list[tuple[object, ...]], ours: list[tuple[object, ...]], places_max: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(key_join, "_PLACES_PER_ROW_MAX", places_max)
        source = SourceKeys.of(columns(theirs, pa.int64()))
        assert source.is_unique
        assert found(source, columns(ours, pa.int64())) == expected(theirs, ours)
        small = [row for row in ours if row[0] is None or abs(int(str(row[0]))) < 100]
        assert found(source, columns(small, pa.int8())) == expected(theirs, small)


@pytest.mark.parametrize(
    ("types", "theirs", "ours"),
    [
        ([pa.large_string()], [("a",), (None,), ("",)], [("",), ("b",), ("a",), (None,), ("a",)]),
        ([pa.date32()], [(date(2026, 1, 2),)], [(date(2026, 1, 1),), (date(2026, 1, 2),)]),
        (
            [pa.int32(), pa.string()],
            [(1, "a"), (1, "b"), (None, "a"), (2, None)],
            [(1, "b"), (1, "c"), (None, "a"), (2, None), (1, "a"), (1, "b")],
        ),
    ],
)
def test_other_keys(
    types: list[pa.DataType], theirs: list[tuple[object, ...]], ours: list[tuple[object, ...]]
) -> None:
    source = SourceKeys.of(columns(theirs, *types))
    assert source.is_unique
    assert found(source, columns(ours, *types)) == expected(theirs, ours)


@pytest.mark.parametrize(
    ("rows", "is_unique"),
    [
        ([(2,), (1,), (2,)], False),
        ([(2,), (1,), (3,)], True),
        ([(None,), (1,), (None,)], True),
        ([("b",), ("a",), ("b",)], False),
        ([(1, "a"), (1, "b")], True),
        ([(1, "a"), (2, "b"), (1, "a")], False),
    ],
)
def test_whether_keys_are_unique(rows: list[tuple[object, ...]], *, is_unique: bool) -> None:
    types = [pa.int64() if isinstance(value, int | None) else pa.string() for value in rows[0]]
    assert SourceKeys.of(columns(rows, *types)).is_unique is is_unique
