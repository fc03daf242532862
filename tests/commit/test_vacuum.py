from __future__ import annotations

from contextlib import nullcontext

import msgspec
import pytest

from tests.commit.lake_of import LakeOf
from tests.commit.log_of import DAY, HOUR, START, VECTORS, LogOf, add, remove
from tests.commit.test_commit_times import _with_in_commit_times
from txlake.commit.checkpointing import write_checkpoint
from txlake.commit.staging import StagingSystem
from txlake.commit.vacuum import plan_vacuum, vacuum
from txlake.errors import (
    CorruptTable,
    InvalidRequest,
    OutcomeUnknown,
    Unavailable,
    UnsupportedFeature,
)
from txlake.ports import OpenTransactions, PutOutcome
from txlake.protocol.actions import (
    Action,
    Cdc,
    CommitInfo,
    DeletionVector,
    Protocol,
    Remove,
    encode_actions,
)
from txlake.protocol.deletion_vectors import relative_file_name, relative_vector
from txlake.protocol.file_names import ClassicCheckpoint, commit_path, log_path
from txlake.system import System

_UUID = "6f3d0c1e-0f4b-4f0a-9c39-0d6d6f7f4f10"
_WEEK = 7 * DAY
_NOW = START + 30 * DAY


def begun(at_ms: int, *ids: str) -> OpenTransactions:
    """Open transactions, the oldest of that time."""
    return OpenTransactions(ids=frozenset(ids), begin_ms=at_ms)


def _table(*actions: Action, url: str = "memory://test", **options: object) -> LogOf:
    table = LogOf(url=url)
    table.create(*actions, **options)  # type: ignore[arg-type]
    return table


def _put(table: LogOf, *paths: str, days_ago: float = 20) -> None:
    """Data files of that age when it is `_NOW`."""
    for path in paths:
        table.store.files[path] = (b"12345", _NOW - int(days_ago * DAY))


def _planned(table: LogOf, **options: object) -> list[str]:
    table.clock.time_ms = _NOW
    return list(plan_vacuum(table.open(), **options).paths)  # type: ignore[arg-type]


def test_what_no_version_within_the_retention_has_is_planned() -> None:
    table = _table(add("live"), add("gone"), add("gone lately"))
    table.commit(1, remove("gone", _NOW - 8 * DAY), remove("gone lately", _NOW - 6 * DAY))
    _put(table, "live", "gone", "gone lately", "orphan", "dir/orphan")
    _put(table, "young orphan", days_ago=6)
    table.clock.time_ms = _NOW
    plan = plan_vacuum(table.open())
    assert plan.paths == ("dir/orphan", "gone", "orphan")
    assert plan.size_bytes == 15
    assert plan.folders == 2
    assert (plan.before_ms, plan.version) == (_NOW - _WEEK, 1)


@pytest.mark.parametrize(
    ("removed_ago", "kept"), [(_WEEK, True), (_WEEK + 1, False), (_WEEK - 1, True)]
)
def test_the_retention_is_counted_from_the_removal(removed_ago: int, kept: bool) -> None:
    table = _table(add("f")).commit(1, remove("f", _NOW - removed_ago))
    _put(table, "f")
    assert (_planned(table) == []) is kept


@pytest.mark.parametrize(("committed_ago", "kept"), [(_WEEK, True), (_WEEK + 1, False)])
def test_change_data_is_kept_for_the_retention_of_its_version(
    committed_ago: int, kept: bool
) -> None:
    """However long before its commit the file was written."""
    change = Cdc(path="_change_data/c", partition_values={}, size=1, data_change=False)
    info = CommitInfo({"timestamp": _NOW - committed_ago})
    table = _table().commit(1, info, change)
    _put(table, "_change_data/c")
    _put(table, "_change_data/orphan")
    planned = ["_change_data/orphan"] if kept else ["_change_data/c", "_change_data/orphan"]
    assert _planned(table) == planned


def test_a_remove_without_a_time_is_long_ago() -> None:
    table = _table(add("f")).commit(1, Remove(path="f", data_change=True))
    _put(table, "f")
    assert _planned(table) == ["f"]


