"""Which autocommitted statements may run without an entry in the catalog before their commit.

Where the catalog is in a store, an entry is a request. `catalog.unregistered` has the rules by
which the commit finds that what the statement was told isn't true any more: it then runs again,
with an entry. So only statements are deferred that can run twice.
"""

from __future__ import annotations

from enum import Enum

import pyarrow as pa

from txlake.catalog.unregistered import AdmissionOutdated
from txlake.errors import MetadataChangedException, ProtocolChangedException, TxlakeError
from txlake.sql.statements import (
    Delete,
    Insert,
    Merge,
    NativeFrame,
    Source,
    Statement,
    Truncate,
    Update,
    Values,
    Write,
)

_LIBRARIES = frozenset({"pyarrow", "pandas", "polars"})


class Deferral(Enum):
    """How long a statement does without an entry.

    UNTIL_COMMIT_UNSEEN: it also begins with what this process knows of the catalog and of the log
    of a path table, which may be an older state.
    """

    NONE = "none"
    UNTIL_COMMIT = "until commit"
    UNTIL_COMMIT_UNSEEN = "until commit, unseen"


def only_appends(statement: Statement) -> bool:
    """Return whether a statement appends rows that the caller holds: it reads no table's rows."""
    match statement:
        case Insert():
            replaces = statement.overwrite or statement.replace_using or statement.if_not_exists
            is_partial = statement.replace_where is not None or statement.replace_on is not None
            is_append = not (replaces or is_partial or statement.partition)
            return is_append and isinstance(statement.source, Values)
        case Write():
            is_append = statement.mode == "append" and statement.replace_where is None
            return is_append and statement.batch is None and _is_in_memory(statement.source)
        case _:
            return False


def deferral_of(statement: Statement) -> Deferral:
    """Return how a statement may be deferred.

    One that only appends doesn't depend on the table's rows, and may begin unseen.
    """
    if only_appends(statement):
        return Deferral.UNTIL_COMMIT_UNSEEN
    match statement:
        case Insert() | Write() | Merge():
            return _of_source(statement.source)
        case Update() | Delete() | Truncate():
            return Deferral.UNTIL_COMMIT
        case _:
            return Deferral.NONE


def must_repeat(error: TxlakeError, deferral: Deferral) -> bool:
    """Return whether a deferred statement that failed with the error runs again on the newest
    state.

    With an entry it would have waited for a change of the table's definition. One that began unseen
    may have failed because of what it didn't know.
    """
    if deferral is Deferral.UNTIL_COMMIT:
        return isinstance(
            error, AdmissionOutdated | MetadataChangedException | ProtocolChangedException
        )
    return deferral is Deferral.UNTIL_COMMIT_UNSEEN


def _of_source(source: Source) -> Deferral:
    """Return NONE for rows that can be read once only."""
    is_once = isinstance(source, NativeFrame) and isinstance(source.frame, pa.RecordBatchReader)
    return Deferral.NONE if is_once else Deferral.UNTIL_COMMIT


def _is_in_memory(source: Source) -> bool:
    """Return whether the rows are the caller's, read from no table, and can be read twice."""
    if not isinstance(source, NativeFrame) or isinstance(source.frame, pa.RecordBatchReader):
        return False
    kind = type(source.frame)
    return kind.__module__.partition(".")[0] in _LIBRARIES and kind.__name__ != "LazyFrame"
