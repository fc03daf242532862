"""INSERT: append, overwrite, replace_where and dynamic partition overwrite.

Owns which files the new rows replace. The rows may be Spark's or the driver's own; the latter are
written without a Spark job wherever that is exact.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from txlake.commit.change import Change
from txlake.commit.data_plane import Placement, Rows
from txlake.conflict.footprint import Read
from txlake.datafiles.write_task import INSERT
from txlake.errors import InvalidRequest
from txlake.local.caller_rows import fit_by_name, schema_of, values_table
from txlake.local.control_columns import VIOLATION, VIOLATION_ROW
from txlake.local.types import quote
from txlake.local.writing import WriteResult, partition_fields, write_arrow
from txlake.log.predicates import And, Comparison, IsNull, Operator, Or, Predicate
from txlake.log.snapshot import Snapshot, unknown_column
from txlake.log.text_rules import StoreAssignment
from txlake.protocol.actions import Action, Add
from txlake.protocol.partition_values import format_value, parse_value
from txlake.protocol.types import Primitive
from txlake.spark import dml, driver_frames, native_writer, rows
from txlake.spark.deletions import remove_files
from txlake.spark.identities import (
    IdentityValues,
    identity_values,
    refuse_explicit_values,
    supplied_columns,
)
from txlake.spark.parquet_frames import parquet_rows
from txlake.spark.reading import estimated_bytes
from txlake.spark.spark_errors import translating
from txlake.spark.table_access import TableAccess
from txlake.spark.types import delta_schema
from txlake.spark.writing import is_write_optimized, rebalanced, rebalancing_settings, write_frame
from txlake.sql.statements import (
    DEFAULT,
    ComputedValues,
    Default,
    Expression,
    SqlText,
    Values,
    condition_text,
)

_FEW_ROWS_MAX = 20_000
_FEW_BYTES_MAX = 1024 * 1024
_PARTITION = "__txlake_partition"
_ONE_ROW = "__txlake_one_row"


@translating
def append(work: TableAccess, new: Rows, placement: Placement) -> Change:
    """Write the rows; return the change that adds them."""
    return append_change(work, write_rows(work, new, placement))


def append_change(work: TableAccess, written: WriteResult) -> Change:
    """Return the change that adds the rows written."""
    return _change(work, "Append", written, (), ())


@translating
def overwrite(work: TableAccess, new: Rows, placement: Placement) -> Change:
    """Write the rows; return the change that replaces every row by them."""
    return overwrite_change(work, write_rows(work, new, placement))


def overwrite_change(work: TableAccess, written: WriteResult) -> Change:
    """Return the change that replaces every row by the rows written; it reads the whole table."""
    removed = remove_files(work, list(work.snapshot.files.adds()))
    return _change(work, "Overwrite", written, removed.actions, (Read(),))


@translating
def replace_where(
    work: TableAccess, new: Rows, placement: Placement, condition: Expression
) -> Change:
    """Return the change that replaces the rows for which the condition is true
    (`TableData.replace_where`).

    Raises InvalidRequest, with the row, if a new row doesn't match; nothing stays written.
    """
    written = write_rows(work, new, placement, must_match=condition)
    return replacement_change(work, written, dml.delete(work, condition), condition_text(condition))


def replacement_change(
    work: TableAccess, written: WriteResult, deleted: Change | None, predicate: str
) -> Change:
    """Return the change that replaces the deleted rows by the rows written.

    `deleted`: the change of their DELETE; None if nothing is replaced. `predicate`: describes the
    deleted rows in the history.
    """
    removed, reads = ((), ()) if deleted is None else (deleted.actions, deleted.reads)
    change = _change(work, "Overwrite", written, removed, reads)
    before = {} if deleted is None else deleted.metrics
    return replace(
        change,
        parameters={**change.parameters, "predicate": predicate},
        metrics={**before, **change.metrics},
        origins={} if deleted is None else deleted.origins,
    )


@translating
def overwrite_partitions(
    work: TableAccess, new: Rows, placement: Placement, *, keep_null_partitions: bool = False
) -> Change:
    """Return the change that replaces the partitions of the new rows
    (`TableData.overwrite_partitions`).

    Replaces every row of a table without partitions.
    """
    if not work.snapshot.partition_columns:
        return overwrite(work, new, placement)
    written = write_rows(work, new, placement)
    return partition_overwrite_change(work, written, keep_null_partitions=keep_null_partitions)


def partition_overwrite_change(
    work: TableAccess, written: WriteResult, *, keep_null_partitions: bool
) -> Change:
    """Return the change that replaces the partitions of the rows written.

    With `keep_null_partitions` a partition with a NULL isn't replaced: its rows are added.
    """
    key_of = _partition_keys(work.snapshot)
    keys = {
        key
        for add in written.adds
        if None not in dict(key := key_of(add)).values() or not keep_null_partitions
    }
    replaced = [add for add in work.snapshot.files.adds() if key_of(add) in keys]
    removed = remove_files(work, replaced)
    reads = tuple(
        Read(predicate=predicate, text="dynamic partition overwrite", files=False)
        for predicate in _partition_predicates(work.snapshot, keys)
    )
    return _change(work, "Overwrite", written, removed.actions, reads)


_PartitionKey = tuple[tuple[str, str | None], ...]


def _partition_keys(snapshot: Snapshot) -> Callable[[Add], _PartitionKey]:
    """Return the function from a file to its partition's key, where texts of equal values agree."""
    types = {item.physical_name: item.type for item in partition_fields(snapshot)}

    @functools.cache
    def canonical(name: str, text: str | None) -> str | None:
        return format_value(parse_value(text, types[name]), types[name])

    def key_of(add: Add) -> _PartitionKey:
        values = add.partition_values
        return tuple(sorted((name, canonical(name, values.get(name))) for name in types))

    return key_of


