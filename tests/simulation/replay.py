"""A seed's run step by step, as values: what each line of its trace was, and what it changed.

Owns what is seen of a run from outside, and the misfortunes that may be added to one. A run that is
looked at is the same as one that isn't. Knows nothing of pages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.simulation import definitions
from tests.simulation.books import logs_of
from tests.simulation.case import Case, shape_of
from tests.simulation.history import Doubt, Told
from tests.simulation.luck import Fault, Misfortune, Struck
from tests.simulation.scheduler import Stuck
from tests.simulation.statements import Rows
from tests.simulation.telling import Doing, is_put, told_of, world_of
from tests.simulation.watching import Standing, Watcher, place_of
from tests.simulation.world import Failure, World
from txlake.errors import InvalidRequest

SEED_MAX = 1_000_000_000
FAULTS_MAX = 12
# After these a put has no reply.
_UNANSWERED = {
    Misfortune.PUT_LOST,
    Misfortune.PUT_LATE,
    Misfortune.PUT_UNANSWERED,
    Misfortune.STORE_AWAY,
    Misfortune.INTERRUPT,
}
TURNS_MAX = 20_000  # the longest of 400 seeds has 4,600


@dataclass(frozen=True, slots=True)
class Replayed:
    """A step of a run: a line of its trace.

    Attributes:
        number: in the run, from 1 on.
        time_ms: simulated time since the world began.
        lane: the process, and the client where it is one's; `outside` for what is neither's.
        attempt: the transaction that the lane is at: client, program, attempt.
        trace: the line itself.
        tables: after it, and what has become of each.
        made: the versions that weren't there before it.
        waited_ms: since the step before in its lane.
        struck: the misfortunes that struck its task before the task's next step.
        possible: those that could have.
        is_after: the clients have ended, and nothing goes wrong any more.
    """

    number: int
    time_ms: float
    lane: str
    attempt: str
    doing: Doing
    words: str
    trace: str
    tables: tuple[Standing, ...]
    made: tuple[tuple[str, int], ...]
    waited_ms: float
    told: Told | None
    struck: tuple[Struck, ...]
    possible: tuple[Misfortune, ...]
    is_after: bool


@dataclass(frozen=True, slots=True)
class Attempt:
    """A transaction, and what its client was told. `rule`: by which it lost."""

    name: str
    program: str
    told: Told
    error: str
    rule: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the audit said at the end.

    Attributes:
        is_kept: every promise was.
        broken: which wasn't, in the auditor's words.
        counts: of what happened, by name; empty unless all was kept.
    """

    is_kept: bool
    broken: str
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Replay:
    """A run.

    Attributes:
        world: what the seed says of it, a sentence each.
        start: the tables before the first step.
        possible: what can strike before the first step, and what did.
        attempts: by name, in the order of their ends; those whose process died are last.
        missed: faults that were asked for, and found no place to strike.
        rows: by table and version, as the logs have them at the end; without what can't be read.
        digest: of the trace, as `Outcome.digest`.
    """

    case: Case
    world: tuple[str, ...]
    start: tuple[Standing, ...]
    possible: tuple[Misfortune, ...]
    struck: tuple[Struck, ...]
    lanes: tuple[str, ...]
    steps: tuple[Replayed, ...]
    attempts: Mapping[str, Attempt]
    verdict: Verdict
    missed: tuple[Fault, ...]
    rows: Mapping[str, Mapping[int, Rows]]
    digest: str

    @property
    def all_struck(self) -> tuple[Struck, ...]:
        """All misfortunes of the run, in the order of their steps."""
        return (*self.struck, *(struck for step in self.steps for struck in step.struck))


@dataclass(frozen=True, slots=True)
class Changes:
    """How a run differs from another one of the same seed.

    Attributes:
        first: the first step that isn't the same; None when all are.
        told: by transaction, what its client was told in each; None where it wasn't there.
        rows: tables that end with other rows.
        struck: how often misfortunes happened in each, of those kinds where that differs.
    """

    first: int | None
    told: Mapping[str, tuple[Told | None, Told | None]]
    rows: tuple[str, ...]
    struck: Mapping[Misfortune, tuple[int, int]]


def case_with(seed: int, faults: Iterable[Fault] = ()) -> Case:
    """A seed's run with these misfortunes added. Raises InvalidRequest for what can't be."""
    if not 1 <= seed <= SEED_MAX:
        raise InvalidRequest(f"seed {seed}: expected a number from 1 to {SEED_MAX}; choose another")
    asked = frozenset(faults)
    if len(asked) > FAULTS_MAX:
        raise InvalidRequest(
            f"{len(asked)} faults: a run takes {FAULTS_MAX} at most; remove some of them"
        )
    possible = shape_of(Case(seed)).possible
    for fault in sorted(asked, key=str):
        if fault.kind not in possible:
            names = ", ".join(kind.name for kind in Misfortune if kind in possible)
            raise InvalidRequest(
                f"seed {seed}: {fault.kind.name} can't strike in its world; choose one of {names}"
            )
        if fault.step < 0:
            raise InvalidRequest(f"step {fault.step}: steps are counted from 0; choose another")
    return Case(seed, faults=asked)


