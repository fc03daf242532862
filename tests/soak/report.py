"""The counts of a soak, and its report."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.shared_tables.audit import Verdict

ARTIFACTS = Path("artifacts", "soak")


@dataclass(slots=True)
class Counts:
    """Counts over all rounds.

    `faults`: what is wrong; `requests`: the faults injected into requests.
    """

    rounds: Counter[str] = field(default_factory=Counter)
    commits: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    statements: Counter[str] = field(default_factory=Counter)
    conflicts: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)
    versions: int = 0
    lost: int = 0
    doubled: int = 0
    faults: list[str] = field(default_factory=list)

    def add(self, verdict: Verdict) -> None:
        """Add one table's audit, without its faults, which the round adds."""
        self.commits += verdict.commits
        self.versions += verdict.versions
        self.lost += verdict.lost
        self.doubled += verdict.doubled

    def keep(self, folder: Path, name: str) -> None:
        """Copy a table or lake with a fault to the artifacts."""
        shutil.copytree(folder, ARTIFACTS / name, dirs_exist_ok=True)

    def report(self) -> str:
        """Return the report, a line for each count."""
        counters = {
            "rounds": self.rounds,
            "commits": self.commits,
            "transactions": self.outcomes,
            "statements": self.statements,
            "conflicts": self.conflicts,
            "kills": self.kills,
            "faults made": self.requests,
        }
        return "\n".join(
            (
                *(f"{name:<14}{_text(counter)}" for name, counter in counters.items()),
                f"versions      {self.versions} read by every reader",
                f"lost rows     {self.lost}",
                f"doubled rows  {self.doubled}",
                *(f"FAULT         {fault}" for fault in self.faults),
            )
        )


def _text(counts: Counter[str]) -> str:
    entries = ", ".join(f"{name} {n}" for name, n in sorted(counts.items())) or "none"
    return f"{counts.total()} ({entries})"
