"""What two engines' tables are compared by, and the first thing that differs."""

from __future__ import annotations

import datetime as dt
import json
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, TypeAlias

from tests.differential.logs import Commit, Log
from tests.differential.schemas import Shape
from tests.differential.steps import Step

Aspect: TypeAlias = Literal[
    "outcome",
    "answer",
    "rows",
    "other's rows",
    "schema",
    "definition",
    "history",
    "feed",
    "other's feed",
]
_SHOWN_MAX = 4
_SIDE_MAX = 600


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs after a step.

    Attributes:
        delta: what there is on the side of Delta Spark.
        txlake: what there is on the side of txlake.
        shape: the table before the step; None before there is one.
    """

    step: Step
    aspect: Aspect
    delta: str
    txlake: str
    shape: Shape | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return (
            f"{self.aspect} after {self.step}\n  Delta Spark: {self.delta:.{_SIDE_MAX}}\n"
            f"  txlake:      {self.txlake:.{_SIDE_MAX}}"
        )


def row_texts(rows: Sequence[Any]) -> Counter[str]:
    """Rows as a multiset of texts that are equal just when the rows are, to the bit."""
    return Counter("(" + ", ".join(_text(value) for value in row) + ")" for row in rows)


def _text(value: Any) -> str:
    match value:
        case float():
            # Every NaN is one; -0.0 and 0.0 are two.
            return "NaN" if value != value else f"{value!r}|{struct.pack('>d', value).hex()[0]}"
        case bytes() | bytearray():
            return f"X'{bytes(value).hex()}'"
        case Decimal() | dt.date():
            return str(value)
        case dict():
            pairs = sorted(f"{_text(key)}: {_text(item)}" for key, item in value.items())
            return "{" + ", ".join(pairs) + "}"
        case tuple() | list():
            return "[" + ", ".join(map(_text, value)) + "]"
        case _:
            return repr(value)


def rows_differ(delta: Counter[str], ours: Counter[str]) -> tuple[str, str] | None:
    """The rows that only one side has, a few of each; None when there are none."""
    if delta == ours:
        return None
    return _some(delta - ours, delta), _some(ours - delta, ours)


def _some(only: Counter[str], every: Counter[str]) -> str:
    listed = sorted(only.elements())
    more = " ..." if len(listed) > _SHOWN_MAX else ""
    return f"{every.total()} rows, alone {'; '.join(listed[:_SHOWN_MAX])}{more}"


def schema_of(schema: Any) -> dict[str, Any]:
    """A DataFrame's columns in order, with comments; other metadata is compared in the logs."""
    items = schema.jsonValue()["fields"]
    seen = {
        item["name"]: [item["type"], item["nullable"], item["metadata"].get("comment")]
        for item in items
    }
    return {"columns": [item["name"] for item in items], **seen}


def parts_differ(delta: Mapping[str, Any], ours: Mapping[str, Any]) -> tuple[str, str] | None:
    """The entries that aren't equal."""
    keys = [key for key in {**delta, **ours} if delta.get(key) != ours.get(key)]
    if not keys:
        return None
    one, other = (
        json.dumps({key: side.get(key) for key in keys}, ensure_ascii=False, sort_keys=True)
        for side in (delta, ours)
    )
    return one, other


def history_of(log: Log, since: int) -> list[Commit]:
    """The commits after a version that hold anything: one without changes is no event."""
    return [one for one in log.commits[since + 1 :] if not one.is_empty]


def history_differs(delta: Sequence[Commit], ours: Sequence[Commit]) -> tuple[str, str] | None:
    """Operations and their counts of rows, side by side."""
    one, other = _told(delta), _told(ours)
    return None if one == other else (one, other)


def _told(commits: Sequence[Commit]) -> str:
    return "; ".join(f"{one.operation} {dict(sorted(one.metrics.items()))}" for one in commits)
