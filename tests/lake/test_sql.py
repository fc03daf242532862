"""Statements through `lake.sql`: what they change, what they answer, what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

import txlake
from tests.lake.rows import number, query
from txlake.errors import InvalidRequest

pytestmark = pytest.mark.broad(keep=3)


@pytest.fixture
def orders(lake: txlake.Lake) -> txlake.Lake:
    """A lake with a table `orders` of four rows."""
    lake.sql("CREATE TABLE orders (id BIGINT NOT NULL, region STRING, amount DOUBLE)")
    lake.sql("INSERT INTO orders VALUES (1,'eu',10.0),(2,'eu',20.0),(3,'us',30.0),(4,NULL,40.0)")
    return lake


def test_dml_answers_with_databricks_counts(orders: txlake.Lake) -> None:
    inserted = orders.sql("INSERT INTO orders VALUES (5, 'us', 50.0)")
    assert inserted.columns == ["num_affected_rows", "num_inserted_rows"]
    assert orders.sql("UPDATE orders SET amount = 0 WHERE region = 'eu'").collect()[0].asDict() == {
        "num_affected_rows": 2
    }
    assert number(orders, "DELETE FROM orders WHERE region IS NULL") == 1
    merged = orders.sql(
        "MERGE INTO orders t USING (SELECT 1L AS id UNION ALL SELECT 9L) s ON t.id = s.id "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
    )
    assert merged.collect()[0].asDict() == {
        "num_affected_rows": 2,
        "num_updated_rows": 0,
        "num_deleted_rows": 1,
        "num_inserted_rows": 1,
    }
    assert query(orders, "SELECT id, amount FROM orders") == [
        (2, 0.0),
        (3, 30.0),
        (5, 50.0),
        (9, None),
    ]


def test_several_statements_give_the_last_result(orders: txlake.Lake) -> None:
    last = (
        "DELETE FROM orders WHERE id = 1; SELECT count(*) FROM orders; SELECT max(id) FROM orders"
    )
    assert number(orders, last) == 4
    assert number(orders, "SELECT count(*) FROM orders") == 3


def test_a_column_is_found_by_more_of_its_tables_name_than_FROM_says(orders: txlake.Lake) -> None:
    orders.sql("CREATE DATABASE shop; CREATE TABLE shop.orders AS SELECT 7L AS id")
    asked = "SELECT DEFAULT.Orders.id, d.id FROM orders JOIN shop.orders d ON d.id > orders.id"
    assert query(orders, f"{asked} WHERE `default`.orders.region = 'us'") == [(3, 7)]
    nested = (
        "SELECT default.orders.* FROM orders WHERE default.orders.id = "
        "(SELECT min(spark_catalog.default.orders.id) FROM orders)"
    )
    assert query(orders, nested) == [(1, "eu", 10.0)]
    both = "SELECT default.orders.id, shop.orders.id FROM orders, shop.orders"
    assert query(orders, f"{both} WHERE default.orders.id = 2") == [(2, 7)]
    orders.sql("CREATE TABLE items AS SELECT named_struct('id', 5) AS orders")
    assert query(orders, "SELECT items.orders.id FROM items, shop.orders") == [(5,)]
    orders.sql("DELETE FROM orders WHERE id IN (SELECT shop.orders.id - 4 FROM shop.orders)")
    orders.sql(
        "USE shop; DELETE FROM default.orders WHERE id < (SELECT shop.orders.id - 5 FROM orders)"
    )
    assert query(orders, "SELECT id FROM default.orders") == [(2,), (4,)]
    with pytest.raises(InvalidRequest, match=r"default.*orders.*id"):
        query(orders, "SELECT default.orders.id FROM orders")


def test_arguments_reach_queries_and_changes(orders: txlake.Lake) -> None:
    orders.sql("UPDATE orders SET region = :r WHERE id = :id", args={"r": "it's {x}", "id": 3})
    found = orders.sql("SELECT id FROM orders WHERE region = ?", ["it's {x}"]).collect()
    assert [row.id for row in found] == [3]


def test_text_is_not_changed_on_its_way_to_spark(orders: txlake.Lake) -> None:
    assert number(orders, "SELECT '{orders} orders -- {{' FROM orders LIMIT 1") == (
        "{orders} orders -- {{"
    )


def test_subqueries_read_the_lake(orders: txlake.Lake) -> None:
    orders.sql("CREATE TABLE big (id BIGINT)")
    orders.sql("INSERT INTO big SELECT id FROM orders WHERE amount > 25")
    orders.sql("DELETE FROM orders WHERE id IN (SELECT id FROM big) AND EXISTS (SELECT 1 FROM big)")
    assert query(orders, "SELECT o.id FROM orders o LEFT JOIN big b ON o.id = b.id") == [(1,), (2,)]


def test_travel_by_version_and_timestamp(orders: txlake.Lake) -> None:
    orders.sql("DELETE FROM orders")
    orders.sql("INSERT INTO orders VALUES (7, 'x', 0)")
    assert number(orders, "SELECT count(*) FROM orders VERSION AS OF 1") == 4
    assert number(orders, "SELECT count(*) FROM orders@v2") == 0
    times = orders.sql("DESCRIBE HISTORY orders").select("version", "timestamp").collect()
    at = {row.version: row.timestamp for row in times}
    assert number(orders, f"SELECT count(*) FROM orders TIMESTAMP AS OF '{at[1]}'") in (4, 0)
    assert orders.read("orders", version=1).count() == 4
    assert orders.read("orders", version=1, where="amount > 15", columns=["id"]).count() == 3
    with pytest.raises(InvalidRequest, match="99"):
        orders.read("orders", version=99)
    with pytest.raises(InvalidRequest, match="1999"):
        orders.sql("SELECT * FROM orders TIMESTAMP AS OF '1999-01-01'")


def test_restore_goes_back_without_copying(orders: txlake.Lake) -> None:
    orders.sql("DELETE FROM orders WHERE id < 3")
    answer = orders.sql("RESTORE TABLE orders TO VERSION AS OF 1").collect()[0]
    assert answer.num_restored_files == 1
    assert number(orders, "SELECT count(*) FROM orders") == 4


def test_an_insert_overwrites_what_it_says(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id BIGINT, p INT) PARTITIONED BY (p)")
    lake.sql("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    lake.sql("INSERT OVERWRITE t PARTITION (p = 2) SELECT 20")
    assert query(lake, "SELECT * FROM t") == [(1, 1), (20, 2), (3, 3)]
    lake.sql("INSERT INTO t REPLACE WHERE p >= 2 SELECT 30, 3")
    assert query(lake, "SELECT * FROM t") == [(1, 1), (30, 3)]
    with pytest.raises(InvalidRequest, match="replace_where p >= 2"):
        lake.sql("INSERT INTO t REPLACE WHERE p >= 2 SELECT 30, 1")
    lake.sql("INSERT OVERWRITE t SELECT 5, 5")
    assert query(lake, "SELECT * FROM t") == [(5, 5)]


def test_optimize_packs_and_keeps_the_rows(orders: txlake.Lake) -> None:
    for number_ in range(5, 9):
        orders.sql(f"INSERT INTO orders VALUES ({number_}, 'x', 1)")
    before = query(orders, "SELECT * FROM orders")
    metrics = orders.sql("OPTIMIZE orders").collect()[0].metrics
    assert (metrics.numFilesAdded, metrics.numFilesRemoved) == (1, 5)
    assert query(orders, "SELECT * FROM orders") == before
    orders.sql("OPTIMIZE orders ZORDER BY (id, amount)")
    assert query(orders, "SELECT * FROM orders") == before


def test_vacuum_checks_the_retention(orders: txlake.Lake) -> None:
    orders.sql("DELETE FROM orders")
    with pytest.raises(InvalidRequest, match="168"):
        orders.sql("VACUUM orders RETAIN 0 HOURS")
    assert orders.sql("VACUUM orders DRY RUN").count() == 0
    assert orders.sql("VACUUM orders").count() == 1
    assert orders.read("orders", version=1).count() == 4


def test_alter_changes_columns_and_properties(orders: txlake.Lake) -> None:
    orders.sql("ALTER TABLE orders ADD COLUMNS (note STRING COMMENT 'n' AFTER id)")
    orders.sql("ALTER TABLE orders SET TBLPROPERTIES ('delta.isolationLevel' = 'Serializable')")
    orders.sql("ALTER TABLE orders ADD CONSTRAINT pos CHECK (amount >= 0)")
    with pytest.raises(InvalidRequest, match="pos"):
        orders.sql("INSERT INTO orders (id, amount) VALUES (9, -1)")
    with pytest.raises(InvalidRequest, match="amount"):
        orders.sql("ALTER TABLE orders ADD CONSTRAINT big CHECK (amount > 15)")
    orders.sql("ALTER TABLE orders DROP CONSTRAINT pos")
    orders.sql("INSERT INTO orders (id, amount) VALUES (9, -1)")
    assert orders.read("orders").columns == ["id", "note", "region", "amount"]
    shown = {row[0]: row[1] for row in query(orders, "SHOW TBLPROPERTIES orders")}
    assert shown["delta.isolationLevel"] == "Serializable"


def test_a_column_is_renamed_and_dropped_with_column_mapping(lake: txlake.Lake) -> None:
    lake.sql(
        "CREATE TABLE t (a INT, `b c` STRING) TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    lake.sql("INSERT INTO t VALUES (1, 'x')")
    lake.sql("ALTER TABLE t RENAME COLUMN a TO id")
    lake.sql("ALTER TABLE t DROP COLUMN `b c`")
    lake.sql("INSERT INTO t VALUES (2)")
    assert query(lake, "SELECT id FROM t") == [(1,), (2,)]


def test_generated_and_default_columns_fill_themselves(lake: txlake.Lake) -> None:
    lake.sql(
        "CREATE TABLE t (ts TIMESTAMP, day DATE GENERATED ALWAYS AS (CAST(ts AS DATE)), "
        "n INT DEFAULT 7) TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    )
    lake.sql("INSERT INTO t (ts) VALUES (TIMESTAMP'2026-01-02 03:04:05')")
    lake.sql("INSERT INTO t (ts, n) VALUES (TIMESTAMP'2026-01-03 00:00:00', DEFAULT)")
    found = lake.sql("SELECT CAST(day AS STRING), n FROM t ORDER BY day").collect()
    assert [tuple(row) for row in found] == [("2026-01-02", 7), ("2026-01-03", 7)]
    lake.sql("UPDATE t SET ts = TIMESTAMP'2027-01-01 00:00:00' WHERE n = 7")
    assert query(lake, "SELECT DISTINCT CAST(day AS STRING) FROM t") == [("2027-01-01",)]
    with pytest.raises(InvalidRequest, match="generated column 'day'"):
        lake.sql(
            "INSERT INTO t (ts, day) VALUES (TIMESTAMP'2026-01-02 00:00:00', DATE'2020-01-01')"
        )


def test_tables_are_created_listed_and_dropped(lake: txlake.Lake, tmp_path: Path) -> None:
    lake.sql("CREATE DATABASE sales")
    lake.sql("CREATE TABLE sales.a (id INT)")
    lake.sql("CREATE TABLE IF NOT EXISTS sales.a (id INT)")
    lake.sql("CREATE TABLE sales.b AS SELECT 1 AS id, 'x' AS s")
    lake.sql("CREATE TABLE sales.c LIKE sales.b")
    with pytest.raises(InvalidRequest, match="exists"):
        lake.sql("CREATE TABLE sales.a (id INT)")
    assert [row[1] for row in query(lake, "SHOW TABLES IN sales")] == ["a", "b", "c"]
    lake.sql("CREATE OR REPLACE TABLE sales.b (other DATE)")
    assert lake.read("sales.b").columns == ["other"]
    lake.sql("ALTER TABLE sales.c RENAME TO sales.d")
    lake.sql("DROP TABLE sales.a")
    assert [row[1] for row in query(lake, "SHOW TABLES IN sales")] == ["b", "d"]
    with pytest.raises(InvalidRequest, match="CASCADE"):
        lake.sql("DROP DATABASE sales")
    lake.sql("USE sales")
    assert lake.sql("SELECT * FROM d").columns == ["id", "s"]
    lake.sql("USE default")
    lake.sql("DROP DATABASE sales CASCADE")
    with pytest.raises(InvalidRequest, match="sales"):
        lake.sql("SHOW TABLES IN sales")


def test_places_need_no_name(lake: txlake.Lake, tmp_path: Path) -> None:
    place = tmp_path / "by place"
    lake.sql(f"CREATE TABLE delta.`{place}` (id INT)")
    lake.sql(f"INSERT INTO delta.`{place}` VALUES (1)")
    assert number(lake, f"SELECT count(*) FROM delta.`{place}@v1`") == 1
    assert lake.read(str(place)).count() == 1
    lake.sql(f"CREATE TABLE named (id INT) LOCATION '{place}'")
    assert lake.read("named").count() == 1


def test_clones_share_or_copy(orders: txlake.Lake) -> None:
    orders.sql("CREATE TABLE light SHALLOW CLONE orders")
    orders.sql("CREATE TABLE full DEEP CLONE orders VERSION AS OF 1")
    orders.sql("DELETE FROM orders")
    assert number(orders, "SELECT count(*) FROM light") == 4
    assert number(orders, "SELECT count(*) FROM full") == 4


@pytest.mark.broad(keep=3)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELEC 1", "line 1, column 1"),
        ("", "no text"),
        ("SELECT nope FROM orders", "nope"),
        ("UPDATE orders SET nope = 1", "nope"),
        ("DELETE FROM orders WHERE nope = 1", "nope"),
        ("INSERT INTO orders (id, nope) VALUES (1, 2)", "nope"),
        ("INSERT INTO orders VALUES (1)", "3"),
        ("INSERT INTO orders VALUES ('x', 'y', 1.0)", "'id'"),
        ("INSERT INTO orders VALUES (99999999999999999999, 'y', 1.0)", "id"),
        ("INSERT INTO orders VALUES (NULL, 'y', 1.0)", "NOT NULL"),
        ("INSERT INTO nowhere VALUES (1)", "nowhere"),
        ("UPDATE orders SET id = NULL", "NOT NULL"),
        ("OPTIMIZE orders WHERE amount > 1", "partition"),
        ("OPTIMIZE orders WHERE region IN (SELECT region FROM orders)", "has a query in it"),
        ("CREATE TABLE p (id INT) PARTITIONED BY (nope)", "nope"),
        ("CREATE TABLE `../x` (id INT)", "../x"),
        (("MERGE INTO orders t USING orders s ON t.region = s.region WHEN MATCHED THEN DELETE "
         "WHEN NOT MATCHED THEN INSERT *; ROLLBACK"), "no transaction"),
        (
            ("MERGE INTO orders t USING (SELECT 1L id UNION ALL SELECT 1L) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET amount = 0"),
            "2 source rows match",
        ),
    ],
)  # fmt: skip
def test_bad_requests_say_what_is_wrong(orders: txlake.Lake, text: str, said: str) -> None:
    before = query(orders, "SELECT * FROM orders")
    with pytest.raises(InvalidRequest) as raised:
        orders.sql(text)
    assert said in str(raised.value)
    if "DELETE WHEN" not in text.replace("THEN DELETE ", "DELETE "):
        assert query(orders, "SELECT * FROM orders") == before


def test_a_place_without_a_table_is_no_table(lake: txlake.Lake, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with pytest.raises(InvalidRequest, match="not a Delta table"):
        lake.read(str(tmp_path / "plain"))
    with pytest.raises(InvalidRequest, match="not a Delta table"):
        lake.sql(f"DELETE FROM delta.`{tmp_path / 'plain'}`")
