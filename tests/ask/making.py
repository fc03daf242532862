"""Creates random tables: each writer puts rows into a folder, and the lake does the rest."""

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
from tests.ask.tables import ID, MARK, OWN_WRITERS, Plan, Row, Step, as_arrow
from txlake.protocol.paths import escape_partition
from txlake.session.command import AsRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txlake.lake.lake import Lake

_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class CreatedTable:
    """A table that exists.

    Attributes:
        sql: its name in statements.
        call: its name in method calls.
        folder: its folder.
    """

    plan: Plan
    sql: str
    call: str
    folder: Path


class TableMaker:
    """Creates tables in a lake, and drops them."""

    def __init__(self, lake: Lake, scratch: Path, spark: SparkSession | None = None) -> None:
        self._spark = spark
        self._lake = lake
        self._scratch = scratch
        self._count = 0

    def memory(self, plan: Plan) -> DataFrame:
        """Return the table's rows in Spark's memory, where no reader can skip anything."""
        return self._frame(plan, as_arrow(plan, plan.rows, widened=True), widened=True)

    @contextmanager
    def table(self, plan: Plan) -> Iterator[CreatedTable]:
        """Create the table, and drop it at the end of this block."""
        self._count += 1
        name = f"t{self._count}"
        folder = self._scratch / "tables" / name
        table = CreatedTable(
            plan,
            f"delta.`{folder}`" if plan.is_path else name,
            str(folder) if plan.is_path else name,
            folder,
        )
        try:
            if plan.writer in OWN_WRITERS:
                self._create(table, name)
            self._write(table)
            if not plan.is_path and plan.writer not in OWN_WRITERS:
                self._lake.attach(str(folder), name)
            for step in plan.steps:
                self._step(table, step)
            yield table
        finally:
            if not plan.is_path:
                with suppress(Exception):
                    self._run(f"DROP TABLE IF EXISTS {name}")
            shutil.rmtree(folder, ignore_errors=True)

    def _run(self, text: str) -> None:
        self._lake._run_sql(text, None, AsRows())  # without Spark where it can be

    def _create(self, table: CreatedTable, name: str) -> None:
        plan = table.plan
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
            f"CREATE TABLE {table.sql} ({columns}) USING DELTA"
            + (f" PARTITIONED BY ({parts})" if parts else "")
            + ("" if plan.is_path else f" LOCATION '{table.folder}'")
            + f" TBLPROPERTIES ({properties})"
        )

    def _write(self, table: CreatedTable) -> None:
        plan = table.plan
        for place, (writer, rows) in enumerate(plan.chunks):
            if place == plan.widened_before:
                for column in plan.columns:
                    if column.widened is not None:
                        self._run(
                            f"ALTER TABLE {table.sql} ALTER COLUMN {column.quoted} "
                            f"TYPE {column.widened}"
                        )
            widened = plan.widened_before is not None and place >= plan.widened_before
            if rows or place == 0:
                _WRITES[writer](self, table, rows, widened)
        if plan.writer in ("pyarrow", "duckdb"):
            types = {column.name: column.sql for column in plan.columns}
            parts = ", ".join(f"`{one}` {types[one]}" for one in plan.partition_by)
            self._run(
                f"CONVERT TO DELTA parquet.`{table.folder}`"
                + (f" PARTITIONED BY ({parts})" if parts else "")
            )

    def _step(self, table: CreatedTable, step: Step) -> None:
        ids = ", ".join(map(str, step.ids))
        match step.what:
            case "delete":
                self._run(f"DELETE FROM {table.sql} WHERE {ID} IN ({ids})")
            case "update":
                self._run(f"UPDATE {table.sql} SET {MARK} = 0 WHERE {ID} IN ({ids})")
            case "optimize":
                self._run(f"OPTIMIZE {table.sql}")
            case "checkpoint":
                self._run(
                    f"ALTER TABLE {table.sql} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')"
                )
            case other:
                raise ValueError(f"no step {other}")

    def _frame(self, plan: Plan, rows: pa.Table, *, widened: bool) -> DataFrame:
        types = [(one.name, one.kind.sql if widened else one.sql) for one in plan.columns]
        fields = [(ID, "INT"), *types, (MARK, "INT")]
        schema = ", ".join(f"`{name}` {sql}" for name, sql in fields)
        typed = StructType.fromDDL(schema)
        assert isinstance(typed, StructType)
        assert self._spark is not None
        return self._spark.createDataFrame(rows, typed)

    # The writers

    def _values(self, table: CreatedTable, rows: Sequence[Row], widened: bool) -> None:
        plan = table.plan
        types = {one.name: one.kind.sql if widened else one.sql for one in plan.columns}
        types = {ID: "INT", **types, MARK: "INT"}
        shown = (f"({', '.join(_text(types[name], row[name]) for name in types)})" for row in rows)
        self._run(f"INSERT INTO {table.sql} VALUES {', '.join(shown)}")

    def _insert(self, table: CreatedTable, rows: Sequence[Row], widened: bool) -> None:
        data = as_arrow(table.plan, rows, widened=widened)
        self._frame(table.plan, data, widened=widened).createOrReplaceTempView("asked_rows")
        try:
            self._run(f"INSERT INTO {table.sql} SELECT * FROM asked_rows")
        finally:
            assert self._spark is not None
            self._spark.catalog.dropTempView("asked_rows")

    def _spark_frame(self, table: CreatedTable, rows: Sequence[Row], widened: bool) -> None:
        data = as_arrow(table.plan, rows, widened=widened)
        self._lake.write(self._frame(table.plan, data, widened=widened), table.call, "append")

    def _arrow(self, table: CreatedTable, rows: Sequence[Row], widened: bool) -> None:
        self._lake.write(as_arrow(table.plan, rows, widened=widened), table.call, "append")

    def _delta_rs(self, table: CreatedTable, rows: Sequence[Row], widened: bool) -> None:
        group = table.plan.group_rows
        options: dict[str, Any] = {}
        if group is not None:
            options["writer_properties"] = WriterProperties(max_row_group_size=group)
        write_deltalake(
            table.folder,
            as_arrow(table.plan, rows, widened=widened),
            mode="append",
            partition_by=list(table.plan.partition_by) or None,
            **options,
        )

    def _polars(self, table: CreatedTable, rows: Sequence[Row], widened: bool) -> None:
        options = {"partition_by": list(table.plan.partition_by)} if table.plan.partition_by else {}
        frame = pl.from_arrow(as_arrow(table.plan, rows, widened=widened))
        assert isinstance(frame, pl.DataFrame)
        frame.write_delta(str(table.folder), mode="append", delta_write_options=options)

    def _pyarrow(self, table: CreatedTable, rows: Sequence[Row], widened: bool) -> None:
        plan = table.plan
        data = as_arrow(plan, rows, widened=widened)
        folders: dict[str, list[int]] = {}
        for place, row in enumerate(rows):
            folders.setdefault(_folder(plan, row), []).append(place)
        for folder, places in folders.items():
            target = table.folder / folder
            target.mkdir(parents=True, exist_ok=True)
            pq.write_table(
                data.take(places).drop_columns(list(plan.partition_by)),
                target / f"{rows[places[0]][ID]:05}.parquet",
                row_group_size=plan.group_rows,
                write_page_index=plan.group_rows != 7,
                data_page_size=None if plan.group_rows is None else 16,
            )

    def _duckdb(self, table: CreatedTable, rows: Sequence[Row], widened: bool) -> None:
        table.folder.mkdir(parents=True, exist_ok=True)
        data = as_arrow(table.plan, rows, widened=widened)
        with duckdb.connect(config={"threads": 1}) as duck:
            duck.register("drawn", data)
            target = table.folder / f"{rows[0][ID]:05}.parquet"
            duck.execute(f"COPY (SELECT * FROM drawn) TO '{target}' (FORMAT parquet)")

    def _delta_spark(self, table: CreatedTable, rows: Sequence[Row], widened: bool) -> None:
        plan = table.plan
        data = as_arrow(plan, rows, widened=widened)
        writer = self._frame(plan, data, widened=widened).write.format("delta").mode("append")
        if plan.partition_by:
            writer = writer.partitionBy(*plan.partition_by)
        writer.options(**plan.properties).save(str(table.folder))


_WRITES: Mapping[str, Callable[[TableMaker, CreatedTable, Sequence[Row], bool], None]] = {
    "values": TableMaker._values,
    "insert": TableMaker._insert,
    "spark-frame": TableMaker._spark_frame,
    "arrow": TableMaker._arrow,
    "delta-rs": TableMaker._delta_rs,
    "polars": TableMaker._polars,
    "pyarrow": TableMaker._pyarrow,
    "duckdb": TableMaker._duckdb,
    "delta-spark": TableMaker._delta_spark,
}


def _text(sql: str, value: Any) -> str:
    return "NULL" if value is None else literal(sql, value)


def _folder(plan: Plan, row: Row) -> str:
    """Return the folder of a row by Hive's rules, for types with plain texts."""
    parts = []
    for name in plan.partition_by:
        value = row[name]
        is_null = value is None or value == ""
        parts.append(
            f"{escape_partition(name)}={_NULL_FOLDER if is_null else escape_partition(str(value))}"
        )
    return "/".join(parts)
