"""Random tables for questions: columns, rows, and how they are written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from decimal import Decimal
from random import Random
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from tests.ask.kinds import EVERY, KINDS, Kind, random_value

ID, MARK = "id", "mark"
ZONES = ("UTC", "America/New_York", "Europe/Oslo", "+05:30", "Asia/Kolkata", "America/Los_Angeles")
Row = dict[str, Any]

_NAMES = ("n", "s", "größe", "Mixed", "d", "v", "w", "_x", "value", "c9")
_MAPPED_NAMES = ("a b", "x.y", "p,q")
OWN_WRITERS = ("values", "insert", "spark-frame", "arrow")
"""txlake's own ways to write rows."""

FOREIGN_WRITERS = ("delta-rs", "polars", "pyarrow", "duckdb", "delta-spark")
"""Programs whose tables, or Parquet files converted to tables, are asked too."""

WRITERS = (*OWN_WRITERS, *FOREIGN_WRITERS)
CANNOT: Mapping[str, tuple[str, ...]] = {
    "polars": ("MAP", "DECIMAL(12,4)"),
    "pyarrow": ("DECIMAL(12,4)",),
    "duckdb": ("DECIMAL(12,4)",),
    "delta-rs": ("DECIMAL(12,4)",),
    "delta-spark": ("DECIMAL(12,4)",),
}
"""The types that a writer can't write, or that a column of its tables never gets."""

NESTED = ("STRUCT", "ARRAY", "MAP")
"""How nested types begin."""

FEATURES = (
    *("path table", "named table", "partitions", "widened columns", "column mapping"),
    *("small row groups", "many rows", "over a thousand rows", "deletion vectors", "delete"),
    *("update", "optimize", "checkpoint"),
)
"""What may be special about a table."""

_FOLDERS = ("INT", "BIGINT", "STRING", "DATE")


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `widened`: the type that it is widened to, if any."""

    name: str
    sql: str
    widened: str | None = None

    @property
    def kind(self) -> Kind:
        """The column's type at the end."""
        return EVERY[self.widened or self.sql]

    @property
    def quoted(self) -> str:
        """The name in backquotes."""
        return f"`{self.name}`"


@dataclass(frozen=True, slots=True)
class Step:
    """A step after the rows were written: `what` is done to the rows with these ids."""

    what: str
    ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a table is made.

    Attributes:
        chunks: rows that are written together, with the writer of each.
        widened_before: the chunk before which columns are widened; None without widening.
        steps: the steps after writing, in order.
        is_path: statements name the table by its path.
        group_rows: the rows of a row group, for writers with that option.
    """

    columns: tuple[Column, ...]
    partition_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    chunks: tuple[tuple[str, tuple[Row, ...]], ...] = ()
    widened_before: int | None = None
    steps: tuple[Step, ...] = ()
    is_path: bool = False
    group_rows: int | None = None

    @property
    def writer(self) -> str:
        """The writer that creates the table."""
        return self.chunks[0][0]

    @property
    def rows(self) -> list[Row]:
        """The rows at the end, in the order of their ids."""
        deleted_ids = {one for step in self.steps if step.what == "delete" for one in step.ids}
        found = [
            self._stored(row)
            for _, rows in self.chunks
            for row in rows
            if row[ID] not in deleted_ids
        ]
        return sorted(found, key=lambda row: row[ID])

    def _stored(self, row: Row) -> Row:
        """Return a row as the table stores it: without empty texts and -0.0 in partition
        columns.
        """
        found = dict(row)
        for column in self.columns:
            value = found[column.name]
            if column.widened == "TIMESTAMP_NTZ" and type(value) is date:
                found[column.name] = datetime.combine(value, time.min)
            elif column.widened == "DOUBLE" and value is not None:
                found[column.name] = float(value)
            elif column.name in self.partition_by and value in ("", b""):
                found[column.name] = None
            elif column.name in self.partition_by and value == 0 and isinstance(value, float):
                found[column.name] = 0.0
        return found

    def features(self) -> list[str]:
        """Return the table's special features, for the coverage."""
        found = [f"{'path' if self.is_path else 'named'} table"]
        if self.partition_by:
            found.append("partitions")
        if self.widened_before is not None:
            found.append("widened columns")
        if self.properties.get("delta.columnMapping.mode", "none") != "none":
            found.append("column mapping")
        if self.group_rows is not None:
            found.append("small row groups")
        if len(self.rows) > 20_000:
            found.append("many rows")
        elif len(self.rows) > 1_000:
            found.append("over a thousand rows")
        vectors = self.properties.get("delta.enableDeletionVectors") == "true"
        for step in self.steps:
            is_vector = vectors and step.what in ("delete", "update")
            found.append("deletion vectors" if is_vector else step.what)
        return found


