"""Rounds of maintenance: what is done, recorded and left, and that nobody is disturbed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa

from tests.maintenance.maintaining import (
    FEW,
    age_log,
    create,
    handle_of,
    maintainer_of,
    newest,
    operations,
    states,
    view,
)
from tests.session.offline import Offline
from txlake.catalog.maintenance_book import claim_on
from txlake.commands import HANDLERS
from txlake.commit import checkpointing, iceberg_publication
from txlake.commit.iceberg_publication import version_in_iceberg
from txlake.errors import ConcurrentDeleteReadException, CorruptTable, InvalidRequest
from txlake.maintenance import maintainer as maintainer_module
from txlake.maintenance import needs
from txlake.maintenance import work as work_module
from txlake.maintenance.maintainer import Maintainer
from txlake.maintenance.schedule import Maintenance
from txlake.maintenance.survey import Target
from txlake.maintenance.work import Worker
from txlake.protocol.actions import Add
from txlake.session.membership.attachment import attach
from txlake.session.session import Session
from txlake.sql import parse
from txlake.sql.statements import TableName, TablePath

LIMIT_S = 60
T = TableName(("t",))
ON = "'txlake.maintenance.enabled' = 'true'"


@pytest.fixture
def lake(tmp_path: Path) -> Offline:
    return Offline((tmp_path / "lake").as_uri())


def contents(lake: Offline) -> tuple[object, list[str]]:
    """All rows of the catalog, and all files of the warehouse."""
    lake.catalog.ledger.pending_tables()  # which writes notes that wait to be written
    return lake.catalog.contents.read(), lake.files(lake.place)


def execute(lake: Offline, change: str) -> None:
    """Change the catalog's rows as time would."""
    database = lake.catalog._database
    database.run_shielded(
        lambda: database.write(lambda connection: connection.execute(sa.text(change)))
    )


def test_a_round_does_what_is_due_and_says_so(lake: Offline) -> None:
    create(lake)
    create(lake, "u", inserts=1)
    [done] = maintainer_of(lake).run()
    assert (done.table_name, done.need, done.state, done.files) == (
        "default.t",
        "optimize",
        "done",
        3,
    )
    assert done.action == "OPTIMIZE default.t"
    assert done.size_bytes > 0
    assert len(newest(lake).files) == 1
    [row] = view(lake)
    assert row["reason"].startswith("4 small files of ")
    assert (row["state"], row["files"], row["error"], row["process"]) == ("done", 3, None, None)
    assert row["duration_ms"] >= 0
    assert maintainer_of(lake).run() == []
    assert len(view(lake)) == 1


def test_a_dry_run_writes_nothing(lake: Offline) -> None:
    create(lake)
    create(lake, "off", "'txlake.maintenance.enabled' = 'false'")
    before, sessions = contents(lake), lake.catalog.sessions.entries()
    due, off = maintainer_of(lake).plan()
    assert contents(lake) == before
    assert (due.table_name, due.need, due.state, due.files) == ("default.t", "optimize", "due", 3)
    assert (off.table_name, off.state) == ("default.off", "off")
    assert off.reason == "txlake.maintenance.enabled is false"
    assert [each.id for each in lake.catalog.sessions.entries()] == [each.id for each in sessions]


def test_a_dry_run_says_what_the_budget_is_too_small_for(lake: Offline) -> None:
    create(lake)
    [due] = maintainer_of(lake, data_bytes=10).plan()
    assert due.error is not None
    assert "bytes are more than the 10 that are left" in due.error


def test_a_policy_that_is_off_is_off(lake: Offline) -> None:
    create(lake, "a", f"{FEW}, 'txlake.maintenance.enabled' = 'false'")
    create(lake, "b", f"{FEW}, 'txlake.maintenance.optimize' = 'false'")
    lake.run(
        "CREATE DATABASE quiet WITH DBPROPERTIES ('txlake.maintenance.enabled' = 'false');"
        f"CREATE TABLE quiet.c (id INT) TBLPROPERTIES ({FEW});"
        f"CREATE TABLE quiet.d (id INT) TBLPROPERTIES ({FEW}, {ON})"
    )
    for number in range(4):
        lake.run(f"INSERT INTO quiet.c VALUES ({number}); INSERT INTO quiet.d VALUES ({number})")
    [done] = maintainer_of(lake).run()
    assert done.table_name == "quiet.d"


