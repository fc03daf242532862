"""Bounds and nulls of each file's columns, as Arrow arrays.

Owns reading partition values and statistics for the columns of a predicate, and every allowance for
how statistics are written: cut texts, times cut to milliseconds, NaN that some writers leave out,
decimals that passed through a double, columns that were widened later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TypeAlias, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txlake.log.block import RowStats
from txlake.log.bound_values import bound_array, decode_statistics, decoder_for
from txlake.log.file_columns import Chunks, FileColumns
from txlake.log.partitions import partition_texts
from txlake.log.predicate_nodes import ColumnPath
from txlake.protocol.lazy_stats import Mask
from txlake.protocol.partition_values import (
    has_local_times,
    parse_column,
    possible_instants,
)
from txlake.protocol.types import DataType, Field, Primitive, Struct, to_arrow_type

_TEXTS_AT_ONCE = 4_096
_REMEMBERED_MAX = 8
_RECORDS = attrgetter("numRecords")
_WHOLE_NUMBERS = frozenset({int, type(None)})

_Wanted: TypeAlias = tuple[tuple[str, ...], Field]  # the physical path and the column


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """The bounds of one column in each file; `lower` and `upper` are null where unknown.

    Every value that isn't null lies within the bounds; unless `is_exact` any float may be NaN too.
    Integers are int64 and floats double, whatever the column's own width.
    """

    type: DataType
    lower: pa.Array
    upper: pa.Array
    may_be_null: pa.BooleanArray
    may_have_value: pa.BooleanArray
    is_exact: bool = False

    def filter(self, keep: Mask) -> ColumnBounds:
        """Return the bounds in the files for which `keep` is true."""
        mask = pa.array(keep)
        return replace(
            self,
            lower=self.lower.filter(mask),
            upper=self.upper.filter(mask),
            may_be_null=self.may_be_null.filter(mask),
            may_have_value=self.may_have_value.filter(mask),
        )

    @property
    def arrow_type(self) -> pa.DataType:
        return self.lower.type

    @property
    def is_floating(self) -> bool:
        return bool(pa.types.is_floating(self.lower.type))

    def or_nan(self, verdicts: pa.BooleanArray) -> pa.BooleanArray:
        """Return verdicts of the upper bound with true for an unknown one, and for all if NaN may
        exceed it.
        """
        if self.is_floating and not self.is_exact:
            return _all_true(len(verdicts))
        return verdicts.fill_null(True)


class FileBounds:
    """The bounds of the requested columns, for a list of files."""

    def __init__(self, count: int, columns: Mapping[ColumnPath, ColumnBounds]) -> None:
        self.count = count
        self._columns = columns

    def column(self, path: ColumnPath) -> ColumnBounds | None:
        """Return the bounds of a column, in any letter case; None where they are unknown in all
        files.
        """
        return self._columns.get(_folded(path))

    @classmethod
    def of(
        cls,
        files: FileColumns,
        schema: Struct,
        partition_columns: Collection[str],
        wanted: Collection[ColumnPath],
    ) -> FileBounds:
        """Read partition values and statistics of the wanted columns only.

        Columns that the schema doesn't have, and nested ones that aren't primitive, are left out.
        Raises CorruptTable for a partition value that is no value of its column. Invalid statistics
        count as missing.
        """
        partitions = {name.lower() for name in partition_columns}
        columns: dict[ColumnPath, ColumnBounds] = {}
        from_statistics: list[tuple[ColumnPath, tuple[str, ...], Field]] = []
        for path in wanted:
            fields = _fields_on(path, schema)
            if fields is None:
                continue
            if len(path) == 1 and path[0].lower() in partitions:
                columns[_folded(path)] = _partition_bounds(files, fields[-1])
            elif isinstance(fields[-1].type, Primitive):
                physical = tuple(item.physical_name for item in fields)
                from_statistics.append((path, physical, fields[-1]))
        if from_statistics and files.num_rows:
            found = _from_statistics(
                files.column("stats"), [(physical, item) for _, physical, item in from_statistics]
            )
            for (path, _, _), bounds in zip(from_statistics, found):
                columns[_folded(path)] = bounds
        return cls(files.num_rows, columns)

    @classmethod
    def of_rows(cls, rows: pa.Table, schema: Struct, wanted: Collection[ColumnPath]) -> FileBounds:
        """Treat each row as a file of its own, whose bounds are its values.

        `rows` has the schema's columns by logical name; a missing or nested column, and one that
        isn't primitive, is unknown.
        """
        columns: dict[ColumnPath, ColumnBounds] = {}
        for path in wanted:
            fields = _fields_on(path, schema)
            if fields is None or len(path) > 1 or not isinstance(fields[0].type, Primitive):
                continue
            name = fields[0].name
            if name in rows.column_names:
                arrow_type = to_arrow_type(fields[0].type)
                values = rows.column(name).combine_chunks().cast(arrow_type)
                columns[_folded(path)] = _exact(values, fields[0].type)
        return cls(rows.num_rows, columns)

    @classmethod
    def of_ranges(
        cls,
        ranges: Mapping[str, Sequence[tuple[int, int] | None]],
        count: int,
        schema: Struct,
    ) -> FileBounds:
        """Treat groups of rows as files, by the least and greatest value of columns of whole
        numbers.

        `ranges` has a pair for each of the `count` groups, by the name of an existing column, None
        where the values are unknown.
        """
        unknown = _all_true(count)
        columns: dict[ColumnPath, ColumnBounds] = {}
        for name, bounds in ranges.items():
            item = schema.find(name)
            assert item is not None
            lower, upper = (
                pa.array([None if one is None else one[place] for one in bounds], pa.int64())
                for place in (0, 1)
            )
            columns[_folded((name,))] = ColumnBounds(item.type, lower, upper, unknown, unknown)
        return cls(count, columns)


def _folded(path: ColumnPath) -> ColumnPath:
    return tuple(part.lower() for part in path)


def _all_true(count: int) -> pa.BooleanArray:
    return pa.array(np.ones(count, dtype=bool))


def _fields_on(path: ColumnPath, schema: Struct) -> list[Field] | None:
    """Return the fields from the top down to the column; None where a part of the path doesn't
    exist.
    """
    fields: list[Field] = []
    level: DataType = schema
    for name in path:
        item = level.find(name) if isinstance(level, Struct) else None
        if item is None:
            return None
        fields.append(item)
        level = item.type
    return fields


# --- partition values ---------------------------------------------------------------------------


def _partition_bounds(files: FileColumns, item: Field) -> ColumnBounds:
    """Return the bounds of a partition column, from its values. Raises CorruptTable."""
    texts = partition_texts(files, item.physical_name)
    if has_local_times(texts, item.type):
        return _in_any_zone(texts, item.type)
    return _exact(parse_column(texts, item.type), item.type)


def _in_any_zone(texts: pa.ChunkedArray, kind: DataType) -> ColumnBounds:
    """Return the bounds of timestamps of which some have no zone, so that they may be in
    any zone.
    """
    values = list(map(possible_instants, texts.to_pylist()))
    lower, upper = (
        pa.array([None if one is None else one[end] for one in values], to_arrow_type(kind))
        for end in (0, 1)
    )
    is_null = pc.is_null(lower)
    return ColumnBounds(kind, lower, upper, is_null, pc.invert(is_null))


def _exact(values: pa.Array, kind: DataType) -> ColumnBounds:
    """Return bounds that are the values themselves."""
    values = _wide(values)
    is_null = pc.is_null(values)
    if pa.types.is_floating(values.type):
        # NaN compares with nothing in Arrow: treat it as unknown.
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    return ColumnBounds(kind, values, values, is_null, pc.invert(is_null), is_exact=True)


def _wide(values: pa.Array) -> pa.Array:
    """Return the values as int64 or double if they are integers or floats, else as they are."""
    if pa.types.is_integer(values.type):
        return values.cast(pa.int64())
    if pa.types.is_floating(values.type):
        return values.cast(pa.float64())
    return values


# --- statistics ---------------------------------------------------------------------------------


def _from_statistics(
    column: Chunks | RowStats, wanted: Sequence[_Wanted]
) -> Sequence[ColumnBounds]:
    """Return the bounds of the wanted columns. Those of a whole block are cached in the block."""
    if not isinstance(column, RowStats):
        return _decoded_bounds(column, wanted)
    known = column.block.stats_cache
    names = [repr(each) for each in wanted]
    found = [known.get(name) for name in names]
    if not all(found):
        if not column.covers_most_rows:
            return _decoded_bounds(column, wanted)
        if len(known) + len(wanted) > _REMEMBERED_MAX:
            known.clear()
        found = list(_decoded_bounds(RowStats(column.block, None), wanted))
        known.update(zip(names, found))
    bounds = [item for item in found if isinstance(item, ColumnBounds)]
    return bounds if column.keep is None else [item.filter(column.keep) for item in bounds]


def _decoded_bounds(column: Chunks, wanted: Sequence[_Wanted]) -> Sequence[ColumnBounds]:
    """Return the bounds of the wanted columns, decoded from the statistics' texts."""
    pieces: list[list[ColumnBounds]] = [[] for _ in wanted]
    for texts in _slices(column):
        statistics = _Statistics(texts, [physical for physical, _ in wanted])
        for piece, (physical, item) in zip(pieces, wanted):
            piece.append(statistics.bounds(physical, item))
    return [_joined(piece) for piece in pieces]


