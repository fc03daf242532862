"""The ways to find the rows for which a condition is true; each returns their ids.

A way in `BATCHES` answers many questions by one job; the others execute a statement, or a few, for
each condition.
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
from tests.ask.forms import ASSIGNMENTS
from tests.ask.kinds import literal
from tests.ask.making import CreatedTable
from tests.ask.tables import ID, MARK, as_arrow
from tests.server.client import Client
from txlake.lake.read_versions import named_table
from txlake.lake.statements import Statements
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
# The share of statements on a lake without Spark for which Spark can't be started.
_WITHOUT_SPARK = 0.9


@dataclass(frozen=True, slots=True)
class Failed:
    """An error instead of rows."""

    error: str

    @classmethod
    def of(cls, error: Exception) -> Failed:
        """Return an exception's text, shortened."""
        return cls(f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS])


Ids: TypeAlias = tuple[int, ...]
Answer: TypeAlias = "Ids | int | str | Failed | None"
"""Ids in ascending order; a count; what is problems; an error; None where the way has no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A condition, and the ids of the rows for which it is true, false and unknown."""

    number: int
    condition: Condition
    true: Ids
    false: Ids
    unknown: Ids


@dataclass(slots=True, kw_only=True)
class Connections:
    """The table of the questions, and everything through which it can be reached."""

    spark: SparkSession
    lake: Lake
    served: Client
    without_spark: Lake
    table: CreatedTable
    memory: DataFrame
    ids: Ids
    rng: Random
    has_default_settings: bool


def _ids(rows: DataFrame) -> Ids:
    return tuple(sorted(row[0] for row in rows.collect()))


def _missing_ids(connections: Connections, left: Ids) -> Ids:
    return tuple(sorted(set(connections.ids).difference(left)))


# Ways that share a job


def projected(connections: Connections, questions: Sequence[Question]) -> Sequence[Answer]:
    """Evaluate the conditions as columns of a query, for which nothing can be skipped."""
    columns = ", ".join(
        f"({one.condition.text()}) AS q{place}" for place, one in enumerate(questions)
    )
    found = connections.lake.sql(f"SELECT {ID}, {columns} FROM {connections.table.sql}").toArrow()
    return _true_ids(found)


def _true_ids(found: pa.Table) -> Sequence[Ids]:
    ids = found.column(0).to_pylist()
    answers = []
    for column in found.columns[1:]:
        answers.append(
            tuple(
                sorted(one for one, is_true in zip(ids, column.to_pylist(), strict=True) if is_true)
            )
        )
    return answers


def frames(connections: Connections, questions: Sequence[Question]) -> Sequence[Answer]:
    """`lake.read(t).where(...)`, by text or as a Column."""

    def frame(text: str) -> DataFrame:
        rows = connections.lake.read(connections.table.call)
        return rows.where(text if connections.rng.random() < 0.5 else F.expr(text))

    return _read_together(frame, questions)


def reads(connections: Connections, questions: Sequence[Question]) -> Sequence[Answer]:
    """`lake.read(t, where=...)`, by text or as a Column."""

    def frame(text: str) -> DataFrame:
        where = text if connections.rng.random() < 0.7 else F.expr(text)
        return connections.lake.read(connections.table.call, where=where)

    return _read_together(frame, questions)


def _read_together(
    frame: Callable[[str], DataFrame], questions: Sequence[Question]
) -> Sequence[Answer]:
    union: DataFrame | None = None
    for place, one in enumerate(questions):
        rows = frame(one.condition.text()).select(F.lit(place).alias("q"), F.col(ID))
        union = rows if union is None else union.unionAll(rows)
    assert union is not None
    found: list[list[int]] = [[] for _ in questions]
    table = union.toArrow()
    for place, number in zip(table.column(0).to_pylist(), table.column(1).to_pylist(), strict=True):
        found[place].append(number)
    return [tuple(sorted(ids)) for ids in found]


Batch: TypeAlias = Callable[[Connections, Sequence[Question]], Sequence[Answer]]
BATCHES: Mapping[str, Batch] = {"projected": projected, "read.where": frames, "read(where)": reads}


# Ways of one condition


def _query(connections: Connections, one: Question) -> str:
    return f"SELECT {ID} FROM {connections.table.sql} WHERE {one.condition.text()}"


def by_sql(connections: Connections, one: Question) -> Answer:
    """Query the ids."""
    return _ids(connections.lake.sql(_query(connections, one)))


def by_alias(connections: Connections, one: Question) -> Answer:
    """Query the ids with an alias of the table."""
    text = one.condition.text("o.")
    return _ids(
        connections.lake.sql(f"SELECT o.{ID} FROM {connections.table.sql} AS o WHERE {text}")
    )


