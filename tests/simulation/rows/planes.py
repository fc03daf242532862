"""One lake, two planes: a session on Spark and a session on rows, given the same statements.

Owns what is compared of an answer: rows, counts, errors, the versions that a table has.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import txlake
from tests.simulation.rows import RowEngine, RowSession
from txlake.catalog import Catalog, sqlite_url
from txlake.conflict.levels import Level
from txlake.errors import Conflict, TxlakeError
from txlake.settings import Settings
from txlake.sql import parse
from txlake.sql.statements import TableName
from txlake.storage import open_store
from txlake.system import System

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Answer:
    """What a statement answered: rows, or an error's kind and, of a conflict, its rule."""

    rows: tuple[tuple[Any, ...], ...] = ()
    error: str = ""
    rule: str = ""


def plain(value: Any) -> Any:
    """A value of either plane, comparable: times without zone, lists and bytes alike."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).replace(tzinfo=None)
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return bytes(value) if isinstance(value, bytearray) else value


class Plane:
    """A session of either kind."""

    def __init__(self, run: Callable[[str], Any], name: str) -> None:
        self.name = name
        self._run = run

    def answer(self, sql: str) -> Answer:
        """The statement's rows in an order of their own, or how it failed."""
        try:
            rows = [tuple(map(plain, row)) for row in self._run(sql)]
        except Conflict as error:
            rule = "" if error.evidence is None else error.evidence.rule
            return Answer(error=type(error).__name__, rule=rule)
        except TxlakeError as error:
            return Answer(error=type(error).__name__)
        return Answer(tuple(sorted(rows, key=repr)))


class Planes:
    """Both sessions on one warehouse; each has tables of its own, named alike."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self.lake = txlake.connect(str(folder), spark=spark)
        system = System()
        url = sqlite_url(str(folder / "_txlake" / "catalog.db"))
        engine = RowEngine(
            system=system,
            settings=Settings(),
            warehouse=open_store(str(folder), {}),
            catalog=Catalog(url, system, lease_ms=Settings().lease_ms),
        )
        self.rows = RowSession(engine)
        self.writer = RowSession(engine).rows
        self._engine = engine
        self.spark = Plane(lambda sql: self.lake.sql(sql).collect(), "s")
        self.plain = Plane(self._collected, "r")
        self.both = (self.spark, self.plain)
        self._tables = 0

    def _collected(self, sql: str) -> list[tuple[Any, ...]]:
        frame: Any = None
        for statement in parse(sql):
            frame = self.rows.execute(statement)
        rows: list[tuple[Any, ...]] = frame.collect()
        return rows

    def tables(self) -> tuple[str, str]:
        """The names of two tables that aren't there yet, one a plane."""
        self._tables += 1
        return f"s{self._tables}", f"r{self._tables}"

    def at_level(self, level: Level | None) -> None:
        """The level of transactions from here on."""
        self.lake._session.level = self.rows.level = level

    def version(self, table: str) -> int:
        """The table's newest version."""
        return self.rows.snapshot(TableName((table,))).version

    def close(self) -> None:
        self.rows.close()
        self._engine.close()
        self.lake.close()
