"""Deletion vectors where they stand, in files of a store or in themselves.

Owns the one way in which their bytes are read, by the driver and by Spark's tasks. The bytes are
`protocol.roaring`'s business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from txlake.datafiles.files import store_and_name
from txlake.datafiles.packed_positions import unpack_positions
from txlake.errors import CorruptTable
from txlake.ports import Store

if TYPE_CHECKING:
    from pyroaring import BitMap64


@dataclass(frozen=True)
class StoredVector:
    """Where a deletion vector stands: a frame in the file at an encoded URL.

    With `data`, packed positions, it is itself there, and has no place.
    """

    url: str = ""
    offset: int = 0
    size_in_bytes: int = 0
    cardinality: int = 0
    data: bytes | None = None

    def positions(self, options: Mapping[str, str]) -> np.ndarray:
        """The deleted positions, sorted, unsigned 64-bit. `options` are those of the store.

        Raises CorruptTable naming the vector's file when it is gone or damaged.
        """
        if self.data is not None:
            return unpack_positions(self.data)
        # Imported here: tasks whose vectors travelled need no pyroaring.
        from txlake.protocol.roaring import framed_length, read_at

        store, name = store_and_name(self.url, options)
        data = read_range(store, name, self.offset, framed_length(self.size_in_bytes))
        return as_array(
            read_at(data, self.offset, self.size_in_bytes, self.cardinality, file=self.url)
        )


def read_range(store: Store, path: str, offset: int, length: int) -> bytes:
    """Some of the bytes of a vectors' file. Raises CorruptTable when it is gone."""
    try:
        return store.get_range(path, offset, length)
    except FileNotFoundError as error:
        raise CorruptTable(
            f"{store.url}: deletion vector file {path} is in the log but not in the store; it was "
            "removed by hand, or by VACUUM before this version was read: restore the file, or read "
            "a later version"
        ) from error


def as_array(bitmap: BitMap64) -> np.ndarray:
    """The positions in ascending order, unsigned 64-bit."""
    return np.array(bitmap.to_array(), dtype=np.uint64)