@pytest.mark.parametrize(
    ("path", "planned"),
    [
        ("_hidden/f", False),
        (".hidden/f", False),
        ("a/_b/c/f", False),
        ("_file", False),
        (".f.parquet.crc", False),
        ("_delta_log/x.parquet", False),
        ("_delta_log/_sidecars/x.parquet", False),
        ("_change_data/cdc-1.parquet", True),
        ("p=1/_change_data/cdc-1.parquet", True),
        ("_delta_index/bloom", True),
        ("_p=1/f", True),
        ("_q=1/f", False),
        ("_a%2Fb=1/f", True),
        ("a=1/b=2/f", True),
        (relative_file_name(_UUID), True),
        ("inner/_delta_log/00000000000000000000.json", False),
        ("inner/part.parquet", False),
        ("innermost/part.parquet", True),
    ],
)
def test_which_names_are_looked_at(path: str, planned: bool) -> None:
    table = _table(partition_columns=["_p", "_a/b"])
    schema = (
        '{"type":"struct","fields":[{"name":"_p","type":"string","nullable":true,"metadata":{}},'
        '{"name":"_a/b","type":"string","nullable":true,"metadata":{}}]}'
    )
    meta = table.open().latest().metadata
    table.commit(1, msgspec.structs.replace(meta, schema_string=schema))
    _put(table, path, "inner/_delta_log/00000000000000000001.json")
    assert _planned(table) == ([path] if planned else [])


@pytest.mark.parametrize(
    "in_log",
    [
        "p=a%20b/x%2Fy.parquet",
        "./p=a%20b/x%2Fy.parquet",
        "file:///data/t%20t/p=a%20b/x%2Fy.parquet",
        "file:/data/t%20t/p=a%20b/x%2Fy.parquet",
        "/data/t%20t/p=a%20b/x%2Fy.parquet",
    ],
)
def test_however_a_file_is_named_it_is_the_same(in_log: str) -> None:
    table = _table(add(in_log), url="file:///data/t%20t")
    _put(table, "p=a b/x/y.parquet", "p=a b/other.parquet")
    assert _planned(table) == ["p=a b/other.parquet"]


def test_files_outside_the_table_are_none_of_its_business() -> None:
    table = _table(add("s3://elsewhere/f"), add("file:///data/t2/f"), url="file:///data/t")
    _put(table, "f")
    assert _planned(table) == ["f"]


def test_deletion_vector_files_live_as_long_as_their_vector() -> None:
    def of(number: int, prefix: str = "") -> DeletionVector:
        return relative_vector(_UUID[:-1] + str(number), prefix, 1, 36, 2)

    inline = DeletionVector(
        storage_type="i", path_or_inline_dv="wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        size_in_bytes=40, cardinality=6,
    )  # fmt: skip
    absolute = DeletionVector(
        storage_type="p", path_or_inline_dv="file:///data/t/dv%20abs.bin", size_in_bytes=36,
        cardinality=1, offset=1,
    )  # fmt: skip
    table = _table(
        add("a", vector=of(1)), add("b", vector=of(2, "pre")), add("c", vector=inline),
        add("d", vector=absolute), add("without"), protocol=VECTORS, url="file:///data/t",
    )  # fmt: skip
    table.commit(1, remove("e", _NOW - DAY, vector=of(3)), remove("f", _NOW - 9 * DAY, of(4)))
    _put(table, "a", "b", "c", "d", "dv abs.bin", "without")
    names = {at: relative_file_name(_UUID[:-1] + str(at)) for at in range(1, 6)}
    _put(table, names[1], f"pre/{names[2]}", names[3], names[4], names[5])
    assert _planned(table) == sorted([names[4], names[5]])


# --- retention --------------------------------------------------------------------------------


def test_a_shorter_retention_is_refused_unless_the_check_is_off() -> None:
    table = _table(add("f")).commit(1, remove("f", _NOW - 2 * HOUR))
    _put(table, "f")
    with pytest.raises(
        InvalidRequest, match=r"at least 168 hours .*found 1 hours.*Check\.enabled to"
    ):
        _planned(table, retention_ms=HOUR)
    assert _planned(table, retention_ms=HOUR, retention_check=False) == ["f"]
    assert _planned(table, retention_ms=3 * HOUR, retention_check=False) == []
    with pytest.raises(InvalidRequest, match="negative"):
        _planned(table, retention_ms=-1, retention_check=False)


