"""How large a Parquet file becomes when it is decoded, found out before anything is.

A few bytes of run lengths, of a dictionary or of a compressed page can stand for any number of
values. Owns the walk over the headers of a file's pages, which say how many values and bytes each
has: pyarrow sets aside what they say. Source: the Parquet format's `parquet.thrift` (PageHeader),
Thrift's compact protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

# What any file may become, and what for each of its bytes.
_VALUES, _VALUES_A_BYTE = 20_000_000, 64
_BYTES, _BYTES_A_BYTE = 512 * 1024 * 1024, 64
_VALUE_BYTES = 8
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_BY_DICTIONARY = {2, 8}
# Fields of PageHeader, and in it those of each kind of page.
_TYPE, _BYTES_DECODED, _BYTES_STORED = 1, 2, 3
_ABOUT = {_DATA: (5, 2), _DICTIONARY: (7, 2), _DATA_V2: (8, 4)}  # (header, its encoding)
_COUNT = 1
_DEPTH_MAX = 8

Fields = dict[int, object]


def require_bounded(data: bytes, metadata: pq.FileMetaData, columns: Iterable[str]) -> None:
    """Raises ValueError when the columns would become far larger than files of that size do.

    `columns` are beginnings of paths of the file's columns (`add.path`, `protocol.`): those that
    are about to be read. Each byte may become 64 values and 64 bytes, beyond a first 20 million
    values and 512 MiB for any file.
    """
    values, size = 0, 0
    values_max = _VALUES + _VALUES_A_BYTE * len(data)
    size_max = _BYTES + _BYTES_A_BYTE * len(data)
    wanted = tuple(columns)
    paths = metadata.schema
    places = [at for at in range(len(paths)) if paths.column(at).path.startswith(wanted)]
    for group in range(metadata.num_row_groups):
        chunks = metadata.row_group(group)
        for place in places:
            for page_values, page_bytes in _chunk(data, chunks.column(place), size_max):
                values += page_values
                size += page_bytes
                if values > values_max or size > size_max:
                    raise ValueError(
                        f"{len(data)} bytes would become more than {values_max} values or "
                        f"{size_max} bytes"
                    )
    if places and metadata.num_rows > values:
        raise ValueError(f"{metadata.num_rows} rows are said to be in {values} values")


def _chunk(data: bytes, column: pq.ColumnChunkMetaData, size_max: int) -> Iterator[tuple[int, int]]:
    """Of each page of a column, at most how many values and bytes it becomes."""
    start = column.data_page_offset
    dictionary = column.dictionary_page_offset
    if dictionary is not None and 0 < dictionary < start:
        start = dictionary
    end = start + column.total_compressed_size
    if not 0 <= start <= end <= len(data):
        raise ValueError(f"column {column.path_in_schema}: its pages are beyond the file's end")
    is_text = column.physical_type == "BYTE_ARRAY"
    known = _Dictionary(column.compression)
    while start < end:
        header, start = _fields(data, start, 0)
        kind, stored = _number(header, _TYPE), _number(header, _BYTES_STORED)
        decoded = _number(header, _BYTES_DECODED)
        if start + stored > end or (kind in _ABOUT and _ABOUT[kind][0] not in header):
            raise ValueError(f"column {column.path_in_schema}: a page is beyond its end")
        if kind in _ABOUT:
            place, encoding_at = _ABOUT[kind]
            about = header[place]
            assert isinstance(about, dict)
            count, encoding = _number(about, _COUNT), _number(about, encoding_at)
            if kind == _DICTIONARY:
                known = _Dictionary(
                    column.compression, data[start : start + stored], decoded, count
                )
                yield count, decoded
            elif encoding in _BY_DICTIONARY and is_text:
                yield count, decoded + known.at_most(count, size_max)
            else:
                yield count, max(decoded, count * _VALUE_BYTES)
        start += stored


@dataclass(slots=True)
class _Dictionary:
    """A dictionary of texts, looked into only where its whole size isn't bound enough."""

    compression: str
    stored: bytes = b""
    decoded: int = 0
    count: int = 0
    longest: int | None = None

    def at_most(self, values: int, size_max: int) -> int:
        """How many bytes so many values of it are, at most."""
        if values * self.decoded <= size_max // 1024:
            return values * self.decoded
        if self.longest is None:
            self.longest = _longest(self._content(size_max), self.count)
        return values * self.longest

    def _content(self, size_max: int) -> bytes:
        if self.decoded > size_max:
            raise ValueError(f"a dictionary of {self.decoded} bytes")
        if self.compression == "UNCOMPRESSED":
            return self.stored
        name = {"LZ4": "lz4_raw"}.get(self.compression, self.compression.lower())
        content: bytes = pa.Codec(name).decompress(self.stored, self.decoded, asbytes=True)
        return content


def _longest(content: bytes, count: int) -> int:
    longest = start = 0
    for _ in range(count):
        (length,) = struct.unpack_from("<I", content, start)
        longest = max(longest, length)
        start += 4 + length
    return longest


def _number(fields: Fields, place: int) -> int:
    value = fields.get(place, 0)
    if not isinstance(value, int) or value < 0:
        raise ValueError("a page has a negative size or count")
    return value


def _fields(data: bytes, start: int, depth: int) -> tuple[Fields, int]:
    """A struct of Thrift's compact protocol by field number, and where it ends."""
    if depth > _DEPTH_MAX:
        raise ValueError("a page's header is nested too deeply")
    fields: Fields = {}
    place = 0
    try:
        while kind := data[start]:
            start += 1
            if kind >> 4:
                place += kind >> 4
            else:
                place, start = _signed(data, start)
            fields[place], start = _value(data, start, kind & 15, depth)
    except IndexError as error:
        raise ValueError("a page's header ends too early") from error
    return fields, start + 1


def _value(data: bytes, start: int, kind: int, depth: int) -> tuple[object, int]:
    match kind:
        case 1 | 2:
            return kind == 1, start
        case 3:
            return data[start], start + 1
        case 4 | 5 | 6:
            return _signed(data, start)
        case 7:
            return None, start + 8
        case 8:
            length, start = _unsigned(data, start)
            return None, start + length
        case 9 | 10:
            size = data[start] >> 4
            inner, start = data[start] & 15, start + 1
            if size == 15:
                size, start = _unsigned(data, start)
            for _ in range(size):
                _, start = _value(data, start, inner, depth + 1)
            return None, start
        case 12:
            return _fields(data, start, depth + 1)
        case _:
            raise ValueError(f"a page's header has a field of kind {kind}")


def _unsigned(data: bytes, start: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[start]
        value |= (byte & 127) << shift
        start += 1
        if byte < 128:
            return value, start
        shift += 7
        if shift > 63:
            raise ValueError("a page's header has a number without an end")


def _signed(data: bytes, start: int) -> tuple[int, int]:
    value, start = _unsigned(data, start)
    return (value >> 1) ^ -(value & 1), start
