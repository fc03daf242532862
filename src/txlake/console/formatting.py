"""Values in readable form: sizes, times, durations, counts."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping

_UNITS = ("KiB", "MiB", "GiB", "TiB")


def bytes_text(count: float) -> str:
    """Return a size in bytes with its unit."""
    if count < 1024:
        return f"{count:,.0f} B"
    for unit in _UNITS:
        count /= 1024
        if count < 1024 or unit == _UNITS[-1]:
            break
    return f"{count:,.1f} {unit}"


def time_text(time_ms: int | None) -> str:
    """Return milliseconds since the epoch as a UTC time, to the second; empty for None.

    A time out of range is returned as `N ms`.
    """
    if time_ms is None:
        return ""
    try:
        at = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"  # out of range: a wrong clock
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def span_text(span_ms: float) -> str:
    """Return a duration in milliseconds with its unit; 0 for a negative one."""
    seconds = max(0.0, span_ms / 1000)
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    for unit, size, most in (("min", 60, 7_200), ("h", 3_600, 172_800)):
        if seconds < most:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def count_text(count: int | None) -> str:
    """Return a number with thousands separators; `not known` for None."""
    return "not known" if count is None else f"{count:,}"


def share_text(share: float) -> str:
    """Return a fraction of 1 as a whole percentage; a small one that isn't 0 as `under 1 %`."""
    return f"{100 * share:.0f} %" if share in (0.0, 1.0) or share >= 0.01 else "under 1 %"


def value_text(value: object) -> str:
    """Return a row's value as text, cut to 200 characters; `NULL` for None, bytes in hex."""
    if value is None:
        return "NULL"
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


FILTERS: Mapping[str, Callable[..., str]] = {
    "bytes": bytes_text,
    "moment": time_text,
    "span": span_text,
    "count": count_text,
    "share": share_text,
    "value": value_text,
}
"""The filters by their names in templates."""
