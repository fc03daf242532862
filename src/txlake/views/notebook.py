"""What objects show of themselves in a notebook: a title, some facts, a table.

Owns the form and the escaping. What is shown was asked for before: nothing here asks, or fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from txlake.errors import TxlakeError

_ROWS_MAX = 20


def card(
    title: str,
    facts: Sequence[tuple[str, object]],
    columns: Sequence[str] = (),
    rows: Sequence[Sequence[object]] = (),
) -> str:
    """HTML of a title, facts with their names, and the first rows of a table, all of it escaped."""
    parts = [f"<div><b>{escape(title)}</b>"]
    told = [f"{escape(name)}: {escape(str(value))}" for name, value in facts if value is not None]
    if told:
        parts.append(f"<div>{' &middot; '.join(told)}</div>")
    if columns and rows:
        head = "".join(f"<th>{escape(name)}</th>" for name in columns)
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>")
        for row in rows[:_ROWS_MAX]:
            cells = "".join(f"<td>{escape(str(value))}</td>" for value in row)
            parts.append(f"<tr>{cells}</tr>")
        parts.append("</tbody></table>")
    if len(rows) > _ROWS_MAX:
        parts.append(f"<div>and {len(rows) - _ROWS_MAX:,} more</div>")
    return "".join([*parts, "</div>"])


def told_or_why(title: str, tell: Callable[[], str]) -> str:
    """What `tell` makes; where that fails, the title and why."""
    try:
        return tell()
    except TxlakeError as error:
        return card(title, [(type(error).__name__, str(error).partition("\n")[0][:200])])
