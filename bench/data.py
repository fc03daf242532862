"""The rows that every engine is given, and the answers that each must come to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS_PER_FILE = 250_000
STORES = 40


@dataclass(frozen=True, slots=True)
class Source:
    """A folder of Parquet files of sales: `id` from 0, `store`, `item`, `amount_cents`, `note`."""

    folder: Path
    rows: int
    amount_cents: int

    @property
    def files(self) -> list[str]:
        """The files, in the order of `id`."""
        return sorted(str(path) for path in self.folder.glob("*.parquet"))


def make_source(folder: Path, rows: int) -> Source:
    """Writes the rows. The same number gives the same rows, whichever machine makes them."""
    folder.mkdir(parents=True)
    chance = np.random.default_rng(rows)
    amount_cents = 0
    for first in range(0, rows, ROWS_PER_FILE):
        count = min(ROWS_PER_FILE, rows - first)
        amounts = chance.integers(1, 100_000, count)
        items = chance.integers(0, 10_000, count)
        amount_cents += int(amounts.sum())
        table = pa.table(
            {
                "id": np.arange(first, first + count, dtype=np.int64),
                "store": chance.integers(0, STORES, count, dtype=np.int32),
                "item": items,
                "amount_cents": amounts,
                "note": pa.array([f"item {item} sold" for item in items.tolist()]),
            }
        )
        pq.write_table(table, folder / f"part-{first // ROWS_PER_FILE:05}.parquet")
    return Source(folder, rows, amount_cents)
