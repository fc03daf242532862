"""What a metaData action may make of a table by `txlake.Log`, and of one that was left odd."""

from __future__ import annotations

import json
from typing import cast

import pyarrow as pa
import pytest

import txlake
from tests.lake.log_tables import Line, add, new_log, paths, remove, schema, settings, table
from txlake.errors import (
    ConcurrentAppendException,
    CorruptTable,
    InvalidRequest,
)
from txlake.lake.log import Log
from txlake.protocol.file_names import commit_path

MODE = "delta.columnMapping.mode"


def created(*columns: str, **configuration: str) -> Log:
    log = new_log()
    line = settings(*columns)
    line["metaData"]["configuration"] = {k.replace("__", "."): v for k, v in configuration.items()}
    log.start_transaction().commit([line], operation="CREATE TABLE")
    return log


def metadata_of(log: Log, **configuration: str | None) -> Line:
    """The table's metaData with some properties set, or removed."""
    now = dict(log.snapshot().metadata)
    given = {key.replace("__", "."): text for key, text in configuration.items()}
    kept = {**cast("dict[str, str]", now["configuration"]), **given}
    now["configuration"] = {key: text for key, text in kept.items() if text is not None}
    return {"metaData": now}


def commit(log: Log, *actions: Line) -> int:
    return log.start_transaction().commit(actions, operation="SET TBLPROPERTIES").version


def physical(log: Log) -> list[str]:
    return [
        field.get("metadata", {}).get("delta.columnMapping.physicalName", field["name"])
        for field in json.loads(str(log.snapshot().metadata["schemaString"]))["fields"]
    ]


def left_by_another(log: Log, **configuration: str) -> Log:
    """As an engine that checks nothing leaves the table."""
    line = metadata_of(log, **configuration)
    version = log.snapshot().version + 1
    log._log.store.put(commit_path(version), json.dumps(line).encode())
    return log


# --- column mapping -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["name", "id"])
@pytest.mark.parametrize("files", [0, 1])
def test_mapping_is_never_turned_off_or_changed(mode: str, files: int) -> None:
    log = created("id:long", delta__columnMapping__mode=mode)
    for number in range(files):
        commit(log, add(f"f{number}"))
    others = {"none", "name", "id", None} - {mode}
    for other in others:
        with pytest.raises(InvalidRequest, match=f"can't change from '{mode}' to"):
            commit(log, metadata_of(log, delta__columnMapping__mode=other))
    assert log.snapshot().version == files


@pytest.mark.parametrize("mode", ["name", "id"])
def test_one_that_removes_every_file_may_not_either_unless_it_is_another_table(mode: str) -> None:
    log = created("id:long", delta__columnMapping__mode=mode)
    commit(log, add("old"))
    plain = settings("id:long")
    with pytest.raises(InvalidRequest, match=f"can't change from '{mode}' to 'none'"):
        commit(log, plain, remove("old"))
    another = {"metaData": {**plain["metaData"], "id": "another"}}
    with pytest.raises(InvalidRequest, match=f"can't change from '{mode}' to 'none'"):
        commit(log, another)
    assert commit(log, another, remove("old"), add("new")) == 2
    assert (paths(log), physical(log)) == (["new"], ["id"])


@pytest.mark.parametrize("level", ["snapshot", "write_serializable", "serializable"])
def test_one_that_replaces_the_table_meets_what_others_added(level: str) -> None:
    log = created("id:long", delta__columnMapping__mode="name")
    commit(log, add("old"))
    replacing = log.start_transaction(isolation=level)
    replacing.read("id = 1")
    commit(log, add("theirs"))
    another = {"metaData": {**settings("id:long")["metaData"], "id": "another"}}
    with pytest.raises(ConcurrentAppendException):
        replacing.commit([another, remove("old")], operation="REPLACE TABLE")
    assert paths(log) == ["old", "theirs"]


def test_columns_keep_their_names_in_files_though_the_schema_does_not_tell_them() -> None:
    log = created("id:long", delta__columnMapping__mode="name")
    before = physical(log)
    bare = metadata_of(log)
    bare["metaData"]["schemaString"] = schema("id:long", "more:string")
    commit(log, bare)
    assert physical(log)[0] == before[0] != "id"
    assert physical(log)[1].startswith("col-")


def test_physical_names_count_only_where_columns_are_mapped() -> None:
    about = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-x"}
    field = {"name": "id", "type": "long", "nullable": True, "metadata": about}
    text = json.dumps({"type": "struct", "fields": [field]})
    log = left_by_another(created("id:long"))
    line = metadata_of(log)
    line["metaData"]["schemaString"] = text
    log._log.store.put(commit_path(2), json.dumps(line).encode())
    stats = {
        "numRecords": 1,
        "minValues": {"id": 5},
        "maxValues": {"id": 5},
        "nullCount": {"id": 0},
    }
    file = add("f")
    file["add"]["stats"] = json.dumps(stats)
    commit(log, file)
    assert paths(log, "id = 5") == ["f"]
    assert paths(log, "id = 6") == []
    assert log.snapshot().arrow_schema == pa.schema([("id", pa.int64())])
    with pytest.raises(InvalidRequest, match="expected the name that it has in the data files"):
        commit(log, metadata_of(log, delta__columnMapping__mode="name"))


# --- row tracking ---------------------------------------------------------------------------------

BOTH = {"delta__enableRowTracking": "true", "delta__rowTrackingSuspended": "true"}
ILLEGAL = "DELTA_ROW_TRACKING_ILLEGAL_PROPERTY_COMBINATION"


def rows(path: str) -> Line:
    return add(path, (1, 2))