def _partition_predicates(
    snapshot: Snapshot, keys: Iterable[_PartitionKey]
) -> tuple[Predicate, ...]:
    """Return one predicate, in a tuple, that holds for exactly these partitions; () for no
    partitions.
    """
    partitions: list[Predicate] = []
    for key in sorted(keys, key=repr):
        values = dict(key)
        parts: list[Predicate] = []
        for name in snapshot.partition_columns:
            item = snapshot.schema.find(name)
            assert item is not None
            value = parse_value(values.get(item.physical_name), item.type)
            if value is None:
                parts.append(IsNull((item.name,)))
            else:
                parts.append(Comparison((item.name,), Operator.EQUAL, value))
        partitions.append(parts[0] if len(parts) == 1 else And(tuple(parts)))
    if not partitions:
        return ()
    return (partitions[0] if len(partitions) == 1 else Or(tuple(partitions)),)


def _change(
    work: TableAccess,
    mode: str,
    written: WriteResult,
    removed: Sequence[Action],
    reads: tuple[Read, ...],
) -> Change:
    """Return the change of a WRITE: `removed` actions, and the files written."""
    count = written.actions.get(INSERT, 0)
    size = sum(add.size for add in written.adds)
    return Change(
        operation="WRITE",
        parameters={"mode": mode, "partitionBy": list(work.snapshot.partition_columns)},
        actions=(*removed, *written.adds),
        metrics={"numFiles": len(written.adds), "numOutputRows": count, "numOutputBytes": size},
        reads=reads,
        affected={"num_affected_rows": count, "num_inserted_rows": count},
        identity_marks=written.identity_marks,
    )


def write_rows(
    work: TableAccess, new: Rows, placement: Placement, must_match: Expression | None = None
) -> WriteResult:
    """Write the rows as data files, which are not yet part of the table.

    `must_match`: a condition that must be true for every row. The driver writes few rows, a Spark
    job many. Raises InvalidRequest for a column that doesn't fit, or a row that violates a
    constraint or the condition; nothing stays written.
    """
    with identity_values(work) as generation:
        return generation.with_marks(_written(work, new, placement, must_match, generation))


