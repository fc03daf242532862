"""Table features: which tables may be read and written, and which protocol a table needs.

Owns the features' names, what the older numbered protocols imply, and the choice of the least
protocol for a table's metadata. Source: PROTOCOL.md, "Protocol Evolution", "Table Features",
"Reader Version Requirements", "Writer Version Requirements", "Valid Feature Names".

A feature that is listed but not active (PROTOCOL.md, "Active Features") demands nothing of a
writer: writing is refused only where an unsupported feature is active.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache

from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.nearest import did_you_mean, nearest
from txlake.protocol.actions import Metadata, Protocol
from txlake.protocol.branching import CLOSED
from txlake.protocol.branching import FEATURE as BRANCHING
from txlake.protocol.collations import collated_columns
from txlake.protocol.properties import (
    CONSTRAINT_PREFIX,
    FEATURE_PREFIX,
    invalid_property,
    is_true,
    parse_property,
)
from txlake.protocol.type_widening import TYPE_CHANGES
from txlake.protocol.types import (
    Array,
    DataType,
    Field,
    Map,
    Primitive,
    Struct,
    leaf_types,
    parse_schema,
)

_MODE = "delta.columnMapping.mode"
_COLLATIONS = "collations"
# The features that numbered protocols imply, with the least reader and writer version.
_LEGACY: Mapping[str, tuple[int, int]] = {
    "appendOnly": (1, 2),
    "invariants": (1, 2),
    "checkConstraints": (1, 3),
    "changeDataFeed": (1, 4),
    "generatedColumns": (1, 4),
    "columnMapping": (2, 5),
    "identityColumns": (1, 6),
}

_READER_WRITER = frozenset(
    {
        "catalogManaged",
        "catalogOwned",
        "catalogOwned-preview",
        "columnMapping",
        "deletionVectors",
        "geospatial",
        "geospatial-dev",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantShredding",
        "variantShredding-preview",
        "variantType",
        "variantType-preview",
    }
)
CATALOG_FEATURE = "txlakeCatalog"
"""The writer feature of a table whose versions a lake's catalog decides; it bars other writers."""

ICEBERG = "icebergCompatV2"
"""The writer feature of a table that follows the rules of Iceberg's readers."""

MATERIALIZED_PARTITIONS = "materializePartitionColumns"
"""The writer feature of a table whose data files hold the partition columns too."""

CATALOG_MANAGED = "catalogManaged"
"""The feature of a table that any engine writes through the catalog, which decides its versions."""

MULTI_TABLE = frozenset({"multiTableTransaction", "multiTableTransaction-dev"})
"""The writer feature of a table whose commits name the transaction over several tables that they
are part of, and its name while it is proposed; other engines don't write such a table.
"""

CATALOG_FEATURES = frozenset(
    {CATALOG_FEATURE, CATALOG_MANAGED, "catalogOwned", "catalogOwned-preview"}
)
"""The features of catalog tables, set and removed only by attaching to and leaving a catalog."""

SHREDDING = frozenset({"variantShredding", "variantShredding-preview"})
"""The features of tables whose files may hold variants in columns of their own."""

READABLE = _READER_WRITER
"""The reader features that txlake supports. Catalog-managed tables are read as published."""

WRITABLE = frozenset(
    {
        "allowColumnDefaults",
        "appendOnly",
        BRANCHING,
        CATALOG_MANAGED,
        "changeDataFeed",
        "checkConstraints",
        "checkpointProtection",
        "clustering",
        "columnMapping",
        "deletionVectors",
        "domainMetadata",
        "generatedColumns",
        ICEBERG,
        "identityColumns",
        "inCommitTimestamp",
        "invariants",
        MATERIALIZED_PARTITIONS,
        *MULTI_TABLE,
        "rowTracking",
        "timestampNtz",
        CATALOG_FEATURE,
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        *SHREDDING,
        "variantType",
        "variantType-preview",
    }
)
"""The features of tables that txlake writes."""

