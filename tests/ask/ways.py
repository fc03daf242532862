"""The ways to find the rows for which a condition is true: each answers with their ids.

A way that many conditions share costs one job for all of them (`Batch`); the others cost one
statement, or a few, a condition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from pyspark.sql import functions as F

import txlake
from tests.ask.conditions import Condition
from tests.ask.forms import ASSIGNED
from tests.ask.kinds import literal
from tests.ask.making import Made
from tests.ask.tables import ID, MARK, arrow_of
from tests.server.client import Client
from txlake.lake.statements import Statements, named_table
from txlake.log.predicates import bind, parse_predicate
from txlake.log.skipping import rows_may_match, rows_must_match
from txlake.server.app import OWN_ROOT
from txlake.session.command import AsRows
from txlake.session.views.describe import Rows
from txlake.spark.served import served_session
from txlake.spark.session_zones import session_zone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txlake.lake.lake import Lake, Transaction

_ERROR_CHARACTERS = 2_000
# Of the statements on a lake that Spark isn't started for, those that get none.
_WITHOUT_SPARK = 0.9


@dataclass(frozen=True, slots=True)
class Failed:
    """An error instead of rows."""

    error: str

    @classmethod
    def of(cls, error: Exception) -> Failed:
        """What was raised, in short."""
        return cls(f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS])


Ids: TypeAlias = tuple[int, ...]
Answer: TypeAlias = "Ids | int | str | Failed | None"
"""Ids in ascending order; a count; what is wrong; an error; None where the way has no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A condition on a table, and the ids of the rows that it is true, false and unknown of."""

    number: int
    condition: Condition
    true: Ids
    false: Ids
    unknown: Ids


@dataclass(slots=True, kw_only=True)
class Doors:
    """The table in question, and all that it can be reached through."""

    spark: SparkSession
    lake: Lake
    served: Client
    unstarted: Lake
    made: Made
    memory: DataFrame
    ids: Ids
    luck: Random
    has_default_settings: bool


def _ids(rows: DataFrame) -> Ids:
    return tuple(sorted(row[0] for row in rows.collect()))


def _others(doors: Doors, left: Ids) -> Ids:
    return tuple(sorted(set(doors.ids).difference(left)))


# Ways that share a job


def projected(doors: Doors, questions: Sequence[Question]) -> Sequence[Answer]:
    """The condition as a column of a query, which nothing can be skipped for."""
    columns = ", ".join(
        f"({one.condition.text()}) AS q{place}" for place, one in enumerate(questions)
    )
    found = doors.lake.sql(f"SELECT {ID}, {columns} FROM {doors.made.sql}").toArrow()
    return _true_of(found)


def _true_of(found: pa.Table) -> Sequence[Ids]:
    ids = found.column(0).to_pylist()
    answers = []
    for column in found.columns[1:]:
        answers.append(
            tuple(sorted(one for one, holds in zip(ids, column.to_pylist(), strict=True) if holds))
        )
    return answers


def frames(doors: Doors, questions: Sequence[Question]) -> Sequence[Answer]:
    """`lake.read(t).where(...)`, by text or as a Column."""

    def frame(text: str) -> DataFrame:
        rows = doors.lake.read(doors.made.call)
        return rows.where(text if doors.luck.random() < 0.5 else F.expr(text))

    return _united(frame, questions)


def reads(doors: Doors, questions: Sequence[Question]) -> Sequence[Answer]:
    """`lake.read(t, where=...)`, by text or as a Column."""

    def frame(text: str) -> DataFrame:
        where = text if doors.luck.random() < 0.7 else F.expr(text)
        return doors.lake.read(doors.made.call, where=where)

    return _united(frame, questions)


def _united(frame: Callable[[str], DataFrame], questions: Sequence[Question]) -> Sequence[Answer]:
    whole: DataFrame | None = None
    for place, one in enumerate(questions):
        rows = frame(one.condition.text()).select(F.lit(place).alias("q"), F.col(ID))
        whole = rows if whole is None else whole.unionAll(rows)
    assert whole is not None
    found: list[list[int]] = [[] for _ in questions]
    table = whole.toArrow()
    for place, number in zip(table.column(0).to_pylist(), table.column(1).to_pylist(), strict=True):
        found[place].append(number)
    return [tuple(sorted(ids)) for ids in found]


Batch: TypeAlias = Callable[[Doors, Sequence[Question]], Sequence[Answer]]
BATCHES: Mapping[str, Batch] = {"projected": projected, "read.where": frames, "read(where)": reads}


# Ways of one condition


def _query(doors: Doors, one: Question) -> str:
    return f"SELECT {ID} FROM {doors.made.sql} WHERE {one.condition.text()}"


def by_sql(doors: Doors, one: Question) -> Answer:
    """A query."""
    return _ids(doors.lake.sql(_query(doors, one)))


def by_alias(doors: Doors, one: Question) -> Answer:
    """A query that gives the table another name."""
    text = one.condition.text("o.")
    return _ids(doors.lake.sql(f"SELECT o.{ID} FROM {doors.made.sql} AS o WHERE {text}"))


def by_rows(doors: Doors, one: Question) -> Answer:
    """A query for whole rows."""
    rows = doors.lake.sql(f"SELECT * FROM {doors.made.sql} WHERE {one.condition.text()}")
    return _ids(rows.select(ID))


def by_count(doors: Doors, one: Question) -> Answer:
    """A count."""
    text = one.condition.text()
    [row] = doors.lake.sql(f"SELECT count(*) FROM {doors.made.sql} WHERE {text}").collect()
    return int(row[0])


def by_thirds(doors: Doors, one: Question) -> Answer:
    """TLP: p, NOT p and p IS NULL part the rows.

    With an alias: Spark reads t WHERE (c) as the table t by the name WHERE, its column c.
    """
    text = one.condition.text()
    parts = (f"({text})", f"NOT ({text})", f"({text}) IS NULL")
    found = [
        _ids(doors.lake.sql(f"SELECT {ID} FROM {doors.made.sql} AS o WHERE {part}"))
        for part in parts
    ]
    if found[1:] != [one.false, one.unknown]:
        return f"NOT p: {found[1]} for {one.false}; p IS NULL: {found[2]} for {one.unknown}"
    return found[0]


def by_spark(doors: Doors, one: Question) -> Answer:
    """`spark.sql` in an enabled session."""
    txlake.enable(doors.spark, doors.lake)
    try:
        return _ids(doors.spark.sql(_query(doors, one)))
    finally:
        txlake.disable(doors.spark)


def by_reader(doors: Doors, one: Question) -> Answer:
    """`spark.read.format("delta")` in an enabled session."""
    txlake.enable(doors.spark, doors.lake)
    try:
        call, text = doors.made.call, one.condition.text()
        reader = doors.spark.read.format("delta")
        rows = reader.load(call) if doors.made.plan.is_path else doors.spark.table(call)
        return _ids(rows.where(text).select(ID))
    finally:
        txlake.disable(doors.spark)


def by_server(doors: Doors, one: Question) -> Answer:
    """The server's SQL, on a lake that Spark works for already; it serves tables with names."""
    if doors.made.plan.is_path:
        return None
    plane: Any = doors.served.engine.plane
    if plane._spark is None:
        plane._spark = served_session(doors.spark)  # with the settings of the table's questions
    return _served(doors, one)


