from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import cast

import pytest

from tests.golden import golden_tables
from txlake.errors import CorruptTable, InvalidRequest, UnsupportedFeature
from txlake.protocol import features
from txlake.protocol.actions import Metadata, Protocol
from txlake.protocol.features import (
    READABLE,
    WRITABLE,
    check_readable,
    check_writable,
    column_mapping_mode,
    materializes_partitions,
    protocol_for,
    supported_features,
)


def protocol(
    reader: int,
    writer: int,
    reads: Iterable[str] | None = None,
    writes: Iterable[str] | None = None,
) -> Protocol:
    return Protocol(
        min_reader_version=reader,
        min_writer_version=writer,
        reader_features=None if reads is None else tuple(reads),
        writer_features=None if writes is None else tuple(writes),
    )


def metadata(
    configuration: Mapping[str, str] | None = None,
    *,
    of: object = "long",
    keys: Mapping[str, object] | None = None,
) -> Metadata:
    column = {"name": "a", "type": of, "nullable": True, "metadata": dict(keys or {})}
    return Metadata(
        id="t",
        configuration=dict(configuration or {}),
        schema_string=json.dumps({"type": "struct", "fields": [column]}),
    )


PLAIN = metadata()


@pytest.mark.parametrize(("reader", "writer"), [(1, 1), (1, 2), (1, 4), (2, 5), (2, 6)])
def test_numbered_protocols_are_read_and_written(reader: int, writer: int) -> None:
    check_writable(protocol(reader, writer), PLAIN, table="t")


@pytest.mark.parametrize("feature", sorted(READABLE))
def test_readable_features_are_read(feature: str) -> None:
    check_readable(protocol(3, 7, [feature], [feature]), table="t")


@pytest.mark.parametrize("feature", sorted(WRITABLE))
def test_writable_features_are_written(feature: str) -> None:
    reads = [feature] if feature in READABLE else []
    check_writable(protocol(3, 7, reads, [feature]), PLAIN, table="t")


def test_an_unknown_reader_feature_is_named() -> None:
    with pytest.raises(UnsupportedFeature, match=r"lake\.t: reading .* features futureA, futureB"):
        check_readable(protocol(3, 7, ["futureB", "futureA", "columnMapping"], []), table="lake.t")


def test_an_unknown_writer_feature_is_read_and_not_written() -> None:
    needed = protocol(1, 7, None, ["appendOnly", "futureW"])
    check_readable(needed, table="t")
    with pytest.raises(UnsupportedFeature, match="writing needs the table feature futureW"):
        check_writable(needed, PLAIN, table="t")


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (protocol(4, 7, [], []), r"reader version 4 \(txlake knows up to 3\)"),
        (protocol(3, 8, [], []), r"writer version 8 \(txlake knows up to 7\)"),
        (protocol(5, 7, ["blahabl"], ["x"]), "reader version 5 .* and the table feature blahabl"),
        (protocol(3, 7, None, []), "inconsistent: reader version 3 without readerFeatures"),
        (protocol(3, 6, [], None), "inconsistent: reader version 3"),
        (protocol(1, 7, None, None), "inconsistent: writer version 7 without writerFeatures"),
        (protocol(2, 7, ["columnMapping"], ["columnMapping"]), "inconsistent: readerFeatures"),
        (protocol(1, 2, None, ["appendOnly"]), "inconsistent: writerFeatures"),
        (protocol(0, 2), "inconsistent: versions"),
    ],
)
def test_protocols_that_cant_be_honoured(found: Protocol, message: str) -> None:
    with pytest.raises(UnsupportedFeature, match=message):
        check_writable(found, PLAIN, table="t")


def test_empty_lists_on_a_numbered_protocol_do_no_harm() -> None:
    check_writable(protocol(1, 2, [], []), PLAIN, table="t")


@pytest.mark.parametrize(
    ("feature", "active"),
    [
        ("icebergCompatV1", metadata({"delta.enableIcebergCompatV1": "true"})),
        ("icebergCompatV3", metadata({"delta.enableIcebergCompatV3": "TRUE"})),
        ("geospatial", metadata(of="geometry(OGC:CRS84)")),
        (
            "geospatial",
            metadata(
                of={"type": "array", "elementType": "geometry(OGC:CRS84)", "containsNull": True}
            ),
        ),
    ],
)
def test_what_we_dont_write_is_refused_only_where_it_is_in_use(
    feature: str, active: Metadata
) -> None:
    reads = [feature] if feature in READABLE else []
    listed = protocol(3, 7, reads, [feature])
    check_writable(listed, PLAIN, table="t")
    with pytest.raises(UnsupportedFeature, match=feature):
        check_writable(listed, active, table="t")


