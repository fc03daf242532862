"""An executor that notes its statements, and a Spark session whose catalog is a dict."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import MagicMock

from pyspark.sql.types import StructType

from txlake.log.snapshot import Snapshot
from txlake.protocol.types import Field, Primitive, Struct
from txlake.sql.statements import Statement, Table, TablePath, TimeTravel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass
class Frame:
    """A DataFrame without rows, which knows its alias."""

    source: Any
    name: str | None = None

    def alias(self, name: str) -> Frame:
        return Frame(self.source, name)


@dataclass
class _Conf:
    values: dict[str, str]

    def get(self, key: str, default: str | None = None) -> str | None:
        return self.values.get(key, default)

    @property
    def getAll(self) -> dict[str, str]:
        return dict(self.values)


@dataclass
class _Rows:
    rows: list[dict[str, str]]

    def collect(self) -> list[dict[str, str]]:
        return self.rows


@dataclass
class FakeSpark:
    """A session whose catalog holds (type, provider, location) by quoted name."""

    tables: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    conf_values: dict[str, str] = field(default_factory=dict)
    queries: list[str] = field(default_factory=list)
    refuse: Callable[[str], Exception | None] = lambda _: None
    # The JVM whose active session is this one.
    _jvm: MagicMock = field(default_factory=MagicMock)
    _jsparkSession: object = None  # noqa: N815 - as PySpark names it

    @property
    def catalog(self) -> FakeSpark:
        return self

    @property
    def conf(self) -> _Conf:
        return _Conf(self.conf_values)

    def currentCatalog(self) -> str:
        return "spark_catalog"

    def tableExists(self, name: str) -> bool:
        return name in self.tables

    def createDataFrame(self, rows: list[object], schema: StructType) -> tuple[object, StructType]:
        return (rows, schema)

    def sql(self, text: str) -> _Rows:
        self.queries.append(text)
        error = self.refuse(text)
        if error is not None:
            raise error
        made = re.fullmatch(r"CREATE TABLE (\S+) USING delta(?: LOCATION '(.*)')?", text)
        if made is not None:
            kind = "MANAGED" if made[2] is None else "EXTERNAL"
            place = made[2] or f"file:/warehouse/{made[1].strip('`')}"
            self.tables[made[1]] = (kind, "delta", place)
            return _Rows([])
        if text.startswith("DROP TABLE IF EXISTS "):
            self.tables.pop(text.removeprefix("DROP TABLE IF EXISTS "), None)
            return _Rows([])
        kind, provider, place = self.tables[text.removeprefix("DESCRIBE TABLE EXTENDED ")]
        shown = [
            # A column may be called anything.
            ("Location", "string"),
            ("", ""),
            ("# Detailed Table Information", ""),
            ("Type", kind),
            *([] if kind == "VIEW" else [("Provider", provider), ("Location", place)]),
        ]
        return _Rows([{"col_name": name, "data_type": value} for name, value in shown])


DELTA_CATALOG = {
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog"
}


@dataclass
class Recorder:
    """Notes statements; the tables of `existing` exist, with columns id, key, value and nested.

    `performed` are the statements whose result isn't made.
    """

    existing: set[Table] = field(default_factory=set)
    statements: list[Statement] = field(default_factory=list)
    performed: list[Statement] = field(default_factory=list)
    fake_spark: FakeSpark = field(default_factory=FakeSpark)
    failure: Exception | None = None

    @property
    def spark(self) -> SparkSession:
        return cast("SparkSession", self.fake_spark)

    def execute(self, statement: Statement) -> DataFrame:
        if self.failure is not None:
            raise self.failure
        self.statements.append(statement)
        return cast("DataFrame", Frame(statement))

    def perform(self, statement: Statement) -> None:
        self.execute(statement)
        self.performed.append(statement)

    def frame(self, table: Table, travel: TimeTravel | None = None) -> DataFrame:
        return cast("DataFrame", Frame(table))

    def snapshot(self, table: Table, travel: TimeTravel | None = None) -> Snapshot:
        text = Primitive("string")
        schema = Struct(
            (
                Field("id", Primitive("long"), True),
                Field("key", text, True),
                Field("value", text, True),
                Field("nested", Struct((Field("a", text, True), Field("id", text, True))), True),
            )
        )

        class _State:
            pass

        state = _State()
        state.schema = schema  # type: ignore[attr-defined]
        return cast("Snapshot", state)

    def glance(self, table: Table) -> Snapshot | None:
        return self.snapshot(table)

    def exists(self, table: Table) -> bool:
        return table in self.existing

    @property
    def only(self) -> Statement:
        """The one statement that was carried out."""
        (statement,) = self.statements
        return statement


PLACE = TablePath("/data/t")
