"""Column mapping after a change of metadata: which changes are allowed, ids, physical names.

Owns the rule for every way to change metadata. Data files that stay in the table must still be read
by the names and ids under which they were written. Source: PROTOCOL.md, "Column Mapping".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import msgspec

from txlake.errors import InvalidRequest
from txlake.protocol.actions import Metadata
from txlake.protocol.column_mapping import (
    MAX_ID_PROPERTY,
    MODE_PROPERTY,
    NESTED_IDS,
    all_fields,
    assign_column_ids,
    assign_nested_ids,
    effective_schema,
    without_column_ids,
)
from txlake.protocol.properties import is_valid_property
from txlake.protocol.schema_rules import Path, column_text
from txlake.protocol.types import (
    COLUMN_ID,
    PHYSICAL_NAME,
    Array,
    DataType,
    Field,
    Map,
    Struct,
    parse_schema,
    schema_to_string,
)


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """A table's column mapping.

    Attributes:
        mode: `none`, `name` or `id`, as far as the protocol supports it; None for an invalid one.
        metadata: with the schema, and the highest column id so far.
    """

    mode: str | None
    metadata: Metadata


def mode_of(metadata: Metadata) -> str | None:
    """Return the metadata's mapping mode: `none`, `name` or `id`; None for an invalid one."""
    mode = metadata.configuration.get(MODE_PROPERTY, "none")
    return mode.strip().lower() if is_valid_property(MODE_PROPERTY, mode) else None


def schema_by_metadata(metadata: Metadata) -> Struct:
    """Return the schema by the metadata's own mapping mode, whether or not the protocol lets it
    count.

    Raises CorruptTable for an invalid schema.
    """
    return effective_schema(metadata.schema_string, mode_of(metadata) != "none", file="metaData")


def with_mapping(
    metadata: Metadata,
    before: ColumnMapping | None,
    new_id: Callable[[], str],
    *,
    replaces: bool,
    table: str,
) -> Metadata:
    """Return the metadata with an id and a physical name for each column, where it maps columns.

    Existing columns keep theirs; when a table begins to map columns, existing ones keep their names
    in data files. In mode `none` a column has neither. `before` is None for a new table;
    `replaces`: whether all data files are replaced, so that the columns are new ones.

    Raises InvalidRequest for a change after which files couldn't be read.
    """
    mode = mode_of(metadata)
    if before is None or replaces:
        return _of_new_table(metadata, mode, before, new_id)
    if mode == before.mode and _same_columns(metadata, before.metadata):
        return metadata
    if mode is None:
        raise InvalidRequest(
            f"{table}: {MODE_PROPERTY!r} is {metadata.configuration[MODE_PROPERTY]!r}, which "
            "isn't understood; set it to none, name or id before anything else is changed"
        )
    if mode != before.mode:
        _check_change(metadata, mode, before, table)
    if mode == "none":
        return _with_schema(metadata, without_column_ids(parse_schema(metadata.schema_string)))
    if before.mode == mode:
        metadata = _inheriting(metadata, before.metadata, table)
    return _mapped(metadata, before.metadata, new_id, keep_names=before.mode == "none", table=table)


def with_restored_mapping(
    metadata: Metadata, before: Metadata, new_id: Callable[[], str], *, table: str
) -> Metadata:
    """Return metadata restored from an earlier version, with its ids; no id is assigned twice.

    Raises InvalidRequest where columns lack ids and the highest id is unknown.
    """
    if mode_of(metadata) in (None, "none"):
        return _with_highest(metadata, _max_id(before) or 0)
    return _mapped(metadata, before, new_id, keep_names=True, table=table)


def with_nested_ids(metadata: Metadata, *, table: str) -> Metadata:
    """Return the metadata with ids for elements, keys and values, as Iceberg's readers need them.

    Unchanged where columns aren't mapped. Raises InvalidRequest where it isn't known which ids are
    free.
    """
    if mode_of(metadata) in (None, "none"):
        return metadata
    schema = parse_schema(metadata.schema_string)
    before = _max_id(metadata)
    numbered, highest = assign_nested_ids(schema, before or 0)
    if numbered == schema:
        return metadata
    if before is None:
        raise _unknown_ids(metadata, table)
    return msgspec.structs.replace(
        _with_schema(metadata, numbered),
        configuration={**metadata.configuration, MAX_ID_PROPERTY: str(highest)},
    )


def _unknown_ids(before: Metadata, table: str) -> InvalidRequest:
    """Return the error for a highest column id that is no number."""
    return InvalidRequest(
        f"{table}: {MAX_ID_PROPERTY!r}: expected a whole number, found "
        f"{before.configuration[MAX_ID_PROPERTY]!r}: which ids new columns can have isn't "
        "known; write the rows to a new table"
    )


