from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlake.errors import CorruptTable
from txlake.protocol.statistics import FileStatistics, format_bound, loosen


def test_statistics_are_written_as_the_protocol_has_them() -> None:
    statistics = FileStatistics(
        num_records=3,
        min_values={"a": 1, "s": {"b": "x"}, "d": Decimal("1.50"), "none": None},
        max_values={"a": 5, "s": {"b": "y"}, "d": Decimal("2.50")},
        null_count={"a": 0, "s": {"b": 1}},
    )
    assert statistics.to_json() == (
        '{"numRecords":3,"minValues":{"a":1,"s":{"b":"x"},"d":1.50},'
        '"maxValues":{"a":5,"s":{"b":"y"},"d":2.50},"nullCount":{"a":0,"s":{"b":1}},'
        '"tightBounds":true}'
    )


def test_what_is_written_reads_back() -> None:
    statistics = FileStatistics(
        num_records=3,
        min_values={"a": 1, "f": Decimal("0.1"), "big": 10**30},
        max_values={"a": 2},
        null_count={"a": 0},
        tight_bounds=False,
    )
    assert FileStatistics.from_json(statistics.to_json()) == statistics


@pytest.mark.parametrize("text", [None, ""])
def test_no_statistics(text: str | None) -> None:
    assert FileStatistics.from_json(text) == FileStatistics()


def test_bounds_are_tight_unless_they_say_otherwise() -> None:
    assert FileStatistics.from_json("{}").tight_bounds
    assert FileStatistics.from_json('{"tightBounds":null,"minValues":null}').tight_bounds
    assert not FileStatistics.from_json('{"tightBounds":false}').tight_bounds


@pytest.mark.parametrize("text", ["[]", "{", "1"])
def test_what_are_no_statistics(text: str) -> None:
    with pytest.raises(CorruptTable, match="file statistics"):
        FileStatistics.from_json(text)
    with pytest.raises(CorruptTable, match="file statistics"):
        loosen(text)


def test_loosening_changes_nothing_else() -> None:
    text = (
        '{"numRecords":2,"minValues":{"d":0.10000000000000000000001,"n":12345678901234567890123}}'
    )
    assert loosen(text) == text[:-1] + ',"tightBounds":false}'
    text = '{"tightBounds":true,"unknown":[1],"numRecords":2}'
    assert json.loads(loosen(text)) == {**json.loads(text), "tightBounds": False}


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (1, 1),
        (True, True),
        (1.5, 1.5),
        (float("nan"), None),
        (float("inf"), None),
        (Decimal("1.50"), Decimal("1.50")),
        (date(2020, 1, 2), "2020-01-02"),
        (datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC), "2020-01-02T03:04:05.000Z"),
        (datetime(2020, 1, 2, 3, 4, 5, 123_000, tzinfo=UTC), "2020-01-02T03:04:05.123Z"),
        (datetime(2020, 1, 2, 3, 4, 5, 123_456, tzinfo=UTC), "2020-01-02T03:04:05.123456Z"),
        (
            datetime(2020, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=1))),
            "2020-01-02T02:04:05.000Z",
        ),
        (datetime(2020, 1, 2, 3, 4, 5), "2020-01-02T03:04:05.000"),  # noqa: DTZ001
        (b"x", None),
        (None, None),
    ],
)
def test_how_a_bound_is_written(value: object, written: object) -> None:
    assert format_bound(value, upper=False) == written
    assert format_bound(value, upper=True) == written


LAST = "\U0010ffff"


@pytest.mark.parametrize(
    ("value", "lower", "upper"),
    [
        ("a" * 32, "a" * 32, "a" * 32),
        ("a" * 33, "a" * 32, "a" * 32 + "\x7f"),
        ("a" * 32 + "\x7f", "a" * 32, "a" * 32 + LAST),
        ("a" * 32 + "é", "a" * 32, "a" * 32 + LAST),
        ("a" * 32 + LAST, "a" * 32, "a" * 32 + LAST),
        ("a" * 32 + LAST + "z", "a" * 32, "a" * 32 + LAST + LAST),
    ],
)
def test_long_texts_are_cut_to_bounds(value: str, lower: str, upper: str) -> None:
    assert format_bound(value, upper=False) == lower
    assert format_bound(value, upper=True) == upper


@given(st.text(st.sampled_from(f"a\x7f\x80é{LAST}"), max_size=12), st.integers(0, 6))
def test_a_cut_text_is_still_a_bound(value: str, length: int) -> None:
    lower = format_bound(value, upper=False, prefix_length=length)
    upper = format_bound(value, upper=True, prefix_length=length)
    assert isinstance(lower, str)
    assert isinstance(upper, str)
    assert lower.encode() <= value.encode() <= upper.encode()
