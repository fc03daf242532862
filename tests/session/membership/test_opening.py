"""A lake is opened: the marker in its warehouse, and whose it is."""

from __future__ import annotations

import shutil
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

from tests.session.offline import Offline
from txlake.catalog import Catalog
from txlake.errors import CorruptTable, InvalidRequest, OutcomeUnknown, Unavailable
from txlake.ports import NewTable, PutOutcome
from txlake.session.catalog_access import transaction_of
from txlake.session.membership.attachment import attach
from txlake.session.membership.opening import MARKER, Marker, open_lake, read_marker
from txlake.session.membership.recovery import recover
from txlake.system import System


def test_the_first_catalog_marks_the_warehouse() -> None:
    lake = Offline()
    assert lake.engine.warehouse is not None
    assert read_marker(lake.engine.warehouse) is None
    open_lake(lake.session)
    assert read_marker(lake.engine.warehouse) == Marker(lake.catalog.lake_id, 1)
    open_lake(lake.session)
    assert lake.engine.recovery_required is None


@pytest.mark.parametrize("is_own", [True, False])
def test_a_marker_that_was_read_before_the_catalog_is_read_again_unless_it_is_its_own(
    is_own: bool,
) -> None:
    lake = Offline()
    open_lake(lake.session)
    own = Marker(lake.catalog.lake_id, 1)
    lake.failing.add("get")
    with nullcontext() if is_own else pytest.raises(Unavailable):
        open_lake(lake.session, lambda: own if is_own else Marker("another", 1))


def test_once_a_lake_is_open_its_id_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each DataFrame has it, and in a store's catalog a look costs a request."""
    lake = Offline()
    open_lake(lake.session)
    own = lake.catalog.lake_id

    def fail() -> None:
        raise AssertionError("the catalog is read")

    monkeypatch.setattr(lake.catalog._database, "reading", fail)
    assert lake.catalog.lake_id == own


def test_opening_finishes_what_was_left() -> None:
    lake = Offline()
    lake.run("CREATE TABLE t (id INT)")
    location = lake.tables()["default.t"]
    lake.failing.add("delete")
    lake.run("DROP TABLE t")
    lake.failing.clear()
    place = lake.path_table(f"{lake.place}-elsewhere/named")
    lake.name_alone("named", place)
    open_lake(lake.session)
    assert lake.files(location) == []
    assert lake.catalog.unattached() == []


def test_an_empty_catalog_on_another_lakes_warehouse_is_a_lost_one() -> None:
    first = Offline()
    open_lake(first.session)
    second = Offline(first.place)
    open_lake(second.session)
    assert second.engine.recovery_required is not None
    assert second.engine.recovery_required.lake == first.catalog.lake_id


def test_a_catalog_with_tables_does_not_open_another_lakes_warehouse() -> None:
    first, other = Offline(), Offline()
    open_lake(first.session)
    other.run("CREATE TABLE t (id INT)")
    wrong = Offline(first.place, other.catalog)
    with pytest.raises(InvalidRequest, match="warehouse's own catalog"):
        open_lake(wrong.session)


def copied_lake(tmp_path: Path, copy: str) -> Offline:
    """A folder copied with the catalog in it; both of them have the same tables."""
    origin = tmp_path / "origin"
    origin.mkdir()
    with closing(Catalog(f"sqlite:///{origin}/catalog.db", System())) as catalog:
        lake = Offline(str(origin), catalog)
        open_lake(lake.session)
        lake.run("CREATE TABLE t (id INT); CREATE TABLE gone (id INT)")
        attach(lake.session, lake.path_table(str(tmp_path / "elsewhere")), "given")
        lake.run("DROP TABLE gone")
    shutil.copytree(origin, tmp_path / copy)
    return Offline(
        str(tmp_path / copy), Catalog(f"sqlite:///{tmp_path / copy}/catalog.db", System())
    )


