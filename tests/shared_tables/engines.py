"""The engines beside each other: each carries out operations and reads versions, in its own way.

Each engine runs in a worker process (worker.py). `apply` raises what the engine raises; `conflict`
tells the errors after which one tries again from those that are real.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import pyarrow as pa

from tests.shared_tables.operations import Operation, Value, sql_type

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession


class Engine(Protocol):
    """What a worker asks of its engine."""

    def apply(self, folder: str, operation: Operation) -> None:
        """Carries the operation out; its commit's `userMetadata` is the marker."""

    def read(self, folder: str, version: int) -> pa.Table:
        """The rows at this version."""

    def sql(self, statement: str) -> list[str]:
        """Run a statement; its rows as text. Refused by an engine without SQL."""

    def conflict(self, error: Exception) -> bool:
        """Whether another writer was faster, so that the same operation may be tried again."""


def lines(table: pa.Table) -> list[str]:
    """Each row as text, sorted; equal between engines just when the rows are."""
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in table.to_pylist())


def _values(rows: Sequence[Sequence[Value]]) -> str:
    return ", ".join(
        "(" + ", ".join(f"'{v}'" if isinstance(v, str) else str(v) for v in row) + ")"
        for row in rows
    )


def by_place(folder: str) -> str:
    """How SQL names the table in a folder."""
    return f"delta.`{folder}`"


def statement(table: str, operation: Operation) -> str:
    """The operation in SQL, as Spark's engines understand it; `table` is its name there."""
    names = ", ".join(operation.names)
    match operation.kind:
        case "append":
            return f"INSERT INTO {table} ({names}) VALUES {_values(operation.rows)}"
        case "update":
            return f"UPDATE {table} SET n = n + {operation.by} WHERE {operation.where}"
        case "delete":
            return f"DELETE FROM {table} WHERE {operation.where}"
        case "merge":
            values = ", ".join(f"u.{name}" for name in operation.names)
            return (
                f"MERGE INTO {table} t USING (SELECT * FROM VALUES {_values(operation.rows)} "
                f"AS r({names})) u ON t.id = u.id WHEN MATCHED THEN UPDATE SET n = t.n + u.n "
                f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})"
            )
        case "overwrite":
            return f"INSERT OVERWRITE {table} ({names}) VALUES {_values(operation.rows)}"
        case "truncate":
            return f"TRUNCATE TABLE {table}"
        case "restore":
            return f"RESTORE TABLE {table} TO VERSION AS OF {operation.low}"
        case "optimize":
            return f"OPTIMIZE {table}"
        case "reorg":
            return f"REORG TABLE {table} APPLY (PURGE)"
        case "add_column":
            return f"ALTER TABLE {table} ADD COLUMNS ({operation.column} BIGINT)"
        case "rename_column":
            return f"ALTER TABLE {table} RENAME COLUMN {operation.column} TO {operation.to}"
        case "drop_column":
            return f"ALTER TABLE {table} DROP COLUMN {operation.column}"
        case "widen":
            return f"ALTER TABLE {table} ALTER COLUMN {operation.column} TYPE BIGINT"
        case other:
            raise ValueError(f"no statement for {other}")


class Txlake:
    """txlake, on a Spark without Delta's jars."""

    def __init__(self, spark: SparkSession, warehouse: str) -> None:
        import txlake

        self._lake = txlake.connect(warehouse, spark=spark)

    def apply(self, folder: str, operation: Operation) -> None:
        with self._lake.transaction() as transaction:
            transaction._own_transaction().user_metadata = operation.marker
            transaction.sql(statement(by_place(folder), operation))

    def read(self, folder: str, version: int) -> pa.Table:
        return self._lake.read(folder, version=version).toArrow()

    def sql(self, statement: str) -> list[str]:
        return lines(self._lake.sql(statement).toArrow())

    def conflict(self, error: Exception) -> bool:
        from txlake.errors import Conflict

        return isinstance(error, Conflict)


