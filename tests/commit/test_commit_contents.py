"""What is made anew at each attempt: times, row ids, the level, the protocol."""

from __future__ import annotations

import json

import pytest

from tests.commit.committing import FULL, actions_at, append, begin, info_at, lines_at
from tests.commit.log_of import PROTOCOL, SCHEMA, START, LogOf, add, metadata
from txlake.conflict.levels import Level
from txlake.errors import (
    ConcurrentAppendException,
    InvalidRequest,
    MetadataChangedException,
)
from txlake.protocol.actions import (
    Add,
    Metadata,
)
from txlake.protocol.file_names import commit_path

# --- what is made anew at each attempt ------------------------------------------------------------


ICT = {"delta.enableInCommitTimestamps": "true"}


def test_in_commit_timestamps_only_grow() -> None:
    table = LogOf().create()
    transaction = begin(table)
    transaction.stage([metadata(ICT)], operation="SET TBLPROPERTIES")
    transaction.commit()
    table.clock.time_ms -= 10_000  # this writer's clock is behind
    times = []
    for name in ("a", "b"):
        version = append(table, name).version
        info = info_at(table, version)
        assert next(iter(info)) == "inCommitTimestamp"
        assert lines_at(table, version)[0] == "commitInfo"
        times.append(info["inCommitTimestamp"])
    first = info_at(table, 1)["inCommitTimestamp"]
    assert isinstance(first, int)
    assert times == [first + 1, first + 2]


def test_turning_in_commit_timestamps_on_says_since_when() -> None:
    table = LogOf().create()
    transaction = begin(table)
    transaction.stage([metadata(ICT)], operation="SET TBLPROPERTIES")
    append(table, "a")  # the enablement is made anew for version 2
    transaction.commit()
    configuration = table.open().latest().metadata.configuration
    assert configuration["delta.inCommitTimestampEnablementVersion"] == "2"
    time = configuration["delta.inCommitTimestampEnablementTimestamp"]
    assert int(time) == info_at(table, 2)["inCommitTimestamp"]
    assert "inCommitTimestamp" in table.open().latest().features


def test_a_table_that_starts_with_in_commit_timestamps_says_no_since() -> None:
    table = LogOf()
    transaction = begin(table)
    since = {"delta.inCommitTimestampEnablementVersion": "7"}
    transaction.stage([metadata({**ICT, **since})], operation="CREATE TABLE")
    transaction.commit()
    assert info_at(table, 0)["inCommitTimestamp"] == START
    assert set(table.open().latest().metadata.configuration) == set(ICT)


def test_later_metadata_keeps_and_loses_the_since() -> None:
    table = LogOf().create()
    for configuration in (ICT, {**ICT, "mine": "1"}):
        transaction = begin(table)
        transaction.stage([metadata(configuration)], operation="SET TBLPROPERTIES")
        transaction.commit()
        since = table.open().latest().metadata.configuration
        assert since["delta.inCommitTimestampEnablementVersion"] == "1"
    transaction = begin(table)
    off = {**since, "delta.enableInCommitTimestamps": "false"}
    transaction.stage([metadata(off)], operation="SET TBLPROPERTIES")
    transaction.commit()
    left = table.open().latest().metadata.configuration
    assert "delta.inCommitTimestampEnablementVersion" not in left
    assert "inCommitTimestamp" not in info_at(table, 3)


def test_in_commit_timestamps_that_a_winner_turned_on_are_adopted() -> None:
    table = LogOf().create()
    transaction = begin(table)
    transaction.stage([add("a")], operation="WRITE")
    other = begin(table)
    other.stage([metadata(ICT)], operation="SET TBLPROPERTIES")
    other.commit()
    assert transaction.commit().rebased_over == (1,)
    theirs, ours = (info_at(table, version)["inCommitTimestamp"] for version in (1, 2))
    assert isinstance(theirs, int)
    assert isinstance(ours, int)
    assert ours > theirs


TRACKED = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "_id",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_version",
}


def ids(table: LogOf) -> dict[str, tuple[int | None, int | None]]:
    files = table.open().latest().files.adds()
    return {f.path: (f.base_row_id, f.default_row_commit_version) for f in files}


def stats(rows: int) -> str:
    return json.dumps({"numRecords": rows})


def test_row_ids_are_handed_out_once() -> None:
    table = LogOf().create(configuration=TRACKED, protocol=FULL)
    late = begin(table)
    late.stage([add("late", stats=stats(5))], operation="WRITE")
    append(table, "a", "b", stats=stats(10))
    late.commit()
    assert ids(table) == {"a": (0, 1), "b": (10, 1), "late": (20, 2)}
    assert table.open().latest().row_id_high_water_mark == 24
    assert info_at(table, 2)["tags"] == {"delta.rowTracking.preserved": "true"}
    assert info_at(table, 2)["isBlindAppend"] is True


