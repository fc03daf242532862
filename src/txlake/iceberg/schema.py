"""A Delta schema as Iceberg's: types, field ids, and the mapping of names for files without ids.

Ids are column mapping's, those of elements, keys and values icebergCompatV2's. Source: Iceberg's
specification, "Schemas and Data Types", "Column Projection"; PROTOCOL.md, "Iceberg Compatibility
V2".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from txlake.errors import InvalidRequest
from txlake.protocol.column_mapping import nested_ids
from txlake.protocol.types import Array, DataType, Field, Map, Primitive, Struct

_PRIMITIVES: Mapping[str, PrimitiveType] = {
    "byte": IntegerType(),
    "short": IntegerType(),
    "integer": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "boolean": BooleanType(),
    "date": DateType(),
    "timestamp": TimestamptzType(),
    "timestamp_ntz": TimestampType(),
}
_UPGRADE = "REORG TABLE ... APPLY (UPGRADE UNIFORM (ICEBERG_COMPAT_VERSION = 2)) prepares the table"


def iceberg_schema(schema: Struct, schema_id: int = 0) -> Schema:
    """Return the table's columns as an Iceberg schema.

    Raises InvalidRequest for a column without an id, and for a type that Iceberg v2 hasn't.
    """
    return Schema(*map(_field, schema), schema_id=schema_id)


def _field(item: Field) -> NestedField:
    if item.column_id is None:
        raise InvalidRequest(f"Iceberg: column {item.name} has no id; {_UPGRADE}")
    comment = item.metadata.get("comment")
    return NestedField(
        field_id=item.column_id,
        name=item.name,
        field_type=_type(item.type, item, item.physical_name),
        required=not item.nullable,
        doc=comment if isinstance(comment, str) else None,
    )


def _type(data_type: DataType, item: Field, path: str) -> IcebergType:
    """Return a type inside of the column `item`; `path` as the keys of its nested ids."""
    match data_type:
        case Struct(fields):
            return StructType(*map(_field, fields))
        case Array(element, contains_null):
            inner = f"{path}.element"
            return ListType(
                element_id=_nested_id(item, inner),
                element_type=_type(element, item, inner),
                element_required=not contains_null,
            )
        case Map(key, value, contains_null):
            inner_key, inner_value = f"{path}.key", f"{path}.value"
            return MapType(
                key_id=_nested_id(item, inner_key),
                key_type=_type(key, item, inner_key),
                value_id=_nested_id(item, inner_value),
                value_type=_type(value, item, inner_value),
                value_required=not contains_null,
            )
        case Primitive():
            return _primitive(data_type, item)


def _primitive(data_type: Primitive, item: Field) -> PrimitiveType:
    if data_type.decimal is not None:
        return DecimalType(*data_type.decimal)
    found = _PRIMITIVES.get(data_type.name)
    if found is None:
        raise InvalidRequest(
            f"Iceberg: column {item.name} is of type {data_type.name}, which Iceberg v2 hasn't"
        )
    return found


def _nested_id(item: Field, key: str) -> int:
    identity = nested_ids(item).get(key)
    if identity is None:
        raise InvalidRequest(f"Iceberg: column {item.name} has no id for {key}; {_UPGRADE}")
    return identity


def name_mapping(schema: Struct) -> str:
    """Return the JSON of `schema.name-mapping.default`: the columns' names in data files, by id.

    Readers need it for files that were written before the columns were mapped.
    """
    return NameMapping(list(map(_mapped_field, schema))).model_dump_json(by_alias=True)


def _mapped_field(item: Field) -> MappedField:
    inner = list(_mapped(item.type, item, item.physical_name))
    return MappedField(field_id=item.column_id, names=[item.physical_name], fields=inner)


def _mapped(data_type: DataType, item: Field, path: str) -> Iterator[MappedField]:
    """Yield the mapped fields directly inside of a type."""
    match data_type:
        case Struct(fields):
            yield from map(_mapped_field, fields)
        case Array(element, _):
            yield _mapped_part(element, item, path, "element")
        case Map(key, value, _):
            yield _mapped_part(key, item, path, "key")
            yield _mapped_part(value, item, path, "value")
        case Primitive():
            return


def _mapped_part(data_type: DataType, item: Field, path: str, name: str) -> MappedField:
    inner = f"{path}.{name}"
    fields = list(_mapped(data_type, item, inner))
    return MappedField(field_id=_nested_id(item, inner), names=[name], fields=fields)


def leaf_paths(schema: Struct) -> Iterator[tuple[Field, ...]]:
    """Yield the fields from the top down to each primitive column, through structs only.

    Delta has statistics of these; of what is in lists and maps it has none.
    """
    for item in schema:
        yield from _leaf_paths((item,))


def _leaf_paths(path: tuple[Field, ...]) -> Iterator[tuple[Field, ...]]:
    match path[-1].type:
        case Primitive():
            yield path
        case Struct(fields):
            for item in fields:
                yield from _leaf_paths((*path, item))
        case _:
            return
