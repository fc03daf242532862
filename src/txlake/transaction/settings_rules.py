"""Whether a table may have this metadata and this protocol.

Owns the checks of what a commit sets, beside its files; `validation` owns those of the files.
Everything found wrong is an InvalidRequest that says what to change. Source: PROTOCOL.md, "Change
Metadata", "Protocol Evolution", "Column Mapping", "Domain Metadata".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from txlake.errors import CorruptTable, InvalidRequest
from txlake.protocol.actions import Metadata, Protocol
from txlake.protocol.features import protocol_for, supported_features
from txlake.protocol.properties import TableProperties
from txlake.protocol.types import Field, Primitive, Struct, parse_schema
from txlake.transaction.column_mapping import MAX_COLUMN_ID, fields_of, mode_of

_CHARACTERS_REFUSED = " ,;{}()\n\t="
_MODE_CHANGES = {("none", "name"), ("name", "none"), ("id", "none")}


def check_metadata(metadata: Metadata, previous: Metadata | None, *, table: str) -> Struct:
    """The schema of the metadata, when all of it is valid; `previous` is None for a new table.

    Raises InvalidRequest naming what is wrong.
    """
    try:
        schema = parse_schema(metadata.schema_string)
    except CorruptTable as error:
        raise InvalidRequest(f"{table}: metaData: {error}") from error
    if metadata.format.provider.lower() != "parquet":
        raise InvalidRequest(
            f"{table}: metaData: format {metadata.format.provider!r}; expected parquet"
        )
    try:
        TableProperties.parse(metadata.configuration, table=table)
    except CorruptTable as error:
        raise InvalidRequest(f"{table}: metaData: {error}") from error
    _check_columns(schema, table)
    _check_partitioning(schema, metadata.partition_columns, table)
    _check_mapping(metadata, previous, schema, table)
    return schema


def _check_columns(schema: Struct, table: str) -> None:
    structs = [schema, *(item.type for item in fields_of(schema) if isinstance(item.type, Struct))]
    for struct in structs:
        twice = _repeated(name.lower() for name in struct.names)
        if twice:
            raise InvalidRequest(
                f"{table}: columns {', '.join(twice)} stand in the schema more than once "
                "(letter case doesn't count); rename them"
            )
        if any(not name for name in struct.names):
            raise InvalidRequest(f"{table}: a column without a name; name it")


def _check_partitioning(schema: Struct, columns: tuple[str, ...], table: str) -> None:
    twice = _repeated(name.lower() for name in columns)
    if twice:
        raise InvalidRequest(f"{table}: partitioned twice by {', '.join(twice)}")
    for name in columns:
        item = next((item for item in schema if item.name == name), None)
        if item is None:
            raise InvalidRequest(
                f"{table}: partition column {name!r} is not in the schema; "
                f"columns: {', '.join(schema.names) or 'none'}"
            )
        if not isinstance(item.type, Primitive) or item.type.name in ("variant", "void"):
            raise InvalidRequest(
                f"{table}: partition column {name!r}: a partition column must have a plain type"
            )


def _check_mapping(
    metadata: Metadata, previous: Metadata | None, schema: Struct, table: str
) -> None:
    mode = mode_of(metadata)
    before = "none" if previous is None else mode_of(previous)
    if previous is not None and mode != before and (before, mode) not in _MODE_CHANGES:
        raise InvalidRequest(
            f"{table}: column mapping can't change from {before!r} to {mode!r}; "
            "an existing table can only turn it on by name"
        )
    fields = tuple(fields_of(schema))
    if mode == "none":
        _check_characters(fields, previous, table)
        return
    unmapped = [item.name for item in fields if item.column_id is None or not _is_named(item)]
    if unmapped:
        raise InvalidRequest(
            f"{table}: columns {', '.join(unmapped)} have no column id or no physical name, "
            f"which column mapping by {mode} needs"
        )
    ids = [item.column_id for item in fields if item.column_id is not None]
    if len(set(ids)) < len(ids):
        raise InvalidRequest(f"{table}: two columns share one column id; ids must be unique")
    for struct in (schema, *(item.type for item in fields if isinstance(item.type, Struct))):
        twice = _repeated(item.physical_name for item in struct)
        if twice:
            raise InvalidRequest(f"{table}: two columns share the physical name {twice[0]!r}")
    text = metadata.configuration.get(MAX_COLUMN_ID, "")
    if not text.isdigit() or int(text) < max(ids, default=0):
        raise InvalidRequest(
            f"{table}: {MAX_COLUMN_ID} is {text!r}; expected at least {max(ids, default=0)}"
        )


def _is_named(item: Field) -> bool:
    return isinstance(item.metadata.get("delta.columnMapping.physicalName"), str)


def _check_characters(fields: tuple[Field, ...], previous: Metadata | None, table: str) -> None:
    known = set[str]()
    if previous is not None:
        known = {item.name for item in fields_of(parse_schema(previous.schema_string))}
    for item in fields:
        found = [sign for sign in _CHARACTERS_REFUSED if sign in item.name]
        if found and item.name not in known:
            raise InvalidRequest(
                f"{table}: column {item.name!r} contains {found[0]!r}, which Parquet names of "
                "tables without column mapping can't; rename it or set delta.columnMapping.mode"
            )


def protocol_to_set(
    metadata: Metadata, given: Protocol | None, current: Protocol | None, *, table: str
) -> Protocol | None:
    """The protocol that a commit has to set so that it suits the metadata; None when none has to.

    `given` is the one that the caller sets, `current` the table's, None for a new table. Raises
    InvalidRequest when the given one doesn't suffice or takes away what the table has.
    """
    if given is None:
        suitable = protocol_for(metadata, current)
        return None if suitable == current else suitable
    _check_protocol(given, table)
    if current is not None:
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
    if protocol.min_reader_version < 1 or protocol.min_writer_version < 1:
        raise InvalidRequest(f"{table}: protocol versions start at 1, found {_name(protocol)}")
    for kind, version, from_version, features in (
        ("reader", protocol.min_reader_version, 3, protocol.reader_features),
        ("writer", protocol.min_writer_version, 7, protocol.writer_features),
    ):
        if (features is not None) != (version >= from_version):
            raise InvalidRequest(
                f"{table}: protocol: {kind}Features must be given exactly when "
                f"min{kind.capitalize()}Version is {from_version}, found {_name(protocol)}"
            )
    missing = set(protocol.reader_features or ()) - set(protocol.writer_features or ())
    if missing:
        raise InvalidRequest(
            f"{table}: protocol: {', '.join(sorted(missing))} in readerFeatures but not in "
            "writerFeatures"
        )


def _name(protocol: Protocol) -> str:
    return f"({protocol.min_reader_version}, {protocol.min_writer_version})"


def _repeated(names: Iterable[str]) -> list[str]:
    counts: Mapping[str, int] = Counter(names)
    return [name for name, count in counts.items() if count > 1]
