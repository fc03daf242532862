"""Times as texts and as microseconds since 1970-01-01, for every year that Spark has.

Owns the grammar of a time's text, `FarTime` for times beyond Python's datetime, and the texts of
both. The instant of a time without a zone is found by `log.time_zones`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TypeAlias

BLANKS = "".join(map(chr, range(33))) + "\x7f"
"""The characters that Spark strips from both ends of a text before a cast."""

SECOND = 1_000_000
DAY = 86_400 * SECOND
_LIMIT = 2**63
OFFSET_MAX = 18 * 3600 * SECOND
"""The widest offset of a time zone (java.time.ZoneOffset), in microseconds."""
_DAYS_OF_400_YEARS = 146_097
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall time
_MICROSECOND = timedelta(microseconds=1)
_TIME = re.compile(
    r"(?P<year>[+-]?\d{4,7})-(?P<month>\d{1,2})-(?P<day>\d{1,2})"
    r"(?:[ T](?P<hour>\d{1,2}):(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.(?P<fraction>\d*))?"
    r" *(?P<zone>Z|UTC|GMT|[+-](?:\d{1,2}(?::\d{2}){0,2}|\d{4}|\d{6}))?)?)?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, order=True)
class FarTime:
    """A time before the year 1 or after the year 9999, which datetime can't hold.

    Attributes:
        micros: microseconds since 1970-01-01 00:00:00.
        zoned: whether it is an instant, in UTC; else it is a wall clock time.
    """

    micros: int
    zoned: bool

    def __str__(self) -> str:
        return time_text(self.micros, zoned=self.zoned)


Time: TypeAlias = datetime | FarTime
"""An instant or a wall clock time. A datetime wherever possible, so that equal times are equal."""


@dataclass(frozen=True, slots=True)
class ParsedTime:
    """A parsed time: its wall clock in microseconds, and its zone's offset if it has one.

    The wall clock is that of the zone: the instant is `wall - offset_s * SECOND`.
    """

    wall: int
    offset_s: int | None

    @property
    def instant(self) -> int | None:
        """The instant in microseconds; None without a zone."""
        return None if self.offset_s is None else self.wall - self.offset_s * SECOND


def parse_time(text: str) -> ParsedTime:
    """Parse the text of a time as Spark's cast to TIMESTAMP does.

    `2020-01-31`, `2020-1-31 9:05`, `2020-01-31T09:05:00.25+02:00`. Regions and Spark's other forms
    (`2020`, `2020-01-31 09`) are not supported. Raises ValueError for other texts.
    """
    found = _TIME.fullmatch(text.strip(BLANKS))
    if found is None:
        raise ValueError(f"no time: {text!r}")
    hour, minute, second = (int(found[name] or 0) for name in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"no time: {text!r}")
    days = epoch_days(int(found["year"]), int(found["month"]), int(found["day"]))
    micros = int((found["fraction"] or "").ljust(6, "0")[:6])
    wall = days * DAY + (hour * 3600 + minute * 60 + second) * SECOND + micros
    zone = found["zone"]
    result = ParsedTime(wall, None if zone is None else _offset_s(zone))
    if not -_LIMIT <= (result.wall if result.instant is None else result.instant) < _LIMIT:
        raise ValueError(f"out of range: {text}")
    return result


def _offset_s(zone: str) -> int:
    """Return the seconds by which a zone such as `+02:00` is ahead of UTC.

    Raises ValueError for an offset that no zone has.
    """
    if zone in ("Z", "UTC", "GMT"):
        return 0
    digits = zone[1:]
    parts = digits.split(":") if ":" in digits or len(digits) <= 2 else re.findall("..", digits)
    hours, minutes, seconds = (*map(int, parts), 0, 0)[:3]
    offset = hours * 3600 + minutes * 60 + seconds
    if minutes > 59 or seconds > 59 or offset * SECOND > OFFSET_MAX:
        raise ValueError(f"no offset of a time zone: {zone}")
    return -offset if zone[0] == "-" else offset


def time_text(micros: int, *, zoned: bool) -> str:
    """Return the text of a time in the log and in SQL, which `parse_time` reads.

    An instant is `2020-01-31T09:05:00.000000Z`, a wall time `2020-01-31 09:05:00`, with six more
    digits unless they are zero. Years above 9999 have a sign.
    """
    days, of_day = divmod(micros, DAY)
    year, month, day = epoch_date(days)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    seconds, fraction = divmod(of_day, SECOND)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    text = f"{sign}{abs(year):04d}-{month:02d}-{day:02d}{'T' if zoned else ' '}{clock}"
    if zoned:
        return f"{text}.{fraction:06d}Z"
    return f"{text}.{fraction:06d}" if fraction else text


def time_of(micros: int, *, zoned: bool) -> Time:
    """Return the time at `micros` microseconds since 1970-01-01, an instant in UTC if `zoned`."""
    try:
        wall = _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return FarTime(micros, zoned)
    return wall.replace(tzinfo=UTC) if zoned else wall


def micros_of(time: Time) -> int:
    """Return the microseconds of a time since 1970-01-01; a datetime with a zone is an instant."""
    if isinstance(time, FarTime):
        return time.micros
    offset = time.utcoffset() or timedelta()
    return (time.replace(tzinfo=None) - _EPOCH) // _MICROSECOND - offset // _MICROSECOND


def is_zoned(time: Time) -> bool:
    """Return whether a time is an instant."""
    return time.zoned if isinstance(time, FarTime) else time.tzinfo is not None


def epoch_days(year: int, month: int, day: int) -> int:
    """Return the days from 1970-01-01 to a date, Gregorian in all years.

    Raises ValueError for a day that doesn't exist.
    """
    cycle = (year - 2000) // 400
    near = date(year - 400 * cycle, month, day)
    return near.toordinal() - _EPOCH_DAY + cycle * _DAYS_OF_400_YEARS


def epoch_date(days: int) -> tuple[int, int, int]:
    """Return year, month and day of the date `days` after 1970-01-01."""
    cycle, rest = divmod(days, _DAYS_OF_400_YEARS)
    near = date.fromordinal(rest + _EPOCH_DAY)
    return near.year + 400 * cycle, near.month, near.day