@pytest.mark.parametrize("copy", ["copy", "origin-2"])
def test_a_lake_copied_with_its_catalog_does_not_write_the_original(
    tmp_path: Path, copy: str
) -> None:
    lake = copied_lake(tmp_path, copy)
    with closing(lake.catalog), pytest.raises(InvalidRequest) as caught:
        open_lake(lake.session)
    for part in ("origin/t: the folder was moved or copied", "new, empty catalog", "recover()"):
        assert part in str(caught.value)
    with closing(Catalog(f"sqlite:///{tmp_path}/new.db", System())) as catalog:
        new = Offline(str(tmp_path / copy), catalog)
        open_lake(new.session)
        assert recover(new.session, ()).tables == ("default.t",)
        new.run("COMMENT ON TABLE t IS 'of the copy'")
        open_lake(Offline(str(tmp_path / copy), catalog).session)
    assert not (tmp_path / "origin/t/_delta_log/00000000000000000001.json").exists()


def test_another_path_to_the_same_folder_opens_the_lake(tmp_path: Path) -> None:
    with closing(copied_lake(tmp_path, "copy").catalog):
        (tmp_path / "link").symlink_to(tmp_path / "origin")
    with closing(Catalog(f"sqlite:///{tmp_path}/origin/catalog.db", System())) as catalog:
        lake = Offline(str(tmp_path / "link"), catalog)
        open_lake(lake.session)
        assert lake.engine.recovery_required is None


def test_an_external_table_may_have_the_name_of_a_folder_here(tmp_path: Path) -> None:
    lake = Offline(str(tmp_path / "warehouse"))
    open_lake(lake.session)
    lake.run("CREATE TABLE t (id INT); ALTER TABLE t RENAME TO kept")
    attach(lake.session, lake.path_table(str(tmp_path / "elsewhere" / "t")), "t")
    open_lake(lake.session)


@pytest.mark.parametrize("text", [b"{}", b"", b"[1]", b'"x"', b"null"])
def test_a_marker_that_cannot_be_read_is_named(text: bytes) -> None:
    lake = Offline()
    assert lake.engine.warehouse is not None
    lake.engine.warehouse.put(MARKER, text)
    with pytest.raises(CorruptTable, match=r"lake\.json"):
        open_lake(lake.session)


def test_of_two_that_mark_one_warehouse_the_first_is_right() -> None:
    lake = Offline()
    assert lake.engine.warehouse is not None

    def other_was_first(path: str, data: bytes) -> PutOutcome:
        assert lake.engine.warehouse is not None
        lake.engine.warehouse.put(path, b'{"lake": "the other"}')
        return PutOutcome.EXISTS

    lake.instead["put_if_absent"] = other_was_first
    open_lake(lake.session)
    assert lake.engine.recovery_required is not None
    assert lake.engine.recovery_required.lake == "the other"


def test_a_marker_whose_reply_and_bytes_are_lost_is_told() -> None:
    lake = Offline()
    lake.instead["put_if_absent"] = lambda path, data: PutOutcome.UNKNOWN
    with pytest.raises(OutcomeUnknown, match=r"lake\.json.* try again"):
        open_lake(lake.session)


def test_opening_again_writes_no_marker() -> None:
    lake = Offline()
    open_lake(lake.session)
    lake.failing |= {"put", "put_if_absent"}
    open_lake(lake.session)
    assert lake.engine.recovery_required is None


def test_where_a_lake_that_isnt_in_a_folder_has_its_tables_is_its_own_affair() -> None:
    lake = Offline()
    open_lake(lake.session)
    with transaction_of(lake.engine, lake.session.number) as transaction:
        elsewhere = NewTable(
            id="t",
            database="default",
            name="t",
            location="file:///elsewhere/t",
            managed=True,
            head=0,
        )
        transaction.change_name(elsewhere, {})
    open_lake(lake.session)
    assert lake.engine.recovery_required is None


def test_a_catalog_may_have_a_second_warehouse(tmp_path: Path) -> None:
    first = Offline(str(tmp_path / "first"))
    open_lake(first.session)
    first.run("CREATE TABLE t (id INT)")
    second = Offline(str(tmp_path / "second"), first.catalog)
    open_lake(second.session)
    assert second.engine.recovery_required is None
