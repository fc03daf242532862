"""The tables that questions are about, drawn from a seed: columns, rows, and how they were made."""

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

from tests.ask.kinds import EVERY, KINDS, Kind, drawn

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
    """A column; `later` is the type that it has in the end, where it was widened."""

    name: str
    sql: str
    later: str | None = None

    @property
    def kind(self) -> Kind:
        """Its type in the end."""
        return EVERY[self.later or self.sql]

    @property
    def quoted(self) -> str:
        """The name in backquotes."""
        return f"`{self.name}`"


@dataclass(frozen=True, slots=True)
class Step:
    """What is done to the table after its rows were written: `what` with the rows of these ids."""

    what: str
    ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a table is made.

    Attributes:
        chunks: rows that are written together, with the writer of each.
        widened_before: the chunk before which columns get their later types; None without any.
        steps: what follows, in order.
        is_path: whether statements name the table by its place.
        group_rows: rows of a row group, for writers that can be given it.
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
        """Who makes the table."""
        return self.chunks[0][0]

    @property
    def rows(self) -> list[Row]:
        """The rows that are there in the end, by id."""
        gone = {one for step in self.steps if step.what == "delete" for one in step.ids}
        found = [self._kept(row) for _, rows in self.chunks for row in rows if row[ID] not in gone]
        return sorted(found, key=lambda row: row[ID])

    def _kept(self, row: Row) -> Row:
        """The row as the table keeps it: no empty text and no -0.0 in a partition column."""
        found = dict(row)
        for column in self.columns:
            value = found[column.name]
            if column.later == "TIMESTAMP_NTZ" and type(value) is date:
                found[column.name] = datetime.combine(value, time.min)
            elif column.later == "DOUBLE" and value is not None:
                found[column.name] = float(value)
            elif column.name in self.partition_by and value in ("", b""):
                found[column.name] = None
            elif column.name in self.partition_by and value == 0 and isinstance(value, float):
                found[column.name] = 0.0
        return found

    def features(self) -> list[str]:
        """What is special about the table, for the count of what was reached."""
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


def arrow_of(plan: Plan, rows: Sequence[Row], *, later: bool) -> pa.Table:
    """Rows as Arrow has them, in the types that the columns have later, or had at first."""
    types = [column.kind if later else EVERY[column.sql] for column in plan.columns]
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


def draw(
    luck: Random, writers: Sequence[str], sizes: Sequence[int] = (), *, is_flat: bool = False
) -> Plan:
    """A table by one of these writers.

    `sizes`: how many rows, one of them; any without. `is_flat`: no nested columns.
    """
    writer = luck.choice(writers)
    is_foreign = writer in FOREIGN_WRITERS
    properties = {} if is_foreign and writer != "delta-spark" else _properties(luck)
    is_mapped = "delta.columnMapping.mode" in properties
    columns = _columns(luck, writer, is_mapped=is_mapped, is_flat=is_flat)
    partition_by = _partition(luck, writer, columns)
    count = luck.choice(sizes) if sizes else _count(luck, writer)
    widened = None
    pieces = luck.choice((1, 1, 2, 3, 5)) if count > 2 else 1
    if writer in OWN_WRITERS and pieces > 1 and luck.random() < 0.3:
        found = tuple(_widened(luck, column, partition_by) for column in columns)
        if found != columns:
            columns, widened = found, luck.randint(1, pieces - 1)
            properties["delta.enableTypeWidening"] = "true"
    chunks = _chunks(luck, writer, columns, partition_by, count, pieces, widened)
    return Plan(
        columns=columns,
        partition_by=partition_by,
        properties=properties,
        chunks=chunks,
        widened_before=widened,
        steps=_steps(luck, chunks),
        is_path=writer == "delta-spark" or luck.random() < 0.4,
        group_rows=luck.choice((2, 3, 7, None)) if writer in ("pyarrow", "delta-rs") else None,
    )


def fewer(plan: Plan, ids: set[int]) -> Plan:
    """The same table with these rows alone."""
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


def _properties(luck: Random) -> dict[str, str]:
    found = {"delta.enableDeletionVectors": luck.choice(("true", "true", "false"))}
    if luck.random() < 0.25:
        found["delta.columnMapping.mode"] = luck.choice(("name", "name", "id"))
    if luck.random() < 0.2:
        found["delta.dataSkippingNumIndexedCols"] = luck.choice(("0", "1", "2"))
    if luck.random() < 0.25:
        found["delta.checkpointInterval"] = luck.choice(("1", "2"))
        if luck.random() < 0.5:
            found["delta.checkpoint.writeStatsAsStruct"] = "true"
            found["delta.checkpoint.writeStatsAsJson"] = luck.choice(("true", "false"))
    return found


