"""What the handlers of DDL need from outside: time, chance, and questions about rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from txlake.errors import InvalidRequest
from txlake.protocol.types import DataType, Struct
from txlake.transaction.change import Read

# What a statement declares that looked at every row, or replaces them all: a row that another
# transaction adds meanwhile would break the table (a constraint, another schema) at any level.
# Rows that are taken away do no harm.
EVERY_ROW = Read(guard=True, files=False)


def _no_rows(condition: str) -> Mapping[str, object] | None:
    raise InvalidRequest(f"rows can't be checked here, so {condition!r} can't be verified")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Given by the session with every DDL statement.

    Attributes:
        now_ms: milliseconds since the epoch.
        new_id: a new UUID for each call.
        violating_row: a row of the table for which a SQL condition isn't true (false or null), or
            None. The handler declares `EVERY_ROW` when it asks.
        type_of: the type of a SQL expression over columns of a schema, as Spark analyses it; it
            raises InvalidRequest when Spark refuses the expression. Without it (None) only what
            the text shows is checked.
        table_defaults: properties of tables that CREATE makes, where it doesn't say others.
    """

    now_ms: int
    new_id: Callable[[], str]
    violating_row: Callable[[str], Mapping[str, object] | None] = _no_rows
    type_of: Callable[[str, Struct], DataType] | None = None
    table_defaults: Callable[[], Mapping[str, str]] = dict
