"""A lost catalog is rebuilt from the tables' logs, and what they can't tell is listed."""

from __future__ import annotations

import pytest

from tests.session.offline import Offline
from txlake.commit.checkpointing import write_checkpoint
from txlake.commit.membership import Membership, attach_actions
from txlake.commit.table_log import TableLog
from txlake.errors import CorruptTable
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import CommitInfo, encode_actions
from txlake.protocol.file_names import commit_path
from txlake.session.membership.attachment import attach
from txlake.session.membership.opening import MARKER, open_lake
from txlake.session.membership.recovery import Recovered, recover


@pytest.fixture
def lake() -> Offline:
    """A lake with two tables, in two databases."""
    made = Offline()
    open_lake(made.session)
    made.run("CREATE DATABASE sales; CREATE TABLE t (id INT); CREATE TABLE sales.u (id INT)")
    return made


def reopened(lake: Offline) -> Offline:
    """The same warehouse, the catalog being lost."""
    again = Offline(lake.place)
    open_lake(again.session)
    return again


def recovered(lake: Offline, *locations: str) -> tuple[Offline, Recovered]:
    again = reopened(lake)
    return again, recover(again.session, locations)


def told(report: Recovered, *parts: str) -> bool:
    """Whether one sentence of the report has all of these parts."""
    return any(all(part in note for part in parts) for note in report.unknown)


def test_the_tables_have_their_names_ids_and_heads_again(lake: Offline) -> None:
    lake.run("COMMENT ON TABLE t IS 'two versions'")
    again, report = recovered(lake)
    assert report.tables == ("default.t", "sales.u")
    assert again.tables() == lake.tables()
    assert again.catalog.lake_id == lake.catalog.lake_id
    before, after = lake.catalog.find("default", "t"), again.catalog.find("default", "t")
    assert before is not None
    assert after is not None
    assert after.id == before.id
    assert after.managed
    head = again.catalog.ledger.head(after.id)
    assert head is not None
    assert head.version == 1
    again.run("COMMENT ON TABLE t IS 'three'")


def test_what_logs_never_tell_is_always_listed(lake: Offline) -> None:
    _, report = recovered(lake)
    assert told(report, "views, and databases' isolation levels")
    assert told(report, "not published when the catalog was lost")
    assert told(report, "outside of the warehouse")
    assert len(report.unknown) == 3


def test_where_catalog_and_logs_agree_nothing_is_done(lake: Offline) -> None:
    other = Offline(lake.place, lake.catalog)
    assert recover(lake.session, ()) == Recovered((), (), ())
    assert lake.catalog.epoch == 1
    other.run("COMMENT ON TABLE t IS 'nobody was kept out'")


def test_without_a_marker_the_lake_is_a_new_one() -> None:
    lake = Offline()
    report = recover(lake.session, ())
    assert report.tables == ()
    assert lake.engine.recovery_required is None


def test_a_lake_whose_marker_and_catalog_are_lost_says_how_to_mark_it(lake: Offline) -> None:
    assert lake.engine.warehouse is not None
    lake.engine.warehouse.delete([MARKER])
    again, report = recovered(lake)
    assert report.tables == report.done == ()
    for name in ("default.t", "sales.u"):
        assert told(report, f"belongs to lake {lake.catalog.lake_id}, as {name}", "marker was lost")
    assert again.catalog.epoch == 1


def test_a_table_outside_is_found_where_it_is_named(lake: Offline) -> None:
    place = lake.path_table(f"{lake.place}-elsewhere/out")
    attach(lake.session, place, "out")
    again, report = recovered(lake, place)
    assert "default.out" in report.tables
    entry = again.catalog.find("default", "out")
    assert entry is not None
    assert not entry.managed


def test_a_table_of_no_lake_is_listed(lake: Offline) -> None:
    place = lake.path_table(f"{lake.place}/plain")
    again, report = recovered(lake)
    assert told(report, place, "lake.attach")
    assert "default.plain" not in again.tables()


def test_another_lakes_table_is_listed(lake: Offline) -> None:
    other = Offline()
    place = lake.path_table(f"{lake.place}/theirs")
    attach(other.session, place, "theirs")
    again, report = recovered(lake)
    assert told(report, place, other.catalog.lake_id, "default.theirs")
    assert place not in again.tables().values()


def test_a_log_that_cannot_be_read_is_listed(lake: Offline) -> None:
    location = lake.tables()["default.t"]
    store = lake.at(location).store
    store.put("_delta_log/00000000000000000000.json", b"not json")
    _, report = recovered(lake)
    assert report.tables == ("sales.u",)
    assert told(report, location, "can't be read")


INTRUDER = encode_actions([CommitInfo({"operation": "INTRUDE", "engineInfo": "another"})])
TIMED = "'delta.enableInCommitTimestamps' = 'true'"


@pytest.mark.parametrize("files", [[b"{nonsense"], [b"{nonsense", b"]"], [INTRUDER, b"{nonsense"]])
def test_a_log_ends_where_its_commits_do(lake: Offline, files: list[bytes]) -> None:
    log = lake.at(lake.tables()["default.t"]).log
    for version, data in enumerate(files, 1):
        log.store.put(commit_path(version), data)
    again, report = recovered(lake)
    assert report.tables == ("default.t", "sales.u")
    sound = files.count(INTRUDER)
    for version, one in zip(range(len(files), sound, -1), report.done, strict=True):
        assert f"{log.name}: version {version} can't be read as one: it is in" in one
    assert len(list(log.store.list("_delta_log/_set_aside"))) == len(files) - sound
    again.run("COMMENT ON TABLE t IS 'goes on'")
    assert again.at(log.store.url).log.latest().version == len(files) + 1


