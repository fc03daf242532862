"""The writer that Spark calls for a stream: in a process beside its driver, and in tasks.

Tasks import this module too: what the driver alone needs is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from txlake.datafiles.stage_task import StageTask
from txlake.errors import UnsupportedFeature
from txlake.streaming.options import place_of, sink_options

# PySpark 4.0 hands rows to sinks one by one, as Python's tuples.
_Base: Any = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What one task wrote: its report, see `datafiles.write_task`, and what the table was like."""

    reports: list[dict[str, object]]
    fit: str


class Writer(_Base):  # type: ignore[misc]
    """A stream's writer: tasks write files, each micro-batch is one commit."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        from txlake.streaming.staging import stage_task

        self._options = dict(options)
        self._overwrite = overwrite
        self._task: StageTask
        self._fit: str
        place, sink = place_of(options), sink_options(options)
        self._task, self._fit = stage_task(place, sink, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        context = TaskContext.get()
        assert context is not None
        reports = self._task(iterator, context.partitionId(), context.taskAttemptId())
        return Staged(reports, self._fit)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        from txlake.streaming.staging import commit_batch

        staged = [one for one in messages if isinstance(one, Staged)]
        commit_batch(
            place_of(self._options),
            sink_options(self._options),
            batchId,
            [report for one in staged for report in one.reports],
            staged[0].fit if staged else self._fit,
            overwrite=self._overwrite,
        )

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing: whether a commit stands may not be known. The files are orphans for VACUUM."""


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> Writer:
    """The writer that suits this PySpark. Raises UnsupportedFeature for 4.0."""
    if _Base is DataSourceStreamWriter:
        raise UnsupportedFeature(
            'writeStream.format("txlake") needs PySpark 4.1 or later; use '
            "lake.write_stream(df, table, checkpoint=...)"
        )
    return Writer(options, schema, overwrite)
