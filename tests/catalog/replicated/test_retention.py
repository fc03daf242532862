"""Deletion of old entries of a catalog's log: what goes, and that nobody misses it.

`SEEDS=1000 python -m pytest tests/catalog/replicated/test_retention.py` for more schedules.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.catalog.replicated.frozen_world import MINUTE_MS, RETENTION_MS, Violation, run
from tests.commit.log_of import Clock, FakeStore
from txlake.catalog.database import CommitUnsettled
from txlake.catalog.replicated import log as log_module
from txlake.catalog.replicated import retention
from txlake.catalog.replicated.database import ReplicatedDatabase
from txlake.catalog.replicated.entries import (
    LogEntry,
    decode,
    encode,
    entry_path,
    snapshot_path,
)
from txlake.catalog.replicated.leases import HEARTBEAT_FOLDER
from txlake.catalog.replicated.log import CatalogLog, Superseded
from txlake.catalog.replicated.retention import Surplus, expired_entries, find_surplus
from txlake.catalog.schema import upgrade
from txlake.errors import CorruptTable, InvalidRequest, TxlakeError, Unavailable
from txlake.lake import connecting
from txlake.ports import PutOutcome, StoredObject
from txlake.settings import Settings
from txlake.storage import open_store
from txlake.system import System

pytestmark = pytest.mark.usefixtures("direct")

SEEDS = int(os.environ.get("SEEDS", "25"))
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


# --- what is deleted ------------------------------------------------------------------------------


def snapshots(**ages_ms: int) -> list[StoredObject]:
    """Snapshots at entries, given as `at_100=age`."""
    return [
        StoredObject(snapshot_path(int(name[3:])), 1, DAY_MS - age_ms)
        for name, age_ms in ages_ms.items()
    ]


def paths(*numbers: int) -> list[str]:
    return [snapshot_path(number) for number in numbers]


OLD = HOUR_MS
OLDER = HOUR_MS + 1


@pytest.mark.parametrize(
    ("present", "retention_ms", "surplus"),
    [
        (snapshots(), HOUR_MS, Surplus([], 0, [])),
        (snapshots(at_1=OLD, at_2=OLD, at_3=OLD), HOUR_MS, Surplus([], 0, [])),
        (
            snapshots(at_1=OLDER, at_2=OLD, at_3=OLD, at_4=OLD),
            HOUR_MS,
            Surplus([], 2, paths(1)),
        ),
        # The third newest is too young to be the floor, and the one before is the only old one.
        (snapshots(at_1=OLD, at_2=OLD - 1, at_3=0, at_4=0), HOUR_MS, Surplus([], 0, [])),
        (
            snapshots(at_1=OLDER, at_2=OLD, at_3=OLD - 1, at_4=0, at_5=0),
            HOUR_MS,
            Surplus([], 2, paths(1)),
        ),
        # Of those that expire later, one for each eighth of the retention, and the newest three.
        (
            snapshots(at_1=1000, at_2=900, at_3=800, at_4=700, at_5=600, at_6=500, at_7=0),
            HOUR_MS,
            Surplus(paths(2, 3, 4), 0, []),
        ),
        (
            snapshots(at_1=20 * MINUTE_MS, at_2=10 * MINUTE_MS, at_3=0, at_4=0, at_5=0),
            HOUR_MS,
            Surplus([], 0, []),
        ),
        # Entries that are kept for good.
        (snapshots(at_1=OLD, at_2=OLD, at_3=0, at_4=0), None, Surplus(paths(1))),
        # What the caller hasn't read yet.
        (
            snapshots(at_1=OLDER, at_2=OLD, at_3=0, at_4=0, at_90=OLD, at_91=OLD, at_92=OLD),
            HOUR_MS,
            Surplus([], 2, paths(1)),
        ),
    ],
)
def test_what_may_be_deleted(
    present: list[StoredObject], retention_ms: int | None, surplus: Surplus
) -> None:
    assert find_surplus(present, 89, DAY_MS, retention_ms) == surplus


def test_entries_expire_in_order_up_to_the_first_young_one() -> None:
    ages_ms = {3: OLD, 5: OLD, 6: 0, 7: OLD}
    listed = [StoredObject("log/alien", 1, 0)]
    listed += [StoredObject(entry_path(n), 1, DAY_MS - age) for n, age in ages_ms.items()]
    for floor, expected in ((9, [3, 5]), (5, [3]), (3, [])):
        found = list(expired_entries(listed, floor, DAY_MS, HOUR_MS))
        assert found == [entry_path(number) for number in expected]


@pytest.mark.parametrize("retention_ms", [3_599_999, 0, -1, True, "24 h", 1e9])
def test_a_retention_that_can_not_be_used(tmp_path: Path, retention_ms: int) -> None:
    settings = Settings(catalog_log_retention_ms=retention_ms)
    with pytest.raises(InvalidRequest, match=r"catalog_log_retention_ms: .* at least 3600000"):
        connecting._catalog("warehouse", open_store(tmp_path), System(), settings, {})


def test_the_setting_reaches_the_log(tmp_path: Path) -> None:
    settings = Settings(catalog_log_retention_ms=DAY_MS)
    catalog = connecting._catalog("warehouse", open_store(tmp_path), System(), settings, {})
    database = catalog._database
    assert isinstance(database, ReplicatedDatabase)
    assert database.log._cleanup._retention_ms == DAY_MS
    catalog.close()


# --- processes that stop at any request -----------------------------------------------------------


def test_nobody_misses_an_entry_or_believes_a_ghost() -> None:
    worlds = [run(seed) for seed in range(SEEDS)]
    assert sum(world.deleted for world in worlds) > 20 * SEEDS
    assert sum(len(world.told) for world in worlds) > 20 * SEEDS


def _without_fence(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(CatalogLog, "_has_entry", lambda *_: True)


def _by_the_monotonic_clock_alone(patched: pytest.MonkeyPatch) -> None:
    def is_sure(log: CatalogLog) -> bool:
        return log._sure is not None and log._clocks()[0] - log._sure[0] < log_module._SURE_MS

    patched.setattr(CatalogLog, "_is_sure", is_sure)


def _without_a_check_after_the_put(patched: pytest.MonkeyPatch) -> None:
    append, has_entry = CatalogLog.append, CatalogLog._has_entry
    checks: dict[CatalogLog, int] = {}

    def counting_append(log: CatalogLog, entry: object) -> object:
        checks[log] = 0
        try:
            return append(log, entry)  # type: ignore[arg-type]
        finally:
            del checks[log]

    def first_check(log: CatalogLog, position: object) -> bool:
        checks[log] = checks.get(log, -9) + 1
        return checks[log] > 1 or has_entry(log, position)  # type: ignore[arg-type]

    patched.setattr(CatalogLog, "append", counting_append)
    patched.setattr(CatalogLog, "_has_entry", first_check)


def _run_again_after_a_doubtful_put(patched: pytest.MonkeyPatch) -> None:
    unsettled = CatalogLog._unsettled

    def superseded(log: CatalogLog, reason: str) -> Exception:
        return Superseded() if "stood still" in reason else unsettled(log, reason)

    patched.setattr(CatalogLog, "_unsettled", superseded)


@pytest.mark.parametrize(
    "weaken",
    [
        _without_fence,
        _by_the_monotonic_clock_alone,
        _without_a_check_after_the_put,
        _run_again_after_a_doubtful_put,
    ],
)
def test_a_weaker_rule_is_found(
    weaken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    weaken(monkeypatch)
    assert any(_is_violated(seed) for seed in range(200))


def _is_violated(seed: int) -> bool:
    try:
        run(seed)
    except Violation:
        return True
    return False


# --- one log --------------------------------------------------------------------------------------


class Deleting(FakeStore):
    """Deletes, and stops a test that deletes several objects at once."""

    refusal: Exception | None = None

    def delete(self, paths: object) -> None:
        if self.refusal is not None:
            raise self.refusal
        listed = list(paths)  # type: ignore[call-overload]
        entries = [path for path in listed if path.startswith("log/")]
        assert len(entries) < 2, "a bulk deletion has no order"
        super().delete(listed)


class Ticking(Clock):
    """No two moments are the same."""

    ticks = 0

    def monotonic_ms(self) -> float:
        self.ticks += 1
        return super().monotonic_ms() + self.ticks / 1000


@pytest.fixture
def clock() -> Clock:
    return Ticking()


@pytest.fixture
def store(clock: Clock) -> Deleting:
    return Deleting(clock)


Opened = Callable[..., ReplicatedDatabase]


@pytest.fixture
def opened(store: Deleting, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    """Open one more process's database; snapshots are written when the test says so."""
    monkeypatch.setattr(ReplicatedDatabase, "_write_snapshot_beside", lambda _: None)
    databases: list[ReplicatedDatabase] = []

    def open_one(retention_ms: int | None = RETENTION_MS) -> ReplicatedDatabase:
        database = ReplicatedDatabase(store, clock, retention_ms=retention_ms)
        if not databases:
            database.write(lambda connection: upgrade(database, connection))
        databases.append(database)
        return database

    yield open_one
    for database in databases:
        database.close()


