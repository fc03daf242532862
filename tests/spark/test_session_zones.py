"""The rules of a session's time zone are those by which Spark reads times, for all zones."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from txlake.log.coercion import as_timestamp, as_wall_time
from txlake.log.predicate_nodes import LocalTime
from txlake.log.time_zones import ZoneRules, parse_rules
from txlake.protocol.times import DAY, SECOND, epoch_days, micros_of, time_text
from txlake.spark import session_zones
from txlake.spark.session_zones import RemoteZone, session_zone

NOT_LISTED = ("+05:30", "-09:00", "+1:15", "GMT+1", "UTC+01:00", "UT-3", "Z", "EST", "PST", "CTT")
FIRST, LAST = epoch_days(1, 1, 1) * DAY, epoch_days(10_000, 1, 1) * DAY - SECOND
DRAWN_PER_ZONE = 60


def all_zones(spark: SparkSession) -> list[str]:
    java: Any = spark._jvm
    known = java.java.lang.String.join(",", java.java.time.ZoneId.getAvailableZoneIds())
    return sorted({*known.split(","), *NOT_LISTED})


def walls_of(rules: ZoneRules, chance: random.Random) -> Iterator[int]:
    """Both ends of every gap and overlap, times within, and times drawn from all years."""
    yearly = (rule.transition(year) for rule in rules.yearly for year in (2038, 2400, 9999))
    for one in chain(rules.transitions, yearly):
        for edge in (one.at_s + one.before_s, one.at_s + one.after_s):
            yield from ((edge - 1) * SECOND, edge * SECOND, edge * SECOND + 1)
        yield (2 * one.at_s + one.before_s + one.after_s) // 2 * SECOND
    yield from (FIRST, LAST)
    for year in (1, 1800, 1970, 2037):
        for _ in range(DRAWN_PER_ZONE // 4):
            yield chance.randrange(
                epoch_days(year, 1, 1) * DAY, LAST if year == 2037 else 3 * 10**15
            )


def test_times_of_all_zones_are_the_instants_that_spark_reads(spark: SparkSession) -> None:
    chance = random.Random(35)
    zones: list[str] = []
    walls: list[int] = []
    mine: list[int | None] = []
    for name in all_zones(spark):
        rules = parse_rules(name, session_zones._serialized(spark, name))
        times = [wall for wall in walls_of(rules, chance) if FIRST <= wall <= LAST]
        zones += [name] * len(times)
        walls += times
        mine += rules.instants(times)
    texts = [
        f"{time_text(wall, zoned=False)} {zone}" for wall, zone in zip(walls, zones, strict=True)
    ]
    frame = spark.createDataFrame(pa.table({"text": texts, "mine": pa.array(mine, pa.int64())}))
    theirs = F.unix_micros(F.try_to_timestamp("text"))
    wrong = frame.withColumn("theirs", theirs).where("NOT (mine <=> theirs)").limit(20).collect()
    assert not wrong
    assert len(mine) > 100_000
    assert len(set(zones)) > 500


ZONES = ("America/New_York", "Europe/Oslo", "Europe/Amsterdam", "Pacific/Apia", "America/Toronto")


@pytest.mark.parametrize("name", [*ZONES, "+05:30"])
def test_days_start_as_in_sparks_casts(spark: SparkSession, name: str) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", name)
    zone = session_zone(session)
    assert isinstance(zone, ZoneRules)
    changes = [(one.at_s + one.before_s) // 86_400 for one in zone.transitions]
    days = sorted({day + more for day in [*changes, -150_000, 0] for more in (-1, 0, 1)})
    remote = RemoteZone(name, lambda query: session.sql(query).collect()[0][0])
    midnights = [day * DAY for day in days]
    assert zone.day_starts(midnights) == remote.day_starts(midnights)


@pytest.mark.parametrize("name", ["America/Los_Angeles", "Europe/Stockholm", "-03:30", "PST"])
def test_a_server_is_asked_for_each_time_once(spark: SparkSession, name: str) -> None:
    """As of Spark Connect, which has no JVM beside it."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", name)
    queries = []

    def answer(query: str) -> list[int | None]:
        queries.append(query)
        found: list[int | None] = spark.sql(query).collect()[0][0]
        return found

    zone, rules = RemoteZone(name, answer), session_zone(session)
    chance = random.Random(1)
    walls = [chance.randrange(FIRST, LAST) for _ in range(50)]
    walls += [wall + 1 for wall in walls[:3]] + walls[:5]
    assert zone.instants(walls) == rules.instants(walls)
    assert zone.instants(walls) == rules.instants(walls)
    assert len(queries) == 1


TEXTS = (
    *("2020-01-01", "2020-1-1", " 2020-01-01\t", "2020-01-01T", "2020-01-01 ", "2020", "2020-05"),
    *("2020-01-01 12", "2020-01-01 12:00", "2020-01-01 12:00Z", "2020-01-01 1:2:3", "2020-01-01Z"),
    *("2020-1-1T1:2:3.5", "2020-01-01 12:00:00.", "2020-01-01 12:00:00.1234567", "20200101"),
    *("2020-01-01 24:00:00", "2020-01-01 23:60:00", "2020-01-01 23:59:60", "2020-02-30"),
    *("2020-01-01\xa0", "٢٠٢٠-01-01", "2020-01-01 12:00:00\x00", "0000-01-01", "0001-01-01"),
    *("-0001-05-05 01:02:03", "+2020-01-01", "+10000-01-01 00:00:00", "294247-01-10 04:00:54Z"),
    *("294247-01-10 04:00:55Z", "-290308-12-21 19:59:06Z", "-290308-12-21 19:59:05Z", "now"),
    *(
        f"2020-01-01 12:00:00{zone}"
        for zone in (
            *(
                "Z",
                " Z",
                "z",
                "UTC",
                " utc",
                "GMT",
                "+1",
                "+01",
                "+1:30",
                "+01:30",
                "+0130",
                "+130",
            ),
            *("-00:30", "+18:00", "+18:01", "+19:00", "+01:3015", "+01:30:15", "+013015", "+01:60"),
            *("  +01:00", "\t+01:00", " Europe/Oslo", "+1:3", "-0:30", "UTC+1"),
        )
    ),
)


@pytest.mark.usefixtures("own_active_session")
def test_texts_are_the_times_that_spark_reads(spark: SparkSession) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    zone = session_zone(session)
    rows = session.createDataFrame(pa.table({"text": TEXTS})).selectExpr(
        "text",
        "unix_micros(try_cast(text AS TIMESTAMP)) AS instant",
        "CAST(try_cast(text AS TIMESTAMP_NTZ) AS STRING) AS wall",
    )
    read = 0
    for text, instant, wall in rows.collect():
        found, local = as_timestamp(text), as_wall_time(text)
        if isinstance(found, LocalTime):
            assert zone.instants([micros_of(found.wall)]) == [instant], repr(text)
        elif found is not None:
            assert micros_of(found) == instant, repr(text)
        if local is not None:
            shown = time_text(micros_of(local), zoned=False)
            assert shown == wall or shown.rstrip("0") == wall, repr(text)
        read += found is not None
    assert read > 25
