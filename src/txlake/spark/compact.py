"""OPTIMIZE: small files become larger ones; no row changes, so it is no data change.

Owns bin packing, Z-ordering and purging of deleted rows. A compaction keeps the rows' order and
says in each output where its rows came from, so that a concurrent deletion can be carried over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from txlake.errors import InvalidRequest
from txlake.log.files import adds_of, files_table
from txlake.log.predicates import Predicate, columns_of
from txlake.log.skipping import is_partition_only
from txlake.protocol.actions import Action, Add
from txlake.protocol.sources import SOURCES_TAG, Source, sources_text
from txlake.spark import rows
from txlake.spark.executor import COPY
from txlake.spark.reading import FILE, ROW
from txlake.spark.scan import add_rows, quote
from txlake.spark.translation import translating
from txlake.spark.work import Work, condition_text
from txlake.spark.writing import ACTION, GROUP, write_frame
from txlake.statements import Expression
from txlake.transaction.change import Change

_DELETED_RATIO_MAX = 0.05
_BUCKET_BITS = 8
_SAMPLE_ROWS = 10_000
_SAMPLE_SEED = 7


@dataclass(frozen=True, slots=True)
class Bin:
    """Files of one partition that become one file, in this order."""

    files: tuple[Add, ...]


@translating
def compact(work: Work, where: Expression | None = None, *, purge: bool = False) -> Change:
    """Packs small files, and files with many deleted rows, into files of the target size.

    With `purge` every file that has a deletion vector is rewritten, and nothing else is. `where`
    may name partition columns only; InvalidRequest otherwise.
    """
    candidates = _candidates(work, where)
    if purge:
        bins = [Bin((add,)) for add in candidates if add.deletion_vector is not None]
    else:
        bins = list(pack(candidates, _target_bytes(work)))
    outputs = _rewrite(work, bins)
    sources = [add for one in bins for add in one.files]
    return _change(work, "REORG" if purge else "OPTIMIZE", where, (), sources, outputs)


@translating
def zorder(work: Work, columns: tuple[str, ...], where: Expression | None = None) -> Change:
    """Rewrites whole partitions with their rows clustered by the columns' Z-order."""
    for name in columns:
        item = work.snapshot.schema.find(name)
        if item is None:
            raise rows.unknown_column(name, work.snapshot)
        if item.name in work.snapshot.partition_columns:
            raise InvalidRequest(
                f"{work.snapshot.table}: {item.name} is a partition column. Z-Ordering can only be "
                "performed on data columns: a partition column's files hold one value each"
            )
    candidates = _candidates(work, where)
    files = files_table(candidates)
    outputs: tuple[Add, ...] = ()
    if candidates:
        frame = work.scan(files, positions=work.tracks_rows).drop(FILE, ROW)
        parts = max(1, sum(add.size for add in candidates) // max(1, _target_bytes(work)))
        partition = [F.col(quote(name)) for name in work.snapshot.partition_columns]
        ordered = frame.withColumn("__txlake_z", _z_value(work, files, columns))
        ordered = ordered.repartitionByRange(parts, *partition, "__txlake_z")
        ordered = ordered.sortWithinPartitions(*partition, "__txlake_z").drop("__txlake_z")
        ordered = ordered.withColumn(ACTION, F.lit(COPY).cast("int"))
        target = work.target(data_change=False)
        outputs = write_frame(ordered, target, keep_order=True).adds
    return _change(work, "OPTIMIZE", where, columns, candidates, outputs)


def _z_value(work: Work, files: pa.Table, columns: tuple[str, ...]) -> Column:
    """A number whose order keeps rows that are near in all columns together: interleaved bits.

    Each column's value becomes its bucket among boundaries of a sample.
    """
    bits = min(_BUCKET_BITS, 62 // len(columns))
    sample = work.scan(files).select(*[F.col(quote(name)) for name in columns])
    sample = sample.orderBy(F.rand(_SAMPLE_SEED)).limit(_SAMPLE_ROWS)
    table = sample.toArrow()
    number: Column = F.lit(0).cast("bigint")
    for place, name in enumerate(columns):
        boundaries = _boundaries(table.column(place), 2**bits - 1)
        column = F.col(quote(name))
        bucket: Column = F.lit(0)
        if boundaries:
            below = F.filter(F.array(*map(F.lit, boundaries)), _below(column))
            bucket = F.when(column.isNull(), 0).otherwise(F.size(below))
        for bit in range(bits):
            one = F.shiftright(bucket, bit).bitwiseAND(F.lit(1)).cast("bigint")
            number = number + F.shiftleft(one, bit * len(columns) + place)
    return number


def _below(column: Column) -> Callable[[Column], Column]:
    def below(boundary: Column) -> Column:
        return boundary <= column

    return below


def _boundaries(values: pa.ChunkedArray, number: int) -> list[object]:
    ordered = pc.unique(values).drop_null().sort()
    step = max(1, len(ordered) // (number + 1))
    boundaries: list[object] = ordered[step::step].to_pylist()[:number]
    return boundaries


def _candidates(work: Work, where: Expression | None) -> list[Add]:
    predicate: Predicate | None = work.predicate(where, None)
    if predicate is not None and not is_partition_only(predicate, work.snapshot.partition_columns):
        columns = ", ".join(work.snapshot.partition_columns)
        others = (".".join(path) for path in sorted(columns_of(predicate)))
        other = next((one for one in others if one not in work.snapshot.partition_columns), None)
        found = (
            "it is more than a comparison of columns and constants"
            if other is None
            else f"Predicate references non-partition column '{other}'"
        )
        assert where is not None
        raise InvalidRequest(
            f"{work.snapshot.table}: OPTIMIZE WHERE {condition_text(where)}: {found}. Only the "
            f"partition columns may be referenced: [{columns}]"
        )
    return adds_of(work.snapshot.select(predicate))


def _target_bytes(work: Work) -> int:
    return work.snapshot.properties.target_file_size or work.settings.target_file_bytes


def pack(candidates: list[Add], target_bytes: int) -> Iterator[Bin]:
    """Bins of files of one partition, in the order given, of about the target size.

    A file that is large enough and has few deleted rows stays as it is, and so does one alone.
    """
    partitions: dict[tuple[tuple[str, str | None], ...], list[Add]] = {}
    for add in candidates:
        if add.size < target_bytes or _deleted_ratio(add) > _DELETED_RATIO_MAX:
            key = tuple(sorted((n, v or None) for n, v in add.partition_values.items()))
            partitions.setdefault(key, []).append(add)
    for files in partitions.values():
        current: list[Add] = []
        size = 0
        for add in sorted(files, key=lambda one: one.size):
            if current and size + add.size > target_bytes:
                yield from _worthwhile(current)
                current, size = [], 0
            current.append(add)
            size += add.size
        yield from _worthwhile(current)


def _worthwhile(files: list[Add]) -> Iterator[Bin]:
    if len(files) > 1 or any(_deleted_ratio(add) > _DELETED_RATIO_MAX for add in files):
        yield Bin(tuple(files))


def _deleted_ratio(add: Add) -> float:
    if add.deletion_vector is None:
        return 0.0
    live = add_rows(add)
    if live is None:
        return 1.0
    deleted = add.deletion_vector.cardinality
    return deleted / max(1, live + deleted)


def _rewrite(work: Work, bins: list[Bin]) -> tuple[Add, ...]:
    """One output a bin, rows in the bin's order; each output names its sources."""
    if not bins:
        return ()
    files = [add for one in bins for add in one.files]
    group_of = [number for number, one in enumerate(bins) for _ in one.files]
    groups = work.spark.createDataFrame(
        pa.table(
            {
                "__txlake_key": pa.array(range(len(files)), pa.int64()),
                GROUP: pa.array(group_of, pa.int64()),
            }
        )
    )
    frame = work.scan(files_table(files), positions=True)
    frame = frame.join(F.broadcast(groups), F.col(FILE) == F.col("__txlake_key"), "inner")
    frame = frame.repartition(len(bins), GROUP).sortWithinPartitions(GROUP, FILE, ROW)
    frame = frame.drop(FILE, ROW).withColumn(ACTION, F.lit(COPY).cast("int"))
    written = write_frame(frame, work.target(data_change=False), keep_order=True)
    by_group = dict(zip(written.groups, written.adds, strict=True))
    outputs = []
    for number, one in enumerate(bins):
        output = by_group.get(number)
        if output is not None:
            outputs.append(_with_sources(output, one))
    return tuple(outputs)


def _with_sources(output: Add, one: Bin) -> Add:
    """The output tagged with the rows that it holds, where they can be counted."""
    sources = []
    for add in one.files:
        live = add_rows(add)
        if live is None:
            return output
        sources.append(Source(path=add.key[0], vector_id=add.key[1], first=0, rows=live))
    tags = {**(output.tags or {}), SOURCES_TAG: sources_text(sources)}
    return msgspec.structs.replace(output, tags=tags)


def _change(
    work: Work,
    operation: str,
    where: Expression | None,
    zorder_by: tuple[str, ...],
    sources: list[Add],
    outputs: tuple[Add, ...],
) -> Change:
    now_ms = work.system.now_ms()
    removes: list[Action] = [add.removed(timestamp_ms=now_ms, data_change=False) for add in sources]
    metrics = {
        "numRemovedFiles": len(sources),
        "numRemovedBytes": sum(add.size for add in sources),
        "numAddedFiles": len(outputs),
        "numAddedBytes": sum(add.size for add in outputs),
        "numDeletionVectorsRemoved": sum(add.deletion_vector is not None for add in sources),
    }
    return Change(
        operation=operation,
        parameters={
            "predicate": [] if where is None else [condition_text(where)],
            "zOrderBy": list(zorder_by),
            "auto": False,
        },
        actions=(*removes, *outputs),
        metrics=metrics,
        reads=(),
    )
