"""Questions without Spark, and many of them: conditions that the log models.

The reference is `model.py`. The ways are the log's predicates over rows and files, and statements
that the driver carries out without Spark. Questions that need Spark are skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

import txlake
from tests.ask.conditions import Condition, ConditionGenerator
from tests.ask.making import CreatedTable, TableMaker
from tests.ask.model import NotModelled, evaluate
from tests.ask.tables import ID, MARK, OWN_WRITERS, Plan, as_arrow, random_plan
from tests.zones import BERLIN, zone_of
from txlake.errors import InvalidRequest
from txlake.lake.read_versions import named_table
from txlake.log.predicates import Predicate, bind, parse_predicate
from txlake.log.skipping import may_match, must_match, rows_may_match, rows_must_match
from txlake.log.time_zones import UTC_ZONE, ZoneRules
from txlake.protocol.paths import decode_path
from txlake.session.command import AsRows
from txlake.settings import Settings
from txlake.spark.plane import SparkPlane
from txlake.spark.table_access import TableAccess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txlake.log.snapshot import Snapshot

WRITERS = ("arrow", "delta-rs", "polars", "pyarrow", "duckdb")
_STEPS = ("delete", "update", "checkpoint")


class _NeedsSpark(Exception):
    """A statement needs a Spark session."""


def _refuse_spark() -> SparkSession:
    raise _NeedsSpark


_ZONES = (UTC_ZONE, BERLIN, zone_of(5.5), zone_of(-8))


class OfflineMachine:
    """A lake whose Spark never starts."""

    def __init__(self, scratch: Path) -> None:
        settings = Settings(allow_outside_paths=("*",))
        self._lake = txlake.connect(str(scratch / "lake"), settings=settings)
        plane: Any = self._lake._session.engine.plane
        plane.make_spark = _refuse_spark
        self.zone: ZoneRules = UTC_ZONE
        self._stored = (SparkPlane.time_zone, TableAccess.time_zone)
        zone = property(lambda _: self.zone)
        SparkPlane.time_zone = TableAccess.time_zone = zone  # type: ignore[assignment, method-assign]
        self._maker = TableMaker(self._lake, scratch)
        self.questions = 0
        self.counts: dict[str, int] = {}

    def close(self) -> None:
        """Close the lake."""
        SparkPlane.time_zone, TableAccess.time_zone = self._stored  # type: ignore[method-assign]
        self._lake.close()

    def seed(self, seed: int, questions: int) -> Sequence[str]:
        """Ask questions about a seed's table; return the problems."""
        rng = Random(seed)
        self.zone = rng.choice(_ZONES)
        plan = _offline_plan(random_plan(rng, WRITERS, (1, 3, 10, 40), is_flat=rng.random() < 0.8))
        problems: list[str] = []
        try:
            with self._maker.table(plan) as table:
                run = _Run(self, table, rng)
                for number in range(questions):
                    generator = ConditionGenerator(
                        Random(f"{seed}/{number}"), plan.columns, run.pools
                    )
                    condition = generator.condition()
                    problems += [
                        f"seed {seed}, question {number}, {self.zone.name}: {condition.text()}: "
                        f"{one}"
                        f"\n  {plan.columns} {plan.partition_by} {dict(plan.properties)}"
                        f"\n  {[by for by, _ in plan.chunks]} {plan.rows[:12]}"
                        for one in run.problems_with(condition)
                    ]
        except _NeedsSpark:
            self.count("table needs Spark")
        except Exception as error:
            problems.append(f"seed {seed}: making {plan}: {type(error).__name__}: {error}")
        return problems

    def count(self, what: str) -> None:
        """Count one more occurrence."""
        self.counts[what] = self.counts.get(what, 0) + 1


def _offline_plan(plan: Plan) -> Plan:
    steps = tuple(step for step in plan.steps if step.what in _STEPS)
    chunks = tuple(("arrow" if by in OWN_WRITERS else by, rows) for by, rows in plan.chunks)
    return replace(plan, steps=steps, chunks=chunks)


