"""Moments as users give them."""

from __future__ import annotations

import datetime

from txlake.errors import InvalidRequest


def timestamp_text(moment: str | datetime.datetime | datetime.date) -> str:
    """The moment as the text of a timestamp. Raises InvalidRequest for anything else."""
    if isinstance(moment, str):
        return moment
    if isinstance(moment, datetime.datetime | datetime.date):
        return moment.isoformat()
    raise InvalidRequest(
        f"timestamp={moment!r}: expected a datetime or a text like '2026-01-31 12:00:00'"
    )
