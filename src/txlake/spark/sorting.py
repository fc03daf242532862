"""OPTIMIZE that sorts: rows move to files in which near ones are together; no row changes.

Owns Z-ordering and liquid clustering: what the rows are sorted by. Which files are clustered is
`log.cubes`' choice.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from txlake.commit.change import Change
from txlake.datafiles.write_task import ROW_GROUP_ROWS
from txlake.errors import CorruptTable, InvalidRequest
from txlake.local.compaction import optimize_change, partitions_chosen
from txlake.local.types import quote
from txlake.log.cubes import ClusteringPlan
from txlake.log.files import adds_of, files_table
from txlake.log.snapshot import Snapshot, unknown_column
from txlake.protocol.actions import Add
from txlake.protocol.clustering import Cube, in_cube
from txlake.protocol.schema_rules import Path, column_text
from txlake.protocol.types import DataType, Primitive, Struct
from txlake.spark.curves import dimension, hilbert_place, z_place
from txlake.spark.hilbert import DIMENSIONS_MAX
from txlake.spark.row_rewrite import rewrite_rows, source_row_count
from txlake.spark.spark_errors import translating
from txlake.spark.table_access import TableAccess
from txlake.spark.whole_partitions import files_of_partitions
from txlake.sql.statements import Expression

_PLACE = "__txlake_place"


@translating
def zorder(work: TableAccess, columns: tuple[str, ...], where: Expression | None = None) -> Change:
    """Return the change that rewrites whole partitions in Z-order of the columns
    (`TableData.zorder`).

    Raises InvalidRequest for an unknown or a partition column, and as `files_of_partitions`.
    """
    check_sorted_by(work, columns)
    files = adds_of(files_of_partitions(work, where))
    outputs = _sorted(work, files, [(name,) for name in columns], on_hilbert_curve=False)
    return zordered(work, columns, where, tuple(files), outputs)


def zordered(
    work: TableAccess,
    columns: tuple[str, ...],
    where: Expression | None,
    sources: tuple[Add, ...],
    outputs: tuple[Add, ...],
) -> Change:
    """Return the change that replaces `sources` by `outputs`, which hold their rows in the columns'
    Z-order already.
    """
    parameters = {
        **partitions_chosen(where),
        "zOrderBy": list(columns),
        "clusterBy": [],
        "auto": False,
    }
    return optimize_change(work, "OPTIMIZE", parameters, sources, outputs)


@translating
def cluster(work: TableAccess, plan: ClusteringPlan) -> Change:
    """Return the change that rewrites the plan's files as cubes of clustered rows
    (`TableData.cluster`).
    """
    outputs: list[Add] = []
    for files in plan.cubes:
        cube = Cube(work.system.new_id(), plan.names)
        written = _sorted(work, files, plan.columns, on_hilbert_curve=True)
        outputs += [in_cube(add, cube) for add in written]
    return clustered(work, plan, tuple(outputs))


def clustered(work: TableAccess, plan: ClusteringPlan, outputs: tuple[Add, ...]) -> Change:
    """Return the change that rewrites the plan's files as cubes."""
    parameters = {
        "predicate": [],
        "zOrderBy": [],
        "clusterBy": list(plan.names),
        "isFull": plan.full,
        "auto": False,
    }
    return optimize_change(work, "OPTIMIZE", parameters, plan.files, outputs)


def check_sorted_by(work: TableAccess, columns: tuple[str, ...]) -> None:
    """Raise InvalidRequest for an unknown column, and for a partition column."""
    for name in columns:
        item = work.snapshot.schema.find(name)
        if item is None:
            raise unknown_column(name, work.snapshot)
        if item.name in work.snapshot.partition_columns:
            raise InvalidRequest(
                f"{work.snapshot.table}: {item.name} is a partition column. Z-Ordering can only be "
                "performed on data columns: a partition column's files hold one value each"
            )


def _sorted(
    work: TableAccess, files: Sequence[Add], columns: Sequence[Path], *, on_hilbert_curve: bool
) -> tuple[Add, ...]:
    """Write the live rows of files, sorted by the columns within each partition; () for no files.

    Rows that are known to fit into one row group of one file are left in their order: readers skip
    nothing within it.
    """
    if not files:
        return ()
    number = max(1, sum(add.size for add in files) // max(1, work.target_file_bytes))
    count = source_row_count(work, files)
    in_a_group = number == 1 and count is not None and count <= ROW_GROUP_ROWS
    place = None if in_a_group else _place(work, files_table(files), columns, on_hilbert_curve)
    return rewrite_rows(work, files, int(number), place)


def _place(
    work: TableAccess, files: pa.Table, columns: Sequence[Path], on_hilbert_curve: bool
) -> Column:
    """Return the sort key: for one column its own order, else a place on a Z-order curve or, with
    `on_hilbert_curve` and few columns, on a Hilbert curve.

    May run a Spark job that takes a sample. Raises CorruptTable as `_type_of`.
    """
    _ = work.spark  # started, which columns need
    found = [(F.col(".".join(map(quote, path))), _type_of(work.snapshot, path)) for path in columns]
    if len(found) == 1 and _has_order(found[0][1]):
        return found[0][0]
    dimensions = [dimension(*one) for one in found]
    if on_hilbert_curve and 1 < len(dimensions) <= DIMENSIONS_MAX:
        return hilbert_place(work.scan(files), dimensions)
    return z_place(work.scan(files), dimensions)


def _has_order(data_type: DataType) -> bool:
    return isinstance(data_type, Primitive) and data_type.name not in ("variant", "void")


def _type_of(snapshot: Snapshot, path: Path) -> DataType:
    """Return the type at a path, which is the type of a clustering column.

    Raises CorruptTable if the schema lacks it.
    """
    here: DataType = snapshot.schema
    for name in path:
        item = here.find(name) if isinstance(here, Struct) else None
        if item is None:
            raise CorruptTable(
                f"{snapshot.table}: its clustering column {column_text(path)} isn't in its schema; "
                "ALTER TABLE ... CLUSTER BY names others"
            )
        here = item.type
    return here
