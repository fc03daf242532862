from __future__ import annotations

import logging
import re

import pytest

from tests.commit.log_of import (
    PROTOCOL,
    LogOf,
    add,
    metadata,
    remove,
    vector,
    with_damaged_stats,
)
from txlake.commit.checkpointing import write_checkpoint
from txlake.commit.table_log import TableLog
from txlake.errors import CorruptTable, InvalidRequest, Unavailable, UnsupportedFeature
from txlake.log.predicates import bind, parse_predicate
from txlake.log.snapshot import Snapshot
from txlake.log.time_zones import UTC_ZONE
from txlake.ports import PutOutcome
from txlake.protocol.actions import (
    Action,
    CheckpointMetadata,
    CommitInfo,
    Protocol,
    Sidecar,
    encode_actions,
)
from txlake.protocol.file_names import (
    LAST_CHECKPOINT_PATH,
    ClassicCheckpoint,
    Compaction,
    V2Checkpoint,
    checksum_path,
    commit_path,
    log_path,
)
from txlake.protocol.last_checkpoint import Hint, write_hint


def _paths(snapshot: Snapshot) -> list[str]:
    return sorted(item.path for item in snapshot.files.adds())


def _three_versions() -> LogOf:
    table = LogOf().create(add("a"))
    return table.commit(1, add("b")).commit(2, add("c"), remove("a"))


def _checkpoint(table: LogOf, version: int | None = None) -> str:
    log = table.open()
    write_checkpoint(log, log.snapshot(version))
    return log_path(ClassicCheckpoint(log.snapshot(version).version))


def test_latest_and_older_versions() -> None:
    log = _three_versions().open()
    assert (log.latest().version, _paths(log.latest())) == (2, ["b", "c"])
    assert _paths(log.snapshot(1)) == ["a", "b"]
    assert _paths(log.snapshot(0)) == ["a"]
    assert log.snapshot(2) is log.latest()
    assert log.snapshot(1) is log.snapshot(1)


def test_a_refresh_reads_only_what_is_new() -> None:
    table = _three_versions()
    log = table.open()
    first = log.latest()
    table.store.requests.clear()
    assert log.latest() is first
    assert table.store.requests == [("list", "_delta_log")]
    table.commit(3, add("d"))
    table.store.requests.clear()
    assert _paths(log.latest()) == ["b", "c", "d"]
    assert table.store.requests == [("list", "_delta_log"), ("get", commit_path(3))]


def test_a_refresh_far_behind_starts_from_a_checkpoint() -> None:
    table = LogOf().create(add("a"))
    log = table.open()
    log.latest()
    for version in range(1, 150):
        table.commit(version, add(f"f{version}"))
    _checkpoint(table)
    table.store.requests.clear()
    assert log.latest().version == 149
    assert ("get", commit_path(7)) not in table.store.requests


def test_a_table_made_anew_at_the_same_place_is_noticed() -> None:
    table = _three_versions()
    log = table.open()
    log.latest()
    table.remove_file(*table.paths)
    table.create(add("new"))
    assert _paths(log.latest()) == ["new"]
    table.commit(1).commit(2).commit(3, add("more"))
    assert _paths(log.latest()) == ["more", "new"]
    table.remove_file(*table.paths)
    with pytest.raises(InvalidRequest, match="not a Delta table"):
        log.latest()


def test_an_adopted_snapshot_is_not_read_again() -> None:
    table = _three_versions()
    log = table.open()
    state = log.latest()
    assert log.write_commit(3, [CommitInfo({"txnId": "x"}), add("d")]) is PutOutcome.CREATED
    log.adopt(state.apply([add("d")], version=3, timestamp_ms=5))
    table.store.requests.clear()
    assert log.latest().version == 3
    log.adopt(state)
    assert log.latest().version == 3, "an older one is not adopted"
    assert {kind for kind, _ in table.store.requests} == {"list"}


