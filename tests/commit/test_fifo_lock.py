"""FifoLock to commit: in order, for so long, and never left taken."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import Any

import pytest

from txlake.commit.fifo_lock import FifoLock
from txlake.system import System


class Stopping(System):
    """Interrupts whoever asks for the time, the so-manieth time."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at

    def monotonic_ms(self) -> float:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return super().monotonic_ms()


def test_one_at_a_time_in_the_order_of_coming() -> None:
    lock, order = FifoLock(System()), list[int]()
    pool = ThreadPoolExecutor(4)

    def take(number: int) -> None:
        with lock.acquired(30_000) as is_mine:
            assert is_mine
            assert lock.is_taken()
            order.append(number)

    with lock.acquired(0) as is_mine:
        assert is_mine
        futures = []
        for number in range(4):
            futures.append(pool.submit(take, number))
            while len(lock._queue) < number + 2:
                pass
    for future in futures:
        future.result(30)
    assert order == [0, 1, 2, 3]
    assert not lock.is_taken()


def test_so_many_at_a_time_the_others_in_the_order_of_coming() -> None:
    lock, order = FifoLock(System(), holders=2), list[int]()
    pool = ThreadPoolExecutor(4)
    gates = [threading.Event() for _ in range(4)]

    def take(number: int) -> None:
        with lock.acquired(30_000) as is_mine:
            assert is_mine
            order.append(number)
            gates[number].wait(30)

    futures = []
    for number in range(4):
        futures.append(pool.submit(take, number))
        while len(lock._queue) < number + 1:
            pass
    assert not wait(futures, 0.1).done
    assert order == [0, 1]
    for number, begun in ((1, [0, 1, 2]), (0, [0, 1, 2, 3]), (3, [0, 1, 2, 3])):
        gates[number].set()
        futures[number].result(30)
        while len(order) < len(begun):
            pass
        assert order == begun
    gates[2].set()
    futures[2].result(30)
    assert not lock.is_taken()


def test_only_the_next_one_looks_often() -> None:
    """The others are woken, or become the next one."""
    lock, looks = FifoLock(System(), holders=2), list[float]()

    class Place:
        def acquire(self, timeout: float) -> bool:
            looks.append(timeout)
            lock._queue.popleft()
            return False

    place: Any = Place()
    lock._queue.extend([threading.Lock() for _ in range(4)])
    lock._queue.append(place)
    assert lock._wait_for_turn(place, 30_000)
    assert looks == [0.15, 0.1, 0.05]


def test_who_waits_too_long_goes_on_without_it() -> None:
    lock = FifoLock(System())
    with lock.acquired(0):
        with lock.acquired(1) as is_mine:
            assert not is_mine
        assert lock.is_taken()
    assert not lock.is_taken()


def test_a_turn_is_found_free_though_nobody_said_so() -> None:
    """Who had it was interrupted after it left the line."""
    lock = FifoLock(System())
    before = threading.Lock()
    before.acquire()
    lock._queue.append(before)
    pool = ThreadPoolExecutor(1)

    def take() -> bool:
        with lock.acquired(30_000) as is_mine:
            return is_mine

    waiting = pool.submit(take)
    while len(lock._queue) < 2:
        pass
    lock._queue.remove(before)
    assert waiting.result(30)


@pytest.mark.parametrize("at", [1, 2])
def test_who_is_interrupted_leaves_nothing(at: int) -> None:
    system = Stopping(at)
    lock = FifoLock(system)
    with ExitStack() as stack:
        if at > 1:
            system.left = 100
            stack.enter_context(lock.acquired(0))
            system.left = at
        with pytest.raises(KeyboardInterrupt), lock.acquired(30_000):
            raise AssertionError("it was interrupted before")
        system.left = 100
        assert lock.is_taken() == (at > 1)
    assert not lock.is_taken()
