"""The source of a MERGE, collected to the driver where it is small.

Owns when a source is local, and what its keys imply for the target's files. A local source has the
same rows wherever it is used, even if its query isn't deterministic; it is broadcast; and its rows
have numbers by which a job reports those that matched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from txlake.local.control_columns import SOURCE_ROW
from txlake.local.merge_keys import LocalSource
from txlake.local.rules import CURRENT_DEFAULT
from txlake.local.types import quote
from txlake.log.predicates import (
    columns_of,
    parse_or_opaque,
)
from txlake.protocol.types import Array, DataType, Map, Primitive, Struct
from txlake.spark.parquet_frames import parquet_rows
from txlake.spark.reading import estimated_bytes
from txlake.spark.spark_sessions import create_frame
from txlake.spark.table_access import TableAccess
from txlake.spark.types import all_nullable, delta_schema
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
_FILES_MAX = 16
_TEXT_BYTES = 20
_NESTED_BYTES = 100
_INTEGERS = frozenset({"byte", "short", "integer", "long"})
# Types that make the round trip through Arrow unchanged.
_EXACT_TYPES = _INTEGERS | {
    *("boolean", "float", "double", "string", "binary", "date", "timestamp", "timestamp_ntz")
}
_CLOCK = re.compile(
    r"(?i)\b(current_(timestamp|date|time)|now|localtimestamp|curdate|getdate|unix_timestamp)\b"
)


@dataclass(frozen=True, slots=True)
class CollectedSource(LocalSource):
    """A source that Spark has given to the driver."""

    spark_schema: T.StructType

    def frame(self, spark: SparkSession, *, without: BitMap64 | None = None) -> DataFrame:
        """Return the rows except `without` as a Spark frame, with their numbers in SOURCE_ROW.

        A row's number is its position among all rows, from 0; `without` has such numbers.
        """
        numbers = np.arange(self.rows.num_rows, dtype=np.int64)
        rows = self.rows.append_column(SOURCE_ROW, pa.array(numbers))
        if without is not None:
            is_kept = np.ones(len(numbers), dtype=bool)
            is_kept[np.fromiter(without, np.int64, len(without))] = False
            rows = rows.filter(pa.array(is_kept))
        schema = T.StructType(
            [*self.spark_schema.fields, T.StructField(SOURCE_ROW, T.LongType(), False)]
        )
        return create_frame(spark, rows, schema)


def collect_source(
    work: TableAccess, statement: Merge, source: DataFrame
) -> CollectedSource | None:
    """Return the source's rows; None if they are many, or have types that Arrow can't hold exactly.

    Runs the source's query. None also for columns that differ only in letter case, and if both
    inserted and changed rows depend on the current time, which must be one for a statement but
    differs between jobs. If None is returned after rows were read, Spark reads the source again,
    and only that reading counts.
    """
    if _needs_single_time(statement, work.snapshot.schema):
        return None
    parsed = delta_schema(source.schema)
    folded = [name.lower() for name in parsed.names]
    if len(set(folded)) < len(folded) or not all(_is_exact_in_arrow(item.type) for item in parsed):
        return None
    rows_max = SOURCE_BYTES_MAX // max(8, sum(_width(item.type) for item in parsed))
    rows = parquet_rows(source, rows_max, _FILES_MAX)
    if rows is not None:
        alias = statement.source_alias or _alias_of(work, statement, source)
        return CollectedSource(rows, parsed, alias, source.schema)
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
    return CollectedSource(rows, delta_schema(frame.schema), alias, frame.schema)


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
    """Return whether both inserted and other rows depend on when the statement runs, by their
    texts.
    """
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
    """Return whether values of the type make the round trip through Arrow unchanged."""
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
    """Return about how many bytes a value of the type takes."""
    if not isinstance(data_type, Primitive):
        return _NESTED_BYTES
    return _TEXT_BYTES if data_type.name in {"string", "binary"} else 8


def _alias_of(work: TableAccess, statement: Merge, source: DataFrame) -> str | None:
    """Return the alias of a DataFrame by which the ON condition qualifies its columns; None if none
    is known.
    """
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
