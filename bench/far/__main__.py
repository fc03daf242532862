"""Let every engine run the statements against a delayed store, and print the table."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import sqlalchemy as sa
from rich.console import Console

from bench.engines.transactions import PYTHON as DUCKLAKE_PYTHON
from bench.far.measuring import Measured, Task
from bench.far.report import console_table, footers, server_text, title, trace, write_page
from bench.far.results import AtLatency, Cell, Missing, Results, cell_of, load, save
from bench.far.statements import BY_KEY, DATABASE, FULL, QUICK, Column, Process, columns
from bench.far.stores import KINDS, RunningStore, running_store
from bench.results import machine
from bench.sources.lakes import new_postgresql
from bench.sources.rows import large_rows
from bench.stage import NotHere
from txlake.storage import open_store

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "bench"
NOTE = Console(stderr=True, highlight=False)
_TABLE_WIDTH = 220
_PROBES = 20
_CLIENTS = 8
_PROBES_OF_CLIENTS = 200
_REASON_LENGTH = 300


def main() -> None:
    """Measure, print a table for each latency, and write the JSON."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # ends the engines too
    if arguments.report:
        results = load(arguments.json)
    else:
        results = _measure(arguments)
    _show(results, arguments)
    if arguments.page:
        write_page(results, ROOT)


def _arguments() -> argparse.Namespace:
    names = [column.key for column in columns()]
    parser = argparse.ArgumentParser(prog="python -m bench.far", description=__doc__)
    add = parser.add_argument
    add("--latency", type=float, nargs="+", default=[30], help="milliseconds a request (30)")
    add(
        "--store",
        choices=KINDS,
        default="s3",
        help="what is far away: moto's S3, azurite, or the catalog's PostgreSQL (s3)",
    )
    add("--quick", action="store_true", help="fewer rows, commits and repeats")
    add("--rows", type=int, help="of the table that MERGE changes, a multiple of 20,000")
    add("--sum-rows", type=int, help="of the table that is summed, a multiple of 20,000")
    add("--repeats", type=int, help="of each statement (5; quick: 3)")
    add("--engines", nargs="+", choices=names, default=names)
    add("--statements", nargs="+", choices=list(BY_KEY), default=list(BY_KEY))
    add(
        "--trace",
        choices=list(BY_KEY),
        metavar="STATEMENT",
        help="measures that statement alone, and prints the requests of one repeat",
    )
    add(
        "--limit",
        type=float,
        default=600,
        help="seconds that a process of an engine may take (600)",
    )
    add("--errors", action="store_true", help="shows what the engines' processes print")
    add("--data", type=Path, default=CACHE, help="folder for the data, kept (.cache/bench)")
    add(
        "--json",
        type=Path,
        help="the results (.cache/bench/far-STORE.json); what isn't measured stays",
    )
    add("--report", action="store_true", help="measures nothing, shows what the JSON has")
    add("--page", action="store_true", help="writes the part of docs/benchmarks.md")
    arguments = parser.parse_args()
    arguments.json = arguments.json or CACHE / f"far-{arguments.store}.json"
    arguments.sizes = dict(QUICK if arguments.quick else FULL)
    for size, value in (
        ("merge_rows", arguments.rows),
        ("sum_rows", arguments.sum_rows),
        ("repeats", arguments.repeats),
    ):
        if value is not None:
            arguments.sizes[size] = value
    for size in ("merge_rows", "sum_rows"):
        if arguments.sizes[size] < 20_000 or arguments.sizes[size] % 20_000:
            parser.error(f"{size}: expected a multiple of 20,000, found {arguments.sizes[size]}")
    if arguments.trace is not None:
        arguments.statements = [arguments.trace]
    return arguments


def _measure(arguments: argparse.Namespace) -> Results:
    """Run every engine's processes at every latency; the JSON is written after each process."""
    results = _started(arguments)
    if not {"merge", "sum_client", "sum_plain"}.isdisjoint(arguments.statements):
        NOTE.print("making the data, unless it is there")
        for name in ("merge", "sum"):
            rows, files = arguments.sizes[f"{name}_rows"], arguments.sizes[f"{name}_files"]
            large_rows(arguments.data, rows, files)
    for latency in arguments.latency:
        at_latency = results.latencies.setdefault(f"{latency:g}", AtLatency())
        with running_store(arguments.store) as store:
            at_latency.server = server_times(store)
            NOTE.print(server_text(at_latency.server))
        for column in columns():
            if column.key in arguments.engines and arguments.store in column.stores:
                cells = at_latency.cells.setdefault(column.key, {})
                for process in column.processes:
                    cells |= _run(column, process, latency, arguments)
                    save(results, arguments.json)
    return results


def _started(arguments: argparse.Namespace) -> Results:
    """Return the results that this run adds to: those of the JSON if they are of the same sizes."""
    this = machine()
    results = Results(
        date=f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        machine=f"{this.cores} cores, load average {os.getloadavg()[0]:.1f} at the start",
        store=arguments.store,
        sizes=arguments.sizes,
    )
    if arguments.json.exists():
        earlier = load(arguments.json)
        if (earlier.store, earlier.sizes) == (results.store, results.sizes):
            results.latencies = earlier.latencies
    return results


