"""`df.mergeInto`: whose columns are meant, which clauses there are, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException, UnsupportedOperationException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.merge import MergeIntoWriter

import txlake
from tests.lake.rows import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

col = F.col


@pytest.fixture
def new(enabled: SparkSession) -> DataFrame:
    """The rows that are merged into `t`, which has ids 1 to 3."""
    enabled.sql("CREATE TABLE t (id INT, v STRING)")
    enabled.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    return enabled.createDataFrame([(1, "x"), (4, "y")], "id INT, w STRING")


def test_all_kinds_of_clauses_and_their_history(enabled: SparkSession, new: DataFrame) -> None:
    writer = new.alias("s").mergeInto("t", col("t.id") == col("s.id"))
    assert isinstance(writer, MergeIntoWriter)
    # A writer keeps what it is told, whether or not the calls are chained.
    writer.whenMatched(col("s.w") == "x").update({"v": "w"})  # type: ignore[dict-item]
    writer.whenNotMatched(col("id") > 3).insert({"id": col("id"), "v": "w"})  # type: ignore[dict-item]
    writer.whenNotMatchedBySource(col("id") == 2).update({"t.v": F.lit("gone")})
    writer.whenNotMatchedBySource().delete()
    writer.merge()
    assert rows(enabled.table("t")) == [(1, "x"), (2, "gone"), (4, "y")]
    newest: Any = enabled.sql("DESCRIBE HISTORY t LIMIT 1").first()
    assert newest["operation"] == "MERGE"
    counts = ("Updated", "Inserted", "Deleted")
    assert [newest["operationMetrics"][f"numTargetRows{one}"] for one in counts] == ["2", "1", "1"]


def test_stars_and_new_columns(enabled: SparkSession, new: DataFrame) -> None:
    writer = new.mergeInto("t", col("t.id") == new.id).withSchemaEvolution()
    writer.whenMatched().updateAll().whenNotMatched().insertAll().merge()
    assert rows(enabled.table("t")) == [
        (1, "a", "x"), (2, "b", None), (3, "c", None), (4, None, "y"),
    ]  # fmt: skip
    new.mergeInto("t", col("t.id") == new.id).whenMatched().delete().merge()
    assert enabled.table("t").count() == 2


@pytest.mark.broad(keep=2)
@pytest.mark.parametrize(
    ("target", "column"),
    [
        ("t", "t.id"),
        ("t", "default.t.id"),
        ("default.t", "t.id"),
        ("spark_catalog.default.t", "default.t.id"),
        ("t", "spark_catalog.default.t.id"),
        ("T", "t.ID"),
    ],
)
def test_the_tables_name_stands_before_its_columns(
    enabled: SparkSession, new: DataFrame, target: str, column: str
) -> None:
    key = column.rpartition(".")[0] + ".v"
    new.mergeInto(target, col(column) == new.id).whenMatched().update({key: new.w}).merge()
    assert rows(enabled.table("t")) == [(1, "x"), (2, "b"), (3, "c")]


def test_rows_of_a_table_have_its_name(enabled: SparkSession, new: DataFrame) -> None:
    new.write.saveAsTable("new")
    on = col("t.id") == col("new.id")
    enabled.table("new").mergeInto("t", on).whenMatched().delete().merge()
    assert rows(enabled.table("t")) == [(2, "b"), (3, "c")]


def test_a_table_at_a_path(enabled: SparkSession, new: DataFrame) -> None:
    place = enabled.sql("DESCRIBE DETAIL t").collect()[0]["location"]
    name = f"delta.`{place}`"
    new.mergeInto(name, col(f"{name}.id") == new.id).whenMatched().delete().merge()
    assert rows(enabled.table("t")) == [(2, "b"), (3, "c")]


def test_a_name_on_both_sides_is_ambiguous(enabled: SparkSession, new: DataFrame) -> None:
    with pytest.raises(AnalysisException, match="AMBIGUOUS_REFERENCE"):
        new.mergeInto("t", col("id") == col("id")).whenMatched().delete().merge()
    assert enabled.table("t").count() == 3


def test_it_is_part_of_the_transaction(
    enabled: SparkSession, new: DataFrame, lake: txlake.Lake
) -> None:
    enabled.sql("BEGIN")
    new.mergeInto("t", col("t.id") == new.id).whenMatched().delete().merge()
    assert enabled.table("t").count() == 2
    enabled.sql("ROLLBACK")
    assert enabled.table("t").count() == 3
    enabled.sql("BEGIN")
    with pytest.raises(AnalysisException, match="NO_MERGE_ACTION_SPECIFIED"):
        new.mergeInto("t", col("t.id") == new.id).merge()
    with pytest.raises(PySparkException, match="ROLLBACK"):
        enabled.table("t").count()
    enabled.sql("ROLLBACK")


def test_another_name_is_sparks(enabled: SparkSession, new: DataFrame) -> None:
    enabled.sql("CREATE TABLE plain (id INT) USING parquet")
    try:
        writer = new.mergeInto("plain", col("plain.id") == new.id)
        assert type(writer) is MergeIntoWriter
        with pytest.raises(UnsupportedOperationException, match="MERGE INTO TABLE"):
            writer.whenMatched().delete().merge()
    finally:
        enabled.sql("DROP TABLE plain")


def test_bad_input_changes_nothing(enabled: SparkSession, new: DataFrame) -> None:
    enabled.sql("CREATE VIEW seen AS SELECT * FROM t")
    on = col("t.id") == new.id
    asked: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: new.mergeInto("nope", on), AnalysisException, "TABLE_OR_VIEW_NOT_FOUND"),
        (lambda: new.mergeInto("t", True), TypeError, "bool"),  # type: ignore[arg-type]
        (lambda: new.mergeInto("t", on).whenMatched(1), TypeError, "F.expr"),  # type: ignore[arg-type]
        (lambda: new.mergeInto("t", on).merge(), AnalysisException, "NO_MERGE_ACTION_SPECIFIED"),
        (lambda: new.mergeInto("t", on).whenMatched().update({}), ValueError, "updateAll"),
        (
            lambda: new.mergeInto("t", on).whenNotMatchedBySource().updateAll(),
            ValueError,
            "no row to take values from",
        ),
        (
            lambda: new.mergeInto("seen", on).whenMatched().delete().merge(),
            AnalysisException,
            "seen is a view",
        ),
        (
            lambda: new.mergeInto("t", on).whenMatched().delete().whenMatched().delete().merge(),
            AnalysisException,
            "only the last",
        ),
    ]
    for ask, kind, said in asked:
        with pytest.raises(kind, match=said):
            ask()
    assert enabled.table("t").count() == 3
