"""The reader that Spark calls for a stream: in a process beside its driver, and in tasks.

Owns the differences between PySpark's releases. Since 4.2 Spark passes the start offset and a limit
and gets the end offset. Before, it asks for the end without them, so that a micro-batch reads all
available rows. Tasks import this module too: imports for the driver alone are inside functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from txlake.datafiles.stream_task import StreamedFile, StreamTask
from txlake.lake.streaming.options import SourceOptions, place_of, source_options

if TYPE_CHECKING:
    from txlake.lake.streaming.offsets import Offset
    from txlake.lake.streaming.source import Source
    from txlake.log.snapshot import Snapshot
    from txlake.protocol.reach import Reach

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )

    HAS_ADMISSION = True
except ImportError:  # PySpark 4.0 and 4.1
    HAS_ADMISSION = False


class _OpenTable:
    """The table, opened by this process."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        from txlake.lake.streaming.opening import create_session, find_table
        from txlake.lake.streaming.planning import require_table_schema
        from txlake.lake.streaming.source import Source
        from txlake.session.branch_use import mark_of_table

        place, parsed = place_of(options), source_options(options)
        self.session = create_session(place)
        handle = find_table(self.session, place)
        own = handle.log.latest()
        require_table_schema(schema, _columns(own, parsed), own.table)
        self._branch = mark_of_table(self.session.engine, handle)
        self.source: Source = Source(handle.log, own, parsed, self._branch)
        self._place = place
        self._options = parsed
        self._storage_options = place.storage_options
        self._schema = schema
        self._reach: Reach = self.session.engine.reach(handle)

    def require_branch(self) -> None:
        """Raise InvalidRequest if the stream's branch has ended."""
        from txlake.errors import InvalidRequest
        from txlake.lake.streaming.opening import find_table
        from txlake.session.branch_use import (
            mark_of,
            mark_of_table,
            require_branch_kept,
            require_branch_open,
        )

        engine = self.session.engine
        require_branch_kept(engine)
        require_branch_open(engine)
        if self._branch != mark_of(engine) and self._branch != mark_of_table(
            engine, find_table(self.session, self._place)
        ):
            raise InvalidRequest(
                f"{self._place.table}: {self._branch} has ended, and this is another one of the "
                "same name. Start a new query with a new checkpoint"
            )

    def parts(self, start: Offset, end: Offset) -> list[tuple[StreamTask, list[StreamedFile]]]:
        """Return the task and files of each of Spark's partitions, from `start` to before `end`."""
        from txlake.lake.streaming.planning import FeedPlan, stream_task, task_file, task_partitions

        own = self.source.own
        if self._options.read_change_feed:
            plan = FeedPlan(own, self._storage_options, self._schema)
            return plan.parts(self.source.changes(start, end), self._reach)
        task = stream_task(own, self._storage_options, self._schema)
        parts = task_partitions(self.source.files(start, end), lambda add: add.size)
        return [(task, [task_file(own, add, self._reach) for add in part]) for part in parts]


def _columns(snapshot: Snapshot, options: SourceOptions) -> StructType:
    """Return the columns of the stream: the table's, or those of its change feed."""
    from txlake.lake.streaming.planning import feed_schema, stream_schema

    return (feed_schema if options.read_change_feed else stream_schema)(snapshot)


class Reader(DataSourceStreamReader):
    """A stream's reader; subclasses have the methods that differ between PySpark's releases."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = dict(options)
        self._schema = schema
        self._opened: _OpenTable | None = None
        self._began: Offset | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_opened": None, "_began": None}

    @property
    def _table(self) -> _OpenTable:
        """The table, opened on first use.

        Raises InvalidRequest if there is no table, its columns aren't those that Spark expects, or
        its branch has ended.
        """
        if self._opened is None:
            self._opened = _OpenTable(self._options, self._schema)
        else:
            self._opened.require_branch()
        return self._opened

    def initialOffset(self) -> dict[str, object]:  # noqa: N802 - PySpark's
        self._began = self._table.source.initial()
        return self._began.to_json()

    def partitions(
        self, start: Mapping[str, object], end: Mapping[str, object]
    ) -> Sequence[InputPartition]:
        """Return a partition for each task, from `start` until before `end`."""
        from txlake.lake.streaming.offsets import Offset

        parts = self._table.parts(Offset.from_json(start), Offset.from_json(end))
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition, in a task."""
        task: StreamTask
        files: list[StreamedFile]
        task, files = partition.value
        return task.rows(files)

    def stop(self) -> None:
        """Close the session that the table was opened with."""
        if self._opened is not None:
            self._opened.session.close()
            self._opened.session.engine.close()


class UnlimitedReader(Reader):
    """The reader for PySpark 4.0 and 4.1, which don't pass a micro-batch's start offset."""

    def latestOffset(self) -> dict[str, object]:  # type: ignore[override]  # noqa: N802
        source = self._table.source
        return source.newest(source.beginning()).to_json()


if HAS_ADMISSION:

    class LimitedReader(Reader, SupportsTriggerAvailableNow):
        """The reader for PySpark 4.2 and later: the options limit a micro-batch."""

        def getDefaultReadLimit(self) -> Any:  # noqa: ANN401, N802 - PySpark's
            limit = source_options(self._options).max_files
            return ReadMaxFiles(2**31 - 1 if limit is None else min(limit, 2**31 - 1))

        def latestOffset(self, start: Mapping[str, object], limit: object) -> dict[str, object]:  # noqa: N802
            """Return the end of the micro-batch that begins at `start`, within the limits."""
            from txlake.lake.streaming.offsets import Offset

            offset = Offset.from_json(start)
            self._began = offset.beginning()
            limited = not isinstance(limit, ReadAllAvailable)
            return self._table.source.latest(offset, limited=limited).to_json()

        def reportLatestOffset(self) -> dict[str, object] | None:  # noqa: N802
            began = self._began
            return None if began is None else self._table.source.newest(began).to_json()

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            self._table.source.stop_at_newest()


def stream_reader(options: Mapping[str, str], schema: StructType) -> Reader:
    """Return the reader for the installed PySpark."""
    return LimitedReader(options, schema) if HAS_ADMISSION else UnlimitedReader(options, schema)


def stream_columns(options: Mapping[str, str]) -> StructType:
    """Return the columns of a stream of the table that the options name.

    The table is opened and closed. Raises InvalidRequest for invalid options, and if there is no
    table.
    """
    from txlake.lake.streaming.opening import create_session, find_table

    place, parsed = place_of(options), source_options(options)
    session = create_session(place)
    try:
        return _columns(find_table(session, place).log.latest(), parsed)
    finally:
        session.close()
        session.engine.close()