_KNOWN = (
    READABLE
    | WRITABLE
    | frozenset(_LEGACY)
    | {
        _COLLATIONS,
        f"{_COLLATIONS}-preview",
        "coordinatedCommits-preview",
        "icebergCompatV1",
        "icebergCompatV3",
    }
)
_BY_FOLDED_NAME = {name.lower(): name for name in sorted(_KNOWN)}

_NEEDS: Mapping[str, tuple[str, ...]] = {
    "rowTracking": ("domainMetadata",),
    "clustering": ("domainMetadata",),
    BRANCHING: ("domainMetadata",),
    CATALOG_FEATURE: ("domainMetadata",),
    CATALOG_MANAGED: (
        "deletionVectors",
        "domainMetadata",
        "inCommitTimestamp",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    ),
    "icebergCompatV1": ("columnMapping",),
    ICEBERG: ("columnMapping",),
    "icebergCompatV3": ("columnMapping", "rowTracking"),
    "variantShredding": ("variantType",),
}


# Every commit parses the schema again, nearly always the same one as before.
_schema_of = lru_cache(maxsize=64)(parse_schema)


def check_readable(protocol: Protocol, *, table: str) -> None:
    """Raise UnsupportedFeature, naming the features or versions, when `table` can't be read.

    Raises it for an inconsistent protocol too.
    """
    _check_consistent(protocol, table)
    missing = sorted(set(protocol.reader_features or ()) - READABLE)
    too_new = protocol.min_reader_version > 3
    if missing or too_new:
        raise UnsupportedFeature(
            f"{table}: reading needs {_wanted('reader', protocol.min_reader_version, 3, missing)}, "
            f"which txlake doesn't know; use an engine that does"
        )


def check_writable(protocol: Protocol, metadata: Metadata, *, table: str) -> None:
    """Raise UnsupportedFeature, naming the features or versions, when `table` can't be written.

    An unreadable table isn't writable either. Features that are listed but not active are fine.
    Raises CorruptTable for a schema that can't be read, and InvalidRequest for the closed log of a
    branch.
    """
    check_readable(protocol, table=table)
    if CLOSED in (protocol.writer_features or ()):
        raise InvalidRequest(
            f"{table}: the branch is closed: it is being published, rebased or dropped, or has "
            "been. If the program that did so has died, do it again: PUBLISH BRANCH, REBASE BRANCH "
            "and DROP BRANCH finish what they find"
        )
    schema = _schema_of(metadata.schema_string, file=table)
    missing = sorted(
        name
        for name in supported_features(protocol) - WRITABLE
        if _ACTIVE.get(name, _always)(schema, metadata.configuration)
    )
    collated = collated_columns(schema)
    if collated and not any(name.startswith(_COLLATIONS) for name in missing):
        missing.append(f"{_COLLATIONS} (of {', '.join(collated)})")
    too_new = protocol.min_writer_version > 7
    if missing or too_new:
        raise UnsupportedFeature(
            f"{table}: writing needs {_wanted('writer', protocol.min_writer_version, 7, missing)}, "
            f"which txlake doesn't write; read it here, and write it with an engine that does"
        )


def uses_feature(feature: str, metadata: Metadata) -> bool:
    """Return whether the metadata uses a feature, listed or not; True for one that metadata can't
    show.
    """
    if feature == MATERIALIZED_PARTITIONS:
        return True  # the property only adds the feature
    schema = _schema_of(metadata.schema_string)
    return _ACTIVE.get(feature, _always)(schema, metadata.configuration)


def materializes_partitions(protocol: Protocol, configuration: Mapping[str, str]) -> bool:
    """Return whether new data files hold the partition columns too, after their other columns.

    The feature demands it wherever it is listed; the property permits it to any writer. Readers
    take the values from the log in any case. Source: Delta's protocol RFC "Materialize Partition
    Columns"; PROTOCOL.md, "Iceberg Compatibility V2".
    """
    return (
        MATERIALIZED_PARTITIONS in supported_features(protocol)
        or is_true(configuration, "delta.writePartitionColumnsToParquet")
        or is_iceberg_compatible(protocol, configuration)
    )


