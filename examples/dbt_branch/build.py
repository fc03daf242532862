"""`dbt build` on a branch of a lake, which is published if every model was built and test passed.

`python examples/dbt_branch/build.py WAREHOUSE [WORDS OF DBT]`, with dbt-core, dbt-spark and txlake
installed. The macros in macros/branch.sql do it, by dbt's hooks `on-run-start` and `on-run-end`:
they make the branch (the variable `branch`), let the session use it, and publish it. A failed build
leaves main as it was, and the branch as it is: SELECT ... VERSION AS OF 'dbt' shows its tables.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from dbt.cli.main import dbtRunner  # type: ignore[import-not-found, unused-ignore]
from pyspark.sql import SparkSession

import txlake

PROJECT = Path(__file__).resolve().parent


def build(
    warehouse: str, *words: str, callbacks: list[Callable[[object], None]] | None = None
) -> bool:
    """Build and test the project; return whether it was published.

    Args:
        words: of dbt's command line, such as `--select orders`.
        callbacks: dbt calls them with each of its events.
    """
    spark = SparkSession.builder.appName("dbt").getOrCreate()
    with txlake.connect(warehouse, spark=spark) as lake:
        lake.sql("CREATE DATABASE IF NOT EXISTS raw")
        lake.sql("CREATE TABLE IF NOT EXISTS raw.orders (id INT, day STRING, pieces INT, at INT)")
        txlake.enable(spark, lake)
        try:
            project = ["--project-dir", str(PROJECT), "--profiles-dir", str(PROJECT)]
            done = dbtRunner(callbacks=callbacks).invoke(["build", *project, *words])
        finally:
            txlake.disable(spark)
    return bool(done.success)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(0 if build(*sys.argv[1:]) else 1)
