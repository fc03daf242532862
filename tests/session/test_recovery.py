"""A lost catalog is rebuilt from the tables' logs, and what they can't tell is listed."""

from __future__ import annotations

import pytest

from tests.session.offline import Offline
from txlake.errors import InvalidRequest
from txlake.session.attachment import attach
from txlake.session.opening import open_lake
from txlake.session.recovery import Recovered, recover
from txlake.transaction.belonging import Belonging, attaching


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
    assert told(report, "isolation levels")
    assert told(report, "not published when the catalog was lost")
    assert told(report, "outside of the warehouse")
    assert len(report.unknown) == 3


def test_a_catalog_that_knows_tables_is_not_rebuilt(lake: Offline) -> None:
    with pytest.raises(InvalidRequest, match="knows tables already"):
        recover(lake.session, ())


def test_without_a_marker_the_lake_is_a_new_one() -> None:
    lake = Offline()
    report = recover(lake.session, ())
    assert report.tables == ()
    assert lake.engine.lost is None


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


@pytest.mark.parametrize("name", ["one", "a.b.c", "delta.`/x`", "a..b"])
def test_a_name_that_is_none_is_listed(lake: Offline, name: str) -> None:
    place = f"{lake.place}/odd"
    lake.path_table(place)
    handle = lake.at(place)
    stamp = Belonging(lake=lake.catalog.lake_id, table="1", name=name)
    lake.stage(handle, attaching(stamp, handle.log.latest()), "ATTACH")
    _, report = recovered(lake)
    assert report.tables == ("default.t", "sales.u")
    assert told(report, place, repr(name))


def test_two_tables_of_one_name_are_told_apart(lake: Offline) -> None:
    place = f"{lake.place}/second"
    lake.path_table(place)
    handle = lake.at(place)
    stamp = Belonging(lake=lake.catalog.lake_id, table="2", name="default.t")
    lake.stage(handle, attaching(stamp, handle.log.latest()), "ATTACH")
    _, report = recovered(lake)
    assert report.tables == ("default.t", "sales.u")
    assert told(report, "default.t", "isn't any more")


def test_a_commit_that_was_staged_is_listed(lake: Offline) -> None:
    location = lake.tables()["default.t"]
    staged = "_delta_log/_staged_commits/00000000000000000001.x.json"
    lake.at(location).store.put(staged, b"{}")
    _, report = recovered(lake)
    assert told(report, "default.t", staged)
