"""Views by name: one name for a table or a view, their texts as written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.catalog.ledgers import User
from tests.catalog.view_changes import change_view, create_view, rename_view
from txlake.catalog import Catalog, TableEntry
from txlake.catalog.lock_entries import LockEntry
from txlake.conflict.locking import LockMode, LockRequest, Resource, ResourceType
from txlake.errors import InvalidRequest, LockTimeout
from txlake.ports import DroppedView, RenamedTable, WrittenView
from txlake.system import System


@pytest.fixture
def catalog() -> Iterator[Catalog]:
    """A catalog in memory."""
    made = Catalog("sqlite://", System())
    yield made
    made.close()


def rename(user: User, entry: TableEntry, database: str, name: str) -> None:
    """The table's new name, in a transaction of its own."""
    user.ratify(names=(RenamedTable(id=entry.id, database=database, name=name),))


def test_a_view_is_kept_as_it_was_written(opened: Callable[[], Catalog]) -> None:
    catalog = opened()
    catalog.create_database("d")
    columns = (("a", "x"), ("B", None))
    create_view(catalog, "D", "Few", "SELECT 1", columns, comment="c", properties={"k": "v"})
    found = opened().views.find("d", "fEW")
    assert found is not None
    assert (found.database, found.name, found.query) == ("d", "Few", "SELECT 1")
    assert (found.columns, found.comment, found.properties) == (columns, "c", {"k": "v"})
    change_view(catalog, found, "SELECT 2", ())
    changed = catalog.views.find("d", "few")
    assert changed is not None
    assert (changed.number, changed.query, changed.columns) == (found.number, "SELECT 2", ())
    assert changed.modified_ms >= found.modified_ms
    rename_view(catalog, found, "default", "many")
    assert catalog.views.find("d", "few") is None
    assert [entry.name for entry in catalog.views.entries("default")] == ["many"]
    catalog.views.drop(found.id)
    catalog.views.drop(found.id)
    assert catalog.views.entries("default") == []
    with pytest.raises(InvalidRequest, match="dropped meanwhile"):
        change_view(catalog, found, "SELECT 3", ())
    with pytest.raises(InvalidRequest, match="no database 'nowhere'"):
        create_view(catalog, "nowhere", "v", "SELECT 1", ())
    with pytest.raises(InvalidRequest, match="at most 255"):
        create_view(catalog, "d", "v" * 256, "SELECT 1", ())


def test_a_name_is_a_tables_or_a_views(catalog: Catalog) -> None:
    user = User(catalog)
    catalog.create_database("d")
    entry = user.name("t", database="d")
    create_view(catalog, "d", "v", "SELECT 1", ())
    create_view(catalog, "d", "w", "SELECT 1", ())
    with pytest.raises(InvalidRequest, match=r"d\.V is a view"):
        user.name("V", database="d")
    with pytest.raises(InvalidRequest, match=r"d\.v is a view"):
        rename(user, entry, "d", "v")
    with pytest.raises(InvalidRequest, match=r"d\.T is a table"):
        create_view(catalog, "d", "T", "SELECT 1", ())
    with pytest.raises(InvalidRequest, match=r"view d\.V exists already"):
        create_view(catalog, "d", "V", "SELECT 1", ())
    view = catalog.views.find("d", "w")
    assert view is not None
    for name, said in (("t", "is a table"), ("v", "exists already")):
        with pytest.raises(InvalidRequest, match=said):
            rename_view(catalog, view, "d", name)
    user.name("v")  # in another database
    rename(user, entry, "d", "u")
    with pytest.raises(InvalidRequest, match=r"holds 3 table.*'u'"):
        catalog.require_droppable("d")


def test_a_transaction_writes_and_drops_views(catalog: Catalog) -> None:
    user = User(catalog)
    made = WrittenView(id="a", database="default", name="v", query="SELECT 1", is_new=True)
    user.ratify(names=(made, replace(made, query="SELECT 2", name="w", is_new=False)))
    view = catalog.views.find("default", "w")
    assert view is not None
    assert (view.id, view.query, catalog.views.find("default", "v")) == ("a", "SELECT 2", None)
    other = WrittenView(id="b", database="default", name="x", query="SELECT 3", is_new=True)
    with pytest.raises(InvalidRequest, match=r"w exists already"):
        user.ratify(names=(other, replace(other, name="w", is_new=False)))
    assert catalog.views.find("default", "x") is None, "all of a request, or nothing"
    user.ratify(names=(DroppedView(id="a"), replace(other, name="w")))
    assert [view.query for view in catalog.views.entries("default")] == ["SELECT 3"]


def test_a_database_with_views_is_not_empty(catalog: Catalog) -> None:
    catalog.create_database("d")
    create_view(catalog, "d", "v", "SELECT 1", ())
    with pytest.raises(InvalidRequest, match="'v' among"):
        catalog.drop_database("d")
    view = catalog.views.find("d", "v")
    assert view is not None
    catalog.views.drop(view.id)
    catalog.drop_database("d")


def test_messages_name_views(catalog: Catalog) -> None:
    user = User(catalog)
    create_view(catalog, "default", "other", "SELECT 1", ())
    create_view(catalog, "default", "v", "SELECT 1", ())
    table, view = user.name("t"), catalog.views.find("default", "v")
    assert view is not None
    for number, said in (
        (view.number, r"^view default\.v:"),
        (table.number, r"^table default\.t:"),
        (10_000, r"^table default\.number 10000:"),
    ):
        resource = Resource(type=ResourceType.OBJECT, database=view.database_number, entity=number)
        request = LockRequest(resource=resource, mode=LockMode.X)
        first, second = catalog.sessions.open(), catalog.sessions.open()
        catalog.locks.acquire(first, None, [request], 0)
        with pytest.raises(LockTimeout, match=said):
            catalog.locks.acquire(second, None, [request], 0)
        held: list[LockEntry] = catalog.locks.entries()
        assert {one.resource.entity for one in held} >= {number}
