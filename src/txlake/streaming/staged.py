"""What Spark's tasks write for a data source, and what they say of it.

Tasks import this module: what the driver's side alone needs is in `staging` and `committing`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from txlake.datafiles.stage_task import StageTask
from txlake.errors import InvalidRequest
from txlake.system import System

Reports = list[dict[str, object]]


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What tasks wrote: their reports, see `datafiles.write_task`, and what the table was like."""

    reports: Reports
    fit: str


@dataclass(frozen=True, slots=True)
class Staging:
    """How tasks write rows to files.

    Attributes:
        fit: what the table has to be like still when the files become part of it.
    """

    task: StageTask
    fit: str

    def write(self, batches: Iterator[pa.RecordBatch]) -> Staged:
        """In a task: the rows' files, not yet part of the table; raises as `StageTask`."""
        context = TaskContext.get()
        part = 0 if context is None else context.partitionId()
        # Each attempt has names of its own: no file is written over.
        name = f"{self.task.write.kind}-{part:05d}-{System().new_id()}"
        return Staged(self.task(batches, name), self.fit)


def is_whole(messages: Sequence[WriterCommitMessage | None]) -> bool:
    """Whether each task said what it wrote. Spark asks for no commit before that."""
    return all(isinstance(one, Staged) for one in messages)


def together(messages: Sequence[WriterCommitMessage | None], fit: str) -> Staged:
    """What all tasks wrote; `fit` is that of no tasks.

    Raises InvalidRequest when one of them doesn't say what it wrote: its rows would be lost.
    """
    staged = [one for one in messages if isinstance(one, Staged)]
    if len(staged) < len(messages):
        raise InvalidRequest(
            f"expected what {len(messages)} tasks wrote, found it of {len(staged)}; nothing was "
            "committed, run it again"
        )
    fits = {one.fit for one in staged} or {fit}
    if len(fits) > 1:
        raise InvalidRequest(
            "tasks wrote for different definitions of the table; nothing was committed, run it "
            "again"
        )
    return Staged([report for one in staged for report in one.reports], fits.pop())
