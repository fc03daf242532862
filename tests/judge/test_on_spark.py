"""The whole engine with Spark, judged: threads that share a Spark, and processes with their own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.judge.environments import prepare_task, verdict_on, worker_tasks
from tests.judge.histories import LEVELS
from tests.judge.worker import PROGRAM, WorkerTask, open_client, run
from tests.lake.programs import together
from tests.storage.conftest import s3_options  # noqa: F401

pytestmark = [
    pytest.mark.peer("judge"),
    pytest.mark.timeout(1800),
    pytest.mark.no_interop("delta-rs reads every version to put a history in order"),
]


def in_a_thread(task: WorkerTask) -> None:
    """Run a task with a lake of its own on the shared Spark."""
    with open_client(task) as client:
        run(client, task)


@pytest.mark.broad
@pytest.mark.parametrize("environment", ["catalog on PostgreSQL", "catalog on S3", "path"])
def test_threads_keep_their_levels(
    request: pytest.FixtureRequest, tmp_path: Path, environment: str
) -> None:
    task = prepare_task(request, tmp_path, environment, levels=LEVELS, seed=3, transactions=5)
    spark = replace(task, on_spark=True)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(in_a_thread, worker_tasks(spark, 3)))
    verdict = verdict_on(task)
    assert verdict.levels["promised"], verdict.explain("promised")
    assert verdict.committed + verdict.failed == 3 * 5 + 1
    assert verdict.committed > 5


@pytest.mark.broad
def test_processes_with_their_own_spark_keep_their_levels(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    task = prepare_task(request, tmp_path, "catalog", levels=LEVELS, seed=4, transactions=6)
    both = worker_tasks(replace(task, on_spark=True), 2)
    together(PROGRAM, [[one.as_argument()] for one in both])
    verdict = verdict_on(task)
    assert verdict.levels["promised"], verdict.explain("promised")
    assert verdict.committed > 6
