"""Group commit: one thread of the process, the leader, carries out the waiting requests of all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar

from txlake.errors import InvalidRequest, Unavailable

_GATHERING_S = 0.002

Value = TypeVar("Value")
Result = TypeVar("Result")


class Interrupted(Exception):
    """The leader was interrupted while it carried out the batch: the outcome is unknown."""


class _Request(Generic[Value, Result]):
    """A request of one thread, and its answer once `is_done`.

    Attributes:
        is_leader: the thread carries out the next batch.
        wakeup: a lock that the thread waits for. It is released when the request is done, when its
            thread becomes the leader, and, for a leader, when the batch has its recent size.
    """

    __slots__ = ("answer", "error", "is_done", "is_leader", "value", "wakeup")

    def __init__(self, value: Value) -> None:
        self.value = value
        self.answer: Result | None = None
        self.error: BaseException | None = None
        self.is_done = self.is_leader = False
        self.wakeup = threading.Lock()
        self.wakeup.acquire()

    def result(self) -> Result:
        """Return the answer, or raise the error that was the answer. Call it once."""
        error, self.error = self.error, None
        try:
            if error is not None:
                raise error
            assert self.answer is not None, "a batch of one request is always answered"
            return self.answer
        finally:
            del error  # its traceback has this frame


class GroupCommit(Generic[Value, Result]):
    """Batches the requests of many threads.

    `work` gets the waiting requests in the order of their arrival and returns one answer for each;
    an answer that is an exception is raised in the thread of its request. If `work` raises
    InvalidRequest, it has done nothing: the requests are carried out again one by one, so that only
    the invalid one fails. A request of several whose answer is None is carried out again alone.
    `turn` is entered before `work`; requests that arrive meanwhile join the batch, and all of them
    fail if it can't be entered.

    The leader waits up to 2 ms until the batch has the size of recent ones: fewer, larger batches
    under load. A thread that is alone doesn't wait.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Value]], Sequence[Result | Exception | None]],
        *,
        turn: Callable[[], AbstractContextManager[object]] = nullcontext,
        timeout_s: float = 300.0,
    ) -> None:
        self._work = work
        self._turn = turn
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._waiting: list[_Request[Value, Result]] = []
        self._has_leader = False
        self._batch_target = 1
        self._gathering_leader: _Request[Value, Result] | None = None

    @property
    def waiting(self) -> int:
        """The number of requests that wait for the next batch."""
        return len(self._waiting)

    def submit(self, value: Value) -> Result:
        """Carry out a request and return its answer.

        Raises what `work` raised for it; Interrupted if the leader was interrupted, so that the
        outcome is unknown; Unavailable after `timeout_s` without a leader: nothing was done.
        """
        request: _Request[Value, Result] = _Request(value)
        with self._lock:
            self._waiting.append(request)
            is_first, self._has_leader = not self._has_leader, True
            if len(self._waiting) >= self._batch_target:
                _wake(self._gathering_leader)
        if not is_first:
            self._wait(request)
            if request.is_done:
                return request.result()
        batch = [request]
        try:
            with self._turn():
                self._gather_batch(request)
                batch = self._take_batch()
                self._answer(batch)
        except Exception as error:  # the turn's: what the work raises is an answer
            batch = self._take_batch()
            for each in batch:
                each.error = error
        finally:
            self._finish(batch)
        return request.result()

    def _gather_batch(self, leader: _Request[Value, Result]) -> None:
        """Wait up to 2 ms until the batch has its recent size."""
        self._gathering_leader = leader  # before the count: a later request wakes the leader
        if len(self._waiting) < self._batch_target:
            leader.wakeup.acquire(timeout=_GATHERING_S)

    def _take_batch(self) -> list[_Request[Value, Result]]:
        """Take the waiting requests as the batch of this leader."""
        with self._lock:
            batch, self._waiting = self._waiting, []
            self._batch_target = max(len(batch), self._batch_target - 1)
        return batch

    def _wait(self, request: _Request[Value, Result]) -> None:
        """Wait until the request is done or its thread is the leader. Raises as `submit`."""
        try:
            if request.wakeup.acquire(timeout=self._timeout_s):
                return
        except BaseException:
            self._withdraw(request)
            raise
        if request.is_done:
            return
        if not self._withdraw(request):
            raise Interrupted
        raise Unavailable(
            f"another thread of this process has worked on the catalog for {self._timeout_s:g} s, "
            "expected an end before; try again, or start the process again"
        )

    def _withdraw(self, request: _Request[Value, Result]) -> bool:
        """Withdraw the request. Return False if a leader has already taken it."""
        with self._lock:
            if request not in self._waiting:
                return False
            self._waiting.remove(request)
            next_leader = self._next_leader() if request.is_leader else None
        _wake(next_leader)
        return True

    def _finish(self, batch: Sequence[_Request[Value, Result]]) -> None:
        """Mark the batch as done and make the first waiting request the leader."""
        with self._lock:
            self._waiting = [each for each in self._waiting if each not in batch]
            self._gathering_leader = None
            next_leader = self._next_leader()
            for each in batch:
                each.is_done = True
        _wake(next_leader, *batch)

    def _next_leader(self) -> _Request[Value, Result] | None:
        """Make the first waiting request the leader and return it; None if none waits."""
        next_leader = self._waiting[0] if self._waiting else None
        self._has_leader = next_leader is not None
        if next_leader is not None:
            next_leader.is_leader = True
        return next_leader

    def _answer(self, batch: Sequence[_Request[Value, Result]]) -> None:
        """Carry out the requests and store each one's answer or error; raise no Exception.

        If a BaseException, such as KeyboardInterrupt, ends the work, it is raised, and each
        request's error is Interrupted.
        """
        for request in batch:
            request.error = Interrupted()
        answers: Sequence[Result | Exception | None]
        try:
            answers = self._work([request.value for request in batch])
        except InvalidRequest as error:
            if len(batch) > 1:
                for request in batch:
                    self._answer([request])
                return
            answers = [error]
        except Exception as error:
            answers = [error] * len(batch)
        alone: list[_Request[Value, Result]] = []
        for request, answer in zip(batch, answers):
            if answer is None and len(batch) > 1:
                alone.append(request)
            else:
                request.error = answer if isinstance(answer, Exception) else None
                request.answer = None if isinstance(answer, Exception) else answer
        for request in alone:
            self._answer([request])


def _wake(*requests: _Request[Any, Any] | None) -> None:
    """Wake the threads of the requests that wait; do nothing for None."""
    for request in requests:
        if request is not None and request.wakeup.locked():
            request.wakeup.release()
