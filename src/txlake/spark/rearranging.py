"""An overwrite that says of itself that it moves rows only, as `dataChange=false` does.

Owns the proof: the rows of the new files are those of the files that go. A commit that moves rows
is passed over by streams and feeds, so a row that came or went with it would be missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from txlake.commit.change import Change
from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.local.types import quote
from txlake.protocol.actions import Action, Add, Remove
from txlake.protocol.paths import decode_path
from txlake.spark.spark_errors import translating
from txlake.spark.table_access import TableAccess

_NUMBER = "__txlake_number"


@translating
def rearranged(work: TableAccess, change: Change) -> Change:
    """Return an overwrite as a change that only moves rows (`TableData.rearranged`).

    A Spark job compares the old and the new rows. Raises InvalidRequest if they differ, and as
    `files_that_move`; the new files are deleted then.
    """
    gone, come = files_that_move(work, change)
    numbered = [
        rows.withColumn(_NUMBER, F.lit(sign).cast("long"))
        for rows, sign in ((work.scan(gone), 1), (work.after(change.actions).scan(come), -1))
    ]
    columns = [F.col(quote(name)) for name in work.snapshot.schema.names]
    left = numbered[0].unionByName(numbered[1]).groupBy(*columns).agg(F.sum(_NUMBER).alias(_NUMBER))
    differing = left.where(F.col(_NUMBER) != 0).limit(1).collect()
    return moving_rows(work, change, has_same_rows=not differing)


def files_that_move(work: TableAccess, change: Change) -> tuple[pa.Table, pa.Table]:
    """Return the files that a change removes, and the files that it adds.

    Raises InvalidRequest for a change that leaves a part of a file, UnsupportedFeature for a table
    whose rows have ids, which the new rows lack; the new files are deleted then.
    """
    table = work.snapshot.table
    gone = {one.path for one in change.actions if isinstance(one, Remove)}
    come = {one.path for one in change.actions if isinstance(one, Add)}
    if gone & come:
        _discard(work, change.actions)
        raise InvalidRequest(
            f"{table}: dataChange=false rewrites whole files, and replaceWhere names a part of "
            "one; name whole partitions, or leave replaceWhere out"
        )
    if work.tracks_rows:
        _discard(work, change.actions)
        raise UnsupportedFeature(
            f"{table}: its rows have ids (delta.enableRowTracking), which a DataFrame doesn't "
            "carry: OPTIMIZE rewrites files and keeps them"
        )
    return _named(work, gone), _named(work.after(change.actions), come)


def moving_rows(work: TableAccess, change: Change, *, has_same_rows: bool) -> Change:
    """Return the change as one of files alone, without reads.

    Raises InvalidRequest unless `has_same_rows`: the new files, whose rows differ, are deleted
    first.
    """
    if not has_same_rows:
        _discard(work, change.actions)
        raise InvalidRequest(
            f"[DELTA_UNEXPECTED_DATA_CHANGE_EXCEPTION] {work.snapshot.table}: dataChange=false "
            "says that rows are only rearranged, and the rows written aren't those that they "
            "replace; nothing was written. Leave the option out to change rows"
        )
    actions = [
        msgspec.structs.replace(one, data_change=False) if isinstance(one, Add | Remove) else one
        for one in change.actions
    ]
    return replace(change, actions=tuple(actions), reads=(), origins={})


def _named(work: TableAccess, paths: set[str]) -> pa.Table:
    """Return the table's files with these paths, as in the log."""
    files = work.snapshot.select(None)
    return files.filter(pc.is_in(files.column("path"), pa.array(sorted(paths), pa.string())))


def _discard(work: TableAccess, actions: Sequence[Action]) -> None:
    """Delete the files that the actions add and don't remove."""
    removed = {one.path for one in actions if isinstance(one, Remove)}
    new = (one.path for one in actions if isinstance(one, Add) and one.path not in removed)
    work.store.delete(decode_path(path) for path in new)
