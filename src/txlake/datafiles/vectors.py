"""Reading and writing the deletion vectors of a table on the driver.

Owns where their bytes are; `protocol.deletion_vectors` encodes and decodes them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyroaring import BitMap64

from txlake.datafiles.packed_positions import unpack_positions
from txlake.datafiles.stored_vectors import read_range
from txlake.ports import Store, System
from txlake.protocol import deletion_vectors as codec
from txlake.protocol import roaring
from txlake.protocol.actions import DeletionVector
from txlake.protocol.paths import decode_path, is_absolute
from txlake.protocol.reach import Reach
from txlake.storage import open_store

_SIZE_BYTES = 4
_READERS = 8
_RECENT_VECTORS_MAX = 256
_RECENT_POSITIONS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class ExternalVectors:
    """Access to vectors outside of their table's folder, as shallow clones have them.

    Attributes:
        reach: where they may lie.
        store_at: opens the store of a folder, given as an encoded URL.
    """

    reach: Reach
    store_at: Callable[[str], Store]

    @classmethod
    def by_options(cls, reach: Reach, options: Mapping[str, str]) -> ExternalVectors:
        """Return the access with the options of the table's store."""
        return cls(reach, lambda folder: open_store(folder, options))


def load_vector(
    store: Store, vector: DeletionVector, external: ExternalVectors | None = None
) -> BitMap64:
    """Return the deleted positions of a descriptor.

    Raises CorruptTable naming the vector's file if it is missing or damaged, and InvalidRequest for
    a vector in a place that isn't allowed: without `external`, anywhere outside of the table's
    folder.
    """
    if vector.storage_type == "i":
        return codec.decode_inline(vector)
    store, path = _locate(store, vector, external)
    data = read_range(store, path, *codec.slice_range(vector))
    return codec.read_from_file(data, vector, file=path)


def load_vectors(
    store: Store,
    files: Iterable[tuple[int, DeletionVector]],
    external: ExternalVectors | None = None,
) -> dict[int, BitMap64]:
    """Return the deleted positions of `files`, (ordinal, vector) pairs, by ordinal.

    Reads up to 8 in parallel. Raises as `load_vector`.
    """
    vectors = list(files)
    if len(vectors) < 2:
        return {ordinal: load_vector(store, vector, external) for ordinal, vector in vectors}
    with ThreadPoolExecutor(_READERS) as pool:
        bitmaps = pool.map(lambda item: load_vector(store, item[1], external), vectors)
        return dict(zip((ordinal for ordinal, _ in vectors), bitmaps, strict=True))


def _locate(
    store: Store, vector: DeletionVector, external: ExternalVectors | None
) -> tuple[Store, str]:
    """Return the store that has a vector's file, and the file's path in it, decoded.

    Raises as `Reach.vector`: InvalidRequest for a place that isn't allowed, CorruptTable.
    """
    reach = Reach(store.url) if external is None else external.reach
    path = reach.vector(vector)
    if external is None or not is_absolute(path):
        return store, path
    folder, _, name = path.rpartition("/")
    return external.store_at(folder), decode_path(name)


def bitmap_of_report(data: bytes) -> BitMap64:
    """Return the positions that a task reported, packed by `pack_positions`."""
    return BitMap64(array("Q", unpack_positions(data).tobytes()))


def write_vectors(
    store: Store, system: System, bitmaps: Sequence[BitMap64]
) -> list[DeletionVector]:
    """Write the bitmaps to one new file of the table; return their descriptors, in order.

    Writes nothing for no bitmaps.
    """
    if not bitmaps:
        return []
    name = system.new_id()
    data, places = roaring.vector_file(bitmaps)
    store.put(codec.relative_file_name(name), data)
    return [
        codec.relative_vector(name, "", offset, size, len(bitmap))
        for (offset, size), bitmap in zip(places, bitmaps, strict=True)
    ]


class RecentVectors:
    """Up to 256 deletion vectors of one table, each of up to 10,000 positions. Threads may share
    it.

    A vector's id names its bytes: a file of vectors is written once. Nobody changes the bitmaps.
    """

    def __init__(self) -> None:
        self._known: dict[str, BitMap64] = {}

    def get(self, vector_id: str) -> BitMap64 | None:
        """Return the positions of the vector with this unique id; None if it isn't kept."""
        return self._known.get(vector_id)

    def add(self, vector_id: str, positions: BitMap64) -> None:
        """Keep a vector's positions, in place of the oldest one."""
        if len(positions) <= _RECENT_POSITIONS_MAX:
            kept = list(self._known.items())[1 - _RECENT_VECTORS_MAX :]
            self._known = dict([*kept, (vector_id, positions)])


class VectorCache:
    """A table's deletion vectors, each read once; not at all if it is among the `recent` ones."""

    def __init__(
        self,
        store: Store,
        external: ExternalVectors | None = None,
        recent: RecentVectors | None = None,
    ) -> None:
        self._store = store
        self._external = external
        self._recent = recent or RecentVectors()
        self._known: dict[str, BitMap64] = {}

    def of(self, vector: DeletionVector) -> BitMap64:
        """Return the deleted positions of a descriptor. Raises as `load_vector`."""
        key = vector.unique_id
        known = self._known.get(key)
        if known is None:
            known = self._recent.get(key)
            if known is None:
                known = load_vector(self._store, vector, self._external)
                self._recent.add(key, known)
            self._known[key] = known
        return known

    def of_id(self, vector_id: str) -> BitMap64:
        """Return the deleted positions of the vector with this unique id, whose size is unknown.

        Raises as `load_vector`.
        """
        if vector_id not in self._known:
            self._known[vector_id] = self._unsized(codec.place_of(vector_id))
        return self._known[vector_id]

    def _unsized(self, descriptor: DeletionVector) -> BitMap64:
        """Read a deletion vector whose descriptor has no reliable size, as the file says it.

        Raises as `load_vector`.
        """
        if descriptor.storage_type == "i":
            return codec.inline_positions(
                descriptor.path_or_inline_dv, file="inline deletion vector"
            )
        store, path = _locate(self._store, descriptor, self._external)
        offset = descriptor.offset or 0
        size = roaring.framed_size(read_range(store, path, offset, _SIZE_BYTES), file=path)
        frame = read_range(store, path, offset, roaring.framed_length(size))
        return roaring.read_framed(frame, file=f"{path}: deletion vector at {offset}")
