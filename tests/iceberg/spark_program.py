"""Reads a served lake with Iceberg's runtime for Spark, in the environment of
tools/iceberg_spark.sh.

The arguments are the runtime's jar, the server's address, a token, and the name of a table. The
answers are lines of JSON: the tables; for each snapshot its id and its rows; the error of an
INSERT; the rows that a condition on a partition and on bounds selects.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession


def main(jar: str, address: str, token: str, table: str) -> None:
    """Read all snapshots, and try to write."""
    catalog = "spark.sql.catalog.lake"
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", jar)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .config(catalog, "org.apache.iceberg.spark.SparkCatalog")
        .config(f"{catalog}.type", "rest")
        .config(f"{catalog}.uri", address)
        .config(f"{catalog}.token", token)
        .getOrCreate()
    )
    name = f"lake.default.{table}"
    say([row.tableName for row in spark.sql("SHOW TABLES IN lake.default").collect()])
    history = spark.sql(f"SELECT snapshot_id FROM {name}.snapshots ORDER BY committed_at").collect()
    for row in history:
        rows = spark.sql(f"SELECT * FROM {name} VERSION AS OF {row.snapshot_id}")
        say([row.snapshot_id, [json.loads(str(each)) for each in rows.toJSON().collect()]])
    try:
        spark.sql(f"INSERT INTO {name} SELECT * FROM {name}")
        say(None)
    except Exception as error:
        say(str(error)[:500])
    selected = spark.table(name).where("p = '1' AND id > 2")
    say([json.loads(str(each)) for each in selected.toJSON().collect()])
    spark.stop()


def say(answer: object) -> None:
    """Print an answer as a line of JSON."""
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
