"""The one Spark session of a test process: small, quiet, in UTC, with folders of its own."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import time
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@cache
def spark_session() -> SparkSession:
    """Starts Spark at the first call; every later call of this process returns the same session.

    `local[2]` with one gigabyte for the driver, two shuffle partitions, no UI, errors alone logged,
    all of its folders below one that goes when the process ends. Both sides of it are in UTC.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["TZ"] = "UTC"
    time.tzset()
    # Imported here, so that tests without Spark don't wait for it.
    from pyspark.sql import SparkSession

    scratch = tempfile.mkdtemp(prefix="txlake-test-spark-")
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("txlake-tests")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC -XX:+UseSerialGC")
        .config("spark.local.dir", scratch)
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", f"{scratch}/warehouse")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )

    def end() -> None:
        spark.stop()
        shutil.rmtree(scratch, ignore_errors=True)

    atexit.register(end)
    return spark
