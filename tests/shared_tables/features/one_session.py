"""One Spark with Delta Spark's jars, in a process of its own: Delta Spark and txlake both on it.

Started as a program it answers requests, JSON lines from its input, until that ends. Arguments: a
scratch folder and the paths of the jars. `started` is the other end: two workers, one process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.shared_tables.engines import lines
from tests.shared_tables.workers import Worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_REPOSITORY = Path(__file__).parents[3]
_QUERIES = ("SELECT", "DESCRIBE", "SHOW")


class Peer(Worker):
    """One of the two engines; statements that are no queries answer nothing."""

    def ask(self, **request: object) -> dict[str, Any]:
        return super().ask(**request, engine=self.engine)

    def rows(self, folder: Path, versions: Sequence[int], *columns: str) -> list[list[str]]:
        """These expressions (all columns when none is named) at each version, as sorted text."""
        answer = self.ask(ask="rows", folder=str(folder), versions=list(versions), columns=columns)
        return list(answer["rows"])


@dataclass(frozen=True, slots=True)
class Peers:
    """The engines; `features` are the names of all table features that Delta Spark knows."""

    delta: Peer
    txlake: Peer
    features: tuple[str, ...]


@contextmanager
def started(scratch: Path, jars: Sequence[str]) -> Iterator[Peers]:
    """The process; it ends with the block. What it prints is in `errors.log` of the folder."""
    paths = os.pathsep.join((str(_REPOSITORY / "src"), str(_REPOSITORY)))
    with (scratch / "errors.log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.shared_tables.features.one_session", str(scratch), *jars],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=_REPOSITORY,
            env={
                **os.environ,
                "PYTHONPATH": paths,
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "TZ": "UTC",
            },
        )
    delta, txlake = Peer("delta-spark", process), Peer("txlake", process)
    try:
        yield Peers(delta, txlake, tuple(delta.ask(ask="features")["rows"]))
    finally:
        delta.end()


class _Engines:
    """What the program answers with: both engines by their names."""

    def __init__(self, scratch: Path, jars: Sequence[str]) -> None:
        import txlake

        self._spark = _spark(scratch, jars)
        self._lake = txlake.connect(str(scratch / "lake"), spark=self._spark)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """What the request asks for, or the error that it ends with."""
        try:
            match request["ask"]:
                case "features":
                    return {"rows": self._features()}
                case "rows":
                    return {"rows": self._rows(**request)}
                case _:
                    return {"rows": self._sql(request["engine"], request["statement"])}
        except Exception as error:
            traceback.print_exc()
            return {"error": type(error).__name__, "message": str(error)[:2000]}

    def _sql(self, engine: str, statement: str) -> list[str]:
        frame = (self._lake if engine == "txlake" else self._spark).sql(statement)
        if statement.startswith(_QUERIES):
            return lines(frame.toArrow())
        frame.collect()
        return []

    def _rows(
        self, engine: str, folder: str, versions: list[int], columns: list[str], ask: str
    ) -> list[list[str]]:
        # One job for all: the versions' frames together, with the version as a column.
        from pyspark.sql import functions as F

        def frame(version: int) -> DataFrame:
            if engine == "txlake":
                read = self._lake.read(folder, version=version)
            else:
                reader = self._spark.read.format("delta")
                read = reader.option("versionAsOf", version).load(folder)
            return read.selectExpr(*columns or ("*",)).withColumn("__version", F.lit(version))

        found = reduce(lambda one, two: one.union(two), map(frame, versions)).toArrow()
        of = found.column("__version").to_pylist()
        found = found.drop_columns("__version")
        return [lines(found.filter([one == version for one in of])) for version in versions]

    def _features(self) -> list[str]:
        jvm = self._spark._jvm
        assert jvm is not None
        known = jvm.org.apache.spark.sql.delta.TableFeature.allSupportedFeaturesMap()
        features = known.values().iterator()
        names = []
        while features.hasNext():
            names.append(str(features.next().name()))
        return sorted(names)


def _spark(scratch: Path, jars: Sequence[str]) -> SparkSession:
    from pyspark.sql import SparkSession

    from tests.spark_session import settings

    delta = "spark.databricks.delta"
    chosen = {
        **settings(scratch),
        "spark.jars": ",".join(jars),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        f"{delta}.snapshotPartitions": "1",
        f"{delta}.geo.preview.enabled": "true",
        "spark.sql.geospatial.enabled": "true",
        # For a life of minutes on few rows: nothing that takes its time to be quick later.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.shuffle.partitions": "1",
    }
    chosen["spark.driver.extraJavaOptions"] += " -XX:TieredStopAtLevel=1"
    builder = SparkSession.builder.master("local[2]")
    for name, value in chosen.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(scratch: str, jars: list[str]) -> None:
    # Answers go where nothing else is printed.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    engines = _Engines(Path(scratch), jars)
    for request in sys.stdin:
        answers.write(json.dumps(engines.answer(json.loads(request))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