def by_rows(connections: Connections, one: Question) -> Answer:
    """Query whole rows."""
    rows = connections.lake.sql(
        f"SELECT * FROM {connections.table.sql} WHERE {one.condition.text()}"
    )
    return _ids(rows.select(ID))


def by_count(connections: Connections, one: Question) -> Answer:
    """Query the count."""
    text = one.condition.text()
    [row] = connections.lake.sql(
        f"SELECT count(*) FROM {connections.table.sql} WHERE {text}"
    ).collect()
    return int(row[0])


def by_thirds(connections: Connections, one: Question) -> Answer:
    """TLP: query p, NOT p and p IS NULL, which partition the rows.

    The alias is needed because Spark reads t WHERE (c) as the table t by the name WHERE, its column
    c.
    """
    text = one.condition.text()
    parts = (f"({text})", f"NOT ({text})", f"({text}) IS NULL")
    found = [
        _ids(connections.lake.sql(f"SELECT {ID} FROM {connections.table.sql} AS o WHERE {part}"))
        for part in parts
    ]
    if found[1:] != [one.false, one.unknown]:
        return f"NOT p: {found[1]} for {one.false}; p IS NULL: {found[2]} for {one.unknown}"
    return found[0]


def by_spark(connections: Connections, one: Question) -> Answer:
    """`spark.sql` in an enabled session."""
    txlake.enable(connections.spark, connections.lake)
    try:
        return _ids(connections.spark.sql(_query(connections, one)))
    finally:
        txlake.disable(connections.spark)


def by_reader(connections: Connections, one: Question) -> Answer:
    """`spark.read.format("delta")` in an enabled session."""
    txlake.enable(connections.spark, connections.lake)
    try:
        call, text = connections.table.call, one.condition.text()
        reader = connections.spark.read.format("delta")
        rows = (
            reader.load(call) if connections.table.plan.is_path else connections.spark.table(call)
        )
        return _ids(rows.where(text).select(ID))
    finally:
        txlake.disable(connections.spark)


def by_server(connections: Connections, one: Question) -> Answer:
    """Query by the server's SQL on a lake with Spark; only named tables are served."""
    if connections.table.plan.is_path:
        return None
    plane: Any = connections.served.engine.plane
    if plane._spark is None:
        plane._spark = served_session(
            connections.spark
        )  # with the settings of the table's questions
    return _ask_server(connections, one)


def by_driver(connections: Connections, one: Question) -> Answer:
    """Query on a lake without Spark, which plain queries don't need."""
    return _run_without_spark(connections, lambda lake: _driver_ids(lake, _query(connections, one)))


def by_driver_delete(connections: Connections, one: Question) -> Answer:
    """Return the rows that a DELETE on a lake without Spark deletes."""

    def work(lake: Lake) -> Answer:
        text = f"DELETE FROM {connections.table.sql} WHERE {one.condition.text()}"
        return _missing_ids(connections, _ids_after(lake, text, _all_ids_query(connections)))

    return _run_without_spark(connections, work)


def by_driver_update(connections: Connections, one: Question) -> Answer:
    """Return the rows that an UPDATE on a lake without Spark changes."""

    def work(lake: Lake) -> Answer:
        table = connections.table.sql
        text = f"UPDATE {table} SET {MARK} = 1 WHERE {one.condition.text()}"
        return _ids_after(lake, text, f"{_all_ids_query(connections)} WHERE {MARK} = 1")

    return _run_without_spark(connections, work)


def _run_without_spark(connections: Connections, work: Callable[[Lake], Answer]) -> Answer:
    if not connections.has_default_settings:
        return None  # these settings live in the Spark session
    plane: Any = connections.without_spark._session.engine.plane
    plane._spark = None
    before = plane.make_spark
    if connections.rng.random() < _WITHOUT_SPARK:
        plane.make_spark = _refuse_spark
    try:
        return work(connections.without_spark)
    except _NeedsSpark:
        return None
    finally:
        plane.make_spark = before


class _NeedsSpark(Exception):
    """The driver can't answer without Spark."""


def _refuse_spark() -> SparkSession:
    raise _NeedsSpark


def _ids_after(lake: Lake, change: str, query: str) -> Ids:
    tx = lake.begin()
    try:
        tx._run_sql(change, None, AsRows())
        return _driver_ids(tx, query)
    finally:
        tx.rollback()


def _driver_ids(lake: Statements, query: str) -> Ids:
    found = lake._run_sql(query, None, AsRows())
    rows: Sequence[Any] = found.rows if isinstance(found, Rows) else found.collect()
    return tuple(sorted(row[0] for row in rows))


