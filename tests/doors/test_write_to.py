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
    from pyspark.sql import SparkSession


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
