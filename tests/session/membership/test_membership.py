"""Tables come into a lake and go out of it, and what is cut short in between is healed."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.catalog.view_changes import create_view
from tests.commit.log_of import add
from tests.session.offline import Offline
from txlake.catalog import Catalog
from txlake.commands import HANDLERS
from txlake.commit.branch_store import BranchStore
from txlake.commit.membership import is_catalog_managed
from txlake.errors import InvalidRequest, LockTimeout, Unavailable
from txlake.ports import Ratification
from txlake.protocol.file_names import commit_path
from txlake.session.catalog_access import transaction_of
from txlake.session.engine import RecoveryRequired
from txlake.session.membership import attachment
from txlake.session.membership.attachment import attach_unattached
from txlake.session.membership.dropping import finish_interrupted
from txlake.session.session import Session
from txlake.session.transaction import Transaction
from txlake.sql.statements import TableName, TablePath
from txlake.system import System


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
        lake.path_engine().catalog.of_lake()
    assert lake.engine.catalog.of_lake() is lake.catalog


def test_a_lake_whose_catalog_is_lost_takes_no_statement(lake: Offline) -> None:
    lake.engine.recovery_required = RecoveryRequired.new("catalog", "place", "another", 1)
    with pytest.raises(InvalidRequest, match=r"lake\.recover"):
        lake.run("CREATE TABLE t (id INT)")
    lake.engine.recovery_required = None
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


def test_a_views_name_is_taken_too(lake: Offline, place: str) -> None:
    create_view(lake.catalog, "default", "mine", "SELECT 1", ())
    lake.path_table(place)
    with pytest.raises(InvalidRequest, match="is a view"):
        attachment.attach(lake.session, place, "mine")
    assert lake.domain(place) is None
    attachment.attach(lake.session, place, "another")
    assert lake.domain(place) is not None


def test_a_database_that_is_missing_is_named(lake: Offline) -> None:
    with pytest.raises(InvalidRequest, match="CREATE DATABASE nowhere"):
        attachment.new_entry(lake.engine, "nowhere", "t", "memory://t", managed=True)


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
    assert not is_catalog_managed(latest.protocol)
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
    assert "DETACH" not in {one.operation for one in lake.catalog.ledger.newest_commits()}
    lake.run("CREATE TABLE t (id INT, other INT)")
    assert len(lake.at(location).log.latest().schema.fields) == 2


def test_other_tables_and_lakes_in_a_dropped_tables_folder_stay(
    lake: Offline, caplog: pytest.LogCaptureFixture
) -> None:
    lake.run("CREATE TABLE t (id INT)")
    location = lake.tables()["default.t"]
    store = lake.engine.store_at(location)
    others = ["path/_delta_log/0.json", "path/x.parquet", "wh/_txlake/lake.json", "wh/a/x.parquet"]
    for path in (*others, "own/x.parquet"):
        store.put(path, b"x")
    with caplog.at_level(logging.WARNING):
        lake.run("DROP TABLE t")
    assert lake.files(location) == others
    assert f"{location}/wh is another table's or a lake's, and stays" in caplog.text


def test_the_logs_of_its_branches_go_with_a_dropped_table(lake: Offline) -> None:
    lake.run("CREATE TABLE t (id INT)")
    location = lake.tables()["default.t"]
    branch = BranchStore(lake.engine.store_at(location), "the-branch", 0)
    branch.put(commit_path(1), b"{}")
    lake.run("DROP TABLE t")
    assert lake.files(location) == []


def test_a_warehouse_in_a_dropped_tables_own_folder_stays(lake: Offline) -> None:
    lake.run("CREATE TABLE t (id INT)")
    location = lake.tables()["default.t"]
    inner = Offline(location, Catalog("sqlite://", System()))
    inner.run("CREATE TABLE u (id INT)")
    inner.engine.store_at(location).put("_txlake/lake.json", b"x")
    kept = [path for path in inner.files(location) if path.startswith(("u/", "_txlake/"))]
    lake.run("DROP TABLE t")
    assert lake.files(location) == kept


def test_a_lakes_own_folder_holds_no_table(lake: Offline) -> None:
    for folder in ("_txlake", "_txlake/catalog/log"):
        path = TablePath(f"{lake.place}/{folder}")
        with pytest.raises(InvalidRequest, match="found a lake's own folder _txlake"):
            lake.engine.find(path, "default")
        with pytest.raises(InvalidRequest, match="found a lake's own folder _txlake"):
            lake.run(f"CREATE TABLE t (id INT) LOCATION '{path.location}'")


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
    finish_interrupted(lake.engine)  # nor may that fail the opening of the lake
    assert len(lake.catalog.ledger.dropped_tables()) == 1
    lake.failing.clear()
    finish_interrupted(lake.engine)
    assert lake.files(location) == []
    assert lake.catalog.ledger.dropped_tables() == []


@pytest.mark.parametrize("excludes_late_writes", [True, False])
def test_where_a_deletion_may_arrive_late_it_is_noted_before(
    lake: Offline, monkeypatch: pytest.MonkeyPatch, excludes_late_writes: bool
) -> None:
    noted: list[str] = []
    monkeypatch.setattr(lake.catalog.ledger, "note_clearing", noted.append)
    lake.instead["excludes_late_writes"] = excludes_late_writes
    lake.run("CREATE TABLE t (id INT); DROP TABLE t")
    assert len(noted) == (0 if excludes_late_writes else 1)


def test_what_another_has_cleared_is_left_alone(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.run("CREATE TABLE t (id INT)")
    location = lake.tables()["default.t"]
    lake.failing.add("delete")
    lake.run("DROP TABLE t")
    lake.failing.clear()
    monkeypatch.setattr(lake.catalog.ledger, "note_clearing", lambda table_id: False)
    finish_interrupted(lake.engine)
    assert lake.files(location) != []


def test_what_was_committed_and_not_published_is_published_when_the_lake_is_opened(
    lake: Offline,
) -> None:
    lake.run("CREATE TABLE t (id INT)")
    location = lake.tables()["default.t"]
    lake.failing.add("put_if_absent")
    lake.run("COMMENT ON TABLE t IS 'newer'")
    finish_interrupted(lake.engine)
    assert lake.at(location).log.latest().version == 0
    lake.failing.clear()
    finish_interrupted(lake.engine)
    assert lake.at(location).log.latest().version == 1
    assert lake.catalog.ledger.pending_tables() == []


def test_a_detached_tables_folder_stays_when_its_end_was_cut_short(
    lake: Offline,
    place: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    lake.path_table(place, add("a"))
    attachment.attach(lake.session, place, "mine")
    with monkeypatch.context() as patched:
        patched.setattr(type(lake.catalog.ledger), "forget", unavailable)
        lake.run("DROP TABLE mine")
    assert len(lake.catalog.ledger.dropped_tables()) == 1
    finish_interrupted(lake.engine)
    assert lake.catalog.ledger.dropped_tables() == []
    assert lake.at(place).log.latest().version == 2
    assert "left alone" not in caplog.text


def test_tables_that_are_a_name_alone_are_taken_in_unless_they_are_gone(
    lake: Offline, place: str
) -> None:
    lake.path_table(place)
    for name, location in (("t", place), ("gone", f"{place}-gone")):
        lake.name_alone(name, location)
    assert len(lake.catalog.unattached()) == 2
    attach_unattached(lake.engine, lake.session.number)
    assert [entry.name for entry in lake.catalog.unattached()] == ["gone"]
    assert (lake.domain(place) or {})["name"] == "default.t"
    lake.run("COMMENT ON TABLE t IS 'the lake commits'")


def test_a_transaction_of_ones_own_ends_whatever_happens(lake: Offline) -> None:
    def interrupted() -> None:
        with transaction_of(lake.engine, lake.session.number) as transaction:
            transaction.registration.make()
            assert len(lake.catalog.transactions.entries()) == 1
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert lake.catalog.transactions.entries() == []


def test_attaching_waits_for_whoever_holds_the_name(lake: Offline, place: str) -> None:
    lake.path_table(place)
    other = Session(lake.engine, HANDLERS)
    tx = other.begin()
    lake.run_in(tx, "CREATE TABLE mine (id INT)", other)
    lake.session.lock_timeout_ms = 0
    with pytest.raises(LockTimeout):
        attachment.attach(lake.session, place, "mine")
    tx.rollback()
    attachment.attach(lake.session, place, "mine")
    assert list(lake.tables()) == [str(TableName(("default", "mine")))]


# Links


@pytest.fixture
def local(tmp_path: Path) -> Offline:
    """A lake in a folder, with a table and a database that has one."""
    made = Offline(str(tmp_path / "warehouse"))
    made.run("CREATE TABLE t (id INT); CREATE DATABASE d; CREATE TABLE d.t (id INT)")
    return made


def moved(folder: Path) -> Path:
    """Move a folder out of the warehouse, and leaves a link to it."""
    there = folder.parents[1] / "elsewhere" / folder.name
    there.parent.mkdir()
    folder.rename(there)
    folder.symlink_to(there)
    return there


@pytest.mark.parametrize(
    ("folder", "statement"),
    [("t", "DROP TABLE t"), ("d.db", "DROP TABLE d.t"), ("d.db", "DROP DATABASE d CASCADE")],
)
def test_a_table_that_a_link_leads_to_is_not_dropped(
    local: Offline, tmp_path: Path, folder: str, statement: str
) -> None:
    there = moved(tmp_path / "warehouse" / folder)
    before = local.files(str(there))
    with pytest.raises(InvalidRequest, match=r"found it to be file:///.*elsewhere/.*lake\.detach"):
        local.run(statement)
    assert local.files(str(there)) == before != []
    assert local.tables().keys() == {"default.t", "d.t"}
    (tmp_path / "warehouse" / folder).unlink()
    there.rename(tmp_path / "warehouse" / folder)
    local.run(statement)
    assert local.files(local.place + "/" + folder) == []


def test_a_link_to_another_table_is_not_that_tables_end(local: Offline, tmp_path: Path) -> None:
    local.run("CREATE TABLE u (id INT)")
    one, other = tmp_path / "warehouse" / "t", tmp_path / "warehouse" / "u"
    one.rename(tmp_path / "apart")
    one.symlink_to(other)
    before = local.files(str(other))
    with pytest.raises(InvalidRequest, match="without a symbolic link on the way"):
        local.run("DROP TABLE t")
    assert local.files(str(other)) == before != []


def test_a_link_that_came_later_keeps_a_killed_processs_drop_from_being_finished(
    local: Offline, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    local.failing.add("delete")
    local.run("DROP TABLE t")
    local.failing.clear()
    there = moved(tmp_path / "warehouse" / "t")
    before = local.files(str(there))
    finish_interrupted(local.engine)
    assert local.files(str(there)) == before != []
    assert "without a symbolic link on the way" in caplog.text
    (tmp_path / "warehouse" / "t").unlink()
    finish_interrupted(local.engine)
    assert local.catalog.ledger.dropped_tables() == []
    assert local.files(str(there)) == before


def test_a_warehouse_behind_a_link_drops_its_tables(local: Offline, tmp_path: Path) -> None:
    there = moved(tmp_path / "warehouse")
    local.run("DROP TABLE t; DROP DATABASE d CASCADE")
    assert [one for one in local.files(str(there)) if not one.startswith("_txlake")] == []


def test_a_table_behind_a_link_is_replaced_emptied_and_given_up(
    local: Offline, tmp_path: Path
) -> None:
    there = moved(tmp_path / "warehouse" / "t")
    before = local.files(str(there))
    local.run("CREATE OR REPLACE TABLE t (id INT, p STRING)")
    assert set(local.files(str(there))) > set(before)
    attachment.detach(local.session, "t")
    assert set(local.files(str(there))) > set(before)


def test_a_table_that_was_only_attached_goes_and_its_folder_stays(
    local: Offline, tmp_path: Path
) -> None:
    elsewhere = local.path_table(str(tmp_path / "of_mine"), add("a"))
    (tmp_path / "warehouse" / "link").symlink_to(tmp_path / "of_mine")
    attachment.attach(local.session, str(tmp_path / "warehouse" / "link"), "mine")
    before = local.files(elsewhere)
    local.run("DROP TABLE mine")
    assert set(local.files(elsewhere)) > set(before)


# --- a dropped table's folder that another has now ------------------------------------------------


def dropped(lake: Offline, *, published: bool = True, first: bool = True) -> str:
    """A table that was dropped and whose folder stays for now; its last version may be pending."""
    if not first:
        lake.failing.add("put_if_absent")
    lake.run("CREATE TABLE t (id INT)")
    location = lake.tables()["default.t"]
    if not published:
        lake.failing.add("put_if_absent")
        lake.run("COMMENT ON TABLE t IS 'newer'")
    lake.failing |= {"delete", "put"}
    lake.run("DROP TABLE t")
    lake.failing.clear()
    return location


def emptied(lake: Offline, location: str, *kept: str) -> None:
    store = lake.at(location).store
    store.delete([stored.path for stored in store.list("")])
    for path in kept:
        store.put(path, b"data")


def is_forgotten(lake: Offline) -> bool:
    ledger = lake.catalog.ledger
    return ledger.dropped_tables() == [] == ledger.pending_tables()


@pytest.mark.parametrize("published", [True, False])
def test_nothing_is_published_or_removed_where_a_path_table_is_now(
    lake: Offline, published: bool
) -> None:
    location = dropped(lake, published=published)
    emptied(lake, location)
    lake.path_table(location, add("x"))
    before = lake.files(location)
    finish_interrupted(lake.engine)
    assert lake.files(location) == before
    assert is_forgotten(lake)
    assert lake.engine._logs.get(location) is None  # what was seen there isn't remembered


def test_a_folder_whose_log_cannot_be_read_is_left_alone(
    lake: Offline, caplog: pytest.LogCaptureFixture
) -> None:
    location = dropped(lake)
    lake.at(location).store.put(commit_path(0), b"{nonsense")
    with caplog.at_level(logging.WARNING):
        finish_interrupted(lake.engine)
    assert "left alone" in caplog.text
    assert lake.files(location) != []
    assert is_forgotten(lake)


@pytest.mark.parametrize("published", [True, False])
def test_a_folder_without_a_log_is_left_alone(lake: Offline, published: bool) -> None:
    location = dropped(lake, published=published)
    emptied(lake, location, "data.parquet")
    finish_interrupted(lake.engine)
    assert lake.files(location) == ["data.parquet"]
    assert is_forgotten(lake)


def test_a_folder_whose_table_was_never_published_is_removed(lake: Offline) -> None:
    location = dropped(lake, first=False)
    emptied(lake, location, "data.parquet")
    finish_interrupted(lake.engine)
    assert lake.files(location) == []
    assert is_forgotten(lake)


def test_a_folder_that_cannot_be_looked_at_waits(lake: Offline) -> None:
    location = dropped(lake, published=False)
    lake.failing.add("head")
    finish_interrupted(lake.engine)
    lake.failing.clear()
    assert commit_path(0) in lake.files(location)
    assert commit_path(1) not in lake.files(location)
    finish_interrupted(lake.engine)
    assert lake.files(location) == []


def test_what_a_dropped_table_elsewhere_has_pending_is_published_unless_it_cannot_be_looked_at(
    lake: Offline, place: str
) -> None:
    lake.path_table(place, add("a"))
    attachment.attach(lake.session, place, "mine")
    lake.failing.add("put_if_absent")
    lake.run("DROP TABLE mine")
    assert lake.domain(place) is not None
    lake.failing.clear()
    finish_interrupted(lake.engine)
    assert lake.domain(place) is None
    assert is_forgotten(lake)


def test_a_process_that_was_kept_out_removes_no_folder(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.run("CREATE TABLE t (id INT)")
    location, ledger = lake.tables()["default.t"], lake.catalog.ledger
    ratify = ledger.ratify

    def then_kept_out(request: Ratification) -> object:
        made = ratify(request)
        monkeypatch.setattr(ledger, "sequence", unavailable)
        return made

    monkeypatch.setattr(ledger, "ratify", then_kept_out)
    lake.run("DROP TABLE t")
    assert commit_path(0) in lake.files(location)
