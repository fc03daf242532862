"""Tables come into a lake and go out of it, and what is cut short in between is healed."""

from __future__ import annotations

import logging

import pytest

from tests.session.offline import Offline
from tests.transaction.log_of import add
from txlake.errors import InvalidRequest, LockTimeout, Unavailable
from txlake.session import attachment, belongings
from txlake.session.belongings import attach_named, catalog_of, finish, transaction_of
from txlake.session.session import Session
from txlake.session.transaction import Transaction
from txlake.statements import TableName
from txlake.transaction.belonging import is_governed


@pytest.fixture
def lake() -> Offline:
    """An empty lake."""
    return Offline()


@pytest.fixture
def place(lake: Offline) -> str:
    """A place of the test's own, where no table is yet."""
    return f"{lake.place}-of-a-path-table/t"


def operations(lake: Offline, location: str) -> list[object]:
    """What a table's commits say they did, from the first."""
    commits = lake.at(location).log.commits(-1)
    return [
        action.values["operation"]
        for commit in commits
        for action in commit.actions
        if hasattr(action, "values")
    ]


def unavailable(*_: object) -> None:
    """What a process sees, and then nothing any more."""
    raise Unavailable("the process died")


def test_without_a_lake_there_is_no_catalog(lake: Offline) -> None:
    with pytest.raises(InvalidRequest, match=r"txlake\.connect"):
        catalog_of(lake.path_engine())
    assert catalog_of(lake.engine) is lake.catalog


def test_a_lake_whose_catalog_is_lost_takes_no_statement(lake: Offline) -> None:
    lake.engine.lost = "another"
    with pytest.raises(InvalidRequest, match=r"lake\.recover"):
        lake.run("CREATE TABLE t (id INT)")
    lake.engine.lost = None
    lake.run("CREATE TABLE t (id INT)")


def test_a_table_comes_with_its_own_log_saying_whose_it_is(lake: Offline, place: str) -> None:
    lake.path_table(place, add("a"))
    assert attachment.attach(lake.session, place, "mine") == "default.mine"
    entry = lake.catalog.find("default", "mine")
    assert entry is not None
    assert lake.domain(place) == {
        "lake": lake.catalog.lake_id,
        "table": entry.id,
        "name": "default.mine",
    }
    assert operations(lake, place) == ["CREATE TABLE", "ATTACH"]
    head = lake.catalog.ledger.head(entry.id)
    assert head is not None
    assert head.version == 1


def test_a_name_that_is_taken_is_refused_before_the_table_is_stamped(
    lake: Offline, place: str
) -> None:
    lake.run("CREATE TABLE mine (id INT)")
    lake.path_table(place)
    with pytest.raises(InvalidRequest, match="exists already"):
        attachment.attach(lake.session, place, "mine")
    assert lake.domain(place) is None


def test_a_database_that_is_missing_is_named(lake: Offline) -> None:
    with pytest.raises(InvalidRequest, match="CREATE DATABASE nowhere"):
        belongings.new_entry(lake.engine, "nowhere", "t", "memory://t", managed=True)


def test_another_lakes_table_is_refused(lake: Offline, place: str) -> None:
    other = Offline()
    other.path_table(place)
    attachment.attach(other.session, place, "theirs")
    with pytest.raises(InvalidRequest, match=r"another lake .* as default\.theirs"):
        attachment.attach(lake.session, place, "ours")
    assert lake.tables() == {}


def test_attaching_again_finishes_what_was_cut_short(
    lake: Offline, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.path_table(place)

    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "change_name", unavailable)
        with pytest.raises(Unavailable):
            attachment.attach(lake.session, place, "mine")
    stamped = lake.domain(place)
    assert stamped is not None
    assert lake.tables() == {}
    attachment.attach(lake.session, place, "mine")
    entry = lake.catalog.find("default", "mine")
    assert entry is not None
    assert entry.id == stamped["table"]
    assert operations(lake, place) == ["CREATE TABLE", "ATTACH"]


def test_attaching_again_by_another_name_tells_the_table(
    lake: Offline, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.path_table(place)
    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "change_name", unavailable)
        with pytest.raises(Unavailable):
            attachment.attach(lake.session, place, "mine")
    attachment.attach(lake.session, place, "other")
    assert (lake.domain(place) or {})["name"] == "default.other"
    assert operations(lake, place) == ["CREATE TABLE", "ATTACH", "RENAME TABLE"]


def test_a_detached_table_is_a_path_table_again(lake: Offline, place: str) -> None:
    lake.path_table(place, add("a"))
    attachment.attach(lake.session, place, "mine")
    assert attachment.detach(lake.session, "mine") == place
    assert lake.tables() == {}
    latest = lake.at(place).log.latest()
    assert not is_governed(latest.protocol)
    assert [file.path for file in latest.files.adds()] == [add("a").path]
    assert operations(lake, place)[-1] == "DETACH"
    assert lake.catalog.ledger.dropped_tables() == []


