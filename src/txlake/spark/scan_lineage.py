"""Scan lineage: the table versions that a DataFrame, or one derived from it, was read from.

A scan is marked by an alias. Spark keeps the alias in the analysed plan through every
transformation, temporary view and cache, and it costs nothing when the plan runs. Owns the registry
from an alias's number to the scan's lineage.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from typing import Any

from pyspark.sql import DataFrame

from txlake.commit.data_plane import ScanLineage
from txlake.errors import InvalidRequest
from txlake.spark.spark_sessions import is_connect

# Each entry is some hundred bytes; the least recently used is evicted.
_ENTRIES_MAX = 100_000
_ALIAS = re.compile(r"#txlake-(\d+)")
# How Spark ends a text that is longer than spark.sql.maxPlanStringLength.
_TRUNCATED = re.compile(r"\.\.\. \d+ more characters|Truncated plan of \d+ characters")


class _Registry:
    """The lineages of this process by number, at most _ENTRIES_MAX. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: OrderedDict[ScanLineage, int] = OrderedDict()
        self._lineages: dict[int, ScanLineage] = {}
        self._next = 1

    def number(self, lineage: ScanLineage) -> int:
        """Return the lineage's number; equal lineages share one. Evicts the least recently used
        lineage.
        """
        with self._lock:
            number = self._numbers.pop(lineage, None)
            if number is None:
                number, self._next = self._next, self._next + 1
                self._lineages[number] = lineage
            self._numbers[lineage] = number
            while len(self._numbers) > _ENTRIES_MAX:
                del self._lineages[self._numbers.popitem(last=False)[1]]
            return number

    def lineage(self, number: int) -> ScanLineage | None:
        """Return the lineage with a number; None for one that was evicted or never given."""
        with self._lock:
            return self._lineages.get(number)


_REGISTRY = _Registry()


def with_lineage(frame: DataFrame, lineage: ScanLineage) -> DataFrame:
    """Return the same rows under an alias by which `lineage_of` recognises the scan."""
    number = _REGISTRY.number(lineage)
    return frame.alias(f"{lineage.table}@{lineage.version}#txlake-{number}")


def lineage_of(frame: DataFrame) -> list[ScanLineage]:
    """Return the lineages of a DataFrame's scans, without duplicates, in the plan's order.

    Rows that were collected or checkpointed have no lineage.

    Raises InvalidRequest for a scan whose lineage this process doesn't know, and for a plan whose
    text Spark cuts short.
    """
    lineages: dict[ScanLineage, None] = {}
    plan = analyzed_plan(frame)
    if _TRUNCATED.search(plan):
        raise InvalidRequest(
            "what the DataFrame shows can't be told: Spark cuts its plan short; set "
            "spark.sql.maxPlanStringLength to a larger number, or back to its default"
        )
    for number in _ALIAS.findall(plan):
        lineage = _REGISTRY.lineage(int(number))
        if lineage is None:
            raise InvalidRequest(
                "the DataFrame, or the view that it reads, shows a version of a lake's table that "
                "isn't known here any more: it was made by another process, or too long ago. Read "
                "the table again"
            )
        lineages[lineage] = None
    return list(lineages)


def view_alias(name: str, number: str) -> str:
    """Return the alias for a temporary view's query, by which `reads_view` recognises the view."""
    return f"{name.replace('`', '')}#txlake-view-{number}"


def reads_view(frame: DataFrame, alias: str) -> bool:
    """Return whether the DataFrame reads the view that was made with this `view_alias`."""
    return alias in analyzed_plan(frame)


def analyzed_plan(frame: DataFrame) -> str:
    """Return the text of a DataFrame's analysed plan; on Spark Connect of all its plans."""
    java: Any = frame
    if not is_connect(frame.sparkSession):
        plan = java._jdf.queryExecution().analyzed()
        return str(plan)
    # No public method returns the text; the public one that prints it calls this one.
    return str(java._explain_string(extended=True))
