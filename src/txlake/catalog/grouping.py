"""Group commit among the threads of a process: who comes first does the work of all who wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from txlake.errors import InvalidRequest, Unavailable

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Interrupted(Exception):
    """The thread that did the work was stopped in the middle: nothing is known of its outcome."""


class _Ticket(Generic[Asked, Answer]):
    __slots__ = ("answer", "asked", "error", "is_done")

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.answer: Answer | None = None
        self.error: BaseException | None = None
        self.is_done = False

    def result(self) -> Answer:
        if self.error is not None:
            raise self.error
        assert self.answer is not None
        return self.answer


class Group(Generic[Asked, Answer]):
    """Requests of many threads, answered together.

    `work` gets the requests that wait, in the order they came in, and gives as many answers; an
    answer that is an exception is raised to who asked. When `work` raises InvalidRequest, nothing
    was done for any: it gets them again one by one, so that only who asked it is refused.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Asked]], Sequence[Answer | Exception]],
        *,
        patience_s: float = 300.0,
    ) -> None:
        self._work = work
        self._patience_s = patience_s
        self._changed = threading.Condition()
        self._waiting: list[_Ticket[Asked, Answer]] = []
        self._is_led = False

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
        with self._changed:
            self._waiting.append(ticket)
            is_mine = self._changed.wait_for(
                lambda: ticket.is_done or not self._is_led, self._patience_s
            )
            if not is_mine:
                self._give_up(ticket)
            if ticket.is_done:
                return ticket.result()
            self._is_led = True
            taken, self._waiting = self._waiting, []
        try:
            self._answer(taken)
        finally:
            with self._changed:
                self._is_led = False
                for each in taken:
                    each.is_done = True
                self._changed.notify_all()
        return ticket.result()

    def _give_up(self, ticket: _Ticket[Asked, Answer]) -> None:
        if ticket not in self._waiting:
            raise Interrupted
        self._waiting.remove(ticket)
        raise Unavailable(
            f"another thread of this process has worked on the catalog for {self._patience_s:g} s, "
            "expected an end before; try again, or start the process again"
        )

    def _answer(self, taken: Sequence[_Ticket[Asked, Answer]]) -> None:
        for ticket in taken:
            ticket.error = Interrupted()
        answers: Sequence[Answer | Exception]
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
        for ticket, answer in zip(taken, answers):
            ticket.error = answer if isinstance(answer, Exception) else None
            ticket.answer = None if isinstance(answer, Exception) else answer
