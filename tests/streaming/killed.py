"""Streams whose processes are killed at random instants, and what their sinks have in the end.

`python -m tests.streaming.killed --kills 40 --seed 1`: while rows are appended to the sources, the
process of the queries (tests/streaming/worker.py), Spark's JVM or a Python process beside it is
killed (SIGKILL), and the queries are started again. With `--rows` no Spark runs: one query at a
time (tests/streaming/engine.py), so that hundreds of kills take minutes. Then every row has to be
in every sink once, those of a key in their order, and the two tables of one transaction agree
version by version.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import txlake
from tests.streaming.engine import SINKS
from tests.streaming.worker import COUNTS, NAME, PATH, PATH_SINK, ROWS
from txlake.protocol.paths import decode_path

KEYS = 3
_LIFE_S = 25.0
_LIFE_ON_ROWS_S = 1.5
_PAUSE_S, _PAUSE_ON_ROWS_S = 1.5, 0.2
_LAST_S = 900.0
_LAST_RUNS = 5
_TOO_SLOW = ("Timed out while waiting for the Python worker", "CANNOT_OPEN_SOCKET")


class Writer(threading.Thread):
    """Appends rows to both sources until it is told to end: numbers that grow, by key."""

    def __init__(self, place: Path, seed: int, pause_s: float) -> None:
        super().__init__(daemon=True)
        self._lake = txlake.connect(str(place / "lake"))
        self._path = str(place / PATH)
        self._random = random.Random(seed)
        self._pause_s = pause_s
        self._ended = threading.Event()
        self.rows = 0
        self.error: BaseException | None = None
        self.append()

    def append(self) -> None:
        """A few more rows, the same for both."""
        count = self._random.randint(1, 4)
        numbers = range(self.rows, self.rows + count)
        table = pa.table({"key": [number % KEYS for number in numbers], "n": list(numbers)})
        for sink in (self._path, NAME):
            self._lake.write(table, sink, "append")
        self.rows += count

    def run(self) -> None:
        try:
            while not self._ended.wait(self._pause_s):
                self.append()
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        """No more rows. Raises what went wrong."""
        self._ended.set()
        self.join(timeout=_LAST_S)
        assert not self.is_alive(), "the writer hangs"
        self._lake.close()
        if self.error is not None:
            raise self.error


def start(place: Path, *arguments: str, on_spark: bool) -> subprocess.Popen[str]:
    """A process of queries, in a group of its own."""
    module = "tests.streaming.worker" if on_spark else "tests.streaming.engine"
    with (place / "worker.log").open("w") as log:
        return subprocess.Popen(
            [sys.executable, "-m", module, str(place), *arguments],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )


def members(group: int) -> list[int]:
    """The processes of a group that are alive."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(int(folder.name))
    return sorted(found)


def kill_one(process: subprocess.Popen[str], dice: random.Random) -> str:
    """Kills the group, or one process of it; the others then end, or are ended."""
    victims = members(process.pid)
    if not victims:
        return "nobody"
    if dice.random() < 0.5:
        os.killpg(process.pid, signal.SIGKILL)
        return "all"
    victim = dice.choice(victims)
    name = Path(f"/proc/{victim}/comm").read_text().strip()
    os.kill(victim, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):  # what is left may do something wrong now
        process.wait(timeout=dice.uniform(0, 6))
    return "query" if victim == process.pid else name


def fell(process: subprocess.Popen[str], place: Path) -> bool:
    """Whether the queries ended by themselves because Spark gave up waiting for a process.

    On a machine with too much to do it does; the stream has to stand that as it stands a kill.
    Raises AssertionError when they ended with anything else.
    """
    if not process.poll():
        return False
    said = (place / "worker.log").read_text()
    assert any(text in said for text in _TOO_SLOW), said[-4000:]
    return True


