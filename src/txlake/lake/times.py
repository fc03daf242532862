"""Moments as users give them."""

from __future__ import annotations

import datetime

from txlake.errors import InvalidRequest


def timestamp_text(moment: str | datetime.datetime | datetime.date) -> str:
    """Return a time in ISO format, and a text as it is. Raises InvalidRequest for anything else."""
    if isinstance(moment, str):
        return moment
    if isinstance(moment, datetime.datetime | datetime.date):
        return moment.isoformat()
    raise InvalidRequest(
        f"timestamp={moment!r}: expected a datetime or a text like '2026-01-31 12:00:00'"
    )


def instant_ms(moment: str | int | datetime.datetime | datetime.date) -> int:
    """Return a time in milliseconds since the epoch; times without a zone are UTC.

    A number is in milliseconds already. Raises InvalidRequest for anything else.
    """
    if isinstance(moment, int) and not isinstance(moment, bool):
        return moment
    if isinstance(moment, str):
        try:
            moment = datetime.datetime.fromisoformat(moment.strip())
        except ValueError as error:
            raise InvalidRequest(
                f"timestamp={moment!r}: expected a text like '2026-01-31 12:00:00.000'"
            ) from error
    if isinstance(moment, datetime.date) and not isinstance(moment, datetime.datetime):
        moment = datetime.datetime(moment.year, moment.month, moment.day, tzinfo=datetime.UTC)
    if not isinstance(moment, datetime.datetime):
        raise InvalidRequest(
            f"timestamp={moment!r}: expected a datetime or a text like '2026-01-31 12:00:00'"
        )
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return (moment - _EPOCH) // datetime.timedelta(milliseconds=1)


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
