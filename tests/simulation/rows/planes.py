"""One lake with two planes: a session on Spark and a session on rows, with the same statements.

Owns what is compared of a result: rows, counts, errors, and tables' versions.
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
class StatementResult:
    """The result of a statement: rows, or the kind of an error with the rule of a conflict."""

    rows: tuple[tuple[Any, ...], ...] = ()
    error: str = ""
    rule: str = ""


def plain(value: Any) -> Any:
    """Return a value in a form common to both planes: times without zone, bytes as bytes."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).replace(tzinfo=None)
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return bytes(value) if isinstance(value, bytearray) else value


class Plane:
    """A session on one of the planes."""

    def __init__(self, run: Callable[[str], Any], name: str) -> None:
        self.name = name
        self._run = run

    def answer(self, sql: str) -> StatementResult:
        """Execute a statement; return its rows in a fixed order, or its error."""
        try:
            rows = [tuple(map(plain, row)) for row in self._run(sql)]
        except Conflict as error:
            rule = "" if error.evidence is None else error.evidence.rule
            return StatementResult(error=type(error).__name__, rule=rule)
        except TxlakeError as error:
            return StatementResult(error=type(error).__name__)
        return StatementResult(tuple(sorted(rows, key=repr)))


class Planes:
    """Both sessions on one warehouse; each has tables of its own with equal content."""

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
        """Return the names of two new tables, one for each plane."""
        self._tables += 1
        return f"s{self._tables}", f"r{self._tables}"

    def at_level(self, level: Level | None) -> None:
        """Set the isolation level of later transactions."""
        self.lake._session.level = self.rows.level = level

    def version(self, table: str) -> int:
        """Return the table's newest version."""
        return self.rows.snapshot(TableName((table,))).version

    def close(self) -> None:
        self.rows.close()
        self._engine.close()
        self.lake.close()
