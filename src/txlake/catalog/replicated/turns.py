"""The turns of this process to write a catalog's log, so that no process starves.

Processes that write all the time take turns in the order of `WriterQueue`: the next one writes as
soon as it sees the entry before, a later one looks when the entry before its own is due, and puts
its own entry if nothing comes in time. A process that isn't in the queue writes at once; if it
loses again and again, it claims the next turn, by an entry without changes some numbers ahead,
where every writer meets it. No outcome depends on the order, only the number of lost attempts.
"""

from __future__ import annotations

from txlake.catalog.replicated.log import CatalogLog
from txlake.ports import System

_CLAIM_LOSSES = 2
_CLAIM_AHEAD = 2
_CLAIM_ATTEMPTS = 5
# What was seen of the log longer ago than that is old, if others write too.
_FRESH_REQUESTS = 2.0
# An entry takes this long on average where processes take turns.
_ENTRY_REQUESTS = 1.5
_WINDOW_MAX = 8


class WriterTurns:
    """This process's turns to write to a log."""

    def __init__(self, log: CatalogLog, system: System) -> None:
        self._log = log
        self._system = system
        self._claimed = 0  # the number of this process's newest claim

    def wait(self) -> None:
        """Wait until it is this process's turn; apply the entries that come meanwhile."""
        log, queue = self._log, self._log.queue
        if self._age_ms() > _FRESH_REQUESTS * log.latency_ms and self._is_shared():
            self._look()
        while True:
            now_ms = self._system.monotonic_ms()
            # A claim that is ahead is waited for: an attempt meanwhile might end too late for it.
            is_claiming = self._claimed > log.position.number
            turn_ms = queue.turn_ms(log.writer, log.latency_ms, is_last=is_claiming)
            if turn_ms <= now_ms:
                return
            look_ms = min(queue.look_ms(log.writer, log.latency_ms), turn_ms)
            if look_ms > now_ms and not is_claiming:
                self._system.wait_ms(look_ms - now_ms)
            else:
                self._look()

    def note_loss(self, losses: int) -> None:
        """Record that an attempt was lost, the `losses`-th in a row; claim a turn after some."""
        if losses % _CLAIM_LOSSES == 0 and self._claimed <= self._log.position.number:
            for attempt in range(_CLAIM_ATTEMPTS):
                # The others go on while the claim is on its way: far enough it meets a free number.
                number = self._log.position.number + (_CLAIM_AHEAD << attempt)
                if self._log.claim(number):
                    self._claimed = number
                    break
            self._log.catch_up()

    def _is_shared(self) -> bool:
        """Return whether other processes wrote recently."""
        return len(self._log.queue) > (self._log.writer in self._log.queue)

    def _age_ms(self) -> float:
        """Return how old this process's knowledge of the log's end is."""
        known_ms = max(self._log.free_ms, self._log.queue.newest_ms)
        return self._system.monotonic_ms() - known_ms

    def _look(self) -> None:
        """Apply new entries; request as many at once as have probably come."""
        log = self._log
        age_ms = max(0.0, self._age_ms())  # what was seen last may have been created since
        expected = 1 + int(age_ms / (_ENTRY_REQUESTS * max(log.latency_ms, 0.001)))
        window = min(expected, len(log.queue) + 1, _WINDOW_MAX)
        while log.apply_next(window) and window > 1:
            window = _WINDOW_MAX
