"""Literals of times mean to the driver what they mean to Spark: in rows, partitions, conditions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import txlake

pytestmark = pytest.mark.broad(keep=8)

ZONE = "spark.sql.session.timeZone"
LOS_ANGELES = "America/Los_Angeles"


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[txlake.Lake]:
    """One lake for all of the tests."""
    with txlake.connect(str(tmp_path_factory.mktemp("times")), spark=spark) as opened:
        yield opened


@contextmanager
def zone(spark: SparkSession, name: str) -> Iterator[None]:
    """The session's time zone for a while."""
    before = spark.conf.get(ZONE)
    spark.conf.set(ZONE, name)
    try:
        yield
    finally:
        spark.conf.set(ZONE, str(before))


def query(engine: txlake.Lake | SparkSession, sql: str) -> list[tuple[object, ...]]:
    """The rows of a query, in its order."""
    return [tuple(row) for row in engine.sql(sql).collect()]


LITERALS = (
    *("1948-04-28 09:35:00", "1892-05-01 00:00:00", "0001-01-01", "0001-01-01 00:00:00.000001"),
    *("9999-12-31 23:59:59", "9999-12-31 23:59:59.999999", "2024-03-10 02:30:00", "1582-10-10"),
    *("2024-11-03 01:30:00", "2037-07-01 12:00:00", "2100-07-01 12:00:00", "1883-11-18 12:01:00"),
)


@pytest.mark.parametrize(
    "name",
    [
        *("America/New_York", "Europe/Oslo", "Europe/Stockholm", "Asia/Tokyo", "+05:30", "GMT+1"),
        *("UTC+01:00", "Z", "PST", "-18:00"),
    ],
)
def test_values_and_conditions_are_sparks(
    lake: txlake.Lake, spark: SparkSession, name: str
) -> None:
    """For rows without Spark, and with it."""
    lake.sql("CREATE OR REPLACE TABLE t (k INT, ts TIMESTAMP)")
    with zone(spark, name):
        rows = ", ".join(f"({k}, TIMESTAMP '{text}')" for k, text in enumerate(LITERALS))
        lake.sql(f"INSERT INTO t VALUES {rows}")
        columns = ", ".join(f"unix_micros(TIMESTAMP '{text}')" for text in LITERALS)
        expected = list(query(spark, f"SELECT {columns}")[0])
        assert query(lake, "SELECT unix_micros(ts) FROM t ORDER BY k") == [(x,) for x in expected]
        for k, text in enumerate(LITERALS):
            assert query(lake, f"SELECT k FROM t WHERE ts = TIMESTAMP '{text}'") == [(k,)], text
        lake.sql("DELETE FROM t WHERE ts >= TIMESTAMP '9999-12-31 23:59:59'")
        lake.sql("DELETE FROM t WHERE ts <= TIMESTAMP '0001-01-01 00:00:00'")
        kept = [k for k in range(len(LITERALS)) if k not in (2, 4, 5)]
        assert query(lake, "SELECT k FROM t ORDER BY k") == [(k,) for k in kept]


