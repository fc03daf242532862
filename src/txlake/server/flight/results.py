"""The rows of a statement, as record batches that are made while they are sent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from txlake.errors import TxlakeError, Unavailable, UnsupportedFeature
from txlake.server.calls import Limits
from txlake.session.views.describe import Rows
from txlake.spark.arrow_batches import arrow_batches, arrow_form
from txlake.spark.served import ServedPlane, Watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from txlake.commit.data_plane import DataPlane

_COUNT = "num_affected_rows"
_BATCH_ROWS = 16_384


@dataclass(slots=True, kw_only=True)
class Result:
    """A statement's rows, each sent once.

    Attributes:
        schema: the columns; none for a statement without a result.
        held: the rows that the driver computed, or None.
        frame: a query that Spark runs while its rows are sent, or None.
        transaction: the handle of the transaction that the statement was part of.
        is_query: whether the statement was a SELECT.
        stop: ends the call that fetches the rows.
        is_working: whether rows are being made, for which the client waits.
    """

    schema: pa.Schema
    held: pa.Table | None = None
    frame: DataFrame | None = None
    transaction: str | None = None
    is_query: bool = True
    stop: Callable[[], object] | None = None
    is_working: bool = False
    _is_taken: bool = False
    _lost: TxlakeError | None = None
    _watch: Watch | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def count(self) -> int:
        """How many rows there are; -1 if that is known only at their end."""
        return -1 if self.held is None else self.held.num_rows

    @property
    def changed(self) -> int | None:
        """How many rows the statement changed; None for one that returns rows."""
        if not self.schema.names:
            return 0
        if self.is_query or self.schema.names[0] != _COUNT or self.held is None:
            return None
        return int(self.held.column(0)[0].as_py())

    def lose(self, reason: TxlakeError) -> None:
        """Send no more rows, and cancel what Spark does for them."""
        with self._lock:
            self._lost = reason
            watch = self._watch
        if watch is not None:
            with suppress(Exception):  # Spark may have ended; the stream looks for the reason
                watch.cancel()

    def abandon(self) -> None:
        """Send no more rows to a client that doesn't read them, and end its call."""
        self.lose(Unavailable("the rows weren't fetched for too long; run the query again"))
        if self.stop is not None:
            self.stop()

    def take(self) -> bool:
        """Take the rows, which are sent once. Returns False if somebody has taken them."""
        with self._lock:
            is_first, self._is_taken = not self._is_taken, True
            return is_first

    def batches(self, plane: DataPlane, limits: Limits) -> Iterator[pa.RecordBatch]:
        """Yield the rows. Their time limit doesn't run while they wait for the client.

        To be used in one thread, to the end. Raises the reason of `lose`, and as Spark.
        """
        if self.held is not None:
            for batch in self.held.to_batches(_BATCH_ROWS):
                self._require()
                yield batch
            return
        assert self.frame is not None
        assert isinstance(plane, ServedPlane), "only Spark makes frames"
        self.is_working = True
        with plane.statement(limits.statement_s) as watch:
            self._watch = watch
            batches = arrow_batches(self.frame, self.schema, watch.group)
            with closing(batches):
                while True:
                    self._require()
                    try:
                        batch = next(batches, None)
                    except TxlakeError:
                        self._require()
                        raise
                    if batch is None:
                        return
                    watch.pause()
                    self.is_working = False
                    yield batch
                    self.is_working = True
                    watch.resume()

    def _require(self) -> None:
        if self._lost is not None:
            raise self._lost


def result_of(rows: DataFrame | Rows, transaction: str | None, *, is_query: bool) -> Result:
    """Return a statement's result. Raises UnsupportedFeature for a type that Arrow doesn't have."""
    if not isinstance(rows, Rows):
        frame, schema = arrow_form(rows)
        return Result(schema=schema, frame=frame, transaction=transaction)
    if not len(rows.schema.fields):
        return Result(
            schema=pa.schema([]), held=pa.table({}), transaction=transaction, is_query=False
        )
    try:
        held = rows.table()
    except ValueError as error:
        raise UnsupportedFeature(
            f"the result has a type of which Arrow has no form: {error}; cast it to a string"
        ) from error
    return Result(schema=held.schema, held=held, transaction=transaction, is_query=is_query)


def lost_rows() -> Unavailable:
    """Return the error for rows of a transaction that was rolled back."""
    return Unavailable(
        "the transaction was rolled back before all rows were fetched; run the query again"
    )
