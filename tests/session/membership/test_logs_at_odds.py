"""A log from a backup, or with a file of another writer: refused, and recovered."""

from __future__ import annotations

import pytest

from tests.catalog.backups import copied, put_back
from tests.commit.log_of import add, metadata
from tests.session.offline import Offline
from tests.session.processes import INTRUDER, Lakes, head, say, told
from txlake.commit.membership import ATTACH, Membership, attach_actions
from txlake.errors import CorruptTable, InvalidRequest, Unavailable
from txlake.ports import PutOutcome
from txlake.protocol.actions import CommitInfo, encode_actions
from txlake.protocol.file_names import commit_path
from txlake.session.membership.attachment import attach
from txlake.session.membership.recovery import Recovered, recover
from txlake.sql.statements import TablePath


def intruded(lakes: Lakes, data: bytes = INTRUDER) -> Offline:
    """The process that committed version 1 of t just when another writer's file came there."""
    lake = lakes.process()
    path = commit_path(1)
    real = lakes.store("t").put_if_absent
    aside = lakes.store("t").put

    def beaten(name: str, content: bytes) -> PutOutcome:
        if name == path:
            aside(path, data)
        return real(name, content)

    lake.instead["put_if_absent"] = beaten
    with pytest.raises(CorruptTable) as caught:
        say(lake, "one")
    lake.instead.clear()
    lake.told = str(caught.value)  # type: ignore[attr-defined]
    return lake


def test_a_commit_whose_version_another_took_stays_and_is_published(lakes: Lakes) -> None:
    lake = intruded(lakes)
    message = lake.told  # type: ignore[attr-defined]
    for part in ("is committed, and isn't to be run again", "00000001.json holds", "recover"):
        assert part in message
    for process in (lake, lakes.process()):
        with pytest.raises(CorruptTable, match=r"1\.json holds another commit.*lake\.recover"):
            say(process, "two")
    assert lakes.comments("t") == [None, None]
    report = recover(lake.session, ())
    assert told(report, "1.json wasn't the commit that the lake ratified", "_set_aside")
    assert lakes.comments("t") == [None, "one"]
    [aside] = lakes.store("t").list("_delta_log/_set_aside")
    assert lakes.store("t").get(aside.path) == INTRUDER
    say(lake, "two")
    assert lakes.comments("t") == [None, "one", "two"]


def test_what_another_built_on_its_file_goes_with_it(lakes: Lakes) -> None:
    lake = intruded(lakes)
    store = lakes.store("t")
    for version in (2, 3):
        store.put(commit_path(version), INTRUDER)
    checkpoint = "_delta_log/00000000000000000003.checkpoint.parquet"
    store.put(checkpoint, b"of the intruder's state")
    store.put("_delta_log/_last_checkpoint", b'{"version":3,"size":1}')
    report = recover(lake.session, ())
    assert told(report, "version 3 was no commit of the lake's", "holds nothing")
    assert lakes.versions("t") == [0, 1, 2, 3]
    assert lakes.comments("t") == [None, "one", "one", "one"]
    assert store.head(checkpoint) is None
    assert len(list(store.list("_delta_log/_set_aside"))) == 3
    say(lake, "two")


def test_what_another_built_on_its_file_goes_though_that_is_cut_short(lakes: Lakes) -> None:
    lake = intruded(lakes)
    store = lakes.store("t")
    store.put(commit_path(2), INTRUDER)
    checkpoint = "_delta_log/00000000000000000002.checkpoint.parquet"
    store.put(checkpoint, b"of the intruder's state")
    put = lakes.store("t").put

    def cut_short(path: str, data: bytes) -> None:
        put(path, data)
        if path == commit_path(1):
            raise Unavailable("the reply was lost")

    lake.instead["put"] = cut_short
    report = recover(lake.session, ())
    assert any("the reply was lost" in one for one in report.unknown)
    lake.instead.clear()
    recover(lake.session, ())
    assert lakes.versions("t") == [0, 1, 2]
    assert store.head(checkpoint) is None
    assert lakes.comments("t") == [None, "one", "one"]
    assert recover(lake.session, ()) == Recovered((), (), ())


