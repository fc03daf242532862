"""The writer that Spark calls for a stream: in a process beside its driver, and in tasks.

Tasks import this module too: imports for the driver alone are inside functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from txlake.errors import UnsupportedFeature
from txlake.lake.streaming.options import place_of, sink_options
from txlake.lake.streaming.staged import StagedFiles, merge_messages

# PySpark 4.0 hands rows to sinks one by one, as Python's tuples.
_Base: Any = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)


class Writer(_Base):  # type: ignore[misc]
    """A stream's writer: tasks write files, and each micro-batch is one commit."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        from txlake.lake.streaming.sink import plan_stream_staging

        self._options = dict(options)
        self._overwrite = overwrite
        self._plan = plan_stream_staging(place_of(options), sink_options(options), schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedFiles:
        return self._plan.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit the files that the tasks wrote, once for a micro-batch.

        Raises as `commit_batch`.
        """
        from txlake.lake.streaming.sink import commit_batch

        # Spark creates a new writer to commit, so the fingerprint comes from the tasks' messages.
        staged = merge_messages(messages, self._plan.fingerprint)
        place, sink = place_of(self._options), sink_options(self._options)
        commit_batch(place, sink, batchId, staged, overwrite=self._overwrite)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: the commit's outcome may be unknown. VACUUM removes the files."""


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> Writer:
    """Return the writer for the installed PySpark. Raises UnsupportedFeature for 4.0."""
    if _Base is DataSourceStreamWriter:
        raise UnsupportedFeature(
            'writeStream.format("txlake") needs PySpark 4.1 or later; use '
            "lake.write_stream(df, table, checkpoint=...)"
        )
    return Writer(options, schema, overwrite)
