"""The ends of a range of changes that Spark computes, and what isn't taken for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import txlake
from txlake.errors import InvalidRequest

OUT_OF_RANGE = "spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled"
# By the arguments after the table, what is said of them.
REFUSED = {
    "id": r"\[DELTA_CDC_NON_CONSTANT_ARGUMENT\] id: expected a version or a timestamp as a const",
    "1, max(2)": r"\[DELTA_CDC_NON_CONSTANT_ARGUMENT\] max\(2\)",
    "(SELECT 1)": r"\[DELTA_CDC_NON_CONSTANT_ARGUMENT\] a version or a timestamp is a constant",
    "NULL": r"\[DELTA_CDC_READ_NULL_RANGE_BOUNDARY\] NULL is NULL",
    "1, CAST(NULL AS INT)": r"\[DELTA_CDC_READ_NULL_RANGE_BOUNDARY\] CAST",
    "1 - 2": "1 - 2 = -1 of the type int: expected a version",
    "1 = 1": r"\[DELTA_UNSUPPORTED_EXPRESSION\] 1 = 1 = True of the type boolean",
    "concat('so', 'on')": r"\('soon'\) cannot be converted to a valid timestamp",
    "'20200101'": r"\('20200101'\) cannot be converted to a valid timestamp",
    "'20200101120000123'": "cannot be converted to a valid timestamp",
    "'2026-02-30'": "cannot be converted to a valid timestamp",
    "9": r"\[DELTA_CDC_START_VERSION_AFTER_LATEST\] .*from version 9 on",
    "2 * 5": r"\[DELTA_CDC_START_VERSION_AFTER_LATEST\] .*from version 10 on",
    "'2999-01-01'": r"\[DELTA_TIMESTAMP_GREATER_THAN_COMMIT\] .*changes from 2999-01-01 on",
    "0, '2999-01-01'": r"\[DELTA_TIMESTAMP_GREATER_THAN_COMMIT\] .*is after the latest version",
    "0, '1999-01-01'": r"\[DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION\] ",
}


@pytest.fixture
def fed(lake: txlake.Lake) -> Iterator[txlake.Lake]:
    """A lake whose table `t` got the row of each number in the version of that number."""
    lake.sql("CREATE TABLE t (id INT) TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    for number in (1, 2, 3):
        lake.sql(f"INSERT INTO t VALUES ({number})")
    yield lake
    lake.sql("DROP TABLE t")


def told(lake: txlake.Lake, ends: str) -> list[int]:
    question = f"SELECT id FROM table_changes('t', {ends}) ORDER BY id"
    return [row[0] for row in lake.sql(question).collect()]


def test_an_end_is_what_its_expression_gives(fed: txlake.Lake) -> None:
    times = {row[0]: str(row[1]) for row in fed.sql("DESCRIBE HISTORY t").collect()}
    assert told(fed, "1 + 1, CAST('2' AS BIGINT)") == [2]
    assert told(fed, f"TIMESTAMP '{times[2]}', 2 * 1") == [2]
    assert told(fed, f"concat('{times[2]}', ''), '{times[2]}'") == [2]
    assert told(fed, "date_sub(current_date(), 1), 1") == [1]


@pytest.mark.parametrize("ends", REFUSED)
def test_refused(fed: txlake.Lake, ends: str) -> None:
    with pytest.raises(InvalidRequest, match=REFUSED[ends]):
        told(fed, ends)


@pytest.mark.parametrize("moment", ["id", "max(now())", "make_date(2026, id, 1)"])
def test_time_travel_goes_to_no_column(fed: txlake.Lake, moment: str) -> None:
    with pytest.raises(InvalidRequest, match="expected a version or a timestamp as a constant"):
        fed.sql(f"SELECT * FROM t TIMESTAMP AS OF {moment}")


def test_a_setting_lets_a_range_end_after_the_newest_version(fed: txlake.Lake) -> None:
    spark = fed.sql("SELECT 1").sparkSession
    spark.conf.set(OUT_OF_RANGE, "true")
    try:
        assert told(fed, "4") == told(fed, "4, 9") == told(fed, "'2999-01-01'") == []
        assert told(fed, "'2999-01-01', '2999-01-02'") == []
        assert told(fed, "3, '2999-01-01'") == [3]
    finally:
        spark.conf.unset(OUT_OF_RANGE)
