"""A catalog from a backup, or none any more: refused, and recovered."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.catalog.backups import Copy, copied, put_back
from tests.session.processes import Lakes, head, restored, say, told
from txlake.catalog.recovering import TableState
from txlake.errors import CorruptTable, Unavailable
from txlake.session.membership.attachment import attach, detach
from txlake.session.membership.opening import MARKER, Marker, read_marker, write_marker
from txlake.session.membership.recovery import Recovered, recover


def test_a_table_whose_log_is_ahead_is_refused_until_it_is_recovered(lakes: Lakes) -> None:
    restored(lakes)
    lake = lakes.process()
    for _ in range(2):
        with pytest.raises(CorruptTable, match=r"default\.t: .*at version 1.*2\.json.*recover"):
            say(lake, "lost")
    say(lake, "another table is used as before", "u")
    report = recover(lake.session, ())
    assert report.tables == ()
    assert told(report, "versions 2 to 3, which the catalog didn't have")
    assert any("views, databases, their settings" in one for one in report.unknown)
    assert any("committed since then, and not published" in one for one in report.unknown)
    assert head(lake) == 3
    say(lake, "four")
    assert lakes.comments("t") == [None, "one", "two", "three", "four"]
    assert recover(lake.session, ()) == Recovered((), (), ())


def test_what_was_taken_in_is_read_at_the_lakes_instants(lakes: Lakes) -> None:
    restored(lakes)
    lake = lakes.process()
    before = lake.catalog.ledger.sequence()
    recover(lake.session, ())
    entry = lake.catalog.find("default", "t")
    assert entry is not None
    ledger = lake.catalog.ledger
    assert ledger.version_at(entry.id, before) == 1
    assert ledger.version_at(entry.id, ledger.sequence()) == 3


def test_a_process_that_saw_newer_instants_notices_at_once(lakes: Lakes) -> None:
    lake = lakes.process()
    copy = copied(lakes.url)
    say(lake, "one")
    put_back(lakes.url, copy)
    with pytest.raises(CorruptTable, match=r"newest instant is 2, .* seen instant 3.*recover"):
        say(lake, "lost", "u")


def test_an_older_instant_isn_t_asked_of_a_catalog_that_went_back(lakes: Lakes) -> None:
    """A transaction that reads an instant after the copy, and opens another table of it now."""
    lake = lakes.process()
    copy = copied(lakes.url)
    say(lake, "one")
    entry = lake.catalog.find("default", "t")
    assert entry is not None
    ledger = lake.catalog.ledger
    instant = ledger.sequence()
    assert ledger.version_at(entry.id, instant) == 1
    put_back(lakes.url, copy)
    with pytest.raises(CorruptTable, match="restored from a backup"):
        ledger.version_at(entry.id, instant)


def test_a_session_that_outlives_its_catalog_keeps_its_number(lakes: Lakes) -> None:
    older = lakes.process()
    copy = copied(lakes.url)
    number = older.session.number()
    put_back(lakes.url, copy)
    older.session.begin().registration.make()
    assert lakes.process().session.number() > number


def test_a_recovery_keeps_older_processes_out(lakes: Lakes) -> None:
    older = lakes.process()
    open_one = older.session.begin()
    older.run_in(open_one, "COMMENT ON TABLE u IS 'in an open transaction'")
    restored(lakes)
    lake = lakes.process()
    recover(lake.session, ())
    for refused in (open_one.commit, lambda: say(older, "lost"), lambda: say(older, "no", "u")):
        with pytest.raises(Unavailable, match=r"connect again|was ended"):
            refused()
    assert lakes.comments("u") == [None]
    say(lakes.process(), "four")


def test_a_copy_from_before_a_recovery_is_refused(lakes: Lakes) -> None:
    copy = copied(lakes.url)
    restored(lakes)
    recover(lakes.process().session, ())
    put_back(lakes.url, copy)
    lake = lakes.process()
    with pytest.raises(CorruptTable, match=r"epoch 1, .* had epoch 2.*lake\.recover"):
        say(lake, "lost", "u")
    recover(lake.session, ())
    assert lake.catalog.epoch == 3
    say(lake, "four")
    assert head(lake) == 4


def test_a_marker_that_is_behind_is_brought_up(lakes: Lakes) -> None:
    restored(lakes)
    lake = lakes.process()
    recover(lake.session, ())
    warehouse = lake.engine.warehouse
    assert warehouse is not None
    write_marker(warehouse, Marker(lake.catalog.lake_id))
    lakes.process()
    assert read_marker(warehouse) == Marker(lake.catalog.lake_id, 2)
    warehouse.put(MARKER, json.dumps({"lake": lake.catalog.lake_id}).encode())
    assert read_marker(warehouse) == Marker(lake.catalog.lake_id, 1)


def test_a_recovery_that_was_cut_short_is_run_again(lakes: Lakes) -> None:
    restored(lakes)
    lake = lakes.process()
    lake.failing.add("put")
    with pytest.raises(Unavailable):
        recover(lake.session, ())
    lake.failing.clear()
    for process in (lake, lakes.process()):
        with pytest.raises(CorruptTable, match=r"has begun and didn't end.*lake\.recover"):
            say(process, "lost", "u")
    report = recover(lakes.process().session, ())
    assert told(report, "versions 2 to 3")
    say(lakes.process(), "four")


def test_of_two_recoveries_the_later_one_goes_on(lakes: Lakes) -> None:
    restored(lakes)
    first, second = lakes.process(), lakes.process()
    epoch = first.catalog.recovery.begin(first.catalog.lake_id, 2, first.session.number())
    recover(second.session, ())
    with pytest.raises(Unavailable, match=r"rebuilt it \(epoch 3\)"):
        first.catalog.recovery.settle(epoch, "t", 0, ())
    with pytest.raises(Unavailable, match=r"rebuilt it \(epoch 3\)"):
        first.catalog.recovery.end(epoch)
    assert head(second) == 3


def test_of_two_recoveries_of_one_process_the_later_one_goes_on(lakes: Lakes) -> None:
    restored(lakes)
    lake = lakes.process()
    recovery = lake.catalog.recovery
    epoch = recovery.begin(lake.catalog.lake_id, 2, lake.session.number())
    recover(lake.session, ())
    entry = lake.catalog.find("default", "t")
    assert entry is not None
    with pytest.raises(Unavailable, match=r"of this process has begun \(epoch 3\)"):
        recovery.settle(epoch, entry.id, 1, ())
    with pytest.raises(Unavailable, match=r"of this process has begun \(epoch 3\)"):
        recovery.end(epoch)
    assert head(lake) == 3


def test_commits_that_come_meanwhile_are_nothing_to_recover(
    lakes: Lakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lakes.process()
    standing = lake.catalog.recovery.table_states

    def meanwhile() -> list[TableState]:
        found = standing()
        say(lake, "meanwhile")
        return found

    monkeypatch.setattr(lake.catalog.recovery, "table_states", meanwhile)
    assert recover(lake.session, ()) == Recovered((), (), ())
    assert lake.catalog.epoch == 1


def test_names_are_those_that_the_logs_tell(lakes: Lakes) -> None:
    lake = lakes.process()
    lake.run("CREATE TABLE gone (id INT); CREATE TABLE given (id INT)")
    copy = copied(lakes.url)
    lake.run("ALTER TABLE t RENAME TO renamed; CREATE DATABASE d; CREATE TABLE d.new (id INT)")
    lake.run("DROP TABLE gone")
    place = detach(lake.session, "given")
    put_back(lakes.url, copy)
    again = lakes.process()
    report = recover(again.session, ())
    assert report.tables == ("d.new",)
    assert told(report, "default.t is default.renamed now")
    assert told(report, "default.given", "isn't this table's any more")
    assert any("gone isn't recovered" in one and "drop" in one for one in report.unknown)
    assert set(again.tables()) == {"default.renamed", "default.u", "d.new", "default.gone"}
    attach(again.session, place, "taken_back")
    again.run("COMMENT ON TABLE renamed IS 'x'; COMMENT ON TABLE d.new IS 'y'")


# --- the catalog is gone, or another --------------------------------------------------------------


@pytest.mark.parametrize("by", ["removed", "exchanged"])
def test_a_process_that_has_a_removed_catalog_open_commits_nothing(tmp_path: Path, by: str) -> None:
    file = tmp_path / "catalog.db"
    lakes = Lakes(f"sqlite:///{file}")
    older = lakes.process()
    older.run("CREATE TABLE t (id INT)")
    open_one = older.session.begin()
    older.run_in(open_one, "COMMENT ON TABLE t IS 'in an open transaction'")
    for name in os.listdir(tmp_path):
        (tmp_path / name).rename(tmp_path / f"old-{name}")
    if by == "exchanged":
        newer = lakes.process()
        recover(newer.session, ())
        say(newer, "one")
    for refused in (open_one.commit, lambda: say(older, "lost"), older.tables):
        with pytest.raises(Unavailable, match=rf"the file was {by}.*connect again.*recover"):
            refused()
    assert lakes.versions("t") == ([0, 1] if by == "exchanged" else [0])
    lakes.close()


def test_a_postgresql_catalog_that_was_made_again_keeps_its_user_out(postgres_url: str) -> None:
    lakes = Lakes(postgres_url)
    older = lakes.process()
    older.run("CREATE TABLE t (id INT)")
    open_one = older.session.begin()
    older.run_in(open_one, "COMMENT ON TABLE t IS 'in an open transaction'")
    copy = copied(postgres_url)
    put_back(postgres_url, {name: [] for name in copy} | {"txlake_counters": from_the_start(copy)})
    newer = lakes.process()
    recover(newer.session, ())
    say(newer, "one")
    for refused in (open_one.commit, lambda: say(older, "lost")):
        with pytest.raises(Unavailable, match="connect again"):
            refused()
    assert lakes.comments("t") == [None, "one"]
    lakes.close()


def from_the_start(copy: Copy) -> list[dict[str, object]]:
    """What alone a new catalog has: its counters."""
    return [{**row, "value": 0} for row in copy["txlake_counters"]]
