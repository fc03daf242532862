"""What `df.writeTo(name)` refuses, since it would do something else than what was asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from tests.lake.rows import rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STAY = {"partitionOverwriteMode": "dynamic", "useNullIntolerantEqualityWithDPO": "true"}


def test_which_rows_are_replaced_is_said_once(enabled: SparkSession) -> None:
    frame = enabled.range(3)
    frame.writeTo("t").create()
    where = enabled.range(1).writeTo("t").option("replaceWhere", "id = 0")
    using = enabled.range(1).writeTo("t").option("replaceUsing", "id")
    asked: list[tuple[Callable[[], None], str]] = [
        (lambda: where.overwrite(F.col("id") == 1), "DELTA_REPLACE_WHERE_IN_OVERWRITE"),
        (where.overwritePartitions, "DELTA_REPLACE_WHERE_WITH_DYNAMIC_PARTITION_OVERWRITE"),
    ]
    for ask, condition in asked:
        with pytest.raises(AnalysisException) as caught:
            ask()
        assert caught.value.getCondition() == condition
    calls: list[Callable[[], None]] = [
        where.append,
        where.createOrReplace,
        where.replace,
        using.append,
        using.replace,
        using.overwritePartitions,
        lambda: using.overwrite(F.lit(True)),
    ]
    for call in calls:
        with pytest.raises(AnalysisException, match=r"replaceWhere|replaceUsing"):
            call()
    assert rows(enabled.table("t")) == [(0,), (1,), (2,)]


WAYS: dict[str, Callable[[DataFrame, str], None]] = {
    "saveAsTable": lambda rows, place: (
        rows.write.mode("overwrite").options(**STAY).saveAsTable("t")
    ),
    "save": lambda rows, place: (
        rows.write.format("delta").mode("overwrite").options(**STAY).save(place)
    ),
    "insertInto": lambda rows, place: rows.write.options(**STAY).insertInto("t", overwrite=True),
    "overwritePartitions": lambda rows, place: (
        rows.writeTo("t").options(**STAY).overwritePartitions()
    ),
}


@pytest.mark.broad(keep=2)
@pytest.mark.parametrize("way", WAYS)
def test_null_partitions_stay_where_the_option_says_so(
    enabled: SparkSession, tmp_path: Path, way: str
) -> None:
    schema = "p STRING, v INT"
    before = enabled.createDataFrame([(None, 1), ("a", 2)], schema)
    place = str(tmp_path / "t")
    before.writeTo("t").partitionedBy("p").tableProperty("location", place).create()
    WAYS[way](enabled.createDataFrame([(None, 9), ("a", 8)], schema), place)
    assert rows(enabled.table("t")) == [("a", 8), (None, 1), (None, 9)]


def test_null_partitions_stay_in_dynamic_overwrites_alone(enabled: SparkSession) -> None:
    frame = enabled.createDataFrame([(None, 1)], "p STRING, v INT")
    frame.writeTo("t").partitionedBy("p").create()
    frame.writeTo("whole").create()
    option = {"useNullIntolerantEqualityWithDPO": "true"}
    calls: list[Callable[[], None]] = [
        lambda: frame.write.mode("overwrite").options(**option).saveAsTable("t"),
        lambda: frame.write.options(**option).insertInto("t", overwrite=True),
        lambda: frame.writeTo("whole").options(**option).overwritePartitions(),
    ]
    for call in calls:
        with pytest.raises(AnalysisException, match="DELTA_ILLEGAL_OPTION"):
            call()
    frame.write.mode("append").options(**option).saveAsTable("t")
    assert rows(enabled.table("t")) == [(None, 1), (None, 1)]


def test_a_place_by_option_or_property(enabled: SparkSession, tmp_path: Path) -> None:
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    enabled.range(1).writeTo("a").option("path", one).create()
    enabled.range(2).writeTo("b").tableProperty("location", other).tableProperty("x", "1").create()
    assert enabled.read.format("delta").load(one).count() == 1
    assert enabled.read.format("delta").load(other).count() == 2
    assert "x" in {row["key"] for row in enabled.sql("SHOW TBLPROPERTIES b").collect()}


def test_a_schema_that_is_to_stay_is_not_replaced(enabled: SparkSession) -> None:
    enabled.range(3).writeTo("t").create()
    writer = enabled.range(1).toDF("other").writeTo("t").option("overwriteSchema", "false")
    for call in (writer.replace, writer.createOrReplace):
        with pytest.raises(AnalysisException) as caught:
            call()
        assert caught.value.getCondition() == "DELTA_ILLEGAL_USAGE"
    assert enabled.table("t").columns == ["id"]
