"""Locks on a lake's objects: compatible modes, the queue of requests, and deadlocks.

Owns SQL Server's lock modes and their compatibility (Transaction locking and row versioning guide,
"Lock compatibility"), the order in which requests are granted, and the detection of deadlocks.
Everything is a function of the requests; `catalog.locks` stores them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache


class LockMode(Enum):
    """What a lock allows others; the values are SQL Server's names in `request_mode`."""

    SCH_S = "Sch-S"  # schema stability: the definition stays
    IS = "IS"  # intent shared
    S = "S"  # shared
    U = "U"  # update
    IX = "IX"  # intent exclusive: some rows are changed
    SIX = "SIX"  # shared with intent exclusive
    X = "X"  # exclusive
    SCH_M = "Sch-M"  # schema modification: nobody else at all


class ResourceType(Enum):
    """What is locked; the values are SQL Server's names in `resource_type`."""

    DATABASE = "DATABASE"
    OBJECT = "OBJECT"
    KEY = "KEY"  # a row of the catalog: an object's name
    APPLICATION = "APPLICATION"  # what programs agree on, as by sp_getapplock: `description`


class LockStatus(Enum):
    """The state of a request.

    The first three are SQL Server's in `request_status`. A conversion is a second request of an
    owner whose first one was granted. A victim's request won't be granted: its transaction has to
    abort.
    """

    GRANT = "GRANT"
    WAIT = "WAIT"
    CONVERT = "CONVERT"
    VICTIM = "VICTIM"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A thing that can be locked. Locks on different resources, subtypes included, never conflict.

    Attributes:
        database: the number of the database that it belongs to.
        entity: the number of the object; of the database itself for the other types.
        subtype: the part of it: "" for all, "COMMIT" for the turn to commit to a table.
        description: the key: the folded name; of an APPLICATION what is agreed on.
    """

    type: ResourceType
    database: int
    entity: int
    subtype: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockRequest:
    """A request for a lock."""

    resource: Resource
    mode: LockMode


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The owner of a request: a transaction, or a session outside of a transaction."""

    session: int
    transaction: str | None = None

    def is_same_party(self, other: Owner) -> bool:
        """Return whether the two never wait for each other.

        They are one transaction, or a session and its own transaction.
        """
        if self.transaction is None or other.transaction is None:
            return self.session == other.session
        return self.transaction == other.transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """A request in the lock queue.

    Attributes:
        id: increases in the order of the requests.
        begun: the number of its transaction, which increases in the order of BEGIN; None without
            one.
    """

    id: int
    owner: Owner
    resource: Resource
    mode: LockMode
    status: LockStatus
    begun: int | None = None


_INCOMPATIBLE: Mapping[LockMode, frozenset[LockMode]] = {
    LockMode.SCH_S: frozenset({LockMode.SCH_M}),
    LockMode.IS: frozenset({LockMode.X, LockMode.SCH_M}),
    LockMode.S: frozenset({LockMode.IX, LockMode.SIX, LockMode.X, LockMode.SCH_M}),
    LockMode.U: frozenset({LockMode.U, LockMode.IX, LockMode.SIX, LockMode.X, LockMode.SCH_M}),
    LockMode.IX: frozenset({LockMode.S, LockMode.U, LockMode.SIX, LockMode.X, LockMode.SCH_M}),
    LockMode.SIX: frozenset(LockMode) - {LockMode.SCH_S, LockMode.IS},
    LockMode.X: frozenset(LockMode) - {LockMode.SCH_S},
    LockMode.SCH_M: frozenset(LockMode),
}


def compatible(one: LockMode, other: LockMode) -> bool:
    """Return whether two owners may hold the modes on one resource at the same time; symmetric."""
    return other not in _INCOMPATIBLE[one]


@cache
def at_least(held: LockMode, wanted: LockMode) -> bool:
    """Return whether `held` excludes all modes that `wanted` excludes."""
    return _INCOMPATIBLE[held] >= _INCOMPATIBLE[wanted]


@cache
def conversion_mode(held: LockMode, wanted: LockMode) -> LockMode:
    """Return the weakest mode at least as strong as both, which a conversion requests."""
    fitting = [mode for mode in LockMode if at_least(mode, held) and at_least(mode, wanted)]
    return min(fitting, key=lambda mode: len(_INCOMPATIBLE[mode]))


def blockers(request: Queued, among: Iterable[Queued]) -> list[Queued]:
    """Return the requests that an ungranted request has to wait for, in the order of requests.

    These are incompatible locks of other owners, and incompatible requests that come before it in
    the queue: conversions first, each kind in the order of the requests. So no request overtakes
    another one that it would then block.
    """
    place = _queue_position(request)
    found = [
        other
        for other in among
        if other.resource == request.resource
        and other.status is not LockStatus.VICTIM
        and (other.status is LockStatus.GRANT or _queue_position(other) < place)
        and not compatible(other.mode, request.mode)
        and not other.owner.is_same_party(request.owner)
    ]
    return sorted(found, key=lambda other: other.id)


def wait_graph(requests: Collection[Queued]) -> dict[Owner, dict[Owner, Queued]]:
    """Return by waiting owner the owners that it waits for, each with the waiting request."""
    by_resource: dict[Resource, list[Queued]] = {}
    for one in requests:
        by_resource.setdefault(one.resource, []).append(one)
    graph: dict[Owner, dict[Owner, Queued]] = {}
    for one in requests:
        if one.status in (LockStatus.WAIT, LockStatus.CONVERT):
            for other in blockers(one, by_resource[one.resource]):
                graph.setdefault(one.owner, {}).setdefault(other.owner, one)
    return graph


def cycle_through(
    start: Owner, graph: Mapping[Owner, Mapping[Owner, Queued]]
) -> tuple[Queued, ...] | None:
    """Return the shortest cycle of waiting requests through an owner; None if there is none.

    `graph` is that of `wait_graph`. Each request waits for the owner of the next one, the last for
    the owner of the first: `start`.
    """
    came_from: dict[Owner, Owner] = {}
    ahead = deque([start])
    while ahead:
        owner = ahead.popleft()
        for other in graph.get(owner, {}):
            if other == start:
                return _cycle_path(start, owner, came_from, graph)
            if other not in came_from:
                came_from[other] = owner
                ahead.append(other)
    return None


def youngest(cycle: Sequence[Queued]) -> Queued:
    """Return the request of the transaction that began last, which loses the least work.

    A request without a transaction counts as the oldest.
    """
    return max(cycle, key=lambda one: (one.begun or 0, one.id))


def _queue_position(request: Queued) -> tuple[bool, int]:
    return (request.status is not LockStatus.CONVERT, request.id)


def _cycle_path(
    start: Owner,
    last: Owner,
    came_from: Mapping[Owner, Owner],
    graph: Mapping[Owner, Mapping[Owner, Queued]],
) -> tuple[Queued, ...]:
    """Return the waiting requests on the way from `start` to `last`, and the one of `last` for
    `start`.
    """
    path = [last]
    while path[-1] != start:
        path.append(came_from[path[-1]])
    path.reverse()
    following = [*path[1:], start]
    return tuple(graph[owner][other] for owner, other in zip(path, following, strict=True))
