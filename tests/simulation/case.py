"""The choices of one run, all made from its seed; a reduced case leaves parts out."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import chain, zip_longest

from tests.simulation import branching, definitions, maintaining, programs, streams
from tests.simulation.faults import (
    BUCKET_FAULTS,
    DISK_FAULTS,
    PATH_TABLE_FAULTS,
    RECOVERY_FAULTS,
    FaultInjector,
    FaultKind,
    RequestedFault,
)
from tests.simulation.feeds import FEED
from tests.simulation.foreign_clients import OPEN
from tests.simulation.programs import Plan
from txlake.settings import RetrySettings, Settings

TABLES = ("a", "b", "c")
# Few, because each choice's tables are created once and then copied.
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
# The retention of dropped tables: none, shorter than a run, longer than a run.
_DROPPED_RETENTIONS_MS = (0, 1_000, 7 * 24 * 3_600_000)
PACKING = ("delta.autoOptimize.autoCompact", "true")
_WITH_IDENTITY = 0.15
_WITH_FEED = 0.15
_WITH_STREAM = 0.1
_WITH_BRANCHES = 0.15
_WITH_OPEN = 0.15
_WITH_PACKING = 0.2
_WITH_MAINTENANCE = 0.1
# Kinds of programs whose checks don't allow for commits lost with a catalog.
_WITHOUT_CATALOG_LOSS = {definitions.KIND, streams.KIND, branching.KIND}
_DATABASE_FAULTS = {
    FaultKind.REPLY_LOST,
    FaultKind.REPLY_UNANSWERED,
    FaultKind.DATABASE_AWAY,
    FaultKind.INTERRUPT_LATE,
}
LAKE_FAULTS = {
    *RECOVERY_FAULTS,
    FaultKind.RECOVERY_IDLE,
    FaultKind.RECOVERY_TWICE,
    FaultKind.RECOVERY_DIES,
}
_COMMON_FAULTS = (
    set(FaultKind)
    - BUCKET_FAULTS
    - DISK_FAULTS
    - _DATABASE_FAULTS
    - LAKE_FAULTS
    - PATH_TABLE_FAULTS
)
# A power failure isn't among them: a reader of the log may have seen an entry of a local disk that
# isn't durable yet, which it takes back.
POSSIBLE_IN_STORE = (
    _COMMON_FAULTS
    | BUCKET_FAULTS
    | (DISK_FAULTS - {FaultKind.POWER_LOSS})
    | {FaultKind.INTERRUPT_LATE}
)


@dataclass(frozen=True, slots=True)
class Case:
    """A run to make.

    Attributes:
        without_kinds, without_numbers: faults that don't occur.
        without_programs: (client, number) of programs that aren't run.
        faults: faults to inject besides; up to the first of them the run is the same.
        is_in_store: the world is a lake whose catalog is in the warehouse's store.
    """

    seed: int
    without_kinds: frozenset[FaultKind] = frozenset()
    without_numbers: frozenset[int] = frozenset()
    without_programs: frozenset[tuple[int, int]] = frozenset()
    faults: frozenset[RequestedFault] = frozenset()
    is_in_store: bool = False

    def __str__(self) -> str:
        parts = [f"seed {self.seed}{' with its catalog in the store' if self.is_in_store else ''}"]
        if self.without_kinds:
            parts.append(f"without {', '.join(sorted(one.name for one in self.without_kinds))}")
        if self.without_numbers:
            parts.append(f"without faults {sorted(self.without_numbers)}")
        if self.without_programs:
            parts.append(f"without programs {sorted(self.without_programs)}")
        if self.faults:
            parts.append(f"with {', '.join(sorted(map(str, self.faults)))}")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class WorldConfig:
    """The world that a seed chooses.

    Attributes:
        has_catalog: the tables belong to a lake; otherwise there is one path table.
        is_in_store: the catalog is in the warehouse's store.
        is_disk: the store is a local disk; otherwise a bucket.
        sessions: the number of sessions in each process; clients are dealt out to them.
        properties: the properties of each table.
        possible: the kinds of faults that may occur.
        is_recovered: the catalog is lost at the end and recovered from the logs.
        is_server: the leases' clock may be set, as a database server's may.
        has_identity: each table has an identity column, which programs don't use.
        is_open: the tables are open, and every second client commits as another engine does.
    """

    has_catalog: bool
    is_in_store: bool
    is_disk: bool
    plan: Plan
    sessions: tuple[int, ...]
    settings: Settings
    properties: tuple[tuple[str, str], ...]
    possible: frozenset[FaultKind]
    is_recovered: bool
    is_server: bool
    has_identity: bool
    is_open: bool

    @property
    def is_maintained(self) -> bool:
        """Whether each process does rounds of maintenance beside its clients."""
        return set(maintaining.PROPERTIES) <= set(self.properties)


def world_config(case: Case) -> WorldConfig:
    """Return the world of a case, which depends on nothing but the case."""
    rng = random.Random(f"world {case.seed}")
    has_catalog = rng.random() < 0.5 or case.is_in_store
    is_disk = rng.random() < 0.4
    tables = TABLES[: rng.randint(1, 3)] if has_catalog else TABLES[:1]
    kinds = (*programs.LAKE_KINDS, definitions.definitions) if has_catalog else programs.KINDS
    kind = rng.choice(kinds)
    if has_catalog and random.Random(f"stream {case.seed}").random() < _WITH_STREAM:
        kind = streams.streams
    elif has_catalog and random.Random(f"branching {case.seed}").random() < _WITH_BRANCHES:
        kind = branching.branches
    plan = kind(rng, tables)
    possible = _COMMON_FAULTS | (DISK_FAULTS if is_disk else BUCKET_FAULTS)
    if case.is_in_store:
        possible = (possible | {FaultKind.INTERRUPT_LATE}) & POSSIBLE_IN_STORE
    elif has_catalog:
        possible |= _DATABASE_FAULTS | LAKE_FAULTS
        if plan.kind in _WITHOUT_CATALOG_LOSS:
            possible -= RECOVERY_FAULTS
    else:
        possible |= PATH_TABLE_FAULTS
    if plan.kind == streams.KIND:  # a stream may have read what a power loss takes back
        possible -= {FaultKind.POWER_LOSS}
    if FaultInjector(case.seed, possible).kinds & RECOVERY_FAULTS:
        # More programs, so that some run before, during and after the recovery.
        more = [kind(rng, tables).clients for _ in range(2)]
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
        sessions.append(min(left, rng.randint(1, 3)))
        left -= sessions[-1]
    properties = rng.choice(_PROPERTIES)
    has_feed = random.Random(f"feed {case.seed}").random() < _WITH_FEED
    if has_feed and plan.kind != definitions.KIND:
        properties = (*properties, FEED)
    if random.Random(f"packing {case.seed}").random() < _WITH_PACKING:
        properties = (*properties, PACKING)
    if random.Random(f"maintenance {case.seed}").random() < _WITH_MAINTENANCE:
        properties = (*properties, *maintaining.PROPERTIES)
    is_open = has_catalog and random.Random(f"open {case.seed}").random() < _WITH_OPEN
    is_open = is_open and plan.kind not in (definitions.KIND, branching.KIND)
    if is_open:
        properties = (*_PROPERTIES[0], OPEN)
    settings = Settings(
        retry=RetrySettings(
            commit_attempts_max=60,
            wait_ms_min=1,
            wait_ms_max=rng.choice([10, 200]),
            queue_ms_max=rng.choice([0, 50, 2_000]),
            reserve_after=rng.choice([1, 2, 5]),
        ),
        inline_commit_bytes_max=rng.choice([0, 1 << 20]),
        lease_ms=rng.choice([2_000, 30_000]),
        dropped_table_retention_ms=random.Random(f"kept {case.seed}").choice(
            _DROPPED_RETENTIONS_MS
        ),
    )
    return WorldConfig(
        has_catalog,
        case.is_in_store,
        is_disk,
        replace(plan, clients=clients),
        tuple(sessions),
        settings,
        properties,
        frozenset(possible),
        has_catalog
        and plan.kind != definitions.KIND
        and rng.random() < 0.1
        and not case.is_in_store,
        has_catalog and rng.random() < 0.5 and not case.is_in_store,
        # Inserts into a path table with an identity column conflict; other engines can't write one.
        has_catalog
        and not is_open
        and plan.kind != definitions.KIND
        and random.Random(f"identity {case.seed}").random() < _WITH_IDENTITY,
        is_open,
    )
