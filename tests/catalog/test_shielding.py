"""Work that no signal stops in the middle: done elsewhere, waited for to its end."""

from __future__ import annotations

import _thread
import contextvars
import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType

import pytest

from txlake.catalog import shielding
from txlake.catalog.shielding import (
    caller,
    is_interrupted,
    is_interruptible,
    run_shielded,
    shielded,
)
from txlake.errors import Unavailable

Number = contextvars.ContextVar("Number", default=0)


@pytest.fixture
def press() -> Iterator[Callable[[], None]]:
    """Ctrl-C: the handler runs in the main thread, whoever calls this."""

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    kept = signal.signal(signal.SIGUSR1, interrupt)
    yield lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, kept)


@pytest.fixture
def lanes(monkeypatch: pytest.MonkeyPatch) -> shielding._Lanes:
    """Those of a process that has no threads yet."""
    made = shielding._Lanes()
    monkeypatch.setattr(shielding, "_lanes", made)
    return made


class Counter:
    """What is shielded, and what isn't."""

    def __init__(self) -> None:
        self._database = Here()
        self.seen: list[int] = []

    def add(self, number: int, *, twice: bool = False) -> int:
        self.seen.append(threading.get_ident())
        return number * 2 if twice else number

    @property
    def where(self) -> int:
        return threading.get_ident()

    def beside(self) -> int:
        return threading.get_ident()

    def _own(self) -> int:
        return threading.get_ident()


class Here:
    """Carries it out as a database does, and notes whether it waits."""

    def __init__(self) -> None:
        self.waits: list[bool] = []

    def run_shielded(self, work: Callable[[], object], *, waits: bool = False) -> object:
        self.waits.append(waits)
        return run_shielded(work, waits=waits)


def test_public_methods_are_carried_out_elsewhere() -> None:
    shielded(unshielded=("beside",), waits=("add",))(Counter)
    counter, me = Counter(), threading.get_ident()
    assert counter.add(1, twice=True) == 2
    assert me not in {counter.where, *counter.seen}
    assert {counter.beside(), counter._own()} == {me}
    assert counter._database.waits == [True, False]
    assert Counter.add.__name__ == "add"


def test_another_thread_does_it_itself() -> None:
    found: list[int] = []

    def ask() -> None:
        assert not is_interruptible()
        found.append(run_shielded(threading.get_ident))
        found.append(threading.get_ident())

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join(60)
    assert found[0] == found[1]
    assert is_interruptible()


def test_who_asks_is_known_there() -> None:
    assert run_shielded(caller) is threading.current_thread() is caller()
    assert run_shielded(lambda: run_shielded(caller)) is threading.current_thread()
    assert run_shielded(lambda: is_interrupted()) is False
    assert not is_interrupted()


def test_context_and_errors_go_along() -> None:
    Number.set(7)
    assert run_shielded(Number.get) == 7

    def fails() -> None:
        raise ValueError("of the work")

    with pytest.raises(ValueError, match="of the work") as raised:
        run_shielded(fails)
    assert raised.traceback[-1].name == "fails"
    assert run_shielded(Number.get) == 7


@pytest.mark.parametrize("outcome", ["value", "error"])
def test_nothing_is_held_afterwards(outcome: str) -> None:
    class Thing:
        pass

    thing = Thing()
    gone = weakref.ref(thing)

    def work(held: Thing = thing) -> Thing:
        if outcome == "error":
            raise ValueError(held)
        return held

    gc.disable()
    try:
        with suppress(ValueError):
            run_shielded(work)
        del work, thing
        run_shielded(int)  # the thread has looked for the next
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_an_interrupt_is_raised_when_the_work_has_ended(
    press: Callable[[], None], times: int, *, waits: bool
) -> None:
    steps: list[str] = []

    def work() -> None:
        for _ in range(times):
            press()
            _await(is_interrupted)
        steps.append("done")

    with pytest.raises(KeyboardInterrupt):
        run_shielded(work, waits=waits)
    assert steps == ["done"]


def test_the_works_own_error_gives_way_to_the_interrupt(press: Callable[[], None]) -> None:
    def work() -> None:
        press()
        _await(is_interrupted)
        raise ValueError

    with pytest.raises(KeyboardInterrupt):
        run_shielded(work)


def test_what_comes_after_an_interrupt_waits_for_what_went_before(
    press: Callable[[], None], monkeypatch: pytest.MonkeyPatch, lanes: shielding._Lanes
) -> None:
    """So many interrupts that the wait is given up all the same: the order is kept."""
    steps: list[str] = []
    go = threading.Event()

    def refuse() -> None:
        raise KeyboardInterrupt

    def first() -> None:
        assert go.wait(30)
        steps.append("first")

    with monkeypatch.context() as patched:
        patched.setattr(shielding, "_POLL_S", 0.001)
        patched.setattr(lanes.in_order, "require_same_process", refuse)
        with pytest.raises(KeyboardInterrupt):
            run_shielded(first)
    assert steps == []
    go.set()
    run_shielded(lambda: steps.append("second"))
    assert steps == ["first", "second"]


def test_work_that_waits_keeps_nothing_else_waiting(lanes: shielding._Lanes) -> None:
    """A handler may use the lake while its thread waits for a lock, or for another one there."""
    done: list[str] = []
    ends = threading.Event()

    def handler(_: int, __: FrameType | None) -> None:
        run_shielded(lambda: done.append("other"))
        run_shielded(lambda: done.append("waits too"), waits=True)
        ends.set()

    kept = signal.signal(signal.SIGUSR1, handler)
    try:

        def waiting() -> bool:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            return ends.wait(30)

        assert run_shielded(waiting, waits=True)
    finally:
        signal.signal(signal.SIGUSR1, kept)
    assert done == ["other", "waits too"]
    assert run_shielded(lambda: True, waits=True)
    assert lanes.waiting._threads == 2


def test_no_thread_to_be_had_is_said(
    monkeypatch: pytest.MonkeyPatch, lanes: shielding._Lanes
) -> None:
    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(_thread, "start_new_thread", refuse)
        with pytest.raises(Unavailable, match=r"no thread can be started.*ulimit"):
            run_shielded(int)
    assert run_shielded(int) == 0


def test_a_forked_process_has_threads_of_its_own() -> None:
    run_shielded(int)
    assert _forked(lambda: run_shielded(int)) == 0


def test_a_process_forked_in_the_middle_does_not_wait_for_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shielding, "_POLL_S", 0.01)
    ends = threading.Event()
    parent = os.getpid()
    children: list[int] = []

    def fork(_: int, __: FrameType | None) -> None:
        children.append(os.fork())
        ends.set()

    def work() -> bool:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        return ends.wait(30)

    kept = signal.signal(signal.SIGUSR1, fork)
    status = 1
    try:
        assert run_shielded(work)
    except Unavailable as error:
        status = 0 if "its parent's" in str(error) else 2
    finally:
        if os.getpid() != parent:
            os._exit(status)
        signal.signal(signal.SIGUSR1, kept)
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0


def test_it_works_until_python_ends_and_keeps_no_process_alive() -> None:
    program = """
import atexit
from txlake.catalog.shielding import run_shielded

class Last:
    def __del__(self):
        print(run_shielded(lambda: "deleted"), flush=True)

run_shielded(int)
run_shielded(int, waits=True)
atexit.register(lambda: print(run_shielded(lambda: "exit"), flush=True))
_last = Last()
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout.split() == ["exit", "deleted"]
    assert ran.stderr == ""


def _await(happened: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(30_000):
        if happened():
            return
        pause.wait(0.001)
    raise AssertionError("it didn't happen")


def _forked(work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
