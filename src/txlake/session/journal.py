"""What the sessions of a lake in this process have going on, and the conflicts that they met.

Owns both lists, bounded, and how they are shown. Nothing here decides anything.
"""

from __future__ import annotations

import datetime
import json
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pyspark.sql import types as T

from txlake.errors import Conflict
from txlake.ports import System

_CONFLICTS_MAX = 1_000

Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """A conflict, and when which transaction met it."""

    time_ms: int
    transaction_id: str
    conflict: Conflict


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """A transaction as others see it.

    Attributes:
        isolation: the level asked for; None leaves it to the tables.
        tables: those that it has read or written so far.
    """

    id: str
    begin_ms: int
    state: str
    isolation: str | None
    read_only: bool
    tables: tuple[str, ...]


@dataclass(kw_only=True)
class Journal:
    """Safe to use from many threads. The oldest conflicts are forgotten first."""

    system: System
    _met: deque[Met] = field(default_factory=lambda: deque(maxlen=_CONFLICTS_MAX))
    _open: dict[str, weakref.WeakMethod[Callable[[], Open]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def met(self, transaction_id: str, conflict: Conflict) -> None:
        """Notes a conflict."""
        entry = Met(time_ms=self.system.now_ms(), transaction_id=transaction_id, conflict=conflict)
        with self._lock:
            self._met.append(entry)

    def conflicts(self) -> list[Met]:
        """The conflicts, oldest first."""
        with self._lock:
            return list(self._met)

    def began(self, transaction_id: str, look: Callable[[], Open]) -> None:
        """Notes a transaction, until it ended or nobody holds it; `look` is a method of it."""
        with self._lock:
            self._open[transaction_id] = weakref.WeakMethod(look)

    def ended(self, transaction_id: str) -> None:
        """The transaction is over."""
        with self._lock:
            self._open.pop(transaction_id, None)

    def transactions(self) -> list[Open]:
        """The transactions that are open, oldest first."""
        with self._lock:
            held = list(self._open.items())
        found = []
        for transaction_id, reference in held:
            look = reference()
            if look is None:
                self.ended(transaction_id)
            else:
                found.append(look())
        return sorted(found, key=lambda one: one.begin_ms)


CONFLICTS = T.StructType(
    [
        T.StructField("time", T.TimestampType()),
        T.StructField("transaction_id", T.StringType()),
        T.StructField("error", T.StringType()),
        T.StructField("table", T.StringType()),
        T.StructField("read_version", T.LongType()),
        T.StructField("winning_version", T.LongType()),
        T.StructField("winning_operation", T.StringType()),
        T.StructField("winning_time", T.TimestampType()),
        T.StructField("winning_user", T.StringType()),
        T.StructField("rule", T.StringType()),
        T.StructField("predicate", T.StringType()),
        T.StructField("files", T.ArrayType(T.StringType())),
        T.StructField("rows", T.ArrayType(T.StringType())),
        T.StructField("isolation", T.StringType()),
        T.StructField("retry", T.BooleanType()),
        T.StructField("advice", T.StringType()),
        T.StructField("message", T.StringType()),
    ]
)
TRANSACTIONS = T.StructType(
    [
        T.StructField("transaction_id", T.StringType()),
        T.StructField("transaction_begin_time", T.TimestampType()),
        T.StructField("state", T.StringType()),
        T.StructField("isolation", T.StringType()),
        T.StructField("read_only", T.BooleanType()),
        T.StructField("tables", T.ArrayType(T.StringType())),
    ]
)
# As SQL Server's sys.dm_tran_locks names them, with the one that blocks a waiting request.
LOCKS = T.StructType(
    [
        T.StructField("resource_type", T.StringType()),
        T.StructField("resource_subtype", T.StringType()),
        T.StructField("resource_database_id", T.StringType()),
        T.StructField("resource_description", T.StringType()),
        T.StructField("resource_associated_entity_id", T.StringType()),
        T.StructField("request_mode", T.StringType()),
        T.StructField("request_type", T.StringType()),
        T.StructField("request_status", T.StringType()),
        T.StructField("request_session_id", T.StringType()),
        T.StructField("request_owner_type", T.StringType()),
        T.StructField("request_owner_id", T.StringType()),
        T.StructField("blocking_session_id", T.StringType()),
    ]
)


def conflict_rows(conflicts: Sequence[Met]) -> list[tuple[object, ...]]:
    """Rows of CONFLICTS."""
    rows: list[tuple[object, ...]] = []
    for one in conflicts:
        head = (_time(one.time_ms), one.transaction_id, type(one.conflict).__name__)
        facts = one.conflict.evidence
        if facts is None:
            rows.append((*head, *[None] * (len(CONFLICTS) - 4), str(one.conflict)))
            continue
        winning_ms = facts.winning_timestamp_ms
        rows.append(
            (
                *head,
                facts.table,
                facts.read_version,
                facts.winning_version,
                facts.winning_operation,
                None if winning_ms is None else _time(winning_ms),
                facts.winning_user,
                facts.rule,
                facts.predicate,
                list(facts.files),
                [json.dumps(dict(row), default=str) for row in facts.rows],
                facts.isolation,
                facts.retry,
                facts.advice,
                str(one.conflict),
            )
        )
    return rows


def transaction_rows(transactions: Sequence[Open]) -> list[tuple[object, ...]]:
    """Rows of TRANSACTIONS."""
    return [
        (
            one.id,
            _time(one.begin_ms),
            one.state,
            one.isolation,
            one.read_only,
            list(one.tables),
        )
        for one in transactions
    ]


def _time(time_ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
