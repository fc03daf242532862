"""A lake's records of the streams that write into it: their sinks and last micro-batches.

Each query has a small file in the warehouse, written before a micro-batch is committed. It names
the tables that the batch writes; only those tables tell whether the batch was committed, by their
`txn` action, which is committed together with the rows. So the record of a batch that never reached
its commit is harmless, and a commit with an unknown outcome is found again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from txlake.catalog import DEFAULT_DATABASE
from txlake.errors import CorruptTable, InvalidRequest
from txlake.ports import Store
from txlake.session.branch_use import BranchMark, mark_of, mark_of_table
from txlake.session.engine import Engine, Handle
from txlake.sql.statements import TablePath

FOLDER = "_txlake/streams"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressRecord:
    """The record of one query.

    Attributes:
        sink: the sink's name in messages: a table, or a description of the batches' function.
        batch: the micro-batch that was last about to be committed; -1 for none. A sink into one
            table doesn't record it, as the table has it.
        tables: the URLs of the tables that this batch writes.
        branch: the branch that the query writes to; None for main.
    """

    sink: str
    batch: int = -1
    tables: tuple[str, ...] = ()
    branch: BranchMark | None = None

    def encode(self) -> bytes:
        """Return the record as the content of its file."""
        fields: dict[str, object] = {
            "sink": self.sink,
            "batch": self.batch,
            "tables": list(self.tables),
        }
        if self.branch is not None:
            fields["branch"] = {"id": self.branch.id, "name": self.branch.name}
        return json.dumps(fields).encode()

    @classmethod
    def decode(cls, data: bytes, file: str) -> ProgressRecord:
        """Read the record of a file. Raises CorruptTable for other content."""
        try:
            fields = json.loads(data)
            branch = None
            match fields:
                case {"branch": {"id": str(branch_id), "name": str(name)}}:
                    branch = BranchMark(branch_id, name)
            match fields:
                case {"sink": str(sink), "batch": int(batch), "tables": [*tables]}:
                    urls = tuple(map(str, tables))
                    return cls(sink=sink, batch=batch, tables=urls, branch=branch)
        except ValueError:
            pass
        raise CorruptTable(
            f"{file}: expected a stream's record of its last micro-batch, found {data[:100]!r}; "
            "compare the stream's tables with its source, then start it with a new checkpoint"
        )


class Progress:
    """The record of one query, read from and written to the warehouse."""

    def __init__(self, engine: Engine, query_id: str, sink: str) -> None:
        """Take `sink` as in ProgressRecord."""
        assert engine.warehouse is not None
        self._engine = engine
        self._store: Store = engine.warehouse
        self._query_id = query_id
        self._path = f"{FOLDER}/{query_id}.json"
        self._sink = sink

    def claim(self, table: Handle | None = None) -> None:
        """Record this sink as the query's, if there is no record.

        Raises as `require_own`.
        """
        if self.require_own(table) is None:
            record = ProgressRecord(sink=self._sink, branch=mark_of_table(self._engine, table))
            self._store.put(self._path, record.encode())

    def require_own(self, table: Handle | None = None) -> ProgressRecord | None:
        """Return the query's record; None without one.

        Raises InvalidRequest when it names another branch, and when it names another sink, unless
        the table has rows of the query: it may have been renamed. Raises CorruptTable for an
        invalid record.
        """
        record = self._read()
        branch = mark_of_table(self._engine, table)
        if record is not None and record.branch != branch:
            raise self._other_branch(branch, record.branch)
        if (
            record is not None
            and record.sink != self._sink
            and (table is None or last_batch(table, self._query_id) < 0)
        ):
            raise InvalidRequest(
                f"{self._sink}: the checkpoint is that of the stream into {record.sink}, which has "
                "read its source so far: this sink would miss those rows. Give each sink a "
                "checkpoint of its own"
            )
        return record

    def _other_branch(self, own: BranchMark | None, other: BranchMark | None) -> InvalidRequest:
        """Return the error for a checkpoint of a stream that writes to another branch."""
        here = str(own or "main")
        if own is not None and other is not None and own.name == other.name:
            here = f"{here} as it is now: that one was published, rebased or dropped"
        return InvalidRequest(
            f"{self._sink}: the checkpoint is that of a stream that writes to {other or 'main'}, "
            f"and has read its source so far; this one writes to {here}, which would miss those "
            "rows, or get them twice. Give each a checkpoint of its own; after a branch was "
            "published, start one with a startingVersion after what the published stream had read"
        )

    def is_done(self, batch_id: int) -> bool:
        """Return whether a table of the record has this micro-batch, or a later one."""
        record = self._read()
        return record is not None and self._committed(record) >= batch_id

    def _committed(self, record: ProgressRecord) -> int:
        """Return the number of the last micro-batch that a table of the record has; -1 for none."""
        handles = (self._engine.find(TablePath(url), DEFAULT_DATABASE) for url in record.tables)
        batches = (last_batch(handle, self._query_id) for handle in handles if handle is not None)
        return max(batches, default=-1)

    def require_unbroken(self, batch_id: int) -> None:
        """Raise InvalidRequest if the micro-batch before this one isn't recorded, and no table of
        the record has it.

        The record may be older than the tables: a second process that runs the query, and is
        refused, may have written its own over it.
        """
        record = self._read()
        last = -1 if record is None else record.batch
        if last < batch_id - 1 and record is not None:
            last = max(last, self._committed(record))
        if last < batch_id - 1:
            raise _gap(self._sink, "the lake", last, self._query_id, batch_id)

    def intend(self, batch_id: int, tables: Iterable[Handle]) -> None:
        """Record the tables that the micro-batch is about to write, in addition to recorded ones.

        Raises InvalidRequest when the batch was committed meanwhile, or a later one has begun.
        """
        urls = {handle.store.url for handle in tables}
        previous = self._read()
        if previous is not None and previous.batch > batch_id:
            raise self._already_committed(batch_id)
        if previous is not None and previous.batch == batch_id:
            urls.update(previous.tables)
        record = ProgressRecord(
            sink=self._sink,
            batch=batch_id,
            tables=tuple(sorted(urls)),
            branch=mark_of(self._engine),
        )
        self._store.put(self._path, record.encode())
        if self.is_done(batch_id):
            raise self._already_committed(batch_id)

    def _already_committed(self, batch_id: int) -> InvalidRequest:
        """Return the error for a micro-batch that another process has committed."""
        return InvalidRequest(
            f"{self._sink}: micro-batch {batch_id} of query {self._query_id} is committed already, "
            "by another process that runs the same query; stop one of the two"
        )

    def _read(self) -> ProgressRecord | None:
        """Return the query's record; None without one. Raises CorruptTable for an invalid one."""
        try:
            data = self._store.get(self._path)
        except FileNotFoundError:
            return None
        return ProgressRecord.decode(data, f"{self._store.url}/{self._path}")


