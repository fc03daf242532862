"""What the missed works can't do without: `python -m bench.limits [--page]`.

Each measure is a work of the bench with what txlake adds left out: the same data, the same
libraries, the same clients. What is made of these can't be faster.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from bench.__main__ import CACHE, ROOT
from bench.pages import write_part
from bench.results import Line, Results, lines, load, machine
from bench.sizes import FULL
from bench.sources.lakes import data_file
from bench.sources.rows import large_rows, small_files
from bench.stage import Stage, engine_maker, timed
from bench.suites.lake import SIMULATED_WRITERS, simulated_commit
from bench.suites.served import CLIENTS, PROCESSES, Client, run_all, server
from txlake.protocol.actions import CommitInfo, decode_actions, encode_actions

PART = "limits"
_PAGE = ROOT / "docs" / "benchmarks.md"
_WARM_UP, _REPEATS = 2, 5
_COMMITS_EACH = 50
_POSITIONS = (
    "SELECT count(*), sum(k), sum(v) FROM "
    "(SELECT k, v, _metadata.file_path AS file, _metadata.row_index AS position "
    "FROM parquet.`{folder}`) WHERE position >= 0 AND length(file) > 0"
)
_LOCAL = "spark.local.dir"


@dataclass(frozen=True, slots=True)
class Limit:
    """What a work takes at least: its name in the registry, what is measured, and the value in the
    work's unit.
    """

    work: str
    what: str
    value: float


def main() -> None:
    """Measure, print the table, and write it into the page if that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.limits", description=__doc__)
    parser.add_argument("--page", action="store_true", help="writes the part of docs/benchmarks.md")
    arguments = parser.parse_args()
    text = page_part(load(ROOT / "bench" / "results.json"), [measure() for measure in MEASURES])
    print(text)
    if arguments.page:
        write_part(_PAGE, PART, f"{text}\n")


def positions() -> Limit:
    """Spark alone, which reads of each row what a search among deleted rows needs, and searches for
    none of them.
    """
    query = _POSITIONS.format(folder=large_rows(CACHE, FULL.rows, FULL.row_files).data)
    with _stage("spark") as stage:
        value = _median(lambda: stage.engine.query(query))
    return Limit("sum-deleted", "raw Spark, which reads each row's file and position", value)


def small_files_packed() -> Limit:
    """Pyarrow alone, which decodes the files by two threads and writes one."""
    files = [str(file) for file in small_files(CACHE, FULL.small_files).files]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:

        def pack() -> None:
            tables = list(pool.map(_decoded, files, chunksize=100))
            pq.write_table(pa.concat_tables(tables), f"{folder}/packed.parquet")

        value = _median(pack)
    return Limit("compact-small", "pyarrow, which reads all files and writes one", value)


def _decoded(file: str) -> pa.Table:
    with open(file, "rb") as opened:
        return pq.ParquetFile(pa.BufferReader(opened.read()), pre_buffer=False).read(
            use_threads=False
        )


def empty_server() -> Limit:
    """The same clients, and a server of the same library that makes one durable file a commit."""
    values = []
    for _ in range(_REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            module = ["bench.empty_server", folder, str(PROCESSES)]
            with server(module, r"running on (\S+)") as address:
                clients = [Client(address, f"t{one}") for one in range(CLIENTS)]
                seconds, _ = run_all(clients, _COMMITS_EACH)
        values.append(1_000 * seconds / (CLIENTS * _COMMITS_EACH))
    what = "a server of the same library that makes one durable file for each"
    return Limit("served", what, statistics.median(values))


def commits_of_others() -> Limit:
    """A commit that is alone, and reading and decoding those of the others before it, without a
    look at what they say.
    """
    commits = list(range(1, max(SIMULATED_WRITERS)))
    info = CommitInfo({"operation": "WRITE", "operationParameters": {"mode": "Append"}})
    with _stage("txlake") as stage:
        for number in commits:
            data = encode_actions([info, data_file("own")])
            (stage.scratch / f"{number}.json").write_bytes(data)
        start = time.perf_counter()
        for number in commits:
            decode_actions((stage.scratch / f"{number}.json").read_bytes(), file=str(number))
        each_ms = 1_000 * (time.perf_counter() - start) / len(commits)
        alone_ms = min(simulated_commit(stage, 1, number) for number in range(_WARM_UP + 1))
    read_ms = each_ms * len(commits) / 2
    what = f"a commit alone, and {len(commits) / 2:.1f} others' commits read and decoded"
    return Limit("simulated-writers", what, (alone_ms + read_ms) / alone_ms)


MEASURES = (
    positions,
    small_files_packed,
    empty_server,
    commits_of_others,
)


@contextmanager
def _stage(engine: str) -> Iterator[Stage]:
    """Where a work of the bench is run, as in a process of its own."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        scratch = Path(folder) / "measured"
        scratch.mkdir()
        try:
            yield Stage(engine, engine_maker(engine, Path(folder)), FULL, CACHE, scratch)
        finally:
            running = SparkSession.getActiveSession()
            # One that was started here; others' goes on.
            if running is not None and _is_of(running, folder):
                running.stop()


def _is_of(running: SparkSession, folder: str) -> bool:
    """Whether a session has its files in the folder."""
    return str(running.sparkContext.getConf().get(_LOCAL)).startswith(folder)


def _median(work: Callable[[], object]) -> float:
    """The median of some rounds in seconds, after some that aren't counted."""
    times = [timed(work)[0] for _ in range(_WARM_UP + _REPEATS)]
    return statistics.median(times[_WARM_UP:])


def page_part(results: Results, limits: list[Limit]) -> str:
    """The page's part: a table, and where it was measured."""
    by_name = {line.work.name: line for line in lines(results)}
    head = ["| work | to reach | the least | is of | txlake |", "| --- | --- | --- | --- | --- |"]
    rows = [
        f"| {line.title} | {_value(line, _target(line))} | {_value(line, limit.value)} "
        f"| {limit.what} | {_value(line, line.medians['txlake'])} |"
        for limit in limits
        for line in [by_name[limit.work]]
    ]
    one = machine()
    where = f"Medians on {one.cores} cores ({one.processor}, {one.memory_gib} GiB)."
    return "\n".join([*head, *rows, "", where])


def _target(line: Line) -> float:
    """What txlake has to reach, in the work's unit."""
    target = line.work.target
    return target.factor * (1.0 if target.against is None else line.medians[target.against])


def _value(line: Line, value: float) -> str:
    return f"{value:.2f} {line.work.unit}"


if __name__ == "__main__":
    main()