def test_write_commit_never_replaces() -> None:
    table = _three_versions()
    log = table.open()
    before = table.store.files[commit_path(2)]
    assert log.write_commit(2, [add("z")]) is PutOutcome.EXISTS
    assert table.store.files[commit_path(2)] == before
    assert ("ensure_safe", "") in table.store.requests


def test_find_txn_id() -> None:
    table = _three_versions().commit(3, CommitInfo({"txnId": "mine"}), add("d"))
    log = table.open()
    assert log.find_txn_id(3) == "mine"
    assert log.find_txn_id(2) is None
    assert log.find_txn_id(9) is None


def test_commits_in_order() -> None:
    log = _three_versions().open()
    commits = list(log.commits(0))
    assert [item.version for item in commits] == [1, 2]
    assert commits[1].actions[1:] == (add("c"), remove("a"))
    assert commits[1].info is not None
    assert commits[1].timestamp_ms == commits[1].info.number("timestamp")
    assert [item.version for item in log.commits(-1, 0)] == [0]
    with pytest.raises(CorruptTable, match=re.escape(commit_path(3))):
        list(log.commits(1, 3))


def test_a_place_without_a_table() -> None:
    table = LogOf()
    table.store.put("part-0.parquet", b"x")
    log = table.open()
    assert not log.exists()
    for read in (log.latest, log.history, lambda: log.snapshot(0), lambda: log.version_at(1)):
        with pytest.raises(InvalidRequest, match="t is not a Delta table"):
            read()
    assert log.latest_or_none() is None
    assert table.create().open().exists()
    assert log.latest_or_none() is log.latest()


def test_existence_follows_the_store() -> None:
    table = _three_versions()
    log = table.open()
    assert log.exists()
    log.latest()
    assert log.exists()
    table.remove_file(*table.paths)
    assert not log.exists()
    assert log.latest_or_none() is None
    table.store.put("_delta_log/00000000000000000001.checkpoint.0000000001.0000000002.parquet", b"")
    assert log.exists()
    with pytest.raises(CorruptTable, match=r"incomplete checkpoint: only .*0000000002\.parquet"):
        log.latest_or_none()


def test_an_unreachable_store_is_no_missing_table() -> None:
    table = _three_versions()
    table.store.failing.add("_delta_log")
    with pytest.raises(Unavailable):
        table.open().exists()


# --- hints ------------------------------------------------------------------------------------


def test_the_hint_spares_a_full_listing() -> None:
    table = _three_versions()
    _checkpoint(table)
    table.commit(3, add("d"))
    table.store.requests.clear()
    assert _paths(table.open().latest()) == ["b", "c", "d"]
    assert ("get", commit_path(1)) not in table.store.requests
    assert [kind for kind, _ in table.store.requests].count("list") == 1


@pytest.mark.parametrize(
    "hint",
    [
        pytest.param(b"{", id="corrupt"),
        pytest.param(b"", id="empty"),
        pytest.param(write_hint(Hint(version=99, actions=1)), id="beyond the log"),
        pytest.param(write_hint(Hint(version=1, actions=1)), id="no checkpoint there"),
        pytest.param(None, id="missing"),
    ],
)
@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_a_wrong_hint_harms_nobody(hint: bytes | None, with_checkpoint: bool) -> None:
    table = _three_versions()
    if with_checkpoint:
        _checkpoint(table)
    table.store.files.pop(LAST_CHECKPOINT_PATH, None)
    if hint is not None:
        table.store.put(LAST_CHECKPOINT_PATH, hint)
    assert _paths(table.open().latest()) == ["b", "c"]


def test_a_stale_hint_finds_the_newer_checkpoint() -> None:
    table = _three_versions()
    _checkpoint(table, 1)
    hint = table.store.files[LAST_CHECKPOINT_PATH][0]
    _checkpoint(table, 2)
    table.store.put(LAST_CHECKPOINT_PATH, hint)
    table.store.requests.clear()
    assert _paths(table.open().latest()) == ["b", "c"]
    assert ("get", commit_path(2)) not in table.store.requests


