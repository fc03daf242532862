"""A Spark session that is stopped, and one that is made anew in the same process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.broad(keep=0)

PROGRAM = """
import sys
from pyspark.sql import SparkSession
import txlake

plain = SparkSession.sql
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.log.level", "OFF")
for count in (1, 2, 3):
    spark = builder.getOrCreate()
    lake = txlake.connect(sys.argv[1], spark=spark)
    for _ in range(2):  # a notebook's cell that is run again
        txlake.enable(spark, lake)
    spark.sql("CREATE TABLE IF NOT EXISTS t (id BIGINT)")
    spark.range(1).write.insertInto("t")
    assert spark.table("t").count() == count
    if count == 1:
        txlake.disable(spark)
        assert SparkSession.sql is plain
        txlake.enable(spark, lake)
    spark.stop()
    if count == 2:
        txlake.disable(spark)
        assert SparkSession.sql is plain
spark = builder.getOrCreate()
assert spark.sql("SELECT 1").count() == 1
again = txlake.enable(spark, txlake.connect(sys.argv[1], spark=spark))
txlake.disable(again)
assert SparkSession.sql is plain
spark.stop()
print("done")
"""


@pytest.mark.no_interop("in a process of its own")
def test_a_session_is_stopped_and_made_anew(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "lake")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert ran.stdout.endswith("done\n"), ran.stderr[-4000:]
