"""The partition values of many files: the texts of a column, and files grouped by equal values.

Work on partitions costs what their number costs, not that of the files. The meaning of a text is
`protocol.partition_values`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from txlake.log.block import BlockRows
from txlake.log.file_columns import FileColumns
from txlake.log.time_zones import TimeZone
from txlake.protocol.file_rows import string_maps
from txlake.protocol.partition_values import has_local_times, local_time
from txlake.protocol.times import time_text
from txlake.protocol.types import Field, Primitive

_FILES_A_GROUP_MIN = 4
_TIMESTAMP = Primitive("timestamp")


def partition_texts(files: FileColumns, name: str) -> pa.ChunkedArray:
    """Return the texts of a partition column, by its physical name; null where a file has none."""
    chunks = [_texts(maps, name) for maps in files.column("partition_values").iterchunks()]
    return pa.chunked_array(chunks, pa.string())


def _texts(maps: pa.MapArray, name: str) -> pa.Array:
    """Return the value of a key in each map; by position, where that is the same in all maps."""
    rows = len(maps)
    if rows and not maps.null_count:
        offsets = maps.offsets.to_numpy()
        width, rest = divmod(int(offsets[-1] - offsets[0]), rows)
        if width and not rest and (np.diff(offsets) == width).all():
            first, count = int(offsets[0]), rows * width
            keys, items = maps.keys.slice(first, count), maps.items.slice(first, count)
            for place in range(width):
                at = pa.array(np.arange(place, count, width)) if width > 1 else None
                found = pc.equal(keys if at is None else keys.take(at), name)
                if pc.all(found).as_py():
                    return items if at is None else items.take(at)
                if pc.any(found).as_py():
                    break
    return pc.map_lookup(maps, pa.scalar(name), "first")


def local_columns(files: FileColumns, columns: Sequence[Field]) -> tuple[str, ...]:
    """Return the physical names of the TIMESTAMP columns in which some value has no time zone."""
    return tuple(
        item.physical_name
        for item in columns
        if item.type == _TIMESTAMP
        and has_local_times(partition_texts(files, item.physical_name), item.type)
    )


def in_zone(files: pa.Table, columns: Sequence[str], zone: TimeZone) -> pa.Table:
    """Return the files with zoneless timestamps of these columns (physical names) converted to UTC.

    They are read in `zone`, as Delta Spark reads them in its session's; a time whose instant the
    zone doesn't know stays as it is. Source: PROTOCOL.md, "Partition Value Serialization".
    """
    maps = [dict(one) for one in files["partition_values"].to_pylist()]
    texts = {values.get(name) for values in maps for name in columns}
    walls = {text: wall for text in texts if (wall := local_time(text, _TIMESTAMP)) is not None}
    instants = dict(zip(walls, zone.instants(list(walls.values())), strict=True))
    for values in maps:
        for name in columns:
            instant = instants.get(values.get(name))
            if instant is not None:
                values[name] = time_text(instant, zoned=True)
    place = files.schema.get_field_index("partition_values")
    return files.set_column(place, files.schema.field(place), string_maps(maps))


@dataclass(frozen=True, slots=True, eq=False)
class PartitionGroups:
    """Files grouped by their partition values.

    Attributes:
        values: the distinct partition values, as the column `partition_values` of a table.
        of_files: the row of `values` for each file.
    """

    values: pa.Table
    of_files: pa.Array


def partition_groups(files: FileColumns, names: Sequence[str]) -> PartitionGroups | None:
    """Return the files grouped by their values of these columns (physical names).

    None when grouping saves little: more than one group for every four files. The groups of a
    block's files are made once.
    """
    if not isinstance(files, BlockRows):
        return _grouped(files, names)
    groups = files.of_block(f"groups by {list(names)!r}", lambda rows: _grouped(rows, names))
    if groups is None or files.keep is None:
        return groups
    return replace(groups, of_files=groups.of_files.filter(pa.array(files.keep)))


def _grouped(files: FileColumns, names: Sequence[str]) -> PartitionGroups | None:
    """Return the files grouped as `partition_groups` does."""
    most = files.num_rows // _FILES_A_GROUP_MIN
    combined = np.zeros(files.num_rows, np.int64)
    texts: list[list[str | None]] = []
    for name in names:
        encoded = pc.dictionary_encode(partition_texts(files, name))
        column = encoded.unify_dictionaries().combine_chunks()
        if len(column.dictionary) > most:
            return None
        values = [*column.dictionary.to_pylist(), None]
        indices = column.indices.fill_null(len(values) - 1).to_numpy()
        codes = combined * len(values) + indices
        # Renumbered from 0, so that the next column can't make them overflow.
        distinct, combined = _numbered(codes, (len(texts[0]) if texts else 1) * len(values))
        if len(distinct) > most:
            return None
        earlier, last = np.divmod(distinct, len(values))
        texts = [[known[place] for place in earlier.tolist()] for known in texts]
        texts.append([values[place] for place in last.tolist()])
    maps = string_maps([dict(zip(names, row)) for row in zip(*texts)])
    return PartitionGroups(pa.table({"partition_values": maps}), pa.array(combined, pa.int32()))


def _numbered(
    codes: npt.NDArray[np.int64], end: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the distinct codes (below `end`), and each code's index among them."""
    if end > len(codes):
        distinct, places = np.unique(codes, return_inverse=True)
        return distinct, places
    is_there = np.zeros(end, np.bool_)
    is_there[codes] = True
    return np.flatnonzero(is_there), (np.cumsum(is_there) - 1)[codes]
