"""Shield work on the catalog from signals.

Python runs signal handlers in the main thread, between any two of its instructions: a
KeyboardInterrupt there leaves locks taken and transactions of the database open. So the main thread
hands such work to another thread and waits until it has ended. Other threads run it themselves.
Owns those threads; knows no database.
"""

from __future__ import annotations

import _thread
import os
import sys
from collections.abc import Callable, Collection
from contextvars import copy_context
from functools import partial, wraps
from queue import SimpleQueue
from threading import Thread, current_thread, get_ident, local, main_thread
from types import FunctionType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from txlake.errors import Unavailable

P = ParamSpec("P")
Value = TypeVar("Value")
Owner = TypeVar("Owner", bound=type)

_POLL_S = 1.0


class Shield(Protocol):
    """What runs the work of `shielded` classes: a `Database`."""

    def run_shielded(self, work: Callable[[], Value], *, waits: bool = False) -> Value:
        """Run work that no signal interrupts, as the function `run_shielded`."""
        ...


def shielded(
    *, unshielded: Collection[str] = (), waits: Collection[str] = ()
) -> Callable[[Owner], Owner]:
    """Return a class decorator that shields public methods and properties from signals.

    Each call runs to its end, whatever signals arrive: `self._database`, a `Shield`, runs it.

    Args:
        unshielded: the names of methods and properties that need no shield.
        waits: the names of methods and properties that may wait for other threads for long: each
            call has a thread of its own.
    """

    def shield(owner: Owner) -> Owner:
        for name, member in list(vars(owner).items()):
            if name.startswith("_") or name in unshielded:
                continue
            if isinstance(member, FunctionType):
                setattr(owner, name, _shielded(member, waits=name in waits))
            elif isinstance(member, property) and member.fget is not None:
                setattr(owner, name, property(_shielded(member.fget, waits=name in waits)))
        return owner

    return shield


class _Owner(Protocol):
    _database: Shield


def _shielded(
    method: Callable[Concatenate[Any, P], Value], *, waits: bool
) -> Callable[Concatenate[_Owner, P], Value]:
    """Return the method run by `self._database`; `waits` as for `run_shielded`."""

    @wraps(method)
    def wrapped(self: _Owner, /, *args: P.args, **kwargs: P.kwargs) -> Value:
        return self._database.run_shielded(partial(method, self, *args, **kwargs), waits=waits)

    return wrapped


def is_interruptible() -> bool:
    """Return whether a signal handler may run in this thread, between any two instructions."""
    # While Python shuts down, no other thread and no handler runs.
    return get_ident() == main_thread().ident and not sys.is_finalizing()


def run_shielded(work: Callable[[], Value], *, waits: bool = False) -> Value:
    """Run `work` to its end, whatever signals arrive, and return its value or raise its error.

    If a signal handler raises meanwhile, such as KeyboardInterrupt, the first of its errors is
    raised after the work has ended, instead of the outcome. Work of the main thread runs in the
    order of its requests, except work that `waits`: that has a thread of its own, and has to poll
    `is_interrupted`.

    Raises Unavailable if no thread can be started, or the process was forked meanwhile.
    """
    if not is_interruptible():
        return work()
    call = _Call(work, _lanes.waiting if waits else _lanes.in_order)
    try:
        call.carry_out()
        return call.outcome()
    finally:
        del call  # an error's traceback has this frame


def is_interrupted() -> bool:
    """Return whether the caller of the work that this thread runs was interrupted."""
    call: _Call[Any] | None = getattr(_serving, "call", None)
    return call is not None and call.caught is not None


def caller() -> Thread:
    """Return the thread that requested the work that this thread runs; without work, this
    thread.
    """
    call: _Call[Any] | None = getattr(_serving, "call", None)
    return current_thread() if call is None else main_thread()


