"""UNDROP TABLE: what comes back, what is refused and removed, and processes that are killed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.catalog.backups import copied, put_back
from tests.catalog.ledgers import execute
from tests.catalog.view_changes import create_view
from tests.commit.log_of import add
from tests.session.offline import Offline
from tests.session.processes import Lakes, told
from txlake.catalog import DroppedEntry, TableEntry
from txlake.catalog.commits import PendingTable
from txlake.catalog.recovering import TableState
from txlake.commands import HANDLERS
from txlake.errors import CorruptTable, InvalidRequest, LockTimeout, Unavailable
from txlake.ports import Ratification, Store
from txlake.protocol.actions import CommitInfo, encode_actions
from txlake.protocol.file_names import commit_path
from txlake.session.engine import Engine
from txlake.session.membership import dropping
from txlake.session.membership.attachment import attach, detach
from txlake.session.membership.drop_note import note_path, remove_drop_note, write_drop_note
from txlake.session.membership.dropping import finish_interrupted
from txlake.session.membership.opening import open_lake
from txlake.session.membership.recovery import Recovered, recover
from txlake.session.session import Session
from txlake.sql.statements import TablePath

DAY_MS = 86_400_000


@pytest.fixture(params=["sqlite", "postgresql"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lakes]:
    """A lake with a table, on each database."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'catalog.db'}"
    else:
        url = request.getfixturevalue("postgres_url")
    made = Lakes(url, kept_ms=DAY_MS)
    made.process().run("CREATE TABLE t (id INT)")
    yield made
    made.close()


@pytest.fixture
def lakes(tmp_path: Path) -> Iterator[Lakes]:
    """A lake with a table."""
    made = Lakes(f"sqlite:///{tmp_path / 'catalog.db'}", kept_ms=DAY_MS)
    made.process().run("CREATE TABLE t (id INT)")
    yield made
    made.close()


@pytest.fixture
def lake(lakes: Lakes) -> Offline:
    return lakes.process()


def table(lake: Offline, name: str = "t", database: str = "default") -> TableEntry:
    found = lake.catalog.find(database, name)
    assert found is not None
    return found


def dropped(lake: Offline) -> DroppedEntry:
    """The newest that is kept."""
    return lake.catalog.dropped.entries()[0]


def end(lakes: Lakes, lake: Offline) -> DroppedEntry:
    """The time of the newest one that is kept is over, and its folder says so."""
    one = dropped(lake)
    execute(
        lakes.url,
        "UPDATE txlake_tables SET dropped_ms = 1000, kept_until_ms = 2000"
        f" WHERE id = '{one.entry.id}'",
    )
    if one.has_drop_note:
        write_drop_note(lake.catalog, lake.at(one.entry.location).store, dropped(lake))
    return dropped(lake)


def has_note(lake: Offline, entry: TableEntry) -> bool:
    return lake.at(entry.location).store.head(note_path(entry.id)) is not None


def columns(lake: Offline, location: str) -> list[str]:
    return [field.name for field in lake.at(location).log.latest().schema.fields]


@pytest.mark.parametrize("knows_it", [True, False])
def test_a_table_whose_files_were_removed_is_dropped(
    lake: Offline, lakes: Lakes, caplog: pytest.LogCaptureFixture, knows_it: bool
) -> None:
    location = f"{lake.place}-elsewhere"
    lake.run(f"CREATE TABLE u (id INT) LOCATION '{location}'; COMMENT ON TABLE u IS 'x'")
    lake.at(location).store.delete(lake.files(location))
    dropping = lake if knows_it else lakes.process()
    dropping.run("DROP TABLE u")
    assert "its log doesn't record the drop" in caplog.text
    assert "default.u" not in lake.tables()


# --- what comes back ------------------------------------------------------------------------------