def _columns(luck: Random, writer: str, *, is_mapped: bool, is_flat: bool) -> tuple[Column, ...]:
    names = list(_NAMES + (_MAPPED_NAMES if is_mapped else ()))
    luck.shuffle(names)
    lacks = (*CANNOT.get(writer, ()), *(NESTED if is_flat else ()))
    kinds = [one for one in KINDS if not one.startswith(lacks)]
    wanted = luck.sample(kinds, luck.randint(2, 6))
    if luck.random() < 0.3:
        wanted.append(luck.choice(wanted))  # two columns of one type
    return tuple(Column(name, sql) for name, sql in zip(names, wanted, strict=False))


def _partition(luck: Random, writer: str, columns: Sequence[Column]) -> tuple[str, ...]:
    if writer == "duckdb" or luck.random() < 0.65:
        return ()
    could = [one for one in columns if one.kind.partitions]
    if writer == "pyarrow":
        could = [one for one in could if one.sql in _FOLDERS]
    if writer in ("delta-rs", "polars"):
        # delta-rs 1.6 writes bytes as \u0061, which no reader, not even its own, reads back, and
        # instants in UTC without saying so, which readers take for times of their session's zone.
        could = [one for one in could if one.sql not in ("BINARY", "TIMESTAMP")]
    could = could[: max(0, len(columns) - 1)]
    chosen = luck.sample(could, min(len(could), luck.choice((1, 1, 2))))
    return tuple(one.name for one in chosen)


def _count(luck: Random, writer: str) -> int:
    chance = luck.random()
    if chance < 0.05 and writer != "values":
        return luck.randint(1_100, 2_500)
    if chance < 0.06 and writer != "values":
        return 21_000
    return luck.choice((1, luck.randint(2, 12), luck.randint(10, 60)))


def _widened(luck: Random, column: Column, partition_by: Sequence[str]) -> Column:
    kind = KINDS[column.sql]
    if not kind.wider or column.name in partition_by or luck.random() < 0.3:
        return column
    return replace(column, later=luck.choice(kind.wider))


def _chunks(
    luck: Random,
    writer: str,
    columns: Sequence[Column],
    partition_by: Sequence[str],
    count: int,
    pieces: int,
    widened: int | None,
) -> tuple[tuple[str, tuple[Row, ...]], ...]:
    nulls = luck.choice((0.0, 0.12, 0.12, 0.5))
    narrow = luck.random() < 0.7
    early: dict[str, Sequence[Any]] = {}
    late: dict[str, Sequence[Any]] = {}
    for column in columns:
        for pools, sql in ((early, column.sql), (late, column.later or column.sql)):
            is_folder = column.name in partition_by
            pools[column.name] = _pool(luck, EVERY[sql], narrow=narrow, is_folder=is_folder)
    bounds = sorted(luck.randint(1, count - 1) for _ in range(pieces - 1)) if count > 1 else []
    found, start = [], 0
    for place, end in enumerate([*bounds, count]):
        is_late = widened is not None and place >= widened
        pools = late if is_late else early
        rows = []
        for number in range(start, end):
            row: Row = {ID: number, MARK: 0}
            for column in columns:
                kind = EVERY[column.later or column.sql] if is_late else EVERY[column.sql]
                row[column.name] = drawn(luck, kind, pools[column.name], nulls)
            rows.append(row)
        if rows or place == 0:
            by = writer if place == 0 or writer in FOREIGN_WRITERS else luck.choice(OWN_WRITERS)
            if by == "values" and len(rows) > 100:
                by = "arrow"
            found.append((by, tuple(rows)))
        elif widened is not None:
            found.append((writer, ()))
        start = end
    return tuple(found)


def _pool(luck: Random, kind: Kind, *, narrow: bool, is_folder: bool) -> Sequence[Any]:
    """Some of a type's values, so that they are often equal; a partition's bytes are a text."""
    values = [one for one in kind.values if not (is_folder and _has_no_folder(one))]
    return luck.sample(values, min(len(values), luck.randint(1, 4))) if narrow else values


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


def _steps(luck: Random, chunks: Sequence[tuple[str, Sequence[Row]]]) -> tuple[Step, ...]:
    ids = [row[ID] for _, rows in chunks for row in rows]
    found: list[Step] = []
    for _ in range(luck.choice((0, 0, 1, 2, 3))):
        what = luck.choice(("delete", "delete", "update", "optimize", "checkpoint"))
        some = luck.sample(ids, min(len(ids), luck.choice((1, 2, max(1, len(ids) // 3)))))
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
