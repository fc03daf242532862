"""Leases while clocks are set: no living session ends, and no dead one stays."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.catalog.ledgers import User, execute, living, prepared, selected, version
from txlake.catalog import Catalog
from txlake.catalog.database import Database
from txlake.catalog.owners import reap_due
from txlake.errors import Unavailable
from txlake.ports import Ratified, TurnTaken
from txlake.system import System

HOUR_MS = 3_600_000
LEASE_MS = 30_000
WARNED = "SELECT id FROM txlake_sessions WHERE warned ORDER BY id"


class Clocks(System):
    """A machine's clocks, which go on when they are told to alone."""

    def __init__(self) -> None:
        super().__init__()
        self.time_of_day_ms = 1_800_000_000_000
        self.up_ms = 5 * HOUR_MS

    def now_ms(self) -> int:
        return self.time_of_day_ms

    def monotonic_ms(self) -> float:
        return self.up_ms


class ServerDatabase(Database):
    """A server whose clock says what the table `server_clock` holds."""

    def now(self) -> sa.ColumnElement[int]:
        return sa.literal_column("(SELECT ms FROM server_clock)", sa.BigInteger)

    def lease_now(self) -> sa.ColumnElement[int]:
        return self.now()

    @property
    def leases_may_step(self) -> bool:
        return True


@pytest.fixture
def url(database_url: str) -> str:
    """Here databases alone: a store's leases are objects."""
    return database_url


class World:
    """A catalog, its clock, and processes with a session each, which renew when they are told to.

    `is_server`: leases go by the time of day, whichever database it is; else by the machine's.
    """

    def __init__(self, url: str, *, is_server: bool) -> None:
        self.url = url
        self.clocks = Clocks()
        self.is_server = is_server
        self.users: list[User] = []
        if is_server:
            execute(
                url,
                "CREATE TABLE server_clock (ms BIGINT)",
                f"INSERT INTO server_clock VALUES ({self.clocks.time_of_day_ms})",
            )

    def user(self, lease_ms: int = LEASE_MS) -> User:
        """One more process."""
        kind: Any = ServerDatabase if self.is_server else Database
        catalog = Catalog(self.url, self.clocks, lease_ms=lease_ms, open_database=kind)
        catalog.sessions._heartbeat.stop()
        self.users.append(User(catalog))
        return self.users[-1]

    def set_clock(self, by_ms: int) -> None:
        """Set the time of day; no time goes by."""
        self.clocks.time_of_day_ms += by_ms
        if self.is_server:
            execute(self.url, f"UPDATE server_clock SET ms = ms + {by_ms}")

    def pass_time(self, ms: int) -> None:
        """Lets time go by."""
        self.clocks.up_ms += ms
        self.set_clock(ms)

    def close(self) -> None:
        for user in self.users:
            user.catalog.close()


@pytest.fixture
def server(url: str) -> Iterator[World]:
    made = World(prepared(url), is_server=True)
    yield made
    made.close()


@pytest.fixture
def machine(sqlite_url: str) -> Iterator[World]:
    made = World(sqlite_url, is_server=False)
    yield made
    made.close()


