"""Descriptors of deletion vectors: the place of the positions, or the positions as text.

Owns the descriptor's forms and Z85 text; the bytes of positions are `roaring`'s. Source:
PROTOCOL.md, "Deletion Vector Descriptor Schema"; ZeroMQ RFC 32 for Z85.
"""

from __future__ import annotations

import struct
from uuid import UUID

from pyroaring import BitMap64

from txlake.errors import CorruptTable, UnsupportedFeature
from txlake.protocol.actions import DeletionVector
from txlake.protocol.paths import absolute_url, decode_path, normalise_url
from txlake.protocol.roaring import (
    decode_bitmap,
    encode_bitmap,
    framed_length,
    read_at,
    require_cardinality,
)

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_Z85_VALUE = {character: value for value, character in enumerate(_Z85)}
_UUID_LENGTH = 20  # 16 bytes in Z85


def z85_encode(data: bytes) -> str:
    """Return the bytes as Z85 text, five characters for four bytes; the last four are
    zero-padded.
    """
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
    """Return the bytes of Z85 text. Raises ValueError when the text is not Z85.

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


def inline(bitmap: BitMap64) -> DeletionVector:
    """Return a descriptor that holds the positions itself."""
    data = encode_bitmap(bitmap)
    return DeletionVector(
        storage_type="i",
        path_or_inline_dv=z85_encode(data),
        size_in_bytes=len(data),
        cardinality=len(bitmap),
    )


def decode_inline(vector: DeletionVector, *, file: str = "inline deletion vector") -> BitMap64:
    """Return the positions of an inline descriptor. Raises CorruptTable naming `file`."""
    try:
        data = z85_decode(vector.path_or_inline_dv)
    except ValueError as error:
        raise CorruptTable(f"{file}: {error}") from error
    if not 0 <= len(data) - vector.size_in_bytes < 4:
        raise CorruptTable(f"{file}: expected {vector.size_in_bytes} bytes, found {len(data)}")
    return require_cardinality(
        decode_bitmap(data[: vector.size_in_bytes], file=file), vector.cardinality, file
    )


def slice_range(vector: DeletionVector) -> tuple[int, int]:
    """Return (offset, length) of the bytes of the vector's file that `read_from_file` needs.

    Raises CorruptTable for a negative offset or size.
    """
    offset = vector.offset or 0
    if offset < 0 or vector.size_in_bytes < 0:
        raise CorruptTable(
            f"deletion vector {vector.unique_id!r}: expected an offset and a size of at least 0, "
            f"found {offset} and {vector.size_in_bytes}"
        )
    return offset, framed_length(vector.size_in_bytes)


def read_from_file(data: bytes, vector: DeletionVector, *, file: str) -> BitMap64:
    """Return the positions of a vector stored in a file.

    `data` is the file's bytes in `slice_range(vector)`, or the whole file. Raises CorruptTable
    naming `file` when size, checksum, bitmap or cardinality don't fit the descriptor.
    """
    offset, _ = slice_range(vector)
    return read_at(data, offset, vector.size_in_bytes, vector.cardinality, file=file)


def relative_file_name(uuid: str) -> str:
    """Return the name of the vector file with this id, a UUID's text.

    Raises ValueError for any other text.
    """
    return f"deletion_vector_{UUID(uuid)}.bin"


def relative_vector(
    uuid: str, prefix: str, offset: int, size: int, cardinality: int
) -> DeletionVector:
    """Return the descriptor of a vector below the table: `<prefix>/deletion_vector_<uuid>.bin`.

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
    """Return a descriptor of the place that an id (`DeletionVector.unique_id`) names; its size and
    cardinality are 0.
    """
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
    """Return the positions of an inline vector's Z85 text. Raises CorruptTable naming `file`."""
    try:
        return decode_bitmap(z85_decode(text), file=file)
    except ValueError as error:
        raise CorruptTable(f"{file}: {error}") from error


def vector_path(vector: DeletionVector, table_url: str) -> str:
    """Return the path of the vector's file: relative to the table, decoded, or an encoded URL.

    A file inside the table always gives the relative path. Raises CorruptTable for an invalid id,
    UnsupportedFeature for an unknown storage type, and ValueError for an inline vector, which has
    no file.
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
    raise UnsupportedFeature(
        f"{table_url}: deletion vector of storage type {vector.storage_type!r}: this release of "
        "txlake reads u, p and i (PROTOCOL.md, Deletion Vectors); use a newer one, or remove the "
        "vector by the engine that wrote it (REORG TABLE ... APPLY (PURGE))"
    )
