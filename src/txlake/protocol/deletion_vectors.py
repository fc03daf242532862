"""Deletion vectors: the bytes of a set of row positions, and the descriptor that points to them.

Owns three layers: Z85 text, the serialised 64-bit Roaring bitmap with its magic number, and the
file that holds several bitmaps. Source: PROTOCOL.md, "Deletion Vector Descriptor Schema",
"Deletion Vector Format", "Deletion Vector File Storage Format"; ZeroMQ RFC 32 for Z85.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from uuid import UUID

from pyroaring import BitMap, BitMap64

from txlake.errors import CorruptTable
from txlake.protocol.actions import DeletionVector
from txlake.protocol.paths import absolute_url, decode_path, normalise_url

PORTABLE_MAGIC = 1681511377
NATIVE_MAGIC = 1681511376  # older: a count and sized 32-bit bitmaps, the index is the high half
FILE_VERSION = 1

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_Z85_VALUE = {character: value for value, character in enumerate(_Z85)}
_UUID_LENGTH = 20  # 16 bytes in Z85
_ROWS_MAX = 2**34
_DELETED_MAX = 2**30
_FRAME = 8  # size before and checksum after each bitmap


def z85_encode(data: bytes) -> str:
    """The bytes as Z85 text, five characters for four bytes; zeros fill the last four up."""
    padded = data + bytes(-len(data) % 4)
    text: list[str] = []
    for (word,) in struct.iter_unpack(">I", padded):
        digits = []
        for _ in range(5):
            word, digit = divmod(word, 85)
            digits.append(_Z85[digit])
        text.extend(reversed(digits))
    return "".join(text)


def z85_decode(text: str) -> bytes:
    """The bytes of Z85 text. Raises ValueError when the text is not Z85.

    Rust writers (the z85 crate) mark a short last group by leading `#`, which no whole group can
    start with: each stands for one missing byte. Otherwise the length is a multiple of four.
    """
    if len(text) % 5:
        raise ValueError(f"Z85 text of {len(text)} characters: expected a multiple of five")
    data = bytearray()
    for start in range(0, len(text), 5):
        group = text[start : start + 5]
        digits = group.lstrip("#") if start + 5 == len(text) else group
        word = 0
        for character in digits:
            value = _Z85_VALUE.get(character)
            if value is None:
                raise ValueError(f"{character!r} is not a Z85 character")
            word = word * 85 + value
        size = len(digits) - 1
        if size < 1 or word >> 8 * size:
            raise ValueError(f"Z85 group {group!r} is beyond {max(size, 0)} bytes")
        data += word.to_bytes(size, "big")
    return bytes(data)


def encode_bitmap(bitmap: BitMap64) -> bytes:
    """The positions in the portable format, magic number first."""
    compact = bitmap.copy()
    compact.run_optimize()
    data: bytes = compact.serialize()
    return struct.pack("<I", PORTABLE_MAGIC) + data


def decode_bitmap(data: bytes, *, file: str) -> BitMap64:
    """The positions of a serialised bitmap, portable or native.

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
    """The portable form has the same bitmaps, each after its high half instead of its size."""
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


def inline(bitmap: BitMap64) -> DeletionVector:
    """A descriptor that holds the positions itself."""
    data = encode_bitmap(bitmap)
    return DeletionVector(
        storage_type="i",
        path_or_inline_dv=z85_encode(data),
        size_in_bytes=len(data),
        cardinality=len(bitmap),
    )


def decode_inline(vector: DeletionVector, *, file: str = "inline deletion vector") -> BitMap64:
    """The positions of an inline descriptor. Raises CorruptTable naming `file`."""
    try:
        data = z85_decode(vector.path_or_inline_dv)
    except ValueError as error:
        raise CorruptTable(f"{file}: {error}") from error
    if not 0 <= len(data) - vector.size_in_bytes < 4:
        raise CorruptTable(f"{file}: expected {vector.size_in_bytes} bytes, found {len(data)}")
    return _counted(decode_bitmap(data[: vector.size_in_bytes], file=file), vector, file)


def vector_file(bitmaps: Sequence[BitMap64]) -> tuple[bytes, list[tuple[int, int]]]:
    """The bytes of a file with these bitmaps, and each one's (offset, size) for its descriptor."""
    parts = [bytes([FILE_VERSION])]
    places: list[tuple[int, int]] = []
    offset = 1
    for bitmap in bitmaps:
        data = encode_bitmap(bitmap)
        parts += [struct.pack(">i", len(data)), data, struct.pack(">I", zlib.crc32(data))]
        places.append((offset, len(data)))
        offset += len(data) + _FRAME
    return b"".join(parts), places


def slice_range(vector: DeletionVector) -> tuple[int, int]:
    """(offset, length) of the bytes of its file that `read_from_file` needs.

    Raises CorruptTable for a descriptor with a negative one.
    """
    offset = vector.offset or 0
    if offset < 0 or vector.size_in_bytes < 0:
        raise CorruptTable(
            f"deletion vector {vector.unique_id!r}: expected an offset and a size of at least 0, "
            f"found {offset} and {vector.size_in_bytes}"
        )
    return offset, framed_length(vector.size_in_bytes)


