"""`txlake.Log`: a table's log alone, for engine authors. Starts no Spark and reads no SQL.

Owns the public form of snapshots and transactions on one table: plain dictionaries, pyarrow tables
and texts. What they do is `transaction`'s and `log`'s.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import SupportsIndex, cast

import pyarrow as pa
import pyarrow.compute as pc

from txlake.commit.checkpointing import write_checkpoint
from txlake.commit.table_log import TableLog
from txlake.commit.table_transaction import TableTransaction
from txlake.conflict.levels import parse_level
from txlake.errors import InvalidRequest
from txlake.lake.log_actions import actions_of, find_file, require_partitions, require_texts
from txlake.lake.times import instant_ms
from txlake.log.files import FILES_SCHEMA, files_table
from txlake.log.predicates import Predicate, bind, parse_predicate
from txlake.log.snapshot import Snapshot
from txlake.log.time_zones import UTC_ZONE
from txlake.protocol.actions import action_to_object
from txlake.protocol.branching import split_place
from txlake.protocol.paths import decode_path
from txlake.protocol.sources import Source, sources_text
from txlake.protocol.types import type_to_json
from txlake.settings import Settings
from txlake.storage import open_store
from txlake.system import System

_FIRST_COLUMNS = ("path", "size", "partition_values", "stats", "deletion_vector")
_COLUMNS = (*_FIRST_COLUMNS, *(n for n in FILES_SCHEMA.names if n not in _FIRST_COLUMNS))


class Log:
    """The transaction log of the Delta table at a folder or URL. It need not exist yet.

    Raises InvalidRequest for a location or an option that can't be used.
    """

    def __init__(
        self,
        location: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        *,
        settings: Settings | None = None,
    ) -> None:
        if not isinstance(location, str | os.PathLike):
            raise InvalidRequest(f"{location!r:.80} names no place: give a folder or a URL")
        if split_place(os.fspath(location))[1] is not None:
            raise InvalidRequest(
                f"{location}: a Log is a table's own; write and read its branches by SQL, by "
                "DeltaTable, or by Spark's readers and writers"
            )
        store = open_store(location, storage_options)
        self._log = TableLog(store, System(), settings or Settings(), name=os.fspath(location))

    @classmethod
    def over(cls, log: TableLog) -> Log:
        """Return the public form of an open log."""
        wrapped = cls.__new__(cls)
        wrapped._log = log
        return wrapped

    def snapshot(
        self,
        version: int | None = None,
        timestamp: str | int | datetime.datetime | datetime.date | None = None,
    ) -> LogSnapshot:
        """Return the newest version's snapshot, a given one's, or the newest at or before a time.

        `timestamp`: a datetime, a date, a text like `2026-01-31 12:00:00.000` (UTC unless it says
        otherwise), or milliseconds since the epoch. Raises InvalidRequest when there is no table or
        no such version, or both are given, CorruptTable naming the damaged file,
        UnsupportedFeature for a table that txlake doesn't read, Unavailable from the store.
        """
        moment = None if timestamp is None else instant_ms(timestamp)
        return LogSnapshot(self._log.snapshot(_whole("version", version), moment))

    def update(self) -> LogSnapshot:
        """Return the newest version's snapshot, read anew. Raises as `snapshot`."""
        return self.snapshot()

    def checkpoint(self) -> int:
        """Write a checkpoint of the newest version, due or not; return the version.

        Its kind is what the table asks for (`delta.checkpointPolicy`). Raises InvalidRequest when
        there is no table, UnsupportedFeature when the table needs a feature that isn't written
        here, CorruptTable for a damaged log, and Unavailable from the store; a checkpoint that was
        cut short is never read.
        """
        snapshot = self._log.snapshot()
        snapshot.require_writable()
        return write_checkpoint(self._log, snapshot)

    def history(self, limit: int | None = None) -> list[dict[str, object]]:
        """Return the `commitInfo` of the newest `limit` commits, newest first; None: of all that
        are kept.

        Keys are the columns of DESCRIBE HISTORY; `timestamp` is in milliseconds since the epoch.
        Raises InvalidRequest for a limit below 1, and as `snapshot`.
        """
        return [dict(row) for row in self._log.history(_whole("limit", limit))]

    def start_transaction(
        self, isolation: str | None = None, read_version: int | None = None
    ) -> LogTransaction:
        """Begin a transaction that reads the newest version, or a given one.

        On an empty location it reads version -1 and its commit creates the table. `isolation`:
        "serializable", "write_serializable" or "snapshot"; the stricter of it and the table's
        counts. Raises InvalidRequest for an unknown level, and as `snapshot`.
        """
        level = None if isolation is None else parse_level(isolation)
        base: Snapshot | None = None
        read_version = _whole("read_version", read_version)
        if read_version not in (None, -1):
            base = self._log.snapshot(read_version)
        elif read_version is None:
            base = self._log.latest_or_none()
        return LogTransaction(TableTransaction(self._log, base, level, states_marks=True))


