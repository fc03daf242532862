"""OPTIMIZE: compact small files to larger ones. No row changes, so it is no data change.

Owns bin packing and purging of deleted rows; `sorting` owns sorting. A compaction keeps the rows'
order and records in each output where its rows came from, so that a concurrent deletion can be
carried over.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import count
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from txlake.commit.change import Change
from txlake.datafiles.compact_task import BINS, CompactTask
from txlake.datafiles.vectors import load_vectors
from txlake.datafiles.write_task import REPORT_SCHEMA
from txlake.local.control_columns import FILE, ROW
from txlake.local.writing import WriteResult, moving_task, partition_fields, result_of
from txlake.log.files import adds_of
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Action, Add
from txlake.protocol.clustering import as_clustered
from txlake.protocol.features import SHREDDING
from txlake.protocol.paths import decode_path
from txlake.protocol.sources import SOURCES_TAG, Source, sources_text
from txlake.spark.log_columns import broadcast_bytes, packed_vector, stored_vector
from txlake.spark.memory_tables import task_url
from txlake.spark.row_rewrite import rewrite_rows, target_bytes
from txlake.spark.scan import add_rows
from txlake.spark.shipping import travelling
from txlake.spark.spark_errors import translating
from txlake.spark.spark_sessions import create_frame
from txlake.spark.table_access import TableAccess
from txlake.spark.whole_partitions import files_of_partitions
from txlake.spark.writing import write_frame
from txlake.sql.statements import Expression, condition_text

_DELETED_RATIO_MAX = 0.05
_PURGING: Mapping[str, object] = {"applyPurge": True}  # as Delta Spark's history has it
# Small bins share tasks once there are this many tasks.
_TASKS_MIN = 64
_TASK_BYTES = 64 * 1024 * 1024
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bin:
    """Files of one partition that become one file, in this order."""

    files: tuple[Add, ...]


@translating
def compact(work: TableAccess, where: Expression | None = None, *, purge: bool = False) -> Change:
    """Return the change that packs small files, or with `purge` drops deleted rows
    (`TableData.compact`).

    Spark rewrites the rows where files may hold shredded variants, pyarrow elsewhere. A file that
    pyarrow can't copy exactly stays as it is, with a warning in the log: one with dates before 1582
    or times before 1900 in the calendar of old Spark versions. The change has no actions if there
    is nothing to pack.
    """
    result = _rewrite(work, choose_bins(work, where, purge=purge))
    return compaction_change(work, where, result.sources, result.outputs, purge=purge)


def choose_bins(work: TableAccess, where: Expression | None, *, purge: bool) -> list[Bin]:
    """Return the bins of files to pack, or with `purge` a bin for each file with a deletion vector.

    `where` is over partition columns. Raises InvalidRequest as `files_of_partitions`.
    """
    candidates = adds_of(files_of_partitions(work, where))
    if purge:
        return [Bin((add,)) for add in candidates if add.deletion_vector is not None]
    return list(pack(candidates, target_bytes(work)))


def compaction_change(
    work: TableAccess,
    where: Expression | None,
    sources: tuple[Add, ...],
    outputs: tuple[Add, ...],
    *,
    purge: bool,
) -> Change:
    """Return the change that replaces files by others with the same rows: a REORG with `purge`,
    else an OPTIMIZE.
    """
    if purge:
        parameters = {**partitions_chosen(where), **_PURGING}
        return optimize_change(work, "REORG", parameters, sources, outputs)
    parameters = {**partitions_chosen(where), "zOrderBy": [], "clusterBy": [], "auto": False}
    return optimize_change(work, "OPTIMIZE", parameters, sources, outputs)


@translating
def rewrite(work: TableAccess, files: pa.Table, onto: Snapshot) -> Change:
    """Write the live rows of these files anew, as files of the table at `onto`
    (`TableData.rewrite`).
    """
    rows = work.scan(files, positions=True).drop(FILE, ROW)
    target = replace(work, snapshot=onto).target(data_change=False)
    return rewrite_change(work, files, write_frame(rows, target).adds)


def rewrite_change(work: TableAccess, files: pa.Table, outputs: tuple[Add, ...]) -> Change:
    """Return the change that replaces files by others with the same rows, in no recorded order."""
    parameters = {**partitions_chosen(None), **_PURGING}
    return optimize_change(work, "REORG", parameters, tuple(adds_of(files)), outputs)


def pack(candidates: list[Add], target_bytes: int) -> Iterator[Bin]:
    """Yield bins of files of one partition, in ascending order of size, of at most the target size.

    A file that alone exceeds the target size has a bin of its own. A file stays as it is if it is
    large enough and has few deleted rows (at most 5 %), or if it has few deleted rows and is alone
    in its bin.
    """
    partitions: dict[tuple[tuple[str, str | None], ...], list[Add]] = {}
    for add in candidates:
        if add.size < target_bytes or _deleted_ratio(add) > _DELETED_RATIO_MAX:
            key = tuple(sorted((n, v or None) for n, v in add.partition_values.items()))
            partitions.setdefault(key, []).append(add)
    for files in partitions.values():
        current: list[Add] = []
        size = 0
        for add in sorted(files, key=lambda add: add.size):
            if current and size + add.size > target_bytes:
                yield from _worthwhile(current)
                current, size = [], 0
            current.append(add)
            size += add.size
        yield from _worthwhile(current)


def _worthwhile(files: list[Add]) -> Iterator[Bin]:
    """Yield the files as a bin if they are several or have many deleted rows; else nothing."""
    if len(files) > 1 or any(_deleted_ratio(add) > _DELETED_RATIO_MAX for add in files):
        yield Bin(tuple(files))


def _deleted_ratio(add: Add) -> float:
    """Return the share of a file's rows that are deleted; 1.0 for a vector where rows aren't
    counted.
    """
    if add.deletion_vector is None:
        return 0.0
    live = add_rows(add)
    if live is None:
        return 1.0
    deleted = add.deletion_vector.cardinality
    return deleted / max(1, live + deleted)


@dataclass(frozen=True, slots=True)
class _Rewritten:
    """The files that were rewritten, and the new ones."""

    sources: tuple[Add, ...] = ()
    outputs: tuple[Add, ...] = ()


def _rewrite(work: TableAccess, bins: list[Bin]) -> _Rewritten:
    """Write one output per bin, in the order of the bin's rows; each output names its sources.

    The tasks read and write the files themselves, a bin at a time. With shredded variants Spark
    writes about as many files as there are bins.
    """
    if not bins:
        return _Rewritten()
    if work.snapshot.features & SHREDDING:
        sources = tuple(add for file_bin in bins for add in file_bin.files)
        return _Rewritten(sources, rewrite_rows(work, sources, len(bins)))
    files = dict(enumerate(add for file_bin in bins for add in file_bin.files))
    target = work.target(data_change=False)
    shipped = (
        broadcast_bytes(add for add in files.values() if add.deletion_vector is not None)
        <= work.settings.broadcast_vector_bytes_max
    )
    properties = work.snapshot.properties
    row_id = properties.materialized_row_id_column if work.tracks_rows else None
    row_version = properties.materialized_row_commit_version_column if work.tracks_rows else None
    task = CompactTask(
        write=moving_task(target, tuple(name for name in (row_id, row_version) if name)),
        by_id=work.snapshot.column_mapping_mode == "id",
        row_id=row_id,
        row_version=row_version,
        options=dict(work.storage_options),
    )
    table = _bins_table(work, bins, _vectors(work, files, shipped=shipped))
    frame = create_frame(work.spark, table).coalesce(1)
    tasks = min(len(bins), max(_TASKS_MIN, sum(add.size for add in files.values()) // _TASK_BYTES))
    if tasks > 1:
        frame = frame.repartition(tasks)  # round robin, as there is one partition
    rows = frame.mapInArrow(travelling(work.spark, task), REPORT_SCHEMA).collect()
    reports = [row.asDict() for row in rows]
    return _outcome(work, bins, reports, result_of(target, reports))


def _vectors(
    work: TableAccess, files: Mapping[int, Add], *, shipped: bool
) -> dict[int, dict[str, object]]:
    """Return for each deletion vector, by ordinal, its positions or where a task finds them.

    Either is a `StoredVector` as a dict. `shipped`: whether the positions are read now.
    """
    vectors = {
        ordinal: add.deletion_vector
        for ordinal, add in files.items()
        if add.deletion_vector is not None
    }
    bitmaps = load_vectors(work.store, vectors.items() if shipped else (), work.external_vectors)
    return {
        ordinal: asdict(
            packed_vector(bitmaps[ordinal])
            if shipped
            else stored_vector(vector, work.store, work.reach, work.spark)
        )
        for ordinal, vector in vectors.items()
    }


def _bins_table(
    work: TableAccess, bins: list[Bin], vectors: Mapping[int, Mapping[str, object]]
) -> pa.Table:
    """Return the bins as rows of BINS; files are numbered across all bins."""
    names = [item.physical_name for item in partition_fields(work.snapshot)]
    ordinals = count()
    rows = []
    for number, file_bin in enumerate(bins):
        values = file_bin.files[0].partition_values
        files = []
        for add in file_bin.files:
            ordinal = next(ordinals)
            url = work.reach.url(add.path)
            files.append(
                {
                    "ordinal": ordinal,
                    "url": task_url(work.spark, work.store, url),
                    "base_row_id": add.base_row_id,
                    "row_version": add.default_row_commit_version,
                    "vector": vectors.get(ordinal),
                }
            )
        partition = [values.get(name) or None for name in names]
        rows.append({"number": number, "partition": partition, "files": files})
    return pa.Table.from_pylist(rows, schema=BINS)


def _outcome(
    work: TableAccess, bins: list[Bin], reports: list[dict[str, Any]], output_files: WriteResult
) -> _Rewritten:
    """Return the files that the tasks replaced; a file that a task skipped stays in the table.

    If a single file of a bin remains and has no deleted rows, it stays too, and its output is
    deleted: rewriting it gains nothing, and the next run would do it again.
    """
    live_counts = {
        row["key"]: np.frombuffer(row["data"], "<i8").tolist()
        for row in reports
        if row["kind"] == "moved"
    }
    skip_reasons = {row["key"]: row["text"] for row in reports if row["kind"] == "skipped"}
    by_number = dict(zip(output_files.groups, output_files.adds, strict=True))
    ordinals = count()
    sources: list[Add] = []
    outputs: list[Add] = []
    for number, file_bin in enumerate(bins):
        replaced: list[tuple[Add, int]] = []
        for add, live in zip(file_bin.files, live_counts[number], strict=True):
            reason = skip_reasons.get(next(ordinals))
            if reason is None:
                replaced.append((add, live))
            else:
                logger.warning("%s: %s stays as it is: %s", work.snapshot.table, add.path, reason)
        output = by_number.get(number)
        if len(replaced) == 1 < len(file_bin.files) and replaced[0][0].deletion_vector is None:
            if output is not None:
                work.store.delete([decode_path(output.path)])
            continue
        sources += [add for add, _ in replaced]
        if output is not None:
            outputs.append(_with_sources(output, replaced))
    return _Rewritten(tuple(sources), tuple(outputs))


def _with_sources(output: Add, rewritten_files: list[tuple[Add, int]]) -> Add:
    """Return the output tagged with its sources; with a single one, it inherits its clustering."""
    sources = [
        Source(path=add.key[0], vector_id=add.key[1], first=0, rows=live)
        for add, live in rewritten_files
    ]
    tags = {**(output.tags or {}), SOURCES_TAG: sources_text(sources)}
    tagged = msgspec.structs.replace(output, tags=tags)
    return as_clustered(tagged, rewritten_files[0][0]) if len(rewritten_files) == 1 else tagged


def partitions_chosen(where: Expression | None) -> dict[str, object]:
    """Return the condition on partitions as parameters of the history's entry."""
    return {"predicate": [] if where is None else [condition_text(where)]}


