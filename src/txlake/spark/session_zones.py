"""The time zone of a Spark session, with the rules that Spark's Java has for it.

Owns how the rules come to this process: whole, from the JVM beside it, once for each zone; from a
Spark Connect server, whose JVM is out of reach, one answer for each time that is asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from txlake.log.time_zones import TimeZone, ZoneRules, parse_rules
from txlake.protocol.times import time_text
from txlake.spark.spark_sessions import is_connect

_ANSWERS_MAX = 10_000
_TIMES_IN_QUERY_MAX = 1_000
_INSTANT = "unix_micros(try_cast(t AS TIMESTAMP))"
_DAY_START = "unix_micros(CAST(try_cast(t AS DATE) AS TIMESTAMP))"

_rules: dict[str, ZoneRules] = {}
_of_servers: WeakKeyDictionary[SparkSession, dict[str, RemoteZone]] = WeakKeyDictionary()
_lock = threading.Lock()


def session_zone(spark: SparkSession) -> TimeZone:
    """Return the session's present zone for timestamps that name none; UTC if the setting
    is empty.
    """
    name = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    if is_connect(spark):
        with _lock:
            known = _of_servers.setdefault(spark, {})
            return known.setdefault(name, RemoteZone(name, lambda query: _only_row(spark, query)))
    found = _rules.get(name)
    if found is None:
        found = _rules[name] = parse_rules(name, _serialized(spark, name))
    return found


def _serialized(spark: SparkSession, name: str) -> bytes:
    """Return the ZoneRules of the zone that Spark takes the name for, as Java serializes them."""
    classic: Any = spark
    jvm = classic._jvm
    zone = jvm.org.apache.spark.sql.catalyst.util.DateTimeUtils.getZoneId(name)
    written = jvm.java.io.ByteArrayOutputStream()
    stream = jvm.java.io.ObjectOutputStream(written)
    stream.writeObject(zone.getRules())
    stream.close()
    return bytes(written.toByteArray())


def _only_row(spark: SparkSession, query: str) -> Sequence[int | None]:
    found: Sequence[int | None] = spark.sql(query).collect()[0][0]
    return found


@dataclass(eq=False, slots=True)
class RemoteZone:
    """A zone that only Spark knows; it is asked for each time once.

    `answer` gives the array that is the only value of a query.
    """

    name: str
    answer: Callable[[str], Sequence[int | None]] = field(repr=False)
    _known: dict[tuple[str, int], int | None] = field(default_factory=dict, repr=False)

    def instants(self, walls: Sequence[int]) -> Sequence[int | None]:
        """Return the instants of wall times, both in microseconds; None for one that Spark doesn't
        have.
        """
        # The zone's name stands in the text, so that the session's may have changed meanwhile.
        return self._found(_INSTANT, walls, f" {self.name}")

    def day_starts(self, midnights: Sequence[int]) -> Sequence[int | None]:
        return self._found(_DAY_START, midnights, "")

    def _found(self, expression: str, times: Sequence[int], suffix: str) -> Sequence[int | None]:
        """Return the answer for each time, in order; None where Spark has none. The ones not known
        are asked for, 1,000 in a query.

        `suffix` ends each time's text.
        """
        found = {time: self._known.get((expression, time)) for time in times}
        missing = [time for time in found if (expression, time) not in self._known]
        for start in range(0, len(missing), _TIMES_IN_QUERY_MAX):
            part = missing[start : start + _TIMES_IN_QUERY_MAX]
            texts = ", ".join(f"'{time_text(time, zoned=False)}{suffix}'" for time in part)
            answers = self.answer(f"SELECT transform(array({texts}), t -> {expression})")
            found.update(zip(part, answers, strict=True))
        if len(self._known) + len(missing) > _ANSWERS_MAX:
            self._known.clear()
        self._known.update({(expression, time): found[time] for time in missing})
        return [found[time] for time in times]
