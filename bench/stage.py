"""Where one engine works: its process's data, scratch folder, and what its tables must hold."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from bench.delta_log import link_table
from bench.engines import ENGINES
from bench.engines.base import Engine
from bench.sizes import Sizes
from bench.sources.rows import Total

Answer = TypeVar("Answer")


@dataclass(slots=True)
class Held:
    """A table that works change one after the other, and what it must hold."""

    folder: Path
    total: Total


class NotHere(Exception):
    """What a work needs isn't on this machine: it is left out, and the bench says why."""


class WrongAnswer(Exception):
    """An engine came to another answer than the one expected: the bench has failed."""


@dataclass
class Stage:
    """One pass over a group's works, by one engine.

    Attributes:
        data: where the data sets are.
        scratch: an empty folder for this pass.
        details: what a work tells besides its value, by name.
        kept: what a work leaves for those after it, by name.
    """

    engine_name: str
    make_engine: Callable[[], Engine]
    sizes: Sizes
    data: Path
    scratch: Path
    details: dict[str, float] = field(default_factory=dict)
    kept: dict[str, object] = field(default_factory=dict)

    @cached_property
    def engine(self) -> Engine:
        """Started when a work first needs it; the works on logs never do."""
        return self.make_engine()

    def table(self, name: str, log: Path, *folders: Path) -> Path:
        """A new table in the scratch folder, over the files of folders."""
        folder = self.scratch / name
        shutil.rmtree(folder, ignore_errors=True)
        link_table(folder, folders, log)
        for path in folder.iterdir():
            if path.is_file():
                path.read_bytes()  # for all engines alike, the files are in the page cache
        return folder

    def expect(self, found: object, expected: object, what: object) -> None:
        """Raise WrongAnswer when they differ."""
        if found != expected:
            raise WrongAnswer(f"{self.engine_name}: {what}: expected {expected}, found {found}")

    def keep(self, name: str, make: Callable[[], Answer]) -> Answer:
        """What an earlier work of this pass kept under the name, or what is made now."""
        if name not in self.kept:
            self.kept[name] = make()
        kept: Answer = self.kept[name]  # type: ignore[assignment]
        return kept


def timed(action: Callable[[], Answer]) -> tuple[float, Answer]:
    """Seconds, and what it gave."""
    start = time.perf_counter()
    answer = action()
    return time.perf_counter() - start, answer


def engine_maker(name: str, scratch: Path) -> Callable[[], Engine]:
    """Start the engine at the first call and give the same one afterwards."""
    started: list[Engine] = []

    def make() -> Engine:
        if not started:
            started.append(ENGINES[name](scratch))
        return started[0]

    return make