def _sizes(sizes: list[int]) -> dict[str, int]:
    """Return the distribution of the sorted file sizes, in bytes, as Delta Spark's history has it.

    {} without files.
    """
    if not sizes:
        return {}
    count = len(sizes)
    return {
        "minFileSize": sizes[0],
        "p25FileSize": sizes[count // 4],
        "p50FileSize": sizes[count // 2],
        "p75FileSize": sizes[count * 3 // 4],
        "maxFileSize": sizes[-1],
    }


def optimize_change(
    work: TableAccess,
    operation: str,
    parameters: Mapping[str, object],
    sources: tuple[Add, ...],
    outputs: tuple[Add, ...],
) -> Change:
    """Return the change of `operation` that replaces files by others with the same rows.

    It is no data change, and reads nothing.
    """
    now_ms = work.system.now_ms()
    removes: list[Action] = [
        add.tombstone(timestamp_ms=now_ms, data_change=False) for add in sources
    ]
    metrics = {
        "numRemovedFiles": len(sources),
        "numRemovedBytes": sum(add.size for add in sources),
        "numAddedFiles": len(outputs),
        "numAddedBytes": sum(add.size for add in outputs),
        "numDeletionVectorsRemoved": sum(add.deletion_vector is not None for add in sources),
        **_sizes(sorted(add.size for add in outputs)),
    }
    return Change(
        operation=operation,
        parameters=parameters,
        actions=(*removes, *outputs),
        metrics=metrics,
        reads=(),
    )
