"""A process that runs transactions over lists on somebody's lake, and records them to a file.

Its one argument is a `Work` in JSON. It says `ready` when the lake is open, waits for a line, runs,
and ends.
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
from tests.judge.programs import Client, Table, carried_out, drawn
from tests.judge.recorder import Recorder, to_file

PROGRAM = "from tests.judge.worker import main; main()"
_NUMBERS = 1_000


@dataclass(frozen=True)
class Work:
    """What a worker does.

    Attributes:
        tables: pairs of their names, in keys and in statements.
        levels: each transaction is at one of them.
        history: the file that all workers record to.
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


def run(client: Client, work: Work) -> None:
    """Carries it out by a session."""
    dice = random.Random(work.seed * _NUMBERS + work.process)
    tables = [Table(name, sql) for name, sql in work.tables]
    recorder = Recorder(work.process, to_file(Path(work.history)))
    for place in range(work.transactions):
        number = work.process * _NUMBERS + place
        plan = drawn(dice, number, dice.choice(work.levels), tables)
        for _ in carried_out(client, recorder, tables, plan):
            pass


@contextmanager
def opened(work: Work) -> Iterator[Client]:
    """A session of the lake."""
    if not work.on_spark:
        with row_lake(work.warehouse, work.catalog, options=work.options) as session:
            yield RowClient(session)
        return
    from tests.spark_session import spark_session

    with txlake.connect(
        work.warehouse, catalog=work.catalog, spark=spark_session(), storage_options=work.options
    ) as lake:
        yield SparkClient(lake)


def main() -> None:
    """The process."""
    work = Work(**json.loads(sys.argv[1]))
    with opened(work) as client:
        print("ready", flush=True)  # noqa: T201
        sys.stdin.readline()
        run(client, work)
