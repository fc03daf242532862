"""The three sides that are asked the same: Spark without a lake, `lake.sql`, an enabled session.

Each has a Spark session of its own for each file. Spark's catalog is one for all of them, so that a
file runs on one side after the other, and each leaves the catalog as it was.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.java_gateway import is_instance_of
from pyspark.sql import DataFrame, SparkSession

import txlake
from tests.spark_sql.comparing import Answer, without_comments
from tests.spark_sql.inputs import Input, Settings
from tests.spark_sql.tables import FUNCTIONS, NAMES, make_functions
from txlake.errors import InvalidRequest
from txlake.sql import parse
from txlake.sql.statements import Select

_CATALYST = "org.apache.spark.sql.catalyst.plans.logical."
_FORMAT = re.compile(r"\bUSING\s+(parquet|orc|json|csv)\b", re.IGNORECASE)
_TEMPORARY = re.compile(
    r"CREATE\s+(?P<replace>OR\s+REPLACE\s+)?TEMP(ORARY)?\s+VIEW\s+(?P<name>\w+)\s*"
    r"(?P<columns>\([^()]*\))?\s*AS\b(?P<query>.*)",
    re.IGNORECASE | re.DOTALL,
)
_DROP = re.compile(r"DROP\s+VIEW\s+(IF\s+EXISTS\s+)?(?P<name>\w+)\Z", re.IGNORECASE)
_ZONE = "America/Los_Angeles"


def is_passed_on(text: str) -> bool:
    """Whether a lake gives Spark a query exactly as it is written, for it reads no table."""
    try:
        statements = parse(text)
    except InvalidRequest:
        return False
    if len(statements) != 1 or not isinstance(statements[0], Select):
        return False
    query = statements[0].query
    return not (query.references or query.session_functions) and query.text == text.strip()


def answers(
    spark: SparkSession, side: str, file: Input, settings: Settings, scratch: Path
) -> list[Answer]:
    """The answers of one side to all statements of a file, in order."""
    session = spark.newSession()
    _set_up(session, file, settings)
    with _SIDES[side](session, scratch, named_in(file, NAMES)) as ask:
        found = [_answer(ask, text) for text in file.statements]
    if (side == "Spark" and named_in(file, NAMES)) or named_in(file, ["create"]):
        _clean(spark, scratch)
    return found


def _set_up(session: SparkSession, file: Input, settings: Settings) -> None:
    session.conf.set("spark.sql.session.timeZone", _ZONE)
    session.conf.set("spark.sql.ansi.enabled", "true")
    folder = file.name.partition("/")[0]
    if folder == "nonansi":
        session.conf.set("spark.sql.ansi.enabled", "false")
    if folder == "timestampNTZ":
        session.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    if "postgreSQL/" in file.name:
        session.conf.set("spark.sql.legacy.interval.enabled", "true")
    make_functions(session, named_in(file, FUNCTIONS))
    for key, value in settings:
        session.sql(f"SET {key}={value}")


def named_in(file: Input, names: Iterable[str]) -> list[str]:
    """Those of the names that stand in a file."""
    words = {word.lower() for text in file.statements for word in re.findall(r"\w+", text)}
    return [name for name in names if name in words]


Ask = Callable[[str], DataFrame]


@contextmanager
def _of_spark(session: SparkSession, scratch: Path, tables: Sequence[str]) -> Iterator[Ask]:
    for name in tables:
        session.sql(f"CREATE TABLE {name} USING parquet LOCATION '{scratch}/tables/{name}'")
    yield session.sql


@contextmanager
def _of_lake(session: SparkSession, scratch: Path, tables: Sequence[str]) -> Iterator[Ask]:
    with _opened(session, scratch, tables) as lake:
        yield _Adapted(lake.sql).sql


@contextmanager
def _enabled(session: SparkSession, scratch: Path, tables: Sequence[str]) -> Iterator[Ask]:
    with _opened(session, scratch, tables) as lake:
        txlake.enable(session, lake)
        try:
            yield _Adapted(session.sql).sql
        finally:
            txlake.disable(session)


@contextmanager
def _opened(session: SparkSession, scratch: Path, tables: Sequence[str]) -> Iterator[txlake.Lake]:
    folder = scratch / "lake"
    with txlake.connect(str(folder), spark=session) as lake:
        for name in tables:
            lake.write(session.read.parquet(f"{scratch}/tables/{name}"), name)
        yield lake
    shutil.rmtree(folder)


_SIDES = {"Spark": _of_spark, "lake.sql": _of_lake, "enabled": _enabled}


@dataclass(slots=True)
class _Adapted:
    """Statements as a lake's user writes them.

    A table of Parquet is one of the lake, and so is a temporary view of rows that its text gives,
    where a table can have its columns.
    """

    run: Ask
    made: set[str] = field(default_factory=set)

    def sql(self, text: str) -> DataFrame:
        """What the statement gives."""
        bare = without_comments(text)
        view = _TEMPORARY.match(bare)
        if view is not None and not re.search(r"\b(FROM|JOIN|TABLE)\s+`?(?!VALUES)\w", bare, re.I):
            return self._table(text, view)
        dropped = _DROP.match(bare)
        if dropped is not None and dropped["name"].lower() in self.made:
            self.made.discard(dropped["name"].lower())
            return self.run(f"DROP TABLE {dropped['name']}")
        if re.match(r"CREATE\s+(OR\s+REPLACE\s+)?TABLE\b", bare, re.IGNORECASE):
            text = _FORMAT.sub("USING delta", text)
        return self.run(text)

    def _table(self, text: str, view: re.Match[str]) -> DataFrame:
        name = view["name"]
        create = "CREATE OR REPLACE TABLE" if view["replace"] else "CREATE TABLE"
        rows = f"SELECT * FROM ({view['query']}\n) AS t{view['columns'] or ''}"
        try:
            made = self.run(f"{create} {name} AS {rows}")
        except Exception:
            return self.run(text)
        self.made.add(name.lower())
        return made


def _answer(ask: Ask, text: str) -> Answer:
    try:
        frame = ask(text)
        execution = frame._jdf.queryExecution()
        jvm: Any = frame.sparkSession._jvm
        with _settings_of(frame.sparkSession):
            rows = jvm.org.apache.spark.sql.execution.HiveResult.hiveResultString(
                execution.executedPlan()
            )
        return Answer(
            schema=frame._jdf.schema().catalogString(),
            rows=tuple(rows.apply(place) for place in range(rows.size())),
            is_sorted=lambda: _is_sorted(execution.analyzed()),
        )
    except Exception as error:
        return Answer(error=f"{type(error).__name__}: {error}"[:2000])


@contextmanager
def _settings_of(session: SparkSession) -> Iterator[None]:
    """A session's settings count while rows are computed, on the driver and in tasks."""
    jvm: Any = session._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)
    context: Any = session.sparkContext
    settings = {key: value for key, value in session.conf.getAll.items() if "spark.sql." in key}
    for key, value in settings.items():
        context.setLocalProperty(key, value)
    try:
        yield
    finally:
        for key in settings:
            context.setLocalProperty(key, None)


