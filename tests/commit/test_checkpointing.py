from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import deltalake
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commit.log_of import (
    DAY,
    START,
    VECTORS,
    LogOf,
    add,
    metadata,
    remove,
    vector,
)
from txlake.commit.checkpointing import (
    after_commit,
    checkpoint_interval,
    maybe_checkpoint,
    write_checkpoint,
    write_checksum,
)
from txlake.commit.table_log import TableLog
from txlake.errors import InvalidRequest
from txlake.protocol.actions import CommitInfo, DomainMetadata, Protocol, Remove, Txn
from txlake.protocol.checkpoints import read_removes
from txlake.protocol.checksums import read_checksum
from txlake.protocol.file_names import (
    LAST_CHECKPOINT_PATH,
    ClassicCheckpoint,
    checksum_path,
    commit_path,
    log_path,
)
from txlake.protocol.last_checkpoint import checksum_of
from txlake.settings import Settings
from txlake.storage import open_store
from txlake.system import System

_V2 = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("v2Checkpoint", "deletionVectors"),
    writer_features=("v2Checkpoint", "deletionVectors"),
)
_KINDS = {
    "classic": (VECTORS, "classic", 1_000),
    "parts": (VECTORS, "classic", 2),
    "V2": (_V2, "v2", 2),
    "classic for want of the feature": (VECTORS, "v2", 1_000),
    "V2 supported and not asked for": (_V2, "classic", 2),
}


def _table(kind: str) -> LogOf:
    protocol, policy, rows_max = _KINDS[kind]
    table = LogOf(Settings(checkpoint_part_rows_max=rows_max))
    table.create(
        *(add(f"f{at}", vector=vector() if at % 2 else None) for at in range(9)),
        Txn(app_id="app", version=4, last_updated=START),
        DomainMetadata(domain="d", configuration="{}", removed=False),
        configuration={"delta.checkpointPolicy": policy},
        protocol=protocol,
    )
    return table.commit(1, remove("f0"), remove("gone"), add("new"))


@pytest.mark.parametrize("kind", _KINDS)
def test_a_checkpoint_stands_for_the_commits_before_it(kind: str) -> None:
    table = _table(kind)
    before = table.open().latest()
    assert write_checkpoint(table.open()) == 1
    table.remove_file(commit_path(0), commit_path(1))
    after = table.open().latest()
    assert {item.key for item in after.files.adds()} == {item.key for item in before.files.adds()}
    assert dict(after.tombstones) == dict(before.tombstones)
    assert after.app_transactions == before.app_transactions
    assert after.domains == before.domains
    assert (after.protocol, after.metadata) == (before.protocol, before.metadata)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("classic", ["checkpoint.parquet"]),
        ("parts", [f"checkpoint.{part:010d}.0000000006.parquet" for part in range(1, 7)]),
        ("V2", ["checkpoint.00000000-0000-0000-0000-000000000006.parquet"]),
        ("classic for want of the feature", ["checkpoint.parquet"]),
        ("V2 supported and not asked for", ["checkpoint.parquet"]),
    ],
)
def test_the_kind_is_as_policy_protocol_and_size_say(kind: str, names: list[str]) -> None:
    table = _table(kind)
    write_checkpoint(table.open())
    start = "_delta_log/00000000000000000001."
    found = [path.removeprefix(start) for path in table.paths if "checkpoint." in path]
    assert found == names
    assert len([path for path in table.paths if "_sidecars" in path]) == (5 if kind == "V2" else 0)


@pytest.mark.parametrize("kind", ["classic", "parts", "V2"])
def test_the_hint_is_written_last_and_says_what_is_there(kind: str) -> None:
    table = _table(kind)
    write_checkpoint(table.open())
    puts = [path for request, path in table.store.requests if request == "put"]
    assert puts[-1] == LAST_CHECKPOINT_PATH
    assert puts[-2].startswith("_delta_log/00000000000000000001.checkpoint."), "then sidecars"
    hint = json.loads(table.store.files[LAST_CHECKPOINT_PATH][0])
    assert (hint["version"], hint["numOfAddFiles"]) == (1, 9)
    assert hint["size"] == 9 + 2 + 4 + (6 if kind == "V2" else 0)
    assert hint.get("parts") == (6 if kind == "parts" else None)
    files = [path for path in table.paths if ".checkpoint." in path or "_sidecars" in path]
    assert hint["sizeInBytes"] == sum(len(table.store.files[path][0]) for path in files)
    assert hint["checksum"] == checksum_of(hint)
    if kind == "V2":
        assert f"_delta_log/{hint['v2Checkpoint']['path']}" in files


def test_an_older_checkpoint_leaves_the_hint_at_the_newer() -> None:
    table = _table("classic")
    log = table.open()
    write_checkpoint(log)
    write_checkpoint(log, log.snapshot(0))
    assert json.loads(table.store.files[LAST_CHECKPOINT_PATH][0])["version"] == 1


