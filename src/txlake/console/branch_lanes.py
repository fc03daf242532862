"""The drawing of branches: lanes that leave main where they were created, and come back where they
were published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from txlake.catalog.branch_usage import BranchCommit

_LEFT, _WIDTH, _LANE_HEIGHT, _TURN = 190, 1000, 34, 24
_LANES_MAX = 16
COMMITS_MAX = 400
"""Commits on branches that are drawn."""
MAIN = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A branch's line of history.

    Attributes:
        number: the branch's number; None for one that has ended.
        parent: the number of the branch that it was made from, 0 for main.
        start_ms: when it was created.
        end_ms: when it was published; None for an open one.
        instant: the instant of main that it was published at.
    """

    name: str
    number: int | None = None
    parent: int = 0
    start_ms: int
    end_ms: int | None = None
    instant: int | None = None

    @property
    def href(self) -> str:
        """The page of the branch, or of the instant that it was published at."""
        if self.instant is not None:
            return f"/history/{self.instant}"
        return f"/branches/one?{urlencode({'name': self.name})}"

    def is_within(self, start: int, end: int) -> bool:
        """Return whether a part of it is in a range of times, in milliseconds."""
        return self.start_ms <= end and (self.end_ms is None or self.end_ms >= start)


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchLane:
    """A branch's lane: `path` is drawn, in SVG's notation."""

    line: Line
    y: float
    path: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchDot:
    """A commit on a branch."""

    x: float
    y: float
    title: str
    href: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchDrawing:
    """The drawing. `left_out`: how many branches have no lane, for want of room."""

    lanes: Sequence[BranchLane]
    dots: Sequence[BranchDot]
    left_out: int
    height: float
    left: float = _LEFT
    width: float = _LEFT + _WIDTH + 20
    main_y: float = 20


def draw_branches(
    lines: Sequence[Line], commits: Sequence[BranchCommit], start: int, end: int
) -> BranchDrawing | None:
    """Return the branches that exist between two times, each in a lane; None without any.

    At most 16 lanes are drawn, of those that were created last, and 400 commits.
    """
    found = sorted(
        (line for line in lines if line.is_within(start, end)),
        key=lambda line: (line.start_ms, line.name),
    )
    if not found:
        return None
    shown = found[-_LANES_MAX:]
    places = {line.number: _y(place + 1) for place, line in enumerate(shown) if line.number}

    def x_of(time_ms: float) -> float:
        return round(_LEFT + (time_ms - start) / max(1, end - start) * _WIDTH, 1)

    lanes = []
    for place, line in enumerate(shown):
        y, parent_y = _y(place + 1), places.get(line.parent, _y(0))
        first = None if line.start_ms < start else x_of(line.start_ms)
        last = None if line.end_ms is None or line.end_ms > end else x_of(line.end_ms)
        lanes.append(
            BranchLane(line=line, y=y, path=_path(y, parent_y, first, last), title=_title(line))
        )
    dots = [
        BranchDot(
            x=x_of(commit.time_ms),
            y=places[commit.branch],
            title=f"{commit.operation or 'commit'} {commit.table} version {commit.version}",
            href=_href(shown, commit.branch),
        )
        for commit in commits[:COMMITS_MAX]
        if commit.branch in places
    ]
    return BranchDrawing(
        lanes=lanes, dots=dots, left_out=len(found) - len(shown), height=_y(len(shown) + 1)
    )


def _y(lane: int) -> float:
    return 20 + lane * _LANE_HEIGHT


def _path(y: float, parent_y: float, first: float | None, last: float | None) -> str:
    """Return the path of a branch: from its parent's lane at `first` along its own lane, and back
    to main at `last`. None for an end that lies beyond the drawing.
    """
    end = _LEFT + _WIDTH
    if first is None:
        begin, x = f"M{_LEFT} {y}", float(_LEFT)
    else:
        x = min(first + _TURN, end if last is None else (first + last) / 2)
        begin = f"M{first} {parent_y} C{first} {y} {first} {y} {x} {y}"
    if last is None:
        return f"{begin} H{end}"
    turn = max(x, last - _TURN)
    return f"{begin} H{turn} C{last} {y} {last} {y} {last} {_y(0)}"


def _title(line: Line) -> str:
    if line.instant is not None:
        return f"branch {line.name}, published at instant {line.instant}"
    return f"branch {line.name}, open"


def _href(lines: Sequence[Line], number: int) -> str:
    by_number: Mapping[int | None, Line] = {line.number: line for line in lines}
    return by_number[number].href
