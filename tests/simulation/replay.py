"""A seed's run as values, step by step: each line of its trace, and what the line changed.

Owns the replay, the faults that may be added to a run, and the comparison of two runs. Observing a
run doesn't change it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.simulation import definitions
from tests.simulation.case import Case, world_config
from tests.simulation.committed_state import read_logs
from tests.simulation.faults import FaultKind, InjectedFault, RequestedFault
from tests.simulation.observing import RunRecorder, TableStatus, lane_order
from tests.simulation.records import ReportedOutcome, Violation
from tests.simulation.scheduler import NoProgress
from tests.simulation.statements import Rows
from tests.simulation.trace_text import StepKind, describe_line, describe_world, is_put_line
from tests.simulation.world import Failure, World
from txlake.errors import InvalidRequest

SEED_MAX = 1_000_000_000
FAULTS_MAX = 12
# Faults after which a put has no reply.
_UNANSWERED = {
    FaultKind.PUT_LOST,
    FaultKind.PUT_LATE,
    FaultKind.PUT_UNANSWERED,
    FaultKind.STORE_AWAY,
    FaultKind.INTERRUPT,
}
TURNS_MAX = 20_000  # the longest of 400 seeds has 4,600


@dataclass(frozen=True, slots=True)
class ReplayStep:
    """A step of a run: one line of its trace.

    Attributes:
        number: the step's number in the run, from 1.
        time_ms: simulated time since the world began.
        lane: the process and client of the line; `outside` if it belongs to none.
        attempt: the lane's current transaction, as client.program.attempt.
        trace: the line itself.
        tables: the tables after the step.
        new_versions: the tables' versions that the step made.
        waited_ms: the time since the lane's previous step.
        injected: the faults that struck the step's task before its next step.
        possible: the kinds of faults that could have struck then.
        is_after: the clients have ended, and no more faults occur.
    """

    number: int
    time_ms: float
    lane: str
    attempt: str
    kind: StepKind
    words: str
    trace: str
    tables: tuple[TableStatus, ...]
    new_versions: tuple[tuple[str, int], ...]
    waited_ms: float
    outcome: ReportedOutcome | None
    injected: tuple[InjectedFault, ...]
    possible: tuple[FaultKind, ...]
    is_after: bool


@dataclass(frozen=True, slots=True)
class Attempt:
    """A transaction and its outcome. `rule`: the rule by which it conflicted."""

    name: str
    program: str
    outcome: ReportedOutcome
    error: str
    rule: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of the audit.

    Attributes:
        is_kept: every promise was kept.
        broken: the auditor's message about the broken promise.
        counts: how often each thing happened, by name; empty for a broken promise.
    """

    is_kept: bool
    broken: str
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Replay:
    """A run.

    Attributes:
        world: sentences that describe the world.
        start: the tables before the first step.
        possible, injected: the faults that could strike before the first step, and those that did.
        attempts: the transactions by name, in the order of their ends; those of dead processes
            last.
        missed_faults: requested faults that found no place to strike.
        rows: by table and version, the rows by the logs at the end; unreadable logs are left out.
        digest: the digest of the trace, as `RunResult.digest`.
    """

    case: Case
    world: tuple[str, ...]
    start: tuple[TableStatus, ...]
    possible: tuple[FaultKind, ...]
    injected: tuple[InjectedFault, ...]
    lanes: tuple[str, ...]
    steps: tuple[ReplayStep, ...]
    attempts: Mapping[str, Attempt]
    verdict: Verdict
    missed_faults: tuple[RequestedFault, ...]
    rows: Mapping[str, Mapping[int, Rows]]
    digest: str

    @property
    def all_injected(self) -> tuple[InjectedFault, ...]:
        """All faults of the run, in the order of their steps."""
        return (*self.injected, *(injected for step in self.steps for injected in step.injected))


@dataclass(frozen=True, slots=True)
class RunDifference:
    """How a run differs from another run of the same seed.

    Attributes:
        first: the first step that differs; None for equal runs.
        outcomes: by transaction, its outcome in each run; None if the run doesn't have it.
        rows: the tables that end with different rows.
        injected: how often each kind of fault struck in each run, where the counts differ.
    """

    first: int | None
    outcomes: Mapping[str, tuple[ReportedOutcome | None, ReportedOutcome | None]]
    rows: tuple[str, ...]
    injected: Mapping[FaultKind, tuple[int, int]]


def case_with_faults(seed: int, faults: Iterable[RequestedFault] = ()) -> Case:
    """Return a seed's case with faults added. Raises InvalidRequest for impossible faults."""
    if not 1 <= seed <= SEED_MAX:
        raise InvalidRequest(f"seed {seed}: expected a number from 1 to {SEED_MAX}; choose another")
    requested = frozenset(faults)
    if len(requested) > FAULTS_MAX:
        raise InvalidRequest(
            f"{len(requested)} faults: a run takes {FAULTS_MAX} at most; remove some of them"
        )
    possible = world_config(Case(seed)).possible
    for fault in sorted(requested, key=str):
        if fault.kind not in possible:
            names = ", ".join(kind.name for kind in FaultKind if kind in possible)
            raise InvalidRequest(
                f"seed {seed}: {fault.kind.name} can't strike in its world; choose one of {names}"
            )
        if fault.step < 0:
            raise InvalidRequest(f"step {fault.step}: steps are counted from 0; choose another")
    return Case(seed, faults=requested)