def by_driver(doors: Doors, one: Question) -> Answer:
    """A query on a lake that Spark isn't started for: plain ones need none."""
    return _unstarted(doors, lambda lake: _ids_here(lake, _query(doors, one)))


def by_driver_delete(doors: Doors, one: Question) -> Answer:
    """The rows that a DELETE takes, on a lake that Spark isn't started for."""

    def work(lake: Lake) -> Answer:
        text = f"DELETE FROM {doors.made.sql} WHERE {one.condition.text()}"
        return _others(doors, _ids_after(lake, text, _all(doors)))

    return _unstarted(doors, work)


def by_driver_update(doors: Doors, one: Question) -> Answer:
    """The rows that an UPDATE changes, on a lake that Spark isn't started for."""

    def work(lake: Lake) -> Answer:
        table = doors.made.sql
        text = f"UPDATE {table} SET {MARK} = 1 WHERE {one.condition.text()}"
        return _ids_after(lake, text, f"{_all(doors)} WHERE {MARK} = 1")

    return _unstarted(doors, work)


def _unstarted(doors: Doors, work: Callable[[Lake], Answer]) -> Answer:
    if not doors.has_default_settings:
        return None  # a lake that isn't started doesn't know of them
    plane: Any = doors.unstarted._session.engine.plane
    plane._spark = None
    before = plane.make_spark
    if doors.luck.random() < _WITHOUT_SPARK:
        plane.make_spark = _needed
    try:
        return work(doors.unstarted)
    except _NeedsSpark:
        return None
    finally:
        plane.make_spark = before


