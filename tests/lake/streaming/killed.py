"""Streams whose processes are killed at random instants, and what their sinks have in the end.

`python -m tests.lake.streaming.killed --kills 40 --seed 1`: while rows are appended to the sources,
the process of the queries (tests/lake/streaming/worker.py), Spark's JVM or a Python process beside
it is killed (SIGKILL), and the queries are started again. With `--connect` the queries run on a
Spark Connect server: their client is killed, one of the server's Python processes, or the server.
With `--rows` no Spark runs: one query at a time (tests/lake/streaming/engine.py), so that hundreds
of kills take minutes. Then every row has to be in every sink once, those of a key in their order,
and the two tables of one transaction agree version by version.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

import txlake
from tests.lake.streaming.checks import KEYS, check_sink
from tests.lake.streaming.engine import SINKS
from tests.lake.streaming.lives import Classic, Connect, Rows
from tests.lake.streaming.processes import END_S
from tests.lake.streaming.worker import NAME, PATH


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
        self.join(timeout=END_S)
        assert not self.is_alive(), "the writer hangs"
        self._lake.close()
        if self.error is not None:
            raise self.error


def run(place: Path, kills: int, seed: int, kind: type[Classic]) -> Counter[str]:
    """Kills and starts, then looks; who was killed how often."""
    dice = random.Random(seed)
    writer = Writer(place, seed, kind.pause_s)
    writer.start()
    life = kind(place)
    killed: Counter[str] = Counter()
    try:
        while killed.total() < kills:
            began = time.monotonic()
            life.start(dice)
            # From the start of the queries on, sometimes before.
            if dice.random() >= 0.1:
                life.wait_for_queries()
            time.sleep(dice.uniform(0, kind.longest_s))
            who = "it was too slow" if life.fell() else life.kill(dice)
            life.end()
            killed[who] += 1
            took = time.monotonic() - began
            _say(f"{killed.total()} {who}, {writer.rows} rows, {took:.0f} s")
        writer.end()
        life.finish()
        for sink in SINKS:
            check_sink(place, sink, writer.rows)
    finally:
        life.close()
    _say(f"{writer.rows} rows, each once in every sink")
    return killed


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--place", type=Path, default=None)
    on = parser.add_mutually_exclusive_group()
    on.add_argument("--rows", dest="kind", action="store_const", const=Rows)
    on.add_argument("--connect", dest="kind", action="store_const", const=Connect)
    asked = parser.parse_args(arguments)
    place = asked.place or Path(tempfile.mkdtemp(prefix="txlake-streams-"))
    _say(str(place))
    killed = run(place, asked.kills, asked.seed, asked.kind or Classic)
    _say(str(dict(killed)))


if __name__ == "__main__":
    main()
