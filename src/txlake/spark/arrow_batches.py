"""A query's rows as Arrow record batches, one partition after the other.

Spark's JVM makes the batches (`spark.sql.execution.arrow.maxRecordsPerBatch` rows at most). A task
sends them to this process as they are read, so that nobody holds a partition: one of a table may
have more rows than Spark's driver can hold.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import socket
import struct
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import RDD, SparkContext
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from txlake.errors import Unavailable, UnsupportedFeature
from txlake.protocol.types import to_arrow_type
from txlake.spark.spark_errors import spark_errors
from txlake.spark.types import delta_schema

_HEAD = struct.Struct(">q")
_END = -1
_TOKEN_BYTES = 32
# How long a job that failed before it sent anything isn't noticed; for a connection to say who it
# is; for a job whose connection broke to say why.
_LOOK_S, _HELLO_S, _END_S = 0.2, 10.0, 30.0
_JOBS = "rows of a query"
_logger = logging.getLogger(__name__)


def arrow_form(frame: DataFrame) -> tuple[DataFrame, pa.Schema]:
    """Return a query with columns that Arrow has, and their schema.

    A VARIANT becomes its JSON, an interval of months its text, an interval of days a duration.
    Raises UnsupportedFeature for a column of which Arrow has no form.
    """
    columns, fields = [], []
    for place, item in enumerate(frame.schema):
        column = F.col(f"c{place}")
        kind = item.dataType
        if isinstance(kind, T.VariantType):
            column, kind = F.to_json(column), T.StringType()
        elif isinstance(kind, T.YearMonthIntervalType):
            column, kind = column.cast("string"), T.StringType()
        columns.append(column.alias(item.name))
        fields.append(pa.field(item.name, _arrow_type(item.name, kind), item.nullable))
    if not _is_changed(frame):
        return frame, pa.schema(fields)
    renamed = frame.toDF(*(f"c{place}" for place in range(len(fields))))
    return renamed.select(*columns), pa.schema(fields)


def _is_changed(frame: DataFrame) -> bool:
    changed = (T.VariantType, T.YearMonthIntervalType)
    return any(isinstance(item.dataType, changed) for item in frame.schema)


def _arrow_type(name: str, kind: T.DataType) -> pa.DataType:
    if isinstance(kind, T.DayTimeIntervalType):
        return pa.duration("us")
    if isinstance(kind, T.NullType):
        return pa.null()
    held = delta_schema(T.StructType([T.StructField(name, kind)]))
    try:
        return to_arrow_type(held.fields[0].type)
    except ValueError as error:
        raise UnsupportedFeature(
            f"column {name!r} has the type {kind.simpleString()}, of which Arrow has no form; cast "
            "it to a string"
        ) from error


def arrow_batches(
    frame: DataFrame, schema: pa.Schema, group: str
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the rows of a query in the form of `arrow_form`, in their order.

    `group`: the name of the jobs' group, by which they are cancelled. Closing the generator cancels
    them. Raises Spark's errors as txlake's, and Unavailable if a task's connection breaks.
    """
    jobs = _PartitionJobs(frame, group)
    try:
        for _ in range(jobs.count):
            for message in jobs.messages():
                yield pa.ipc.read_record_batch(pa.py_buffer(message), schema)
    finally:
        jobs.end()