def _written(
    work: TableAccess,
    new: Rows,
    placement: Placement,
    must_match: Expression | None,
    generation: IdentityValues,
) -> WriteResult:
    """Write the rows as data files that aren't part of the table yet, with `generation` giving the
    values of identity columns. Raises as `write_rows`.
    """
    work.check_stored()
    for name in placement.columns or ():
        work.require_spelled((name,))
    if isinstance(new, Values | ComputedValues):
        names = placement.columns or work.snapshot.schema.names
        new = named_values(work, new, names, generation)
        placement = Placement(by_name=True)
    elif isinstance(new, pa.Table) and placement.by_name:
        new = generation.with_identity_columns(new)
    else:
        if isinstance(new, pa.Table):
            new = driver_frames.to_spark(work.spark, new)
        if generation.columns:
            refuse_explicit_values(work.snapshot, supplied_columns(new, work.snapshot, placement))
    _require_assignable(work, new, placement)
    if isinstance(new, pa.Table):
        fitted = None
        if must_match is None and placement.by_name:
            fitted = fit_by_name(new, work.snapshot)
        if fitted is not None:
            return write_arrow(fitted, work.target())
        new = driver_frames.to_spark(work.spark, new)
    given_columns = None
    if placement.by_name:
        given_columns = {item.name for item in work.snapshot.schema if _has(new, item.name)}
        frame = rows.by_name(new, work.snapshot, generation.block)
    else:
        frame = rows.by_position(new, work.snapshot, placement.columns, generation.block)
    frame = rows.checked(frame, work.snapshot, given=given_columns)
    if must_match is not None:
        frame = _matching(work, frame, must_match)
    target = work.target()
    if not native_writer.suits(frame, target):
        is_checked = must_match is not None
        if is_checked or not generation.has_blocks or not _is_small(frame):
            return write_frame(frame, target, is_balanced=True)
        # Few rows get consecutive values.
        return write_frame(
            frame,
            target,
            few_rows_max=_FEW_ROWS_MAX,
            few_rows=generation.renumbered_table,
            is_balanced=True,
        )
    parts = _few_rows(frame, work.snapshot)
    is_optimized = is_write_optimized(work.spark, work.snapshot)
    if parts is None and is_optimized:
        settings = rebalancing_settings(work.spark)
        return native_writer.write(rebalanced(frame, ()), target, settings)
    if parts is None:
        return native_writer.write(frame, target)
    if is_optimized and parts:
        parts = [pa.concat_tables(parts)]
    written = [write_arrow(part, target) for part in generation.renumbered(parts)]
    count = sum(part.num_rows for part in parts)
    return WriteResult(
        adds=tuple(add for part in written for add in part.adds),
        actions={INSERT: count} if count else {},
    )


def _require_assignable(work: TableAccess, new: pa.Table | DataFrame, placement: Placement) -> None:
    """Raise InvalidRequest if the session's store assignment policy doesn't let a column's values
    in.
    """
    if work.rules.assignment is StoreAssignment.ANSI:
        return
    source = schema_of(new) if isinstance(new, pa.Table) else delta_schema(new.schema)
    if placement.by_name:
        pairs = [(column, work.snapshot.schema.find(column.name)) for column in source]
    else:
        targets = rows.targets_by_position(source, work.snapshot, placement.columns)
        pairs = list(zip(source, targets, strict=True))
    for column, item in pairs:
        if item is not None:
            work.require_assignable(column.type, item)


def _is_small(frame: DataFrame) -> bool:
    """Return whether Spark estimates a frame at 1 MiB at most; False on Spark Connect."""
    size = estimated_bytes(frame)
    return size is not None and size <= _FEW_BYTES_MAX


def _few_rows(frame: DataFrame, snapshot: Snapshot) -> list[pa.Table] | None:
    """Return the rows by Spark partition if the driver writes them sooner than a job would.

    None where they are many, the table has nested columns, or the frame has checks. Spark's
    estimate may be too low, so at most 20,001 rows are read; Spark computes all rows again if there
    are more.
    """
    plain = all(isinstance(item.type, Primitive) for item in snapshot.schema)
    if frame.columns != list(snapshot.schema.names) or not plain:
        return None
    if not _is_small(frame):
        return None
    if (held := parquet_rows(frame, _FEW_ROWS_MAX)) is not None:
        return [held] if held.num_rows else []
    numbered = frame.select("*", F.spark_partition_id().alias(_PARTITION))
    try:
        collected = numbered.limit(_FEW_ROWS_MAX + 1).toArrow()
    except PySparkException as error:
        if "maxResultSize" in str(error):
            return None
        raise
    if collected.num_rows > _FEW_ROWS_MAX:
        return None
    numbers = collected.column(_PARTITION)
    rows = collected.drop_columns([_PARTITION])
    return [rows.filter(pc.equal(numbers, number)) for number in pc.unique(numbers)]


def _has(frame: DataFrame, name: str) -> bool:
    return any(column.lower() == name.lower() for column in frame.columns)


def named_values(
    work: TableAccess,
    values: Values | ComputedValues,
    names: Sequence[str],
    generation: IdentityValues | None = None,
) -> pa.Table | DataFrame:
    """Return the rows of VALUES as columns of the table, by name.

    Identity columns get values where `generation` gives them. Arrow for constants, a Spark frame
    where a cell asks for a default or is computed. Raises InvalidRequest if the numbers of values
    and names differ, the table has no such column, or an identity column can't take the cell.
    """
    check_named(work, values, names)
    values, names = _with_identities(work, values, names, generation)
    if isinstance(values, ComputedValues):
        return _computed(work, values, names)
    table, defaults = values_table(values, names, lambda: work.time_zone)
    if not defaults:
        return table
    numbers = pa.array(range(table.num_rows), pa.int64())
    frame = driver_frames.to_spark(work.spark, table.append_column("__row", numbers))
    columns = []
    for name in names:
        item = work.snapshot.schema.find(name)
        assert item is not None
        default_rows = [number for number, column in defaults if column == name]
        column = F.col(quote(name))
        if default_rows:
            computed = F.col("__row").isin(default_rows)
            column = F.when(computed, rows.given_default(item, work.snapshot)).otherwise(column)
        columns.append(column.alias(name))
    return frame.select(*columns)


