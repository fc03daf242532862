"""TPC-DS's store sales by its own generator, with refresh sets of our own and DuckDB's answers.

A round of refreshment inserts copies of every fiftieth ticket under numbers that are free, with
their returns, and deletes the sales, and the returns, of some days, as many rows. Answers are there
for the tables as they were made and for each round after.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bench.delta_log import write_live_log
from bench.engines.transactions import PYTHON
from bench.sources import made_once
from bench.stage import NotHere

FACTS = ("store_sales", "store_returns")
Answers = dict[str, list[list[object]]]


@dataclass(frozen=True)
class Retail:
    """The data set: `TABLE/data`, `TABLE/logs`, what each round inserts and deletes."""

    folder: Path

    @cached_property
    def tables(self) -> list[str]:
        return sorted(path.parent.name for path in self.folder.glob("*/data"))

    def data(self, table: str) -> Path:
        return self.folder / table / "data"

    def log(self, table: str) -> Path:
        return self.folder / table / "logs" / "live.json"

    def inserted(self, table: str, number: int) -> Path:
        """What the numbered round inserts into one of FACTS."""
        return self.folder / f"insert-{table}-{number}.parquet"

    @cached_property
    def deleted(self) -> list[dict[str, str]]:
        """For each round the condition of what it deletes from each of FACTS."""
        found: list[dict[str, str]] = json.loads((self.folder / "refresh.json").read_bytes())
        return found

    @cached_property
    def queries(self) -> dict[str, str]:
        """Those of TPC-DS on these tables, by name, without their LIMIT."""
        found: dict[str, str] = json.loads((self.folder / "queries.json").read_bytes())
        return found

    @cached_property
    def answers(self) -> list[Answers]:
        """Before the first round and after each, by query the rows in any order."""
        found: list[Answers] = json.loads((self.folder / "answers.json").read_bytes())
        return found


def retail(folder: Path, scale: float, rounds: int) -> Retail:
    """The data set of a scale factor and rounds. Raises NotHere without DuckDB's environment."""

    def make(folder: Path) -> None:
        if not PYTHON.exists():
            raise NotHere(
                "TPC-DS: tools/python_peer.sh ducklake makes the environment of its generator"
            )
        script = Path(__file__).with_name("dsdgen.py")
        command = [str(PYTHON), str(script), str(folder), f"{scale:g}", str(rounds)]
        subprocess.run(command, check=True)
        made = Retail(folder)
        for table in made.tables:
            write_live_log(folder / table / "logs", made.data(table))

    return Retail(made_once(folder / f"retail-{scale:g}-{rounds}", make))