def test_a_table_comes_back_as_it_was(both: Lakes) -> None:
    lake = both.process()
    lake.run("COMMENT ON TABLE t IS 'one'")
    before, files = table(lake), lake.files(table(lake).location)
    lake.run("DROP TABLE t")
    assert lake.tables() == {}
    assert set(lake.files(before.location)) == {*files, note_path(before.id)}
    other = both.process()
    other.run("UNDROP TABLE t")
    after = table(lake)
    assert (after.id, after.number, after.location) == (before.id, before.number, before.location)
    assert after.head == 1
    assert lake.files(before.location) == files
    lake.run("COMMENT ON TABLE t IS 'two'")
    assert both.comments("t") == [None, "one", "two"]


def test_the_name_is_free_at_once_and_the_new_table_is_another(lake: Offline) -> None:
    first = table(lake)
    lake.run("DROP TABLE t; CREATE TABLE t (other INT)")
    second = table(lake)
    assert second.location != first.location
    assert columns(lake, second.location) == ["other"]
    with pytest.raises(InvalidRequest, match=r"rename it first \(ALTER TABLE default\.t RENAME TO"):
        lake.run("UNDROP TABLE t")
    lake.run("ALTER TABLE t RENAME TO u; UNDROP TABLE t")
    assert lake.tables() == {"default.t": first.location, "default.u": second.location}
    assert columns(lake, first.location) == ["id"]


def test_a_views_name_is_taken_too(lake: Offline) -> None:
    lake.run("DROP TABLE t")
    create_view(lake.catalog, "default", "t", "SELECT 1", ())
    with pytest.raises(InvalidRequest, match="there is a view of that name"):
        lake.run("UNDROP TABLE t")
    assert has_note(lake, dropped(lake).entry)


def test_the_newest_of_a_name_comes_back_and_any_by_its_id(lake: Offline) -> None:
    first = table(lake)
    lake.run("DROP TABLE t; CREATE TABLE t (other INT)")
    second = table(lake)
    lake.run("DROP TABLE T; UNDROP TABLE T")
    assert table(lake).id == second.id
    lake.run("ALTER TABLE t RENAME TO u")
    lake.run(f"UNDROP TABLE WITH ID '{first.id}'")
    assert table(lake).id == first.id
    with pytest.raises(InvalidRequest, match="no dropped table with the id"):
        lake.run(f"UNDROP TABLE WITH ID '{first.id}'")


def test_what_was_never_dropped_is_refused(lake: Offline) -> None:
    for statement in ("UNDROP TABLE t", "UNDROP TABLE nothing"):
        with pytest.raises(InvalidRequest, match="there is no dropped table"):
            lake.run(statement)


def test_it_cannot_be_part_of_a_transaction(lake: Offline) -> None:
    lake.run("DROP TABLE t")
    tx = lake.session.begin()
    with pytest.raises(InvalidRequest, match="UNDROP TABLE can't run in a transaction"):
        lake.run_in(tx, "UNDROP TABLE t")


def test_a_drop_in_a_transaction_is_one_when_that_commits(lake: Offline) -> None:
    tx = lake.session.begin()
    lake.run_in(tx, "DROP TABLE t")
    assert lake.catalog.dropped.entries() == []
    tx.commit()
    lake.run("UNDROP TABLE t")
    tx = lake.session.begin()
    lake.run_in(tx, "DROP TABLE t")
    tx.rollback()
    assert lake.catalog.dropped.entries() == []
    assert not has_note(lake, table(lake))


def test_it_waits_for_whoever_holds_the_name(lake: Offline) -> None:
    lake.run("DROP TABLE t")
    other = Session(lake.engine, HANDLERS)
    tx = other.begin()
    lake.run_in(tx, "CREATE TABLE t (other INT)", other)
    lake.session.lock_timeout_ms = 0
    for statement in ("UNDROP TABLE t", f"UNDROP TABLE WITH ID '{dropped(lake).entry.id}'"):
        with pytest.raises(LockTimeout):
            lake.run(statement)
    tx.rollback()
    lake.run("UNDROP TABLE t")


def test_what_was_not_published_yet_comes_back_with_it(lake: Offline) -> None:
    lake.failing.add("put_if_absent")
    lake.run("COMMENT ON TABLE t IS 'late'")
    lake.run("DROP TABLE t")
    lake.failing.clear()
    lake.run("UNDROP TABLE t")
    assert lake.at(table(lake).location).log.latest().metadata.description == "late"