def as_arrow(plan: Plan, rows: Sequence[Row], *, widened: bool) -> pa.Table:
    """Return rows as an Arrow table, with the columns' types before or after widening."""
    types = [column.kind if widened else EVERY[column.sql] for column in plan.columns]
    arrays = {ID: pa.array([row[ID] for row in rows], pa.int32())}
    for column, kind in zip(plan.columns, types, strict=True):
        values = [_scaled(row[column.name], kind) for row in rows]
        arrays[column.name] = pa.array(values, kind.arrow)
    arrays[MARK] = pa.array([row[MARK] for row in rows], pa.int32())
    return pa.table(arrays)


def _scaled(value: Any, kind: Kind) -> Any:
    if type(value) is date and pa.types.is_timestamp(kind.arrow):
        return datetime.combine(value, time.min)
    if isinstance(value, int) and pa.types.is_floating(kind.arrow):
        return float(value)
    return value


def random_plan(
    rng: Random, writers: Sequence[str], sizes: Sequence[int] = (), *, is_flat: bool = False
) -> Plan:
    """Return a table by one of these writers.

    `sizes`: the numbers of rows to choose from; `is_flat`: no nested columns.
    """
    writer = rng.choice(writers)
    is_foreign = writer in FOREIGN_WRITERS
    properties = {} if is_foreign and writer != "delta-spark" else _properties(rng)
    is_mapped = "delta.columnMapping.mode" in properties
    columns = _columns(rng, writer, is_mapped=is_mapped, is_flat=is_flat)
    partition_by = _partition(rng, writer, columns)
    count = rng.choice(sizes) if sizes else _count(rng, writer)
    widened = None
    pieces = rng.choice((1, 1, 2, 3, 5)) if count > 2 else 1
    if writer in OWN_WRITERS and pieces > 1 and rng.random() < 0.3:
        found = tuple(_widened(rng, column, partition_by) for column in columns)
        if found != columns:
            columns, widened = found, rng.randint(1, pieces - 1)
            properties["delta.enableTypeWidening"] = "true"
    chunks = _chunks(rng, writer, columns, partition_by, count, pieces, widened)
    return Plan(
        columns=columns,
        partition_by=partition_by,
        properties=properties,
        chunks=chunks,
        widened_before=widened,
        steps=_steps(rng, chunks),
        is_path=writer == "delta-spark" or rng.random() < 0.4,
        group_rows=rng.choice((2, 3, 7, None)) if writer in ("pyarrow", "delta-rs") else None,
    )


def with_rows(plan: Plan, ids: set[int]) -> Plan:
    """Return the same table with only these rows."""
    chunks = tuple(
        (writer, tuple(row for row in rows if row[ID] in ids)) for writer, rows in plan.chunks
    )
    kept = [one for one in chunks if one[1]]
    if not kept or (plan.widened_before is not None and len(kept) < len(chunks)):
        kept = list(chunks)
    steps = tuple(
        replace(step, ids=tuple(one for one in step.ids if one in ids)) for step in plan.steps
    )
    steps = tuple(step for step in steps if step.ids or step.what not in ("delete", "update"))
    return replace(plan, chunks=tuple(kept), steps=steps)


def _properties(rng: Random) -> dict[str, str]:
    found = {"delta.enableDeletionVectors": rng.choice(("true", "true", "false"))}
    if rng.random() < 0.25:
        found["delta.columnMapping.mode"] = rng.choice(("name", "name", "id"))
    if rng.random() < 0.2:
        found["delta.dataSkippingNumIndexedCols"] = rng.choice(("0", "1", "2"))
    if rng.random() < 0.25:
        found["delta.checkpointInterval"] = rng.choice(("1", "2"))
        if rng.random() < 0.5:
            found["delta.checkpoint.writeStatsAsStruct"] = "true"
            found["delta.checkpoint.writeStatsAsJson"] = rng.choice(("true", "false"))
    return found


def _columns(rng: Random, writer: str, *, is_mapped: bool, is_flat: bool) -> tuple[Column, ...]:
    names = list(_NAMES + (_MAPPED_NAMES if is_mapped else ()))
    rng.shuffle(names)
    lacks = (*CANNOT.get(writer, ()), *(NESTED if is_flat else ()))
    kinds = [one for one in KINDS if not one.startswith(lacks)]
    wanted = rng.sample(kinds, rng.randint(2, 6))
    if rng.random() < 0.3:
        wanted.append(rng.choice(wanted))  # two columns of one type
    return tuple(Column(name, sql) for name, sql in zip(names, wanted, strict=False))