def _with_identities(
    work: TableAccess,
    values: Values | ComputedValues,
    names: Sequence[str],
    generation: IdentityValues | None,
) -> tuple[Values | ComputedValues, Sequence[str]]:
    """Return the rows and names, with values where an identity column is left out or given DEFAULT.

    Without `generation` a column that is left out stays out. Raises InvalidRequest for a value
    given in a column whose values are always generated, and without `generation` for DEFAULT.
    """
    identities = IdentityValues(work) if generation is None else generation
    count = len(values.rows)
    cells: list[list[Any]] = [list(row) for row in values.rows]
    for column in identities.columns:
        place = next(
            (index for index, name in enumerate(names) if name.lower() == column.name.lower()), -1
        )
        if place < 0 and generation is None:
            continue
        default_rows = [
            index for index in range(count) if place < 0 or isinstance(cells[index][place], Default)
        ]
        if place >= 0 and len(default_rows) < count:
            refuse_explicit_values(work.snapshot, [column.name])
        if default_rows and generation is None:
            raise InvalidRequest(
                f"{work.snapshot.table}: column {column.name!r} is an identity column, and can't "
                "be given DEFAULT here; name the other columns and leave it out"
            )
        if place < 0:
            names = (*names, column.name)
            for row in cells:
                row.append(DEFAULT)
        for index, value in zip(
            default_rows, identities.values(column, len(default_rows)), strict=True
        ):
            cells[index][place] = value if isinstance(values, Values) else _computed_value(value)
    if not identities.columns:
        return values, names
    kind = type(values)
    return kind(tuple(map(tuple, cells))), names


def _computed_value(value: int) -> SqlText:
    return SqlText(f"CAST('{value}' AS BIGINT)")


def check_named(work: TableAccess, values: Values | ComputedValues, names: Sequence[str]) -> None:
    """Raise InvalidRequest if VALUES and names differ in number, or a name is no column's.

    Only the first row is counted; without rows any number of names passes.
    """
    width = len(values.rows[0]) if values.rows else len(names)
    if width != len(names):
        raise InvalidRequest(
            f"{work.snapshot.table}: expected {len(names)} values a row ({', '.join(names)}), "
            f"found {width}"
        )
    for name in names:
        if work.snapshot.schema.find(name) is None:
            raise unknown_column(name, work.snapshot)


def _computed(work: TableAccess, values: ComputedValues, names: Sequence[str]) -> DataFrame:
    """Return the rows, each computed by itself, as a frame with the columns `names`.

    There must be at least one row. DEFAULT is the default of its column.
    """
    one_row = work.spark.range(1).select(F.lit(True).alias(_ONE_ROW))
    frames = []
    for row in values.rows:
        cells = []
        for name, cell in zip(names, row, strict=True):
            item = work.snapshot.schema.find(name)
            assert item is not None
            if isinstance(cell, Default):
                value = rows.given_default(item, work.snapshot)
            else:
                value = work.column_of(cell)
            cells.append(value.alias(name))
        frames.append(one_row.select(*cells))
    return functools.reduce(DataFrame.unionAll, frames)


def _matching(work: TableAccess, frame: DataFrame, condition: Expression) -> DataFrame:
    """Return the frame with a violation for each row for which the condition isn't true."""
    label = F.lit(f"[DELTA_REPLACE_WHERE_MISMATCH] replace_where {condition_text(condition)}")
    matches = F.coalesce(work.column_of(condition), F.lit(False))
    outside = F.when(~matches, label)
    before = F.col(VIOLATION) if VIOLATION in frame.columns else F.lit(None).cast("string")
    row = F.to_json(F.struct(*[F.col(quote(name)) for name in work.snapshot.schema.names]))
    frame = work.qualified(frame, None).withColumn(VIOLATION, F.coalesce(before, outside))
    return frame.withColumn(VIOLATION_ROW, F.when(F.col(VIOLATION).isNotNull(), row))
