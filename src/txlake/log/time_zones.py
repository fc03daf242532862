"""Time zones: the instants of wall clock times.

Owns the rules of a zone as values. They are those of the Java that runs Spark, which has time zone
data of its own (`spark.session_zones` fetches them): Python's differ in the past, for zones that
Python's data merges, and by release. Only UTC is known without Spark.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from txlake.protocol.times import SECOND, epoch_date, epoch_days

_NAME = b"java.time.zone.Ser"
_BLOCK, _LONG_BLOCK = 0x77, 0x7A
_ZONE_RULES = 1
_FIRST_QUARTER_S = -4_575_744_000  # transitions are counted from it in quarters of an hour
_UTC_TIME, _WALL_TIME = 0, 1
_DAY_S = 86_400
_LIMIT = 2**63


class TimeZone(Protocol):
    """A session's time zone."""

    @property
    def name(self) -> str:
        """The name in the session's setting."""
        ...

    def instants(self, walls: Sequence[int]) -> Sequence[int | None]:
        """Return the instants of wall clock times, both in microseconds; None for an unknown one.

        A time that clocks skip or show twice is taken with the offset before the change, as in
        Spark.
        """
        ...

    def day_starts(self, midnights: Sequence[int]) -> Sequence[int | None]:
        """Return the first instants of days, as Spark's cast from DATE to TIMESTAMP does; None for
        an unknown one.

        Days are given by their midnights; both are in microseconds. Where clocks skip from before
        midnight, this is another instant than the midnight's.
        """
        ...


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of the offset, at an instant in seconds."""

    at_s: int
    before_s: int
    after_s: int

    @property
    def end_s(self) -> int:
        """The wall clock time from which the new offset counts."""
        return self.at_s + max(self.before_s, self.after_s)

    def skips(self, wall_s: int) -> bool:
        """Return whether the change makes clocks skip a wall clock time."""
        return self.at_s + self.before_s <= wall_s < self.at_s + self.after_s


@dataclass(frozen=True, slots=True)
class YearlyRule:
    """A yearly change of the clocks.

    Attributes:
        month: from 1.
        day: of the month from 1; below 0 it counts from the month's end, where -1 is the last.
        weekday: 1 for Monday to 7: the first such day on or after `day`, or the last on or before
            it where `day` is below 0; None: `day` itself.
        time_s: seconds of the day; a whole day is the next day's midnight.
        clock: the clock of `time_s`: 0 UTC, 1 the wall's, 2 standard time.
        standard_s, before_s, after_s: offsets of standard time, before and after the change.
    """

    month: int
    day: int
    weekday: int | None
    time_s: int
    clock: int
    standard_s: int
    before_s: int
    after_s: int

    def transition(self, year: int) -> Transition:
        """Return the change in one year."""
        if self.day < 0:
            following = (year + 1, 1) if self.month == 12 else (year, self.month + 1)
            days = epoch_days(*following, 1) + self.day
        else:
            days = epoch_days(year, self.month, self.day)
        if self.weekday is not None:
            on = (days + 3) % 7 + 1  # 1970-01-01 was a Thursday
            days += (self.weekday - on) % 7 if self.day > 0 else -((on - self.weekday) % 7)
        wall = days * _DAY_S + self.time_s
        if self.clock == _UTC_TIME:
            wall += self.before_s
        elif self.clock != _WALL_TIME:
            wall += self.before_s - self.standard_s
        return Transition(wall - self.before_s, self.before_s, self.after_s)


@dataclass(frozen=True, slots=True)
class ZoneRules:
    """A zone's offsets at all times: past changes, and rules for the years after them.

    Attributes:
        name: the zone's name.
        first_s: the offset before the first change.
        transitions: the changes, in order.
        yearly: the rules after the last transition, in order of the year; often none.
    """

    name: str
    first_s: int
    transitions: tuple[Transition, ...] = ()
    yearly: tuple[YearlyRule, ...] = ()
    _ends: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_ends", tuple(one.end_s for one in self.transitions))

    def instants(self, walls: Sequence[int]) -> Sequence[int | None]:
        return [self._instant(wall) for wall in walls]

    def day_starts(self, midnights: Sequence[int]) -> Sequence[int | None]:
        return [self._day_start(midnight) for midnight in midnights]

    def _instant(self, wall: int) -> int | None:
        """Return the instant of a wall clock time, in microseconds; None if it doesn't fit
        64 bits.
        """
        change = self._next_change(wall // SECOND)
        offset_s = self._last_offset_s if change is None else change.before_s
        found = wall - offset_s * SECOND
        return found if -_LIMIT <= found < _LIMIT else None

    def _day_start(self, midnight: int) -> int | None:
        """Return the first instant of a day, in microseconds: where clocks skip its midnight, that
        of the change. None for an unknown one.
        """
        change = self._next_change(midnight // SECOND)
        if change is not None and change.skips(midnight // SECOND):
            return change.at_s * SECOND
        return self._instant(midnight)

    def _next_change(self, wall_s: int) -> Transition | None:
        """Return the first change whose end is after a wall clock time; with yearly rules, of that
        year.

        None after the last one.
        """
        place = bisect_right(self._ends, wall_s)
        if place < len(self.transitions):
            return self.transitions[place]
        if not self.yearly:
            return None
        year, _, _ = epoch_date(wall_s // _DAY_S)
        changes = [rule.transition(year) for rule in self.yearly]
        return next((one for one in changes if wall_s < one.end_s), None)

    @property
    def _last_offset_s(self) -> int:
        """The offset after a year's last change where yearly rules hold, else after the last change
        of all, else the first.
        """
        if self.yearly:
            return self.yearly[-1].after_s
        return self.transitions[-1].after_s if self.transitions else self.first_s


UTC_ZONE = ZoneRules("UTC", 0)


def parse_rules(name: str, data: bytes) -> ZoneRules:
    """Return the rules of a `java.time.zone.ZoneRules` that was written to an ObjectOutputStream.

    Raises ValueError for other bytes. Source: Java's "Serialized Form" of java.time.zone.Ser, and
    "Object Serialization Stream Protocol".
    """
    try:
        return _Reader(_blocks(data)).rules(name)
    except (struct.error, IndexError) as error:
        raise ValueError(f"rules of the time zone {name!r} that end too early") from error


def _blocks(data: bytes) -> bytes:
    """Return the object's own bytes: the stream's blocks after its class. Raises ValueError for a
    stream of another class, IndexError or struct.error for one that ends too early.
    """
    start = data.find(_NAME)
    if start < 0:
        raise ValueError(f"expected an object of {_NAME.decode()}, found {data[:60]!r}")
    # After the class's name: its identity (8 bytes), flags, number of fields (2), and two ends.
    position = start + len(_NAME) + 8 + 1 + 2 + 2
    found = bytearray()
    while data[position] in (_BLOCK, _LONG_BLOCK):
        is_long = data[position] == _LONG_BLOCK
        size = struct.unpack_from(">i" if is_long else ">B", data, position + 1)[0]
        position += 5 if is_long else 2
        found += data[position : position + size]
        position += size
    return bytes(found)


@dataclass(slots=True)
class _Reader:
    data: bytes
    position: int = 0

    def rules(self, name: str) -> ZoneRules:
        """Read a zone's rules. Raises ValueError for another object."""
        kind = self.byte()
        if kind != _ZONE_RULES:
            raise ValueError(f"expected the rules of a zone, found an object of the type {kind}")
        self._changes()  # changes of standard time, which don't affect the offset
        times, offsets = self._changes()
        transitions = tuple(
            Transition(at, before, after)
            for at, before, after in zip(times, offsets[:-1], offsets[1:], strict=True)
        )
        yearly = tuple(self._yearly() for _ in range(self.byte()))
        return ZoneRules(name, offsets[0], transitions, yearly)

    def byte(self) -> int:
        self.position += 1
        return self.data[self.position - 1]

    def integer(self, form: str = ">i") -> int:
        """Read a number in a form of `struct`, a signed one of 4 bytes by default."""
        (found,) = struct.unpack_from(form, self.data, self.position)
        self.position += struct.calcsize(form)
        return int(found)

    def _changes(self) -> tuple[list[int], list[int]]:
        """Return the changes' times, and the offsets before, between and after them."""
        count = self.integer()
        times = [self._time_s() for _ in range(count)]
        return times, [self._offset_s() for _ in range(count + 1)]

    def _time_s(self) -> int:
        """Read an instant, in seconds."""
        first = self.byte()
        if first == 255:
            return self.integer(">q")
        quarters = (first << 16) + (self.byte() << 8) + self.byte()
        return quarters * 900 + _FIRST_QUARTER_S

    def _offset_s(self) -> int:
        quarters = self.integer(">b")
        return self.integer() if quarters == 127 else quarters * 900

    def _yearly(self) -> YearlyRule:
        """Read the rule of a yearly change."""
        bits = self.integer() & 0xFFFFFFFF
        month, day = bits >> 28, (bits >> 22 & 63) - 32
        weekday, hour = bits >> 19 & 7, bits >> 14 & 31
        standard, before, after = bits >> 4 & 255, bits >> 2 & 3, bits & 3
        time_s = self.integer() if hour == 31 else hour * 3600
        standard_s = self.integer() if standard == 255 else (standard - 128) * 900
        before_s = self.integer() if before == 3 else standard_s + before * 1800
        after_s = self.integer() if after == 3 else standard_s + after * 1800
        return YearlyRule(
            month=month,
            day=day,
            weekday=weekday or None,
            time_s=time_s,
            clock=bits >> 12 & 3,
            standard_s=standard_s,
            before_s=before_s,
            after_s=after_s,
        )
