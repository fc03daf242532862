"""The rules of icebergCompatV2, under which Iceberg's readers can read a table.

Owns the rules for a table's metadata. The rules for files are the writers' (partition columns in
files: `features.materializes_partitions`; ids of lists and maps: `column_mapping`) and
`commit.validation`'s. `txlake.iceberg` writes Iceberg's own metadata. Source: PROTOCOL.md, "Iceberg
Compatibility V2", "Writer Requirements for Type Widening".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from txlake.protocol.actions import Metadata
from txlake.protocol.column_mapping import (
    MODE_PROPERTY,
    all_fields,
    nested_ids,
    nested_keys,
)
from txlake.protocol.properties import is_true
from txlake.protocol.type_widening import TYPE_CHANGES
from txlake.protocol.types import (
    Array,
    DataType,
    Field,
    Map,
    Primitive,
    Struct,
    parse_schema,
    type_from_json,
)

ENABLE = "delta.enableIcebergCompatV2"
_OTHERS = ("delta.enableIcebergCompatV1", "delta.enableIcebergCompatV3")
_VECTORS = "delta.enableDeletionVectors"
_FORMATS = "delta.universalFormat.enabledFormats"
VERSION_TAG: Mapping[str, str] = {"ICEBERG_COMPAT_VERSION": "2"}
"""The tag of Delta Spark's files; its REORG ... UPGRADE UNIFORM rewrites files without it."""

_TYPES = frozenset(
    {
        *("byte", "short", "integer", "long", "float", "double"),
        *("string", "binary", "boolean", "timestamp", "timestamp_ntz", "date"),
    }
)
_INTEGERS = ("byte", "short", "integer", "long")
_CLASS = "DELTA_ICEBERG_COMPAT_VIOLATION"


def is_enabled(metadata: Metadata) -> bool:
    """Return whether the table's property enables the rules."""
    return is_true(metadata.configuration, ENABLE)


def with_required_properties(metadata: Metadata, before: Metadata | None, *, new: bool) -> Metadata:
    """Return the metadata with the properties that Delta Spark sets and removes with the rules.

    A new table's columns are mapped by name, unless a mode is set. Disabling the rules removes
    Iceberg from the formats that other engines maintain for the table.
    """
    configuration = dict(metadata.configuration)
    if is_enabled(metadata) and new:
        configuration.setdefault(MODE_PROPERTY, "name")
    if (
        before is not None
        and is_enabled(before)
        and not is_enabled(metadata)
        and _FORMATS in configuration
    ):
        formats = [one.strip() for one in configuration.pop(_FORMATS).split(",")]
        others = [one for one in formats if one and one.lower() != "iceberg"]
        if others:
            configuration[_FORMATS] = ",".join(others)
    if configuration == metadata.configuration:
        return metadata
    return msgspec.structs.replace(metadata, configuration=configuration)


def maintains_iceberg(metadata: Metadata) -> bool:
    """Return whether the table's versions are published as Iceberg metadata too."""
    formats = metadata.configuration.get(_FORMATS, "")
    return "iceberg" in [one.strip().lower() for one in formats.split(",")]


def uniform_violation(metadata: Metadata) -> str | None:
    """Return why the table can't promise Iceberg's format as its properties do; None if it can."""
    if not maintains_iceberg(metadata):
        return None
    if any(is_true(metadata.configuration, version) for version in (ENABLE, *_OTHERS)):
        return None
    return (
        f"{_FORMATS!r} = {metadata.configuration[_FORMATS]!r} needs {ENABLE!r} = 'true', whose "
        "rules Iceberg's readers rely on; set both [DELTA_UNIVERSAL_FORMAT_VIOLATION]"
    )


def violation(metadata: Metadata, before: Metadata | None = None) -> str | None:
    """Return why metadata that enables the rules can't follow `before`; None if it can.

    The text says what was found, what was expected and what to do.
    """
    schema = parse_schema(metadata.schema_string)
    return next(_violations(metadata, schema, before), None)