class _Run:
    def __init__(self, machine: OfflineMachine, table: CreatedTable, rng: Random) -> None:
        self._machine = machine
        self._table = table
        self._rng = rng
        self._lake = machine._lake
        self._rows = table.plan.rows
        self.pools = {one.name: [row[one.name] for row in self._rows] for one in table.plan.columns}
        self._snapshot: Snapshot = self._lake._session.snapshot(named_table(table.call))
        self._arrow = as_arrow(table.plan, self._rows, widened=True)
        self._ids = tuple(row[ID] for row in self._rows)
        self._files = self._snapshot.select(None)
        self._ids_of_files = [self._ids_in(path) for path in self._files["path"].to_pylist()]

    def _ids_in(self, path: str) -> frozenset[int]:
        place = self._table.folder / decode_path(path)
        item = self._snapshot.schema.find(ID)
        assert item is not None
        column = pq.ParquetFile(place).read([item.physical_name]).column(0)
        return frozenset(column.to_pylist()) & frozenset(self._ids)

    def problems_with(self, condition: Condition) -> list[str]:
        """Return the problems of a condition's answers; an error is one."""
        try:
            return self._ask(condition)
        except Exception as error:
            return [f"{type(error).__name__}: {error}"]

    def _ask(self, condition: Condition) -> list[str]:
        text = condition.text()
        try:
            predicate = bind(
                parse_predicate(text), self._snapshot.schema, time_zone=self._machine.zone
            )
            reference = [evaluate(predicate, row) for row in self._rows]
        except (InvalidRequest, NotModelled):
            self._machine.count("Spark's")
            return []
        self._machine.questions += 1
        true = tuple(one for one, found in zip(self._ids, reference, strict=True) if found)
        problems = [*self._check_rows(predicate, reference), *self._check_files(predicate, true)]
        for way in self._rng.sample(("query", "DELETE", "UPDATE"), 1):
            try:
                found = self._statement(way, text)
            except _NeedsSpark:
                self._machine.count(f"{way} needs Spark")
                continue
            self._machine.count(way)
            if found != true:
                problems.append(f"{way}: {found} for {true}")
        return problems

    def _check_rows(self, predicate: Predicate, reference: Sequence[bool | None]) -> list[str]:
        schema = self._snapshot.schema
        may = rows_may_match(predicate, self._arrow, schema).to_pylist()
        must = rows_must_match(predicate, self._arrow, schema).to_pylist()
        return [
            f"row {one}: it is {found}, may be {may[place]}, must be {must[place]}"
            for place, (one, found) in enumerate(zip(self._ids, reference, strict=True))
            if (found and not may[place]) or (must[place] and not found)
        ]

    def _check_files(self, predicate: Predicate, true: Sequence[int]) -> list[str]:
        files, schema = self._files, self._snapshot.schema
        parts = self._snapshot.partition_columns
        may = may_match(predicate, files, schema, parts).to_pylist()
        must = must_match(predicate, files, schema, parts).to_pylist()
        problems = []
        for place, ids in enumerate(self._ids_of_files):
            matching = ids & set(true)
            if (matching and not may[place]) or (must[place] and matching != ids):
                stats = files["stats"][place].as_py()
                problems.append(
                    f"file with {sorted(ids)}: {sorted(matching)} match, may {may[place]}, must "
                    f"{must[place]}, {stats}"
                )
        return problems

    def _statement(self, way: str, text: str) -> tuple[int, ...]:
        table = self._table.sql
        if way == "query":
            return self._driver_ids(self._lake, f"SELECT {ID} FROM {table} WHERE {text}")
        tx = self._lake.begin()
        try:
            if way == "DELETE":
                tx._run_sql(f"DELETE FROM {table} WHERE {text}", None, AsRows())
                left = self._driver_ids(tx, f"SELECT {ID} FROM {table}")
                return tuple(sorted(set(self._ids).difference(left)))
            tx._run_sql(f"UPDATE {table} SET {MARK} = 1 WHERE {text}", None, AsRows())
            return self._driver_ids(tx, f"SELECT {ID} FROM {table} WHERE {MARK} = 1")
        finally:
            tx.rollback()

    def _driver_ids(self, lake: Any, query: str) -> tuple[int, ...]:
        return tuple(sorted(row[0] for row in lake._run_sql(query, None, AsRows()).rows))
