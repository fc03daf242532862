"""The playground's page: its template's values, and the handling of its forms.

Owns the fields of the forms. Knows no HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from txlake.console.playground import (
    TEXT_MAX,
    HistoryEntry,
    Playground,
    Playgrounds,
    PlaygroundState,
    StatementStatus,
)
from txlake.console.timelines import LEVELS, TIMELINES, Timeline
from txlake.errors import InvalidRequest

PATH = "/playground"

_SIGNS: Mapping[StatementStatus, str] = {
    StatementStatus.DONE: "✓",
    StatementStatus.FAILED: "✗",
    StatementStatus.REFUSED: "✗",
    StatementStatus.SKIPPED: "–",
    StatementStatus.WAITS: "…",
    StatementStatus.RUNS: "…",
}
_DEFAULT_TIMELINE = next(iter(TIMELINES))
_DEFAULT_LEVEL = "write_serializable"


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRow:
    """A row of the grid: a submitted statement, or a step that is still to come.

    Attributes:
        is_own: whether it is the visitor's statement, not the timeline's.
        badge: its status as a text; empty for a step to come.
        kind: the badge's CSS class.
    """

    session: str
    sql: str
    step: int | None
    is_own: bool
    is_next: bool
    badge: str
    sign: str
    kind: str
    entry: HistoryEntry | None


def page_values(
    playgrounds: Playgrounds, key: str, query: Mapping[str, str]
) -> Mapping[str, object]:
    """Return the template's values for a browser. Without a playground: the choices to begin one.

    `query` may name the preselected `timeline` and `level`.
    """
    values: dict[str, object] = {
        "families": _families(),
        "levels": LEVELS,
        "text_max": TEXT_MAX,
        "path": PATH,
    }
    playground = playgrounds.find(key)
    play = None if playground is None else _state_of(playground)
    if play is None:
        preselected = TIMELINES.get(query.get("timeline", ""), TIMELINES[_DEFAULT_TIMELINE])
        return {
            **values,
            "play": None,
            "timeline": preselected,
            "level": _default_level(preselected.name, query.get("level", _DEFAULT_LEVEL)),
            "lines": _remaining_rows(preselected, 0, None),
            "report": None,
            "waits": False,
            "stamp": "",
        }
    lines = [_row_of(entry) for entry in play.entries]
    done = len(play.timeline.steps) if play.next is None else play.next - 1
    return {
        **values,
        "play": play,
        "timeline": play.timeline,
        "level": play.level,
        "lines": [*lines, *_remaining_rows(play.timeline, done, play.next)],
        "report": play.report,
        "waits": any(line.kind == "waiting" for line in lines),
        "stamp": _stamp(play),
    }


def submit(playgrounds: Playgrounds, key: str, form: Mapping[str, str]) -> str:
    """Carry out a form, and return the path to redirect to.

    Its `action` is `reset` (with `timeline`, and `level` or a `level_before` that is kept where the
    timeline has it), `step`, `auto` (all remaining steps) or `run` (with `session` and `sql`).

    Raises InvalidRequest for anything else, without a playground (except for `reset`), and as the
    methods of Playground.
    """
    action = form.get("action", "")
    if action == "reset":
        timeline = form.get("timeline", _DEFAULT_TIMELINE)
        level = form.get("level") or _default_level(
            timeline, form.get("level_before", _DEFAULT_LEVEL)
        )
        playgrounds.begin(key, timeline, level)
        return PATH
    if action not in {"step", "auto", "run"}:
        raise InvalidRequest(f"action {action!r:.60}: expected step, run, reset or auto")
    playground = playgrounds.find(key)
    if playground is None:
        raise InvalidRequest("your playground has ended, because it was idle; begin again")
    if action == "step":
        playground.step()
    elif action == "auto":
        playground.finish()
    else:
        playground.run(form.get("session", ""), form.get("sql", ""))
    return PATH


def _state_of(playground: Playground) -> PlaygroundState | None:
    """Return a playground's state; None if it was closed meanwhile."""
    try:
        return playground.state()
    except InvalidRequest:
        return None  # it was closed meanwhile


def _default_level(timeline: str, previous: str) -> str:
    """Return the level that a timeline begins with: the previous one, if the timeline has it.

    Otherwise WriteSerializable, or the timeline's first level if it doesn't have that.
    """
    choice = TIMELINES.get(timeline)
    levels = () if choice is None else tuple(choice.outcomes)
    return next(
        (level for level in (previous, _DEFAULT_LEVEL, *levels) if level in levels), _DEFAULT_LEVEL
    )


def _families() -> Mapping[str, Sequence[Timeline]]:
    """Return the timelines by their family, both in the order of the menu."""
    families: dict[str, list[Timeline]] = {}
    for timeline in TIMELINES.values():
        families.setdefault(timeline.family, []).append(timeline)
    return families


def _remaining_rows(timeline: Timeline, done: int, next_step: int | None) -> list[GridRow]:
    """Return the rows of the timeline's steps after the first `done` ones; step `next_step` is
    marked.
    """
    return [
        GridRow(
            session=step.session,
            sql=step.sql,
            step=number,
            is_own=False,
            is_next=number == next_step,
            badge="next" if number == next_step else "",
            sign="→" if number == next_step else "",
            kind="next" if number == next_step else "",
            entry=None,
        )
        for number, step in enumerate(timeline.steps, 1)
        if number > done
    ]


def _row_of(entry: HistoryEntry) -> GridRow:
    """Return the row of a statement; a failed one's badge is its error's class."""
    status = entry.status
    kind = {
        StatementStatus.DONE: "done",
        StatementStatus.FAILED: "failed",
        StatementStatus.REFUSED: "failed",
        StatementStatus.SKIPPED: "skipped",
        StatementStatus.WAITS: "waiting",
        StatementStatus.RUNS: "waiting",
    }[status]
    badge = status.value
    if status is StatementStatus.FAILED and entry.error is not None:
        badge = entry.error.error
    return GridRow(
        session=entry.session,
        sql=entry.sql,
        step=entry.step,
        is_own=entry.step is None,
        is_next=False,
        badge=badge,
        sign=_SIGNS[status],
        kind=kind,
        entry=entry,
    )


def _stamp(play: PlaygroundState) -> str:
    """Return a text that changes whenever the page would look different."""
    ended = sum(1 for entry in play.entries if entry.ended_at is not None)
    waits = sorted(play.report.waits.items())
    return f"{play.timeline.name} {play.level} {len(play.entries)} {ended} {waits}"
