"""File skipping: which files can hold rows for which a predicate is true.

Owns the three-valued evaluation of a predicate over whole files: whether some row *may* make it
true, false, or unknown. Partition values are exact; statistics are bounds. A file with unknown
values is kept. The same evaluation serves scan planning, conflict checks, and deletes by metadata.
Source: PROTOCOL.md, "Per-file Statistics", "Partition Value Serialization".
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from txlake.log.bounds import ColumnBounds, FileBounds
from txlake.log.file_columns import FileColumns
from txlake.log.partitions import partition_groups
from txlake.log.predicate_nodes import (
    Always,
    And,
    ColumnPath,
    Comparison,
    In,
    IsNull,
    LiteralValue,
    Not,
    Opaque,
    Operator,
    Or,
    Predicate,
    StartsWith,
)
from txlake.log.predicates import columns_of, conjuncts
from txlake.log.range_lists import range_list
from txlake.protocol.times import FarTime, is_zoned, micros_of
from txlake.protocol.types import DataType, Primitive, Struct, to_arrow_type

# Longer lists are checked by their least and greatest value.
LIST_VALUES_MAX = 64


def may_match(
    predicate: Predicate, files: FileColumns, schema: Struct, partition_columns: Collection[str]
) -> pa.BooleanArray:
    """Return for each file whether it may hold a row for which the predicate is true; never null.

    `files` has the columns of FILES_SCHEMA, `schema` and `partition_columns` logical names. The
    predicate should be bound to the schema; an unbound part keeps its files. Raises CorruptTable
    for a partition value that is no value of its column.
    """
    parts = conjuncts(predicate)
    first = tuple(part for part in parts if is_partition_only(part, partition_columns))
    if not first:
        return _evaluate(predicate, files, schema, partition_columns).true
    # Partition values are cheap, so statistics are read only of the files that they keep.
    left = _in_partitions(And(first), files, schema, partition_columns)
    if len(first) == len(parts):
        return left
    others = And(tuple(part for part in parts if part not in first))
    verdict = _evaluate(others, files.filter(left), schema, partition_columns)
    return pc.replace_with_mask(left, left, verdict.true)


def _in_partitions(
    predicate: Predicate, files: FileColumns, schema: Struct, partition_columns: Collection[str]
) -> pa.BooleanArray:
    """Evaluate `may_match` on partition columns alone: files with equal values are
    evaluated once.
    """
    fields = (schema.find(column[0]) for column in columns_of(predicate))
    names = sorted({item.physical_name for item in fields if item is not None})
    groups = partition_groups(files, names) if names and files.num_rows else None
    if groups is None:
        return _evaluate(predicate, files, schema, partition_columns).true
    verdict = _evaluate(predicate, groups.values, schema, partition_columns)
    return verdict.true.take(groups.of_files)


def must_match(
    predicate: Predicate, files: FileColumns, schema: Struct, partition_columns: Collection[str]
) -> pa.BooleanArray:
    """Return for each file whether the predicate is certainly true for every row; never null.

    Arguments and errors as those of `may_match`.
    """
    verdict = _evaluate(predicate, files, schema, partition_columns)
    return pc.invert(pc.or_(verdict.false, verdict.null))


def rows_may_match(predicate: Predicate, rows: pa.Table, schema: Struct) -> pa.BooleanArray:
    """Return for each row whether the predicate may be true; never null.

    `rows` has the columns that the predicate names, by logical name. Exact except for conditions
    that aren't modelled (`Opaque`, fields of structs, NaN), which may be true for any row.
    """
    bounds = FileBounds.of_rows(rows, schema, columns_of(predicate))
    return _Evaluation(bounds).of(predicate).true


def rows_must_match(predicate: Predicate, rows: pa.Table, schema: Struct) -> pa.BooleanArray:
    """Return for each row whether the predicate is certainly true; never null.

    `rows` as in `rows_may_match`; a condition that isn't modelled is certain for no row.
    """
    verdict = _Evaluation(FileBounds.of_rows(rows, schema, columns_of(predicate))).of(predicate)
    return pc.and_not(verdict.true, pc.or_(verdict.false, verdict.null))


def ranges_may_match(
    predicate: Predicate,
    ranges: Mapping[str, Sequence[tuple[int, int] | None]],
    count: int,
    schema: Struct,
) -> Sequence[bool]:
    """Return for each of `count` groups of rows whether it may hold a row that the predicate
    matches.

    `ranges` has the least and the greatest value of columns of whole numbers, by logical name, None
    where they aren't known; any value may be null.
    """
    bounds = FileBounds.of_ranges(ranges, count, schema)
    verdicts: list[bool] = _Evaluation(bounds).of(predicate).true.to_pylist()
    return verdicts


def is_partition_only(predicate: Predicate, partition_columns: Collection[str]) -> bool:
    """Return whether partition values alone decide the predicate: no opaque part, no other
    column.
    """
    partitions = {name.lower() for name in partition_columns}
    names_only_those = all(
        len(column) == 1 and column[0].lower() in partitions for column in columns_of(predicate)
    )
    return names_only_those and not has_opaque(predicate)


def has_opaque(predicate: Predicate) -> bool:
    """Return whether some part of the predicate isn't modelled."""
    match predicate:
        case And(parts) | Or(parts):
            return any(has_opaque(part) for part in parts)
        case Not(part):
            return has_opaque(part)
        case _:
            return isinstance(predicate, Opaque)


