"""The drawing of a run: a lane for each client and process, with time to the right.

Owns the geometry, in units of the picture. A long stretch without steps is drawn short and labelled
with its duration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.simulation.records import ReportedOutcome
from tests.simulation.replay import Replay, ReplayStep
from tests.simulation.trace_text import StepKind
from txlake.console.formatting import span_text

AROUND = 24
"""So many steps before and after the one that is looked at."""
_LEFT = 92.0
_TOP = 44.0
_LANE = 40.0
_UNIT_PER_MS = 4.0
_NEXT_MIN, _NEXT_MAX = 14.0, 36.0
_CUT_MS, _CUT = 100.0, 58.0
_WIDTH_MIN = 900.0
_SIGNS = {
    StepKind.STATEMENT: "S",
    StepKind.STORE: "·",
    StepKind.CATALOG: "c",
    StepKind.RECOVERY: "R",
    StepKind.TROUBLE: "!",
}
_OUTCOME_SIGNS = {ReportedOutcome.COMMITTED: "✓", ReportedOutcome.CONFLICT: "✗"}
OVERVIEW = 1000.0
"""The overview's width."""


@dataclass(frozen=True, slots=True)
class StepMark:
    """A step in the picture.

    `versions`: those that it made; `injected`: the numbers of its faults.
    """

    step: int
    x: float
    y: float
    sign: str
    kind: str
    label: str
    versions: str
    injected: str
    is_here: bool


@dataclass(frozen=True, slots=True)
class Lane:
    """A process's or client's lane."""

    name: str
    y: float


@dataclass(frozen=True, slots=True)
class Cut:
    """A stretch that is drawn shorter than it lasted."""

    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Picture:
    """The steps around the current one."""

    width: float
    height: float
    lanes: tuple[Lane, ...]
    marks: tuple[StepMark, ...]
    cuts: tuple[Cut, ...]
    here: float | None
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Point:
    """A step that stands out in the overview: a fault, a new version or a conflict."""

    step: int
    x: float
    kind: str
    label: str


@dataclass(frozen=True, slots=True)
class Overview:
    """The whole run by its steps' numbers; the picture shows the steps from `start` to `end`."""

    points: tuple[Point, ...]
    here: float
    start: float
    end: float


def sign_of(step: ReplayStep) -> str:
    """Return the sign that a step is drawn with."""
    if step.kind is StepKind.OUTCOME:
        return "?" if step.outcome is None else _OUTCOME_SIGNS.get(step.outcome, "?")
    return _SIGNS[step.kind]


def numbered(run: Replay) -> dict[int, tuple[int, ...]]:
    """Return by step the numbers of its faults among all of the run, from 1."""
    points: dict[int, tuple[int, ...]] = {}
    for number, injected in enumerate(run.all_injected, start=1):
        points[injected.step] = (*points.get(injected.step, ()), number)
    return points


def picture(run: Replay, here: int) -> Picture:
    """Return the picture of the steps around `here`; 0 is the time before the first step."""
    first = max(1, min(here - AROUND, len(run.steps) - 2 * AROUND))
    steps = run.steps[first - 1 : first + 2 * AROUND]
    lanes = [lane for lane in run.lanes if any(step.lane == lane for step in steps)]
    heights = {lane: _TOP + _LANE * number for number, lane in enumerate(lanes)}
    numbers = numbered(run)
    x, marks, cuts = _LEFT + 12.0, [], []
    for before, step in zip([None, *steps[:-1]], steps):
        if before is not None:
            passed_ms = step.time_ms - before.time_ms
            if passed_ms > _CUT_MS:
                cuts.append(Cut(x + _CUT / 2, f"+{span_text(passed_ms)}"))
                x += _CUT
            else:
                x += min(_NEXT_MAX, max(_NEXT_MIN, passed_ms * _UNIT_PER_MS))
        marks.append(
            StepMark(
                step.number,
                round(x, 1),
                heights[step.lane],
                sign_of(step),
                step.kind.name.lower(),
                f"step {step.number}, {step.lane}: {step.words}",
                ", ".join(f"{table} {version}" for table, version in step.new_versions),
                ", ".join(map(str, numbers.get(step.number, ()))),
                step.number == here,
            )
        )
    return Picture(
        max(_WIDTH_MIN, round(x + 24, 1)),
        _TOP + _LANE * len(lanes),
        tuple(Lane(lane, heights[lane]) for lane in lanes),
        tuple(marks),
        tuple(cuts),
        next((mark.x for mark in marks if mark.is_here), None),
        first,
        first + len(steps) - 1,
    )


def overview(run: Replay, drawn: Picture, here: int) -> Overview:
    """Return the overview of a run, with the place of the drawn steps in it."""
    return Overview(
        tuple(_points(run)),
        _across(run, here),
        _across(run, drawn.first),
        _across(run, drawn.last),
    )


def _points(run: Replay) -> Sequence[Point]:
    points = []
    for number, injected in enumerate(run.all_injected, start=1):
        label = f"{number}: {injected.kind.name} at step {injected.step}"
        points.append(Point(injected.step, _across(run, injected.step), "fault", label))
    for step in run.steps:
        x = _across(run, step.number)
        for table, version in step.new_versions:
            label = f"{table} is at version {version} after step {step.number}"
            points.append(Point(step.number, x, "version", label))
        if step.outcome is ReportedOutcome.CONFLICT:
            points.append(
                Point(step.number, x, "conflict", f"{step.words:.80} (step {step.number})")
            )
    return points


def _across(run: Replay, step: int) -> float:
    return round(OVERVIEW * step / max(1, len(run.steps)), 1)
