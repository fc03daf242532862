"""Filter deleted rows in Spark's tasks by deletion vectors that the tasks read themselves.

For deletion vectors that are too many to be shipped with the tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from txlake.datafiles.stored_vectors import StoredVector

_CACHED_VECTORS_MAX = 8


@dataclass(frozen=True)
class LiveRowFilter:
    """A task that tells live rows from deleted ones.

    Attributes:
        vectors: deletion vectors by file ordinal; all rows of other files are live.
        options: those of the vectors' store.
    """

    vectors: Mapping[int, StoredVector]
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __call__(
        self, batches: Iterator[tuple[pa.Array, pa.Array]], partition: int, attempt: int
    ) -> Iterator[pa.Array]:
        """Yield for each batch of (file ordinal, position) pairs whether the rows are live."""
        cache: dict[int, np.ndarray] = {}
        for files, rows in batches:
            ordinals = files.to_numpy(zero_copy_only=False)
            positions = rows.to_numpy(zero_copy_only=False).astype(np.uint64)
            live = np.ones(len(positions), dtype=bool)
            for ordinal in np.unique(ordinals):
                deleted = self._deleted(int(ordinal), cache)
                if len(deleted):
                    indexes = np.flatnonzero(ordinals == ordinal)
                    live[indexes] = ~contained_in(deleted, positions[indexes])
            yield pa.array(live)

    def _deleted(self, ordinal: int, cache: dict[int, np.ndarray]) -> np.ndarray:
        """Return a file's deleted positions, sorted, through `cache`, which keeps the last 8 files
        read.

        Raises CorruptTable if the vector can't be read.
        """
        if ordinal not in cache:
            if len(cache) >= _CACHED_VECTORS_MAX:
                cache.pop(next(iter(cache)))
            vector = self.vectors.get(ordinal)
            empty = np.empty(0, np.uint64)
            cache[ordinal] = empty if vector is None else vector.positions(self.options)
        return cache[ordinal]


def contained_in(ordered: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return for each of `values` whether the sorted array, which isn't empty, contains it."""
    indexes = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    result: np.ndarray = ordered[indexes] == values
    return result
