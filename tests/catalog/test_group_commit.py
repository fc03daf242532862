"""GroupCommit commit: who comes first does the work of all who wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import pytest

from tests.catalog.locking import until
from txlake.catalog import group_commit
from txlake.catalog.group_commit import GroupCommit, Interrupted, _Request
from txlake.errors import InvalidRequest, Unavailable


class Held:
    """A group whose first work waits until it is let go, and what it was given to do."""

    def __init__(self, work: Callable[[Sequence[int]], Sequence[int | Exception | None]]) -> None:
        self.done: list[list[int]] = []
        self._work = work
        self._started = threading.Event()
        self._go = threading.Event()
        self.group: GroupCommit[int, int] = GroupCommit(self._do)

    def ask(self, pool: ThreadPoolExecutor, first: int, others: Sequence[int]) -> list[Future[int]]:
        """Asks, the others while the first is at work."""
        futures = [pool.submit(self.group.submit, first)]
        assert self._started.wait(30)
        for number, other in enumerate(others, 1):
            futures.append(pool.submit(self.group.submit, other))
            while self.group.waiting < number:
                pass
        self._go.set()
        return futures

    def _do(self, asked: Sequence[int]) -> Sequence[int | Exception | None]:
        self.done.append(list(asked))
        self._started.set()
        assert self._go.wait(30)
        return self._work(asked)


@pytest.fixture
def pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(8)


def test_waiting_requests_join_the_batch(pool: ThreadPoolExecutor) -> None:
    held = Held(lambda asked: [number * 2 for number in asked])
    futures = held.ask(pool, 1, [2, 3, 4])
    assert [future.result(30) for future in futures] == [2, 4, 6, 8]
    assert held.done == [[1], [2, 3, 4]]
    assert held.group.submit(5) == 10


def test_the_leader_waits_for_a_batch_of_the_recent_size(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "_GATHERING_S", 20.0)
    held = Held(lambda asked: asked)
    for future in held.ask(pool, 1, [2, 3, 4]):
        future.result(30)
    futures = []
    for number in (5, 6):
        futures.append(pool.submit(held.group.submit, number))
        until(lambda: held.group.waiting == len(futures))
    assert not any(future.done() for future in futures)
    assert pool.submit(held.group.submit, 7).result(10) == 7
    assert [future.result(30) for future in futures] == [5, 6]
    assert held.done == [[1], [2, 3, 4], [5, 6, 7]]


def test_the_expected_size_shrinks_and_the_wait_is_bounded(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(lambda asked: asked)
    for future in held.ask(pool, 1, [2, 3, 4]):
        future.result(30)
    assert held.group.submit(5) == 5
    assert held.group.submit(6) == 6
    monkeypatch.setattr(group_commit, "_GATHERING_S", 20.0)
    assert pool.submit(held.group.submit, 7).result(10) == 7
    assert held.done[2:] == [[5], [6], [7]]


def test_each_request_gets_its_own_answer(pool: ThreadPoolExecutor) -> None:
    held = Held(
        lambda asked: [number if number % 2 else InvalidRequest(f"{number}") for number in asked]
    )
    futures = held.ask(pool, 1, [2, 3])
    assert futures[2].result(30) == 3
    with pytest.raises(InvalidRequest, match="2"):
        futures[1].result(30)


def test_an_invalid_request_fails_alone(pool: ThreadPoolExecutor) -> None:
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


def test_an_error_of_the_batch_fails_all_requests(pool: ThreadPoolExecutor) -> None:
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


def test_an_interrupted_leader_leaves_the_others_running(pool: ThreadPoolExecutor) -> None:
    def work(asked: Sequence[int]) -> Sequence[int]:
        if asked[0] == 2:
            raise KeyboardInterrupt
        return asked

    held = Held(work)
    futures = held.ask(pool, 1, [2, 3])
    errors = {type(future.exception(30)) for future in futures[1:]}
    assert errors == {KeyboardInterrupt, Interrupted}
    assert held.group.submit(4) == 4


def test_a_timeout_says_that_nothing_was_done(pool: ThreadPoolExecutor) -> None:
    go, started = threading.Event(), threading.Event()
    done: list[int] = []

    def work(asked: Sequence[int]) -> Sequence[int]:
        started.set()
        assert go.wait(30)
        done.extend(asked)
        return asked

    group: GroupCommit[int, int] = GroupCommit(work, timeout_s=0.01)
    first = pool.submit(group.submit, 1)
    assert started.wait(30)
    with pytest.raises(Unavailable, match=r"for 0\.01 s.*try again"):
        group.submit(2)
    assert group.waiting == 0
    go.set()
    assert first.result(30) == 1
    assert group.submit(3) == 3
    assert done == [1, 3]


def test_a_timeout_in_a_running_batch_is_an_unknown_outcome(
    pool: ThreadPoolExecutor,
) -> None:
    go = threading.Event()

    def work(asked: Sequence[int]) -> Sequence[int]:
        assert len(asked) == 1 or go.wait(30)
        return asked

    held = Held(work)
    held.group._timeout_s = 1.0
    futures = held.ask(pool, 1, [2, 3])
    wait(futures[1:], timeout=30, return_when=FIRST_COMPLETED)
    [told] = [future for future in futures[1:] if future.done()]
    assert isinstance(told.exception(60), Interrupted)
    go.set()
    [other] = [future for future in futures[1:] if future is not told]
    assert other.result(30) in (2, 3)


def test_a_request_without_an_answer_runs_again_alone(
    pool: ThreadPoolExecutor,
) -> None:
    held = Held(lambda asked: [None if n == 3 and len(asked) > 1 else n for n in asked])
    futures = held.ask(pool, 1, [2, 3, 4])
    assert [future.result(30) for future in futures] == [1, 2, 3, 4]
    assert held.done == [[1], [2, 3, 4], [3]]


def test_a_request_without_an_answer_alone_is_an_error() -> None:
    """It isn't Interrupted, after which one would ask again and again."""
    group: GroupCommit[int, int] = GroupCommit(lambda asked: [None for _ in asked])
    with pytest.raises(AssertionError, match="one request"):
        group.submit(1)


