"""Columns of a view as it promises them, over a query whose tables have changed since.

The modes are Spark's: BINDING takes a type that widens without loss, COMPENSATION casts to the
promised type as ANSI mode does, TYPE EVOLUTION takes the type that there is; all three take the
columns by name and pass new ones over. EVOLUTION takes all columns as they are.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from txlake.errors import InvalidRequest
from txlake.spark.spark_sessions import is_connect
from txlake.sql.statements import ViewSchema

_NULLABILITY = frozenset({"nullable", "containsNull", "valueContainsNull"})
_REFUSAL = "CREATE OR REPLACE VIEW with the columns that there are now"


def with_view_columns(
    spark: Callable[[], SparkSession], view: str, frame: DataFrame, schema: ViewSchema
) -> DataFrame:
    """Return the query's rows with the columns of the view, by its mode.

    Raises InvalidRequest where a column is gone, its type doesn't fit the promised one, or two
    columns have come to have one name. With COMPENSATION a value that isn't one of the type fails
    the query.
    """
    found, stored = frame.schema, json.loads(schema.columns)
    if schema.mode == "evolution":
        counts = Counter(name.lower() for name in found.names)
        if twice := [name for name, count in counts.items() if count > 1]:
            raise InvalidRequest(
                f"view {view}: its query gives several columns {twice[0]!r} since a table that it "
                "reads has changed; CREATE OR REPLACE VIEW with a name for each"
            )
        return frame
    if _essence(found.jsonValue()) == _essence(stored):
        return frame
    wanted = StructType.fromJson(stored)
    names = [item.name for item in found]
    types = [_nullable(item.dataType) for item in found]
    places = _places(view, schema, names)
    held = frame.toDF(*(f"c{place}" for place in range(len(names))))
    columns = []
    for place, item in zip(places, wanted, strict=True):
        column, kind, to = F.col(f"c{place}"), types[place], _nullable(item.dataType)
        if schema.mode != "type evolution" and kind != to:
            column = _cast(spark, view, schema.mode, names[place], column, kind, to)
        columns.append(column.alias(item.name))
    return held.select(*columns)


def _essence(schema: object) -> object:
    """Return a schema's JSON without nullability and metadata."""
    if isinstance(schema, dict):
        return {key: _essence(value) for key, value in schema.items() if key not in _NULLABILITY}
    return [_essence(one) for one in schema] if isinstance(schema, list) else schema


def _nullable(kind: DataType) -> DataType:
    """Return the type with everything inside it nullable, and without fields' metadata."""
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType), True)
    if isinstance(kind, MapType):
        return MapType(_nullable(kind.keyType), _nullable(kind.valueType), True)
    if isinstance(kind, StructType):
        return StructType([StructField(one.name, _nullable(one.dataType)) for one in kind])
    return kind


def _places(view: str, schema: ViewSchema, names: list[str]) -> list[int]:
    """Return the positions in the query of the view's columns.

    Raises InvalidRequest unless the query gives each name as often as the view expects.
    """
    found = [name.lower() for name in names]
    counts, expected = Counter(found), Counter(name.lower() for name in schema.output)
    taken: Counter[str] = Counter()
    places = []
    for name in schema.output:
        key = name.lower()
        if counts[key] != expected[key]:
            raise InvalidRequest(
                f"view {view}: its query gives {counts[key]} columns {name!r}, expected "
                f"{expected[key]}: a table that it reads has changed; {_REFUSAL}"
            )
        matches = [place for place, one in enumerate(found) if one == key]
        places.append(matches[taken[key]])
        taken[key] += 1
    return places


def _cast(
    spark: Callable[[], SparkSession],
    view: str,
    mode: str,
    name: str,
    column: Column,
    kind: DataType,
    wanted: DataType,
) -> Column:
    """Return the column in the promised type.

    With BINDING, raises InvalidRequest unless the type widens to it; else a value that isn't one of
    the type fails the query.
    """
    if mode == "binding":
        if not _widens(spark(), kind, wanted):
            raise InvalidRequest(
                f"view {view}: column {name!r} is {kind.simpleString()} now, expected "
                f"{wanted.simpleString()} or a narrower type; {_REFUSAL}"
            )
        return column.cast(wanted)
    cast = column.try_cast(wanted)
    message = F.concat(
        F.lit(f"view {view}: a value of column {name!r} is no {wanted.simpleString()}: "),
        column.cast("string"),
    )
    return F.when(column.isNotNull() & cast.isNull(), F.raise_error(message)).otherwise(cast)


def _widens(spark: SparkSession, kind: DataType, wanted: DataType) -> bool:
    """Return whether Spark casts without loss; False on Spark Connect, which can't tell."""
    if is_connect(spark):
        return False
    classic: Any = spark
    session = classic._jsparkSession
    given, to = (session.parseDataType(one.json()) for one in (kind, wanted))
    return bool(classic._jvm.org.apache.spark.sql.catalyst.expressions.Cast.canUpCast(given, to))
