"""A process that runs transactions over lists on a lake, and records them in a file.

Its one argument is a `WorkerTask` in JSON. It prints `ready` when the lake is open, waits for a
line, runs the transactions, and ends.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import txlake
from tests.judge.lakes import RowClient, SparkClient, row_lake
from tests.judge.programs import Client, Table, random_plan, run_plan
from tests.judge.recorder import Recorder, append_to_file

PROGRAM = "from tests.judge.worker import main; main()"
_NUMBERS = 1_000


@dataclass(frozen=True)
class WorkerTask:
    """What a worker does.

    Attributes:
        tables: pairs of the tables' names, in keys and in SQL.
        levels: the isolation levels; each transaction has one of them.
        history: the file in which all workers record.
    """

    warehouse: str
    catalog: str
    tables: Sequence[Sequence[str]]
    levels: Sequence[str]
    history: str
    process: int
    seed: int
    transactions: int
    on_spark: bool = False
    options: Mapping[str, str] = field(default_factory=dict)

    def as_argument(self) -> str:
        return json.dumps(asdict(self))


def run(client: Client, task: WorkerTask) -> None:
    """Run the task's transactions in a session."""
    rng = random.Random(task.seed * _NUMBERS + task.process)
    tables = [Table(name, sql) for name, sql in task.tables]
    recorder = Recorder(task.process, append_to_file(Path(task.history)))
    for place in range(task.transactions):
        number = task.process * _NUMBERS + place
        plan = random_plan(rng, number, rng.choice(task.levels), tables)
        for _ in run_plan(client, recorder, tables, plan):
            pass


@contextmanager
def open_client(task: WorkerTask) -> Iterator[Client]:
    """Open a session of the lake."""
    if not task.on_spark:
        with row_lake(task.warehouse, task.catalog, options=task.options) as session:
            yield RowClient(session)
        return
    from tests.spark_session import spark_session

    with txlake.connect(
        task.warehouse, catalog=task.catalog, spark=spark_session(), storage_options=task.options
    ) as lake:
        yield SparkClient(lake)


def main() -> None:
    """Run the task in the process's argument."""
    task = WorkerTask(**json.loads(sys.argv[1]))
    with open_client(task) as client:
        print("ready", flush=True)  # noqa: T201
        sys.stdin.readline()
        run(client, task)
