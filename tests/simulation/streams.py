"""A stream from one table of a lake into another, or into two in one transaction a micro-batch.

Owns the query as Spark's MicroBatchExecution runs it: the end of a batch is logged before the batch
and its commit after it, and a batch that was logged without a commit is repeated. Source and sinks
are txlake's own. The checkpoint outlives every process, and several may run the query at a time.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from tests.simulation.process import Process
from tests.simulation.programs import MICRO_BATCH, Plan, Program, Runner, maintenance, random_level
from tests.simulation.records import Record, Violation
from tests.simulation.rows.files import live_rows
from tests.simulation.statements import Insert, Row, Rows, State
from txlake.errors import InvalidRequest
from txlake.lake.micro_batches import BatchWork, TableSink
from txlake.lake.streaming.offsets import Offset
from txlake.lake.streaming.options import source_options
from txlake.lake.streaming.source import Source
from txlake.protocol.actions import Add
from txlake.session.engine import Engine
from txlake.session.session import Session
from txlake.session.transaction import Transaction
from txlake.sql.statements import NativeFrame, TableName, Write

KIND = "streams"
SOURCE, SINK, COUNTS = "a", "b", "c"
_FILES = 2


class Batch(Protocol):
    """The client that runs a micro-batch."""

    @property
    def session(self) -> Session:
        """The client's session."""
        ...

    def begin_transaction(self) -> Transaction:
        """Begin a recorded transaction."""
        ...

    def record_insert(self, table: str, rows: Rows) -> None:
        """Record rows that the transaction writes."""
        ...

    def commit_transaction(self) -> None:
        """Commit the transaction."""
        ...


@dataclass
class Query:
    """A query by its checkpoint.

    Attributes:
        into: the tables that it writes.
        offsets, commits: by micro-batch, as Spark's folders of these names.
    """

    into: tuple[str, ...]
    id: str = "stream"
    offsets: dict[int, Offset] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)

    def micro_batch(self, process: Process, client: Batch) -> bool:
        """Run the micro-batch that is due; return whether there was one."""
        engine = client.session.engine
        handle = engine.find(TableName((SOURCE,)), "default")
        assert handle is not None
        own = handle.log.latest()
        source = Source(handle.log, own, source_options({"maxFilesPerTrigger": _FILES}))
        number = max(self.offsets, default=-1)
        begin = self._before(number, source)
        if number >= 0 and number in self.commits:
            begin = self.offsets[number]
        if number < 0 or number in self.commits:
            end = source.latest(begin, limited=True)
            if end == begin:
                return False
            number += 1
            process.step("put", f"checkpoint/offsets/{number}")
            if self.offsets.setdefault(number, end) is not end:
                raise InvalidRequest("another process runs the query")
            process.step("put done", f"checkpoint/offsets/{number}")
        rows = _rows(engine, handle, own, source.files(begin, self.offsets[number]))
        self._sink(client, _table(rows), number)
        process.step("put", f"checkpoint/commits/{number}")
        self.commits.add(number)
        process.step("put done", f"checkpoint/commits/{number}")
        return True

    def _before(self, number: int, source: Source) -> Offset:
        """Return the offset at which a batch begins."""
        first = (
            source.initial()
        )  # Spark asks for it in every batch, also when the table has new versions
        return self.offsets[number - 1] if number > 0 else first

    def _sink(self, client: Batch, rows: pa.Table, number: int) -> None:
        batch: Any = rows
        if len(self.into) == 1:
            sink = TableSink(table=SINK, checkpoint="", output_mode="append")
            sink.commit(_Sinking(client, rows), self.id, number, batch)
        else:
            BatchWork(work=_work, checkpoint="").commit(_Sinking(client), self.id, number, batch)


def _work(tx: _Transaction, batch: pa.Table) -> None:
    """Write a micro-batch into two tables."""
    tx.append(SINK, batch)
    tx.append(COUNTS, _table([(0, batch.num_rows, "rows of a batch")]))