class DeltaSpark:
    """Delta Spark, in a Spark with its extension."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def apply(self, folder: str, operation: Operation) -> None:
        name = "spark.databricks.delta.commitInfo.userMetadata"
        self._spark.conf.set(name, operation.marker)
        try:
            if operation.kind == "checkpoint":
                jvm = self._spark._jvm
                assert jvm is not None
                log = jvm.org.apache.spark.sql.delta.DeltaLog
                log.forTable(self._spark._jsparkSession, folder).checkpoint()
            else:
                self._spark.sql(statement(by_place(folder), operation)).collect()
        finally:
            self._spark.conf.unset(name)

    def read(self, folder: str, version: int) -> pa.Table:
        return (
            self._spark.read.option("versionAsOf", version).format("delta").load(folder).toArrow()
        )

    def sql(self, statement: str) -> list[str]:
        if statement == "features":
            jvm = self._spark._jvm
            assert jvm is not None
            known = jvm.org.apache.spark.sql.delta.TableFeature.allSupportedFeaturesMap()
            features = known.values().iterator()
            names = []
            while features.hasNext():
                names.append(str(features.next().name()))
            return sorted(names)
        return lines(self._spark.sql(statement).toArrow())

    def conflict(self, error: Exception) -> bool:
        text = str(error)
        return any(
            name in text
            for name in (
                "DELTA_CONCURRENT_",
                "DELTA_METADATA_CHANGED",
                "DELTA_PROTOCOL_CHANGED",
                # A column was added while the statement ran.
                "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS",
                "io.delta.exceptions.Concurrent",
                "io.delta.exceptions.MetadataChanged",
                "io.delta.exceptions.ProtocolChanged",
            )
        )


class DeltaRs:
    """delta-rs."""

    def apply(self, folder: str, operation: Operation) -> None:
        from deltalake import CommitProperties, DeltaTable

        about: dict[str, Any] = {
            "commit_properties": CommitProperties(
                custom_metadata={"userMetadata": operation.marker}
            )
        }
        table = DeltaTable(folder)
        if operation.behind:
            table.load_as_version(max(1, table.version() - operation.behind))
        match operation.kind:
            case "append":
                self._append(table, operation, about)
            case "update":
                table.update({"n": f"n + {operation.by}"}, predicate=operation.where, **about)
            case "delete":
                table.delete(operation.where, **about)
            case "merge":
                self._merge(table, operation, about)
            case "optimize":
                table.optimize.compact(**about)
            case "add_column":
                from deltalake.schema import Field, PrimitiveType

                field = Field(operation.column, PrimitiveType("long"))
                table.alter.add_columns(field, **about)
            case other:
                raise ValueError(f"no {other} in delta-rs")

    def _append(self, table: DeltaTable, operation: Operation, about: dict[str, Any]) -> None:
        from deltalake import write_deltalake

        rows = _arrow(operation)
        # delta-rs takes rows without some of the columns only where it may change the schema, and
        # where columns are mapped it may not.
        mode: Literal["merge"] | None = "merge"
        if "delta.columnMapping.mode" in table.metadata().configuration:
            mode = None
            for field in table.schema().fields:
                if field.name not in operation.names:
                    rows = rows.append_column(field.name, pa.nulls(len(rows), pa.int64()))
        write_deltalake(table, rows, mode="append", schema_mode=mode, **about)

    def _merge(self, table: DeltaTable, operation: Operation, about: dict[str, Any]) -> None:
        merger = table.merge(
            _arrow(operation), "t.id = u.id", source_alias="u", target_alias="t", **about
        )
        values = {name: f"u.{name}" for name in operation.names}
        merger.when_matched_update({"n": "t.n + u.n"}).when_not_matched_insert(values).execute()

    def read(self, folder: str, version: int) -> pa.Table:
        from deltalake import DeltaTable, QueryBuilder

        query = QueryBuilder().register("t", DeltaTable(folder, version=version))
        return pa.table(query.execute("SELECT * FROM t").read_all())

    def sql(self, statement: str) -> list[str]:
        raise ValueError(f"no SQL here: {statement}")

    def conflict(self, error: Exception) -> bool:
        from deltalake.exceptions import CommitFailedError

        # The same class when delta-rs doesn't support what the table asks of its writers.
        return isinstance(error, CommitFailedError) and "Unsupported" not in str(error)


class Polars:
    """polars, a reader."""

    def apply(self, folder: str, operation: Operation) -> None:
        raise ValueError(f"nothing is written by polars here: {operation}")

    def read(self, folder: str, version: int) -> pa.Table:
        import polars

        return polars.scan_delta(folder, version=version).collect().to_arrow()

    def sql(self, statement: str) -> list[str]:
        raise ValueError(f"no SQL here: {statement}")

    def conflict(self, error: Exception) -> bool:
        return False


def _arrow(operation: Operation) -> pa.Table:
    kinds = {"STRING": pa.string(), "BIGINT": pa.int64()}
    columns = zip(*operation.rows, strict=True)
    return pa.table(
        {
            name: pa.array(list(values), kinds[sql_type(name)])
            for name, values in zip(operation.names, columns, strict=True)
        }
    )
