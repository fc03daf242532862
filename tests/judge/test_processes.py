"""Real processes on one lake, judged: databases, stores, kinds of tables, and a killed process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.judge.environments import ENVIRONMENTS, prepare_task, verdict_on, worker_tasks
from tests.judge.histories import LEVELS
from tests.judge.worker import PROGRAM
from tests.lake.programs import ended, start, together
from tests.storage.conftest import s3_options  # noqa: F401

pytestmark = [
    pytest.mark.peer("judge"),
    pytest.mark.timeout(1800),
    pytest.mark.no_interop("delta-rs reads every version to put a history in order"),
]


@pytest.mark.broad(keep=1)
@pytest.mark.parametrize(
    "environment", [environment for environment in ENVIRONMENTS if " on " in environment]
)
def test_processes_keep_their_levels(
    request: pytest.FixtureRequest, tmp_path: Path, environment: str
) -> None:
    task = prepare_task(request, tmp_path, environment, levels=LEVELS, seed=1, transactions=10)
    together(PROGRAM, [[one.as_argument()] for one in worker_tasks(task, 3)])
    verdict = verdict_on(task)
    assert verdict.levels["promised"], verdict.explain("promised")
    assert verdict.committed + verdict.failed == 3 * 10 + 1
    assert verdict.committed > 10


@pytest.mark.broad
@pytest.mark.parametrize("environment", ["catalog", "path"])
def test_levels_hold_when_a_process_is_killed(
    request: pytest.FixtureRequest, tmp_path: Path, environment: str
) -> None:
    task = prepare_task(request, tmp_path, environment, levels=LEVELS, seed=2, transactions=10)
    history = Path(task.history)
    processes = [start(PROGRAM, one.as_argument()) for one in worker_tasks(task, 3)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", ended(process)
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        while not history.exists() or history.read_text().count('"process": 1,') < 12:
            assert processes[0].poll() is None, "it is too late to kill it"
        processes[0].kill()
        for process in processes[1:]:
            ended(process)
    finally:
        for process in processes:
            with process:
                process.kill()
    verdict = verdict_on(task)
    assert verdict.levels["promised"], verdict.explain("promised")
    assert verdict.committed > 10
    assert verdict.unknown <= 1
