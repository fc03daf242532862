"""Group commit: who comes first does the work of all who wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import pytest

from tests.catalog.locking import until
from txlake.catalog import grouping
from txlake.catalog.grouping import Group, Interrupted, _Ticket
from txlake.errors import InvalidRequest, Unavailable


class Held:
    """A group whose first work waits until it is let go, and what it was given to do."""

    def __init__(self, work: Callable[[Sequence[int]], Sequence[int | Exception | None]]) -> None:
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

    def _do(self, asked: Sequence[int]) -> Sequence[int | Exception | None]:
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


def test_as_many_are_waited_for_as_came_before(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouping, "_GATHERING_S", 20.0)
    held = Held(lambda asked: asked)
    for future in held.ask(pool, 1, [2, 3, 4]):
        future.result(30)
    futures = []
    for number in (5, 6):
        futures.append(pool.submit(held.group.ask, number))
        until(lambda: held.group.waiting == len(futures))
    assert not any(future.done() for future in futures)
    assert pool.submit(held.group.ask, 7).result(10) == 7
    assert [future.result(30) for future in futures] == [5, 6]
    assert held.done == [[1], [2, 3, 4], [5, 6, 7]]


def test_a_crowd_that_is_over_is_waited_for_a_few_times_and_not_long(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(lambda asked: asked)
    for future in held.ask(pool, 1, [2, 3, 4]):
        future.result(30)
    assert held.group.ask(5) == 5
    assert held.group.ask(6) == 6
    monkeypatch.setattr(grouping, "_GATHERING_S", 20.0)
    assert pool.submit(held.group.ask, 7).result(10) == 7
    assert held.done[2:] == [[5], [6], [7]]


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


def test_who_cannot_be_answered_with_the_others_is_asked_for_alone(
    pool: ThreadPoolExecutor,
) -> None:
    held = Held(lambda asked: [None if n == 3 and len(asked) > 1 else n for n in asked])
    futures = held.ask(pool, 1, [2, 3, 4])
    assert [future.result(30) for future in futures] == [1, 2, 3, 4]
    assert held.done == [[1], [2, 3, 4], [3]]


def test_who_is_not_answered_alone_either_is_told() -> None:
    """It isn't Interrupted, after which one would ask again and again."""
    group: Group[int, int] = Group(lambda asked: [None for _ in asked])
    with pytest.raises(AssertionError, match="alone"):
        group.ask(1)


def test_who_stops_waiting_hands_the_lead_on() -> None:
    """Each was told to do the next work, and is stopped before it does."""

    class Stopped:
        """A bell whose owner is stopped as it hears it."""

        def acquire(self, timeout: float) -> bool:
            raise KeyboardInterrupt

    group: Group[int, int] = Group(lambda asked: asked)
    first, second = _Ticket[int, int](1), _Ticket[int, int](2)
    group._waiting, group._is_led, first.leads = [first, second], True, True
    first.bell.release()
    for ticket in (first, second):
        assert ticket.leads
        assert not ticket.bell.locked()
        ticket.bell = Stopped()  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            group._wait(ticket)
    assert group.waiting == 0
    assert group.ask(3) == 3


def test_one_that_waits_in_vain_does_not_take_the_lead_away() -> None:
    group: Group[int, int] = Group(lambda asked: asked, patience_s=0.0)
    group._waiting, group._is_led = [_Ticket(1)], True
    with pytest.raises(Unavailable, match="for 0 s"):
        group.ask(2)
    assert group._is_led
    assert not group._waiting[0].leads


def test_who_waits_until_just_when_it_is_answered_is_answered() -> None:
    class Late:
        """A bell that is rung as soon as nobody listens any more."""

        def acquire(self, timeout: float) -> bool:
            ticket.is_done = True
            return False

    group: Group[int, int] = Group(lambda asked: asked)
    ticket = _Ticket[int, int](1)
    ticket.bell = Late()  # type: ignore[assignment]
    group._wait(ticket)


def test_who_heard_already_is_told_once_more() -> None:
    """It waited until just when it was appointed, and leads; then its work is done."""
    group: Group[int, int] = Group(lambda asked: asked)
    ticket = _Ticket[int, int](1)
    ticket.bell.release()
    group._hand_on([ticket])
    assert ticket.is_done


def test_what_threads_share_is_changed_by_one_at_a_time(pool: ThreadPoolExecutor) -> None:
    class Waiting(list[Any]):
        """Says whether the lock is held when one comes or goes."""

        def append(self, one: object) -> None:
            held.append(group._changing.locked())
            super().append(one)

        def remove(self, one: object) -> None:
            held.append(group._changing.locked())
            super().remove(one)

    class Watched(Group[int, int]):
        """The same for all that is set."""

        def __setattr__(self, name: str, value: Any) -> None:
            if name in ("_waiting", "_is_led") and hasattr(self, "_is_led"):
                held.append(self._changing.locked())
            super().__setattr__(name, Waiting(value) if name == "_waiting" else value)

    held: list[bool] = []
    group = Watched(lambda asked: asked, patience_s=0.0)
    assert group.ask(1) == 1
    count = len(held)
    assert count == 5
    group._is_led = True
    held.pop()
    with pytest.raises(Unavailable):
        group.ask(2)
    assert held == [True] * (count + 3)


def test_where_the_turn_cannot_be_had_all_who_wait_are_told(pool: ThreadPoolExecutor) -> None:
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

    group: Group[int, int] = Group(lambda asked: asked, turn=turn)
    told = [pool.submit(group.ask, 1)]
    assert started.wait(30)
    for number in (2, 3):
        told.append(pool.submit(group.ask, number))
        while group.waiting < number:
            pass
    go.set()
    for one in told:
        with pytest.raises(Unavailable, match="has written for 30 s"):
            one.result(30)
    assert len(turns) == 1
    assert group.ask(4) == 4
