"""The choice between the driver and Spark, for each operation on rows that both can carry out.

The driver comes first where the rows may be few; what it declines Spark does. At DEBUG the logger
of this module tells which of the two it was, and why.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from txlake.log.predicates import Predicate
from txlake.log.skipping import has_opaque

if TYPE_CHECKING:
    from txlake.local.table import LocalTable

Result = TypeVar("Result")

_logger = logging.getLogger(__name__)

# The driver writes so many rows of files so large that one task of Spark finds them soon.
FEW_ROWS = 20_000
ONE_TASK_BYTES = 64 * 1024 * 1024
# It reads up to so many files itself.
FILES_MAX = 64
# So many bytes come from another store in about the time that a job of Spark takes; for more its
# tasks, each with connections of its own, are sooner.
FETCHED_BYTES_MAX = 64 * 1024 * 1024
# Up to these limits the driver carries out a DELETE or UPDATE of local files sooner than Spark.
MANY_ROWS = 4_000_000
MANY_BYTES = 512 * 1024 * 1024


class Declined(ValueError):
    """The driver can't do exactly what Spark would, or not sooner; the message says why."""


def attempt(operation: str, table: LocalTable, run: Callable[[], Result]) -> Result | None:
    """Return what `run` returns; None if it raises Declined, and Spark has to work.

    `run` mustn't return None itself, and changes nothing when it declines. Other errors pass.
    """
    name = table.snapshot.table
    try:
        result = run()
    except Declined as reason:
        _logger.debug("%s of %s by Spark: %s", operation, name, reason)
        return None
    _logger.debug("%s of %s by the driver", operation, name)
    return result


def few_rows_max(files: pa.Table) -> int:
    """Return how many rows of these files the driver may write itself; 0 for files of more than 64
    MiB.
    """
    return FEW_ROWS if _bytes_of(files) <= ONE_TASK_BYTES else 0


def searched_rows_max(
    table: LocalTable, files: pa.Table, predicate: Predicate | None, *, completes: bool
) -> int:
    """Return how many rows of these files the driver may look for before a DELETE or UPDATE.

    `completes`: whether the driver can carry out the whole statement if the predicate decides it;
    then it may look for many rows in files up to 512 MiB. Raises Declined if it shouldn't look for
    any: without a predicate, or when the files are too large.
    """
    size_bytes = read_bytes(table, files)
    if predicate is None:
        raise Declined("every row is changed")
    if completes and not has_opaque(predicate) and size_bytes <= MANY_BYTES:
        return MANY_ROWS
    if size_bytes > ONE_TASK_BYTES:
        raise Declined(f"the files have more than {ONE_TASK_BYTES:,} bytes")
    return FEW_ROWS


def read_bytes(table: LocalTable, files: pa.Table) -> int:
    """Return how many bytes the driver reads of these files at most.

    Of a table in another store it fetches the parts that it needs, up to a limit of their own.
    """
    size_bytes = _bytes_of(files)
    return min(size_bytes, FETCHED_BYTES_MAX) if table.is_remote else size_bytes


def _bytes_of(files: pa.Table) -> int:
    return int(pc.sum(files["size"]).as_py() or 0)
