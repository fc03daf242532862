"""OPTIMIZE by Spark: compaction of what is too much for the driver, and rewriting of rows.

`local.compaction` owns what is packed, and does it where the files are few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from txlake.commit.change import Change
from txlake.datafiles.compact_task import BINS
from txlake.datafiles.stored_vectors import StoredVector
from txlake.datafiles.vectors import load_vectors
from txlake.datafiles.write_task import REPORT_SCHEMA
from txlake.local.choice import attempt
from txlake.local.compaction import (
    Bin,
    Rewritten,
    bin_rows,
    choose_bins,
    compact_task,
    compaction_change,
    pack_by_driver,
    rewrite_change,
    rewritten,
)
from txlake.local.control_columns import FILE, ROW
from txlake.log.small_files import PackingLimits
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add
from txlake.protocol.features import SHREDDING
from txlake.spark.log_columns import broadcast_bytes, stored_vector
from txlake.spark.memory_tables import task_url
from txlake.spark.row_rewrite import rewrite_rows
from txlake.spark.shipping import travelling
from txlake.spark.spark_errors import translating
from txlake.spark.spark_sessions import create_frame
from txlake.spark.table_access import TableAccess
from txlake.spark.whole_partitions import files_of_partitions
from txlake.spark.writing import write_frame
from txlake.sql.statements import Expression

# Small bins share tasks once there are this many tasks.
_TASKS_MIN = 64
_TASK_BYTES = 64 * 1024 * 1024


@translating
def compact(
    work: TableAccess,
    where: Expression | None = None,
    *,
    purge: bool = False,
    limits: PackingLimits | None = None,
) -> Change:
    """Return the change that packs small files, or with `purge` drops deleted rows
    (`TableData.compact`).

    The driver packs up to 64 MiB, Spark's tasks more; both use pyarrow, but for tables that may
    hold shredded variants, whose rows Spark rewrites. A file that pyarrow can't copy exactly stays
    as it is, with a warning in the log: one with dates before 1582 or times before 1900 in the
    calendar of old Spark versions. The change has no actions if there is nothing to pack.
    """
    bins = choose_bins(work, files_of_partitions(work, where), purge=purge, limits=limits)
    result = Rewritten()
    if bins:
        by_driver = attempt("OPTIMIZE", work, partial(pack_by_driver, work, bins))
        result = _pack_by_spark(work, bins) if by_driver is None else by_driver
    return compaction_change(
        work, where, result.sources, result.outputs, purge=purge, is_automatic=limits is not None
    )


@translating
def rewrite(work: TableAccess, files: pa.Table, onto: Snapshot) -> Change:
    """Write the live rows of these files anew, as files of the table at `onto`
    (`TableData.rewrite`).
    """
    rows = work.scan(files, positions=True).drop(FILE, ROW)
    target = replace(work, snapshot=onto).target(data_change=False)
    return rewrite_change(work, files, write_frame(rows, target).adds)


def _pack_by_spark(work: TableAccess, bins: Sequence[Bin]) -> Rewritten:
    """Write one output per bin, in the order of the bin's rows; each output names its sources.

    The tasks read and write the files themselves, a bin at a time. With shredded variants Spark
    writes about as many files as there are bins.
    """
    files = [add for file_bin in bins for add in file_bin.files]
    if work.snapshot.features & SHREDDING:
        return Rewritten(tuple(files), rewrite_rows(work, files, len(bins)))
    task = compact_task(work)
    frame = create_frame(work.spark, _bins_table(work, bins, files)).coalesce(1)
    tasks = min(len(bins), max(_TASKS_MIN, sum(add.size for add in files) // _TASK_BYTES))
    if tasks > 1:
        frame = frame.repartition(tasks)  # round robin, as there is one partition
    rows = frame.mapInArrow(travelling(work.spark, task), REPORT_SCHEMA).collect()
    return rewritten(work, bins, [row.asDict() for row in rows])


def _bins_table(work: TableAccess, bins: Sequence[Bin], files: Sequence[Add]) -> pa.Table:
    """Return the bins as rows of BINS, with the deleted positions of their files, or where the
    tasks find them if they are too many to travel.
    """
    vectors = {
        ordinal: add.deletion_vector
        for ordinal, add in enumerate(files)
        if add.deletion_vector is not None
    }
    shipped = (
        broadcast_bytes(add for add in files if add.deletion_vector is not None)
        <= work.settings.broadcast_vector_bytes_max
    )
    bitmaps = load_vectors(work.store, vectors.items() if shipped else (), work.external_vectors)

    def vector_of(ordinal: int, add: Add) -> StoredVector | None:
        """Return the vector of the file with an ordinal."""
        if add.deletion_vector is None:
            return None
        if shipped:
            return StoredVector.packed(bitmaps[ordinal])
        return stored_vector(add.deletion_vector, work.store, work.reach, work.spark)

    def url_of(add: Add) -> str:
        """Return the URL under which the tasks read a file."""
        return task_url(work.spark, work.store, work.reach.url(add.path))

    return pa.Table.from_pylist(bin_rows(work, bins, url_of, vector_of), schema=BINS)