def test_a_database_takes_no_property_that_means_nothing(lake: Offline) -> None:
    for key, value in (("enabled", "perhaps"), ("vacume", "true")):
        with pytest.raises(InvalidRequest, match=key):
            lake.run(
                f"ALTER DATABASE default SET DBPROPERTIES ('txlake.maintenance.{key}' = '{value}')"
            )
    lake.run("ALTER DATABASE default SET DBPROPERTIES ('TXLAKE.maintenance.MINsmallfiles' = '3')")
    entry = lake.catalog.database("default")
    assert entry is not None
    assert entry.properties == {"txlake.maintenance.minSmallFiles": "3"}


def test_what_the_budget_leaves_is_due(lake: Offline) -> None:
    create(lake, "a")
    create(lake, "b")
    done = maintainer_of(lake, time_ms=0).run()
    assert [entry.state for entry in done] == ["due", "due"]
    assert {state for _, _, state in states(lake)} == {"due"}
    assert "budget of 0 s is used up" in view(lake)[0]["error"]
    maintainer_of(lake).run()
    assert [state for _, _, state in states(lake)] == ["done", "done"]


def test_a_budget_of_bytes_ends_with_them(lake: Offline) -> None:
    create(lake, "a")
    create(lake, "b")
    cost = 2 * sum(add.size for add in newest(lake, "a").files.adds())
    done = maintainer_of(lake, data_bytes=cost).run()
    assert sorted(entry.state for entry in done) == ["done", "due"]


def test_large_work_is_done_in_steps(lake: Offline, monkeypatch: pytest.MonkeyPatch) -> None:
    create(lake, inserts=12)
    step = 4 * max(add.size for add in newest(lake).files.adds())
    monkeypatch.setattr(work_module, "DRIVER_STEP_BYTES", step)
    [done] = maintainer_of(lake).run()
    assert done.state == "done"
    assert operations(lake).count("OPTIMIZE") > 1
    assert done.files == 12 - len(newest(lake).files)


def test_deleted_rows_are_dropped(lake: Offline) -> None:
    lake.run("CREATE TABLE t (id INT)")
    lake.run("INSERT INTO t VALUES (1), (2), (3), (4)")
    lake.run("INSERT INTO t VALUES (5), (6), (7), (8), (9), (10)")
    lake.run("DELETE FROM t WHERE id IN (1, 5)")
    assert newest(lake).files.totals.deleted_records == 2
    [done] = maintainer_of(lake).run()
    assert (done.need, done.state, done.row_count) == ("purge", "done", 1)
    # Of the other file a sixth is deleted.
    assert newest(lake).files.totals.deleted_records == 1


SOON = (
    f"{FEW}, 'delta.deletedFileRetentionDuration' = 'interval 0 days', "
    "'delta.autoOptimize.autoCompact' = 'false'"
)


