"""Transactions become a history: when each began, asked for its end and ended, and how.

Owns the form of a recorded history, for every run: threads, processes that write to one file, the
simulation. Nothing here knows what the transactions are made of.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.judge.histories import Access, Operation


@dataclass
class Recorder:
    """Records the transactions of one process, one after the other.

    Attributes:
        process: its number, which no other process of the history has.
        keep: takes the operations, at once: a process may be killed after any of them.
        now: a clock that all processes of the history share.
    """

    process: int
    keep: Callable[[Operation], object]
    now: Callable[[], int] = time.monotonic_ns

    def began(self, accesses: Sequence[Access], level: str) -> None:
        """A transaction at this level is about to do these; what it will see isn't known yet."""
        planned = [(kind, key, None if kind[0] == "r" else to) for kind, key, to in accesses]
        self._keep("invoke", value=planned, level=level)

    def asked_to_commit(self) -> None:
        """Its last statement is done."""
        self._keep("commit")

    def committed(self, accesses: Sequence[Access]) -> None:
        """It did, and these are its accesses with what it saw."""
        self._keep("ok", value=accesses)

    def failed(self) -> None:
        """It certainly didn't commit."""
        self._keep("fail")

    def unknown(self) -> None:
        """It may have committed, or still do."""
        self._keep("info")

    def _keep(self, kind: str, **more: Any) -> None:
        self.keep({"type": kind, "process": self.process, "time": self.now(), **more})


def to_file(path: Path) -> Callable[[Operation], object]:
    """Appends operations to a file that many processes append to."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    return lambda operation: os.write(descriptor, json.dumps(operation).encode() + b"\n")


def from_file(path: Path) -> list[Operation]:
    """The operations in such a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@dataclass
class Ticks:
    """A clock for runs in which one thing happens at a time."""

    time: int = field(default=0)

    def __call__(self) -> int:
        self.time += 1
        return self.time