def _same_columns(metadata: Metadata, before: Metadata) -> bool:
    """Return whether schema text and highest id are unchanged."""
    highest = (one.configuration.get(MAX_ID_PROPERTY) for one in (metadata, before))
    return metadata.schema_string == before.schema_string and len(set(highest)) == 1


def _of_new_table(
    metadata: Metadata, mode: str | None, before: ColumnMapping | None, new_id: Callable[[], str]
) -> Metadata:
    """Return the metadata of a table without older files: all columns get ids and names, or with
    mode `none` have neither.

    Ids continue after the highest of `before`, so that none is used twice.
    """
    highest = 0 if before is None else _max_id(before.metadata) or 0
    if mode != "none":
        return _assigned(metadata, highest, new_id, keep_names=False)
    plain = _with_schema(metadata, without_column_ids(parse_schema(metadata.schema_string)))
    return _with_highest(plain, highest)


def _check_change(metadata: Metadata, mode: str, before: ColumnMapping, table: str) -> None:
    """Raise InvalidRequest unless the existing files can be read in the new mode."""
    schema = parse_schema(metadata.schema_string)
    if before.mode is None:
        misfit = next((item for item in all_fields(schema) if not _fits(item, mode)), None)
        if misfit is not None:
            raise InvalidRequest(
                f"{table}: column mapping can't become {mode!r}: column {misfit.name} doesn't say "
                "so, and how the data files name it isn't known; set the mode that they were "
                "written with"
            )
        return
    if (before.mode, mode) != ("none", "name"):
        raise InvalidRequest(
            f"{table}: the column mapping mode can't change from {before.mode!r} to {mode!r}, only "
            "from 'none' to 'name': the data files that are there couldn't be read; write the rows "
            "to a new table, or replace this one"
        )
    old = parse_schema(before.metadata.schema_string)
    for path, item, known in _pairs(schema, old):
        if known is not None and item.physical_name != item.name:
            raise InvalidRequest(
                f"{table}: column {column_text(path)}: expected the name that it has in the data "
                f"files, {item.name!r}, as {PHYSICAL_NAME}, found {item.physical_name!r}; leave it "
                "out, or write the rows to a new table"
            )


def _fits(item: Field, mode: str) -> bool:
    """Return whether a field can be read in the mode as it is: with id and physical name, or in
    mode `none` under its own name.
    """
    if mode == "none":
        return item.physical_name == item.name
    return item.column_id is not None and PHYSICAL_NAME in item.metadata


def _inheriting(metadata: Metadata, before: Metadata, table: str) -> Metadata:
    """Return the metadata with ids and physical names of existing columns copied from `before`.

    Raises InvalidRequest where the metadata gives an existing id or physical name to another
    column.
    """
    schema, old = parse_schema(metadata.schema_string), parse_schema(before.schema_string)
    inherited = _inherited(schema, old)
    assert isinstance(inherited, Struct)
    by_id = {item.column_id: item for item in all_fields(old)}
    by_name = {(*above, item.physical_name): item for above, item in _physical(old)}
    for above, item in _physical(inherited):
        is_named = PHYSICAL_NAME in item.metadata
        same_id = None if item.column_id is None else by_id.get(item.column_id)
        same_name = by_name.get((*above, item.physical_name)) if is_named else None
        if same_id is same_name:
            continue
        known = same_id or same_name
        assert known is not None
        raise InvalidRequest(
            f"{table}: column {item.name}: expected the id {known.column_id} with the physical "
            f"name {known.physical_name!r}, as data files have them, found {item.column_id} with "
            f"{item.physical_name!r}; leave both out, or give a new column new ones"
        )
    return _with_schema(metadata, inherited)


def _inherited(new: DataType, old: DataType) -> DataType:
    """Return the new type with ids and physical names of fields that the old one has, by name."""
    match new, old:
        case Struct(), Struct():
            return Struct(tuple(_inherited_field(item, old.find(item.name)) for item in new))
        case Array(), Array():
            return replace(new, element=_inherited(new.element, old.element))
        case Map(), Map():
            return replace(
                new, key=_inherited(new.key, old.key), value=_inherited(new.value, old.value)
            )
        case _:
            return new


def _inherited_field(item: Field, known: Field | None) -> Field:
    """Return the field with the ids and physical name of `known`, unless it states its own.

    Fields inside inherit only if it is the same column by its physical name.
    """
    if known is None:
        return item
    if COLUMN_ID not in item.metadata and PHYSICAL_NAME not in item.metadata:
        kept = (COLUMN_ID, PHYSICAL_NAME, NESTED_IDS)
        given = {key: known.metadata[key] for key in kept if key in known.metadata}
        item = replace(item, metadata={**item.metadata, **given})
    same = item.physical_name == known.physical_name
    return replace(item, type=_inherited(item.type, known.type)) if same else item


