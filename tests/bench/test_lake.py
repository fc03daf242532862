"""The bench's works on transactions of a lake, on next to nothing: checked, or left out and why."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from bench import worker
from bench.__main__ import make_data
from bench.engines import transactions
from bench.registry import WORKS
from bench.results import Machine, Results, SuiteRun, lines
from bench.sizes import WARM_UP
from bench.stage import NotHere, Stage, WrongAnswer, engine_maker
from bench.suites import transactions as transactions_suite
from bench.worker import Measured, Task, measure

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.no_interop("the bench checks its answers itself"),
]

FEW = dataclasses.replace(WARM_UP, transactions=128, staged_files=5, many_commits=100)


def run(
    monkeypatch: pytest.MonkeyPatch, folder: Path, process: str, *names: str, warm_up: bool = False
) -> Measured:
    """Measures some works of a process."""
    monkeypatch.setattr(
        worker, "works_of", lambda task: [work for work in WORKS if work.name in names]
    )
    task = Task("txlake", "lake", process, FEW, str(folder), str(folder), "", warm_up=warm_up)
    return measure(task)


@pytest.mark.broad
def test_what_a_lake_does_is_measured_and_checked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = ("ratify-sqlite", "commit-sqlite", "lock-two", "beside-short")
    measured = run(monkeypatch, tmp_path, "ledger", *names)
    assert tuple(measured.samples) == names
    assert all(value > 0 for values in measured.samples.values() for value in values)
    assert measured.left_out == {}
    details = measured.details
    assert details["ratified a second, SQLite, same tables"] > 0
    assert details["commits, SQLite: p50 ms"] <= details["commits, SQLite: p95 ms"]
    assert details["a long transaction: committed"] == 1
    assert measured.samples["beside-short"] == [1 + details["a long transaction: lost"]]


@pytest.mark.broad
def test_growth_in_commits_tables_and_writers_is_measured_and_checked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = ("many-tables", "many-commits", "many-replacements", "many-replacements-open")
    measured = run(monkeypatch, tmp_path, "growth", *names, "simulated-writers")
    assert tuple(measured.samples) == (*names, "simulated-writers")
    assert all(value > 0 for values in measured.samples.values() for value in values)
    kept = {name.rpartition(": ")[0] for name in measured.details}
    assert {name.split(": ")[1] for name in kept} == {"tables", "commits", "writers"}
    writers = [name for name in measured.details if ": writers: " in name]
    assert [name.rpartition(": ")[2] for name in writers] == ["1", "4", "16", "64"]


def test_a_commit_that_is_missing_fails_the_bench(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("bench.suites.lake._head", lambda lake, table: 1)
    with pytest.raises(WrongAnswer, match="versions"):
        run(monkeypatch, tmp_path, "growth", "simulated-writers")


def test_a_transaction_of_rows_is_measured_without_spark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("txlake.lake.lake.local_spark", lambda: pytest.fail("Spark was started"))
    monkeypatch.setattr("bench.suites.lake.MEDIAN_PART", 64)
    measured = run(monkeypatch, tmp_path, "rows", "two-frames")
    assert measured.samples["two-frames"] == [measured.details["two rows: p50 ms"]]


def test_a_version_that_is_missing_fails_the_bench(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("bench.suites.lake._head", lambda lake, table: 1)
    with pytest.raises(WrongAnswer, match="versions"):
        run(monkeypatch, tmp_path, "ledger", "commit-sqlite")


@pytest.mark.parametrize("warm_up", [False, True])
def test_without_a_server_its_works_are_left_out_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, warm_up: bool
) -> None:
    def missing() -> None:
        raise NotHere("a PostgreSQL server: there is none")

    monkeypatch.setattr("bench.sources.lakes.postgresql_server", missing)
    names = ("ratify-postgresql", "lock-two")
    measured = run(monkeypatch, tmp_path, "ledger", *names, warm_up=warm_up)
    assert list(measured.samples) == ["lock-two"]
    assert measured.left_out == {"ratify-postgresql": "a PostgreSQL server: there is none"}


def test_it_needs_no_data_but_a_folder(tmp_path: Path) -> None:
    make_data("lake", tmp_path / "data", FEW)
    assert list((tmp_path / "data").iterdir()) == []


def test_what_was_left_out_has_no_row() -> None:
    samples: dict[str, dict[str, list[list[float]]]] = {
        work.name: {} for work in WORKS if work.suite == "lake"
    }
    suite = SuiteRun(
        date="2026-01-01",
        rounds=1,
        sizes=FEW,
        machine=Machine(2, 24, "A", "Linux"),
        versions={},
        samples={**samples, "lock-two": {"txlake": [[1.0]]}},
        details={},
    )
    assert [line.work.name for line in lines(Results({"lake": suite}))] == ["lock-two"]


def test_transactions_are_measured_beside_ducklake(tmp_path: Path) -> None:
    """Without Spark but for the sums; DuckLake only where its environment is."""
    told = {}
    for engine in ("ducklake", "txlake"):
        if engine == "ducklake" and not transactions.PYTHON.exists():
            continue
        stage = Stage(engine, engine_maker(engine, tmp_path), FEW, tmp_path, tmp_path / engine)
        stage.scratch.mkdir()
        race = transactions_suite.race(2, "SQLite", same_rows=True)
        told[engine] = (
            transactions_suite.one_writer(transactions_suite.an_order)(stage, 0),
            race(stage, 0),
        )
        name = "2 processes, SQLite, same rows"
        done = stage.details[f"{name}: committed"] + stage.details[f"{name}: aborted"]
        assert done == 2 * transactions_suite.EACH
        assert stage.details[f"{name}: committed"] > 0
    assert all(value > 0 for values in told.values() for value in values)