class _Call(Generic[Value]):
    """A piece of work for another thread, run once.

    `caught`: the first error that a signal handler raised in the caller.
    """

    __slots__ = ("_context", "_error", "_is_over", "_lane", "_over", "_value", "_work",
                 "caught")  # fmt: skip

    def __init__(self, work: Callable[[], Value], lane: _Lane) -> None:
        self.caught: BaseException | None = None
        self._lane = lane
        self._context = copy_context()
        self._work = [work]
        self._value: Value | None = None
        self._error: BaseException | None = None
        self._is_over = False
        self._over = _thread.allocate_lock()
        self._over.acquire()

    def carry_out(self) -> None:
        """Hand the work to the lane and wait until it has ended, whatever a signal handler raises.

        CPython checks for signals after calls, at the beginning of a function and at the backward
        jump of a loop, but not between an `except` and the first call after it. So an interrupt
        leaves a nested `try` only if it arrives at the backward jump, after an earlier one: three
        that do so would be needed to return before the work has ended.
        """
        self._lane.make_ready()
        try:
            self._hand_over()
        except BaseException as error:
            if self.caught is None:
                self.caught = error
            try:
                self._hand_over()
            except BaseException:
                try:
                    self._hand_over()
                except BaseException:
                    self._hand_over()

    def _hand_over(self) -> None:
        """Queue the call and wait for its end.

        It may be queued several times, since it is unknown where an interrupt arrived; `run` does
        the work only once.
        """
        self._lane.put(self)
        while not self._is_over:
            try:
                self._over.acquire(timeout=_POLL_S)
            except BaseException as error:
                if self.caught is None:
                    self.caught = error
            self._lane.require_same_process()

    def outcome(self) -> Value:
        """Return the work's value, or raise the caught error or the work's."""
        error = self._error if self.caught is None else self.caught
        try:
            if error is not None:
                raise error
            return self._value  # type: ignore[return-value]
        finally:
            self.caught = self._error = error = None  # its traceback has this frame

    def run(self) -> None:
        """Run the work in this thread, the lane's, unless it was run already."""
        try:
            work = self._work.pop()
        except IndexError:
            return
        _serving.call = self
        try:
            self._value = self._context.run(work)
        except BaseException as error:
            self._error = error
        finally:
            _serving.call = None
            self._lane.ended(self)
            self._is_over = True
            self._over.release()
            self = None  # type: ignore[assignment]  # its error's traceback has this frame
            del work


class _Lane:
    """Threads that run the calls of the main thread: in order by one thread, or each by its own.

    They are daemon threads: the process doesn't wait for them at its end.
    """

    def __init__(self, *, in_order: bool) -> None:
        self._process = os.getpid()
        self._in_order = in_order
        self._calls: SimpleQueue[_Call[Any]] = SimpleQueue()
        self._underway: dict[_Call[Any], None] = {}
        self._threads = 0

    def make_ready(self) -> None:
        """Start a thread if none is free for the next call. Raises Unavailable if that fails."""
        required = 1 if self._in_order else len(self._underway) + 1
        if self._threads >= required:
            return
        try:
            # Not `Thread.start`: it waits for an event, and an interrupt may leave its lock taken.
            _thread.start_new_thread(self._serve, ())
        except RuntimeError as error:
            raise Unavailable(
                f"no thread can be started to work on the catalog: {error}; end other threads, or "
                "raise the limit (ulimit -u), and try again"
            ) from error
        self._threads += 1

    def put(self, call: _Call[Any]) -> None:
        """Queue a call for a thread to run."""
        self._underway[call] = None
        self._calls.put(call)

    def ended(self, call: _Call[Any]) -> None:
        """Record that a call has ended: its thread is free for another."""
        self._underway.pop(call, None)

    def require_same_process(self) -> None:
        """Raise Unavailable in a fork of the process that has the threads."""
        if self._process != os.getpid():
            raise Unavailable(
                "the process was forked while it worked on the catalog: that work is its parent's; "
                "open the lake again here"
            )

    def _serve(self) -> None:
        """Run the lane's calls, one after the other, as long as the process lives."""
        current_thread().name = "txlake-catalog"
        while True:
            call = self._calls.get()
            call.run()
            del call  # else it would stay referenced until the next call


class _Lanes:
    """The lanes of this process: `in_order`, and `waiting` for work that waits."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Start with new lanes: a forked process has none of its parent's threads."""
        self.in_order = _Lane(in_order=True)
        self.waiting = _Lane(in_order=False)


_serving = local()
_lanes = _Lanes()
os.register_at_fork(after_in_child=_lanes.renew)