def put(database: ReplicatedDatabase, name: str) -> None:
    insert = sa.text("INSERT INTO txlake_facts VALUES (:name, '')")
    database.write(lambda connection: connection.execute(insert, {"name": name}))


def names(database: ReplicatedDatabase) -> list[str]:
    with database.reading() as connection:
        return list(connection.scalars(sa.text("SELECT name FROM txlake_facts ORDER BY name")))


def tidy(database: ReplicatedDatabase) -> None:
    database.log.write_snapshot()
    database._delete_surplus()


def work_for_hours(database: ReplicatedDatabase, clock: Clock, begin: int = 0) -> None:
    """Write an entry and a snapshot each 20 minutes, for three hours."""
    for number in range(begin, begin + 9):
        clock.time_ms += 20 * MINUTE_MS
        put(database, f"{number:03}")
        tidy(database)


def entries(store: FakeStore) -> list[int]:
    return [int(found.path[-20:]) for found in store.list("log")]


def test_old_entries_go_one_after_the_other(opened: Opened, store: Deleting, clock: Clock) -> None:
    a = opened()
    work_for_hours(a, clock)
    deleted = [path for kind, path in store.requests if kind == "delete" and "log/" in path]
    assert deleted == [entry_path(number) for number in range(1, len(deleted) + 1)]
    assert entries(store) == list(range(len(deleted) + 1, a.log.position.number + 1))
    oldest = store.files[entry_path(entries(store)[0])][1]
    assert HOUR_MS <= clock.time_ms - oldest < 2 * HOUR_MS
    assert len(list(store.list("snapshots"))) < 8
    assert names(opened()) == names(a)