def _slices(column: Chunks) -> Iterator[pa.Array]:
    """Yield the texts a few at a time: decoded, they take many times the memory of the bounds."""
    for chunk in column.iterchunks():
        for start in range(0, len(chunk), _TEXTS_AT_ONCE):
            yield chunk.slice(start, _TEXTS_AT_ONCE)


class _Statistics:
    """The statistics of some files, of which only the wanted columns are decoded."""

    def __init__(self, texts: pa.Array, wanted: Sequence[tuple[str, ...]]) -> None:
        names = tuple(sorted({path[0] for path in wanted}))
        self._attributes = {name: f"c{place}" for place, name in enumerate(names)}
        decode = decoder_for(names).decode
        every = cast("list[str]", texts.to_pylist())  # or None: a TypeError
        try:
            self._files = list(map(decode, every))
        except (msgspec.MsgspecError, ArithmeticError, TypeError, RecursionError):
            self._files = [decode_statistics(decode, text) for text in every]

    def bounds(self, path: tuple[str, ...], item: Field) -> ColumnBounds:
        """Return the bounds of one column, given its physical path."""
        kind = item.type
        assert isinstance(kind, Primitive)
        may_be_null, may_have_value = _nulls(
            self._values("nullCount", path), list(map(_RECORDS, self._files))
        )
        return ColumnBounds(
            kind,
            bound_array(self._values("minValues", path), item, upper=False),
            bound_array(self._values("maxValues", path), item, upper=True),
            may_be_null,
            may_have_value,
        )

    def _values(self, statistic: str, path: tuple[str, ...]) -> list[object]:
        """Return one statistic of a column for each file, as JSON has it; None where it is
        missing.
        """
        attribute = self._attributes[path[0]]
        try:
            found = list(map(attrgetter(f"{statistic}.{attribute}"), self._files))
        except AttributeError:  # the whole statistic is null in some file
            found = [getattr(getattr(file, statistic), attribute, None) for file in self._files]
        for part in path[1:]:
            found = [value.get(part) if isinstance(value, dict) else None for value in found]
        return found


