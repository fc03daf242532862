"""Column definitions of statements as fields of a table's schema."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol, cast

from txlake.ddl.environment import Environment
from txlake.ddl.stored_expressions import (
    CURRENT_DEFAULT,
    GENERATION,
    check_default,
    check_generation,
)
from txlake.errors import InvalidRequest
from txlake.protocol.column_mapping import all_fields
from txlake.protocol.identity import ALLOWS_EXPLICIT, LONG_MAX, LONG_MIN, START, STEP
from txlake.protocol.schema_rules import check_duplicates, column_text
from txlake.protocol.type_text import COMMENT, parse_type, short_text, stored_field
from txlake.protocol.type_widening import is_widening, same_primitive
from txlake.protocol.types import (
    Array,
    DataType,
    Field,
    Map,
    Primitive,
    Struct,
    type_from_json,
)
from txlake.sql.statements import ColumnSpec, Identity, NativeType


class _HasJson(Protocol):
    def json(self) -> str: ...


def resolve_type(data_type: str | NativeType) -> DataType:
    """Return a statement's column type, char and varchar as declared.

    Raises InvalidRequest for a text or object that is no type, and for a text that names a type
    that Delta tables can't hold; UnsupportedFeature for a collation, a geometry or a geography as
    text.
    """
    if isinstance(data_type, str):
        return parse_type(data_type)
    try:
        return type_from_json(json.loads(cast(_HasJson, data_type.data_type).json()))
    except (AttributeError, ValueError, KeyError, TypeError) as error:
        raise InvalidRequest(
            f"expected a type as DDL text or as PySpark's DataType, found {data_type.data_type!r}"
        ) from error


def field_of_spec(spec: ColumnSpec) -> Field:
    """Return the field of a column definition, as the log has it, without column mapping.

    Raises as `resolve_type`, and InvalidRequest for an invalid default or identity, more than one
    of default, generation expression and identity, and NOT NULL inside of an array or map. The
    generation expression isn't checked.
    """
    metadata: dict[str, object] = {}
    if spec.comment is not None:
        metadata[COMMENT] = spec.comment
    if spec.generated is not None:
        if spec.default is not None:
            raise InvalidRequest(f"column {spec.name}: it can't be generated and have a default")
        metadata[GENERATION] = spec.generated
    if spec.default is not None:
        check_default(spec.name, spec.default)
        metadata[CURRENT_DEFAULT] = spec.default
    data_type = resolve_type(spec.data_type)
    if spec.identity is not None:
        if spec.default is not None or spec.generated is not None:
            raise InvalidRequest(
                f"column {spec.name}: an identity column has neither a default nor an expression"
            )
        metadata.update(identity_metadata(spec.name, data_type, spec.identity))
    column = Field(spec.name, data_type, spec.nullable, metadata)
    _check_nested_not_null(column.type, (spec.name,))
    return stored_field(column)


def identity_metadata(name: str, data_type: DataType, identity: Identity) -> Mapping[str, object]:
    """Return the schema metadata of an identity column: start, step, whether values may be given.

    Raises InvalidRequest for a type other than BIGINT, a step of 0, and a number beyond BIGINT.
    Source: PROTOCOL.md, "Identity Columns".
    """
    if data_type != Primitive("long"):
        raise InvalidRequest(
            "[DELTA_IDENTITY_COLUMNS_UNSUPPORTED_DATA_TYPE] "
            f"column {name}: an identity column's type must be BIGINT, found "
            f"{short_text(data_type)}"
        )
    if identity.step == 0:
        raise InvalidRequest(
            f"[DELTA_IDENTITY_COLUMNS_ILLEGAL_STEP] column {name}: an identity's step (INCREMENT "
            "BY) can't be 0"
        )
    for clause, value in (("START WITH", identity.start), ("INCREMENT BY", identity.step)):
        if not LONG_MIN <= value <= LONG_MAX:
            raise InvalidRequest(
                f"column {name}: {clause} must be a BIGINT, from {LONG_MIN} to {LONG_MAX}; found "
                f"{value}"
            )
    return {START: identity.start, STEP: identity.step, ALLOWS_EXPLICIT: not identity.always}


def schema_of_specs(specs: Iterable[ColumnSpec], environment: Environment) -> Struct:
    """Return a new table's schema, its generation expressions and defaults checked.

    Their types are only checked where the environment knows types. Raises InvalidRequest naming the
    column, or UnsupportedFeature.
    """
    schema = Struct(tuple(field_of_spec(spec) for spec in specs))
    check_duplicates(schema, "the statement")
    plain = Struct(tuple(item for item in schema if GENERATION not in item.metadata))
    for item in schema:
        generation = item.metadata.get(GENERATION)
        if isinstance(generation, str):
            check_generation(item, generation, schema)
            _check_generated_type(item, generation, plain, environment)
        default = item.metadata.get(CURRENT_DEFAULT)
        if isinstance(default, str):
            check_default_type(item, default, environment)
    return schema


def check_default_type(item: Field, text: str, environment: Environment) -> None:
    """Check that a default's value fits its column. Raises InvalidRequest naming both types.

    Checks nothing if the environment knows no types.
    """
    if environment.type_of is None:
        return
    default_type = environment.type_of(text, Struct(()))
    if not _fits(default_type, item.type):
        raise InvalidRequest(
            f"column {column_text((item.name,))} has type {short_text(item.type)}, its default "
            f"{text} has type {short_text(default_type)}; cast it"
        )


def _check_generated_type(item: Field, text: str, plain: Struct, environment: Environment) -> None:
    """Raise InvalidRequest unless a generated column's expression has the column's type.

    `plain`: the columns that aren't generated. Checks nothing if the environment knows no types.
    """
    if environment.type_of is None:
        return
    expression_type = environment.type_of(text, plain)
    if not same_type(expression_type, item.type):
        raise InvalidRequest(
            f"generated column {column_text((item.name,))} has type {short_text(item.type)}, its "
            f"expression {text} has type {short_text(expression_type)}; cast it"
        )


def _fits(literal: DataType, column: DataType) -> bool:
    """Return whether Spark stores a literal of one type in a column of the other without a cast.

    Any number fits any number, a date or timestamp any other, any simple type a string, and NULL
    all types. Of nested types only the kind has to be equal.
    """
    if same_type(literal, column) or literal == Primitive("void"):
        return True
    if not (isinstance(literal, Primitive) and isinstance(column, Primitive)):
        return type(literal) is type(column)
    numbers = ("byte", "short", "integer", "long", "float", "double")
    is_number = literal.name in numbers or literal.decimal is not None
    takes_number = column.name in numbers or column.decimal is not None
    times = ("date", "timestamp", "timestamp_ntz")
    return (
        is_widening(literal, column)
        or (is_number and takes_number)
        or (literal.name in times and column.name in times)
        or column.is_string
    )


def same_type(first: DataType, second: DataType) -> bool:
    """Return whether two types are equal but for nullability, metadata and letter case of names.

    String types are all equal, whatever their collation or length.
    """
    match first, second:
        case Primitive(), Primitive():
            return same_primitive(first, second) or (first.is_string and second.is_string)
        case Array(), Array():
            return same_type(first.element, second.element)
        case Map(), Map():
            return same_type(first.key, second.key) and same_type(first.value, second.value)
        case Struct(), Struct():
            return len(first.fields) == len(second.fields) and all(
                a.name.lower() == b.name.lower() and same_type(a.type, b.type)
                for a, b in zip(first, second, strict=True)
            )
        case _:
            return False


def _check_nested_not_null(data_type: DataType, path: tuple[str, ...]) -> None:
    """Raise InvalidRequest if a field inside of an array or a map is NOT NULL."""
    match data_type:
        case Struct(fields):
            for item in fields:
                _check_nested_not_null(item.type, (*path, item.name))
        case Array(element, _):
            _refuse_not_null(element, path)
        case Map(key, value, _):
            _refuse_not_null(key, path)
            _refuse_not_null(value, path)
        case Primitive():
            pass


def _refuse_not_null(data_type: DataType, path: tuple[str, ...]) -> None:
    """Raise InvalidRequest if a field of the type, at any depth, is NOT NULL."""
    for item in all_fields(data_type):
        if not item.nullable:
            raise InvalidRequest(
                f"column {column_text(path)}: field {item.name} inside of an array or a map can't "
                "be NOT NULL; leave it out"
            )


def with_comment(item: Field, comment: str) -> Field:
    """Return the field with this comment in place of its own."""
    return replace(item, metadata={**item.metadata, COMMENT: comment})