@dataclass(frozen=True, slots=True)
class _Verdict:
    """For each file whether some row may make the predicate true, false, unknown."""

    true: pa.BooleanArray
    false: pa.BooleanArray
    null: pa.BooleanArray


def _evaluate(
    predicate: Predicate, files: FileColumns, schema: Struct, partition_columns: Collection[str]
) -> _Verdict:
    """Return the verdict on each file, by partition values and statistics. Raises CorruptTable."""
    wanted = columns_of(predicate)
    return _Evaluation(FileBounds.of(files, schema, partition_columns, wanted)).of(predicate)


class _Evaluation:
    """Evaluates predicates over the bounds of one list of files."""

    def __init__(self, bounds: FileBounds) -> None:
        self._bounds = bounds
        self._yes = pa.repeat(pa.scalar(True), bounds.count)
        self._no = pc.invert(self._yes)
        self._anything = _Verdict(self._yes, self._yes, self._yes)

    def of(self, predicate: Predicate) -> _Verdict:
        """Return the verdict on a predicate for each file."""
        match predicate:
            case And(parts):
                return self._all([self.of(part) for part in parts])
            case Or(parts):
                return self._in_ranges(parts) or self._any([self.of(part) for part in parts])
            case Not(part):
                inner = self.of(part)
                return _Verdict(inner.false, inner.true, inner.null)
            case Always(value):
                return _Verdict(*(self._flag(value is item) for item in (True, False, None)))
            case Opaque():
                return self._anything
            case IsNull(column):
                return self._is_null(column)
            case Comparison(column, operator, value):
                return self._comparison(column, Operator(operator), value)
            case In(column, values):
                return self._membership(column, values)
            case StartsWith(column, prefix):
                return self._prefix(column, prefix)

    def _flag(self, value: bool) -> pa.BooleanArray:
        return self._yes if value else self._no

    def _all(self, parts: Sequence[_Verdict]) -> _Verdict:
        """Return the verdict on a conjunction; true without parts."""
        if not parts:
            return self.of(Always(True))
        return _Verdict(
            reduce(pc.and_, [part.true for part in parts]),
            reduce(pc.or_, [part.false for part in parts]),
            # One is null, and none is false.
            pc.and_(
                reduce(pc.or_, [part.null for part in parts]),
                reduce(pc.and_, [pc.or_(part.true, part.null) for part in parts]),
            ),
        )

    def _any(self, parts: Sequence[_Verdict]) -> _Verdict:
        """Return the verdict on a disjunction; false without parts."""
        if not parts:
            return self.of(Always(False))
        return _Verdict(
            reduce(pc.or_, [part.true for part in parts]),
            reduce(pc.and_, [part.false for part in parts]),
            # One is null, and none is true.
            pc.and_(
                reduce(pc.or_, [part.null for part in parts]),
                reduce(pc.and_, [pc.or_(part.false, part.null) for part in parts]),
            ),
        )

    def _in_ranges(self, parts: Sequence[Predicate]) -> _Verdict | None:
        """Return the verdict on a disjunction of ranges of one column, the one of `_any`; None for
        another disjunction.
        """
        ranges = range_list(parts)
        bounds = None if ranges is None else self._bounds.column(ranges.column)
        within = None if ranges is None or bounds is None else ranges.within(bounds)
        if bounds is None or within is None:
            return None
        true, false = (pc.and_(pa.array(mask), bounds.may_have_value) for mask in within)
        return _Verdict(true, false, bounds.may_be_null)

    def _is_null(self, column: ColumnPath) -> _Verdict:
        """Return the verdict on a null test, which is never unknown."""
        bounds = self._bounds.column(column)
        if bounds is None:
            return _Verdict(self._yes, self._yes, self._no)
        return _Verdict(bounds.may_be_null, bounds.may_have_value, self._no)

    def _comparison(self, column: ColumnPath, operator: Operator, value: LiteralValue) -> _Verdict:
        """Return the verdict on a comparison; anything for a column or value that can't be
        compared.
        """
        if value is None:
            return self.of(IsNull(column) if operator is Operator.SAME else Always(None))
        bounds = self._bounds.column(column)
        scalar = None if bounds is None else _scalar(value, bounds.type)
        if bounds is None or scalar is None:
            return self._anything
        holds, fails = _compared(bounds, operator, scalar)
        true = pc.and_(holds, bounds.may_have_value)
        false = pc.and_(fails, bounds.may_have_value)
        if operator is Operator.SAME:
            return _Verdict(true, pc.or_(false, bounds.may_be_null), self._no)
        return _Verdict(true, false, bounds.may_be_null)

    def _membership(self, column: ColumnPath, values: Sequence[LiteralValue]) -> _Verdict:
        """Return the verdict on IN; of many values only the least and the greatest count."""
        if len(values) <= LIST_VALUES_MAX:
            return self._any([self._comparison(column, Operator.EQUAL, item) for item in values])
        bounds = self._bounds.column(column)
        if bounds is None or bounds.is_floating:
            return self._anything
        scalars = [_scalar(item, bounds.type) for item in values]
        if any(item is None for item in scalars):
            return self._anything
        extremes = pc.min_max(pa.array(scalars, bounds.arrow_type))
        above, _ = _compared(bounds, Operator.GREATER_OR_EQUAL, extremes["min"])
        below, _ = _compared(bounds, Operator.LESS_OR_EQUAL, extremes["max"])
        true = pc.and_(pc.and_(above, below), bounds.may_have_value)
        return _Verdict(true, bounds.may_have_value, bounds.may_be_null)

    def _prefix(self, column: ColumnPath, prefix: str) -> _Verdict:
        """Return the verdict on whether a text column starts with the prefix."""
        bounds = self._bounds.column(column)
        if bounds is None or not pa.types.is_string(bounds.arrow_type):
            return self._anything
        start = pc.utf8_slice_codeunits(bounds.lower, 0, len(prefix))
        holds = pc.and_(
            _some(pc.less_equal(start, prefix)),
            _some(pc.greater_equal(bounds.upper, prefix)),
        )
        both = pc.and_(
            pc.starts_with(bounds.lower, pattern=prefix),
            pc.starts_with(bounds.upper, pattern=prefix),
        )
        true = pc.and_(holds, bounds.may_have_value)
        false = pc.and_(pc.invert(both.fill_null(False)), bounds.may_have_value)
        return _Verdict(true, false, bounds.may_be_null)


