"""The source's keys of a MERGE, and which rows of a file have one of them.

Owns the join by equality on the driver. The keys' types compare in Arrow as they do in Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_POSITION, _NUMBER = "__txlake_position", "__txlake_number"
# A table with a place for each value between a file's least and greatest key finds the source's
# rows several times as fast as a hash, unless it has many more places than the file has rows.
_PLACES_PER_ROW_MAX = 8

Indexes = np.ndarray


@dataclass(frozen=True, slots=True)
class SourceKeys:
    """The source's rows by their keys, without those that have a NULL in one.

    Attributes:
        columns: a column for each key, by its place as text, and the rows' numbers.
        ascending: the keys in ascending order and their rows' numbers, if the key is one integer.
    """

    columns: pa.Table
    ascending: tuple[np.ndarray, Indexes] | None

    @classmethod
    def of(cls, keys: Sequence[pa.ChunkedArray]) -> SourceKeys:
        """Return the keys of the source's rows, which are numbered from 0."""
        count = len(keys[0])
        table = _table(keys).append_column(_NUMBER, pa.array(np.arange(count, dtype=np.int64)))
        table = table.drop_null()
        if len(keys) > 1 or not pa.types.is_integer(table.column(0).type):
            return cls(table, None)
        values, numbers = table.column(0).to_numpy(), table.column(_NUMBER).to_numpy()
        order = np.argsort(values, kind="stable")
        return cls(table, (values[order], numbers[order]))

    @property
    def is_unique(self) -> bool:
        """Return whether no two rows have the same key."""
        if self.ascending is not None:
            keys, _ = self.ascending
            return not np.any(keys[1:] == keys[:-1])
        return bool(self.columns.group_by(self._names).aggregate([]).num_rows == len(self.columns))

    def matches(self, keys: Sequence[pa.ChunkedArray]) -> tuple[Indexes, Indexes]:
        """Return the indexes of target rows that match, ascending, and their source rows' numbers.

        `keys` are the target rows' columns, in the order of the source's. The source's keys have to
        be unique. NULL matches nothing.
        """
        ours = _table(keys)
        if self.ascending is not None and ours.num_rows and not ours.column(0).null_count:
            return _integers_found(*self.ascending, ours.column(0).to_numpy())
        if len(self._names) == 1:
            return _found(ours.column(0), self.columns.column(0), self.columns.column(_NUMBER))
        placed = ours.append_column(_POSITION, pa.array(np.arange(ours.num_rows, dtype=np.int64)))
        pairs = placed.join(self.columns, self._names, join_type="inner").sort_by(_POSITION)
        return pairs.column(_POSITION).to_numpy(), pairs.column(_NUMBER).to_numpy()

    @property
    def _names(self) -> list[str]:
        names: list[str] = self.columns.column_names[:-1]
        return names


def _integers_found(
    keys: np.ndarray, numbers: Indexes, values: np.ndarray
) -> tuple[Indexes, Indexes]:
    """Return as `SourceKeys.matches`, of one integer key: `keys` ascending, at least one value."""
    low, high = values.min(), values.max()
    first, end = np.searchsorted(keys, low, "left"), np.searchsorted(keys, high, "right")
    keys, numbers = keys[first:end], numbers[first:end]
    places = int(high) - int(low) + 1
    if places > _PLACES_PER_ROW_MAX * len(values):
        return _found(pa.array(values), pa.array(keys), pa.array(numbers))
    number_at = np.full(places, -1, dtype=np.int64)
    number_at[keys - low] = numbers
    found = number_at[values - low]
    indexes = np.flatnonzero(found >= 0)
    return indexes, found[indexes]


def _found(
    values: pa.ChunkedArray | pa.Array,
    keys: pa.ChunkedArray | pa.Array,
    numbers: pa.ChunkedArray | pa.Array,
) -> tuple[Indexes, Indexes]:
    """Return as `SourceKeys.matches`, of one key of any type."""
    source_indexes = pc.index_in(values, keys, skip_nulls=True)
    indexes = np.flatnonzero(source_indexes.is_valid().to_numpy(zero_copy_only=False))
    return indexes, np.asarray(numbers.take(source_indexes.drop_null()))


def _table(keys: Sequence[pa.ChunkedArray]) -> pa.Table:
    """Return the keys in the types in which both sides are joined: integers as bigint, text with
    32-bit offsets.
    """
    return pa.table([_comparable(key) for key in keys], [str(place) for place in range(len(keys))])


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    return column.cast(pa.string()) if pa.types.is_large_string(column.type) else column