def test_a_leader_that_stops_waiting_appoints_the_next() -> None:
    """Each was told to do the next work, and is stopped before it does."""

    class Stopped:
        """A wake-up that interrupts the thread which it wakes."""

        def acquire(self, timeout: float) -> bool:
            raise KeyboardInterrupt

    group: GroupCommit[int, int] = GroupCommit(lambda asked: asked)
    first, second = _Request[int, int](1), _Request[int, int](2)
    group._waiting, group._has_leader, first.is_leader = [first, second], True, True
    first.wakeup.release()
    for ticket in (first, second):
        assert ticket.is_leader
        assert not ticket.wakeup.locked()
        ticket.wakeup = Stopped()  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            group._wait(ticket)
    assert group.waiting == 0
    assert group.submit(3) == 3


def test_a_request_that_times_out_keeps_the_leader() -> None:
    group: GroupCommit[int, int] = GroupCommit(lambda asked: asked, timeout_s=0.0)
    group._waiting, group._has_leader = [_Request(1)], True
    with pytest.raises(Unavailable, match="for 0 s"):
        group.submit(2)
    assert group._has_leader
    assert not group._waiting[0].is_leader


def test_an_answer_at_the_timeout_counts() -> None:
    class Late:
        """A wake-up that comes just after the timeout."""

        def acquire(self, timeout: float) -> bool:
            ticket.is_done = True
            return False

    group: GroupCommit[int, int] = GroupCommit(lambda asked: asked)
    ticket = _Request[int, int](1)
    ticket.wakeup = Late()  # type: ignore[assignment]
    group._wait(ticket)


def test_a_request_that_was_woken_before_is_done() -> None:
    """It waited until just when it was appointed, and leads; then its work is done."""
    group: GroupCommit[int, int] = GroupCommit(lambda asked: asked)
    ticket = _Request[int, int](1)
    ticket.wakeup.release()
    group._finish([ticket])
    assert ticket.is_done


def test_shared_state_changes_under_the_lock(pool: ThreadPoolExecutor) -> None:
    class Waiting(list[Any]):
        """Says whether the lock is held when one comes or goes."""

        def append(self, one: object) -> None:
            held.append(group._lock.locked())
            super().append(one)

        def remove(self, one: object) -> None:
            held.append(group._lock.locked())
            super().remove(one)

    class Watched(GroupCommit[int, int]):
        """The same for all that is set."""

        def __setattr__(self, name: str, value: Any) -> None:
            if name in ("_waiting", "_has_leader") and hasattr(self, "_has_leader"):
                held.append(self._lock.locked())
            super().__setattr__(name, Waiting(value) if name == "_waiting" else value)

    held: list[bool] = []
    group = Watched(lambda asked: asked, timeout_s=0.0)
    assert group.submit(1) == 1
    count = len(held)
    assert count == 5
    group._has_leader = True
    held.pop()
    with pytest.raises(Unavailable):
        group.submit(2)
    assert held == [True] * (count + 3)


def test_all_waiting_requests_fail_if_the_turn_cannot_be_entered(pool: ThreadPoolExecutor) -> None:
    """None of them waits for it once more, each for as long."""
    started, go = threading.Event(), threading.Event()
    turns: list[None] = []

    @contextmanager
    def turn() -> Iterator[None]:
        turns.append(None)
        if len(turns) == 1:
            started.set()
            assert go.wait(30)
            raise Unavailable("another thread has written for 30 s")
        yield

    group: GroupCommit[int, int] = GroupCommit(lambda asked: asked, turn=turn)
    told = [pool.submit(group.submit, 1)]
    assert started.wait(30)
    for number in (2, 3):
        told.append(pool.submit(group.submit, number))
        while group.waiting < number:
            pass
    go.set()
    for one in told:
        with pytest.raises(Unavailable, match="has written for 30 s"):
            one.result(30)
    assert len(turns) == 1
    assert group.submit(4) == 4
