"""The decoded size of a Parquet file, determined before it is decoded.

A few bytes of run lengths, of a dictionary or of a compressed page can stand for any number of
values. Owns the walk over the headers of a file's pages, which state each page's values and bytes:
pyarrow allocates what they state. Source: the Parquet format's `parquet.thrift` (PageHeader).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from txlake.protocol.row_groups import rows_of
from txlake.protocol.thrift_compact import Fields, read_fields, read_unsigned

# The limits for any file, and in addition for each of its bytes.
_VALUES, _VALUES_A_BYTE = 20_000_000, 64
_BYTES, _BYTES_A_BYTE = 512 * 1024 * 1024, 64
_VALUE_BYTES = 8
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_BY_DICTIONARY = {2, 8}
# Field numbers of PageHeader, and of the header of each kind of page inside.
_TYPE, _BYTES_DECODED, _BYTES_STORED = 1, 2, 3
_ABOUT = {_DATA: (5, 2), _DICTIONARY: (7, 2), _DATA_V2: (8, 4)}  # (header, its encoding)
_COUNT = 1
_LEVELS_V2, _IS_COMPRESSED_V2 = (5, 6), 7


def require_bounded(
    data: bytes,
    metadata: pq.FileMetaData,
    columns: Iterable[str],
    groups: Sequence[int] | None = None,
) -> None:
    """Raise ValueError when the columns of these row groups (all when None) would become far larger
    than files of that size do.

    `columns` are prefixes of paths of the columns to be read (`add.path`, `protocol.`).
    """
    groups = range(metadata.num_row_groups) if groups is None else groups
    budget = Budget(data, metadata, columns)
    for group in groups:
        budget.spend(group)
    budget.require_rows(rows_of(metadata, groups))


class Budget:
    """The limit of a file's decoded size, for readers of single row groups.

    Each byte may become 64 values and 64 bytes, beyond a first 20 million values and 512 MiB for
    any file. `columns` are as in `require_bounded`.
    """

    def __init__(self, data: bytes, metadata: pq.FileMetaData, columns: Iterable[str]) -> None:
        self._data = data
        self._metadata = metadata
        wanted, self._schema = tuple(columns), metadata.schema
        names = [self._schema.column(at).path for at in range(len(self._schema))]
        self._places = [at for at, name in enumerate(names) if name.startswith(wanted)]
        self._values_max = _VALUES + _VALUES_A_BYTE * len(data)
        self._bytes_max = _BYTES + _BYTES_A_BYTE * len(data)
        self._values = self._bytes = 0

    def spend(self, group: int) -> None:
        """Count a row group before it is decoded. Raises ValueError when the limit is exceeded."""
        chunks = self._metadata.row_group(group)
        for place in self._places:
            schema = self._schema.column(place)
            column = _Column(self._data, chunks.column(place), schema, self._bytes_max)
            for values, size in column.pages():
                self._values += values
                self._bytes += size
                if self._values > self._values_max or self._bytes > self._bytes_max:
                    raise ValueError(
                        f"{len(self._data)} bytes would become more than {self._values_max} "
                        f"values or {self._bytes_max} bytes"
                    )

    def require_rows(self, rows: int) -> None:
        """Raise ValueError when the counted groups, which have so many rows, have fewer values."""
        if self._places and rows > self._values:
            raise ValueError(f"{rows} rows are said to be in {self._values} values")


class _Column:
    """The pages of one column in one row group."""

    def __init__(
        self,
        data: bytes,
        chunk: pq.ColumnChunkMetaData,
        schema: pq.ColumnSchema,
        size_max: int,
    ) -> None:
        self._data = data
        self._chunk = chunk
        self._levels = (schema.max_repetition_level > 0) + (schema.max_definition_level > 0)
        self._size_max = size_max
        self._is_text = chunk.physical_type == "BYTE_ARRAY"
        self._dictionary = (b"", 0, 0)  # the stored bytes, the decoded size, the number of texts
        self._longest: int | None = None

    def pages(self) -> Iterator[tuple[int, int]]:
        """Yield for each page the greatest possible number of decoded values and bytes.

        Raises ValueError for damaged headers.
        """
        start, dictionary = self._chunk.data_page_offset, self._chunk.dictionary_page_offset
        if dictionary is not None and dictionary > 0 and (dictionary < start or not start):
            start = dictionary  # an empty column has no other page
        end = start + self._chunk.total_compressed_size
        if not 0 <= start <= end <= len(self._data):
            raise self._error("its pages are beyond the file's end")
        while start < end:
            header, start = read_fields(self._data, start)
            stored = self._data[start : start + _number(header, _BYTES_STORED)]
            start += _number(header, _BYTES_STORED)
            if start > end:
                raise self._error("a page is beyond its end")
            kind, decoded = _number(header, _TYPE), _number(header, _BYTES_DECODED)
            if kind in _ABOUT:
                place, encoding_at = _ABOUT[kind]
                about = header.get(place)
                if not isinstance(about, dict):
                    raise self._error("a page's header isn't whole")
                yield self._page(kind, about, _number(about, encoding_at), stored, decoded)

    def _page(
        self, kind: int, about: Fields, encoding: int, stored: bytes, decoded: int
    ) -> tuple[int, int]:
        """Return the greatest number of values and bytes of a page; a dictionary is kept for the
        pages after it.
        """
        count = _number(about, _COUNT)
        if kind == _DICTIONARY:
            self._dictionary, self._longest = (stored, decoded, count), None
        elif encoding in _BY_DICTIONARY and self._is_text:
            return count, decoded + self._of_dictionary(kind, about, count, stored, decoded)
        return count, max(decoded, count * _VALUE_BYTES)

    def _of_dictionary(
        self, kind: int, about: Fields, count: int, stored: bytes, decoded: int
    ) -> int:
        """Return an upper bound of a page's text bytes: exact only where the rough bound is too
        large.
        """
        rough = count * self._dictionary[1]
        if rough <= self._size_max // 1024:
            return rough
        if self._longest is None:
            content, size, texts = self._dictionary
            self._longest = _longest(self._decompressed(content, size), texts)
        if count * self._longest <= self._size_max // 1024:
            return count * self._longest
        return self._present(kind, about, stored, decoded) * self._longest

    def _present(self, kind: int, about: Fields, stored: bytes, decoded: int) -> int:
        """Return how many values of a page aren't null: in a column like `metaData` all but one are
        null.
        """
        if kind == _DATA_V2:
            levels = _number(about, _LEVELS_V2[0]) + _number(about, _LEVELS_V2[1])
            content, start = stored[levels:], 0
            if about.get(_IS_COMPRESSED_V2, True):
                content = self._decompressed(content, decoded - levels)
        else:
            content, start = self._decompressed(stored, decoded), 0
            for _ in range(self._levels):
                (length,) = struct.unpack_from("<I", content, start)
                start += 4 + length
        return _indices(content, start)

    def _decompressed(self, content: bytes, size: int) -> bytes:
        """Return a page's content.

        Raises ValueError if `size`, the decoded size, is beyond the file's limit.
        """
        if not 0 <= size <= self._size_max:
            raise self._error(f"a page of {size} bytes")
        if self._chunk.compression == "UNCOMPRESSED" or not size:
            return content
        name = {"LZ4": "lz4_raw"}.get(self._chunk.compression, self._chunk.compression.lower())
        result: bytes = pa.Codec(name).decompress(content, size, asbytes=True)
        return result

    def _error(self, problem: str) -> ValueError:
        return ValueError(f"column {self._chunk.path_in_schema}: {problem}")


def _indices(content: bytes, start: int) -> int:
    """Return how many dictionary indices the runs hold that follow the byte of the index width."""
    if start >= len(content):
        return 0
    width, start, count = content[start], start + 1, 0
    while start < len(content):
        run, start = read_unsigned(content, start)
        if run & 1:
            count += (run >> 1) * 8
            start += (run >> 1) * width
        else:
            count += run >> 1
            start += (width + 7) // 8
    return count


def _longest(content: bytes, count: int) -> int:
    """Return the length in bytes of the longest of a dictionary's `count` texts; 0 without any."""
    longest = start = 0
    for _ in range(count):
        (length,) = struct.unpack_from("<I", content, start)
        longest = max(longest, length)
        start += 4 + length
    return longest


def _number(fields: Fields, place: int) -> int:
    """Return a field's number, 0 without the field.

    Raises ValueError for a negative or another value.
    """
    value = fields.get(place, 0)
    if not isinstance(value, int) or value < 0:
        raise ValueError("a page has a negative size or count")
    return value