def test_expired_files_are_deleted_by_the_log_alone(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(lake, properties=SOON)
    maintainer_of(lake).run()
    age_log(lake, 1)
    listed: list[str] = []
    store = type(handle_of(lake).store._inner)  # type: ignore[attr-defined]
    real = store.list

    def note(self: object, prefix: str, *given: object, **more: object) -> object:
        listed.append(prefix)
        return real(self, prefix, *given, **more)

    monkeypatch.setattr(store, "list", note)
    [done] = maintainer_of(lake).run()
    assert (done.need, done.state, done.files) == ("vacuum", "done", 4)
    assert operations(lake)[-2:] == ["VACUUM START", "VACUUM END"]
    assert "" not in listed
    listed.clear()
    # Now that nothing is due, one listing of the log sees it.
    assert maintainer_of(lake).run() == []
    assert "" not in listed


def test_a_vacuum_that_would_delete_nothing_writes_nothing(lake: Offline) -> None:
    create(lake, properties=SOON)
    reader = Session(lake.engine, HANDLERS).begin()
    lake.session.snapshot(T, transaction=reader)
    lake.run("OPTIMIZE t")
    age_log(lake, 1)
    before = newest(lake).version
    [done] = maintainer_of(lake).run()
    assert (done.need, done.state, done.files) == ("vacuum", "done", 0)
    assert newest(lake).version == before
    reader.rollback()


def test_a_checkpoint_that_was_missed_is_written(lake: Offline) -> None:
    create(lake, properties="'delta.checkpointInterval' = '100'", inserts=6)
    lake.run("ALTER TABLE t SET TBLPROPERTIES ('delta.checkpointInterval' = '2')")
    lake.run("INSERT INTO t VALUES (1)")
    checkpoints = [path for path in lake.files(f"{lake.place}/t") if ".checkpoint." in path]
    for path in checkpoints:
        handle_of(lake).store.delete([path])
    lake.engine.forget_all()
    [done] = [entry for entry in maintainer_of(lake).run() if entry.need == "checkpoint"]
    assert done.state == "done"
    assert any(".checkpoint." in path for path in lake.files(f"{lake.place}/t"))


def test_files_without_statistics_get_them(lake: Offline, tmp_path: Path) -> None:
    place = (tmp_path / "foreign").as_uri()
    lake.run(f"CREATE TABLE delta.`{place}` (id INT)")
    lake.run(f"INSERT INTO delta.`{place}` VALUES (1); INSERT INTO delta.`{place}` VALUES (2)")
    handle = lake.engine.at(place, TablePath(place))
    with_statistics, other = handle.log.latest().files.adds()
    lake.stage(handle, [msgspec.structs.replace(other, stats=None, data_change=False)], "WRITE")
    attach(lake.session, place, "t")
    [done] = maintainer_of(lake).run()
    assert (done.need, done.state) == ("statistics", "done")
    assert operations(lake)[-1] == "COMPUTE STATS"
    assert {add.stats for add in newest(lake).files.adds()} == {with_statistics.stats, other.stats}
    commit = handle_of(lake).log.commit(newest(lake).version)
    assert commit is not None
    [again] = [action for action in commit.actions if isinstance(action, Add)]
    assert again.path == other.path
    assert maintainer_of(lake).run() == []


ICEBERG = (
    "'delta.enableIcebergCompatV2' = 'true', 'delta.universalFormat.enabledFormats' = 'iceberg'"
)


def shown(lake: Offline) -> int:
    handle = handle_of(lake)
    return version_in_iceberg(handle.log, handle.log.latest())


def test_iceberg_metadata_that_a_writer_left_behind_is_published(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(lake, properties=ICEBERG, inserts=1)
    assert shown(lake) == 1
    monkeypatch.setattr(checkpointing, "publish_after", lambda log, snapshot: None)
    lake.run("INSERT INTO t VALUES (2); INSERT INTO t VALUES (3)")
    assert maintainer_of(lake).plan() == []  # its writer may still publish it
    monkeypatch.setattr(needs, "_ICEBERG_BEHIND_MS", 0)
    [done] = maintainer_of(lake).run()
    assert (done.need, done.state) == ("iceberg metadata", "done")
    assert done.action == "REPAIR TABLE default.t SYNC METADATA"
    assert shown(lake) == newest(lake).version == 3
    assert maintainer_of(lake).run() == []


def test_iceberg_metadata_that_cannot_be_seen_hides_no_other_need(
    lake: Offline, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    create(lake, properties=f"{FEW}, {ICEBERG}")
    monkeypatch.setattr(iceberg_publication, "has_pyiceberg", lambda: False)
    with caplog.at_level(logging.WARNING):
        [done] = maintainer_of(lake).run()
    assert (done.need, done.state) == ("optimize", "done")
    assert "how far its Iceberg metadata is can't be seen" in caplog.text


def test_works_are_counted_and_measured(lake: Offline, monkeypatch: pytest.MonkeyPatch) -> None:
    create(lake)
    counted: list[tuple[str, dict[str, object]]] = []
    monkeypatch.setattr(
        maintainer_module, "count", lambda name, **about: counted.append((name, about))
    )
    maintainer_of(lake).run()
    assert counted == [("txlake.maintenance.works", {"work": "optimize", "outcome": "done"})]


# Beside others


def test_the_table_of_another_process_is_left_to_it(lake: Offline) -> None:
    create(lake)
    other = Session(lake.engine, HANDLERS)
    entry = handle_of(lake).entry
    assert entry is not None
    claim = claim_on(entry.database_number, entry.number)
    lake.catalog.locks.acquire(other.number(), None, [claim], 0)
    [left] = maintainer_of(lake).run()
    assert left.state == "due"
    assert left.error is not None
    assert "the maintenance of table default.t" in left.error
    assert operations(lake)[-1] == "WRITE"
    other.close()
    [done] = maintainer_of(lake).run()
    assert done.state == "done"


def test_a_claim_shows_who_works(lake: Offline, monkeypatch: pytest.MonkeyPatch) -> None:
    create(lake)
    seen: list[object] = []
    real = Worker.on_table

    def look(self: Worker, *given: object) -> object:
        seen.append(view(lake)[-1])
        locks = lake.session.catalog_view("sys.dm_tran_locks").table().to_pylist()
        seen.extend(lock for lock in locks if lock["resource_type"] == "APPLICATION")
        return real(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Worker, "on_table", look)
    maintainer_of(lake).run()
    running, lock = seen
    assert running["state"] == "running"  # type: ignore[index]
    assert running["process"] > 0  # type: ignore[index]
    assert lock["resource_description"] == "maintenance"  # type: ignore[index]
    assert lock["request_owner_type"] == "SESSION"  # type: ignore[index]
    assert lake.catalog.locks.entries() == []


def test_what_another_process_has_done_is_not_done_again(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(lake)
    first, second = maintainer_of(lake), maintainer_of(lake)
    real = first._claimed

    def late(*given: object) -> object:
        second.run()
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(first, "_claimed", late)
    [done] = first.run()
    assert done.state == "nothing"
    assert operations(lake).count("OPTIMIZE") == 1


def test_a_users_lock_is_not_waited_for(lake: Offline) -> None:
    create(lake)
    user = Session(lake.engine, HANDLERS).begin()
    lake.run_in(user, "ALTER TABLE t SET TBLPROPERTIES ('a' = 'b')")
    yielded, due = maintainer_of(lake).run()
    assert (yielded.state, due.state) == ("yielded", "due")
    assert yielded.error is not None
    assert yielded.error.startswith("LockTimeout")
    user.commit()
    [done] = maintainer_of(lake).run()
    assert done.state == "done"


def test_a_user_who_waits_for_a_lock_ends_the_work(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(lake)
    monkeypatch.setattr(work_module, "_LOOK_MS", 10.0)
    altered = threading.Event()
    user = Session(lake.engine, HANDLERS)

    def alter() -> None:
        lake.run("ALTER TABLE t SET TBLPROPERTIES ('a' = 'b')", user)
        altered.set()

    thread = threading.Thread(target=alter, daemon=True)
    real = Session.carry_out

    def slowly(self: Session, *given: object, **more: object) -> object:
        answer = real(self, *given, **more)  # type: ignore[arg-type]
        if "Optimize" in type(given[1]).__name__:
            thread.start()  # while the OPTIMIZE holds its lock
            assert altered.wait(LIMIT_S)
        return answer

    monkeypatch.setattr(Session, "carry_out", slowly)
    yielded, due = maintainer_of(lake).run()
    thread.join(LIMIT_S)
    assert (yielded.state, due.state) == ("yielded", "due")
    assert newest(lake).metadata.configuration["a"] == "b"
    assert len(newest(lake).files) == 4


@pytest.mark.parametrize("error", [ConcurrentDeleteReadException("lost"), CorruptTable("odd")])
def test_an_error_of_one_table_leaves_the_others(
    lake: Offline,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    caplog: pytest.LogCaptureFixture,
) -> None:
    create(lake, "a")
    create(lake, "b")
    real = Worker.on_table

    def fail(self: Worker, target: Target, *given: object) -> object:
        if target.name == "default.a":
            raise error
        return real(self, target, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Worker, "on_table", fail)
    with caplog.at_level(logging.INFO):
        found = maintainer_of(lake).run()
    state = "failed" if isinstance(error, CorruptTable) else "yielded"
    assert {(entry.table_name, entry.state) for entry in found} == {
        ("default.a", state),
        ("default.b", "done"),
        ("default.a", "due"),
    }
    assert str(error) in caplog.text
    assert any(row["error"] == f"{type(error).__name__}: {error}" for row in view(lake))


def test_a_table_that_cannot_be_read_leaves_the_others(lake: Offline) -> None:
    create(lake, "a")
    create(lake, "b")
    handle = handle_of(lake, "a")
    was = handle.store.get("_delta_log/00000000000000000002.json")
    handle.store.put("_delta_log/00000000000000000002.json", b"{")
    lake.engine.forget_all()
    [done] = maintainer_of(lake).run()
    assert done.table_name == "default.b"
    passed = maintainer_of(lake).plan()[-1]
    handle.store.delete(["_delta_log/00000000000000000002.json"])
    handle.store.put("_delta_log/00000000000000000002.json", was)
    assert (passed.table_name, passed.state) == ("default.a", "off")
    assert passed.reason.startswith("CorruptTable")


@pytest.mark.parametrize(
    "properties",
    [
        f"{FEW}, 'delta.enableDeletionVectors' = 'false'",
        f"{FEW}, 'txlake.conflictGranularity' = 'file'",
        f"{FEW}, 'txlake.conflictGranularity' = 'table'",
    ],
)
def test_where_writers_cannot_be_carried_over_they_come_first(
    lake: Offline, properties: str
) -> None:
    create(lake, properties=properties, inserts=6)
    user = Session(lake.engine, HANDLERS).begin()
    lake.run_in(user, "DELETE FROM t WHERE id = 1")
    yielded, _ = maintainer_of(lake).run()
    assert yielded.state == "yielded"
    user.commit()
    reader = Session(lake.engine, HANDLERS).begin()
    lake.session.snapshot(T, transaction=reader)
    yielded, _ = maintainer_of(lake).run()
    assert yielded.state == "yielded"
    assert yielded.error is not None
    assert "another transaction is open" in yielded.error
    lake.run_in(reader, "DELETE FROM t WHERE id = 2")
    reader.commit()
    assert maintainer_of(lake).run()[0].state == "done"
    assert len(newest(lake).files) == 1


def test_a_transaction_that_begins_meanwhile_is_not_aborted_either(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(lake, properties=f"{FEW}, 'delta.enableDeletionVectors' = 'false'")
    user = Session(lake.engine, HANDLERS)
    real = Session.carry_out
    begun = []

    def then(self: Session, *given: object, **more: object) -> object:
        answer = real(self, *given, **more)  # type: ignore[arg-type]
        if "Optimize" in type(given[1]).__name__:
            begun.append(user.begin())
            user.snapshot(T, transaction=begun[0])
        return answer

    monkeypatch.setattr(Session, "carry_out", then)
    yielded, _ = maintainer_of(lake).run()
    monkeypatch.undo()
    assert yielded.state == "yielded"
    lake.run_in(begun[0], "DELETE FROM t WHERE id = 2")
    begun[0].commit()


def test_a_deletion_beside_it_is_carried_over(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(lake)
    user = Session(lake.engine, HANDLERS).begin()
    lake.run_in(user, "DELETE FROM t WHERE id = 1")
    [done] = maintainer_of(lake).run()
    assert done.state == "done"
    user.commit()
    assert newest(lake).files.totals.deleted_records == 1


# Path tables


def path_maintainer(lake: Offline, place: str) -> Maintainer:
    engine = lake.path_engine()
    target = Target(engine.at(place, TablePath(place)))
    return Maintainer(engine, lambda: Session(engine, HANDLERS), tables=[target])


def test_a_path_table_is_maintained_too(lake: Offline, tmp_path: Path) -> None:
    place = (tmp_path / "alone").as_uri()
    lake.run(f"CREATE TABLE delta.`{place}` (id INT) TBLPROPERTIES ({FEW})")
    for number in range(4):
        lake.run(f"INSERT INTO delta.`{place}` VALUES ({number})")
    before = lake.files(place)
    [due] = path_maintainer(lake, place).plan()
    assert lake.files(place) == before
    assert (due.table_name, due.need) == (place, "optimize")
    [done] = path_maintainer(lake, place).run()
    assert (done.state, done.files) == ("done", 3)
    assert path_maintainer(lake, place).run() == []


def test_a_path_table_that_others_write_is_left_alone_where_they_would_lose(
    lake: Offline, tmp_path: Path
) -> None:
    place = (tmp_path / "alone").as_uri()
    off = f"{FEW}, 'delta.enableDeletionVectors' = 'false'"
    lake.run(f"CREATE TABLE delta.`{place}` (id INT) TBLPROPERTIES ({off})")
    for number in range(4):
        lake.run(f"INSERT INTO delta.`{place}` VALUES ({number})")
    yielded, _ = path_maintainer(lake, place).run()
    assert yielded.state == "yielded"
    assert yielded.error is not None
    assert "it is done after ten minutes without one" in yielded.error


def test_a_table_of_a_lake_is_not_maintained_by_its_path(lake: Offline) -> None:
    create(lake)
    place = handle_of(lake).store.url
    [off] = path_maintainer(lake, place).plan()
    assert off.state == "off"
    assert "maintain txlake's tables by their lake" in off.reason
    assert path_maintainer(lake, place).run() == []


# The lake itself


def test_expired_branches_go_with_what_they_kept(lake: Offline) -> None:
    create(lake, "gone", inserts=1)
    lake.session.perform(parse("CREATE BRANCH b RETAIN 1 DAY")[0])
    folder = handle_of(lake, "gone").store.url
    lake.session.perform(parse("DROP TABLE gone")[0])
    execute(lake, "UPDATE txlake_branches SET kept_until_ms = 5")
    assert lake.files(folder)
    [due] = maintainer_of(lake).plan()
    assert (due.table_name, due.need) == (None, "branches")
    [done] = maintainer_of(lake).run()
    assert (done.state, done.files) == ("done", 1)
    assert lake.catalog.branches.entries() == []
    assert not lake.files(folder)
    assert maintainer_of(lake).plan() == []


def test_what_a_killed_drop_left_goes(lake: Offline) -> None:
    create(lake, "gone", inserts=1)
    folder = handle_of(lake, "gone").store.url
    lake.failing.add("delete")
    lake.session.perform(parse("DROP TABLE gone")[0])
    lake.failing.clear()
    assert lake.files(folder)
    [done] = maintainer_of(lake).run()
    assert (done.table_name, done.need, done.state) == (None, "leftovers", "done")
    assert not lake.files(folder)
    assert maintainer_of(lake).plan() == []


# Schedules


def test_rounds_go_on_until_they_are_stopped(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(lake)
    rounds: list[int] = []
    enough = threading.Event()
    maintainer = maintainer_of(lake)
    real: Callable[[], object] = maintainer.run

    def run() -> object:
        rounds.append(1)
        if len(rounds) == 2:
            raise CorruptTable("a round that fails")
        if len(rounds) == 3:
            enough.set()
        return real()

    monkeypatch.setattr(maintainer, "run", run)
    with Maintenance(lake.engine, maintainer, 1) as handle:
        assert enough.wait(LIMIT_S)
    assert handle.stop(LIMIT_S)
    assert len(newest(lake).files) == 1


def test_a_stop_ends_a_round_after_the_work_under_way(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(lake, "a")
    create(lake, "b")
    maintainer = maintainer_of(lake)
    real = maintainer._meet

    def meet(*given: object) -> object:
        maintainer.stop()
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(maintainer, "_meet", meet)
    done, left = maintainer.run()
    assert (done.state, left.state, left.error) == ("done", "due", "the maintenance was stopped")


def test_it_ends_with_the_lake(lake: Offline) -> None:
    create(lake)
    lake.engine.close()
    handle = Maintenance(lake.engine, maintainer_of(lake), 1)
    handle._thread.join(LIMIT_S)
    assert not handle._thread.is_alive()
