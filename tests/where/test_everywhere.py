"""What a lake does, once over, wherever Spark's tasks run: without txlake on their machine."""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import txlake
from tests.lake.rows import number, query
from tests.where.marks import everywhere
from txlake.errors import (
    ConcurrentAppendException,
    Conflict,
    CorruptTable,
    InvalidRequest,
)
from txlake.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broad(keep=4), everywhere]


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[txlake.Lake]:
    with txlake.connect(str(tmp_path / "lake"), spark=spark) as opened:
        yield opened


@pytest.fixture
def t(lake: txlake.Lake, spark: SparkSession) -> txlake.Lake:
    """A lake with `t` of 100 rows in two partitions, of two files each."""
    rows = spark.range(0, 100, 1, 2).selectExpr("id", "id % 2 p", "'v' || id v")
    lake.write(rows, "t", partition_by="p")
    return lake


def ids(lake: txlake.Lake | txlake.Transaction, where: str = "true") -> list[int]:
    """The `id`s of `t`, sorted."""
    return sorted(row[0] for row in lake.sql(f"SELECT id FROM t WHERE {where}").collect())


# Rows in, rows out


def test_rows_of_many_kinds_are_written(lake: txlake.Lake, spark: SparkSession) -> None:
    arrow = pa.table({"id": [1, 2], "s": ["a", None]})
    lake.write(arrow, "t")
    lake.write(arrow.to_pandas(), "t", mode="append")
    lake.write(pl.from_arrow(arrow), "t", mode="append")
    lake.write(spark.createDataFrame(arrow), "t", mode="append")
    lake.sql("INSERT INTO t VALUES (3, 'b')")
    assert query(lake, "SELECT * FROM t") == [*[(1, "a")] * 4, *[(2, None)] * 4, (3, "b")]
    assert isinstance(lake.read("t").toPandas(), pd.DataFrame)


def test_values_of_every_type_come_back(lake: txlake.Lake) -> None:
    select = (
        "1Y AS b, 2S AS h, 3 AS i, 4L AS l, 5.5F AS f, double('NaN') AS d, 1.25 AS n, 'ü' AS s, "
        "X'00FF' AS x, true AS o, DATE'2026-02-28' AS day, TIMESTAMP'2026-02-28 01:02:03.000004' "
        "AS at, TIMESTAMP_NTZ'1500-01-01 00:00:00' AS ntz, named_struct('a', 1, 'b', array('x', "
        "NULL)) AS st, map('k', struct(1L AS v)) AS m"
    )
    before = lake.sql(f"SELECT {select}").collect()
    lake.sql(f"CREATE TABLE t AS SELECT {select}")
    assert repr(lake.read("t").collect()) == repr(before)
    lake.sql("DELETE FROM t WHERE l = 9")
    lake.sql("UPDATE t SET s = s || s")
    assert query(lake, "SELECT s, st.b, m['k'].v, at FROM t")[0][0] == "üü"


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("DATE", ["2026-01-05", "1999-12-31"]),
        ("TIMESTAMP", ["2026-01-05 10:00:00", "1999-12-31 23:59:59.5"]),
        ("DECIMAL(10,2)", ["1.50", "-3.25"]),
    ],
)
def test_partition_values_come_back(lake: txlake.Lake, kind: str, values: list[str]) -> None:
    lake.sql(f"CREATE TABLE t (id BIGINT, p {kind}) PARTITIONED BY (p)")
    rows = [f"SELECT {i} id, CAST('{text}' AS {kind}) p" for i, text in enumerate(values)]
    lake.sql(f"INSERT INTO t {' UNION ALL '.join(rows)} UNION ALL SELECT 9, NULL")
    expected = {i: row.p for i, row in enumerate(lake.sql(" UNION ALL ".join(rows)).collect())}
    found = {row.id: row.p for row in lake.read("t").collect()}
    assert found == {**expected, 9: None}
    assert ids(lake, f"p = CAST('{values[1]}' AS {kind})") == [1]
    if kind.startswith("DECIMAL"):
        assert isinstance(found[0], decimal.Decimal)


def test_a_frame_is_used_again(t: txlake.Lake) -> None:
    frame = t.read("t", where="p = 1")
    assert frame.count() == 50
    assert frame.groupBy("p").agg(F.sum("id")).collect()[0][1] == 2500
    assert frame.join(t.read("t"), "id").count() == 50
    t.sql("DELETE FROM t")
    assert frame.count() == 50


