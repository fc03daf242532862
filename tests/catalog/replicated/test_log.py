"""A catalog's log in a store: who is first, lost and late replies, cuts, snapshots."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.catalog.ledgers import User, version
from tests.catalog.replicated.stores import FaultyStore, Local, is_lost, is_refused, is_unanswered
from txlake.catalog import Catalog
from txlake.catalog.database import CommitUnsettled
from txlake.catalog.replicated import log as log_module
from txlake.catalog.replicated import replica
from txlake.catalog.replicated.database import ReplicatedDatabase, looking_once
from txlake.catalog.replicated.entries import LogEntry, decode, encode, entry_path
from txlake.catalog.schema import upgrade
from txlake.errors import CorruptTable, InvalidRequest, OutcomeUnknown, Unavailable
from txlake.ports import PutOutcome, Ratified, Store, StoredObject
from txlake.storage import open_store
from txlake.system import System

LIMIT_S = 60.0

pytestmark = pytest.mark.usefixtures("direct")


class Unwaiting(System):
    """Doesn't wait."""

    def wait_ms(self, duration_ms: float) -> None:
        pass


@pytest.fixture
def folder(tmp_path: Path) -> Store:
    return open_store(tmp_path / "catalog")


Process = Callable[[], ReplicatedDatabase]


@pytest.fixture
def store(folder: Store) -> FaultyStore:
    return FaultyStore(folder)


@pytest.fixture
def process(store: FaultyStore) -> Iterator[Process]:
    """Open one more process's database."""
    opened: list[ReplicatedDatabase] = []

    def open_it() -> ReplicatedDatabase:
        database = ReplicatedDatabase(store, Unwaiting())
        if not opened:
            database.write(lambda connection: upgrade(database, connection))
        opened.append(database)
        return database

    yield open_it
    for database in opened:
        database.close()


def put(database: ReplicatedDatabase, name: str, value: str = "") -> None:
    """Insert a fact."""
    insert = sa.text("INSERT INTO txlake_facts VALUES (:name, :value)")
    database.write(lambda connection: connection.execute(insert, {"name": name, "value": value}))


def names(database: ReplicatedDatabase) -> list[str]:
    with database.reading() as connection:
        return list(connection.scalars(sa.text("SELECT name FROM txlake_facts ORDER BY name")))


def entries(store: Store) -> list[str]:
    return [found.path for found in store.list("log")]


def test_each_sees_at_once_what_the_other_wrote(process: Process) -> None:
    a, b = process(), process()
    for number in range(5):
        put(a, f"a{number}")
        put(b, f"b{number}")
        assert names(a) == names(b)
    assert len(names(a)) == 10
    assert a.log.position == b.log.position


def test_one_change_is_one_put_and_a_look_is_one_get(process: Process, store: FaultyStore) -> None:
    a = process()
    put(a, "first")
    store.requests.clear()
    put(a, "x")
    assert store.requests == {"put_if_absent": 1}
    store.requests.clear()
    names(a)
    assert store.requests == {"get": 1}


def test_what_a_process_knows_costs_no_request(process: Process, store: FaultyStore) -> None:
    a, b = process(), process()
    put(a, "x")
    store.requests.clear()
    facts = sa.text("SELECT name FROM txlake_facts")
    for known in ([], ["x"]):
        with b.reading_known() as connection:
            assert list(connection.scalars(facts)) == known
        assert not store.requests
        assert names(b) == ["x"]
        store.requests.clear()


def test_the_entries_of_others_are_requested_in_growing_numbers(
    process: Process, store: FaultyStore
) -> None:
    a, b = process(), process()
    for number in range(1 + 4 + 16):
        put(a, f"{number:03}")
    rounds = [threading.Barrier(size) for size in (1, 4, 16, 64)]
    coming = iter([barrier for barrier in rounds for _ in range(barrier.parties)])
    store.meets = lambda: next(coming).wait(LIMIT_S)
    assert len(names(b)) == 1 + 4 + 16
    assert next(coming, None) is None


