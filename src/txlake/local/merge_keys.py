"""The keys of a MERGE whose source the driver holds: which rows of the target may match."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txlake.local.table import LocalTable
from txlake.log.coercion import has_plain_text
from txlake.log.predicates import (
    Always,
    And,
    Comparison,
    In,
    LiteralValue,
    Opaque,
    Operator,
    Or,
    Predicate,
)
from txlake.protocol.partition_values import scalars_of
from txlake.protocol.types import Field, Primitive, Struct
from txlake.sql.statements import (
    Merge,
    SqlText,
)

_INTEGERS = frozenset({"byte", "short", "integer", "long"})


_RANGES_MAX = 64


_NAME = r"(?:`(?:[^`]|``)+`|[^\W\d]\w*)"


_COLUMN = rf"({_NAME}(?:\.{_NAME})?)"


_COMPARISON = re.compile(rf"{_COLUMN} (=|<|<=|>|>=) {_COLUMN}")


_BETWEEN = re.compile(rf"{_COLUMN} BETWEEN {_COLUMN} AND {_COLUMN}")


_FROM_BELOW = frozenset({Operator.GREATER, Operator.GREATER_OR_EQUAL})


_MIRRORED = {
    Operator.LESS: Operator.GREATER,
    Operator.LESS_OR_EQUAL: Operator.GREATER_OR_EQUAL,
    Operator.GREATER: Operator.LESS,
    Operator.GREATER_OR_EQUAL: Operator.LESS_OR_EQUAL,
}


# Compared without a cast if both sides have the same one of these types.
_TIMES = frozenset({"date", "timestamp", "timestamp_ntz"})


@dataclass(frozen=True, slots=True)
class LocalSource:
    """The rows of a source on the driver, and their columns as Delta's.

    Attributes:
        alias: qualifies its columns; None if nothing does.
    """

    rows: pa.Table
    schema: Struct
    alias: str | None


def key_predicate(work: LocalTable, statement: Merge, local_source: LocalSource) -> Predicate:
    """Return a bound predicate that holds for every target row that may match one of the source's
    rows.

    It holds whatever else the ON condition says. Only comparisons of two plain columns count,
    joined by AND, whose types compare without a conversion that could change a value. Always(True)
    if there is no such comparison, or a time is beyond Python's range. Each equality counts by
    itself: if a source column is NULL in all rows, the predicate holds for no row.
    """
    if not isinstance(statement.on, SqlText) or statement.on.references:
        return Always(True)
    source = local_source.schema
    compared = [
        columns
        for part in work.on_parts(statement.on.text)
        for texts in _comparisons(part)
        if (columns := _columns_compared(work, statement, source, local_source.alias, texts))
        is not None
        and _compare_as_they_are(columns.ours, columns.theirs)
    ]
    try:
        parts = [
            _in_values(comparison.ours, _values(local_source, comparison))
            for comparison in compared
            if comparison.operator is Operator.EQUAL
        ]
        ranges = [
            comparison for comparison in compared if comparison.operator is not Operator.EQUAL
        ]
        if ranges:
            parts.append(
                _in_ranges(ranges, [_values(local_source, comparison) for comparison in ranges])
            )
    except (OverflowError, ValueError):  # a time beyond Python's range
        return Always(True)
    return And(tuple(work.bound(part) for part in parts)) if parts else Always(True)


@dataclass(frozen=True, slots=True)
class _Compared:
    """A comparison of the target's column with the source's: `ours operator theirs`."""

    ours: Field
    operator: Operator
    theirs: Field


def _comparisons(part: Predicate) -> Iterator[tuple[str, Operator, str]]:
    """Yield the comparisons of two columns, as texts, that are true wherever the part is true.

    `a BETWEEN b AND c` gives two; anything else than an opaque text gives none.
    """
    text = part.text if isinstance(part, Opaque) else ""
    if match := _COMPARISON.fullmatch(text):
        yield match[1], Operator(match[2]), match[3]
    elif match := _BETWEEN.fullmatch(text):
        yield match[1], Operator.GREATER_OR_EQUAL, match[2]
        yield match[1], Operator.LESS_OR_EQUAL, match[3]


def _columns_compared(
    work: LocalTable,
    statement: Merge,
    source: Struct,
    alias: str | None,
    texts: tuple[str, Operator, str],
) -> _Compared | None:
    """Return a comparison's columns, the target's on the left; None if their sides aren't certain.

    None also if both are of one side. A qualifier is an alias, even if a column has its name: Spark
    tries aliases first.
    """
    target = work.snapshot.schema
    qualifiers = (statement.target_alias or work.name, alias)
    if len({name.lower() for name in qualifiers if name is not None}) < 2:
        return None
    if statement.source_alias is None and source.find(str(alias)) is not None:
        # `alias` was found by its columns alone, and a struct's fields look the same.
        return None
    left, operator, right = texts
    sides = [
        _side(text, (target, source), (qualifiers[0], qualifiers[1])) for text in (left, right)
    ]
    match sides:
        case [(True, ours), (False, theirs)]:
            return _Compared(ours, operator, theirs)
        case [(False, theirs), (True, ours)]:
            return _Compared(ours, _MIRRORED.get(operator, operator), theirs)
    return None


def _side(
    text: str, schemas: tuple[Struct, Struct], qualifiers: tuple[str | None, str | None]
) -> tuple[bool, Field] | None:
    """Return whether a name's column is the target's, whose schema comes first, and the column.

    None where not exactly one column has the name.
    """
    path = [_unquoted(name) for name in re.findall(_NAME, text)]
    return _meant(path[-1], path[0] if len(path) > 1 else None, schemas, qualifiers)


def _meant(
    name: str,
    qualifier: str | None,
    schemas: tuple[Struct, Struct],
    qualifiers: tuple[str | None, str | None],
) -> tuple[bool, Field] | None:
    """Return whether the column that a name means is the target's, and the column.

    None if no column or several have the name. Of both tuples the target's comes first.
    """
    matches = [
        (is_target, item)
        for is_target, schema in ((True, schemas[0]), (False, schemas[1]))
        if (item := schema.find(name)) is not None
        and (qualifier is None or qualifier.lower() == str(qualifiers[not is_target]).lower())
    ]
    return matches[0] if len(matches) == 1 else None


def equal_columns(
    work: LocalTable, statement: Merge, local_source: LocalSource, part: Predicate
) -> tuple[Field, Field] | None:
    """Return the target's and the source's column that a part of the ON condition says are equal.

    None if it says something else, or if it isn't certain which sides the columns belong to. Their
    types may differ.
    """
    comparisons = list(_comparisons(part))
    if len(comparisons) != 1 or comparisons[0][1] is not Operator.EQUAL:
        return None
    compared = _columns_compared(
        work, statement, local_source.schema, local_source.alias, comparisons[0]
    )
    return None if compared is None else (compared.ours, compared.theirs)


def resolve_merge_column(
    work: LocalTable, statement: Merge, local_source: LocalSource, name: str, qualifier: str | None
) -> tuple[bool, Field] | None:
    """Return whether the column of a name in a matched clause is the target's, and the column.

    None if no column or columns of both sides may be meant.
    """
    qualifiers = (statement.target_alias or work.name, local_source.alias)
    schemas = (work.snapshot.schema, local_source.schema)
    return _meant(name, qualifier, schemas, qualifiers)


def _values(local_source: LocalSource, comparison: _Compared) -> pa.ChunkedArray:
    """Return the source column's values in a comparison, times with a zone as
    microseconds in UTC.
    """
    values = local_source.rows.column(comparison.theirs.name)
    has_zone = pa.types.is_timestamp(values.type) and values.type.tz is not None
    return values.cast(pa.timestamp("us", "UTC")) if has_zone else values


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _compare_as_they_are(ours: Field, theirs: Field) -> bool:
    """Return whether Spark compares the columns without a cast: both integers, or of one type that
    is a plain string, a decimal, a date or a timestamp.
    """
    if not isinstance(ours.type, Primitive) or not isinstance(theirs.type, Primitive):
        return False
    if ours.type.name in _INTEGERS and theirs.type.name in _INTEGERS:
        return True
    if ours.type != theirs.type:
        return False
    if ours.type.is_string:
        return has_plain_text(ours) and has_plain_text(theirs)
    return ours.type.name in _TIMES or ours.type.decimal is not None


def _in_values(item: Field, values: pa.ChunkedArray) -> Predicate:
    """Return that the column is one of the values, NULL left out: an IN of up to 64, else 64
    ranges.

    Always(False) for no values. Raises OverflowError or ValueError for a time beyond Python's
    range.
    """
    path = (item.name,)
    distinct = pc.unique(values).drop_null()
    distinct = distinct.take(pc.sort_indices(distinct))
    if not len(distinct):
        return Always(False)
    if len(distinct) <= _RANGES_MAX:
        return In(path, tuple(scalars_of(distinct)))
    ends = np.append(_cuts(distinct), len(distinct) - 1)
    starts = np.append(0, ends[:-1] + 1)
    lowest, highest = distinct.take(pa.array(starts)), distinct.take(pa.array(ends))
    return Or(
        tuple(
            And(
                (
                    Comparison(path, Operator.GREATER_OR_EQUAL, low),
                    Comparison(path, Operator.LESS_OR_EQUAL, high),
                )
            )
            for low, high in zip(scalars_of(lowest), scalars_of(highest), strict=True)
        )
    )


def _in_ranges(compared: Sequence[_Compared], values: Sequence[pa.ChunkedArray]) -> Predicate:
    """Return that the columns are in the ranges of one of the source's rows.

    `values` has each comparison's values, row by row; rows with a NULL are left out. For more than
    64 different rows it is only the range that spans all. Raises as `_in_values`.
    """
    rows = pa.table(list(values), names=[str(place) for place in range(len(values))]).drop_null()
    rows = rows.group_by(rows.column_names).aggregate([])
    if not rows.num_rows:
        return Always(False)
    if rows.num_rows > _RANGES_MAX:
        widest = [
            scalars_of(
                pa.array([(pc.min if comparison.operator in _FROM_BELOW else pc.max)(column)])
            )[0]
            for comparison, column in zip(compared, rows.columns, strict=True)
        ]
        return And(tuple(map(_compared, compared, widest)))
    columns = list(map(scalars_of, rows.columns))
    return Or(
        tuple(
            And(
                tuple(
                    _compared(comparison, value)
                    for comparison, value in zip(compared, row, strict=True)
                )
            )
            for row in zip(*columns, strict=True)
        )
    )


def _compared(comparison: _Compared, value: LiteralValue) -> Predicate:
    return Comparison((comparison.ours.name,), comparison.operator, value)


def _cuts(distinct: pa.Array) -> np.ndarray:
    """Return the 63 ascending indexes after which a new range begins, of sorted, distinct values.

    Numbers and dates are cut at their widest gaps, other values into equal shares.
    """
    if pa.types.is_date32(distinct.type):
        distinct = distinct.cast(pa.int32())
    if not pa.types.is_integer(distinct.type):
        places: np.ndarray = np.arange(1, _RANGES_MAX) * len(distinct) // _RANGES_MAX - 1
        return places
    numbers = distinct.cast(pa.int64()).to_numpy().view(np.uint64)
    gaps = numbers[1:] - numbers[:-1]  # unsigned, so that large differences don't overflow
    return np.sort(np.argpartition(gaps, -(_RANGES_MAX - 1))[-(_RANGES_MAX - 1) :])
