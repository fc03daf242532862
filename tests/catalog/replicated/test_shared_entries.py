"""Threads of one process that write at the same time: one entry, and each its own outcome."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.catalog.locking import until
from tests.catalog.replicated.contention import Contention
from tests.catalog.replicated.stores import FaultyStore, is_refused
from txlake.catalog.database import CommitUnsettled
from txlake.catalog.replicated.database import ReplicatedDatabase
from txlake.catalog.schema import upgrade
from txlake.errors import InvalidRequest, Unavailable
from txlake.ports import PutOutcome
from txlake.storage import open_store
from txlake.system import System

TIMEOUT_S = 30.0

pytestmark = pytest.mark.usefixtures("direct")
Work = Callable[[sa.Connection], object]
Put = Callable[[Callable[[], PutOutcome]], PutOutcome]


@pytest.fixture
def store(tmp_path: Path) -> FaultyStore:
    return FaultyStore(open_store(tmp_path / "catalog"))


@pytest.fixture
def database(store: FaultyStore) -> Iterator[ReplicatedDatabase]:
    made = ReplicatedDatabase(store, System())
    made.write(lambda connection: upgrade(made, connection))
    yield made
    made.close()


def put(name: str) -> Work:
    """Return work that inserts a fact and returns its name."""

    def work(connection: sa.Connection) -> str:
        insert = sa.text("INSERT INTO txlake_facts VALUES (:name, '')")
        connection.execute(insert, {"name": name})
        return name

    return work


def names(database: ReplicatedDatabase) -> list[str]:
    with database.reading() as connection:
        return list(connection.scalars(sa.text("SELECT name FROM txlake_facts ORDER BY name")))


def together(
    database: ReplicatedDatabase, works: Sequence[Work], second_put: Put | None = None
) -> list[Future[object]]:
    """Run works in threads which all arrive while another entry, `first`, is under way.

    `second_put`: what happens to the put of their entry.
    """
    store = database._store
    assert isinstance(store, FaultyStore)
    is_begun, go_on = threading.Event(), threading.Event()

    def held(request: Callable[[], PutOutcome]) -> PutOutcome:
        is_begun.set()
        assert go_on.wait(30)
        return request()

    store.puts = [held] if second_put is None else [held, second_put]
    with ThreadPoolExecutor(1 + len(works)) as pool:
        first = pool.submit(database.write, put("first"))
        assert is_begun.wait(30)
        futures: list[Future[object]] = []
        for number, work in enumerate(works, 1):
            futures.append(pool.submit(database.write, work))
            until(lambda: database._group.waiting == number)  # noqa: B023
        go_on.set()
        assert first.result(60) == "first"
    return futures


def refuse(connection: sa.Connection) -> None:
    put("refused")(connection)
    raise InvalidRequest("no")


def test_works_that_wait_for_an_entry_share_the_next_one(database: ReplicatedDatabase) -> None:
    before = database.log.position.number
    futures = together(database, [put("a"), put("b"), put("c")])
    assert [future.result(TIMEOUT_S) for future in futures] == ["a", "b", "c"]
    assert database.log.position.number == before + 2
    assert names(database) == ["a", "b", "c", "first"]


@pytest.mark.parametrize("error", [InvalidRequest("no"), ValueError("no")])
def test_a_work_that_raises_is_rolled_back_alone(
    database: ReplicatedDatabase, error: Exception
) -> None:
    def fail(connection: sa.Connection) -> None:
        put("failed")(connection)
        raise error

    before = database.log.position.number
    futures = together(database, [put("a"), fail, put("b")])
    assert [futures[0].result(TIMEOUT_S), futures[2].result(TIMEOUT_S)] == ["a", "b"]
    assert futures[1].exception(TIMEOUT_S) is error
    assert database.log.position.number == before + 2
    assert names(database) == ["a", "b", "first"]


def test_a_work_sees_what_the_one_before_it_changed(database: ReplicatedDatabase) -> None:
    count = sa.text("SELECT count(*) FROM txlake_facts")
    futures = together(database, [put("a"), lambda connection: connection.scalar(count), refuse])
    assert futures[1].result(TIMEOUT_S) == 2
    with pytest.raises(InvalidRequest, match="no"):
        futures[2].result(TIMEOUT_S)
    assert names(database) == ["a", "first"]


def test_all_run_again_if_another_process_wrote_first(
    database: ReplicatedDatabase, store: FaultyStore
) -> None:
    other = ReplicatedDatabase(store, System())
    runs: list[int] = []

    def count(connection: sa.Connection) -> int:
        runs.append(int(connection.scalar(sa.text("SELECT count(*) FROM txlake_facts")) or 0))
        return runs[-1]

    def is_overtaken(request: Callable[[], PutOutcome]) -> PutOutcome:
        other.write(put("other"))
        return request()

    futures = together(database, [put("a"), count, refuse], is_overtaken)
    assert [futures[0].result(TIMEOUT_S), futures[1].result(TIMEOUT_S)] == ["a", 3]
    assert runs == [2, 3]
    assert isinstance(futures[2].exception(TIMEOUT_S), InvalidRequest)
    assert names(database) == names(other) == ["a", "first", "other"]
    other.close()


def test_an_unsettled_entry_is_so_for_all(database: ReplicatedDatabase) -> None:
    futures = together(database, [put("a"), refuse, put("b")], is_refused)
    for future in futures:
        assert isinstance(future.exception(TIMEOUT_S), CommitUnsettled)
    assert names(database) == ["first"]


def test_works_of_a_transaction_that_is_lost_fail_together(database: ReplicatedDatabase) -> None:
    """As where SQLite rolls everything back: its disk is full."""

    def lose(connection: sa.Connection) -> None:
        raw = connection.connection.driver_connection
        assert raw is not None
        raw.execute("ROLLBACK")
        raise Unavailable("disk full")

    futures = together(database, [put("a"), lose, put("b")])
    for future in futures:
        assert isinstance(future.exception(TIMEOUT_S), Unavailable)
    assert names(database) == ["first"]
    database.write(put("later"))


def test_who_stops_in_the_midst_leaves_the_others_in_doubt(database: ReplicatedDatabase) -> None:
    def stop(_: object) -> None:
        raise SystemExit

    futures = together(database, [stop, put("a")])
    assert isinstance(futures[0].exception(TIMEOUT_S), SystemExit)
    assert isinstance(futures[1].exception(TIMEOUT_S), CommitUnsettled)
    assert names(database) == ["first"]


def test_a_thread_that_waits_for_the_turn_does_not_hold_it(database: ReplicatedDatabase) -> None:
    """What it writes in the block shares an entry with what others write."""
    with database.turn(), ThreadPoolExecutor(1) as pool:
        assert pool.submit(database.write, put("a")).result(60) == "a"


@pytest.mark.parametrize("processes", [1, 2])
def test_eight_threads_commit_more_than_four_times_as_much_as_one(processes: int) -> None:
    throughput = []
    for threads in (1, 8):
        contention = Contention(threads)
        for _ in range(processes):
            contention.add(threads=threads)
        contention.run(4_000)
        throughput.append(contention.figures(1_000, 4_000).throughput)
    assert throughput[1] >= 4 * throughput[0]