def is_iceberg_compatible(protocol: Protocol, configuration: Mapping[str, str]) -> bool:
    """Return whether icebergCompatV2 is in force, so that its rules apply."""
    is_on = is_true(configuration, "delta.enableIcebergCompatV2")
    return is_on and ICEBERG in supported_features(protocol)


def _check_consistent(protocol: Protocol, table: str) -> None:
    """Raise UnsupportedFeature where the versions and the feature lists contradict each other."""
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    listed = protocol.reader_features, protocol.writer_features
    wrong = None
    if reader < 1 or writer < 1:
        wrong = f"versions ({reader}, {writer}) below 1"
    elif reader == 3 and (listed[0] is None or writer < 7):
        wrong = "reader version 3 without readerFeatures or without writer version 7"
    elif writer == 7 and listed[1] is None:
        wrong = "writer version 7 without writerFeatures"
    elif reader < 3 and listed[0]:
        wrong = f"readerFeatures {sorted(listed[0])} with reader version {reader}"
    elif writer < 7 and listed[1]:
        wrong = f"writerFeatures {sorted(listed[1])} with writer version {writer}"
    if wrong is not None:
        raise UnsupportedFeature(
            f"{table}: its protocol action is inconsistent: {wrong}; "
            f"what the table needs can't be known"
        )


def _wanted(side: str, version: int, known: int, features: list[str]) -> str:
    """Return the words of an error for a version beyond `known`, and for missing features."""
    parts = [f"{side} version {version} (txlake knows up to {known})"] if version > known else []
    if features:
        names = ", ".join(features)
        parts.append(f"the table feature{'s' if len(features) > 1 else ''} {names}")
    return " and ".join(parts)


def supported_features(protocol: Protocol) -> frozenset[str]:
    """Return the features that the protocol supports, listed or implied by its versions."""
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    listed = frozenset((*(protocol.reader_features or ()), *(protocol.writer_features or ())))
    if writer >= 7:
        return listed
    return listed | _implied(reader, writer)


@lru_cache(maxsize=64)
def _implied(reader: int, writer: int) -> frozenset[str]:
    return frozenset(name for name, (r, w) in _LEGACY.items() if reader >= r and writer >= w)


def protocol_for(
    metadata: Metadata, existing: Protocol | None, *, features: Iterable[str] = ()
) -> Protocol:
    """Return the least protocol that suits the metadata; `existing` itself if it suits already.

    `features` are requested besides those of the metadata (`clustering`, `domainMetadata` ... which
    no metadata shows). The properties `delta.feature.<name>`, `delta.minReaderVersion` and
    `delta.minWriterVersion` are requests too and aren't to be stored
    (`properties.stored_configuration`). A protocol is never lowered.

    Raises InvalidRequest for an unknown feature or an invalid request for one.
    """
    wanted = {_known_name(name) for name in features} | set(_features_of(metadata))
    for name in tuple(wanted):
        wanted.update(_needed(name))
    reader = _asked_version(metadata.configuration, "delta.minReaderVersion")
    writer = _asked_version(metadata.configuration, "delta.minWriterVersion")
    if existing is not None:
        have = supported_features(existing)
        missing = frozenset(name for name in wanted - have if not _has_sibling(name, have))
        enough = existing.min_reader_version >= reader and existing.min_writer_version >= writer
        if not missing and enough:
            return existing
        asked = have | missing
        reader = max(reader, existing.min_reader_version)
        writer = max(writer, existing.min_writer_version)
    else:
        # Every table has these since the first protocol that knows them.
        asked = frozenset(wanted) | {"appendOnly", "invariants"}
    return _least(asked, reader, writer)


def protocol_without(features: Iterable[str], existing: Protocol) -> Protocol:
    """Return the least protocol with all features of `existing` except these."""
    return protocol_of(supported_features(existing) - frozenset(features))


def protocol_of(features: Iterable[str]) -> Protocol:
    """Return the least protocol with exactly these features."""
    return _least(frozenset(features), 1, 1)


