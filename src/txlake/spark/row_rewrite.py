"""Rows move to other files, as a Spark job; no row changes.

Owns what the new files say of where their rows come from. Where the rows are not too many, each
says which of them it got, so that deletions made meanwhile are carried over; beyond, writers and
the rewrite exclude each other file by file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
from pyspark.sql import Column
from pyspark.sql import functions as F

from txlake.datafiles.vectors import write_vectors
from txlake.log.files import files_table
from txlake.protocol.actions import Add
from txlake.protocol.sources import SOURCES_TAG, Source, sources_text
from txlake.spark.reading import FILE, ROW
from txlake.spark.scan import add_rows
from txlake.spark.table_access import TableAccess
from txlake.spark.types import quote
from txlake.spark.writing import Piece, Written, write_frame

_PLACE = "__txlake_place"
_TOLD_PIECES_MAX = 4_096


def target_bytes(work: TableAccess) -> int:
    """The size that new files are to have."""
    return work.snapshot.properties.target_file_size or work.settings.target_file_bytes


def source_row_count(work: TableAccess, files: Iterable[Add]) -> int | None:
    """How many live rows the files have, where new files are to say which of them they got.

    None where they can't: no deletion can be carried without deletion vectors, the rows are too
    many, or a file's statistics don't tell how many it has.
    """
    if not work.uses_vectors:
        return None
    count = 0
    for add in files:
        rows = add_rows(add)
        if rows is None:
            return None
        count += rows
    return count if count <= work.settings.told_rows_max else None


def rewrite_rows(
    work: TableAccess, files: Sequence[Add], number: int, place: Column | None = None
) -> tuple[Add, ...]:
    """About `number` new files with the live rows of these, partition by partition.

    The rows are sorted by `place`; those of one place, and all without it, keep their order.
    """
    told = source_row_count(work, files) is not None
    rows = work.scan(files_table(files), positions=True)  # starts Spark, which columns need
    partition = [F.col(quote(name)) for name in work.snapshot.partition_columns]
    # Rows of one place are told apart by where they stood, so that they can go to several files.
    order = [*partition, F.col(_PLACE), F.col(FILE), F.col(ROW)]
    rows = rows.withColumn(_PLACE, F.lit(0) if place is None else place)
    rows = rows.repartitionByRange(number, *order).sortWithinPartitions(*order).drop(_PLACE)
    if not told:
        rows = rows.drop(FILE, ROW)
    target = work.target(data_change=False)
    return with_source_tags(
        work, files, write_frame(rows, target, keep_order=True, tell_pieces=told)
    )


def with_source_tags(work: TableAccess, files: Sequence[Add], done: Written) -> tuple[Add, ...]:
    """The new files, tagged with the rows that they hold where that is known and not too long."""
    pieces = [piece for add in done.adds for piece in done.pieces.get(add.path, ())]
    if not pieces or len(pieces) > _TOLD_PIECES_MAX:
        return done.adds
    of_file = Counter(one.ordinal for one in pieces)
    parts = [one for one in pieces if of_file[one.ordinal] > 1]
    vectors = write_vectors(work.store, work.system, [one.positions for one in parts])
    ids = {id(one): vector.unique_id for one, vector in zip(parts, vectors, strict=True)}

    def source(one: Piece) -> Source:
        path, vector_id = files[one.ordinal].key
        return Source(
            path=path,
            vector_id=vector_id,
            first=0,
            rows=len(one.positions),
            positions_id=ids.get(id(one)),
        )

    return tuple(_tagged(add, map(source, done.pieces[add.path])) for add in done.adds)


def _tagged(add: Add, sources: Iterable[Source]) -> Add:
    tags = {**(add.tags or {}), SOURCES_TAG: sources_text(sources)}
    return msgspec.structs.replace(add, tags=tags)