def _violations(metadata: Metadata, schema: Struct, before: Metadata | None) -> Iterator[str]:
    """Yield each reason why metadata that enables the rules can't follow `before`."""
    configuration = metadata.configuration
    mode = configuration.get(MODE_PROPERTY, "none").strip().lower()
    if mode not in ("name", "id"):
        yield (
            f"icebergCompatV2 needs mapped columns, found {MODE_PROPERTY!r} = {mode!r}; set it to "
            f"'name' in the same statement [{_CLASS}.WRONG_REQUIRED_TABLE_PROPERTY]"
        )
    for other in _OTHERS:
        if is_true(configuration, other):
            yield (
                f"{ENABLE!r} and {other!r} are both 'true', and only one of them can be; set the "
                f"other to 'false' [{_CLASS}.VERSION_MUTUAL_EXCLUSIVE]"
            )
    if is_true(configuration, _VECTORS):
        yield (
            f"icebergCompatV2 goes without deletion vectors, found {_VECTORS!r} = 'true'; set it "
            "to 'false', and run REORG TABLE ... APPLY (PURGE) where files have some "
            f"[{_CLASS}.DELETION_VECTORS_SHOULD_BE_DISABLED]"
        )
    for path, data_type in _primitives(schema, ""):
        if data_type.name not in _TYPES and data_type.decimal is None:
            yield (
                f"icebergCompatV2: column {path} is of type {data_type.name}, which Iceberg "
                f"hasn't; leave it out, or make it another type [{_CLASS}.UNSUPPORTED_DATA_TYPE]"
            )
    old = () if before is None else before.partition_columns
    if old and tuple(old) != tuple(metadata.partition_columns):
        yield (
            f"icebergCompatV2: a table partitioned by {', '.join(old)} can't become one that is "
            f"partitioned by {', '.join(metadata.partition_columns) or 'nothing'}; drop it and "
            f"make it again [{_CLASS}.REPLACE_TABLE_CHANGE_PARTITION_NAMES]"
        )
    yield from _widened(schema)
    yield from _unnumbered(schema)


def widening_violation(metadata: Metadata, before: Metadata) -> str | None:
    """Return why the new widenings of types break the rules in a table that lists the feature,
    active or not; None if they don't.

    Widenings that `before` has recorded already don't count.
    """
    known = set(_widened(parse_schema(before.schema_string)))
    found = _widened(parse_schema(metadata.schema_string))
    return next((text for text in found if text not in known), None)


def _widened(schema: Struct) -> Iterator[str]:
    """Yield violations of columns whose recorded type changes Iceberg doesn't know."""
    for item in all_fields(schema):
        changes = item.metadata.get(TYPE_CHANGES)
        for change in changes if isinstance(changes, list) else ():
            old, new = (_type_named(change.get(key)) for key in ("fromType", "toType"))
            if not _iceberg_widens(old, new):
                yield (
                    f"icebergCompatV2: column {item.name} was widened from {old.name} to "
                    f"{new.name}, which Iceberg doesn't know; write the rows to a new table "
                    f"[{_CLASS}.UNSUPPORTED_TYPE_WIDENING]"
                )


def _type_named(name: object) -> Primitive:
    found = type_from_json(name)
    return found if isinstance(found, Primitive) else Primitive(str(name))


def _iceberg_widens(old: Primitive, new: Primitive) -> bool:
    """Return whether Iceberg knows the change of type: wider or equal integers, decimals of the
    same scale, float to double; or no change.
    """
    if old.name in _INTEGERS and new.name in _INTEGERS:
        return _INTEGERS.index(old.name) <= _INTEGERS.index(new.name)
    source, target = old.decimal, new.decimal
    if source is not None and target is not None:
        return source[1] == target[1] and source[0] <= target[0]
    return old == new or (old.name, new.name) == ("float", "double")


def _unnumbered(schema: Struct) -> Iterator[str]:
    """Yield violations of columns whose elements, keys or values lack an id, and of shared ids."""
    for item in all_fields(schema):
        lacking = [key for key in nested_keys(item) if key not in nested_ids(item)]
        if lacking:
            yield (
                f"icebergCompatV2: column {item.name} has no ids for {', '.join(lacking)}; "
                f"ALTER TABLE ... SET TBLPROPERTIES ({ENABLE!r} = 'true') gives them"
            )
    ids = Counter(identity for item in all_fields(schema) for identity in _ids(item))
    shared = next((identity for identity, count in ids.items() if count > 1), None)
    if shared is not None:
        yield (
            f"icebergCompatV2: the column id {shared} is given twice; ids of columns, and of what "
            "is inside of lists and maps, must be unique"
        )


def _ids(item: Field) -> Iterator[int]:
    """Yield a column's id and the ids of its elements, keys and values."""
    if item.column_id is not None:
        yield item.column_id
    given = nested_ids(item)
    yield from (given[key] for key in nested_keys(item) if key in given)


def _primitives(data_type: DataType, path: str) -> Iterator[tuple[str, Primitive]]:
    """Yield every primitive type with its logical path, such as `a.element` or `m.value.b`."""
    match data_type:
        case Primitive():
            yield path, data_type
        case Struct(fields):
            for item in fields:
                yield from _primitives(item.type, f"{path}.{item.name}" if path else item.name)
        case Array(element, _):
            yield from _primitives(element, f"{path}.element")
        case Map(key, value, _):
            yield from _primitives(key, f"{path}.key")
            yield from _primitives(value, f"{path}.value")
