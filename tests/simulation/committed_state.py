"""The committed state at the end of a run, read without the engine's code for logs and catalogs.

The logs' JSON and Parquet files are replayed line by line; of txlake only the codec of deletion
vectors is used. The catalog is read in SQL.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.simulation.catalog_history import OTHER_ENGINE
from tests.simulation.records import CommittedState, Violation
from tests.simulation.statements import Row, Rows
from tests.simulation.stores import Storage
from txlake.commit.reconciliation import RECOVER
from txlake.protocol.actions import DeletionVector
from txlake.protocol.deletion_vectors import decode_inline, read_from_file, vector_path
from txlake.protocol.paths import decode_path

_COMMIT = re.compile(r"\d{20}\.json")
_NAME = "{}/_delta_log/{:020}.json"


class LogHistory:
    """One table's log, replayed version by version.

    Attributes:
        rows: the rows of each version.
        ids: the values of the identity column in each version; empty without such a column.
        foreign: the versions that another engine made, and those that a recovery made.
        transactions: the transaction id of each version.
        published: the name of the branch that a version published.
    """

    def __init__(
        self,
        storage: Storage,
        root: str,
        name: str,
        files: FileCache,
        *,
        is_catalog_managed: bool = False,
    ) -> None:
        """Replay a log. Raises Violation for a gap, for missing files, and for broken rules.

        Args:
            root: the table's key.
            name: the table's name in messages.
            files: the rows of files that were read before, shared by the logs of one run.
            is_catalog_managed: a recovery may have moved the log's newest commits away.
        """
        self._storage, self._root, self._name, self._files = storage, root, name, files
        self.rows: dict[int, Rows] = {}
        self.ids: dict[int, set[int]] = {}
        self.transactions: dict[int, str] = {}
        self.foreign: set[int] = set()
        self.published: dict[int, str] = {}
        live: dict[str, tuple[Row, ...]] = {}
        self._state = _State()
        self._states: dict[int, _State] = {}
        self._adds: dict[str, dict[str, Any]] = {}
        version = 0
        # A recovery may move the newest commits away; the check of the catalog notices a lost one.
        end = self._newest() if is_catalog_managed else None
        # Commits that log clean-up has deleted are replayed too.
        while (data := storage.last_written.get(_NAME.format(root, version))) is not None:
            if end is not None and version > end:
                break
            self._add(version, data, live)
            version += 1
        if _NAME.format(root, version - 1) not in storage.items:
            raise Violation(f"{name}: the newest version {version - 1} is gone from the log")
        for key in live:
            self._require(self._adds[key])
        for key in storage.keys_in(f"{root}/_delta_log/", _NAME.format(root, version)):
            if _COMMIT.fullmatch(key.removeprefix(f"{root}/_delta_log/")):
                raise Violation(f"{name}: version {version} is missing, and {key} is there")

    def _add(self, version: int, data: bytes, live: dict[str, tuple[Row, ...]]) -> None:
        """Apply a commit's bytes to the live files, and record the version."""
        actions = [json.loads(line) for line in data.splitlines() if line.strip()]
        self._apply(version, actions, live)
        self.rows[version] = tuple(sorted(row for rows in live.values() for row in rows))
        self._states[version] = replace(self._state, live=dict(live))

    def require_files(self, version: int) -> None:
        """Raise Violation if a file of a version was deleted."""
        for key in self._states[version].live:
            self._require(self._adds[key])

    def live_paths(self, version: int) -> set[str]:
        """Return the paths, below the table, of a version's data files and vectors."""
        live = self._states[version].live
        return {path for key in live for path in _paths_of(self._adds[key])}

    def _newest(self) -> int:
        folder = f"{self._root}/_delta_log/"
        names = [key.removeprefix(folder) for key in self._storage.keys_in(folder, "")]
        return max(int(name[:20]) for name in names if _COMMIT.fullmatch(name))

    def _apply(
        self, version: int, actions: list[dict[str, Any]], live: dict[str, tuple[Row, ...]]
    ) -> None:
        for action in actions:
            if "commitInfo" in action:
                info = action["commitInfo"]
                self.transactions[version] = info.get("userMetadata") or info.get("txnId", "")
                if info.get("operation") == "PUBLISH BRANCH":
                    self.published[version] = info["operationParameters"]["branch"].strip('"')
                if info.get("engineInfo") == OTHER_ENGINE or info.get("operation") == RECOVER:
                    self.foreign.add(version)
                self._check_time(version, info.get("inCommitTimestamp"))
            if "remove" in action:
                key = _file_key(action["remove"])
                if live.pop(key, None) is None:
                    raise Violation(
                        f"{self._name} version {version}: {key} is removed and isn't there"
                    )
        for action in actions:
            if "add" in action:
                key = _file_key(action["add"])
                if key in live:
                    raise Violation(f"{self._name} version {version}: {key} is added twice")
                live[key], _ = self._rows_of(action["add"], key)
                self._adds[key] = action["add"]
        paths = [key.partition("\n")[0] for key in live]
        if len(set(paths)) < len(paths):
            raise Violation(
                f"{self._name} version {version}: a file is there twice: {sorted(paths)}"
            )
        self._check_identities(version, actions, live)

    def _check_identities(
        self, version: int, actions: list[dict[str, Any]], live: dict[str, tuple[Row, ...]]
    ) -> None:
        """Check the identity values. Raises Violation for a repeated value or one past the mark.

        A value whose row was deleted must not be given again. The column counts down. Rows of other
        engines, and the rows made from them, have no value.
        """
        where, state = f"{self._name} version {version}", self._state
        for action in actions:
            schema = json.loads(action.get("metaData", {}).get("schemaString", "{}"))
            for column in schema.get("fields", ()):
                about = column["metadata"]
                state.has_identity |= "delta.identity.start" in about
                state.mark = about.get("delta.identity.highWaterMark", state.mark)
        self.ids[version] = set()
        if not state.has_identity:
            return
        values = [value for key in live for value in self._rows_of(self._adds[key], key)[1]]
        ids = [value for value in values if value is not None]
        if len(ids) < sum(map(len, live.values())) and not self.foreign:
            raise Violation(f"{where}: a row has no value")
        current = set(ids)
        if len(current) < len(ids) or current & state.former_ids:
            raise Violation(
                f"{where}: a value was given twice: {sorted(ids)}, gone {state.former_ids}"
            )
        if ids and (state.mark is None or min(ids) < state.mark):
            raise Violation(f"{where}: {min(ids)} is past the mark {state.mark}")
        state.former_ids = state.former_ids | (state.ids - current)
        state.ids = self.ids[version] = current

    def _check_time(self, version: int, time_ms: int | None) -> None:
        """Check that the in-commit timestamps increase. Raises Violation otherwise.

        Another engine may write any time where no catalog prevents its commit. The next commit
        continues
        from that time.
        """
        before, self._state.time_ms = self._state.time_ms, time_ms
        if version in self.foreign:
            return
        if before is not None and (time_ms is None or time_ms <= before):
            raise Violation(
                f"{self._name} version {version}: its time is {time_ms}, after {before}"
            )

    def _rows_of(
        self, add: dict[str, Any], key: str
    ) -> tuple[tuple[Row, ...], tuple[int | None, ...]]:
        """Return a file's rows without the deleted ones, and the values of its identity column."""
        content = self._files.get((self._root, key))
        if content is None:
            path = f"{self._root}/{decode_path(add['path'])}"
            parquet = pq.ParquetFile(pa.BufferReader(self._storage.last_written[path]))
            table = parquet.read(use_threads=False)
            columns = {name: table.column(name).to_pylist() for name in table.column_names}
            for name, value in add["partitionValues"].items():
                columns[name] = [int(value)] * len(table)
            rows = list(zip(columns["k"], columns["v"], columns["tag"]))
            deleted = self._deleted(add.get("deletionVector"))
            ids = columns.get("id", ())
            content = (
                tuple(row for place, row in enumerate(rows) if place not in deleted),
                tuple(value for place, value in enumerate(ids) if place not in deleted),
            )
            self._files[self._root, key] = content
        return content

    def _deleted(self, given: dict[str, Any] | None) -> set[int]:
        if given is None:
            return set()
        vector = _vector(given)
        if vector.storage_type == "i":
            return set(decode_inline(vector))
        path = f"{self._root}/{vector_path(vector, 'memory://simulated')}"
        return set(read_from_file(self._storage.last_written[path], vector, file=path))

    def _require(self, add: dict[str, Any]) -> None:
        """Raise Violation if a file that the newest version needs was deleted."""
        for path in _paths_of(add):
            if f"{self._root}/{path}" not in self._storage.items:
                raise Violation(f"{self._name}: the newest version needs {path}, which is gone")


