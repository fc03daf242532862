"""The staging of rows as files in Spark's tasks, and the messages in which tasks report the files.

Tasks import this module; the driver's side is in `staging` and `committing`.
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
class StagedFiles(WriterCommitMessage):
    """The files that tasks wrote.

    Attributes:
        reports: the reports of `datafiles.write_task`.
        fingerprint: of the table's definition that the files were written for.
    """

    reports: Reports
    fingerprint: str


@dataclass(frozen=True, slots=True)
class StagingPlan:
    """How tasks write rows to files.

    Attributes:
        fingerprint: of the table's definition, which must be unchanged at the commit.
    """

    task: StageTask
    fingerprint: str

    def write(self, batches: Iterator[pa.RecordBatch]) -> StagedFiles:
        """Write a task's rows to files, which no commit adds yet; raises as `StageTask`."""
        context = TaskContext.get()
        part = 0 if context is None else context.partitionId()
        # Each attempt uses its own names, so that no file is overwritten.
        name = f"{self.task.write.kind}-{part:05d}-{System().new_id()}"
        return StagedFiles(self.task(batches, name), self.fingerprint)


def all_staged(messages: Sequence[WriterCommitMessage | None]) -> bool:
    """Return whether each task reported its files. Spark calls `commit` only then."""
    return all(isinstance(message, StagedFiles) for message in messages)


def merge_messages(messages: Sequence[WriterCommitMessage | None], fingerprint: str) -> StagedFiles:
    """Return the files of all tasks; `fingerprint` is used if there were no tasks.

    Raises InvalidRequest when a task didn't report its files, or tasks wrote for different
    definitions of the table: rows would be lost.
    """
    staged = [message for message in messages if isinstance(message, StagedFiles)]
    if len(staged) < len(messages):
        raise InvalidRequest(
            f"expected the files of {len(messages)} tasks, found those of {len(staged)}; nothing "
            "was committed, run it again"
        )
    fingerprints = {files.fingerprint for files in staged} or {fingerprint}
    if len(fingerprints) > 1:
        raise InvalidRequest(
            "tasks wrote for different definitions of the table; nothing was committed, run it "
            "again"
        )
    reports = [report for files in staged for report in files.reports]
    return StagedFiles(reports, fingerprints.pop())
