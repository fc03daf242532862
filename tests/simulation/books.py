"""What stands at the end of a run, read with none of the engine's code for logs and catalogs.

The logs' JSON files and Parquet files are replayed here line by line; of txlake only the codec of
deletion vectors is used. The catalog is asked in SQL.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.simulation.chronicle import OUTSIDER
from tests.simulation.history import Books, Doubt
from tests.simulation.statements import Row, Rows
from tests.simulation.stores import Storage
from txlake.commit.reconciliation import RECOVER
from txlake.protocol.actions import DeletionVector
from txlake.protocol.deletion_vectors import decode_inline, read_from_file, vector_path
from txlake.protocol.paths import decode_path

_COMMIT = re.compile(r"\d{20}\.json")
_NAME = "{}/_delta_log/{:020}.json"


class LogBook:
    """One table's log, replayed version by version.

    Attributes:
        rows: by version.
        foreign: the versions that another engine made, and those that a recovery emptied.
        transactions: whose each version is.
    """

    def __init__(
        self,
        storage: Storage,
        root: str,
        name: str,
        known: Cache,
        *,
        is_catalog_managed: bool = False,
    ) -> None:
        self._storage, self._root, self._name, self._known = storage, root, name, known
        self.rows: dict[int, Rows] = {}
        self.transactions: dict[int, str] = {}
        self.foreign: set[int] = set()
        live: dict[str, tuple[Row, ...]] = {}
        self._has_identity = False
        self._mark: int | None = None
        self._ids: set[int] = set()
        self._gone: set[int] = set()
        self._adds: dict[str, dict[str, Any]] = {}
        self._time_ms: int | None = None
        version = 0
        # A lake's recovery sets files aside; that none of its own is missing, its catalog tells.
        end = self._newest() if is_catalog_managed else None
        # Commits that were there once, and were cleaned up since.
        while (data := storage.ever.get(_NAME.format(root, version))) is not None:
            if end is not None and version > end:
                break
            actions = [json.loads(line) for line in data.splitlines() if line.strip()]
            self._apply(version, actions, live)
            self.rows[version] = tuple(sorted(row for rows in live.values() for row in rows))
            version += 1
        if _NAME.format(root, version - 1) not in storage.items:
            raise Doubt(f"{name}: the newest version {version - 1} is gone from the log")
        for key in live:
            self._require(self._adds[key])
        for key in storage.below(f"{root}/_delta_log/", _NAME.format(root, version)):
            if _COMMIT.fullmatch(key.removeprefix(f"{root}/_delta_log/")):
                raise Doubt(f"{name}: version {version} is missing, and {key} is there")

    def _newest(self) -> int:
        folder = f"{self._root}/_delta_log/"
        names = [key.removeprefix(folder) for key in self._storage.below(folder, "")]
        return max(int(name[:20]) for name in names if _COMMIT.fullmatch(name))

    def _apply(
        self, version: int, actions: list[dict[str, Any]], live: dict[str, tuple[Row, ...]]
    ) -> None:
        for action in actions:
            if "commitInfo" in action:
                info = action["commitInfo"]
                self.transactions[version] = info.get("userMetadata") or info.get("txnId", "")
                if info.get("engineInfo") == OUTSIDER or info.get("operation") == RECOVER:
                    self.foreign.add(version)
                self._check_time(version, info.get("inCommitTimestamp"))
            if "remove" in action:
                key = _file_key(action["remove"])
                if live.pop(key, None) is None:
                    raise Doubt(f"{self._name} version {version}: {key} is removed and isn't there")
        for action in actions:
            if "add" in action:
                key = _file_key(action["add"])
                if key in live:
                    raise Doubt(f"{self._name} version {version}: {key} is added twice")
                live[key], _ = self._rows_of(action["add"], key)
                self._adds[key] = action["add"]
        paths = [key.partition("\n")[0] for key in live]
        if len(set(paths)) < len(paths):
            raise Doubt(f"{self._name} version {version}: a file is there twice: {sorted(paths)}")
        self._check_identities(version, actions, live)

    def _check_identities(
        self, version: int, actions: list[dict[str, Any]], live: dict[str, tuple[Row, ...]]
    ) -> None:
        """Raises Doubt where a value is given twice, or the table's mark doesn't cover it.

        One that is gone with its row counts as given. Values go down. Rows of another engine, and
        what is made of them, have none.
        """
        where = f"{self._name} version {version}"
        for action in actions:
            schema = json.loads(action.get("metaData", {}).get("schemaString", "{}"))
            for column in schema.get("fields", ()):
                about = column["metadata"]
                self._has_identity |= "delta.identity.start" in about
                self._mark = about.get("delta.identity.highWaterMark", self._mark)
        if not self._has_identity:
            return
        found = [one for key in live for one in self._rows_of(self._adds[key], key)[1]]
        ids = [one for one in found if one is not None]
        if len(ids) < sum(map(len, live.values())) and not self.foreign:
            raise Doubt(f"{where}: a row has no value")
        now = set(ids)
        if len(now) < len(ids) or now & self._gone:
            raise Doubt(f"{where}: a value was given twice: {sorted(ids)}, gone {self._gone}")
        if ids and (self._mark is None or min(ids) < self._mark):
            raise Doubt(f"{where}: {min(ids)} is beyond the mark {self._mark}")
        self._gone |= self._ids - now
        self._ids = now

    def _check_time(self, version: int, time_ms: int | None) -> None:
        """Raises Doubt unless a commit's own time, where commits carry one, is a later one.

        Another engine may write any, where no catalog keeps its commit away; the next one goes on
        from there.
        """
        before, self._time_ms = self._time_ms, time_ms
        if version in self.foreign:
            return
        if before is not None and (time_ms is None or time_ms <= before):
            raise Doubt(f"{self._name} version {version}: its time is {time_ms}, after {before}")

    def _rows_of(
        self, add: dict[str, Any], key: str
    ) -> tuple[tuple[Row, ...], tuple[int | None, ...]]:
        """A file's rows, and the values of its identity column."""
        found = self._known.get((self._root, key))
        if found is None:
            path = f"{self._root}/{decode_path(add['path'])}"
            parquet = pq.ParquetFile(pa.BufferReader(self._storage.ever[path]))
            table = parquet.read(use_threads=False)
            columns = {name: table.column(name).to_pylist() for name in table.column_names}
            for name, value in add["partitionValues"].items():
                columns[name] = [int(value)] * len(table)
            rows = list(zip(columns["k"], columns["v"], columns["tag"]))
            deleted = self._deleted(add.get("deletionVector"))
            ids = columns.get("id", ())
            found = (
                tuple(row for place, row in enumerate(rows) if place not in deleted),
                tuple(one for place, one in enumerate(ids) if place not in deleted),
            )
            self._known[self._root, key] = found
        return found

    def _deleted(self, given: dict[str, Any] | None) -> set[int]:
        if given is None:
            return set()
        vector = _vector(given)
        if vector.storage_type == "i":
            return set(decode_inline(vector))
        path = f"{self._root}/{vector_path(vector, 'memory://simulated')}"
        return set(read_from_file(self._storage.ever[path], vector, file=path))

    def _require(self, add: dict[str, Any]) -> None:
        """Raises Doubt when a file that the newest version needs is gone."""
        paths = [decode_path(add["path"])]
        if (given := add.get("deletionVector")) is not None and given["storageType"] == "u":
            paths.append(vector_path(_vector(given), "memory://simulated"))
        for path in paths:
            if f"{self._root}/{path}" not in self._storage.items:
                raise Doubt(f"{self._name}: the newest version needs {path}, which is gone")


