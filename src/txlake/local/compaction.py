"""Compaction: small files become larger ones, file by file, without a change of rows.

Owns which files are packed together, the change that replaces them, and the packing by the driver.
A compaction keeps the rows' order and records in each output where its rows came from, so that a
concurrent deletion can be carried over. `spark.compact` packs what is too much for the driver.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import count
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from txlake.commit.change import Change
from txlake.datafiles.compact_task import CompactTask
from txlake.datafiles.stored_vectors import StoredVector
from txlake.errors import CorruptTable
from txlake.local.choice import ONE_TASK_BYTES, Declined
from txlake.local.file_rows import threads_for
from txlake.local.remote_files import RemoteFile
from txlake.local.table import LocalTable
from txlake.local.writing import moving_task, partition_fields, result_of
from txlake.log.files import adds_of
from txlake.log.small_files import (
    PackingLimits,
    deleted_share,
    files_to_purge,
    small_files,
)
from txlake.protocol.actions import Action, Add
from txlake.protocol.clustering import as_clustered
from txlake.protocol.features import SHREDDING
from txlake.protocol.paths import decode_path, is_absolute
from txlake.protocol.sources import SOURCES_TAG, Source, sources_text
from txlake.sql.statements import Expression, condition_text

_DELETED_SHARE_MAX = 0.05
_FILES_MAX = 1_000
_PURGING: Mapping[str, object] = {"applyPurge": True}  # as Delta Spark's history has it
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bin:
    """Files of one partition that become one file, in this order."""

    files: tuple[Add, ...]


def choose_bins(
    table: LocalTable, files: pa.Table, *, purge: bool, limits: PackingLimits | None = None
) -> list[Bin]:
    """Return the bins of files to pack, or with `purge` a bin for each file with a deletion vector.

    `files`: those of the partitions that are compacted. With `limits` the bins are those that
    `log.small_files` chooses.
    """
    if limits is not None and not purge:
        return [Bin(files) for files in small_files(table.snapshot, limits)]
    candidates = adds_of(files)
    if limits is not None:
        return [Bin((add,)) for add in files_to_purge(candidates, limits)]
    if purge:
        return [Bin((add,)) for add in candidates if add.deletion_vector is not None]
    return list(pack(candidates, table.target_file_bytes))


def compaction_change(
    table: LocalTable,
    where: Expression | None,
    sources: tuple[Add, ...],
    outputs: tuple[Add, ...],
    *,
    purge: bool,
    is_automatic: bool = False,
) -> Change:
    """Return the change that replaces files by others with the same rows: a REORG with `purge`,
    else an OPTIMIZE, which says whether it `is_automatic`.
    """
    if purge:
        parameters = {**partitions_chosen(where), **_PURGING}
        return optimize_change(table, "REORG", parameters, sources, outputs)
    parameters = {**partitions_chosen(where), "zOrderBy": [], "clusterBy": [], "auto": is_automatic}
    return optimize_change(table, "OPTIMIZE", parameters, sources, outputs)


def rewrite_change(table: LocalTable, files: pa.Table, outputs: tuple[Add, ...]) -> Change:
    """Return the change that replaces files by others with the same rows, in no recorded order."""
    parameters = {**partitions_chosen(None), **_PURGING}
    return optimize_change(table, "REORG", parameters, tuple(adds_of(files)), outputs)


def pack(candidates: list[Add], target_bytes: int) -> Iterator[Bin]:
    """Yield bins of files of one partition, in ascending order of size, of at most the target size.

    A file that alone exceeds the target size has a bin of its own. A file stays as it is if it is
    large enough and has few deleted rows (at most 5 %), or if it has few deleted rows and is alone
    in its bin.
    """
    partitions: dict[tuple[tuple[str, str | None], ...], list[Add]] = {}
    for add in candidates:
        if add.size < target_bytes or deleted_share(add) > _DELETED_SHARE_MAX:
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
    if len(files) > 1 or any(deleted_share(add) > _DELETED_SHARE_MAX for add in files):
        yield Bin(tuple(files))


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The files that were rewritten, and the new ones."""

    sources: tuple[Add, ...] = ()
    outputs: tuple[Add, ...] = ()


def compact_task(table: LocalTable) -> CompactTask:
    """Return the task that packs bins of the table's files."""
    properties = table.snapshot.properties
    row_id = properties.materialized_row_id_column if table.tracks_rows else None
    row_version = properties.materialized_row_commit_version_column if table.tracks_rows else None
    target = table.target(data_change=False)
    return CompactTask(
        write=moving_task(target, tuple(name for name in (row_id, row_version) if name)),
        by_id=table.snapshot.column_mapping_mode == "id",
        row_id=row_id,
        row_version=row_version,
        options=dict(table.storage_options),
    )


