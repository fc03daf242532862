"""A query whose process is killed at one step of its micro-batches after the other.

`python -m tests.lake.streaming.dying PLACE SINK` (a sink of tests/lake/streaming/engine.py) forks a
process for each step: rows come, the query reads them, and its process kills itself (SIGKILL)
before or after a write to the store, a transaction of the catalog's database or a write to the
checkpoint. Another process then runs the query to its end. Prints the steps; at the end every row
has to be in the sink once.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

import txlake
from tests.lake.dying import Steps, forked
from tests.lake.streaming import engine
from tests.lake.streaming.checks import KEYS, check_branch_sink, check_sink
from tests.lake.streaming.worker import NAME, PATH, PATH_SINK
from txlake.storage.local import LocalStore


def append(place: Path, sink: str, first: int) -> None:
    """Two rows, in two commits."""
    source = str(place / PATH) if sink == PATH_SINK else NAME
    with txlake.connect(str(place / "lake")) as lake:
        own = lake.branch(engine.BRANCH, create=True) if sink == engine.BRANCH_SINK else lake
        for number in (first, first + 1):
            own.write(pa.table({"key": [number % KEYS], "n": [number]}), source, "append")


def die(place: Path, sink: str, last: int) -> None:
    """The query, which dies at a step."""
    steps = Steps(last)
    for name in ("put", "put_if_absent", "delete"):
        steps.around(LocalStore, name)
    for name in ("write", "write_relaxed"):
        steps.inside(name)
    checkpoint: Any = engine
    steps.around(checkpoint, "put")
    run: Callable[..., None] = engine.Query.run

    def counted(*given: Any, **named: Any) -> None:
        steps.start()
        run(*given, **named)

    whole: Any = engine.Query
    whole.run = counted
    engine.main(place, sink, once=True)


def main(place: Path, sink: str) -> None:
    """Step by step, until a run outlives them all."""
    total = 0
    for last in count(1):
        if forked(partial(append, place, sink, total)):
            raise SystemExit("the rows couldn't be written")
        total += 2
        ended = forked(partial(die, place, sink, last))
        if ended not in (0, -signal.SIGKILL):
            raise SystemExit(f"step {last}: the query ended with {ended}")
        if forked(partial(engine.main, place, sink, once=True)):
            raise SystemExit(f"step {last}: the query can't go on")
        sys.stdout.write(f"step {last} {'done' if ended == 0 else 'killed'}\n")
        if ended == 0:
            break
    check = check_branch_sink if sink == engine.BRANCH_SINK else check_sink
    if forked(partial(check, place, sink, total)):
        raise SystemExit("rows are lost, doubled or out of order")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
