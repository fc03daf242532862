"""The tables of a transaction over a network: what is waited for at once, and what in order."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.commit.distant import LIMIT_S, Distant
from tests.commit.lake_of import BOTH, LakeOf, paths, write_both
from tests.commit.log_of import Clock, FakeStore
from txlake.commit.parallel import begin, parallel_map
from txlake.errors import CorruptTable
from txlake.ports import Store
from txlake.protocol.file_names import commit_path


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
        store_of(lake, name).meets = None
        assert f"{name}{version}" in paths(lake, name)
        assert lake.ledger.tables[name].published == version
    kinds = [kind for kind, path in store_of(lake, "a").requests if path.endswith(".json")]
    assert kinds[:5] == ["head", "head", "head", "put_if_absent", "put"], "in order for each table"


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
