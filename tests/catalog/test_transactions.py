"""Open transactions: what is noted of one, and nothing of another."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from tests.catalog.ledgers import User, living, selected
from txlake.catalog.database import CommitUnsettled, Database
from txlake.catalog.fence import Fence
from txlake.catalog.group_commit import GroupCommit, Interrupted
from txlake.catalog.lookup import LookupRequest
from txlake.catalog.sessions import Sessions
from txlake.catalog.transactions import Transactions
from txlake.catalog.unregistered import CatalogReply
from txlake.conflict.locking import Owner
from txlake.errors import Unavailable
from txlake.system import System


@pytest.fixture
def user(sqlite_user: User) -> User:
    return sqlite_user


def refuse(*_: object) -> None:
    raise Unavailable("catalog: it rains")


def test_what_one_reads_is_noted_of_it_alone(user: User) -> None:
    transactions = user.catalog.transactions
    reads, other = user.begin(), user.begin()
    user.create("a")
    assert transactions.pin(reads) == 1
    assert {entry.id: entry.sequence for entry in transactions.entries()} == {reads: 1, other: None}
    user.create("b")
    assert transactions.pin("nobody") == 2
    assert {entry.id: entry.sequence for entry in transactions.entries()} == {reads: 1, other: None}


def test_the_level_that_one_asks_for_is_noted_of_it_alone(user: User) -> None:
    transactions = user.catalog.transactions
    one, other = user.begin(), user.begin()
    transactions.set_isolation(one, "serializable")
    levels = {entry.id: entry.isolation for entry in transactions.entries()}
    assert levels == {one: "serializable", other: None}


def test_one_is_killed_and_the_other_is_not(user: User) -> None:
    first, second = user.begin(), user.begin()
    transactions = user.catalog.transactions
    transactions.kill(first)
    for require in (transactions.require_open, transactions.require_unkilled):
        with pytest.raises(Unavailable, match=f"{first} was killed"):
            require(first)
        require(second)
    assert living(user.catalog.transactions) == {second}


@pytest.mark.parametrize(
    "end",
    [
        lambda user, one: user.catalog.transactions.end(one),
        lambda user, one: user.catalog.transactions.kill(one),
        lambda user, one: user.catalog.locks.release(one),
    ],
)
def test_turns_of_others_stay(
    user: User, end: Callable[[User, str], None], sqlite_url: str
) -> None:
    user.create("a", "b")
    ends, stays = user.begin(), user.begin()
    for one, name in ((ends, "a"), (stays, "b")):
        assert user.catalog.ledger.reserve(one, [name])
    end(user, ends)
    assert selected(sqlite_url, "SELECT transaction_id FROM txlake_locks") == [(stays,)]


def test_each_abandoned_one_is_ended_once(user: User) -> None:
    transactions = user.catalog.transactions
    gone, stays = [user.begin(), user.begin()], user.begin()
    for one in gone:
        transactions.abandon(one)
    assert transactions.end_abandoned() == gone
    assert transactions.end_abandoned() == []
    assert [entry.id for entry in transactions.entries()] == [stays]


class Holder:
    """Who began a transaction."""


def test_a_transaction_ends_when_its_holder_is_gone(user: User) -> None:
    transactions, holder, other = user.catalog.transactions, Holder(), Holder()
    transactions.begin("gone", user.session, holder=holder)
    transactions.begin("stays", user.session, holder=other)
    transactions.begin("ratified", user.session, holder=holder)
    transactions.forget("ratified")
    assert transactions.end_abandoned() == []
    del holder
    assert transactions.end_abandoned() == ["gone"]
    assert living(transactions) == {"stays", "ratified"}
    transactions.end("stays")
    del other
    assert transactions.end_abandoned() == []


def test_a_heartbeat_ends_what_nobody_holds(
    user: User, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sessions, transactions, holder = user.catalog.sessions, user.catalog.transactions, Holder()
    transactions.begin("gone", user.session, holder=holder)
    transactions.abandon("gone")
    session = sessions.open(holder)
    with monkeypatch.context() as patched:
        patched.setattr(user.catalog._database, "write_relaxed", refuse)
        sessions.renew()
    assert "the next heartbeat repeats it" in caplog.text
    sessions.renew()
    assert living(transactions) == set()
    assert session in {one.id for one in sessions.entries()}
    del holder
    sessions.renew()
    assert {one.id for one in sessions.entries()} == {user.session}


def test_a_session_that_was_closed_is_not_ended_again(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions, holder = user.catalog.sessions, Holder()
    sessions.close(sessions.open(holder))
    del holder
    monkeypatch.setattr(user.catalog._database, "write_relaxed", refuse)
    sessions.end_abandoned()


def test_a_heartbeat_keeps_no_transactions(sqlite_url: str) -> None:
    database = Database(sqlite_url, System())
    sessions = Sessions(database, 30_000)
    transactions = Transactions(database, Fence("a catalog"), sessions)
    gone = weakref.ref(transactions)
    del transactions
    gc.collect()
    assert gone() is None
    sessions.renew()
    database.close()


def test_without_abandoned_ones_the_database_is_not_asked(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user.catalog._database, "write_relaxed", refuse)
    assert user.catalog.transactions.end_abandoned() == []


def test_while_all_live_nobody_waits_for_who_asks_for_the_oldest(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    oldest = user.begin()
    transactions = user.catalog.transactions
    [entry] = transactions.entries()
    monkeypatch.setattr(user.catalog._database, "write", refuse)
    assert entry.id == oldest
    assert transactions.others_open("").begin_ms == entry.begin_ms


class Stopped:
    """A group whose leader is stopped after it did what is asked."""

    def __init__(self, group: GroupCommit[Any, Any]) -> None:
        self._group = group
        self._is_first = True

    def submit(self, asked: object) -> object:
        done = self._group.submit(asked)
        if self._is_first:
            self._is_first = False
            raise Interrupted
        return done


def test_a_beginning_whose_leader_was_stopped_is_one(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions = user.catalog.transactions
    monkeypatch.setattr(transactions, "_begin_group", Stopped(transactions._begin_group))
    number = transactions.begin("x", user.session)
    assert [(entry.id, entry.number) for entry in transactions.entries()] == [("x", number)]


# --- announced ones -------------------------------------------------------------------------------


def announced(user: User, holder: object = None) -> str:
    transaction_id = System().new_id()
    user.catalog.transactions.announce(
        transaction_id, user.session, isolation="Snapshot", read_only=True, holder=holder
    )
    return transaction_id


def test_an_announced_one_is_noted_when_somebody_asks(user: User) -> None:
    first, second = announced(user), announced(user)
    listed = user.catalog.transactions.entries()
    assert [one.id for one in listed] == [first, second]
    assert {(one.isolation, one.read_only, one.explicit) for one in listed} == {
        ("Snapshot", True, True)
    }
    assert user.catalog.transactions.entries() == listed
    assert not user.catalog.transactions.is_announced(first)


@pytest.mark.parametrize(
    "asked",
    [
        lambda of, one: of.set_isolation(one, "Serializable"),
        lambda of, one: of.pin(one),
        lambda of, one: of.kill(one),
        lambda of, _: of.register_announced(),
    ],
)
def test_an_announced_one_is_noted_where_something_is_noted_of_it(
    user: User, sqlite_other: User, asked: Callable[[Transactions, str], object]
) -> None:
    one = announced(user)
    assert sqlite_other.catalog.transactions.entries() == []
    asked(user.catalog.transactions, one)
    assert [each.id for each in sqlite_other.catalog.transactions.entries()] == [one]


def test_one_is_registered_once_by_threads_that_share_a_database_transaction(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each had seen it announced before the other registered it."""
    one, transactions = announced(user), user.catalog.transactions
    rows = transactions._rows_to_register()
    transactions.register_announced()
    with monkeypatch.context() as patched:
        patched.setattr(transactions, "_rows_to_register", lambda *_: rows)
        transactions.register_announced()
    writers = user.catalog.unregistered
    reply = CatalogReply(
        lookup=LookupRequest(), required_locks=lambda _: (), locks=(), ids=frozenset()
    )
    two = announced(user)
    [other_row] = transactions._rows_to_register()
    for each, row in ((one, rows[0]), (two, other_row)):
        writers.add(Owner(session=user.session, transaction=each), row, 0, reply)
    monkeypatch.setattr(transactions, "is_announced", lambda _: True)
    writers.register()
    assert writers.has(one), "its locks aren't noted yet"
    assert not writers.has(two)
    assert [each.id for each in transactions.entries()] == [one, two]


