"""The comparison of two engines' tables by aspects, and the first difference."""

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
from tests.differential.schemas import TableShape
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
        delta: Delta Spark's side.
        txlake: txlake's side.
        shape: the table before the step; None before it exists.
    """

    step: Step
    aspect: Aspect
    delta: str
    txlake: str
    shape: TableShape | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return (
            f"{self.aspect} after {self.step}\n  Delta Spark: {self.delta:.{_SIDE_MAX}}\n"
            f"  txlake:      {self.txlake:.{_SIDE_MAX}}"
        )


def row_texts(rows: Sequence[Any]) -> Counter[str]:
    """Return rows as a multiset of texts that are equal exactly when the rows are, to the bit."""
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


def rows_differ(delta: Counter[str], txlake: Counter[str]) -> tuple[str, str] | None:
    """Return a few of the rows that only one side has; None for equal rows."""
    if delta == txlake:
        return None
    return _row_list(delta - txlake, delta), _row_list(txlake - delta, txlake)


def _row_list(missing: Counter[str], every: Counter[str]) -> str:
    listed = sorted(missing.elements())
    more = " ..." if len(listed) > _SHOWN_MAX else ""
    return f"{every.total()} rows, alone {'; '.join(listed[:_SHOWN_MAX])}{more}"


def schema_of(schema: Any) -> dict[str, Any]:
    """Return a DataFrame's columns with comments; other metadata is compared in the logs."""
    items = schema.jsonValue()["fields"]
    columns = {
        item["name"]: [item["type"], item["nullable"], item["metadata"].get("comment")]
        for item in items
    }
    return {"columns": [item["name"] for item in items], **columns}


def parts_differ(delta: Mapping[str, Any], txlake: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the entries that differ; None for equal mappings."""
    keys = [key for key in {**delta, **txlake} if delta.get(key) != txlake.get(key)]
    if not keys:
        return None
    delta_text, txlake_text = (
        json.dumps({key: side.get(key) for key in keys}, ensure_ascii=False, sort_keys=True)
        for side in (delta, txlake)
    )
    return delta_text, txlake_text


def history_of(log: Log, since: int) -> list[Commit]:
    """Return the commits after a version, without empty ones."""
    return [one for one in log.commits[since + 1 :] if not one.is_empty]


def history_differs(delta: Sequence[Commit], txlake: Sequence[Commit]) -> tuple[str, str] | None:
    """Return operations and row counts of both sides; None for equal ones."""
    delta_text, txlake_text = _operations(delta), _operations(txlake)
    return None if delta_text == txlake_text else (delta_text, txlake_text)


def _operations(commits: Sequence[Commit]) -> str:
    return "; ".join(f"{one.operation} {dict(sorted(one.metrics.items()))}" for one in commits)