def test_without_the_setting_none_goes(opened: Opened, store: Deleting, clock: Clock) -> None:
    a = opened(None)
    work_for_hours(a, clock)
    assert entries(store) == list(range(1, a.log.position.number + 1))
    assert len(list(store.list("snapshots"))) == 3


def test_the_rest_of_a_large_deletion_is_deleted_later(
    opened: Opened, store: Deleting, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = opened()
    monkeypatch.setattr(retention, "_DELETED_MAX", 0)
    work_for_hours(a, clock)
    assert entries(store)[0] == 1
    monkeypatch.setattr(retention, "_DELETED_MAX", 2)
    for first in (3, 5):
        tidy(a)
        assert entries(store)[0] == first


def test_a_closed_log_deletes_nothing_more(opened: Opened, store: Deleting, clock: Clock) -> None:
    a, b = opened(None), opened(None)
    work_for_hours(a, clock)
    names(b)
    b.log._cleanup._retention_ms = RETENTION_MS
    work_for_hours(a, clock, 20)
    b.close()
    b.log.delete_surplus()
    assert entries(store)[0] == 1


def test_who_was_away_works_on_from_a_snapshot(
    opened: Opened, store: Deleting, clock: Clock
) -> None:
    a, reader, writer = opened(), opened(), opened()
    put(a, "first")
    assert names(reader) == names(writer) == ["first"]
    work_for_hours(a, clock)
    assert entries(store)[0] > writer.log.position.number + 1
    put(writer, "late")
    assert names(reader) == names(a) == names(opened())
    assert "late" in names(a)
    assert writer.log.position == a.log.position


def test_a_process_that_was_away_puts_no_entry_before_it_has_looked(
    opened: Opened, store: Deleting, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, late = opened(), opened()
    put(a, "first")
    names(late)
    work_for_hours(a, clock)
    monkeypatch.setattr(late._turns, "wait", lambda: None)
    before = entries(store)
    put(late, "late")
    assert entries(store) == [*before, before[-1] + 1]


def test_a_put_after_which_the_process_stood_still_is_looked_up(
    opened: Opened, store: Deleting, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry may be in the log, and deleted since."""
    a, late = opened(), opened()
    put(a, "first")
    names(late)
    real = store.put_if_absent

    def put_and_stand_still(path: str, data: bytes) -> object:
        monkeypatch.setattr(store, "put_if_absent", real)
        outcome = real(path, data)
        work_for_hours(a, clock)
        return outcome

    monkeypatch.setattr(store, "put_if_absent", put_and_stand_still)
    with pytest.raises(CommitUnsettled, match="run the transaction again"):
        put(late, "late")
    assert "late" in names(late)
    assert names(late) == names(a)


def test_a_put_that_the_client_sent_twice_is_looked_up_too(
    opened: Opened, store: Deleting, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store says that the number is taken, by the entry of the first request."""
    a, late = opened(), opened()
    put(a, "first")
    names(late)
    real = store.put_if_absent

    def put_twice_and_stand_still(path: str, data: bytes) -> object:
        monkeypatch.setattr(store, "put_if_absent", real)
        real(path, data)
        outcome = real(path, data)
        work_for_hours(a, clock)
        other = LogEntry(id=b"2" * 16, previous=b"1" * 16, writer="other", time_ms=0)
        real(path, encode(other))
        return outcome

    monkeypatch.setattr(store, "put_if_absent", put_twice_and_stand_still)
    with pytest.raises(CommitUnsettled):
        put(late, "late")
    assert names(late).count("late") == names(a).count("late") == 1


def test_a_deleted_entry_never_comes_back(
    opened: Opened, store: Deleting, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that repeats a put makes another entry: the replicas at the first one find out."""
    a, late = opened(), opened()
    put(a, "first")
    names(late)
    real, ids = store.put_if_absent, list[bytes]()

    def lose_the_reply(path: str, data: bytes) -> object:
        outcome = real(path, data)
        if not path.startswith("log/") or decode(data, path).writer != late.log.writer:
            return outcome
        ids.append(decode(data, path).id)
        if len(ids) > 1:
            return outcome
        work_for_hours(a, clock)
        return PutOutcome.UNKNOWN

    monkeypatch.setattr(store, "put_if_absent", lose_the_reply)
    with pytest.raises(CommitUnsettled, match="run the transaction again"):
        put(late, "late")
    assert len(set(ids)) == len(ids) > 1
    assert names(late).count("late") == names(a).count("late") == 1


def test_who_opened_an_empty_log_and_stood_still_makes_no_new_one(
    opened: Opened, store: Deleting, clock: Clock
) -> None:
    late = ReplicatedDatabase(store, clock)
    a = opened()
    work_for_hours(a, clock)
    assert entries(store)[0] > 1
    late.write(lambda connection: upgrade(late, connection))
    assert names(late) == names(a)
    late.close()


def test_a_log_without_its_beginning_and_a_snapshot_is_damaged(
    opened: Opened, store: Deleting, clock: Clock
) -> None:
    work_for_hours(opened(), clock)
    for found in list(store.list("snapshots")):
        del store.files[found.path]
    with pytest.raises(CorruptTable, match=r"expected log/0*1 or a snapshot.*lake\.recover"):
        opened()


def test_a_snapshot_whose_entry_is_gone_is_passed_over(
    opened: Opened, store: Deleting, clock: Clock
) -> None:
    """It was written by a process that stood still while an older catalog was put back."""
    a = opened(None)
    put(a, "kept")
    a.log.write_snapshot()
    put(a, "gone")
    a.log.write_snapshot()
    del store.files[entry_path(a.log.position.number)]
    assert names(opened()) == ["kept"]


def test_snapshots_beside_which_a_process_opens_may_be_replaced(
    opened: Opened, store: Deleting, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that it has listed, and their entries, are gone when it reads them."""
    a = opened()
    work_for_hours(a, clock)
    get = store.get

    def get_late(path: str) -> bytes:
        monkeypatch.setattr(store, "get", get)
        data = get(path)
        work_for_hours(a, clock, 20)
        return data

    monkeypatch.setattr(store, "get", get_late)
    assert names(opened()) == names(a)


def test_a_store_that_forbids_deletion_hurts_nothing(
    opened: Opened, store: Deleting, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    a = opened()
    store.refusal = InvalidRequest("s3://b: access denied")
    work_for_hours(a, clock)
    assert len(names(a)) == 9
    assert names(opened()) == names(a)
    [record] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "aren't deleted by this process: s3://b: access denied" in record.getMessage()


@pytest.mark.parametrize("error", [Unavailable("the store is away"), CorruptTable("odd")])
def test_a_deletion_that_fails_is_tried_again(
    opened: Opened,
    store: Deleting,
    clock: Clock,
    error: TxlakeError,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    a = opened()
    store.refusal = error
    work_for_hours(a, clock)
    assert f"stay for now: {error}" in caplog.text
    store.refusal = None
    tidy(a)
    assert entries(store)[0] > 1


def test_heartbeats_of_dead_processes_go(opened: Opened, store: Deleting, clock: Clock) -> None:
    a = opened()
    for name in ("dead", "holder"):
        store.put(f"{HEARTBEAT_FOLDER}/{name}", b"")
    insert = sa.text(
        "INSERT INTO txlake_sessions (id, host, process, begin_ms, lease_ms, holder) "
        "VALUES (1, 'host', 1, 0, 0, 'holder')"
    )
    a.write(lambda connection: connection.execute(insert))
    a.leases.beat()
    clock.time_ms += DAY_MS - 1
    store.put(f"{HEARTBEAT_FOLDER}/living", b"")
    tidy(a)
    assert f"{HEARTBEAT_FOLDER}/dead" in store.files
    clock.time_ms += 1
    store.put(f"{HEARTBEAT_FOLDER}/living", b"")
    tidy(a)
    left = {found.path.rpartition("/")[2] for found in store.list(HEARTBEAT_FOLDER)}
    assert left == {"holder", "living", a.leases.holder}