@pytest.fixture(params=["machine", "server", "PostgreSQL"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    kind = request.param
    if kind == "PostgreSQL":
        url = request.getfixturevalue("postgres_url")
    else:
        url = prepared(f"sqlite:///{tmp_path / 'lake.db'}")
    made = World(url, is_server=kind != "machine")
    yield made
    made.close()


def look(by: User) -> None:
    """Somebody needs to know who is dead."""
    database = by.catalog._database
    database.run_shielded(lambda: reap_due(database))


def is_open(transaction_id: str, to: User) -> bool:
    """Whether a transaction counts for who asks what is open, as VACUUM does."""
    return transaction_id in to.catalog.transactions.others_open("").ids


@pytest.mark.parametrize("hours", [-3, 3])
def test_a_living_sessions_transaction_outlives_a_step(world: World, hours: int) -> None:
    user, other = world.user(), world.user()
    user.create("a")
    transaction_id = user.begin()
    for _ in range(3):
        world.set_clock(hours * HOUR_MS)
        assert is_open(transaction_id, other)
        world.pass_time(LEASE_MS // 3)
        assert is_open(transaction_id, other)
        user.catalog.sessions.renew()
        other.catalog.sessions.renew()
    made = user.ratify(version("a", 1), transaction_id=transaction_id)
    assert isinstance(made, Ratified)


def test_a_transaction_is_ratified_just_after_a_step(world: World) -> None:
    user = world.user()
    user.create("a")
    transaction_id = user.begin()
    world.set_clock(3 * HOUR_MS)
    made = user.ratify(version("a", 1), transaction_id=transaction_id)
    assert isinstance(made, Ratified)


@pytest.mark.parametrize("hours", [-3, 0, 3])
def test_a_dead_session_ends_soon_after_a_step(world: World, hours: int) -> None:
    dead, other = world.user(), world.user()
    dead.create("a")
    transaction_id = dead.begin()
    assert dead.catalog.ledger.reserve(transaction_id, ["a"])
    world.set_clock(hours * HOUR_MS)
    assert is_open(transaction_id, other)
    for _ in range(2):  # a lease, and a last one
        world.pass_time(LEASE_MS)
        other.catalog.sessions.renew()
        look(other)
    assert transaction_id not in living(other.catalog.transactions)
    assert not is_open(transaction_id, other)
    assert selected(world.url, "SELECT id FROM txlake_sessions") == [(other.session,)]
    assert isinstance(other.ratify(version("a", 1)), Ratified)
    with pytest.raises(Unavailable, match="longer than its lease"):
        dead.ratify(version("a", 2), transaction_id=transaction_id)


def test_a_turn_to_commit_is_not_held_for_as_long_as_a_step(server: World) -> None:
    dead, other = server.user(), server.user()
    dead.create("a")
    assert dead.catalog.ledger.reserve(dead.begin(), ["a"])
    server.set_clock(-3 * HOUR_MS)
    assert isinstance(other.ratify(version("a", 1)), TurnTaken)
    other.catalog.sessions.renew()
    server.pass_time(LEASE_MS)
    assert isinstance(other.ratify(version("a", 1)), Ratified)


def test_where_no_clock_is_set_there_is_no_last_lease(machine: World) -> None:
    dead, other = machine.user(), machine.user()
    transaction_id = dead.begin()
    machine.pass_time(LEASE_MS - 1)
    assert is_open(transaction_id, other)
    machine.pass_time(1)
    assert not is_open(transaction_id, other)


def test_only_the_living_are_listed(machine: World) -> None:
    dead, other = machine.user(), machine.user()
    dead.begin()
    machine.pass_time(LEASE_MS)
    begun = other.begin()
    assert [entry.id for entry in other.catalog.sessions.entries()] == [other.session]
    assert [entry.id for entry in other.catalog.transactions.entries()] == [begun]


def test_a_machine_that_was_started_again_has_no_living_sessions_from_before(
    machine: World,
) -> None:
    dead = machine.user()
    transaction_id = dead.begin()
    machine.clocks.up_ms = 0
    other = machine.user()
    assert is_open(transaction_id, other)
    machine.pass_time(LEASE_MS)
    assert not is_open(transaction_id, other)


def test_a_lease_that_is_too_long_is_cut_and_no_other(machine: World) -> None:
    dead, other = machine.user(), machine.user()
    before = other.catalog.sessions.entries()
    ahead = f"UPDATE txlake_sessions SET lease_ms = lease_ms + 1 WHERE id = {dead.session}"
    execute(machine.url, ahead)
    assert other.catalog.sessions.entries() != before
    look(other)
    assert other.catalog.sessions.entries() == before
    machine.pass_time(1)
    execute(machine.url, ahead, ahead)
    look(other)
    cut = [
        one.lease_ms - was.lease_ms for one, was in zip(other.catalog.sessions.entries(), before)
    ]
    assert cut == [1, 0]


def test_a_heartbeat_cuts_leases_and_leaves_the_late_their_time(machine: World) -> None:
    late, other = machine.user(), machine.user()
    transaction_id = late.begin()
    machine.clocks.up_ms -= HOUR_MS
    other.catalog.sessions.renew()
    machine.pass_time(LEASE_MS + HOUR_MS - 1)
    other.catalog.sessions.renew()
    late.catalog.transactions.require_open(transaction_id)
    machine.pass_time(1)
    other.catalog.sessions.renew()
    with pytest.raises(Unavailable, match="was ended"):
        late.catalog.transactions.require_open(transaction_id)


def test_a_last_lease_is_half_as_long(server: World) -> None:
    dead, other = server.user(), server.user()
    transaction_id = dead.begin()
    server.pass_time(LEASE_MS)
    look(other)
    assert selected(server.url, WARNED) == [(dead.session,), (other.session,)]
    other.catalog.sessions.renew()
    assert selected(server.url, WARNED) == [(dead.session,)]
    server.pass_time(LEASE_MS // 2 - 1)
    assert is_open(transaction_id, other)
    server.pass_time(1)
    assert not is_open(transaction_id, other)


def test_who_renews_in_its_last_lease_has_another(server: World) -> None:
    late, other = server.user(), server.user()
    transaction_id = late.begin()
    for _ in range(2):
        server.pass_time(LEASE_MS)
        other.catalog.sessions.renew()
        look(other)
        assert selected(server.url, WARNED) == [(late.session,)]
        late.catalog.sessions.renew()
        assert selected(server.url, WARNED) == []
    assert is_open(transaction_id, other)


def test_a_transaction_that_begins_in_a_last_lease_renews_it(server: World) -> None:
    late, other = server.user(), server.user()
    server.pass_time(LEASE_MS)
    look(other)
    late.begin()
    assert selected(server.url, WARNED) == [(other.session,)]


def test_a_last_lease_that_a_step_back_made_long_is_cut(server: World) -> None:
    dead, other = server.user(), server.user()
    transaction_id = dead.begin()
    server.pass_time(LEASE_MS)
    assert is_open(transaction_id, other)
    server.set_clock(-3 * HOUR_MS)
    assert is_open(transaction_id, other)
    server.pass_time(LEASE_MS)
    assert not is_open(transaction_id, other)


def test_a_long_lease_is_not_cut_by_who_has_short_ones(world: World) -> None:
    user, other = world.user(10 * LEASE_MS), world.user()
    transaction_id = user.begin()
    assert user.catalog.sessions.entries()[0].length_ms == 10 * LEASE_MS
    look(other)
    world.pass_time(9 * LEASE_MS)
    assert is_open(transaction_id, other)


def test_the_time_of_a_ratification_is_the_time_of_day(world: World) -> None:
    user = world.user()
    world.set_clock(HOUR_MS)
    made = user.create("a")
    assert made.time_ms == world.clocks.time_of_day_ms
    transaction_id = user.begin()
    [entry] = user.catalog.transactions.entries()
    assert (entry.id, entry.begin_ms) == (transaction_id, world.clocks.time_of_day_ms)


def test_the_system_has_the_machines_clock() -> None:
    """Leases are compared by processes: theirs is one clock, and no process's own."""
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) / 1_000_000
    now = System().monotonic_ms()
    assert before <= now <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) / 1_000_000
