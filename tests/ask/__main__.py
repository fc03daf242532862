"""`make ask`: questions about tables, each answered in many ways, and where the answers differ.

    python -m tests.ask [--seeds 40] [--from 1] [--questions 50] [--only N] [--shrink 3]
        [--progress] [--offline]

A seed draws the session's settings, a table, and conditions on its columns.

- The table (`tables.py`, `kinds.py`): columns of every type with values at its edges, rows by one
  of the writers (VALUES, INSERT ... SELECT, frames of Spark and Arrow, delta-rs, polars, Delta
  Spark, Parquet files of pyarrow and DuckDB that CONVERT TO DELTA takes over), with and without
  partitions, column mapping, deletion vectors, widened columns, checkpoints, small row groups.
- The conditions (`conditions.py`, `forms.py`): comparisons with literals and columns in many
  notations, lists, patterns, tests for NULL, functions, casts, fields of structs, AND, OR, NOT.
- The reference: each condition is a column of a query over the same rows in Spark's memory, where
  no reader can skip anything. It says for which rows the condition is true, false or unknown, or
  that Spark refuses the condition.
- The ways (`ways.py`): queries, reads, counts, DELETE, UPDATE, MERGE, INSERT ... REPLACE WHERE in
  transactions that are rolled back, the enabled session, the server, statements that the driver
  carries out without Spark, EXPLAIN CONFLICTS, and the log's predicates. "TLP" and "projected" are
  SQLancer's: the rows of p, NOT p and p IS NULL are all rows, and a condition that skips finds the
  rows that the same condition as a column finds.

Each question is answered in a few of the ways, some in all. For a third of the tables the driver
finds no rows itself, so that Spark does it for small tables too; and some tables exceed the limits
up to which the driver does.

An error is an answer. Where Spark refuses a condition, or raises for some row, the ways have to
raise an error as well. Two differences are allowed, and counted: a condition of several parts may
raise in one way and not in another, because Spark may evaluate its parts in another order; and a
way may raise where the same condition raises as a filter of the rows in memory.

`--offline` asks questions whose conditions the log models, without Spark: about a hundred times as
many in the same time (`offline.py`). The reference is the condition's meaning in Python.

`--only N` asks one question of each seed in every way. The first differences are reduced: fewer
rows, steps and columns, a simpler condition. A run of 20,000 questions or more prints which types,
writers, operators and features met which ways, and fails if a cell is empty.
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
from tests.ask.offline import OfflineMachine
from tests.ask.shrinking import shrink
from tests.ask.tables import Plan
from tests.delta_spark import JARS
from tests.differential.engines import start

# A run of at least this many questions has to reach every cell of `coverage`.
_LONG = 20_000


def main(argv: list[str]) -> int:
    """Ask the seeds' questions. Return 1 if answers differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.ask")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--from", type=int, default=1, dest="first")
    parser.add_argument("--questions", type=int, default=QUESTIONS, help="of each table")
    parser.add_argument("--shrink", type=int, default=3, help="how many differences are made small")
    parser.add_argument("--progress", action="store_true", help="a line for each table")
    parser.add_argument("--offline", action="store_true", help="without Spark, what needs none")
    parser.add_argument("--only", type=int, help="one question of each table, in every way")
    options = parser.parse_args(argv)
    if options.offline:
        return _offline(options)
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
            return _ask_seeds(machine, options)
        finally:
            machine.close()
            spark.stop()


def _ask_seeds(machine: Machine, options: argparse.Namespace) -> int:
    start = time.monotonic()
    total = Result()
    seeds = range(options.first, options.first + options.seeds)
    for seed in seeds:
        result = machine.seed(seed, options.questions, only=options.only)
        total.add(result)
        for difference in result.differences:
            print(difference, flush=True)
        if options.progress:
            duration_s = time.monotonic() - start
            print(f"seed {seed}: {total.questions} questions after {duration_s:.0f} s", flush=True)
    seconds = time.monotonic() - start
    print(
        f"{total.questions} questions about {len(seeds)} tables in {seconds:.0f} s, "
        f"{len(total.differences)} differ"
    )
    for name, number in sorted(total.outcomes.items()):
        print(f"  {name}: {number}")
    spent = sorted(total.seconds.items(), key=lambda one: -one[1])
    print("  seconds: " + ", ".join(f"{name} {duration_s:.0f}" for name, duration_s in spent))
    for difference in [one for one in total.differences if one.condition is not None][
        : options.shrink
    ]:
        print("\nmade small:")
        print(shrink(difference, partial(_ask_again, machine, difference)), flush=True)
    missing: list[str] = []
    if total.questions >= _LONG:
        print("\n".join(coverage.lines(total.reached)))
        missing = coverage.empty(total.reached)
        for one in missing:
            print(f"never reached: {one}")
    return 1 if total.differences or missing else 0


def _offline(options: argparse.Namespace) -> int:
    start, differing = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="txlake-ask-") as folder:
        machine = OfflineMachine(Path(folder))
        for seed in range(options.first, options.first + options.seeds):
            problems = machine.seed(seed, options.questions)
            differing += len(problems)
            for one in problems:
                print(one, flush=True)
        machine.close()
    seconds = time.monotonic() - start
    print(
        f"{machine.questions} questions about {options.seeds} tables in {seconds:.0f} s without "
        f"Spark, {differing} differ"
    )
    for name, number in sorted(machine.counts.items()):
        print(f"  {name}: {number}")
    return 1 if differing else 0


def _ask_again(
    machine: Machine, difference: Difference, plan: Plan, condition: Condition
) -> Difference | None:
    questions = [(difference.number, condition)]
    result = machine.ask(difference.seed, plan, difference.setup, questions, every=True)
    return next((one for one in result.differences if one.condition is not None), None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
