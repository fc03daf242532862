"""Spark's micro-batches without Spark: a query that is killed a hundred times in a minute.

`python -m tests.lake.streaming.engine PLACE SINK [once]` runs one query as Spark's
MicroBatchExecution does: a batch's end is logged before the batch, its commit after it, what was
logged without a commit is run again, and where a stream begins is asked anew as long as no batch
was committed. The source, what tasks read, and the sinks are txlake's own.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

import txlake
from tests.lake.streaming.worker import COUNTS, FILES, NAME, NAME_SINK, PATH, PATH_SINK, ROWS
from txlake.lake.micro_batches import BatchWork, TableSink
from txlake.lake.streaming.offsets import Offset
from txlake.lake.streaming.opening import create_session, find_table
from txlake.lake.streaming.options import Place, source_options
from txlake.lake.streaming.planning import stream_task, task_file
from txlake.lake.streaming.source import Source
from txlake.session.branch_use import mark_of

BRANCH, BRANCH_SINK = "work", "copies_on_branch"
SINKS = (PATH_SINK, NAME_SINK, ROWS)


class Query:
    """A query with its checkpoint."""

    def __init__(self, checkpoint: Path, place: Place) -> None:
        self._checkpoint = checkpoint
        for name in ("offsets", "commits"):
            (checkpoint / name).mkdir(parents=True, exist_ok=True)
        self.id = self._identity()
        session = create_session(place)
        handle = find_table(session, place)
        own = handle.log.latest()
        options = source_options({"maxFilesPerTrigger": FILES})
        self._source = Source(handle.log, own, options, mark_of(session.engine))
        self._task = stream_task(own, {})
        self._reach = session.engine.reach(handle)

    def _identity(self) -> str:
        file = self._checkpoint / "metadata"
        if not file.exists():
            put(file, {"id": str(uuid.uuid4())})
        return str(json.loads(file.read_text())["id"])

    def run(self, sink: Callable[[int, pa.Table], None], *, once: bool) -> None:
        """Micro-batches without end, or until there is nothing left to read."""
        offsets, commits = self._numbers("offsets"), self._numbers("commits")
        number = max(offsets, default=-1)
        start = self._source.initial()
        if number >= 0 and number not in commits:
            before = self._offset(number - 1) if number else start
            self._batch(sink, number, before, self._offset(number))
        while True:
            begin = self._offset(number) if number >= 0 else start
            end = self._source.latest(begin, limited=True)
            if end == begin:
                if once:
                    return
                continue
            number += 1
            put(self._checkpoint / "offsets" / str(number), end.to_json())
            self._batch(sink, number, begin, end)

    def _batch(
        self, sink: Callable[[int, pa.Table], None], number: int, start: Offset, end: Offset
    ) -> None:
        own = self._source.own
        adds = self._source.files(start, end)
        batches = list(self._task.rows([task_file(own, add, self._reach) for add in adds]))
        schema = pa.ipc.read_schema(pa.py_buffer(self._task.row_schema))
        sink(number, pa.Table.from_batches(batches, schema))
        put(self._checkpoint / "commits" / str(number), {})

    def _numbers(self, folder: str) -> list[int]:
        names = (one.name for one in (self._checkpoint / folder).iterdir())
        return [int(name) for name in names if name.isdecimal()]

    def _offset(self, number: int) -> Offset:
        text = (self._checkpoint / "offsets" / str(number)).read_text()
        return Offset.from_json(json.loads(text))


def put(file: Path, value: Mapping[str, object]) -> None:
    """The file appears whole or not at all."""
    made = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    made.write_text(json.dumps(value))
    os.replace(made, file)


def work(tx: txlake.Transaction, batch: Any) -> None:
    """A micro-batch into two tables."""
    tx.write(batch, ROWS, "append")
    tx.write(pa.table({"n": [batch.num_rows]}), COUNTS, "append")


def main(place: Path, sink: str, *, once: bool) -> None:
    """Run the query into a sink: a path table, a table of the lake, two tables at once, or a table
    of a branch, where the rows come from the branch too.
    """
    source = Place(table=NAME, lake=str(place / "lake"))
    if sink == BRANCH_SINK:
        source = replace(source, branch=BRANCH)
    if sink == PATH_SINK:
        source = Place(table=str(place / PATH))
    folder = place / "checkpoints" / sink
    query = Query(folder, source)
    target: TableSink | BatchWork
    if sink == ROWS:
        target = BatchWork(work=work, checkpoint=str(folder))
    else:
        table = str(place / sink) if sink == PATH_SINK else sink
        target = TableSink(table=table, checkpoint=str(folder), output_mode="append")
    with txlake.connect(str(place / "lake")) as lake:
        sys.stdout.write("started\n")
        sys.stdout.flush()

        used = lake.branch(BRANCH) if sink == BRANCH_SINK else lake

        def commit(number: int, rows: pa.Table) -> None:
            with used.session() as own:
                batch: Any = rows
                target.commit(own, query.id, number, batch)

        query.run(commit, once=once)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], once="once" in sys.argv[3:])
