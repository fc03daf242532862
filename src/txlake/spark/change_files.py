"""Change data files: rows that went, came or changed, each with what befell it.

Owns how they are read from the data files that hold them, and written. Source: PROTOCOL.md,
"Change Data Files".
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec
import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from txlake.datafiles.stored_vectors import as_array
from txlake.log.files import files_table
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Cdc
from txlake.protocol.types import Field, Primitive, Struct, schema_to_string
from txlake.spark.candidate_rows import rows_at
from txlake.spark.dml import few_rows_max
from txlake.spark.spark_errors import translating
from txlake.spark.table_access import TableAccess
from txlake.spark.types import quote
from txlake.spark.writing import write_frame
from txlake.transaction.feed_rules import CHANGE_TYPE
from txlake.transaction.net_changes import ChangedRows, all_but

_FEW_ROWS = 20_000
_LOCAL = "file://"


@translating
def write_changes(work: TableAccess, changed: Sequence[ChangedRows]) -> tuple[Cdc, ...]:
    """`TableData.write_changes`."""
    held = _held(work, changed)
    frame = functools.reduce(DataFrame.unionAll, held or list(_frames(work, changed)))
    target = replace(work.target(), snapshot=with_change_type(work.snapshot), as_changes=True)
    files = files_table([one.file for one in changed])
    written = write_frame(
        frame,
        replace(target, reports_origins=False),
        few_rows_max=few_rows_max(files),
        held=held is not None,
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


def with_change_type(snapshot: Snapshot) -> Snapshot:
    """The table with the column that change data files have besides its own."""
    schema = Struct((*snapshot.schema.fields, Field(CHANGE_TYPE, Primitive("string"))))
    metadata = msgspec.structs.replace(snapshot.metadata, schema_string=schema_to_string(schema))
    return snapshot.apply([metadata])


def _held(work: TableAccess, changed: Sequence[ChangedRows]) -> list[DataFrame] | None:
    """The rows of each kind of change, read by this process; None where it takes too many."""
    if sum(len(one.positions) for one in changed) > _FEW_ROWS:
        return None
    if not all(work.reach.url(one.file.path).startswith(_LOCAL) for one in changed):
        return None
    frames = []
    for kind, ones in _by_kind(changed).items():
        positions = {
            place: as_array(one.positions).astype(np.int64) for place, one in enumerate(ones)
        }
        rows = rows_at(work, files_table([one.file for one in ones]), positions)
        if rows is None:
            return None
        columns = [F.col(quote(name)) for name in work.snapshot.schema.names]
        frames.append(rows.select(*columns, F.lit(kind).alias(CHANGE_TYPE)))
    return frames


def _by_kind(changed: Sequence[ChangedRows]) -> dict[str, list[ChangedRows]]:
    kinds: dict[str, list[ChangedRows]] = {}
    for one in changed:
        kinds.setdefault(one.change_type, []).append(one)
    return kinds


def _frames(work: TableAccess, changed: Sequence[ChangedRows]) -> Iterator[DataFrame]:
    """The rows of each kind of change, with the kind."""
    for kind, ones in _by_kind(changed).items():
        left_out = {place: all_but(one.positions, one.count) for place, one in enumerate(ones)}
        rows = work.scan(files_table([one.file for one in ones]), deleted=left_out)
        yield rows.withColumn(CHANGE_TYPE, F.lit(kind))
