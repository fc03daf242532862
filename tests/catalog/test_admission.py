"""A statement's names, locks, instant and versions come of one database transaction."""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.catalog.ledgers import System_, User, new, version
from tests.catalog.locking import until
from tests.catalog.open_transactions import write_transaction
from tests.catalog.view_changes import create_view
from txlake.catalog import Catalog, admission, lock_rows, lookup
from txlake.catalog.admission import Admission, StatementTransaction
from txlake.catalog.database import Database
from txlake.catalog.lookup import CatalogView, LookupRequest
from txlake.catalog.relations import counters
from txlake.conflict.locking import LockMode, LockRequest, Resource, ResourceType
from txlake.errors import CorruptTable, Deadlock, LockTimeout, Unavailable
from txlake.ports import DroppedTable
from txlake.system import System

A = ("default", "a")
ON_A = LookupRequest(names=frozenset({A}))


class Holder:
    """Whose end is its transaction's."""


@pytest.fixture
def user(opened: Callable[[], Catalog]) -> User:
    """A session in a catalog with the tables a, b and c, at instant 1."""
    made = User(opened())
    made.create("a", "b", "c")
    return made


@pytest.fixture
def other(user: User, opened: Callable[[], Catalog]) -> User:
    """Another process's session."""
    return User(opened())


def lock(number: int, mode: str) -> LockRequest:
    resource = Resource(type=ResourceType.OBJECT, database=1, entity=number)
    return LockRequest(resource=resource, mode=LockMode(mode))


def on_a(mode: str) -> Callable[[CatalogView], list[LockRequest]]:
    """Wants the table a, if there is one."""
    return lambda seen: [lock(entry.number, mode) for entry in seen.tables.values()]


def entrant(user: User, **given: object) -> StatementTransaction:
    who = StatementTransaction(id=System_.new_id(), session_id=user.session, is_new=True, pins=True)
    return replace(who, **given)  # type: ignore[arg-type]


def admitted(
    user: User, who: StatementTransaction, mode: str = "IX", asked: LookupRequest = ON_A
) -> Admission:
    return user.catalog.admissions.admit(who, asked, on_a(mode), timeout_ms=0)


def test_what_a_statement_is_told(user: User) -> None:
    create_view(user.catalog, "default", "v", "SELECT 1", ())
    user.write(version("a", 1))
    names = frozenset({A, ("default", "v"), ("default", "nothing"), ("nowhere", "a")})
    asked = LookupRequest(names=names, places=frozenset({"file:///b", "file:///d"}))
    admission = user.catalog.admissions.admit_without_locks(asked, on_a("Sch-S"))
    seen = admission.view
    assert (admission.is_granted, admission.is_known) == (True, False)
    assert {name: entry.id for name, entry in seen.tables.items()} == {A: "a"}
    assert [entry.name for entry in seen.views.values()] == ["v"]
    assert {place: entry.id for place, entry in seen.places.items()} == {"file:///b": "b"}
    assert list(seen.databases) == ["default"]
    assert seen.instant == 2
    assert seen.versions == {"a": 1, "b": 0}


def test_a_table_that_is_known_by_its_place_brings_its_database(user: User) -> None:
    asked = LookupRequest(names=frozenset(), places=frozenset({"file:///b"}))
    seen = user.catalog.admissions.admit_without_locks(asked, on_a("Sch-S")).view
    assert list(seen.databases) == ["default"]


def test_who_only_looks_leaves_no_trace_and_waits_for_nobody(user: User, other: User) -> None:
    look = user.catalog.admissions.admit_without_locks
    assert look(ON_A, on_a("Sch-S")).is_granted
    assert user.catalog.transactions.entries() == []
    admitted(other, entrant(other), "Sch-M")
    assert not look(ON_A, on_a("Sch-S")).is_granted
    assert not look(ON_A, lambda _: None).is_granted


def test_a_new_transaction_gets_its_locks_and_its_instant(user: User) -> None:
    who = entrant(user)
    admission = admitted(user, who)
    assert (admission.is_granted, admission.is_known, admission.view.instant) == (True, True, 1)
    [listed] = user.catalog.transactions.entries()
    assert (listed.id, listed.sequence, listed.begin_sequence) == (who.id, 1, 1)
    [held] = user.catalog.locks.entries()
    assert (held.transaction_id, held.mode) == (who.id, LockMode.IX)


def test_the_instant_stays_while_others_commit(user: User, other: User) -> None:
    who = entrant(user)
    admitted(user, who)
    other.write(version("a", 1), version("b", 1))
    asked = LookupRequest(names=frozenset({A, ("default", "b")}))
    later = replace(who, is_new=False, sequence=1)
    assert admitted(user, later, asked=asked).view.versions == {"a": 0, "b": 0}
    [listed] = user.catalog.transactions.entries()
    assert listed.sequence == 1
    newer = admitted(user, entrant(user), asked=asked).view
    assert (newer.instant, newer.versions) == (2, {"a": 1, "b": 1})