@pytest.mark.parametrize("name", ["America/New_York", "Asia/Tokyo"])
def test_far_times_are_partition_values(lake: txlake.Lake, spark: SparkSession, name: str) -> None:
    lake.sql("CREATE OR REPLACE TABLE far (k INT, ts TIMESTAMP) PARTITIONED BY (ts)")
    with zone(spark, name):
        first, last = "TIMESTAMP '0001-01-01 00:00:00'", "TIMESTAMP '9999-12-31 23:59:59.5'"
        lake.sql(f"INSERT INTO far VALUES (1, {first}), (2, {last}), (3, NULL)")
        lake.sql(f"INSERT INTO far SELECT k + 3, ts FROM far WHERE ts >= {last} OR ts <= {first}")
        assert query(lake, f"SELECT k FROM far WHERE ts = {first} ORDER BY k") == [(1,), (4,)]
        assert query(lake, f"SELECT k FROM far WHERE ts >= {last} ORDER BY k") == [(2,), (5,)]
        lake.sql(f"UPDATE far SET k = k + 10 WHERE ts = {last}")
        source = f"SELECT {last} AS ts UNION ALL SELECT {first}"
        lake.sql(
            f"MERGE INTO far t USING ({source}) s ON t.ts = s.ts "
            "WHEN MATCHED AND k > 10 THEN UPDATE SET k = k + 1"
        )
        lake.sql("OPTIMIZE far")
        lake.sql(f"INSERT OVERWRITE far PARTITION (ts = {last}) VALUES (20)")
        found = query(lake, "SELECT k, CAST(ts AS STRING) FROM far ORDER BY k")
        assert found == [
            *((1, "0001-01-01 00:00:00"), (3, None), (4, "0001-01-01 00:00:00")),
            (20, "9999-12-31 23:59:59.5"),
        ]
        assert lake.sql("SHOW PARTITIONS far").count() == 3
        lake.sql(f"DELETE FROM far WHERE ts = {first}")
        assert query(lake, "SELECT count(*) FROM far") == [(2,)]


PARTITIONS: Sequence[tuple[str, str]] = (
    *((kind, "TIMESTAMP'2018-11-17 13:33:33'") for kind in ("TIMESTAMP", "TIMESTAMP_NTZ")),
    ("STRING", "TIMESTAMP'2018-11-17 13:33:33'"),
    ("STRING", "TIMESTAMP'2018-11-17 13:33:33.25Z'"),
    ("STRING", "DATE'2018-11-17'"),
    ("DATE", "DATE'2018-11-17'"),
    ("DATE", "'2018-11-17'"),
    ("DATE", "TIMESTAMP'2018-11-17 23:33:33'"),
    ("TIMESTAMP", "DATE'2018-11-17'"),
    ("TIMESTAMP", "'2018-11-17 13:33:33'"),
    ("TIMESTAMP", "TIMESTAMP_NTZ'2018-11-17 13:33:33'"),
    ("TIMESTAMP", "TIMESTAMP'2018-11-17T13:33:33+01:00'"),
    ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ'2024-03-10 02:30:00'"),
    ("TIMESTAMP_NTZ", "TIMESTAMP'2024-03-10 02:30:00'"),
    ("TIMESTAMP_NTZ", "TIMESTAMP'2024-03-10T02:30:00Z'"),
    ("STRING", "1.50"),
    ("STRING", "TRUE"),
    ("INT", "'7'"),
    ("DECIMAL(5,2)", "1.5"),
    ("DOUBLE", "1"),
    ("STRING", "NULL"),
)


@pytest.mark.parametrize(("kind", "literal"), PARTITIONS)
def test_static_partition_values_are_sparks(
    lake: txlake.Lake, spark: SparkSession, tmp_path: Path, kind: str, literal: str
) -> None:
    """As in a table of plain Spark, in which a partition value is the literal's text."""
    lake.sql(f"CREATE OR REPLACE TABLE p (k INT, p {kind}) PARTITIONED BY (p)")
    spark.sql(
        f"CREATE TABLE plain_p (k INT, p {kind}) USING parquet PARTITIONED BY (p) "
        f"LOCATION '{tmp_path}'"
    )
    shown = "SELECT k, CAST(p AS STRING) FROM {} ORDER BY k"
    try:
        with zone(spark, LOS_ANGELES):
            for verb, k in (("INTO", 1), ("OVERWRITE", 2)):
                for name in ("p", "plain_p"):
                    run = lake.sql if name == "p" else spark.sql
                    run(f"INSERT {verb} {name} PARTITION (p = {literal}) VALUES ({k})")
                expected = query(spark, shown.format("plain_p"))
                assert query(lake, shown.format("p")) == expected
            lake.sql(f"INSERT INTO p PARTITION (p = {literal}) VALUES (3)")
            assert query(lake, "SELECT count(DISTINCT p) <= 1 FROM p") == [(True,)]
            statement = f"INSERT OVERWRITE p PARTITION (p = {literal}) IF NOT EXISTS VALUES (4)"
            lake.sql(statement)
            assert query(lake, "SELECT k FROM p ORDER BY k") == [(2,), (3,)]
            spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
            lake.sql(f"INSERT OVERWRITE p PARTITION (p = {literal}) SELECT 5")
            assert query(lake, "SELECT k FROM p") == [(5,)]
    finally:
        spark.conf.set("spark.sql.sources.partitionOverwriteMode", "static")
        spark.sql("DROP TABLE plain_p")