def test_a_folder_that_is_gone_or_anothers_is_refused(lake: Offline) -> None:
    entry = table(lake)
    lake.run("DROP TABLE t")
    store = lake.at(entry.location).store
    store.delete([stored.path for stored in store.list("")])
    with pytest.raises(CorruptTable, match=r"no table at .* any more"):
        lake.run("UNDROP TABLE t")
    lake.path_table(entry.location)
    with pytest.raises(InvalidRequest, match="holds another table now"):
        lake.run("UNDROP TABLE t")


def test_a_folder_that_is_gone_is_not_made_again(lakes: Lakes, lake: Offline) -> None:
    entry = table(lake)
    store = lake.at(entry.location).store
    store.delete([stored.path for stored in store.list("")])
    lake.run("DROP TABLE t")
    assert lake.files(entry.location) == []
    end(lakes, lake)
    finish_interrupted(lake.engine)
    assert lake.files(entry.location) == []
    assert lake.catalog.ledger.dropped_tables() == []


def test_nothing_is_published_where_another_table_is(lake: Offline) -> None:
    entry = table(lake)
    lake.failing.add("put_if_absent")
    lake.run("COMMENT ON TABLE t IS 'late'; DROP TABLE t")
    lake.failing.clear()
    store = lake.at(entry.location).store
    store.delete([stored.path for stored in store.list("")])
    lake.path_table(entry.location)
    before = lake.files(entry.location)
    with pytest.raises(InvalidRequest, match="holds another table now"):
        lake.run("UNDROP TABLE t")
    assert lake.files(entry.location) == before
    finish_interrupted(lake.engine)
    assert lake.files(entry.location) == before
    assert lake.catalog.dropped.entries() == []


# --- tables elsewhere -----------------------------------------------------------------------------


@pytest.fixture
def place(lake: Offline) -> str:
    made = lake.path_table(f"{lake.place}-elsewhere/mine", add("a"))
    attach(lake.session, made, "mine")
    return made


def test_a_table_elsewhere_has_its_name_again(lake: Offline, place: str) -> None:
    entry = table(lake, "mine")
    lake.run("DROP TABLE mine")
    assert lake.domain(place) is None
    assert not has_note(lake, entry)
    lake.stage(lake.at(place), [add("b")], "WRITE")  # it is a path table in between
    lake.run("UNDROP TABLE mine")
    assert table(lake, "mine").id == entry.id
    latest = lake.at(place).log.latest()
    assert table(lake, "mine").head == latest.version
    assert sorted(file.path for file in latest.files.adds()) == [add("a").path, add("b").path]
    assert (lake.domain(place) or {})["table"] == entry.id
    lake.run("COMMENT ON TABLE mine IS 'again'")


def test_a_folder_elsewhere_is_never_told(lake: Offline, place: str) -> None:
    entry = table(lake, "mine")
    lake.failing.add("put_if_absent")  # so that its log says that it is the lake's
    lake.run("DROP TABLE mine")
    finish_interrupted(lake.engine)
    lake.failing.clear()
    assert lake.domain(place) is not None
    assert not has_note(lake, entry)
    lake.run("UNDROP TABLE mine")
    assert (lake.domain(place) or {})["table"] == entry.id


def test_a_table_elsewhere_that_another_name_has_is_refused(lake: Offline, place: str) -> None:
    lake.run("DROP TABLE mine")
    attach(lake.session, place, "yours")
    with pytest.raises(InvalidRequest, match=r"holds default\.yours, another table, now"):
        lake.run("UNDROP TABLE mine")