def _nulls(
    counts: Sequence[object], records: Sequence[object]
) -> tuple[pa.BooleanArray, pa.BooleanArray]:
    """Return for each file whether the column may be null in a row, and whether it may have a
    value.
    """
    if _WHOLE_NUMBERS.issuperset(map(type, counts)):
        try:
            numbers, rows = pa.array(counts, pa.int64()), pa.array(records, pa.int64())
        except (pa.ArrowException, OverflowError):
            pass
        else:
            values = pc.not_equal(numbers, rows).fill_null(True)
            return pc.not_equal(numbers, 0).fill_null(True), values
    # A count between 0 and the rows may be stale after deletions, and isn't needed.
    known = [count if isinstance(count, int) else None for count in counts]
    may_have_value = [count is None or count != rows for count, rows in zip(known, records)]
    return pa.array([count != 0 for count in known]), pa.array(may_have_value)


def _joined(pieces: Sequence[ColumnBounds]) -> ColumnBounds:
    """Return the bounds of consecutive lists of files as one."""
    if len(pieces) == 1:
        return pieces[0]
    return ColumnBounds(
        pieces[0].type,
        pa.concat_arrays([piece.lower for piece in pieces]),
        pa.concat_arrays([piece.upper for piece in pieces]),
        pa.concat_arrays([piece.may_be_null for piece in pieces]),
        pa.concat_arrays([piece.may_have_value for piece in pieces]),
    )