def test_the_table_says_how_long() -> None:
    day = {"delta.deletedFileRetentionDuration": "interval 1 day"}
    table = _table(add("f"), configuration=day).commit(1, remove("f", _NOW - 2 * DAY))
    _put(table, "f")
    assert _planned(table) == ["f"]
    assert _planned(table, retention_ms=DAY) == ["f"]


def test_a_longer_retention_finds_tombstones_that_checkpoints_dropped() -> None:
    table = _table(add("f"), add("g"), add("h"))
    table.clock.time_ms = _NOW - 20 * DAY
    table.commit(1, remove("f", _NOW - 20 * DAY))
    table.clock.time_ms = _NOW - 10 * DAY
    table.commit(2, remove("g", _NOW - 10 * DAY))
    table.clock.time_ms = _NOW
    table.commit(3)
    write_checkpoint(table.open())
    table.remove_file(commit_path(0))
    _put(table, "f", "g", "h", days_ago=25)
    assert _planned(table, retention_ms=15 * DAY) == ["f"]
    assert _planned(table) == ["f", "g"]


def test_tables_that_we_may_not_write_are_not_vacuumed() -> None:
    future = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=("vacuumProtocolCheck",),
        writer_features=("vacuumProtocolCheck", "someNewThing"),
    )
    table = _table(add("f"), protocol=future)
    _put(table, "orphan")
    with pytest.raises(UnsupportedFeature, match="someNewThing"):
        _planned(table)
    known = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=("vacuumProtocolCheck",),
        writer_features=("vacuumProtocolCheck",),
    )
    fine = _table(add("f"), protocol=known)
    _put(fine, "orphan")
    assert _planned(fine) == ["orphan"]


# --- deleting ---------------------------------------------------------------------------------


def test_files_are_deleted_between_two_commits() -> None:
    table = _table(add("live"), configuration={"delta.checkpointInterval": "2"})
    _put(table, "live", "orphan", "_hidden")
    table.clock.time_ms = _NOW
    plan = vacuum(table.open(), 200 * HOUR)
    assert plan.paths == ("orphan",)
    assert {"live", "_hidden"} <= set(table.paths)
    assert "orphan" not in table.paths
    end, start = table.open().history(2)
    assert (start["operation"], end["operation"]) == ("VACUUM START", "VACUUM END")
    assert start["operationParameters"] == {
        "retentionCheckEnabled": "true",
        "specifiedRetentionMillis": str(200 * HOUR),
        "defaultRetentionMillis": str(_WEEK),
    }
    assert start["operationMetrics"] == {"numFilesToDelete": "1", "sizeOfDataToDelete": "5"}
    assert end["operationParameters"] == {"status": "COMPLETED"}
    assert end["operationMetrics"] == {"numDeletedFiles": "1", "numVacuumedDirectories": "1"}
    assert (start["isBlindAppend"], start["isolationLevel"]) == (True, "SnapshotIsolation")
    assert log_path(ClassicCheckpoint(2)) in table.paths, "its commits count as others do"
    order = [kind for kind, path in table.store.requests if path in (commit_path(1), "orphan")]
    assert order.index("put_if_absent") < order.index("delete")


