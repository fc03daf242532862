"""Change data files: the rows that a version inserted, updated or deleted, with the kind of change.

Owns reading the rows from their data files, and writing them. Source: PROTOCOL.md, "Change Data
Files".
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec
import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from txlake.commit.feed_rules import CHANGE_TYPE
from txlake.commit.net_changes import DELETE, INSERT, ChangedRows, other_positions
from txlake.datafiles.stored_vectors import as_array
from txlake.local.choice import few_rows_max
from txlake.local.types import quote
from txlake.log.files import files_table
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Cdc
from txlake.protocol.types import Field, Primitive, Struct, schema_to_string
from txlake.spark.driver_frames import rows_at
from txlake.spark.spark_errors import translating
from txlake.spark.table_access import TableAccess
from txlake.spark.writing import write_frame

_FEW_ROWS = 20_000
_LOCAL = "file://"


@translating
def write_changes(work: TableAccess, changed: Sequence[ChangedRows]) -> tuple[Cdc, ...]:
    """Write change data files with these rows (`TableData.write_changes`); return their actions.

    `changed` isn't empty. The driver reads the rows if they are few and on this machine, else Spark
    does.
    """
    few_frames = _few_frames(work, changed)
    frame = functools.reduce(DataFrame.unionAll, few_frames or list(_frames(work, changed)))
    target = replace(work.target(), snapshot=with_change_type(work.snapshot), as_changes=True)
    files = files_table([rows.file for rows in changed])
    written = write_frame(
        frame,
        replace(target, reports_origins=False),
        few_rows_max=few_rows_max(files),
        held=few_frames is not None,
    )
    return tuple(
        Cdc(
            path=add.path,
            partition_values=add.partition_values,
            size=add.size,
            data_change=False,
        )
        for add in written.adds
    )


@translating
def changed_rows(work: TableAccess, changed: Sequence[ChangedRows]) -> DataFrame:
    """Return the rows with their kinds of change (`TableData.changed_rows`)."""
    nothing = work.scan(files_table([])).withColumn(CHANGE_TYPE, F.lit(""))
    return functools.reduce(DataFrame.unionAll, _frames(work, changed), nothing)


@translating
def differing_rows(work: TableAccess, changed: Sequence[ChangedRows]) -> DataFrame:
    """Return the rows without those that were only copied (`TableData.differing_rows`)."""
    frame = changed_rows(work, changed)
    before, after = (
        frame.where(F.col(CHANGE_TYPE) == kind).drop(CHANGE_TYPE) for kind in (DELETE, INSERT)
    )
    gone = before.exceptAll(after).withColumn(CHANGE_TYPE, F.lit(DELETE))
    return gone.unionAll(after.exceptAll(before).withColumn(CHANGE_TYPE, F.lit(INSERT)))


def with_change_type(snapshot: Snapshot) -> Snapshot:
    """Return the table with the additional column `_change_type` of change data files, at
    the end.
    """
    schema = Struct((*snapshot.schema.fields, Field(CHANGE_TYPE, Primitive("string"))))
    metadata = msgspec.structs.replace(snapshot.metadata, schema_string=schema_to_string(schema))
    return snapshot.apply([metadata])


def _few_frames(work: TableAccess, changed: Sequence[ChangedRows]) -> list[DataFrame] | None:
    """Return the rows of each kind of change, with the kind, as Spark frames of rows that the
    driver has read.

    None if they are more than 20,000, not on this machine, or can't be read as Spark would.
    """
    if sum(len(rows.positions) for rows in changed) > _FEW_ROWS:
        return None
    if not all(work.reach.url(rows.file.path).startswith(_LOCAL) for rows in changed):
        return None
    frames = []
    for kind, changes in _by_kind(changed).items():
        positions = {
            index: as_array(rows.positions).astype(np.int64) for index, rows in enumerate(changes)
        }
        rows = rows_at(work, files_table([rows.file for rows in changes]), positions)
        if rows is None:
            return None
        columns = [F.col(quote(name)) for name in work.snapshot.schema.names]
        frames.append(rows.select(*columns, F.lit(kind).alias(CHANGE_TYPE)))
    return frames


def _by_kind(changed: Sequence[ChangedRows]) -> dict[str, list[ChangedRows]]:
    """Return the changed rows by their kind of change, in the order in which kinds appear."""
    kinds: dict[str, list[ChangedRows]] = {}
    for rows in changed:
        kinds.setdefault(rows.change_type, []).append(rows)
    return kinds


def _frames(work: TableAccess, changed: Sequence[ChangedRows]) -> Iterator[DataFrame]:
    """Yield the rows of each kind of change, with the kind, as Spark reads them."""
    for kind, changes in _by_kind(changed).items():
        excluded = {
            index: other_positions(rows.positions, rows.count) for index, rows in enumerate(changes)
        }
        frame = work.scan(files_table([rows.file for rows in changes]), deleted=excluded)
        yield frame.withColumn(CHANGE_TYPE, F.lit(kind))
