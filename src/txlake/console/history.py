"""The page of history: commits in lanes, one for each table, on a time scale.

Owns the choice of the time range, and the position of each commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from txlake.catalog import Catalog
from txlake.catalog.commits import CommitEntry
from txlake.console.branch_lanes import COMMITS_MAX, draw_branches
from txlake.console.branches import lines_of
from txlake.console.page_requests import PageRequest, TemplateValues
from txlake.errors import InvalidRequest

PAGE_SIZE = 50
"""Instants listed below the lanes, on one page."""
_READ_MAX = 20_000
_SINGLE_DOTS_MAX = 400
_LANES_MAX = 16
_OTHER_TABLES = "other tables"
_DROPPED_TABLES = "dropped tables"
_LEFT, _WIDTH, _LANE_HEIGHT = 190, 1000, 34
_BUCKETS = 80
_RANGE_MS_MIN = 1_000
_HOUR_MS = 3_600_000
_LATEST_MS = 2**62
SPANS = (
    ("hour", _HOUR_MS),
    ("day", 24 * _HOUR_MS),
    ("week", 7 * 24 * _HOUR_MS),
    ("month", 30 * 24 * _HOUR_MS),
)
"""Time ranges to choose from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A commit, or several near each other, in a lane. `href`: the page that a click opens."""

    x: float
    y: float
    radius: float
    count: int
    title: str
    href: str


@dataclass(frozen=True, slots=True)
class Joint:
    """The line of one transaction, from its first lane to its last."""

    x: float
    top: float
    bottom: float


@dataclass(frozen=True, slots=True)
class Lane:
    """A table's lane. `title`: its full name."""

    name: str
    title: str
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """The drawing. `is_summed`: each dot stands for several commits, and there are no joints."""

    lanes: Sequence[Lane]
    dots: Sequence[Dot]
    joints: Sequence[Joint]
    is_summed: bool
    height: float
    left: float = _LEFT
    width: float = _LEFT + _WIDTH + 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """One committed transaction."""

    sequence: int
    time_ms: int
    commits: Sequence[CommitEntry]


def page(request: PageRequest) -> TemplateValues:
    """Return the commits of a time range, `from` to `to` in milliseconds; without both, of the
    newest commits.

    At most the 20,000 newest commits of the range are read; the list of instants is paged by
    `page`, from 0. Raises InvalidRequest for an invalid range or page.
    """
    catalog = request.engine.catalog.of_lake()
    start, end = _time_range(catalog, request)
    commits = catalog.ledger.commits_between(start, end, _READ_MAX)
    instants = _instants(commits)
    page = request.number("page", default=0)
    own = catalog.branches.commits_between(start, end, COMMITS_MAX)
    branches = draw_branches(lines_of(request.engine, commits), own, start, end)
    listed = instants[page * PAGE_SIZE : (page + 1) * PAGE_SIZE]
    return {
        "start_ms": start,
        "end_ms": end,
        "is_cut": len(commits) == _READ_MAX,
        "commits": len(commits),
        "instants": listed,
        "total": len(instants),
        "drawing": draw_lanes(commits, start, end),
        "branches": branches,
        "links": _navigation_links(start, end, request.engine.system.now_ms()),
        "newer": _path(start, end, page - 1) if page > 0 else None,
        "older": _path(start, end, page + 1) if (page + 1) * PAGE_SIZE < len(instants) else None,
    }


def _time_range(catalog: Catalog, request: PageRequest) -> tuple[int, int]:
    """Return the requested range, at least a second, or that of the newest 50 commits, and of what
    was done on branches since.

    The last hour in a lake without commits. Raises InvalidRequest for an end before the start, and
    if only one of both is given.
    """
    if "from" in request.query or "to" in request.query:
        start, end = request.number("from"), request.number("to")
        if end < start:
            raise InvalidRequest(f"from {start} to {end}: expected a start before the end")
        return start, max(end, start + _RANGE_MS_MIN)
    newest = catalog.ledger.newest_commits(PAGE_SIZE)
    if not newest:
        now_ms = request.engine.system.now_ms()
        return now_ms - _HOUR_MS, now_ms
    start, end = min(entry.time_ms for entry in newest), max(entry.time_ms for entry in newest)
    open_branches = catalog.branches.entries()
    if open_branches:
        latest = catalog.branches.commits_between(start, _LATEST_MS, 1)
        moments = [entry.created_ms for entry in open_branches]
        end = max([end, *moments, *(commit.time_ms for commit in latest)])
    return start, max(end, start + _RANGE_MS_MIN)