def is_required_by_others(feature: str, protocol: Protocol) -> bool:
    """Return whether another feature that the protocol supports depends on this one."""
    return any(feature in _needed(name) for name in supported_features(protocol))


def _least(features: frozenset[str], reader: int, writer: int) -> Protocol:
    """Return the least protocol with these features, and versions of at least `reader` and
    `writer`.

    Feature lists are used only where no numbered protocol implies exactly these features. A
    requested older version adds the features that it implies.
    """
    if writer < 7 and reader < 3:
        if features <= _implied(reader, writer):
            return Protocol(min_reader_version=reader, min_writer_version=writer)
        for r, w in ((1, 2), (1, 3), (2, 5), (2, 6)):
            if r >= reader and w >= writer and features == _implied(r, w):
                return Protocol(min_reader_version=r, min_writer_version=w)
    # A requested older version adds the features that it implies.
    names = features | (_implied(reader, writer) if writer < 7 else frozenset())
    read = frozenset(name for name in names if name in _READER_WRITER)
    if reader >= 3 or read - {"columnMapping"}:
        return Protocol(
            min_reader_version=3,
            min_writer_version=7,
            reader_features=tuple(sorted(read)),
            writer_features=tuple(sorted(names)),
        )
    return Protocol(
        min_reader_version=2 if read else reader,
        min_writer_version=7,
        writer_features=tuple(sorted(names)),
    )


def _needed(name: str) -> Iterator[str]:
    """Yield the features on which a feature depends, directly or not."""
    for other in _NEEDS.get(name, ()):
        yield other
        yield from _needed(other)


def _has_sibling(name: str, have: Collection[str]) -> bool:
    """Return whether a feature's preview, which has the same meaning, is present already."""
    return f"{name}-preview" in have


def _known_name(name: str) -> str:
    """Return a feature's name as the protocol spells it, given in any letter case.

    Raises InvalidRequest for an unknown one.
    """
    known = _BY_FOLDED_NAME.get(name.lower())
    if known is None:
        asked = did_you_mean(nearest(name, _KNOWN)) or f"known are {', '.join(sorted(_KNOWN))}"
        raise InvalidRequest(
            f"[DELTA_UNSUPPORTED_FEATURES_IN_CONFIG] table feature {name!r} is unknown: {asked}"
        )
    return known


def _asked_version(configuration: Mapping[str, str], key: str) -> int:
    """Return the protocol version that a property requests, 1 without one.

    Raises InvalidRequest for a text that is no version.
    """
    text = configuration.get(key, "1")
    limit = 3 if "Reader" in key else 7
    if not text.isdecimal() or not 1 <= int(text) <= limit:
        raise InvalidRequest(f"table property {key!r}: expected 1 to {limit}, found {text!r}")
    return int(text)


def _features_of(metadata: Metadata) -> Iterator[str]:
    """Yield the features that the metadata requests by property or needs by its content.

    Raises InvalidRequest for an invalid request.
    """
    configuration = metadata.configuration
    schema = _schema_of(metadata.schema_string)
    asked: set[str] = set()
    for key, value in configuration.items():
        if key.lower().startswith(FEATURE_PREFIX):
            if value.lower() not in ("supported", "enabled"):
                raise InvalidRequest(
                    f"table property {key!r}: expected 'supported', found {value!r}"
                )
            asked.add(_known_name(key[len(FEATURE_PREFIX) :]))
    yield from asked
    for name, active in _ACTIVE.items():
        if active(schema, configuration) and not _has_sibling(name, asked):
            yield name


# --- when a feature is active -------------------------------------------------------------------

_Active = Callable[[Struct, Mapping[str, str]], bool]


def _always(schema: Struct, configuration: Mapping[str, str]) -> bool:
    return True


def _property(key: str) -> _Active:
    """Return a test of whether a property is `true`."""

    def active(schema: Struct, configuration: Mapping[str, str]) -> bool:
        return is_true(configuration, key)

    return active