def test_an_announced_one_that_ends_asks_for_nothing(
    user: User, sqlite_other: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions = user.catalog.transactions
    with monkeypatch.context() as patched:
        for kind in ("reading", "write_relaxed", "write"):
            patched.setattr(user.catalog._database, kind, refuse)
        one, holder = announced(user), Holder()
        held = announced(user, holder)
        for each in (one, held):
            transactions.require_unkilled(each)
            transactions.require_open(each)
        transactions.end(one)
        del holder
        gc.collect()
        assert transactions.end_abandoned() == [held]
        transactions.register_announced()
    assert transactions.entries() == []
    with pytest.raises(Unavailable, match="ended"):
        transactions.require_open(one)


def test_an_announced_one_stays_so_where_it_could_not_be_noted(user: User) -> None:
    one, transactions = announced(user), user.catalog.transactions

    def take(error: BaseException) -> int:
        with transactions.announced_rows([one]) as rows:
            if rows:
                raise error
        return len(rows)

    for error in (Unavailable("away"), CommitUnsettled("lost")):
        with pytest.raises(type(error)):
            take(error)
    assert not take(AssertionError("it may have been noted"))
    assert transactions.entries() == []
    one = announced(user)
    with pytest.raises(SystemExit):
        take(SystemExit())
    assert not take(AssertionError("it may have been noted"))


def test_announced_ones_stay_so_where_the_list_failed(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, transactions = announced(user), user.catalog.transactions
    with monkeypatch.context() as patched:
        patched.setattr(user.catalog._database, "write_relaxed", refuse)
        with pytest.raises(Unavailable, match="it rains"):
            transactions.entries()
    assert [each.id for each in transactions.entries()] == [one]


def test_without_announced_ones_the_database_is_not_asked(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user.catalog._database, "write_relaxed", refuse)
    user.catalog.transactions.register_announced()


class Guarded(dict[str, Any]):
    """What is taken out of it is taken by who has the lock."""

    def __init__(self, of: Transactions) -> None:
        self._lock = of._registering

    def pop(self, *given: Any) -> Any:
        assert self._lock.locked()
        return super().pop(*given)

    def values(self) -> Any:
        assert self._lock.locked()
        return super().values()


def test_an_announced_one_is_noted_by_one_thread(user: User) -> None:
    transactions = user.catalog.transactions
    transactions._announced = Guarded(transactions)
    first, second, third = (announced(user) for _ in range(3))
    transactions.end(second)
    with transactions.announced_rows([second]) as rows:
        assert rows == []
        assert not transactions._registering.locked()
    with transactions.announced_rows([first]) as rows:
        assert [row["id"] for row in rows] == [first, third]
        assert transactions._registering.locked()
    fourth = announced(user)
    assert [one.id for one in transactions.entries()] == [fourth]
    assert not transactions._registering.locked()
