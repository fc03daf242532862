"""Tables on disk that a data plane works on, without a session: SQL in, rows out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txlake.commit.change import Change
from txlake.commit.data_plane import DataPlane, Placement, Rows
from txlake.commit.table_log import TableLog
from txlake.commit.table_transaction import TableTransaction
from txlake.ddl.create import create
from txlake.ddl.environment import Environment
from txlake.ddl.schema_evolution import schema_actions
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add
from txlake.settings import Settings
from txlake.spark.manifest import Manifests
from txlake.spark.plane import SparkPlane, SparkTable
from txlake.sql import parse
from txlake.sql.statements import (
    ComputedValues,
    CreateTable,
    Delete,
    Expression,
    Insert,
    Merge,
    NativeFrame,
    Query,
    Source,
    SqlText,
    Statement,
    Update,
    Values,
)
from txlake.storage import open_store
from txlake.system import System

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SYSTEM = System()
MANIFESTS = Manifests(SYSTEM)
VECTORS: Mapping[str, str] = {"delta.enableDeletionVectors": "true"}
NO_VECTORS: Mapping[str, str] = {"delta.enableDeletionVectors": "false"}


def no_spark() -> SparkSession:
    raise AssertionError("no Spark job was expected")


@dataclass
class PathTable:
    """A Delta table in a folder. `changes`: what each statement did, newest last."""

    folder: Path
    plane: Any
    settings: Settings
    log: TableLog
    changes: list[Change]

    @property
    def spark(self) -> SparkSession:
        session: SparkSession = self.plane.spark
        return session

    @property
    def snapshot(self) -> Snapshot:
        return self.log.latest()

    def work(self, *, name: str | None = "t") -> SparkTable:
        made: SparkTable = self.plane.table(
            self.snapshot,
            self.log.store,
            system=SYSTEM,
            name=name,
            allowed=lambda: self.settings.allow_outside_paths,
        )
        return replace(made, settings=self.settings)

    def without_spark(self) -> PathTable:
        """The same table, where starting Spark fails the test."""
        return replace(self, plane=spark_plane(no_spark, self.settings))

    # Changes

    def run(self, sql: str) -> Change:
        """Carries out a statement that changes rows of the table, which it calls `t`."""
        (statement,) = parse(sql)
        return self.commit(self.change_of(statement))

    def tried(self, sql: str) -> tuple[Change, list[tuple[Any, ...]]]:
        """What a statement would change, and all rows as they would be; nothing is committed."""
        (statement,) = parse(sql)
        change = self.change_of(statement)
        after = self.snapshot.apply(change.actions)
        frame = replace(self.work(), snapshot=after).scan(after.select(None))
        return change, sorted(map(tuple, frame.collect()), key=repr)

    def change_of(self, statement: Statement) -> Change:
        work = self.work()
        match statement:
            case Insert(source=source, columns=columns, by_name=by_name):
                rows = self._rows(source)
                placement = Placement(by_name=by_name, columns=columns)
                if statement.replace_where is not None:
                    return work.replace_where(rows, placement, statement.replace_where)
                return (work.overwrite if statement.overwrite else work.append)(rows, placement)
            case Delete(condition=condition, alias=alias):
                return work.delete(condition, alias)
            case Update(assignments=assignments, condition=condition, alias=alias):
                return work.update(assignments, condition, alias)
            case Merge(source=source):
                rows = self._rows(source)
                return work.merge(statement, rows, partial(_evolved, work.snapshot))
            case _:
                raise AssertionError(statement)

    def _rows(self, source: Source) -> Any:
        match source:
            case Query(sql):
                return self.plane.query(sql.text, {})
            case NativeFrame(frame):
                return frame
            case Values() | ComputedValues():
                return source

    def append(self, rows: Rows) -> Change:
        return self.commit(self.work().append(rows, Placement()))

    def overwrite(self, rows: Rows) -> Change:
        return self.commit(self.work().overwrite(rows, Placement()))

    def replace_where(self, rows: Rows, condition: str) -> Change:
        text = SqlText(condition)
        return self.commit(self.work().replace_where(rows, Placement(), text))

    def overwrite_partitions(self, rows: Rows) -> Change:
        return self.commit(self.work().overwrite_partitions(rows, Placement()))

    def compact(self, where: str | None = None, *, purge: bool = False) -> Change:
        condition = None if where is None else SqlText(where)
        return self.commit(self.work().compact(condition, purge=purge))

    def zorder(self, *columns: str, where: Expression | None = None) -> Change:
        return self.commit(self.work().zorder(columns, where))

    def commit(self, change: Change) -> Change:
        transaction = TableTransaction(self.log, self.snapshot)
        for read in change.reads:
            transaction.read(read.predicate, read.text, files=read.files)
        if change.actions:
            transaction.stage(
                change.actions,
                operation=change.operation,
                parameters=change.parameters,
                metrics=change.metrics,
                identity_marks=change.identity_marks,
            )
            transaction.commit()
        self.changes.append(change)
        return change

    # What is there

    def frame(self, version: int | None = None, *, positions: bool = False) -> DataFrame:
        work = self.work()
        if version is not None:
            work = replace(work, snapshot=self.log.snapshot(version))
        return work.scan(work.snapshot.select(None), positions=positions)

    def rows(self, version: int | None = None) -> list[tuple[Any, ...]]:
        """All rows as tuples, sorted."""
        return sorted(map(tuple, self.frame(version).collect()), key=repr)

    def adds(self) -> list[Add]:
        return list(self.snapshot.files.adds())

    def data_files(self) -> set[str]:
        """The Parquet files in the folder, live or not, relative to it."""
        found = (path.relative_to(self.folder) for path in self.folder.rglob("*.parquet"))
        return {str(path) for path in found if path.parts[0] != "_delta_log"}


def spark_plane(start: Callable[[], SparkSession], settings: Settings) -> SparkPlane:
    """Spark's plane, whose manifests all tests share."""
    return SparkPlane(
        make_spark=start,
        system=SYSTEM,
        settings=settings,
        open_store=open_store,
        _manifests=MANIFESTS,
    )


def table(
    folder: Path,
    spark: SparkSession | None,
    columns: str,
    *,
    partitioned_by: str | None = None,
    properties: Mapping[str, str] | None = None,
    settings: Settings | None = None,
    plane: DataPlane | None = None,
) -> PathTable:
    """A new table on Spark's plane, or another. `columns` as in CREATE TABLE, with constraints."""
    clause = "" if partitioned_by is None else f" PARTITIONED BY ({partitioned_by})"
    (statement,) = parse(f"CREATE TABLE t ({columns}){clause}")
    assert isinstance(statement, CreateTable)
    statement = replace(statement, properties=tuple((properties or {}).items()))
    change = create(statement, None, _environment())
    assert change is not None
    chosen = settings or Settings()
    log = TableLog(open_store(str(folder)), SYSTEM, chosen, name="t")
    transaction = TableTransaction(log, None)
    transaction.stage(change.actions, operation=change.operation)
    transaction.commit()
    if plane is None:
        assert spark is not None
        plane = spark_plane(lambda: spark, chosen)
    return PathTable(folder, plane, chosen, log, [])


def _evolved(snapshot: Snapshot, schema: Any) -> Any:
    return schema_actions(snapshot, schema, _environment())


def _environment() -> Environment:
    return Environment(now_ms=SYSTEM.now_ms(), new_id=SYSTEM.new_id)