def _field_key(*keys: str) -> _Active:
    """Return a test of whether a field, nested ones included, has one of these keys in its
    metadata.
    """

    def active(schema: Struct, configuration: Mapping[str, str]) -> bool:
        return any(key in item.metadata for item in _fields(schema) for key in keys)

    return active


def _type_named(*starts: str) -> _Active:
    """Return a test of whether a type inside the schema has a name that begins with one of
    `starts`.
    """

    def active(schema: Struct, configuration: Mapping[str, str]) -> bool:
        return any(leaf.name.startswith(starts) for leaf in leaf_types(schema))

    return active


def _mapped(schema: Struct, configuration: Mapping[str, str]) -> bool:
    return configuration.get(_MODE, "none").strip().lower() not in ("", "none")


def _v2_checkpoints(schema: Struct, configuration: Mapping[str, str]) -> bool:
    return configuration.get("delta.checkpointPolicy", "classic").lower() == "v2"


def _constrained(schema: Struct, configuration: Mapping[str, str]) -> bool:
    return any(key.lower().startswith(CONSTRAINT_PREFIX) for key in configuration)


def _change_data(schema: Struct, configuration: Mapping[str, str]) -> bool:
    keys = ("delta.enableChangeDataFeed", "delta.enableChangeDataCapture")
    return any(_property(key)(schema, configuration) for key in keys)


def _widened(schema: Struct, configuration: Mapping[str, str]) -> bool:
    """Return whether types may be widened, or were: readers need the feature while changes are
    recorded.
    """
    may_be = _property("delta.enableTypeWidening")
    return may_be(schema, configuration) or _field_key(TYPE_CHANGES)(schema, configuration)


_ACTIVE: Mapping[str, _Active] = {
    "allowColumnDefaults": _field_key("CURRENT_DEFAULT"),
    "appendOnly": _property("delta.appendOnly"),
    "changeDataFeed": _change_data,
    "checkConstraints": _constrained,
    "columnMapping": _mapped,
    "deletionVectors": _property("delta.enableDeletionVectors"),
    "generatedColumns": _field_key("delta.generationExpression"),
    "geospatial": _type_named("geometry", "geography"),
    "icebergCompatV1": _property("delta.enableIcebergCompatV1"),
    ICEBERG: _property("delta.enableIcebergCompatV2"),
    "icebergCompatV3": _property("delta.enableIcebergCompatV3"),
    "identityColumns": _field_key("delta.identity.start", "delta.identity.step"),
    "inCommitTimestamp": _property("delta.enableInCommitTimestamps"),
    "invariants": _field_key("delta.invariants"),
    MATERIALIZED_PARTITIONS: _property("delta.enableMaterializePartitionColumnsFeature"),
    "rowTracking": _property("delta.enableRowTracking"),
    "timestampNtz": _type_named("timestamp_ntz"),
    "typeWidening": _widened,
    "v2Checkpoint": _v2_checkpoints,
    "variantShredding": _property("delta.enableVariantShredding"),
    "variantType": _type_named("variant"),
}


def _fields(data_type: DataType) -> Iterator[Field]:
    """Yield every struct field of the type, nested ones too, outer before inner."""
    match data_type:
        case Struct(fields):
            for item in fields:
                yield item
                yield from _fields(item.type)
        case Array(element):
            yield from _fields(element)
        case Map(key, value):
            yield from _fields(key)
            yield from _fields(value)
        case Primitive():
            return


def column_mapping_mode(protocol: Protocol, configuration: Mapping[str, str], *, table: str) -> str:
    """Return `none`, `name` or `id`; the property counts only where the protocol supports the
    feature.

    Raises CorruptTable for an unknown mode. Source: PROTOCOL.md, "Column Mapping".
    """
    text = configuration.get(_MODE)
    if text is None or "columnMapping" not in supported_features(protocol):
        return "none"
    try:
        return str(parse_property(_MODE, text))
    except ValueError as error:
        raise invalid_property(table, _MODE, text) from error