def test_a_statement_may_leave_the_instant_open(user: User) -> None:
    who = entrant(user, pins=False)
    assert admitted(user, who).view.instant is None
    [listed] = user.catalog.transactions.entries()
    assert listed.sequence is None


def test_a_statement_without_tables_of_the_lake_reads_no_instant(user: User) -> None:
    who = entrant(user, is_new=False, id=user.begin())
    nothing = LookupRequest(names=frozenset({("default", "nothing")}))
    assert admitted(user, who, asked=nothing).view.instant is None


def test_the_instant_of_a_statement_of_its_own_is_not_noted(user: User) -> None:
    admission = admitted(user, entrant(user, explicit=False))
    assert admission.view.instant == 1
    [listed] = user.catalog.transactions.entries()
    assert (listed.explicit, listed.sequence) == (False, None)


def test_who_needs_no_locks_or_has_to_ask_for_more_stays_unknown(user: User) -> None:
    admit = user.catalog.admissions.admit
    none = admit(entrant(user), ON_A, lambda _: [], timeout_ms=0)
    assert (none.is_granted, none.is_known) == (True, False)
    more = admit(entrant(user), ON_A, lambda _: None, timeout_ms=0)
    assert (more.is_granted, more.is_known) == (False, False)
    assert user.catalog.transactions.entries() == []
    known = entrant(user, is_new=False, id=user.begin())
    assert admit(known, ON_A, lambda _: None, timeout_ms=0).is_known


@pytest.mark.parametrize("locks", [[], None])
def test_who_stays_unknown_has_nothing_to_end(user: User, locks: list[LockRequest] | None) -> None:
    holder = Holder()
    is_gone = weakref.ref(holder)
    who = entrant(user, holder=holder)
    user.catalog.admissions.admit(who, ON_A, lambda _: locks, timeout_ms=0)
    del holder, who
    until(lambda: is_gone() is None)
    assert user.catalog.transactions.end_abandoned() == []
    assert user.catalog.locks._last_threads == {}


