"""Change data files: rows that went, came or changed, each with what befell it.

Owns how they are read from the data files that hold them, and written. Source: PROTOCOL.md,
"Change Data Files".
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec
from pyroaring import BitMap64
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from txlake.log.files import files_table
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Cdc
from txlake.protocol.types import Field, Primitive, Struct, schema_to_string
from txlake.spark.dml import few_rows_max
from txlake.spark.spark_errors import translating
from txlake.spark.table_access import TableAccess
from txlake.spark.writing import write_frame
from txlake.transaction.feed_rules import CHANGE_TYPE
from txlake.transaction.net_changes import ChangedRows


@translating
def write_changes(work: TableAccess, changed: Sequence[ChangedRows]) -> tuple[Cdc, ...]:
    """`TableData.write_changes`."""
    frame = functools.reduce(DataFrame.unionAll, _frames(work, changed))
    target = replace(work.target(), snapshot=with_change_type(work.snapshot), as_changes=True)
    files = files_table([one.file for one in changed])
    written = write_frame(
        frame, replace(target, tells_origins=False), few_rows_max=few_rows_max(files)
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


def _frames(work: TableAccess, changed: Sequence[ChangedRows]) -> Iterator[DataFrame]:
    """The rows of each kind of change, with the kind."""
    for kind in dict.fromkeys(one.change_type for one in changed):
        ones = [one for one in changed if one.change_type == kind]
        left_out = {place: all_but(one.positions, one.count) for place, one in enumerate(ones)}
        rows = work.scan(files_table([one.file for one in ones]), deleted=left_out)
        yield rows.withColumn(CHANGE_TYPE, F.lit(kind))


def all_but(positions: BitMap64, count: int) -> BitMap64:
    """The other positions of a file with that many rows."""
    every = BitMap64()
    every.add_range(0, count)
    return every - positions