def replay(case: Case, *, turns_max: int = TURNS_MAX) -> Replay:
    """Run a case and return its steps. Raises InvalidRequest after `turns_max` turns."""
    recorder = RunRecorder()
    world = World(case, recorder)
    world.scheduler.turns_max = turns_max
    try:
        result = world.run()
        verdict, trace = Verdict(True, "", result.counts), result.trace
    except Failure as failure:
        if isinstance(failure.error, NoProgress) and world.scheduler.turns > turns_max:
            raise InvalidRequest(
                f"{case}: the run takes more than {turns_max} turns; choose another seed"
            ) from failure
        broken = f"{type(failure.error).__name__}: {failure.error}"
        verdict, trace = Verdict(False, broken, {}), failure.trace
    assert len(trace) == len(recorder.lines)
    injected: dict[int, list[InjectedFault]] = {}
    for one in world.injector.injected:
        injected.setdefault(one.step, []).append(one)
    injected_requests = {
        RequestedFault(one.step, one.kind) for one in world.injector.injected if one.is_requested
    }
    return Replay(
        case,
        describe_world(world.config),
        recorder.start,
        recorder.possible(0),
        tuple(injected.get(0, ())),
        tuple(sorted({line.lane for line in recorder.lines}, key=lane_order)),
        tuple(_steps(recorder, trace, injected)),
        _attempts(world, recorder),
        verdict,
        tuple(
            sorted(case.faults - injected_requests, key=lambda fault: (fault.step, fault.kind.name))
        ),
        _rows(world),
        hashlib.sha256("\n".join(trace).encode()).hexdigest(),
    )


def compare_runs(before: Replay, after: Replay) -> RunDifference:
    """Return how two runs differ."""
    pairs = zip(before.steps, after.steps)
    first = next((one.number for one, other in pairs if one.trace != other.trace), None)
    if first is None and len(before.steps) != len(after.steps):
        first = min(len(before.steps), len(after.steps)) + 1
    outcomes = {}
    for name in sorted(before.attempts.keys() | after.attempts.keys()):
        was, now = before.attempts.get(name), after.attempts.get(name)
        pair = (None if was is None else was.outcome, None if now is None else now.outcome)
        if pair[0] is not pair[1]:
            outcomes[name] = pair
    injected = {}
    for kind in FaultKind:
        counts = _count(before, kind), _count(after, kind)
        if counts[0] != counts[1]:
            injected[kind] = counts
    rows = tuple(name for name in after.rows if _last(before, name) != _last(after, name))
    return RunDifference(first, outcomes, rows, injected)


def _count(run: Replay, kind: FaultKind) -> int:
    return sum(one.kind is kind for one in run.all_injected)


def _last(run: Replay, table: str) -> Rows | None:
    rows = run.rows.get(table)
    return rows[max(rows)] if rows else None


# Parts of a replay


def _steps(
    recorder: RunRecorder, trace: Sequence[str], injected: Mapping[int, Sequence[InjectedFault]]
) -> Iterable[ReplayStep]:
    attempts: dict[str, str] = {}
    times: dict[str, float] = {}
    sent: dict[str, tuple[object, ...]] = {}  # by lane, a put without a reply so far
    before = {status.table: status.version for status in recorder.start}
    for number, (line, text) in enumerate(zip(recorder.lines, trace), start=1):
        description = describe_line(line.what)
        if description.attempt:
            attempts[line.lane] = description.attempt
        new_versions = []
        for status in line.tables:
            version, known = status.version, before.get(status.table)
            if version is not None and version != known:
                new_versions.append((status.table, version))
            before[status.table] = version
        words = description.words
        if sent.pop(line.lane, None) == line.what:
            words = f"{words}: done"
        elif is_put_line(line.what) and not _UNANSWERED & {
            one.kind for one in injected.get(number, ())
        }:
            sent[line.lane] = line.what
        yield ReplayStep(
            number,
            float(text.partition(" ")[0]),
            line.lane,
            attempts.get(line.lane, ""),
            description.kind,
            words,
            text,
            line.tables,
            tuple(new_versions),
            line.time_ms - times.get(line.lane, line.time_ms),
            description.outcome,
            tuple(injected.get(number, ())),
            recorder.possible(number),
            line.is_after,
        )
        times[line.lane] = line.time_ms
        if description.outcome is not None:
            attempts.pop(line.lane, None)


def _attempts(world: World, recorder: RunRecorder) -> dict[str, Attempt]:
    """Return the outcomes by transaction, also of those that failed before they began."""
    rules = {record.client.partition(" ")[0]: record.rule for record in world.records}
    attempts = {}
    for line in recorder.lines:
        description = describe_line(line.what)
        if description.outcome is not None:
            _, client, _, error = line.what
            name, _, program = str(client).partition(" ")
            attempts[name] = Attempt(
                name, program, description.outcome, str(error), rules.get(name, "")
            )
    for record in world.records:
        name, _, program = record.client.partition(" ")
        if name not in attempts:
            attempts[name] = Attempt(name, program, record.outcome, record.error, record.rule)
    return attempts


def _rows(world: World) -> dict[str, Mapping[int, Rows]]:
    """Return the rows of all versions by the logs; logs that can't be read are left out."""
    if world.plan.kind == definitions.KIND:  # its tables have other columns, and change names
        return {}
    rows: dict[str, Mapping[int, Rows]] = {}
    for name, root in world.tables.items():
        try:
            rows[name] = read_logs(world.storage, {name: root})[name].rows
        except (Violation, KeyError, ValueError):
            continue
    return rows
