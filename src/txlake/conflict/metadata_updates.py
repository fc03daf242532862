"""A change of a table's metadata as updates, each with the parts that must be unchanged.

A change follows a winner's change if everything that its updates require is unchanged: the updates
are then applied to the winner's metadata. Parts that aren't known to be independent require the
most. Source: docs/how-a-commit-works.md, rule 2; requirements and updates are an idea of
Apache Iceberg's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import assert_never

import msgspec

from txlake.errors import CorruptTable
from txlake.protocol.actions import Metadata
from txlake.protocol.column_mapping import all_fields
from txlake.protocol.identity import marks_of, metadata_with_marks, without_marks
from txlake.protocol.properties import CONSTRAINT_PREFIX, KEY_PREFIX
from txlake.protocol.type_text import CHAR_VARCHAR_TYPE, COMMENT
from txlake.protocol.types import (
    Field,
    Struct,
    parse_schema,
    schema_to_string,
)

# Delta's and txlake's properties that mean the same beside any schema, constraint and property.
_INDEPENDENT = frozenset(
    {
        "delta.appendOnly",
        "delta.autoOptimize",
        "delta.autoOptimize.autoCompact",
        "delta.autoOptimize.optimizeWrite",
        "delta.checkpoint.writeStatsAsJson",
        "delta.checkpoint.writeStatsAsStruct",
        "delta.checkpointInterval",
        "delta.checkpointRetentionDuration",
        "delta.deletedFileRetentionDuration",
        "delta.enableExpiredLogCleanup",
        "delta.isolationLevel",
        "delta.logRetentionDuration",
        "delta.parquet.compression.codec",
        "delta.setTransactionRetentionDuration",
        "delta.targetFileSize",
        "delta.tuneFileSizesForRewrites",
        "txlake.conflictGranularity",
    }
)
# What a column says of itself that no value and no other part of the table depends on.
_DESCRIBING = frozenset({COMMENT, "CURRENT_DEFAULT"})
# What a new column may say and still be independent of the others.
_PLAIN = frozenset({COMMENT, CHAR_VARCHAR_TYPE})


class Part(Enum):
    """A part of a table's definition. By value: in words."""

    COMMENT = "the table's comment"
    PROPERTY = "property"
    COLUMN = "column"
    VALUES = "the values of column"  # the column without its comment and default
    SCHEMA = "the columns"
    RULE = "constraint"  # CHECK constraints and keys have names in common
    RULES = "the constraints"
    LAYOUT = "the properties that files and columns depend on"


@dataclass(frozen=True, slots=True)
class Requirement:
    """A part that must be as it was read; `name` tells parts of one kind apart."""

    part: Part
    name: str
    value: object

    def __str__(self) -> str:
        return f"{self.part.value} {self.name}".rstrip()


@dataclass(frozen=True, slots=True)
class Update:
    """A new value of a part, and what it requires; None as the value removes the part."""

    part: Part
    name: str
    value: object
    requires: tuple[Requirement, ...]


@dataclass(frozen=True, slots=True)
class Clash:
    """The reason why a change can't follow another: the part that the other changed, in words."""

    part: str