def test_a_log_ends_where_its_times_do(lake: Offline) -> None:
    """Nothing could be committed after a version that has none."""
    lake.run(f"ALTER TABLE t SET TBLPROPERTIES ({TIMED})")
    store = lake.at(lake.tables()["default.t"]).store
    store.put(commit_path(2), INTRUDER)
    again, report = recovered(lake)
    assert report.tables == ("default.t", "sales.u")
    assert any("version 2 can't be read as one" in one for one in report.done)
    again.run("COMMENT ON TABLE t IS 'goes on'")


def test_commits_after_a_damaged_one_are_left_where_they_are(lake: Offline) -> None:
    for number in range(3):
        lake.run(f"COMMENT ON TABLE t IS '{number}'")
    store = lake.at(lake.tables()["default.t"]).store
    store.put(commit_path(1), b"{nonsense")
    _, report = recovered(lake)
    assert report.tables == ("sales.u",)
    assert told(report, store.url, "can't be read")
    assert store.get(commit_path(1)) == b"{nonsense"
    assert store.head(commit_path(3)) is not None


@pytest.mark.parametrize("is_whole", [True, False])
def test_what_a_slow_writer_left_of_a_dropped_table_is_none(lake: Offline, is_whole: bool) -> None:
    """Its checkpoint came when the folder was removed already."""
    lake.run("COMMENT ON TABLE t IS 'one'")
    handle = lake.at(lake.tables()["default.t"])
    write_checkpoint(handle.log)
    left = {one.path: handle.store.get(one.path) for one in handle.store.list("_delta_log")}
    lake.run("DROP TABLE t")
    for path, data in left.items():
        if "checkpoint" in path:
            handle.store.put(path, data if is_whole else data[:-9])
    fresh = Offline(lake.place, lake.catalog)
    assert recover(fresh.session, ()) == Recovered((), (), ())
    fresh.run("CREATE TABLE t (id INT)")
    assert fresh.tables()["default.t"].startswith(f"{handle.store.url}-")
    again, report = recovered(lake)
    assert report.tables == ("default.t", "sales.u")
    assert told(report, f"{handle.store.url} ", "when a table is dropped" if is_whole else "read")
    again.run("COMMENT ON TABLE t IS 'goes on'")


def without_the_first_commit(lake: Offline) -> str:
    """The place of t, whose log lacks its first file, as it does while it is removed."""
    lake.run("COMMENT ON TABLE t IS 'one'")
    store = lake.at(lake.tables()["default.t"]).store
    store.delete([commit_path(0)])
    return store.url


def test_a_table_is_made_beside_one_that_is_being_removed(lake: Offline) -> None:
    place = without_the_first_commit(lake)
    lake.failing.add("delete")
    lake.run("DROP TABLE t")
    lake.failing.clear()
    fresh = Offline(lake.place, lake.catalog)
    fresh.run("CREATE TABLE t (id INT)")
    assert fresh.tables()["default.t"].startswith(f"{place}-")


@pytest.mark.parametrize("is_removed", [True, False])
def test_a_folder_whose_log_cannot_be_read_is_looked_at_twice(
    lake: Offline, monkeypatch: pytest.MonkeyPatch, is_removed: bool
) -> None:
    """It may have been removed, and forgotten, in the middle of the first look."""
    location = lake.tables()["default.t"]
    lake.run("DROP TABLE t")
    store, look = lake.at(location).store, TableLog.latest_or_none
    store.put(commit_path(1), b"{}")
    looks = 0

    def looked(log: TableLog) -> Snapshot | None:
        nonlocal looks
        if log.store.url == location:
            looks += 1
        if looks == 2 and is_removed:
            store.delete([commit_path(1)])
        return look(log)

    monkeypatch.setattr(TableLog, "latest_or_none", looked)
    fresh = Offline(lake.place, lake.catalog)
    if is_removed:
        fresh.run("CREATE TABLE t (id INT)")
        assert fresh.tables()["default.t"] == location
    else:
        with pytest.raises(CorruptTable, match="version 1"):
            fresh.run("CREATE TABLE t (id INT)")
        assert store.head(commit_path(1)) is not None


@pytest.mark.parametrize("name", ["one", "a.b.c", "delta.`/x`", "a..b"])
def test_a_name_that_is_none_is_listed(lake: Offline, name: str) -> None:
    place = f"{lake.place}/odd"
    lake.path_table(place)
    handle = lake.at(place)
    stamp = Membership(lake=lake.catalog.lake_id, table="1", name=name)
    lake.stage(handle, attach_actions(stamp, handle.log.latest()), "ATTACH")
    _, report = recovered(lake)
    assert report.tables == ("default.t", "sales.u")
    assert told(report, place, repr(name), "is no name of a table")


def test_two_tables_of_one_name_are_told_apart(lake: Offline) -> None:
    place = f"{lake.place}/second"
    lake.path_table(place)
    handle = lake.at(place)
    stamp = Membership(lake=lake.catalog.lake_id, table="2", name="default.t")
    lake.stage(handle, attach_actions(stamp, handle.log.latest()), "ATTACH")
    _, report = recovered(lake)
    assert report.tables == ("default.t", "sales.u")
    assert told(report, "default.t", "isn't any more")


def test_a_commit_that_was_staged_is_listed(lake: Offline) -> None:
    location = lake.tables()["default.t"]
    staged = "_delta_log/_staged_commits/00000000000000000001.x.json"
    lake.at(location).store.put(staged, b"{}")
    _, report = recovered(lake)
    assert told(report, "default.t", staged)
