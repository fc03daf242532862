"""Turn deleted positions into actions: deletion vectors where the table has them, else new files.

Owns what happens to the files that lose rows. Both ways start from the same bitmaps, so a statement
needn't know which of them the table uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from msgspec import structs
from pyroaring import BitMap64

from txlake.commit.row_origins import Origins, origins_of
from txlake.datafiles.vectors import write_vectors
from txlake.datafiles.write_task import COPY
from txlake.log.files import adds_of
from txlake.protocol.actions import Action, Add
from txlake.protocol.statistics import FileStatistics, loosen, with_num_records
from txlake.spark.scan import selected
from txlake.spark.table_access import TableAccess


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletions:
    """The actions that delete rows, with their counts.

    Attributes:
        origins: of rows that were copied, by the path of the new file.
    """

    actions: tuple[Action, ...] = ()
    files_removed: int = 0
    files_added: int = 0
    vectors_added: int = 0
    vectors_removed: int = 0
    rows_copied: int = 0
    bytes_removed: int = 0
    bytes_added: int = 0
    origins: Mapping[str, Origins] = field(default_factory=dict)


def delete_positions(
    work: TableAccess, files: pa.Table, replaced: Mapping[int, BitMap64]
) -> Deletions:
    """Delete rows by position; `replaced` has the positions by the files' ordinals.

    Files without positions stay. A file of which all rows are deleted is removed; the others get a
    new deletion vector, or are rewritten. Vectors and new files are written; the caller commits the
    actions.
    """
    all_adds = adds_of(files)
    adds = {ordinal: all_adds[ordinal] for ordinal in sorted(replaced)}
    if work.uses_vectors:
        adds = {ordinal: _with_row_count(work, add) for ordinal, add in adds.items()}
    deleted = work.with_deleted(adds, replaced)
    whole = [ordinal for ordinal in adds if _covers_file(adds[ordinal], deleted[ordinal])]
    partly = [ordinal for ordinal in adds if ordinal not in whole]
    removed = remove_files(work, [adds[ordinal] for ordinal in whole])
    partial = (_with_vectors if work.uses_vectors else _rewrite_files)(
        work, files, adds, partly, deleted
    )
    return Deletions(
        actions=(*removed.actions, *partial.actions),
        files_removed=removed.files_removed + partial.files_removed,
        files_added=partial.files_added,
        vectors_added=partial.vectors_added,
        vectors_removed=removed.vectors_removed + partial.vectors_removed,
        rows_copied=partial.rows_copied,
        bytes_removed=removed.bytes_removed + partial.bytes_removed,
        bytes_added=partial.bytes_added,
        origins=partial.origins,
    )


def remove_files(work: TableAccess, adds: list[Add]) -> Deletions:
    """Return the removal of whole files; nothing is written."""
    now_ms = work.system.now_ms()
    return Deletions(
        actions=tuple(add.tombstone(timestamp_ms=now_ms) for add in adds),
        files_removed=len(adds),
        vectors_removed=sum(add.deletion_vector is not None for add in adds),
        bytes_removed=sum(add.size for add in adds),
    )


def _with_row_count(work: TableAccess, add: Add) -> Add:
    """Return the file with statistics that count its rows, as a file with a vector must have.

    Not every writer counts them: the footer is read then.
    """
    if FileStatistics.from_json(add.stats).num_records is not None:
        return add
    return structs.replace(add, stats=with_num_records(add.stats, work.footer(add).num_rows))


def _covers_file(add: Add, deleted: BitMap64) -> bool:
    """Return whether the deleted positions are all rows of the file; False if rows aren't
    counted.
    """
    return FileStatistics.from_json(add.stats).num_records == len(deleted)


def _with_vectors(
    work: TableAccess,
    files: pa.Table,
    adds: Mapping[int, Add],
    ordinals: list[int],
    deleted: Mapping[int, BitMap64],
) -> Deletions:
    """Return the files `ordinals` again, each with a larger deletion vector, which is written.

    `deleted` has all deleted positions of a file, old and new.
    """
    now_ms = work.system.now_ms()
    vectors = write_vectors(work.store, work.system, [deleted[i] for i in ordinals])
    actions: list[Action] = []
    for ordinal, vector in zip(ordinals, vectors, strict=True):
        add = adds[ordinal]
        marked = Add(
            path=add.path,
            partition_values=add.partition_values,
            size=add.size,
            modification_time=add.modification_time,
            data_change=True,
            stats=None if add.stats is None else loosen(add.stats),
            tags=add.tags,
            deletion_vector=vector,
            base_row_id=add.base_row_id,
            default_row_commit_version=add.default_row_commit_version,
            clustering_provider=add.clustering_provider,
        )
        actions += [add.tombstone(timestamp_ms=now_ms), marked]
    return Deletions(
        actions=tuple(actions),
        vectors_added=len(ordinals),
        vectors_removed=sum(adds[i].deletion_vector is not None for i in ordinals),
    )


def _rewrite_files(
    work: TableAccess,
    files: pa.Table,
    adds: Mapping[int, Add],
    ordinals: list[int],
    deleted: Mapping[int, BitMap64],
) -> Deletions:
    """Return new files with the remaining rows of the files `ordinals`, which a Spark job writes.

    `deleted` has all deleted positions of a file, old and new.
    """
    if not ordinals:
        return Deletions()
    deleted_by_place = {place: deleted[ordinal] for place, ordinal in enumerate(ordinals)}
    written = work.copied(selected(files, ordinals), deleted_by_place)
    now_ms = work.system.now_ms()
    removes = [adds[ordinal].tombstone(timestamp_ms=now_ms) for ordinal in ordinals]
    return Deletions(
        actions=(*removes, *written.adds),
        files_removed=len(removes),
        files_added=len(written.adds),
        vectors_removed=sum(adds[i].deletion_vector is not None for i in ordinals),
        rows_copied=written.actions.get(COPY, 0),
        bytes_removed=sum(adds[ordinal].size for ordinal in ordinals),
        bytes_added=sum(add.size for add in written.adds),
        origins=origins_of(
            written.origins, tuple(adds[ordinal].path for ordinal in ordinals), is_update=False
        ),
    )