def test_what_txlake_published_for_a_newer_catalog_stays(lakes: Lakes) -> None:
    """The catalog that ratified version 1 was older than the one for which the file was made."""
    ours = encode_actions([CommitInfo({"operation": "SAY", "engineInfo": "txlake/0.1.0"})])
    lake = intruded(lakes, ours)
    assert "may not stand" in lake.told  # type: ignore[attr-defined]
    report = recover(lake.session, ())
    assert told(report, "version 1 as this catalog ratified it", "_set_aside", "run again")
    assert told(report, "version 1, which the catalog didn't have, is in it now: SAY")
    assert lakes.store("t").get(commit_path(1)) == ours
    assert head(lake) == 1
    say(lake, "two")


def test_a_version_that_no_reader_can_read_is_set_aside(lakes: Lakes) -> None:
    store = lakes.store("t")
    store.put(commit_path(1), INTRUDER)
    store.put(commit_path(2), b"{nonsense")
    lake = lakes.process()
    with pytest.raises(CorruptTable, match="lake.recover"):  # noqa: RUF043
        say(lake, "lost")
    report = recover(lake.session, ())
    assert told(report, "version 1, which the catalog didn't have, is in it now: INTRUDE")
    assert told(report, "version 2 can't be read as one", "holds nothing")
    assert lakes.versions("t") == [0, 1, 2]
    say(lake, "two")
    assert lakes.comments("t") == [None, None, None, "two"]


@pytest.mark.parametrize("contested", [False, True])
@pytest.mark.parametrize("stands_at", [".aside", commit_path(2)])
def test_a_recovery_that_stood_still_removes_nothing_of_what_came_later(
    lakes: Lakes, contested: bool, stands_at: str
) -> None:
    """Nor when it had made sure that no other one has begun, and writes after that one's end."""
    stalled = intruded(lakes) if contested else lakes.process()
    other, store = lakes.process(), lakes.store("t")
    store.put(commit_path(1), INTRUDER)
    store.put(commit_path(2), b"{nonsense")
    warehouse = stalled.engine.warehouse
    assert warehouse is not None
    stores = {False: warehouse.put, True: store.put}

    def put(path: str, data: bytes) -> None:
        if path.endswith(stands_at):
            stalled.instead.clear()
            recover(other.session, ())
            say(lakes.process(), "two")
        stores[path.startswith("_delta_log")](path, data)

    stalled.instead["put"] = put
    with pytest.raises(Unavailable, match="has rebuilt it"):
        recover(stalled.session, ())
    assert lakes.comments("t")[-1] == "two"


# --- the log is older than the catalog ------------------------------------------------------------


def test_a_log_that_was_put_back_is_the_table_again(lakes: Lakes) -> None:
    lake = lakes.process()
    for text in ("one", "two", "three"):
        say(lake, text)
    assert lake.catalog.ledger.pending_tables() == []
    store = lakes.store("t")
    store.delete([commit_path(2), commit_path(3)])
    fresh = lakes.process()
    with pytest.raises(CorruptTable, match=r"recover"):
        say(fresh, "lost")
    report = recover(fresh.session, ())
    assert told(report, "versions 2 to 3: gone with the log's files", "at version 1 again")
    say(fresh, "again two")
    assert lakes.comments("t") == [None, "one", "again two"]


def test_a_copy_that_remembers_a_drop_removes_no_folder_of_another_table(lakes: Lakes) -> None:
    lake = lakes.process()
    put, copies = lakes.store("t").put, []

    def copied_then(path: str, data: bytes) -> None:
        copies.append(copied(lakes.url))  # dropped, and its folder is still there
        put(path, data)

    lake.instead["put"] = copied_then
    lake.run("DROP TABLE t")
    lake.instead.clear()
    [copy] = copies
    lake.run("CREATE TABLE t (id INT)")
    say(lakes.process(), "of the new one")
    assert lakes.versions("t") == [0, 1]
    put_back(lakes.url, copy)
    again = lakes.process()
    assert lakes.comments("t") == [None, "of the new one"]
    assert recover(again.session, ()).tables == ("default.t",)
    say(again, "two")
    assert lakes.comments("t") == [None, "of the new one", "two"]


def test_a_removal_that_was_cut_short_is_gone_on_with(lakes: Lakes) -> None:
    lake = lakes.process()
    store = lakes.store("t")
    store.put("data.parquet", b"data")
    deleted: list[str] = []

    def cut_short(paths: list[str]) -> None:
        deleted.extend(paths)
        store.delete(paths)
        if commit_path(0) in paths:
            raise Unavailable("cut short")

    lake.instead["delete"] = cut_short
    lake.run("DROP TABLE t")
    assert deleted[0] == "data.parquet"  # the log is what tells whose the rest is
    assert [stored.path for stored in store.list("")] != []
    lake.instead.clear()
    lakes.process()
    assert list(store.list("")) == []


