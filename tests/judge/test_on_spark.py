"""The whole engine, with Spark: threads of one Spark and processes with one each, judged."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.judge.histories import LEVELS
from tests.judge.places import prepared, verdict_on, workers
from tests.judge.worker import PROGRAM, Work, opened, run
from tests.lake.programs import together
from tests.storage.conftest import s3_options  # noqa: F401

pytestmark = [
    pytest.mark.peer("judge"),
    pytest.mark.timeout(1800),
    pytest.mark.no_interop("delta-rs reads every version to put a history in order"),
]


def in_a_thread(work: Work) -> None:
    """A lake of its own, on the Spark of all."""
    with opened(work) as client:
        run(client, work)


@pytest.mark.broad
@pytest.mark.parametrize("place", ["catalog on PostgreSQL", "catalog on S3", "path"])
def test_threads_get_what_their_levels_promise(
    request: pytest.FixtureRequest, tmp_path: Path, place: str
) -> None:
    work = prepared(request, tmp_path, place, levels=LEVELS, seed=3, transactions=5)
    spark = replace(work, on_spark=True)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(in_a_thread, workers(spark, 3)))
    verdict = verdict_on(work)
    assert verdict.levels["promised"], verdict.explain("promised")
    assert verdict.committed + verdict.failed == 3 * 5 + 1
    assert verdict.committed > 5


@pytest.mark.broad
def test_processes_with_a_spark_each(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    work = prepared(request, tmp_path, "catalog", levels=LEVELS, seed=4, transactions=6)
    both = workers(replace(work, on_spark=True), 2)
    together(PROGRAM, [[one.as_argument()] for one in both])
    verdict = verdict_on(work)
    assert verdict.levels["promised"], verdict.explain("promised")
    assert verdict.committed > 6
