"""Deletion vectors between the table's files and the driver.

Owns where their bytes are read and written; the bytes themselves are `protocol.deletion_vectors`'
business.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyroaring import BitMap64

from txlake.errors import CorruptTable
from txlake.ports import Store, System
from txlake.protocol import deletion_vectors as codec
from txlake.protocol.actions import DeletionVector
from txlake.protocol.reach import Reach

_SIZE_BYTES = 4


def load_vector(store: Store, vector: DeletionVector) -> BitMap64:
    """The deleted positions that one descriptor names.

    Raises CorruptTable naming the vector's file when it is gone or damaged, and InvalidRequest
    for one that lies outside of the table's folder.
    """
    if vector.storage_type == "i":
        return codec.decode_inline(vector)
    path = Reach(store.url).vector(vector)
    offset, length = codec.slice_range(vector)
    return codec.read_from_file(_range(store, path, offset, length), vector, file=path)


def _range(store: Store, path: str, offset: int, length: int) -> bytes:
    try:
        return store.get_range(path, offset, length)
    except FileNotFoundError as error:
        raise CorruptTable(f"{store.url}: deletion vector file {path} is missing") from error


def write_vectors(
    store: Store, system: System, bitmaps: Sequence[BitMap64]
) -> list[DeletionVector]:
    """Writes the bitmaps to one new file of the table; a descriptor each, in order."""
    if not bitmaps:
        return []
    name = system.new_id()
    data, places = codec.vector_file(bitmaps)
    store.put(codec.relative_file_name(name), data)
    return [
        codec.relative_vector(name, "", offset, size, len(bitmap))
        for (offset, size), bitmap in zip(places, bitmaps, strict=True)
    ]


class StoredVectors:
    """A table's vectors, each read once: what the rules of conflict ask for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, BitMap64] = {}

    def of(self, vector: DeletionVector) -> BitMap64:
        """The deleted positions that a descriptor names."""
        key = vector.unique_id
        if key not in self._known:
            self._known[key] = load_vector(self._store, vector)
        return self._known[key]

    def of_id(self, vector_id: str) -> BitMap64:
        """The deleted positions of the vector with that id, whose size nobody tells."""
        if vector_id not in self._known:
            self._known[vector_id] = self._found(codec.place_of(vector_id))
        return self._known[vector_id]

    def _found(self, place: DeletionVector) -> BitMap64:
        if place.storage_type == "i":
            return codec.inline_positions(place.path_or_inline_dv, file="inline deletion vector")
        path, offset = Reach(self._store.url).vector(place), place.offset or 0
        size = codec.framed_size(_range(self._store, path, offset, _SIZE_BYTES), file=path)
        frame = _range(self._store, path, offset, codec.framed_length(size))
        return codec.read_framed(frame, file=f"{path}: deletion vector at {offset}")
