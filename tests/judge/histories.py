"""Histories, their format, and their verdicts by tools/judge.

A history is a list of operations as in Jepsen and tools/judge/src/history.rs: a transaction's begin
(`invoke`), the request to commit (`commit`), and its end (`ok`, `fail`, or `info` for an unknown
outcome).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.peers import need

_ROOT = Path(__file__).resolve().parents[2]
BINARY = _ROOT / ".cache" / "judge" / "judge"
LEVELS = ("serializable", "write-serializable", "snapshot")

Operation = Mapping[str, Any]
# A read ("r"; "rfw" where writes depend on it) with the list or None, a row's change ("append"), a
# new row ("insert").
Access = tuple[Literal["r", "rfw", "append", "insert"], str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judge's verdict on one history.

    Attributes:
        committed, failed, unknown: the numbers of transactions with this outcome.
        reads, appends: the numbers of the committed transactions' accesses.
        levels: by level, whether it holds; None if the history says nothing about it.
        anomalies: by level, the anomalies that violate it.
        why: by level, the first few explanations.
    """

    committed: int
    failed: int
    unknown: int
    reads: int
    appends: int
    levels: Mapping[str, bool | None]
    anomalies: Mapping[str, frozenset[str]]
    why: Mapping[str, Sequence[str]]

    def explain(self, level: str) -> str:
        """Return why the level doesn't hold, as the message of a failing test."""
        return "\n".join((f"{level}: {sorted(self.anomalies[level])}", *self.why[level]))


def binary() -> Path:
    """Return the path of the judge; skip the test if it hasn't been built."""
    need("judge", found=BINARY.exists())
    return BINARY


def judge(history: Iterable[Operation]) -> Verdict:
    """Return the verdict on one history."""
    return judge_all([list(history)])[0]


def judge_all(histories: Sequence[Sequence[Operation]]) -> list[Verdict]:
    """Return the verdicts on several histories, none of them empty, made by one process.

    Raises:
        ValueError: the judge refused a history; the message says why.
    """
    text = "\n\n".join("\n".join(map(json.dumps, history)) for history in histories)
    done = subprocess.run([binary()], input=text, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 2), done.stderr
    outputs = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(outputs) == len(histories)
    return [_verdict(output) for output in outputs]


def _verdict(output: Mapping[str, Any]) -> Verdict:
    if "error" in output:
        raise ValueError(output["error"])
    levels = {name: level for name, level in output["levels"].items() if level is not None}
    return Verdict(
        committed=output["committed"],
        failed=output["failed"],
        unknown=output["unknown"],
        reads=output["reads"],
        appends=output["appends"],
        levels={name: level["holds"] for name, level in levels.items()},
        anomalies={name: frozenset(level["anomalies"]) for name, level in levels.items()},
        why={name: level["why"] for name, level in levels.items()},
    )
