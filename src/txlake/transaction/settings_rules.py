"""What a commit sets beside files, made whole and checked: metadata and protocol.

Owns what a caller may leave out (column ids, hidden columns, the protocol) and what a table can't
have; `validation` owns the files. Everything found wrong is an InvalidRequest that says what to
change. Source: PROTOCOL.md, "Change Metadata", "Protocol Evolution", "Column Mapping".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from txlake.errors import CorruptTable, InvalidRequest
from txlake.protocol.actions import Metadata, Protocol
from txlake.protocol.column_mapping import (
    MAX_ID_PROPERTY,
    MODE_PROPERTY,
    all_fields,
    assign_column_ids,
)
from txlake.protocol.features import protocol_for, supported_features
from txlake.protocol.properties import TableProperties, stored_configuration
from txlake.protocol.schema_rules import check_duplicates
from txlake.protocol.types import (
    PHYSICAL_NAME,
    Field,
    Primitive,
    Struct,
    parse_schema,
    schema_to_string,
)
from txlake.transaction import row_tracking

_CHARACTERS_REFUSED = " ,;{}()\n\t="
_MODE_CHANGES = {("none", "name"), ("name", "none"), ("id", "none")}


def mode_of(metadata: Metadata) -> str:
    """How the metadata maps columns: `none`, `name` or `id`."""
    return metadata.configuration.get(MODE_PROPERTY, "none").strip().lower()


def whole_metadata(
    metadata: Metadata, previous: Metadata | None, new_id: Callable[[], str], *, table: str
) -> Metadata:
    """The metadata with ids and physical names for mapped columns, and names for hidden ones.

    What asks for a protocol (`delta.feature.*`) is not stored. Columns that were there before the
    table mapped columns keep their names in data files. `previous` is None for a new table. Raises
    InvalidRequest for metadata that a table can't have.
    """
    _check_readable(metadata, table)
    configuration = stored_configuration(metadata.configuration)
    changed = msgspec.structs.replace(metadata, configuration=configuration)
    changed = row_tracking.with_columns(changed, iter(new_id, None))
    if mode_of(metadata) != "none":
        changed = _with_ids(changed, previous, new_id)
    _check(changed, previous, table)
    return metadata if changed == metadata else changed


def _check_readable(metadata: Metadata, table: str) -> None:
    try:
        parse_schema(metadata.schema_string)
        TableProperties.parse(metadata.configuration, table=table)
    except CorruptTable as error:
        raise InvalidRequest(f"{table}: metaData: {error}") from error
    if metadata.format.provider.lower() != "parquet":
        raise InvalidRequest(
            f"{table}: metaData: format {metadata.format.provider!r}; expected parquet"
        )


def _with_ids(metadata: Metadata, previous: Metadata | None, new_id: Callable[[], str]) -> Metadata:
    schema = parse_schema(metadata.schema_string)
    start = max(_max_id(metadata), 0 if previous is None else _max_id(previous))
    keep = previous is not None and mode_of(previous) == "none"
    mapped, highest = assign_column_ids(schema, start, new_id, keep_names=keep)
    return msgspec.structs.replace(
        metadata,
        schema_string=metadata.schema_string if mapped == schema else schema_to_string(mapped),
        configuration={**metadata.configuration, MAX_ID_PROPERTY: str(highest)},
    )


def _max_id(metadata: Metadata) -> int:
    text = metadata.configuration.get(MAX_ID_PROPERTY, "")
    return int(text) if text.isdecimal() else 0


def _check(metadata: Metadata, previous: Metadata | None, table: str) -> None:
    schema = parse_schema(metadata.schema_string)
    check_duplicates(schema, table)
    _check_partitioning(schema, metadata.partition_columns, table)
    mode, before = mode_of(metadata), "none" if previous is None else mode_of(previous)
    if previous is not None and mode != before and (before, mode) not in _MODE_CHANGES:
        raise InvalidRequest(
            f"{table}: column mapping can't change from {before!r} to {mode!r}; "
            "an existing table can only turn it on by name"
        )
    if mode == "none":
        _check_names(schema, previous, table)
    else:
        _check_mapping(schema, table)


def _check_partitioning(schema: Struct, columns: Sequence[str], table: str) -> None:
    twice = [name for name, count in Counter(columns).items() if count > 1]
    if twice:
        raise InvalidRequest(f"{table}: partitioned twice by {', '.join(twice)}")
    for name in columns:
        item = next((item for item in schema if item.name == name), None)
        if item is None:
            raise InvalidRequest(
                f"{table}: partition column {name!r} is not in the schema; "
                f"its columns: {', '.join(schema.names) or 'none'}"
            )
        if not isinstance(item.type, Primitive) or item.type.name in ("variant", "void"):
            raise InvalidRequest(
                f"{table}: partition column {name!r}: a partition column must have a plain type"
            )


def _check_names(schema: Struct, previous: Metadata | None, table: str) -> None:
    """Names that data files can't have; columns that are there already may have them."""
    known = set[str]()
    if previous is not None:
        known = {item.name for item in all_fields(parse_schema(previous.schema_string))}
    for item in all_fields(schema):
        found = next((sign for sign in _CHARACTERS_REFUSED if sign in item.name), None)
        if not item.name or (found is not None and item.name not in known):
            raise InvalidRequest(
                f"{table}: column {item.name!r}: "
                + (f"{found!r} can't be in a name" if item.name else "a column needs a name")
                + "; rename it, or set delta.columnMapping.mode to 'name'"
            )


