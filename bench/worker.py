"""One engine in a process of its own: warmed up on little, then measured.

`python -m bench.worker TASK`, a file with the JSON of a `Task`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.registry import WORKS, Work
from bench.sizes import WARM_UP, Sizes
from bench.stage import NotHere, Stage, engine_maker


class Task(msgspec.Struct, frozen=True):
    """What a process does: the works of one `process` of the registry, by one engine."""

    engine: str
    suite: str
    process: str
    sizes: Sizes
    data: str
    scratch: str
    result: str
    warm_up: bool = True


class Measured(msgspec.Struct):
    """What it found: by work, the value of each repeat, or why it was left out; details by name."""

    samples: dict[str, list[float]]
    details: dict[str, float]
    left_out: dict[str, str] = {}


def works_of(task: Task) -> list[Work]:
    """In order."""
    return [
        work
        for work in WORKS
        if (work.suite, work.process) == (task.suite, task.process) and task.engine in work.engines
    ]


def measure(task: Task) -> Measured:
    """Run the works on little, to warm up, then on what is asked for.

    Raises:
        WrongAnswer: an engine came to another answer.
    """
    data, scratch = Path(task.data), Path(task.scratch)
    engine = engine_maker(task.engine, scratch / "engine")
    works = works_of(task)
    warm_up = Stage(task.engine, engine, WARM_UP, data, scratch / "warm-up")
    left_out: dict[str, str] = {}
    if task.warm_up:
        for work in works:
            if work.warms_up:
                with _noted(work, left_out):
                    _repeat(work, warm_up, 1)
    stage = Stage(task.engine, engine, task.sizes, data, scratch / "measured")
    samples = {}
    for work in works:
        os.sync()  # what earlier works have written isn't this one's to wait for
        with _noted(work, left_out):
            samples[work.name] = _repeat(work, stage, work.repeats)
    return Measured(samples, stage.details, left_out)


@contextmanager
def _noted(work: Work, left_out: dict[str, str]) -> Iterator[None]:
    """Goes on where a work's needs aren't met."""
    try:
        yield
    except NotHere as error:
        left_out[work.name] = str(error)


def _repeat(work: Work, stage: Stage, repeats: int) -> list[float]:
    stage.scratch.mkdir(parents=True, exist_ok=True)
    values = [work.run(stage, number) for number in range(repeats)]
    if work.check is not None:
        work.check(stage)
    return values


def main(path: Path) -> None:
    """Read the task, measure, write the result."""
    task = msgspec.json.decode(path.read_bytes(), type=Task)
    Path(task.result).write_bytes(msgspec.json.encode(measure(task)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
