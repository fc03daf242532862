"""`forName`, `create().tableName` and clones by name find the lake open in the Spark session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

import txlake
from txlake import DeltaTable
from txlake.lake.tables import session_lookup
from txlake.lake.tables.session_lookup import lake_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=4)


@pytest.fixture(autouse=True)
def _no_other_lake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lakes that other tests of this process left open don't count."""
    monkeypatch.setattr(session_lookup, "_lake_sessions", type(session_lookup._lake_sessions)())


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[txlake.Lake]:
    """A lake with a table `orders` of one row."""
    with txlake.connect(str(tmp_path / "warehouse"), spark=spark) as opened:
        opened.sql("CREATE TABLE orders AS SELECT 1 AS id")
        yield opened


def rows(table: DeltaTable) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in table.toDF().collect())


def test_for_name_is_the_lakes_table(lake: txlake.Lake, spark: SparkSession) -> None:
    table = DeltaTable.forName(spark, "orders")
    table.update(set={"id": "id + 1"})
    assert rows(table) == rows(DeltaTable.forName(spark, "default.orders")) == [(2,)]
    lake.sql("CREATE DATABASE shop; CREATE TABLE shop.items AS SELECT 5 AS id; USE shop")
    assert rows(DeltaTable.forName(spark, "items")) == [(5,)]


def test_it_takes_part_in_the_sessions_transaction(lake: txlake.Lake, spark: SparkSession) -> None:
    lake.sql("BEGIN")
    DeltaTable.forName(spark, "orders").delete()
    lake.sql("ROLLBACK")
    assert rows(lake.table("orders")) == [(1,)]


def test_a_table_is_made_by_name(lake: txlake.Lake, spark: SparkSession) -> None:
    made = DeltaTable.create(spark).tableName("made").addColumn("id", "INT").execute()
    assert rows(made) == []
    lake.sql("INSERT INTO made VALUES (3)")
    assert rows(made) == rows(lake.table("made")) == [(3,)]


def test_a_clone_by_name(lake: txlake.Lake, spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "path table")
    lake.write(spark.range(2), place)
    cloned = DeltaTable.forPath(spark, place).clone("cloned")
    assert rows(cloned) == rows(lake.table("cloned")) == [(0,), (1,)]


def test_a_lake_that_took_the_active_session(tmp_path: Path, spark: SparkSession) -> None:
    classic: Any = spark  # another test may have left another session, or none, as the active one
    classic._get_j_spark_session_class(classic._jvm).setActiveSession(classic._jsparkSession)
    with txlake.connect(str(tmp_path / "w")) as lake:
        lake.write(pa.table({"id": [1]}), "t")  # starts no Spark
        assert not lake._session.engine.plane.is_started
        assert rows(DeltaTable.forName(spark, "t")) == [(1,)]


def test_an_unknown_name(lake: txlake.Lake, spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match=r"did you mean orders\?") as caught:
        DeltaTable.forName(spark, "ordrs")
    assert caught.value.getCondition() == "DELTA_MISSING_DELTA_TABLE"


def test_of_several_lakes_none_is_chosen(
    lake: txlake.Lake, spark: SparkSession, tmp_path: Path
) -> None:
    with txlake.connect(str(tmp_path / "other"), spark=spark):
        said = r"2 lakes are open .*/other, .*warehouse"
        with pytest.raises(AnalysisException, match=said):
            DeltaTable.forName(spark, "orders")
        with pytest.raises(AnalysisException, match=said):
            DeltaTable.create(spark).tableName("x").addColumn("id", "INT").execute()
    assert rows(DeltaTable.forName(spark, "orders")) == [(1,)]


def test_without_a_lake_names_mean_nothing(spark: SparkSession, tmp_path: Path) -> None:
    with txlake.connect(str(tmp_path / "w"), spark=spark):
        assert lake_session(spark) is not None
    with pytest.raises(AnalysisException, match="no lake is open in it"):
        DeltaTable.forName(spark, "orders")
    with pytest.raises(AnalysisException, match="there is no lake here; open one with"):
        DeltaTable.create(spark).tableName("x").addColumn("id", "INT").execute()


def test_another_spark_session_has_none(lake: txlake.Lake, spark: SparkSession) -> None:
    if not hasattr(spark, "newSession"):
        pytest.skip("Spark Connect")
    assert lake_session(spark) is lake._session
    assert lake_session(spark.newSession()) is None


def test_a_lake_that_nobody_holds_is_forgotten(tmp_path: Path, spark: SparkSession) -> None:
    lake = txlake.connect(str(tmp_path / "w"), spark=spark)
    assert lake_session(spark) is lake._session
    lake.close()
    assert lake_session(spark) is None
