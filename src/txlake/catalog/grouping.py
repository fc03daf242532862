"""Group commit among the threads of a process: who comes first does the work of all who wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar

from txlake.errors import InvalidRequest, Unavailable

_GATHERING_S = 0.002

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Interrupted(Exception):
    """The thread that did the work was stopped in the middle: nothing is known of its outcome."""


class _Ticket(Generic[Asked, Answer]):
    """A request, and its answer once it `is_done`.

    `leads`: who asked it does the next work. `bell` is let go when either is so, and for who leads
    when a crowd is there.
    """

    __slots__ = ("answer", "asked", "bell", "error", "is_done", "leads")

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.answer: Answer | None = None
        self.error: BaseException | None = None
        self.is_done = self.leads = False
        self.bell = threading.Lock()
        self.bell.acquire()

    def result(self) -> Answer:
        error, self.error = self.error, None
        try:
            if error is not None:
                raise error
            assert self.answer is not None, "one that is asked for alone is answered"
            return self.answer
        finally:
            del error  # its traceback has this frame


class Group(Generic[Asked, Answer]):
    """Requests of many threads, answered together.

    `work` gets the requests that wait, in the order they came in, and gives as many answers; an
    answer that is an exception is raised to who asked. When `work` raises InvalidRequest, nothing
    was done for any: it gets them again one by one, so that only who asked it is refused. So it
    does a request of several whose answer is None. `turn` gives what the work has to have
    first: who asks while that is waited for is taken along, and told where it can't be had.

    Where several came together the last times as many are waited for, but not long: a crowd needs
    fewer groups so. Who is alone waits for nobody.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Asked]], Sequence[Answer | Exception | None]],
        *,
        turn: Callable[[], AbstractContextManager[object]] = nullcontext,
        patience_s: float = 300.0,
    ) -> None:
        self._work = work
        self._turn = turn
        self._patience_s = patience_s
        self._changing = threading.Lock()
        self._waiting: list[_Ticket[Asked, Answer]] = []
        self._is_led = False
        self._crowd = 1
        self._gathering: _Ticket[Asked, Answer] | None = None

    @property
    def waiting(self) -> int:
        """How many requests wait for the next turn."""
        return len(self._waiting)

    def ask(self, asked: Asked) -> Answer:
        """The answer to a request.

        Raises what answering it raised, Interrupted where that was in another thread's hands and
        didn't come to an end, Unavailable when its turn didn't come: nothing was done for it.
        """
        ticket: _Ticket[Asked, Answer] = _Ticket(asked)
        with self._changing:
            self._waiting.append(ticket)
            is_first, self._is_led = not self._is_led, True
            if len(self._waiting) >= self._crowd:
                _ring(self._gathering)
        if not is_first:
            self._wait(ticket)
            if ticket.is_done:
                return ticket.result()
        taken = [ticket]
        try:
            with self._turn():
                self._gather(ticket)
                taken = self._taken()
                self._answer(taken)
        except Exception as error:  # the turn's: what the work raises is an answer
            taken = self._taken()
            for each in taken:
                each.error = error
        finally:
            self._hand_on(taken)
        return ticket.result()

    def _gather(self, leading: _Ticket[Asked, Answer]) -> None:
        """Until a crowd is there again, or a moment has passed. Who completes it rings."""
        self._gathering = leading  # before it looks who is there: who comes then rings
        if len(self._waiting) < self._crowd:
            leading.bell.acquire(timeout=_GATHERING_S)

    def _taken(self) -> list[_Ticket[Asked, Answer]]:
        """The requests that wait, which are answered now."""
        with self._changing:
            taken, self._waiting = self._waiting, []
            self._crowd = max(len(taken), self._crowd - 1)
        return taken

    def _wait(self, ticket: _Ticket[Asked, Answer]) -> None:
        """Until it is answered, or leads the next work. Raises as `ask`."""
        try:
            if ticket.bell.acquire(timeout=self._patience_s):
                return
        except BaseException:
            self._leave(ticket)
            raise
        if ticket.is_done:
            return
        if not self._leave(ticket):
            raise Interrupted
        raise Unavailable(
            f"another thread of this process has worked on the catalog for {self._patience_s:g} s, "
            "expected an end before; try again, or start the process again"
        )

    def _leave(self, ticket: _Ticket[Asked, Answer]) -> bool:
        """Whether nobody has begun to answer it; nobody will, and another one leads."""
        with self._changing:
            if ticket not in self._waiting:
                return False
            self._waiting.remove(ticket)
            following = self._appointed() if ticket.leads else None
        _ring(following)
        return True

    def _hand_on(self, taken: Sequence[_Ticket[Asked, Answer]]) -> None:
        """Says that they are done, and has the next who waits take the lead."""
        with self._changing:
            self._waiting = [each for each in self._waiting if each not in taken]
            self._gathering = None
            following = self._appointed()
            for each in taken:
                each.is_done = True
        _ring(following, *taken)

    def _appointed(self) -> _Ticket[Asked, Answer] | None:
        """The first who waits leads now; None: nobody does."""
        following = self._waiting[0] if self._waiting else None
        self._is_led = following is not None
        if following is not None:
            following.leads = True
        return following

    def _answer(self, taken: Sequence[_Ticket[Asked, Answer]]) -> None:
        for ticket in taken:
            ticket.error = Interrupted()
        answers: Sequence[Answer | Exception | None]
        try:
            answers = self._work([ticket.asked for ticket in taken])
        except InvalidRequest as error:
            if len(taken) > 1:
                for ticket in taken:
                    self._answer([ticket])
                return
            answers = [error]
        except Exception as error:
            answers = [error] * len(taken)
        alone: list[_Ticket[Asked, Answer]] = []
        for ticket, answer in zip(taken, answers):
            if answer is None and len(taken) > 1:
                alone.append(ticket)
            else:
                ticket.error = answer if isinstance(answer, Exception) else None
                ticket.answer = None if isinstance(answer, Exception) else answer
        for ticket in alone:
            self._answer([ticket])


def _ring(*tickets: _Ticket[Any, Any] | None) -> None:
    for ticket in tickets:
        if ticket is not None and ticket.bell.locked():
            ticket.bell.release()