def _run(
    column: Column, process: Process, latency: float, arguments: argparse.Namespace
) -> dict[str, Cell]:
    """Run one process of an engine against a store of its own, and return its cells."""
    keys = [key for key in process.statements if key in arguments.statements]
    if not keys:
        return {}
    NOTE.print(f"{latency:g} ms: {column.title}: {process.engine} {process.variant}")
    with tempfile.TemporaryDirectory(prefix="txlake_far_") as scratch:
        output = Path(scratch) / "results.jsonl"
        output.touch()
        try:
            with running_store(arguments.store) as store:
                task = Task(
                    engine=process.engine,
                    variant=process.variant,
                    address=store.address,
                    url=f"{store.url}/{process.engine}",
                    storage_options=store.options,
                    latency_ms=latency,
                    sizes=arguments.sizes,
                    statements=keys,
                    data=str(arguments.data.resolve()),
                    scratch=scratch,
                    output=str(output),
                    database=_database(process, store, arguments.store),
                )
                problem = run_process(_command(process), task, arguments.limit)
                if arguments.errors:
                    NOTE.print((Path(scratch) / "stderr").read_text(), markup=False)
        except NotHere as error:
            problem = str(error)
        cells = cells_of(output.read_text(encoding="utf-8"))
    return {key: cells.get(key, Missing(problem or "it wasn't measured")) for key in keys}


def _database(process: Process, store: RunningStore, kind: str) -> str:
    """Return the database of the catalog. Raises NotHere where it can't run."""
    if process.engine in {"ducklake", "spark"} and kind == "azurite":
        raise NotHere(f"the bench has no client of {process.engine} for Azure")
    if process.engine != "ducklake":
        return new_postgresql(host=store.database) if process.variant == DATABASE else ""
    if not DUCKLAKE_PYTHON.exists():
        raise NotHere("DuckLake: tools/python_peer.sh ducklake makes its environment")
    return new_postgresql(of_libpq=True, host=store.database)


def _command(process: Process) -> list[str]:
    python = DUCKLAKE_PYTHON if process.engine == "ducklake" else sys.executable
    return [str(python), "-m", "bench.far.engines"]


def run_process(command: Sequence[str], task: Task, limit_s: float) -> str | None:
    """Run a task's process, and end it and its children after a limit.

    Returns:
        why it didn't finish; None if it did.
    """
    errors = Path(task.scratch) / "stderr"
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            [*command, json.dumps(asdict(task))],
            cwd=ROOT,
            stdout=stderr,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return f"the process was ended after {limit_s:g} s"
        finally:
            _end(process)
    lines = errors.read_text(errors="replace").strip().splitlines() or [""]
    return f"exit status {status}: {lines[-1][:_REASON_LENGTH]}" if status else None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait()


def cells_of(text: str) -> dict[str, Cell]:
    """Return the cells of a process's output, a JSON object a line; a cut last line is left out."""
    cells = {}
    for line in text.splitlines(keepends=True):
        if line.endswith("\n"):
            record = json.loads(line)
            cells[record.pop("key")] = cell_of(record)
    return cells


def server_times(store: RunningStore) -> dict[str, float]:
    """Return the server's own milliseconds a request, and its requests a second to 8 clients."""
    if store.database is not None:
        return _database_times(store.database)
    client = open_store(f"{store.url}/probe", store.options)

    def put(number: int) -> None:
        client.put(f"{number:05}", b"x" * 1000)

    def get(number: int) -> None:
        client.get(f"{number:05}")

    def list_some(number: int) -> None:
        list(client.list("", start_after=f"{_PROBES - 5:05}"))

    times = {"PUT": _median_ms(put), "GET": _median_ms(get), "LIST": _median_ms(list_some)}
    return {**times, "requests_s": _requests_s(put)}


def _database_times(host: str) -> dict[str, float]:
    """Return the same of a statement that a database is sent."""
    engine = sa.create_engine(new_postgresql(host=host), pool_size=_CLIENTS)

    def select(number: int) -> None:
        with engine.connect() as connection:
            connection.execute(sa.select(sa.literal(number))).scalar_one()

    times = {"BEGIN, SELECT and ROLLBACK": _median_ms(select), "requests_s": _requests_s(select)}
    engine.dispose()
    return times


def _requests_s(work: Callable[[int], None]) -> float:
    with ThreadPoolExecutor(_CLIENTS) as clients:
        begun = time.perf_counter()
        list(clients.map(work, range(_PROBES_OF_CLIENTS)))
        elapsed = time.perf_counter() - begun
    return _PROBES_OF_CLIENTS / elapsed


def _median_ms(work: Callable[[int], None]) -> float:
    milliseconds = []
    for number in range(_PROBES):
        begun = time.perf_counter()
        work(number)
        milliseconds.append(1000 * (time.perf_counter() - begun))
    return statistics.median(milliseconds)


def _show(results: Results, arguments: argparse.Namespace) -> None:
    console = Console(highlight=False)
    console.width = max(console.width, _TABLE_WIDTH)
    for latency, at_latency in results.latencies.items():
        console.print(f"{latency} ms a request; {server_text(at_latency.server)}")
        console.print(console_table(results, latency))
        for line in footers(results, latency):
            console.print(line, markup=False)
        for column, cells in at_latency.cells.items():
            cell = cells.get(arguments.trace)
            if isinstance(cell, Measured):
                console.print(f"{title(arguments.trace, results.sizes)}, {column}:")
                for line in trace(cell):
                    console.print(line, markup=False, soft_wrap=True)
    NOTE.print(f"all numbers: {arguments.json}")


if __name__ == "__main__":
    main()
