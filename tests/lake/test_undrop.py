"""UNDROP TABLE with rows: what comes back reads, travels in time and goes on as before."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import txlake
from tests.lake.rows import query
from txlake.errors import InvalidRequest

pytestmark = pytest.mark.broad(keep=2)


@pytest.fixture
def t(lake: txlake.Lake) -> txlake.Lake:
    """A lake with a table of three versions, which a view reads."""
    lake.sql(
        "CREATE TABLE t (id BIGINT, p STRING) TBLPROPERTIES ('delta.enableRowTracking' = 'true')"
    )
    lake.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b'); DELETE FROM t WHERE id = 1")
    lake.sql("CREATE VIEW v AS SELECT count(*) AS n FROM t")
    return lake


def test_a_table_comes_back_as_it_was(t: txlake.Lake) -> None:
    detail = query(t, "DESCRIBE DETAIL t")[0]
    history = query(t, "SELECT version, operation FROM (DESCRIBE HISTORY t)")
    rows = query(t, "SELECT * FROM t")
    t.sql("DROP TABLE t")
    assert query(t, "SHOW TABLES") == []
    for view in ("information_schema.tables", "sys.tables"):
        assert "t" not in {value for row in query(t, f"SELECT * FROM {view}") for value in row}
    with pytest.raises(InvalidRequest, match="no table 't'"):
        t.sql("SELECT * FROM t")
    t.sql("UNDROP TABLE t")
    assert query(t, "SELECT * FROM t") == rows
    assert query(t, "DESCRIBE DETAIL t")[0][:4] == detail[:4]
    assert query(t, "SELECT version, operation FROM (DESCRIBE HISTORY t)") == history
    assert query(t, "SELECT count(*) FROM t VERSION AS OF 1") == [(2,)]
    assert query(t, "SHOW TBLPROPERTIES t ('delta.enableRowTracking')")[0][1] == "true"
    assert query(t, "SELECT n FROM v") == [(1,)]
    t.sql("INSERT INTO t VALUES (3, 'c')")
    assert query(t, "SELECT n FROM v") == [(2,)]


def test_what_can_come_back_is_shown(t: txlake.Lake) -> None:
    t.sql("CREATE DATABASE d; CREATE TABLE d.u (id INT); DROP TABLE d.u")
    assert query(t, "SHOW TABLES DROPPED") == []
    t.sql("DROP TABLE t; CREATE TABLE t (other INT); DROP TABLE t")
    shown = t.sql("SHOW TABLES DROPPED")
    assert shown.columns == [
        "catalogName", "schemaName", "tableName", "tableId", "tableType",
        "deletedAt", "createdAt", "updatedAt",
    ]  # fmt: skip
    newest, first = shown.collect()
    assert newest[:3] == first[:3] == ("spark_catalog", "default", "t")
    assert (newest.tableType, newest.createdAt > first.createdAt) == ("MANAGED", True)
    assert newest.deletedAt > first.deletedAt
    assert query(t, "SHOW TABLES DROPPED IN default LIMIT 1") == [tuple(newest)]
    assert query(t, "SHOW TABLES DROPPED LIMIT 0") == []
    assert [row[1:3] for row in query(t, "SHOW TABLES DROPPED FROM d")] == [("d", "u")]
    with pytest.raises(InvalidRequest, match="there is no database 'nowhere'"):
        t.sql("SHOW TABLES DROPPED IN nowhere")
    t.sql(f"UNDROP TABLE WITH ID '{first.tableId}'")
    assert query(t, "SELECT count(*) FROM t") == [(1,)]
    assert [row[3] for row in query(t, "SHOW TABLES DROPPED")] == [newest.tableId]


def test_a_table_elsewhere_comes_back(t: txlake.Lake, tmp_path: Path) -> None:
    t.sql(f"CREATE TABLE mine (id BIGINT) LOCATION '{tmp_path}/mine'; INSERT INTO mine VALUES (1)")
    t.sql(f"DROP TABLE mine; INSERT INTO delta.`{tmp_path}/mine` VALUES (2)")
    assert query(t, "SHOW TABLES DROPPED")[0][4] == "EXTERNAL"
    t.sql("UNDROP TABLE mine; INSERT INTO mine VALUES (3)")
    assert sorted(query(t, "SELECT id FROM mine")) == [(1,), (2,), (3,)]


def test_a_dropped_tables_place_is_read_and_not_written(t: txlake.Lake, tmp_path: Path) -> None:
    place = f"delta.`{tmp_path}/warehouse/t`"
    t.sql("DROP TABLE t")
    assert query(t, f"SELECT id FROM {place}") == [(2,)]
    for statement in (
        f"INSERT INTO {place} VALUES (3, 'c')",
        f"DELETE FROM {place}",
        f"VACUUM {place}",
        f"OPTIMIZE {place}",
        f"DROP TABLE {place}",
    ):
        with pytest.raises((InvalidRequest, PySparkException)):
            t.sql(statement)
    t.sql("UNDROP TABLE t")
    assert query(t, "SELECT id FROM t") == [(2,)]


def test_a_lake_that_keeps_nothing(tmp_path: Path, spark: SparkSession) -> None:
    settings = txlake.Settings(dropped_table_retention_ms=0)
    with txlake.connect(str(tmp_path / "lake"), spark=spark, settings=settings) as lake:
        lake.sql("CREATE TABLE t (id INT); DROP TABLE t")
        assert [one for one in (tmp_path / "lake" / "t").rglob("*") if one.is_file()] == []
        with pytest.raises(InvalidRequest, match="there is no dropped table"):
            lake.sql("UNDROP TABLE t")


def test_a_replaced_table_was_not_dropped(t: txlake.Lake) -> None:
    t.sql("CREATE OR REPLACE TABLE t (other INT)")
    assert query(t, "SHOW TABLES DROPPED") == []
