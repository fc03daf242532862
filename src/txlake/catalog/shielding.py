"""Work on the catalog that no signal stops in the middle.

Python runs signal handlers in the main thread, between any two of its instructions: a
KeyboardInterrupt there leaves locks taken and transactions of the database open. So the main thread
hands such work to another thread and waits for its end. Other threads do it themselves. Owns those
threads; knows no database.
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

_LOOK_S = 1.0


class Shield(Protocol):
    """Carries out the work of the classes that are `shielded`: a `Database`."""

    def run_shielded(self, work: Callable[[], Value], *, waits: bool = False) -> Value:
        """As the function `run_shielded`."""
        ...


def shielded(
    *, unshielded: Collection[str] = (), waits: Collection[str] = ()
) -> Callable[[Owner], Owner]:
    """A class whose public methods and properties are carried out by its `_on`, a `Shield`.

    Args:
        besides: the names of those that need no protection.
        waits: the names of those that may wait for others for long.
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
    _on: Shield


def _shielded(
    method: Callable[Concatenate[Any, P], Value], *, waits: bool
) -> Callable[Concatenate[_Owner, P], Value]:
    @wraps(method)
    def wrapped(self: _Owner, /, *args: P.args, **kwargs: P.kwargs) -> Value:
        return self._on.run_shielded(partial(method, self, *args, **kwargs), waits=waits)

    return wrapped


def is_interruptible() -> bool:
    """Whether a signal handler may run in this thread, between any two instructions."""
    # While Python ends no other thread runs any more, and no handler either.
    return get_ident() == main_thread().ident and not sys.is_finalizing()


def run_shielded(work: Callable[[], Value], *, waits: bool = False) -> Value:
    """What `work` gives, or raises what it raises; it comes to its end whatever signals arrive.

    What a signal handler raises meanwhile, a KeyboardInterrupt say, is raised once the work has
    ended, in place of its outcome; of several the first. The work of the main thread is done in the
    order in which it was asked for, but for work that `waits`: that has a thread for itself, and
    has to look whether it `is_interrupted`.

    Raises Unavailable when no thread can be had for it, or the process was forked meanwhile.
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
    """Whether nobody waits any more for what this thread carries out."""
    call: _Call[Any] | None = getattr(_serving, "call", None)
    return call is not None and call.caught is not None


def caller() -> Thread:
    """The thread that asked for what this one carries out; else this one."""
    call: _Call[Any] | None = getattr(_serving, "call", None)
    return current_thread() if call is None else main_thread()


class _Call(Generic[Value]):
    """One piece of work, done once, in another thread. `caught`: what a signal handler raised."""

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
        """Returns once it was done, whatever a signal handler raises.

        CPython looks for signals after calls, where a function begins and where a loop jumps back,
        but not between an `except` and the first call after it. An interrupt ends a level only
        where it comes just when the loop jumps back, after another one: the third to do so would
        be raised before the end.
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
        """Queues it, again if need be: where the last interrupt came isn't known."""
        self._lane.put(self)
        while not self._is_over:
            try:
                self._over.acquire(timeout=_LOOK_S)
            except BaseException as error:
                if self.caught is None:
                    self.caught = error
            self._lane.require_same_process()

    def outcome(self) -> Value:
        """What was caught or came of it."""
        error = self._error if self.caught is None else self.caught
        try:
            if error is not None:
                raise error
            return self._value  # type: ignore[return-value]
        finally:
            self.caught = self._error = error = None  # its traceback has this frame

    def run(self) -> None:
        """Does it, in the other thread, unless that was done."""
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
    """Threads that do the calls of the main thread: one after the other, or each at once.

    They end with the process, which doesn't wait for them.
    """

    def __init__(self, *, in_order: bool) -> None:
        self._process = os.getpid()
        self._in_order = in_order
        self._calls: SimpleQueue[_Call[Any]] = SimpleQueue()
        self._underway: dict[_Call[Any], None] = {}
        self._threads = 0

    def make_ready(self) -> None:
        """Starts a thread where there is none for the next call. Raises Unavailable."""
        enough = 1 if self._in_order else len(self._underway) + 1
        if self._threads >= enough:
            return
        try:
            # `Thread.start` waits for an event, whose lock an interrupt may leave taken.
            _thread.start_new_thread(self._serve, ())
        except RuntimeError as error:
            raise Unavailable(
                f"no thread can be started to work on the catalog: {error}; end other threads, or "
                "raise the limit (ulimit -u), and try again"
            ) from error
        self._threads += 1

    def put(self, call: _Call[Any]) -> None:
        """Has it done."""
        self._underway[call] = None
        self._calls.put(call)

    def ended(self, call: _Call[Any]) -> None:
        """Its thread is free for another."""
        self._underway.pop(call, None)

    def require_same_process(self) -> None:
        """Raises Unavailable in a process that was forked from the one that has the threads."""
        if self._process != os.getpid():
            raise Unavailable(
                "the process was forked while it worked on the catalog: that work is its parent's; "
                "open the lake again here"
            )

    def _serve(self) -> None:
        current_thread().name = "txlake-catalog"
        while True:
            call = self._calls.get()
            call.run()
            del call  # it isn't held until the next one comes


class _Lanes:
    """Those of this process."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """A process that was forked has no threads yet."""
        self.in_order = _Lane(in_order=True)
        self.waiting = _Lane(in_order=False)


_serving = local()
_lanes = _Lanes()
os.register_at_fork(after_in_child=_lanes.renew)
