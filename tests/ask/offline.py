"""Questions that are answered without Spark, and many of them: conditions that the log models.

The reference is `model.py`; the ways are the log's predicates over rows and over files, and the
statements that this process carries out alone. What needs Spark isn't asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

import txlake
from tests.ask.conditions import Condition, Drawing
from tests.ask.making import Made, Maker
from tests.ask.model import NotModelled, holds
from tests.ask.tables import ID, MARK, OWN_WRITERS, Plan, arrow_of, draw
from tests.zones import BERLIN, zone_of
from txlake.errors import InvalidRequest
from txlake.lake.statements import named_table
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
    """A statement wants a Spark session."""


def _no_spark() -> SparkSession:
    raise _NeedsSpark


_ZONES = (UTC_ZONE, BERLIN, zone_of(5.5), zone_of(-8))


class Offline:
    """A lake whose Spark never starts."""

    def __init__(self, scratch: Path) -> None:
        settings = Settings(allow_outside_paths=("*",))
        self._lake = txlake.connect(str(scratch / "lake"), settings=settings)
        plane: Any = self._lake._session.engine.plane
        plane.make_spark = _no_spark
        self.zone: ZoneRules = UTC_ZONE
        self._kept = (SparkPlane.time_zone, TableAccess.time_zone)
        zone = property(lambda _: self.zone)
        SparkPlane.time_zone = TableAccess.time_zone = zone  # type: ignore[assignment, method-assign]
        self._maker = Maker(self._lake, scratch)
        self.questions = 0
        self.answers: dict[str, int] = {}

    def close(self) -> None:
        """Closes the lake."""
        SparkPlane.time_zone, TableAccess.time_zone = self._kept  # type: ignore[method-assign]
        self._lake.close()

    def seed(self, seed: int, questions: int) -> Sequence[str]:
        """Asks questions about a seed's table; what is wrong."""
        luck = Random(seed)
        self.zone = luck.choice(_ZONES)
        plan = _offline(draw(luck, WRITERS, (1, 3, 10, 40), is_flat=luck.random() < 0.8))
        wrong: list[str] = []
        try:
            with self._maker.table(plan) as made:
                run = _Run(self, made, luck)
                for number in range(questions):
                    drawing = Drawing(Random(f"{seed}/{number}"), plan.columns, run.pools)
                    condition = drawing.condition()
                    wrong += [
                        f"seed {seed}, question {number}, {self.zone.name}: {condition.text()}: "
                        f"{one}"
                        f"\n  {plan.columns} {plan.partition_by} {dict(plan.properties)}"
                        f"\n  {[by for by, _ in plan.chunks]} {plan.rows[:12]}"
                        for one in run.answers(condition)
                    ]
        except _NeedsSpark:
            self.count("table needs Spark")
        except Exception as error:
            wrong.append(f"seed {seed}: making {plan}: {type(error).__name__}: {error}")
        return wrong

    def count(self, what: str) -> None:
        """One more of what happened."""
        self.answers[what] = self.answers.get(what, 0) + 1


def _offline(plan: Plan) -> Plan:
    steps = tuple(step for step in plan.steps if step.what in _STEPS)
    chunks = tuple(("arrow" if by in OWN_WRITERS else by, rows) for by, rows in plan.chunks)
    return replace(plan, steps=steps, chunks=chunks)


class _Run:
    def __init__(self, machine: Offline, made: Made, luck: Random) -> None:
        self._machine = machine
        self._made = made
        self._luck = luck
        self._lake = machine._lake
        self._rows = made.plan.rows
        self.pools = {one.name: [row[one.name] for row in self._rows] for one in made.plan.columns}
        self._snapshot: Snapshot = self._lake._session.snapshot(named_table(made.call))
        self._arrow = arrow_of(made.plan, self._rows, later=True)
        self._ids = tuple(row[ID] for row in self._rows)
        self._files = self._snapshot.select(None)
        self._ids_of_files = [self._ids_in(path) for path in self._files["path"].to_pylist()]

    def _ids_in(self, path: str) -> frozenset[int]:
        place = self._made.folder / decode_path(path)
        item = self._snapshot.schema.find(ID)
        assert item is not None
        column = pq.ParquetFile(place).read([item.physical_name]).column(0)
        return frozenset(column.to_pylist()) & frozenset(self._ids)

    def answers(self, condition: Condition) -> list[str]:
        """What is wrong with the answers; an error is."""
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
            truth = [holds(predicate, row) for row in self._rows]
        except (InvalidRequest, NotModelled):
            self._machine.count("Spark's")
            return []
        self._machine.questions += 1
        true = tuple(one for one, found in zip(self._ids, truth, strict=True) if found)
        wrong = [*self._of_rows(predicate, truth), *self._of_files(predicate, true)]
        for way in self._luck.sample(("query", "DELETE", "UPDATE"), 1):
            try:
                found = self._statement(way, text)
            except _NeedsSpark:
                self._machine.count(f"{way} needs Spark")
                continue
            self._machine.count(way)
            if found != true:
                wrong.append(f"{way}: {found} for {true}")
        return wrong

    def _of_rows(self, predicate: Predicate, truth: Sequence[bool | None]) -> list[str]:
        schema = self._snapshot.schema
        may = rows_may_match(predicate, self._arrow, schema).to_pylist()
        must = rows_must_match(predicate, self._arrow, schema).to_pylist()
        return [
            f"row {one}: it is {found}, may be {may[place]}, must be {must[place]}"
            for place, (one, found) in enumerate(zip(self._ids, truth, strict=True))
            if (found and not may[place]) or (must[place] and not found)
        ]

    def _of_files(self, predicate: Predicate, true: Sequence[int]) -> list[str]:
        files, schema = self._files, self._snapshot.schema
        parts = self._snapshot.partition_columns
        may = may_match(predicate, files, schema, parts).to_pylist()
        must = must_match(predicate, files, schema, parts).to_pylist()
        wrong = []
        for place, ids in enumerate(self._ids_of_files):
            matching = ids & set(true)
            if (matching and not may[place]) or (must[place] and matching != ids):
                stats = files["stats"][place].as_py()
                wrong.append(
                    f"file with {sorted(ids)}: {sorted(matching)} match, may {may[place]}, must "
                    f"{must[place]}, {stats}"
                )
        return wrong

    def _statement(self, way: str, text: str) -> tuple[int, ...]:
        table = self._made.sql
        if way == "query":
            return self._ids_here(self._lake, f"SELECT {ID} FROM {table} WHERE {text}")
        tx = self._lake.begin()
        try:
            if way == "DELETE":
                tx._answered(f"DELETE FROM {table} WHERE {text}", None, AsRows())
                left = self._ids_here(tx, f"SELECT {ID} FROM {table}")
                return tuple(sorted(set(self._ids).difference(left)))
            tx._answered(f"UPDATE {table} SET {MARK} = 1 WHERE {text}", None, AsRows())
            return self._ids_here(tx, f"SELECT {ID} FROM {table} WHERE {MARK} = 1")
        finally:
            tx.rollback()

    def _ids_here(self, lake: Any, query: str) -> tuple[int, ...]:
        return tuple(sorted(row[0] for row in lake._answered(query, None, AsRows()).rows))