def _ask_server(connections: Connections, one: Question) -> Answer:
    body = {"statement": _query(connections, one)}
    answer = connections.served.call("POST", f"{OWN_ROOT}/sql", body)
    if answer.status_code != 200:
        return Failed(answer.text[:_ERROR_CHARACTERS])
    return tuple(sorted(row[0] for row in answer.json()["rows"]))


def by_delete(connections: Connections, one: Question) -> Answer:
    """Return the rows that a DELETE deletes."""

    def work(tx: Transaction) -> Answer:
        [row] = tx.sql(
            f"DELETE FROM {connections.table.sql} WHERE {one.condition.text()}"
        ).collect()
        return _check_count(
            row[0], _missing_ids(connections, _ids(tx.sql(_all_ids_query(connections))))
        )

    return _run_and_roll_back(connections, work)


def by_delete_method(connections: Connections, one: Question) -> Answer:
    """Return the rows that `DeltaTable.delete` deletes."""

    def work(tx: Transaction) -> Answer:
        text = one.condition.text()
        condition = text if connections.rng.random() < 0.5 else F.expr(text)
        tx.table(connections.table.call).delete(condition)
        return _missing_ids(connections, _ids(tx.sql(_all_ids_query(connections))))

    return _run_and_roll_back(connections, work)


def by_update(connections: Connections, one: Question) -> Answer:
    """Return the rows that an UPDATE changes."""

    def work(tx: Transaction) -> Answer:
        text = one.condition.text()
        [row] = tx.sql(
            f"UPDATE {connections.table.sql} SET {MARK} = {MARK} + 1 WHERE {text}"
        ).collect()
        return _check_marks(connections, tx, row[0])

    return _run_and_roll_back(connections, work)


def by_value(connections: Connections, one: Question) -> Answer:
    """Compare the values that an UPDATE computes with those of a query over rows in memory."""
    rng, text = connections.rng, one.condition.text()
    if connections.spark.conf.get("spark.sql.ansi.enabled") != "true":
        return None  # assignments cast by ANSI's rules, the query doesn't
    plan = connections.table.plan
    columns = [
        column
        for column in plan.columns
        if column.kind.group in ASSIGNMENTS and column.name not in plan.partition_by
    ]
    if not columns:
        return None
    column = rng.choice(columns)
    kind = column.kind
    other = rng.choice([one for one in columns if one.kind.group == kind.group])
    value = rng.choice(ASSIGNMENTS[kind.group]).format(
        c=column.quoted, d=other.quoted, v=literal(kind.sql, rng.choice(list(kind.values)))
    )
    chosen = f"CASE WHEN {text} THEN CAST({value} AS {kind.sql}) ELSE {column.quoted} END AS v"
    try:
        expected = _pairs(connections.memory.selectExpr(ID, chosen))
    except Exception:
        expected = None

    def work(tx: Transaction) -> Answer:
        table = connections.table.sql
        tx.sql(f"UPDATE {table} SET {column.quoted} = {value} WHERE {text}")
        found = _pairs(tx.sql(f"SELECT {ID}, {column.quoted} AS v FROM {table}"))
        if expected is None:
            return f"SET {column.quoted} = {value}: an error is expected"
        unequal = [pair for pair in zip(found, expected, strict=False) if pair[0] != pair[1]]
        if unequal:
            return f"SET {column.quoted} = {value}: (found, expected) {unequal[:3]}"
        return one.true

    try:
        return _run_and_roll_back(connections, work)
    except Exception:
        if expected is None:
            return one.true
        raise


def _pairs(rows: DataFrame) -> Sequence[str]:
    table = rows.toArrow()
    columns = (column.to_pylist() for column in table.columns)
    return [repr(pair) for pair in sorted(zip(*columns, strict=True), key=lambda pair: pair[0])]


def by_merge_clause(connections: Connections, one: Question) -> Answer:
    """Return the rows that a MERGE deletes by the condition of a clause."""

    def work(tx: Transaction) -> Answer:
        [row] = tx.sql(
            f"MERGE INTO {connections.table.sql} AS o "
            f"USING {_merge_source(connections)} ON o.{ID} = k "
            f"WHEN MATCHED AND {one.condition.text('o.')} THEN DELETE"
        ).collect()
        return _check_count(
            row[0], _missing_ids(connections, _ids(tx.sql(_all_ids_query(connections))))
        )

    return _run_and_roll_back(connections, work)


