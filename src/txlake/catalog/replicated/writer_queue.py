"""The order in which processes write a catalog's log, as the log's entries show it.

Next is the process whose newest entry is the oldest. A process that lets its turn pass twice isn't
waited for until it writes again. A claim, an entry without changes, makes its process the next one.

All processes see the same entries and agree on the order. When an entry was created is estimated,
so two processes may differ on whether a turn has passed. Only the number of lost attempts depends
on it.
"""

from __future__ import annotations

from dataclasses import dataclass

# From an entry to the put that follows it, in requests of the next process: one and a half on
# average, for it looks, sees the entry and puts its own.
_REPLY_REQUESTS = 3.0
# For each further process that may have let its turn pass.
_FURTHER_REQUESTS = 2.0
# A request of one's own takes half of its time before it has an effect.
_OWN_REQUESTS = 0.5
_PASSED_TURNS = 2
_LATENCY_MAX_MS = 500.0
# After a pause of so many requests, and at least so long, nobody is waited for.
_PAUSE_REQUESTS = 150.0
_PAUSE_MS = 3_000.0


@dataclass(slots=True)
class _Place:
    """A process in the queue.

    Attributes:
        latency_ms: how long its requests take.
        is_claimed: it has claimed the next turn.
        passed: how many turns in a row it let pass.
    """

    latency_ms: float
    is_claimed: bool = False
    passed: int = 0


class WriterQueue:
    """The processes that wrote recently, the next one first.

    Attributes:
        newest_ms: when the newest entry was created, by this process's monotonic clock.
    """

    def __init__(self) -> None:
        self.newest_ms = float("-inf")
        self._places: dict[str, _Place] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, writer: str) -> bool:
        return writer in self._places

    def clear(self) -> None:
        """Forget all processes."""
        self.newest_ms = float("-inf")
        self._places.clear()

    def record(
        self, writer: str, created_ms: float, latency_ms: float, *, is_claim: bool = False
    ) -> None:
        """Record the log's next entry, or the next claim.

        Args:
            writer: the process that wrote it.
            created_ms: when it was created, by this process's monotonic clock.
            latency_ms: how long that process's requests take.
        """
        passed_ms = created_ms - self.newest_ms
        self.newest_ms = created_ms
        place = _Place(min(latency_ms, _LATENCY_MAX_MS), is_claimed=is_claim)
        if passed_ms > _PAUSE_MS + _PAUSE_REQUESTS * place.latency_ms:
            self._places.clear()
        self._note_passed_turns(writer, passed_ms)
        self._places.pop(writer, None)
        others = self._places.items()
        before = {name: each for name, each in others if each.is_claimed or not is_claim}
        self._places = {**before, writer: place, **self._places}

    def turn_ms(self, writer: str, latency_ms: float, *, is_last: bool = False) -> float:
        """Return when a process may write, though others that are before it have not.

        Args:
            latency_ms: how long its requests take.
            is_last: it waits for all others, whatever its place is.
        """
        ahead = list(self._places.values()) if is_last else self._ahead(writer)
        if not ahead:
            return float("-inf")
        return self.newest_ms + _patience_ms(ahead) + _OWN_REQUESTS * latency_ms

    def look_ms(self, writer: str, latency_ms: float) -> float:
        """Return when the process should look for the entry of the last one before it."""
        ahead = self._ahead(writer)
        return self.newest_ms + sum(place.latency_ms for place in ahead) - 0.5 * latency_ms

    def _ahead(self, writer: str) -> list[_Place]:
        """Return the places before a process; of one that isn't in the queue, those of claims."""
        ahead: list[_Place] = []
        for name, place in self._places.items():
            if name == writer:
                return ahead
            ahead.append(place)
        return [place for place in ahead if place.is_claimed]

    def _note_passed_turns(self, writer: str, passed_ms: float) -> None:
        """Remove the processes that let a turn pass again, in the time since the entry before."""
        ahead: list[_Place] = []
        for name, place in list(self._places.items()):
            ahead.append(place)
            if name == writer or passed_ms < _patience_ms(ahead):
                return
            place.passed += 1
            if place.passed == _PASSED_TURNS:
                del self._places[name]


def _patience_ms(ahead: list[_Place]) -> float:
    """Return how long after the newest entry all of the places had their turns."""
    first, *further = ahead
    further_ms = sum(place.latency_ms for place in further)
    return _REPLY_REQUESTS * first.latency_ms + _FURTHER_REQUESTS * further_ms
