"""Every way gives the same answers about a few tables, and a lost row is found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.ask import coverage
from tests.ask.conditions import Condition, ConditionGenerator, negate
from tests.ask.kinds import EVERY
from tests.ask.machine import Difference, Machine
from tests.ask.model import NotModelled, evaluate
from tests.ask.offline import OfflineMachine
from tests.ask.shrinking import shrink
from tests.ask.tables import ID, WRITERS, Plan, as_arrow, random_plan, with_rows
from txlake.local import candidate_rows
from txlake.log import skipping
from txlake.log.predicates import Opaque, Predicate, bind, parse_predicate
from txlake.protocol.types import Field, Primitive, Struct

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Seeds with a few rows, by different writers.
SEEDS = (2, 6)
QUESTIONS = 15


@pytest.fixture
def machine(spark: SparkSession, tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(spark, tmp_path, with_delta_spark=False)
    yield machine
    machine.close()


@pytest.fixture
def offline(tmp_path: Path) -> Iterator[OfflineMachine]:
    machine = OfflineMachine(tmp_path)
    yield machine
    machine.close()


@pytest.mark.no_interop("the tables are gone before the test ends")
@pytest.mark.broad(keep=1)
@pytest.mark.parametrize("seed", SEEDS)
def test_all_ways_give_the_same_answers(machine: Machine, seed: int) -> None:
    result = machine.seed(seed, QUESTIONS)
    assert result.questions == QUESTIONS
    assert not result.differences, "\n".join(map(str, result.differences))


@pytest.mark.no_interop("the tables are gone before the test ends")
def test_offline_ways_agree_with_the_reference(
    offline: OfflineMachine,
) -> None:
    problems = [one for seed in range(100, 106) for one in offline.seed(seed, 40)]
    assert not problems, "\n".join(problems)
    assert offline.questions > 80
    assert offline.counts.keys() >= {"query", "DELETE", "UPDATE"}


@pytest.mark.no_interop("the tables are gone before the test ends")
def test_a_row_lost_by_the_driver_is_found(
    offline: OfflineMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidate_rows, "rows_may_match", _losing)
    problems = [one for seed in range(100, 106) for one in offline.seed(seed, 40)]
    assert any("DELETE: " in one for one in problems)


@pytest.mark.no_interop("the tables are gone before the test ends")
@pytest.mark.broad
def test_a_difference_is_reduced(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidate_rows, "rows_may_match", _losing)
    rng = Random(3)
    plan = random_plan(rng, ("arrow",), sizes=(6,))
    condition = Condition("\u27e6id\u27e7 >= 1", ">=")  # the file has row 0 as well
    condition_of_two = Condition(
        "({}) AND ({})", "AND", (condition, Condition("\u27e6id\u27e7 < 99", "<"))
    )
    [difference] = machine.ask(
        1, plan, machine.plain(), [(0, condition_of_two)], every=True
    ).differences
    assert "DELETE" in {way for way, _ in difference.answers}

    def ask(plan: Plan, condition: Condition) -> Difference | None:
        result = machine.ask(1, plan, machine.plain(), [(0, condition)], every=True)
        return next(iter(result.differences), None)

    small = shrink(difference, ask, tries_max=12)
    assert small.condition is not None
    assert len(small.condition.text()) < len(condition_of_two.text())
    assert len(small.plan.rows) < len(plan.rows)


def _losing(predicate: Predicate, rows: pa.Table, schema: Struct) -> pa.BooleanArray:
    """As `rows_may_match`, without the second row."""
    found = skipping.rows_may_match(predicate, rows, schema)
    return pc.and_(found, pa.array([place != 1 for place in range(len(found))]))


def test_the_model_orders_values_as_spark_does() -> None:
    row = {"x": float("nan"), "s": "\U00010000", "n": None, "t": {"y": -0.0}}
    cases = {
        "x > 1e308": True,
        "x = double('NaN')": None,
        "NOT (x <= 5)": True,
        "s > '\uffff'": True,
        "n = 1": None,
        "n <=> NULL": True,
        "n IN (1, NULL) OR s = 'a'": None,
        "t.y = 0": True,
        "startswith(s, '')": True,
    }
    schema = Struct(
        (
            Field("x", Primitive("double")),
            Field("s", Primitive("string")),
            Field("n", Primitive("integer")),
            Field("t", Struct((Field("y", Primitive("double")),))),
        )
    )
    for text, expected in cases.items():
        predicate = bind(parse_predicate(text), schema)
        if isinstance(predicate, Opaque):
            with pytest.raises(NotModelled):
                evaluate(predicate, row)
        else:
            assert evaluate(predicate, row) is expected, text


def test_random_tables_convert_to_arrow_and_can_be_reduced() -> None:
    for seed in range(40):
        plan = random_plan(Random(seed), WRITERS, sizes=(1, 5, 30))
        ids = {row[ID] for row in plan.rows}
        assert as_arrow(plan, plan.rows, widened=True).num_rows == len(ids)
        few = set(sorted(ids)[:2])
        assert {row[ID] for row in with_rows(plan, few).rows} == few


def test_equal_seeds_give_equal_conditions() -> None:
    plan = random_plan(Random(7), WRITERS, sizes=(5,))
    pools = {one.name: [row[one.name] for row in plan.rows] for one in plan.columns}
    first, second = (
        [
            ConditionGenerator(Random(9), plan.columns, pools).condition().text("o.")
            for _ in range(2)
        ]
        for _ in range(2)
    )
    assert first == second


def test_simplifications_of_a_condition() -> None:
    leaf = Condition("\u27e6a\u27e7 = {}", "=")
    condition_of_two = Condition(
        "({}) AND ({})", "AND", (Condition("\u27e6a\u27e7 = 1", "="), negate(leaf))
    )
    assert condition_of_two.text("o.") == "(o.`a` = 1) AND (NOT (o.`a` = {}))"
    assert {one.text() for one in condition_of_two.simplifications()} == {
        "`a` = 1",
        "NOT (`a` = {})",
        "(`a` = 1) AND (`a` = {})",
    }


def test_unreached_cells_are_reported() -> None:
    reached: coverage.Reached = Counter(
        {("type", name, way): 1 for name in EVERY for way in coverage.ALL_WAYS}
    )
    missing = coverage.empty(reached)
    assert "writer polars, way DELETE" in missing
    assert "type INT, writer values" in missing
    assert not [one for one in missing if one.startswith("type") and "way" in one]
    assert "type MAP<STRING,INT>, writer polars" not in missing