class _NeedsSpark(Exception):
    """This process can't answer alone."""


def _needed() -> SparkSession:
    raise _NeedsSpark


def _ids_after(lake: Lake, change: str, query: str) -> Ids:
    tx = lake.begin()
    try:
        tx._answered(change, None, AsRows())
        return _ids_here(tx, query)
    finally:
        tx.rollback()


def _ids_here(lake: Statements, query: str) -> Ids:
    found = lake._answered(query, None, AsRows())
    rows: Sequence[Any] = found.rows if isinstance(found, Rows) else found.collect()
    return tuple(sorted(row[0] for row in rows))


def _served(doors: Doors, one: Question) -> Answer:
    body = {"statement": _query(doors, one)}
    answer = doors.served.call("POST", f"{OWN_ROOT}/sql", body)
    if answer.status_code != 200:
        return Failed(answer.text[:_ERROR_CHARACTERS])
    return tuple(sorted(row[0] for row in answer.json()["rows"]))


def by_delete(doors: Doors, one: Question) -> Answer:
    """The rows that a DELETE takes."""

    def work(tx: Transaction) -> Answer:
        [row] = tx.sql(f"DELETE FROM {doors.made.sql} WHERE {one.condition.text()}").collect()
        return _counted(row[0], _others(doors, _ids(tx.sql(_all(doors)))))

    return _rolled_back(doors, work)


def by_delete_method(doors: Doors, one: Question) -> Answer:
    """The rows that `DeltaTable.delete` takes."""

    def work(tx: Transaction) -> Answer:
        text = one.condition.text()
        condition = text if doors.luck.random() < 0.5 else F.expr(text)
        tx.table(doors.made.call).delete(condition)
        return _others(doors, _ids(tx.sql(_all(doors))))

    return _rolled_back(doors, work)


def by_update(doors: Doors, one: Question) -> Answer:
    """The rows that an UPDATE changes."""

    def work(tx: Transaction) -> Answer:
        text = one.condition.text()
        [row] = tx.sql(f"UPDATE {doors.made.sql} SET {MARK} = {MARK} + 1 WHERE {text}").collect()
        return _marked(doors, tx, row[0])

    return _rolled_back(doors, work)


