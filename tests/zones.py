"""Time zones for tests without Spark."""

from __future__ import annotations

from collections.abc import Sequence

from txlake.log.time_zones import YearlyRule, ZoneRules

_IN_MARCH = YearlyRule(
    month=3, day=25, weekday=7, time_s=3600, clock=0, standard_s=3600, before_s=3600, after_s=7200
)
_IN_OCTOBER = YearlyRule(
    month=10, day=25, weekday=7, time_s=3600, clock=0, standard_s=3600, before_s=7200, after_s=3600
)
BERLIN = ZoneRules("Europe/Berlin", 3600, (), (_IN_MARCH, _IN_OCTOBER))
"""By today's rules, in all years."""


def zone_of(offset_hours: float) -> ZoneRules:
    """The zone of one offset."""
    return ZoneRules(f"{offset_hours:+}", int(offset_hours * 3600))


class UnknownZone:
    """A zone that knows no instant."""

    name = "Nowhere/Land"

    def instants(self, walls: Sequence[int]) -> Sequence[int | None]:
        return [None] * len(walls)

    day_starts = instants
