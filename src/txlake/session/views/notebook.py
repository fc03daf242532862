"""The HTML with which notebooks show objects: a title, some facts, a table.

Owns the layout and the escaping. Callers pass the values; `card` does no I/O and raises nothing.
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
    """Return escaped HTML of a title, the facts that aren't None, and up to 20 rows of a table.

    A line says how many more rows there are.
    """
    parts = [f"<div><b>{escape(title)}</b>"]
    known = [(name, value) for name, value in facts if value is not None]
    if known:
        texts = (f"{escape(name)}: {escape(str(value))}" for name, value in known)
        parts.append(f"<div>{' &middot; '.join(texts)}</div>")
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


def card_or_error(title: str, make_card: Callable[[], str]) -> str:
    """Return the card of `make_card`, or a card with the TxlakeError that it raises."""
    try:
        return make_card()
    except TxlakeError as error:
        return card(title, [(type(error).__name__, str(error).partition("\n")[0][:200])])
