"""Correction of Parquet footers, so that no reader skips rows of floating-point columns by mistake.

Owns three faults of footers:

Arrow leaves NaN out of a column chunk's bounds, though readers take NaN for the greatest number,
and parquet-java makes NaN a bound, which the format forbids: a chunk with NaN gets no bounds.

parquet-java skips a chunk whose pages are all dictionary-encoded by the dictionary, in which 0.0
and -0.0 are two values: a chunk that may hold a zero doesn't say that all its pages are
dictionary-encoded.

pyarrow takes equal bounds for the value of every row, so that `isin([0.0])` finds none between the
bounds of zeros, -0.0 and 0.0: a chunk of zeros gets no bounds.

Source: the Parquet format's `parquet.thrift` (ColumnMetaData), PARQUET-1222, PARQUET-1246;
parquet-java, `DictionaryFilter`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from txlake.protocol.thrift_compact import (
    Part,
    read_list,
    read_parts,
    write_list,
    write_parts,
)

Chunk = tuple[int, int]
"""A column chunk of a file: the number of its row group, and of its leaf column."""

MAGIC = b"PAR1"
_FRAME_BYTES = 8  # after a footer: its length and the magic number
_FLOATS = frozenset({"FLOAT", "DOUBLE"})
_BY_DICTIONARY = frozenset({"PLAIN_DICTIONARY", "RLE_DICTIONARY"})
# Thrift fields of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData.
_ROW_GROUPS, _COLUMNS, _META_DATA = 4, 1, 3
_ENCODINGS, _STATISTICS, _ENCODING_STATS = 2, 12, 13
_PLAIN = b"\x00"  # the encoding, a number with a sign
# Thrift fields of Statistics, except the counts of nulls and of distinct values.
_BOUNDS = frozenset({1, 2, 5, 6, 7, 8})


def chunks_with_zero(footer: pq.FileMetaData) -> set[Chunk]:
    """Return the dictionary-encoded floating-point chunks that may hold a zero; unknown
    bounds may.
    """
    return {
        place
        for place, chunk in _fractions(footer)
        if not _BY_DICTIONARY.isdisjoint(chunk.encodings) and _may_hold_zero(chunk.statistics)
    }


def _chunks_of_zeros(footer: pq.FileMetaData) -> set[Chunk]:
    """Return the floating-point chunks whose values are all zeros, of either sign, by
    their bounds.
    """
    return {
        place
        for place, chunk in _fractions(footer)
        if (bounds := chunk.statistics) is not None
        and bounds.has_min_max
        and bounds.min == 0.0 == bounds.max
    }


def _chunks_bounded_by_nan(footer: pq.FileMetaData) -> set[Chunk]:
    """Return the floating-point chunks of which a bound is NaN."""
    return {
        place
        for place, chunk in _fractions(footer)
        if (bounds := chunk.statistics) is not None
        and bounds.has_min_max
        and (math.isnan(bounds.min) or math.isnan(bounds.max))
    }


def _fractions(footer: pq.FileMetaData) -> Iterator[tuple[Chunk, pq.ColumnChunkMetaData]]:
    """Yield the chunks of float and double columns by row group and leaf, with their metadata."""
    for group in range(footer.num_row_groups):
        chunks = footer.row_group(group)
        for column in range(footer.num_columns):
            chunk = chunks.column(column)
            if chunk.physical_type in _FLOATS:
                yield (group, column), chunk


def _may_hold_zero(bounds: pq.Statistics | None) -> bool:
    # Comparisons with NaN are false, so a NaN bound excludes nothing.
    return bounds is None or not bounds.has_min_max or not (bounds.min > 0.0 or bounds.max < 0.0)


def leaves_with_nan(column: pa.Array, first: int) -> Iterator[int]:
    """Yield the indexes of a column's Parquet leaves that hold a NaN.

    `first` is the index of the column's first leaf.
    """
    data_type = column.type
    if pa.types.is_floating(data_type):
        if pc.any(pc.is_nan(column)).as_py():
            yield first
    elif pa.types.is_struct(data_type):
        for index in range(data_type.num_fields):
            yield from leaves_with_nan(column.field(index), first)
            first += leaf_count(data_type.field(index).type)
    elif pa.types.is_map(data_type):
        yield from leaves_with_nan(column.keys, first)
        yield from leaves_with_nan(column.items, first + leaf_count(data_type.key_type))
    elif pa.types.is_list(data_type):
        yield from leaves_with_nan(column.flatten(), first)


def leaf_count(data_type: pa.DataType) -> int:
    """Return how many Parquet leaf columns an Arrow type has."""
    if not pa.types.is_nested(data_type):
        return 1
    return sum(leaf_count(data_type.field(at).type) for at in range(data_type.num_fields))


def needs_change(footer: pq.FileMetaData, with_nan: Collection[Chunk] = ()) -> bool:
    """Return whether `change_footer` would change the file, whose chunks `with_nan` hold a NaN."""
    return bool(
        with_nan
        or chunks_with_zero(footer)
        or _chunks_of_zeros(footer)
        or _chunks_bounded_by_nan(footer)
    )


def change_footer(file: BinaryIO, with_nan: Collection[Chunk] = ()) -> tuple[pq.FileMetaData, int]:
    """Correct the footer of a Parquet file in place, which is open for reading and writing.

    Returns the footer for statistics, and the file's size in bytes. That footer has all bounds that
    are right, the ones of zeros too, which the file's own footer lacks. Everything else in the file
    stays, unknown fields included. `with_nan`: the chunks that hold a NaN. Raises ValueError, or
    what Arrow raises, for a file that isn't Parquet.
    """
    file.seek(-_FRAME_BYTES, os.SEEK_END)
    length = int.from_bytes(file.read(4), "little")
    start = file.seek(-_FRAME_BYTES - length, os.SEEK_END)
    before = file.read(length)
    footer = _read(before)
    zeros, of_zeros = chunks_with_zero(footer), _chunks_of_zeros(footer)
    nans = _chunks_bounded_by_nan(footer).union(with_nan)
    parts, _ = read_parts(before)
    after = write_parts(_in_groups(parts, nans | of_zeros, zeros))
    file.seek(start)
    file.truncate()
    file.write(after + len(after).to_bytes(4, "little") + MAGIC)
    if of_zeros:
        after = write_parts(_in_groups(parts, nans, zeros))
    return _read(after), file.tell()


def _read(footer: bytes) -> pq.FileMetaData:
    """Return the metadata of a footer, given as its Thrift bytes alone."""
    framed = (MAGIC, footer, len(footer).to_bytes(4, "little"), MAGIC)
    return pq.read_metadata(pa.BufferReader(b"".join(framed)))


def _in_groups(
    parts: Collection[Part], unbounded: Collection[Chunk], with_zero: Collection[Chunk]
) -> Iterator[Part]:
    """Yield the fields of a FileMetaData, without the bounds of the chunks `unbounded`, and with no
    claim to dictionaries alone for the chunks `with_zero`.
    """
    for part in parts:
        if part.number != _ROW_GROUPS:
            yield part
            continue
        kind, groups = read_list(part.data)
        for number in {group for group, _ in (*unbounded, *with_zero)}:
            bare = {column for group, column in unbounded if group == number}
            zeros = {column for group, column in with_zero if group == number}
            inner, _ = read_parts(groups[number])
            groups[number] = write_parts(_in_columns(inner, bare, zeros))
        yield replace(part, data=write_list(kind, groups))


def _in_columns(
    parts: Collection[Part], unbounded: Collection[int], with_zero: Collection[int]
) -> Iterator[Part]:
    """Yield the fields of a RowGroup changed as in `_in_groups`; chunks are given by
    their column.
    """
    for part in parts:
        if part.number != _COLUMNS:
            yield part
            continue
        kind, columns = read_list(part.data)
        for number in {*unbounded, *with_zero}:
            inner, _ = read_parts(columns[number])
            columns[number] = write_parts(
                _in_column(inner, has_bounds=number not in unbounded, has_zero=number in with_zero)
            )
        yield replace(part, data=write_list(kind, columns))


def _in_column(parts: Collection[Part], *, has_bounds: bool, has_zero: bool) -> Iterator[Part]:
    """Yield the fields of a ColumnChunk with its metadata changed by `_in_meta_data`."""
    for part in parts:
        if part.number != _META_DATA:
            yield part
            continue
        inner, _ = read_parts(part.data)
        yield replace(
            part, data=write_parts(_in_meta_data(inner, has_bounds=has_bounds, has_zero=has_zero))
        )


def _in_meta_data(parts: Collection[Part], *, has_bounds: bool, has_zero: bool) -> Iterator[Part]:
    """Yield the fields of a ColumnMetaData.

    Without `has_bounds` the statistics keep only their counts. With `has_zero` PLAIN is added to
    the encodings, and the counts of pages by encoding are left out.
    """
    for part in parts:
        if part.number == _STATISTICS and not has_bounds:
            inner, _ = read_parts(part.data)
            retained = [field for field in inner if field.number not in _BOUNDS]
            yield replace(part, data=write_parts(retained))
        elif part.number == _ENCODINGS and has_zero:
            # PLAIN among the encodings says that some pages may not be dictionary-encoded.
            kind, encodings = read_list(part.data)
            yield replace(part, data=write_list(kind, [*dict.fromkeys([*encodings, _PLAIN])]))
        elif part.number != _ENCODING_STATS or not has_zero:
            yield part
