"""The source of a MERGE, collected to the driver where it is small.

Owns when a source is local, and what its keys imply for the target's files. A local source has the
same rows wherever it is used, even if its query isn't deterministic; it is broadcast; and its rows
have numbers by which a job reports those that matched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

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
    columns_of,
    parse_or_opaque,
)
from txlake.protocol.partition_values import scalars_of
from txlake.protocol.types import Array, DataType, Field, Map, Primitive, Struct
from txlake.spark.reading import estimated_bytes
from txlake.spark.rows import CURRENT_DEFAULT
from txlake.spark.table_access import TableAccess
from txlake.spark.types import all_nullable, delta_schema, quote
from txlake.spark.writing import SOURCE_ROW
from txlake.sql.statements import (
    BySourceDelete,
    Default,
    MatchedDelete,
    Merge,
    NotMatchedInsert,
    SqlText,
    Star,
    condition_text,
)

SOURCE_BYTES_MAX = 32 * 1024 * 1024
_TEXT_BYTES = 20
_NESTED_BYTES = 100
_INTEGERS = frozenset({"byte", "short", "integer", "long"})
# Types that make the round trip through Arrow unchanged.
_EXACT_TYPES = _INTEGERS | {
    *("boolean", "float", "double", "string", "binary", "date", "timestamp", "timestamp_ntz")
}
_RANGES_MAX = 64
_CLOCK = re.compile(
    r"(?i)\b(current_(timestamp|date|time)|now|localtimestamp|curdate|getdate|unix_timestamp)\b"
)
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
    """The rows of a source on the driver. `alias`: qualifies its columns; None for none."""

    rows: pa.Table
    schema: T.StructType
    alias: str | None

    def frame(self, spark: SparkSession, *, without: BitMap64 | None = None) -> DataFrame:
        """Return the rows except `without` as a Spark frame, with their numbers in SOURCE_ROW."""
        numbers = np.arange(self.rows.num_rows, dtype=np.int64)
        rows = self.rows.append_column(SOURCE_ROW, pa.array(numbers))
        if without is not None:
            is_kept = np.ones(len(numbers), dtype=bool)
            is_kept[np.fromiter(without, np.int64, len(without))] = False
            rows = rows.filter(pa.array(is_kept))
        schema = T.StructType([*self.schema.fields, T.StructField(SOURCE_ROW, T.LongType(), False)])
        return spark.createDataFrame(rows, schema)


def collect_source(work: TableAccess, statement: Merge, source: DataFrame) -> LocalSource | None:
    """Return the source's rows; None if they are many, or have types that Arrow can't hold exactly.

    None also if both inserted and changed rows depend on the current time, which must be one for a
    statement but differs between jobs. If None is returned after rows were read, Spark reads the
    source again, and only that reading counts.
    """
    if _needs_single_time(statement, work.snapshot.schema):
        return None
    parsed = delta_schema(source.schema)
    folded = [name.lower() for name in parsed.names]
    if len(set(folded)) < len(folded) or not all(_is_exact_in_arrow(item.type) for item in parsed):
        return None
    rows_max = SOURCE_BYTES_MAX // max(8, sum(_width(item.type) for item in parsed))
    if (estimated_bytes(source) or 0) > SOURCE_BYTES_MAX:
        # Spark overestimates joins, so the source may still be small.
        row_count = source.select(F.lit(1).alias("one")).limit(rows_max + 1).count()
        if row_count > rows_max:
            return None
    frame = _nullable_inside(source)
    try:
        rows = frame.limit(rows_max + 1).toArrow()
    except PySparkException as error:
        if "maxResultSize" in str(error):
            return None
        raise
    if rows.num_rows > rows_max or rows.nbytes > 4 * SOURCE_BYTES_MAX:
        return None
    alias = statement.source_alias or _alias_of(work, statement, source)
    return LocalSource(rows, frame.schema, alias)


def _nullable_inside(source: DataFrame) -> DataFrame:
    """Return the source with nested types that Arrow can cast.

    For a NULL struct Spark returns NULL fields, even if their type says NOT NULL, as that of a
    literal does; Arrow then can't cast the type even to itself.
    """
    types = [all_nullable(item.dataType) for item in source.schema]
    if types == [item.dataType for item in source.schema]:
        return source
    return source.select(
        *[
            F.col(quote(item.name)).cast(data_type).alias(item.name, metadata=item.metadata)
            for item, data_type in zip(source.schema, types, strict=True)
        ]
    )


def _needs_single_time(statement: Merge, schema: Struct) -> bool:
    """Return whether both inserted and other rows depend on when the statement runs."""
    defaults = [str(item.metadata.get(CURRENT_DEFAULT)) for item in schema]
    inserting, others = list(defaults), [condition_text(statement.on)]
    for clause in statement.clauses:
        texts = inserting if isinstance(clause, NotMatchedInsert) else others
        if clause.condition is not None:
            texts.append(condition_text(clause.condition))
        if isinstance(clause, MatchedDelete | BySourceDelete) or isinstance(
            clause.assignments, Star
        ):
            continue
        for assignment in clause.assignments:
            if isinstance(assignment.value, Default):
                texts += defaults
            else:
                texts.append(condition_text(assignment.value))
    return all(any(map(_CLOCK.search, texts)) for texts in (inserting, others))


def _is_exact_in_arrow(data_type: DataType) -> bool:
    match data_type:
        case Primitive(name):
            return name in _EXACT_TYPES or data_type.decimal is not None
        case Array(element, _):
            return _is_exact_in_arrow(element)
        case Map(key, value, _):
            return _is_exact_in_arrow(key) and _is_exact_in_arrow(value)
        case Struct(fields):
            names = {item.name.lower() for item in fields}
            return len(names) == len(fields) and all(
                _is_exact_in_arrow(item.type) for item in fields
            )


def _width(data_type: DataType) -> int:
    if not isinstance(data_type, Primitive):
        return _NESTED_BYTES
    return _TEXT_BYTES if data_type.name in {"string", "binary"} else 8


def _alias_of(work: TableAccess, statement: Merge, source: DataFrame) -> str | None:
    """Return the alias of a DataFrame by which the ON condition qualifies its columns."""
    if not isinstance(statement.on, SqlText) or statement.on.references:
        return None
    predicate = parse_or_opaque(statement.on.text, rules=work.rules)
    qualifiers = {path[0] for path in columns_of(predicate) if len(path) > 1}
    for name in sorted(qualifiers):
        try:
            columns = source.select(f"{quote(name)}.*").columns
        except PySparkException:
            continue
        if columns == source.columns:
            return name
    return None


# Keys


def key_predicate(work: TableAccess, statement: Merge, local_source: LocalSource) -> Predicate:
    """Return a bound predicate that every target row meets that matches the source's rows.

    It holds whatever else the ON condition says. Only comparisons of two plain columns count whose
    types compare without a conversion that could change a value.
    """
    if not isinstance(statement.on, SqlText) or statement.on.references:
        return Always(True)
    source = delta_schema(local_source.schema)
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
    """Yield the comparisons of two columns, as texts, that are true wherever the part is true."""
    text = part.text if isinstance(part, Opaque) else ""
    if match := _COMPARISON.fullmatch(text):
        yield match[1], Operator(match[2]), match[3]
    elif match := _BETWEEN.fullmatch(text):
        yield match[1], Operator.GREATER_OR_EQUAL, match[2]
        yield match[1], Operator.LESS_OR_EQUAL, match[3]


def _columns_compared(
    work: TableAccess,
    statement: Merge,
    source: Struct,
    alias: str | None,
    texts: tuple[str, Operator, str],
) -> _Compared | None:
    """Return the columns of a comparison if it is certain which sides they belong to.

    A qualifier is an alias, even if a column has its name: Spark tries aliases first.
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
    matches = [
        (is_target, item)
        for is_target, schema in ((True, schemas[0]), (False, schemas[1]))
        if (item := schema.find(name)) is not None
        and (qualifier is None or qualifier.lower() == str(qualifiers[not is_target]).lower())
    ]
    return matches[0] if len(matches) == 1 else None


