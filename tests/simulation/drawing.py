"""Where a run's steps lie in a picture: a lane each client and process, time to the right.

Owns the geometry, in units of the picture. A stretch in which nothing happens is cut short, and
says how long it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.simulation.history import Told
from tests.simulation.replay import Replay, Replayed
from tests.simulation.telling import Doing
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
    Doing.STATEMENT: "S",
    Doing.STORE: "·",
    Doing.CATALOG: "c",
    Doing.RECOVERY: "R",
    Doing.TROUBLE: "!",
}
_TOLD = {Told.COMMITTED: "✓", Told.CONFLICT: "✗"}
OVERVIEW = 1000.0
"""The overview's width."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A step. `made`: the versions it made; `struck`: the numbers of its misfortunes."""

    step: int
    x: float
    y: float
    sign: str
    doing: str
    says: str
    made: str
    struck: str
    is_here: bool


@dataclass(frozen=True, slots=True)
class Lane:
    """A process's or a client's."""

    name: str
    y: float


@dataclass(frozen=True, slots=True)
class Cut:
    """A stretch that isn't drawn at its length."""

    x: float
    says: str


@dataclass(frozen=True, slots=True)
class Picture:
    """The steps around one."""

    width: float
    height: float
    lanes: tuple[Lane, ...]
    marks: tuple[Mark, ...]
    cuts: tuple[Cut, ...]
    here: float | None
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Point:
    """A step that stands out in the whole run."""

    step: int
    x: float
    kind: str
    says: str


@dataclass(frozen=True, slots=True)
class Overview:
    """The whole run by the numbers of its steps; what is drawn large is from `start` to `end`."""

    points: tuple[Point, ...]
    here: float
    start: float
    end: float


def sign_of(step: Replayed) -> str:
    """What a step is drawn as."""
    if step.doing is Doing.TOLD:
        return "?" if step.told is None else _TOLD.get(step.told, "?")
    return _SIGNS[step.doing]


def numbered(run: Replay) -> dict[int, tuple[int, ...]]:
    """By step, its misfortunes' places among all of the run, from 1 on."""
    found: dict[int, tuple[int, ...]] = {}
    for place, struck in enumerate(run.all_struck, start=1):
        found[struck.step] = (*found.get(struck.step, ()), place)
    return found


def picture(run: Replay, here: int) -> Picture:
    """The steps around one; 0 is before the first."""
    first = max(1, min(here - AROUND, len(run.steps) - 2 * AROUND))
    steps = run.steps[first - 1 : first + 2 * AROUND]
    lanes = [lane for lane in run.lanes if any(step.lane == lane for step in steps)]
    heights = {lane: _TOP + _LANE * place for place, lane in enumerate(lanes)}
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
            Mark(
                step.number,
                round(x, 1),
                heights[step.lane],
                sign_of(step),
                step.doing.name.lower(),
                f"step {step.number}, {step.lane}: {step.words}",
                ", ".join(f"{table} {version}" for table, version in step.made),
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


def overview(run: Replay, shown: Picture, here: int) -> Overview:
    """Where in the whole run that is, and what stands out in it."""
    return Overview(
        tuple(_points(run)),
        _across(run, here),
        _across(run, shown.first),
        _across(run, shown.last),
    )


def _points(run: Replay) -> Sequence[Point]:
    found = []
    for place, struck in enumerate(run.all_struck, start=1):
        says = f"{place}: {struck.kind.name} at step {struck.step}"
        found.append(Point(struck.step, _across(run, struck.step), "struck", says))
    for step in run.steps:
        x = _across(run, step.number)
        for table, version in step.made:
            says = f"{table} is at version {version} after step {step.number}"
            found.append(Point(step.number, x, "made", says))
        if step.told is Told.CONFLICT:
            found.append(Point(step.number, x, "lost", f"{step.words:.80} (step {step.number})"))
    return found


def _across(run: Replay, step: int) -> float:
    return round(OVERVIEW * step / max(1, len(run.steps)), 1)
