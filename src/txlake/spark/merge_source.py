"""A MERGE's source, read once and held by this process where it is small.

Owns when a source is held, and what its keys say of the target's files. A held source is the same
rows wherever it is used, also when it is made by chance; it is broadcast; and its rows have numbers
by which a job reports which of them it met.
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
from txlake.statements import (
    BySourceDelete,
    Default,
    MatchedDelete,
    Merge,
    NotMatchedInsert,
    SqlText,
    Star,
    condition_text,
)

HELD_BYTES_MAX = 32 * 1024 * 1024
_TEXT_BYTES = 20
_NESTED_BYTES = 100
_INTEGERS = frozenset({"byte", "short", "integer", "long"})
# What comes back from Arrow as it went there.
_HELD_TYPES = _INTEGERS | {
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
# Compared as they are, when both sides are of one of these.
_TIMES = frozenset({"date", "timestamp", "timestamp_ntz"})


@dataclass(frozen=True, slots=True)
class LocalSource:
    """The source's rows. `alias`: what qualifies its columns, None for nothing."""

    rows: pa.Table
    schema: T.StructType
    alias: str | None

    def frame(self, spark: SparkSession, *, without: BitMap64 | None = None) -> DataFrame:
        """The rows with their numbers in SOURCE_ROW; those in `without` left out."""
        numbers = np.arange(self.rows.num_rows, dtype=np.int64)
        rows = self.rows.append_column(SOURCE_ROW, pa.array(numbers))
        if without is not None:
            kept = np.ones(len(numbers), dtype=bool)
            kept[np.fromiter(without, np.int64, len(without))] = False
            rows = rows.filter(pa.array(kept))
        schema = T.StructType([*self.schema.fields, T.StructField(SOURCE_ROW, T.LongType(), False)])
        return spark.createDataFrame(rows, schema)


def collect_source(work: TableAccess, statement: Merge, source: DataFrame) -> LocalSource | None:
    """The source's rows; None where they are many, or of types that Arrow doesn't hold exactly.

    None also where rows inserted and rows changed are given the time, which is one to a statement,
    but not to its jobs. What is not returned was read in vain: its next reading counts alone.
    """
    if _gives_the_time_twice(statement, work.snapshot.schema):
        return None
    parsed = delta_schema(source.schema)
    folded = [name.lower() for name in parsed.names]
    if len(set(folded)) < len(folded) or not all(_is_held(item.type) for item in parsed):
        return None
    rows_max = HELD_BYTES_MAX // max(8, sum(_width(item.type) for item in parsed))
    if (estimated_bytes(source) or 0) > HELD_BYTES_MAX:
        # Spark multiplies what it joins, so it may be few all the same.
        counted = source.select(F.lit(1).alias("one")).limit(rows_max + 1).count()
        if counted > rows_max:
            return None
    held = _nullable_inside(source)
    try:
        rows = held.limit(rows_max + 1).toArrow()
    except PySparkException as error:
        if "maxResultSize" in str(error):
            return None
        raise
    if rows.num_rows > rows_max or rows.nbytes > 4 * HELD_BYTES_MAX:
        return None
    alias = statement.source_alias or _alias_of(work, statement, source)
    return LocalSource(rows, held.schema, alias)


def _nullable_inside(source: DataFrame) -> DataFrame:
    """The source with nested types that Arrow casts.

    Of a NULL struct Spark gives NULL fields, also where their type says NOT NULL, as that of a
    literal does; Arrow then casts the type not even to itself.
    """
    wanted = [all_nullable(item.dataType) for item in source.schema]
    if wanted == [item.dataType for item in source.schema]:
        return source
    return source.select(
        *[
            F.col(quote(item.name)).cast(one).alias(item.name, metadata=item.metadata)
            for item, one in zip(source.schema, wanted, strict=True)
        ]
    )