def _compared(
    bounds: ColumnBounds, operator: Operator, value: pa.Scalar
) -> tuple[pa.BooleanArray, pa.BooleanArray]:
    """Return whether some value may satisfy the comparison, and whether some value may not."""
    lower, upper = bounds.lower, bounds.upper
    match operator:
        case Operator.LESS:
            return _some(pc.less(lower, value)), bounds.or_nan(pc.greater_equal(upper, value))
        case Operator.LESS_OR_EQUAL:
            return _some(pc.less_equal(lower, value)), bounds.or_nan(pc.greater(upper, value))
        case Operator.GREATER:
            return bounds.or_nan(pc.greater(upper, value)), _some(pc.less_equal(lower, value))
        case Operator.GREATER_OR_EQUAL:
            return bounds.or_nan(pc.greater_equal(upper, value)), _some(pc.less(lower, value))
        case Operator.EQUAL | Operator.SAME | Operator.NOT_EQUAL:
            only = pc.equal(lower, value)
            if lower is upper:
                within = _some(only)  # the values themselves
            else:
                within = pc.and_(
                    _some(pc.less_equal(lower, value)), _some(pc.greater_equal(upper, value))
                )
                only = pc.and_(only, pc.equal(upper, value))
            other = bounds.or_nan(pc.invert(only))
            return (other, within) if operator is Operator.NOT_EQUAL else (within, other)


def _some(verdicts: pa.BooleanArray) -> pa.BooleanArray:
    """Return a bound's verdicts, true where the bound is unknown."""
    return verdicts.fill_null(True)


def _scalar(value: LiteralValue, kind: DataType) -> pa.Scalar | None:
    """Return the literal as a scalar of exactly the column's type; None when it has another type,
    or is NaN.
    """
    if not isinstance(kind, Primitive):
        return None
    name = kind.name
    fits = False
    match value:
        case bool():
            fits = name == "boolean"
        case int():
            fits = name in ("byte", "short", "integer", "long") and -(2**63) <= value < 2**63
            if fits:
                return pa.scalar(value, pa.int64())
        case float():
            # NaN is the greatest value to Spark and none to Arrow.
            if name in ("float", "double") and not math.isnan(value):
                return pa.scalar(value, pa.float64())
        case Decimal():
            return _decimal_scalar(value, kind)
        case str():
            fits = kind.is_string
        case bytes():
            fits = name == "binary"
        case datetime() | FarTime():
            fits = name == ("timestamp" if is_zoned(value) else "timestamp_ntz")
            if fits:
                return pa.scalar(micros_of(value), to_arrow_type(kind))
        case date():
            fits = name == "date"
    return pa.scalar(value) if fits else None


def _decimal_scalar(value: Decimal, kind: Primitive) -> pa.Scalar | None:
    """Return the decimal in the column's type; None if that isn't decimal, or can't hold it."""
    if kind.decimal is None:
        return None
    try:
        return pa.scalar(value, pa.decimal128(*kind.decimal))
    except pa.ArrowInvalid:
        return None
