"""What Delta Spark's options mean, and what is said of values that can't be. Needs no Spark."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, PySparkException

from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.lake.streaming.options import SOURCE_NAMES, place_of
from txlake.spark_integration.options import (
    IGNORED,
    OTHER_OPTIONS,
    READ_OPTIONS,
    REFUSED_READS,
    REFUSED_WRITES,
    WRITE_OPTIONS,
    FeedRange,
    drop_stream_options,
    find_storage_options,
    is_lake_format,
    prefix_storage_options,
    read_options,
    stream_reader_options,
    stream_writer_options,
    write_options,
)
from txlake.sql.statements import SqlText, TableName, TimeTravel


def test_formats() -> None:
    assert is_lake_format("delta")
    assert is_lake_format("TxLake")
    assert not is_lake_format("parquet")
    assert not is_lake_format(None)


def test_reading() -> None:
    nothing = read_options({})
    assert (nothing.travel, nothing.changes, nothing.path) == (None, None, None)
    assert read_options({"VERSIONasof": "3"}).travel == TimeTravel(version=3)
    assert read_options({"versionAsOf": 0}).travel == TimeTravel(version=0)
    for name in ("versionAsOf", "branch", "tag"):
        named = read_options({name: "Nightly/2"}).travel
        assert named == TimeTravel(branch_or_tag="Nightly/2")
    moment = TimeTravel(timestamp="2026-01-31 12:00:00")
    assert read_options({"timestampAsOf": "2026-01-31 12:00:00"}).travel == moment
    assert read_options({"readChangeFeed": "false", "startingVersion": "latest"}).changes is None
    changes = read_options({"readChangeFeed": True, "startingVersion": "1", "endingVersion": 4})
    assert changes.changes == FeedRange(from_version=1, to_version=4)
    times = read_options({"readChangeData": "TRUE", "startingTimestamp": "2026-01-01"})
    assert times.changes == FeedRange(from_timestamp="2026-01-01")
    assert read_options({"fs.s3a.access.key": "k"}).storage == {"aws_access_key_id": "k"}
    assert read_options({"whatever": "x"}) == nothing


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"versionAsOf": "1", "timestampAsOf": "2026-01-01"}, "exclude each other"),
        ({"versionAsOf": "x y"}, "Invalid value 'x y' for option 'versionAsOf'"),
        ({"branch": "1"}, "Invalid value '1' for option 'branch'.* can't name a branch"),
        ({"branch": "x", "tag": "y"}, "branch and tag exclude each other"),
        ({"branch": "x", "versionAsOf": "y"}, "versionAsOf and branch exclude each other"),
        ({"versionAsOf": "-1"}, "non-negative"),
        ({"readChangeFeed": "yes"}, "must be 'true' or 'false'"),
        ({"readChangeFeed": "true"}, "needs a start"),
        (
            {"readChangeFeed": "true", "startingVersion": 1, "startingTimestamp": "2026-01-01"},
            "both say where the changes start",
        ),
        (
            {
                "readChangeFeed": "true",
                "startingVersion": 1,
                "endingVersion": 1,
                "endingTimestamp": "2026-01-01",
            },
            "both say where the changes end",
        ),
        ({"readChangeFeed": "true", "startingVersion": 1, "versionAsOf": 1}, "a range of versions"),
    ],
)
def test_bad_reading(given: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        read_options(given)


def test_writing() -> None:
    nothing = write_options({})
    assert nothing.partition_overwrite is None
    assert not nothing.merge_schema
    found = write_options(
        {
            "replacewhere": "p = 1",
            "MERGESCHEMA": True,
            "overwriteSchema": "false",
            "txnAppId": "job",
            "txnVersion": "7",
            "userMetadata": "mine",
            "path": "/data/t",
            "compression": "zstd",
        }
    )
    assert (found.replace_where, found.merge_schema, found.overwrite_schema) == (
        "p = 1",
        True,
        False,
    )
    assert (found.app_id, found.app_version) == ("job", 7)
    assert (found.user_metadata, found.path) == ("mine", "/data/t")
    assert write_options({"partitionOverwriteMode": "DYNAMIC"}).partition_overwrite == "dynamic"
    assert write_options({"partitionOverwriteMode": "static"}).partition_overwrite == "static"
    assert write_options({"replaceUsing": "a, b,a"}).replace_using == ("a", "b")
    assert write_options({"dataChange": "true"}) == nothing
    read = write_options({"READVERSION": "3", "reads": "p = 1"}).versions_read(TableName(("t",)))
    assert [(one.version, one.rows) for one in read] == [(3, SqlText("p = 1"))]
    assert nothing.versions_read(TableName(("t",))) == ()


# DeltaOptions.scala of Delta Spark 4.4.0: `validOptionKeys`, and what else is read as an option.
OF_DELTA = (
    "__use_null_as_default",
    "allowSourceColumnDrop",
    "allowSourceColumnRename",
    "allowSourceColumnTypeChange",
    "checkpointLocation",
    "compression",
    "dataChange",
    "endingTimestamp",
    "endingVersion",
    "excludeRegex",
    "failOnDataLoss",
    "ignoreChanges",
    "ignoreDeletes",
    "ignoreFileDeletion",
    "isDataFrameWriterV1SaveAsTableOverwrite",
    "maxBytesPerTrigger",
    "maxFilesPerTrigger",
    "maxRecordsPerFile",
    "mergeSchema",
    "optimizeWrite",
    "overwriteSchema",
    "parquet.writer.version",
    "partitionOverwriteMode",
    "path",
    "queryName",
    "readChangeData",
    "readChangeFeed",
    "replaceOn",
    "replaceUsing",
    "replaceWhere",
    "schemaLocation",
    "schemaTrackingLocation",
    "skipChangeCommits",
    "spark.sql.parquet.outputTimestampType",
    "startingTimestamp",
    "startingVersion",
    "streamingSourceTrackingId",
    "targetAlias",
    "timestampAsOf",
    "txnAppId",
    "txnVersion",
    "useNullIntolerantEqualityWithDPO",
    "userMetadata",
    "versionAsOf",
    "writePartitionColumns",
)


@pytest.mark.parametrize("name", OF_DELTA)
def test_each_of_delta_sparks_options_is_decided_about(name: str) -> None:
    kinds = (WRITE_OPTIONS, READ_OPTIONS, OTHER_OPTIONS, IGNORED, REFUSED_WRITES, SOURCE_NAMES)
    assert any(name in kind for kind in kinds)


@pytest.mark.parametrize("name", REFUSED_WRITES)
def test_writers_refuse_by_name(name: str) -> None:
    with pytest.raises(UnsupportedFeature, match=f"option '{name}' isn't supported: "):
        write_options({name.upper(): "t"})
    assert write_options({name: "false"}) == write_options({})


@pytest.mark.parametrize("name", REFUSED_READS)
def test_readers_refuse_by_name(name: str) -> None:
    with pytest.raises(UnsupportedFeature, match=f"option '{name}' isn't supported: "):
        read_options({name: "true"})
    assert read_options({name: False}) == read_options({})


@pytest.mark.parametrize("name", IGNORED)
def test_ignored_options_change_nothing(name: str) -> None:
    assert write_options({name: "x"}) == write_options({})
    assert read_options({name: "x"}) == read_options({})


@pytest.mark.parametrize(
    ("name", "meant"),
    [("replaceWher", "replaceWhere"), ("partition_overwrite_mode", "partitionOverwriteMode")],
)
def test_a_misspelt_option_of_writers(name: str, meant: str) -> None:
    with pytest.raises(InvalidRequest, match=f"option '{name}' is unknown, did you mean {meant}"):
        write_options({name: "x"})


@pytest.mark.parametrize(("name", "meant"), [("version", "versionAsOf"), ("endVersion", "ending")])
def test_a_misspelt_option_of_readers(name: str, meant: str) -> None:
    with pytest.raises(InvalidRequest, match=f"option '{name}' is unknown, did you mean .*{meant}"):
        read_options({name: "1"})


def test_a_streams_options_are_no_batchs() -> None:
    given = {"excluderegex": "x", "maxFilesPerTrigger": "1", "startingVersion": "1", "path": "/t"}
    left = drop_stream_options(given)
    assert left == {"startingVersion": "1", "path": "/t"}
    assert read_options(left).path == "/t"


def test_other_options_travel_along() -> None:
    others = {"fs.s3a.access.key": "k", "delta.appendOnly": "true", "storage.region": "x", "a": "b"}
    assert write_options(others).replace_where is None
    assert read_options({**others, "basePath": "x", "lake": "y"}).travel is None


@pytest.mark.parametrize("other", [{"replaceWhere": "p = 1"}, {"replaceUsing": "p"}])
def test_null_partitions_stay_in_a_dynamic_overwrite_alone(other: dict[str, object]) -> None:
    dynamic = {"partitionOverwriteMode": "dynamic", "useNullIntolerantEqualityWithDPO": True}
    assert write_options(dynamic).keep_null_partitions
    with pytest.raises(InvalidRequest, match=r"DELTA_ILLEGAL_OPTION.*not with replace"):
        write_options({**other, "useNullIntolerantEqualityWithDPO": "false"})
    with pytest.raises(UnsupportedFeature, match="isn't an option of a stream's writer"):
        stream_writer_options({"useNullIntolerantEqualityWithDPO": "true"})


@pytest.mark.parametrize(
    ("given", "condition"),
    [
        ({"mergeSchema": "maybe"}, "DELTA_ILLEGAL_OPTION"),
        ({"partitionOverwriteMode": "some"}, "DELTA_ILLEGAL_OPTION"),
        ({"replaceUsing": "a,,b"}, "DELTA_ILLEGAL_OPTION"),
        ({"txnAppId": "job", "txnVersion": "x"}, "DELTA_ILLEGAL_OPTION"),
        ({"txnAppId": "job"}, "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS"),
        ({"txnVersion": 1}, "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS"),
        (
            {"replaceWhere": "p = 1", "partitionOverwriteMode": "dynamic"},
            "DELTA_REPLACE_WHERE_WITH_DYNAMIC_PARTITION_OVERWRITE",
        ),
        (
            {"overwriteSchema": "true", "partitionOverwriteMode": "dynamic"},
            "DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE",
        ),
    ],
)
def test_bad_writing_has_deltas_condition(given: dict[str, object], condition: str) -> None:
    with pytest.raises(AnalysisException) as caught:
        write_options(given)
    assert isinstance(caught.value, PySparkException)
    assert caught.value.getCondition() == condition


@pytest.mark.parametrize("given", [{"replaceOn": "t.id = s.id"}])
def test_what_is_not_there_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(UnsupportedFeature):
        write_options(given)


def test_settings_of_file_systems_are_storage_options_of_a_data_source() -> None:
    given = {"path": "t", "fs.s3a.access.key": "k", "storage.timeout": "9s"}
    found = prefix_storage_options(given)
    assert "fs.s3a.access.key" not in found
    assert place_of(found).storage_options == {**find_storage_options(given), "timeout": "9s"}
    assert "k" in find_storage_options(given).values()


def test_a_stream_gets_the_options_that_it_knows() -> None:
    given = {"MAXFILESPERTRIGGER": 7, "header": True, "ignoreDeletes": True, "versionAsOf": 3}
    assert stream_reader_options(given) == {
        "maxFilesPerTrigger": "7", "ignoreDeletes": "true", "versionAsOf": "3",
    }  # fmt: skip


def test_the_options_of_a_streams_writer() -> None:
    found = stream_writer_options(
        {"checkpointlocation": "c", "mergeSchema": "true", "userMetadata": "u"}
    )
    assert (found.checkpoint, found.merge_schema, found.user_metadata) == ("c", True, "u")
    assert stream_writer_options({"OVERWRITESCHEMA": True}).overwrite_schema is True


@pytest.mark.parametrize(
    "given",
    [
        {"replaceWhere": "a = 1"},
        {"replaceUsing": "a"},
        {"partitionOverwriteMode": "dynamic"},
        {"txnAppId": "a", "txnVersion": 1},
        {"dataChange": "false"},
        {"readVersion": 3},
        {"reads": "a = 1"},
        {"fs.s3a.access.key": "k"},
    ],
)
def test_what_a_streams_writer_hasnt_is_refused_by_name(given: dict[str, object]) -> None:
    name = "settings of file systems" if "fs.s3a.access.key" in given else next(iter(given))
    with pytest.raises(UnsupportedFeature, match=name):
        stream_writer_options(given)