@dataclass(frozen=True, slots=True)
class _Definition:
    """Metadata with its schema parsed, without marks of identity columns."""

    metadata: Metadata
    schema: Struct

    @classmethod
    def of(cls, metadata: Metadata) -> _Definition:
        return cls(metadata, without_marks(parse_schema(metadata.schema_string)))

    @property
    def rest(self) -> Metadata:
        """The metadata that no update changes."""
        return msgspec.structs.replace(
            self.metadata, schema_string=None, configuration={}, description=None
        )

    def is_same(self, other: _Definition) -> bool:
        """Return whether the two are equal, apart from the marks of identity columns."""
        return (
            self.rest == other.rest
            and self.schema == other.schema
            and self.metadata.configuration == other.metadata.configuration
            and self.metadata.description == other.metadata.description
        )

    def read(self, part: Part, name: str = "") -> object:
        """Return the part's value; None if it doesn't exist."""
        properties = self.metadata.configuration
        match part:
            case Part.COMMENT:
                return self.metadata.description
            case Part.PROPERTY:
                return properties.get(name)
            case Part.COLUMN:
                return self.schema.find(name)
            case Part.VALUES:
                found = self.schema.find(name)
                return None if found is None else _undescribed(found)
            case Part.SCHEMA:
                return self.schema
            case Part.RULE:
                return {key: properties[key] for key in properties if _rule_name(key) == name}
            case Part.RULES:
                return {key: properties[key] for key in properties if _rule_name(key) is not None}
            case Part.LAYOUT:
                return {key: properties[key] for key in properties if _is_layout(key)}
            case _:
                assert_never(part)

    def require(self, part: Part, name: str = "") -> Requirement:
        return Requirement(part, name, self.read(part, name))

    def updated(self, update: Update) -> _Definition:
        """Return the definition after the update, whose requirements are met.

        Raises AssertionError for a part that is only ever required.
        """
        match update.part, update.value:
            case Part.COMMENT, str() | None as text:
                return replace(
                    self, metadata=msgspec.structs.replace(self.metadata, description=text)
                )
            case Part.PROPERTY, str() | None as text:
                kept = {k: v for k, v in self.metadata.configuration.items() if k != update.name}
                properties = kept if text is None else {**kept, update.name: text}
                return replace(
                    self, metadata=msgspec.structs.replace(self.metadata, configuration=properties)
                )
            case Part.COLUMN, Field() as column:
                return replace(self, schema=_with_column(self.schema, column))
            case Part.SCHEMA, Struct() as schema:
                return replace(self, schema=schema)
            case _:
                raise AssertionError(f"{update.part} is only ever required")


def updates_between(before: Metadata, after: Metadata) -> tuple[Update, ...] | None:
    """Return the updates from one metadata to another; None if updates can't express the change.

    Ignores marks of identity columns. Raises CorruptTable for a schema that can't be read.
    """
    old, new = _Definition.of(before), _Definition.of(after)
    if old.rest != new.rest:
        return None
    return (*_of_comment(old, new), *_of_properties(old, new), *_of_schema(old, new))


def rebase_metadata(
    ours: Metadata, base: Metadata, theirs: Metadata, table: str
) -> Metadata | Clash:
    """Return the metadata that a transaction made from `base`, made again from a winner's
    (`theirs`).

    A `Clash` if something that the change requires isn't as in `base` any more, or a schema can't
    be read. If the winner moved only marks of identity columns, every change of the same table
    follows it.
    """
    try:
        read, came, mine = (_Definition.of(one) for one in (base, theirs, ours))
        updates = updates_between(base, ours)
    except CorruptTable:
        return Clash("the schema, to one that can't be read")
    if ours.id != base.id:
        return Clash("the table, which this transaction replaces,")
    if came.is_same(read):
        return _with_marks(mine, ours, theirs, table)
    if updates is None or came.rest != read.rest:
        return Clash("the table's partition columns, name or format, or the definition as a whole")
    for update in updates:
        for requirement in update.requires:
            if came.read(requirement.part, requirement.name) != requirement.value:
                return Clash(str(requirement))
    for update in updates:
        came = came.updated(update)
    return _with_marks(came, ours, theirs, table)


def _with_marks(
    merged: _Definition, ours: Metadata, theirs: Metadata, table: str
) -> Metadata | Clash:
    """Return the definition as metadata, with the marks of both; a `Clash` if they can't be read.

    The schema keeps the text of whichever of the two has the same schema.
    """
    texts = (
        one.schema_string for one in (ours, theirs) if _Definition.of(one).schema == merged.schema
    )
    text = next(texts, None) or schema_to_string(merged.schema)
    found = msgspec.structs.replace(merged.metadata, schema_string=text)
    try:
        for one in (ours, theirs):
            marks = marks_of(parse_schema(one.schema_string), table)
            found = metadata_with_marks(found, marks, table)
    except CorruptTable:
        return Clash("an identity column, to one that can't be followed")
    return found