def test_files_that_spark_can_not_decode_are_read(lake: txlake.Lake, tmp_path: Path) -> None:
    place = tmp_path / "t"
    lake.sql(f"CREATE TABLE delta.`{place}` (id BIGINT, s STRING)")
    file = place / "x.br.parquet"
    pq.write_table(pa.table({"id": [1, 2], "s": ["a", "b"]}), file, compression="brotli")
    add = {"path": file.name, "partitionValues": {}, "size": file.stat().st_size,
           "modificationTime": 1, "dataChange": True, "stats": '{"numRecords":2}'}  # fmt: skip
    txlake.Log(str(place)).start_transaction().commit([{"add": add}], operation="WRITE")
    assert query(lake, f"SELECT * FROM delta.`{place}`") == [(1, "a"), (2, "b")]
    lake.sql(f"DELETE FROM delta.`{place}` WHERE id = 1")
    assert query(lake, f"SELECT * FROM delta.`{place}`") == [(2, "b")]


def test_scans_begin_in_the_scratch_folder(tmp_path: Path, spark: SparkSession) -> None:
    scratch = tmp_path / "scratch folder"
    settings = Settings(scratch_url=str(scratch))
    with txlake.connect(str(tmp_path / "lake"), spark=spark, settings=settings) as lake:
        lake.write(spark.range(10), "t")
        lake.sql("DELETE FROM t WHERE id = 3")
        frame = lake.read("t")
        assert (frame.count(), frame.count()) == (9, 9)
        assert any(scratch.rglob("_spark_metadata"))
    assert [path for path in scratch.rglob("*") if path.is_file()] == []


def test_rows_that_were_read_elsewhere_are_written_back(
    t: txlake.Lake, spark: SparkSession
) -> None:
    """The conditions of what was read are a text and a Column, and the source is Spark's."""
    version = t.table("t").history(1).collect()[0].version
    t.sql("UPDATE t SET v = 'new' WHERE id = 7")
    written = spark.range(1).selectExpr("id", "0 AS p", "'x' AS v")
    for reads in (None, "id < 8", F.col("id") == 7):
        with pytest.raises(Conflict, match="is what was read"):
            t.write(written, "t", "append", read_version=version, reads=reads)
    t.write(written, "t", "append", read_version=version, reads="p = 0")
    handle = t.table("t", read_version=version)
    assert handle.toDF().where("v = 'new'").count() == 0
    handle.update("id = 9", {"v": F.lit("y")})
    with pytest.raises(Conflict):
        handle.delete("id = 7")
    assert number(t, "SELECT count(*) FROM t WHERE v IN ('new', 'x', 'y')") == 3


# Changes


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_rows_change(t: txlake.Lake, vectors: str) -> None:
    t.sql(f"ALTER TABLE t SET TBLPROPERTIES ('delta.enableDeletionVectors' = '{vectors}')")
    assert number(t, "DELETE FROM t WHERE id >= 90") == 10
    assert number(t, "UPDATE t SET v = upper(v), p = 2 WHERE id < 10") == 10
    assert number(t, "UPDATE t SET v = 'again' WHERE id = 3") == 1
    t.sql("DELETE FROM t WHERE p = 1 AND id < 50")
    expected = [i for i in range(90) if i < 10 or i % 2 == 0 or i >= 50]
    assert ids(t) == expected
    assert query(t, "SELECT v, p FROM t WHERE id IN (3, 4, 60)") == [
        ("V4", 2), ("again", 2), ("v60", 0)
    ]  # fmt: skip
    assert t.read("t", version=0).count() == 100


@pytest.mark.parametrize("broadcast_bytes_max", [0, 128 * 1024 * 1024])
def test_deleted_rows_stay_deleted(
    tmp_path: Path, spark: SparkSession, broadcast_bytes_max: int
) -> None:
    settings = Settings(broadcast_vector_bytes_max=broadcast_bytes_max)
    with txlake.connect(str(tmp_path / "lake"), spark=spark, settings=settings) as lake:
        rows = spark.range(0, 30_000, 1, 2).selectExpr("id", "id % 3 p")
        lake.write(rows, "t", partition_by="p")
        assert number(lake, "DELETE FROM t WHERE id % 10 = 7") == 3_000
        assert number(lake, "UPDATE t SET id = -1 WHERE id = 5") == 1
        assert number(lake, "DELETE FROM t WHERE id % 100 = 0") == 300
        total = sum(i for i in range(30_000) if i % 10 != 7 and i % 100 and i != 5) - 1
        assert query(lake, "SELECT count(*), sum(id) FROM t") == [(26_700, total)]