class _PartitionJobs:
    """A job for each partition of a query, one after the other, whose task sends its rows here.

    The task waits while nobody reads: no process holds more than a batch, and what the connection
    buffers.
    """

    def __init__(self, frame: DataFrame, group: str) -> None:
        classic: Any = frame
        self._context: SparkContext = classic.sparkSession.sparkContext
        self._settings = {
            key: value
            for key, value in classic.sparkSession.conf.getAll.items()
            if key.startswith("spark.sql.")
        }
        with spark_errors():
            batches = classic._jdf.toArrowBatchRdd().toJavaRDD()
            self._rows: RDD[Any] = RDD(batches, self._context, NoOpSerializer())
            self.count = self._rows.getNumPartitions()
        self._group = group
        self._token = secrets.token_bytes(_TOKEN_BYTES)
        self._listener = socket.create_server((_host(self._context), 0))
        self._listener.settimeout(_LOOK_S)
        self._task = _sending(self._listener.getsockname()[:2], self._token)
        self._error: Exception | None = None
        self._has_ended = False
        self._succeeded = threading.Semaphore(0)  # counts the jobs
        self._thread = threading.Thread(target=self._run, name="txlake-rows", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        """Run the jobs, in a thread of their own; keep the first error."""
        try:
            # What expressions look up in the session's settings, tasks find in the job's.
            for key, value in self._settings.items():
                self._context.setLocalProperty(key, value)
            self._context.setJobGroup(self._group, _JOBS, interruptOnCancel=True)
            for partition in range(self.count):
                if self._has_ended:
                    return
                with spark_errors():
                    self._context.runJob(self._rows, self._task, [partition])
                self._succeeded.release()
        except Exception as error:
            self._error = error

    def messages(self) -> Iterator[bytes]:
        """Yield the messages of the next partition. Raises the error of its job."""
        with self._connection() as connection, connection.makefile("rb") as stream:
            while True:
                head = stream.read(_HEAD.size)
                size = _HEAD.unpack(head)[0] if len(head) == _HEAD.size else None
                if size == _END:
                    break
                content = b"" if size is None else stream.read(size)
                if size is None or len(content) != size:
                    raise self._broken()
                yield content
        # A task whose input broke off sees its end: that the rows are all is said by the job.
        while not self._succeeded.acquire(timeout=_LOOK_S):
            if not self._thread.is_alive():
                if self._succeeded.acquire(blocking=False):
                    return
                raise self._broken()

    def _connection(self) -> socket.socket:
        """Return the connection of the next partition's task."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                if not self._thread.is_alive():
                    raise self._broken() from None
                continue
            connection.settimeout(_HELLO_S)
            try:
                if hmac.compare_digest(_exactly(connection, _TOKEN_BYTES), self._token):
                    connection.settimeout(None)
                    return connection
            except OSError as error:
                _logger.warning("a connection that isn't a task's: %s", error)
            connection.close()

    def _broken(self) -> Exception:
        """Return the error of the job whose task sends no more."""
        self._listener.close()  # a task that is tried again would send its rows again
        self._thread.join(_END_S)
        return self._error or Unavailable(
            "a task of Spark lost its connection while it sent rows; run the query again"
        )

    def end(self) -> None:
        """Cancel the job that runs; it needn't have ended when this returns."""
        self._has_ended = True
        self._listener.close()
        if self._thread.is_alive():
            try:
                self._context.cancelJobGroup(self._group)
            except Exception as error:  # Spark may have ended
                _logger.debug("the jobs of a query can't be cancelled: %s", error)


def _host(context: SparkContext) -> str:
    """Return the address at which tasks reach this process."""
    if str(context.master).startswith("local"):
        return "127.0.0.1"
    return context.getConf().get("spark.driver.host", "127.0.0.1") or "127.0.0.1"


def _exactly(connection: socket.socket, size: int) -> bytes:
    """Return so many bytes. Raises OSError if they don't come."""
    content = b""
    while len(content) < size:
        piece = connection.recv(size - len(content))
        if not piece:
            raise OSError("it ended early")
        content += piece
    return content


def _sending(address: tuple[str, int], token: bytes) -> Callable[[Iterable[Any]], Iterable[int]]:
    """Return the function that sends a partition's messages to this process."""

    # Nested, so that PySpark takes it along by value.
    def send(messages: Iterable[bytes]) -> Iterable[int]:
        """Send each message after its size, and -1 at the end."""
        import socket
        import struct

        with socket.create_connection(address, 60) as connection:
            connection.settimeout(None)
            connection.sendall(token)
            for message in messages:
                connection.sendall(struct.pack(">q", len(message)))
                connection.sendall(message)
            connection.sendall(struct.pack(">q", -1))
        yield 0

    return send