def _mapped(
    metadata: Metadata,
    before: Metadata,
    new_id: Callable[[], str],
    *,
    keep_names: bool,
    table: str,
) -> Metadata:
    """Return the metadata with every column mapped, ids continuing after the highest of `before`.

    With `keep_names` a column without a physical name gets its logical one, else a new one.
    Raises InvalidRequest where columns lack ids and the highest id is unknown.
    """
    schema = parse_schema(metadata.schema_string)
    is_whole = all(_fits(item, "name") for item in all_fields(schema))
    highest = _max_id(before)
    if highest is None:
        if is_whole:
            return metadata
        raise _unknown_ids(before, table)
    return _assigned(metadata, highest, new_id, keep_names=keep_names)


def _assigned(
    metadata: Metadata, highest: int, new_id: Callable[[], str], *, keep_names: bool
) -> Metadata:
    """Return the metadata with ids and names for columns that lack them, and the new highest id."""
    start = max(highest, _max_id(metadata) or 0)
    schema = parse_schema(metadata.schema_string)
    mapped, highest = assign_column_ids(schema, start, new_id, keep_names=keep_names)
    return msgspec.structs.replace(
        _with_schema(metadata, mapped),
        configuration={**metadata.configuration, MAX_ID_PROPERTY: str(highest)},
    )


def _max_id(metadata: Metadata) -> int | None:
    """Return the highest id so far, 0 where none is recorded; None for an invalid one."""
    text = metadata.configuration.get(MAX_ID_PROPERTY, "0").strip()
    return int(text) if text.isascii() and text.isdecimal() else None


def _with_highest(metadata: Metadata, highest: int) -> Metadata:
    """Return the metadata with the greater of this highest id and its own; unchanged if that
    is 0.
    """
    highest = max(highest, _max_id(metadata) or 0)
    if not highest:
        return metadata
    return msgspec.structs.replace(
        metadata, configuration={**metadata.configuration, MAX_ID_PROPERTY: str(highest)}
    )


def _with_schema(metadata: Metadata, schema: Struct) -> Metadata:
    """Return the metadata with this schema; an equal schema keeps its text."""
    if schema == parse_schema(metadata.schema_string):
        return metadata
    return msgspec.structs.replace(metadata, schema_string=schema_to_string(schema))


def check_mapped(schema: Struct, *, table: str) -> None:
    """Raise InvalidRequest where a column has no id, two share one, or two of a struct share a
    physical name.
    """
    fields = tuple(all_fields(schema))
    ids = [item.column_id for item in fields]
    if len(set(ids)) < len(ids) or None in ids:
        raise InvalidRequest(f"{table}: two columns share one column id; ids must be unique")
    structs = [item.type for item in fields if isinstance(item.type, Struct)]
    for struct in (schema, *structs):
        names = Counter(str(item.metadata.get(PHYSICAL_NAME)) for item in struct)
        twice = next((name for name, count in names.items() if count > 1), None)
        if twice is not None:
            raise InvalidRequest(f"{table}: two columns share the physical name {twice!r}")


def _pairs(
    new: DataType, old: DataType | None, above: Path = ()
) -> Iterator[tuple[Path, Field, Field | None]]:
    """Yield every field of the new type with its path, and the old field at the same path or
    None.
    """
    match new:
        case Struct(fields):
            for item in fields:
                known = old.find(item.name) if isinstance(old, Struct) else None
                path = (*above, item.name)
                yield path, item, known
                yield from _pairs(item.type, None if known is None else known.type, path)
        case Array(element, _):
            inner = old.element if isinstance(old, Array) else None
            yield from _pairs(element, inner, (*above, "element"))
        case Map(key, value, _):
            keys, values = (old.key, old.value) if isinstance(old, Map) else (None, None)
            yield from _pairs(key, keys, (*above, "key"))
            yield from _pairs(value, values, (*above, "value"))
        case _:
            return


def _physical(data_type: DataType, above: Path = ()) -> Iterator[tuple[Path, Field]]:
    """Yield every field with the physical path of its struct."""
    match data_type:
        case Struct(fields):
            for item in fields:
                yield above, item
                yield from _physical(item.type, (*above, item.physical_name))
        case Array(element, _):
            yield from _physical(element, (*above, "element"))
        case Map(key, value, _):
            yield from _physical(key, (*above, "key"))
            yield from _physical(value, (*above, "value"))
        case _:
            return
