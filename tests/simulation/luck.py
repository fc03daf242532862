"""The misfortunes of one run: which there are, how likely each is, and which ones happened.

Owns the chance that they come from, which is apart from the schedule's and the programs': a run
with one misfortune less is otherwise as it was, as far as that can be.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum


class Misfortune(Enum):
    """What can go wrong, once in so many requests where it does."""

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

    __hash__ = object.__hash__  # asked thousands of times a run


_LIKELIHOOD: Mapping[Misfortune, float] = {
    Misfortune.PUT_LOST: 0.05,
    Misfortune.PUT_UNANSWERED: 0.06,
    Misfortune.PUT_LATE: 0.05,
    Misfortune.PUT_TWICE: 0.06,
    Misfortune.DELETE_LATE: 0.2,
    Misfortune.STORE_AWAY: 0.01,
    Misfortune.LISTING_STALE: 0.2,
    Misfortune.WRITE_TORN: 0.02,
    Misfortune.DISK_FULL: 0.02,
    Misfortune.POWER_LOSS: 0.002,
    Misfortune.REPLY_LOST: 0.015,
    Misfortune.REPLY_UNANSWERED: 0.02,
    Misfortune.DATABASE_AWAY: 0.01,
    Misfortune.CRASH: 0.006,
    Misfortune.STALL: 0.004,
    Misfortune.INTERRUPT: 0.006,
    Misfortune.INTERRUPT_LATE: 0.006,
    Misfortune.SLOW: 0.02,
    Misfortune.CLOCK_WRONG: 0.5,
    Misfortune.CLOCK_JUMP: 0.02,
    Misfortune.CLOCK_STEP: 0.01,
    Misfortune.FOREIGN_FILE: 0.01,
    Misfortune.CATALOG_BACK: 0.014,
    Misfortune.CATALOG_GONE: 0.005,
    Misfortune.RECOVERY_IDLE: 0.01,
    Misfortune.RECOVERY_TWICE: 0.5,
    Misfortune.RECOVERY_DIES: 0.03,
    Misfortune.LOG_CLEANED: 0.02,
}
OF_BUCKETS = {
    Misfortune.PUT_LOST,
    Misfortune.PUT_UNANSWERED,
    Misfortune.PUT_LATE,
    Misfortune.PUT_TWICE,
    Misfortune.DELETE_LATE,
    Misfortune.STORE_AWAY,
    Misfortune.LISTING_STALE,
}
OF_DISKS = {Misfortune.WRITE_TORN, Misfortune.DISK_FULL, Misfortune.POWER_LOSS}
OF_PATHS = {Misfortune.LOG_CLEANED}
# After these much else is refused: they are rarer, so that other runs come to something.
OF_RECOVERIES = {
    Misfortune.FOREIGN_FILE,
    Misfortune.CATALOG_BACK,
    Misfortune.CATALOG_GONE,
}
_CALM = 0.15  # of the runs nothing goes wrong
_KINDS_EACH = 0.3
_RECOVERIES_EACH = 0.13
_MOST = 12  # so that a run comes to something


@dataclass(frozen=True, slots=True)
class Fault:
    """A misfortune that somebody asks for: at the first place in a step where it can strike.

    Attributes:
        step: a line of the trace, counted from 1; 0 is what comes before the first.
    """

    step: int
    kind: Misfortune

    def __str__(self) -> str:
        return f"{self.kind.name} at step {self.step}"


@dataclass(frozen=True, slots=True)
class Struck:
    """A misfortune that happened: the so-manieth of the run; 0 for one that was asked for.

    Attributes:
        step: the newest line of the trace by the task that it struck.
    """

    number: int
    kind: Misfortune
    where: str
    step: int = 0

    @property
    def is_asked(self) -> bool:
        return self.number == 0


class Luck:
    """Tells where something goes wrong. `without`: what doesn't happen in a smaller case.

    Attributes:
        by_chance: what can happen by chance.
        kinds: what can happen in this run, by chance or because it is asked for.
        heeded: what `strikes` has to be asked about.
    """

    def __init__(
        self,
        seed: int,
        possible: set[Misfortune],
        *,
        without_kinds: frozenset[Misfortune] = frozenset(),
        without_numbers: frozenset[int] = frozenset(),
        faults: Iterable[Fault] = (),
    ) -> None:
        self._chance = random.Random(f"luck {seed}")
        is_calm = self._chance.random() < _CALM
        self.by_chance = {
            kind
            for kind in Misfortune
            if kind not in OF_PATHS
            and self._chance.random() < (_RECOVERIES_EACH if kind in OF_RECOVERIES else _KINDS_EACH)
            and kind in possible
            and not is_calm
        }
        cleaning = random.Random(f"cleaning {seed}")
        if possible >= OF_PATHS and not is_calm and cleaning.random() < _KINDS_EACH:
            self.by_chance |= OF_PATHS
        self._strength = self._chance.choice([0.5, 1.0, 1.0, 2.0])
        self._without_kinds = without_kinds
        self._without_numbers = without_numbers
        self._drawn = 0
        self._happened = 0
        self._asked = set(faults)
        self.kinds = self.by_chance | {fault.kind for fault in self._asked}
        self.heeded = self.kinds
        self._places: dict[int, set[Misfortune]] | None = None
        self.is_quiet = False
        self.struck: list[Struck] = []

    def note_places(self, possible: Iterable[Misfortune]) -> dict[int, set[Misfortune]]:
        """By step, which of these misfortunes could have struck in it, as the run goes on."""
        self.heeded = self.kinds | set(possible)
        self._places = {}
        return self._places

    def strikes(self, kind: Misfortune, where: str, weight: float = 1.0, step: int = 0) -> bool:
        """Whether it happens, here and now; `weight`: how much likelier than elsewhere."""
        if self.is_quiet:
            return False
        if self._places is not None:
            self._places.setdefault(step, set()).add(kind)
        if self._asked and (fault := Fault(step, kind)) in self._asked:
            self._asked.remove(fault)
            self.struck.append(Struck(0, kind, where, step))
            return True
        if kind not in self.by_chance or self._happened >= _MOST:
            return False
        if self._chance.random() >= _LIKELIHOOD[kind] * self._strength * weight:
            return False
        self._drawn += 1
        if kind in self._without_kinds or self._drawn in self._without_numbers:
            return False
        self._happened += 1
        self.struck.append(Struck(self._drawn, kind, where, step))
        return True

    def random(self) -> float:
        """A number in [0, 1) for how bad it is."""
        return self._chance.random()

    def counts(self) -> Counter[str]:
        """How often each happened."""
        return Counter(one.kind.name for one in self.struck)