def test_a_dropped_table_goes_with_its_folder(lake: Offline) -> None:
    lake.run("CREATE TABLE t (id INT)")
    location = lake.tables()["default.t"]
    lake.run("DROP TABLE t")
    assert lake.tables() == {}
    assert lake.files(location) == []
    assert lake.catalog.ledger.dropped_tables() == []
    lake.run("CREATE TABLE t (id INT, other INT)")
    assert len(lake.at(location).log.latest().schema.fields) == 2


def test_dropping_a_table_that_is_elsewhere_leaves_it_there(lake: Offline, place: str) -> None:
    lake.path_table(place)
    attachment.attach(lake.session, place, "mine")
    lake.run("DROP TABLE mine")
    assert lake.tables() == {}
    assert lake.domain(place) is None
    assert operations(lake, place)[-1] == "DETACH"


def test_a_table_that_its_own_transaction_made_leaves_no_trace(lake: Offline) -> None:
    tx = lake.session.begin()
    for text in ("CREATE TABLE t (id INT)", "DROP TABLE t"):
        lake.run_in(tx, text)
    tx.commit()
    assert lake.tables() == {}
    assert lake.files(f"{lake.place}/t") == []
    assert lake.catalog.ledger.dropped_tables() == []


def test_a_folder_that_cannot_be_removed_is_removed_later(
    lake: Offline, caplog: pytest.LogCaptureFixture
) -> None:
    lake.run("CREATE TABLE t (id INT)")
    location = lake.tables()["default.t"]
    lake.failing.add("delete")
    with caplog.at_level(logging.WARNING):
        lake.run("DROP TABLE t")
    assert "removed later" in caplog.text
    assert lake.files(location) != []
    finish(lake.engine)  # nor may that fail the opening of the lake
    assert len(lake.catalog.ledger.dropped_tables()) == 1
    lake.failing.clear()
    finish(lake.engine)
    assert lake.files(location) == []
    assert lake.catalog.ledger.dropped_tables() == []


def test_what_was_committed_and_not_published_is_published_when_the_lake_is_opened(
    lake: Offline,
) -> None:
    lake.run("CREATE TABLE t (id INT)")
    location = lake.tables()["default.t"]
    lake.failing.add("put_if_absent")
    lake.run("COMMENT ON TABLE t IS 'newer'")
    finish(lake.engine)
    assert lake.at(location).log.latest().version == 0
    lake.failing.clear()
    finish(lake.engine)
    assert lake.at(location).log.latest().version == 1
    assert lake.catalog.ledger.pending_tables() == []


def test_a_detached_tables_folder_stays_when_its_end_was_cut_short(
    lake: Offline, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.path_table(place, add("a"))
    attachment.attach(lake.session, place, "mine")
    with monkeypatch.context() as patched:
        patched.setattr(type(lake.catalog.ledger), "forget", unavailable)
        lake.run("DROP TABLE mine")
    assert len(lake.catalog.ledger.dropped_tables()) == 1
    finish(lake.engine)
    assert lake.catalog.ledger.dropped_tables() == []
    assert lake.at(place).log.latest().version == 2


def test_tables_that_are_a_name_alone_are_taken_in_unless_they_are_gone(
    lake: Offline, place: str
) -> None:
    lake.path_table(place)
    for name, location in (("t", place), ("gone", f"{place}-gone")):
        lake.name_alone(name, location)
    assert len(lake.catalog.unattached()) == 2
    attach_named(lake.engine, lake.session.number)
    assert [entry.name for entry in lake.catalog.unattached()] == ["gone"]
    assert (lake.domain(place) or {})["name"] == "default.t"
    lake.run("COMMENT ON TABLE t IS 'the lake commits'")


def test_a_transaction_of_ones_own_ends_whatever_happens(lake: Offline) -> None:
    def interrupted() -> None:
        with transaction_of(lake.engine, lake.session.number) as transaction:
            transaction.make_known()
            assert len(lake.catalog.transactions.listed()) == 1
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert lake.catalog.transactions.listed() == []


def test_attaching_waits_for_whoever_holds_the_name(lake: Offline, place: str) -> None:
    lake.path_table(place)
    other = Session(lake.engine)
    tx = other.begin()
    lake.run_in(tx, "CREATE TABLE mine (id INT)", other)
    lake.session.lock_timeout_ms = 0
    with pytest.raises(LockTimeout):
        attachment.attach(lake.session, place, "mine")
    tx.rollback()
    attachment.attach(lake.session, place, "mine")
    assert list(lake.tables()) == [str(TableName(("default", "mine")))]
