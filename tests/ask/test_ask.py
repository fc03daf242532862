"""Questions about a few tables are answered alike in every way, and a lost row is found."""

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
from tests.ask.conditions import Condition, Drawing, negated
from tests.ask.kinds import EVERY
from tests.ask.machine import Difference, Machine
from tests.ask.model import NotModelled, holds
from tests.ask.offline import Offline
from tests.ask.shrinking import shrunk
from tests.ask.tables import ID, WRITERS, Plan, arrow_of, draw, fewer
from txlake.log import skipping
from txlake.log.predicates import Opaque, Predicate, bind, parse_predicate
from txlake.protocol.types import Field, Primitive, Struct
from txlake.spark import candidate_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Tables of some rows, by different writers.
SEEDS = (2, 6)
QUESTIONS = 15


@pytest.fixture
def machine(spark: SparkSession, tmp_path: Path) -> Iterator[Machine]:
    made = Machine(spark, tmp_path, with_delta_spark=False)
    yield made
    made.close()


@pytest.fixture
def offline(tmp_path: Path) -> Iterator[Offline]:
    made = Offline(tmp_path)
    yield made
    made.close()


@pytest.mark.no_interop("the tables are gone before the test ends")
@pytest.mark.broad(keep=1)
@pytest.mark.parametrize("seed", SEEDS)
def test_all_ways_answer_alike(machine: Machine, seed: int) -> None:
    result = machine.seed(seed, QUESTIONS)
    assert result.questions == QUESTIONS
    assert not result.differences, "\n".join(map(str, result.differences))


@pytest.mark.no_interop("the tables are gone before the test ends")
def test_conditions_that_the_log_models_find_their_rows_without_spark(offline: Offline) -> None:
    wrong = [one for seed in range(100, 106) for one in offline.seed(seed, 40)]
    assert not wrong, "\n".join(wrong)
    assert offline.questions > 80
    assert offline.answers.keys() >= {"query", "DELETE", "UPDATE"}


@pytest.mark.no_interop("the tables are gone before the test ends")
def test_a_row_that_the_driver_loses_is_found(
    offline: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidate_rows, "rows_may_match", _losing)
    wrong = [one for seed in range(100, 106) for one in offline.seed(seed, 40)]
    assert any("DELETE: " in one for one in wrong)


@pytest.mark.no_interop("the tables are gone before the test ends")
@pytest.mark.broad
def test_a_difference_is_made_small(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidate_rows, "rows_may_match", _losing)
    luck = Random(3)
    plan = draw(luck, ("arrow",), sizes=(6,))
    condition = Condition("\u27e6id\u27e7 >= 1", ">=")  # row 0 is in the file too
    whole = Condition("({}) AND ({})", "AND", (condition, Condition("\u27e6id\u27e7 < 99", "<")))
    [found] = machine.ask(1, plan, machine.plain(), [(0, whole)], every=True).differences
    assert "DELETE" in {way for way, _ in found.answers}

    def ask(plan: Plan, condition: Condition) -> Difference | None:
        result = machine.ask(1, plan, machine.plain(), [(0, condition)], every=True)
        return next(iter(result.differences), None)

    small = shrunk(found, ask, tries_max=12)
    assert small.condition is not None
    assert len(small.condition.text()) < len(whole.text())
    assert len(small.plan.rows) < len(plan.rows)


def _losing(predicate: Predicate, rows: pa.Table, schema: Struct) -> pa.BooleanArray:
    """As `rows_may_match`, but for the second row."""
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
                holds(predicate, row)
        else:
            assert holds(predicate, row) is expected, text


def test_drawn_tables_can_be_kept_as_arrow_and_made_smaller() -> None:
    for seed in range(40):
        plan = draw(Random(seed), WRITERS, sizes=(1, 5, 30))
        ids = {row[ID] for row in plan.rows}
        assert arrow_of(plan, plan.rows, later=True).num_rows == len(ids)
        few = set(sorted(ids)[:2])
        assert {row[ID] for row in fewer(plan, few).rows} == few


def test_a_seed_draws_the_same_conditions_each_time() -> None:
    plan = draw(Random(7), WRITERS, sizes=(5,))
    pools = {one.name: [row[one.name] for row in plan.rows] for one in plan.columns}
    first, second = (
        [Drawing(Random(9), plan.columns, pools).condition().text("o.") for _ in range(2)]
        for _ in range(2)
    )
    assert first == second


def test_a_condition_becomes_simpler_down_to_its_leaves() -> None:
    leaf = Condition("\u27e6a\u27e7 = {}", "=")
    whole = Condition("({}) AND ({})", "AND", (Condition("\u27e6a\u27e7 = 1", "="), negated(leaf)))
    assert whole.text("o.") == "(o.`a` = 1) AND (NOT (o.`a` = {}))"
    assert {one.text() for one in whole.simpler()} == {
        "`a` = 1",
        "NOT (`a` = {})",
        "(`a` = 1) AND (`a` = {})",
    }


def test_cells_that_no_question_reached_are_named() -> None:
    reached: coverage.Reached = Counter(
        {("type", name, way): 1 for name in EVERY for way in coverage.ALL_WAYS}
    )
    missing = coverage.empty(reached)
    assert "writer polars, way DELETE" in missing
    assert "type INT, writer values" in missing
    assert not [one for one in missing if one.startswith("type") and "way" in one]
    assert "type MAP<STRING,INT>, writer polars" not in missing
