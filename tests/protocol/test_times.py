from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlake.protocol.times import (
    DAY,
    SECOND,
    FarTime,
    epoch_date,
    epoch_days,
    is_zoned,
    micros_of,
    parse_time,
    time_of,
    time_text,
)

FIRST, LAST = epoch_days(1, 1, 1) * DAY, epoch_days(10_000, 1, 1) * DAY - 1
MICROS = st.integers(-(2**63), 2**63 - 1)


@given(MICROS, st.booleans())
def test_texts_are_read_back(micros: int, zoned: bool) -> None:
    text = time_text(micros, zoned=zoned)
    found = parse_time(text)
    assert (found.instant if zoned else found.wall) == micros
    assert (found.instant is None) is not zoned


@given(MICROS, st.booleans())
def test_times_are_as_many_microseconds(micros: int, zoned: bool) -> None:
    time = time_of(micros, zoned=zoned)
    assert micros_of(time) == micros
    assert is_zoned(time) is zoned
    assert isinstance(time, FarTime) is not (FIRST <= micros <= LAST)


@given(st.dates())
def test_days_are_pythons(day: date) -> None:
    days = epoch_days(day.year, day.month, day.day)
    assert date(1970, 1, 1) + timedelta(days=days) == day
    assert epoch_date(days) == (day.year, day.month, day.day)


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "1970-01-01 00:00:00"),
        (-1, "1969-12-31 23:59:59.999999"),
        (LAST + 1, "+10000-01-01 00:00:00"),
        (FIRST - 1, "0000-12-31 23:59:59.999999"),
        (epoch_days(-1, 2, 28) * DAY, "-0001-02-28 00:00:00"),
        (2**63 - 1, "+294247-01-10 04:00:54.775807"),
    ],
)
def test_texts_of_far_times(micros: int, text: str) -> None:
    assert time_text(micros, zoned=False) == text
    assert parse_time(text).wall == micros


def test_a_time_of_another_zone_is_its_instant() -> None:
    east = timezone(timedelta(hours=5, minutes=30))
    assert micros_of(datetime(1970, 1, 1, 5, 30, tzinfo=east)) == 0
    assert time_of(0, zoned=True) == datetime(1970, 1, 1, tzinfo=UTC)
    assert parse_time("1970-01-01 05:30:00+05:30").instant == 0
    assert parse_time("1970-01-01 05:30:00.5 +0530").instant == SECOND // 2


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "2020", "2020-01", "2020-13-01", "2021-02-29", "2020-01-01 24:00:00"),
        *("2020-01-01 00:60:00", "2020-01-01 00:00:60", "2020-01-01Z", "2020-01-01 12:00Z"),
        *("2020-01-01 12:00:00z", "2020-01-01 12:00:00+18:01", "2020-01-01 12:00:00+1:3"),
        *("2020-01-01 12:00:00+130", "2020-01-01 12:00:00 Europe/Oslo", "20200101"),
        *("2020-01-01\xa0", "\u0662\u0660\u0662\u0660-01-01", "+300000-01-01"),
    ],
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"no time|no offset|out of range|month must be"):
        parse_time(text)
