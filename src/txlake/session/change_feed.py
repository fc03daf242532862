"""The change data feed of a table as a DataFrame: what `table_changes` and `lake.changes` give.

Owns which versions are meant by what was asked for, and the reading of what
`transaction.change_feed` plans.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from pyspark.sql import DataFrame

from txlake.errors import InvalidRequest
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add
from txlake.session.change_files import rows_of
from txlake.statements import ChangeRange, TimeTravel
from txlake.transaction.change_feed import plan_feed
from txlake.transaction.data_plane import TableData
from txlake.transaction.table_log import TableLog

MomentMs = Callable[[TimeTravel], int]
"""The moment of a time travel to a timestamp, milliseconds since the epoch."""
WorkOn = Callable[[Snapshot], TableData]
"""The means to read a table as it was at a snapshot."""


def is_open(asked: ChangeRange, newest: int) -> bool:
    """Whether more versions than there are would be told of.

    A last moment is never after the newest version: `versions_of` refuses it.
    """
    last = asked.last
    return last is None or (last.version is not None and last.version > newest)


def versions_of(
    log: TableLog, asked: ChangeRange, newest: int, moment_ms: MomentMs
) -> tuple[int, int] | None:
    """The first and the last version meant; None where no version was committed between two times.

    `newest`: the newest version that who asks can see. A last version beyond it means that one.

    Raises InvalidRequest where the first comes after the newest, or after the last.
    """
    first = _first(log, asked.first, moment_ms)
    if first > newest:
        raise InvalidRequest(
            f"[DELTA_CDC_START_VERSION_AFTER_LATEST] {log.name}: changes from version {first} on "
            f"were asked for, and the newest version is {newest}; "
            f"ask for version {newest} or an earlier one"
        )
    if asked.last is None:
        return first, newest
    if asked.last.version is None:
        last = log.version_at(moment_ms(asked.last))
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
    if asked.version is not None:
        return asked.version
    return log.version_from(moment_ms(asked))


def feed_frame(
    log: TableLog, asked: ChangeRange, newest: int, *, moment_ms: MomentMs, work_on: WorkOn
) -> DataFrame:
    """The changes: the table's columns at the last version, then those of the feed.

    Raises InvalidRequest as `versions_of` and `plan_feed` do.
    """
    found = versions_of(log, asked, newest, moment_ms)
    first, last = (newest, newest) if found is None else found

    def count_rows(add: Add) -> int:
        return rows_of(add, lambda: work_on(log.snapshot(version=last)))

    parts = plan_feed(log, first, last, count_rows)
    frames = [work_on(part.snapshot).scan(part.files, deleted=part.deleted) for part in parts]
    frame = functools.reduce(lambda some, more: some.unionAll(more), frames)
    return frame.limit(0) if found is None else frame