def framed_length(size: int) -> int:
    """How many bytes of a file a bitmap of that size takes, with size and checksum."""
    return size + _FRAME


def read_from_file(data: bytes, vector: DeletionVector, *, file: str) -> BitMap64:
    """The positions of a vector stored in a file.

    `data` is the file's bytes in `slice_range(vector)`, or the whole file. Raises CorruptTable
    naming `file` when size, checksum, bitmap or cardinality don't fit the descriptor.
    """
    offset, length = slice_range(vector)
    piece = data if len(data) == length else data[offset : offset + length]
    if len(piece) < length:
        raise CorruptTable(
            f"{file}: deletion vector at {offset}: expected {length} bytes, found {len(piece)}"
        )
    size = framed_size(piece, file=f"{file}: deletion vector at {offset}")
    if size != vector.size_in_bytes:
        raise CorruptTable(
            f"{file}: deletion vector at {offset}: the log says {vector.size_in_bytes} bytes, "
            f"the file {size}"
        )
    return _counted(read_framed(piece, file=f"{file}: deletion vector at {offset}"), vector, file)


def framed_size(data: bytes, *, file: str) -> int:
    """The size of the bitmap whose frame these bytes begin. Raises CorruptTable naming `file`."""
    if len(data) < 4:
        raise CorruptTable(f"{file}: expected a size, found {len(data)} bytes")
    (size,) = struct.unpack_from(">i", data)
    return int(size)


def read_framed(data: bytes, *, file: str) -> BitMap64:
    """The positions of a bitmap between its size and its checksum, as it stands in a file.

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


def _counted(bitmap: BitMap64, vector: DeletionVector, file: str) -> BitMap64:
    if len(bitmap) != vector.cardinality:
        raise CorruptTable(
            f"{file}: deletion vector: the log says {vector.cardinality} rows, "
            f"the bitmap holds {len(bitmap)}"
        )
    return bitmap


def relative_file_name(uuid: str) -> str:
    """The name of the file with that id."""
    return f"deletion_vector_{UUID(uuid)}.bin"


def relative_vector(
    uuid: str, prefix: str, offset: int, size: int, cardinality: int
) -> DeletionVector:
    """The descriptor of a vector in the table's folder: `<prefix>/deletion_vector_<uuid>.bin`.

    `offset` and `size` are those of `vector_file`. An empty prefix is the table's root.
    """
    return DeletionVector(
        storage_type="u",
        path_or_inline_dv=f"{prefix}{z85_encode(UUID(uuid).bytes)}",
        size_in_bytes=size,
        cardinality=cardinality,
        offset=offset,
    )


def place_of(vector_id: str) -> DeletionVector:
    """A descriptor with the place that an id (`DeletionVector.unique_id`) names, and no counts."""
    text, separator, digits = vector_id[1:].rpartition("@")
    has_offset = bool(separator) and digits.isascii() and digits.isdigit()
    inline_text = vector_id[:1] == "i" or not has_offset
    return DeletionVector(
        storage_type=vector_id[:1],
        path_or_inline_dv=vector_id[1:] if inline_text else text,
        offset=None if inline_text else int(digits),
        size_in_bytes=0,
        cardinality=0,
    )


def inline_positions(text: str, *, file: str) -> BitMap64:
    """The positions of an inline vector's text alone. Raises CorruptTable naming `file`."""
    try:
        return decode_bitmap(z85_decode(text), file=file)
    except ValueError as error:
        raise CorruptTable(f"{file}: {error}") from error


def vector_path(vector: DeletionVector, table_url: str) -> str:
    """Where the vector's file is: a path relative to the table, decoded, or an encoded URL.

    A file inside the table always gives the relative path. Raises CorruptTable for an id that
    is none, and ValueError for an inline vector, which has no file.
    """
    if vector.storage_type == "u":
        text = vector.path_or_inline_dv
        try:
            name = relative_file_name(str(UUID(bytes=z85_decode(text[-_UUID_LENGTH:]))))
        except ValueError as error:
            raise CorruptTable(
                f"{table_url}: deletion vector {text!r}: expected a prefix and an id of "
                f"{_UUID_LENGTH} characters"
            ) from error
        prefix = text[:-_UUID_LENGTH]
        return f"{prefix}/{name}" if prefix else name
    if vector.storage_type == "p":
        url = absolute_url(table_url, vector.path_or_inline_dv)
        root = f"{normalise_url(table_url).rstrip('/')}/"
        return decode_path(url[len(root) :]) if url.startswith(root) else url
    if vector.storage_type == "i":
        raise ValueError("an inline deletion vector has no file")
    raise CorruptTable(
        f"{table_url}: deletion vector: expected storage type u, p or i, "
        f"found {vector.storage_type!r}"
    )
