"""Rewrite rows to other files by a Spark job, without changing a row.

Owns what the new files record about the sources of their rows. Up to a limit, each records which
rows it got from which file, so that concurrent deletions can be carried over. Beyond it, the
rewrite and other writers exclude each other file by file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
from pyspark.sql import Column
from pyspark.sql import functions as F

from txlake.datafiles.vectors import write_vectors
from txlake.local.control_columns import FILE, ROW
from txlake.local.types import quote
from txlake.local.writing import Piece, WriteResult
from txlake.log.files import files_table, live_row_count
from txlake.protocol.actions import Add
from txlake.protocol.sources import SOURCES_TAG, Source, sources_text
from txlake.spark.table_access import TableAccess
from txlake.spark.writing import write_frame

_PLACE = "__txlake_place"
_PIECES_MAX = 4_096


def source_row_count(work: TableAccess, files: Iterable[Add]) -> int | None:
    """Return how many live rows the files have, if new files can record which of them they got.

    None if they can't: without deletion vectors no deletion can be carried over, the rows are too
    many (`Settings.told_rows_max`), or a file's statistics don't count them.
    """
    if not work.uses_vectors:
        return None
    count = 0
    for add in files:
        rows = live_row_count(add)
        if rows is None:
            return None
        count += rows
    return count if count <= work.settings.told_rows_max else None


def rewrite_rows(
    work: TableAccess, files: Sequence[Add], number: int, place: Column | None = None
) -> tuple[Add, ...]:
    """Write about `number` new files with the live rows of `files`, partition by partition.

    The rows are sorted by `place`; rows of one place, or all without it, keep their order. The new
    files are no data change.
    """
    records_sources = source_row_count(work, files) is not None
    rows = work.scan(
        files_table(files), positions=True
    )  # starts Spark, without which there are no columns
    partition = [F.col(quote(name)) for name in work.snapshot.partition_columns]
    # File and position order rows of one place, so that they can be split among several files.
    order = [*partition, F.col(_PLACE), F.col(FILE), F.col(ROW)]
    rows = rows.withColumn(_PLACE, F.lit(0) if place is None else place)
    rows = rows.repartitionByRange(number, *order).sortWithinPartitions(*order).drop(_PLACE)
    if not records_sources:
        rows = rows.drop(FILE, ROW)
    target = work.target(data_change=False)
    return with_source_tags(
        work, files, write_frame(rows, target, keep_order=True, tell_pieces=records_sources)
    )


def with_source_tags(
    work: TableAccess, files: Sequence[Add], written: WriteResult
) -> tuple[Add, ...]:
    """Return the new files, tagged with the sources of their rows.

    Writes positions as deletion vectors for sources that were split. Untagged if the sources are
    unknown or more than 4,096.
    """
    pieces = [piece for add in written.adds for piece in written.pieces.get(add.path, ())]
    if not pieces or len(pieces) > _PIECES_MAX:
        return written.adds
    pieces_by_file = Counter(piece.ordinal for piece in pieces)
    parts = [piece for piece in pieces if pieces_by_file[piece.ordinal] > 1]
    vectors = write_vectors(work.store, work.system, [piece.positions for piece in parts])
    ids = {id(piece): vector.unique_id for piece, vector in zip(parts, vectors, strict=True)}

    def source(piece: Piece) -> Source:
        """Return a piece as a source of rows, with its positions' id if the file was split."""
        path, vector_id = files[piece.ordinal].key
        return Source(
            path=path,
            vector_id=vector_id,
            first=0,
            rows=len(piece.positions),
            positions_id=ids.get(id(piece)),
        )

    return tuple(_with_tag(add, map(source, written.pieces[add.path])) for add in written.adds)


def _with_tag(add: Add, sources: Iterable[Source]) -> Add:
    tags = {**(add.tags or {}), SOURCES_TAG: sources_text(sources)}
    return msgspec.structs.replace(add, tags=tags)
