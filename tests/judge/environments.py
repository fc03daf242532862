"""The environments of recorded runs: databases, stores, tables of a lake and path tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.judge.histories import Verdict, binary, judge
from tests.judge.lakes import create_tables, table_folders
from tests.judge.programs import Table, plan_to_read_all, row_orders, run_plan, with_row_order
from tests.judge.recorder import Recorder, append_to_file, read_file
from tests.judge.worker import WorkerTask, open_client
from tests.storage.conftest import s3_client

# A database, a store, whether the tables are path tables.
ENVIRONMENTS = {
    "catalog": ("sqlite", "local", False),
    "catalog on PostgreSQL": ("postgresql", "local", False),
    "catalog on S3": ("sqlite", "s3", False),
    "path": ("sqlite", "local", True),
    "path on S3": ("sqlite", "s3", True),
}
_FINAL_READER = 99


def prepare_task(
    request: pytest.FixtureRequest, folder: Path, environment: str, **more: Any
) -> WorkerTask:
    """Create a lake with the tables of a run; return the workers' task, still without their
    numbers.
    """
    binary()
    database, store, by_place = ENVIRONMENTS[environment]
    in_bucket = store == "s3"
    task = WorkerTask(
        warehouse=f"s3://lake/{folder.name}" if in_bucket else str(folder / "lake"),
        catalog=(
            request.getfixturevalue("postgres_url")
            if database == "postgresql"
            else f"sqlite:///{folder / 'catalog.db'}"
        ),
        options=request.getfixturevalue("s3_options") if in_bucket else {},
        history=str(folder / "history"),
        tables=(),
        process=0,
        **more,
    )
    with open_client(task) as client:
        names = ["a"] if by_place else ["a", "b"]
        tables = create_tables(client, task.warehouse, names, by_place=by_place)
    return replace(task, tables=[(table.name, table.sql) for table in tables])


def worker_tasks(task: WorkerTask, count: int) -> Sequence[WorkerTask]:
    """Return the same task for several processes, numbered from 1."""
    return [replace(task, process=process) for process in range(1, count + 1)]


def verdict_on(task: WorkerTask) -> Verdict:
    """Read all lists at the end, and return the verdict on what was recorded."""
    tables = [Table(name, sql) for name, sql in task.tables]
    recorder = Recorder(_FINAL_READER, append_to_file(Path(task.history)))
    with open_client(replace(task, on_spark=False)) as client:
        final_reads = plan_to_read_all(0, task.levels[0], tables)
        for _ in run_plan(client, recorder, tables, final_reads):
            pass
    if task.options:
        local = Path(task.history).parent / "copy"
        _copy_bucket(task, local)
    else:
        local = Path(task.warehouse)
    row_order = row_orders(table_folders(str(local), tables))
    return judge(with_row_order(read_file(Path(task.history)), row_order))


def _copy_bucket(task: WorkerTask, to: Path) -> None:
    """Copy the bucket's objects into a folder, because the tests' S3 serves one reader at a
    time.
    """
    prefix = task.warehouse.removeprefix("s3://lake/") + "/"
    with s3_client(dict(task.options)) as client:
        for page in client.get_paginator("list_objects_v2").paginate(Bucket="lake", Prefix=prefix):
            for item in page["Contents"]:
                file = to / item["Key"].removeprefix(prefix)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(client.get_object(Bucket="lake", Key=item["Key"])["Body"].read())
