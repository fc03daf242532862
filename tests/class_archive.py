"""What the tests' JVMs are started with, and the classes that they share, parsed beforehand.

`python -m tests.class_archive` makes the archive, once an environment: Java's class data sharing
(JEP 350). With it a Spark starts and runs its first queries in about half of the processor's time;
without it, or where it isn't of this JVM and these jars, the JVM reads the jars.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

_ARCHIVE = Path(sys.prefix) / "spark.jsa"
# What the second compiler makes of a plan for few rows comes too late.
_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# What the JVM has to say of an archive that doesn't suit it would be in a program's output.
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"
VARIABLE = "SPARK_SUBMIT_OPTS"
"""The variable by which every driver's JVM gets its options."""


def java_options() -> str:
    """The options, with the archive where there is one."""
    shared = f" -XX:SharedArchiveFile={_ARCHIVE} {_QUIET}" if _ARCHIVE.exists() else ""
    return _OPTIONS + shared


def main() -> None:
    """Make the archive, unless it is there, of the classes that typical statements need."""
    if _ARCHIVE.exists():
        return
    made = _ARCHIVE.with_suffix(f".{os.getpid()}")
    os.environ[VARIABLE] = f"{_OPTIONS} -XX:ArchiveClassesAtExit={made} {_QUIET}"
    with tempfile.TemporaryDirectory(prefix="txlake-class-archive-") as scratch:
        _run_statements(Path(scratch))
    made.replace(_ARCHIVE)


def _run_statements(folder: Path) -> None:
    from pyspark.sql import SparkSession

    import txlake
    from tests.spark_session import settings

    builder = SparkSession.builder.master("local[2]")
    for name, value in settings(folder).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    with txlake.connect(str(folder / "lake"), spark=spark) as lake:
        lake.sql("CREATE TABLE t (k INT, v STRING, at TIMESTAMP)")
        for statement in (
            "INSERT INTO t SELECT id, 'v' || id, timestamp_seconds(id) FROM range(50)",
            "UPDATE t SET v = upper(v) WHERE k < 5",
            "DELETE FROM t WHERE k % 7 = 3",
            "MERGE INTO t USING (SELECT 1 AS k) s ON t.k = s.k WHEN MATCHED THEN DELETE",
            "OPTIMIZE t",
            "SELECT v, count(*) FROM t JOIN (SELECT k AS j FROM t) ON k = j GROUP BY v ORDER BY v",
            "DESCRIBE HISTORY t",
        ):
            lake.sql(statement).collect()
    spark.createDataFrame([(1, "a")], "k INT, v STRING").write.parquet(str(folder / "parquet"))
    spark.read.parquet(str(folder / "parquet")).toArrow()
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    jvm = gateway.proc
    spark.stop()
    jvm.stdin.close()  # the end of its input is the end of the JVM, which writes the file then
    jvm.wait(300)


if __name__ == "__main__":
    main()
