"""`make delta-tests`: Delta Spark's own Python tests, of a checkout of theirs, on txlake.

python -m tests.delta_python CHECKOUT [NAME ...] [--connect]

Spark has Delta Spark's jars beside: what the tests do with `spark.sql` and `format("delta")` is
Delta Spark's work, and what they do with `DeltaTable` is txlake's, on the same tables. The tests of
SQL (test_sql.py) give their SQL to a lake. 1 when a test fails.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

from tests.connect_port import connect_port
from tests.delta_python import stand_in
from tests.delta_python.left_out import LEFT_OUT
from tests.delta_python.running import Outcome, load, run
from tests.delta_spark import JARS


def main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.delta_python")
    parser.add_argument("checkout", type=Path, help="a checkout of github.com/delta-io/delta")
    parser.add_argument("names", nargs="*", help="tests by `file.Class.test`; all without")
    parser.add_argument("--connect", action="store_true", help="the tests of Spark Connect")
    asked = parser.parse_args(given)
    checkout = asked.checkout.resolve()
    package = "delta.connect.tests" if asked.connect else "delta.tests"
    folder = checkout.joinpath("python", *package.split("."))
    if not folder.is_dir():
        print(f"{folder} isn't there: CHECKOUT is a folder with Delta Lake's sources")
        return 2
    jars = sorted(map(str, JARS.glob("delta-*.jar")))
    if not jars:
        print(f"Delta Spark's jars aren't in {JARS}: run tools/delta_jars.sh")
        return 2
    with tempfile.TemporaryDirectory(prefix="txlake-delta-tests-") as scratch:
        os.chdir(scratch)
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        os.environ["SPARK_LOCAL_DIRS"] = scratch
        os.environ["PYSPARK_SUBMIT_ARGS"] = _submit(jars)
        tempfile.tempdir = scratch
        stand_in.install(checkout)
        if asked.connect:
            stand_in.install_for_connect()
        with connect_port() if asked.connect else nullcontext():
            outcome = run(load(package, folder), LEFT_OUT, frozenset(asked.names), print)
    return _told(outcome)


def _submit(jars: list[str]) -> str:
    settings = {
        "spark.jars": ",".join(jars),
        # Thousands of small jobs: what starts fast is faster here than what ends up fast.
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.log.level": "OFF",
        "spark.ui.showConsoleProgress": "false",
    }
    given = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    return shlex.join([*given, "pyspark-shell"])


def _told(outcome: Outcome) -> int:
    for name, trace in outcome.failed.items():
        print(f"\nFAILED {name}\n{trace}")
    for name, reason in outcome.left_out.items():
        print(f"left out: {name}: {reason}")
    print(
        f"{len(outcome.passed)} passed, {len(outcome.failed)} failed, "
        f"{len(outcome.left_out)} left out"
    )
    return 1 if outcome.failed or not outcome.passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
