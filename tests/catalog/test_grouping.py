"""Group commit: who comes first does the work of all who wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

import pytest

from txlake.catalog.grouping import Group, Interrupted
from txlake.errors import InvalidRequest, Unavailable


class Held:
    """A group whose first work waits until it is let go, and what it was given to do."""

    def __init__(self, work: Callable[[Sequence[int]], Sequence[int | Exception]]) -> None:
        self.done: list[list[int]] = []
        self._work = work
        self._started = threading.Event()
        self._go = threading.Event()
        self.group: Group[int, int] = Group(self._do)

    def ask(self, pool: ThreadPoolExecutor, first: int, others: Sequence[int]) -> list[Future[int]]:
        """Asks, the others while the first is at work."""
        futures = [pool.submit(self.group.ask, first)]
        assert self._started.wait(30)
        for number, other in enumerate(others, 1):
            futures.append(pool.submit(self.group.ask, other))
            while self.group.waiting < number:
                pass
        self._go.set()
        return futures

    def _do(self, asked: Sequence[int]) -> Sequence[int | Exception]:
        self.done.append(list(asked))
        self._started.set()
        assert self._go.wait(30)
        return self._work(asked)


@pytest.fixture
def pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(8)


def test_who_waits_is_taken_along(pool: ThreadPoolExecutor) -> None:
    held = Held(lambda asked: [number * 2 for number in asked])
    futures = held.ask(pool, 1, [2, 3, 4])
    assert [future.result(30) for future in futures] == [2, 4, 6, 8]
    assert held.done == [[1], [2, 3, 4]]
    assert held.group.ask(5) == 10


def test_each_is_answered_for_itself(pool: ThreadPoolExecutor) -> None:
    held = Held(
        lambda asked: [number if number % 2 else InvalidRequest(f"{number}") for number in asked]
    )
    futures = held.ask(pool, 1, [2, 3])
    assert futures[2].result(30) == 3
    with pytest.raises(InvalidRequest, match="2"):
        futures[1].result(30)


def test_what_one_is_refused_for_is_not_held_against_the_others(pool: ThreadPoolExecutor) -> None:
    def work(asked: Sequence[int]) -> Sequence[int]:
        if 3 in asked:
            raise InvalidRequest("3 is bad")
        return asked

    held = Held(work)
    futures = held.ask(pool, 1, [2, 3, 4])
    assert (futures[1].result(30), futures[3].result(30)) == (2, 4)
    with pytest.raises(InvalidRequest, match="3 is bad"):
        futures[2].result(30)
    assert held.done == [[1], [2, 3, 4], [2], [3], [4]]


def test_an_error_of_the_whole_is_everybodys(pool: ThreadPoolExecutor) -> None:
    def work(asked: Sequence[int]) -> Sequence[int]:
        if len(asked) > 1:
            raise Unavailable("gone")
        return asked

    held = Held(work)
    futures = held.ask(pool, 1, [2, 3])
    for future in futures[1:]:
        with pytest.raises(Unavailable, match="gone"):
            future.result(30)
    assert held.done == [[1], [2, 3]]


def test_who_is_stopped_in_the_middle_does_not_stop_the_others(pool: ThreadPoolExecutor) -> None:
    def work(asked: Sequence[int]) -> Sequence[int]:
        if asked[0] == 2:
            raise KeyboardInterrupt
        return asked

    held = Held(work)
    futures = held.ask(pool, 1, [2, 3])
    errors = {type(future.exception(30)) for future in futures[1:]}
    assert errors == {KeyboardInterrupt, Interrupted}
    assert held.group.ask(4) == 4


def test_who_waits_in_vain_is_told_that_nothing_was_done(pool: ThreadPoolExecutor) -> None:
    go, started = threading.Event(), threading.Event()
    done: list[int] = []

    def work(asked: Sequence[int]) -> Sequence[int]:
        started.set()
        assert go.wait(30)
        done.extend(asked)
        return asked

    group: Group[int, int] = Group(work, patience_s=0.01)
    first = pool.submit(group.ask, 1)
    assert started.wait(30)
    with pytest.raises(Unavailable, match=r"for 0\.01 s.*try again"):
        group.ask(2)
    assert group.waiting == 0
    go.set()
    assert first.result(30) == 1
    assert group.ask(3) == 3
    assert done == [1, 3]


def test_of_what_is_in_another_threads_hands_for_too_long_nothing_is_known(
    pool: ThreadPoolExecutor,
) -> None:
    go = threading.Event()

    def work(asked: Sequence[int]) -> Sequence[int]:
        assert len(asked) == 1 or go.wait(30)
        return asked

    held = Held(work)
    held.group._patience_s = 1.0
    futures = held.ask(pool, 1, [2, 3])
    wait(futures[1:], timeout=30, return_when=FIRST_COMPLETED)
    [told] = [future for future in futures[1:] if future.done()]
    assert isinstance(told.exception(60), Interrupted)
    go.set()
    [other] = [future for future in futures[1:] if future is not told]
    assert other.result(30) in (2, 3)