def last_batch(table: Handle, query_id: str) -> int:
    """Return the number of the last micro-batch of a query that the table has; -1 for none.

    Where `delta.setTransactionRetentionDuration` expires the numbers of queries, the log's commits
    are searched too. Otherwise a query that paused for longer would write its last micro-batch
    twice.
    """
    snapshot = table.log.latest_or_none()
    if snapshot is None:
        return -1
    version = snapshot.app_version(query_id)
    if version is None and snapshot.properties.transaction_retention_ms is not None:
        version = table.log.app_version_in_commits(query_id)
    return -1 if version is None else version


def require_unbroken(sink: str, table: Handle | None, query_id: str, batch_id: int) -> None:
    """Raise InvalidRequest unless a table has all micro-batches of a query before this one.

    Every micro-batch records its number in the table, even without rows. Spark doesn't read the
    rows of a missing batch again if its checkpoint has the batch as done. `sink` as in
    ProgressRecord; a table whose property `delta.setTransactionRetentionDuration` expires numbers
    may have none.
    """
    last = -1 if table is None else last_batch(table, query_id)
    if last >= batch_id - 1:
        return
    snapshot = None if table is None else table.log.latest_or_none()
    if last < 0 and snapshot is not None and snapshot.properties.transaction_retention_ms:
        return
    raise _gap(sink, "the table", last, query_id, batch_id)


def _gap(sink: str, owner: str, last: int, query_id: str, batch_id: int) -> InvalidRequest:
    """Return the error for the missing micro-batches between `last` and `batch_id`."""
    has = "no micro-batch" if last < 0 else f"the micro-batches up to {last}"
    return InvalidRequest(
        f"{sink}: {owner} has {has} of query {query_id}, whose checkpoint goes on with "
        f"micro-batch {batch_id}: the rows between are missing. It was restored from a backup, "
        "dropped or made anew, or the checkpoint is that of another sink. To write them now, "
        f"remove the files with numbers above {last} (and their .crc files) from the checkpoint's "
        "folders offsets and commits, as long as the source has the rows; or start a new query "
        "with a new checkpoint"
    )