# --- damage -----------------------------------------------------------------------------------


def test_a_gap() -> None:
    table = _three_versions().remove_file(commit_path(1))
    with pytest.raises(CorruptTable, match=f"^t: .*{commit_path(1)} is missing"):
        table.open().latest()
    assert table.open().snapshot(0).version == 0


def test_a_gap_that_a_checkpoint_covers_is_none() -> None:
    table = _three_versions()
    _checkpoint(table)
    table.remove_file(commit_path(1))
    assert _paths(table.open().latest()) == ["b", "c"]
    with pytest.raises(CorruptTable, match=re.escape(commit_path(1))):
        table.open().snapshot(1)


def test_a_gap_after_the_known_version_that_a_checkpoint_covers_is_none() -> None:
    table = _three_versions()
    log = table.open()
    later = {path: table.store.files.pop(path) for path in (commit_path(1), commit_path(2))}
    assert log.latest().version == 0
    table.store.files.update(later)
    _checkpoint(table)
    table.remove_file(commit_path(1))
    assert _paths(log.latest()) == ["b", "c"]


@pytest.mark.parametrize("keep", [1, 30, -1, -10])
def test_a_truncated_commit(keep: int) -> None:
    table = _three_versions()
    data = table.store.files[commit_path(1)][0].rstrip()
    table.store.put(commit_path(1), data[:keep])
    with pytest.raises(CorruptTable, match=f"^t: {commit_path(1)}: broken JSON"):
        table.open().latest()


