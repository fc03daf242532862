from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlake.log.predicate_codec import (
    literal_from_json,
    literal_to_json,
    predicate_from_json,
    predicate_to_json,
)
from txlake.log.predicates import (
    Always,
    And,
    Comparison,
    In,
    IsNull,
    LiteralValue,
    LocalTime,
    Not,
    Opaque,
    Operator,
    Or,
    Predicate,
    StartsWith,
)
from txlake.protocol.times import FarTime

LITERALS: tuple[LiteralValue, ...] = (
    None,
    True,
    False,
    0,
    -(2**63),
    2**64,
    "",
    "O'Brien \u0000 \U0001f600 \ud800",
    0.0,
    -0.0,
    1e-320,
    float("inf"),
    float("-inf"),
    float("nan"),
    Decimal("1.50"),
    Decimal("-0E+3"),
    Decimal("9" * 38),
    b"",
    b"\x00\xff",
    date(1, 1, 1),
    date(9999, 12, 31),
    datetime.fromisoformat("2024-02-29T23:59:59.999999"),
    datetime(1, 1, 1, tzinfo=UTC),
    FarTime(-(2**62), zoned=True),
    FarTime(2**62, zoned=False),
    LocalTime(datetime.fromisoformat("2024-01-01"), starts_day=True),
    LocalTime(FarTime(2**62, zoned=False)),
)
COLUMN = ("a", "b.c")


def _again(value: object) -> object:
    """The value after a trip through JSON's text."""
    return json.loads(json.dumps(value, allow_nan=False))


@pytest.mark.parametrize("literal", LITERALS, ids=repr)
def test_each_literal_comes_back_as_it_was(literal: LiteralValue) -> None:
    back = literal_from_json(_again(literal_to_json(literal)))
    assert type(back) is type(literal)
    assert repr(back) == repr(literal)


def test_literals_that_python_calls_equal_differ() -> None:
    texts = {json.dumps(literal_to_json(one)) for one in (0, False, 0.0, -0.0, Decimal(0))}
    assert len(texts) == 5


def test_equal_literals_have_one_text() -> None:
    east = timezone(timedelta(hours=2))
    assert literal_to_json(datetime(2024, 1, 1, 2, tzinfo=east)) == literal_to_json(
        datetime(2024, 1, 1, tzinfo=UTC)
    )
    assert literal_to_json(float("nan")) == literal_to_json(-float("nan"))


PREDICATES: st.SearchStrategy[Predicate] = st.recursive(
    st.one_of(
        st.builds(
            Comparison, st.just(COLUMN), st.sampled_from(Operator), st.sampled_from(LITERALS)
        ),
        st.builds(In, st.just(COLUMN), st.lists(st.sampled_from(LITERALS)).map(tuple)),
        st.just(IsNull(COLUMN)),
        st.builds(StartsWith, st.just(("a",)), st.text()),
        st.sampled_from([Always(True), Always(False), Always(None)]),
        st.builds(
            Opaque,
            st.text(),
            st.none() | st.frozensets(st.sampled_from([COLUMN, ("x",), ("y", "z")])),
            st.booleans(),
        ),
    ),
    lambda inner: st.one_of(
        st.lists(inner).map(lambda parts: And(tuple(parts))),
        st.lists(inner).map(lambda parts: Or(tuple(parts))),
        inner.map(Not),
    ),
    max_leaves=8,
)


@given(PREDICATES)
def test_each_predicate_comes_back_as_it_was(predicate: Predicate) -> None:
    value = predicate_to_json(predicate)
    back = predicate_from_json(_again(value))
    assert json.dumps(predicate_to_json(back)) == json.dumps(value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "and",
        {},
        {"and": [], "or": []},
        {"and": {}},
        {"nand": []},
        {"not": None},
        {"compare": [["a"], "~", 1]},
        {"compare": [["a"], "=", 1.5]},
        {"compare": [[], "=", 1]},
        {"compare": [["a"], "="]},
        {"compare": ["a", "=", 1]},
        {"in": [["a"], 1]},
        {"in": [[1], []]},
        {"is_null": "a"},
        {"starts_with": [["a"], 1]},
        {"always": 1},
        {"opaque": ["x", None]},
        {"opaque": ["x", "a", False]},
        {"opaque": ["x", None, 0]},
    ],
    ids=str,
)
def test_what_is_no_predicate_is_an_error(value: object) -> None:
    with pytest.raises(ValueError):
        predicate_from_json(value)


@pytest.mark.parametrize(
    "value",
    [
        1.5,
        [],
        {"float": 1},
        {"float": "x"},
        {"decimal": "x"},
        {"binary": "?"},
        {"date": "2024-13-01"},
        {"time": [1]},
        {"time": [1, 1]},
        {"local_time": ["1", True]},
        {"interval": "1"},
        {"float": "1", "double": "1"},
    ],
    ids=str,
)
def test_what_is_no_literal_is_an_error(value: object) -> None:
    with pytest.raises(ValueError):
        literal_from_json(value)
