"""Durations and sizes as users give them: `10m`, `50gb`, or numbers."""

from __future__ import annotations

import re

from txlake.errors import InvalidRequest
from txlake.maintenance.order import Budget
from txlake.protocol.properties import size_bytes

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)", re.ASCII | re.IGNORECASE)
_FACTOR_MS = {"ms": 1, "": 1_000, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(given: str | float, what: str) -> int:
    """Return a duration such as `30s`, `10m`, `2h` or `1d`, in milliseconds, at least one. Without
    a unit it is in seconds.

    `what`: what it is, for the message. Raises InvalidRequest for anything else.
    """
    found = None
    if isinstance(given, str):
        match = _DURATION.fullmatch(given.strip())
        if match is not None:
            found = round(float(match[1]) * _FACTOR_MS[match[2].lower()])
    elif not isinstance(given, bool) and given < 1e12:
        found = round(given * 1_000)
    if found is None or found < 1:
        raise InvalidRequest(
            f"{what}: expected a duration such as '30s', '10m' or '2h', or a number of seconds, "
            f"found {given!r}"
        )
    return found


def budget_of(duration: str | float | None, data: str | int | None) -> Budget:
    """Return the budget of a round. Raises InvalidRequest for what is no duration or no size."""
    time_ms = None if duration is None else duration_ms(duration, "budget")
    return Budget(time_ms=time_ms, data_bytes=None if data is None else _size(data))


def _size(given: str | int) -> int:
    try:
        found = size_bytes(str(given))
    except ValueError:
        found = 0
    if found < 1 or isinstance(given, bool):
        raise InvalidRequest(
            f"budget_bytes: expected a size such as '500mb' or '50gb', found {given!r}"
        )
    return found