@pytest.mark.parametrize("damage", [b"", b"PAR1garbage", None])
def test_a_damaged_checkpoint_gives_way_to_commits(
    damage: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    table = _three_versions()
    path = _checkpoint(table)
    data = table.store.files[path][0]
    table.store.put(path, data[: len(data) // 2] if damage is None else damage)
    with caplog.at_level(logging.WARNING):
        assert _paths(table.open().latest()) == ["b", "c"]
    assert path in caplog.text


def test_a_damaged_checkpoint_whose_commits_are_gone() -> None:
    table = _three_versions()
    path = _checkpoint(table)
    table.store.put(path, b"PAR1garbage")
    table.remove_file(commit_path(0), commit_path(1))
    with pytest.raises(CorruptTable, match=f"^t: {path}: not a readable checkpoint"):
        table.open().latest()


def test_a_damaged_checkpoint_gives_way_to_an_older_one() -> None:
    table = _three_versions()
    _checkpoint(table, 1)
    path = _checkpoint(table, 2)
    table.store.put(path, b"")
    table.remove_file(commit_path(0), commit_path(1))
    assert _paths(table.open().latest()) == ["b", "c"]


_STATS = '{"numRecords":1,"minValues":{"id":%d},"maxValues":{"id":%d},"nullCount":{"id":0}}'


def _with_damaged_stats() -> tuple[LogOf, str]:
    """Files a, b and c with ids 0 to 2; of their checkpoint all but the statistics is readable."""
    table = LogOf().create(add("c", stats=_STATS % (2, 2)), add("a", stats=_STATS % (0, 0)))
    table.commit(1, add("b", vector=vector(), stats=_STATS % (1, 1))).commit(2, add("d"))
    path = _checkpoint(table)
    table.store.put(path, with_damaged_stats(table.store.files[path][0]))
    return table, path


def test_damaged_statistics_of_a_checkpoint_come_from_the_commits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table, path = _with_damaged_stats()
    state = table.open().latest()
    assert len(state.files) == 4
    with caplog.at_level(logging.WARNING):
        for place, name in enumerate("abc"):
            where = bind(parse_predicate(f"id = {place}"), state.schema, time_zone=UTC_ZONE)
            found = state.select(where)
            assert sorted(found["path"].to_pylist()) == [name, "d"]
            texts = dict(zip(found["path"].to_pylist(), found["stats"].to_pylist()))
            assert texts == {name: _STATS % (place, place), "d": None}
    assert path in caplog.text
    assert write_checkpoint(table.open()) == 2


def test_damaged_statistics_without_commits_are_told_when_they_are_used() -> None:
    table, path = _with_damaged_stats()
    table.remove_file(commit_path(0), commit_path(1))
    log = table.open()
    state = log.latest()
    assert state.files.totals.files == 4
    where = bind(parse_predicate("id = 1"), state.schema, time_zone=UTC_ZONE)
    with pytest.raises(CorruptTable, match=f"^t: {path}: not a readable checkpoint"):
        state.select(where)
    with pytest.raises(CorruptTable, match=f"^t: {path}: not a readable checkpoint"):
        write_checkpoint(log)


def test_a_checkpoint_without_commits_is_enough() -> None:
    table = _three_versions()
    _checkpoint(table)
    table.remove_file(*(commit_path(version) for version in range(3)))
    log = table.open()
    first = log.latest()
    assert _paths(first) == ["b", "c"]
    assert log.latest() is first
    with pytest.raises(InvalidRequest, match="version 1 was cleaned up"):
        log.snapshot(1)


@pytest.mark.parametrize(
    ("first", "missing"), [([PROTOCOL], "metaData"), ([metadata()], "protocol"), ([], "protocol")]
)
def test_protocol_and_metadata_must_be_there(first: list[Protocol], missing: str) -> None:
    table = LogOf().commit(0, *first, add("a")).commit(1, add("b"))
    with pytest.raises(CorruptTable, match=f"no {missing} action in {commit_path(0)}"):
        table.open().latest()


def test_a_checkpoint_without_protocol_is_not_used() -> None:
    table = _three_versions()
    path = log_path(ClassicCheckpoint(2)).replace("checkpoint.parquet", "checkpoint.abc.json")
    table.store.put(path, encode_actions([metadata(), add("z")]))
    assert _paths(table.open().latest()) == ["b", "c"]
    table.remove_file(commit_path(0))
    with pytest.raises(CorruptTable, match=r"checkpoint\.abc\.json: .*no protocol action"):
        table.open().latest()


def test_another_versions_checkpoint_is_not_used() -> None:
    table = _three_versions()
    path = log_path(V2Checkpoint(2, "abc", "json"))
    other: list[Action] = [CheckpointMetadata(version=1), PROTOCOL, metadata(), add("z")]
    table.store.put(path, encode_actions(other))
    assert _paths(table.open().latest()) == ["b", "c"]
    table.store.put(path, encode_actions([CheckpointMetadata(version=2), *other[1:]]))
    assert _paths(table.open().latest()) == ["z"]


@pytest.mark.parametrize("damage", [b"", None])
def test_a_missing_or_damaged_sidecar_is_named(damage: bytes | None) -> None:
    table = _three_versions()
    path = log_path(V2Checkpoint(2, "abc", "json"))
    sidecar = "_delta_log/_sidecars/s .parquet"
    named = Sidecar(path="s%20.parquet", size_in_bytes=1, modification_time=1)
    lines: list[Action] = [CheckpointMetadata(version=2), PROTOCOL, metadata(), named]
    table.store.put(path, encode_actions(lines))
    if damage is not None:
        table.store.put(sidecar, damage)
    assert _paths(table.open().latest()) == ["b", "c"]
    table.remove_file(commit_path(0))
    with pytest.raises(CorruptTable, match=f"^t: {sidecar}"):
        table.open().latest()


def test_a_file_that_vanishes_while_we_read_is_looked_for_anew() -> None:
    table = _three_versions()
    old = _checkpoint(table, 1)
    new = _checkpoint(table, 2)
    log = table.open()
    get = table.store.get
    vanished: list[tuple[bytes, int]] = []

    def clean_up_first(path: str) -> bytes:
        if path == commit_path(2) and not vanished:
            vanished.append(table.store.files.pop(commit_path(2)))
            table.store.put(new, vanished_checkpoint)
            raise FileNotFoundError(path)
        return get(path)

    vanished_checkpoint = table.store.files.pop(new)[0]
    table.store.get = clean_up_first  # type: ignore[method-assign]
    assert _paths(log.latest()) == ["b", "c"]
    assert vanished
    assert old in table.store.files


def test_unsupported_protocols_are_refused_by_name() -> None:
    future = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=("timeMachine",),
        writer_features=("timeMachine",),
    )
    table = LogOf().create(add("a")).commit(1, future)
    with pytest.raises(UnsupportedFeature, match="timeMachine"):
        table.open().latest()
    log = LogOf().create(add("a"))
    opened = log.open()
    opened.latest()
    log.commit(1, future)
    with pytest.raises(UnsupportedFeature, match="timeMachine"):
        opened.latest()
    assert table.open().snapshot(0).version == 0


# --- compactions, checksums -------------------------------------------------------------------


def _compaction(table: LogOf) -> str:
    path = log_path(Compaction(1, 3))
    table.commit(3, add("d"))
    table.store.put(path, encode_actions([add("b"), add("c"), remove("a"), add("d")]))
    return path


def test_a_compaction_stands_for_its_commits() -> None:
    table = _three_versions()
    path = _compaction(table)
    table.commit(4, add("e"), remove("b"))
    table.store.requests.clear()
    snapshot = table.open().latest()
    assert _paths(snapshot) == ["c", "d", "e"]
    assert sorted(snapshot.tombstones) == [("a", None), ("b", None)]
    assert ("get", path) in table.store.requests
    assert ("get", commit_path(2)) not in table.store.requests


def test_a_damaged_compaction_gives_way_to_its_commits() -> None:
    table = _three_versions()
    table.store.put(_compaction(table), b'{"add":')
    assert _paths(table.open().latest()) == ["b", "c", "d"]


def test_a_checksum_that_contradicts_is_told_and_the_table_is_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = _three_versions()
    table.store.put(checksum_path(2), b'{"numFiles":5,"tableSizeBytes":20}')
    with caplog.at_level(logging.WARNING):
        assert _paths(table.open().latest()) == ["b", "c"]
    assert "numFiles: expected 5, found 2" in caplog.text
    caplog.clear()
    table.store.put(checksum_path(2), b"{")
    table.open().latest()
    table.store.put(checksum_path(2), b'{"numFiles":2,"tableSizeBytes":20}')
    table.open().latest()
    assert not caplog.records


# --- history ----------------------------------------------------------------------------------


def test_history_newest_first() -> None:
    log = _three_versions().open()
    rows = log.history()
    assert [row["version"] for row in rows] == [2, 1, 0]
    assert [row["version"] for row in log.history(2)] == [2, 1]
    assert rows[0]["operation"] == "WRITE"
    with pytest.raises(InvalidRequest, match="limit"):
        log.history(0)


def test_a_large_commit_info_is_read_from_its_first_bytes() -> None:
    table = LogOf().create(add("a"))
    many = [add(f"{'x' * 200}{at}") for at in range(1_000)]
    table.commit(1, CommitInfo({"operation": "BIG", "timestamp": 1}), *many)
    table.commit(2, *many[:500], CommitInfo({"operation": "LAST", "timestamp": 1}))
    log = table.open()
    assert [row["operation"] for row in log.history()] == ["LAST", "BIG", "WRITE"]


def test_the_name_is_in_every_message() -> None:
    table = LogOf()
    log = TableLog(table.store, table.clock, table.settings)
    with pytest.raises(InvalidRequest, match="memory://test is not a Delta table"):
        log.latest()
