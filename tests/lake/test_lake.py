"""`connect`, the lake and its sessions: every method and argument."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import txlake
from tests.lake.rows import number, query, rows
from txlake.errors import ConcurrentAppendException, InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=6)

ROWS = pa.table({"id": [1, 2], "name": ["a", "b"]})


# connect


@pytest.mark.parametrize("kind", ["path", "url", "spaces", "odd"])
def test_a_lake_is_a_folder_or_a_url(tmp_path: Path, spark: SparkSession, kind: str) -> None:
    folder = {
        "path": tmp_path / "warehouse",
        "url": tmp_path / "warehouse",
        "spaces": tmp_path / "my warehouse",
        "odd": tmp_path / "50% #1 ü? & [x]=*",
    }[kind]
    location = folder.as_uri() if kind == "url" else str(folder)
    with txlake.connect(location, spark=spark) as lake:
        lake.write(ROWS, "t")
        lake.sql("UPDATE t SET name = 'c' WHERE id = 1")
        assert query(lake, "SELECT * FROM t") == [(1, "c"), (2, "b")]
    assert (folder / "t" / "_delta_log" / f"{1:020}.json").exists()
    with txlake.connect(location, spark=spark) as lake:
        assert query(lake, "SELECT * FROM t") == [(1, "c"), (2, "b")]


def test_a_relative_folder_is_below_the_current_one(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with txlake.connect("warehouse", spark=spark) as lake:
        lake.write(ROWS, "t")
    with txlake.connect(str(tmp_path / "warehouse"), spark=spark) as lake:
        assert lake.read("t").count() == 2


def test_a_lake_in_memory_does_everything(spark: SparkSession) -> None:
    with txlake.connect("memory://test_lake/warehouse", spark=spark) as lake:
        lake.write(ROWS, "t", partition_by="name")
        lake.sql("INSERT INTO t SELECT id + 10, name FROM t")
        lake.sql("UPDATE t SET id = 20 WHERE id = 2")
        lake.sql("DELETE FROM t WHERE id = 1")
        lake.sql(
            "MERGE INTO t USING (SELECT 20L AS id) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET name = 'it''s'"
        )
        assert query(lake, "SELECT * FROM t") == [(11, "a"), (12, "b"), (20, "it's")]
        assert lake.read("t", version=0).count() == 2
        lake.sql("CREATE TABLE copy DEEP CLONE t")
        assert query(lake, "SELECT * FROM copy WHERE name = 'it''s'") == [(20, "it's")]
        lake.sql("OPTIMIZE t; VACUUM t")
        assert txlake.Log("memory://test_lake/warehouse/t").snapshot().version >= 5
    with txlake.connect("memory://test_lake/warehouse", spark=spark) as lake:
        assert [row[1] for row in query(lake, "SHOW TABLES")] == ["copy", "t"]
        assert lake.read("t").count() == 3


@pytest.mark.parametrize("location", ["", "ftp://host/x", "s3://", "file://host/x"])
def test_what_names_no_place_is_refused(location: str, spark: SparkSession) -> None:
    with pytest.raises(InvalidRequest):
        txlake.connect(location, spark=spark)


def test_a_file_in_the_way_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidRequest, match="can't be made there"):
        txlake.connect(str(tmp_path / "file"), spark=spark)


def test_the_catalog_may_stand_elsewhere(tmp_path: Path, spark: SparkSession) -> None:
    warehouse, names = tmp_path / "warehouse", f"sqlite:///{tmp_path / 'names.db'}"
    with txlake.connect(str(warehouse), catalog=names, spark=spark) as lake:
        lake.write(ROWS, "t")
    assert [path.name for path in (warehouse / "_txlake").iterdir()] == ["lake.json"]
    with txlake.connect(str(tmp_path / "other"), catalog=names, spark=spark) as lake:
        assert lake.read("t").count() == 2
    with pytest.raises(InvalidRequest, match="'warehouse', or a URL like sqlite:///path"):
        txlake.connect(str(warehouse), catalog="nonsense", spark=spark)


def test_storage_options_are_checked(tmp_path: Path, spark: SparkSession) -> None:
    names = f"sqlite:///{tmp_path / 'names.db'}"
    with pytest.raises(InvalidRequest, match=r"(?i)no_such_option"):
        txlake.connect(
            "s3://bucket/wh", catalog=names, spark=spark, storage_options={"no_such_option": "1"}
        )
    with txlake.connect(str(tmp_path / "w"), spark=spark, storage_options={"region": "x"}) as lake:
        lake.write(ROWS, "t")  # a folder has no use for them


def test_a_lakes_level_holds_for_its_transactions(tmp_path: Path, spark: SparkSession) -> None:
    location = str(tmp_path / "warehouse")
    with txlake.connect(location, spark=spark, isolation="serializable") as lake:
        lake.sql("CREATE TABLE t (id BIGINT); INSERT INTO t VALUES (1)")
        for asked, loses in ((None, True), ("snapshot", False)):
            with lake.session() as session:
                tx = session.begin(isolation=asked)
                tx.sql("DELETE FROM t WHERE id = 1")
                lake.sql("INSERT INTO t VALUES (1)")
                if loses:
                    with pytest.raises(ConcurrentAppendException):
                        tx.commit()
                else:
                    tx.commit()
    with pytest.raises(InvalidRequest, match=r"'dirty'.*serializable"):
        txlake.connect(location, spark=spark, isolation="dirty")


def test_spark_is_found_when_none_is_given(tmp_path: Path, spark: SparkSession) -> None:
    with txlake.connect(str(tmp_path / "warehouse")) as lake:
        assert lake.sql("SELECT 1").sparkSession is spark


def test_two_lakes_on_one_folder_share_their_tables(tmp_path: Path, spark: SparkSession) -> None:
    location = str(tmp_path / "warehouse")
    with txlake.connect(location, spark=spark) as one, txlake.connect(location) as other:
        one.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT)")
        other.sql("INSERT INTO d.t VALUES (1)")
        assert query(one, "SELECT * FROM D.T") == [(1,)]
        other.sql("ALTER TABLE d.t RENAME TO d.u")
        assert query(one, "SHOW TABLES IN d") == [("d", "u", False)]
        one.sql("DROP TABLE d.u")
        with pytest.raises(InvalidRequest, match="no table 'u'"):
            other.sql("DELETE FROM d.u")


# write


def test_modes_say_what_an_existing_table_means(lake: txlake.Lake) -> None:
    lake.write(ROWS, "t")
    with pytest.raises(InvalidRequest, match="t exists already"):
        lake.write(ROWS, "t", mode="error")
    lake.write(ROWS, "t", mode="ignore")
    assert lake.read("t").count() == 2
    lake.write(ROWS, "t", mode="append")
    assert lake.read("t").count() == 4
    lake.write(ROWS.slice(1), "t", mode="overwrite")
    assert rows(lake.read("t")) == [(2, "b")]
    for mode in ("append", "overwrite", "ignore"):
        lake.write(ROWS, f"new_{mode}", mode)
        assert lake.read(f"new_{mode}").count() == 2


@pytest.mark.parametrize(
    "make", ["pyarrow", "batch", "reader", "pandas", "polars", "lazy", "spark"]
)
def test_rows_come_in_many_shapes(lake: txlake.Lake, spark: SparkSession, make: str) -> None:
    def frame() -> object:
        match make:
            case "pyarrow":
                return ROWS
            case "batch":
                return ROWS.to_batches()[0]
            case "reader":
                return ROWS.to_reader()
            case "pandas":
                return pd.DataFrame({"id": [1, 2], "name": ["a", "b"]})
            case "polars":
                return pl.DataFrame({"id": [1, 2], "name": ["a", "b"]})
            case "lazy":
                return pl.DataFrame({"id": [1, 2], "name": ["a", "b"]}).lazy()
        return spark.createDataFrame(ROWS)

    lake.write(frame(), "t")
    lake.write(frame(), "t", "append")
    assert rows(lake.read("t")) == [(1, "a"), (1, "a"), (2, "b"), (2, "b")]
    assert [item.dataType.simpleString() for item in lake.read("t").schema] == ["bigint", "string"]


def test_columns_are_found_by_name_in_any_order_and_case(lake: txlake.Lake) -> None:
    lake.write(ROWS, "t")
    lake.write(pa.table({"NAME": ["c"], "ID": [3]}), "t", "append")
    lake.write(pa.table({"id": [4]}), "t", "append")
    assert rows(lake.read("t")) == [(1, "a"), (2, "b"), (3, "c"), (4, None)]


@pytest.mark.parametrize("by", ["day", ["day"], ("day", "n")])
def test_a_new_table_is_partitioned(lake: txlake.Lake, tmp_path: Path, by: str | list[str]) -> None:
    days = [datetime.date(2026, 1, day) for day in (1, 1, 2)]
    lake.write(pa.table({"id": [1, 2, 3], "n": [1, 2, 3], "day": days}), "t", partition_by=by)
    lake.write(pa.table({"id": [4], "n": [1], "day": days[:1]}), "t", "append", partition_by=by)
    detail = lake.table("t").detail().collect()[0]
    assert list(detail.partitionColumns) == (["day"] if "n" not in by else ["day", "n"])
    assert (tmp_path / "warehouse" / "t" / "day=2026-01-02").is_dir()
    assert lake.read("t", where="day = '2026-01-01'").count() == 3


def test_replace_where_replaces_just_those_rows(lake: txlake.Lake) -> None:
    lake.write(pa.table({"id": [1, 2, 3], "p": [1, 1, 2]}), "t", partition_by="p")
    lake.write(pa.table({"id": [9], "p": [1]}), "t", "overwrite", replace_where="p = 1")
    assert rows(lake.read("t")) == [(3, 2), (9, 1)]
    from pyspark.sql import functions as F

    lake.write(pa.table({"id": [8], "p": [1]}), "t", "overwrite", replace_where=F.col("id") == 8)
    assert rows(lake.read("t")) == [(3, 2), (8, 1), (9, 1)]


def test_only_partitions_with_new_rows_are_overwritten(lake: txlake.Lake) -> None:
    lake.write(pa.table({"id": [1, 2, 3], "p": [1, 1, 2]}), "t", partition_by="p")
    new = pa.table({"id": [9], "p": [1]})
    lake.write(new, "t", "overwrite", partition_overwrite="dynamic")
    assert rows(lake.read("t")) == [(3, 2), (9, 1)]
    lake.write(new, "t", "overwrite")
    assert rows(lake.read("t")) == [(9, 1)]


def test_the_schema_changes_when_told_to(lake: txlake.Lake) -> None:
    lake.write(ROWS, "t")
    wider = pa.table({"id": [3], "extra": [1.5]})
    with pytest.raises(InvalidRequest, match=r"extra.*merge_schema"):
        lake.write(wider, "t", "append")
    lake.write(wider, "t", "append", merge_schema=True)
    assert rows(lake.read("t")) == [(1, "a", None), (2, "b", None), (3, None, 1.5)]
    other = pa.table({"key": ["x"], "p": [1]})
    with pytest.raises(InvalidRequest, match="key"):
        lake.write(other, "t", "overwrite")
    lake.write(other, "t", "overwrite", overwrite_schema=True, partition_by="p")
    assert rows(lake.read("t")) == [("x", 1)]
    assert list(lake.table("t").detail().collect()[0].partitionColumns) == ["p"]
    assert lake.read("t", version=1).columns == ["id", "name", "extra"]


def test_what_parquet_stores_alike_widens_with_the_schema(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t (s SMALLINT, n INT, l BIGINT)")
    lake.sql("INSERT INTO t VALUES (1, 1, 1)")
    wide = pa.table({"s": pa.array([40_000], pa.int32()), "n": [2], "l": [2]})
    with pytest.raises(InvalidRequest, match="'s' is short, which can't hold the value"):
        lake.write(wide, "t", "append")
    lake.write(wide, "t", "append", merge_schema=True)
    assert rows(lake.read("t")) == [(1, 1, 1), (40_000, 2, 2)]
    # A BIGINT stays where it can be stored: its column would need another file format.
    assert [kind for _, kind in lake.read("t").dtypes] == ["int", "int", "bigint"]
    table = lake.table("t").detail().collect()[0]
    assert "typeWidening" not in (table.tableFeatures or ())


@pytest.mark.parametrize(
    ("rule", "refused"),
    [
        ("g BIGINT GENERATED ALWAYS AS (CAST(s AS BIGINT) * 2)", "generated column g"),
        ("CONSTRAINT c CHECK (s > 0)", "constraint c"),
    ],
)
def test_nothing_widens_under_what_is_defined_over_it(
    lake: txlake.Lake, rule: str, refused: str
) -> None:
    lake.sql(f"CREATE TABLE t (s SMALLINT, {rule})")
    wide = pa.table({"s": pa.array([1], pa.int32())})
    with pytest.raises(InvalidRequest, match=f"column s can't change its type.*{refused}"):
        lake.write(wide, "t", "append", merge_schema=True)
    lake.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    merge = (
        "MERGE WITH SCHEMA EVOLUTION INTO t USING (SELECT 1 AS s) AS q ON t.s = q.s "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    with pytest.raises(InvalidRequest, match=f"column s can't change its type.*{refused}"):
        lake.sql(merge)
    lake.write(wide, "t", "append")
    assert rows(lake.read("t").select("s")) == [(1,)]


def test_values_of_one_column_may_be_of_several_types(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id INT, d STRING)")
    lake.sql("INSERT INTO t VALUES (1, DATE '2026-03-01'), (2, TIMESTAMP '2026-01-01 12:34:56')")
    assert rows(lake.read("t")) == [(1, "2026-03-01 00:00:00"), (2, "2026-01-01 12:34:56")]
    with pytest.raises(InvalidRequest, match=r"(?i)incompatible types"):
        lake.sql("INSERT INTO t VALUES (1, true), (2, X'31')")


def test_a_new_schema_without_partitions_drops_the_partitioning(lake: txlake.Lake) -> None:
    lake.write(pa.table({"id": [1], "p": ["a"]}), "t", partition_by="p")
    lake.write(pa.table({"id": [2], "p": [""]}), "t", "overwrite", overwrite_schema=True)
    assert list(lake.table("t").detail().collect()[0].partitionColumns) == []
    assert rows(lake.read("t")) == [(2, "")]
    lake.write(
        pa.table({"id": [3], "p": ["b"]}), "t", "overwrite", overwrite_schema=True, partition_by="p"
    )
    lake.write(pa.table({"id": [4]}), "t", "overwrite", overwrite_schema=True)
    assert rows(lake.read("t")) == [(4,)]
    assert [tuple(row) for row in lake.read("t", version=0).collect()] == [(1, "a")]


def test_in_dynamic_mode_no_rows_replace_nothing(lake: txlake.Lake, spark: SparkSession) -> None:
    table = pa.table({"id": [1, 2, 3], "p": [1, 1, 2], "q": [1, 2, 1]})
    lake.write(table, "t", partition_by=["p", "q"])
    overwrite = "INSERT OVERWRITE t PARTITION (p = 1, q) SELECT 9, 1"
    nothing = f"{overwrite} WHERE false"
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        lake.sql(nothing)
        assert rows(lake.read("t")) == [(1, 1, 1), (2, 1, 2), (3, 2, 1)]
        lake.sql(overwrite)
        assert rows(lake.read("t")) == [(2, 1, 2), (3, 2, 1), (9, 1, 1)]
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    lake.sql(nothing)
    assert rows(lake.read("t")) == [(3, 2, 1)]


def test_dynamic_partition_columns_stand_where_the_table_has_them(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t (p INT, id INT, q INT) PARTITIONED BY (p, q)")
    lake.sql("INSERT INTO t PARTITION (p, q) SELECT 1, 2, 3")
    lake.sql("INSERT INTO t PARTITION (q = 6, p) SELECT 4, 5")
    assert rows(lake.read("t")) == [(1, 2, 3), (4, 5, 6)]


def test_a_database_is_made_for_the_table(lake: txlake.Lake) -> None:
    lake.write(ROWS, "sales.orders")
    assert [row[0] for row in query(lake, "SHOW DATABASES")] == ["default", "sales"]
    with pytest.raises(InvalidRequest, match="no database 'nope'"):
        lake.sql("CREATE TABLE nope.t (id INT)")
    with pytest.raises(InvalidRequest):
        lake.write(pa.table({"x": pa.array([1], pa.duration("s"))}), "nope.t")
    assert "nope" not in [row[0] for row in query(lake, "SHOW DATABASES")]


def test_a_table_without_a_name_at_its_place_is_taken_over(
    lake: txlake.Lake, tmp_path: Path
) -> None:
    lake.write(ROWS, str(tmp_path / "warehouse" / "t"))
    assert query(lake, "SHOW TABLES") == []
    with pytest.raises(InvalidRequest, match="exists already"):
        lake.write(ROWS, "t")
    lake.write(ROWS, "t", "append")
    assert query(lake, "SHOW TABLES") == [("default", "t", False)]
    assert lake.read("t").count() == 4


# read


def test_reads_travel_filter_and_choose_columns(lake: txlake.Lake) -> None:
    lake.write(ROWS, "t")
    lake.write(ROWS, "t", "overwrite")
    lake.write(ROWS, "t", "append")
    assert lake.read("t").count() == 4
    assert lake.read("t", version=0).count() == 2
    assert rows(lake.read("t", version=0, where="id > 1", columns=["name"])) == [("b",)]
    assert lake.read("t", columns=["NAME", "id"]).columns == ["NAME", "id"]
    from pyspark.sql import functions as F

    assert rows(lake.read("t", where=F.col("name") == "a")) == [(1, "a"), (1, "a")]
    times = {row.version: row.timestamp for row in lake.table("t").history().collect()}
    at = times[1].replace(tzinfo=datetime.UTC)
    assert lake.read("t", timestamp=at).count() in (2, 4)
    assert lake.read("t", timestamp=at.isoformat()).count() in (2, 4)


def test_conditions_may_ask_other_tables(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t AS SELECT id FROM range(4)")
    lake.sql("CREATE TABLE u AS SELECT 2L AS id")
    assert rows(lake.read("t", where="id IN (SELECT id FROM u)")) == [(2,)]
    assert rows(lake.read("t", where="id > (SELECT max(id) FROM default.u)")) == [(3,)]
    related = "EXISTS (SELECT 1 FROM u WHERE u.id = t.id + 1)"
    assert rows(lake.read("t", where=related)) == [(1,)]
    nine = pa.table({"id": [9]})
    lake.write(nine, "u", "overwrite", replace_where="id = 2 OR id > (SELECT max(id) FROM t)")
    assert rows(lake.read("u")) == [(9,)]
    with pytest.raises(
        InvalidRequest, match="there is no table 'nope' in database 'default'; SHOW"
    ):
        lake.read("t", where="id IN (SELECT id FROM nope)")
    with pytest.raises(InvalidRequest, match="where must be a Spark SQL Column or a string"):
        lake.read("t", where=1)  # type: ignore[arg-type]
    from pyspark.sql import functions as F

    with pytest.raises(
        InvalidRequest, match=r"^u is a table of the lake, which a Column can't read"
    ):
        lake.read("t", where=F.expr("id IN (SELECT id FROM u)"))


def test_a_table_is_named_in_many_ways(lake: txlake.Lake, tmp_path: Path) -> None:
    lake.write(ROWS, "sales.orders")
    place = tmp_path / "warehouse" / "sales.db" / "orders"
    for name in ("sales.orders", "SALES.Orders", str(place), place.as_uri(), f"delta.`{place}`"):
        assert lake.read(name).count() == 2
        assert lake.table(name).toDF().count() == 2
    with pytest.raises(InvalidRequest, match="no table 'orders'"):
        lake.table("orders")
    with pytest.raises(InvalidRequest):
        lake.read("a.b.c")


# sessions and transactions


def test_a_session_has_its_own_database_and_transaction(lake: txlake.Lake) -> None:
    lake.write(ROWS, "d.t")
    with lake.session() as one, lake.session() as other:
        one.sql("USE d")
        one.sql("BEGIN; DELETE FROM t")
        assert one.read("t").count() == 0
        assert one.table("t").toDF().count() == 0
        assert other.read("d.t").count() == 2
        with pytest.raises(InvalidRequest, match="no table 't'"):
            other.read("t")
        one.write(ROWS.slice(1), "t", "append")
        assert one.read("t").count() == 1
    assert lake.read("d.t").count() == 2  # `one` was closed with its transaction open


def test_every_way_to_write_takes_part_in_a_transaction(lake: txlake.Lake) -> None:
    lake.write(ROWS, "t")
    with lake.transaction(isolation="serializable") as tx:
        tx.write(ROWS, "t", "append")
        tx.table("t").update("id = 1", {"name": "'x'"})
        tx.table("t").delete("id = 2")
        assert tx.read("t").count() == tx.table("t").toDF().count() == 2
        assert number(tx, "SELECT count(*) FROM t") == 2
        assert lake.read("t").count() == 2
    assert rows(lake.read("t")) == [(1, "x"), (1, "x")]
    assert [row.version for row in lake.table("t").history().collect()] == [1, 0]


def test_a_transaction_says_where_it_stands(lake: txlake.Lake) -> None:
    lake.write(ROWS, "t")
    lake.write(ROWS, "t", "append")
    tx = lake.begin()
    assert (len(tx.id), tx.state, tx.sequence) == (36, "active", None)
    assert tx.read("t").count() == 4
    assert tx.sequence == 2
    lake.write(ROWS, "t", "append")
    assert tx.sequence == 2
    tx.rollback()
    assert tx.state == "rolled back"
    with pytest.raises(InvalidRequest, match="rolled back; begin a new one"):
        tx.read("t")
    with pytest.raises(InvalidRequest, match="rolled back"):
        tx.commit()
    tx.rollback()

    other = lake.begin()
    assert other.id != tx.id
    other.write(ROWS, "t", "append")
    other.commit()
    assert other.state == "committed"
    with pytest.raises(InvalidRequest, match="committed; begin a new one"):
        other.write(ROWS, "t", "append")
    failed = lake.begin()
    with pytest.raises(InvalidRequest):
        failed.sql("DELETE FROM t WHERE nope")
    assert failed.state == "failed"
    failed.rollback()


def test_begin_is_beside_the_sessions_own_transaction(lake: txlake.Lake) -> None:
    lake.write(ROWS, "t")
    lake.sql("BEGIN; DELETE FROM t WHERE id = 1")
    tx = lake.begin()
    assert tx.read("t").count() == 2
    tx.rollback()
    assert lake.read("t").count() == 1
    lake.sql("ROLLBACK")


def test_control_statements_work_inside_of_a_held_transaction(lake: txlake.Lake) -> None:
    lake.write(ROWS, "t")
    tx = lake.begin()
    tx.sql("SAVEPOINT a; DELETE FROM t; ROLLBACK TO a; DELETE FROM t WHERE id = 1; COMMIT")
    assert tx.state == "committed"
    assert rows(lake.read("t")) == [(2, "b")]
    for text in ("BEGIN", "ROLLBACK TO nope"):
        tx = lake.begin()
        with pytest.raises(InvalidRequest):
            tx.sql(text)
        assert tx.state == "failed"
        tx.sql("ROLLBACK") if tx.state == "active" else tx.rollback()


def test_run_gives_the_works_value_and_checks_its_attempts(lake: txlake.Lake) -> None:
    lake.write(ROWS, "t")
    assert lake.run(lambda tx: tx.read("t").count()) == 2
    with pytest.raises(InvalidRequest, match="attempts=0"):
        lake.run(lambda tx: None, attempts=0)
    for unknown in ("dirty", 5):
        with pytest.raises(InvalidRequest, match=f"{unknown!r}; expected serializable"):
            lake.run(lambda tx: None, isolation=unknown)  # type: ignore[arg-type]
    calls = []

    def fails(tx: txlake.Transaction) -> None:
        calls.append(tx)
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        lake.run(fails)
    assert len(calls) == 1
    assert calls[0].state == "rolled back"


def test_what_can_not_be_asked_fails_the_transaction(lake: txlake.Lake) -> None:
    lake.write(ROWS, "t")
    bad: tuple[Callable[[Any], object], ...] = (
        lambda tx: tx.sql("SELEC 1"),
        lambda tx: tx.write(ROWS, "t", "upsert"),
        lambda tx: tx.write(ROWS, "t", "append", partition_overwrite="some"),
        lambda tx: tx.write(ROWS, 5, "append"),
        lambda tx: tx.read("t", version=1, timestamp="2026-01-01"),
        lambda tx: tx.read("t", version="one"),
    )
    for ask in bad:
        tx = lake.begin()
        with pytest.raises(InvalidRequest):
            ask(tx)
        assert tx.state == "failed"
        with pytest.raises(InvalidRequest, match="was rolled back because a statement failed"):
            tx.read("t")
        tx.rollback()
    with lake.transaction() as tx:
        with pytest.raises(InvalidRequest, match="no table 'nope'"):
            tx.table("nope")
        assert tx.state == "active"
    lake.sql("BEGIN")
    with pytest.raises(InvalidRequest):
        lake.write(ROWS, "t", "upsert")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="was rolled back"):
        lake.sql("COMMIT")


def test_settings_of_the_given_spark_count_at_once(tmp_path: Path, spark: SparkSession) -> None:
    key = "spark.databricks.delta.retentionDurationCheck.enabled"
    spark.conf.set(key, "false")
    try:
        with txlake.connect(str(tmp_path / "warehouse"), spark=spark) as lake:
            lake.write(ROWS, "t")
            lake.table("t").vacuum(0)
    finally:
        spark.conf.unset(key)
