"""What the names of a statement mean is expected, and compared with what the catalog says.

A server is asked for what follows from the expectation together with the names. A SQLite file is
here made to look as one, which other processes write meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
import sqlalchemy as sa

from tests.catalog.admitting import Admitting, locks_of, lookup, the_name
from tests.catalog.ledgers import User, prepared, version
from tests.catalog.view_changes import create_view
from txlake.catalog import Catalog, admission
from txlake.catalog import lookup as lookups
from txlake.catalog.database import Database
from txlake.catalog.locks import LockResult, OwnerRequests
from txlake.catalog.lookup import CatalogView, LookupRequest
from txlake.conflict.locking import LockRequest
from txlake.errors import InvalidRequest, LockTimeout, Unavailable
from txlake.ports import DroppedTable
from txlake.system import System

pytestmark = pytest.mark.usefixtures("direct")


@pytest.fixture
def far(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Admitting]:
    url = prepared(database_url)
    catalog, beside = Catalog(url, System()), Catalog(url, System())
    monkeypatch.setattr(Database, "has_single_writer", False)
    user = User(catalog)
    user.create("a", "b")
    for number in (1, 2):
        user.write(version("a", number))
    yield Admitting(user, User(beside))
    catalog.close()
    beside.close()


@pytest.fixture
def lookups_made(monkeypatch: pytest.MonkeyPatch) -> list[LookupRequest]:
    """The lookups that weren't expectations."""
    made: list[LookupRequest] = []
    look_up = lookups.look_up

    def noted(connection: sa.Connection, request: LookupRequest) -> Callable[[], CatalogView]:
        made.append(request)
        return look_up(connection, request)

    monkeypatch.setattr(admission, "look_up", noted)
    return made


def test_what_was_found_before_is_expected(
    far: Admitting, lookups_made: list[LookupRequest]
) -> None:
    for _ in range(2):
        far.read("a")
    assert lookups_made == [lookup("a")]
    far.admit(far.statement(), "b")
    who = far.statement()
    first = far.admit(who, "b")
    again = far.admit(replace(who, is_new=False, sequence=first.view.instant), "b")
    assert first.view.versions == again.view.versions == {"b": 0}
    assert lookups_made == [lookup("a"), lookup("b"), lookup("b")]
    far.admit(replace(who, is_new=False, sequence=first.view.instant), "a")
    held = [lock for lock in far.user.catalog.locks.entries() if lock.transaction_id == who.id]
    assert len(held) == 2
    assert lookups_made == [lookup("a"), lookup("b"), lookup("b")]