@pytest.mark.parametrize("is_known", [True, False])
def test_a_table_whose_folder_is_gone_takes_nothing_and_can_be_dropped(
    lakes: Lakes, is_known: bool
) -> None:
    lake = lakes.process()
    say(lake, "one")
    if not is_known:
        lake = lakes.process()
    store = lakes.store("t")
    store.delete([stored.path for stored in store.list("")])
    with pytest.raises(CorruptTable, match=r"isn't there|is missing"):
        say(lake, "lost")
    report = recover(lake.session, ())
    assert report.done == ()
    assert "there is no log" in " ".join(report.unknown)
    assert lake.catalog.epoch == 1  # there was nothing to do, and nobody is kept out
    lake.run("DROP TABLE t; CREATE TABLE t (id INT)")
    say(lake, "new")
    assert lakes.comments("t") == [None, "new"]


def test_a_table_elsewhere_whose_folder_is_gone_can_be_dropped(lakes: Lakes) -> None:
    lake = lakes.process()
    place = lake.path_table(f"{lakes.place}-elsewhere/x")
    attach(lake.session, place, "x")
    store = lake.at(place).store
    store.delete([stored.path for stored in store.list("")])
    lakes.process().run("DROP TABLE x")
    assert "default.x" not in lake.tables()


@pytest.mark.parametrize("how", ["", "OR REPLACE", "IF NOT EXISTS"])
def test_no_table_is_made_in_place_of_one_that_the_catalog_lost(lakes: Lakes, how: str) -> None:
    copy = copied(lakes.url)
    lakes.process().run("CREATE TABLE n (id INT)")
    put_back(lakes.url, copy)
    lake = lakes.process()
    statement = f"CREATE {'OR REPLACE TABLE' if how == 'OR REPLACE' else f'TABLE {how}'} n (id INT)"
    with pytest.raises(CorruptTable, match=r"n holds default\.n, .*lake\.recover"):
        lake.run(statement)
    assert recover(lake.session, ()).tables == ("default.n",)


def test_a_table_whose_log_is_ahead_is_not_dropped(lakes: Lakes) -> None:
    lake = lakes.process()
    copy = copied(lakes.url)
    lake.run("ALTER TABLE t RENAME TO kept")
    put_back(lakes.url, copy)
    again = lakes.process()
    with pytest.raises(CorruptTable, match=r"lake\.recover"):
        again.run("DROP TABLE t")
    assert lakes.versions("t") == [0, 1]
    recover(again.session, ())
    assert set(again.tables()) == {"default.kept", "default.u"}


def test_a_table_that_the_transaction_drops_is_made_again_beside_it(lakes: Lakes) -> None:
    lake = lakes.process()
    transaction = lake.session.begin()
    lake.run_in(transaction, "DROP TABLE t; CREATE TABLE t (id INT)")
    transaction.commit()
    say(lake, "new")
    assert lake.tables()["default.t"] != f"{lakes.place}/t"


def test_a_table_whose_attaching_was_cut_short_keeps_nobody_from_its_name(lakes: Lakes) -> None:
    lake = lakes.process()
    handle = lake.at(lake.path_table(f"{lakes.place}/n"))
    stamp = Membership(lake=lake.catalog.lake_id, table="1", name="default.n")
    lake.stage(handle, attach_actions(stamp, handle.log.latest()), ATTACH)
    lake.run("CREATE TABLE n (id INT)")
    assert lake.tables()["default.n"] != handle.store.url


def test_another_tables_log_is_left_alone(lakes: Lakes) -> None:
    lake = lakes.process()
    store = lakes.store("t")
    store.delete([stored.path for stored in store.list("")])
    other = lake.at(f"{lakes.place}/t")
    lake.path_table(other.store.url, add("x"), settings=metadata())
    lake.stage(lake.path_engine().at(other.store.url, TablePath(other.store.url)), [add("y")], "W")
    report = recover(lake.session, ())
    assert told(report, "default.t", "isn't this table's any more")
    assert lakes.versions("t") == [0, 1]
    with pytest.raises(InvalidRequest, match="no table"):
        say(lake, "lost")