def test_expired_tombstones_and_transactions_are_left_out() -> None:
    table = LogOf().create(
        add("a"),
        Txn(app_id="old", version=1, last_updated=START - 3 * DAY),
        Txn(app_id="new", version=1, last_updated=START),
        Txn(app_id="ageless", version=1),
        configuration={
            "delta.deletedFileRetentionDuration": "interval 2 days",
            "delta.setTransactionRetentionDuration": "interval 2 days",
        },
    )
    ageless = Remove(path="ageless", data_change=True)
    table.commit(1, remove("old", START - 3 * DAY), remove("new", START), ageless)
    write_checkpoint(table.open())
    data = table.store.files[log_path(ClassicCheckpoint(1))][0]
    assert [item.path for item in read_removes(data, file="x")] == ["new"]
    table.remove_file(commit_path(0), commit_path(1))
    assert set(table.open().latest().app_transactions) == {"new", "ageless"}


def test_unknown_fields_live_through_checkpoints() -> None:
    table = LogOf().create()
    line = json.dumps(
        {"add": {"path": "a", "partitionValues": {}, "size": 1, "modificationTime": 1,
                 "dataChange": True, "new": 1}, "newAction": {"a": 1}}
    )  # fmt: skip
    table.store.put(commit_path(1), line.encode())
    write_checkpoint(table.open())
    table.remove_file(commit_path(0), commit_path(1))
    table.commit(2, add("b"))
    write_checkpoint(table.open())
    table.remove_file(commit_path(2), log_path(ClassicCheckpoint(1)))
    files = {item.path: item for item in table.open().latest().files.adds()}
    assert files["a"].extra == {"new": 1}
    assert files["b"].extra == {}


def test_a_table_that_is_not_there_has_no_checkpoint() -> None:
    with pytest.raises(InvalidRequest, match="not a Delta table"):
        write_checkpoint(LogOf().open())


def test_tombstones_are_found_although_their_checkpoint_is_gone() -> None:
    table = _table("classic")
    write_checkpoint(table.open())
    log = table.open()
    snapshot = log.latest()
    table.commit(2, add("x"))
    other = table.open()
    write_checkpoint(other)
    table.remove_file(log_path(ClassicCheckpoint(1)), commit_path(0))
    table.commit(3, add("y"))
    assert log.latest().version == 3
    assert snapshot.version == 1
    write_checkpoint(log)
    table.remove_file(log_path(ClassicCheckpoint(2)), *(commit_path(v) for v in (1, 2, 3)))
    assert set(table.open().latest().tombstones) == {("f0", None), ("gone", None)}


# --- after a commit ---------------------------------------------------------------------------


def test_by_the_interval_and_never_at_version_0() -> None:
    table = LogOf().create(configuration={"delta.checkpointInterval": "3"})
    written = []
    for version in range(8):
        if version:
            table.commit(version, add(f"f{version}"))
        if maybe_checkpoint(table.open(), table.open().latest()):
            written.append(version)
    assert written == [3, 6]


def test_the_default_interval_is_ten() -> None:
    table = LogOf().create()
    for version in range(1, 11):
        table.commit(version, add(f"f{version}"))
    log = table.open()
    assert not maybe_checkpoint(log, log.snapshot(9))
    assert maybe_checkpoint(log, log.snapshot(10))


@pytest.mark.parametrize(
    ("files", "due"),
    [(1_998, [10, 20, 30, 40]), (2_000, [20, 40]), (4_500, [40]), (50_000, [])],
)
def test_the_more_files_the_rarer_by_default(files: int, due: list[int]) -> None:
    table = LogOf().create(*(add(f"f{at}") for at in range(files)))
    snapshot = table.open().latest()
    at = (replace(snapshot, version=version) for version in range(1, 50))
    assert [one.version for one in at if not one.version % checkpoint_interval(one)] == due
    asked = LogOf().create(
        *(add(f"f{at}") for at in range(files)), configuration={"delta.checkpointInterval": "10"}
    )
    assert checkpoint_interval(asked.open().latest()) == 10


def test_tombstones_count_as_files_do() -> None:
    table = LogOf().create(add("a"))
    log = table.commit(1, *(remove(f"f{at}") for at in range(3_000))).open()
    assert checkpoint_interval(log.latest()) == 30


def test_failures_after_a_commit_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    table = LogOf().create(configuration={"delta.checkpointInterval": "1"})
    table.commit(1, add("a"))
    log = table.open()
    table.store.failing |= {log_path(ClassicCheckpoint(1)), checksum_path(1)}
    with caplog.at_level(logging.WARNING):
        after_commit(log, log.latest())
    assert "no checksum at version 1" in caplog.text
    assert "no checkpoint at version 1" in caplog.text
    assert LAST_CHECKPOINT_PATH not in table.paths
    caplog.clear()
    table.store.failing = {LAST_CHECKPOINT_PATH}
    with caplog.at_level(logging.WARNING):
        after_commit(log, log.latest())
    assert log_path(ClassicCheckpoint(1)) in table.paths


