"""Statements about tables and files through `lake.sql`, and what passes through to Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlake
from tests.lake.rows import number, query, rows
from tests.lake.unchanged import refused
from txlake.errors import ConcurrentTransactionException, InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=5)


@pytest.fixture
def orders(lake: txlake.Lake) -> txlake.Lake:
    """A lake with a partitioned table `orders` of three rows."""
    lake.sql(
        "CREATE TABLE orders (id BIGINT NOT NULL COMMENT 'the key', region STRING, amount DOUBLE) "
        "PARTITIONED BY (region) COMMENT 'all of them' TBLPROPERTIES ('team' = 'me')"
    )
    lake.sql("INSERT INTO orders VALUES (1, 'eu', 10.0), (2, 'us', 20.0), (3, NULL, 30.0)")
    return lake


# SHOW, DESCRIBE, USE


def test_show_tables_and_databases(orders: txlake.Lake) -> None:
    orders.sql("CREATE DATABASE Sales COMMENT 'x'; CREATE TABLE sales.Items (id INT)")
    shown = orders.sql("SHOW TABLES")
    assert shown.columns == ["namespace", "tableName", "isTemporary"]
    assert rows(shown) == [("default", "orders", False)]
    assert query(orders, "SHOW TABLES IN SALES") == [("Sales", "Items", False)]
    assert query(orders, "SHOW TABLES FROM sales LIKE 'it*'") == [("Sales", "Items", False)]
    assert query(orders, "SHOW TABLES 'x*'") == []
    databases = orders.sql("SHOW DATABASES")
    assert databases.columns == ["namespace"]
    assert rows(databases) == [("Sales",), ("default",)]
    assert query(orders, "SHOW SCHEMAS LIKE 's*'") == [("Sales",)]
    described = {row[0]: row[1] for row in orders.sql("DESCRIBE DATABASE sales").collect()}
    assert (described["Namespace Name"], described["Comment"]) == ("Sales", "x")
    with pytest.raises(InvalidRequest, match="nope"):
        orders.sql("SHOW TABLES IN nope")
    with pytest.raises(InvalidRequest, match="nope"):
        orders.sql("DESCRIBE DATABASE nope")


def test_show_of_one_table(orders: txlake.Lake) -> None:
    assert query(orders, "SHOW COLUMNS IN orders") == [("amount",), ("id",), ("region",)]
    assert rows(orders.sql("SHOW PARTITIONS orders")) == [("eu",), ("us",), (None,)]
    assert ("team", "me") in query(orders, "SHOW TBLPROPERTIES orders")
    assert query(orders, "SHOW TBLPROPERTIES orders ('team')") == [("team", "me")]
    [[text]] = orders.sql("SHOW CREATE TABLE orders").collect()
    orders.sql("CREATE DATABASE d; USE d")
    orders.sql(text.replace("default.orders", "copy"))
    described = orders.sql("DESCRIBE copy").collect()
    assert described == orders.sql("DESCRIBE default.orders").collect()


def test_show_create_names_a_place_that_the_user_chose(orders: txlake.Lake, tmp_path: Path) -> None:
    place = (tmp_path / "there").as_uri()
    orders.sql(f"CREATE TABLE there (id INT) LOCATION '{place}'")
    [[text]] = orders.sql("SHOW CREATE TABLE there").collect()
    assert f"LOCATION '{place}'" in text


def test_describe(orders: txlake.Lake, tmp_path: Path) -> None:
    described = orders.sql("DESCRIBE orders")
    assert described.columns == ["col_name", "data_type", "comment"]
    assert tuple(described.collect()[0]) == ("id", "bigint", "the key")
    extended = {row[0]: row[1] for row in orders.sql("DESCRIBE EXTENDED orders").collect()}
    assert extended["Provider"] == "delta"
    assert extended["Comment"] == "all of them"
    detail = orders.sql("DESCRIBE DETAIL orders").collect()[0]
    assert (detail.format, detail.name, detail.numFiles) == ("delta", "default.orders", 3)
    assert detail.location == (tmp_path / "warehouse" / "orders").as_uri()
    history = orders.sql("DESCRIBE HISTORY orders").collect()
    assert [(row.version, row.operation) for row in history] == [(1, "WRITE"), (0, "CREATE TABLE")]
    assert history[0].operationMetrics["numOutputRows"] == "3"
    assert history[0].isBlindAppend
    assert orders.sql("DESCRIBE HISTORY orders LIMIT 1").count() == 1
    of_query = orders.sql("DESCRIBE QUERY SELECT id, amount * 2 AS twice FROM orders").collect()
    assert [tuple(row)[:2] for row in of_query] == [("id", "bigint"), ("twice", "double")]
    with pytest.raises(InvalidRequest, match="nope"):
        orders.sql("DESCRIBE orders nope")


def test_use_changes_what_names_belong_to(orders: txlake.Lake) -> None:
    orders.sql("CREATE DATABASE d; USE d; CREATE TABLE orders (x INT)")
    assert orders.sql("SELECT * FROM orders").columns == ["x"]
    assert orders.read("orders").columns == ["x"]
    assert orders.read("default.orders").columns == ["id", "region", "amount"]
    assert query(orders, "SHOW TABLES") == [("d", "orders", False)]
    with pytest.raises(InvalidRequest, match="nope"):
        orders.sql("USE nope")
    assert query(orders, "SHOW TABLES") == [("d", "orders", False)]
    orders.sql("USE DATABASE default; DROP DATABASE d CASCADE")
    with pytest.raises(InvalidRequest, match="default"):
        orders.sql("DROP DATABASE default CASCADE")


# COPY INTO


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    """A folder of Parquet files to copy."""
    folder = tmp_path / "landing zone"
    folder.mkdir()
    for place in (1, 2):
        pq.write_table(
            pa.table({"id": [place], "name": [f"n{place}"]}), folder / f"{place}.parquet"
        )
    return folder


@pytest.fixture
def t(lake: txlake.Lake) -> txlake.Lake:
    """A lake with an empty table `t`."""
    lake.sql("CREATE TABLE t (id BIGINT, name STRING)")
    return lake


def test_each_file_is_copied_once(t: txlake.Lake, landing: Path) -> None:
    copy = f"COPY INTO t FROM '{landing}' FILEFORMAT = PARQUET"
    counts = t.sql(copy).collect()[0].asDict()
    assert counts == {
        "num_affected_rows": 2, "num_inserted_rows": 2, "num_skipped_corrupt_files": 0,
    }  # fmt: skip
    assert number(t, copy) == 0
    pq.write_table(pa.table({"id": [3], "name": ["n3"]}), landing / "3.parquet")
    (landing / "_SUCCESS").touch()
    assert number(t, copy) == 1
    assert query(t, "SELECT id FROM t") == [(1,), (2,), (3,)]
    assert number(t, f"{copy} COPY_OPTIONS ('force' = 'true')") == 3
    assert t.read("t").count() == 6
    assert number(t, copy) == 0
    [latest] = t.sql("DESCRIBE HISTORY t LIMIT 1").collect()
    assert latest.operation == "COPY INTO"


def test_two_loads_can_not_both_copy_a_file(t: txlake.Lake, landing: Path) -> None:
    copy = f"COPY INTO t FROM '{landing}' FILEFORMAT = PARQUET"
    tx = t.begin()
    assert number(tx, copy) == 2
    t.sql(copy)
    with pytest.raises(ConcurrentTransactionException, match=r"copy-into.*parquet"):
        tx.commit()
    assert t.read("t").count() == 2
    assert t.run(lambda again: number(again, copy)) == 0


def test_validate_shows_the_rows_and_copies_none(
    t: txlake.Lake, landing: Path, tmp_path: Path
) -> None:
    copy = f"COPY INTO t FROM '{landing}' FILEFORMAT = PARQUET"
    assert query(t, f"{copy} VALIDATE ALL") == [(1, "n1"), (2, "n2")]
    assert len(query(t, f"{copy} VALIDATE 1 ROWS")) == 1
    t.sql("ALTER TABLE t ADD CONSTRAINT low CHECK (id < 2)")
    folder = tmp_path / "warehouse" / "t"
    with refused(t, folder, InvalidRequest, r"low.*id.*2"):
        t.sql(f"{copy} VALIDATE")
    with refused(t, folder, InvalidRequest, r"low.*id.*2"):
        t.sql(copy)
    t.sql("ALTER TABLE t DROP CONSTRAINT low")
    assert number(t, copy) == 2
    assert query(t, f"{copy} VALIDATE") == []


def test_files_and_patterns_choose(t: txlake.Lake, landing: Path) -> None:
    head = f"COPY INTO t FROM '{landing}' FILEFORMAT = PARQUET"
    assert number(t, f"{head} FILES = ('2.parquet')") == 1
    assert number(t, f"{head} PATTERN = '[23].parquet'") == 0
    assert number(t, f"COPY INTO t FROM '{landing}/1.parquet' FILEFORMAT = PARQUET") == 1
    assert query(t, "SELECT id FROM t") == [(1,), (2,)]
    with pytest.raises(InvalidRequest, match=r"'9\.parquet'"):
        t.sql(f"{head} FILES = ('9.parquet')")
    with pytest.raises(InvalidRequest, match="no file"):
        t.sql(f"{head} PATTERN = '*.csv'")
    with pytest.raises(InvalidRequest, match="no file"):
        t.sql(f"COPY INTO t FROM '{landing}/nowhere' FILEFORMAT = PARQUET")


def test_text_files_are_copied(t: txlake.Lake, tmp_path: Path) -> None:
    folder = tmp_path / "text"
    folder.mkdir()
    (folder / "a.csv").write_text("id;name\n1;one\n2;two\n")
    (folder / "b.json").write_text('{"id": 3, "name": "three"}\n{"id": 4}\n')
    t.sql(
        f"COPY INTO t FROM '{folder}' FILEFORMAT = CSV PATTERN = '*.csv' "
        "FORMAT_OPTIONS ('header' = 'true', 'sep' = ';', 'inferSchema' = 'true')"
    )
    t.sql(f"COPY INTO t FROM '{folder}' FILEFORMAT = JSON PATTERN = '*.json'")
    assert query(t, "SELECT * FROM t") == [(1, "one"), (2, "two"), (3, "three"), (4, None)]


def test_csv_without_names_says_how_to_give_them(t: txlake.Lake, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name\n1,one\n")
    (tmp_path / "b.csv").write_text("two,2\n")
    copy = f"COPY INTO t FROM '{tmp_path}/a.csv' FILEFORMAT = CSV"
    with pytest.raises(InvalidRequest, match=r"no names; .*'header' = 'true'.* t \(column, ...\)"):
        t.sql(copy)
    t.sql(f"{copy} FORMAT_OPTIONS ('header' = 'true')")
    t.sql(f"COPY INTO t (name, id) FROM '{tmp_path}/b.csv' FILEFORMAT = CSV")
    assert query(t, "SELECT * FROM t") == [(1, "one"), (2, "two")]


def test_a_copy_may_choose_and_compute_columns(t: txlake.Lake, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("7,seven,x\n8,eight,y\n")
    t.sql(
        "COPY INTO t FROM (SELECT CAST(_c0 AS BIGINT) * 10 AS id, upper(_c1) AS name "
        f"FROM '{tmp_path}/a.csv') FILEFORMAT = CSV"
    )
    assert query(t, "SELECT * FROM t") == [(70, "SEVEN"), (80, "EIGHT")]


def test_new_columns_join_with_merge_schema(t: txlake.Lake, landing: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [9], "extra": [1.5]}), landing / "9.parquet")
    copy = f"COPY INTO t FROM '{landing}' FILEFORMAT = PARQUET FILES = ('9.parquet')"
    with refused(t, tmp_path / "warehouse" / "t", InvalidRequest, "extra"):
        t.sql(copy)
    t.sql(f"{copy} COPY_OPTIONS ('mergeSchema' = 'true')")
    assert query(t, "SELECT id, name, extra FROM t") == [(9, None, 1.5)]
    [latest] = t.sql("DESCRIBE HISTORY t LIMIT 1").collect()
    assert (latest.operation, latest.operationMetrics["numOutputRows"]) == ("COPY INTO", "1")


def test_new_columns_may_come_without_rows(t: txlake.Lake) -> None:
    t.sql("INSERT WITH SCHEMA EVOLUTION INTO t BY NAME SELECT 1 AS extra WHERE false")
    assert "extra" in t.read("t").columns
    [latest] = t.sql("DESCRIBE HISTORY t LIMIT 1").collect()
    assert (latest.operation, latest.operationMetrics["numOutputRows"]) == ("WRITE", "0")


# TRUNCATE, CLONE, CONVERT, GENERATE


def test_truncate_takes_every_row(orders: txlake.Lake) -> None:
    orders.sql("TRUNCATE TABLE orders")
    assert orders.read("orders").count() == 0
    [latest] = orders.sql("DESCRIBE HISTORY orders LIMIT 1").collect()
    assert latest.operation == "TRUNCATE"
    assert orders.read("orders", version=1).count() == 3


def test_clones_go_their_own_way(orders: txlake.Lake, tmp_path: Path) -> None:
    orders.sql("DELETE FROM orders WHERE id = 1")
    counts = orders.sql("CREATE TABLE light SHALLOW CLONE orders").collect()[0]
    assert counts.source_num_of_files == 2
    orders.sql("CREATE TABLE old DEEP CLONE orders VERSION AS OF 1")
    orders.sql(f"CREATE TABLE elsewhere SHALLOW CLONE orders LOCATION '{tmp_path / 'else'}'")
    orders.sql("INSERT INTO light VALUES (7, 'eu', 1.0); DELETE FROM orders")
    assert query(orders, "SELECT id FROM light") == [(2,), (3,), (7,)]
    assert query(orders, "SELECT id FROM old") == [(1,), (2,), (3,)]
    assert query(orders, "SELECT id FROM elsewhere") == [(2,), (3,)]
    assert orders.read(str(tmp_path / "else")).count() == 2
    with pytest.raises(InvalidRequest, match="exists"):
        orders.sql("CREATE TABLE light SHALLOW CLONE orders")
    orders.sql("CREATE OR REPLACE TABLE light DEEP CLONE orders")
    assert orders.read("light").count() == 0
    orders.sql("CREATE TABLE IF NOT EXISTS light DEEP CLONE old")
    assert orders.read("light").count() == 0


def test_a_clone_has_its_own_comment(orders: txlake.Lake) -> None:
    orders.sql("COMMENT ON TABLE orders IS 'of today'; CREATE TABLE light SHALLOW CLONE orders")
    assert orders.table("light").detail().collect()[0].description is None
    orders.sql("COMMENT ON TABLE light IS 'mine'; CREATE OR REPLACE TABLE light DEEP CLONE orders")
    assert orders.table("light").detail().collect()[0].description == "mine"


@pytest.mark.parametrize("create", ["CREATE TABLE", "CREATE OR REPLACE TABLE"])
def test_the_history_counts_no_rows_of_a_query(orders: txlake.Lake, create: str) -> None:
    orders.sql(f"{create} nothing AS SELECT id FROM orders WHERE false")
    [made] = orders.sql("DESCRIBE HISTORY nothing").collect()
    assert made.operation == f"{create} AS SELECT"
    assert made.operationMetrics["numOutputRows"] == "0"


def test_parquet_files_become_a_table(
    lake: txlake.Lake, spark: SparkSession, tmp_path: Path
) -> None:
    place = tmp_path / "parquet"
    spark.sql("SELECT 1L AS id, 'a' AS p UNION ALL SELECT 2L, 'b'").write.partitionBy("p").parquet(
        str(place)
    )
    lake.sql(f"CONVERT TO DELTA parquet.`{place}` PARTITIONED BY (p STRING)")
    assert query(lake, f"SELECT id, p FROM delta.`{place}`") == [(1, "a"), (2, "b")]
    lake.sql(f"CREATE TABLE converted USING delta LOCATION '{place}'")
    lake.sql("UPDATE converted SET id = 3 WHERE p = 'b'")
    assert query(lake, "SELECT id, p FROM converted") == [(1, "a"), (3, "b")]


@pytest.mark.no_interop("the manifest's files are read by name")
def test_a_manifest_lists_the_files(lake: txlake.Lake, tmp_path: Path) -> None:
    lake.sql("CREATE TABLE m (id INT) TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')")
    lake.sql("INSERT INTO m VALUES (1)")
    lake.sql("GENERATE symlink_format_manifest FOR TABLE m")
    manifest = tmp_path / "warehouse" / "m" / "_symlink_format_manifest" / "manifest"
    before = manifest.read_text()
    [line] = before.split()
    assert line.endswith(".parquet")
    tx = lake.begin()
    tx.sql("INSERT INTO m VALUES (2)")
    with pytest.raises(InvalidRequest, match="COMMIT or ROLLBACK first"):
        tx.sql("GENERATE symlink_format_manifest FOR TABLE m")
    tx.rollback()
    assert manifest.read_text() == before


# Through to Spark


@pytest.fixture
def clean(spark: SparkSession) -> Iterator[SparkSession]:
    """Spark, without what a test leaves in its session."""
    yield spark
    spark.sql("DROP VIEW IF EXISTS v")
    spark.conf.set("spark.sql.shuffle.partitions", "2")


def test_texts_reach_spark_as_written(orders: txlake.Lake) -> None:
    text = """SELECT /* a comment with 'quotes' and ; */ id AS `odd {name}`, -- orders
      'orders; {0} {orders} \\u00e9 ''' || "x" AS s, amount%7 AS m, array(1, 2)[0] AS a,
      filter(array(1, 2, 3), x -> x > 1) AS f
      FROM orders TABLESAMPLE (100 PERCENT) AS o
      LATERAL VIEW explode(array(1)) e AS one WHERE o.id <=> 1 QUALIFY 1 = 1"""
    with pytest.raises(InvalidRequest):
        orders.sql(text)  # QUALIFY is not Spark's
    found = orders.sql(text.replace("QUALIFY 1 = 1", "")).collect()[0]
    assert found.asDict() == {
        "odd {name}": 1, "s": "orders; {0} {orders} é 'x", "m": 3.0, "a": 1, "f": [2, 3],
    }  # fmt: skip


def test_names_are_replaced_only_where_they_are_tables(orders: txlake.Lake) -> None:
    assert query(
        orders,
        "WITH orders AS (SELECT 9 AS id) SELECT orders.id FROM orders "
        "UNION ALL SELECT orders.id FROM default.orders AS orders WHERE orders.id = 1",
    ) == [(1,), (9,)]
    assert query(orders, "SELECT orders.id FROM orders WHERE orders.amount > 25") == [(3,)]
    assert query(
        orders,
        "SELECT a.id FROM orders a JOIN orders b ON a.id = b.id + 1 "
        "WHERE EXISTS (SELECT 1 FROM orders c WHERE c.id = a.id)",
    ) == [(2,), (3,)]
    assert number(orders, "SELECT count(*) FROM range(5)") == 5


def test_commands_pass_through(orders: txlake.Lake, clean: SparkSession) -> None:
    [[plan]] = orders.sql("EXPLAIN SELECT * FROM orders WHERE id = 1").collect()
    assert "Physical Plan" in plan
    orders.sql("SET spark.sql.shuffle.partitions = 3")
    assert clean.conf.get("spark.sql.shuffle.partitions") == "3"
    orders.sql("RESET spark.sql.shuffle.partitions")
    assert "nope" in str(orders.sql("EXPLAIN SELECT nope FROM orders").collect())
    orders.sql("CREATE OR REPLACE TEMP VIEW v AS SELECT id, amount FROM orders WHERE id > 1")
    assert query(orders, "SELECT id FROM v") == [(2,), (3,)]
    assert rows(clean.sql("SELECT id FROM v")) == [(2,), (3,)]
    orders.sql("DELETE FROM orders WHERE id IN (SELECT id FROM v WHERE id = 3)")
    assert query(orders, "SELECT id FROM orders") == [(1,), (2,)]
    assert query(orders, "SELECT id FROM v") == [(2,)]
    orders.sql("INSERT INTO orders SELECT id + 10, 'v', amount FROM v WHERE id = 2")
    assert query(orders, "SELECT id FROM orders WHERE region = 'v'") == [(12,)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT * FROM orders o WHERE", "WHERE"),
        ("SELECT nope FROM orders", "nope"),
        ("SELECT * FROM nowhere", "nowhere"),
        ("SELECT no_such_function(id) FROM orders", "no_such_function"),
        ("SELECT id FROM orders GROUP BY region", "(?i)group"),
        ("SELECT 1 +", r"1 \+|expression|line 1"),
        ("INSERT INTO orders SELECT nope FROM orders", "nope"),
        ("CREATE TEMP VIEW v AS SELECT nope FROM orders", "nope"),
        ("SET spark.sql.ansi.enabled = 7; SELECT 1", "ansi"),
    ],
)
def test_what_spark_refuses_is_an_invalid_request(
    orders: txlake.Lake, tmp_path: Path, text: str, said: str
) -> None:
    with refused(orders, tmp_path / "warehouse" / "orders", InvalidRequest, said):
        orders.sql(text).collect()


def test_errors_have_no_stack_in_their_text(orders: txlake.Lake) -> None:
    with pytest.raises(InvalidRequest) as raised:
        orders.sql("SELECT nope FROM orders")
    text = str(raised.value)
    assert "at org.apache" not in text
    assert "JVM stacktrace" not in text
    assert json.dumps(text)
    assert raised.value.__cause__ is not None


def test_default_stands_beside_expressions_and_in_a_partition(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id INT DEFAULT 7, s STRING DEFAULT 'd', p INT) PARTITIONED BY (p)")
    lake.sql("INSERT INTO t VALUES (1 + 1, DEFAULT, 1), (DEFAULT, upper('x'), abs(-1))")
    lake.sql("INSERT INTO t (s, id) VALUES (concat('a', 'b'), DEFAULT)")
    lake.sql("INSERT INTO t PARTITION (p = 2) VALUES (3, DEFAULT)")
    lake.sql("INSERT INTO t PARTITION (p = 3) (s) VALUES (DEFAULT)")
    lake.sql("INSERT OVERWRITE t PARTITION (p = 2) VALUES (2 + 2, DEFAULT)")
    assert rows(lake.read("t")) == [
        (2, "d", 1),
        (4, "d", 2),
        (7, "X", 1),
        (7, "ab", None),
        (7, "d", 3),
    ]
    with pytest.raises(InvalidRequest, match="id"):
        lake.sql("INSERT INTO t VALUES (id, DEFAULT, 1)")


def test_a_setting_of_the_session_adds_columns(lake: txlake.Lake, spark: SparkSession) -> None:
    lake.sql("CREATE TABLE t (id INT)")
    added = "SELECT {0} AS id, 'x' AS {1}"
    with pytest.raises(InvalidRequest, match="column 'a'"):
        lake.sql(f"INSERT INTO t BY NAME {added.format(1, 'a')}")
    spark.conf.set("spark.databricks.delta.schema.autoMerge.enabled", "true")
    try:
        lake.sql(f"INSERT INTO t BY NAME {added.format(1, 'a')}")
        lake.sql(
            f"MERGE INTO t USING ({added.format(2, 'b')}) s ON t.id = s.id "
            "WHEN NOT MATCHED THEN INSERT *"
        )
        lake.write(lake.sql(added.format(3, "c")), "t", "append")
        source = lake.sql(added.format(4, "d")).alias("s")
        lake.table("t").merge(source, "t.id = s.id").whenNotMatchedInsertAll().execute()
    finally:
        spark.conf.unset("spark.databricks.delta.schema.autoMerge.enabled")
    assert lake.read("t").columns == ["id", "a", "b", "c", "d"]
    assert rows(lake.read("t")) == [
        (1, "x", None, None, None),
        (2, None, "x", None, None),
        (3, None, None, "x", None),
        (4, None, None, None, "x"),
    ]


def test_the_feature_of_deletion_vectors_is_dropped_with_the_vectors(lake: txlake.Lake) -> None:
    """The rows that they mark are rewritten first; where there are none nothing is."""
    for name in ("plain", "marked"):
        lake.sql(f"CREATE TABLE {name} (id INT)")
        lake.sql(f"INSERT INTO {name} VALUES (1), (2)")
    lake.sql("DELETE FROM marked WHERE id = 1")
    for name in ("plain", "marked"):
        lake.sql(f"ALTER TABLE {name} DROP FEATURE deletionVectors")
        done = {row[0] for row in query(lake, f"SELECT operation FROM (DESCRIBE HISTORY {name})")}
        assert ("REORG" in done) is (name == "marked")
    lake.sql("DELETE FROM plain WHERE id = 1")
    for name in ("plain", "marked"):
        detail = lake.sql(f"DESCRIBE DETAIL {name}").collect()[0]
        assert "deletionVectors" not in detail["tableFeatures"]
    assert query(lake, "SELECT * FROM plain") == query(lake, "SELECT * FROM marked") == [(2,)]
