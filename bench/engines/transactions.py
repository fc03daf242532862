"""Transactions of SQL over many tables, as an engine that has them is asked for them.

txlake runs them without Spark, in this process; DuckLake in a process of its own environment.
"""

from __future__ import annotations

import json
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import txlake
from bench.stage import NotHere
from txlake.errors import Conflict, InvalidRequest
from txlake.session.command import AsRows
from txlake.session.views.describe import Rows

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHON = ROOT / ".cache/ducklake/bin/python"
Transaction = Sequence[str]


class Transactions(ABC):
    """One connection to a lake in a folder."""

    @abstractmethod
    def run(self, transactions: Sequence[Transaction]) -> list[float | None]:
        """The milliseconds of each, one after the other; None for one that was aborted."""

    @abstractmethod
    def number(self, query: str) -> int:
        """The number that a query of the form `SELECT sum(c) FROM t` gives."""

    @abstractmethod
    def close(self) -> None:
        """End it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class OfTxlake(Transactions):
    """Statements that need no Spark."""

    def __init__(self, folder: Path, catalog: str | None) -> None:
        self._lake = txlake.connect(str(folder), catalog=catalog)

    def run(self, transactions: Sequence[Transaction]) -> list[float | None]:
        return [self._one(";".join(("BEGIN", *each, "COMMIT"))) for each in transactions]

    def _one(self, text: str) -> float | None:
        start = time.perf_counter()
        try:
            self._lake._run_sql(text, None, AsRows())
        except Conflict:
            with suppress(InvalidRequest):  # a failed COMMIT has ended it
                self._lake._run_sql("ROLLBACK", None, AsRows())
            return None
        return 1_000 * (time.perf_counter() - start)

    def number(self, query: str) -> int:
        found = self._lake._run_sql(query, None, AsRows())
        assert not isinstance(found, Rows), "it is a query"
        [[number]] = found.collect()
        return int(number)

    def close(self) -> None:
        self._lake.close()


class OfDuckLake(Transactions):
    """A process of DuckDB's."""

    def __init__(self, folder: Path, catalog: str | None) -> None:
        if not PYTHON.exists():
            raise NotHere("DuckLake: tools/python_peer.sh ducklake makes its environment")
        folder.mkdir(parents=True, exist_ok=True)
        worker = Path(__file__).with_name("ducklake_worker.py")
        meta = catalog or f"sqlite:{folder / 'catalog.db'}"
        self._process = subprocess.Popen(
            [str(PYTHON), str(worker), meta, str(folder / "data")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _asked(self, transactions: Sequence[Transaction]) -> list[object]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([list(one) for one in transactions]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"DuckLake ended with {self._process.wait()}; it said why above")
        answers: list[object] = json.loads(line)
        return answers

    def run(self, transactions: Sequence[Transaction]) -> list[float | None]:
        answers = self._asked(transactions)
        return [one if isinstance(one, float) else None for one in answers]

    def number(self, query: str) -> int:
        [rows] = self._asked([[query]])
        assert isinstance(rows, list)
        return int(rows[0][0])

    def close(self) -> None:
        self._process.communicate(timeout=60)


def transactions_of(engine: str, folder: Path, catalog: str | None = None) -> Transactions:
    """A connection of that engine's. Raises NotHere where it isn't installed."""
    return OfDuckLake(folder, catalog) if engine == "ducklake" else OfTxlake(folder, catalog)
