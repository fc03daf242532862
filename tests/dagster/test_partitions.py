"""The condition in SQL that an asset's partitions become."""

from __future__ import annotations

import datetime
from zoneinfo import ZoneInfo

import pytest

from txlake.dagster.partitions import Window, all_of, any_of, condition
from txlake.errors import InvalidRequest

TYPES = {
    "Day": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "text": "string",
    "year": "int",
    "price": "decimal(8,2)",
}


def day(number: int, zone: str = "UTC") -> Window:
    first = datetime.datetime(2026, 1, number, tzinfo=ZoneInfo(zone))
    return first, first + datetime.timedelta(days=1)


@pytest.mark.parametrize(
    ("column", "keys", "expected"),
    [
        ("text", ["a", "it's\\"], r"`text` IN ('a', 'it\'s\\')"),
        ("year", ["2026", "7"], "`year` IN (2026, 7)"),
        ("day", ["2026-01-02"], "`day` IN (DATE '2026-01-02')"),
        ("text", [], "1 = 0"),
    ],
)
def test_keys(column: str, keys: list[str], expected: str) -> None:
    assert condition(column, TYPES, keys) == expected


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("DAY", "(`DAY` >= DATE '2026-01-02' AND `DAY` < DATE '2026-01-03')"),
        (
            "at",
            (
                "(`at` >= TIMESTAMP '2026-01-02 00:00:00+01:00' AND "
                "`at` < TIMESTAMP '2026-01-03 00:00:00+01:00')"
            ),
        ),
        (
            "local",
            (
                "(`local` >= TIMESTAMP_NTZ '2026-01-02 00:00:00' AND "
                "`local` < TIMESTAMP_NTZ '2026-01-03 00:00:00')"
            ),
        ),
        ("text", "`text` IN ('2026-01-02')"),
    ],
)
def test_a_window_of_time_is_in_the_column_s_type(column: str, expected: str) -> None:
    assert condition(column, TYPES, ["2026-01-02"], [day(2, "Europe/Berlin")]) == expected


def test_windows_that_follow_each_other_are_one_range() -> None:
    found = condition("day", TYPES, ["x", "y", "z"], [day(3), day(6), day(2)])
    assert found == (
        "(`day` >= DATE '2026-01-02' AND `day` < DATE '2026-01-04') OR "
        "(`day` >= DATE '2026-01-06' AND `day` < DATE '2026-01-07')"
    )


def test_conditions_of_several_columns() -> None:
    assert any_of([all_of(["a = 1", "b = 2"]), "c"]) == "((a = 1) AND (b = 2)) OR (c)"
    assert any_of([]) == "1 = 0"


@pytest.mark.parametrize(
    ("column", "key", "windows", "message"),
    [
        ("gone", "a", [], "expected one of the table's columns, Day, at"),
        ("year", "a", [], "expected a key that is a int, found 'a'"),
        ("day", "02.01.2026", [], "expected a key that is a date, found '02.01.2026'"),
        ("price", "1", [], r"found decimal\(8,2\)"),
        ("at", "1", [], "found timestamp"),
        (
            "day",
            "x",
            [(day(2)[0], day(2)[0] + datetime.timedelta(hours=1))],
            "a partition ends at 2026-01-02 01:00:00, and a DATE has whole days",
        ),
    ],
)
def test_what_makes_no_condition(
    column: str, key: str, windows: list[Window], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        condition(column, TYPES, [key], windows)
