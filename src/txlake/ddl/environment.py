"""What DDL needs from outside: the time, ids, and checks of a table's rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from txlake.conflict.footprint import Read, ReadKind
from txlake.errors import InvalidRequest
from txlake.protocol.types import DataType, Struct

# The read of a statement that checks or replaces every row: a row added concurrently would break
# the table (a constraint, another schema), so it conflicts at any isolation level. Deletions don't.
EVERY_ROW = Read(kind=ReadKind.GUARD, files=False)


def _rows_unavailable(condition: str) -> Mapping[str, object] | None:
    """Raise InvalidRequest: this environment has no rows to check."""
    raise InvalidRequest(f"rows can't be checked here, so {condition!r} can't be verified")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The session's time, ids and access to rows, passed with every DDL statement.

    Attributes:
        now_ms: milliseconds since the epoch.
        new_id: a new UUID for each call.
        violating_row: a row of the table for which a SQL condition isn't true (false or null), or
            None. A caller declares the read `EVERY_ROW`.
        type_of: the type of a SQL expression over columns of a schema, as Spark analyses it; it
            raises InvalidRequest when Spark refuses the expression. None: only the text is
            checked.
        table_defaults: properties of new tables, weaker than those of the statement.
    """

    now_ms: int
    new_id: Callable[[], str]
    violating_row: Callable[[str], Mapping[str, object] | None] = _rows_unavailable
    type_of: Callable[[str, Struct], DataType] | None = None
    table_defaults: Callable[[], Mapping[str, str]] = dict