def _instants(entries: Iterable[CommitEntry]) -> list[Instant]:
    """Return the instants of the commits, newest first."""
    by_sequence: dict[int, list[CommitEntry]] = {}
    for entry in entries:
        by_sequence.setdefault(entry.sequence, []).append(entry)
    return [
        Instant(sequence=sequence, time_ms=commits[0].time_ms, commits=commits)
        for sequence, commits in sorted(by_sequence.items(), reverse=True)
    ]


def _navigation_links(start: int, end: int, now_ms: int) -> Mapping[str, str]:
    """Return the paths of the buttons, by their names."""
    span = end - start
    half, quarter = span // 2, span // 4
    ranges = {
        "earlier": (start - half, end - half),
        "later": (start + half, end + half),
        "zoom in": (start + quarter, end - quarter),
        "zoom out": (start - half, end + half),
    }
    links = {name: _path(max(0, first), last) for name, (first, last) in ranges.items()}
    return links | {f"last {name}": _path(now_ms - span_ms, now_ms) for name, span_ms in SPANS}


def _path(start: int, end: int, page: int = 0) -> str:
    query = {"from": start, "to": end} | ({"page": page} if page else {})
    return f"/history?{urlencode(query)}"


# The drawing


def draw_lanes(entries: Sequence[CommitEntry], start: int, end: int) -> Lanes | None:
    """Return the commits in lanes, one for each of the 16 busiest tables; None without commits.

    Other tables share a lane, and so do dropped ones. More than 400 commits are summed in dots by
    time, and the lines between lanes are left out then.
    """
    if not entries:
        return None
    counts = Counter(entry.table or _DROPPED_TABLES for entry in entries)
    busy = [name for name, _ in counts.most_common(_LANES_MAX)]
    names = sorted(busy) + ([_OTHER_TABLES] if len(counts) > len(busy) else [])
    positions = {name: position for position, name in enumerate(names)}

    def lane_of(entry: CommitEntry) -> int:
        return positions.get(entry.table or _DROPPED_TABLES, len(names) - 1)

    def x_of(time_ms: float) -> float:
        return round(_LEFT + (time_ms - start) / max(1, end - start) * _WIDTH, 1)

    is_summed = len(entries) > _SINGLE_DOTS_MAX
    if is_summed:
        dots = _summed_dots(entries, start, end, lane_of, x_of)
        joints: list[Joint] = []
    else:
        dots = [_commit_dot(entry, x_of(entry.time_ms), _y(lane_of(entry))) for entry in entries]
        joints = [
            Joint(x_of(instant.time_ms), _y(min(lanes)), _y(max(lanes)))
            for instant in _instants(entries)
            if len(lanes := {lane_of(commit) for commit in instant.commits}) > 1
        ]
    return Lanes(
        lanes=[Lane(_short(name), name, _y(position)) for name, position in positions.items()],
        dots=dots,
        joints=joints,
        is_summed=is_summed,
        height=_y(len(names)),
    )


def _y(lane: int) -> float:
    return 20 + lane * _LANE_HEIGHT


def _commit_dot(entry: CommitEntry, x: float, y: float) -> Dot:
    """Return the dot of one commit, which opens its instant."""
    description = f"{entry.operation or 'commit'} {entry.table or ''} version {entry.version}"
    return Dot(
        x=x,
        y=y,
        radius=6,
        count=1,
        title=f"instant {entry.sequence}: {description}",
        href=f"/history/{entry.sequence}",
    )


def _summed_dots(
    entries: Sequence[CommitEntry],
    start: int,
    end: int,
    lane_of: Callable[[CommitEntry], int],
    x_of: Callable[[float], float],
) -> list[Dot]:
    """Return a dot for the commits of each lane in each of equal parts of the time range.

    Its area grows with their number; a click opens that part.
    """
    width = (end - start) / _BUCKETS
    counts = Counter(
        (min(_BUCKETS - 1, int((entry.time_ms - start) / width)), lane_of(entry))
        for entry in entries
    )
    count_max = max(counts.values())
    dots = []
    for (bucket, lane), count in counts.items():
        first, last = int(start + bucket * width), int(start + (bucket + 1) * width)
        dots.append(
            Dot(
                x=x_of(start + (bucket + 0.5) * width),
                y=_y(lane),
                radius=round(2 + 8 * (count / count_max) ** 0.5, 1),
                count=count,
                title=f"{count:,} commits; a click shows them",
                href=_path(first, last),
            )
        )
    return dots


def _short(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:11]}…{name[-12:]}"