def test_a_stronger_lock_of_a_transaction_is_not_requested_in_vain(
    far: Admitting, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = far.statement()
    first = far.admit(who, "a")
    pinned = replace(who, is_new=False, sequence=first.view.instant)
    asked: list[Sequence[OwnerRequests]] = []
    locks = far.user.catalog.locks
    send = locks.send_requests

    def noted(
        connection: sa.Connection, batches: Sequence[OwnerRequests]
    ) -> Callable[[], list[LockResult | None]]:
        asked.append(batches)
        return send(connection, batches)

    monkeypatch.setattr(locks, "send_requests", noted)
    again = far.admit(pinned, "a", mode="SIX")
    assert again.view.versions == {"a": 2}
    assert len(asked) == 1


def test_a_table_of_another_name_is_found_again(far: Admitting) -> None:
    for mode in ("IX", "Sch-S"):
        far.admit(far.statement(explicit=False), "a", mode=mode)
    far.read("a")
    far.rename("a", "c")
    far.rename("b", "a")
    who = far.statement(explicit=False)
    admission = far.admit(who, "a")
    assert admission.view.tables["default", "a"].id == "b"
    assert admission.view.versions == {"b": 0}
    [held] = [lock for lock in far.user.catalog.locks.entries() if lock.transaction_id == who.id]
    assert held.resource.entity == admission.view.tables["default", "a"].number
    assert far.read("a").view.tables["default", "a"].id == "b"


def test_a_table_that_was_dropped_is_not_found(far: Admitting) -> None:
    far.admit(far.statement(explicit=False), "b")
    far.read("b")
    far.other.ratify(names=(DroppedTable(id="b"),))
    create_view(far.other.catalog, "default", "b", "SELECT 1", ())
    for found in (far.read("b"), far.admit(far.statement(explicit=False), "b")):
        assert found.view.tables == {}
        assert found.view.views["default", "b"].name == "b"


def test_a_lock_of_another_is_waited_for(far: Admitting) -> None:
    far.admit(far.statement(explicit=False), "a")
    far.read("a")
    theirs = far.statement(session_id=far.other.session)
    far.other.catalog.admissions.admit(theirs, lookup("b"), locks_of("X"), timeout_ms=0)
    far.admit(far.statement(explicit=False), "a")  # another table's
    mine = far.statement(explicit=False)
    far.admit(far.statement(explicit=False), "a")
    with pytest.raises(LockTimeout):
        far.admit(mine, "b", mode="IX")
    far.other.catalog.transactions.end(theirs.id)
    far.admit(far.statement(explicit=False), "b")
    far.other.catalog.admissions.admit(
        far.statement(session_id=far.other.session), lookup("a"), locks_of("Sch-S"), timeout_ms=0
    )
    with pytest.raises(LockTimeout):
        far.admit(far.statement(explicit=False), "a", mode="Sch-M")


def test_a_transaction_that_was_killed_has_no_further_statement(far: Admitting) -> None:
    who = far.statement()
    first = far.admit(who, "a")
    far.other.catalog.transactions.kill(who.id)
    with pytest.raises(Unavailable, match="killed"):
        far.admit(replace(who, is_new=False, sequence=first.view.instant), "a")


def test_what_a_statement_reads_from_now_on_is_written(far: Admitting) -> None:
    """Also where its transaction has its locks."""
    who = far.statement(pins=False)
    assert far.admit(who, "a").view.instant is None
    found = far.admit(replace(who, is_new=False, pins=True), "a")
    [entry] = [one for one in far.user.catalog.transactions.entries() if one.id == who.id]
    assert entry.sequence == found.view.instant is not None


def test_who_needs_no_locks_leaves_no_row(far: Admitting) -> None:
    far.admit(far.statement(explicit=False), "a")
    who = far.statement()
    admission = far.admit(who, "a", locks=lambda _: [])
    assert (admission.is_granted, admission.is_known) == (True, False)
    assert who.id not in {one.id for one in far.user.catalog.transactions.entries()}


@pytest.mark.parametrize("reads", [True, False])
def test_names_that_mean_something_else_are_found_whatever_the_locks(
    far: Admitting, reads: bool
) -> None:
    def found() -> CatalogView:
        if reads:
            return far.read("a", locks=the_name).view
        who = far.statement()
        view = far.admit(who, "a", locks=the_name).view
        far.user.catalog.transactions.end(who.id)
        far.user.catalog.locks.forget_owner(who.id)
        return view

    assert found().versions == {"a": 2}
    far.rename("a", "c")
    far.rename("b", "a")
    assert found().versions == {"b": 0}
    far.rename("b", "d")
    create_view(far.other.catalog, "default", "a", "SELECT 1", ())
    assert found().views["default", "a"].name == "a"


@pytest.mark.parametrize("reads", [True, False])
def test_an_expectation_that_no_locks_are_known_for_is_none(far: Admitting, reads: bool) -> None:
    """What has another meaning by now is nobody's error."""

    def refused(view: CatalogView) -> list[LockRequest]:
        if any(entry.id == "a" for entry in view.tables.values()):
            raise InvalidRequest("a")
        return locks_of("IX")(view)

    far.read("a")
    far.rename("a", "c")
    far.rename("b", "a")
    who = far.statement()
    found = far.read("a", locks=refused) if reads else far.admit(who, "a", locks=refused)
    assert found.view.versions == {"b": 0}


def test_a_query_whose_tables_are_locked_is_told_so(far: Admitting) -> None:
    far.read("a")
    theirs = far.statement(session_id=far.other.session)
    far.other.catalog.admissions.admit(theirs, lookup("a"), locks_of("Sch-M"), timeout_ms=0)
    assert not far.read("a").is_granted
    assert not far.read("a", locks=lambda _: None).is_granted
    called: list[CatalogView] = []

    def other_locks(view: CatalogView) -> list[LockRequest]:
        called.append(view)
        return [] if len(called) == 1 else locks_of("Sch-S")(far.read("b").view)

    far.other.catalog.transactions.end(theirs.id)
    far.other.catalog.admissions.admit(
        far.statement(session_id=far.other.session), lookup("b"), locks_of("Sch-M"), timeout_ms=0
    )
    assert far.read("a").is_granted
    assert not far.read("a", locks=other_locks).is_granted


def test_places_are_looked_up_each_time(far: Admitting) -> None:
    both = LookupRequest(names=frozenset({("default", "a")}), places=frozenset({"file:///b"}))
    for _ in range(2):
        found = far.user.catalog.admissions.admit_without_locks(both, locks_of("Sch-S")).view
        assert found.versions == {"a": 2, "b": 0}


def test_which_lookups_are_remembered(far: Admitting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "_SEEN_MAX", 2)
    seen = lookups.SeenNames()
    entry = far.read("a").view.tables["default", "a"]

    def known(*names: str) -> list[bool]:
        return [seen.expected(lookup(name)) is not None for name in names]

    for name in ("a", "b"):
        seen.note(lookup(name), CatalogView(tables={("default", name): entry}))
    assert known("a", "b", "c") == [True, True, False]
    seen.note(lookup("c"), CatalogView(tables={("default", "c"): entry}))
    assert known("a", "b", "c") == [False, False, True]
    both = replace(lookup("a"), places=frozenset({"file:///b"}))
    seen.note(both, CatalogView(tables={("default", "a"): entry}))
    assert seen.expected(both) is None


def test_names_of_no_table_are_expected_too(
    far: Admitting, lookups_made: list[LookupRequest]
) -> None:
    """Such as a temporary view that a MERGE names beside its table, and a view of the catalog."""
    create_view(far.other.catalog, "default", "v", "SELECT 1", ())
    for _ in range(2):
        seen = far.read("a", "v", "none").view
        assert seen.versions == {"a": 2}
        assert {name: view.name for name, view in seen.views.items()} == {("default", "v"): "v"}
        assert list(seen.databases) == ["default"]
    for _ in range(2):
        far.admit(far.statement(explicit=False), "a", "none")
    assert lookups_made == [lookup("a", "v", "none"), *[lookup("a", "none")] * 2]
    far.rename("b", "none")
    for found in (far.read("a", "none"), far.admit(far.statement(explicit=False), "a", "none")):
        assert found.view.versions == {"a": 2, "b": 0}