def test_merge_by_every_clause(t: txlake.Lake, spark: SparkSession) -> None:
    source = spark.range(80, 120).selectExpr("id", "'new' v").alias("s")
    builder = t.table("t").alias("t").merge(source, "t.id = s.id")
    builder = builder.whenMatchedDelete("s.id < 85")
    builder = builder.whenMatchedUpdate(set={"v": F.col("s.v")})
    builder = builder.whenNotMatchedInsert(values={"id": "s.id", "v": "s.v", "p": "7"})
    builder.whenNotMatchedBySourceDelete("t.id < 10").execute()
    assert ids(t) == [*range(10, 80), *range(85, 120)]
    assert query(t, "SELECT p, count(*) FROM t WHERE v = 'new' GROUP BY p") == [
        (0, 7), (1, 8), (7, 20)
    ]  # fmt: skip
    twice = "SELECT explode(array(11L, 11L)) id"
    with pytest.raises(InvalidRequest, match="2 source rows match"):
        t.sql(f"MERGE INTO t USING ({twice}) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = ''")


def test_functions_of_users_take_part(t: txlake.Lake) -> None:
    reversed_text = F.udf(lambda text: text[::-1], "string")
    t.table("t").update("id = 42", {"v": reversed_text(F.col("v"))})
    assert query(t, "SELECT v FROM t WHERE id = 42") == [("24v",)]
    fails = F.udf(lambda text: int(text), "string")
    with pytest.raises(InvalidRequest, match=r"ValueError: .*'v43'"):
        t.table("t").update("id = 43", {"v": fails(F.col("v"))})
    assert t.read("t").where("v = 'v43'").count() == 1