def _partition(rng: Random, writer: str, columns: Sequence[Column]) -> tuple[str, ...]:
    if writer == "duckdb" or rng.random() < 0.65:
        return ()
    could = [one for one in columns if one.kind.partitions]
    if writer == "pyarrow":
        could = [one for one in could if one.sql in _FOLDERS]
    if writer in ("delta-rs", "polars"):
        # delta-rs 1.6 writes bytes as \u0061, which no reader, not even its own, reads back, and
        # instants in UTC without saying so, which readers take for times of their session's zone.
        could = [one for one in could if one.sql not in ("BINARY", "TIMESTAMP")]
    could = could[: max(0, len(columns) - 1)]
    chosen = rng.sample(could, min(len(could), rng.choice((1, 1, 2))))
    return tuple(one.name for one in chosen)


def _count(rng: Random, writer: str) -> int:
    chance = rng.random()
    if chance < 0.05 and writer != "values":
        return rng.randint(1_100, 2_500)
    if chance < 0.06 and writer != "values":
        return 21_000
    return rng.choice((1, rng.randint(2, 12), rng.randint(10, 60)))


def _widened(rng: Random, column: Column, partition_by: Sequence[str]) -> Column:
    kind = KINDS[column.sql]
    if not kind.wider or column.name in partition_by or rng.random() < 0.3:
        return column
    return replace(column, widened=rng.choice(kind.wider))


def _chunks(
    rng: Random,
    writer: str,
    columns: Sequence[Column],
    partition_by: Sequence[str],
    count: int,
    pieces: int,
    widened: int | None,
) -> tuple[tuple[str, tuple[Row, ...]], ...]:
    nulls = rng.choice((0.0, 0.12, 0.12, 0.5))
    narrow = rng.random() < 0.7
    early: dict[str, Sequence[Any]] = {}
    late: dict[str, Sequence[Any]] = {}
    for column in columns:
        for pools, sql in ((early, column.sql), (late, column.widened or column.sql)):
            is_folder = column.name in partition_by
            pools[column.name] = _pool(rng, EVERY[sql], narrow=narrow, is_folder=is_folder)
    bounds = sorted(rng.randint(1, count - 1) for _ in range(pieces - 1)) if count > 1 else []
    found, start = [], 0
    for place, end in enumerate([*bounds, count]):
        is_late = widened is not None and place >= widened
        pools = late if is_late else early
        rows = []
        for number in range(start, end):
            row: Row = {ID: number, MARK: 0}
            for column in columns:
                kind = EVERY[column.widened or column.sql] if is_late else EVERY[column.sql]
                row[column.name] = random_value(rng, kind, pools[column.name], nulls)
            rows.append(row)
        if rows or place == 0:
            by = writer if place == 0 or writer in FOREIGN_WRITERS else rng.choice(OWN_WRITERS)
            if by == "values" and len(rows) > 100:
                by = "arrow"
            found.append((by, tuple(rows)))
        elif widened is not None:
            found.append((writer, ()))
        start = end
    return tuple(found)


def _pool(rng: Random, kind: Kind, *, narrow: bool, is_folder: bool) -> Sequence[Any]:
    """Return some of a type's values, so that equal ones are frequent; a partition's bytes are
    text.
    """
    values = [one for one in kind.values if not (is_folder and _has_no_folder(one))]
    return rng.sample(values, min(len(values), rng.randint(1, 4))) if narrow else values


def _has_no_folder(value: Any) -> bool:
    """Whether some writer has no text for a partition's value, or none that a folder can have.

    Bytes have to be a text. delta-rs 1.6 writes -1.50 as -1.-50, and 5e-324 with all its zeros; it
    encodes folders twice, and no file system takes names of more than 255 bytes.
    """
    if isinstance(value, str):
        return len(quote(quote(value, safe=""), safe="")) > 200
    if isinstance(value, bytes):
        return max(value, default=0) > 126
    if isinstance(value, float):
        return 0 < abs(value) < 1e-30 or 1e30 < abs(value) < math.inf
    return isinstance(value, Decimal) and value < 0


def _steps(rng: Random, chunks: Sequence[tuple[str, Sequence[Row]]]) -> tuple[Step, ...]:
    ids = [row[ID] for _, rows in chunks for row in rows]
    found: list[Step] = []
    for _ in range(rng.choice((0, 0, 1, 2, 3))):
        what = rng.choice(("delete", "delete", "update", "optimize", "checkpoint"))
        some = rng.sample(ids, min(len(ids), rng.choice((1, 2, max(1, len(ids) // 3)))))
        if len(some) > 200:
            some = some[:200]
        if what == "delete":
            ids = [one for one in ids if one not in set(some)] or ids[:1]
            some = [one for one in some if one not in ids]
        if what in ("delete", "update") and not some:
            continue
        chosen = tuple(sorted(some)) if what in ("delete", "update") else ()
        found.append(Step(what, chosen))
    return tuple(found)