def test_one_that_was_cut_short_is_gone_on_with(
    lake: Offline, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.run("DROP TABLE mine")
    with monkeypatch.context() as patched:
        patched.setattr(lake.catalog.ledger, "ratify", _die)
        with pytest.raises(Unavailable):
            lake.run("UNDROP TABLE mine")
    with pytest.raises(InvalidRequest, match=r"UNDROP TABLE WITH ID '"):
        attach(lake.session, place, "yours")
    lake.run("UNDROP TABLE mine")
    assert lake.at(place).log.latest().version == 3  # created, attached, detached, attached


def test_what_lies_elsewhere_stays_when_its_time_is_over(
    lakes: Lakes, lake: Offline, place: str
) -> None:
    lake.run("DROP TABLE mine")
    end(lakes, lake)
    before = lake.files(place)
    finish_interrupted(lake.engine)
    assert lake.catalog.dropped.entries() == []
    assert lake.catalog.ledger.dropped_tables() == []
    assert lake.files(place) == before
    with pytest.raises(InvalidRequest, match="was dropped at 1970-01-01T00:00:01"):
        lake.run("UNDROP TABLE mine")


def test_what_is_given_up_is_not_kept(lake: Offline, place: str) -> None:
    detach(lake.session, "mine")
    assert lake.catalog.dropped.entries() == []


def test_a_table_elsewhere_is_written_by_others_and_at_odds_with_nothing(
    lake: Offline, place: str
) -> None:
    lake.run("DROP TABLE mine")
    lake.stage(lake.at(place), [add("b")], "WRITE")
    assert recover(lake.session, (place,)).done == ()
    assert lake.catalog.epoch == 1


# --- for how long ---------------------------------------------------------------------------------


def test_what_is_purged_is_removed_at_once(lake: Offline) -> None:
    location = table(lake).location
    lake.run("DROP TABLE t PURGE")
    assert lake.files(location) == []
    assert lake.catalog.dropped.entries() == []
    with pytest.raises(InvalidRequest, match="no dropped table"):
        lake.run("UNDROP TABLE t")


def test_a_database_says_for_how_long(lake: Offline) -> None:
    key = "txlake.droppedTableRetention"
    lake.run(f"CREATE DATABASE d WITH DBPROPERTIES ('{key}' = 'interval 2 hours')")
    lake.run("CREATE TABLE d.t (id INT); CREATE TABLE d.u (id INT); DROP TABLE d.t")
    one = dropped(lake)
    assert one.kept_until_ms - one.dropped_ms == 7_200_000
    lake.run(f"ALTER DATABASE d SET DBPROPERTIES ('{key}' = '0 days'); DROP TABLE d.u")
    assert [each.entry.name for each in lake.catalog.dropped.entries()] == ["t"]
    with pytest.raises(InvalidRequest, match="expected an interval such as"):
        lake.run(f"ALTER DATABASE d SET DBPROPERTIES ('{key}' = 'a while')")


@pytest.mark.parametrize("by", ["name", "id"])
def test_what_is_over_does_not_come_back(lakes: Lakes, lake: Offline, by: str) -> None:
    lake.run("DROP TABLE t")
    one = end(lakes, lake)
    statement = "UNDROP TABLE t" if by == "name" else f"UNDROP TABLE WITH ID '{one.entry.id}'"
    with pytest.raises(InvalidRequest, match=r"dropped at 1970-01-01T00:00:01\+00:00, and its re"):
        lake.run(statement)


def test_what_is_over_is_removed_when_the_lake_is_opened(lakes: Lakes, lake: Offline) -> None:
    lake.run("CREATE TABLE u (id INT); DROP TABLE u; DROP TABLE t")
    over = end(lakes, lake).entry
    open_lake(lake.session)
    assert lake.files(over.location) == []
    assert lake.catalog.ledger.dropped_tables() != []  # u, which is kept
    assert dropped(lake).entry.name == "u"
    with pytest.raises(InvalidRequest, match="was dropped at 1970-01-01T00:00:01"):
        lake.run("UNDROP TABLE t")
    lake.run("UNDROP TABLE u")


def test_what_is_over_is_removed_when_another_is_dropped(lakes: Lakes, lake: Offline) -> None:
    lake.run("CREATE TABLE u (id INT); DROP TABLE t")
    over = end(lakes, lake).entry
    lake.run("DROP TABLE u")
    assert lake.files(over.location) == []
    assert [one.entry.name for one in lake.catalog.dropped.entries()] == ["u"]


def test_what_lies_elsewhere_is_forgotten_when_another_is_dropped(
    lakes: Lakes, lake: Offline, place: str
) -> None:
    lake.run("DROP TABLE mine")
    end(lakes, lake)
    before = lake.files(place)
    lake.run("DROP TABLE t")
    assert [one.table_id for one in lake.catalog.ledger.dropped_tables()] == [
        dropped(lake).entry.id
    ]
    assert lake.files(place) == before


def test_a_folder_that_is_no_tables_any_more_is_left_alone(lakes: Lakes, lake: Offline) -> None:
    lake.run("CREATE TABLE u (id INT); DROP TABLE t")
    over = end(lakes, lake).entry
    store = lake.at(over.location).store
    store.delete([stored.path for stored in store.list("")])
    store.put("data.parquet", b"mine")
    lake.run("DROP TABLE u")
    finish_interrupted(lake.engine)
    assert lake.files(over.location) == ["data.parquet"]


def test_an_older_one_of_the_name_is_over_and_the_newer_comes_back(
    lakes: Lakes, lake: Offline
) -> None:
    lake.run("DROP TABLE t")
    end(lakes, lake)
    lake.run("CREATE TABLE t (id INT)")
    newer = table(lake)
    lake.failing.add("delete")
    lake.run("DROP TABLE t")
    lake.failing.clear()
    lake.run("UNDROP TABLE t")
    assert table(lake).id == newer.id


# --- databases ------------------------------------------------------------------------------------


def test_a_dropped_databases_tables_come_back_when_it_is_made_again(lake: Offline) -> None:
    lake.run("CREATE DATABASE d; CREATE TABLE d.x (id INT)")
    entry = table(lake, "x", "d")
    lake.run("DROP DATABASE d CASCADE")
    for statement in ("UNDROP TABLE d.x", f"UNDROP TABLE WITH ID '{entry.id}'"):
        with pytest.raises(InvalidRequest, match="there is no database 'd'"):
            lake.run(statement)
    lake.run("CREATE DATABASE D; UNDROP TABLE d.x")
    assert table(lake, "x", "d").id == entry.id
    lake.run("COMMENT ON TABLE d.x IS 'again'")


def test_a_database_with_dropped_tables_alone_is_empty(lake: Offline) -> None:
    lake.run("CREATE DATABASE d; CREATE TABLE d.x (id INT); DROP TABLE d.x; DROP DATABASE d")
    assert [one.name for one in lake.catalog.databases()] == ["default"]


# --- the place of a dropped table -----------------------------------------------------------------


def test_a_dropped_tables_place_is_read_and_not_written(lake: Offline) -> None:
    location = table(lake).location
    lake.run("DROP TABLE t")
    assert lake.engine.find(TablePath(location), "default") is not None
    assert columns(lake, location) == ["id"]
    for statement in (
        f"COMMENT ON TABLE delta.`{location}` IS 'x'",
        f"DROP TABLE delta.`{location}`",
    ):
        with pytest.raises(InvalidRequest):
            lake.run(statement)
    for statement in (
        f"CREATE TABLE u (id INT) LOCATION '{location}'",
        f"CREATE OR REPLACE TABLE u (id INT) LOCATION '{location}'",
    ):
        with pytest.raises(InvalidRequest, match="UNDROP TABLE WITH ID"):
            lake.run(statement)
    with pytest.raises(InvalidRequest, match="UNDROP TABLE WITH ID"):
        attach(lake.session, location, "u")
    lake.run("UNDROP TABLE t")
    assert table(lake).head == 0


# --- processes that are killed --------------------------------------------------------------------


def _die(*_: object, **__: object) -> None:
    raise Unavailable("the process died")


def test_a_drop_that_was_cut_short_is_told_when_the_lake_is_opened(lake: Offline) -> None:
    lake.failing.add("put")
    lake.run("DROP TABLE t")
    lake.failing.clear()
    assert not dropped(lake).has_drop_note
    assert not has_note(lake, dropped(lake).entry)
    open_lake(lake.session)
    assert dropped(lake).has_drop_note
    assert has_note(lake, dropped(lake).entry)
    lake.run("UNDROP TABLE t")


def test_what_was_not_told_is_not_removed(lakes: Lakes, lake: Offline) -> None:
    lake.failing.add("put")
    lake.run("DROP TABLE t")
    one = end(lakes, lake)
    finish_interrupted(lake.engine)
    assert commit_path(0) in lake.files(one.entry.location)
    lake.failing.clear()
    finish_interrupted(lake.engine)
    assert lake.files(one.entry.location) == []


def test_what_was_dropped_is_not_told_in_anothers_folder(lake: Offline) -> None:
    entry = table(lake)
    lake.failing.add("put")
    lake.run("DROP TABLE t")
    lake.failing.clear()
    store = lake.at(entry.location).store
    store.delete([stored.path for stored in store.list("")])
    lake.path_table(entry.location)
    finish_interrupted(lake.engine)
    assert not has_note(lake, entry)
    assert dropped(lake).entry.id == entry.id  # the folder may be put back


def test_what_was_told_is_not_told_again(lake: Offline, caplog: pytest.LogCaptureFixture) -> None:
    lake.run("DROP TABLE t")
    lake.failing.add("put")
    with caplog.at_level(logging.WARNING):
        finish_interrupted(lake.engine)
    assert caplog.text == ""


def test_what_is_over_and_cannot_be_looked_at_waits(lakes: Lakes, lake: Offline) -> None:
    lake.run("DROP TABLE t")
    one = end(lakes, lake)
    lake.failing.add("get")
    finish_interrupted(lake.engine)
    lake.failing.clear()
    assert commit_path(0) in lake.files(one.entry.location)
    finish_interrupted(lake.engine)
    assert lake.files(one.entry.location) == []


def test_a_table_that_came_back_at_once_is_not_told(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = table(lake)
    monkeypatch.setattr(lake.catalog.dropped, "find", lambda table_id: None)
    lake.run("DROP TABLE t")
    assert not has_note(lake, entry)


def test_nothing_is_cached_of_a_dropped_table(lake: Offline) -> None:
    entry = table(lake)
    lake.run("COMMENT ON TABLE t IS 'cached'")
    assert lake.engine._logs.get(entry.id) is not None
    lake.run("DROP TABLE t")
    assert lake.engine._logs.get(entry.id) is None


@pytest.mark.parametrize("at", ["clear_drop_note", "ratify"])
def test_an_undrop_that_was_cut_short_leaves_a_dropped_table(
    lake: Offline, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    lake.run("DROP TABLE t")
    with monkeypatch.context() as patched:
        of = lake.catalog.ledger if at == "ratify" else lake.catalog.dropped
        patched.setattr(of, at, _die)
        with pytest.raises(Unavailable):
            lake.run("UNDROP TABLE t")
    assert dropped(lake).has_drop_note is (at == "clear_drop_note")
    finish_interrupted(lake.engine)
    assert dropped(lake).has_drop_note
    assert has_note(lake, dropped(lake).entry)
    lake.run("UNDROP TABLE t; COMMENT ON TABLE t IS 'goes on'")
    assert not has_note(lake, table(lake))


def test_a_removal_that_was_cut_short_is_gone_on_with(lakes: Lakes, lake: Offline) -> None:
    lake.run("DROP TABLE t")
    one = end(lakes, lake)
    lake.failing.add("delete")
    finish_interrupted(lake.engine)
    lake.failing.clear()
    assert commit_path(0) in lake.files(one.entry.location)
    with pytest.raises(InvalidRequest, match="its retention is over"):
        lake.run("UNDROP TABLE t")
    finish_interrupted(lake.engine)
    assert lake.files(one.entry.location) == []
    assert lake.catalog.ledger.dropped_tables() == []


def test_a_table_that_comes_back_while_it_is_told(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process that opens the lake tells the folder, and learns that it is a table."""
    lake.failing.add("put")
    lake.run("DROP TABLE t")
    lake.failing.clear()
    one, note = dropped(lake), lake.catalog.dropped.record_drop_note

    def comes_back(table_id: str, dropped_ms: int) -> bool:
        monkeypatch.setattr(lake.catalog.dropped, "record_drop_note", note)
        lake.run("UNDROP TABLE t")
        return note(table_id, dropped_ms)

    monkeypatch.setattr(lake.catalog.dropped, "record_drop_note", comes_back)
    write_drop_note(lake.catalog, lake.at(one.entry.location).store, one)
    assert not has_note(lake, table(lake))


def test_a_process_that_was_kept_out_tells_no_folder(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, ledger = table(lake), lake.catalog.ledger
    ratify = ledger.ratify

    def then_kept_out(request: Ratification) -> object:
        made = ratify(request)
        monkeypatch.setattr(ledger, "sequence", _die)
        return made

    monkeypatch.setattr(ledger, "ratify", then_kept_out)
    lake.run("DROP TABLE t")
    assert not has_note(lake, entry)


# --- catalogs that are lost, and put back ---------------------------------------------------------


def test_a_lost_catalog_takes_no_dropped_table_in(lake: Offline) -> None:
    entry = table(lake)
    lake.run("CREATE TABLE u (id INT); DROP TABLE t; CREATE TABLE t (other INT)")
    again = Offline(lake.place, kept_ms=DAY_MS)
    open_lake(again.session)
    report = recover(again.session, ())
    assert report.tables == ("default.t", "default.u")
    assert again.tables() == lake.tables()
    assert any(entry.location in one and "lake.attach" in one for one in report.unknown)
    epoch = again.catalog.epoch
    told_again = recover(again.session, ())
    assert (again.catalog.epoch, told_again) == (epoch, Recovered((), (), ()))
    attach(again.session, entry.location, "back")
    assert table(again, "back").id == entry.id
    assert not has_note(again, entry)
    again.run("COMMENT ON TABLE back IS 'again'")


def test_a_catalog_from_before_a_drop_drops_again(both: Lakes) -> None:
    copy = copied(both.url)
    lake = both.process()
    lake.run("DROP TABLE t")
    before = dropped(lake)
    put_back(both.url, copy)
    lake = both.process()
    assert "default.t" in lake.tables()
    report = recover(lake.session, ())
    assert told(report, "default.t", "UNDROP TABLE")
    assert lake.tables() == {}
    after = dropped(lake)
    assert (after.dropped_ms, after.kept_until_ms) == (before.dropped_ms, before.kept_until_ms)
    lake.run("UNDROP TABLE t; COMMENT ON TABLE t IS 'again'")


def test_a_catalog_from_before_an_undrop_removes_nothing(both: Lakes) -> None:
    lake = both.process()
    lake.run("DROP TABLE t")
    entry = end(both, lake).entry
    copy = copied(both.url)
    execute(both.url, "UPDATE txlake_tables SET kept_until_ms = 9000000000000")
    lake.run("UNDROP TABLE t; COMMENT ON TABLE t IS 'a table again'")
    put_back(both.url, copy)
    lake = both.process()  # which removes what is over
    assert commit_path(1) in lake.files(entry.location)
    assert recover(lake.session, ()).tables == ("default.t",)
    assert table(lake).id == entry.id
    lake.run("COMMENT ON TABLE t IS 'goes on'")


def test_a_table_that_came_back_and_was_not_written_is_not_removed(lakes: Lakes) -> None:
    """By a catalog that knows of its drop alone."""
    lake = lakes.process()
    lake.run("DROP TABLE t")
    entry = end(lakes, lake).entry
    copy = copied(lakes.url)
    execute(lakes.url, "UPDATE txlake_tables SET kept_until_ms = 9000000000000")
    lake.run("UNDROP TABLE t")
    put_back(lakes.url, copy)
    lake = lakes.process()  # which removes what is over
    assert commit_path(0) in lake.files(entry.location)
    assert recover(lake.session, ()).tables == ("default.t",)


def test_a_table_that_comes_back_just_now_is_no_work(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog was asked for its tables when this one was still dropped."""
    monkeypatch.setattr(lake.catalog.recovery, "table_states", list)
    assert recover(lake.session, ()).done == ()
    assert lake.catalog.epoch == 1


def test_a_note_that_commits_came_after_says_nothing(both: Lakes) -> None:
    copy = copied(both.url)
    lake = both.process()
    lake.run("DROP TABLE t")
    put_back(both.url, copy)
    lake = both.process()
    lake.run("COMMENT ON TABLE t IS 'nobody noticed'")
    recover(lake.session, ())
    assert "default.t" in lake.tables()


@pytest.mark.parametrize("is_over", [False, True])
def test_a_recovery_beside_an_undrop_finds_nothing_to_do(
    lakes: Lakes, lake: Offline, monkeypatch: pytest.MonkeyPatch, is_over: bool
) -> None:
    """Another process's UNDROP has told the folder, and the catalog not yet, or that too."""
    lake.run("DROP TABLE t")
    other, store = lakes.process(), lakes.store("t")
    ledger, table_id = other.catalog.of_lake().ledger, dropped(lake).entry.id
    listed = ledger.dropped_tables
    seen: list[None] = []

    def then_it_is_taken_back() -> list[PendingTable]:
        found = listed()
        if not seen and is_over:
            lake.run("UNDROP TABLE t")
        elif not seen:
            remove_drop_note(lake.catalog, store, table_id)
        seen.append(None)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "dropped_tables", then_it_is_taken_back)
        assert recover(other.session, ()) == Recovered((), (), ())
    assert seen
    if not is_over:
        lake.run("UNDROP TABLE t")
    assert table(lake).id == table_id


def test_a_recovery_beside_a_drop_tells_nothing_of_the_table(
    lakes: Lakes, lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is dropped, and its folder removed, after the catalog was asked for its tables."""
    other = lakes.process()
    recovery = other.catalog.of_lake().recovery
    listed = recovery.table_states
    seen: list[None] = []

    def then_it_is_dropped() -> list[TableState]:
        found = listed()
        seen.append(None)
        if len(seen) == 2:
            lake.run("DROP TABLE t PURGE")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(recovery, "table_states", then_it_is_dropped)
        assert recover(other.session, ()) == Recovered((), (), ())
    assert len(seen) == 3
    lakes.process().run("CREATE TABLE t (id INT)")
    lakes.store("t").delete([commit_path(0)])
    assert "there is no log" in recover(lakes.process().session, ()).unknown[0]


def test_a_recovery_of_others_leaves_a_dropped_table_alone(lakes: Lakes, lake: Offline) -> None:
    """Its folder says that it was dropped, as the catalog does."""
    lake.run("CREATE TABLE o (id INT); DROP TABLE t")
    lakes.store("o").put(commit_path(1), encode_actions([CommitInfo({"operation": "INTRUDE"})]))
    report = recover(lakes.process().session, ())
    assert [one for one in (*report.done, *report.unknown) if "/t" in one] == []
    assert any("version 1" in one for one in report.done)
    lakes.process().run("UNDROP TABLE t")


def test_a_recovery_takes_in_no_folder_that_is_being_removed(
    lakes: Lakes, lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is over, and what says that it was dropped is about to go."""
    lake.run("CREATE TABLE o (id INT); DROP TABLE t")
    entry = end(lakes, lake).entry
    lakes.store("o").put(commit_path(1), encode_actions([CommitInfo({"operation": "INTRUDE"})]))

    def cut_short(engine: Engine, store: Store, table_id: str) -> None:
        store.put(note_path(table_id), b"")
        raise Unavailable("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(dropping, "_delete_files", cut_short)
        report = recover(lakes.process().session, ())
    assert report.done
    assert [one for one in (*report.done, *report.unknown) if entry.location in one] == []
    assert lakes.process().tables().keys() == {"default.o"}
    assert list(lakes.store("t").list("")) == []
