"""The results: a JSON file that keeps each suite's last run, and what is read out of it."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import msgspec

from bench.engines.jars import JARS
from bench.registry import WORKS, Work
from bench.sizes import Sizes

_PACKAGES = ("txlake", "pyspark", "deltalake", "pyarrow", "tpchgen-cli", "duckdb")


class Machine(msgspec.Struct, frozen=True):
    """Where a suite ran."""

    cores: int
    memory_gib: int
    processor: str
    system: str


class SuiteRun(msgspec.Struct):
    """One run of a suite.

    Attributes:
        date: the day it ended, UTC.
        versions: of everything that took part, by name.
        samples: by work and engine, the values of each round's repeats.
        details: by engine and name, a value a round.
    """

    date: str
    rounds: int
    sizes: Sizes
    machine: Machine
    versions: dict[str, str]
    samples: dict[str, dict[str, list[list[float]]]]
    details: dict[str, dict[str, list[float]]]


class Results(msgspec.Struct):
    """The file: each suite's last run."""

    suites: dict[str, SuiteRun]


class Line(msgspec.Struct, frozen=True):
    """A row of the table: medians by engine and how txlake stands.

    Attributes:
        ratio: txlake's median to that of the engine it is compared with; to the limit itself
            where the target is one. None when one of them was not measured.
        reached: None when there is no ratio.
    """

    work: Work
    title: str
    medians: Mapping[str, float]
    ratio: float | None
    reached: bool | None


def load(path: Path) -> Results:
    """The file's results; none when there is no file."""
    if not path.exists():
        return Results({})
    return msgspec.json.decode(path.read_bytes(), type=Results)


def save(path: Path, results: Results) -> None:
    """Write the file, suites in the registry's order."""
    order = [work.suite for work in WORKS]
    suites = dict(sorted(results.suites.items(), key=lambda item: order.index(item[0])))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(Results(suites)), indent=1) + b"\n")


def lines(results: Results) -> list[Line]:
    """The rows of the table, in the registry's order, of the suites that were run."""
    found = []
    for work in WORKS:
        run = results.suites.get(work.suite)
        if run is None or not run.samples.get(work.name):
            continue
        medians = {
            engine: statistics.median(value for values in rounds for value in values)
            for engine, rounds in run.samples[work.name].items()
        }
        ratio = _ratio(work, medians)
        reached = None if ratio is None else ratio <= _limit(work)
        title = work.title.format(**run.sizes.words())
        found.append(Line(work, title, medians, ratio, reached))
    return found


def machine() -> Machine:
    """This one."""
    memory_kib, processor = 0, platform.processor()
    for line in _text("/proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            processor = value.strip()
    for line in _text("/proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            memory_kib = int(line.split()[1])
    return Machine(os.cpu_count() or 1, round(memory_kib / 2**20), processor, platform.platform())


def versions() -> dict[str, str]:
    """Of everything that takes part."""
    found = {name: version(name) for name in _PACKAGES}
    jars = sorted(JARS.glob("delta-spark_*.jar"))
    found["delta-spark"] = jars[0].stem.rpartition("-")[2] if jars else "not there"
    found["python"] = platform.python_version()
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    found["java"] = (java.stderr.splitlines() or ["not there"])[0]
    return dict(sorted(found.items()))


def _limit(work: Work) -> float:
    return 1.0 if work.target.against is None else work.target.factor


def _ratio(work: Work, medians: Mapping[str, float]) -> float | None:
    against = work.target.against
    base = work.target.factor if against is None else medians.get(against)
    own = medians.get("txlake")
    return None if own is None or not base else own / base


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""
