"""What a lake remembers of the streams that write into it: their sinks and last micro-batches.

One small file a query in the warehouse, written before a micro-batch is committed. It names the
tables that the batch writes; whether the batch was committed is said by those tables alone, each by
its `txn` action, which became true together with the rows. So a file whose batch never came to its
commit says nothing wrong, and a commit whose outcome nobody was told is found again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from txlake.catalog import DEFAULT_DATABASE
from txlake.errors import CorruptTable, InvalidRequest
from txlake.ports import Store
from txlake.session.engine import Engine, Handle
from txlake.statements import TablePath

FOLDER = "_txlake/streams"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamNote:
    """What is remembered of one query.

    Attributes:
        sink: what it writes, as messages call it: a table, or what is done with its batches.
        batch: the micro-batch that was about to be committed last; -1 for none. A table's sink
            leaves it to the table.
        tables: the URLs of the tables that this batch writes.
    """

    sink: str
    batch: int = -1
    tables: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """The note's file."""
        found = {"sink": self.sink, "batch": self.batch, "tables": list(self.tables)}
        return json.dumps(found).encode()

    @classmethod
    def decode(cls, data: bytes, file: str) -> StreamNote:
        """The note of a file. Raises CorruptTable when it is none."""
        try:
            match json.loads(data):
                case {"sink": str(sink), "batch": int(batch), "tables": [*tables]}:
                    return cls(sink=sink, batch=batch, tables=tuple(map(str, tables)))
        except ValueError:
            pass
        raise CorruptTable(
            f"{file}: expected what a stream noted of its last micro-batch, found {data[:100]!r}; "
            "compare the stream's tables with its source, then start it with a new checkpoint"
        )


class Progress:
    """The notes of one query."""

    def __init__(self, engine: Engine, query_id: str, sink: str) -> None:
        """`sink` as in StreamNote."""
        assert engine.warehouse is not None
        self._engine = engine
        self._store: Store = engine.warehouse
        self._query_id = query_id
        self._path = f"{FOLDER}/{query_id}.json"
        self._sink = sink

    def claim(self, table: Handle | None = None) -> None:
        """Makes the query this sink's. Raises as `require_own`."""
        if self.require_own(table) is None:
            self._store.put(self._path, StreamNote(sink=self._sink).encode())

    def require_own(self, table: Handle | None = None) -> StreamNote | None:
        """The query's note, if it has one.

        Raises InvalidRequest when it is another sink's, unless the table, which may have been
        renamed, has rows of the query.
        """
        note = self._note()
        if (
            note is not None
            and note.sink != self._sink
            and (table is None or written(table, self._query_id) < 0)
        ):
            raise InvalidRequest(
                f"{self._sink}: the checkpoint is that of the stream into {note.sink}, which has "
                "read its source so far: this sink would miss those rows. Give each sink a "
                "checkpoint of its own"
            )
        return note

    def is_done(self, batch_id: int) -> bool:
        """Whether the micro-batch is committed."""
        note = self._note()
        if note is None:
            return False
        found = (self._engine.find(TablePath(url), DEFAULT_DATABASE) for url in note.tables)
        return any(
            written(handle, self._query_id) >= batch_id for handle in found if handle is not None
        )

    def require_unbroken(self, batch_id: int) -> None:
        """Raises InvalidRequest unless all micro-batches before this one are noted."""
        note = self._note()
        last = -1 if note is None else note.batch
        if last < batch_id - 1:
            raise _broken(self._sink, "the lake", last, self._query_id, batch_id)

    def intend(self, batch_id: int, tables: Iterable[Handle]) -> None:
        """Notes which tables the micro-batch writes, before it does; those noted for it stay.

        Raises InvalidRequest when it was committed meanwhile, or a later one begun.
        """
        urls = {handle.store.url for handle in tables}
        known = self._note()
        if known is not None and known.batch > batch_id:
            raise self._taken(batch_id)
        if known is not None and known.batch == batch_id:
            urls.update(known.tables)
        note = StreamNote(sink=self._sink, batch=batch_id, tables=tuple(sorted(urls)))
        self._store.put(self._path, note.encode())
        if self.is_done(batch_id):
            raise self._taken(batch_id)

    def _taken(self, batch_id: int) -> InvalidRequest:
        return InvalidRequest(
            f"{self._sink}: micro-batch {batch_id} of query {self._query_id} is committed already, "
            "by another process that runs the same query; stop one of the two"
        )

    def _note(self) -> StreamNote | None:
        try:
            data = self._store.get(self._path)
        except FileNotFoundError:
            return None
        return StreamNote.decode(data, f"{self._store.url}/{self._path}")


def written(table: Handle, query_id: str) -> int:
    """Return the last micro-batch that the table has of a query; -1 for none.

    Where `delta.setTransactionRetentionDuration` lets the numbers of queries go, the commits that
    the log still has are searched too: a query that stood still for longer would write its last
    micro-batch twice.
    """
    found = table.log.latest_or_none()
    if found is None:
        return -1
    version = found.app_version(query_id)
    if version is None and found.properties.transaction_retention_ms is not None:
        version = table.log.app_version_in_commits(query_id)
    return -1 if version is None else version


def require_unbroken(sink: str, table: Handle | None, query_id: str, batch_id: int) -> None:
    """Raises InvalidRequest unless a table has all micro-batches of a query before this one.

    Each of them leaves its number, one without rows too. Spark doesn't read the rows of those again
    that its checkpoint has as done. `sink` as in StreamNote; a table whose property
    `delta.setTransactionRetentionDuration` lets numbers go may have none.
    """
    last = -1 if table is None else written(table, query_id)
    if last >= batch_id - 1:
        return
    found = None if table is None else table.log.latest_or_none()
    if last < 0 and found is not None and found.properties.transaction_retention_ms:
        return
    raise _broken(sink, "the table", last, query_id, batch_id)


def _broken(sink: str, owner: str, last: int, query_id: str, batch_id: int) -> InvalidRequest:
    has = "no micro-batch" if last < 0 else f"the micro-batches up to {last}"
    return InvalidRequest(
        f"{sink}: {owner} has {has} of query {query_id}, whose checkpoint goes on with "
        f"micro-batch {batch_id}: the rows between are missing. It was restored from a backup, "
        "dropped or made anew, or the checkpoint is that of another sink. To write them now, "
        f"remove the files with numbers above {last} (and their .crc files) from the checkpoint's "
        "folders offsets and commits, as long as the source has the rows; or start a new query "
        "with a new checkpoint"
    )
