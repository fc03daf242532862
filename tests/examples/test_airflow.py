"""The DAG in examples/airflow, without Airflow: its order, and its tasks one by one on a lake."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Self

import pytest
from pyspark.sql import SparkSession

import txlake
from tests.pages import ROOT

FOLDER = ROOT / "examples" / "airflow"


class Dag:
    """As much of Airflow's DAG as the example uses."""

    made: ClassVar[list[Dag]] = []

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.tasks: list[Task] = []
        self.made.append(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Task:
    """As much of its PythonOperator."""

    def __init__(self, *, task_id: str, python_callable: Any, op_kwargs: dict[str, str]) -> None:
        self.task_id = task_id
        self.call = python_callable
        self.kwargs = op_kwargs
        self.after: list[Task] = []
        Dag.made[-1].tasks.append(self)

    def __rshift__(self, other: Task) -> Task:
        other.after.append(self)
        return other

    def run(self, **given: str) -> None:
        templates = {"{{ ds }}": given["day"]}
        kwargs = {name: templates.get(text, text) for name, text in self.kwargs.items()}
        kwargs.update((name, given[name]) for name in self.kwargs if name in given)
        self.call(**kwargs)


@pytest.fixture
def dag(monkeypatch: pytest.MonkeyPatch) -> Dag:
    """What Airflow would find in the file."""
    for name in ("airflow", "airflow.providers", "airflow.providers.standard"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    operators = ModuleType("airflow.providers.standard.operators")
    python = ModuleType("airflow.providers.standard.operators.python")
    sdk = ModuleType("airflow.sdk")
    python.__dict__["PythonOperator"] = Task
    sdk.__dict__["DAG"] = Dag
    for module in (operators, python, sdk):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(Dag, "made", [])
    runpy.run_path(str(FOLDER / "orders_dag.py"))
    monkeypatch.delitem(sys.modules, "orders_tasks")
    [found] = Dag.made
    return found


def test_the_order_of_its_tasks(dag: Dag) -> None:
    assert dag.settings["dag_id"] == "orders"
    assert dag.settings["start_date"].tzinfo is not None
    before = {task.task_id: [one.task_id for one in task.after] for task in dag.tasks}
    assert before == {"prepare": [], "load": ["prepare"], "book": ["load"], "compact": ["book"]}


@pytest.mark.broad
def test_its_tasks_may_run_again(dag: Dag, spark: SparkSession, tmp_path: Path) -> None:
    warehouse = str(tmp_path / "warehouse")
    for day, text in {
        "2026-01-01": '{"item": "apple", "pieces": 5}\n{"item": "apple", "pieces": 1}\n',
        "2026-01-02": '{"item": "plum", "pieces": 2}\n',
    }.items():
        (tmp_path / f"{day}.json").write_text(text)
    for day in ("2026-01-01", "2026-01-02", "2026-01-01"):
        for task in dag.tasks:
            for _ in range(2):
                task.run(warehouse=warehouse, incoming=str(tmp_path), day=day)
    with txlake.connect(warehouse, spark=spark) as lake:
        stock = lake.sql("SELECT item, pieces FROM stock ORDER BY item").collect()
        assert [tuple(row) for row in stock] == [("apple", -6), ("plum", -2)]
        assert lake.read("orders").count() == 3
        assert lake.read("booked").count() == 2


def test_a_day_that_is_none_writes_nothing(dag: Dag, tmp_path: Path) -> None:
    [load] = [task for task in dag.tasks if task.task_id == "load"]
    with pytest.raises(ValueError, match="isoformat"):
        load.run(warehouse=str(tmp_path / "lake"), incoming=str(tmp_path), day="1' OR '1' = '1")
    assert not (tmp_path / "lake").exists()