class LogSnapshot:
    """One version of a table: its settings and its files. Immutable."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    @property
    def version(self) -> int:
        """The version."""
        return self._snapshot.version

    @property
    def timestamp_ms(self) -> int:
        """When it was committed, milliseconds since the epoch."""
        return self._snapshot.timestamp_ms

    @property
    def partition_columns(self) -> list[str]:
        """The logical names of the partition columns, in order."""
        return list(self._snapshot.partition_columns)

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties, as the log has them."""
        return dict(self._snapshot.metadata.configuration)

    @property
    def schema(self) -> dict[str, object]:
        """The schema as in the log: the JSON object of `schemaString`."""
        return cast("dict[str, object]", type_to_json(self._snapshot.schema))

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema as pyarrow's, with the logical names of columns."""
        return self._snapshot.arrow_schema

    @property
    def protocol(self) -> dict[str, object]:
        """The protocol action's fields, as in the log."""
        return cast("dict[str, object]", action_to_object(self._snapshot.protocol)["protocol"])

    @property
    def metadata(self) -> dict[str, object]:
        """The metaData action's fields, as in the log."""
        return cast("dict[str, object]", action_to_object(self._snapshot.metadata)["metaData"])

    def app_version(self, app_id: str) -> int | None:
        """Return the newest version that an application wrote; None if it never did."""
        return self._snapshot.app_version(app_id)

    def domain(self, name: str) -> str | None:
        """Return the configuration of a metadata domain; None if there is none."""
        domain = self._snapshot.domains.get(name)
        return None if domain is None else domain.configuration

    def files(self, where: str | None = None) -> pa.Table:
        """Return the files that may have rows for which `where` is true; without it all files.

        One row a file: path (decoded), size, partition_values (by physical names), stats,
        deletion_vector, and the other fields of its `add` action, in snake_case. Raises
        InvalidRequest for a condition that can't be parsed or names an unknown column, and where
        sqlglot isn't installed, which parses it.
        """
        predicate = None if where is None else _bound(where, self._snapshot)
        return public_files(self._snapshot.select(predicate))


