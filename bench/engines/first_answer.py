"""A process whose first answer is waited for: `first_answer.py ENGINE PLACE QUERY SCRATCH`.

It has imported nothing else of the bench, as a user's script has not. `PLACE` is the table's
folder, for txlake the lake that has it as `t`. The query is `sum` or `one`. The answer is a line of
JSON, the values of the row.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

_JARS = Path(__file__).resolve().parents[2] / ".cache" / "delta-jars"
_SUM = "SELECT count(*) AS n, sum(k) AS k, sum(v) AS v FROM {table}"


def main(engine: str, place: str, query: str, scratch: str) -> None:
    """Print the answer as soon as it is there."""
    text = "SELECT 1" if query == "one" else _SUM
    match engine:
        case "delta-rs":
            row = _delta_rs(place, text)
        case "txlake":
            row = _txlake(place, text)
        case _:
            row = _spark(engine, place, text, scratch)
    sys.stdout.write(json.dumps(list(row)) + "\n")
    sys.stdout.flush()


def _delta_rs(place: str, text: str) -> tuple[object, ...]:
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    builder = QueryBuilder().register("t", DeltaTable(place))
    [row] = pa.table(builder.execute(text.format(table="t")).read_all()).to_pylist()
    return tuple(row.values())


def _txlake(place: str, text: str) -> tuple[object, ...]:
    import txlake

    lake = txlake.connect(place)
    [row] = lake.sql(text.format(table="t")).collect()
    return tuple(row)


def _spark(engine: str, place: str, text: str, scratch: str) -> tuple[object, ...]:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.config("spark.local.dir", scratch)
    if engine == "delta-spark":
        jars = ",".join(sorted(str(path) for path in _JARS.glob("delta-*.jar")))
        builder = (
            builder.config("spark.jars", jars)
            .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
            .config(
                "spark.sql.catalog.spark_catalog",
                "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            )
        )
    form = "delta" if engine == "delta-spark" else "parquet"
    [row] = builder.getOrCreate().sql(text.format(table=f"{form}.`{place}`")).collect()
    return tuple(row)


if __name__ == "__main__":
    main(*sys.argv[1:])