def _check_mapping(schema: Struct, table: str) -> None:
    fields = tuple(all_fields(schema))
    ids = [item.column_id for item in fields]
    if len(set(ids)) < len(ids) or None in ids:
        raise InvalidRequest(f"{table}: two columns share one column id; ids must be unique")
    for names in (_physical(item) for item in (schema, *_structs(fields))):
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        if twice is not None:
            raise InvalidRequest(f"{table}: two columns share the physical name {twice!r}")


def _structs(fields: Sequence[Field]) -> tuple[Struct, ...]:
    return tuple(item.type for item in fields if isinstance(item.type, Struct))


def _physical(struct: Struct) -> list[str]:
    return [str(item.metadata.get(PHYSICAL_NAME)) for item in struct]


def protocol_to_set(
    metadata: Metadata,
    given: Protocol | None,
    current: Protocol | None,
    *,
    table: str,
    may_drop_features: bool = False,
) -> Protocol | None:
    """The protocol that a commit has to set so that it suits the metadata; None when none has to.

    `given` is the one that the caller sets, `current` the table's, None for a new table. Raises
    InvalidRequest when the given one doesn't suffice or takes away what the table has.
    """
    if given is None:
        suitable = protocol_for(metadata, current)
        return None if suitable == current else suitable
    _check_protocol(given, table)
    if current is not None and not may_drop_features:
        dropped = supported_features(current) - supported_features(given)
        if dropped or (
            given.min_reader_version < current.min_reader_version
            or given.min_writer_version < current.min_writer_version
        ):
            raise InvalidRequest(
                f"{table}: the protocol can only be raised: the table has {_name(current)}, "
                f"the request {_name(given)}"
                + (f", without {', '.join(sorted(dropped))}" if dropped else "")
            )
    needed = supported_features(protocol_for(metadata, given)) - supported_features(given)
    if needed:
        raise InvalidRequest(
            f"{table}: the metadata needs the table features {', '.join(sorted(needed))}, which "
            "the given protocol lacks; add them, or leave the protocol out"
        )
    return given


def _check_protocol(protocol: Protocol, table: str) -> None:
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    if reader < 1 or writer < 1:
        raise InvalidRequest(f"{table}: protocol versions start at 1, found {_name(protocol)}")
    if reader >= 3 and writer < 7:
        raise InvalidRequest(
            f"{table}: reader version 3 needs writer version 7, found {_name(protocol)}"
        )
    for kind, version, listed_from, features in (
        ("reader", reader, 3, protocol.reader_features),
        ("writer", writer, 7, protocol.writer_features),
    ):
        if (features is not None) != (version >= listed_from):
            raise InvalidRequest(
                f"{table}: protocol: {kind}Features must be given exactly when "
                f"min{kind.capitalize()}Version is {listed_from}, found {_name(protocol)}"
            )
    missing = set(protocol.reader_features or ()) - set(protocol.writer_features or ())
    if missing:
        raise InvalidRequest(
            f"{table}: protocol: {', '.join(sorted(missing))} in readerFeatures but not in "
            "writerFeatures"
        )


def _name(protocol: Protocol) -> str:
    return f"({protocol.min_reader_version}, {protocol.min_writer_version})"
