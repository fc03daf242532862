"""Deletion vectors as Spark's tasks and the driver address them: inline, or in files of a store.

Owns how their bytes are fetched; `protocol.roaring` decodes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from txlake.datafiles.files import store_and_name
from txlake.datafiles.packed_positions import pack_positions, unpack_positions
from txlake.errors import CorruptTable
from txlake.ports import Store

if TYPE_CHECKING:
    from pyroaring import BitMap64


@dataclass(frozen=True)
class StoredVector:
    """A deletion vector, addressed or packed.

    Attributes:
        url: the encoded URL of the file that holds it.
        offset: the offset of its frame in that file.
        size_in_bytes: the size of the frame's content.
        cardinality: how many positions it has.
        data: the packed positions themselves; the other attributes are unused then.
    """

    url: str = ""
    offset: int = 0
    size_in_bytes: int = 0
    cardinality: int = 0
    data: bytes | None = None

    @classmethod
    def packed(cls, bitmap: BitMap64) -> StoredVector:
        """Return a vector that has its positions with it."""
        return cls(data=pack_positions(as_array(bitmap).astype(np.int64)))

    def positions(self, options: Mapping[str, str]) -> np.ndarray:
        """Return the deleted positions, sorted, unsigned 64-bit. `options` are those of the store.

        Reads the file at each call, unless the positions are packed. Raises CorruptTable naming the
        vector's file if it is missing or damaged.
        """
        if self.data is not None:
            return unpack_positions(self.data)
        # Imported here: tasks with packed positions need no pyroaring.
        from txlake.protocol.roaring import framed_length, read_at

        store, name = store_and_name(self.url, options)
        data = read_range(store, name, self.offset, framed_length(self.size_in_bytes))
        return as_array(
            read_at(data, self.offset, self.size_in_bytes, self.cardinality, file=self.url)
        )


def read_range(store: Store, path: str, offset: int, length: int) -> bytes:
    """Return bytes of a deletion vector file. Raises CorruptTable if the file is missing.

    `path` is relative to the store and not encoded.
    """
    try:
        return store.get_range(path, offset, length)
    except FileNotFoundError as error:
        raise CorruptTable(
            f"{store.url}: deletion vector file {path} is in the log but not in the store; it was "
            "removed by hand, or by VACUUM before this version was read: restore the file, or read "
            "a later version"
        ) from error


def as_array(bitmap: BitMap64) -> np.ndarray:
    """Return the positions in ascending order, unsigned 64-bit."""
    return np.array(bitmap.to_array(), dtype=np.uint64)