def by_value(doors: Doors, one: Question) -> Answer:
    """The values that an UPDATE computes, beside those that a query of the rows in memory does."""
    luck, text = doors.luck, one.condition.text()
    if doors.spark.conf.get("spark.sql.ansi.enabled") != "true":
        return None  # what is assigned is cast by ANSI's rules, and the query's cast isn't
    plan = doors.made.plan
    columns = [
        column
        for column in plan.columns
        if column.kind.group in ASSIGNED and column.name not in plan.partition_by
    ]
    if not columns:
        return None
    column = luck.choice(columns)
    kind = column.kind
    other = luck.choice([one for one in columns if one.kind.group == kind.group])
    value = luck.choice(ASSIGNED[kind.group]).format(
        c=column.quoted, d=other.quoted, v=literal(kind.sql, luck.choice(list(kind.values)))
    )
    chosen = f"CASE WHEN {text} THEN CAST({value} AS {kind.sql}) ELSE {column.quoted} END AS v"
    try:
        expected = _pairs(doors.memory.selectExpr(ID, chosen))
    except Exception:
        expected = None

    def work(tx: Transaction) -> Answer:
        table = doors.made.sql
        tx.sql(f"UPDATE {table} SET {column.quoted} = {value} WHERE {text}")
        found = _pairs(tx.sql(f"SELECT {ID}, {column.quoted} AS v FROM {table}"))
        if expected is None:
            return f"SET {column.quoted} = {value}: an error is expected"
        unequal = [pair for pair in zip(found, expected, strict=False) if pair[0] != pair[1]]
        if unequal:
            return f"SET {column.quoted} = {value}: (found, expected) {unequal[:3]}"
        return one.true

    try:
        return _rolled_back(doors, work)
    except Exception:
        if expected is None:
            return one.true
        raise


def _pairs(rows: DataFrame) -> Sequence[str]:
    table = rows.toArrow()
    columns = (column.to_pylist() for column in table.columns)
    return [repr(pair) for pair in sorted(zip(*columns, strict=True), key=lambda pair: pair[0])]


def by_merge_clause(doors: Doors, one: Question) -> Answer:
    """The rows that a MERGE deletes by the condition of its clause."""

    def work(tx: Transaction) -> Answer:
        [row] = tx.sql(
            f"MERGE INTO {doors.made.sql} AS o USING {_source(doors)} ON o.{ID} = k "
            f"WHEN MATCHED AND {one.condition.text('o.')} THEN DELETE"
        ).collect()
        return _counted(row[0], _others(doors, _ids(tx.sql(_all(doors)))))

    return _rolled_back(doors, work)


def by_merge_on(doors: Doors, one: Question) -> Answer:
    """The rows that a MERGE matches by its ON."""

    def work(tx: Transaction) -> Answer:
        source = _source(doors) if doors.luck.random() < 0.5 else "(SELECT 1 AS k) AS s"
        joined = f"o.{ID} = k AND " if source != "(SELECT 1 AS k) AS s" else ""
        [row] = tx.sql(
            f"MERGE INTO {doors.made.sql} AS o USING {source} "
            f"ON {joined}({one.condition.text('o.')}) "
            f"WHEN MATCHED THEN UPDATE SET o.{MARK} = o.{MARK} + 1"
        ).collect()
        return _marked(doors, tx, row[0])

    return _rolled_back(doors, work)


def by_merge_source(doors: Doors, one: Question) -> Answer:
    """The rows that a MERGE deletes by the condition of NOT MATCHED BY SOURCE."""

    def work(tx: Transaction) -> Answer:
        [row] = tx.sql(
            f"MERGE INTO {doors.made.sql} AS o USING (SELECT -1 AS k) AS s ON o.{ID} = k "
            f"WHEN NOT MATCHED BY SOURCE AND {one.condition.text('o.')} THEN DELETE"
        ).collect()
        return _counted(row[0], _others(doors, _ids(tx.sql(_all(doors)))))

    return _rolled_back(doors, work)


def by_replace(doors: Doors, one: Question) -> Answer:
    """The rows that INSERT ... REPLACE WHERE takes away."""

    def work(tx: Transaction) -> Answer:
        table = doors.made.sql
        tx.sql(
            f"INSERT INTO {table} REPLACE WHERE {one.condition.text()} "
            f"SELECT * FROM {table} WHERE false"
        )
        return _others(doors, _ids(tx.sql(_all(doors))))

    return _rolled_back(doors, work)


