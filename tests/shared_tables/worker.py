"""A process with one engine: reads requests as JSON lines from its input, answers in lines.

Arguments: the engine (`txlake`, `delta-spark`, `delta-rs`, `polars`), a scratch folder, and the
paths of Delta Spark's jars. Ends at the end of its input. workers.py is the other end.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.shared_tables import log_store
from tests.shared_tables.engines import DeltaRs, DeltaSpark, Engine, Polars, Txlake, lines
from tests.shared_tables.operations import parsed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ATTEMPTS = 40


def engine(kind: str, scratch: str, jars: list[str]) -> Engine:
    match kind:
        case "txlake":
            return Txlake(spark(scratch, {}), f"{scratch}/lake")
        case "delta-spark":
            delta = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
            settings = {
                "spark.jars": ",".join((*jars, log_store.jar(jars))),
                **log_store.SETTINGS,
                "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
                "spark.sql.catalog.spark_catalog": delta,
                "spark.databricks.delta.snapshotPartitions": "1",
                "spark.databricks.delta.retentionDurationCheck.enabled": "false",
            }
            return DeltaSpark(spark(scratch, settings))
        case "delta-rs":
            return DeltaRs()
        case "polars":
            return Polars()
        case other:
            raise ValueError(f"no engine {other}")


def spark(scratch: str, more: dict[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    from tests.spark_session import settings

    chosen = settings(Path(scratch))
    # For lives of minutes on few rows: no second compiler, no code to compile for each statement.
    chosen["spark.driver.extraJavaOptions"] += " -XX:TieredStopAtLevel=1"
    quick = {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in {**chosen, **quick, **more}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def answer(engine: Engine, request: dict[str, Any]) -> dict[str, Any]:
    """What the request asks for, or the error that it ends with."""
    conflicts = 0
    try:
        match request["ask"]:
            case "read":
                read = [lines(engine.read(request["folder"], v)) for v in request["versions"]]
                return {"rows": read}
            case "sql":
                return {"rows": engine.sql(request["statement"])}
            case "apply":
                operation = parsed(request["operation"])
                while True:
                    try:
                        engine.apply(request["folder"], operation)
                        return {"conflicts": conflicts}
                    except Exception as error:
                        if not engine.conflict(error) or conflicts == ATTEMPTS:
                            raise
                        conflicts += 1
                        operation = replace(operation, behind=0)
            case other:
                return {"error": "ValueError", "message": f"no {other}"}
    except Exception as error:
        return {
            "error": type(error).__name__,
            "message": str(error)[:2000],
            "conflicts": conflicts,
            "conflict": engine.conflict(error),
        }


def main(kind: str, scratch: str, jars: list[str]) -> None:
    # Answers go where nothing else is printed.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    own = engine(kind, scratch, jars)
    for request in sys.stdin:
        answers.write(json.dumps(answer(own, json.loads(request))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
