"""The bytes of deletion vectors: Roaring bitmaps of row positions, and the files that hold them.

Owns the serialised 64-bit bitmap with its magic number, and its frame in a file. Spark's tasks read
it too, so it imports no more than pyroaring. Source: PROTOCOL.md, "Deletion Vector Format",
"Deletion Vector File Storage Format".
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from pyroaring import BitMap, BitMap64

from txlake.errors import CorruptTable

PORTABLE_MAGIC = 1681511377
NATIVE_MAGIC = 1681511376  # older: a count and sized 32-bit bitmaps, the index is the high half
FILE_VERSION = 1

_ROWS_MAX = 2**34
_DELETED_MAX = 2**30
_FRAME = 8  # size before and checksum after each bitmap


def encode_bitmap(bitmap: BitMap64) -> bytes:
    """Return the positions in the portable format, magic number first."""
    compact = bitmap.copy()
    compact.run_optimize()
    data: bytes = compact.serialize()
    return struct.pack("<I", PORTABLE_MAGIC) + data


def decode_bitmap(data: bytes, *, file: str) -> BitMap64:
    """Return the positions of a serialised bitmap, portable or native.

    Raises CorruptTable naming `file` when the bytes are no such bitmap, and for positions that no
    data file has, since a few bytes can name any number of them.
    """
    bitmap = _decoded(data, file)
    if len(bitmap) > _DELETED_MAX or (bitmap and bitmap.max() >= _ROWS_MAX):
        raise CorruptTable(
            f"{file}: deletion vector: expected at most {_DELETED_MAX} of a file's first "
            f"{_ROWS_MAX} rows, found {len(bitmap)} rows up to {bitmap.max()}"
        )
    return bitmap


def _decoded(data: bytes, file: str) -> BitMap64:
    """Return the positions by the format that the magic number states.

    Raises CorruptTable naming `file`.
    """
    if len(data) < 4:
        raise CorruptTable(f"{file}: deletion vector: {len(data)} bytes, too few")
    (magic,) = struct.unpack_from("<I", data)
    try:
        if magic == PORTABLE_MAGIC:
            return BitMap64.deserialize(data[4:])
        if magic == NATIVE_MAGIC:
            return _native(data)
    except (ValueError, IndexError, struct.error) as error:
        raise CorruptTable(f"{file}: deletion vector: not a Roaring bitmap: {error}") from error
    raise CorruptTable(
        f"{file}: deletion vector: expected magic number {PORTABLE_MAGIC} or {NATIVE_MAGIC}, "
        f"found {magic}"
    )


def _native(data: bytes) -> BitMap64:
    """Decode the native form: as the portable one, with sizes instead of each bitmap's high half.

    Raises ValueError, IndexError or struct.error for damage.
    """
    (count,) = struct.unpack_from("<i", data, 4)
    parts: list[bytes] = []
    offset = 8
    for high in range(count):
        (size,) = struct.unpack_from("<i", data, offset)
        offset += 4
        if size < 0 or offset + size > len(data):
            raise ValueError(f"bitmap {high} of {count} ends beyond the data")
        content = data[offset : offset + size]
        if len(BitMap.deserialize(content)):
            parts += [struct.pack("<I", high), content]
        offset += size
    return BitMap64.deserialize(struct.pack("<Q", len(parts) // 2) + b"".join(parts))


def vector_file(bitmaps: Sequence[BitMap64]) -> tuple[bytes, list[tuple[int, int]]]:
    """Return a file's bytes with these bitmaps, and each bitmap's (offset, size) for its
    descriptor.
    """
    parts = [bytes([FILE_VERSION])]
    places: list[tuple[int, int]] = []
    offset = 1
    for bitmap in bitmaps:
        data = encode_bitmap(bitmap)
        parts += [struct.pack(">i", len(data)), data, struct.pack(">I", zlib.crc32(data))]
        places.append((offset, len(data)))
        offset += len(data) + _FRAME
    return b"".join(parts), places


def framed_length(size: int) -> int:
    """Return how many bytes of a file a bitmap of that size takes, with its size and checksum."""
    return size + _FRAME


def read_at(data: bytes, offset: int, size: int, cardinality: int, *, file: str) -> BitMap64:
    """Return the positions of a vector stored in a file.

    `data` is the file's `framed_length(size)` bytes from `offset`, or the whole file. Raises
    CorruptTable naming `file` when size, checksum, bitmap or cardinality don't fit.
    """
    length = framed_length(size)
    piece = data if len(data) == length else data[offset : offset + length]
    if len(piece) < length:
        raise CorruptTable(
            f"{file}: deletion vector at {offset}: expected {length} bytes, found {len(piece)}"
        )
    found = framed_size(piece, file=f"{file}: deletion vector at {offset}")
    if found != size:
        raise CorruptTable(
            f"{file}: deletion vector at {offset}: the log says {size} bytes, the file {found}"
        )
    bitmap = read_framed(piece, file=f"{file}: deletion vector at {offset}")
    return require_cardinality(bitmap, cardinality, file)


def framed_size(data: bytes, *, file: str) -> int:
    """Return the size, in bytes, that is stored before a bitmap. Raises CorruptTable naming `file`.

    A damaged one may be negative.
    """
    if len(data) < 4:
        raise CorruptTable(f"{file}: expected a size, found {len(data)} bytes")
    (size,) = struct.unpack_from(">i", data)
    return int(size)


def read_framed(data: bytes, *, file: str) -> BitMap64:
    """Return the positions of a bitmap between its size and its checksum, as files store it.

    Raises CorruptTable naming `file` when the bytes are too few or damaged.
    """
    size = framed_size(data, file=file)
    if size < 0 or len(data) < size + _FRAME:
        raise CorruptTable(f"{file}: expected {size + _FRAME} bytes, found {len(data)}")
    content = data[4 : 4 + size]
    (checksum,) = struct.unpack_from(">I", data, 4 + size)
    if checksum != zlib.crc32(content):
        raise CorruptTable(f"{file}: its checksum does not fit its bytes")
    return decode_bitmap(content, file=file)


def require_cardinality(bitmap: BitMap64, cardinality: int, file: str) -> BitMap64:
    """Return the bitmap. Raises CorruptTable when it doesn't have `cardinality` positions."""
    if len(bitmap) != cardinality:
        raise CorruptTable(
            f"{file}: deletion vector: the log says {cardinality} rows, "
            f"the bitmap holds {len(bitmap)}"
        )
    return bitmap
