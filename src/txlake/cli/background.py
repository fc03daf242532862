"""A thread that does a command's work, so that Ctrl-C reaches a free main thread, which cancels it.

PySpark's own Ctrl-C handler calls the JVM on the connection that is waiting for it, which is lost
then. The handler isn't installed if Spark is started from another thread than the main one, as
here.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeVar

from txlake.cli.exit_codes import EXIT_INTERRUPTED
from txlake.errors import OutcomeUnknown

Value = TypeVar("Value")
_POLL_S = 0.5


def _exit_process() -> None:
    os._exit(EXIT_INTERRUPTED)


class BackgroundThread:
    """A thread that runs one function at a time, while the main thread waits.

    Args:
        cancel: called in the main thread, repeatedly, until the cancelled function has ended.
        exit_process: ends the process on a second Ctrl-C.
    """

    def __init__(
        self, cancel: Callable[[], None], exit_process: Callable[[], None] = _exit_process
    ) -> None:
        self._cancel = cancel
        self._exit_process = exit_process
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._run_loop, name="txlake-work", daemon=True).start()

    def run(self, work: Callable[[], Value]) -> Value:
        """Return the result of `work`. Raises what it raises.

        Ctrl-C raises, once the work has ended, a KeyboardInterrupt whose text says whether it had
        finished, or the OutcomeUnknown that it ended with.
        """
        outcome: Future[Value] = Future()
        try:
            self._work.put(lambda: _complete(outcome, work))
            while not outcome.done():
                # Ctrl-C just before a wait begins doesn't end the wait, so waits are short.
                wait([outcome], timeout=_POLL_S)
            return outcome.result()
        except KeyboardInterrupt as interrupt:
            if outcome.done() and outcome.exception() is interrupt:
                raise
        self._cancel_until_done(outcome)
        error = outcome.exception()
        if error is None:
            raise KeyboardInterrupt("too late, it had finished: what it did stands")
        if isinstance(error, OutcomeUnknown):
            raise error
        raise KeyboardInterrupt("it was cancelled, and nothing of it is kept") from error

    def _cancel_until_done(self, outcome: Future[Value]) -> None:
        """Cancel the work every half second until it has ended; Ctrl-C ends the process."""
        try:
            while not outcome.done():
                with suppress(Exception):  # without a cancellation the work ends later
                    self._cancel()
                wait([outcome], timeout=_POLL_S)
        except KeyboardInterrupt:
            self._exit_process()

    def _run_loop(self) -> None:
        while True:
            self._work.get()()


def _complete(outcome: Future[Value], work: Callable[[], Value]) -> None:
    """Run the work, and set its result or error as the outcome."""
    try:
        outcome.set_result(work())
    except BaseException as error:
        outcome.set_exception(error)