class LogTransaction:
    """A transaction on one table: what it read decides which concurrent commits it stands."""

    def __init__(self, transaction: TableTransaction) -> None:
        self._transaction = transaction

    @property
    def read_version(self) -> int:
        """The version that it reads; -1 when there is no table yet."""
        return self._transaction.base.version

    @property
    def snapshot(self) -> LogSnapshot:
        """The version that it reads. Looking at it is no read; `read` is."""
        return LogSnapshot(self._transaction.base)

    def read(self, where: str | None = None, *, files: bool = True) -> pa.Table:
        """Read the files that may have rows for which `where` is true; without it all files.

        The predicate and the files are in the read set; with `files=False` the predicate alone is,
        so that only rows which a winner adds count against it (a dynamic partition overwrite).
        Raises as `LogSnapshot.files`.
        """
        base = self._transaction.base
        predicate = None if where is None else _bound(where, base)
        self._transaction.read(predicate, where, files=files)
        return public_files(base.select(predicate))

    def read_files(self, paths: Iterable[str]) -> pa.Table:
        """Read just these files, by their paths, decoded or as in the log.

        Raises InvalidRequest when one isn't in the table.
        """
        base = self._transaction.base
        found = []
        for path in paths:
            file = find_file(base, path)
            if file is None:
                raise InvalidRequest(
                    f"{base.table} at version {base.version}: there is no file {path!r}"
                )
            found.append(file)
        self._transaction.read_files(file.path for file in found)
        return public_files(files_table(found))

    def app_version(self, app_id: str) -> int | None:
        """Return the newest version that an application wrote, None if it wrote none; the commit
        depends on it.
        """
        return self._transaction.app_version(app_id)

    def commit(
        self,
        actions: Sequence[Mapping[str, object]],
        operation: str = "WRITE",
        parameters: Mapping[str, object] | None = None,
        tags: Mapping[str, str] | None = None,
        user_metadata: str | None = None,
    ) -> Committed:
        """Commit the actions, given as dictionaries as in the log's JSON, all or none.

        A `remove` may give just its path. No actions make no version; the first commit of a table
        must have a metaData. Commits that don't conflict are rebased over.

        Raises InvalidRequest for invalid actions, and UnsupportedFeature if the table, or a
        concurrent commit, needs a feature that txlake doesn't write. Raises a Conflict when a
        concurrent commit conflicts, Unavailable when the store can't be reached, and OutcomeUnknown
        when a lost reply could not be resolved.
        """
        own = self._transaction
        require_texts(own.base.table, operation, parameters, tags, user_metadata)
        given = actions_of(actions, own.view, own.log.system)
        if given or own.base.version < 0:
            own.stage(given, operation=operation, parameters=parameters, tags=tags)
            try:
                require_partitions(own.base, own.view)
            except InvalidRequest:
                own.discard_staged()
                raise
        committed = own.commit(user_metadata=user_metadata)
        return Committed(
            version=committed.version,
            attempts=committed.attempts,
            rebased_over=committed.rebased_over,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A commit that stands.

    Attributes:
        version: the version that it made; the version read when there were no actions.
        attempts: how often a version was tried.
        rebased_over: the versions that it was checked against, in order.
    """

    version: int
    attempts: int
    rebased_over: tuple[int, ...]


def sources_tag(sources: Iterable[Sequence[object]]) -> str:
    """Return the value of a file's tag `txlake.sources`: the rows that it has, in order.

    Each source is (path as in the log, deletion vector id or None, first live row, number of live
    rows); the output's rows are exactly those live rows. Raises InvalidRequest for anything else.
    """
    rows = []
    for source in sources:
        match list(source):
            case [str(path), str() | None as vector, int(first), int(count)] if (
                first >= 0 and count >= 0
            ):
                rows.append(Source(path=path, vector_id=vector, first=first, rows=count))
            case _:
                raise InvalidRequest(
                    "sources: expected (path, deletion vector id or None, first live row, number "
                    f"of live rows), found {source!r:.120}"
                )
    return sources_text(rows)


def public_files(table: pa.Table) -> pa.Table:
    """Return files as a table for engine authors: paths decoded, the main fields first."""
    place = table.schema.get_field_index("path")
    chunks = [_decoded(paths) for paths in table["path"].iterchunks()]
    decoded = table.set_column(place, "path", pa.chunked_array(chunks, pa.string()))
    return decoded.select(_COLUMNS)


def _decoded(paths: pa.Array) -> pa.Array:
    """Return the paths with their percent-encoding decoded."""
    if not pc.any(pc.match_substring(paths, "%")).as_py():
        return paths
    return pa.array([decode_path(path) for path in paths.to_pylist()], pa.string())


def _whole(name: str, value: int | None) -> int | None:
    """Return a whole number, or None, as it is. Raises InvalidRequest for any other value."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise InvalidRequest(f"{name}={value!r:.80}: expected a whole number")
    return value.__index__()


def _bound(where: str, snapshot: Snapshot) -> Predicate:
    """Return a condition as a predicate over the table's columns.

    Raises InvalidRequest for what isn't text, isn't a condition, or names an unknown column.
    """
    if not isinstance(where, str):
        raise InvalidRequest(f"where: expected a condition as text, found {where!r:.80}")
    return bind(parse_predicate(where), snapshot.schema, time_zone=UTC_ZONE)


__all__ = ["Committed", "Log", "LogSnapshot", "LogTransaction", "sources_tag"]