def test_checksums_tell_the_state_and_are_not_replaced() -> None:
    table = _table("classic")
    table.commit(2, CommitInfo({"txnId": "id"}), add("z"))
    log = table.open()
    write_checksum(log, log.latest(), txn_id="id")
    data = table.store.files[checksum_path(2)][0]
    facts = read_checksum(data)
    assert facts is not None
    assert (facts.files, facts.table_size_bytes) == (10, 100)
    assert (facts.deletion_vectors, facts.deleted_records) == (4, 8)
    assert json.loads(data)["txnId"] == "id"
    write_checksum(log, log.latest(), txn_id="other")
    assert table.store.files[checksum_path(2)][0] == data


def test_a_table_without_vectors_says_nothing_of_them() -> None:
    table = LogOf().create(add("a"))
    log = table.open()
    write_checksum(log, log.latest())
    value = json.loads(table.store.files[checksum_path(0)][0])
    assert "numDeletionVectorsOpt" not in value
    assert "inCommitTimestampOpt" not in value


# --- other engines ----------------------------------------------------------------------------


@pytest.mark.no_interop("commits are deleted on purpose")
@pytest.mark.parametrize(
    "configuration",
    [
        {},
        {"delta.checkpoint.writeStatsAsStruct": "true"},
        {
            "delta.checkpoint.writeStatsAsStruct": "true",
            "delta.checkpoint.writeStatsAsJson": "false",
        },
    ],
)
@pytest.mark.parametrize("rows_max", [1_000, 3])
def test_delta_rs_reads_our_checkpoints(
    tmp_path: Path, configuration: dict[str, str], rows_max: int
) -> None:
    place = str(tmp_path / "t")
    for start in range(0, 40, 10):
        rows = pa.table({"id": list(range(start, start + 10)), "p": ["a b", "ü"] * 5})
        deltalake.write_deltalake(
            place, rows, mode="append", partition_by=["p"], configuration=configuration or None
        )
    deltalake.DeltaTable(place).delete("id = 3")
    settings = Settings(checkpoint_part_rows_max=rows_max)
    log = TableLog(open_store(place), System(), settings)
    version = write_checkpoint(log)
    for path in (tmp_path / "t" / "_delta_log").glob("*.json"):
        if path.name != f"{version:020d}.json":
            path.unlink()
    other = deltalake.DeltaTable(place)
    assert other.version() == version
    assert sorted(other.to_pyarrow_table()["id"].to_pylist()) == [i for i in range(40) if i != 3]
    own = TableLog(open_store(place), System(), settings).latest()
    assert len(own.files) == len(other.file_uris())
    assert own.files.adds().__next__().stats is not None


def test_others_read_a_checkpoint_of_many_tombstones(tmp_path: Path) -> None:
    """They are in a row group of their own. DuckDB is asked after the test, as of every table."""
    place = tmp_path / "t"
    deltalake.write_deltalake(str(place), pa.table({"id": [1, 2, 3]}))
    now = System().now_ms()
    removes = [
        {"remove": {"path": f"gone-{n}", "deletionTimestamp": now, "dataChange": True, "size": 1}}
        for n in range(1_001)
    ]
    (place / commit_path(1)).write_text("\n".join(map(json.dumps, removes)), "utf-8")
    write_checkpoint(TableLog(open_store(str(place)), System(), Settings()))
    for version in (0, 1):
        (place / commit_path(version)).unlink()
    [written] = (place / "_delta_log").glob("*.parquet")
    assert pq.read_metadata(written).num_row_groups == 2
    assert deltalake.DeltaTable(str(place)).to_pyarrow_table()["id"].to_pylist() == [1, 2, 3]
    assert polars.read_delta(str(place))["id"].to_list() == [1, 2, 3]


def test_metadata_is_written_as_it_is() -> None:
    table = LogOf().create(add("a"))
    before = table.open().latest().metadata
    write_checkpoint(table.open())
    table.remove_file(commit_path(0))
    assert table.open().latest().metadata == before == metadata()


@pytest.mark.parametrize(
    "key",
    [
        "delta.logRetentionDuration",
        "delta.deletedFileRetentionDuration",
        "delta.enableExpiredLogCleanup",
        "delta.checkpointPolicy",
    ],
)
def test_a_property_that_is_not_understood_costs_no_checkpoint(
    key: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = LogOf().create(
        add("f"), configuration={key: "1 month", "delta.checkpointInterval": "1"}
    )
    table.commit(1, remove("f", START - 900 * DAY))
    table.clock.time_ms += 900 * DAY
    with caplog.at_level(logging.WARNING):
        assert maybe_checkpoint(table.open(), table.open().latest())
    assert (key in caplog.text) == (key != "delta.checkpointPolicy")
    is_cleaned = commit_path(0) not in table.paths
    assert is_cleaned == (
        key not in ("delta.logRetentionDuration", "delta.enableExpiredLogCleanup")
    )
    kept = list(table.open().latest().tombstones)
    assert len(kept) == (1 if key == "delta.deletedFileRetentionDuration" else 0)
