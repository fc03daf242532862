"""Leases of a catalog in a store: what they cost, and whose clock decides."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.catalog.ledgers import User, prepared, version
from tests.catalog.locking import wants
from tests.catalog.replicated.stores import FaultyStore
from txlake.catalog import Catalog
from txlake.catalog.replicated.database import ReplicatedDatabase
from txlake.catalog.replicated.leases import HEARTBEAT_FOLDER
from txlake.errors import Unavailable
from txlake.ports import Ratified, TurnTaken
from txlake.storage import open_store
from txlake.system import System

LEASE_MS = 90_000


class Skewed(System):
    """A host whose time of day is hours off."""

    def __init__(self, by_ms: int) -> None:
        super().__init__()
        self._by_ms = by_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._by_ms


class Hosts:
    """Processes on one catalog, each with its own clock and account of requests."""

    def __init__(self, folder: Path) -> None:
        prepared(folder.as_uri())
        self.folder = folder
        self.catalogs: list[Catalog] = []

    def user(self, skew_ms: int = 0) -> tuple[User, FaultyStore]:
        store = FaultyStore(open_store(self.folder))
        catalog = Catalog(
            "",
            Skewed(skew_ms),
            lease_ms=LEASE_MS,
            open_database=lambda _, system, **__: ReplicatedDatabase(
                store, system, lease_ms=LEASE_MS
            ),
        )
        catalog.sessions._heartbeat.stop()
        self.catalogs.append(catalog)
        return User(catalog), store

    def heartbeats(self) -> list[Path]:
        return sorted((self.folder / HEARTBEAT_FOLDER).glob("*"))

    def age(self, seconds: float) -> None:
        """Let all heartbeats be so much older, by the store's times."""
        for path in self.heartbeats():
            then = path.stat().st_mtime - seconds
            os.utime(path, (then, then))


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(tmp_path / "catalog")
    yield made
    for catalog in made.catalogs:
        catalog.close()


def test_an_idle_session_costs_nothing(hosts: Hosts) -> None:
    user, store = hosts.user()
    store.requests.clear()
    user.catalog.sessions.open()
    user.catalog.sessions.renew()
    assert not store.requests.keys() & {"put", "put_if_absent", "list", "delete"}
    assert hosts.heartbeats() == []
    user.create("a")
    user.write(version("a", 1))
    store.requests.clear()
    for _ in range(3):
        user.catalog.sessions.renew()
    assert "put" not in store.requests


def test_a_holder_writes_one_heartbeat_at_a_time(hosts: Hosts) -> None:
    user, store = hosts.user()
    user.begin()
    assert len(hosts.heartbeats()) == 1
    store.requests.clear()
    user.begin()  # the heartbeat is young enough
    assert (store.requests["put_if_absent"], store.requests["put"]) == (1, 0)
    hosts.age(50)
    user.catalog.sessions.renew()
    assert store.requests["put"] == 1
    [heartbeat] = hosts.heartbeats()
    assert time.time() - heartbeat.stat().st_mtime < 30


def test_an_old_heartbeat_is_written_before_the_first_row(hosts: Hosts) -> None:
    user, _ = hosts.user()
    user.catalog.transactions.end(user.begin())
    database = user.catalog._database
    assert isinstance(database, ReplicatedDatabase)
    database.leases._beat_ms -= LEASE_MS
    hosts.age(90)
    user.catalog.sessions.close(user.session)
    other = User(user.catalog)
    other.begin()
    [heartbeat] = hosts.heartbeats()
    assert time.time() - heartbeat.stat().st_mtime < 30


@pytest.mark.parametrize("skew_ms", [-7_200_000, 7_200_000])
def test_the_stores_times_decide(hosts: Hosts, skew_ms: int) -> None:
    holder, _ = hosts.user()
    watcher, _ = hosts.user(skew_ms)
    held = holder.begin()
    for _ in range(2):
        assert held in watcher.catalog.transactions.others_open("").ids
    hosts.age(60)
    assert held in watcher.catalog.transactions.others_open("").ids
    hosts.age(40)
    assert held not in watcher.catalog.transactions.others_open("").ids


def test_a_holder_without_a_heartbeat_is_dead(hosts: Hosts) -> None:
    holder, _ = hosts.user()
    watcher, _ = hosts.user()
    holder.create("a")
    held = holder.begin()
    [heartbeat] = hosts.heartbeats()
    heartbeat.unlink()
    assert watcher.catalog.transactions.others_open("").ids == frozenset()
    with pytest.raises(Unavailable, match="was ended while it was open"):
        holder.ratify(version("a", 1), transaction_id=held)
    assert isinstance(holder.ratify(version("a", 1)), Ratified)


def test_a_holder_that_came_after_the_look_is_alive(hosts: Hosts) -> None:
    """What a look at the heartbeats didn't know of isn't taken for dead."""
    early, _ = hosts.user()
    early.begin()
    watcher, _ = hosts.user()
    assert len(watcher.catalog.transactions.others_open("").ids) == 1
    late, _ = hosts.user()
    held = late.begin()
    database = watcher.catalog._database
    assert isinstance(database, ReplicatedDatabase)
    database.leases.observe = lambda *_, **__: False  # type: ignore[method-assign]
    assert held in watcher.catalog.transactions.others_open("").ids


