"""The schema of a Delta table as values: parsing, printing, and its Arrow form.

Owns the type system of the log's `schemaString`. Column mapping (physical names and ids) is read
from the fields' metadata here, because every other layer needs it. Source: PROTOCOL.md, "Schema
Serialization Format" and "Column Mapping".
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from txlake.errors import CorruptTable

if TYPE_CHECKING:  # tasks need types, and have no msgspec
    from txlake.protocol.actions import Json, JsonObject

PHYSICAL_NAME = "delta.columnMapping.physicalName"
COLUMN_ID = "delta.columnMapping.id"

_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)")
_DEPTH_MAX = 100
_STRING_LIKE = re.compile(r"(char|varchar)\(\s*\d+\s*\)|string collate \S+", re.IGNORECASE)
_ARROW_PRIMITIVES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    "variant": pa.struct(
        [pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False)]
    ),
}


@dataclass(frozen=True, slots=True)
class Primitive:
    """A type without nested types: `long`, `decimal(10,2)`, `string`, `timestamp_ntz` ..."""

    name: str

    @property
    def decimal(self) -> tuple[int, int] | None:
        """(precision, scale) of a decimal, None for another type; plain `decimal` is (10, 0)."""
        if self.name == "decimal":
            return (10, 0)
        match = _DECIMAL.fullmatch(self.name)
        return None if match is None else (int(match[1]), int(match[2]))

    @property
    def is_string(self) -> bool:
        """Whether values are text: string, char(n), varchar(n), a collated string."""
        return self.name == "string" or _STRING_LIKE.fullmatch(self.name) is not None


@dataclass(frozen=True, slots=True)
class Array:
    """A list of values of one type."""

    element: DataType
    contains_null: bool = True


@dataclass(frozen=True, slots=True)
class Map:
    """A map from keys to values."""

    key: DataType
    value: DataType
    value_contains_null: bool = True


@dataclass(frozen=True, slots=True)
class Field:
    """A column or a field of a struct. `metadata` is kept as the log has it."""

    name: str
    type: DataType
    nullable: bool = True
    metadata: JsonObject = field(default_factory=dict)

    @property
    def physical_name(self) -> str:
        """The name in data files, statistics and partition values."""
        name = self.metadata.get(PHYSICAL_NAME)
        return name if isinstance(name, str) else self.name

    @property
    def column_id(self) -> int | None:
        """The field id in data files, where columns are mapped; None if the field has none."""
        value = self.metadata.get(COLUMN_ID)
        return value if isinstance(value, int) else None


@dataclass(frozen=True, slots=True)
class Struct:
    """Named fields in order. A table's schema is a Struct."""

    fields: tuple[Field, ...]

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    @property
    def names(self) -> tuple[str, ...]:
        """The fields' logical names, in order."""
        return tuple(item.name for item in self.fields)

    def find(self, name: str) -> Field | None:
        """Return the field of that name, or None; letter case doesn't count, but an exact match
        comes first.
        """
        folded = [item for item in self.fields if item.name.lower() == name.lower()]
        return next((item for item in folded if item.name == name), folded[0] if folded else None)

    def resolve(self, path: tuple[str, ...]) -> Field | None:
        """Return the field at a path of names through structs; None when it doesn't exist."""
        found = self.find(path[0]) if path else None
        if found is None or len(path) == 1:
            return found
        return found.type.resolve(path[1:]) if isinstance(found.type, Struct) else None


DataType: TypeAlias = Primitive | Struct | Array | Map


def leaf_types(data_type: DataType) -> Iterator[Primitive]:
    """Yield the primitive types inside a type, or the type itself."""
    match data_type:
        case Struct(fields):
            for item in fields:
                yield from leaf_types(item.type)
        case Array(element, _):
            yield from leaf_types(element)
        case Map(key, value, _):
            yield from leaf_types(key)
            yield from leaf_types(value)
        case Primitive():
            yield data_type


def has_variant(schema: Struct) -> bool:
    """Return whether a column is a variant, or contains one."""
    return any(leaf.name == "variant" for leaf in leaf_types(schema))


