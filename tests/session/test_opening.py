"""A lake is opened: the marker in its warehouse, and whose it is."""

from __future__ import annotations

import pytest

from tests.session.offline import Offline
from txlake.errors import CorruptTable, InvalidRequest, OutcomeUnknown
from txlake.ports import PutOutcome
from txlake.session.opening import MARKER, lake_at, open_lake


def test_the_first_catalog_marks_the_warehouse() -> None:
    lake = Offline()
    assert lake.engine.warehouse is not None
    assert lake_at(lake.engine.warehouse) is None
    open_lake(lake.session)
    assert lake_at(lake.engine.warehouse) == lake.catalog.lake_id
    open_lake(lake.session)
    assert lake.engine.lost is None


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
    assert second.engine.lost == first.catalog.lake_id


def test_a_catalog_with_tables_does_not_open_another_lakes_warehouse() -> None:
    first, other = Offline(), Offline()
    open_lake(first.session)
    other.run("CREATE TABLE t (id INT)")
    wrong = Offline(first.place, other.catalog)
    with pytest.raises(InvalidRequest, match="warehouse's own catalog"):
        open_lake(wrong.session)


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
    assert lake.engine.lost == "the other"


def test_a_marker_whose_reply_and_bytes_are_lost_is_told() -> None:
    lake = Offline()
    lake.instead["put_if_absent"] = lambda path, data: PutOutcome.UNKNOWN
    with pytest.raises(OutcomeUnknown, match=r"lake\.json.* try again"):
        open_lake(lake.session)
