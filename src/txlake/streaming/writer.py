"""The writer that Spark calls for a stream: in a process beside its driver, and in tasks.

Tasks import this module too: what the driver alone needs is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from txlake.errors import UnsupportedFeature
from txlake.streaming.options import place_of, sink_options
from txlake.streaming.staged import Staged, together

# PySpark 4.0 hands rows to sinks one by one, as Python's tuples.
_Base: Any = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)


class Writer(_Base):  # type: ignore[misc]
    """A stream's writer: tasks write files, each micro-batch is one commit."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        from txlake.streaming.sink import stage_stream

        self._options = dict(options)
        self._overwrite = overwrite
        self._staging = stage_stream(place_of(options), sink_options(options), schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._staging.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        from txlake.streaming.sink import commit_batch

        # Spark makes a writer anew to commit: what the table was like is what the tasks say.
        staged = together(messages, self._staging.fit)
        place, sink = place_of(self._options), sink_options(self._options)
        commit_batch(place, sink, batchId, staged, overwrite=self._overwrite)

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
