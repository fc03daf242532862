"""Rules of time zones; tests/spark/test_session_zones.py compares those of all zones with Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.zones import BERLIN, zone_of
from txlake.log.time_zones import UTC_ZONE, Transition, YearlyRule, ZoneRules, parse_rules
from txlake.protocol.times import SECOND, parse_time, time_text

# +05:30, as Java 17 writes it.
FIXED = bytes.fromhex(
    "aced0005737200126a6176612e74696d652e7a6f6e652e53657284b0feeb7c1a53be0c00007870"
    "770c01000000001600000000160078"
)  # fmt: skip


def instant(zone: ZoneRules, text: str) -> str | None:
    (found,) = zone.instants([parse_time(text).wall])
    return None if found is None else time_text(found, zoned=True).removesuffix(".000000Z")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-01-31 12:00:00", "2024-01-31T11:00:00"),
        ("2024-07-31 12:00:00", "2024-07-31T10:00:00"),
        ("2024-12-31 23:59:59", "2024-12-31T22:59:59"),
        # Clocks skip from 2 to 3.
        ("2024-03-31 01:59:59", "2024-03-31T00:59:59"),
        ("2024-03-31 02:00:00", "2024-03-31T01:00:00"),
        ("2024-03-31 02:59:59", "2024-03-31T01:59:59"),
        ("2024-03-31 03:00:00", "2024-03-31T01:00:00"),
        # They show 2 to 3 twice.
        ("2024-10-27 01:59:59", "2024-10-26T23:59:59"),
        ("2024-10-27 02:00:00", "2024-10-27T00:00:00"),
        ("2024-10-27 02:59:59", "2024-10-27T00:59:59"),
        ("2024-10-27 03:00:00", "2024-10-27T02:00:00"),
        ("9999-12-31 23:59:59", "9999-12-31T22:59:59"),
        ("0001-01-01 00:00:00", "0000-12-31T23:00:00"),
    ],
)
def test_wall_clock_times_are_instants(text: str, expected: str) -> None:
    assert instant(BERLIN, text) == expected


def test_before_between_and_after_changes_that_were() -> None:
    zone = ZoneRules("z", 900, (Transition(0, 900, 7200), Transition(86_400, 7200, -3600)))
    texts = {
        "1970-01-01 00:14:59": "1969-12-31T23:59:59",
        "1970-01-01 00:15:00": "1970-01-01T00:00:00",  # skipped
        "1970-01-01 02:00:00": "1970-01-01T00:00:00",
        "1970-01-02 01:59:59": "1970-01-01T23:59:59",  # the first of two
        "1970-01-02 02:00:00": "1970-01-02T03:00:00",
        "2400-01-01 00:00:00": "2400-01-01T01:00:00",
    }
    assert {text: instant(zone, text) for text in texts} == texts
    assert instant(UTC_ZONE, "1970-01-01") == "1970-01-01T00:00:00"
    assert instant(zone_of(-5), "9999-12-31 23:00:00") == "+10000-01-01T04:00:00"


def test_a_day_begins_when_clocks_skipped_its_midnight() -> None:
    """They skipped from 23:30 to 0:30."""
    at = parse_time("2000-01-01 23:30:00").wall // SECOND
    zone = ZoneRules("z", 0, (Transition(at, 0, 3600),))
    midnight = parse_time("2000-01-02").wall
    assert zone.day_starts([midnight]) == [at * SECOND]
    assert zone.instants([midnight]) == [(at + 1800) * SECOND]
    later = parse_time("2000-01-03").wall
    assert zone.day_starts([later]) == [later - 3600 * SECOND]


def test_what_64_bits_dont_hold_is_no_instant() -> None:
    assert zone_of(-5).instants([2**63 - 1]) == [None]
    assert zone_of(5).instants([-(2**63)]) == [None]


@pytest.mark.parametrize(
    ("rule", "day"),
    [
        ({"month": 3, "day": 8, "weekday": 7}, "2024-03-10"),  # the Sunday on or after
        ({"month": 3, "day": 10, "weekday": 7}, "2024-03-10"),
        ({"month": 10, "day": -1, "weekday": 7}, "2024-10-27"),  # the last Sunday
        ({"month": 2, "day": -1, "weekday": None}, "2024-02-29"),
        ({"month": 12, "day": -1, "weekday": 2}, "2024-12-31"),
        ({"month": 9, "day": 30, "weekday": None}, "2024-09-30"),
    ],
)
def test_the_day_of_a_yearly_change(rule: dict[str, int | None], day: str) -> None:
    base = YearlyRule(
        month=1, day=1, weekday=None, time_s=7200, clock=1, standard_s=-18_000, before_s=-14_400,
        after_s=-18_000,
    )  # fmt: skip
    change = replace(base, **rule)  # type: ignore[arg-type]
    midnight = parse_time(day).wall // SECOND
    assert change.transition(2024).at_s == midnight + 7200 + 14_400
    assert replace(change, clock=0).transition(2024).at_s == midnight + 7200
    assert replace(change, clock=2).transition(2024).at_s == midnight + 7200 + 18_000
    assert replace(change, time_s=86_400).transition(2024).at_s == midnight + 86_400 + 14_400


def test_rules_as_java_writes_them() -> None:
    assert parse_rules("+05:30", FIXED) == ZoneRules("+05:30", 19_800)


@pytest.mark.parametrize("data", [b"", FIXED[:-8], FIXED.replace(b"zone.Ser", b"zone.Sex")])
def test_other_objects_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"time zone|expected an object"):
        parse_rules("Nowhere", data)