def parse_schema(schema_string: str | None, *, file: str = "metaData") -> Struct:
    """Return the schema from its JSON text; no text is an empty schema.

    Raises CorruptTable naming `file` when the text is no schema, is nested more than 100 deep, or
    has a decimal of more than 38 digits.
    """
    if not schema_string:
        return Struct(())
    try:
        parsed = type_from_json(json.loads(schema_string))
        _require_bounded(parsed)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptTable(f"{file}: schemaString is not a Delta schema: {error}") from error
    if not isinstance(parsed, Struct):
        raise CorruptTable(f"{file}: schemaString: expected a struct, found {schema_string[:80]}")
    return parsed


def _require_bounded(data_type: DataType) -> None:
    """Raise ValueError for a type nested too deeply to process, and for decimals of more than 38
    digits.
    """
    layer: list[DataType] = [data_type]
    for _ in range(_DEPTH_MAX):
        layer = [inner for outer in layer for inner in _parts(outer)]
        if not layer:
            return
    raise ValueError(f"a type is nested more than {_DEPTH_MAX} deep")


def _parts(data_type: DataType) -> tuple[DataType, ...]:
    """Return the types directly inside a type.

    Raises ValueError for a decimal's impossible precision.
    """
    match data_type:
        case Primitive():
            precision, _ = data_type.decimal or (1, 0)
            if not 1 <= precision <= 38:
                raise ValueError(f"a decimal has 1 to 38 digits, found {data_type.name[:80]}")
            return ()
        case Struct(fields):
            return tuple(item.type for item in fields)
        case Array(element, _):
            return (element,)
        case Map(key, value, _):
            return (key, value)


def type_from_json(value: Json) -> DataType:
    """Return the type from its JSON form (text or object).

    A user-defined type gives the type that stores it. Any text is a primitive type. Raises
    ValueError, KeyError or TypeError.
    """
    if isinstance(value, str):
        return Primitive("timestamp_ntz" if value == "timestampNtz" else value)
    if not isinstance(value, dict):
        raise TypeError(f"expected a type, found {reprlib.repr(value)}")
    kind = value["type"]
    if kind == "struct":
        return Struct(tuple(_field_from_json(item) for item in value["fields"]))
    if kind == "array":
        return Array(type_from_json(value["elementType"]), bool(value.get("containsNull", True)))
    if kind == "map":
        nullable = bool(value.get("valueContainsNull", True))
        return Map(type_from_json(value["keyType"]), type_from_json(value["valueType"]), nullable)
    if kind == "udt":
        return type_from_json(value["sqlType"])
    raise ValueError(f"unknown type {reprlib.repr(kind)}")


def _field_from_json(value: dict[str, Json]) -> Field:
    """Return the field from its JSON object, nullable by default. Raises as `type_from_json`."""
    metadata, name = value.get("metadata"), value["name"]
    if not isinstance(name, str):
        raise TypeError(f"expected a field's name, found {reprlib.repr(name)}")
    return Field(
        name,
        type_from_json(value["type"]),
        bool(value.get("nullable", True)),
        metadata if isinstance(metadata, dict) else {},
    )


def type_to_json(data_type: DataType) -> Json:
    """Return the type's JSON form, as `schemaString` holds it."""
    match data_type:
        case Primitive(name):
            return name
        case Array(element, contains_null):
            return {
                "type": "array",
                "elementType": type_to_json(element),
                "containsNull": contains_null,
            }
        case Map(key, value, value_contains_null):
            return {
                "type": "map",
                "keyType": type_to_json(key),
                "valueType": type_to_json(value),
                "valueContainsNull": value_contains_null,
            }
        case Struct(fields):
            return {"type": "struct", "fields": [_field_to_json(item) for item in fields]}


def _field_to_json(item: Field) -> Json:
    """Return the field's JSON object, as `schemaString` holds it."""
    return {
        "name": item.name,
        "type": type_to_json(item.type),
        "nullable": item.nullable,
        "metadata": item.metadata,
    }


def schema_to_string(schema: Struct) -> str:
    """Return the schema as the text of `schemaString`."""
    return json.dumps(type_to_json(schema), separators=(",", ":"), ensure_ascii=False)


