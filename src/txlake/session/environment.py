"""What the handlers of DDL need from outside: time, chance, and questions about rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from txlake.errors import InvalidRequest
from txlake.protocol.types import DataType, Struct


def _no_rows(condition: str) -> Mapping[str, object] | None:
    raise InvalidRequest(f"rows can't be checked here, so {condition!r} can't be verified")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Given by the session with every DDL statement.

    Attributes:
        now_ms: milliseconds since the epoch.
        new_id: a new UUID for each call.
        violating_row: a row of the table for which a SQL condition isn't true (false or null), or
            None. The handler declares a read of the whole table when it asks.
        type_of: the type of a SQL expression over columns of a schema, as Spark analyses it; it
            raises InvalidRequest when Spark refuses the expression. Without it (None) only what
            the text shows is checked.
    """

    now_ms: int
    new_id: Callable[[], str]
    violating_row: Callable[[str], Mapping[str, object] | None] = _no_rows
    type_of: Callable[[str, Struct], DataType] | None = None
