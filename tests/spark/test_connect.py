"""The data plane under Spark Connect, which has no gateway into the JVM."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.connect_port import connect_port

pytestmark = pytest.mark.timeout(1800)

PROGRAM = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[2]]
from pathlib import Path
from pyspark.sql import SparkSession
spark = (SparkSession.builder.remote("local[2]").config("spark.driver.memory", "1g")
    .config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
    .config("spark.log.level", "OFF")
    .config("spark.sql.session.timeZone", "UTC").getOrCreate())
assert type(spark).__module__.startswith("pyspark.sql.connect")
from dataclasses import replace
from tests.spark.tables import VECTORS, table
from txlake.errors import CorruptTable, InvalidRequest
from txlake.settings import Settings

def refused(action, message, kind=InvalidRequest):
    try:
        action()
    except kind as error:
        assert message in str(error), error
        assert str(error).startswith("t: ") or "MERGE INTO t" in str(error), error
    else:
        raise AssertionError(f"expected {kind.__name__}: {message}")

folder = Path(sys.argv[3])
t = table(folder / "t", spark, "id LONG, v STRING, p LONG, CONSTRAINT c CHECK (id < 1000)",
          partitioned_by="p", properties=VECTORS)
t.append(spark.range(10).selectExpr("id", "'v' || id v", "id % 2 p"))
t.without_spark  # held rows need none
t.run("INSERT INTO t VALUES (10, 'v10', 0)")
t.run("DELETE FROM t WHERE id = 3")
t.run("UPDATE t SET v = v || '!' WHERE id IN (4, 5)")
t.run("MERGE INTO t USING (SELECT * FROM VALUES (4L, 'm'), (20L, 'n') AS x(id, v)) s "
      "ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v "
      "WHEN NOT MATCHED THEN INSERT (id, v, p) VALUES (id, v, 0) "
      "WHEN NOT MATCHED BY SOURCE AND id = 0 THEN DELETE")
print(t.rows())
t.compact()
t.zorder("id")
frame = t.frame()
assert frame.count() == 10 and frame.where("p = 1").count() == 4  # a plan is read more than once
t.replace_where(spark.sql("SELECT 1L id, 'one' v, 1L p"), "p = 1")
print(t.rows())
refused(lambda: t.run("INSERT INTO t SELECT 5000L, 'x', 1L"), "CHECK constraint c")
refused(lambda: t.run("UPDATE t SET id = nope"), "nope")
refused(lambda: t.run("UPDATE t SET v = CAST(CAST(v AS INT) AS STRING)"), "CAST_INVALID_INPUT")
refused(lambda: t.run("UPDATE t SET id = (SELECT explode(array(1L, 2L)))"), "SCALAR_SUBQUERY_TOO")
refused(lambda: t.run("UPDATE t SET id = (SELECT max(CAST(concat('x', id) AS LONG)) "
                      "FROM range(2))"), "CAST_INVALID_INPUT")
refused(lambda: t.run("INSERT INTO t SELECT 1e30D, 'x', 1L"), "column 'id' is long")
refused(lambda: t.run("MERGE INTO t USING (SELECT explode(array(1L, 1L)) id) s ON t.id = s.id "
                      "WHEN MATCHED THEN UPDATE SET v = 'x'"), "2 source rows match")
bulk = table(folder / "bulk", spark, "id LONG, v STRING, CONSTRAINT c CHECK (id < 1000)")
bulk.append(spark.range(10).selectExpr("id", "'v' || id v"))
assert all("/" in add.path for add in bulk.adds())  # by Spark's own writer
assert len(bulk.rows()) == 10
refused(lambda: bulk.run("INSERT INTO t SELECT 5000L, 'x'"), "CHECK constraint c")
refused(lambda: bulk.run("INSERT INTO t SELECT 1e30D, 'x'"), "column 'id' is long")
times = table(folder / "times", spark, "at TIMESTAMP")
times.run("INSERT INTO t SELECT TIMESTAMP'2026-01-31 10:00:00'")
assert not any("/" in add.path for add in times.adds())  # it would write INT96
many = replace(t, settings=Settings(broadcast_vector_bytes_max=0))
many.run("DELETE FROM t WHERE id = 2")
print(many.rows())
files = t.data_files()
for name in files:
    (t.folder / name).unlink()
refused(lambda: t.run("UPDATE t SET v = 'x'"), "is in the log but not in the store", CorruptTable)
import txlake
with txlake.connect(str(folder / "lake"), spark=spark) as lake:
    lake.sql("CREATE TABLE f (id LONG, n INT) TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    lake.sql("INSERT INTO f VALUES (1, 1), (2, 2), (3, 3)")
    lake.sql("UPDATE f SET n = 9 WHERE id = 2")
    lake.sql("DELETE FROM f WHERE id = 1")
    told = sorted((r[-2], r[-3], r[0], r[1]) for r in lake.changes("f", 2).collect())
    assert told == [(2, "update_postimage", 2, 9), (2, "update_preimage", 2, 2),
                    (3, "delete", 1, 1)], told
    assert lake.sql("SELECT * FROM table_changes('f', 1)").count() == 6
    txlake.enable(spark, lake)
    from pyspark.sql import functions as F
    new = spark.createDataFrame([(3, 7), (8, 8)], "id LONG, n INT")
    (new.alias("s").mergeInto("f", F.col("default.f.id") == F.col("s.id"))
        .whenMatched(F.col("s.n") > 0).update({"f.n": new.n})
        .whenNotMatched().insertAll().whenNotMatchedBySource(F.col("id") == 2).delete().merge())
    assert sorted(map(tuple, spark.table("f").where("default.f.id > 0").collect())) == [
        (3, 7), (8, 8)]
    txlake.disable(spark)
spark.stop()
"""


@pytest.mark.broad
@pytest.mark.no_interop("its data files are removed at the end")
def test_everything_once(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="grpcio, which Spark Connect needs, isn't installed")
    root = Path(__file__).resolve().parents[2]
    with connect_port():
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(root), str(root / "src"), str(tmp_path)],
            capture_output=True,
            text=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            timeout=400,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    changed, replaced, deleted = done.stdout.splitlines()[-3:]
    assert changed == (
        "[(1, 'v1', 1), (10, 'v10', 0), (2, 'v2', 0), (20, 'n', 0), (4, 'm', 0), (5, 'v5!', 1),"
        " (6, 'v6', 0), (7, 'v7', 1), (8, 'v8', 0), (9, 'v9', 1)]"
    )
    assert replaced == (
        "[(1, 'one', 1), (10, 'v10', 0), (2, 'v2', 0), (20, 'n', 0), (4, 'm', 0), (6, 'v6', 0),"
        " (8, 'v8', 0)]"
    )
    assert deleted == replaced.replace("(2, 'v2', 0), ", "")
