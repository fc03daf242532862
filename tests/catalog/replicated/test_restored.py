"""An older copy of a catalog's log is put back while processes work."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.catalog.ledgers import User, version
from tests.catalog.replicated.test_retention import Ticking, entries, names, put
from tests.commit.log_of import FakeStore
from txlake.catalog import Catalog
from txlake.catalog.replicated.database import ReplicatedDatabase
from txlake.catalog.replicated.entries import LogEntry, encode, entry_path, snapshot_path
from txlake.catalog.schema import upgrade
from txlake.errors import CorruptTable, Unavailable
from txlake.ports import Ratified

pytestmark = pytest.mark.usefixtures("direct")

CHECK_MS = 5_000


@pytest.fixture
def clock() -> Ticking:
    return Ticking()


@pytest.fixture
def store(clock: Ticking) -> FakeStore:
    return FakeStore(clock)


Opened = Callable[[], ReplicatedDatabase]


@pytest.fixture
def opened(store: FakeStore, clock: Ticking) -> Iterator[Opened]:
    databases: list[ReplicatedDatabase] = []

    def open_one() -> ReplicatedDatabase:
        database = ReplicatedDatabase(store, clock)
        if not databases:
            database.write(lambda connection: upgrade(database, connection))
        databases.append(database)
        return database

    yield open_one
    for database in databases:
        database.close()


def restore(store: FakeStore, copy: dict[str, tuple[bytes, int]]) -> None:
    store.files.clear()
    store.files.update(copy)


def test_who_works_notices_it_within_seconds(
    opened: Opened, store: FakeStore, clock: Ticking
) -> None:
    a = opened()
    put(a, "kept")
    copy = dict(store.files)
    put(a, "gone")
    restore(store, copy)
    assert names(a) == ["gone", "kept"]
    clock.time_ms += CHECK_MS
    assert names(a) == ["kept"]
    put(a, "new")
    assert names(opened()) == ["kept", "new"]


def test_its_own_entries_hide_nothing(opened: Opened, store: FakeStore, clock: Ticking) -> None:
    """They follow a gap, and so does each of them the one before."""
    a, b = opened(), opened()
    put(a, "kept")
    copy = dict(store.files)
    put(a, "gone")
    clock.time_ms += CHECK_MS
    assert names(a) == names(b) == ["gone", "kept"]
    restore(store, copy)
    put(a, "stray")
    put(b, "other stray")
    clock.time_ms += CHECK_MS
    assert names(a) == names(b) == names(opened()) == ["kept"]


def test_a_put_without_a_look_before_it_is_taken_back(
    opened: Opened, store: FakeStore, clock: Ticking, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = opened()
    put(a, "kept")
    copy = dict(store.files)
    put(a, "gone")
    restore(store, copy)
    clock.time_ms += CHECK_MS
    monkeypatch.setattr(a._turns, "wait", lambda: None)
    before = entries(store)
    put(a, "new")
    assert entries(store) == [*before, before[-1] + 1]
    assert names(a) == names(opened()) == ["kept", "new"]


def test_a_check_costs_no_more_than_its_gets(
    opened: Opened, store: FakeStore, clock: Ticking
) -> None:
    a = opened()
    put(a, "x")
    clock.time_ms += CHECK_MS
    names(a)
    put(a, "y")
    clock.time_ms += CHECK_MS
    for gets in (3, 1):  # the newest entry, that of the last check, and the next
        store.requests.clear()
        names(a)
        assert [kind for kind, _ in store.requests] == ["get"] * gets


def test_a_long_pause_is_no_reason_to_load_anew(
    opened: Opened, store: FakeStore, clock: Ticking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry of the last check may have been deleted as old."""
    a = opened()
    put(a, "x")
    put(a, "y")
    clock.time_ms += 3_600_000
    del store.files[entry_path(1)]
    monkeypatch.setattr(a.log, "load", lambda: pytest.fail("there is no reason"))
    put(a, "z")
    assert names(a) == ["x", "y", "z"]


def test_strays_are_deleted_after_a_gap(opened: Opened, store: FakeStore, clock: Ticking) -> None:
    a, b = opened(), opened()
    put(a, "x")
    assert names(b) == ["x"]
    put(b, "y")
    end = b.log.position.number
    stray = LogEntry(id=b"2" * 16, previous=b"1" * 16, writer="other", time_ms=1)
    claim = LogEntry(id=b"3" * 16, previous=b"", writer="other", time_ms=1)
    for number, entry in {end + 2: claim, end + 3: stray, end + 9: stray}.items():
        store.put(entry_path(number), encode(entry))
    store.put(snapshot_path(end), b"")
    store.put(snapshot_path(end + 9), b"")
    a.log.delete_strays()  # it hasn't read the newest entry
    assert entries(store)[-2:] == [end, end + 2]
    assert [found.path for found in store.list("snapshots")] == [snapshot_path(end)]


def test_strays_are_left_while_others_go_on(
    opened: Opened, store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What seemed to follow a gap may follow entries that came after the listing."""
    a = opened()
    stray = LogEntry(id=b"2" * 16, previous=b"1" * 16, writer="other", time_ms=1)
    end = a.log.position.number
    store.put(entry_path(end + 2), encode(stray))
    listed = store.list

    def list_late(prefix: str, start_after: str | None = None) -> object:
        found = list(listed(prefix, start_after))
        store.put(entry_path(end + 1), encode(stray))
        return iter(found)

    monkeypatch.setattr(store, "list", list_late)
    a.log.delete_strays()
    monkeypatch.setattr(store, "list", listed)
    assert entries(store)[-2:] == [end + 1, end + 2]


def test_an_instant_that_went_back_is_said_and_recovered(store: FakeStore, clock: Ticking) -> None:
    def user() -> User:
        made = Catalog(
            "",
            clock,
            open_database=lambda _, system, **__: ReplicatedDatabase(store, system),
        )
        made.sessions._heartbeat.stop()
        return User(made)

    working = user()
    working.create("a")
    copy = dict(store.files)
    assert isinstance(working.ratify(version("a", 1)), Ratified)
    clock.time_ms += CHECK_MS
    assert working.catalog.ledger.sequence() > 0
    restore(store, copy)
    made = working.ratify(version("a", 2))
    assert isinstance(made, Ratified)  # it hasn't noticed, and the entry follows a gap
    clock.time_ms += CHECK_MS
    with pytest.raises(CorruptTable, match=r"restored from a backup.*lake\.recover\(\)"):
        working.ratify(version("a", 3))
    recovering = user()
    recovering.catalog.recovery.begin(recovering.catalog.lake_id, 2, recovering.session)
    numbers = entries(store)
    assert numbers == list(range(1, len(numbers) + 1))
    with pytest.raises((CorruptTable, Unavailable), match="connect again"):
        working.ratify(version("a", 3))
    for each in (working, recovering):
        each.catalog.close()
