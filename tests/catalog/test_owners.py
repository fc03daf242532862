"""Sessions and transactions: leases, what ends with them, who sees them."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable

import pytest

from tests.catalog.ledgers import User, end_lease, living, version
from tests.catalog.locking import wants
from txlake.catalog import Catalog
from txlake.catalog.heartbeat import Heartbeat
from txlake.errors import Unavailable
from txlake.ports import Ratified
from txlake.system import System


class Skewed(System):
    """A clock that goes wrong by so many milliseconds."""

    def __init__(self, by_ms: int) -> None:
        super().__init__()
        self._by_ms = by_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._by_ms


@pytest.fixture
def user(opened: Callable[[], Catalog]) -> User:
    return User(opened())


@pytest.fixture
def other(opened: Callable[[], Catalog]) -> User:
    return User(opened())


def test_sessions_are_listed_by_all(user: User, other: User) -> None:
    for each in (user, other):
        each.begin()
    first, second = sorted(
        other.catalog.sessions.entries(), key=lambda entry: entry.id != user.session
    )
    assert (first.id, second.id) == (user.session, other.session)
    assert (first.host, first.process) == (socket.gethostname(), os.getpid())
    assert (first.length_ms, first.warned) == (30_000, False)
    user.catalog.sessions.close(user.session)
    assert other.catalog.sessions.entries() == [second]


def test_a_catalog_that_is_closed_ends_its_sessions(user: User, other: User) -> None:
    user.begin()
    other.begin()
    other.catalog.close()
    assert [entry.id for entry in user.catalog.sessions.entries()] == [user.session]
    user.catalog.close()
    assert user.catalog.transactions.entries() == []


def test_transactions_are_listed_by_all(user: User, other: User) -> None:
    transactions = user.catalog.transactions
    number = transactions.begin(
        "x", user.session, name="n" * 300, isolation="snapshot", read_only=True, explicit=False
    )
    later = other.begin()
    other.create("a")
    assert transactions.pin("x") == 1
    transactions.kill("x")
    first, second = other.catalog.transactions.entries()
    assert (first.id, first.number, first.session_id) == ("x", number, user.session)
    assert (first.name, first.isolation, first.sequence) == ("n" * 255, "snapshot", 1)
    assert (first.read_only, first.explicit, first.state) == (True, False, "killed")
    assert (first.process, first.host) == (os.getpid(), socket.gethostname())
    assert (second.id, second.number, second.state) == (later, number + 1, "active")
    assert (second.name, second.isolation, second.sequence) == (None, None, None)
    assert (second.read_only, second.explicit) == (False, True)
    transactions.end("x")
    transactions.end("x")
    assert [entry.id for entry in transactions.entries()] == [later]


def test_a_transaction_lives_until_it_is_ended_or_killed(user: User, other: User) -> None:
    here, there = user.catalog.transactions, other.catalog.transactions
    ended, killed = user.begin(), user.begin()
    assert ended in living(other.catalog.transactions)
    here.end(ended)
    assert ended not in living(other.catalog.transactions)
    with pytest.raises(Unavailable, match=f"{ended} was ended while it was open"):
        there.require_open(ended)
    here.require_open(killed)
    assert there.kill(killed)
    with pytest.raises(Unavailable, match=f"{killed} was killed"):
        here.require_open(killed)
    assert killed not in living(user.catalog.transactions)
    assert here.pin(killed) == here.pin("nobody") == 0
    assert [(entry.state, entry.sequence) for entry in here.entries()] == [("killed", None)]
    assert not there.kill("nobody")


def test_an_abandoned_transaction_ends_when_the_database_can_be_reached(
    user: User, other: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise Unavailable("catalog: it rains")

    transactions = user.catalog.transactions
    assert transactions.end_abandoned() == []
    gone = [user.begin(), user.begin()]
    for one in gone:
        transactions.abandon(one)
    with monkeypatch.context() as patched:
        patched.setattr(user.catalog._database, "write_relaxed", refuse)
        with pytest.raises(Unavailable):
            transactions.end_abandoned()
    assert [entry.id for entry in other.catalog.transactions.entries()] == gone
    assert transactions.end_abandoned() == gone
    assert other.catalog.transactions.entries() == []


def test_a_session_that_is_not_heard_of_is_void(user: User, other: User, url: str) -> None:
    transaction_id = user.begin()
    other.begin()
    end_lease(url, user.session)
    assert transaction_id not in living(other.catalog.transactions)
    [entry] = other.catalog.transactions.entries()
    assert entry.session_id == other.session
    assert [entry.id for entry in other.catalog.sessions.entries()] == [other.session]


def test_a_late_heartbeat_is_in_time_while_nobody_asked(user: User, url: str) -> None:
    transaction_id = user.begin()
    end_lease(url, user.session)
    user.catalog.sessions.renew()
    assert transaction_id in living(user.catalog.transactions)


def test_a_session_that_was_found_dead_goes_on_with_new_transactions(
    user: User, other: User, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    lost = user.begin()
    end_lease(url, user.session)
    assert other.catalog.transactions.others_open("").begin_ms is None
    assert lost not in living(user.catalog.transactions)
    user.catalog.sessions.renew()
    assert f"sessions [{user.session}] weren't heard of for 30000 ms" in caplog.text
    assert lost not in living(user.catalog.transactions)
    again = user.begin()
    assert again in living(user.catalog.transactions)
    assert lost not in living(user.catalog.transactions)


def test_the_oldest_transaction_that_may_own_files(user: User, other: User, url: str) -> None:
    transactions = other.catalog.transactions
    assert transactions.others_open("").begin_ms is None
    killed, oldest, newer = user.begin(), user.begin(), other.begin()
    times = {entry.id: entry.begin_ms for entry in transactions.entries()}
    transactions.kill(killed)
    assert transactions.others_open("").begin_ms == times[oldest]
    assert transactions.others_open(oldest).begin_ms == times[newer]
    end_lease(url, user.session)
    assert transactions.others_open("").begin_ms == times[newer]
    # Who was passed over stays dead.
    user.catalog.sessions.renew()
    assert oldest not in living(user.catalog.transactions)
    transactions.end(newer)
    assert transactions.others_open("").begin_ms is None


def test_leases_can_not_be_renewed_for_a_while(
    user: User, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise Unavailable("catalog: it rains")

    user.begin()
    for method in ("write_relaxed", "keep_alive"):
        monkeypatch.setattr(user.catalog._database, method, refuse)
    user.catalog.sessions.renew()
    assert "were not renewed: catalog: it rains" in caplog.text
    monkeypatch.undo()
    assert len(user.catalog.sessions.entries()) == 1


def test_leases_go_by_the_databases_clock(postgres_url: str) -> None:
    early, late = (Catalog(postgres_url, Skewed(by)) for by in (-300_000, 300_000))
    users = [User(early), User(late)]
    begun = [user.begin() for user in users]
    for user in users:
        assert len(user.catalog.sessions.entries()) == 2
        assert living(user.catalog.transactions) >= set(begun)
        assert user.catalog.transactions.others_open("").begin_ms is not None
    first, second = users[0].create("a"), users[1].create("b")
    assert first.time_ms <= second.time_ms < first.time_ms + 60_000
    for user, one, name in zip(users, begun, "ab", strict=True):
        assert user.catalog.ledger.reserve(one, [name])
        assert isinstance(user.ratify(version(name, 1), transaction_id=one), Ratified)
    for user in users:
        user.catalog.close()


@pytest.fixture
def beats() -> threading.Semaphore:
    return threading.Semaphore(0)


class Beating:
    """Counts its beats."""

    def __init__(self, beats: threading.Semaphore) -> None:
        self._beats = beats
        self.heart = Heartbeat(self.beat, 1)

    def beat(self) -> None:
        self._beats.release()


def test_a_heart_beats_until_it_is_stopped(beats: threading.Semaphore) -> None:
    others = hearts()
    beating = Beating(beats)
    beating.heart.stop()
    beating.heart.start()
    assert not beats.acquire(blocking=False)
    beating = Beating(beats)
    beating.heart.start()
    beating.heart.start()
    assert all(beats.acquire(timeout=30) for _ in range(3))
    assert len(hearts() - others) == 1
    beating.heart.stop()
    assert hearts() <= others


def test_a_heart_does_not_keep_its_owner(beats: threading.Semaphore) -> None:
    beating, others = Beating(beats), set(threading.enumerate())
    beating.heart.start()
    assert beats.acquire(timeout=30)
    [thread] = [
        one for one in threading.enumerate() if one.name == "txlake-heartbeat" and one not in others
    ]
    del beating
    thread.join(30)
    assert not thread.is_alive()


def test_an_open_session_has_a_heart(url: str) -> None:
    others = hearts()
    catalog = Catalog(url, System())
    catalog.sessions.open()
    catalog.sessions.open()
    assert len(hearts() - others) == 1
    catalog.close()
    assert hearts() <= others


def hearts() -> set[threading.Thread]:
    """Those of the process: tests beside may have lakes open."""
    return {one for one in threading.enumerate() if one.name == "txlake-heartbeat"}


def test_a_session_that_was_closed_has_no_locks_any_more(sqlite_user: User) -> None:
    sqlite_user.catalog.sessions.close(sqlite_user.session)
    with pytest.raises(Unavailable, match="no locks any more"):
        sqlite_user.catalog.locks.acquire(sqlite_user.session, None, wants("S"), 0)
    assert sqlite_user.catalog.locks.entries() == []