def _is_sorted(plan: Any) -> bool:
    """Whether a plan's rows have an order, by the rule of Spark's suite."""
    kind = plan.getClass().getSimpleName()
    if kind in {"Join", "Aggregate", "Generate", "Sample", "Distinct"}:
        return False
    if kind == "Sort":
        return bool(getattr(plan, "global")())
    children = plan.children()
    return any(_is_sorted(children.apply(place)) for place in range(children.size()))


def is_query(spark: SparkSession, text: str) -> bool:
    """Whether Spark reads a statement as a query; a text that it doesn't understand is none."""
    parser = spark._jsparkSession.sessionState().sqlParser()
    try:
        plan = parser.parsePlan(text)
    except Exception:
        return False
    kinds = ("Command", "ParsedStatement", "CompoundBody")
    return not any(
        is_instance_of(spark.sparkContext._gateway, plan, _CATALYST + kind) for kind in kinds
    )


def _clean(spark: SparkSession, scratch: Path) -> None:
    """Emptie Spark's catalog."""
    spark.sql("CLEAR CACHE")
    spark.sql("USE default")
    for [database] in spark.sql("SHOW DATABASES").collect():
        if database != "default":
            spark.sql(f"DROP DATABASE `{database}` CASCADE")
    for name, is_view in [
        (row.viewName, True) for row in spark.sql("SHOW VIEWS").collect() if not row.isTemporary
    ] + [(row.tableName, False) for row in spark.sql("SHOW TABLES").collect()]:
        spark.sql(f"DROP {'VIEW' if is_view else 'TABLE'} IF EXISTS `{name}`")
    for [name] in spark.sql("SHOW USER FUNCTIONS").collect():
        spark.sql(f"DROP FUNCTION IF EXISTS {name.removeprefix('spark_catalog.')}")
    for row in spark.sql("SHOW VIEWS IN global_temp").collect():
        spark.sql(f"DROP VIEW IF EXISTS global_temp.`{row.viewName}`")
    shutil.rmtree(scratch / "warehouse", ignore_errors=True)