def test_files_hold_partition_columns_where_the_feature_is_listed_or_it_is_wished_for() -> None:
    listed = protocol(1, 7, None, ["materializePartitionColumns"])
    wish = "delta.writePartitionColumnsToParquet"
    assert materializes_partitions(listed, {})
    assert materializes_partitions(listed, {wish: "false"})
    assert not materializes_partitions(protocol(1, 2), {})
    assert materializes_partitions(protocol(1, 2), {wish: "true"})
    # The property brings the feature; without it it says nothing.
    by_property = {"delta.enableMaterializePartitionColumnsFeature": "true"}
    assert not materializes_partitions(protocol(1, 7, None, []), by_property)
    added = protocol_for(metadata(by_property), protocol(1, 2))
    assert materializes_partitions(added, by_property)
    of_iceberg = protocol(2, 7, None, ["columnMapping", "icebergCompatV2"])
    enabled = {"delta.enableIcebergCompatV2": "true"}
    assert materializes_partitions(of_iceberg, enabled)
    assert not materializes_partitions(of_iceberg, {})
    assert not materializes_partitions(protocol(1, 2), enabled)


def test_an_old_protocol_implies_features_that_may_be_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    feed = metadata({"delta.enableChangeDataFeed": "true"})
    check_writable(protocol(1, 4), feed, table="t")
    monkeypatch.setattr(features, "WRITABLE", features.WRITABLE - {"changeDataFeed"})
    with pytest.raises(UnsupportedFeature, match="changeDataFeed"):
        check_writable(protocol(1, 4), feed, table="t")


@pytest.mark.parametrize("feature", ["catalogOwned", "catalogOwned-preview", "collations-preview"])
def test_what_has_no_switch_is_always_in_use(feature: str) -> None:
    reads = [feature] if feature in READABLE else []
    with pytest.raises(UnsupportedFeature, match=feature):
        check_writable(protocol(3, 7, reads, [feature]), PLAIN, table="t")


