"""The tables of a transaction over a network: what is waited for at once, and what in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.commit.distant import LIMIT_S, Distant
from tests.commit.lake_of import BOTH, LakeOf, counters, paths, write_both
from tests.commit.log_of import Clock, FakeStore, add, metadata
from txlake.commit.parallel import begin, parallel_map
from txlake.commit.table_log import TableLog
from txlake.commit.table_transaction import TableTransaction
from txlake.errors import CorruptTable, Unavailable
from txlake.ports import PutOutcome, Store
from txlake.protocol.file_names import commit_path
from txlake.settings import AFTER_ANSWER, Settings


def distant() -> LakeOf:
    clock = Clock()
    return LakeOf(system=clock, store=lambda name: Distant(clock, f"s3://{name}")).create(*BOTH)


def store_of(lake: LakeOf, name: str) -> Distant:
    found = lake.store(name)
    assert isinstance(found, Distant)
    return found


def stores(*, are_prompt: list[bool]) -> list[Store]:
    clock = Clock()
    return [FakeStore(clock) if each else Distant(clock, "s3://t") for each in are_prompt]


@pytest.mark.parametrize("version", [1, 10])
def test_a_commit_waits_for_all_its_tables_at_once(version: int) -> None:
    """Each request to one table meets one to the other; the tenth version has a checkpoint too."""
    lake = distant()
    for before in range(1, version):
        write_both(lake, str(before)).commit()
    tx = write_both(lake, str(version))
    barrier = threading.Barrier(2)
    for name in BOTH:
        store_of(lake, name).requests.clear()
        store_of(lake, name).meets = lambda: barrier.wait(LIMIT_S)
    tx.commit()
    for name in BOTH:
        tx.tables[name].log.following.wait(LIMIT_S)
        store_of(lake, name).meets = None
        assert f"{name}{version}" in paths(lake, name)
        assert lake.ledger.tables[name].published == version
    kinds = [kind for kind, path in store_of(lake, "a").requests if path.endswith(".json")]
    looks, _, after = " ".join(kinds).partition("put_if_absent")
    assert set(looks.split()) == {"head"}, "in order for each table"
    assert "head" not in after


def test_a_table_that_cant_be_published_keeps_no_other_from_it() -> None:
    lake = distant()
    store_of(lake, "a").failing.add(commit_path(1))
    outcome = write_both(lake).commit()
    assert {name: one.version for name, one in outcome.tables.items()} == {"a": 1, "b": 1}
    assert commit_path(1) not in store_of(lake, "a").files
    assert commit_path(1) in store_of(lake, "b").files
    store_of(lake, "a").failing.clear()
    assert paths(lake, "a") == ["a1"]


def test_a_log_that_is_ahead_is_met_before_anything_is_ratified() -> None:
    lake = distant()
    tx = write_both(lake)
    for name in BOTH:
        store_of(lake, name).put(commit_path(1), b"{}\n")
    with pytest.raises(CorruptTable, match=r"^a: "):
        tx.commit()
    assert lake.ledger.tables["a"].head == lake.ledger.tables["b"].head == 0


def test_to_a_disk_requests_go_one_after_the_other() -> None:
    found = parallel_map(
        lambda _: threading.current_thread(), [1, 2], store=lambda _: stores(are_prompt=[True])[0]
    )
    assert found == [threading.current_thread()] * 2


def test_one_table_needs_no_thread() -> None:
    [far] = stores(are_prompt=[False])
    assert parallel_map(lambda _: threading.current_thread(), [1], store=lambda _: far) == [
        threading.current_thread()
    ]


def test_what_one_of_them_raises_is_raised_for_the_first() -> None:
    barrier = threading.Barrier(3)
    mixed = stores(are_prompt=[True, False, True])

    def work(number: int) -> int:
        barrier.wait(LIMIT_S)
        if number:
            raise ValueError(number)
        return number

    with pytest.raises(ValueError, match=r"^1$"):
        parallel_map(work, range(3), store=lambda number: mixed[number])


def test_where_no_thread_can_be_had_it_is_done_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when Python ends, and a table is written by what runs at its end."""

    def refuses(*_: Any, **__: Any) -> Future[Any]:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    lake = distant()
    tx = write_both(lake)
    with monkeypatch.context() as patched:
        patched.setattr(ThreadPoolExecutor, "submit", refuses)
        tx.commit()
    assert [paths(lake, name) for name in BOTH] == [["a1"], ["b1"]]


def test_requests_to_a_network_are_begun_at_once() -> None:
    [far] = stores(are_prompt=[False])
    barrier = threading.Barrier(2)
    waits = [begin(lambda: barrier.wait(LIMIT_S), store=far) for _ in range(2)]
    assert sorted(wait() for wait in waits) == [0, 1]


def test_a_request_to_a_disk_is_made_when_its_result_is_needed() -> None:
    [near] = stores(are_prompt=[True])
    made: list[threading.Thread] = []
    wait = begin(lambda: made.append(threading.current_thread()), store=near)
    assert made == []
    wait()
    assert made == [threading.current_thread()]