def bin_rows(
    table: LocalTable,
    bins: Sequence[Bin],
    url_of: Callable[[Add], str],
    vector_of: Callable[[int, Add], StoredVector | None],
) -> list[dict[str, Any]]:
    """Return the bins as rows of BINS; files are numbered across all bins.

    `url_of` and `vector_of` return where the task finds a file, and the deleted rows of the file
    with an ordinal.
    """
    names = [item.physical_name for item in partition_fields(table.snapshot)]
    ordinals = count()
    rows = []
    for number, file_bin in enumerate(bins):
        values = file_bin.files[0].partition_values
        files = []
        for add in file_bin.files:
            ordinal = next(ordinals)
            vector = vector_of(ordinal, add)
            files.append(
                {
                    "ordinal": ordinal,
                    "url": url_of(add),
                    "size": add.size,
                    "base_row_id": add.base_row_id,
                    "row_version": add.default_row_commit_version,
                    "vector": None if vector is None else asdict(vector),
                }
            )
        partition = [values.get(name) or None for name in names]
        rows.append({"number": number, "partition": partition, "files": files})
    return rows


def pack_by_driver(table: LocalTable, bins: Sequence[Bin]) -> Rewritten:
    """Write one output per bin in this process; each names its sources.

    Raises Declined where the tasks of Spark do better or Spark has to explain what is wrong: for
    more than 64 MiB, more than 1,000 files of several bins, tables that may hold shredded variants,
    and files that are missing. Raises CorruptTable for a file that can't be decoded.
    """
    files = [add for file_bin in bins for add in file_bin.files]
    if table.snapshot.features & SHREDDING:
        raise Declined("files may hold shredded variants")
    if len(bins) > 1 and len(files) > _FILES_MAX:
        raise Declined(f"several tasks pack more than {_FILES_MAX:,} files sooner")
    if sum(add.size for add in files) > ONE_TASK_BYTES:
        raise Declined(f"the files have more than {ONE_TASK_BYTES:,} bytes")

    def vector_of(_: int, add: Add) -> StoredVector | None:
        return None if add.deletion_vector is None else StoredVector.packed(table.deleted(add))

    reach = table.reach
    try:
        remote = _fetched(table, files)
        task = replace(
            _DriverTask(**_fields_of(compact_task(table)), remote=remote),
            threads=threads_for(len(files)),
        )
        reports: list[dict[str, Any]] = []
        for row in bin_rows(table, bins, lambda add: reach.url(add.path), vector_of):
            reports += task.compact_bin(row, f"part-{row['number']:05d}-{task.write.job_id}")
    except FileNotFoundError as error:
        raise Declined(str(error)) from error
    except CorruptTable as error:
        raise CorruptTable(f"{table.snapshot.table}: {error}") from error
    return rewritten(table, bins, reports)


def _fetched(table: LocalTable, files: Sequence[Add]) -> dict[int, RemoteFile]:
    """Fetch the files that aren't on this machine, side by side; return them by ordinal."""
    found = {
        ordinal: table.remote_file(add)
        for ordinal, add in enumerate(files)
        if table.is_remote or is_absolute(add.path)
    }
    remote = {ordinal: file for ordinal, file in found.items() if file is not None}
    table.reads.fetch([(file, [(0, files[ordinal].size)]) for ordinal, file in remote.items()])
    return remote


def _fields_of(task: CompactTask) -> dict[str, Any]:
    return {item.name: getattr(task, item.name) for item in fields(task)}


@dataclass(frozen=True)
class _DriverTask(CompactTask):
    """The task in this process. `remote`: the fetched files, by ordinal."""

    remote: Mapping[int, RemoteFile] = field(default_factory=dict)

    def open(self, file: Mapping[str, Any]) -> pa.NativeFile:
        remote = self.remote.get(file["ordinal"])
        return super().open(file) if remote is None else remote.open()


def rewritten(
    table: LocalTable, bins: Sequence[Bin], reports: Sequence[Mapping[str, Any]]
) -> Rewritten:
    """Return the files that the tasks replaced; a file that a task skipped stays in the table.

    If a single file of a bin remains and has no deleted rows, it stays too, and its output is
    deleted: rewriting it gains nothing, and the next run would do it again.
    """
    live_counts = {
        row["key"]: np.frombuffer(row["data"], "<i8").tolist()
        for row in reports
        if row["kind"] == "moved"
    }
    output_files = result_of(table.target(data_change=False), reports)
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
                logger.warning("%s: %s stays as it is: %s", table.snapshot.table, add.path, reason)
        output = by_number.get(number)
        if len(replaced) == 1 < len(file_bin.files) and replaced[0][0].deletion_vector is None:
            if output is not None:
                table.store.delete([decode_path(output.path)])
            continue
        sources += [add for add, _ in replaced]
        if output is not None:
            outputs.append(with_sources(output, replaced))
    return Rewritten(tuple(sources), tuple(outputs))


def with_sources(output: Add, rewritten_files: list[tuple[Add, int]]) -> Add:
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
    table: LocalTable,
    operation: str,
    parameters: Mapping[str, object],
    sources: tuple[Add, ...],
    outputs: tuple[Add, ...],
) -> Change:
    """Return the change of `operation` that replaces files by others with the same rows.

    It is no data change, and reads nothing.
    """
    now_ms = table.system.now_ms()
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