def test_what_violates_a_constraint_is_not_written(
    t: txlake.Lake, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    t.sql("ALTER TABLE t ADD CONSTRAINT small CHECK (id < 1000)")
    before = set((tmp_path / "lake" / "t").rglob("*.parquet"))
    with pytest.raises(InvalidRequest, match="small"):
        t.sql("INSERT INTO t SELECT id * 500, 0, 'x' FROM t")
    assert len(ids(t)) == 100
    assert t.table("t").history().count() == 2
    if pytestconfig.getoption("--spark") != "cluster":  # where a second attempt may leave orphans
        assert set((tmp_path / "lake" / "t").rglob("*.parquet")) == before


@pytest.mark.no_interop("a data file is removed")
def test_a_file_that_is_gone_is_named(t: txlake.Lake, tmp_path: Path) -> None:
    gone = sorted((tmp_path / "lake" / "t" / "p=1").glob("*.parquet"))[0]
    gone.unlink()
    with pytest.raises(CorruptTable, match=gone.name):
        t.sql("UPDATE t SET v = 'x'")


# Files and settings


def test_files_are_packed(t: txlake.Lake) -> None:
    t.sql("DELETE FROM t WHERE id % 5 = 0")
    t.sql("OPTIMIZE t WHERE p = 1")
    t.sql("INSERT INTO t SELECT id + 100, p, v FROM t WHERE p = 0")
    t.sql("OPTIMIZE t ZORDER BY (v)")
    (detail,) = t.sql("DESCRIBE DETAIL t").collect()
    assert detail["numFiles"] == 2
    expected = [i for i in range(100) if i % 5]
    assert ids(t) == [*expected, *(i + 100 for i in expected if i % 2 == 0)]


def test_a_tables_columns_are_mapped_and_changed(t: txlake.Lake) -> None:
    t.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    t.sql("ALTER TABLE t RENAME COLUMN v TO `text.of it`")
    t.sql("ALTER TABLE t ADD COLUMN w INT")
    t.sql("INSERT INTO t VALUES (100, 1, 'last', 7)")
    t.sql("UPDATE t SET w = 8 WHERE id = 1")
    found = "SELECT id, `text.of it`, w FROM t WHERE id IN (1, 2, 100)"
    assert query(t, found) == [(1, "v1", 8), (100, "last", 7), (2, "v2", None)]
    t.sql("ALTER TABLE t DROP COLUMN w")
    assert t.read("t").columns == ["id", "p", "text.of it"]


def test_rows_keep_their_ids(lake: txlake.Lake) -> None:
    lake.sql(
        "CREATE TABLE t (id BIGINT, v STRING, up STRING GENERATED ALWAYS AS (upper(v))) "
        "TBLPROPERTIES ('delta.enableRowTracking' = 'true')"
    )
    lake.sql("INSERT INTO t (id, v) VALUES (1, 'a'), (2, 'b')")
    lake.sql("INSERT INTO t (id, v) SELECT id + 2, v || v FROM t")
    lake.sql("UPDATE t SET v = 'z' WHERE id = 2")
    lake.sql("OPTIMIZE t")
    assert query(lake, "SELECT * FROM t") == [
        (1, "a", "A"), (2, "z", "Z"), (3, "aa", "AA"), (4, "bb", "BB")
    ]  # fmt: skip


def test_a_folder_of_files_is_copied_once(t: txlake.Lake, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    new = {"id": [1000], "p": [5], "v": ["copied"]}
    pq.write_table(pa.table(new), tmp_path / "in" / "1.parquet")
    copy = f"COPY INTO t FROM '{tmp_path}/in' FILEFORMAT = PARQUET"
    assert number(t, copy) == 1
    assert number(t, copy) == 0
    assert ids(t, "p = 5") == [1000]


# Transactions


def test_a_transaction_is_all_or_nothing(t: txlake.Lake) -> None:
    with t.transaction() as tx:
        tx.sql("INSERT INTO t SELECT id + 1000, p, v FROM t WHERE id < 3")
        tx.savepoint("three")
        tx.sql("DELETE FROM t WHERE id < 50")
        assert len(ids(tx)) == 53
        tx.rollback_to("three")
        tx.sql("UPDATE t SET v = 'mine' WHERE id = 0")
        assert ids(t, "v = 'mine'") == []
    assert ids(t, "v = 'mine'") == [0]
    assert ids(t, "id >= 1000") == [1000, 1001, 1002]
    tx = t.begin()
    tx.sql("DELETE FROM t")
    assert ids(tx) == []
    tx.rollback()
    assert len(ids(t)) == 103


def test_stale_rows_are_not_written(t: txlake.Lake) -> None:
    """Plans are Spark's: what they show is found in them wherever Spark runs."""
    t.sql("CREATE TABLE u (id BIGINT)")
    shown = t.read("t").where("id < 5").select("id")
    t.read("t").createOrReplaceTempView("txlake_shown")
    t.sql("CREATE OR REPLACE TEMP VIEW fresh AS SELECT id FROM t WHERE id < 2")
    t.write(shown, "u", mode="append")
    with t.session() as other:
        other.sql("UPDATE t SET v = 'new' WHERE id = 1")
    for write in (
        lambda: t.write(shown, "u", mode="append"),
        lambda: t.sql("INSERT INTO u SELECT id FROM txlake_shown"),
    ):
        with pytest.raises(Conflict, match=r"A DataFrame shows version \d+ of default\.t"):
            write()
    t.sql("INSERT INTO u SELECT id + 10 FROM fresh")
    assert sorted(row.id for row in t.read("u").collect()) == [0, 1, 2, 3, 4, 10, 11]


def test_conflicts_are_found(t: txlake.Lake) -> None:
    def both(ours: str, theirs: str) -> None:
        tx = t.begin()
        tx.sql(ours)
        t.sql(theirs)
        tx.commit()

    both("UPDATE t SET v = 'a' WHERE p = 1", "UPDATE t SET v = 'b' WHERE p = 0")
    both("DELETE FROM t WHERE p = 1 AND id < 50", "INSERT INTO t VALUES (200, 1, 'new')")
    assert query(t, "SELECT v, count(*) FROM t GROUP BY v") == [("a", 25), ("b", 50), ("new", 1)]
    with pytest.raises(Conflict):
        both("DELETE FROM t WHERE id = 60", "UPDATE t SET v = 'c' WHERE id = 60")
    with pytest.raises(ConcurrentAppendException):
        both("DELETE FROM t WHERE p = 1", "INSERT INTO t SELECT id + 300, 1, 'd' FROM t")
    assert ids(t, "v = 'c'") == [60]


def test_variants(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id INT, v VARIANT)")
    lake.sql("INSERT INTO t SELECT id, parse_json(IF(id = 0, NULL, string(id))) FROM range(4)")
    lake.sql("UPDATE t SET v = parse_json('[]') WHERE variant_get(v, '$', 'int') = 1")
    lake.sql("OPTIMIZE t")
    found = lake.sql("SELECT to_json(v) FROM t ORDER BY id").collect()
    assert [row[0] for row in found] == [None, "[]", "2", "3"]