def _of_comment(old: _Definition, new: _Definition) -> Iterator[Update]:
    """Yield the update of the table's comment, if it changed."""
    text = new.metadata.description
    if text != old.metadata.description:
        yield Update(Part.COMMENT, "", text, (old.require(Part.COMMENT),))


def _of_properties(old: _Definition, new: _Definition) -> Iterator[Update]:
    """Yield the updates of changed, new and removed properties, by name."""
    before, after = old.metadata.configuration, new.metadata.configuration
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            requires = (old.require(Part.PROPERTY, key), *_required_by(key, after.get(key), old))
            yield Update(Part.PROPERTY, key, after.get(key), requires)


def _required_by(key: str, value: str | None, old: _Definition) -> Iterator[Requirement]:
    """Yield what a change of the property `key` to `value` requires besides the property itself.

    Nothing for independent properties and for the removal of a CHECK constraint.
    """
    rule = _rule_name(key)
    if rule is None and not _is_layout(key):
        return
    if rule is None or key.lower().startswith(KEY_PREFIX):
        yield from map(old.require, (Part.LAYOUT, Part.RULES, Part.SCHEMA))
    elif value is not None:  # a condition over any of the columns
        yield old.require(Part.RULE, rule)
        for column in old.schema:
            yield old.require(Part.VALUES, column.name)


def _of_schema(old: _Definition, new: _Definition) -> Iterator[Update]:
    """Yield the updates of the columns: one for each described anew or added at the end, where
    nothing but comments and defaults of the others differs; else one of the whole schema.
    """
    count = len(old.schema.fields)
    kept, added = new.schema.fields[:count], new.schema.fields[count:]
    same = tuple(map(_undescribed, kept)) == tuple(map(_undescribed, old.schema))
    if not (same and all(map(_is_plain, added))):
        requires = tuple(map(old.require, (Part.SCHEMA, Part.LAYOUT, Part.RULES)))
        yield Update(Part.SCHEMA, "", new.schema, requires)
        return
    for before, after in zip(old.schema, kept, strict=True):
        if before != after:
            yield Update(Part.COLUMN, after.name, after, (old.require(Part.COLUMN, after.name),))
    for column in added:
        requires = (old.require(Part.COLUMN, column.name), old.require(Part.LAYOUT))
        yield Update(Part.COLUMN, column.name, column, requires)


def _with_column(schema: Struct, column: Field) -> Struct:
    """Return the schema with the column in the place of that of its name, or at the end."""
    found = schema.find(column.name)
    if found is None:
        return Struct((*schema, column))
    return Struct(tuple(column if item is found else item for item in schema))


def _undescribed(item: Field) -> Field:
    kept = {key: value for key, value in item.metadata.items() if key not in _DESCRIBING}
    return replace(item, metadata=kept)


def _is_plain(column: Field) -> bool:
    """Return whether a column is nullable, without expression, identity and collation.

    The same has to hold for its nested fields.
    """
    fields = all_fields(Struct((column,)))
    return all(item.nullable and item.metadata.keys() <= _PLAIN for item in fields)


def _rule_name(key: str) -> str | None:
    """Return the name of the constraint or key in a property; None for another property."""
    folded = key.lower()
    prefixes = (CONSTRAINT_PREFIX, KEY_PREFIX)
    return next((folded[len(one) :] for one in prefixes if folded.startswith(one)), None)


def _is_layout(key: str) -> bool:
    """Return whether a property may mean something to files, columns or other properties."""
    is_ours = key.lower().startswith(("delta.", "txlake."))
    return is_ours and key not in _INDEPENDENT and _rule_name(key) is None
