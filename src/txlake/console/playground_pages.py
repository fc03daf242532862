"""The playground as a page: what its template shows, and what its forms ask for.

Owns the fields of the forms. Knows no HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from txlake.console.playground import (
    TEXT_MAX,
    Ending,
    Moment,
    Playground,
    Playgrounds,
    Shown,
)
from txlake.console.timelines import LEVELS, TIMELINES, Timeline
from txlake.errors import InvalidRequest

PATH = "/playground"

_SIGNS: Mapping[Ending, str] = {
    Ending.DONE: "✓",
    Ending.FAILED: "✗",
    Ending.REFUSED: "✗",
    Ending.SKIPPED: "–",
    Ending.WAITS: "…",
    Ending.RUNS: "…",
}
_FIRST = next(iter(TIMELINES))
_USUAL = "write_serializable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A row of the grid: a statement that was asked, or a step that is still to come.

    Attributes:
        is_own: whether it is the visitor's, not the timeline's.
        badge: what became of it, in words; empty where nothing did yet.
        kind: the badge's class.
    """

    session: str
    sql: str
    step: int | None
    is_own: bool
    is_next: bool
    badge: str
    sign: str
    kind: str
    moment: Moment | None


def shown(playgrounds: Playgrounds, key: str, query: Mapping[str, str]) -> Mapping[str, object]:
    """The template's values for a browser. Without a playground of its own: where to begin.

    `query` may name a `timeline` and a `level` that are offered first.
    """
    values: dict[str, object] = {
        "families": _families(),
        "levels": LEVELS,
        "text_max": TEXT_MAX,
        "path": PATH,
    }
    playground = playgrounds.find(key)
    play = None if playground is None else _shown(playground)
    if play is None:
        offered = TIMELINES.get(query.get("timeline", ""), TIMELINES[_FIRST])
        return {
            **values,
            "play": None,
            "timeline": offered,
            "level": _level_of(offered.name, query.get("level", _USUAL)),
            "lines": _to_come(offered, 0, None),
            "picture": None,
            "waits": False,
            "stamp": "",
        }
    lines = [_line(moment) for moment in play.moments]
    taken = len(play.timeline.steps) if play.next is None else play.next - 1
    return {
        **values,
        "play": play,
        "timeline": play.timeline,
        "level": play.level,
        "lines": [*lines, *_to_come(play.timeline, taken, play.next)],
        "picture": play.picture,
        "waits": any(line.kind == "waiting" for line in lines),
        "stamp": _stamp(play),
    }


def posted(playgrounds: Playgrounds, key: str, form: Mapping[str, str]) -> str:
    """Does what a form asks for; the path to go on to.

    Its `action` is `reset` (with `timeline`, and `level` or a `level_before` that is kept where the
    timeline has it), `step`, `auto` (all steps that are left) or `run` (with `session` and `sql`).

    Raises InvalidRequest for anything else, and as the methods of a Playground.
    """
    action = form.get("action", "")
    if action == "reset":
        timeline = form.get("timeline", _FIRST)
        level = form.get("level") or _level_of(timeline, form.get("level_before", _USUAL))
        playgrounds.begin(key, timeline, level)
        return PATH
    if action not in {"step", "auto", "run"}:
        raise InvalidRequest(f"action {action!r:.60}: expected step, run, reset or auto")
    playground = playgrounds.find(key)
    if playground is None:
        raise InvalidRequest("your playground has ended, as nobody used it for long; begin anew")
    if action == "step":
        playground.step()
    elif action == "auto":
        playground.finish()
    else:
        playground.run(form.get("session", ""), form.get("sql", ""))
    return PATH


def _shown(playground: Playground) -> Shown | None:
    try:
        return playground.shown()
    except InvalidRequest:
        return None  # it has ended since it was found


def _level_of(timeline: str, before: str) -> str:
    """The level that a timeline begins with: the one before, where it has that."""
    found = TIMELINES.get(timeline)
    levels = () if found is None else tuple(found.outcomes)
    return next((one for one in (before, _USUAL, *levels) if one in levels), _USUAL)


def _families() -> Mapping[str, Sequence[Timeline]]:
    found: dict[str, list[Timeline]] = {}
    for one in TIMELINES.values():
        found.setdefault(one.family, []).append(one)
    return found


def _to_come(timeline: Timeline, taken: int, following: int | None) -> list[Line]:
    return [
        Line(
            session=step.session,
            sql=step.sql,
            step=number,
            is_own=False,
            is_next=number == following,
            badge="next" if number == following else "",
            sign="→" if number == following else "",
            kind="next" if number == following else "",
            moment=None,
        )
        for number, step in enumerate(timeline.steps, 1)
        if number > taken
    ]


def _line(moment: Moment) -> Line:
    ending = moment.ending
    kind = {
        Ending.DONE: "done",
        Ending.FAILED: "failed",
        Ending.REFUSED: "failed",
        Ending.SKIPPED: "skipped",
        Ending.WAITS: "waiting",
        Ending.RUNS: "waiting",
    }[ending]
    badge = ending.value
    if ending is Ending.FAILED and moment.error is not None:
        badge = moment.error.error
    return Line(
        session=moment.session,
        sql=moment.sql,
        step=moment.step,
        is_own=moment.step is None,
        is_next=False,
        badge=badge,
        sign=_SIGNS[ending],
        kind=kind,
        moment=moment,
    )


def _stamp(play: Shown) -> str:
    """Another text whenever the page would look different."""
    ended = sum(1 for moment in play.moments if moment.ended_at is not None)
    waits = sorted(play.picture.waits.items())
    return f"{play.timeline.name} {play.level} {len(play.moments)} {ended} {waits}"
