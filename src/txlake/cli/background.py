"""The thread that does a command's work, so that Ctrl-C finds the main thread free to cancel it.

PySpark's own way with Ctrl-C asks the JVM on the very connection that waits for it, which is then
lost; it isn't taken when Spark is started from another thread than the main one, as here.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeVar

from txlake.cli.failures import EXIT_INTERRUPTED
from txlake.errors import OutcomeUnknown

Value = TypeVar("Value")
_LOOK_AGAIN_S = 0.5


def _leave() -> None:
    os._exit(EXIT_INTERRUPTED)


class Background:
    """Does one thing at a time in a thread of its own.

    Args:
        cancel: called from the main thread, and again, until what is cancelled has ended.
        leave: ends the process when Ctrl-C comes again meanwhile.
    """

    def __init__(self, cancel: Callable[[], None], leave: Callable[[], None] = _leave) -> None:
        self._cancel = cancel
        self._leave = leave
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._serve, name="txlake-work", daemon=True).start()

    def do(self, work: Callable[[], Value]) -> Value:
        """What `work` gives. Raises what it raises.

        After Ctrl-C, once the work has ended: a KeyboardInterrupt whose text says whether it had
        finished, or the OutcomeUnknown that it ended with.
        """
        outcome: Future[Value] = Future()
        try:
            self._work.put(lambda: _settle(outcome, work))
            while not outcome.done():
                # Ctrl-C just before a wait begins doesn't end it, so no wait is for ever.
                wait([outcome], timeout=_LOOK_AGAIN_S)
            return outcome.result()
        except KeyboardInterrupt as interrupt:
            if outcome.done() and outcome.exception() is interrupt:
                raise
        self._end(outcome)
        error = outcome.exception()
        if error is None:
            raise KeyboardInterrupt("too late, it had finished: what it did stands")
        if isinstance(error, OutcomeUnknown):
            raise error
        raise KeyboardInterrupt("it was cancelled, and nothing of it is kept") from error

    def _end(self, outcome: Future[Value]) -> None:
        try:
            while not outcome.done():
                with suppress(Exception):  # the work ends anyhow, only later
                    self._cancel()
                wait([outcome], timeout=_LOOK_AGAIN_S)
        except KeyboardInterrupt:
            self._leave()

    def _serve(self) -> None:
        while True:
            self._work.get()()


def _settle(outcome: Future[Value], work: Callable[[], Value]) -> None:
    try:
        outcome.set_result(work())
    except BaseException as error:
        outcome.set_exception(error)
