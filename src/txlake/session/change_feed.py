"""The change data feed of a table as a DataFrame, for `table_changes` and `lake.changes`.

Owns which versions a requested range means, and the reading of the files that `commit.change_feed`
plans.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from txlake.commit.change_feed import plan_feed
from txlake.commit.data_plane import TableData
from txlake.commit.table_log import TableLog
from txlake.errors import InvalidRequest
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add
from txlake.session.change_files import rows_of
from txlake.sql.statements import ChangeRange, TimeTravel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MomentMs = Callable[[TimeTravel], int]
"""Returns the time of a time travel to a timestamp, in milliseconds since the epoch."""
OUT_OF_RANGE = "spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled"
"""Delta Spark's setting by which a range may begin and end after the newest version."""
WorkOn = Callable[[Snapshot], TableData]
"""Returns the data plane's access to a table at a snapshot."""


def is_open(asked: ChangeRange, newest: int) -> bool:
    """Return whether the range could include versions after the newest one.

    That is so without an end, with an end later than `newest`, and with any end given as a time.
    """
    last = asked.last
    return last is None or last.version is None or last.version > newest


def versions_of(
    log: TableLog, asked: ChangeRange, newest: int, moment_ms: MomentMs, *, may_be_later: bool
) -> tuple[int, int] | None:
    """Return the first and the last version; None for a range without any.

    A range of two times between which nothing was committed has none.

    Args:
        newest: the newest version that the reader may see. A later last version is lowered to it.
        may_be_later: a start after the newest version gives None, and an end time after it means
            the newest version; otherwise either is an error.

    Raises InvalidRequest if the first version comes after the newest or after the last.
    """
    first = _first(log, asked.first, moment_ms)
    if first > newest:
        if may_be_later:
            return None
        raise InvalidRequest(_too_late(log, asked.first, newest))
    if asked.last is None:
        return first, newest
    if asked.last.version is None:
        last = log.version_at(moment_ms(asked.last), newest_if_later=may_be_later)
    else:
        last = asked.last.version
    if last < first:
        by_time = asked.first.version is None and asked.last.version is None
        if by_time and last == first - 1 and moment_ms(asked.first) <= moment_ms(asked.last):
            return None
        raise InvalidRequest(
            f"[DELTA_INVALID_CDC_RANGE] {log.name}: changes from version {first} to {last} were "
            "asked for; expected an end that isn't before the start"
        )
    return first, min(last, newest)


def _first(log: TableLog, asked: TimeTravel, moment_ms: MomentMs) -> int:
    """Return the first version of a range; newest + 1 for a time after all commits."""
    if asked.version is not None:
        return asked.version
    return log.version_from(moment_ms(asked))


def _too_late(log: TableLog, asked: TimeTravel, newest: int) -> str:
    """Return the message for a range that begins after the newest version."""
    if asked.version is None:
        return (
            f"[DELTA_TIMESTAMP_GREATER_THAN_COMMIT] {log.name}: changes from {asked.timestamp} on "
            f"were asked for, and the newest version, {newest}, was committed before; ask for an "
            f"earlier time ({OUT_OF_RANGE} = true gives no rows instead)"
        )
    return (
        f"[DELTA_CDC_START_VERSION_AFTER_LATEST] {log.name}: changes from version {asked.version} "
        f"on were asked for, and the newest version is {newest}; ask for version {newest} or an "
        f"earlier one ({OUT_OF_RANGE} = true gives no rows instead)"
    )


def feed_frame(
    log: TableLog,
    asked: ChangeRange,
    newest: int,
    *,
    moment_ms: MomentMs,
    work_on: WorkOn,
    may_be_later: bool,
) -> DataFrame:
    """Return the changes: the table's columns at the last version, then the feed's columns.

    `newest`, `moment_ms` and `may_be_later` as in `versions_of`; for a range without versions the
    result has no rows. Raises InvalidRequest as `versions_of` and `plan_feed` do.
    """
    found = versions_of(log, asked, newest, moment_ms, may_be_later=may_be_later)
    first, last = (newest, newest) if found is None else found

    def count_rows(add: Add) -> int:
        return rows_of(add, lambda: work_on(log.snapshot(version=last)))

    parts = plan_feed(log, first, last, count_rows)
    frames = [work_on(part.snapshot).scan(part.files, deleted=part.deleted) for part in parts]
    frame = functools.reduce(lambda some, more: some.unionAll(more), frames)
    return frame.limit(0) if found is None else frame
