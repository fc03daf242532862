"""Suggestions for a misspelled name in an error message."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_MOST = 3
_LIKENESS_MIN = 0.75


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return up to 3 known names that resemble `name`, the most similar first; letter case doesn't
    count.
    """
    spelled = {one.casefold(): one for one in known}
    found = get_close_matches(name.casefold(), spelled, _MOST, _LIKENESS_MIN)
    return [spelled[one] for one in found]


def did_you_mean(names: Iterable[str]) -> str:
    """Return `did you mean a, b or c?`; empty when there is no name to suggest."""
    *most, last = [*names] or [""]
    if not last:
        return ""
    return f"did you mean {', '.join(most)} or {last}?" if most else f"did you mean {last}?"
