"""Delta's types as PySpark's, and the rules by which a value may be stored in a column.

Owns `StructType` conversions and ANSI store assignment; knows nothing of files.
"""

from __future__ import annotations

import json

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from txlake.errors import UnsupportedFeature
from txlake.local.types import quote, same_type
from txlake.protocol.collations import collation_of
from txlake.protocol.types import (
    Array,
    DataType,
    Map,
    Primitive,
    Struct,
    type_from_json,
)


def spark_type(data_type: DataType, *, physical: bool = False, ids: bool = False) -> T.DataType:
    """Return the PySpark type of a Delta type; struct fields by logical or physical name.

    Fields of structs become nullable. With `ids` fields carry the ids by which Spark finds them in
    Parquet files. Geometry and geography are binary, the well-known binary form in which files hold
    them.

    Raises UnsupportedFeature for a type that Spark doesn't know.
    """
    match data_type:
        case Primitive(name):
            if data_type.is_string:
                collation = collation_of(data_type)
                return T.StringType() if collation is None else T.StringType(collation)
            decimal = data_type.decimal
            if decimal is not None:
                return T.DecimalType(*decimal)
            if name == "void":
                return T.NullType()
            if name.startswith(("geometry", "geography")):
                return T.BinaryType()
            try:
                return T.StructType.fromJson(
                    {"fields": [{"name": "c", "type": name, "nullable": True, "metadata": {}}]}
                )[0].dataType
            except Exception as error:
                raise UnsupportedFeature(f"type {name!r} is not known to Spark") from error
        case Array(element, contains_null):
            return T.ArrayType(spark_type(element, physical=physical, ids=ids), contains_null)
        case Map(key, value, value_contains_null):
            return T.MapType(
                spark_type(key, physical=physical, ids=ids),
                spark_type(value, physical=physical, ids=ids),
                value_contains_null,
            )
        case Struct():
            fields = spark_schema(data_type, physical=physical, ids=ids)
            return T.StructType(
                [T.StructField(one.name, one.dataType, True, one.metadata) for one in fields]
            )


def spark_schema(schema: Struct, *, physical: bool = False, ids: bool = False) -> T.StructType:
    """Return the PySpark schema of a table, with logical or `physical` names, and without metadata;
    with `ids`, except Parquet field ids.
    """
    return T.StructType(
        [
            T.StructField(
                item.physical_name if physical else item.name,
                spark_type(item.type, physical=physical, ids=ids),
                item.nullable,
                {"parquet.field.id": item.column_id} if ids and item.column_id is not None else {},
            )
            for item in schema
        ]
    )


def all_nullable(data_type: T.DataType) -> T.DataType:
    """Return the type with everything inside it nullable, except a map's keys."""
    match data_type:
        case T.ArrayType():
            return T.ArrayType(all_nullable(data_type.elementType), True)
        case T.MapType():
            return T.MapType(data_type.keyType, all_nullable(data_type.valueType), True)
        case T.StructType():
            fields = data_type.fields
            return T.StructType(
                [
                    T.StructField(it.name, all_nullable(it.dataType), True, it.metadata)
                    for it in fields
                ]
            )
        case _:
            return data_type


def delta_schema(schema: T.StructType) -> Struct:
    """Return a DataFrame's schema as Delta's; columns keep their nullability."""
    parsed = type_from_json(json.loads(schema.json()))
    assert isinstance(parsed, Struct)
    return parsed


def stored(value: Column, source: DataType, target: DataType) -> Column:
    """Return the value converted to the target's type; structs by field name, missing fields null.

    A value that the type can't hold fails the job, as Spark's cast does in ANSI mode.
    """
    if same_type(source, target):
        return value
    match source, target:
        case Struct(), Struct(fields):
            members = []
            for wanted in fields:
                found = source.find(wanted.name)
                member = F.lit(None).cast(spark_type(wanted.type))
                if found is not None:
                    member = stored(value.getField(found.name), found.type, wanted.type)
                members.append(member.alias(wanted.name))
            return F.when(value.isNotNull(), F.struct(*members))
        case Array(one, _), Array(other, _) if not isinstance(one, Primitive):
            return F.transform(value, lambda item: stored(item, one, other))
        case Map(key, item, _), Map(other_key, other_item, _) if not (
            isinstance(key, Primitive) and isinstance(item, Primitive)
        ):
            entries = F.transform(
                F.map_entries(value),
                lambda entry: F.struct(
                    stored(entry.getField("key"), key, other_key).alias("key"),
                    stored(entry.getField("value"), item, other_item).alias("value"),
                ),
            )
            return F.map_from_entries(entries)
        case _:
            return value.cast(spark_type(target))


def type_sql(data_type: T.DataType) -> str:
    """Return a type as SQL for Spark's parser, with all names of fields in backquotes.

    `simpleString` leaves names as they are: one with a space, or a keyword that a session
    reserves, can't be parsed.
    """
    match data_type:
        case T.ArrayType(elementType=element):
            return f"ARRAY<{type_sql(element)}>"
        case T.MapType(keyType=key, valueType=value):
            return f"MAP<{type_sql(key)}, {type_sql(value)}>"
        case T.StructType(fields=fields):
            members = (f"{quote(item.name)}: {type_sql(item.dataType)}" for item in fields)
            return f"STRUCT<{', '.join(members)}>"
        case _:
            return data_type.simpleString()
