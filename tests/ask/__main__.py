"""`make ask`: questions about tables, each answered in many ways, and where the answers differ.

    python -m tests.ask [--seeds 40] [--from 1] [--questions 50] [--only N] [--shrink 3]
        [--progress] [--offline]

A seed draws the session's settings, a table, and conditions on its columns.

- The table (`tables.py`, `kinds.py`): columns of every type with values at its edges, rows by one
  of the writers (VALUES, INSERT ... SELECT, frames of Spark and Arrow, delta-rs, polars, Delta
  Spark, Parquet files of pyarrow and DuckDB that CONVERT TO DELTA takes over), with and without
  partitions, column mapping, deletion vectors, widened columns, checkpoints, small row groups.
- The conditions (`conditions.py`, `forms.py`): comparisons with literals and columns in many
  spellings, lists, patterns, tests for NULL, functions, casts, fields of structs, AND, OR, NOT.
- The truth: each condition is a column of a query over the same rows in Spark's memory, where no
  reader has anything to skip. From it every row is one of which the condition is true, false or
  unknown, or the condition is refused.
- The ways (`ways.py`): queries, reads, counts, DELETE, UPDATE, MERGE, INSERT ... REPLACE WHERE in
  transactions that are rolled back, the enabled session, the server, statements that this process
  carries out without Spark, EXPLAIN CONFLICTS, and the log's predicates. "TLP" and "projected" are
  SQLancer's: the rows of p, NOT p and p IS NULL are all rows, and a condition that skips finds the
  rows that the same condition as a column finds.

Each question is answered by a few of the ways, some by all. In a third of the tables this process
finds no rows itself, so that Spark's part is reached for small tables too; and some tables are
beyond the limits up to which it does.

An error is an answer. Where Spark refuses a condition, or raises for some row, the ways have to
raise something as well. Two differences are none, and are counted: a condition of several parts
raises in one way and not in another, because Spark is free to evaluate its parts in another order;
and a way raises where the same condition as a filter of the rows in memory does.

`--offline` asks questions whose conditions the log models, without Spark: some hundred times as
many in the same time (`offline.py`). The reference is the condition's meaning in Python.

`--only N` asks one question of each seed in every way. Of differences, the first ones are made
small: fewer rows, steps and columns, a simpler condition. A run of 20,000 questions or more prints
which types, writers, operators and features met which ways, and fails where a cell is empty.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from tests.ask import coverage
from tests.ask.conditions import Condition
from tests.ask.machine import QUESTIONS, Difference, Machine, Result
from tests.ask.offline import Offline
from tests.ask.shrinking import shrunk
from tests.ask.tables import Plan
from tests.delta_spark import JARS
from tests.differential.engines import start

# As many questions reach every cell of the count.
_LONG = 20_000


def main(given: list[str]) -> int:
    """Asks the seeds' questions; 1 when answers differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.ask")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--from", type=int, default=1, dest="first")
    parser.add_argument("--questions", type=int, default=QUESTIONS, help="of each table")
    parser.add_argument("--shrink", type=int, default=3, help="how many differences are made small")
    parser.add_argument("--progress", action="store_true", help="a line for each table")
    parser.add_argument("--offline", action="store_true", help="without Spark, what needs none")
    parser.add_argument("--only", type=int, help="one question of each table, in every way")
    asked = parser.parse_args(given)
    if asked.offline:
        return _offline(asked)
    jars = sorted(map(str, JARS.glob("delta-*.jar")))
    if not jars:
        print(f"Delta Spark's jars aren't in {JARS}: run tools/delta_jars.sh")
        return 2
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["TZ"] = "UTC"
    time.tzset()
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="txlake-ask-") as folder:
        scratch = Path(folder)
        spark = start(scratch, jars)
        machine = Machine(spark, scratch, with_delta_spark=True)
        try:
            return _many(machine, asked)
        finally:
            machine.close()
            spark.stop()


def _many(machine: Machine, asked: argparse.Namespace) -> int:
    begun = time.monotonic()
    whole = Result()
    seeds = range(asked.first, asked.first + asked.seeds)
    for seed in seeds:
        result = machine.seed(seed, asked.questions, only=asked.only)
        whole.add(result)
        for difference in result.differences:
            print(difference, flush=True)
        if asked.progress:
            took = time.monotonic() - begun
            print(f"seed {seed}: {whole.questions} questions after {took:.0f} s", flush=True)
    seconds = time.monotonic() - begun
    print(
        f"{whole.questions} questions about {len(seeds)} tables in {seconds:.0f} s, "
        f"{len(whole.differences)} differ"
    )
    for name, number in sorted(whole.outcomes.items()):
        print(f"  {name}: {number}")
    spent = sorted(whole.seconds.items(), key=lambda one: -one[1])
    print("  seconds: " + ", ".join(f"{name} {took:.0f}" for name, took in spent))
    for difference in [one for one in whole.differences if one.condition is not None][
        : asked.shrink
    ]:
        print("\nmade small:")
        print(shrunk(difference, partial(_again, machine, difference)), flush=True)
    missing: list[str] = []
    if whole.questions >= _LONG:
        print("\n".join(coverage.lines(whole.reached)))
        missing = coverage.empty(whole.reached)
        for one in missing:
            print(f"never reached: {one}")
    return 1 if whole.differences or missing else 0


def _offline(asked: argparse.Namespace) -> int:
    begun, differing = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="txlake-ask-") as folder:
        machine = Offline(Path(folder))
        for seed in range(asked.first, asked.first + asked.seeds):
            wrong = machine.seed(seed, asked.questions)
            differing += len(wrong)
            for one in wrong:
                print(one, flush=True)
        machine.close()
    seconds = time.monotonic() - begun
    print(
        f"{machine.questions} questions about {asked.seeds} tables in {seconds:.0f} s without "
        f"Spark, {differing} differ"
    )
    for name, number in sorted(machine.answers.items()):
        print(f"  {name}: {number}")
    return 1 if differing else 0


def _again(
    machine: Machine, difference: Difference, plan: Plan, condition: Condition
) -> Difference | None:
    questions = [(difference.number, condition)]
    result = machine.ask(difference.seed, plan, difference.circumstances, questions, every=True)
    return next((one for one in result.differences if one.condition is not None), None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