def ids(log: Log) -> list[object]:
    return log.snapshot().files().column("base_row_id").to_pylist()


def test_row_tracking_is_not_suspended_where_it_is_relied_upon() -> None:
    with pytest.raises(InvalidRequest, match=ILLEGAL):
        created("id:long", **BOTH)
    for one, other in (tuple(BOTH), tuple(reversed(BOTH))):
        log = created("id:long", **{one: "true"})
        with pytest.raises(InvalidRequest, match=ILLEGAL):
            commit(log, metadata_of(log, **{other: "True "}))


@pytest.mark.parametrize("mend", [{"delta__rowTrackingSuspended": None}, BOTH.fromkeys(BOTH)])
def test_a_table_that_another_engine_left_so_takes_no_file_before_it_is_mended(
    mend: dict[str, str | None],
) -> None:
    log = created(
        "id:long", delta__rowTrackingSuspended="true", delta__feature__rowTracking="supported"
    )
    commit(log, rows("old"))
    assert ids(log) == [None]
    left_by_another(log, **BOTH)
    for change in (rows("new"), remove("old")):
        with pytest.raises(InvalidRequest, match=ILLEGAL):
            commit(log, change)
    assert commit(log, metadata_of(log, mine="1")) == 3  # no file is written
    commit(log, metadata_of(log, **mend))
    commit(log, rows("new"))
    found = ids(log)
    assert None not in found if "delta__enableRowTracking" not in mend else found.count(None) == 1
    assert len(set(found)) == 2


# --- properties that are not understood -----------------------------------------------------------

ODD = {
    "delta__appendOnly": "perhaps",
    "delta__enableDeletionVectors": "yes",
    "delta__enableInCommitTimestamps": "1",
    "delta__enableRowTracking": "on",
    "delta__enableTypeWidening": "",
    "delta__isolationLevel": "Chaos",
    "delta__rowTrackingSuspended": "maybe",
    "txlake__conflictGranularity": "page",
}
HARMLESS = {
    "delta__checkpointInterval": "often",
    "delta__checkpointPolicy": "v9",
    "delta__deletedFileRetentionDuration": "interval 1 month",
    "delta__enableExpiredLogCleanup": "now and then",
    "delta__logRetentionDuration": "interval 1 month",
    "delta__targetFileSize": "big",
}


@pytest.mark.parametrize("key", [*ODD, *HARMLESS])
def test_nobody_sets_one(key: str) -> None:
    text = {**ODD, **HARMLESS}[key]
    log = created("id:long")
    with pytest.raises(InvalidRequest, match=key.replace("__", r"\.")):
        commit(log, metadata_of(log, **{key: text}))
    with pytest.raises(InvalidRequest, match=key.replace("__", r"\.")):
        created("id:long", **{key: text})


def read_all(log: Log) -> None:
    fresh = Log.over(type(log._log)(log._log.store, log._log.system, log._log.settings))
    snapshot = fresh.snapshot()
    assert snapshot.files("id = 1").num_rows == 1
    assert snapshot.arrow_schema.names == ["id"]
    assert fresh.history()
    fresh.start_transaction().read("id = 1")


@pytest.mark.parametrize("key", ODD)
def test_one_that_a_writer_has_to_understand_keeps_files_out_and_nothing_else(key: str) -> None:
    log = created("id:long")
    commit(log, rows("old"))
    left_by_another(log, **ODD)
    read_all(log)
    for change in (rows("new"), remove("old")):
        with pytest.raises(CorruptTable, match=r"table property '.*expected .*SET TBLPROPERTIES"):
            commit(log, change)
    commit(log, {"txn": {"appId": "app", "version": 1}})
    commit(log, metadata_of(log, **{key: None}))
    commit(log, metadata_of(log, mine="1"))
    commit(log, metadata_of(log, **dict.fromkeys(ODD)))
    commit(log, rows("new"))
    assert paths(log) == ["new", "old"]
    left_by_another(log, **{key: ODD[key]})
    with pytest.raises(CorruptTable, match=key.replace("__", r"\.")):
        commit(log, rows("more"))


def test_others_are_in_no_writers_way() -> None:
    log = left_by_another(created("id:long"), **HARMLESS)
    for number in range(12):  # beyond a checkpoint
        commit(log, rows(f"f{number}"))
    assert len(paths(log)) == 12
    names = [item.path for item in log._log.store.list("_delta_log")]
    assert any("checkpoint.parquet" in name for name in names)


def test_a_mode_of_mapping_that_is_not_understood_closes_the_rows_until_it_is_mended() -> None:
    log = created("id:long", delta__columnMapping__mode="name")
    commit(log, rows("old"))
    left_by_another(log, delta__columnMapping__mode="index")
    assert log.history()
    with pytest.raises(CorruptTable, match=r"columnMapping\.mode': expected none, name or id"):
        log.snapshot().files("id = 1")
    with pytest.raises(CorruptTable, match=r"columnMapping\.mode"):
        commit(log, rows("new"))
    with pytest.raises(InvalidRequest, match="column id doesn't say so"):
        commit(log, metadata_of(log, delta__columnMapping__mode=None))
    commit(log, metadata_of(log, mine="1"))
    commit(log, metadata_of(log, delta__columnMapping__mode="name"))
    commit(log, rows("new"))
    assert paths(log) == ["new", "old"]


def test_a_log_that_is_opened_by_its_place_reads_it_too() -> None:
    log = table(rows("f"))
    left_by_another(log, **ODD, **HARMLESS)
    found = txlake.Log(log._log.store.url).snapshot()
    assert found.properties["delta.logRetentionDuration"] == "interval 1 month"
