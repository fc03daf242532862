"""One run's choices: all follow from its seed, less what a smaller case leaves out."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import chain, zip_longest

from tests.simulation import definitions, programs, streams
from tests.simulation.feeds import FEED
from tests.simulation.foreign import OPEN
from tests.simulation.luck import (
    OF_BUCKETS,
    OF_DISKS,
    OF_PATHS,
    OF_RECOVERIES,
    Fault,
    Luck,
    Misfortune,
)
from tests.simulation.programs import Plan
from txlake.settings import RetrySettings, Settings

TABLES = ("a", "b", "c")
# Few, so that the tables of equal worlds are made once.
_PROPERTIES = (
    (("delta.checkpointInterval", "10"),),
    (("delta.checkpointInterval", "10"),),
    (("delta.checkpointInterval", "3"),),
    (("delta.checkpointInterval", "10"), ("delta.enableDeletionVectors", "false")),
    (
        ("delta.checkpointInterval", "3"),
        ("delta.checkpointPolicy", "v2"),
        ("delta.enableInCommitTimestamps", "true"),
    ),
    (("delta.checkpointInterval", "10"), ("txlake.conflictGranularity", "file")),
    (("delta.checkpointInterval", "10"), ("txlake.conflictGranularity", "table")),
)
# Dropped tables are removed at once, before the run ends, or after it.
_KEPT_MS = (0, 1_000, 7 * 24 * 3_600_000)
_WITH_IDENTITY = 0.15
_WITH_FEED = 0.15
_WITH_STREAM = 0.1
_WITH_OPEN = 0.15
# Whose checks know of no rows that were lost with a catalog.
_OF_ONE_HISTORY = {definitions.KIND, streams.KIND}
_OF_DATABASES = {
    Misfortune.REPLY_LOST,
    Misfortune.REPLY_UNANSWERED,
    Misfortune.DATABASE_AWAY,
    Misfortune.INTERRUPT_LATE,
}
OF_LAKES = {
    *OF_RECOVERIES,
    Misfortune.RECOVERY_IDLE,
    Misfortune.RECOVERY_TWICE,
    Misfortune.RECOVERY_DIES,
}
_EVERYWHERE = set(Misfortune) - OF_BUCKETS - OF_DISKS - _OF_DATABASES - OF_LAKES - OF_PATHS


@dataclass(frozen=True, slots=True)
class Case:
    """A run to make.

    Attributes:
        without_kinds, without_numbers: misfortunes that don't happen.
        without_programs: (client, number) of programs that aren't run.
        faults: misfortunes that happen besides; the run is the same up to the first of them.
    """

    seed: int
    without_kinds: frozenset[Misfortune] = frozenset()
    without_numbers: frozenset[int] = frozenset()
    without_programs: frozenset[tuple[int, int]] = frozenset()
    faults: frozenset[Fault] = frozenset()

    def __str__(self) -> str:
        parts = [f"seed {self.seed}"]
        if self.without_kinds:
            parts.append(f"without {', '.join(sorted(one.name for one in self.without_kinds))}")
        if self.without_numbers:
            parts.append(f"without misfortunes {sorted(self.without_numbers)}")
        if self.without_programs:
            parts.append(f"without programs {sorted(self.without_programs)}")
        if self.faults:
            parts.append(f"with {', '.join(sorted(map(str, self.faults)))}")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a seed says of the world.

    Attributes:
        has_catalog: tables of a lake, else a path table alone.
        sessions: how many sessions each process has; clients are dealt out to them.
        properties: of each table.
        has_identity: whether each has an identity column, which programs don't know of.
        is_server: the catalog's leases go by a clock that may be set, as a server's do.
        is_open: its tables are open, and every second client commits as another engine does.
    """

    has_catalog: bool
    is_disk: bool
    plan: Plan
    sessions: tuple[int, ...]
    settings: Settings
    properties: tuple[tuple[str, str], ...]
    possible: frozenset[Misfortune]
    is_recovered: bool
    is_server: bool
    has_identity: bool
    is_open: bool


def shape_of(case: Case) -> Shape:
    """The world of a case. Equal cases have equal worlds, whatever ran before."""
    chance = random.Random(f"world {case.seed}")
    has_catalog = chance.random() < 0.5
    is_disk = chance.random() < 0.4
    tables = TABLES[: chance.randint(1, 3)] if has_catalog else TABLES[:1]
    kinds = (*programs.OF_LAKES, definitions.definitions) if has_catalog else programs.KINDS
    kind = chance.choice(kinds)
    if has_catalog and random.Random(f"stream {case.seed}").random() < _WITH_STREAM:
        kind = streams.streams
    plan = kind(chance, tables)
    possible = _EVERYWHERE | (OF_DISKS if is_disk else OF_BUCKETS)
    if has_catalog:
        possible |= _OF_DATABASES | OF_LAKES
        if plan.kind in _OF_ONE_HISTORY:
            possible -= OF_RECOVERIES
    else:
        possible |= OF_PATHS
    if plan.kind == streams.KIND:  # a stream may have read what the power takes back
        possible -= {Misfortune.POWER_LOSS}
    if Luck(case.seed, possible).kinds & OF_RECOVERIES:
        # So that there is somebody before, beside and after the recovery.
        more = [kind(chance, tables).clients for _ in range(2)]
        programs_of = zip_longest(plan.clients, *more, fillvalue=())
        plan = replace(plan, clients=[[*chain(*each)] for each in programs_of])
    clients = [
        [
            program
            for number, program in enumerate(client)
            if (place, number) not in case.without_programs
        ]
        for place, client in enumerate(plan.clients)
    ]
    sessions = []
    left = len(clients)
    while left > 0:
        sessions.append(min(left, chance.randint(1, 3)))
        left -= sessions[-1]
    properties = chance.choice(_PROPERTIES)
    has_feed = random.Random(f"feed {case.seed}").random() < _WITH_FEED
    if has_feed and plan.kind != definitions.KIND:
        properties = (*properties, FEED)
    is_open = has_catalog and random.Random(f"open {case.seed}").random() < _WITH_OPEN
    is_open = is_open and plan.kind != definitions.KIND
    if is_open:
        properties = (*_PROPERTIES[0], OPEN)
    settings = Settings(
        retry=RetrySettings(
            commit_attempts_max=60,
            wait_ms_min=1,
            wait_ms_max=chance.choice([10, 200]),
            queue_ms_max=chance.choice([0, 50, 2_000]),
            reserve_after=chance.choice([1, 2, 5]),
        ),
        inline_commit_bytes_max=chance.choice([0, 1 << 20]),
        lease_ms=chance.choice([2_000, 30_000]),
        dropped_table_retention_ms=random.Random(f"kept {case.seed}").choice(_KEPT_MS),
    )
    return Shape(
        has_catalog,
        is_disk,
        replace(plan, clients=clients),
        tuple(sessions),
        settings,
        properties,
        frozenset(possible),
        has_catalog and plan.kind != definitions.KIND and chance.random() < 0.1,
        has_catalog and chance.random() < 0.5,
        # In a path table those who insert conflict; and no other engine may give values.
        has_catalog
        and not is_open
        and plan.kind != definitions.KIND
        and random.Random(f"identity {case.seed}").random() < _WITH_IDENTITY,
        is_open,
    )
