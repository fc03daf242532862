"""`txlake.Log`: every promise that its docstrings make to engine authors."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys

import pyarrow as pa
import pytest

import txlake
from tests.lake.log_tables import (
    Line,
    actions_at,
    add,
    info_at,
    moved,
    new_log,
    paths,
    reading,
    remove,
    schema,
    settings,
    table,
)
from txlake.errors import ConcurrentAppendException, InvalidRequest, UnsupportedFeature

# --- snapshots ------------------------------------------------------------------------------------


def test_a_snapshot_says_what_the_table_is() -> None:
    log = new_log()
    created = settings("id:long", "p:string", by=("p",), mine="1")
    log.start_transaction().commit([created], operation="CREATE TABLE")
    snapshot = log.snapshot()
    assert snapshot.version == 0
    assert snapshot.partition_columns == ["p"]
    assert snapshot.properties == {"mine": "1"}
    assert snapshot.schema == json.loads(schema("id:long", "p:string"))
    assert snapshot.arrow_schema == pa.schema([("id", pa.int64()), ("p", pa.string())])
    assert snapshot.protocol == {"minReaderVersion": 1, "minWriterVersion": 2}
    assert snapshot.metadata["partitionColumns"] == ["p"]
    assert snapshot.metadata["format"] == {"provider": "parquet", "options": {}}
    assert snapshot.metadata["schemaString"] == schema("id:long", "p:string")
    assert len(str(snapshot.metadata["id"])) == 36
    assert snapshot.app_version("app") is None
    assert snapshot.domain("mine") is None
    assert abs(snapshot.timestamp_ms - datetime.datetime.now(datetime.UTC).timestamp() * 1000) < 1e6


def test_files_are_a_table_with_decoded_paths() -> None:
    log = table(add("p=1/a%20b", (1, 5), p="1"), add("p=2/c", (6, 9), p="2"), by=("p",))
    files = log.snapshot().files()
    assert isinstance(files, pa.Table)
    first = ["path", "size", "partition_values", "stats", "deletion_vector"]
    assert files.column_names[:5] == first
    assert "modification_time" in files.column_names
    rows = sorted(files.to_pylist(), key=lambda row: row["path"])
    assert [row["path"] for row in rows] == ["p=1/a b", "p=2/c"]
    assert rows[0]["partition_values"] == [("p", "1")]
    assert json.loads(rows[0]["stats"])["minValues"] == {"id": 1}
    assert rows[0]["deletion_vector"] is None


def test_files_by_partition_and_statistics() -> None:
    log = table(
        add("a", (1, 5), p="1"), add("b", (6, 9), p="1"), add("c", (6, 9), p="2"), by=("p",)
    )
    assert paths(log, "p = '1' AND id > 5") == ["b"]
    assert paths(log, "p = '1'") == ["a", "b"]
    assert paths(log, "id = 100") == []
    assert paths(log, "id % 2 = 0") == ["a", "b", "c"]  # not modelled: every file stays


@pytest.mark.parametrize(
    ("where", "message"), [("nope = 1", "nope"), ("p = ", "p = "), ("id = 1; DROP", "DROP")]
)
def test_conditions_that_are_none(where: str, message: str) -> None:
    log = table()
    with pytest.raises(InvalidRequest, match=message):
        log.snapshot().files(where=where)


def test_time_travel_by_version_and_moment() -> None:
    log = table(add("a"))
    log.start_transaction().commit([add("b")])
    assert log.snapshot(version=0).files().num_rows == 1
    then = log.snapshot(version=0).timestamp_ms
    moment = datetime.datetime.fromtimestamp(then / 1000, datetime.UTC)
    for spelled in (
        then,
        moment,
        moment.replace(tzinfo=None),
        moment.isoformat(),
        moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3],
    ):
        assert log.snapshot(timestamp=spelled).version == 0, spelled
    with pytest.raises(InvalidRequest, match="before"):
        log.snapshot(timestamp="2001-01-01")
    with pytest.raises(InvalidRequest):
        log.snapshot(timestamp=datetime.date(2001, 1, 1))
    with pytest.raises(InvalidRequest, match="expected a text like"):
        log.snapshot(timestamp="yesterday")
    with pytest.raises(InvalidRequest):
        log.snapshot(version=7)
    with pytest.raises(InvalidRequest, match="not both"):
        log.snapshot(version=0, timestamp=then)


def test_history_is_newest_first() -> None:
    log = table()
    log.start_transaction().commit([add("a")], operation="WRITE", parameters={"mode": "Append"})
    rows = log.history()
    assert [row["version"] for row in rows] == [1, 0]
    assert rows[0]["operation"] == "WRITE"
    assert rows[0]["operationParameters"] == {"mode": "Append"}
    assert rows[1]["operation"] == "CREATE TABLE"
    assert [row["version"] for row in log.history(limit=1)] == [1]


def test_no_table() -> None:
    with pytest.raises(InvalidRequest):
        new_log().snapshot()


# --- the first commit -----------------------------------------------------------------------------


def test_the_first_commit_creates_the_table() -> None:
    log = new_log()
    transaction = log.start_transaction()
    assert transaction.read_version == -1
    committed = transaction.commit([settings("id:long"), add("a")], operation="CREATE TABLE")
    assert (committed.version, committed.attempts, committed.rebased_over) == (0, 1, ())
    assert log.snapshot().protocol == {"minReaderVersion": 1, "minWriterVersion": 2}
    assert paths(log) == ["a"]


@pytest.mark.parametrize("actions", [[], [add("a")]])
def test_the_first_commit_needs_metadata(actions: list[Line]) -> None:
    log = new_log()
    with pytest.raises(InvalidRequest, match="needs a metaData"):
        log.start_transaction().commit(actions)
    with pytest.raises(InvalidRequest):
        log.snapshot()


def test_the_protocol_suits_the_metadata() -> None:
    log = new_log()
    with_vectors = settings("id:timestamp_ntz", delta__enableDeletionVectors="true")
    log.start_transaction().commit([with_vectors])
    protocol = log.snapshot().protocol
    assert protocol["minReaderVersion"] == 3
    assert set(protocol["readerFeatures"]) == {"deletionVectors", "timestampNtz"}  # type: ignore[call-overload]


def test_a_protocol_given_is_kept() -> None:
    log = new_log()
    given: Line = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 3}}
    log.start_transaction().commit([given, settings("id:long")])
    assert log.snapshot().protocol == given["protocol"]


# --- transactions ---------------------------------------------------------------------------------


def test_read_returns_the_files_that_may_match() -> None:
    log = table(add("a%20b", (1, 5), p="1"), add("c", (6, 9), p="2"), by=("p",))
    transaction = log.start_transaction()
    assert transaction.read_version == 0
    assert transaction.read(where="p = '1'").column("path").to_pylist() == ["a b"]
    assert transaction.read(where="p = '1'", files=False).num_rows == 1
    assert transaction.read().num_rows == 2
    assert transaction.read_files(["a b"]).column("path").to_pylist() == ["a b"]
    assert transaction.read_files(["a%20b"]).num_rows == 1
    with pytest.raises(InvalidRequest, match="there is no file 'x'"):
        transaction.read_files(["x"])


def test_an_older_version_can_be_read_and_written_from() -> None:
    log = table(add("a"))
    log.start_transaction().commit([add("b")])
    transaction = log.start_transaction(read_version=0)
    assert transaction.read_version == 0
    assert transaction.snapshot.version == 0
    committed = transaction.commit([add("c")])
    assert (committed.version, committed.rebased_over) == (2, (1,))
    old = log.start_transaction(read_version=0)
    old.read()
    reader = reading(log, None)
    reader.commit([add("d")])
    with pytest.raises(ConcurrentAppendException):
        old.commit([add("e")])


def test_no_actions_make_no_version() -> None:
    log = table()
    committed = reading(log, None).commit([])
    assert (committed.version, committed.attempts, committed.rebased_over) == (0, 0, ())
    assert log.snapshot().version == 0


def test_application_ids() -> None:
    log = table()
    transaction = log.start_transaction()
    assert transaction.app_version("app") is None
    transaction.commit([{"txn": {"appId": "app", "version": 7, "lastUpdated": 1}}, add("a")])
    assert log.snapshot().app_version("app") == 7
    assert info_at(log, 1)["isBlindAppend"] is True
    assert actions_at(log, 1)[1] == {"txn": {"appId": "app", "version": 7, "lastUpdated": 1}}


def test_domains() -> None:
    log = new_log()
    with_domains = settings("id:long", delta__feature__domainMetadata="supported")
    log.start_transaction().commit([with_domains])
    mine: Line = {"domainMetadata": {"domain": "mine", "configuration": "{}", "removed": False}}
    log.start_transaction().commit([mine])
    assert log.snapshot().domain("mine") == "{}"
    mine["domainMetadata"]["removed"] = True
    log.start_transaction().commit([mine])
    assert log.snapshot().domain("mine") is None


def test_a_commit_says_who_and_how() -> None:
    log = table()
    transaction = log.start_transaction(isolation="serializable")
    transaction.commit(
        [add("a")],
        operation="WRITE",
        parameters={"mode": "Append"},
        tags={"t": "1"},
        user_metadata="mine",
    )
    info = info_at(log, 1)
    assert info["isolationLevel"] == "Serializable"
    assert info["tags"] == {"t": "1"}
    assert info["userMetadata"] == "mine"
    assert info["operation"] == "WRITE"
    assert info["readVersion"] == 0
    assert isinstance(info["txnId"], str)


def test_an_unknown_level() -> None:
    with pytest.raises(InvalidRequest, match="'dirty'"):
        table().start_transaction(isolation="dirty")


def test_a_remove_needs_just_its_path() -> None:
    vector = {
        "storageType": "i",
        "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        "sizeInBytes": 40,
        "cardinality": 6,
    }
    log = new_log()
    with_vectors = settings("id:long", "p:string", by=("p",), delta__enableDeletionVectors="true")
    file = add("p=1/a%20b", (1, 2), p="1")
    log.start_transaction().commit([with_vectors, file])
    deleted: Line = {"add": {**file["add"], "deletionVector": vector}}
    log.start_transaction().commit([remove("p=1/a b"), deleted], operation="DELETE")
    (found,) = log.snapshot().files().column("deletion_vector").to_pylist()
    assert found["cardinality"] == 6
    log.start_transaction().commit([remove("p=1/a%20b", deletionTimestamp=5)], operation="DELETE")
    removed = actions_at(log, 2)[1]["remove"]
    assert removed["deletionVector"] == vector
    assert removed["partitionValues"] == {"p": "1"}
    assert (removed["path"], removed["size"], removed["dataChange"]) == ("p=1/a%20b", 1, True)
    assert (removed["extendedFileMetadata"], removed["deletionTimestamp"]) == (True, 5)
    assert paths(log) == []


def test_paths_that_no_uri_can_hold_are_encoded() -> None:
    log = table()
    log.start_transaction().commit([add("x y/ä.parquet")])
    assert actions_at(log, 1)[1]["add"]["path"] == "x%20y/%C3%A4.parquet"
    assert paths(log) == ["x y/ä.parquet"]
    log.start_transaction().commit([remove("x y/ä.parquet")])
    assert paths(log) == []


def test_what_can_be_left_out_is_filled_in() -> None:
    log = new_log()
    log.start_transaction().commit([{"metaData": {"schemaString": schema("id:long")}}])
    log.start_transaction().commit([{"add": {"path": "a", "size": 1}}])
    file = actions_at(log, 1)[1]["add"]
    assert file["partitionValues"] == {}
    assert file["dataChange"] is True
    assert isinstance(file["modificationTime"], int)
    before = log.snapshot().metadata
    again: Line = {"metaData": {"schemaString": schema("id:long", "b:long")}}
    log.start_transaction().commit([again])
    after = log.snapshot().metadata
    assert (after["id"], after["createdTime"]) == (before["id"], before["createdTime"])


def test_unknown_fields_are_kept() -> None:
    log = table()
    file = add("a")
    file["add"]["newerField"] = {"x": 1}
    log.start_transaction().commit([file])
    assert actions_at(log, 1)[1]["add"]["newerField"] == {"x": 1}


BAD: dict[str, tuple[list[object], str]] = {
    "no dictionary": (["add"], "action 0: expected a dictionary"),
    "an empty line": ([{}], "action 0: expected a dictionary"),
    "an unknown action": ([add("a"), {"drop": {}}], "action 1: there is no action 'drop'"),
    "no fields": ([{"add": 1}], "add: expected a dictionary"),
    "no path": ([{"add": {"size": 1}}], "path"),
    "no size": ([{"add": {"path": "a"}}], "size"),
    "a size of another type": ([{"add": {"path": "a", "size": "1"}}], "size"),
    "its own commitInfo": ([{"commitInfo": {"operation": "X"}}], "commitInfo is written by txlake"),
    "a checkpoint's metadata": ([{"checkpointMetadata": {"version": 1}}], "written by txlake"),
    "a change data file without a feed": (
        [{"cdc": {"path": "_change_data/c", "size": 1}}],
        "the table has no feed",
    ),
    "a change data file elsewhere": (
        [{"cdc": {"path": "_change_data/../c", "size": 1}}],
        "without '.' and '..'",
    ),
    "a domain of the system": (
        [{"domainMetadata": {"domain": "delta.x", "configuration": "", "removed": False}}],
        "domains that start with delta",
    ),
    "two metaData": ([settings("id:long"), settings("id:long")], "at most one metaData"),
    "two protocols": (
        [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}] * 2,
        "at most one protocol",
    ),
    "a file that isn't there": ([remove("x")], "'x': it can't be removed"),
    "a file twice": ([add("b"), add("b")], "'b': it is added twice"),
    "a remove and an add": ([remove("a"), add("a")], "added and removed"),
    "a partition that isn't": ([add("b", p="1")], "partition columns"),
    "statistics that aren't": (
        [{"add": {**add("b")["add"], "stats": "x"}}],
        "file 'b': .*statistics",
    ),
    "a path that climbs": ([add("../b")], r"'\.\.', found '\.\./b'"),
    "a vector of no kind": (
        [
            {
                "add": {
                    **add("b")["add"],
                    "deletionVector": {
                        "storageType": "z",
                        "pathOrInlineDv": "x",
                        "sizeInBytes": 1,
                        "cardinality": 1,
                    },
                }
            }
        ],
        "storageType: expected one of u, i, p, found 'z'",
    ),
    "partition columns that a file lacks": (
        [settings("id:long", "p:string", by=("p",))],
        "'a': it would stay in a table that is partitioned by other columns",
    ),
    "a column twice": ([settings("id:long", "ID:long")], "twice"),
    "no such partition column": (
        [settings("id:long", by=("q",))],
        "partition column q isn't a column",
    ),
    "two versions of an application": (
        [{"txn": {"appId": "x", "version": 1}}, {"txn": {"appId": "x", "version": 2}}],
        "'x' is set to 1 and to 2",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_lists_of_actions(name: str) -> None:
    actions, message = BAD[name]
    log = table(add("a"))
    with pytest.raises(InvalidRequest, match=message):
        log.start_transaction().commit(actions)  # type: ignore[arg-type]
    assert log.snapshot().version == 0


NO_JSON = {"a text": "\ud800", "a thing": object(), "keys": {(1, 2): 3}}


@pytest.mark.parametrize("kind", NO_JSON)
def test_what_no_line_of_the_log_can_hold(kind: str) -> None:
    bad = NO_JSON[kind]
    log = table()
    for action in (
        {"add": {**add("b")["add"], "newer": bad}},
        {"add": {**add("b")["add"], "path": bad}},
        {"add": {**add("b")["add"], "stats": bad}},
        {"txn": {"appId": bad, "version": 1}},
    ):
        with pytest.raises(InvalidRequest, match="action 0: "):
            log.start_transaction().commit([action])
    for name, value in (
        ("operation", bad),
        ("user_metadata", bad),
        ("tags", {"a": bad}),
        ("tags", bad),
        ("parameters", {"a": {"b": "\ud800"}}),
        ("parameters", {1: bad}),
        ("parameters", bad),
    ):
        given = {name: value}
        if name == "parameters" and kind == "keys":
            given = {name: {"a": bad}}
        with pytest.raises(InvalidRequest, match=name):
            log.start_transaction().commit([add("b")], **given)  # type: ignore[arg-type]
    nested: list[object] = []
    for _ in range(3_000):
        nested = [nested]
    with pytest.raises(InvalidRequest, match="can't be written as JSON"):
        log.start_transaction().commit([{"add": {**add("b")["add"], "newer": nested}}])
    assert log.snapshot().version == 0


def test_other_partition_columns() -> None:
    log = table(add("a"))
    by_p = settings("id:long", "p:string", by=("p",))
    transaction = log.start_transaction()
    with pytest.raises(InvalidRequest, match="'a': it would stay"):
        transaction.commit([by_p, add("b", p="1")])
    transaction.commit([by_p, remove("a"), add("b", p="1")])
    assert log.snapshot().partition_columns == ["p"]
    assert paths(log, "p = '1'") == ["b"]
    log.start_transaction().commit([settings("id:long", "p:string", by=("p",), mine="1")])
    assert paths(log) == ["b"]


def test_arguments_of_another_type() -> None:
    log = table()
    for value in ("0", True, 0.0):
        for call in (log.snapshot, log.history):
            with pytest.raises(InvalidRequest, match="expected a whole number"):
                call(value)  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match=r"read_version=.*expected a whole number"):
            log.start_transaction(read_version=value)  # type: ignore[arg-type]
    for actions in (None, 5):
        with pytest.raises(InvalidRequest, match="expected a list of actions"):
            log.start_transaction().commit(actions)  # type: ignore[arg-type]
    for place in (None, 5):
        with pytest.raises(InvalidRequest, match="names no place"):
            txlake.Log(place)  # type: ignore[arg-type]


def test_many_alternatives() -> None:
    log = table(add("a", (1, 5)), add("b", (6, 9)))
    where = " OR ".join(f"id = {number}" for number in range(7, 5_000))
    assert paths(log, where) == ["b"]


def test_a_null_in_a_not_null_statistic() -> None:
    log = table(columns=("id:long!",))
    file = add("a", (1, 2))
    file["add"]["stats"] = json.dumps({"numRecords": 2, "nullCount": {"id": 1}})
    with pytest.raises(InvalidRequest, match="NOT NULL of column 'id'"):
        log.start_transaction().commit([file])


def test_a_table_beyond_us_is_read_and_not_written() -> None:
    log = new_log()
    iceberg = settings("id:long", delta__enableIcebergCompatV1="true")
    with pytest.raises(UnsupportedFeature, match="icebergCompatV1"):
        log.start_transaction().commit([iceberg])
    with pytest.raises(InvalidRequest):
        log.snapshot()


def test_commits_only_once() -> None:
    log = table()
    transaction = log.start_transaction()
    transaction.commit([add("a")])
    with pytest.raises(InvalidRequest, match="committed already, or lost; begin another"):
        transaction.commit([add("b")])
    loser = reading(log, None)
    reading(log, None).commit([add("b")])
    with pytest.raises(ConcurrentAppendException):
        loser.commit([add("c")])
    with pytest.raises(InvalidRequest, match="or lost; begin another"):
        loser.commit([add("c")])


# --- rewrites -------------------------------------------------------------------------------------


def test_the_tag_of_a_rewrite_that_keeps_order() -> None:
    tag = txlake.sources_tag([("a", None, 0, 3), ["b", "uvector@1", 2, 5]])
    assert json.loads(tag) == [["a", None, 0, 3], ["b", "uvector@1", 2, 5]]
    log = table(add("a"), add("b"))
    output = moved(add("ab"))
    output["add"]["tags"] = {"txlake.sources": tag}
    rewrite = [moved(remove("a")), moved(remove("b")), output]
    reading(log, None).commit(rewrite, operation="OPTIMIZE")
    assert actions_at(log, 1)[-1]["add"]["tags"] == {"txlake.sources": tag}
    assert info_at(log, 1)["isolationLevel"] == "SnapshotIsolation"


@pytest.mark.parametrize(
    "source", [("a",), ("a", None, 0), (1, None, 0, 1), ("a", 1, 0, 1), ("a", None, -1, 1), "a"]
)
def test_sources_that_are_none(source: object) -> None:
    with pytest.raises(InvalidRequest, match="expected"):
        txlake.sources_tag([source])  # type: ignore[list-item]


# --- the frame ------------------------------------------------------------------------------------


def test_no_spark_is_started() -> None:
    code = (
        "import sys, txlake\n"
        "log = txlake.Log('memory://x')\n"
        'schema = \'{"type":"struct","fields":[]}\'\n'
        "log.start_transaction().commit([{'metaData': {'schemaString': schema}}])\n"
        "log.snapshot().files(); log.history()\n"
        "assert not any(name.startswith('pyspark') for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_update_looks_at_what_others_committed() -> None:
    log = table()
    before = log.snapshot()
    txlake.Log(log._log.store.url).start_transaction().commit([add("a")])
    assert (before.version, log.update().version) == (0, 1)


def test_a_checkpoint_whose_turn_it_is_not() -> None:
    log = table()
    log.start_transaction().commit([add("a")])
    assert log.checkpoint() == 1
    store = log._log.store
    assert json.loads(store.get("_delta_log/_last_checkpoint"))["version"] == 1
    for version in (0, 1):
        store.delete([f"_delta_log/{version:020}.json"])
    found = txlake.Log(log._log.store.url).snapshot()
    assert (found.version, found.files()["path"].to_pylist()) == (1, ["a"])


def test_no_checkpoint_of_what_is_not_written_here() -> None:
    with pytest.raises(InvalidRequest, match="is not a Delta table"):
        new_log().checkpoint()
    log = table()
    names = ["checkpointsInVerse"]
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": names}
    commit = json.dumps({"protocol": protocol}).encode()
    log._log.store.put_if_absent(f"_delta_log/{1:020}.json", commit)
    with pytest.raises(UnsupportedFeature, match="checkpointsInVerse"):
        log.checkpoint()