class BranchHistory(LogHistory):
    """One table's log on a branch: its parent's up to the version that the branch began with.

    Attributes:
        base: that version.
    """

    def __init__(
        self, parent: LogHistory, base: int, name: str, commits: Mapping[int, bytes]
    ) -> None:
        """Replay the commits of a branch, by version. Raises Violation as `LogHistory`."""
        self._storage, self._root, self._files = parent._storage, parent._root, parent._files
        self._name, self.base = name, base
        inherited = [version for version in parent.rows if version <= base]
        self.rows = {version: parent.rows[version] for version in inherited}
        self.ids = {version: parent.ids[version] for version in inherited}
        made = parent.transactions.items()
        self.transactions = {
            version: transaction for version, transaction in made if version <= base
        }
        self.foreign, self.published = parent.foreign & set(inherited), {}
        self._states = {version: parent._states[version] for version in inherited}
        self._adds = dict(parent._adds)
        began = self._states[base]
        self._state = replace(began)
        live = dict(began.live)
        for version, data in sorted(commits.items()):
            if version - 1 not in self.rows:
                raise Violation(f"{name}: version {version - 1} is missing before {version}")
            self._add(version, data, live)


@dataclass(slots=True)
class _State:
    """A log's state after a version: its files by key, its time, and its identity column."""

    live: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)
    time_ms: int | None = None
    has_identity: bool = False
    mark: int | None = None
    ids: set[int] = field(default_factory=set)
    former_ids: set[int] = field(default_factory=set)