def test_a_request_for_which_there_is_no_thread_is_made_by_the_one_who_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuses(*_: Any, **__: Any) -> Future[Any]:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    [far] = stores(are_prompt=[False])
    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuses)
    assert begin(threading.current_thread, store=far)() is threading.current_thread()


@pytest.fixture
def held() -> Iterator[LakeOf]:
    """A lake in far stores that publishes after the answer; no commit's file can be written yet."""
    clock, written = Clock(), threading.Event()
    lake = LakeOf(
        Settings(publish=AFTER_ANSWER),
        system=clock,
        store=lambda name: _Held(clock, f"s3://{name}", written),
    )
    written.set()
    lake.create(*BOTH)
    written.clear()
    yield lake
    written.set()


class _Held(Distant):
    """A store that writes a commit's file when the event is set."""

    def __init__(self, clock: Clock, url: str, written: threading.Event) -> None:
        super().__init__(clock, url)
        self.written = written

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        assert self.written.wait(LIMIT_S)
        return super().put_if_absent(path, data)


def held_store(lake: LakeOf) -> _Held:
    found = lake.store("a")
    assert isinstance(found, _Held)
    return found


def test_a_commit_is_answered_before_it_is_published(held: LakeOf) -> None:
    logs = {name: held.open(name) for name in BOTH}
    first, second = held.begin(logs=logs), held.begin(logs=logs)
    outcomes = []
    for tx, suffix in ((first, "1"), (second, "2")):
        for name in BOTH:
            tx.table(name).stage([add(f"{name}{suffix}")], operation="WRITE")
        outcomes.append(tx.commit_only())
        store = held_store(held)
        if suffix == "1":
            assert commit_path(1) not in store.files, "the answer came before"
            assert held.ledger.tables["a"].head == 1
            assert logs["a"].newest_known == 1
            store.written.set()
    for log in logs.values():
        log.following.wait(LIMIT_S)
    assert [outcome.tables["a"].version for outcome in outcomes] == [1, 2]
    for name in BOTH:
        files = store_of(held, name).files
        assert {commit_path(1), commit_path(2)} <= files.keys()
        assert held.ledger.tables[name].published == 2


def test_names_are_published_before_the_answer(held: LakeOf) -> None:
    held_store(held).written.set()
    tx = held.begin()
    tx.create("c", counters())
    tx.commit_only()
    assert commit_path(0) in store_of(held, "c").files


def test_what_is_published_later_and_occupied_is_found_by_the_next(held: LakeOf) -> None:
    logs = {name: held.open(name) for name in BOTH}
    tx = held.begin(logs=logs)
    tx.table("a").stage([add("a1")], operation="WRITE")
    tx.commit_only()
    store = held_store(held)
    store.put(commit_path(1), b'{"commitInfo":{}}\n')
    store.written.set()
    logs["a"].following.wait(LIMIT_S)
    assert logs["a"].newest_known == -1, "its cached state was dropped"
    with pytest.raises(CorruptTable):
        logs["a"].latest()


def test_what_was_just_published_is_not_looked_for() -> None:
    lake = distant()
    logs = {name: lake.open(name) for name in BOTH}
    for suffix in ("1", "2"):
        store_of(lake, "a").requests.clear()
        tx = lake.begin(logs=logs)
        tx.table("a").stage([add(f"a{suffix}")], operation="WRITE")
        tx.commit()
    heads = [path for kind, path in store_of(lake, "a").requests if kind == "head"]
    assert heads == [commit_path(2)]


def test_a_look_that_failed_is_repeated_by_who_asks_next() -> None:
    """Whoever began it may have failed otherwise, before it waited for the look."""
    lake = distant()
    log = lake.open("a")
    store = store_of(lake, "a")
    store.requests.clear()
    faults = iter([Unavailable("no answer")])

    def fail_once() -> None:
        for fault in faults:
            raise fault

    store.meets = fail_once
    log.look_for(1)
    again = log.look_for(1)
    assert again() is False
    assert log.look_for(1)() is False
    assert [path for kind, path in store.requests if kind == "head"] == [commit_path(1)] * 2


@pytest.mark.parametrize("others", [0, 1])
def test_an_append_to_a_path_table_reads_the_log_beside_its_upload(others: int) -> None:
    clock = Clock()
    store = Distant(clock, "s3://t")
    log = TableLog(store, clock, Settings())
    first = TableTransaction(log, None)
    first.stage([metadata()], operation="CREATE TABLE")
    first.commit()
    log.following.wait(LIMIT_S)
    for number in range(others):
        other = TableTransaction(TableLog(store, clock, Settings()), log.latest())
        other.stage([add(f"other{number}")], operation="WRITE")
        other.commit()
    begun = log.begin_reading()
    assert begun is not None
    part = TableTransaction(log, begun[0])
    part.reading = begun[1]
    part.reading.newest()
    part.stage([add("a")], operation="WRITE")
    store.requests.clear()
    assert part.commit().version == 1 + others
    if not others:
        assert "list" not in {kind for kind, _ in store.requests}
