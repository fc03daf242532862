"""Recording transactions as a history: their begins, commit requests and outcomes.

Owns the format of a recorded history for every run: threads, processes that write to one file, the
simulation.
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
        process: its number, unique in the history.
        write: stores an operation at once, as the process may be killed after any of them.
        now: a clock that all processes of the history share.
    """

    process: int
    write: Callable[[Operation], object]
    now: Callable[[], int] = time.monotonic_ns

    def record_begin(self, accesses: Sequence[Access], level: str) -> None:
        """Record that a transaction begins with these accesses, whose reads have no results yet."""
        planned = [(kind, key, None if kind[0] == "r" else to) for kind, key, to in accesses]
        self._write("invoke", value=planned, level=level)

    def record_commit_request(self) -> None:
        """Record that the last statement is done and COMMIT follows."""
        self._write("commit")

    def record_committed(self, accesses: Sequence[Access]) -> None:
        """Record that the transaction committed, with the results of its reads."""
        self._write("ok", value=accesses)

    def record_failed(self) -> None:
        """Record that the transaction certainly didn't commit."""
        self._write("fail")

    def record_unknown(self) -> None:
        """Record that the transaction may have committed, or may still do so."""
        self._write("info")

    def _write(self, kind: str, **more: Any) -> None:
        self.write({"type": kind, "process": self.process, "time": self.now(), **more})


def append_to_file(path: Path) -> Callable[[Operation], object]:
    """Return a function that appends operations to a file, which several processes may share."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    return lambda operation: os.write(descriptor, json.dumps(operation).encode() + b"\n")


def read_file(path: Path) -> list[Operation]:
    """Return the operations in such a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@dataclass
class LogicalClock:
    """A clock that counts its readings, for runs with one statement at a time."""

    time: int = field(default=0)

    def __call__(self) -> int:
        self.time += 1
        return self.time
