"""What Delta Spark's options mean, and what is said of values that can't be. Needs no Spark."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, PySparkException

from txlake.doors.options import (
    Range,
    is_ours,
    read_options,
    sink_options,
    storage_in,
    stream_options,
    with_storage,
    write_options,
)
from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.statements import TimeTravel
from txlake.streaming.options import place_of


def test_formats() -> None:
    assert is_ours("delta")
    assert is_ours("TxLake")
    assert not is_ours("parquet")
    assert not is_ours(None)


def test_reading() -> None:
    nothing = read_options({})
    assert (nothing.travel, nothing.changes, nothing.path) == (None, None, None)
    assert read_options({"VERSIONasof": "3"}).travel == TimeTravel(version=3)
    assert read_options({"versionAsOf": 0}).travel == TimeTravel(version=0)
    moment = TimeTravel(timestamp="2026-01-31 12:00:00")
    assert read_options({"timestampAsOf": "2026-01-31 12:00:00"}).travel == moment
    assert read_options({"readChangeFeed": "false", "startingVersion": "latest"}).changes is None
    changes = read_options({"readChangeFeed": True, "startingVersion": "1", "endingVersion": 4})
    assert changes.changes == Range(from_version=1, to_version=4)
    times = read_options({"readChangeData": "TRUE", "startingTimestamp": "2026-01-01"})
    assert times.changes == Range(from_timestamp="2026-01-01")
    assert read_options({"fs.s3a.access.key": "k"}).storage == {"aws_access_key_id": "k"}
    assert read_options({"whatever": "x"}) == nothing


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"versionAsOf": "1", "timestampAsOf": "2026-01-01"}, "exclude each other"),
        ({"versionAsOf": "x"}, "Invalid value 'x' for option 'versionAsOf'"),
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
    found = with_storage(given)
    assert "fs.s3a.access.key" not in found
    assert place_of(found).storage_options == {**storage_in(given), "timeout": "9s"}
    assert "k" in storage_in(given).values()


def test_a_stream_gets_the_options_that_it_knows() -> None:
    given = {"MAXFILESPERTRIGGER": 7, "header": True, "ignoreDeletes": True, "versionAsOf": 3}
    assert stream_options(given) == {
        "maxFilesPerTrigger": "7", "ignoreDeletes": "true", "versionAsOf": "3",
    }  # fmt: skip


def test_the_options_of_a_streams_writer() -> None:
    found = sink_options({"checkpointlocation": "c", "mergeSchema": "true", "userMetadata": "u"})
    assert (found.checkpoint, found.merge_schema, found.user_metadata) == ("c", True, "u")
    assert sink_options({"OVERWRITESCHEMA": True}).overwrite_schema is True


@pytest.mark.parametrize(
    "given",
    [
        {"replaceWhere": "a = 1"},
        {"replaceUsing": "a"},
        {"partitionOverwriteMode": "dynamic"},
        {"txnAppId": "a", "txnVersion": 1},
        {"dataChange": "false"},
        {"fs.s3a.access.key": "k"},
    ],
)
def test_what_a_streams_writer_hasnt_is_refused_by_name(given: dict[str, object]) -> None:
    name = "settings of file systems" if "fs.s3a.access.key" in given else next(iter(given))
    with pytest.raises(UnsupportedFeature, match=name):
        sink_options(given)