def test_partition_values_that_the_sessions_clocks_skip_or_show_twice(
    lake: txlake.Lake, spark: SparkSession
) -> None:
    """Texts of partition values don't pass through the session's wall clock."""
    columns = "ts TIMESTAMP, n TIMESTAMP_NTZ"
    lake.sql(f"CREATE OR REPLACE TABLE g (k INT, {columns}) PARTITIONED BY (ts, n)")
    cells = (
        *(("2024-03-10T02:30:00.25Z", "2024-03-10 02:30:00"),),
        *(("2024-11-03T05:30:00Z", "2024-11-03 01:30:00.000001"),),
        *(("2024-11-03T06:30:00Z", "1883-11-18 12:02:00.5"),),
    )
    with zone(spark, "America/New_York"):
        rows = ", ".join(
            f"({k}, TIMESTAMP '{one}', TIMESTAMP_NTZ '{two}')" for k, (one, two) in enumerate(cells)
        )
        lake.sql(f"INSERT INTO g VALUES {rows}")
        lake.sql("INSERT INTO g SELECT k + 10, ts, n FROM g")
        for k, (one, two) in enumerate(cells):
            where = f"ts = TIMESTAMP '{one}' AND n = TIMESTAMP_NTZ '{two}'"
            assert query(lake, f"SELECT k FROM g WHERE {where} ORDER BY k") == [(k,), (k + 10,)]
        spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
        try:
            lake.sql(f"INSERT OVERWRITE g VALUES {rows}")
        finally:
            spark.conf.set("spark.sql.sources.partitionOverwriteMode", "static")
        assert query(lake, "SELECT k FROM g ORDER BY k") == [(0,), (1,), (2,)]


def test_a_time_without_a_zone_stays_one_in_values(lake: txlake.Lake, spark: SparkSession) -> None:
    lake.sql("CREATE OR REPLACE TABLE n (n TIMESTAMP_NTZ, s STRING)")
    skipped = "TIMESTAMP_NTZ '2024-03-10 02:30:00'"
    with zone(spark, "America/New_York"):
        lake.sql(f"INSERT INTO n VALUES ({skipped}, {skipped})")
        found = query(lake, "SELECT CAST(n AS STRING), s FROM n")
    assert found == [("2024-03-10 02:30:00", "2024-03-10 02:30:00")]


def test_a_date_is_the_days_first_instant(lake: txlake.Lake, spark: SparkSession) -> None:
    """Clocks in Toronto skipped from 23:30 to 0:30, so that the day began then."""
    lake.sql("CREATE OR REPLACE TABLE d (ts TIMESTAMP)")
    with zone(spark, "America/Toronto"):
        lake.sql("INSERT INTO d VALUES (TIMESTAMP '1919-03-31 00:30:00')")
        for literal in ("DATE '1919-03-31'", "CAST(DATE '1919-03-31' AS TIMESTAMP)"):
            assert query(lake, f"SELECT count(*) FROM d WHERE ts = {literal}") == [(1,)]


def test_a_moment_to_read_at_is_in_the_sessions_zone(
    lake: txlake.Lake, spark: SparkSession
) -> None:
    lake.sql("CREATE OR REPLACE TABLE moments (k INT)")
    lake.sql("INSERT INTO moments VALUES (1)")
    with zone(spark, "+05:30"):
        now = query(spark, "SELECT date_format(now(), 'yyyy-MM-dd HH:mm:ss.SSSSSS')")[0][0]
        lake.sql("INSERT INTO moments VALUES (2)")
        at = f"SELECT count(*) FROM moments TIMESTAMP AS OF '{now}'"
        assert query(lake, at) == [(1,)]