def windows_of(database: ReplicatedDatabase, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list of how many entries are requested at once from here on."""
    windows: list[int] = []
    apply_next = database.log.apply_next

    def noted(window: int = 1) -> bool:
        windows.append(window)
        return apply_next(window)

    monkeypatch.setattr(database.log, "apply_next", noted)
    return windows


def test_a_look_requests_as_many_entries_as_the_last_ones_found(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = process(), process()
    windows = windows_of(b, monkeypatch)
    for number in range(10):
        if number < 4:
            for each in range(3):
                put(a, f"{number} {each}")
        assert len(names(b)) == 3 * min(number + 1, 4)
    assert windows == [1, 4, *[4] * 3, 4, 2, *[1] * 4]


def test_no_more_than_a_few_entries_are_expected(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = process(), process()
    for number in range(30):
        put(a, f"{number:03}")
    names(b)
    windows = windows_of(b, monkeypatch)
    names(b)
    assert windows == [1 + log_module._EXPECTED_MAX]


def test_work_that_was_too_late_runs_again_on_the_newest_state(process: Process) -> None:
    a, b = process(), process()
    put(a, "counter", "0")
    seen: list[str] = []

    def add(connection: sa.Connection) -> str:
        read = sa.text("SELECT value FROM txlake_facts WHERE name = 'counter'")
        value = str(connection.scalar(read))
        if not seen:
            change = sa.text("UPDATE txlake_facts SET value = '10' WHERE name = 'counter'")
            b.write(lambda other: other.execute(change))
        seen.append(value)
        connection.execute(
            sa.text("UPDATE txlake_facts SET value = :value WHERE name = 'counter'"),
            {"value": str(int(value) + 1)},
        )
        return value

    assert a.write(add) == "10"
    assert seen == ["0", "10"]
    with b.reading() as connection:
        assert connection.scalar(sa.text("SELECT value FROM txlake_facts")) == "11"


@pytest.mark.parametrize("refuses", [True, False])
def test_what_is_refused_or_does_nothing_is_checked_on_the_newest_state(
    process: Process, refuses: bool
) -> None:
    a, b = process(), process()
    found: list[int] = []

    def look(connection: sa.Connection) -> int:
        count = int(connection.scalar(sa.text("SELECT count(*) FROM txlake_facts")) or 0)
        found.append(count)
        if len(found) == 1:
            put(b, "there")
        if count == 0 and refuses:
            raise InvalidRequest("there is no fact")
        return count

    assert a.write(look) == 1
    assert found == [0, 1]


def test_a_refusal_on_the_newest_state_is_raised_and_writes_nothing(
    process: Process, store: FaultyStore
) -> None:
    a = process()
    before = entries(store)

    def refuse(connection: sa.Connection) -> None:
        connection.execute(sa.text("INSERT INTO txlake_facts VALUES ('a', 'b')"))
        raise InvalidRequest("no")

    with pytest.raises(InvalidRequest, match="no"):
        a.write(refuse)
    with pytest.raises(InvalidRequest, match="NOT NULL"):
        a.write(lambda c: c.execute(sa.text("INSERT INTO txlake_facts VALUES ('a', NULL)")))
    assert (entries(store), names(a)) == (before, [])


@pytest.mark.parametrize("faults", [[is_unanswered], [is_lost], [is_lost, is_lost, is_unanswered]])
def test_a_lost_reply_is_settled_by_the_entrys_id(
    process: Process, store: FaultyStore, faults: list[Callable[..., PutOutcome]]
) -> None:
    a, b = process(), process()
    number = a.log.position.number
    store.puts = list(faults)
    put(a, "x")
    put(b, "y")
    assert names(a) == names(b) == ["x", "y"]
    assert a.log.position.number == number + 2


def test_a_lost_put_that_another_overtook_runs_again(process: Process, store: FaultyStore) -> None:
    a, b = process(), process()

    def overtaken(_: object) -> PutOutcome:
        put(b, "y")
        return PutOutcome.UNKNOWN

    store.puts = [overtaken]
    put(a, "x")
    assert names(a) == names(b) == ["x", "y"]


def test_a_put_that_arrives_late_is_found_before_anything_else_is_said(
    process: Process, store: FaultyStore
) -> None:
    """No later answer of the process goes by a state that the late entry may change."""
    a = process()
    late: list[Callable[[], PutOutcome]] = []

    def is_late(request: Callable[[], PutOutcome]) -> PutOutcome:
        late.append(request)
        raise Unavailable("no reply")

    store.puts = [is_late]
    with pytest.raises(CommitUnsettled, match="no reply"):
        put(a, "x")
    before = len(entries(store))
    # Whether it came is asked by work that changes nothing: it takes the number all the same.
    query = sa.text("SELECT count(*) FROM txlake_facts WHERE name = 'x'")
    assert a.write(lambda connection: connection.scalar(query)) == 0
    assert len(entries(store)) == before + 1
    assert late[0]() is PutOutcome.EXISTS
    assert names(a) == []


def test_a_put_that_came_though_nobody_said_so_is_applied(
    process: Process, store: FaultyStore
) -> None:
    a = process()

    def came(request: Callable[[], PutOutcome]) -> PutOutcome:
        request()
        raise Unavailable("no reply")

    store.puts = [came]
    with pytest.raises(CommitUnsettled):
        put(a, "x")
    query = sa.text("SELECT count(*) FROM txlake_facts WHERE name = 'x'")
    assert a.write(lambda connection: connection.scalar(query)) == 1


def test_a_store_that_never_says_is_given_up(process: Process, store: FaultyStore) -> None:
    a = process()
    store.puts = [is_lost] * 6
    with pytest.raises(CommitUnsettled, match="in 6 attempts"):
        put(a, "x")
    assert names(a) == []
    put(a, "y")
    assert names(a) == ["y"]


def test_a_ratification_whose_reply_is_lost_is_looked_for(store: FaultyStore) -> None:
    catalog = Catalog(
        "", Unwaiting(), open_database=lambda _, system, **__: ReplicatedDatabase(store, system)
    )
    user = User(catalog)
    user.create("a")

    def came(request: Callable[[], PutOutcome]) -> PutOutcome:
        request()
        raise Unavailable("no reply")

    transaction = user.begin()
    store.puts = [came]
    made = user.ratify(version("a", 1), transaction_id=transaction)
    assert isinstance(made, Ratified)
    transaction = user.begin()
    store.puts = [is_refused]
    with pytest.raises(Unavailable, match="the store is away"):
        user.ratify(version("a", 2), transaction_id=transaction)
    assert isinstance(user.ratify(version("a", 2), transaction_id=transaction), Ratified)
    transaction = user.begin()
    store.puts = [is_refused] * 20
    with pytest.raises(OutcomeUnknown, match=transaction):
        user.ratify(version("a", 3), transaction_id=transaction)
    store.puts = []
    transaction = user.begin()
    expired = InvalidRequest("the credentials have expired")

    def is_expired(_: Callable[[], PutOutcome]) -> PutOutcome:
        raise expired

    store.puts, store.gets = [came, is_expired], [expired]
    with pytest.raises(OutcomeUnknown, match="credentials have expired; look at their tables"):
        user.ratify(version("a", 3), transaction_id=transaction)
    catalog.close()


def test_an_entry_that_does_not_follow_is_no_entry(process: Process, folder: Store) -> None:
    a = process()
    put(a, "x")
    other = LogEntry(id=b"2" * 16, previous=b"1" * 16, writer="other", time_ms=1)
    folder.put(entry_path(a.log.position.number + 1), encode(other))
    with pytest.raises(CorruptTable, match=r"entries were removed or restored.*recover"):
        names(a)


def test_what_is_no_entry_is_said(process: Process, folder: Store) -> None:
    a = process()
    path = entry_path(a.log.position.number + 1)
    for content, error, said in (
        (b"\x02abc", InvalidRequest, "a newer txlake wrote it"),
        (b"", InvalidRequest, "found None"),
        (b"\x01\x00\x00\x00\x00\x00\x00\x00\x05abc", CorruptTable, "damaged"),
        (b"\x01\x7f\xff\xff\xff\xff\xff\xff\xffabc", CorruptTable, "damaged"),
        (b"\x01\xff\xff\xff\xff\xff\xff\xff\xffabc", CorruptTable, "damaged"),
    ):
        folder.put(path, content)
        with pytest.raises(error, match=said):
            names(a)
    folder.delete([path])
    assert names(a) == []


def test_who_was_away_finds_that_the_log_was_cut(
    process: Process, folder: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older copy of the folder was put back: what is there counts, whatever the replica has."""
    a = process()
    put(a, "kept")
    kept = a.log.position.number
    put(a, "gone")
    folder.delete([entry_path(kept + 1)])
    monkeypatch.setattr(log_module, "_SURE_MS", -1)
    assert names(a) == ["kept"]
    put(a, "new")
    put(a, "newer")
    assert names(a) == names(process()) == ["kept", "new", "newer"]


def test_a_put_that_can_not_be_checked_is_not_run_again(
    process: Process, store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entry is in the log: a second run would do the work twice."""
    a = process()
    put(a, "x")
    monkeypatch.setattr(a._turns, "wait", lambda: None)
    monkeypatch.setattr(log_module, "_SURE_MS", -1)
    store.gets = [None, Unavailable("the store is away")]
    with pytest.raises(CommitUnsettled, match="the store is away"):
        put(a, "y")
    assert names(a) == names(process()) == ["x", "y"]


def test_a_snapshot_without_its_entry_is_no_catalog(
    process: Process, folder: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = process()
    put(a, "x")
    a.log.write_snapshot()
    folder.delete([entry_path(a.log.position.number)])
    with pytest.raises(CorruptTable, match=r"entries were removed or restored.*recover"):
        process()
    monkeypatch.setattr(log_module, "_SURE_MS", -1)
    with pytest.raises(CorruptTable, match="entries were removed or restored"):
        names(a)


def test_a_log_that_is_gone_is_said(
    process: Process, folder: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = process()
    put(a, "x")
    folder.delete(entries(folder))
    monkeypatch.setattr(log_module, "_SURE_MS", -1)
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"its log was removed.*recover"):
            names(a)


def test_a_put_after_a_cut_is_taken_back(
    process: Process, folder: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = process()
    put(a, "kept")
    kept = a.log.position.number
    put(a, "gone")
    folder.delete([entry_path(kept + 1)])
    monkeypatch.setattr(log_module, "_SURE_MS", -1)
    monkeypatch.setattr(a._turns, "wait", lambda: None)
    put(a, "new")
    assert names(a) == names(process()) == ["kept", "new"]
    assert entries(folder)[-1] == entry_path(kept + 1)


def test_who_opens_late_begins_at_a_snapshot(
    process: Process, store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReplicatedDatabase, "_write_snapshot_beside", lambda _: None)
    a = process()
    for number in range(45):
        put(a, f"{number:03}")
        if a.log.position.number % 10 == 0:
            a.log.write_snapshot()
            a.log.delete_surplus()
    snapshots = [found.path for found in store.list("snapshots")]
    assert [int(path[-20:]) for path in snapshots] == [20, 30, 40]
    barrier = threading.Barrier(1 + 1 + 10 + 1)
    store.requests.clear()
    store.meets = lambda: barrier.wait(LIMIT_S)
    late = process()
    store.meets = None
    assert store.requests == {"list": 1, "get": barrier.parties}, "all gets meet"
    assert names(late) == names(a)


def test_a_young_catalog_is_read_without_a_snapshot(process: Process, store: FaultyStore) -> None:
    a = process()
    put(a, "x")
    barrier = threading.Barrier(log_module._SNAPSHOT_ENTRIES + 1)
    store.requests.clear()
    store.meets = lambda: barrier.wait(LIMIT_S)
    late = process()
    store.meets = None
    assert store.requests == {"list": 1, "get": barrier.parties}, "all gets meet"
    assert names(late) == ["x"]


def test_more_entries_than_expected_follow_a_snapshot(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the processes that should have written the next ones were killed."""
    monkeypatch.setattr(log_module, "_LOAD_WINDOW", 3)
    a = process()
    a.log.write_snapshot()
    for number in range(20):
        put(a, f"{number:03}")
    assert names(process()) == names(a)


def test_opening_is_a_look(process: Process, store: FaultyStore) -> None:
    put(process(), "x")
    with looking_once(System().monotonic_ms()):
        late = process()
        store.requests.clear()
        assert names(late) == ["x"]
    assert not store.requests
    assert names(late) == ["x"]
    assert store.requests == {"get": 1}


def test_a_snapshot_that_a_newer_one_replaces_is_looked_for_again(
    process: Process, folder: Store, store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = process()
    put(a, "x")
    a.log.write_snapshot()
    [old] = [found.path for found in folder.list("snapshots")]

    listed = store.list

    def overtaken(prefix: str, start_after: str | None = None) -> Iterator[StoredObject]:
        found = list(listed(prefix, start_after))
        monkeypatch.undo()
        put(a, "y")
        a.log.write_snapshot()
        folder.delete([old])
        return iter(found)

    monkeypatch.setattr(store, "list", overtaken)
    assert names(process()) == ["x", "y"]


def test_a_local_catalog_is_read_in_one_thread(folder: Store) -> None:
    store = Local(folder)
    threads: set[threading.Thread] = set()
    store.meets = lambda: threads.add(threading.current_thread())
    database = ReplicatedDatabase(store, System())
    database.write(lambda connection: upgrade(database, connection))
    put(database, "x")
    database.log.write_snapshot()
    database.log.load()
    database.close()
    assert threads == {threading.current_thread()}
    assert store.requests["get"] == 1 + 3, "the first entry that is missing ends them"


def test_a_replica_is_not_closed_under_a_snapshot(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite would end the process."""
    a = process()
    closing = threading.Thread(target=a.log.close)
    made = replica.database_bytes

    def slowly(connection: sqlite3.Connection) -> bytes:
        closing.start()
        closing.join(0.2)
        return made(connection)

    with monkeypatch.context() as patched:
        patched.setattr(replica, "database_bytes", slowly)
        a.log.write_snapshot()
    closing.join(60)
    assert not closing.is_alive()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        a.log.write_snapshot()


def test_the_newest_of_many_entries_are_read_side_by_side(
    process: Process, store: FaultyStore
) -> None:
    a, b = process(), process()
    for number in range(40):
        put(a, f"{number:03}")
    assert names(b) == names(a)


def test_threads_go_on_after_the_main_thread_has_ended(tmp_path: Path) -> None:
    """No executor takes work then."""
    program = (
        "import sys, threading\n"
        "from tests.catalog.replicated.test_log import *\n"
        "store = FaultyStore(open_store(sys.argv[1]))\n"
        "a, b = ReplicatedDatabase(store, System()), ReplicatedDatabase(store, System())\n"
        "def work():\n"
        "    threading.main_thread().join()\n"
        "    a.write(lambda connection: upgrade(a, connection))\n"
        "    for number in range(9):\n"
        "        put(a, str(number))\n"
        "    print(len(names(b)))\n"
        "threading.Thread(target=work).start()\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert ended.stdout == "9\n", ended.stderr


def test_a_replica_can_be_deleted_at_any_time(process: Process) -> None:
    a, b = process(), process()
    put(a, "x")
    for path in Path(a._folder).iterdir():
        path.unlink()
    put(b, "y")
    assert names(a) == ["x", "y"]
    for path in Path(a._folder).iterdir():
        path.unlink()
    Path(a._folder).rmdir()
    put(a, "z")
    assert names(b) == ["x", "y", "z"]


def test_a_replica_that_does_not_take_an_entry_gets_it_from_the_log(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    from txlake.catalog.replicated import database as database_module

    a = process()

    def refuse(*_: object) -> None:
        raise sqlite3.OperationalError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(database_module, "write_position", refuse)
        put(a, "x")
    assert names(a) == ["x"]


def test_who_meets_a_newer_txlakes_schema_stops(process: Process) -> None:
    a, b = process(), process()
    put(a, "x")

    def upgrade_further(connection: sa.Connection) -> None:
        connection.execute(sa.text("ALTER TABLE txlake_facts ADD COLUMN motto TEXT"))
        connection.execute(sa.text("UPDATE txlake_revision SET version_num = '9999'"))

    b.write(upgrade_further)
    for _ in range(2):
        with pytest.raises(InvalidRequest, match=r"revision 9999.*upgrade txlake"):
            names(a)
        with pytest.raises(InvalidRequest, match=r"revision 9999.*upgrade txlake"):
            put(a, "y")


def test_the_time_of_the_log_never_goes_back(process: Process, folder: Store) -> None:
    a, b = process(), process()
    put(a, "x")
    future = a.log.position.time_ms + 3_600_000
    number = a.log.position.number
    entry = LogEntry(id=b"3" * 16, previous=a.log.position.entry_id, writer="w", time_ms=future)
    folder.put(entry_path(number + 1), encode(entry))
    with b.reading() as connection:
        assert b.now_ms(connection) >= future
    put(b, "y")
    last = decode(folder.get(entry_path(number + 2)), "")
    assert last.time_ms >= future


def test_processes_make_a_new_catalog_at_once(tmp_path: Path) -> None:
    url = (tmp_path / "new catalog").as_uri()
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        opened = list(pool.map(lambda _: Catalog(url, System()), range(4)))
    assert len({catalog.lake_id for catalog in opened}) == 1
    for catalog in opened:
        catalog.close()


def test_a_request_in_which_the_process_stood_still_is_no_measure_of_the_store(
    process: Process, store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next turns would wait for minutes."""
    a = process()
    now = a.log._system.monotonic_ms
    stopped_ms = 0.0
    monkeypatch.setattr(a.log._system, "monotonic_ms", lambda: now() + stopped_ms)

    def stand_still(request: Callable[[], PutOutcome]) -> PutOutcome:
        nonlocal stopped_ms
        stopped_ms += 3_600_000
        return request()

    store.puts = [stand_still]
    put(a, "x")
    assert a.log.latency_ms < 500


def test_a_store_that_can_not_be_written_is_read(
    process: Process, store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = process()
    put(a, "x")

    def refuse(*_: object) -> None:
        raise InvalidRequest("read-only")

    for method in ("put", "put_if_absent", "delete", "ensure_safe"):
        monkeypatch.setattr(store, method, refuse)
    b = process()
    assert names(b) == ["x"]
    with pytest.raises(InvalidRequest, match="read-only"):
        put(b, "y")
    assert names(b) == ["x"]


def test_where_puts_overwrite_nothing_is_written(
    process: Process, store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = process()
    before = entries(store)

    def refuse() -> None:
        raise InvalidRequest("puts overwrite here")

    monkeypatch.setattr(store, "ensure_safe", refuse)
    with pytest.raises(InvalidRequest, match="puts overwrite"):
        put(a, "x")
    assert entries(store) == before