@pytest.mark.parametrize(
    ("found", "features"),
    [
        (protocol(1, 1), set()),
        (protocol(1, 2), {"appendOnly", "invariants"}),
        (protocol(1, 3), {"appendOnly", "invariants", "checkConstraints"}),
        (
            protocol(1, 4),
            {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"},
        ),
        (protocol(1, 7, None, ["x"]), {"x"}),
        (protocol(3, 7, ["columnMapping"], ["columnMapping", "y"]), {"columnMapping", "y"}),
    ],
)
def test_supported_features_are_listed_or_implied(found: Protocol, features: set[str]) -> None:
    assert supported_features(found) == features


def test_columns_are_mapped_only_by_a_reader_that_knows_it() -> None:
    assert "columnMapping" in supported_features(protocol(2, 5))
    assert "columnMapping" not in supported_features(protocol(1, 5))
    mode = {"delta.columnMapping.mode": "name"}
    assert column_mapping_mode(protocol(2, 5), mode, table="t") == "name"
    assert column_mapping_mode(protocol(1, 2), mode, table="t") == "none"
    assert column_mapping_mode(protocol(2, 5), {}, table="t") == "none"
    odd = {"delta.columnMapping.mode": "guess"}
    with pytest.raises(CorruptTable, match=r"t: .*mode': expected none, name or id, found 'guess'"):
        column_mapping_mode(protocol(2, 5), odd, table="t")
    assert column_mapping_mode(protocol(1, 2), odd, table="t") == "none"


NEW = {"appendOnly", "invariants"}


@pytest.mark.parametrize(
    ("wanted", "reader", "writer", "reads", "writes"),
    [
        (metadata(), 1, 2, None, None),
        (metadata({"delta.appendOnly": "true"}), 1, 2, None, None),
        (metadata({"delta.constraints.c": "a > 0"}), 1, 3, None, None),
        (metadata(keys={"delta.generationExpression": "1"}), 1, 7, None, {"generatedColumns"}),
        (metadata(keys={"CURRENT_DEFAULT": "1"}), 1, 7, None, {"allowColumnDefaults"}),
        (metadata({"delta.columnMapping.mode": "id"}), 2, 7, None, {"columnMapping"}),
        (
            metadata({"delta.enableDeletionVectors": "true"}),
            3,
            7,
            {"deletionVectors"},
            {"deletionVectors"},
        ),
        (
            metadata(
                {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"},
            ),
            3,
            7,
            {"columnMapping", "deletionVectors"},
            {"columnMapping", "deletionVectors"},
        ),
        (metadata(of="timestamp_ntz"), 3, 7, {"timestampNtz"}, {"timestampNtz"}),
        (
            metadata({"delta.enableRowTracking": "true"}),
            1,
            7,
            None,
            {"rowTracking", "domainMetadata"},
        ),
        (metadata({"delta.enableInCommitTimestamps": "true"}), 1, 7, None, {"inCommitTimestamp"}),
        (metadata({"delta.checkpointPolicy": "v2"}), 3, 7, {"v2Checkpoint"}, {"v2Checkpoint"}),
        (metadata({"delta.enableTypeWidening": "true"}), 3, 7, {"typeWidening"}, {"typeWidening"}),
        (metadata(keys={"delta.typeChanges": []}), 3, 7, {"typeWidening"}, {"typeWidening"}),
        (
            metadata({"delta.feature.vacuumprotocolcheck": "supported"}),
            3,
            7,
            {"vacuumProtocolCheck"},
            {"vacuumProtocolCheck"},
        ),
        (metadata({"delta.feature.domainMetadata": "enabled"}), 1, 7, None, {"domainMetadata"}),
    ],
)
def test_a_new_table_gets_the_least_protocol(
    wanted: Metadata, reader: int, writer: int, reads: set[str] | None, writes: set[str] | None
) -> None:
    found = protocol_for(wanted, None)
    assert (found.min_reader_version, found.min_writer_version) == (reader, writer)
    assert (None if found.reader_features is None else set(found.reader_features)) == reads
    listed = found.writer_features
    assert (None if listed is None else set(listed)) == (None if writes is None else writes | NEW)
    check_readable(found, table="t")


def test_versions_that_are_asked_for() -> None:
    asked = {"delta.minReaderVersion": "2", "delta.minWriterVersion": "5"}
    assert protocol_for(metadata(asked), None) == protocol(2, 5)
    asked |= {"delta.columnMapping.mode": "name"}
    assert protocol_for(metadata(asked), None) == protocol(2, 5)
    listed = protocol_for(metadata({"delta.minWriterVersion": "7"}), None)
    assert listed == protocol(1, 7, None, sorted(NEW))
    listed = protocol_for(metadata({"delta.minReaderVersion": "3"}), None)
    assert listed == protocol(3, 7, [], sorted(NEW))
    with pytest.raises(InvalidRequest, match="minWriterVersion"):
        protocol_for(metadata({"delta.minWriterVersion": "8"}), None)


def test_a_protocol_that_suits_is_kept_as_it_is() -> None:
    for existing in (protocol(1, 1), protocol(2, 6), protocol(1, 7, None, ["futureW"])):
        assert protocol_for(PLAIN, existing) is existing
    existing = protocol(3, 7, ["typeWidening-preview"], ["typeWidening-preview"])
    assert protocol_for(metadata({"delta.enableTypeWidening": "true"}), existing) is existing


def test_a_preview_that_is_asked_for_stands_for_the_feature() -> None:
    preview = {"delta.feature.variantType-preview": "supported"}
    found = protocol_for(metadata(preview, of="variant"), None)
    assert supported_features(found) == NEW | {"variantType-preview"}
    both = {**preview, "delta.feature.variantType": "supported"}
    found = protocol_for(metadata(both, of="variant"), None)
    assert supported_features(found) == NEW | {"variantType", "variantType-preview"}


def test_an_upgrade_keeps_all_that_may_have_been_used() -> None:
    wanted = metadata({"delta.enableDeletionVectors": "true"})
    found = protocol_for(wanted, protocol(2, 5))
    assert found.reader_features == ("columnMapping", "deletionVectors")
    assert supported_features(found) == supported_features(protocol(2, 5)) | {"deletionVectors"}
    found = protocol_for(wanted, protocol(1, 7, None, ["futureW"]))
    assert supported_features(found) == {"futureW", "deletionVectors"}
    found = protocol_for(metadata({"delta.columnMapping.mode": "name"}), protocol(3, 7, [], []))
    assert found == protocol(3, 7, ["columnMapping"], ["columnMapping"])


def test_features_that_no_metadata_shows() -> None:
    found = protocol_for(PLAIN, None, features=["clustering"])
    assert supported_features(found) == NEW | {"clustering", "domainMetadata"}
    with pytest.raises(InvalidRequest, match="'nosuch' is unknown"):
        protocol_for(PLAIN, None, features=["nosuch"])


@pytest.mark.parametrize(
    "asked", [{"delta.feature.nosuch": "supported"}, {"delta.feature.rowTracking": "yes"}]
)
def test_bad_requests_for_a_feature(asked: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match=next(iter(asked)).split(".")[-1]):
        protocol_for(metadata(asked), None)


VERSIONS = [
    pytest.param(version, id=f"{table['id']}@{version['version']}")
    for table in golden_tables()
    for version in cast("list[dict[str, object]]", table["versions"])
    if version.get("protocol")
]


@pytest.mark.parametrize("version", VERSIONS)
def test_golden_tables_are_read_or_refused_as_their_manifest_says(
    version: dict[str, object],
) -> None:
    wire = cast("dict[str, object]", version["protocol"])
    found = protocol(
        cast(int, wire["minReaderVersion"]),
        cast(int, wire["minWriterVersion"]),
        cast("list[str] | None", wire.get("readerFeatures")),
        cast("list[str] | None", wire.get("writerFeatures")),
    )
    if cast("dict[str, object]", version["expect"]).get("must_refuse"):
        with pytest.raises(UnsupportedFeature, match=r"reader version 5 .* blahabl"):
            check_readable(found, table="t")
    else:
        check_readable(found, table="t")