def test_listed_again_a_file_keeps_its_row_ids() -> None:
    table = LogOf().create(configuration=TRACKED, protocol=FULL)
    append(table, "a", "b", stats=stats(10))
    again = begin(table)
    again.stage([add("a", stats=stats(10), size=11)], operation="COMPUTE STATS")
    append(table, "c", stats=stats(10))
    again.commit()
    assert ids(table) == {"a": (0, 1), "b": (10, 1), "c": (20, 2)}
    assert "domainMetadata" not in lines_at(table, 3)


def test_a_removed_file_names_its_row_ids() -> None:
    table = LogOf().create(configuration=TRACKED, protocol=FULL)
    append(table, "a", stats=stats(10))
    transaction = begin(table)
    transaction.read()
    transaction.stage([add("a").tombstone(timestamp_ms=1)], operation="DELETE")
    transaction.commit()
    (removed,) = table.open().latest().tombstones.values()
    assert (removed.base_row_id, removed.default_row_commit_version) == (0, 1)


def test_without_a_number_of_rows_there_are_no_row_ids() -> None:
    table = LogOf().create(configuration=TRACKED, protocol=FULL)
    with pytest.raises(InvalidRequest, match=r"file a: the table tracks rows.*numRecords"):
        append(table, "a")
    assert commit_path(1) not in table.paths


def test_turning_row_tracking_on_numbers_all_rows() -> None:
    table = LogOf().create(protocol=FULL, configuration={"delta.rowTrackingSuspended": "true"})
    append(table, "a", "b", stats=stats(10))
    assert ids(table) == {"a": (None, None), "b": (None, None)}
    transaction = begin(table)
    transaction.stage(
        [metadata({"delta.enableRowTracking": "true"})], operation="SET TBLPROPERTIES"
    )
    transaction.commit()
    assert ids(table) == {"a": (0, 2), "b": (10, 2)}
    configuration = table.open().latest().metadata.configuration
    for key in TRACKED.keys() - {"delta.enableRowTracking"}:
        assert configuration[key].startswith("_row-")
    adds = [action for action in actions_at(table, 2) if isinstance(action, Add)]
    assert [action.data_change for action in adds] == [False, False]


def test_rows_that_were_copied_before_the_table_tracked_them() -> None:
    table = LogOf().create(protocol=FULL)
    append(table, "a", stats=stats(10))
    transaction = begin(table)
    transaction.read_files(["b"])
    removed = add("a").tombstone(timestamp_ms=1)
    transaction.stage([removed, add("a2", stats=stats(9))], operation="UPDATE")
    other = begin(table)
    other.stage([metadata(TRACKED)], operation="SET TBLPROPERTIES")
    other.commit()
    transaction.commit()
    assert info_at(table, 3)["tags"] == {"delta.rowTracking.preserved": "false"}
    assert ids(table) == {"a2": (10, 3)}


# --- levels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of_table", "asked", "spelled"),
    [
        (None, None, "WriteSerializable"),
        ("Serializable", None, "Serializable"),
        ("Serializable", Level.SNAPSHOT, "Serializable"),
        ("Snapshot", None, "SnapshotIsolation"),
        ("Snapshot", Level.SERIALIZABLE, "Serializable"),
        ("WriteSerializable", Level.SNAPSHOT, "WriteSerializable"),
        (None, Level.SNAPSHOT, "SnapshotIsolation"),
    ],
)
def test_the_strictest_level_counts(
    of_table: str | None, asked: Level | None, spelled: str
) -> None:
    configuration = {} if of_table is None else {"delta.isolationLevel": of_table}
    table = LogOf().create(configuration=configuration)
    transaction = begin(table, asked)
    transaction.stage([add("a")], operation="WRITE")
    transaction.commit()
    assert info_at(table, 1)["isolationLevel"] == spelled


def test_a_serializable_table_checks_blind_appends() -> None:
    for text, conflicts in (("Serializable", True), ("WriteSerializable", False)):
        table = LogOf().create(configuration={"delta.isolationLevel": text})
        transaction = begin(table)
        transaction.read()
        transaction.stage([add("b")], operation="WRITE")
        append(table, "a")
        if conflicts:
            with pytest.raises(ConcurrentAppendException):
                transaction.commit()
        else:
            assert transaction.commit().version == 2


def test_a_winner_without_a_blind_flag_is_not_blind() -> None:
    table = LogOf().create()
    transaction = begin(table)
    transaction.read()
    transaction.stage([add("b")], operation="WRITE")
    table.commit(1, add("a"))
    with pytest.raises(ConcurrentAppendException):
        transaction.commit()


def test_metadata_against_metadata() -> None:
    table = LogOf().create()
    first, second = begin(table), begin(table)
    for transaction in (first, second):
        transaction.stage([metadata({"mine": "1"})], operation="SET TBLPROPERTIES")
    first.commit()
    with pytest.raises(MetadataChangedException):
        second.commit()


def test_a_new_table_gets_the_least_protocol() -> None:
    table = LogOf()
    transaction = begin(table)
    plain = Metadata(id="x", schema_string=SCHEMA)
    transaction.stage([plain], operation="CREATE TABLE")
    assert transaction.commit().snapshot.protocol == PROTOCOL
