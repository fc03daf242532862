"""Micro-batches of streams: each is committed in one transaction, once.

Each table that a micro-batch writes gets a `txn` action with the query's id and the batch's number.
Spark may run a batch again; what was committed isn't committed twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

import pyarrow as pa

from txlake.catalog import DEFAULT_DATABASE
from txlake.commit.change import Change
from txlake.lake.read_versions import named_table
from txlake.lake.streaming.progress import Progress, last_batch, require_unbroken
from txlake.protocol.actions import Txn
from txlake.session.branch_use import require_branch_open
from txlake.session.session import Session
from txlake.session.transaction import Transaction as SessionTransaction
from txlake.sql.statements import NativeFrame, StreamBatch, Write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OutputMode = Literal["append", "complete"]


Work = Callable[[Any, "DataFrame"], object]


ATTEMPTS = 5


FOREACH_BATCH = "foreach_batch"


class BatchTransaction(Protocol):
    """A transaction of the session that commits a micro-batch."""

    _session: Session

    def _own_transaction(self) -> SessionTransaction: ...


class BatchSession(Protocol):
    """A session that commits micro-batches."""

    _session: Session

    def run(
        self,
        work: Callable[[Any], object],
        isolation: str | None = None,
        attempts: int = 5,
    ) -> object:
        """Run `work` in a transaction; repeat both after a conflict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSink:
    """A table to which a stream's micro-batches are written.

    Attributes:
        table: a name, or the path or URL of a path table.
        checkpoint: the folder in which Spark keeps the query's progress.
        reads_target: whether the stream may read the table that it writes.
    """

    table: str
    checkpoint: str
    output_mode: OutputMode
    merge_schema: bool | None = None
    overwrite_schema: bool = False
    partition_by: tuple[str, ...] | None = None
    cluster_by: tuple[str, ...] | None = None
    user_metadata: str | None = None
    reads_target: bool = False

    def commit(self, session: BatchSession, query_id: str, batch_id: int, batch: DataFrame) -> None:
        """Write a micro-batch in a transaction of its own, up to 5 times after conflicts.

        A batch that was committed before is only computed. Raises InvalidRequest if the checkpoint
        is another sink's or batches before this one are missing, and what a write raises.
        """
        named = named_table(self.table)
        engine = session._session.engine
        require_branch_open(engine)
        handle = engine.find(named, DEFAULT_DATABASE)
        progress = Progress(engine, query_id, self.table)
        progress.claim(handle)
        if handle is not None and last_batch(handle, query_id) >= batch_id:
            _evaluate(batch)
            return
        require_unbroken(self.table, handle, query_id, batch_id)
        statement = Write(
            table=named,
            source=NativeFrame(batch),
            mode="append" if self.output_mode == "append" else "overwrite",
            partition_by=self.partition_by,
            cluster_by=self.cluster_by,
            merge_schema=self.merge_schema,
            overwrite_schema=self.overwrite_schema,
            app_id=query_id,
            app_version=batch_id,
            batch=StreamBatch(
                query_id=query_id,
                batch_id=batch_id,
                output_mode=self.output_mode,
                reads_target=self.reads_target,
            ),
        )

        def write(tx: BatchTransaction) -> None:
            """Write the batch in the transaction."""
            transaction = tx._own_transaction()
            transaction.user_metadata = self.user_metadata
            tx._session.carry_out(transaction, statement)

        session.run(write, None, ATTEMPTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWork:
    """A program's function, called with each micro-batch of a stream in one transaction.

    Attributes:
        database: the database of unqualified names: the current one when the query was started.
    """

    work: Work
    checkpoint: str
    database: str = DEFAULT_DATABASE
    isolation: str | None = None
    attempts: int = ATTEMPTS

    def commit(self, session: BatchSession, query_id: str, batch_id: int, batch: DataFrame) -> None:
        """Call the function with a micro-batch and commit; repeat both after a conflict.

        A batch that was committed before is only computed. Raises InvalidRequest if the checkpoint
        is another sink's or batches before this one are missing, and what the function raises. The
        session's current database becomes that of the query's start.
        """
        require_branch_open(session._session.engine)
        progress = Progress(session._session.engine, query_id, FOREACH_BATCH)
        progress.claim()
        if progress.is_done(batch_id):
            _evaluate(batch)
            return
        progress.require_unbroken(batch_id)
        session._session.database = self.database

        def run(tx: BatchTransaction) -> None:
            """Call the function in the transaction, which records the batch when it commits."""
            transaction = tx._own_transaction()
            transaction.before_commit(partial(_sign, transaction, progress, query_id, batch_id))
            self.work(tx, batch)

        session.run(run, self.isolation, self.attempts)


def _evaluate(batch: DataFrame | pa.Table) -> None:
    """Compute the rows of a committed micro-batch without writing them; nothing for an Arrow table.

    Aggregations, joins and deduplications keep the state of each batch when it is computed; since
    Spark 4.1 a query stops when the state of a finished batch is missing.
    """
    if not isinstance(batch, pa.Table):
        batch.write.format("noop").mode("overwrite").save()


def _sign(
    transaction: SessionTransaction, progress: Progress, query_id: str, batch_id: int
) -> None:
    """Stage the query's `txn` action for every table that the micro-batch changes.

    The tables are first recorded in the warehouse. Raises InvalidRequest when the batch is
    committed already, by another process that runs the query.
    """
    changed = transaction.changed()
    progress.intend(batch_id, changed)
    for handle in changed:
        transaction.open(handle).app_version(
            query_id
        )  # the read of it: a commit of this batch conflicts
        txn = Txn(
            app_id=query_id, version=batch_id, last_updated=transaction.engine.system.now_ms()
        )
        transaction.stage(handle, Change(operation="STREAMING UPDATE", actions=(txn,)))
