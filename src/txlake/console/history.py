"""The lake's history in lanes, one a table, on a scale of time: which transactions joined them.

Owns which stretch of time is shown, and where each commit is drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from txlake.catalog import Catalog
from txlake.catalog.commits import CommitEntry
from txlake.console.visits import Values, Visit
from txlake.errors import InvalidRequest

PAGE = 50
"""Instants that are listed below the lanes."""
_READ_MAX = 20_000
_SINGLE_MAX = 400
_LANES_MAX = 16
_OTHERS = "other tables"
_REMOVED = "tables that are gone"
_LEFT, _WIDTH, _LANE = 190, 1000, 34
_BUCKETS = 80
_LEAST_MS = 1_000
_HOUR_MS = 3_600_000
SPANS = (
    ("hour", _HOUR_MS),
    ("day", 24 * _HOUR_MS),
    ("week", 7 * 24 * _HOUR_MS),
    ("month", 30 * 24 * _HOUR_MS),
)
"""Stretches of time that are offered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A commit, or several near each other, in a lane. `href`: what a click shows."""

    x: float
    y: float
    radius: float
    count: int
    title: str
    href: str


@dataclass(frozen=True, slots=True)
class Joint:
    """One transaction's line from its first lane to its last."""

    x: float
    top: float
    bottom: float


@dataclass(frozen=True, slots=True)
class Lane:
    """A table's line. `title`: its name, whole."""

    name: str
    title: str
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """The drawing. `is_summed`: dots stand for several commits; transactions aren't joined."""

    lanes: Sequence[Lane]
    dots: Sequence[Dot]
    joints: Sequence[Joint]
    is_summed: bool
    height: float
    left: float = _LEFT
    width: float = _LEFT + _WIDTH + 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """One transaction that was committed: a moment of the lake."""

    sequence: int
    time_ms: int
    commits: Sequence[CommitEntry]


def look(visit: Visit) -> Values:
    """The page: a stretch of time, `from` to `to` in milliseconds; the newest without."""
    catalog = visit.engine.catalog.of_lake()
    start, end = _stretch(catalog, visit)
    found = catalog.ledger.commits_between(start, end, _READ_MAX)
    instants = _instants(found)
    page = visit.number("page", otherwise=0)
    shown = instants[page * PAGE : (page + 1) * PAGE]
    return {
        "start_ms": start,
        "end_ms": end,
        "is_cut": len(found) == _READ_MAX,
        "commits": len(found),
        "instants": shown,
        "total": len(instants),
        "drawing": drawn(found, start, end),
        "links": _links(start, end, visit.engine.system.now_ms()),
        "newer": _path(start, end, page - 1) if page > 0 else None,
        "older": _path(start, end, page + 1) if (page + 1) * PAGE < len(instants) else None,
    }


def _stretch(catalog: Catalog, visit: Visit) -> tuple[int, int]:
    if "from" in visit.query or "to" in visit.query:
        start, end = visit.number("from"), visit.number("to")
        if end < start:
            raise InvalidRequest(f"from {start} to {end}: expected a start before the end")
        return start, max(end, start + _LEAST_MS)
    newest = catalog.ledger.commits_listed(PAGE)
    if not newest:
        now_ms = visit.engine.system.now_ms()
        return now_ms - _HOUR_MS, now_ms
    start, end = min(one.time_ms for one in newest), max(one.time_ms for one in newest)
    return start, max(end, start + _LEAST_MS)


def _instants(found: Iterable[CommitEntry]) -> list[Instant]:
    """The newest first."""
    of: dict[int, list[CommitEntry]] = {}
    for one in found:
        of.setdefault(one.sequence, []).append(one)
    return [
        Instant(sequence=number, time_ms=made[0].time_ms, commits=made)
        for number, made in sorted(of.items(), reverse=True)
    ]


def _links(start: int, end: int, now_ms: int) -> Mapping[str, str]:
    """Where the buttons lead to."""
    span = end - start
    half, quarter = span // 2, span // 4
    around = {
        "earlier": (start - half, end - half),
        "later": (start + half, end + half),
        "zoom in": (start + quarter, end - quarter),
        "zoom out": (start - half, end + half),
    }
    links = {name: _path(max(0, first), last) for name, (first, last) in around.items()}
    return links | {f"last {name}": _path(now_ms - long, now_ms) for name, long in SPANS}


def _path(start: int, end: int, page: int = 0) -> str:
    asked = {"from": start, "to": end} | ({"page": page} if page else {})
    return f"/history?{urlencode(asked)}"


# The drawing


def drawn(found: Sequence[CommitEntry], start: int, end: int) -> Lanes | None:
    """The commits in the lanes of their tables, of the most busy ones; None without commits."""
    if not found:
        return None
    counts = Counter(one.table or _REMOVED for one in found)
    busy = [name for name, _ in counts.most_common(_LANES_MAX)]
    names = sorted(busy) + ([_OTHERS] if len(counts) > len(busy) else [])
    places = {name: place for place, name in enumerate(names)}

    def lane_of(one: CommitEntry) -> int:
        return places.get(one.table or _REMOVED, len(names) - 1)

    def x_of(time_ms: float) -> float:
        return round(_LEFT + (time_ms - start) / max(1, end - start) * _WIDTH, 1)

    is_summed = len(found) > _SINGLE_MAX
    if is_summed:
        dots = _sums(found, start, end, lane_of, x_of)
        joints: list[Joint] = []
    else:
        dots = [_single(one, x_of(one.time_ms), _y(lane_of(one))) for one in found]
        joints = [
            Joint(x_of(one.time_ms), _y(min(lanes)), _y(max(lanes)))
            for one in _instants(found)
            if len(lanes := {lane_of(commit) for commit in one.commits}) > 1
        ]
    return Lanes(
        lanes=[Lane(_short(name), name, _y(place)) for name, place in places.items()],
        dots=dots,
        joints=joints,
        is_summed=is_summed,
        height=_y(len(names)),
    )


def _y(lane: int) -> float:
    return 20 + lane * _LANE


def _single(one: CommitEntry, x: float, y: float) -> Dot:
    what = f"{one.operation or 'commit'} {one.table or ''} version {one.version}"
    return Dot(
        x=x,
        y=y,
        radius=6,
        count=1,
        title=f"instant {one.sequence}: {what}",
        href=f"/history/{one.sequence}",
    )


def _sums(
    found: Sequence[CommitEntry],
    start: int,
    end: int,
    lane_of: Callable[[CommitEntry], int],
    x_of: Callable[[float], float],
) -> list[Dot]:
    width = (end - start) / _BUCKETS
    counts = Counter(
        (min(_BUCKETS - 1, int((one.time_ms - start) / width)), lane_of(one)) for one in found
    )
    most = max(counts.values())
    dots = []
    for (bucket, lane), count in counts.items():
        first, last = int(start + bucket * width), int(start + (bucket + 1) * width)
        dots.append(
            Dot(
                x=x_of(start + (bucket + 0.5) * width),
                y=_y(lane),
                radius=round(2 + 8 * (count / most) ** 0.5, 1),
                count=count,
                title=f"{count:,} commits; a click shows them",
                href=_path(first, last),
            )
        )
    return dots


def _short(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:11]}…{name[-12:]}"
