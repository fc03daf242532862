"""How many files a query by a clustering column still has to read, by the files' statistics."""

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
class Skipping:
    """A clustering column.

    Attributes:
        share: of the files, which part a look for one value reads, on the average of the files'
            least values; None where no file says its bounds.
        unknown: files that don't, and are read always.
    """

    column: str
    share: float | None
    unknown: int


def skipping_of(snapshot: Snapshot) -> Sequence[Skipping]:
    """Each clustering column in order; none for a table that isn't clustered."""
    try:
        paths = clustered_by(snapshot.schema, snapshot.domains, table=snapshot.table)
    except CorruptTable:
        return []
    if not paths:
        return []
    adds = itertools.islice(snapshot.files.adds(), _FILES_MAX)
    statistics = [FileStatistics.from_json(add.stats) for add in adds]
    return [_of_column(path, _physical(path, snapshot.schema), statistics) for path in paths]


def _physical(path: Sequence[str], schema: Struct) -> Sequence[str]:
    """The path as files have it."""
    found = []
    within: object = schema
    for name in path:
        item = within.find(name) if isinstance(within, Struct) else None
        found.append(name if item is None else item.physical_name)
        within = None if item is None else item.type
    return found


def _of_column(
    path: Sequence[str], physical: Sequence[str], statistics: Sequence[FileStatistics]
) -> Skipping:
    bounds = [(_at(one.min_values, physical), _at(one.max_values, physical)) for one in statistics]
    known = [(low, high) for low, high in bounds if low is not None and high is not None]
    unknown = len(bounds) - len(known)
    name = ".".join(path)
    try:
        lows, highs = sorted(low for low, _ in known), sorted(high for _, high in known)
    except TypeError:
        return Skipping(column=name, share=None, unknown=len(bounds))  # a damaged log's
    if not known:
        return Skipping(column=name, share=None, unknown=unknown)
    read = sum(bisect_right(lows, value) - bisect_left(highs, value) for value in lows)
    share = (read / len(known) + unknown) / len(bounds)
    return Skipping(column=name, share=share, unknown=unknown)


def _at(values: object, path: Sequence[str]) -> float | str | None:
    for name in path:
        if not isinstance(values, dict):
            return None
        values = values.get(name)
    return values if isinstance(values, int | float | str) else None