def test_a_closed_catalog_leaves_no_heartbeat(hosts: Hosts) -> None:
    user, _ = hosts.user()
    user.begin()
    user.catalog.close()
    assert hosts.heartbeats() == []


def test_what_a_dead_holder_held_is_listed_nowhere(hosts: Hosts) -> None:
    holder, _ = hosts.user()
    watcher, _ = hosts.user()
    held = holder.begin()
    holder.catalog.locks.acquire(holder.session, held, wants("IX"), 0)
    lists = (
        watcher.catalog.locks.entries,
        watcher.catalog.transactions.entries,
        watcher.catalog.sessions.entries,
    )
    assert [len(entries()) for entries in lists] == [1, 1, 1]
    hosts.age(100)
    for entries in lists:
        database = watcher.catalog._database
        assert isinstance(database, ReplicatedDatabase)
        database.leases._observed_ms = float("-inf")
        assert len(entries()) == 0


@pytest.mark.parametrize("list_name", ["locks", "transactions", "sessions"])
def test_each_list_looks_at_the_leases(hosts: Hosts, list_name: str) -> None:
    holder, _ = hosts.user()
    watcher, _ = hosts.user()
    held = holder.begin()
    holder.catalog.locks.acquire(holder.session, held, wants("IX"), 0)
    hosts.age(100)
    assert getattr(watcher.catalog, list_name).entries() == []


@pytest.mark.parametrize("asks", ["reserve", "ratify"])
def test_a_dead_holders_turn_is_taken_over(hosts: Hosts, asks: str) -> None:
    holder, _ = hosts.user()
    watcher, _ = hosts.user()
    holder.create("a")
    assert holder.catalog.ledger.reserve(holder.begin(), ["a"])
    mine = watcher.begin()
    assert not watcher.catalog.ledger.reserve(mine, ["a"])
    hosts.age(100)
    database = watcher.catalog._database
    assert isinstance(database, ReplicatedDatabase)
    database.leases._observed_ms = float("-inf")
    if asks == "reserve":
        assert watcher.catalog.ledger.reserve(mine, ["a"])
    else:
        made = watcher.ratify(version("a", 1), transaction_id=mine)
        assert isinstance(made, Ratified)


def test_a_living_holders_turn_is_not_taken_over(hosts: Hosts) -> None:
    holder, _ = hosts.user()
    watcher, _ = hosts.user()
    holder.create("a")
    assert holder.catalog.ledger.reserve(holder.begin(), ["a"])
    assert isinstance(watcher.ratify(version("a", 1)), TurnTaken)


def test_a_session_has_locks_of_its_own(hosts: Hosts) -> None:
    """Its row comes with the first of them, and both end with it."""
    user, _ = hosts.user()
    other, _ = hosts.user()
    user.catalog.locks.acquire(user.session, None, wants("S"), 0)
    [entry] = other.catalog.locks.entries()
    assert entry.session_id == user.session
    user.catalog.sessions.close(user.session)
    assert other.catalog.locks.entries() == []


def test_who_waits_for_a_dead_holders_lock_gets_it(hosts: Hosts) -> None:
    holder, _ = hosts.user()
    watcher, _ = hosts.user()
    held, mine = holder.begin(), watcher.begin()
    holder.catalog.locks.acquire(holder.session, held, wants("Sch-M"), 0)
    hosts.age(100)
    watcher.catalog.locks.acquire(watcher.session, mine, wants("IX"), 3_000)
    assert [entry.transaction_id for entry in watcher.catalog.locks.entries()] == [mine]


def test_a_renewal_that_fails_is_logged(hosts: Hosts, caplog: pytest.LogCaptureFixture) -> None:
    user, store = hosts.user()
    user.begin()

    def refuse(*_: object) -> None:
        raise Unavailable("the store is away")

    store.put = refuse  # type: ignore[method-assign,assignment]
    user.catalog.sessions.renew()
    assert "were not renewed: the store is away" in caplog.text


def test_a_heartbeat_ends_what_nobody_holds(hosts: Hosts) -> None:
    user, _ = hosts.user()
    user.catalog.transactions.abandon(user.begin())
    user.catalog.sessions.renew()
    assert user.catalog.transactions.entries() == []


def test_a_heartbeat_prunes(hosts: Hosts) -> None:
    user, _ = hosts.user()
    user.begin()
    pruned: list[object] = []
    user.catalog.sessions._upkeep = lambda: pruned.append(None)
    user.catalog.sessions.renew()
    assert len(pruned) == 1


def test_a_session_without_a_row_is_closed_without_a_request(hosts: Hosts) -> None:
    user, store = hosts.user()
    idle = user.catalog.sessions.open()
    store.requests.clear()
    user.catalog.sessions.close(idle)
    assert store.requests == {}
    user.begin()
    user.catalog.sessions.close(user.session)
    store.requests.clear()
    user.catalog.sessions.close(user.session)
    assert store.requests == {}
