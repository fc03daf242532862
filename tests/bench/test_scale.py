"""The bench's works on what has grown large, on next to nothing: checked, and measured once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import txlake
from bench.registry import WORKS
from bench.sizes import WARM_UP
from bench.sources.huge_logs import make_huge_checkpoint, make_huge_history
from bench.sources.logs import DAYS
from bench.stage import Stage, WrongAnswer, engine_maker
from bench.suites import scale
from bench.worker import Measured, Task, measure
from txlake.commit.table_log import TableLog

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.no_interop("the bench checks its answers itself"),
]

PROCESSES = list(dict.fromkeys(work.process for work in WORKS if work.suite == "scale"))


def run(folder: Path, process: str) -> Measured:
    """Measures a process of the suite."""
    return measure(Task("txlake", "scale", process, WARM_UP, str(folder), str(folder), ""))


@pytest.mark.parametrize("process", PROCESSES)
def test_each_work_is_measured_and_checked(tmp_path: Path, process: str) -> None:
    works = [work for work in WORKS if (work.suite, work.process) == ("scale", process)]
    measured = run(tmp_path, process)
    assert {name: len(values) for name, values in measured.samples.items()} == {
        work.name: work.repeats for work in works
    }
    assert all(value >= 0 for values in measured.samples.values() for value in values)
    details = {"statements": 10, "month": 8}
    assert len(measured.details) == details.get(process, 0)


def test_a_wrong_answer_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage("txlake", engine_maker("txlake", tmp_path), WARM_UP, tmp_path, tmp_path)

    def expect_wrong(work: Callable[[Stage, int], float]) -> None:
        with pytest.raises(WrongAnswer, match=r"expected .*, found"):
            work(stage, 0)

    monkeypatch.setattr(TableLog, "history", lambda log, limit: [{"version": 7}])
    scale.open_history(stage, 0)
    expect_wrong(scale.commit_to_history)
    monkeypatch.setattr(scale, "clean_log", lambda log, retention_ms: ["a file"])
    expect_wrong(scale.clean_history)


def test_the_logs_that_are_made_are_logs(tmp_path: Path) -> None:
    make_huge_checkpoint(tmp_path / "files", 2_500)
    files = txlake.Log(tmp_path / "files").snapshot().files()
    assert files.num_rows == len(set(files["path"].to_pylist())) == 2_500
    assert len({row["day"] for row in map(dict, files["partition_values"].to_pylist())}) == DAYS
    found = txlake.Log(tmp_path / "files").snapshot().files(where="id = 1000500")
    assert found.num_rows == 1
    make_huge_history(tmp_path / "commits", 50)
    log = txlake.Log(tmp_path / "commits")
    assert log.snapshot().version == 49
    assert len(log.history()) == 50
