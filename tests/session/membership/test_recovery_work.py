"""What a recovery looks at, and what it leaves."""

from __future__ import annotations

from typing import Any

import pytest

from tests.catalog.backups import copied, put_back
from tests.session.processes import INTRUDER, Lakes, say, told
from txlake.commit.membership import ATTACH, Membership, attach_actions
from txlake.errors import Unavailable
from txlake.protocol.actions import CommitInfo, encode_actions
from txlake.protocol.file_names import commit_path
from txlake.session.membership import recovery
from txlake.session.membership.attachment import attach
from txlake.session.membership.recovery import Recovered, recover


def test_other_tables_in_the_warehouse_are_no_work(alone: Lakes) -> None:
    lake = alone.process()
    lake.path_table(f"{alone.place}/plain")
    lake.at(f"{alone.place}/damaged").store.put(commit_path(0), b"{nonsense")
    theirs = lake.at(lake.path_table(f"{alone.place}/theirs"))
    stamp = Membership(lake="another", table="1", name="default.x")
    lake.stage(theirs, attach_actions(stamp, theirs.log.latest()), ATTACH)
    lake.failing |= {"delete", "put"}
    lake.run("DROP TABLE u")
    lake.failing.clear()
    assert recover(lake.session, ()) == Recovered((), (), ())
    assert lake.catalog.epoch == 1


def test_a_dropped_table_is_not_taken_in_again(alone: Lakes) -> None:
    lake = alone.process()
    lake.failing |= {"delete", "put"}
    lake.run("DROP TABLE u")
    lake.failing.clear()
    alone.store("t").put(commit_path(1), INTRUDER)
    before = lake.catalog.ledger.sequence()
    assert recover(lake.session, ()).tables == ()
    assert list(alone.store("u").list("")) == []
    assert lake.catalog.ledger.sequence() == before + 1  # of t alone


def test_a_recovery_mends_one_table_and_says_nothing_of_others(
    alone: Lakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = alone.process()
    place = lake.path_table(f"{alone.place}-elsewhere/x")
    attach(lake.session, place, "x")
    with monkeypatch.context() as patched:
        patched.setattr(type(lake.catalog.ledger), "forget", lambda *_: None)
        lake.run("DROP TABLE x")
    alone.store("t").put(commit_path(1), INTRUDER)
    before = lake.catalog.ledger.sequence()
    report = recover(lake.session, ())
    assert not any("isn't recovered" in one for one in report.unknown)
    assert len(report.done) == 1
    assert lake.catalog.ledger.sequence() == before + 1


def test_a_table_in_anothers_folder_loses_its_name(alone: Lakes) -> None:
    lake = alone.process()
    store = alone.store("t")
    store.delete([stored.path for stored in store.list("")])
    other = lake.at(lake.path_table(store.url))
    stamp = Membership(lake="another", table="1", name="default.t")
    lake.stage(other, attach_actions(stamp, other.log.latest()), ATTACH)
    report = recover(lake.session, ())
    assert told(report, "default.t", "isn't this table's any more")
    assert "default.t" not in lake.tables()


def test_a_database_that_a_log_names_is_made_again(alone: Lakes) -> None:
    copy = copied(alone.url)
    alone.process().run("CREATE DATABASE d; ALTER TABLE t RENAME TO d.moved")
    put_back(alone.url, copy)
    lake = alone.process()
    recover(lake.session, ())
    assert set(lake.tables()) == {"d.moved", "default.u"}


def test_what_was_given_up_is_not_remembered(alone: Lakes) -> None:
    lake = alone.process()
    lake.failing.add("put_if_absent")
    say(lake, "one")
    ours = encode_actions([CommitInfo({"operation": "SAY", "engineInfo": "txlake/0.1.0"})])
    alone.store("t").put(commit_path(1), ours)
    lake.failing.clear()
    recover(lake.session, ())
    entry = lake.catalog.find("default", "t")
    assert entry is not None
    assert lake.engine.at_entry(entry).log.latest().metadata.description is None


def test_one_place_that_fails_keeps_no_other_from_being_taken_in(
    alone: Lakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copied(alone.url)
    alone.process().run("CREATE TABLE v (id INT); CREATE TABLE w (id INT)")
    put_back(alone.url, copy)
    lake = alone.process()
    take_in, left = recovery._attach_unknown, [Unavailable("away")]

    def away_once(*given: Any, managed: bool) -> None:
        if left:
            raise left.pop()
        take_in(*given, managed=managed)

    monkeypatch.setattr(recovery, "_attach_unknown", away_once)
    report = recover(lake.session, ())
    assert len(report.tables) == 1
    assert any("isn't recovered: away" in one for one in report.unknown)