def to_arrow_type(data_type: DataType, *, physical: bool = False) -> pa.DataType:
    """Return the Arrow type of a Delta type; struct fields by logical or by physical name.

    Geometry and geography are binary, the well-known binary form in which files hold them. Raises
    ValueError for an unknown type.
    """
    match data_type:
        case Primitive(name):
            decimal = data_type.decimal
            if decimal is not None:
                return pa.decimal128(*decimal)
            if data_type.is_string:
                return pa.string()
            if name.startswith(("geometry", "geography")):
                return pa.binary()
            if name not in _ARROW_PRIMITIVES:
                raise ValueError(f"type {name!r} has no Arrow form")
            return _ARROW_PRIMITIVES[name]
        case Array(element, contains_null):
            inner = to_arrow_type(element, physical=physical)
            return pa.list_(pa.field("element", inner, contains_null))
        case Map(key, value, value_contains_null):
            values = pa.field("value", to_arrow_type(value, physical=physical), value_contains_null)
            return pa.map_(to_arrow_type(key, physical=physical), values)
        case Struct(fields):
            return pa.struct([to_arrow_field(item, physical=physical) for item in fields])


def to_arrow_field(item: Field, *, physical: bool = False) -> pa.Field:
    """Return the Arrow field of a column, with its logical name or its `physical` one."""
    name = item.physical_name if physical else item.name
    return pa.field(name, to_arrow_type(item.type, physical=physical), item.nullable)


def to_arrow_schema(schema: Struct, *, physical: bool = False) -> pa.Schema:
    """Return the Arrow schema of a table; columns by logical or by physical name."""
    return pa.schema([to_arrow_field(item, physical=physical) for item in schema])


def from_arrow_type(data_type: pa.DataType) -> DataType:
    """Return the Delta type that holds an Arrow type's values.

    Raises ValueError when there is none.
    """
    t = pa.types
    if t.is_dictionary(data_type):
        return from_arrow_type(data_type.value_type)
    if t.is_decimal(data_type) and 0 <= data_type.scale <= data_type.precision <= 38:
        return Primitive(f"decimal({data_type.precision},{data_type.scale})")
    if t.is_timestamp(data_type):
        return Primitive("timestamp_ntz" if data_type.tz is None else "timestamp")
    if t.is_struct(data_type):
        members = (data_type.field(i) for i in range(data_type.num_fields))
        return Struct(tuple(from_arrow_field(member) for member in members))
    if t.is_list(data_type) or t.is_large_list(data_type) or t.is_fixed_size_list(data_type):
        element = data_type.value_field
        return Array(from_arrow_type(element.type), element.nullable)
    if t.is_map(data_type):
        key, item = from_arrow_type(data_type.key_type), from_arrow_type(data_type.item_type)
        return Map(key, item, data_type.item_field.nullable)
    for is_type, name in _FROM_ARROW:
        if is_type(data_type):
            return Primitive(name)
    raise ValueError(f"Arrow type {data_type} has no Delta form")


_FROM_ARROW = (
    (pa.types.is_string, "string"),
    (pa.types.is_large_string, "string"),
    (pa.types.is_string_view, "string"),
    (pa.types.is_int64, "long"),
    (pa.types.is_int32, "integer"),
    (pa.types.is_int16, "short"),
    (pa.types.is_int8, "byte"),
    (pa.types.is_uint8, "short"),
    (pa.types.is_uint16, "integer"),
    (pa.types.is_uint32, "long"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float16, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_date, "date"),
    (pa.types.is_binary, "binary"),
    (pa.types.is_large_binary, "binary"),
    (pa.types.is_fixed_size_binary, "binary"),
    (pa.types.is_null, "void"),
)


def from_arrow_field(item: pa.Field) -> Field:
    """Return the Delta field of an Arrow field."""
    return Field(item.name, from_arrow_type(item.type), item.nullable)


def from_arrow_schema(schema: pa.Schema) -> Struct:
    """Return the Delta schema that holds an Arrow schema's tables. Raises ValueError when there is
    none.
    """
    return Struct(tuple(from_arrow_field(item) for item in schema))