class _Transaction:
    """The transaction that a batch's work receives."""

    def __init__(self, client: Batch, transaction: Transaction) -> None:
        self._client = client
        self._transaction = transaction
        self._session = client.session

    def _own_transaction(self) -> Transaction:
        return self._transaction

    def append(self, name: str, rows: pa.Table) -> None:
        """Append rows to a table and record them."""
        written: Any = rows
        statement = Write(table=TableName((name,)), source=NativeFrame(written), mode="append")
        self._client.record_insert(name, _as_rows(rows))
        self._session.carry_out(self._transaction, statement)


class _Sinking:
    """`BatchSession` with one recorded attempt; `rows`: the rows for a single table."""

    def __init__(self, client: Batch, rows: pa.Table | None = None) -> None:
        self._client = client
        self._rows = rows
        self._session = client.session

    def run(
        self, work: Callable[[Any], object], isolation: str | None = None, attempts: int = 1
    ) -> None:
        """Run the work and commit it."""
        transaction = self._client.begin_transaction()
        work(_Transaction(self._client, transaction))
        # Another process may have committed the batch since this one read the marker.
        if self._rows is not None and transaction.changed():
            self._client.record_insert(SINK, _as_rows(self._rows))
        self._client.commit_transaction()


def _rows(engine: Engine, handle: Any, own: Any, adds: Sequence[Add]) -> list[Row]:
    work: Any = engine.plane.table(
        own, handle.store, system=engine.system, name=None, allowed=lambda: ()
    )
    names = own.schema.names
    places = [names.index(name) for name in ("k", "v", "tag")]
    rows = (row for add in adds for _, row in live_rows(work, add))
    return [(row[places[0]], row[places[1]], row[places[2]]) for row in rows]


def _table(rows: Sequence[Row]) -> pa.Table:
    k, v, tag = zip(*rows, strict=True) if rows else ((), (), ())
    types = (pa.int32(), pa.int32(), pa.string())
    arrays = [pa.array(values, one) for values, one in zip((k, v, tag), types, strict=True)]
    return pa.Table.from_arrays(arrays, names=["k", "v", "tag"])


def _as_rows(table: pa.Table) -> Rows:
    return tuple(zip(*(column.to_pylist() for column in table.columns), strict=True))


def streams(rng: random.Random, tables: Sequence[str]) -> Plan:
    """Rows are added to a table and its files compacted; a query copies each row exactly once."""
    into = (SINK, COUNTS) if rng.random() < 0.5 else (SINK,)
    rows: Rows = tuple((n, 1, f"first{n}") for n in range(rng.randint(0, 2)))
    initial: State = {SOURCE: rows, **dict.fromkeys(into, ())}

    def add() -> Program:
        count = rng.randint(1, 2)

        def body(runner: Runner) -> None:
            new = tuple((n, 1, f"{runner.tag}-{n}") for n in range(count))
            runner.execute(Insert(SOURCE, new))

        return Program("add", body, autocommit=rng.random() < 0.6)

    def change() -> Program:
        return maintenance(rng, (SOURCE, SINK)) if rng.random() < 0.3 else add()

    def stream() -> list[Program]:
        return [MICRO_BATCH] * rng.randint(3, 6)

    def check(state: State, records: Sequence[Record]) -> None:
        expected, actual = Counter(state[SOURCE]), Counter(state[SINK])
        if expected != actual:
            raise Violation(
                f"the stream lost {sorted((expected - actual).elements())}, and gave twice "
                f"{sorted((actual - expected).elements())}"
            )
        if COUNTS in state and sum(row[1] for row in state[COUNTS]) != expected.total():
            raise Violation(
                f"the batches counted {state[COUNTS]}, and there are {expected.total()}"
            )

    clients = [[change() for _ in range(rng.randint(2, 5))] for _ in range(rng.randint(1, 2))]
    clients += [stream() for _ in range(rng.randint(1, 2))]
    rng.shuffle(clients)
    return Plan(
        KIND, initial, clients, random_level(rng), check, may_be_refused=True, streams_into=into
    )
