"""Deletion vectors on their way between the table's files, the driver and Spark.

Owns loading the vectors of a scan, and positions on their way to and from Spark's tasks.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from pyroaring import BitMap64

from txlake.errors import CorruptTable
from txlake.ports import Store
from txlake.protocol import deletion_vectors as codec
from txlake.protocol.actions import Add, DeletionVector
from txlake.protocol.paths import is_absolute
from txlake.protocol.reach import Reach
from txlake.spark.executor import unpack_positions
from txlake.spark.executor_files import read_range
from txlake.transaction import vectors as stored

_READERS = 8


def load_vectors(
    store: Store,
    reach: Reach,
    files: Iterable[tuple[int, DeletionVector]],
    options: Mapping[str, str],
) -> dict[int, BitMap64]:
    """The deleted positions of each file (ordinal, vector), read in parallel.

    `options` are the storage's, for vectors of other tables, as shallow clones have them.

    Raises CorruptTable naming the vector's file when it is gone or damaged, and what
    `Reach.vector` raises for a place that isn't allowed.
    """
    wanted = list(files)
    if len(wanted) < 2:
        return {ordinal: load_vector(store, reach, vector, options) for ordinal, vector in wanted}
    with ThreadPoolExecutor(_READERS) as pool:
        bitmaps = pool.map(lambda item: load_vector(store, reach, item[1], options), wanted)
        return dict(zip((ordinal for ordinal, _ in wanted), bitmaps, strict=True))


def load_vector(
    store: Store, reach: Reach, vector: DeletionVector, options: Mapping[str, str]
) -> BitMap64:
    """The deleted positions that one descriptor names, also where the table's store doesn't reach.

    Raises CorruptTable naming the vector's file when it is gone or damaged, and what
    `Reach.vector` raises for a place that isn't allowed.
    """
    path = "" if vector.storage_type == "i" else reach.vector(vector)
    if not is_absolute(path):
        return stored.load_vector(store, vector)
    try:
        data = read_range(path, *codec.slice_range(vector), options)
    except FileNotFoundError as error:
        raise CorruptTable(f"{store.url}: deletion vector file {path} is missing") from error
    return codec.read_from_file(data, vector, file=path)


def as_array(bitmap: BitMap64) -> np.ndarray:
    """The positions in ascending order, unsigned 64-bit."""
    return np.array(bitmap.to_array(), dtype=np.uint64)


def from_report(data: bytes) -> BitMap64:
    """The positions that a task reported."""
    return BitMap64(array("Q", unpack_positions(data).tobytes()))


def union_with_deleted(
    store: Store,
    reach: Reach,
    files: Mapping[int, Add],
    deleted: Mapping[int, BitMap64],
    options: Mapping[str, str],
) -> dict[int, BitMap64]:
    """For each file with new deletions, all its deleted positions, old and new."""
    old = load_vectors(
        store,
        reach,
        (
            (ordinal, vector)
            for ordinal, add in files.items()
            if ordinal in deleted and (vector := add.deletion_vector) is not None
        ),
        options,
    )
    return {
        ordinal: bitmap | old[ordinal] if ordinal in old else bitmap
        for ordinal, bitmap in deleted.items()
    }
