"""What attach and detach are given: a place, a name, or a mistake."""

from __future__ import annotations

import pytest

from tests.session.offline import Offline
from txlake.errors import InvalidRequest
from txlake.session.membership.attachment import attach, detach


@pytest.fixture
def lake() -> Offline:
    """An empty lake."""
    return Offline()


@pytest.fixture
def place(lake: Offline) -> str:
    """Where a path table is."""
    return lake.path_table(f"{lake.place}-elsewhere/my%20table")


def test_the_folders_name_is_the_tables_where_none_is_given(lake: Offline, place: str) -> None:
    assert attach(lake.session, place, None) == "default.`my table`"


def test_a_place_may_be_given_as_in_a_statement(lake: Offline, place: str) -> None:
    assert attach(lake.session, f"delta.`{place}`", "t") == "default.t"


def test_a_folder_in_the_working_directory_is_a_place_too(lake: Offline) -> None:
    with pytest.raises(InvalidRequest, match="not a Delta table"):
        attach(lake.session, "no_such_folder", "t")


def test_a_name_may_have_a_database(lake: Offline, place: str) -> None:
    lake.run("CREATE DATABASE Sales")
    assert attach(lake.session, place, "sales.t") == "Sales.t"


@pytest.mark.parametrize(
    ("name", "message"),
    [("delta.`/x`", "a name like"), ("nowhere.t", "CREATE DATABASE nowhere")],
)
def test_what_is_no_name_is_refused(lake: Offline, place: str, name: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        attach(lake.session, place, name)
    assert lake.domain(place) is None


def test_the_lakes_own_table_is_not_attached_again(lake: Offline, place: str) -> None:
    attach(lake.session, place, "t")
    with pytest.raises(InvalidRequest, match=r"already: default\.t"):
        attach(lake.session, place, "u")


def test_a_path_table_cannot_be_detached(lake: Offline, place: str) -> None:
    with pytest.raises(InvalidRequest, match="nothing to detach"):
        detach(lake.session, f"delta.`{place}`")
