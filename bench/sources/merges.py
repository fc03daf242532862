"""The cases of the MERGE benchmark that Delta Lake has of its own, over rows of ours.

A case's source is made of a part of the table's files: some of their rows, which match, and others
under keys that the table hasn't, which don't. Source of the cases: delta-io/delta, `benchmarks/`,
MergeTestCases; theirs are over TPC-DS's web_returns by its two keys.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.sources import made_once
from bench.sources.rows import KEYS, Total, names, total, values

INSERTS, DELETES, UPSERTS = "insert-only", "delete-only", "upsert"
ADDED = 1.0
"""What a matched row's `v` is more in the source."""


@dataclass(frozen=True, slots=True)
class Case:
    """One MERGE: `kind` as an engine knows it, and fractions of files, and of their rows."""

    group: str
    kind: str
    files: float
    matched: float
    new: float

    @property
    def name(self) -> str:
        return f"{self.kind}, files {self.files:g}, matched {self.matched:g}, new {self.new:g}"


CASES = (
    *(
        Case(INSERTS, kind, 0.05, 0.0, new)
        for new in (0.05, 0.5, 1.0)
        for kind in ("insert", "insert by two clauses")
    ),
    Case(DELETES, "delete", 0.05, 0.05, 0.0),
    *(Case(UPSERTS, "upsert", 0.05, matched, 0.1) for matched in (0.0, 0.01, 0.1)),
    *(Case(UPSERTS, "upsert", 0.05, matched, 0.001) for matched in (0.5, 0.99, 1.0)),
    Case(UPSERTS, "upsert", 0.05, 0.1, 0.0),
    Case(UPSERTS, "upsert", 0.5, 0.01, 0.001),
    Case(UPSERTS, "upsert", 1.0, 0.01, 0.001),
)


@dataclass(frozen=True, slots=True)
class Merges:
    """The sources, a Parquet file each."""

    folder: Path

    def changes(self, case: Case) -> Path:
        return self.folder / f"{CASES.index(case)}.parquet"

    def more(self, case: Case) -> Total:
        """What the table's total is more after the case."""
        found = json.loads((self.folder / "more.json").read_text(encoding="utf-8"))
        return Total(*found[CASES.index(case)])


def merges(folder: Path, rows: int, files: int) -> Merges:
    """The sources for a table of `large_rows`."""

    def make(folder: Path) -> None:
        told = []
        for number, case in enumerate(CASES):
            matched, new = _chosen(case, number, rows, files)
            _write(folder / f"{number}.parquet", matched, new)
            more = _more(case, matched, new)
            told.append([more.rows, more.k, more.v])
        (folder / "more.json").write_text(json.dumps(told), encoding="utf-8")

    return Merges(made_once(folder / f"merges-{rows}-{files}", make))


def _chosen(case: Case, number: int, rows: int, files: int) -> tuple[np.ndarray, np.ndarray]:
    """The ids of rows that match, and of those that don't."""
    luck = np.random.default_rng(number)
    per_file = rows // files
    chosen = luck.choice(files, max(1, round(case.files * files)), replace=False)
    ids = np.concatenate([np.arange(per_file, dtype=np.int64) + each * per_file for each in chosen])
    matched = luck.choice(ids, round(case.matched * len(ids)), replace=False)
    return matched, rows + np.arange(round(case.new * len(ids)), dtype=np.int64)


def _more(case: Case, matched: np.ndarray, new: np.ndarray) -> Total:
    if case.kind == "delete":
        return Total(0, 0, 0.0) - total(matched)
    return total(new) + Total(0, 0, ADDED * len(matched))


def _write(path: Path, matched: np.ndarray, new: np.ndarray) -> None:
    ids = np.concatenate([matched, new])
    added = np.concatenate([np.full(len(matched), ADDED), np.zeros(len(new))])
    columns = {"id": ids, "k": ids % KEYS, "v": values(ids) + added, "s": pa.array(names(ids))}
    pq.write_table(pa.table(columns), path)
