"""Metadata changes of a winner that a transaction without metadata changes can adopt.

`metadata_updates` covers transactions that change metadata themselves. Turning a feature on is
harmless if what was written before stays valid with the feature; turning one off never is. Source:
docs/how-a-commit-works.md, rule 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

import msgspec

from txlake.errors import CorruptTable
from txlake.protocol.actions import Metadata, Protocol
from txlake.protocol.column_mapping import MAX_ID_PROPERTY, MODE_PROPERTY
from txlake.protocol.features import supported_features
from txlake.protocol.identity import HIGH_WATER_MARK
from txlake.protocol.mapping_change import mode_of
from txlake.protocol.properties import is_true
from txlake.protocol.types import (
    COLUMN_ID,
    PHYSICAL_NAME,
    Array,
    DataType,
    Field,
    Map,
    Struct,
    parse_schema,
)

_Change: TypeAlias = tuple[str | None, str]  # the value before (None: absent) and after
_Rule: TypeAlias = Callable[[_Change, Mapping[str, str]], bool]


def _is_turned_on(change: _Change, after: Mapping[str, str]) -> bool:
    return change[1].strip().lower() == "true"


def _is_new(change: _Change, after: Mapping[str, str]) -> bool:
    return change[0] is None


def _enables_name_mapping(change: _Change, after: Mapping[str, str]) -> bool:
    return (change[0] or "none").lower() == "none" and change[1].lower() == "name"


def _has_name_mapping(change: _Change, after: Mapping[str, str]) -> bool:
    return after.get(MODE_PROPERTY, "none").lower() == "name"


def _has_row_tracking(change: _Change, after: Mapping[str, str]) -> bool:
    return is_true(after, "delta.enableRowTracking")


def _is_v2(change: _Change, after: Mapping[str, str]) -> bool:
    return change[1].lower() == "v2"


# Property: (the feature that the protocol has to list, what the change has to look like).
_HARMLESS: Mapping[str, tuple[str, _Rule]] = {
    "delta.enableDeletionVectors": ("deletionVectors", _is_turned_on),
    "delta.enableInCommitTimestamps": ("inCommitTimestamp", _is_turned_on),
    "delta.inCommitTimestampEnablementVersion": ("inCommitTimestamp", _is_new),
    "delta.inCommitTimestampEnablementTimestamp": ("inCommitTimestamp", _is_new),
    "delta.checkpointPolicy": ("v2Checkpoint", _is_v2),
    "delta.enableRowTracking": ("rowTracking", _is_turned_on),
    "delta.rowTracking.materializedRowIdColumnName": ("rowTracking", _has_row_tracking),
    "delta.rowTracking.materializedRowCommitVersionColumnName": ("rowTracking", _has_row_tracking),
    MODE_PROPERTY: ("columnMapping", _enables_name_mapping),
    MAX_ID_PROPERTY: ("columnMapping", _has_name_mapping),
}


def is_harmless(
    before: Metadata, after: Metadata, protocol: Protocol, *, moves_marks: bool = False
) -> bool:
    """Return whether a transaction prepared under `before` is surely valid under `after`.

    That is so if only these differ: properties, as `_HARMLESS` allows, high-water marks of identity
    columns, and the ids and physical names of columns, if column mapping by name was turned on and
    physical names equal the names. `protocol` is the protocol in force with `after`.
    `moves_marks`: whether the transaction generated identity values itself, which a winner's new
    high-water mark would conflict with. False for a schema that can't be read.
    """
    if not _same_but_schema_and_configuration(before, after):
        return False
    if not _harmless_configuration(before.configuration, after.configuration, protocol):
        return False
    try:
        old, new = parse_schema(before.schema_string), parse_schema(after.schema_string)
    except CorruptTable:
        return False
    ignored = frozenset[str]() if moves_marks else frozenset({HIGH_WATER_MARK})
    if mode_of(before) == "none" and mode_of(after) == "name":
        ignored |= {COLUMN_ID, PHYSICAL_NAME}
        return _physical_names_equal_names(new) and _without_field_metadata(
            old, ignored
        ) == _without_field_metadata(new, ignored)
    return _without_field_metadata(old, ignored) == _without_field_metadata(new, ignored)


def only_moves_marks(before: Metadata, after: Metadata) -> bool:
    """Return whether the marks of identity columns differ, and nothing else. Raises CorruptTable
    for a schema that can't be read.
    """
    if before == after or before.configuration != after.configuration:
        return False
    if not _same_but_schema_and_configuration(before, after):
        return False
    old, new = parse_schema(before.schema_string), parse_schema(after.schema_string)
    marks = frozenset({HIGH_WATER_MARK})
    return _without_field_metadata(old, marks) == _without_field_metadata(new, marks)


def _same_but_schema_and_configuration(before: Metadata, after: Metadata) -> bool:
    """Return whether the two are equal apart from the schema and the properties."""

    def rest(metadata: Metadata) -> Metadata:
        return msgspec.structs.replace(metadata, schema_string=None, configuration={})

    return rest(before) == rest(after)


def _harmless_configuration(
    before: Mapping[str, str], after: Mapping[str, str], protocol: Protocol
) -> bool:
    """Return whether every changed property is one of `_HARMLESS`, in a change that its rule
    allows, with its feature in the protocol. A removed property never is harmless.
    """
    if before.keys() - after.keys():
        return False
    features = supported_features(protocol)
    for key, value in after.items():
        if before.get(key) == value:
            continue
        feature, judge = _HARMLESS.get(key, ("", _is_new))
        if feature not in features or not judge((before.get(key), value), after):
            return False
    return True


def _without_field_metadata(schema: Struct, ignored: frozenset[str]) -> Struct:
    """Return the schema without the field metadata of these names, at every depth."""
    bare = _type_without_field_metadata(schema, ignored)
    return bare if isinstance(bare, Struct) else schema


def _type_without_field_metadata(data_type: DataType, ignored: frozenset[str]) -> DataType:
    """Return the type without the metadata of these names in the fields of its structs, at every
    depth.
    """
    match data_type:
        case Struct(fields):
            return Struct(tuple(_field_without_metadata(item, ignored) for item in fields))
        case Array(element, contains_null):
            return Array(_type_without_field_metadata(element, ignored), contains_null)
        case Map(key, value, contains_null):
            return Map(
                _type_without_field_metadata(key, ignored),
                _type_without_field_metadata(value, ignored),
                contains_null,
            )
        case _:
            return data_type


def _field_without_metadata(item: Field, ignored: frozenset[str]) -> Field:
    kept = {name: value for name, value in item.metadata.items() if name not in ignored}
    return replace(item, type=_type_without_field_metadata(item.type, ignored), metadata=kept)


def _physical_names_equal_names(data_type: DataType) -> bool:
    """Return whether every field's physical name equals its name, as in files without mapping."""
    match data_type:
        case Struct(fields):
            return all(
                item.physical_name == item.name and _physical_names_equal_names(item.type)
                for item in fields
            )
        case Array(element, _):
            return _physical_names_equal_names(element)
        case Map(key, value, _):
            return _physical_names_equal_names(key) and _physical_names_equal_names(value)
        case _:
            return True
