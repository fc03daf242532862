"""Statements of threads that ask at the same time are admitted in one database transaction."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import IntegrityError

from tests.catalog.ledgers import System_, User, version
from tests.catalog.locking import until
from tests.catalog.open_transactions import write_transaction
from txlake.catalog import Catalog, lock_rows, prepared
from txlake.catalog.admission import Admission, StatementTransaction
from txlake.catalog.database import Database
from txlake.catalog.lookup import CatalogView, LookupRequest, newest
from txlake.catalog.relations import counters
from txlake.conflict.locking import LockMode, LockRequest, Resource, ResourceType
from txlake.errors import InvalidRequest, LockTimeout, Unavailable

NAMES = ("a", "b", "c")


@pytest.fixture
def user(opened: Callable[[], Catalog]) -> User:
    """A session in a catalog with the tables a, b and c, at instant 1."""
    made = User(opened())
    made.create(*NAMES)
    return made


@pytest.fixture
def other(user: User, opened: Callable[[], Catalog]) -> User:
    """Another process's session."""
    return User(opened())


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


@pytest.fixture
def rounds(user: User, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many statements each database transaction admitted, or tried to."""
    counts: list[int] = []
    group = user.catalog.admissions._group
    carry_out = group._work

    def counted(asked: Sequence[Any]) -> Sequence[Any]:
        counts.append(len(asked))
        return carry_out(asked)

    monkeypatch.setattr(group, "_work", counted)
    return counts


Works = Sequence[Callable[[], Admission]]


def at_once(user: User, pool: ThreadPoolExecutor, works: Works) -> list[Future[Admission]]:
    """Has them ask while another one is being admitted, in this order; what comes of each."""
    started, go = threading.Event(), threading.Event()

    def lingers(_: CatalogView) -> list[LockRequest]:
        started.set()
        assert go.wait(60)
        return []

    first = pool.submit(
        user.catalog.admissions.admit, entrant(user), LookupRequest(), lingers, timeout_ms=0
    )
    assert started.wait(10)
    futures = []
    for number, work in enumerate(works, 1):
        futures.append(pool.submit(work))
        until(lambda: user.catalog.admissions._group.waiting == number)  # noqa: B023
    go.set()
    assert first.result(60).is_granted
    return futures


def entrant(user: User, **given: object) -> StatementTransaction:
    who = StatementTransaction(id=System_.new_id(), session_id=user.session, is_new=True, pins=True)
    return replace(who, **given)  # type: ignore[arg-type]


def database(
    table: str, mode: str, who: StatementTransaction, user: User, timeout_ms: int = 0
) -> Admission:
    """What a statement on a table is told that needs such a lock."""

    def needs(seen: CatalogView) -> list[LockRequest]:
        entries = seen.tables.values()
        return [LockRequest(resource=_table(each.number), mode=LockMode(mode)) for each in entries]

    asked = LookupRequest(names=frozenset({("default", table)}))
    return user.catalog.admissions.admit(who, asked, needs, timeout_ms=timeout_ms)


def _table(number: int) -> Resource:
    return Resource(type=ResourceType.OBJECT, database=1, entity=number)


def test_each_gets_its_own(user: User, pool: ThreadPoolExecutor, rounds: list[int]) -> None:
    whos = [entrant(user, explicit=name != "c") for name in NAMES]
    user.write(version("b", 1))
    works = [lambda n=n, who=who: database(n, "IX", who, user) for n, who in zip(NAMES, whos)]
    told = [future.result(60) for future in at_once(user, pool, works)]
    assert rounds == [1, 3]
    for name, one in zip(NAMES, told):
        assert (one.is_granted, one.is_known, one.view.instant) == (True, True, 2)
        assert one.view.tables.keys() == {("default", name)}
        assert one.view.versions == {name: int(name == "b")}
        assert one.view.databases.keys() == {"default"}
    assert [one.id for one in user.catalog.transactions.entries()] == [who.id for who in whos]
    assert [one.sequence for one in user.catalog.transactions.entries()] == [2, 2, None]
    held = {(one.transaction_id, one.resource.entity) for one in user.catalog.locks.entries()}
    numbers = {entry.name: entry.number for entry in user.catalog.tables("default")}
    assert held == {(who.id, numbers[name]) for name, who in zip(NAMES, whos)}


def test_who_stands_in_the_way_of_those_after_it(
    user: User, pool: ThreadPoolExecutor, rounds: list[int]
) -> None:
    first, second, third = (entrant(user) for _ in range(3))
    works = [
        lambda: database("a", "Sch-M", first, user),
        lambda: database("a", "IX", second, user),
        lambda: database("b", "IX", third, user),
    ]
    told = at_once(user, pool, works)
    assert told[0].result(60).is_granted
    assert told[2].result(60).is_granted
    with pytest.raises(LockTimeout, match=first.id):
        told[1].result(60)
    assert rounds == [1, 3, 1]
    assert {one.id for one in user.catalog.transactions.entries()} == {first.id, third.id}
    assert {one.transaction_id for one in user.catalog.locks.entries()} == {first.id, third.id}


def test_who_has_to_wait_gets_it_when_the_other_ends(user: User, pool: ThreadPoolExecutor) -> None:
    first, second = entrant(user), entrant(user)
    works = [
        lambda: database("a", "Sch-M", first, user),
        lambda: database("a", "IX", second, user, timeout_ms=-1),
    ]
    told = at_once(user, pool, works)
    assert told[0].result(60).is_granted
    until(lambda: len(user.catalog.locks.entries()) == 2)
    assert [one.sequence for one in user.catalog.transactions.entries()] == [1, None]
    user.ratify(version("a", 1), transaction_id=first.id)
    user.catalog.locks.forget_owner(first.id)
    assert told[1].result(60).view.versions == {"a": 1}


def test_nobody_overtakes_who_asked_before(user: User, pool: ThreadPoolExecutor) -> None:
    holder, second, third = (entrant(user) for _ in range(3))
    database("a", "IX", holder, user)
    works = [
        lambda: database("a", "Sch-M", second, user, timeout_ms=-1),
        lambda: database("a", "IX", third, user),
    ]
    told = at_once(user, pool, works)
    with pytest.raises(LockTimeout, match=second.id):
        told[1].result(60)
    user.catalog.transactions.end(holder.id)
    user.catalog.locks.forget_owner(holder.id)
    assert told[0].result(60).is_granted


def test_what_one_holds_already_is_not_in_its_way(user: User, pool: ThreadPoolExecutor) -> None:
    who = entrant(user)
    database("a", "IX", who, user)
    user.catalog.locks._granted.clear()  # as where the reply was lost
    again = replace(who, is_new=False, sequence=1)
    works = [
        lambda: database("a", "IX", again, user),
        lambda: database("b", "IX", entrant(user), user),
    ]
    for one in at_once(user, pool, works):
        assert one.result(60).is_granted
    assert len(user.catalog.locks.entries()) == 2


def test_who_is_refused_is_told_alone(
    user: User, pool: ThreadPoolExecutor, rounds: list[int]
) -> None:
    who, bad = entrant(user), entrant(user)

    def refuses(_: CatalogView) -> list[LockRequest]:
        raise InvalidRequest("there is no such table")

    admit = user.catalog.admissions.admit
    works = [
        lambda: admit(bad, LookupRequest(), refuses, timeout_ms=0),
        lambda: database("a", "IX", who, user),
    ]
    told = at_once(user, pool, works)
    assert told[1].result(60).is_granted
    with pytest.raises(InvalidRequest, match="no such table"):
        told[0].result(60)
    assert rounds == [1, 2, 1]
    assert [one.id for one in user.catalog.transactions.entries()] == [who.id]


def test_who_needs_nothing_or_more_is_told_with_the_others(
    user: User, pool: ThreadPoolExecutor, rounds: list[int]
) -> None:
    admit, who = user.catalog.admissions.admit, entrant(user)
    known = entrant(user, id=user.begin(), is_new=False)
    older = entrant(user, id=user.begin(), is_new=False, sequence=1)
    asked = LookupRequest(names=frozenset({("default", "a")}))
    works = [
        lambda: admit(entrant(user), asked, lambda _: [], timeout_ms=0),
        lambda: admit(entrant(user), asked, lambda _: None, timeout_ms=0),
        lambda: admit(known, asked, lambda _: None, timeout_ms=0),
        lambda: admit(older, asked, lambda _: None, timeout_ms=0),
        lambda: database("a", "IX", who, user),
    ]
    told = [future.result(60) for future in at_once(user, pool, works)]
    assert [(one.is_granted, one.is_known, one.view.instant) for one in told] == [
        (True, False, None),
        (False, False, None),
        (False, True, None),
        (False, True, None),
        (True, True, 1),
    ]
    assert rounds == [1, 5]
    listed = {one.id: one.sequence for one in user.catalog.transactions.entries()}
    assert listed == {known.id: None, older.id: None, who.id: 1}


def test_who_needs_no_locks_has_to_be_there_still(user: User, other: User) -> None:
    known = entrant(user, id=user.begin(), is_new=False)
    other.catalog.transactions.kill(known.id)
    with pytest.raises(Unavailable, match="was killed"):
        user.catalog.admissions.admit(known, LookupRequest(), lambda _: [], timeout_ms=0)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("is_alone", "looks"), [(True, [1, 1, 1]), (False, [4, 3, 2])])
def test_how_often_names_are_looked_at(
    user: User, monkeypatch: pytest.MonkeyPatch, is_alone: bool, looks: list[int]
) -> None:
    """Again where others may write until the locks are there, and once more where that shows. Where
    they are there already, what is expected is compared.
    """
    monkeypatch.setattr(Database, "has_single_writer", is_alone)
    who, seen = entrant(user), list[CatalogView]()

    def cost(mode: str) -> int:
        seen.clear()

        def needs(now: CatalogView) -> list[LockRequest]:
            seen.append(now)
            is_odd = len(seen) == 2 and mode == "IX"  # as if the name had gone meanwhile
            table = _table(now.tables["default", "a"].number)
            return [] if is_odd else [LockRequest(resource=table, mode=LockMode(mode))]

        asked = LookupRequest(names=frozenset({("default", "a")}))
        assert user.catalog.admissions.admit(who, asked, needs, timeout_ms=0).is_granted
        return len(seen)

    first = cost("IX")
    who = replace(who, is_new=False, sequence=1)
    assert [first, cost("Sch-M"), cost("S")] == looks


def test_who_has_no_session_any_more_is_told(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_connection: sa.Connection, _database: Database, _given: Sequence[object]) -> None:
        raise IntegrityError("INSERT", None, Exception("FOREIGN KEY"))

    monkeypatch.setattr(lock_rows, "add", fails)
    who = entrant(user)
    with pytest.raises(Unavailable, match=f"transaction {who.id} .* has no locks any more"):
        database("a", "IX", who, user)


def test_who_was_killed_is_told_alone(user: User, other: User, pool: ThreadPoolExecutor) -> None:
    who = entrant(user)
    database("a", "IX", who, user)
    other.catalog.transactions.kill(who.id)
    again = replace(who, is_new=False, sequence=1)
    works = [
        lambda: database("b", "IX", again, user),
        lambda: database("c", "IX", entrant(user), user),
    ]
    told = at_once(user, pool, works)
    assert told[1].result(60).is_granted
    with pytest.raises(Unavailable, match="was killed"):
        told[0].result(60)


@pytest.mark.usefixtures("direct")
def test_whose_instant_was_pruned_is_told_alone(user: User, pool: ThreadPoolExecutor) -> None:
    old = entrant(user)
    database("a", "IX", old, user)
    user.write(version("b", 1))
    user.write(version("c", 1))
    with write_transaction(user.catalog._database) as connection:
        connection.execute(sa.insert(counters).values(name="floor", value=2))
    again = replace(old, is_new=False, sequence=1)
    newer = entrant(user, sequence=3)
    works = [lambda: database("b", "IX", again, user), lambda: database("b", "IX", newer, user)]
    told = at_once(user, pool, works)
    assert told[1].result(60).view.versions == {"b": 1}
    with pytest.raises(Unavailable, match="too old"):
        told[0].result(60)
    assert [one.transaction_id for one in user.catalog.locks.entries()] == [old.id, newer.id]


def test_each_reads_its_own_instant(user: User, pool: ThreadPoolExecutor) -> None:
    first = entrant(user)
    database("a", "IX", first, user)
    user.write(version("b", 1))
    again = replace(first, is_new=False, sequence=1)
    works = [
        lambda: database("b", "IX", again, user),
        lambda: database("b", "IX", entrant(user), user),
    ]
    told = [future.result(60).view for future in at_once(user, pool, works)]
    assert [(one.instant, one.versions) for one in told] == [(1, {"b": 0}), (2, {"b": 1})]


def test_where_one_has_no_session_any_more_each_asks_alone(
    user: User, pool: ThreadPoolExecutor, rounds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    add = lock_rows.add

    def fails_for_several(
        connection: sa.Connection, database: Database, given: Sequence[object]
    ) -> None:
        if len(given) > 1:
            raise IntegrityError("INSERT", None, Exception("FOREIGN KEY"))
        add(connection, database, given)  # type: ignore[arg-type]

    monkeypatch.setattr(lock_rows, "add", fails_for_several)
    whos = [entrant(user), entrant(user)]
    works = [lambda n=n, who=who: database(n, "IX", who, user) for n, who in zip(NAMES, whos)]
    for one in at_once(user, pool, works):
        assert one.result(60).is_granted
    assert rounds == [1, 2, 1, 1]
    assert [one.id for one in user.catalog.transactions.entries()] == [who.id for who in whos]


@pytest.mark.parametrize("is_new", [True, False])
def test_where_the_thread_that_does_it_is_stopped_the_others_ask_again(
    user: User, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    group = user.catalog.admissions._group
    carry_out = group._work

    def stopped(asked: Sequence[Any]) -> Sequence[Any]:
        made = carry_out(asked)
        if len(asked) == 2:
            raise SystemExit
        return made

    monkeypatch.setattr(group, "_work", stopped)
    whos = [entrant(user), entrant(user)]
    if not is_new:
        whos = [replace(who, is_new=False) for who in whos]
        for who in whos:
            user.catalog.transactions.announce(who.id, user.session)
    works = [lambda n=n, who=who: database(n, "IX", who, user) for n, who in zip(NAMES, whos)]
    told = at_once(user, pool, works)
    ends = [future.exception(60) for future in told]
    assert sorted(map(str, map(type, ends))) == ["<class 'NoneType'>", "<class 'SystemExit'>"]
    [granted] = [future.result(60) for future in told if future.exception(60) is None]
    assert granted.is_granted


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_what_a_statement_asks_of_the_database(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names; lease, two counters, locks, what is newest; the transaction with its instant, locks.

    One that was there before says what it reads from now on in a statement of its own.
    """
    sent: list[sa.Connection] = []
    cursor = prepared._cursor

    def noted(connection: sa.Connection) -> DBAPICursor:
        sent.append(connection)
        return cursor(connection)

    monkeypatch.setattr(prepared, "_cursor", noted)

    def cost(who: StatementTransaction) -> int:
        sent.clear()
        assert database("a", "IX", who, user).is_granted
        return len(sent)

    begin = 1
    first = entrant(user)
    assert cost(first) == begin + 1 + 5 + 2
    assert cost(entrant(user, explicit=False)) == begin + 1 + 5 + 2
    begun = entrant(user)
    user.catalog.transactions.begin(begun.id, user.session)
    assert cost(replace(begun, is_new=False)) == begin + 1 + 4 + 2
    sent.clear()
    assert user.catalog.admissions.admit(
        entrant(user), LookupRequest(), lambda _: [], timeout_ms=0
    ).is_granted
    assert len(sent) == begin
    # Names, whether it is there still, what is newest; its instant's floor and versions.
    assert cost(replace(first, is_new=False, sequence=1)) == begin + 1 + 2 + 2


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.usefixtures("direct")
def test_the_turn_to_write_comes_before_what_is_held_while_writing(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who leads a group has the turn when it asks for these: the other order would be a circle."""
    transactions, publications = user.catalog.transactions, user.catalog.ledger._publications
    held: list[tuple[bool, bool]] = []

    @contextmanager
    def turn() -> Iterator[None]:
        held.append((transactions._registering.locked(), publications._writing.locked()))
        yield

    who = entrant(user)
    transactions.announce(who.id, user.session)
    publications.defer(who.id, {"a": 1})
    monkeypatch.setattr(user.catalog._database, "turn", turn)
    transactions.register_announced()
    publications.write_deferred()
    assert held == [(False, False)] * 2


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_who_asks_while_another_process_writes_is_taken_along(
    user: User, pool: ThreadPoolExecutor, rounds: list[int]
) -> None:
    """The first waits for its turn; the second comes meanwhile."""
    group, told = user.catalog.admissions._group, []
    with user.catalog._database.turn():
        for number, name in enumerate(("a", "b"), 1):
            told.append(pool.submit(database, name, "IX", entrant(user), user))
            until(lambda: group.waiting == number)  # noqa: B023
    assert all(one.result(60).is_granted for one in told)
    assert rounds == [2]


@pytest.mark.usefixtures("direct")
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("is_reversed", [0, 1])
def test_the_newest_instant_is_no_other_counter(user: User, is_reversed: int) -> None:
    """In whichever order the database has them."""
    for _ in range(9):
        user.begin()
    user.write(version("a", 1))
    user.write(version("b", 1))
    with user.catalog._database.reading() as connection:
        connection.exec_driver_sql(f"PRAGMA reverse_unordered_selects={is_reversed}")
        now = newest(connection, ["a", "c"])()
        connection.exec_driver_sql("PRAGMA reverse_unordered_selects=0")
    assert (now.instant, now.versions) == (3, {"a": 1, "c": 0})
