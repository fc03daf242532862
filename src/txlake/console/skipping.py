"""The share of files that a query by a clustering column reads, by the files' statistics."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from txlake.errors import CorruptTable
from txlake.log.snapshot import Snapshot
from txlake.protocol.clustering import clustered_by
from txlake.protocol.statistics import FileStatistics
from txlake.protocol.types import Struct

_FILES_MAX = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSkipping:
    """Data skipping by a clustering column.

    Attributes:
        share: the average share of files that a lookup of one value reads, over the files' least
            values; None where no file has bounds.
        unknown: the number of files without bounds, which are always read.
    """

    column: str
    share: float | None
    unknown: int


def skipping_of(snapshot: Snapshot) -> Sequence[ColumnSkipping]:
    """Return the data skipping of each clustering column, in order.

    Empty for a table without clustering, or with a damaged record of it. Only the first 5,000 files
    are looked at.
    """
    try:
        paths = clustered_by(snapshot.schema, snapshot.domains, table=snapshot.table)
    except CorruptTable:
        return []
    if not paths:
        return []
    adds = itertools.islice(snapshot.files.adds(), _FILES_MAX)
    statistics = [FileStatistics.from_json(add.stats) for add in adds]
    return [
        _column_skipping(path, _physical_path(path, snapshot.schema), statistics) for path in paths
    ]


def _physical_path(path: Sequence[str], schema: Struct) -> Sequence[str]:
    """Return the path of physical names; a field that the schema doesn't have keeps its name."""
    names = []
    type_: object = schema
    for name in path:
        item = type_.find(name) if isinstance(type_, Struct) else None
        names.append(name if item is None else item.physical_name)
        type_ = None if item is None else item.type
    return names


def _column_skipping(
    path: Sequence[str], physical: Sequence[str], statistics: Sequence[FileStatistics]
) -> ColumnSkipping:
    """Return the skipping by one column, from the bounds of the files' statistics.

    `share` is None where no file has bounds, and for bounds of mixed types, which all count as
    unknown.
    """
    bounds = [
        (_value_at(file.min_values, physical), _value_at(file.max_values, physical))
        for file in statistics
    ]
    bounded = [(low, high) for low, high in bounds if low is not None and high is not None]
    unknown = len(bounds) - len(bounded)
    name = ".".join(path)
    try:
        lows, highs = sorted(low for low, _ in bounded), sorted(high for _, high in bounded)
    except TypeError:
        return ColumnSkipping(
            column=name, share=None, unknown=len(bounds)
        )  # bounds of mixed types: a damaged log
    if not bounded:
        return ColumnSkipping(column=name, share=None, unknown=unknown)
    read = sum(bisect_right(lows, value) - bisect_left(highs, value) for value in lows)
    share = (read / len(bounded) + unknown) / len(bounds)
    return ColumnSkipping(column=name, share=share, unknown=unknown)


def _value_at(values: object, path: Sequence[str]) -> float | str | None:
    """Return the bound at a path of names; None for a missing one, and for other types than numbers
    and texts.
    """
    for name in path:
        if not isinstance(values, dict):
            return None
        values = values.get(name)
    return values if isinstance(values, int | float | str) else None
