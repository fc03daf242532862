"""Makes the drawn tables: each writer puts rows into a folder, and the lake does the rest."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import WriterProperties, write_deltalake
from pyspark.sql.types import StructType

from tests.ask.kinds import literal
from tests.ask.tables import ID, MARK, OWN_WRITERS, Plan, Row, Step, arrow_of
from txlake.protocol.paths import escape_partition
from txlake.session.command import AsRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txlake.lake.lake import Lake

_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class Made:
    """A table that is there.

    Attributes:
        sql: what statements call it.
        call: what methods call it.
        folder: where it lies.
    """

    plan: Plan
    sql: str
    call: str
    folder: Path


class Maker:
    """Makes tables for a lake, and takes them away."""

    def __init__(self, lake: Lake, scratch: Path, spark: SparkSession | None = None) -> None:
        self._spark = spark
        self._lake = lake
        self._scratch = scratch
        self._count = 0

    def memory(self, plan: Plan) -> DataFrame:
        """The table's rows in Spark's memory: no reader has anything to skip there."""
        return self._frame(plan, arrow_of(plan, plan.rows, later=True), later=True)

    @contextmanager
    def table(self, plan: Plan) -> Iterator[Made]:
        """The table, until the block ends."""
        self._count += 1
        name = f"t{self._count}"
        folder = self._scratch / "tables" / name
        made = Made(
            plan,
            f"delta.`{folder}`" if plan.is_path else name,
            str(folder) if plan.is_path else name,
            folder,
        )
        try:
            if plan.writer in OWN_WRITERS:
                self._create(made, name)
            self._write(made)
            if not plan.is_path and plan.writer not in OWN_WRITERS:
                self._lake.attach(str(folder), name)
            for step in plan.steps:
                self._step(made, step)
            yield made
        finally:
            if not plan.is_path:
                with suppress(Exception):
                    self._run(f"DROP TABLE IF EXISTS {name}")
            shutil.rmtree(folder, ignore_errors=True)

    def _run(self, text: str) -> None:
        self._lake._answered(text, None, AsRows())  # without Spark where it can be

    def _create(self, made: Made, name: str) -> None:
        plan = made.plan
        columns = ", ".join(
            [
                f"{ID} INT",
                *(f"{column.quoted} {column.sql}" for column in plan.columns),
                f"{MARK} INT",
            ]
        )
        parts = ", ".join(f"`{one}`" for one in plan.partition_by)
        properties = ", ".join(f"'{key}' = '{one}'" for key, one in plan.properties.items())
        self._run(
            f"CREATE TABLE {made.sql} ({columns}) USING DELTA"
            + (f" PARTITIONED BY ({parts})" if parts else "")
            + ("" if plan.is_path else f" LOCATION '{made.folder}'")
            + f" TBLPROPERTIES ({properties})"
        )

    def _write(self, made: Made) -> None:
        plan = made.plan
        for place, (writer, rows) in enumerate(plan.chunks):
            if place == plan.widened_before:
                for column in plan.columns:
                    if column.later is not None:
                        self._run(
                            f"ALTER TABLE {made.sql} ALTER COLUMN {column.quoted} "
                            f"TYPE {column.later}"
                        )
            later = plan.widened_before is not None and place >= plan.widened_before
            if rows or place == 0:
                _WRITES[writer](self, made, rows, later)
        if plan.writer in ("pyarrow", "duckdb"):
            types = {column.name: column.sql for column in plan.columns}
            parts = ", ".join(f"`{one}` {types[one]}" for one in plan.partition_by)
            self._run(
                f"CONVERT TO DELTA parquet.`{made.folder}`"
                + (f" PARTITIONED BY ({parts})" if parts else "")
            )

    def _step(self, made: Made, step: Step) -> None:
        ids = ", ".join(map(str, step.ids))
        match step.what:
            case "delete":
                self._run(f"DELETE FROM {made.sql} WHERE {ID} IN ({ids})")
            case "update":
                self._run(f"UPDATE {made.sql} SET {MARK} = 0 WHERE {ID} IN ({ids})")
            case "optimize":
                self._run(f"OPTIMIZE {made.sql}")
            case "checkpoint":
                self._run(
                    f"ALTER TABLE {made.sql} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')"
                )
            case other:
                raise ValueError(f"no step {other}")

    def _frame(self, plan: Plan, rows: pa.Table, *, later: bool) -> DataFrame:
        types = [(one.name, one.kind.sql if later else one.sql) for one in plan.columns]
        fields = [(ID, "INT"), *types, (MARK, "INT")]
        schema = ", ".join(f"`{name}` {sql}" for name, sql in fields)
        typed = StructType.fromDDL(schema)
        assert isinstance(typed, StructType)
        assert self._spark is not None
        return self._spark.createDataFrame(rows, typed)

    # The writers

    def _values(self, made: Made, rows: Sequence[Row], later: bool) -> None:
        plan = made.plan
        types = {one.name: one.kind.sql if later else one.sql for one in plan.columns}
        types = {ID: "INT", **types, MARK: "INT"}
        shown = (f"({', '.join(_text(types[name], row[name]) for name in types)})" for row in rows)
        self._run(f"INSERT INTO {made.sql} VALUES {', '.join(shown)}")

    def _insert(self, made: Made, rows: Sequence[Row], later: bool) -> None:
        table = arrow_of(made.plan, rows, later=later)
        self._frame(made.plan, table, later=later).createOrReplaceTempView("asked_rows")
        try:
            self._run(f"INSERT INTO {made.sql} SELECT * FROM asked_rows")
        finally:
            assert self._spark is not None
            self._spark.catalog.dropTempView("asked_rows")

    def _spark_frame(self, made: Made, rows: Sequence[Row], later: bool) -> None:
        table = arrow_of(made.plan, rows, later=later)
        self._lake.write(self._frame(made.plan, table, later=later), made.call, "append")

    def _arrow(self, made: Made, rows: Sequence[Row], later: bool) -> None:
        self._lake.write(arrow_of(made.plan, rows, later=later), made.call, "append")

    def _delta_rs(self, made: Made, rows: Sequence[Row], later: bool) -> None:
        group = made.plan.group_rows
        options: dict[str, Any] = {}
        if group is not None:
            options["writer_properties"] = WriterProperties(max_row_group_size=group)
        write_deltalake(
            made.folder,
            arrow_of(made.plan, rows, later=later),
            mode="append",
            partition_by=list(made.plan.partition_by) or None,
            **options,
        )

    def _polars(self, made: Made, rows: Sequence[Row], later: bool) -> None:
        options = {"partition_by": list(made.plan.partition_by)} if made.plan.partition_by else {}
        frame = pl.from_arrow(arrow_of(made.plan, rows, later=later))
        assert isinstance(frame, pl.DataFrame)
        frame.write_delta(str(made.folder), mode="append", delta_write_options=options)

    def _pyarrow(self, made: Made, rows: Sequence[Row], later: bool) -> None:
        plan = made.plan
        table = arrow_of(plan, rows, later=later)
        folders: dict[str, list[int]] = {}
        for place, row in enumerate(rows):
            folders.setdefault(_folder(plan, row), []).append(place)
        for folder, places in folders.items():
            target = made.folder / folder
            target.mkdir(parents=True, exist_ok=True)
            pq.write_table(
                table.take(places).drop_columns(list(plan.partition_by)),
                target / f"{rows[places[0]][ID]:05}.parquet",
                row_group_size=plan.group_rows,
                write_page_index=plan.group_rows != 7,
                data_page_size=None if plan.group_rows is None else 16,
            )

    def _duckdb(self, made: Made, rows: Sequence[Row], later: bool) -> None:
        made.folder.mkdir(parents=True, exist_ok=True)
        table = arrow_of(made.plan, rows, later=later)
        with duckdb.connect(config={"threads": 1}) as duck:
            duck.register("drawn", table)
            target = made.folder / f"{rows[0][ID]:05}.parquet"
            duck.execute(f"COPY (SELECT * FROM drawn) TO '{target}' (FORMAT parquet)")

    def _delta_spark(self, made: Made, rows: Sequence[Row], later: bool) -> None:
        plan = made.plan
        table = arrow_of(plan, rows, later=later)
        writer = self._frame(plan, table, later=later).write.format("delta").mode("append")
        if plan.partition_by:
            writer = writer.partitionBy(*plan.partition_by)
        writer.options(**plan.properties).save(str(made.folder))


_WRITES: Mapping[str, Callable[[Maker, Made, Sequence[Row], bool], None]] = {
    "values": Maker._values,
    "insert": Maker._insert,
    "spark-frame": Maker._spark_frame,
    "arrow": Maker._arrow,
    "delta-rs": Maker._delta_rs,
    "polars": Maker._polars,
    "pyarrow": Maker._pyarrow,
    "duckdb": Maker._duckdb,
    "delta-spark": Maker._delta_spark,
}


def _text(sql: str, value: Any) -> str:
    return "NULL" if value is None else literal(sql, value)


def _folder(plan: Plan, row: Row) -> str:
    """The folder of a row, by Hive's rules, for types that have plain texts."""
    parts = []
    for name in plan.partition_by:
        value = row[name]
        is_null = value is None or value == ""
        parts.append(
            f"{escape_partition(name)}={_NULL_FOLDER if is_null else escape_partition(str(value))}"
        )
    return "/".join(parts)
