"""`make spark-sql`: the SQL tests of Spark itself, by `lake.sql` and in a session of a lake.

python -m tests.spark_sql [--share 1/6] [--only REGEX] [--processes 2] [--every]
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark_session import settings
from tests.spark_sql.comparing import (
    Answer,
    Judge,
    Verdict,
    agrees_with_record,
    exclusions,
    verdict,
)
from tests.spark_sql.inputs import Input, Settings, inputs, jar
from tests.spark_sql.sides import answers, is_passed_on, is_query
from tests.spark_sql.tables import write_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LAKES = ("lake.sql", "enabled")
# Small data in many small queries: what costs time is planning and generated code.
_QUICK = {
    "spark.default.parallelism": "1",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC -XX:+UseSerialGC",
    "spark.driver.memory": "2g",
    "spark.log.level": "OFF",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.datetime.java8API.enabled": "true",
    "spark.sql.shuffle.partitions": "1",
}
_SHOWN = 600
_LIMIT_S = 3 * 3600


def main(given: list[str]) -> int:
    """Run the files; 1 when a difference isn't known."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark_sql")
    parser.add_argument("--share", default="1/1", help="2/6: every sixth file from the second on")
    parser.add_argument("--only", default="", help="the files whose names match this pattern")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--every", action="store_true", help="ask also what a lake hands to Spark as it is written"
    )
    parser.add_argument("--side", choices=_LAKES, help="one side alone")
    parser.add_argument("--counts", type=Path, help="a file for the counts, of a parent process")
    asked = parser.parse_args(given)
    path = jar()
    if path is None:
        print("skipped: Spark's SQL tests aren't there; tools/spark_sql_tests.sh says why")
        return 0
    begun = time.monotonic()
    number, count = map(int, asked.share.split("/"))
    if asked.processes > 1:
        counts = _in_processes(number, count, asked.processes, given)
    else:
        files = [one for one in inputs(path) if re.search(asked.only, one.name)]
        sides = _LAKES if asked.side is None else (asked.side,)
        counts = _run(path, files[number - 1 :: count], sides, every=asked.every)
    if asked.counts is not None:
        asked.counts.write_text(json.dumps(counts))
        return 0
    _print_counts(counts, time.monotonic() - begun)
    return 1 if counts["different"] else 0


def _in_processes(number: int, count: int, processes: int, given: Sequence[str]) -> Counter[str]:
    """The counts of processes that share the files of a share."""
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="txlake-spark-sql-") as folder:
        started = []
        for index in range(processes):
            share = f"{number + index * count}/{count * processes}"
            told = ["--processes", "1", "--share", share, "--counts", f"{folder}/{index}"]
            command = [sys.executable, "-u", "-m", "tests.spark_sql", *given, *told]
            started.append(subprocess.Popen(command))
        ended = [one.wait(_LIMIT_S) for one in started]
        if any(ended):
            raise SystemExit(f"a process of the runner failed: {ended}")
        for index in range(processes):
            found.update(json.loads(Path(folder, str(index)).read_text()))
    return found


def _run(path: Path, files: Sequence[Input], sides: Sequence[str], *, every: bool) -> Counter[str]:
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="txlake-spark-sql-") as folder:
        scratch = Path(folder)
        spark = _started(scratch)
        try:
            tables = scratch / "tables"
            tables.mkdir()
            write_tables(spark, path, tables)
            for file in files:
                counts["files"] += 1
                counts["statements"] += len(file.statements)
                left = file if every else _without_passed_on(file)
                counts["passed on"] += len(file.statements) - len(left.statements)
                for combination in file.combinations if left.statements else ():
                    begun = time.monotonic()
                    found = _of_file(spark, left, combination, sides, scratch)
                    counts.update(found)
                    seconds = time.monotonic() - begun
                    print(f"{file.name}: {_line(found)} in {seconds:.0f} s", flush=True)
        finally:
            spark.stop()
    return counts


def _started(scratch: Path) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["TZ"] = "UTC"
    time.tzset()
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]")
    for key, value in {**settings(scratch), **_QUICK}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _without_passed_on(file: Input) -> Input:
    """The file without queries that a lake hands to Spark exactly as they are written."""
    kept = [place for place, text in enumerate(file.statements) if not is_passed_on(text)]
    return replace(
        file,
        statements=tuple(file.statements[place] for place in kept),
        records=tuple(file.records[place] for place in kept) if file.records else (),
    )


def _of_file(
    spark: SparkSession,
    file: Input,
    combination: Settings,
    sides: Sequence[str],
    scratch: Path,
) -> Counter[str]:
    """The counts of a file; differences that aren't known are printed."""
    queries = [is_query(spark, text) for text in file.statements]
    lakes = {side: answers(spark, side, file, combination, scratch) for side in sides}
    counts: Counter[str] = Counter(queries=sum(queries) * len(sides))
    expected: Sequence[Answer] = file.records
    if not expected or not all(
        agrees_with_record(*pair, is_query=query)
        for found in lakes.values()
        for query, *pair in zip(queries, expected, found, strict=True)
    ):
        expected = answers(spark, "Spark", file, combination, scratch)
        counts["asked of Spark"] += 1
        differences = list(_differences(file, queries, expected, lakes))
    else:
        differences = []
    refused = sum(one.error is not None for one in expected)
    known = Counter(reason for *_, reason in differences)
    for place, side, lake, reason in differences:
        if reason is None:
            print(f"\n{file.name}, statement {place + 1}, {side}:\n{file.statements[place]}")
            print(f"  Spark: {_shown(expected[place])}\n  {side}: {_shown(lake)}\n", flush=True)
    all_of = len(file.statements) * len(sides)
    both = refused * len(sides) - sum(
        expected[place].error is not None for place, *_ in differences
    )
    counts["both refused"] += both
    counts["different"] += known.pop(None, 0)
    counts["excluded"] += sum(known.values())
    counts["equal"] += all_of - both - len(differences)
    counts.update({f"  {reason}": count for reason, count in known.items()})
    return counts


def _differences(
    file: Input,
    queries: Sequence[bool],
    expected: Sequence[Answer],
    lakes: dict[str, list[Answer]],
) -> Iterator[tuple[int, str, Answer, str | None]]:
    """Where, on which side, what a lake answered, and the reason where it is known."""
    for side, found in lakes.items():
        judge = Judge(file.name, exclusions())
        for place, (query, spark, lake) in enumerate(zip(queries, expected, found, strict=True)):
            if verdict(spark, lake, is_query=query) is Verdict.DIFFERENT:
                known = judge.excuse(file.statements[place], lake)
                yield place, side, lake, None if known is None else known.reason


def _shown(answer: Answer) -> str:
    if answer.error is not None:
        return f"refused: {answer.error[:_SHOWN]}"
    return f"{answer.schema[:_SHOWN]}\n    " + "\n    ".join(answer.rows[:8])


def _line(counts: Counter[str]) -> str:
    kinds = ("equal", "both refused", "excluded", "different")
    return ", ".join(f"{counts[kind]} {kind}" for kind in kinds)


def _print_counts(counts: Counter[str], seconds: float) -> None:
    print(
        f"\n{counts['files']} files, {counts['statements']} statements in {seconds:.0f} s: "
        f"{counts['passed on']} are Spark's as they are written; "
        f"{counts['queries']} queries were asked of lakes\n{_line(counts)}"
    )
    for reason, count in sorted(counts.items()):
        if reason.startswith("  "):
            print(f"  excluded: {reason.strip()}: {count}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
