"""Sending events from a thread of its own: no commit waits for it or fails by it.

Owns the queue, its bound, and what is dropped. Where events go is the configuration of
OpenLineage's client: `openlineage.yml`, or its variables of the environment.
"""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import queue
import threading
import time

from txlake.errors import InvalidRequest
from txlake.session.lineage.facts import TransactionFacts

QUEUE_MAX = 1_000
"""Transactions that wait to be sent; the events of further ones are dropped."""
_EXIT_S = 5.0
_POLL_S = 0.02
_logger = logging.getLogger(__name__)


def require_client() -> None:
    """Raise InvalidRequest if OpenLineage's client isn't installed."""
    if importlib.util.find_spec("openlineage") is None:
        raise InvalidRequest(
            "Settings(openlineage=...) needs the package openlineage-python, which isn't "
            'installed: pip install "txlake[openlineage]" installs it'
        )


class Emitter:
    """Sends the events of one process's transactions, in the order in which they ended.

    Attributes:
        dropped: transactions whose events weren't sent, because the queue was full or sending
            failed.
    """

    def __init__(self, namespace: str, *, queue_max: int = QUEUE_MAX) -> None:
        self.dropped = 0
        self._namespace = namespace
        self._waiting: queue.Queue[TransactionFacts] = queue.Queue(queue_max)
        self._thread = threading.Thread(target=self._run, name="txlake-openlineage", daemon=True)
        self._thread.start()

    def put(self, facts: TransactionFacts) -> None:
        """Send a transaction's events soon; drop them if too many wait. Never blocks."""
        try:
            self._waiting.put_nowait(facts)
        except queue.Full:
            self._drop("too many events wait: is the receiver slow, or gone?")

    def flush(self, timeout_s: float) -> bool:
        """Wait until all events were sent or dropped; return whether they were in time."""
        deadline = time.monotonic() + timeout_s
        while self._waiting.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return not self._waiting.unfinished_tasks

    def _drop(self, reason: object) -> None:
        """Count a transaction whose events are lost, and log the first of them, the second, the
        fourth, and so on.
        """
        self.dropped += 1
        if self.dropped & (self.dropped - 1) == 0:
            _logger.warning("events of %d transactions were dropped: %s", self.dropped, reason)

    def _run(self) -> None:
        client = None
        while True:
            facts = self._waiting.get()
            try:
                from openlineage.client import OpenLineageClient

                from txlake.session.lineage.events import events_of

                client = client or OpenLineageClient()
                for event in events_of(facts, self._namespace):
                    client.emit(event)
            except Exception as error:
                self._drop(f"{type(error).__name__}: {error}")
            finally:
                self._waiting.task_done()


_lock = threading.Lock()
# By process, as a forked one has no thread, and namespace.
_emitters: dict[tuple[int, str], Emitter] = {}


def emitter_of(namespace: str) -> Emitter:
    """Return the process's emitter for jobs of a namespace. It sends the rest when Python exits,
    for up to five seconds.
    """
    key = (os.getpid(), namespace)
    with _lock:
        found = _emitters.get(key)
        if found is None:
            found = _emitters[key] = Emitter(namespace)
            atexit.register(found.flush, _EXIT_S)
        return found