def by_merge_on(connections: Connections, one: Question) -> Answer:
    """Return the rows that a MERGE matches by its ON."""

    def work(tx: Transaction) -> Answer:
        source = (
            _merge_source(connections) if connections.rng.random() < 0.5 else "(SELECT 1 AS k) AS s"
        )
        joined = f"o.{ID} = k AND " if source != "(SELECT 1 AS k) AS s" else ""
        [row] = tx.sql(
            f"MERGE INTO {connections.table.sql} AS o USING {source} "
            f"ON {joined}({one.condition.text('o.')}) "
            f"WHEN MATCHED THEN UPDATE SET o.{MARK} = o.{MARK} + 1"
        ).collect()
        return _check_marks(connections, tx, row[0])

    return _run_and_roll_back(connections, work)


def by_merge_source(connections: Connections, one: Question) -> Answer:
    """Return the rows that a MERGE deletes by the condition of NOT MATCHED BY SOURCE."""

    def work(tx: Transaction) -> Answer:
        [row] = tx.sql(
            f"MERGE INTO {connections.table.sql} AS o USING (SELECT -1 AS k) AS s ON o.{ID} = k "
            f"WHEN NOT MATCHED BY SOURCE AND {one.condition.text('o.')} THEN DELETE"
        ).collect()
        return _check_count(
            row[0], _missing_ids(connections, _ids(tx.sql(_all_ids_query(connections))))
        )

    return _run_and_roll_back(connections, work)


def by_replace(connections: Connections, one: Question) -> Answer:
    """Return the rows that INSERT ... REPLACE WHERE deletes."""

    def work(tx: Transaction) -> Answer:
        table = connections.table.sql
        tx.sql(
            f"INSERT INTO {table} REPLACE WHERE {one.condition.text()} "
            f"SELECT * FROM {table} WHERE false"
        )
        return _missing_ids(connections, _ids(tx.sql(_all_ids_query(connections))))

    return _run_and_roll_back(connections, work)


def by_explain(connections: Connections, one: Question) -> Answer:
    """Check that the read shown by EXPLAIN CONFLICTS covers all rows for which the condition is
    true.
    """
    statement = connections.rng.choice(
        (
            f"DELETE FROM {connections.table.sql} WHERE {one.condition.text()}",
            f"UPDATE {connections.table.sql} SET {MARK} = 1 WHERE {one.condition.text()}",
        )
    )
    rows = connections.lake.explain_conflicts(statement).collect()
    [read] = [row["answer"] for row in rows if row["subject"] == "reads"]
    if read == "the whole table":
        return one.true
    found = _ids(connections.memory.where(read).select(ID))
    missing = set(one.true).difference(found)
    return f"the read {read} lacks rows {sorted(missing)}" if missing else one.true


def by_log(connections: Connections, one: Question) -> Answer:
    """Check the log's predicates on single rows."""
    text = one.condition.text()
    schema = connections.lake._session.snapshot(named_table(connections.table.call)).schema
    predicate = bind(parse_predicate(text), schema, time_zone=session_zone(connections.spark))
    rows = as_arrow(connections.table.plan, connections.table.plan.rows, widened=True)
    may = rows_may_match(predicate, rows, schema).to_pylist()
    must = rows_must_match(predicate, rows, schema).to_pylist()
    ids = rows.column(ID).to_pylist()
    lost = [
        ids[place] for place, is_true in enumerate(may) if not is_true and ids[place] in one.true
    ]
    not_true = [
        ids[place] for place, is_true in enumerate(must) if is_true and ids[place] not in one.true
    ]
    if lost or not_true:
        return f"may not match {lost}, must match {not_true}"
    return one.true


CHEAP = ("driver", "driver's DELETE", "driver's UPDATE")
"""Ways that mostly need no job of Spark's."""

Way: TypeAlias = Callable[[Connections, Question], Answer]
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


def _all_ids_query(connections: Connections) -> str:
    return f"SELECT {ID} FROM {connections.table.sql}"


def _merge_source(connections: Connections) -> str:
    most = connections.ids[-1] + 1 if connections.ids else 1
    return f"(SELECT CAST(id AS INT) AS k FROM range({most})) AS s"


def _check_count(count: int, ids: Ids) -> Answer:
    return ids if count == len(ids) else f"{count} rows are counted, and gone are {ids}"


def _check_marks(connections: Connections, tx: Transaction, count: int) -> Answer:
    rows = tx.sql(f"SELECT {ID}, {MARK} FROM {connections.table.sql}").collect()
    if tuple(sorted(row[0] for row in rows)) != connections.ids:
        return f"the table has other rows afterwards: {sorted(row[0] for row in rows)}"
    if any(row[1] not in (0, 1) for row in rows):
        return "a row is changed twice"
    return _check_count(count, tuple(sorted(row[0] for row in rows if row[1])))


def _run_and_roll_back(connections: Connections, work: Callable[[Transaction], Answer]) -> Answer:
    tx = connections.lake.begin()
    try:
        return work(tx)
    finally:
        tx.rollback()
