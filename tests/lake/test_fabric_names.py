"""Names as Fabric's users write them: brackets, `dbo.`, the warehouse in front."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import txlake
from tests.lake.rows import number, query
from txlake.errors import InvalidRequest


def test_a_script_of_fabric(lake: txlake.Lake) -> None:
    lake.sql("""
        CREATE TABLE [dbo].[Order Lines] ([id] INT NOT NULL, [item] VARCHAR(20));
        INSERT INTO [dbo].[Order Lines] ([id], [item]) VALUES (1, 'pear'), (2, 'fig');
        UPDATE [dbo].[Order Lines] SET [item] = 'plum' WHERE [dbo].[Order Lines].[id] = 1;
        MERGE INTO warehouse.dbo.[Order Lines] AS t USING (SELECT 2 AS [id]) AS s ON t.[id] = s.[id]
            WHEN MATCHED THEN DELETE;
    """)
    asked = (
        "SELECT [o].[id], [dbo].[Order Lines].[item] FROM [dbo].[Order Lines], "
        "[warehouse].[dbo].[Order Lines] AS [o]"
    )
    assert query(lake, asked) == [(1, "plum")]
    assert number(lake, "SELECT OBJECT_ID('[dbo].[Order Lines]') = OBJECT_ID('`Order Lines`')")
    assert query(lake, "SELECT name FROM warehouse.sys.tables") == [("Order Lines",)]
    assert lake.read("spark_catalog.default.`Order Lines`").count() == 1
    lake.sql("DROP TABLE [dbo].[Order Lines]")
    assert query(lake, "SELECT table_name FROM spark_catalog.information_schema.tables") == []


def test_dbo_is_the_database_in_use_until_there_is_one(lake: txlake.Lake) -> None:
    lake.sql("CREATE DATABASE sales; CREATE TABLE t AS SELECT 1 AS a")
    lake.sql("USE sales; CREATE TABLE dbo.t AS SELECT 2 AS a")
    assert query(lake, "SELECT a FROM dbo.t") == [(2,)]
    assert query(lake, "SELECT table_schema FROM information_schema.tables") == [
        ("default",),
        ("sales",),
    ]
    assert query(lake, "SELECT s.a, d.a FROM sales.dbo.t s, default.dbo.t d") == [(2, 1)]
    lake.sql("CREATE DATABASE dbo; CREATE TABLE dbo.t AS SELECT 3 AS a")
    assert query(lake, "SELECT a FROM dbo.t") == [(3,)]
    assert query(lake, "SELECT a FROM t") == [(2,)]


def test_a_name_of_another_catalog(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t (a INT)")
    for text in ("SELECT * FROM other.default.t", "DROP TABLE other.default.t"):
        with pytest.raises(
            InvalidRequest, match="the first is the lake: spark_catalog or warehouse"
        ):
            lake.sql(text)
    with pytest.raises(InvalidRequest, match="there is no table 'u' in database 'default'"):
        lake.sql("DELETE FROM spark_catalog.default.u")


def test_a_transaction_knows_its_tables_by_all_their_names(
    spark: SparkSession, tmp_path: Path
) -> None:
    with txlake.connect(str(tmp_path / "sales_wh"), spark=spark) as lake:
        lake.sql("BEGIN; CREATE TABLE dbo.t (a INT); INSERT INTO sales_wh.default.t VALUES (1)")
        assert (
            query(lake, "SELECT a FROM t") == query(lake, "SELECT a FROM sales_wh.dbo.t") == [(1,)]
        )
        lake.sql("ALTER TABLE dbo.t RENAME TO dbo.u; COMMIT")
        assert query(lake, "SELECT * FROM spark_catalog.default.u") == [(1,)]
