"""What a soak counted, and its report."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.shared_tables.audit import Verdict

KEPT = Path("artifacts", "soak")


@dataclass(slots=True)
class Counts:
    """Of all rounds; `faults` is what is wrong, `requests` the misfortunes that were put there."""

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
        """Counts one table's audit; its faults are told with the round's."""
        self.commits += verdict.commits
        self.versions += verdict.versions
        self.lost += verdict.lost
        self.doubled += verdict.doubled

    def keep(self, folder: Path, name: str) -> None:
        """Keeps a table, or a lake, with a fault."""
        shutil.copytree(folder, KEPT / name, dirs_exist_ok=True)

    def report(self) -> str:
        """One line each, for people."""
        listed = {
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
                *(f"{name:<14}{_listed(counted)}" for name, counted in listed.items()),
                f"versions      {self.versions} read by every reader",
                f"lost rows     {self.lost}",
                f"doubled rows  {self.doubled}",
                *(f"FAULT         {fault}" for fault in self.faults),
            )
        )


def _listed(counts: Counter[str]) -> str:
    told = ", ".join(f"{name} {n}" for name, n in sorted(counts.items())) or "none"
    return f"{counts.total()} ({told})"