def by_explain(doors: Doors, one: Question) -> Answer:
    """EXPLAIN CONFLICTS: the read that it tells holds all rows that the condition is true of."""
    statement = doors.luck.choice(
        (
            f"DELETE FROM {doors.made.sql} WHERE {one.condition.text()}",
            f"UPDATE {doors.made.sql} SET {MARK} = 1 WHERE {one.condition.text()}",
        )
    )
    rows = doors.lake.explain_conflicts(statement).collect()
    [told] = [row["answer"] for row in rows if row["subject"] == "reads"]
    if told == "the whole table":
        return one.true
    found = _ids(doors.memory.where(told).select(ID))
    missing = set(one.true).difference(found)
    return f"the read {told} lacks rows {sorted(missing)}" if missing else one.true


def by_log(doors: Doors, one: Question) -> Answer:
    """The log's predicates: what they say of single rows, and the files that `txlake.Log` gives."""
    text = one.condition.text()
    schema = doors.lake._session.snapshot(named_table(doors.made.call)).schema
    predicate = bind(parse_predicate(text), schema, time_zone=session_zone(doors.spark))
    rows = arrow_of(doors.made.plan, doors.made.plan.rows, later=True)
    may = rows_may_match(predicate, rows, schema).to_pylist()
    must = rows_must_match(predicate, rows, schema).to_pylist()
    ids = rows.column(ID).to_pylist()
    lost = [ids[place] for place, holds in enumerate(may) if not holds and ids[place] in one.true]
    made_up = [
        ids[place] for place, holds in enumerate(must) if holds and ids[place] not in one.true
    ]
    if lost or made_up:
        return f"may not match {lost}, must match {made_up}"
    return one.true


CHEAP = ("driver", "driver's DELETE", "driver's UPDATE")
"""Ways that mostly need no job of Spark's."""

Way: TypeAlias = Callable[[Doors, Question], Answer]
WAYS: Mapping[str, Way] = {
    "sql": by_sql,
    "alias": by_alias,
    "whole rows": by_rows,
    "count": by_count,
    "TLP": by_thirds,
    "enabled sql": by_spark,
    "enabled reader": by_reader,
    "server": by_server,
    "driver": by_driver,
    "driver's DELETE": by_driver_delete,
    "driver's UPDATE": by_driver_update,
    "DELETE": by_delete,
    "delete()": by_delete_method,
    "UPDATE": by_update,
    "SET": by_value,
    "MERGE clause": by_merge_clause,
    "MERGE ON": by_merge_on,
    "MERGE by source": by_merge_source,
    "REPLACE WHERE": by_replace,
    "EXPLAIN CONFLICTS": by_explain,
    "log": by_log,
}


def _all(doors: Doors) -> str:
    return f"SELECT {ID} FROM {doors.made.sql}"


def _source(doors: Doors) -> str:
    most = doors.ids[-1] + 1 if doors.ids else 1
    return f"(SELECT CAST(id AS INT) AS k FROM range({most})) AS s"


def _counted(count: int, ids: Ids) -> Answer:
    return ids if count == len(ids) else f"{count} rows are counted, and gone are {ids}"


def _marked(doors: Doors, tx: Transaction, count: int) -> Answer:
    rows = tx.sql(f"SELECT {ID}, {MARK} FROM {doors.made.sql}").collect()
    if tuple(sorted(row[0] for row in rows)) != doors.ids:
        return f"the table has other rows afterwards: {sorted(row[0] for row in rows)}"
    if any(row[1] not in (0, 1) for row in rows):
        return "a row is changed twice"
    return _counted(count, tuple(sorted(row[0] for row in rows if row[1])))


def _rolled_back(doors: Doors, work: Callable[[Transaction], Answer]) -> Answer:
    tx = doors.lake.begin()
    try:
        return work(tx)
    finally:
        tx.rollback()
