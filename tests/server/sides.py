"""One of two servers that are held against each other, and another engine that is its client.

Owns how a table is made, and a commit staged, asked for and published; and what of an answer is
compared: its status, its error's kind, and its fields, without what differs by nature (ids, places,
times, messages).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2 as httpx

from tests.commit.foreign import stage, told
from tests.server.client import SCHEMA, file
from txlake.ports import Store
from txlake.protocol.actions import Action, Metadata, Protocol, encode_actions
from txlake.protocol.file_names import STAGED_FOLDER, commit_path
from txlake.server.app import ROOT
from txlake.storage import open_store

CATALOG, SCHEMA_NAME = "warehouse", "default"
TIMEOUT_S = 60
_COLUMNS = {
    "type": "struct",
    "fields": [{"name": "id", "type": "integer", "nullable": True, "metadata": {}}],
}
# Chosen by a server, or said in its own words.
_OWN = frozenset({"message", "etag", "id", "metastore_id", "schema_id", "table_id", "table-id"})
_PLACES = frozenset({"location", "storage_location", "prefix"})
_MAPS = frozenset({"properties", "required-properties", "suggested-properties", "config"})


@dataclass(frozen=True, slots=True)
class Told:
    """An answer. `kind`: the type of its error, "" without one."""

    status: int
    kind: str
    body: Any

    @classmethod
    def of(cls, answer: httpx.Response) -> Told:
        is_json = "json" in answer.headers.get("content-type", "")
        body = answer.json() if is_json and answer.content.strip() else None
        error = body.get("error") if isinstance(body, dict) else None
        kind = error.get("type", "") if isinstance(error, dict) else ""
        if isinstance(body, dict) and "error_code" in body:  # as the older API says it
            kind = body["error_code"]
        return cls(answer.status_code, kind, body)

    def fields(self) -> Any:
        """The body's fields, with the values of those that both servers have to agree on."""
        return None if self.status >= 400 else _fields("", self.body)


def _fields(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        if name in _MAPS:
            return "a map"
        return {key: _fields(key, one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_fields(name, one) for one in value]
    if name in _OWN or name.endswith("uuid"):
        return "an id"
    if name in _PLACES:
        return "a place"
    is_time = name.endswith(("time", "timestamp", "timestamp-ms", "time-ms", "_at"))
    return "a time" if is_time and isinstance(value, int) else value


@dataclass
class Table:
    """A table as its client knows it. `taken`: what it staged, by version."""

    id: str
    place: str
    required: Mapping[str, Any]
    taken: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        """Its folder."""
        return open_store(self.place)


class Side:
    """A server at a URL; whose, `name` says."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.url = url
        self.tables: dict[str, Table] = {}
        self._http = httpx.Client(timeout=TIMEOUT_S)
        self._time_ms = 1_000_000

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def call(self, method: str, path: str, body: object = None, content: bytes = b"") -> Told:
        """One request, below the root of both APIs."""
        extra: dict[str, Any] = {} if body is None else {"json": body}
        if content:
            extra = {"content": content, "headers": {"content-type": "application/json"}}
        return Told.of(self._http.request(method, f"{self.url}{ROOT}{path}", **extra))

    def of(self, method: str, table: str, body: object = None, below: str = "") -> Told:
        """A request about a table."""
        return self.call(method, f"{tables_path()}/{table}{below}", body)

    def next_time(self) -> int:
        """A time after all before."""
        self._time_ms += 1000
        return self._time_ms

    # New tables

    def stage_table(self, name: str) -> Told:
        """Asks for a place for a new table, and keeps it under the name."""
        answer = self.call("POST", tables_path("staging-tables"), {"name": name})
        if answer.status == 200:
            self.tables[name] = Table(
                answer.body["table-id"],
                answer.body["location"],
                {
                    "protocol": answer.body["required-protocol"],
                    "properties": answer.body["required-properties"],
                },
            )
        return answer

    def write_first(self, name: str) -> int:
        """Write its first commit; the commit's time."""
        table = self.tables[name]
        protocol, time = table.required["protocol"], self.next_time()
        actions: list[Action] = [
            told(time, f"first of {name}", "CREATE TABLE"),
            Protocol(
                min_reader_version=3,
                min_writer_version=7,
                reader_features=tuple(protocol["reader-features"]),
                writer_features=tuple(protocol["writer-features"]),
            ),
            Metadata(id=table.id, schema_string=SCHEMA, configuration=table.required["properties"]),
        ]
        table.store.put(commit_path(0), encode_actions(actions))
        return time

    def create_request(self, table: str, time_ms: int, **changes: object) -> dict[str, Any]:
        """The body that asks for a table's name; `changes` with None are left out."""
        known = self.tables[table]
        whole = {
            "name": table,
            "location": known.place,
            "table-type": "MANAGED",
            "columns": _COLUMNS,
            "protocol": known.required["protocol"],
            "properties": known.required["properties"],
            "last-commit-timestamp-ms": time_ms,
            **{key.replace("_", "-"): value for key, value in changes.items()},
        }
        return {key: value for key, value in whole.items() if value is not None}

    def create(self, name: str) -> Told:
        """Make a table, as a client does."""
        self.stage_table(name)
        body = self.create_request(name, self.write_first(name))
        return self.call("POST", tables_path(), body)

    # Commits

    def stage(self, name: str, version: int, *actions: Action) -> dict[str, Any]:
        """Stages a commit: what is told of it."""
        staged = stage(
            self.tables[name].store,
            version,
            self.next_time(),
            *(actions or (file(f"{uuid.uuid4()}.parquet"),)),
        )
        return {
            "version": version,
            "timestamp": staged.timestamp_ms,
            "file-name": staged.name,
            "file-size": staged.size_bytes,
            "file-modification-timestamp": staged.timestamp_ms,
        }

    def update(
        self, name: str, *updates: object, requirements: Sequence[object] | None = None
    ) -> Told:
        """Asks for changes of a table; without `requirements`, that it is the one that is known."""
        wanted = [self.same(name)] if requirements is None else requirements
        return self.of("POST", name, {"requirements": wanted, "updates": updates})

    def same(self, name: str) -> dict[str, Any]:
        """The requirement that it is the table that the client knows."""
        return {"type": "assert-table-uuid", "uuid": self.tables[name].id}

    def commit(self, name: str, version: int, **more: Any) -> Told:
        """Stages a commit and asks for it; one that got its version is kept as taken."""
        commit = self.stage(name, version)
        answer = self.update(name, add(commit), **more)
        if answer.status == 200:
            self.tables[name].taken[version] = commit
        return answer

    def publish(self, name: str, version: int) -> None:
        """Copy a commit that has its version into the log, as a client may."""
        table = self.tables[name]
        staged = table.taken[version]["file-name"]
        table.store.put_if_absent(
            commit_path(version), table.store.get(f"{STAGED_FOLDER}/{staged}")
        )


def tables_path(what: str = "tables") -> str:
    """The path of the tables of the schema that both have."""
    return f"/delta/v1/catalogs/{CATALOG}/schemas/{SCHEMA_NAME}/{what}"


def add(commit: Mapping[str, Any]) -> dict[str, Any]:
    """The update that makes a staged commit a version."""
    return {"action": "add-commit", "commit": commit}


def published(version: object) -> dict[str, Any]:
    """The update that says what is in the log."""
    return {"action": "set-latest-backfilled-version", "latest-published-version": version}
