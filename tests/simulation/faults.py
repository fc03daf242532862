"""The faults of one run: which kinds there are, how likely each is, and which faults were injected.

Owns the random numbers that decide on faults. They are separate from those of the schedule and the
programs, so that leaving out one fault changes the rest of a run as little as possible.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum


class FaultKind(Enum):
    """What can go wrong at a request, with a likelihood per request."""

    # Requests to a bucket.
    PUT_LOST = "a put never arrives, nor does a reply"
    PUT_UNANSWERED = "a put is done, and no reply arrives"
    PUT_LATE = "a put arrives later, after others, and no reply does"
    PUT_TWICE = "a put is sent twice, and the second reply is the one that arrives"
    DELETE_LATE = "a delete is done once more, later"
    STORE_AWAY = "the store refuses for now"
    LISTING_STALE = "a listing doesn't know the newest objects yet"
    # A disk.
    WRITE_TORN = "the process dies in the middle of a write"
    DISK_FULL = "the disk has no space left"
    POWER_LOSS = "all processes die, and what wasn't made durable may be gone"
    # The database.
    REPLY_LOST = "a database transaction isn't done, and nobody knows"
    REPLY_UNANSWERED = "a database transaction is done, and nobody knows"
    DATABASE_AWAY = "the database can't be reached for now"
    # Processes.
    CRASH = "a process dies"
    STALL = "a process stands still for a while"
    INTERRUPT = "a statement is stopped in the middle, as by Ctrl-C"
    INTERRUPT_LATE = "Ctrl-C comes while the catalog is at work, and is heard when that is done"
    SLOW = "a request takes seconds"
    # Clocks.
    CLOCK_WRONG = "a process's clock is minutes off"
    CLOCK_JUMP = "a process's clock jumps by minutes"
    CLOCK_STEP = "the clock of the machine, of its store and of its database is set by hours"
    # The lake as a whole.
    FOREIGN_FILE = "another writer's file lands in the log of a lake's table"
    CATALOG_BACK = "the catalog is put back from a copy, under living processes or without them"
    CATALOG_GONE = "the catalog is exchanged for an empty one"
    RECOVERY_IDLE = "somebody recovers a lake where nothing is at odds"
    RECOVERY_TWICE = "two processes recover the lake at the same time"
    RECOVERY_DIES = "a process dies while it recovers the lake"
    # A path table.
    LOG_CLEANED = "another engine cleans the log up while a writer stands still before its put"

    __hash__ = (
        object.__hash__
    )  # the default one of Enum is slow, and this one is called thousands of times a run


_LIKELIHOOD: Mapping[FaultKind, float] = {
    FaultKind.PUT_LOST: 0.05,
    FaultKind.PUT_UNANSWERED: 0.06,
    FaultKind.PUT_LATE: 0.05,
    FaultKind.PUT_TWICE: 0.06,
    FaultKind.DELETE_LATE: 0.2,
    FaultKind.STORE_AWAY: 0.01,
    FaultKind.LISTING_STALE: 0.2,
    FaultKind.WRITE_TORN: 0.02,
    FaultKind.DISK_FULL: 0.02,
    FaultKind.POWER_LOSS: 0.002,
    FaultKind.REPLY_LOST: 0.015,
    FaultKind.REPLY_UNANSWERED: 0.02,
    FaultKind.DATABASE_AWAY: 0.01,
    FaultKind.CRASH: 0.006,
    FaultKind.STALL: 0.004,
    FaultKind.INTERRUPT: 0.006,
    FaultKind.INTERRUPT_LATE: 0.006,
    FaultKind.SLOW: 0.02,
    FaultKind.CLOCK_WRONG: 0.5,
    FaultKind.CLOCK_JUMP: 0.02,
    FaultKind.CLOCK_STEP: 0.01,
    FaultKind.FOREIGN_FILE: 0.01,
    FaultKind.CATALOG_BACK: 0.014,
    FaultKind.CATALOG_GONE: 0.005,
    FaultKind.RECOVERY_IDLE: 0.01,
    FaultKind.RECOVERY_TWICE: 0.5,
    FaultKind.RECOVERY_DIES: 0.03,
    FaultKind.LOG_CLEANED: 0.02,
}
BUCKET_FAULTS = {
    FaultKind.PUT_LOST,
    FaultKind.PUT_UNANSWERED,
    FaultKind.PUT_LATE,
    FaultKind.PUT_TWICE,
    FaultKind.DELETE_LATE,
    FaultKind.STORE_AWAY,
    FaultKind.LISTING_STALE,
}
DISK_FAULTS = {FaultKind.WRITE_TORN, FaultKind.DISK_FULL, FaultKind.POWER_LOSS}
PATH_TABLE_FAULTS = {FaultKind.LOG_CLEANED}
# Rarer than the others: after one of these much else is refused, and little is left to check.
RECOVERY_FAULTS = {
    FaultKind.FOREIGN_FILE,
    FaultKind.CATALOG_BACK,
    FaultKind.CATALOG_GONE,
}
_WITHOUT_FAULTS = 0.15  # the share of runs without faults
_KIND_LIKELIHOOD = 0.3
_RECOVERY_KIND_LIKELIHOOD = 0.13
_INJECTED_MAX = 12  # with more faults, too few transactions commit


@dataclass(frozen=True, slots=True)
class RequestedFault:
    """A fault that the caller of a run requests, for the first place in a step where it can strike.

    Attributes:
        step: the number of a line of the trace, from 1; 0 is the time before the first line.
    """

    step: int
    kind: FaultKind

    def __str__(self) -> str:
        return f"{self.kind.name} at step {self.step}"


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """A fault that was injected.

    Attributes:
        number: counts the faults drawn by chance, from 1; 0 for a requested one.
        where: the process and its request, as in `p1 put`.
        step: the newest line of the trace that the affected task had written.
    """

    number: int
    kind: FaultKind
    where: str
    step: int = 0

    @property
    def is_requested(self) -> bool:
        return self.number == 0


class FaultInjector:
    """Decide where faults occur in one run, by chance or because they are requested.

    Attributes:
        random_kinds: the kinds that may occur by chance.
        kinds: the kinds that may occur in this run, by chance or on request.
        relevant_kinds: the kinds that `occurs` has to be asked about; others never occur.
        is_paused: no fault occurs as long as this is set.
        injected: the faults so far, in their order.
    """

    def __init__(
        self,
        seed: int,
        possible: set[FaultKind],
        *,
        without_kinds: frozenset[FaultKind] = frozenset(),
        without_numbers: frozenset[int] = frozenset(),
        faults: Iterable[RequestedFault] = (),
    ) -> None:
        """Draw the kinds of a run's faults from its seed.

        Args:
            possible: the kinds that the run's world allows.
            without_kinds: kinds that are drawn and then left out, in a reduced case.
            without_numbers: numbers of drawn faults to leave out, in a reduced case.
            faults: faults to inject besides.
        """
        self._rng = random.Random(f"luck {seed}")
        is_calm = self._rng.random() < _WITHOUT_FAULTS
        self.random_kinds = {
            kind
            for kind in FaultKind
            if kind not in PATH_TABLE_FAULTS
            and self._rng.random()
            < (_RECOVERY_KIND_LIKELIHOOD if kind in RECOVERY_FAULTS else _KIND_LIKELIHOOD)
            and kind in possible
            and not is_calm
        }
        cleaning = random.Random(f"cleaning {seed}")
        if possible >= PATH_TABLE_FAULTS and not is_calm and cleaning.random() < _KIND_LIKELIHOOD:
            self.random_kinds |= PATH_TABLE_FAULTS
        self._strength = self._rng.choice([0.5, 1.0, 1.0, 2.0])
        self._without_kinds = without_kinds
        self._without_numbers = without_numbers
        self._drawn = 0
        self._injected_by_chance = 0
        self._requested = set(faults)
        self.kinds = self.random_kinds | {fault.kind for fault in self._requested}
        self.relevant_kinds = self.kinds
        self._possible_by_step: dict[int, set[FaultKind]] | None = None
        self.is_paused = False
        self.injected: list[InjectedFault] = []

    def record_possible(self, possible: Iterable[FaultKind]) -> dict[int, set[FaultKind]]:
        """Collect, as the run proceeds, the kinds that could strike in each step; return them by
        step.
        """
        self.relevant_kinds = self.kinds | set(possible)
        self._possible_by_step = {}
        return self._possible_by_step

    def occurs(self, kind: FaultKind, where: str, weight: float = 1.0, step: int = 0) -> bool:
        """Decide whether a fault occurs at this place of a step, and record it if so.

        `weight` multiplies the likelihood.
        """
        if self.is_paused:
            return False
        if self._possible_by_step is not None:
            self._possible_by_step.setdefault(step, set()).add(kind)
        if self._requested and (fault := RequestedFault(step, kind)) in self._requested:
            self._requested.remove(fault)
            self.injected.append(InjectedFault(0, kind, where, step))
            return True
        if kind not in self.random_kinds or self._injected_by_chance >= _INJECTED_MAX:
            return False
        if self._rng.random() >= _LIKELIHOOD[kind] * self._strength * weight:
            return False
        self._drawn += 1
        if kind in self._without_kinds or self._drawn in self._without_numbers:
            return False
        self._injected_by_chance += 1
        self.injected.append(InjectedFault(self._drawn, kind, where, step))
        return True

    def random(self) -> float:
        """Return a random number in [0, 1) for the severity of a fault."""
        return self._rng.random()

    def counts(self) -> Counter[str]:
        """Return how often each kind occurred, by its name."""
        return Counter(one.kind.name for one in self.injected)
