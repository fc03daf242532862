"""Ctrl-C while a statement runs: it is cancelled, and what became of it is said."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from txlake.cli.background import BackgroundThread
from txlake.errors import InvalidRequest, OutcomeUnknown


class Work:
    """Work that gets a Ctrl-C sent to the process, and ends when it is cancelled."""

    def __init__(self, ends: Callable[[], str]) -> None:
        self._ends = ends
        self._cancelled = threading.Event()
        self.cancels = 0

    def cancel(self) -> None:
        self.cancels += 1
        self._cancelled.set()

    def __call__(self) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        self._cancelled.wait(120)
        return self._ends()


@pytest.fixture(autouse=True)
def interrupts() -> Iterator[None]:
    """Ctrl-C as Python has it, whatever Spark made of it before in this process."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def refuse() -> str:
    raise InvalidRequest("the job was cancelled")


def test_work_is_done_in_one_other_thread() -> None:
    background = BackgroundThread(lambda: None)
    threads = {background.run(threading.get_ident) for _ in range(3)}
    assert len(threads) == 1
    assert threads != {threading.get_ident()}
    with pytest.raises(InvalidRequest, match="the job was cancelled"):
        background.run(refuse)
    assert background.run(lambda: 7) == 7


def test_what_was_cancelled_left_nothing() -> None:
    work = Work(refuse)
    background = BackgroundThread(work.cancel)
    with pytest.raises(KeyboardInterrupt, match="nothing of it is kept") as raised:
        background.run(work)
    assert isinstance(raised.value.__cause__, InvalidRequest)
    assert work.cancels >= 1
    assert background.run(lambda: 7) == 7  # it goes on


def test_what_finished_all_the_same_is_said() -> None:
    work = Work(lambda: "committed")
    with pytest.raises(KeyboardInterrupt, match="too late, it had finished"):
        BackgroundThread(work.cancel).run(work)


def test_an_unknown_outcome_stays_one() -> None:
    def unknown() -> str:
        raise OutcomeUnknown("the reply was lost")

    work = Work(unknown)
    with pytest.raises(OutcomeUnknown):
        BackgroundThread(work.cancel).run(work)


def test_a_cancel_that_fails_does_no_harm() -> None:
    work = Work(refuse)

    def cancel() -> None:
        work.cancel()
        raise RuntimeError("the JVM is gone")

    with pytest.raises(KeyboardInterrupt):
        BackgroundThread(cancel).run(work)


def test_a_second_interrupt_leaves_at_once() -> None:
    left: list[bool] = []
    work = Work(refuse)

    def cancel() -> None:
        signal.raise_signal(signal.SIGINT)

    def leave() -> None:
        left.append(True)
        work.cancel()

    with pytest.raises((KeyboardInterrupt, InvalidRequest)):
        BackgroundThread(cancel, leave).run(work)
    assert left == [True]