def replay(case: Case, *, turns_max: int = TURNS_MAX) -> Replay:
    """Runs a case and tells its steps. Raises InvalidRequest when it takes too long."""
    watch = Watcher()
    world = World(case, watch)
    world.scheduler.turns_max = turns_max
    try:
        outcome = world.run()
        verdict, trace = Verdict(True, "", outcome.counts), outcome.trace
    except Failure as failure:
        if isinstance(failure.error, Stuck) and world.scheduler.turns > turns_max:
            raise InvalidRequest(
                f"{case}: the run takes more than {turns_max} turns; choose another seed"
            ) from failure
        broken = f"{type(failure.error).__name__}: {failure.error}"
        verdict, trace = Verdict(False, broken, {}), failure.trace
    assert len(trace) == len(watch.seen)
    struck: dict[int, list[Struck]] = {}
    for one in world.luck.struck:
        struck.setdefault(one.step, []).append(one)
    happened = {Fault(one.step, one.kind) for one in world.luck.struck if one.is_asked}
    return Replay(
        case,
        world_of(world.shape),
        watch.start,
        watch.possible(0),
        tuple(struck.get(0, ())),
        tuple(sorted({seen.lane for seen in watch.seen}, key=place_of)),
        tuple(_steps(watch, trace, struck)),
        _attempts(world, watch),
        verdict,
        tuple(sorted(case.faults - happened, key=lambda fault: (fault.step, fault.kind.name))),
        _rows(world),
        hashlib.sha256("\n".join(trace).encode()).hexdigest(),
    )


def changes(before: Replay, after: Replay) -> Changes:
    """What became different from one run to another."""
    pairs = zip(before.steps, after.steps)
    first = next((one.number for one, other in pairs if one.trace != other.trace), None)
    if first is None and len(before.steps) != len(after.steps):
        first = min(len(before.steps), len(after.steps)) + 1
    told = {}
    for name in sorted(before.attempts.keys() | after.attempts.keys()):
        was, now = before.attempts.get(name), after.attempts.get(name)
        pair = (None if was is None else was.told, None if now is None else now.told)
        if pair[0] is not pair[1]:
            told[name] = pair
    struck = {}
    for kind in Misfortune:
        was_now = _count(before, kind), _count(after, kind)
        if was_now[0] != was_now[1]:
            struck[kind] = was_now
    rows = tuple(name for name in after.rows if _last(before, name) != _last(after, name))
    return Changes(first, told, rows, struck)


def _count(run: Replay, kind: Misfortune) -> int:
    return sum(one.kind is kind for one in run.all_struck)


def _last(run: Replay, table: str) -> Rows | None:
    rows = run.rows.get(table)
    return rows[max(rows)] if rows else None


# What is made of it


def _steps(
    watch: Watcher, trace: Sequence[str], struck: Mapping[int, Sequence[Struck]]
) -> Iterable[Replayed]:
    attempts: dict[str, str] = {}
    times: dict[str, float] = {}
    sent: dict[str, tuple[object, ...]] = {}  # by lane, a put that has no reply yet
    before = {standing.table: standing.version for standing in watch.start}
    for number, (seen, line) in enumerate(zip(watch.seen, trace), start=1):
        told = told_of(seen.what)
        if told.attempt:
            attempts[seen.lane] = told.attempt
        made = []
        for standing in seen.tables:
            version, known = standing.version, before.get(standing.table)
            if version is not None and version != known:
                made.append((standing.table, version))
            before[standing.table] = version
        words = told.words
        if sent.pop(seen.lane, None) == seen.what:
            words = f"{words}: done"
        elif is_put(seen.what) and not _UNANSWERED & {one.kind for one in struck.get(number, ())}:
            sent[seen.lane] = seen.what
        yield Replayed(
            number,
            float(line.partition(" ")[0]),
            seen.lane,
            attempts.get(seen.lane, ""),
            told.doing,
            words,
            line,
            seen.tables,
            tuple(made),
            seen.time_ms - times.get(seen.lane, seen.time_ms),
            told.told,
            tuple(struck.get(number, ())),
            watch.possible(number),
            seen.is_after,
        )
        times[seen.lane] = seen.time_ms
        if told.told is not None:
            attempts.pop(seen.lane, None)


def _attempts(world: World, watch: Watcher) -> dict[str, Attempt]:
    """What each was told; of those that were told something, also who never began one."""
    rules = {record.client.partition(" ")[0]: record.rule for record in world.records}
    found = {}
    for seen in watch.seen:
        told = told_of(seen.what)
        if told.told is not None:
            _, client, _, error = seen.what
            name, _, program = str(client).partition(" ")
            found[name] = Attempt(name, program, told.told, str(error), rules.get(name, ""))
    for record in world.records:
        name, _, program = record.client.partition(" ")
        if name not in found:
            found[name] = Attempt(name, program, record.told, record.error, record.rule)
    return found


def _rows(world: World) -> dict[str, Mapping[int, Rows]]:
    """What the logs say at the end; a log that can't be read isn't there."""
    if world.plan.kind == definitions.KIND:  # its tables have other columns, and change names
        return {}
    found: dict[str, Mapping[int, Rows]] = {}
    for name, place in world.tables.items():
        try:
            found[name] = logs_of(world.storage, {name: place})[name].rows
        except (Doubt, KeyError, ValueError):
            continue
    return found
