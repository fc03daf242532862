"""The rounds: the engines one after the other, each in a process of its own, then the medians."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.data import Source, make_source

ENGINES = ("txlake", "spark", "delta-rs")
STEPS = ("append", "scan", "update", "scan after updates")

Seconds = dict[str, dict[str, list[float]]]
"""Engine, then step, to the seconds of each round."""


def main() -> None:
    """Measures, prints the table and writes the JSON."""
    arguments = _arguments()
    note = Console(stderr=True)
    seconds: Seconds = {engine: {step: [] for step in STEPS} for engine in arguments.engines}
    with tempfile.TemporaryDirectory(prefix="txlake-bench-", dir=arguments.scratch) as folder:
        scratch = Path(folder)
        note.print(f"making {arguments.rows:,} rows")
        source = make_source(scratch / "source", arguments.rows)
        for number in range(1, arguments.rounds + 1):
            for engine in arguments.engines:
                note.print(f"round {number} of {arguments.rounds}: {engine}")
                for step, value in _measure(engine, scratch / "engine", source).items():
                    seconds[engine][step].append(value)
    medians = {
        engine: {step: statistics.median(values) for step, values in steps.items()}
        for engine, steps in seconds.items()
    }
    Console().print(_table(medians, arguments.rows))
    result = {
        "rows": arguments.rows,
        "rounds": arguments.rounds,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("txlake", "pyspark", "deltalake", "pyarrow")},
        "median_seconds": medians,
        "seconds": seconds,
    }
    arguments.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    note.print(f"all numbers: {arguments.json}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000, help="of the table (2,000,000)")
    parser.add_argument("--rounds", type=int, default=3, help="of all engines in turn (3)")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--scratch", type=Path, help="folder for the tables (the system's)")
    parser.add_argument("--json", type=Path, default=Path("bench/results.json"))
    return parser.parse_args()


def _measure(engine: str, scratch: Path, source: Source) -> dict[str, float]:
    scratch.mkdir()
    try:
        ran = subprocess.run(
            [
                *(sys.executable, "-m", "bench.engines", engine, str(scratch)),
                *(str(source.folder), str(source.rows), str(source.amount_cents)),
            ],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        shutil.rmtree(scratch)
    if ran.returncode != 0:
        raise SystemExit(f"{engine} failed; what it said stands above")
    measured: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return measured


def _table(medians: dict[str, dict[str, float]], rows: int) -> Table:
    table = Table(title=f"{rows:,} rows: median seconds, and how many times txlake's")
    table.add_column("step")
    for engine in medians:
        table.add_column(engine, justify="right")
    for step in STEPS:
        base = medians.get("txlake", {}).get(step)
        cells = [
            f"{steps[step]:.3f}" + (f" ({steps[step] / base:.2f}x)" if base else "")
            for steps in medians.values()
        ]
        table.add_row(step, *cells)
    return table


if __name__ == "__main__":
    main()
