"""Metadata and protocol of a commit, completed and checked.

Owns what a caller may leave out (column ids, hidden columns, the protocol) and what a table can't
have; `validation` owns the files. Every error is an InvalidRequest that says what to change.
Source: PROTOCOL.md, "Change Metadata", "Protocol Evolution", "Column Mapping".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from txlake.commit import row_tracking
from txlake.errors import CorruptTable, InvalidRequest
from txlake.log.snapshot import Snapshot
from txlake.packages import WITHOUT_PYICEBERG, has_pyiceberg
from txlake.protocol import iceberg
from txlake.protocol.actions import Add, Metadata, Protocol
from txlake.protocol.column_mapping import all_fields
from txlake.protocol.features import (
    CATALOG_FEATURE,
    CATALOG_MANAGED,
    ICEBERG,
    MATERIALIZED_PARTITIONS,
    protocol_for,
    supported_features,
)
from txlake.protocol.mapping_change import (
    ColumnMapping,
    check_mapped,
    mode_of,
    with_mapping,
    with_nested_ids,
    with_restored_mapping,
)
from txlake.protocol.properties import invalid_property, is_valid_property, stored_configuration
from txlake.protocol.schema_rules import validate_schema
from txlake.protocol.types import parse_schema


def complete_metadata(
    metadata: Metadata,
    before: Snapshot | None,
    new_id: Callable[[], str],
    *,
    replaces: bool = False,
    brings_back: bool = False,
    table: str,
) -> Metadata:
    """Return the metadata with ids and physical names of mapped and hidden columns.

    Requests for protocol features (`delta.feature.*`) aren't stored. `before` is None for a new
    table; `replaces`: none of its files stays; `brings_back`: only files stay that were written
    under this metadata. What is wrong in the table already, perhaps by another engine, doesn't
    block a change that doesn't touch it.

    Raises InvalidRequest for metadata that a table can't have, or that can't follow the table's
    own.
    """
    previous = None if before is None else before.metadata
    _check_values(metadata, previous, table)
    configuration = stored_configuration(metadata.configuration)
    changed = msgspec.structs.replace(metadata, configuration=configuration)
    changed = iceberg.with_required_properties(changed, previous, new=before is None or replaces)
    _check_schema(changed, None if replaces else previous, table)
    if brings_back:
        assert previous is not None, "an earlier version is the same table's"
        changed = with_restored_mapping(changed, previous, new_id, table=table)
    else:
        mapping = None if before is None else ColumnMapping(_mode_in_force(before), before.metadata)
        changed = with_mapping(changed, mapping, new_id, replaces=replaces, table=table)
    if iceberg.is_enabled(changed):
        changed = with_nested_ids(changed, table=table)
    _check_mapping(changed, previous, table)
    _check_iceberg(changed, before, table)
    _check_formats(changed, previous, table)
    changed = row_tracking.with_columns(changed, iter(new_id, None))
    _check_row_tracking(changed, previous, table)
    return metadata if changed == metadata else changed


def _check_values(metadata: Metadata, previous: Metadata | None, table: str) -> None:
    """Raise InvalidRequest for a changed property with an invalid value, or another format than
    Parquet.
    """
    known = {} if previous is None else previous.configuration
    for key, text in metadata.configuration.items():
        if known.get(key) != text and not is_valid_property(key, text):
            raise InvalidRequest(str(invalid_property(table, key, text)))
    if metadata.format.provider.lower() != "parquet":
        raise InvalidRequest(
            f"{table}: metaData: format {metadata.format.provider!r}; expected parquet"
        )


def _mode_in_force(before: Snapshot) -> str | None:
    """Return the table's column mapping mode; None if it is invalid."""
    try:
        return before.column_mapping_mode
    except CorruptTable:
        return None


def _check_schema(metadata: Metadata, previous: Metadata | None, table: str) -> None:
    """Raise InvalidRequest for an unreadable schema, invalid names or partition columns.

    Columns of `previous` may have invalid names, and nothing but the text is checked if neither
    schema, partitioning nor mapping mode changes.
    """
    try:
        schema = parse_schema(metadata.schema_string)
    except CorruptTable as error:
        raise InvalidRequest(f"{table}: metaData: {error}") from error
    known: frozenset[str] = frozenset()
    if previous is not None:
        if _shape(previous) == _shape(metadata):
            return
        known = frozenset(item.name for item in all_fields(parse_schema(previous.schema_string)))
    mapped = mode_of(metadata) != "none"
    try:
        validate_schema(schema, metadata.partition_columns, mapped=mapped, known=known)
    except InvalidRequest as error:
        raise InvalidRequest(f"{table}: {error}") from error


def _shape(metadata: Metadata) -> tuple[object, ...]:
    return metadata.schema_string, metadata.partition_columns, mode_of(metadata)


