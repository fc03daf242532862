"""Histories, how they are written down and how they are judged by tools/judge.

A history is a list of operations, as Jepsen has them and tools/judge/src/history.rs says: one that
starts a transaction (`invoke`), one that asks for its end (`commit`), one that tells how it ended
(`ok`, `fail`, or `info` where nobody knows).
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
    """What the judge says of one history.

    Attributes:
        committed: how many transactions did.
        failed: how many didn't.
        unknown: how many may have.
        reads: of the committed ones.
        appends: of the committed ones.
        levels: of each level whether it holds; None where the history says nothing about it.
        anomalies: of each level what speaks against it.
        why: of each level the first few explanations.
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
        """Why the level doesn't hold, for a failing test."""
        return "\n".join((f"{level}: {sorted(self.anomalies[level])}", *self.why[level]))


def binary() -> Path:
    """The judge; the test is skipped where it hasn't been built."""
    need("judge", found=BINARY.exists())
    return BINARY


def judged(history: Iterable[Operation]) -> Verdict:
    """The verdict on one history."""
    return judged_all([list(history)])[0]


def judged_all(histories: Sequence[Sequence[Operation]]) -> list[Verdict]:
    """The verdicts on many, none of them empty, by one process.

    Raises:
        ValueError: the judge refused one of them; says why.
    """
    text = "\n\n".join("\n".join(map(json.dumps, history)) for history in histories)
    done = subprocess.run([binary()], input=text, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 2), done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(histories)
    return [_verdict(answer) for answer in answers]


def _verdict(answer: Mapping[str, Any]) -> Verdict:
    if "error" in answer:
        raise ValueError(answer["error"])
    levels = {name: level for name, level in answer["levels"].items() if level is not None}
    return Verdict(
        committed=answer["committed"],
        failed=answer["failed"],
        unknown=answer["unknown"],
        reads=answer["reads"],
        appends=answer["appends"],
        levels={name: level["holds"] for name, level in levels.items()},
        anomalies={name: frozenset(level["anomalies"]) for name, level in levels.items()},
        why={name: level["why"] for name, level in levels.items()},
    )
