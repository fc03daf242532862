"""The rounds: the engines one after the other, each in a process of its own, then the table."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import msgspec
from rich.console import Console

from bench.engines import ENGINES, TITLES
from bench.points import tenths
from bench.registry import STARTS, SUITES, WORKS
from bench.report import console_table, write_report
from bench.results import SuiteRun, load, machine, save, versions
from bench.sizes import FULL, QUICK, WARM_UP, Sizes
from bench.sources.logs import log_of_commits, log_with_checkpoint
from bench.sources.merges import merges
from bench.sources.retail import retail
from bench.sources.rows import large_rows, scattered_rows, small_files
from bench.sources.tpch import tpch
from bench.stage import NotHere
from bench.suites.contention import COMPACTED_FILES, COMPACTED_ROWS
from bench.worker import Measured, Task

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "bench"
_TABLE_WIDTH = 160
# The queries on a new JVM take as long on little data as on a tenth.
_NOT_WARMED_UP_IN_QUICK = "tpch"
# Many statements, or rounds of them, take their time whatever the data.
_NOT_IN_QUICK = ("few", "merge", "retail", "growth", "contention")
_FREE_BYTES_MIN = 20 << 30
NOTE = Console(stderr=True, highlight=False)


def main() -> None:
    """Measures, and after each suite writes the JSON and prints the table."""
    arguments = _arguments()
    results = load(arguments.json)
    if not arguments.report:
        over = _Over()
        try:
            for suite in arguments.suites:
                results.suites[suite] = _run(suite, arguments, over)
                save(arguments.json, results)
        finally:
            over.clear()
    console = Console()
    console.width = max(console.width, _TABLE_WIDTH)
    console.print(console_table(results))
    if arguments.page:
        write_report(results, ROOT)
    NOTE.print(f"all numbers: {arguments.json}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    add = parser.add_argument
    add(
        "suites",
        nargs="*",
        metavar="SUITE",
        help=f"of {', '.join(SUITES)} (all; quick: not {', '.join(_NOT_IN_QUICK)})",
    )
    add("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    add("--quick", action="store_true", help="a tenth of the data, one round")
    add("--rounds", type=int, help="of all engines in turn (3; quick: 1)")
    add("--rows", type=int, help="of the large table, a multiple of 20,000")
    add(
        "--size",
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help="another amount of bench/sizes.py, as huge_files=1000000",
    )
    add("--data", type=Path, default=CACHE, help="folder for the data, kept (.cache/bench)")
    add(
        "--json", type=Path, help="the results (bench/results.json; quick: .cache/bench/quick.json)"
    )
    add("--through", default="", metavar="COMMAND", help="runs each engine's process through it")
    add("--report", action="store_true", help="measures nothing, shows what the JSON has")
    add(
        "--page",
        action="store_true",
        help="writes the parts of docs/benchmarks.md and docs/growth.md, and their images",
    )
    arguments = parser.parse_args()
    unknown = set(arguments.suites) - set(SUITES)
    if unknown:
        parser.error(f"no such suite: {', '.join(sorted(unknown))}")
    if arguments.rows and arguments.rows % 20_000:
        parser.error("--rows: not a multiple of 20,000")
    if not arguments.suites:
        skipped = _NOT_IN_QUICK if arguments.quick else ()
        arguments.suites = [suite for suite in SUITES if suite not in skipped]
    arguments.rounds = arguments.rounds or (1 if arguments.quick else 3)
    arguments.sizes = QUICK if arguments.quick else FULL
    if arguments.rows:
        arguments.sizes = dataclasses.replace(arguments.sizes, rows=arguments.rows)
    for text in arguments.size:
        arguments.sizes = _with_size(parser, arguments.sizes, text)
    if arguments.json is None:
        arguments.json = CACHE / "quick.json" if arguments.quick else ROOT / "bench/results.json"
    return arguments


def _with_size(parser: argparse.ArgumentParser, sizes: Sizes, text: str) -> Sizes:
    """Return the sizes with one set by `NAME=NUMBER`; end the program for anything else."""
    name, _, number = text.partition("=")
    if not number.isdecimal() or not isinstance(getattr(sizes, name, None), int):
        names = [item.name for item in dataclasses.fields(sizes)]
        parser.error(f"--size {text}: expected NAME=NUMBER with one of {', '.join(names)}")
    return dataclasses.replace(sizes, **{name: int(number)})


class _Over:
    """The folders of processes that are over, which are removed once nothing is measured any more.

    Where ext4 has no journal it makes files slowly, a millisecond each, for some minutes after many
    were removed. Only where the disk fills up they are removed before.
    """

    def __init__(self) -> None:
        self._folders: list[Path] = []

    def add(self, folder: Path) -> None:
        """Has it removed."""
        self._folders.append(folder)
        if shutil.disk_usage(folder).free < _FREE_BYTES_MIN:
            self.clear()

    def clear(self) -> None:
        """Remove them now."""
        while self._folders:
            shutil.rmtree(self._folders.pop(), ignore_errors=True)


def _run(suite: str, arguments: argparse.Namespace, over: _Over) -> SuiteRun:
    NOTE.print(f"{suite}: making its data, unless it is there")
    for sizes in (WARM_UP, arguments.sizes):
        make_data(suite, arguments.data, sizes)
    run = SuiteRun(
        date=f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        rounds=arguments.rounds,
        sizes=arguments.sizes,
        machine=machine(),
        versions=versions(),
        samples={work.name: {} for work in WORKS if work.suite == suite},
        details={},
    )
    processes = dict.fromkeys(work.process for work in WORKS if work.suite == suite)
    for number in range(arguments.rounds):
        for process in processes:
            for engine in _in_turn(arguments.engines, number) * STARTS.get(process, 1):
                if any(
                    engine in w.engines for w in WORKS if (w.suite, w.process) == (suite, process)
                ):
                    NOTE.print(
                        f"{suite}, round {number + 1} of {arguments.rounds}: "
                        f"{process}, {TITLES[engine]}"
                    )
                    measured = _measured(suite, process, engine, arguments, over)
                    for work, reason in measured.left_out.items():
                        NOTE.print(f"{work} was left out: {reason}", markup=False)
                    _add(run, engine, measured)
    return run


def make_data(suite: str, data: Path, sizes: Sizes) -> None:
    """Make what a suite works on, unless it is there, and the folder."""
    data.mkdir(parents=True, exist_ok=True)
    if suite in ("rows", "contention", "point"):
        large_rows(data, sizes.rows, sizes.row_files)
        if suite == "contention":
            large_rows(data, COMPACTED_ROWS, COMPACTED_FILES)
        if suite == "point":
            scattered_rows(data, sizes.rows, sizes.row_files)
    elif suite in ("few", "start", "merge"):
        large_rows(data, sizes.few_rows, sizes.few_files)
        if suite == "merge":
            merges(data, sizes.few_rows, sizes.few_files)
    elif suite == "growth":
        for rows in tenths(sizes.rows):
            large_rows(data, rows, sizes.row_files)
        for files in tenths(sizes.small_files):
            small_files(data, files)
    elif suite == "retail":
        with suppress(NotHere):  # each of its works says so
            retail(data, sizes.retail_scale, sizes.retail_rounds)
    elif suite == "files":
        small_files(data, sizes.small_files)
    elif suite == "log":
        log_of_commits(data, sizes.log_files)
        log_with_checkpoint(data, sizes.log_files)
        log_with_checkpoint(data, sizes.large_log_files)
    elif suite == "tpch":
        tpch(data, sizes.scale)


def _in_turn(engines: list[str], number: int) -> list[str]:
    """Each round begins with another engine."""
    first = number % len(engines)
    return engines[first:] + engines[:first]


def _measured(
    suite: str, process: str, engine: str, arguments: argparse.Namespace, over: _Over
) -> Measured:
    scratch = Path(tempfile.mkdtemp(prefix="run-", dir=arguments.data))
    try:
        task = Task(
            engine=engine,
            suite=suite,
            process=process,
            sizes=arguments.sizes,
            data=str(arguments.data.resolve()),
            scratch=str(scratch.resolve()),
            result=str(scratch / "result.json"),
            warm_up=not (arguments.quick and suite == _NOT_WARMED_UP_IN_QUICK),
        )
        (scratch / "task.json").write_bytes(msgspec.json.encode(task))
        said = scratch / "said.txt"
        with said.open("wb") as output:
            ran = subprocess.run(
                [
                    *shlex.split(arguments.through),
                    *(sys.executable, "-m", "bench.worker", str(scratch / "task.json")),
                ],
                cwd=ROOT,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable},
                check=False,
                stdout=output,
                stderr=output,
            )
        if ran.returncode != 0:
            NOTE.print(said.read_text(encoding="utf-8", errors="replace"), markup=False)
            raise SystemExit(f"{TITLES[engine]} failed at {suite}; what it said stands above")
        return msgspec.json.decode(Path(task.result).read_bytes(), type=Measured)
    finally:
        over.add(scratch)


def _add(run: SuiteRun, engine: str, measured: Measured) -> None:
    for work, values in measured.samples.items():
        run.samples[work].setdefault(engine, []).append(values)
    for name, value in measured.details.items():
        run.details.setdefault(engine, {}).setdefault(name, []).append(value)


if __name__ == "__main__":
    main()