def _gives_the_time_twice(statement: Merge, schema: Struct) -> bool:
    """Whether both rows that are inserted and others depend on when the statement runs."""
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
        for one in clause.assignments:
            if isinstance(one.value, Default):
                texts += defaults
            else:
                texts.append(condition_text(one.value))
    return all(any(map(_CLOCK.search, texts)) for texts in (inserting, others))


def _is_held(data_type: DataType) -> bool:
    match data_type:
        case Primitive(name):
            return name in _HELD_TYPES or data_type.decimal is not None
        case Array(element, _):
            return _is_held(element)
        case Map(key, value, _):
            return _is_held(key) and _is_held(value)
        case Struct(fields):
            names = {item.name.lower() for item in fields}
            return len(names) == len(fields) and all(_is_held(item.type) for item in fields)


def _width(data_type: DataType) -> int:
    if not isinstance(data_type, Primitive):
        return _NESTED_BYTES
    return _TEXT_BYTES if data_type.name in {"string", "binary"} else 8


def _alias_of(work: TableAccess, statement: Merge, source: DataFrame) -> str | None:
    """The alias that a DataFrame was given and by which the ON condition names its columns."""
    if not isinstance(statement.on, SqlText) or statement.on.references:
        return None
    predicate = parse_or_opaque(statement.on.text, rules=work.rules)
    named = {path[0] for path in columns_of(predicate) if len(path) > 1}
    for name in sorted(named):
        try:
            columns = source.select(f"{quote(name)}.*").columns
        except PySparkException:
            continue
        if columns == source.columns:
            return name
    return None


# Keys


def key_predicate(work: TableAccess, statement: Merge, held: LocalSource) -> Predicate:
    """What the source's rows leave possible of the target's that match them: a bound predicate.

    It is true for every row that may match, whatever else the ON condition says. Only comparisons
    of two plain columns count whose types compare without a conversion that could change a value.
    """
    if not isinstance(statement.on, SqlText) or statement.on.references:
        return Always(True)
    source = delta_schema(held.schema)
    compared = [
        found
        for part in work.on_parts(statement.on.text)
        for texts in _comparisons(part)
        if (found := _columns_compared(work, statement, source, held.alias, texts)) is not None
        and _compare_as_they_are(found.ours, found.theirs)
    ]
    try:
        parts = [
            _one_of(one.ours, _values(held, one))
            for one in compared
            if one.operator is Operator.EQUAL
        ]
        ranges = [one for one in compared if one.operator is not Operator.EQUAL]
        if ranges:
            parts.append(_in_ranges(ranges, [_values(held, one) for one in ranges]))
    except (OverflowError, ValueError):  # a moment that Python has no value for
        return Always(True)
    return And(tuple(work.bound(part) for part in parts)) if parts else Always(True)


@dataclass(frozen=True, slots=True)
class _Compared:
    """The target's column, compared with the source's: `ours operator theirs`."""

    ours: Field
    operator: Operator
    theirs: Field


def _comparisons(part: Predicate) -> Iterator[tuple[str, Operator, str]]:
    """The comparisons of two columns, as texts, that are true wherever the part is."""
    text = part.text if isinstance(part, Opaque) else ""
    if found := _COMPARISON.fullmatch(text):
        yield found[1], Operator(found[2]), found[3]
    elif found := _BETWEEN.fullmatch(text):
        yield found[1], Operator.GREATER_OR_EQUAL, found[2]
        yield found[1], Operator.LESS_OR_EQUAL, found[3]


def _columns_compared(
    work: TableAccess,
    statement: Merge,
    source: Struct,
    alias: str | None,
    texts: tuple[str, Operator, str],
) -> _Compared | None:
    """The columns of a comparison, where it is certain whose they are.

    A qualifier is an alias, also where a column has its name: Spark asks for aliases first.
    """
    target = work.snapshot.schema
    qualifiers = (statement.target_alias or work.name, alias)
    if len({name.lower() for name in qualifiers if name is not None}) < 2:
        return None
    if statement.source_alias is None and source.find(str(alias)) is not None:
        return (
            None  # a frame shows its alias by its columns alone, and a struct's fields look alike
        )
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
    """The one column that a name means, and whether it is the target's, the first of the two."""
    path = [_unquoted(name) for name in re.findall(_NAME, text)]
    return _meant(path[-1], path[0] if len(path) > 1 else None, schemas, qualifiers)