def equal_columns(
    work: TableAccess, statement: Merge, local_source: LocalSource, part: Predicate
) -> tuple[Field, Field] | None:
    """Return the target's and the source's column that a part of the ON condition says are equal.

    None if it says something else, or if it isn't certain which sides the columns belong to.
    """
    comparisons = list(_comparisons(part))
    if len(comparisons) != 1 or comparisons[0][1] is not Operator.EQUAL:
        return None
    compared = _columns_compared(
        work, statement, delta_schema(local_source.schema), local_source.alias, comparisons[0]
    )
    return None if compared is None else (compared.ours, compared.theirs)


def resolve_merge_column(
    work: TableAccess, statement: Merge, local_source: LocalSource, name: str, qualifier: str | None
) -> tuple[bool, Field] | None:
    """Return whether the column of a name in a matched clause is the target's, and the column.

    None if it isn't certain.
    """
    qualifiers = (statement.target_alias or work.name, local_source.alias)
    schemas = (work.snapshot.schema, delta_schema(local_source.schema))
    return _meant(name, qualifier, schemas, qualifiers)


def _values(local_source: LocalSource, comparison: _Compared) -> pa.ChunkedArray:
    values = local_source.rows.column(comparison.theirs.name)
    has_zone = pa.types.is_timestamp(values.type) and values.type.tz is not None
    return values.cast(pa.timestamp("us", "UTC")) if has_zone else values


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _compare_as_they_are(ours: Field, theirs: Field) -> bool:
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
    """Return that the column is one of the values: an IN of a few, else some ranges of values."""
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
    """Return that the columns are in the ranges of a row; of many rows, in their common range."""
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
    """Return the indexes after which a new range begins: the widest gaps between numbers."""
    if pa.types.is_date32(distinct.type):
        distinct = distinct.cast(pa.int32())
    if not pa.types.is_integer(distinct.type):
        places: np.ndarray = np.arange(1, _RANGES_MAX) * len(distinct) // _RANGES_MAX - 1
        return places
    numbers = distinct.cast(pa.int64()).to_numpy().view(np.uint64)
    gaps = numbers[1:] - numbers[:-1]  # unsigned, so that large differences don't overflow
    return np.sort(np.argpartition(gaps, -(_RANGES_MAX - 1))[-(_RANGES_MAX - 1) :])
