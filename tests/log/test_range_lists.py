"""A disjunction of ranges has the verdicts of its comparisons, evaluated one by one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from txlake.log import skipping
from txlake.log.bounds import ColumnBounds, FileBounds
from txlake.log.predicates import (
    And,
    Comparison,
    LiteralValue,
    Not,
    Operator,
    Or,
    Predicate,
)
from txlake.log.range_lists import range_list
from txlake.protocol.types import DataType, Primitive

COLUMN = ("k",)
LONG, DATE, TEXT, DOUBLE = map(Primitive, ("long", "date", "string", "double"))
LEAST, GREATEST = -(2**63), 2**63 - 1
NUMBERS = st.integers(-12, 12) | st.sampled_from([LEAST, LEAST + 1, GREATEST - 1, GREATEST])
DAYS = st.integers(-12, 12).map(lambda days: date(2026, 1, 1) + timedelta(days))


def span(low: LiteralValue, high: LiteralValue) -> And:
    return And(
        (
            Comparison(COLUMN, Operator.GREATER_OR_EQUAL, low),
            Comparison(COLUMN, Operator.LESS_OR_EQUAL, high),
        )
    )


def ascending(values: Sequence[LiteralValue]) -> list[Predicate]:
    """Ranges of an even number of sorted values, some of one value."""
    return [span(values[place], values[place + 1]) for place in range(0, len(values) - 1, 2)]


def bounds_of(
    kind: DataType, files: Sequence[tuple[object, object, bool, bool]], arrow_type: pa.DataType
) -> ColumnBounds:
    lower, upper, nulls, values = zip(*files, strict=True) if files else ((), (), (), ())
    return ColumnBounds(
        kind,
        pa.array(lower, arrow_type),
        pa.array(upper, arrow_type),
        pa.array(nulls, pa.bool_()),
        pa.array(values, pa.bool_()),
    )


def verdicts(predicate: Predicate, bounds: ColumnBounds) -> list[list[bool]]:
    found = skipping._Evaluation(FileBounds(len(bounds.lower), {COLUMN: bounds})).of(predicate)
    return [found.true.to_pylist(), found.false.to_pylist(), found.null.to_pylist()]


def one_by_one(predicate: Predicate, bounds: ColumnBounds) -> list[list[bool]]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(skipping, "range_list", lambda parts: None)
        return verdicts(predicate, bounds)


def files_of(ends: st.SearchStrategy[object]) -> st.SearchStrategy[list[tuple[object, ...]]]:
    """Files' bounds, also unknown ones and, as corrupt statistics have them, lower above upper."""
    end = st.none() | ends
    return st.lists(st.tuples(end, end, st.booleans(), st.booleans()), max_size=5)


@settings(max_examples=300, deadline=None)
@given(st.lists(NUMBERS, min_size=8, max_size=16).map(sorted), files_of(NUMBERS))
def test_integers(ends: list[int], files: list[tuple[object, object, bool, bool]]) -> None:
    predicate = Or(tuple(ascending(ends)))
    bounds = bounds_of(LONG, files, pa.int64())
    assert verdicts(predicate, bounds) == one_by_one(predicate, bounds)
    assert verdicts(Not(predicate), bounds) == one_by_one(Not(predicate), bounds)


@settings(max_examples=100, deadline=None)
@given(st.lists(DAYS, min_size=8, max_size=12).map(sorted), files_of(DAYS))
def test_dates(ends: list[date], files: list[tuple[object, object, bool, bool]]) -> None:
    predicate = Or(tuple(ascending(ends)))
    bounds = bounds_of(DATE, files, pa.date32())
    assert verdicts(predicate, bounds) == one_by_one(predicate, bounds)


RANGES = tuple(span(low, low + 3) for low in range(0, 50, 10))


@pytest.mark.parametrize(
    ("parts", "kind", "arrow_type"),
    [
        ((*RANGES, span(20, 22)), LONG, pa.int64()),  # not ascending
        ((*RANGES, span(41, 60)), LONG, pa.int64()),  # overlapping
        ((*RANGES, span(70, 60)), LONG, pa.int64()),  # empty
        ((*RANGES, span(60, 2**63)), LONG, pa.int64()),  # a value that no row has
        ((*RANGES, span(60, date(2026, 1, 1))), LONG, pa.int64()),
        ((*RANGES, span(60, True)), LONG, pa.int64()),
        ((*RANGES, span(60, None)), LONG, pa.int64()),
        (RANGES, DOUBLE, pa.float64()),
        (tuple(span(f"{low}", f"{low}9") for low in range(1, 6)), TEXT, pa.string()),
    ],
)
def test_other_ranges_are_evaluated_one_by_one(
    parts: tuple[Predicate, ...], kind: DataType, arrow_type: pa.DataType
) -> None:
    ranges = range_list(parts)
    values = ["2", "29"] if arrow_type == pa.string() else [2, 29]
    bounds = bounds_of(kind, [(*values, True, True), (None, None, True, True)], arrow_type)
    assert ranges is not None
    assert ranges.within(bounds) is None
    assert verdicts(Or(parts), bounds) == one_by_one(Or(parts), bounds)


@pytest.mark.parametrize(
    "parts",
    [
        RANGES[:3],  # few
        (*RANGES, Comparison(COLUMN, Operator.EQUAL, 60)),
        (*RANGES, And((*span(60, 61).parts, Comparison(COLUMN, Operator.LESS, 62)))),
        (*RANGES, And(tuple(reversed(span(60, 61).parts)))),
        (*RANGES, And((span(60, 61).parts[0], Comparison(("x",), Operator.LESS_OR_EQUAL, 61)))),
        tuple(
            And(
                (
                    Comparison(("x" if low == 60 else "k",), Operator.GREATER_OR_EQUAL, low),
                    Comparison(("x" if low == 60 else "k",), Operator.LESS_OR_EQUAL, low),
                )
            )
            for low in range(0, 70, 10)
        ),
        (*RANGES, And((Comparison(COLUMN, Operator.GREATER, 60), span(60, 61).parts[1]))),
        (*RANGES, And((span(60, 61).parts[0], Comparison(COLUMN, Operator.LESS, 61)))),
    ],
)
def test_other_disjunctions_are_no_lists_of_ranges(parts: tuple[Predicate, ...]) -> None:
    assert range_list(parts) is None