def _meant(
    name: str,
    qualifier: str | None,
    schemas: tuple[Struct, Struct],
    qualifiers: tuple[str | None, str | None],
) -> tuple[bool, Field] | None:
    found = [
        (is_target, item)
        for is_target, schema in ((True, schemas[0]), (False, schemas[1]))
        if (item := schema.find(name)) is not None
        and (qualifier is None or qualifier.lower() == str(qualifiers[not is_target]).lower())
    ]
    return found[0] if len(found) == 1 else None


def equal_columns(
    work: TableAccess, statement: Merge, held: LocalSource, part: Predicate
) -> tuple[Field, Field] | None:
    """The target's column and the source's that a part of the ON condition says are equal.

    None where it says something else, or it isn't certain whose the columns are.
    """
    told = list(_comparisons(part))
    if len(told) != 1 or told[0][1] is not Operator.EQUAL:
        return None
    found = _columns_compared(work, statement, delta_schema(held.schema), held.alias, told[0])
    return None if found is None else (found.ours, found.theirs)


def resolve_merge_column(
    work: TableAccess, statement: Merge, held: LocalSource, name: str, qualifier: str | None
) -> tuple[bool, Field] | None:
    """The one column that a name in a clause for matched rows means; whether it is the target's.

    None where it isn't certain.
    """
    qualifiers = (statement.target_alias or work.name, held.alias)
    schemas = (work.snapshot.schema, delta_schema(held.schema))
    return _meant(name, qualifier, schemas, qualifiers)


def _values(held: LocalSource, one: _Compared) -> pa.ChunkedArray:
    values = held.rows.column(one.theirs.name)
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


def _one_of(item: Field, values: pa.ChunkedArray) -> Predicate:
    """That the column is one of the values: each of a few, else in one of some ranges of them."""
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
    """That the columns are in the ranges of one of a few rows, else within those of all rows."""
    rows = pa.table(list(values), names=[str(place) for place in range(len(values))]).drop_null()
    rows = rows.group_by(rows.column_names).aggregate([])
    if not rows.num_rows:
        return Always(False)
    if rows.num_rows > _RANGES_MAX:
        widest = [
            scalars_of(pa.array([(pc.min if one.operator in _FROM_BELOW else pc.max)(column)]))[0]
            for one, column in zip(compared, rows.columns, strict=True)
        ]
        return And(tuple(map(_compared, compared, widest)))
    columns = list(map(scalars_of, rows.columns))
    return Or(
        tuple(
            And(tuple(_compared(one, value) for one, value in zip(compared, row, strict=True)))
            for row in zip(*columns, strict=True)
        )
    )


def _compared(one: _Compared, value: LiteralValue) -> Predicate:
    return Comparison((one.ours.name,), one.operator, value)


def _cuts(distinct: pa.Array) -> np.ndarray:
    """The places after which a new range begins: where numbers are farthest apart."""
    if pa.types.is_date32(distinct.type):
        distinct = distinct.cast(pa.int32())
    if not pa.types.is_integer(distinct.type):
        places: np.ndarray = np.arange(1, _RANGES_MAX) * len(distinct) // _RANGES_MAX - 1
        return places
    numbers = distinct.cast(pa.int64()).to_numpy().view(np.uint64)
    apart = numbers[1:] - numbers[:-1]  # right also where it leaves the range of signed numbers
    return np.sort(np.argpartition(apart, -(_RANGES_MAX - 1))[-(_RANGES_MAX - 1) :])
