"""The order in which processes write to a catalog's log, so that none of them starves.

All processes see the same writers in the log. Those that wrote recently go round by name: the one
after the last writer writes at once, each later one waits two requests longer unless it sees
another entry. A process that loses and isn't among them claims a turn: it puts an entry without
changes some numbers ahead, where a writer meets it. Only the number of lost attempts depends on
this order, no outcome does.
"""

from __future__ import annotations

from txlake.catalog.replicated.log import CatalogLog
from txlake.ports import System

_REQUESTS_PER_PLACE = 2.0
_CLAIM_LOSSES = 2
_CLAIM_AHEAD = 4
_ACTIVE_MS = 3_000.0
_ACTIVE_REQUESTS = 50


class WriterTurns:
    """This process's turns to write to a log."""

    def __init__(self, log: CatalogLog, system: System) -> None:
        self._log = log
        self._system = system

    def wait(self) -> None:
        """Wait until it is this process's turn; apply the entries that come meanwhile."""
        log = self._log
        while log.recent:
            last = log.recent[-1]
            places = sorted(self._active_writers() | {log.writer})
            rank = 0
            if last.name in places:
                own, its = places.index(log.writer), places.index(last.name)
                rank = (own - its - 1) % len(places)
            waits_ms = rank * _REQUESTS_PER_PLACE * log.latency_ms
            left_ms = last.seen_ms + waits_ms - self._system.monotonic_ms()
            if rank == 0 or left_ms <= 0:
                return
            number = log.position.number
            log.apply_next()
            if log.position.number == number:
                self._system.wait_ms(max(0.0, min(left_ms, 0.1 * log.latency_ms)))

    def note_loss(self, losses: int) -> None:
        """Record that an attempt was lost, the `losses`-th in a row."""
        is_due = losses % (_CLAIM_LOSSES + 1) == _CLAIM_LOSSES
        if is_due and self._log.writer not in self._active_writers():
            self._log.claim(_CLAIM_AHEAD)
            self._log.catch_up()

    def _active_writers(self) -> set[str]:
        """Return the writers of the last two rounds."""
        active: set[str] = set()
        now_ms = self._system.monotonic_ms()
        age_max_ms = _ACTIVE_MS + _ACTIVE_REQUESTS * self._log.latency_ms
        for seen, recent in enumerate(reversed(tuple(self._log.recent))):
            if seen >= 2 * len(active) + 2 or now_ms - recent.seen_ms > age_max_ms:
                break
            active.add(recent.name)
        return active
