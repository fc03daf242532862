"""Which types values convert between, and the types of columns in data files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from txlake.protocol.collations import COLLATIONS, collation_of
from txlake.protocol.column_mapping import nested_ids
from txlake.protocol.type_text import short_text
from txlake.protocol.types import (
    Array,
    DataType,
    Field,
    Map,
    Primitive,
    Struct,
    to_arrow_type,
    type_to_json,
)

_HIDDEN_METADATA = (
    "delta.",
    "CURRENT_DEFAULT",
    "EXISTS_DEFAULT",
    "__CHAR_VARCHAR",
    "parquet.",
    COLLATIONS,
)


_NUMERIC_RANK = {"byte": 0, "short": 1, "integer": 2, "long": 3, "float": 5, "double": 6}


_INTEGER_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}


_FLOATS = frozenset({"float", "double"})


_DATETIMES = frozenset({"date", "timestamp", "timestamp_ntz"})


_READ_FROM_TEXT = _DATETIMES | {"boolean", "binary"}


def parquet_field(item: Field) -> pa.Field:
    """Return a column's Arrow field in data files: physical names, ids if columns are mapped.

    All of it is nullable but the keys of maps: the log's schema says what may be null.
    """
    inner = _parquet_type(item.type, item.physical_name, nested_ids(item))
    return pa.field(item.physical_name, inner, True, _with_id(item.column_id))


def _with_id(identity: int | None) -> dict[str, str] | None:
    return None if identity is None else {"PARQUET:field_id": str(identity)}


def _parquet_type(data_type: DataType, path: str, ids: Mapping[str, int]) -> pa.DataType:
    """Return the Arrow type of data files; `path` is the physical one to the type.

    `ids`: the field ids of elements, keys and values of lists and maps, by their path.
    """

    def part(name: str, inner: DataType, *, nullable: bool = True) -> pa.Field:
        """Return the field of an element, key or value, with its id if the table maps columns."""
        place = f"{path}.{name}"
        found = _parquet_type(inner, place, ids)
        return pa.field(name, found, nullable, _with_id(ids.get(place)))

    match data_type:
        case Struct(fields):
            return pa.struct([parquet_field(item) for item in fields])
        case Array(element, _):
            return pa.list_(part("element", element))
        case Map(key, value, _):
            return pa.map_(part("key", key, nullable=False), part("value", value))
        case _:
            return to_arrow_type(data_type)


def visible_metadata(item: Field) -> dict[str, object]:
    """Return a column's metadata without the keys of Delta, Parquet (field ids), defaults, CHAR
    lengths and collations.
    """
    return {
        key: value for key, value in item.metadata.items() if not key.startswith(_HIDDEN_METADATA)
    }


def same_type(left: DataType, right: DataType) -> bool:
    """Return whether values need no conversion: equal types but for nullability and string lengths.

    Structs need the same field names in the same order and letter case.
    """
    match left, right:
        case Primitive(), Primitive():
            return _meaning(left) == _meaning(right)
        case Array(one, _), Array(other, _):
            return same_type(one, other)
        case Map(key, value, _), Map(other_key, other_value, _):
            return same_type(key, other_key) and same_type(value, other_value)
        case Struct(fields), Struct(others):
            return len(fields) == len(others) and all(
                one.name == other.name and same_type(one.type, other.type)
                for one, other in zip(fields, others, strict=True)
            )
        case _:
            return False


def _meaning(primitive: Primitive) -> tuple[object, ...]:
    """Return what two types have in common if Spark doesn't convert between them; only compared.

    The lengths of CHAR and VARCHAR don't count, collations do; geometries are bytes.
    """
    if primitive.is_string:
        return "string", collation_of(primitive)
    if primitive.decimal is not None:
        return "decimal", *primitive.decimal
    if primitive.name.startswith(("geometry", "geography")):
        return ("binary",)
    return (primitive.name,)


def can_store(source: DataType, target: DataType) -> bool:
    """Return whether ANSI store assignment lets a source's values into a target column.

    Numbers go to numbers (overflow fails at run time), anything simple but bytes goes to text,
    dates and timestamps to each other; for text see `reads_text`. Structs go by name: the target
    may have more fields, nullability doesn't count. Source: Spark, "Store Assignment".
    """
    match source, target:
        case Primitive("void"), _:
            return True
        case Primitive(), Primitive():
            return _can_store_primitive(source, target)
        case Array(one, _), Array(other, _):
            return can_store(one, other)
        case Map(key, value, _), Map(other_key, other_value, _):
            return can_store(key, other_key) and can_store(value, other_value)
        case Struct(fields), Struct():
            return all(
                (wanted := target.find(item.name)) is not None and can_store(item.type, wanted.type)
                for item in fields
            )
        case _:
            return False


def _can_store_primitive(source: Primitive, target: Primitive) -> bool:
    """Return whether ANSI store assignment lets a simple type into another."""
    if _meaning(source) == _meaning(target):
        return True
    if _is_numeric(source) and _is_numeric(target):
        return True
    if target.is_string:
        return source.name != "binary"
    return source.name in _DATETIMES and target.name in _DATETIMES


def can_up_cast(source: DataType, target: DataType) -> bool:
    """Return whether every value of the source has an equal one in the target, by Spark's rule.

    Structs go by position, and nulls need a nullable target. Source: Spark, `UpCastRule`, by which
    the policy STRICT of store assignment goes.
    """
    match source, target:
        case Primitive("void"), _:
            return True
        case Primitive(), Primitive():
            return source == target or _can_up_cast_primitive(source, target)
        case Array(one, has_nulls), Array(other, takes_nulls):
            return (takes_nulls or not has_nulls) and can_up_cast(one, other)
        case Map(key, value, has_nulls), Map(other_key, other_value, takes_nulls):
            fits = can_up_cast(key, other_key) and can_up_cast(value, other_value)
            return fits and (takes_nulls or not has_nulls)
        case Struct(fields), Struct(others):
            return len(fields) == len(others) and all(
                (other.nullable or not one.nullable) and can_up_cast(one.type, other.type)
                for one, other in zip(fields, others, strict=True)
            )
        case _:
            return False


def _can_up_cast_primitive(source: Primitive, target: Primitive) -> bool:
    """Return whether every value of a simple type has an equal one in the other; text takes any."""
    if target.is_string:
        return True
    if source.name in _DATETIMES and target.name in _DATETIMES:
        return target.name != "date"
    ours, theirs = _as_decimal(source), _as_decimal(target)
    if ours is not None and theirs is not None and (source.decimal or target.decimal):
        return theirs[0] - theirs[1] >= ours[0] - ours[1] and theirs[1] >= ours[1]
    ranks = [_NUMERIC_RANK.get(one.name) for one in (source, target)]
    return None not in ranks and ranks[0] <= ranks[1]  # type: ignore[operator]


def _as_decimal(kind: Primitive) -> tuple[int, int] | None:
    """Return the decimal that holds the type's values, as (precision, scale); None for floats and
    types that aren't numbers.
    """
    digits = {**_INTEGER_DIGITS, "long": 20}.get(kind.name)
    return kind.decimal if digits is None else (digits, 0)


def reads_text(source: DataType, target: DataType) -> bool:
    """Return whether text goes to a number, boolean, date, timestamp or binary column, whose values
    it must spell.

    False inside lists, structs and maps: both types must be simple. Source: Databricks, "SQL data
    type rules", implicit crosscasting.
    """
    match source, target:
        case Primitive(), Primitive() if source.is_string:
            return _is_numeric(target) or target.name in _READ_FROM_TEXT
        case _:
            return False


def is_converted(source: DataType, target: DataType) -> bool:
    """Return whether Delta Spark casts values that ANSI store assignment would refuse.

    Between numbers and booleans, between numbers and timestamps (seconds since 1970), bytes to the
    text that they are in UTF-8, and lists, maps and structs to the text that Spark shows of them.
    Only the types themselves are compared, not types inside of lists, maps and structs. Source:
    Delta Spark's implicit casts, Spark's `canAnsiCast`.
    """
    if not isinstance(target, Primitive):
        return False
    if not isinstance(source, Primitive):
        return target.is_string
    kinds = ("boolean", "timestamp")
    return (
        (_is_numeric(source) and target.name in kinds)
        or (source.name in kinds and _is_numeric(target))
        or (source.name == "binary" and target.is_string)
    )


def _is_numeric(primitive: Primitive) -> bool:
    return primitive.name in _NUMERIC_RANK or primitive.decimal is not None


def with_names(source: DataType, target: DataType) -> DataType:
    """Return the source's type with the target's field names in structs of equal length, by
    position.

    Anything else stays, also where the two types differ.
    """
    match source, target:
        case Struct(fields), Struct(others) if len(fields) == len(others):
            return Struct(
                tuple(
                    replace(item, name=other.name, type=with_names(item.type, other.type))
                    for item, other in zip(fields, others, strict=True)
                )
            )
        case Array(one, contains_null), Array(other_one, _):
            return Array(with_names(one, other_one), contains_null)
        case Map(key, value, contains_null), Map(other_key, other_value, _):
            named = with_names(key, other_key), with_names(value, other_value)
            return Map(*named, contains_null)
        case _:
            return source


def missing_field(
    source: DataType, target: DataType, *, lists: bool = True
) -> tuple[str, ...] | None:
    """Return the path of the first field that the source's structs lack; None if there is none.

    Fields are looked up by name. A path leads through structs: elements of lists and maps add no
    name. Without `lists` structs inside of lists and maps don't count.
    """
    match source, target:
        case Struct(), Struct(fields):
            for wanted in fields:
                found = source.find(wanted.name)
                if found is None:
                    return (wanted.name,)
                inner = missing_field(found.type, wanted.type, lists=lists)
                if inner is not None:
                    return (wanted.name, *inner)
        case Array(one, _), Array(other, _) if lists:
            return missing_field(one, other)
        case Map(key, value, _), Map(other_key, other_value, _) if lists:
            return missing_field(key, other_key) or missing_field(value, other_value)
    return None


def may_overflow(source: DataType, target: DataType) -> bool:
    """Return whether a number of the source's type may be too large for the target's.

    False if one isn't a number, and for a target of float or double, in which the value becomes
    infinite.
    """
    if not isinstance(source, Primitive) or not isinstance(target, Primitive):
        return False
    if not (_is_numeric(source) and _is_numeric(target)):
        return False
    if target.name in _FLOATS or _meaning(source) == _meaning(target):
        return False
    if source.name in _INTEGER_DIGITS and target.name in _INTEGER_DIGITS:
        return _NUMERIC_RANK[source.name] > _NUMERIC_RANK[target.name]
    held = _digits(source, target)
    decimal = target.decimal
    room = _INTEGER_DIGITS[target.name] - 1 if decimal is None else decimal[0] - decimal[1]
    return held is None or held > room


def _digits(source: Primitive, target: Primitive) -> int | None:
    """Return how many digits a value may have before the point, once rounded; None for floats."""
    decimal = source.decimal
    if decimal is None:
        return _INTEGER_DIGITS.get(source.name)
    rounds_up = target.decimal is not None and target.decimal[1] < decimal[1]
    return decimal[0] - decimal[1] + rounds_up


def type_text(data_type: DataType) -> str:
    """Return a type as messages name it: Delta's name of a simple type, SQL-like text of a nested
    one.
    """
    value = type_to_json(data_type)
    return value if isinstance(value, str) else short_text(data_type)


def quote(name: str) -> str:
    """Return a column name in backquotes."""
    return "`" + name.replace("`", "``") + "`"


_TYPE_NAMES = frozenset(
    {
        *("byte", "short", "integer", "long", "float", "double", "boolean", "binary"),
        *("date", "timestamp", "timestamp_ntz"),
    }
)


def is_plain(leaf: Primitive) -> bool:
    """Return whether Parquet has only one encoding of the type, which Spark and pyarrow share."""
    return leaf.name in _TYPE_NAMES or leaf.is_string or leaf.decimal is not None