def end_group(process: subprocess.Popen[str]) -> None:
    """No process of the group is left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=_LAST_S)
    deadline = time.monotonic() + 30
    while members(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)


def versions(table: Path) -> Iterator[pa.Table]:
    """The rows that each version of an append-only table added, from the files alone."""
    log = txlake.Log(table)
    newest = log.snapshot().version
    known: set[str] = set()
    for version in range(newest + 1):
        paths = log.snapshot(version=version).files()["path"].to_pylist()
        new = [path for path in paths if path not in known]
        known.update(new)
        parts = [pq.read_table(table / decode_path(path), partitioning=None) for path in new]
        if parts:
            yield pa.concat_tables(parts)


def check_rows(table: Path, rows: int) -> None:
    """Every number once; those of a key in later versions are larger."""
    seen: Counter[int] = Counter()
    newest = dict.fromkeys(range(KEYS), -1)
    for added in versions(table):
        numbers, keys = added["n"].to_pylist(), added["key"].to_pylist()
        seen.update(numbers)
        for key in set(keys):
            own = [n for n, k in zip(numbers, keys, strict=True) if k == key]
            assert min(own) > newest[key], f"{table}: {min(own)} came after {newest[key]}"
            newest[key] = max(own)
    twice = sorted(n for n, count in seen.items() if count > 1)
    lost = sorted(set(range(rows)) - set(seen))
    assert not twice, f"{table}: rows {twice[:10]} are there more than once"
    assert not lost, f"{table}: rows {lost[:10]} of {rows} are lost"
    assert len(seen) == rows


def check_counts(rows: Path, counts: Path) -> None:
    """Each transaction wrote as many rows as it counted."""
    written = [one.num_rows for one in versions(rows)]
    counted = [sum(one["n"].to_pylist()) for one in versions(counts)]
    assert written == counted, f"{written} rows, counted {counted}"


def check_sink(place: Path, sink: str, rows: int) -> None:
    """A sink of tests/streaming/engine.py has every row once. Raises AssertionError otherwise."""
    if sink == ROWS:
        check_rows(_folder(place, ROWS), rows)
        check_counts(_folder(place, ROWS), _folder(place, COUNTS))
    else:
        check_rows(place / ("" if sink == PATH_SINK else "lake") / sink, rows)


def _folder(place: Path, table: str) -> Path:
    database, name = table.split(".")
    return place / "lake" / f"{database}.db" / name


def run(place: Path, kills: int, seed: int, *, on_spark: bool) -> Counter[str]:
    """Kills and starts, then looks; who was killed how often."""
    dice = random.Random(seed)
    writer = Writer(place, seed, _PAUSE_S if on_spark else _PAUSE_ON_ROWS_S)
    writer.start()
    killed: Counter[str] = Counter()
    while killed.total() < kills:
        process = start(place, *([] if on_spark else [dice.choice(SINKS)]), on_spark=on_spark)
        # From the start of the queries on, sometimes before.
        early = dice.random() < 0.1
        assert process.stdout is not None
        if not early:
            process.stdout.readline()
        time.sleep(dice.uniform(0, _LIFE_S if on_spark else _LIFE_ON_ROWS_S))
        who = "it was too slow" if fell(process, place) else kill_one(process, dice)
        end_group(process)
        killed[who] += 1
        sys.stdout.write(f"{killed.total()} {who}, {writer.rows} rows\n")
        sys.stdout.flush()
    writer.end()
    if on_spark:
        finish(place, on_spark=True)
    for sink in SINKS:
        if not on_spark:
            finish(place, sink, on_spark=False)
        check_sink(place, sink, writer.rows)
    sys.stdout.write(f"{writer.rows} rows, each once in every sink\n")
    return killed


def finish(place: Path, *arguments: str, on_spark: bool) -> None:
    """The queries read what is left, and end."""
    for _ in range(_LAST_RUNS):
        last = start(place, *arguments, "once", on_spark=on_spark)
        try:
            last.wait(timeout=_LAST_S)
            if not fell(last, place):
                return
        finally:
            end_group(last)
    raise AssertionError(f"the queries didn't end in {_LAST_RUNS} runs")


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--place", type=Path, default=None)
    parser.add_argument("--rows", action="store_true")
    asked = parser.parse_args(arguments)
    place = asked.place or Path(tempfile.mkdtemp(prefix="txlake-streams-"))
    sys.stdout.write(f"{place}\n")
    killed = run(place, asked.kills, asked.seed, on_spark=not asked.rows)
    sys.stdout.write(f"{dict(killed)}\n")


if __name__ == "__main__":
    main()