def test_what_is_held_is_not_asked_for_again(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    who = entrant(user)
    admitted(user, who)
    monkeypatch.setattr(lock_rows, "send_next_ids", None)
    assert admitted(user, replace(who, is_new=False, sequence=1)).is_granted


def test_who_does_not_get_a_lock_is_not_entered(user: User, other: User) -> None:
    first = entrant(other)
    admitted(other, first, "Sch-M")
    with pytest.raises(LockTimeout):
        admitted(user, entrant(user))
    assert [one.id for one in user.catalog.transactions.entries()] == [first.id]
    assert [one.transaction_id for one in user.catalog.locks.entries()] == [first.id]


def test_who_gives_up_waiting_asks_for_nothing_any_longer(user: User, other: User) -> None:
    first = entrant(other)
    admitted(other, first, "Sch-M")
    with pytest.raises(LockTimeout):
        user.catalog.admissions.admit(entrant(user), ON_A, on_a("IX"), timeout_ms=5)
    assert [one.transaction_id for one in user.catalog.locks.entries()] == [first.id]


def test_a_thread_that_waits_for_itself_is_told(user: User) -> None:
    first = entrant(user)
    admitted(user, first, "Sch-M")
    user.catalog.locks.set_ending_thread(first.id)
    with pytest.raises(Deadlock, match="which this thread has used itself"):
        user.catalog.admissions.admit(entrant(user), ON_A, on_a("IX"), timeout_ms=2_000)


def test_a_transaction_that_was_killed_is_admitted_nowhere(user: User, other: User) -> None:
    who = entrant(user)
    admitted(user, who)
    other.catalog.transactions.kill(who.id)
    with pytest.raises(Unavailable, match="was killed"):
        admitted(user, replace(who, is_new=False, sequence=1))


def test_it_ends_when_its_holder_is_gone(user: User) -> None:
    holder, who = Holder(), entrant(user)
    admitted(user, replace(who, holder=holder))
    assert user.catalog.transactions.end_abandoned() == []
    del holder
    until(lambda: user.catalog.transactions.end_abandoned() == [who.id])


@pytest.mark.usefixtures("direct")
def test_an_instant_that_was_pruned_is_refused(user: User) -> None:
    who = entrant(user)
    admitted(user, who)
    with write_transaction(user.catalog._database) as connection:
        connection.execute(sa.insert(counters).values(name="floor", value=7))
    with pytest.raises(Unavailable, match="too old"):
        admitted(user, replace(who, is_new=False, sequence=1))


def test_a_catalog_that_was_put_back_is_refused(user: User) -> None:
    user.catalog._fence.newest = 9
    with pytest.raises(CorruptTable, match="restored from a backup"):
        user.catalog.admissions.admit_without_locks(ON_A, on_a("Sch-S"))
    with pytest.raises(CorruptTable, match="restored from a backup"):
        admitted(user, entrant(user))


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_name_that_another_took_away_while_the_locks_were_asked_for(
    user: User, other: User
) -> None:
    """Only PostgreSQL lets others commit meanwhile; who writes SQLite has it alone."""
    looks: list[int] = []

    def needs(seen: CatalogView) -> list[LockRequest]:
        looks.append(len(seen.tables))
        if len(looks) == 1:
            other.ratify(names=(DroppedTable(id="a"),))
            return [lock(seen.tables[A].number, "IX")]
        return []

    admission = user.catalog.admissions.admit(entrant(user), ON_A, needs, timeout_ms=0)
    assert looks == [1, 0, 0, 0]
    assert admission.view.tables == {}
    assert admission.is_granted


def test_a_first_statement_enters_what_was_announced(user: User, other: User) -> None:
    transactions = user.catalog.transactions
    for locks in ([], None, [lock(1, "IX")]):
        who = entrant(user, is_new=False)
        transactions.announce(who.id, user.session)
        admission = user.catalog.admissions.admit(who, ON_A, lambda _: locks, timeout_ms=0)  # noqa: B023
        assert admission.is_known
        assert who.id in {one.id for one in other.catalog.transactions.entries()}


def test_one_whose_first_statement_gets_no_lock_is_announced_still(user: User) -> None:
    first, second = entrant(user), entrant(user, is_new=False)
    user.catalog.transactions.announce(second.id, user.session)
    assert admitted(user, first, "Sch-M").is_granted
    with pytest.raises(LockTimeout):
        admitted(user, second)
    user.catalog.transactions.end(first.id)
    assert admitted(user, second).is_granted


def test_who_began_first_has_the_lower_number(user: User) -> None:
    transactions = user.catalog.transactions
    first, second = entrant(user, is_new=False), entrant(user, is_new=False)
    for who in (first, second):
        transactions.announce(who.id, user.session)
    for who in (second, first):
        assert admitted(user, who).is_granted
    assert [one.id for one in transactions.entries()] == [first.id, second.id]


def test_a_name_means_its_databases_table_that_is_there(user: User) -> None:
    """Neither another database's table of that name nor one that was dropped."""
    catalog = user.catalog
    for database in ("d", "e"):
        catalog.create_database(database)
    user.ratify(names=(replace(new("da", database="d", head=0), name="a"),))
    user.ratify(names=(replace(new("eb", database="e", head=0), name="b"),))
    user.ratify(names=(DroppedTable(id="da"),))
    user.ratify(names=(replace(new("again", database="d", head=0), name="a"),))
    asked = LookupRequest(names=frozenset({A, ("d", "a"), ("d", "b")}))
    seen = catalog.admissions.admit_without_locks(asked, on_a("Sch-S")).view
    assert {name: entry.id for name, entry in seen.tables.items()} == {A: "a", ("d", "a"): "again"}
    assert seen.databases.keys() == {"default", "d"}
    assert [entry.database for _, entry in sorted(seen.tables.items())] == ["d", "default"]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("is_alone", "looks"), [(True, 1), (False, 2)])
def test_names_are_looked_at_again_where_others_may_write(
    user: User, monkeypatch: pytest.MonkeyPatch, is_alone: bool, looks: int
) -> None:
    seen: list[LookupRequest] = []
    look = lookup.look_up

    def noted(connection: sa.Connection, asked: LookupRequest) -> Callable[[], CatalogView]:
        seen.append(asked)
        return look(connection, asked)

    monkeypatch.setattr(admission, "look_up", noted)
    monkeypatch.setattr(Database, "has_single_writer", is_alone)
    assert admitted(user, entrant(user)).is_granted
    assert len(seen) == looks


def test_a_long_history_costs_a_statement_nothing(tmp_path: Path, direct: None) -> None:
    """The steps of SQLite's machine are counted, as the table's versions become many."""
    user = User(Catalog(f"sqlite:///{tmp_path / 'catalog.db'}", System()))
    user.create("a")
    steps: list[None] = []

    def look() -> int:
        steps.clear()
        assert user.catalog.admissions.admit_without_locks(ON_A, on_a("Sch-S")).view.versions == {
            "a": newest
        }
        return len(steps)

    with user.catalog._database.reading() as connection:
        found = connection.connection.driver_connection
    assert isinstance(found, sqlite3.Connection)
    found.set_progress_handler(lambda: steps.append(None), 1)
    newest = 1
    user.write(version("a", 1))
    few = look()
    for newest in range(2, 200):
        user.write(version("a", newest))
    assert 0 < look() < few + 50
