"""The clauses of a MERGE, as DeltaMergeBuilder collects them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from tests.lake.tables.doubles import PLACE, Recorder
from txlake.errors import InvalidRequest
from txlake.lake.tables import DeltaMergeBuilder, DeltaTable
from txlake.sql.statements import (
    STAR,
    Assignment,
    BySourceDelete,
    BySourceUpdate,
    MatchedDelete,
    MatchedUpdate,
    Merge,
    MergeClause,
    NativeColumn,
    NativeFrame,
    NotMatchedInsert,
    SqlText,
)


@pytest.fixture(scope="module")
def source(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([("a", 1)], ["k", "v"])


def to(*column: str, value: str = "v") -> tuple[Assignment, ...]:
    return (Assignment(column, SqlText(value)),)


IF = SqlText("k = 'a'")

CLAUSES: list[tuple[Callable[[DeltaMergeBuilder], DeltaMergeBuilder], MergeClause]] = [
    (
        lambda m: m.whenMatchedUpdate("k = 'a'", {"value": "v"}),
        MatchedUpdate(assignments=to("value"), condition=IF),
    ),
    (
        lambda m: m.whenMatchedUpdate(set={"t.nested.a": "v"}),
        MatchedUpdate(assignments=to("nested", "a")),
    ),
    (
        lambda m: m.whenMatchedUpdateAll("k = 'a'"),
        MatchedUpdate(assignments=STAR, condition=IF),
    ),
    (lambda m: m.whenMatchedUpdateAll(), MatchedUpdate(assignments=STAR)),
    (lambda m: m.whenMatchedDelete("k = 'a'"), MatchedDelete(condition=IF)),
    (lambda m: m.whenMatchedDelete(), MatchedDelete()),
    (
        lambda m: m.whenNotMatchedInsert("k = 'a'", {"t.key": "v"}),
        NotMatchedInsert(assignments=to("key"), condition=IF),
    ),
    (
        lambda m: m.whenNotMatchedInsert(values={"key": "v"}),
        NotMatchedInsert(assignments=to("key")),
    ),
    (
        lambda m: m.whenNotMatchedInsertAll("k = 'a'"),
        NotMatchedInsert(assignments=STAR, condition=IF),
    ),
    (lambda m: m.whenNotMatchedInsertAll(), NotMatchedInsert(assignments=STAR)),
    (
        lambda m: m.whenNotMatchedBySourceUpdate("k = 'a'", {"t.value": "v"}),
        BySourceUpdate(assignments=to("value"), condition=IF),
    ),
    (
        lambda m: m.whenNotMatchedBySourceUpdate(set={"value": "v"}),
        BySourceUpdate(assignments=to("value")),
    ),
    (
        lambda m: m.whenNotMatchedBySourceDelete("k = 'a'"),
        BySourceDelete(condition=IF),
    ),
    (lambda m: m.whenNotMatchedBySourceDelete(), BySourceDelete()),
]


@pytest.mark.parametrize(("call", "clause"), CLAUSES)
def test_a_call_adds_a_clause(
    call: Callable[[DeltaMergeBuilder], DeltaMergeBuilder],
    clause: MergeClause,
    delta_table: DeltaTable,
    recorder: Recorder,
    source: DataFrame,
) -> None:
    call(delta_table.alias("t").merge(source, "t.key = k")).execute()
    assert recorder.only == Merge(
        target=PLACE,
        target_alias="t",
        source=NativeFrame(source),
        on=SqlText("t.key = k"),
        clauses=(clause,),
    )


def test_clauses_stay_in_order_and_builders_stay_as_they_are(
    delta_table: DeltaTable, recorder: Recorder, source: DataFrame
) -> None:
    condition = col("key") == col("k")
    start = delta_table.merge(source, condition).whenMatchedDelete("v = 1")
    start.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    start.execute()
    full, short = recorder.statements
    assert isinstance(full, Merge)
    assert isinstance(short, Merge)
    assert isinstance(full.on, NativeColumn)
    assert full.on.column is condition
    assert [type(clause) for clause in full.clauses] == [
        MatchedDelete,
        MatchedUpdate,
        NotMatchedInsert,
    ]
    assert len(short.clauses) == 1


@pytest.mark.parametrize("asked", [False, True])
def test_schema_evolution_is_asked_for_by_call(
    asked: bool, delta_table: DeltaTable, recorder: Recorder, source: DataFrame
) -> None:
    builder = delta_table.merge(source, "key = k").whenMatchedUpdateAll()
    (builder.withSchemaEvolution() if asked else builder).execute()
    assert isinstance(recorder.only, Merge)
    assert recorder.only.schema_evolution is asked


def test_without_a_clause_it_is_refused(
    delta_table: DeltaTable, recorder: Recorder, source: DataFrame
) -> None:
    with pytest.raises(AnalysisException, match="DELTA_MERGE_MISSING_WHEN"):
        delta_table.merge(source, "key = k").execute()
    assert recorder.statements == []


@pytest.mark.parametrize(
    ("build", "kind"),
    [
        (
            lambda m: m.whenMatchedDelete().whenMatchedUpdateAll(),
            "NON_LAST_MATCHED_CLAUSE_OMIT_CONDITION",
        ),
        (
            lambda m: m.whenNotMatchedInsertAll().whenNotMatchedInsertAll("v = 1"),
            "NON_LAST_NOT_MATCHED_BY_TARGET_CLAUSE_OMIT_CONDITION",
        ),
        (
            lambda m: m.whenNotMatchedBySourceDelete().whenNotMatchedBySourceDelete("key = 1"),
            "NON_LAST_NOT_MATCHED_BY_SOURCE_CLAUSE_OMIT_CONDITION",
        ),
    ],
)
def test_only_the_last_clause_of_a_kind_may_have_no_condition(
    build: Callable[[DeltaMergeBuilder], DeltaMergeBuilder],
    kind: str,
    delta_table: DeltaTable,
    recorder: Recorder,
    source: DataFrame,
) -> None:
    with pytest.raises(AnalysisException, match=kind):
        build(delta_table.merge(source, "key = k")).execute()
    assert recorder.statements == []


NONE, EXPRESSION, DICT = (
    (ValueError, "cannot be None"),
    (TypeError, "must be a Spark SQL Column or a string"),
    (TypeError, "must be a dict"),
)


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda m: m.whenMatchedUpdate({"value": "v"}), NONE),
        (lambda m: m.whenMatchedUpdate(1), NONE),
        (lambda m: m.whenMatchedUpdate(1, {"value": "v"}), EXPRESSION),
        (lambda m: m.whenMatchedUpdate("k = 'a'", 1), DICT),
        (lambda m: m.whenMatchedUpdate(set="k = 'a'", condition={"value": 1}), DICT),
        (
            lambda m: m.whenMatchedUpdate(set={"value": 1}),
            (TypeError, "Values of dict in 'set' in whenMatchedUpdate must contain only"),
        ),
        (
            lambda m: m.whenMatchedUpdate(set={1: ""}),
            (TypeError, "Keys of dict in 'set' in whenMatchedUpdate must contain only"),
        ),
        (lambda m: m.whenMatchedUpdateAll(1), EXPRESSION),
        (lambda m: m.whenMatchedDelete(1), EXPRESSION),
        (lambda m: m.whenNotMatchedInsert(condition="a"), NONE),
        (lambda m: m.whenNotMatchedInsert(1, {"value": "v"}), EXPRESSION),
        (lambda m: m.whenNotMatchedInsert("a", 1), DICT),
        (lambda m: m.whenNotMatchedInsertAll(1), EXPRESSION),
        (lambda m: m.whenNotMatchedBySourceUpdate("a"), NONE),
        (lambda m: m.whenNotMatchedBySourceUpdate(1, {"value": "v"}), EXPRESSION),
        (lambda m: m.whenNotMatchedBySourceUpdate("a", 1), DICT),
        (lambda m: m.whenNotMatchedBySourceDelete(1), EXPRESSION),
    ],
)
def test_bad_arguments(
    call: Callable[[Any], object],
    problem: tuple[type[Exception], str],
    delta_table: DeltaTable,
    source: DataFrame,
) -> None:
    with pytest.raises(problem[0], match=problem[1]) as found:
        call(delta_table.merge(source, "key = k"))
    assert isinstance(found.value, InvalidRequest)


@pytest.mark.parametrize(("condition", "problem"), [(1, EXPRESSION), (None, NONE)])
def test_the_condition_is_an_expression(
    condition: Any, problem: tuple[type[Exception], str], delta_table: DeltaTable, source: DataFrame
) -> None:
    with pytest.raises(problem[0], match=problem[1]):
        delta_table.merge(source, condition)
