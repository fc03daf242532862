"""Marks in plans: what a DataFrame, and whatever is made of it, shows of a lake's tables.

A mark is an alias of the scan. Spark keeps it in the analysed plan through every transformation,
temporary view and cache; it costs nothing when the plan runs. Owns what the marks stand for.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from txlake.errors import InvalidRequest
from txlake.spark.spark_sessions import is_connect

# Each is some hundred bytes; the one that wasn't used for longest goes.
_KNOWN_MAX = 100_000
_MARK = re.compile(r"#txlake-(\d+)")
# How Spark ends a text that is longer than spark.sql.maxPlanStringLength.
_CUT = re.compile(r"\.\.\. \d+ more characters|Truncated plan of \d+ characters")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What one scan shows.

    Attributes:
        table: its name, for messages.
        url: its place.
        lake: the id of its lake; None for a path table.
        table_id: its metadata's id.
        version: which version.
        transaction: the transaction that BEGIN opened in which it was made; None for others.
        is_changed: whether the rows have changes of that transaction on top.
        undone: how often it had gone back to a savepoint then.
        condition: text and names of the table in it of the condition that all shown rows meet.
    """

    table: str
    url: str
    lake: str | None
    table_id: str
    version: int
    transaction: str | None = None
    is_changed: bool = False
    undone: int = 0
    condition: tuple[str, tuple[str, ...]] | None = None


class _Marks:
    """What the marks of this process stand for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: OrderedDict[Shown, int] = OrderedDict()
        self._shown: dict[int, Shown] = {}
        self._next = 1

    def number(self, shown: Shown) -> int:
        with self._lock:
            number = self._numbers.pop(shown, None)
            if number is None:
                number, self._next = self._next, self._next + 1
                self._shown[number] = shown
            self._numbers[shown] = number
            while len(self._numbers) > _KNOWN_MAX:
                del self._shown[self._numbers.popitem(last=False)[1]]
            return number

    def shown(self, number: int) -> Shown | None:
        with self._lock:
            return self._shown.get(number)


_MARKS = _Marks()


def marked(frame: DataFrame, shown: Shown) -> DataFrame:
    """The same rows; `shown_by` finds out what they are."""
    return frame.alias(f"{shown.table}@{shown.version}#txlake-{_MARKS.number(shown)}")


def shown_by(frame: DataFrame) -> list[Shown]:
    """What a DataFrame shows of tables, each once.

    Rows that were collected, or checkpointed, aren't the tables' any more.

    Raises InvalidRequest for rows of a lake of which this process doesn't know what they show.
    """
    found: dict[Shown, None] = {}
    plan = plan_of(frame)
    if _CUT.search(plan):
        raise InvalidRequest(
            "what the DataFrame shows can't be told: Spark cuts its plan short; set "
            "spark.sql.maxPlanStringLength to a larger number, or back to its default"
        )
    for number in _MARK.findall(plan):
        shown = _MARKS.shown(int(number))
        if shown is None:
            raise InvalidRequest(
                "the DataFrame, or the view that it reads, shows a version of a lake's table that "
                "isn't known here any more: it was made by another process, or too long ago. Read "
                "the table again"
            )
        found[shown] = None
    return list(found)


def view_mark(name: str, number: str) -> str:
    """The alias that a temporary view's query gets, by which it is known again."""
    return f"{name.replace('`', '')}#txlake-view-{number}"


def shows_view(frame: DataFrame, mark: str) -> bool:
    """Whether the view that was made with this mark is what the DataFrame reads."""
    return mark in plan_of(frame)


def plan_of(frame: DataFrame) -> str:
    """The text of a DataFrame's analysed plan."""
    java: Any = frame
    if not is_connect(frame.sparkSession):
        plan = java._jdf.queryExecution().analyzed()
        return str(plan)
    # No public method gives the text; the one that prints it asks this one.
    return str(java._explain_string(extended=True))
