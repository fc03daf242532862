"""docs/coming-from-delta-spark.md is true: each line runs, and does the same on both sides."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import txlake
from tests.lake.rows import rows
from tests.pages import codes, page, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = page("docs/coming-from-delta-spark.md")


def ground(spark: SparkSession, lake: txlake.Lake, path: str) -> dict[str, Any]:
    """What the lines use."""
    df = spark.range(4).selectExpr("id", "1 AS day")
    df.createOrReplaceTempView("txlake_page")
    return {
        "spark": spark,
        "lake": lake,
        "path": path,
        "df": df,
        "more": df.selectExpr("id", "day", "'x' AS note"),
        "view": "txlake_page",
        "DeltaTable": txlake.DeltaTable,
        "F": F,
        "then": "",
        "checkpoint": f"{path} checkpoint",
    }


def shown(answer: Any) -> object:
    return rows(answer) if hasattr(answer, "collect") else answer


def run(lines: list[str], names: dict[str, Any]) -> list[tuple[str, object, object]]:
    """Each line with its answer, and what the table that it names holds after it."""
    found: list[tuple[str, object, object]] = []
    for line in lines:
        if "timestampAsOf" in line or "timestamp=" in line:
            names["then"] = names["moment"]
        answer = eval(line, names)
        about = next((one for one in ("orders", "sales") if one in line), names["path"])
        found.append((line, shown(answer), rows(names["lake"].read(about))))
        if "createOrReplace" in line or "CREATE OR REPLACE" in line:
            names["moment"] = _newest(names["lake"])
    return found


def _newest(lake: txlake.Lake) -> str:
    moment: datetime.datetime = lake.sql("DESCRIBE HISTORY sales").collect()[0]["timestamp"]
    return moment.isoformat(sep=" ")


@pytest.mark.broad
def test_each_line_does_what_its_other_form_does(spark: SparkSession, tmp_path: Path) -> None:
    pairs = list(table(PAGE, "Delta Spark, and an enabled session"))
    assert len(pairs) > 20
    found = []
    for column in range(2):
        lines = [codes(cells[column])[0] for cells in pairs]
        folder = tmp_path / f"{column}"
        with txlake.connect(str(folder / "lake"), spark=spark) as lake:
            names = ground(spark, lake, str(folder / "table"))
            if column == 0:
                txlake.enable(spark, lake)
            try:
                found.append(run(lines, names))
            finally:
                if column == 0:
                    txlake.disable(spark)
    for (old, answer, after), (new, same, also) in zip(*found, strict=True):
        assert after == also, (old, new)
        # A writer answers nothing, where SQL counts; OPTIMIZE tells of the place.
        if answer is not None and "OPTIMIZE" not in old:
            assert answer == same, (old, new)


def test_the_set_up_names_what_there_is() -> None:
    for _, new in table(PAGE, "of the set-up"):
        for code in codes(new):
            name = code.partition("txlake.")[2].partition("(")[0]
            assert not name or hasattr(txlake, name), code


@pytest.mark.parametrize("name", ["enable", "disable", "install_as_delta", "TxlakeDataSource"])
def test_the_page_tells_of_all_of_it(name: str) -> None:
    assert f"txlake.{name}" in PAGE