def _check_mapping(metadata: Metadata, previous: Metadata | None, table: str) -> None:
    """Raise InvalidRequest for columns, if changed, without a valid id and physical name."""
    if mode_of(metadata) in (None, "none"):
        return
    if previous is None or _shape(previous) != _shape(metadata):
        check_mapped(parse_schema(metadata.schema_string), table=table)


def _check_iceberg(metadata: Metadata, before: Snapshot | None, table: str) -> None:
    """Raise InvalidRequest for a new violation of what Iceberg's readers need.

    A violation that the table has already only keeps files from being written.
    """
    previous = None if before is None else before.metadata
    wrong = None
    if iceberg.is_enabled(metadata):
        wrong = iceberg.violation(metadata, previous)
        if previous is not None and iceberg.is_enabled(previous):
            wrong = None if wrong == iceberg.violation(previous) else wrong
    elif before is not None and ICEBERG in before.features:
        wrong = iceberg.widening_violation(metadata, before.metadata)
    if wrong is not None:
        raise InvalidRequest(f"{table}: {wrong}")


def _check_formats(metadata: Metadata, previous: Metadata | None, table: str) -> None:
    """Raise InvalidRequest for a new promise of another format that can't be kept, or not by this
    process, which lacks pyiceberg.

    One that the table makes already blocks nothing.
    """
    wrong = iceberg.uniform_violation(metadata)
    was_wrong = previous is not None and iceberg.uniform_violation(previous)
    if wrong is not None and not was_wrong:
        raise InvalidRequest(f"{table}: {wrong}")
    maintained = previous is not None and iceberg.maintains_iceberg(previous)
    if iceberg.maintains_iceberg(metadata) and not maintained and not has_pyiceberg():
        raise InvalidRequest(f"{table}: {WITHOUT_PYICEBERG}")


def _check_row_tracking(metadata: Metadata, previous: Metadata | None, table: str) -> None:
    """Raise InvalidRequest for a new contradiction between the properties of row tracking.

    One that the table has already only keeps files from being written.
    """
    wrong = row_tracking.contradiction(metadata.configuration)
    was_wrong = previous is not None and row_tracking.contradiction(previous.configuration)
    if wrong is not None and not was_wrong:
        raise InvalidRequest(f"{table}: {wrong}")


def require_no_staged_files(
    before: Snapshot, after: Snapshot, kept: Iterable[Add], base: Snapshot
) -> None:
    """Raise InvalidRequest if requirements on files rise after the same transaction wrote some.

    `kept`: its files; those that `base` has too aren't new.
    """
    asked = [
        name
        for name, was, will_be in (
            (ICEBERG, before.is_iceberg_compatible, after.is_iceberg_compatible),
            (
                MATERIALIZED_PARTITIONS,
                MATERIALIZED_PARTITIONS in before.features,
                MATERIALIZED_PARTITIONS in after.features,
            ),
        )
        if will_be and not was
    ]
    if asked and any(base.files.by_path(file.path) is None for file in kept):
        raise InvalidRequest(
            f"{after.table}: {', '.join(asked)} can't be turned on after files were written in the "
            "same transaction: they would have to keep to it. Turn it on first, or COMMIT before"
        )


def protocol_to_set(
    metadata: Metadata,
    requested: Protocol | None,
    current: Protocol | None,
    *,
    table: str,
    may_drop_features: bool = False,
) -> Protocol | None:
    """Return the protocol that a commit has to set for the metadata; None if it needs none.

    `requested` is set by the caller and returned if it is valid; `current` is the table's, None for
    a new table. Raises InvalidRequest when the requested one isn't valid, doesn't suffice, or,
    without `may_drop_features`, drops what the table has.
    """
    if requested is None:
        suitable = protocol_for(metadata, current)
        return None if suitable == current else suitable
    _check_protocol(requested, table)
    if current is not None and not may_drop_features:
        dropped = supported_features(current) - supported_features(requested)
        if CATALOG_MANAGED in supported_features(requested):
            dropped -= {CATALOG_FEATURE}  # the table is opened to other engines
        if dropped or (
            requested.min_reader_version < current.min_reader_version
            or requested.min_writer_version < current.min_writer_version
        ):
            raise InvalidRequest(
                f"{table}: the protocol can only be raised: the table has {_name(current)}, "
                f"the request {_name(requested)}"
                + (f", without {', '.join(sorted(dropped))}" if dropped else "")
            )
    needed = supported_features(protocol_for(metadata, requested)) - supported_features(requested)
    if needed:
        raise InvalidRequest(
            f"{table}: the metadata needs the table features {', '.join(sorted(needed))}, which "
            "the given protocol lacks; add them, or leave the protocol out"
        )
    return requested


def _check_protocol(protocol: Protocol, table: str) -> None:
    """Raise InvalidRequest for a protocol whose versions and feature lists contradict each
    other.
    """
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
