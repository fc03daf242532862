"""The DAG in examples/airflow, without Airflow: its order, and its tasks one by one on a lake."""

from __future__ import annotations

import json
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

    def __init__(
        self,
        *,
        task_id: str,
        python_callable: Any,
        op_kwargs: dict[str, str],
        retries: int | None = None,
    ) -> None:
        self.task_id = task_id
        self.retries = retries
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
    return dag_in("orders", monkeypatch)


@pytest.fixture
def nightly(monkeypatch: pytest.MonkeyPatch) -> Dag:
    """The DAG that works on a branch."""
    return dag_in("nightly", monkeypatch)


def dag_in(name: str, monkeypatch: pytest.MonkeyPatch) -> Dag:
    """The DAG of a file, by modules that stand in for Airflow's."""
    for module_name in ("airflow", "airflow.providers", "airflow.providers.standard"):
        monkeypatch.setitem(sys.modules, module_name, ModuleType(module_name))
    operators = ModuleType("airflow.providers.standard.operators")
    python = ModuleType("airflow.providers.standard.operators.python")
    sdk = ModuleType("airflow.sdk")
    python.__dict__["PythonOperator"] = Task
    sdk.__dict__["DAG"] = Dag
    for module in (operators, python, sdk):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(Dag, "made", [])
    runpy.run_path(str(FOLDER / f"{name}_dag.py"))
    monkeypatch.delitem(sys.modules, f"{name}_tasks")
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


def test_the_order_of_the_tasks_on_a_branch(nightly: Dag) -> None:
    before = {task.task_id: [one.task_id for one in task.after] for task in nightly.tasks}
    assert before == {
        "prepare": [],
        "branch": ["prepare"],
        "load": ["branch"],
        "audit": ["load"],
        "publish": ["audit"],
    }
    assert [task.task_id for task in nightly.tasks if task.retries == 0] == ["audit"]


class Night:
    """A day's run of the DAG."""

    def __init__(self, dag: Dag, place: Path, day: str, *orders: tuple[int, int, int]) -> None:
        self._tasks = {task.task_id: task for task in dag.tasks}
        self._given = {"warehouse": str(place / "lake"), "incoming": str(place), "day": day}
        columns = ("id", "customer", "pieces")
        lines = (json.dumps(dict(zip(columns, one, strict=True))) for one in orders)
        (place / f"{day}.json").write_text("".join(f"{line}\n" for line in lines))

    def run(self, *names: str, times: int = 1) -> None:
        for name in names:
            for _ in range(times):
                self._tasks[name].run(**self._given)


@pytest.mark.broad
def test_a_day_is_published_when_its_audit_passed(
    nightly: Dag, spark: SparkSession, tmp_path: Path
) -> None:
    """Every task twice; then an audit that fails, and a conflict."""

    def rows(query: str) -> list[tuple[object, ...]]:
        with txlake.connect(str(tmp_path / "lake"), spark=spark) as lake:
            return sorted(tuple(row) for row in lake.sql(query).collect())

    first = Night(nightly, tmp_path, "2026-01-01", (1, 1, 5), (2, 1, 1))
    first.run("prepare", times=2)
    rows("INSERT INTO customers VALUES (1, 0), (2, 0)")
    for _ in range(2):
        first.run("branch", "load", "audit", times=2)
        first.run("publish", times=2)
    customers = "SELECT * FROM customers"
    assert rows(customers) == [(1, 2), (2, 0)]
    assert rows("SELECT id FROM orders") == [(1,), (2,)]
    bad = Night(nightly, tmp_path, "2026-01-02", (3, 9, 5), (4, 1, 0))
    bad.run("branch", "load")
    with pytest.raises(ValueError, match=r"without a customer: \[3\]; orders of no pieces: \[4\]"):
        bad.run("audit")
    assert rows("SELECT id FROM orders") == [(1,), (2,)], "main has nothing of it"
    kept = "SELECT id FROM orders VERSION AS OF 'nightly/2026-01-02'"
    assert rows(kept) == [(1,), (2,), (3,), (4,)]
    mended = Night(nightly, tmp_path, "2026-01-02", (3, 2, 5))
    mended.run("branch", "load", "audit")
    rows("UPDATE customers SET orders = 7 WHERE id = 2")
    mended.run("publish")
    assert rows(customers) == [(1, 2), (2, 1)], "loaded anew after the conflict"
    assert rows("SHOW BRANCHES") == []
    assert rows("SELECT * FROM nights") == [("2026-01-01", True), ("2026-01-02", True)]
    mended.run("branch", "load", "audit")
    rows("DROP BRANCH `nightly/2026-01-02`")
    with pytest.raises(ValueError, match="isn't published, and its branch is gone"):
        mended.run("publish")