def test_files_of_open_transactions_stay() -> None:
    table = _table(add("live"))
    for path, minutes_before in (("own", -1), ("skewed", 10), ("orphan", 11)):
        table.store.files[path] = (b"1", _NOW - minutes_before * HOUR // 60)
    table.clock.time_ms = _NOW + HOUR
    log = table.open()
    vacuum(log, 0, retention_check=False, others_open=lambda: begun(_NOW))
    assert {"own", "skewed"} <= set(table.paths)
    assert "orphan" not in table.paths
    assert table.store.sweeps == [("", _NOW + HOUR - DAY)]
    vacuum(log, 0, retention_check=False, others_open=lambda: begun(_NOW - 2 * DAY))
    assert table.store.sweeps[1:] == [("", _NOW - 2 * DAY - HOUR // 6)]
    assert "own" in table.paths
    vacuum(log, 0, retention_check=False, others_open=OpenTransactions)
    assert {"own", "skewed"}.isdisjoint(table.paths)


def staged_by(transaction_id: str) -> str:
    """A data file's name."""
    return f"part-00000-{StagingSystem(System(), transaction_id).new_id()}-0.c000.snappy.parquet"


@pytest.mark.parametrize("held", [False, True])
def test_what_open_transactions_staged_stays_whatever_the_clocks_say(held: bool) -> None:
    mine, theirs, ended = staged_by("mine"), staged_by("theirs"), staged_by("ended")
    lake = LakeOf().create("a")
    table = _table(add("live"))
    log = lake.open("a") if held else table.open()
    clock = lake.clock if held else table.clock
    clock.time_ms = _NOW
    for path in (mine, theirs, ended):
        log.store.put(path, b"1")
    clock.time_ms = _NOW + 1
    # They began before the clock went back by an hour, or so it seems.
    others = begun(_NOW + HOUR, "mine", "theirs")
    plan = plan_vacuum(log, 0, retention_check=False, others_open=lambda: others)
    assert plan.paths == (ended,)
    plan = plan_vacuum(log, 0, retention_check=False, others_open=lambda: begun(_NOW, "mine"))
    # Of a path table's files those stay as well that seem to be new.
    assert plan.paths == (tuple(sorted((theirs, ended))) if held else ())


def test_a_lakes_files_without_a_tag_stay_for_as_long_as_they_are_new() -> None:
    lake = LakeOf().create("a")
    log = lake.open("a")
    lake.clock.time_ms = _NOW
    log.store.put("of an older release", b"1")
    lake.clock.time_ms = _NOW + HOUR
    for others, planned in (
        (begun(_NOW + HOUR // 6), ()),
        (begun(_NOW + HOUR // 6 + 1), ("of an older release",)),
        (OpenTransactions(), ("of an older release",)),
    ):
        plan = plan_vacuum(log, 0, retention_check=False, others_open=lambda: others)  # noqa: B023
        assert plan.paths == planned


@pytest.mark.parametrize(
    ("reads", "planned"),
    [((), ("first", "second")), ((1,), ()), ((3, 2), ("first",)), ((3,), ("first", "second"))],
)
def test_what_open_transactions_read_of_a_lake_stays_whatever_the_clocks_say(
    reads: tuple[int, ...], planned: tuple[str, ...]
) -> None:
    lake = LakeOf().create("a")
    for path in ("first", "second"):
        lake.store("a").put(path, b"1")
    lake.clock.time_ms = _NOW
    lake.append("a", add("first"), add("second"))
    for path in ("first", "second"):
        tx = lake.begin()
        tx.table("a").stage([remove(path, 1)], operation="DELETE")
        tx.commit()
    lake.ledger.read = [1 + read for read in reads]
    lake.clock.time_ms += DAY
    # By their times they began when all was removed.
    others = begun(_NOW + 2 * DAY)
    plan = plan_vacuum(lake.open("a"), 0, retention_check=False, others_open=lambda: others)
    assert plan.paths == planned


def test_what_was_committed_since_the_plan_began_stays() -> None:
    lake = LakeOf().create("a")
    log = lake.open("a")
    path = staged_by("1")
    log.store.put(path, b"1")
    lake.clock.time_ms += DAY

    def committed() -> OpenTransactions:
        lake.append("a", add(path))
        return OpenTransactions()

    plan = plan_vacuum(log, 0, retention_check=False, others_open=committed)
    assert plan.paths == ()


def test_change_data_of_a_commit_since_the_plan_began_stays() -> None:
    """Whatever the clock of its writer says."""
    table = _table()
    _put(table, "_change_data/c", "_change_data/orphan")
    change = Cdc(path="_change_data/c", partition_values={}, size=1, data_change=False)

    def committed() -> OpenTransactions:
        table.clock.time_ms = _NOW - 2 * DAY
        table.commit(1, change)
        table.clock.time_ms = _NOW
        return OpenTransactions()

    options: dict[str, object] = {"retention_ms": 0, "retention_check": False}
    assert _planned(table, **options, others_open=committed) == ["_change_data/orphan"]


def test_files_that_open_transactions_read_stay() -> None:
    table = _table(add("live"), add("early"), add("late"))
    _put(table, "live", "early", "late")
    table.clock.time_ms = _NOW - 3 * HOUR
    table.commit(1, remove("early", _NOW - 4 * HOUR)).commit(2, add("other"))
    # A transaction that began before the reader did removed it, and committed after.
    table.clock.time_ms = _NOW - HOUR
    table.commit(3, remove("late", _NOW - 5 * HOUR))
    options: dict[str, object] = {"retention_ms": 0, "retention_check": False}
    assert _planned(table, **options, others_open=lambda: begun(_NOW - 2 * HOUR)) == ["early"]
    assert _planned(table, **options) == ["early", "late"]


def test_open_transactions_are_asked_for_last() -> None:
    table = _table(add("live"))
    _put(table, "orphan")
    table.clock.time_ms = _NOW

    def asked() -> OpenTransactions:
        # Whoever begins from here on reads what the plan goes by, and its files aren't listed.
        assert ("list", "") in table.store.requests
        return begun(_NOW)

    assert plan_vacuum(table.open(), others_open=asked).paths == ("orphan",)


@pytest.mark.parametrize(("hours", "swept_before"), [(0, 24), (23, 24), (30, 30)])
def test_leftovers_go_when_no_writer_can_be_at_them(hours: int, swept_before: int) -> None:
    table = _table(add("live"))
    table.clock.time_ms = _NOW
    vacuum(table.open(), hours * HOUR, retention_check=False)
    assert ("", _NOW - swept_before * HOUR) in table.store.sweeps


def test_a_dry_run_leaves_no_trace() -> None:
    table = _table(add("live"))
    _put(table, "orphan")
    before = table.paths
    table.clock.time_ms = _NOW
    assert vacuum(table.open(), dry_run=True).paths == ("orphan",)
    assert table.paths == before
    assert table.store.sweeps == []


def test_in_commit_timestamps_are_kept_up() -> None:
    table = _with_in_commit_times(30 * 24 + 5)  # ahead of the clock
    table.clock.time_ms = _NOW
    vacuum(table.open())
    times = [row["timestamp"] for row in table.open().history()]
    assert times == [_NOW + 5 * HOUR + 2, _NOW + 5 * HOUR + 1, _NOW + 5 * HOUR]


def test_a_failed_deletion_is_told() -> None:
    table = _table(add("live"))
    _put(table, "orphan", "other")
    table.clock.time_ms = _NOW
    table.store.failing.add("other")
    with pytest.raises(Unavailable):
        vacuum(table.open())
    assert table.open().history(1)[0]["operationParameters"] == {"status": "FAILED"}
    assert "orphan" not in table.paths


def test_a_retention_that_nobody_gave_is_not_told() -> None:
    table = _table(add("live"))
    table.clock.time_ms = _NOW
    vacuum(table.open())
    (start,) = table.open().history(2)[1:]
    assert "specifiedRetentionMillis" not in start["operationParameters"]  # type: ignore[operator]


def test_nothing_is_deleted_before_the_start_is_told() -> None:
    table = _table(add("live"))
    _put(table, "orphan")
    table.clock.time_ms = _NOW
    table.store.put_if_absent = lambda path, data: PutOutcome.EXISTS  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="VACUUM START: other writers took 200 versions"):
        vacuum(table.open())
    assert "orphan" in table.paths


@pytest.mark.parametrize("held", [False, True])
def test_a_table_that_became_another_while_it_was_planned_is_left_alone(held: bool) -> None:
    future = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("teleport",))
    lake = LakeOf().create("a")
    table = _table(add("live"))
    log = lake.open("a") if held else table.open()
    log.store.put("orphan", b"")
    log.system.wait_ms(60 * DAY)

    def upgraded() -> OpenTransactions:
        newest = log.latest()
        if held:
            log.adopt(newest.apply([future], version=newest.version + 1))
        else:
            table.commit(1, future)
        return OpenTransactions()

    with pytest.raises(UnsupportedFeature, match="teleport"):
        vacuum(log, others_open=upgraded, begin=lambda: nullcontext("1"))
    assert log.store.head("orphan") is not None


def test_a_lakes_table_is_told_of_by_the_lake_alone() -> None:
    log = LakeOf().create("a").open("a")
    with pytest.raises(InvalidRequest, match="belongs to the catalog"):
        vacuum(log)
    assert log.latest().version == 0


def test_a_commit_that_went_while_the_log_was_read_removed_nothing_that_is_needed() -> None:
    table = _table(add("a")).commit(1, remove("a", _NOW - DAY)).commit(2)
    _put(table, "a", "orphan")
    get = table.store.get

    def gone(path: str) -> bytes:
        if path == commit_path(2):
            raise FileNotFoundError(path)
        return get(path)

    def going() -> OpenTransactions:
        table.store.get = gone  # type: ignore[method-assign]
        return begun(_NOW)

    assert _planned(table, retention_ms=20 * DAY - 1, others_open=going) == ["orphan"]


def test_a_path_table_is_told_of_by_its_own_commits() -> None:
    table = _table(add("live"))
    vacuum(table.open(), begin=lambda: nullcontext("1"))
    assert table.open().latest().version == 2


def test_other_writers_commits_are_no_conflict() -> None:
    table = _table(add("live"))
    _put(table, "orphan", "back again")
    table.clock.time_ms = _NOW
    log = table.open()
    put = table.store.put_if_absent
    raced: list[str] = []

    def race(path: str, data: bytes) -> PutOutcome:
        if path == commit_path(1) and not raced:
            raced.append(path)
            table.store.put(path, encode_actions([add("back again")]))
        return put(path, data)

    table.store.put_if_absent = race  # type: ignore[method-assign]
    vacuum(log)
    assert [row["operation"] for row in table.open().history()] == [
        "VACUUM END", "VACUUM START", None, "WRITE",
    ]  # fmt: skip
    assert "orphan" not in table.paths
    assert "back again" in table.paths, "a file that came back to life is not deleted"


@pytest.mark.parametrize("arrived", [True, False])
def test_a_lost_reply_is_looked_up(arrived: bool) -> None:
    table = _table(add("live"))
    _put(table, "orphan")
    table.clock.time_ms = _NOW
    put = table.store.put_if_absent
    lost: list[str] = []

    def lose(path: str, data: bytes) -> PutOutcome:
        if path == commit_path(1) and not lost:
            lost.append(path)
            if arrived:
                put(path, data)
            return PutOutcome.UNKNOWN
        return put(path, data)

    table.store.put_if_absent = lose  # type: ignore[method-assign]
    if arrived:
        vacuum(table.open())
        assert table.open().latest().version == 2
        assert "orphan" not in table.paths
    else:
        with pytest.raises(OutcomeUnknown, match="VACUUM START"):
            vacuum(table.open())
        assert "orphan" in table.paths, "nothing is deleted before the start is known"


def test_a_commit_that_the_client_sent_twice_is_made_once() -> None:
    table = _table(add("live"))
    table.clock.time_ms = _NOW
    put = table.store.put_if_absent

    def twice(path: str, data: bytes) -> PutOutcome:
        put(path, data)
        return put(path, data)  # the first reply was lost, and the client tried again

    table.store.put_if_absent = twice  # type: ignore[method-assign]
    vacuum(table.open())
    assert [row["operation"] for row in table.open().history()] == [
        "VACUUM END", "VACUUM START", "WRITE",
    ]  # fmt: skip


def test_a_retention_that_is_not_understood_keeps_every_file() -> None:
    odd = {"delta.deletedFileRetentionDuration": "interval 1 month"}
    table = _table(add("f"), configuration=odd).commit(1, remove("f", _NOW - 90 * DAY))
    _put(table, "f")
    for retention_ms in (None, 0, 90 * DAY):
        with pytest.raises(CorruptTable, match=r"deletedFileRetentionDuration.*interval 1 month"):
            vacuum(table.open(), retention_ms, retention_check=False)
    assert table.paths == [commit_path(0), commit_path(1), "f"]
