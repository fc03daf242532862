"""Which files are rewritten by themselves: small ones (`delta.autoOptimize.autoCompact`), and those
with many deleted rows.

The number and the sizes are Delta Spark's. Unlike there, a file that is larger than all smaller
ones together stays as it is, so that a table that grows by single rows doesn't write its rows anew
each time: a row is rewritten as often as its file doubles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from txlake.log.cubes import packed
from txlake.log.file_columns import FileColumns
from txlake.log.files import adds_of, live_row_count
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add
from txlake.protocol.clustering import cube_of

# How many versions pass from one look at a table's files to the next. The writer of such a version
# looks, so that of several writers one packs.
_VERSIONS_BETWEEN = 10
_Values = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingLimits:
    """When small files are packed, and how many at once.

    Attributes:
        files_min: how many small files of one partition are enough.
        file_bytes_max: the size of the packed files, in bytes; a small file has less than half.
        bytes_max: how many bytes of files are packed at once.
        files_max: how many files are packed at once.
        deleted_share_min: from which share of deleted rows on a purge rewrites a file.
    """

    files_min: int = 50
    file_bytes_max: int = 128 * 1024 * 1024
    bytes_max: int = 64 * 1024 * 1024
    files_max: int = 1_000
    deleted_share_min: float = 0.0

    def is_small(self, size_bytes: int) -> bool:
        """Return whether a file of this size is small."""
        return size_bytes < self.file_bytes_max // 2


def is_packing_due(table: Snapshot, added_count: int, limits: PackingLimits) -> bool:
    """Return whether the commit that made this version, and added so many files, is to be followed
    by packing.

    The files are only looked at in one of ten versions, and after a commit of many files.
    """
    is_looked_at = added_count >= limits.files_min or table.version % _VERSIONS_BETWEEN == 0
    if not is_looked_at or len(table.files) < limits.files_min:
        return False
    return any(True for _ in small_files(table, limits))


def small_files(table: Snapshot, limits: PackingLimits) -> Iterator[tuple[Add, ...]]:
    """Yield the files of one partition that become one file, in ascending order of size.

    Files in cubes of a clustered table stay as they are.
    """

    def is_small(files: FileColumns) -> pa.BooleanArray:
        """Return which files are small."""
        found = pc.less(files.column("size"), limits.file_bytes_max // 2)
        return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found

    partitions: dict[_Values, list[Add]] = {}
    for add in adds_of(table.files.where(is_small)):
        if cube_of(add) is None:
            values = tuple(sorted((name, v or None) for name, v in add.partition_values.items()))
            partitions.setdefault(values, []).append(add)
    left, files_left = limits.bytes_max, limits.files_max
    for files in partitions.values():
        if len(files) < limits.files_min:
            continue
        for group in packed(_worth_rewriting(files), limits.file_bytes_max):
            taken = _within(group, left)[:files_left]
            left -= sum(add.size for add in taken)
            files_left -= len(taken)
            if len(taken) > 1:
                yield taken


def deleted_share(add: Add) -> float:
    """Return the share of a file's rows that are deleted; 1.0 for a vector where rows aren't
    counted.
    """
    if add.deletion_vector is None:
        return 0.0
    live = live_row_count(add)
    if live is None:
        return 1.0
    deleted = add.deletion_vector.cardinality
    return deleted / max(1, live + deleted)


def files_to_purge(files: Iterable[Add], limits: PackingLimits) -> tuple[Add, ...]:
    """Return the files whose deleted rows a purge drops, those with the largest share first."""
    found = [add for add in files if add.deletion_vector is not None]
    due = [add for add in found if deleted_share(add) >= limits.deleted_share_min]
    due.sort(key=deleted_share, reverse=True)
    within = _within(tuple(due), limits.bytes_max) or tuple(due[:1])
    return within[: limits.files_max]


def _worth_rewriting(files: list[Add]) -> list[Add]:
    """Return the files in ascending order of size, up to the last that isn't larger than all
    before it together.
    """
    ordered = sorted(files, key=lambda add: add.size)
    total, end = 0, 0
    for place, add in enumerate(ordered, 1):
        if add.size <= total:
            end = place
        total += add.size
    return ordered[:end]


def _within(files: tuple[Add, ...], bytes_max: int) -> tuple[Add, ...]:
    """Return the first of the files that have at most so many bytes together."""
    total = 0
    for place, add in enumerate(files):
        total += add.size
        if total > bytes_max:
            return files[:place]
    return files
