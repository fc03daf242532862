"""What Spark's tasks do where deletion vectors are too many to travel: they read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from txlake.datafiles.stored_vectors import StoredVector

_VECTORS_KEPT = 8


@dataclass(frozen=True)
class LiveRowFilter:
    """Tells the live rows from the deleted ones.

    `vectors`: by file ordinal; rows of files without one are live.
    """

    vectors: Mapping[int, StoredVector]
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __call__(
        self, batches: Iterator[tuple[pa.Array, pa.Array]], partition: int, attempt: int
    ) -> Iterator[pa.Array]:
        """For each row (ordinal, position), whether it is live."""
        kept: dict[int, np.ndarray] = {}
        for files, rows in batches:
            ordinals = files.to_numpy(zero_copy_only=False)
            positions = rows.to_numpy(zero_copy_only=False).astype(np.uint64)
            live = np.ones(len(positions), dtype=bool)
            for ordinal in np.unique(ordinals):
                deleted = self._deleted(int(ordinal), kept)
                if len(deleted):
                    places = np.flatnonzero(ordinals == ordinal)
                    live[places] = ~contained_in(deleted, positions[places])
            yield pa.array(live)

    def _deleted(self, ordinal: int, kept: dict[int, np.ndarray]) -> np.ndarray:
        if ordinal not in kept:
            if len(kept) >= _VECTORS_KEPT:
                kept.pop(next(iter(kept)))
            vector = self.vectors.get(ordinal)
            empty = np.empty(0, np.uint64)
            kept[ordinal] = empty if vector is None else vector.positions(self.options)
        return kept[ordinal]


def contained_in(ordered: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Which of the wanted numbers are among the ordered ones."""
    places = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    found: np.ndarray = ordered[places] == wanted
    return found
