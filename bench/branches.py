"""What branches cost, on a local lake: `python -m bench.branches [--page] [--tables 200]`.

No other engine here has branches over several tables, so that the measure is txlake itself: a
transaction with the same changes, and the same statements on a lake without branches.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import txlake
from bench.pages import write_part
from bench.results import machine

PART = "branches"
PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
_FEW = 3
_ROUNDS = 5
_STATEMENTS = 40


@dataclass(frozen=True, slots=True)
class Line:
    """One measure: milliseconds, and those that it is compared with."""

    what: str
    found_ms: float
    with_what: str
    other_ms: float


def main() -> None:
    """Measure, print the table, and write it into the page if that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.branches", description=__doc__)
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--branches", type=int, default=100)
    parser.add_argument("--commits", type=int, default=1_000)
    parser.add_argument("--page", action="store_true", help="writes the part of docs/benchmarks.md")
    arguments = parser.parse_args()
    lines = [
        *_of_many_tables(arguments.tables),
        _beside_branches(arguments.branches),
        _of_many_commits(arguments.commits),
    ]
    text = page_part(lines)
    print(text)
    if arguments.page:
        write_part(PAGE, PART, f"{text}\n")


def _of_many_tables(count: int) -> list[Line]:
    """Create a branch of many tables, and publish changes of all of them."""
    with tempfile.TemporaryDirectory() as folder, txlake.connect(f"{folder}/lake") as lake:
        for number in range(_FEW):
            lake.sql(f"CREATE TABLE t{number} (id BIGINT)")
        few = _median(lambda turn: lake.sql(f"CREATE BRANCH few{turn}"))
        for number in range(_FEW, count):
            lake.sql(f"CREATE TABLE t{number} (id BIGINT)")
        many = _median(lambda turn: lake.sql(f"CREATE BRANCH many{turn}"))
        inserts = "; ".join(f"INSERT INTO t{number} VALUES (1)" for number in range(count))

        def transaction(_: int) -> None:
            with lake.transaction() as changes:
                changes.sql(inserts)

        whole = _median(transaction)
        published: list[float] = []
        for turn in range(_ROUNDS):
            branch = lake.branch(f"many{turn}")
            branch.sql(inserts)
            published.append(_ms(branch.publish))
    return [
        Line(f"create a branch of {count} tables", many, f"one of {_FEW} tables", few),
        Line(
            f"publish a branch with a row in each of {count} tables",
            statistics.median(published),
            "a transaction with these INSERTs",
            whole,
        ),
    ]


def _beside_branches(count: int) -> Line:
    """INSERT on main while there are many branches, in turns with a lake that has none."""
    with (
        tempfile.TemporaryDirectory() as folder,
        txlake.connect(f"{folder}/a") as plain,
        txlake.connect(f"{folder}/b") as branched,
    ):
        for lake in (plain, branched):
            lake.sql("CREATE TABLE t (id BIGINT)")
        for number in range(count):
            branch = branched.branch(f"x{number}", create=True)
            branch.sql(f"INSERT INTO t VALUES ({number})")
            branch.close()
        times: tuple[list[float], list[float]] = ([], [])
        for turn in range(_STATEMENTS):
            for lake, own in zip((plain, branched), times, strict=True):
                own.append(_ms(lambda: lake.sql(f"INSERT INTO t VALUES ({turn})")))  # noqa: B023
    alone, beside = (statistics.median(own) for own in times)
    return Line(f"INSERT of a row on main beside {count} branches", beside, "without them", alone)


def _of_many_commits(count: int) -> Line:
    """Publish a branch of many commits of one table, and one of a single commit."""
    with tempfile.TemporaryDirectory() as folder, txlake.connect(f"{folder}/lake") as lake:
        lake.sql("CREATE TABLE t (id BIGINT, v BIGINT); INSERT INTO t VALUES (1, 0)")
        times = []
        for commits in (1, count):
            branch = lake.branch("x", create=True)
            for number in range(commits - 1):
                branch.sql(
                    f"INSERT INTO t VALUES ({number}, 1)"
                    if number % 2 == 0
                    else f"DELETE FROM t WHERE id = {number - 1} AND v = 1"
                )
            branch.sql("UPDATE t SET v = v + 1 WHERE id = 1 AND v <> 1")
            times.append(_ms(branch.publish))
    return Line(f"publish {count:,} commits on one table", times[1], "one commit", times[0])


def _median(work: Callable[[int], object]) -> float:
    """The median of some rounds in milliseconds; the first one isn't counted."""
    times = [_ms(lambda: work(turn)) for turn in range(_ROUNDS + 1)]  # noqa: B023
    return statistics.median(times[1:])


def _ms(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return (time.perf_counter() - begin) * 1_000


def page_part(lines: list[Line]) -> str:
    """The page's part: a table, and where it was measured."""
    rows = [
        f"| {line.what} | {line.found_ms:,.1f} ms | {line.with_what} | {line.other_ms:,.1f} ms "
        f"| {line.found_ms / line.other_ms:.2f} x |"
        for line in lines
    ]
    head = ["| work | takes | beside | takes | ratio |", "| --- | --- | --- | --- | --- |"]
    one = machine()
    where = f"Medians on {one.cores} cores ({one.processor}, {one.memory_gib} GiB)."
    return "\n".join([*head, *rows, "", where])


if __name__ == "__main__":
    main()