FileCache = dict[tuple[str, str], tuple[tuple[Row, ...], tuple[int | None, ...]]]


def _paths_of(add: dict[str, Any]) -> list[str]:
    """Return the paths of a data file and of its vector's file, below the table."""
    paths = [decode_path(add["path"])]
    if (given := add.get("deletionVector")) is not None and given["storageType"] == "u":
        paths.append(vector_path(_vector(given), "memory://simulated"))
    return paths


def _vector(given: dict[str, Any]) -> DeletionVector:
    return DeletionVector(
        storage_type=given["storageType"],
        path_or_inline_dv=given["pathOrInlineDv"],
        offset=given.get("offset"),
        size_in_bytes=given["sizeInBytes"],
        cardinality=given["cardinality"],
    )


def _file_key(action: dict[str, Any]) -> str:
    vector = action.get("deletionVector")
    if vector is None:
        return str(action["path"])
    return f"{action['path']}\n{vector['pathOrInlineDv']}@{vector.get('offset')}"


def committed_in_logs(storage: Storage, roots: Mapping[str, str]) -> CommittedState:
    """Return the committed state of path tables; each table's versions are its instants."""
    files: FileCache = {}
    logs = {name: LogHistory(storage, root, name, files) for name, root in roots.items()}
    instants: dict[str, int] = {}
    versions: dict[str, dict[str, int]] = {}
    for name, log in logs.items():
        for version, transaction in log.transactions.items():
            if transaction in instants:
                raise Violation(f"{name}: transaction {transaction} was committed twice")
            instants[transaction] = version
            versions[transaction] = {name: version}
    return CommittedState(instants, versions, {name: log.rows for name, log in logs.items()})


def read_logs(storage: Storage, roots: Mapping[str, tuple[str, str]]) -> dict[str, LogHistory]:
    """Return the logs of a lake's tables.

    `roots`: by table name, its id in the catalog and its key.
    """
    files: FileCache = {}
    return {
        name: LogHistory(storage, root, name, files, is_catalog_managed=True)
        for name, (_, root) in roots.items()
    }


def read_instants(database: sqlite3.Connection) -> dict[str, int]:
    """Return the instant of each transaction by the lake's catalog.

    Raises Violation for a transaction with two instants.
    """
    instants: dict[str, int] = {}
    for relation in ("txlake_commits", "txlake_bare_ratifications"):
        query = f"SELECT DISTINCT transaction_id, sequence FROM {relation}"
        for transaction, sequence in database.execute(query):
            if instants.setdefault(transaction, sequence) != sequence:
                raise Violation(f"transaction {transaction} is committed at two instants")
    return instants


def committed_in_lake(
    storage: Storage, database: sqlite3.Connection, roots: Mapping[str, tuple[str, str]]
) -> CommittedState:
    """Return the committed state of a lake. Raises Violation unless all of it is published.

    `roots`: by table name, its id in the catalog and its key.
    """
    return committed_with_logs(storage, database, roots)[0]


def committed_with_logs(
    storage: Storage, database: sqlite3.Connection, roots: Mapping[str, tuple[str, str]]
) -> tuple[CommittedState, Mapping[str, LogHistory]]:
    """Return the committed state of a lake as `committed_in_lake`, and the tables' logs by name."""
    files: FileCache = {}
    logs = {name: LogHistory(storage, root, name, files) for name, (_, root) in roots.items()}
    names = {table_id: name for name, (table_id, _) in roots.items()}
    instants = read_instants(database)
    versions: dict[str, dict[str, int]] = {transaction: {} for transaction in instants}
    query = "SELECT transaction_id, table_id, version FROM txlake_commits"
    newest: dict[str, int] = {}
    for transaction, table_id, version in database.execute(query):
        if table_id in names:
            name = names[table_id]
            if name in versions[transaction]:
                raise Violation(f"{name}: transaction {transaction} was committed twice")
            versions[transaction][name] = version
            newest[name] = max(version, newest.get(name, -1))
            if logs[name].transactions.get(version, transaction) != transaction:
                raise Violation(f"{name}: version {version} isn't what was ratified")
    for name, log in logs.items():
        if max(log.rows, default=-1) != newest.get(name, -1):
            raise Violation(
                f"{name}: the head is {newest.get(name)}, and the log ends at {max(log.rows)}"
            )
    rows = {name: log.rows for name, log in logs.items()}
    return CommittedState(instants, versions, rows), logs