Cache = dict[tuple[str, str], tuple[tuple[Row, ...], tuple[int | None, ...]]]


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


def path_books(storage: Storage, roots: Mapping[str, str]) -> Books:
    """Of tables without a catalog; with several the instants are each table's own versions."""
    known: Cache = {}
    logs = {name: LogBook(storage, root, name, known) for name, root in roots.items()}
    instants: dict[str, int] = {}
    versions: dict[str, dict[str, int]] = {}
    for name, log in logs.items():
        for version, transaction in log.transactions.items():
            if transaction in instants:
                raise Doubt(f"{name}: transaction {transaction} was committed twice")
            instants[transaction] = version
            versions[transaction] = {name: version}
    return Books(instants, versions, {name: log.rows for name, log in logs.items()})


def logs_of(storage: Storage, roots: Mapping[str, tuple[str, str]]) -> dict[str, LogBook]:
    """Of a lake's tables, `roots` having each one's id and key."""
    known: Cache = {}
    return {
        name: LogBook(storage, root, name, known, is_catalog_managed=True)
        for name, (_, root) in roots.items()
    }


def instants_of(database: sqlite3.Connection) -> dict[str, int]:
    """The instants of the lake by transaction, as its catalog has them."""
    found: dict[str, int] = {}
    for relation in ("txlake_commits", "txlake_bare_ratifications"):
        query = f"SELECT DISTINCT transaction_id, sequence FROM {relation}"
        for transaction, sequence in database.execute(query):
            if found.setdefault(transaction, sequence) != sequence:
                raise Doubt(f"transaction {transaction} stands at two instants")
    return found


def lake_books(
    storage: Storage, database: sqlite3.Connection, roots: Mapping[str, tuple[str, str]]
) -> Books:
    """Of a lake's tables, `roots` having each one's id and key. All has to be published."""
    known: Cache = {}
    logs = {name: LogBook(storage, root, name, known) for name, (_, root) in roots.items()}
    names = {table_id: name for name, (table_id, _) in roots.items()}
    instants = instants_of(database)
    versions: dict[str, dict[str, int]] = {transaction: {} for transaction in instants}
    query = "SELECT transaction_id, table_id, version FROM txlake_commits"
    newest: dict[str, int] = {}
    for transaction, table_id, version in database.execute(query):
        if table_id in names:
            name = names[table_id]
            if name in versions[transaction]:
                raise Doubt(f"{name}: transaction {transaction} was committed twice")
            versions[transaction][name] = version
            newest[name] = max(version, newest.get(name, -1))
            if logs[name].transactions.get(version, transaction) != transaction:
                raise Doubt(f"{name}: version {version} isn't what was ratified")
    for name, log in logs.items():
        if max(log.rows, default=-1) != newest.get(name, -1):
            raise Doubt(
                f"{name}: the head is {newest.get(name)}, and the log ends at {max(log.rows)}"
            )
    return Books(instants, versions, {name: log.rows for name, log in logs.items()})
