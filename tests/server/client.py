"""Another engine, played: it calls a server, and stages commits in the lake's folders."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import httpx2 as httpx
from starlette.testclient import TestClient

from tests.commit.foreign import stage, told
from txlake.commands import HANDLERS
from txlake.commit.foreign_commit import StagedFile
from txlake.lake.lake import Lake
from txlake.ports import Store
from txlake.protocol.actions import Action, Add, Metadata, Protocol, encode_actions
from txlake.protocol.file_names import commit_path
from txlake.server.app import ICEBERG_ROOT, OWN_ROOT, ROOT, application
from txlake.server.calls import Limits, ServedLake, SessionPool
from txlake.server.serving import restricted_engine
from txlake.server.tokens import Token, Tokens
from txlake.session import Session
from txlake.session.engine import Handle
from txlake.sql.statements import TableName

DELTA = f"{ROOT}/delta/v1"
CATALOG = "spark_catalog"
SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"integer","nullable":true,"metadata":{}}]}'
OPEN = "TBLPROPERTIES ('delta.feature.catalogManaged' = 'supported')"


class Client:
    """Calls the server of a lake; `lake` and its stores are at hand too."""

    _time_ms = 0

    def __init__(
        self,
        lake: Lake,
        *,
        tokens: Sequence[Token] = (),
        limits: Limits | None = None,
        vends_credentials: bool = False,
    ) -> None:
        self.lake = lake
        self.engine = restricted_engine(lake._session.engine, owns_spark=False)
        self.served = ServedLake(
            engine=self.engine,
            sessions=SessionPool(lambda: Session(self.engine, HANDLERS)),
            limits=limits or Limits(),
            vends_credentials=vends_credentials,
        )
        self.app = application(self.served, Tokens(tokens))
        self._http = TestClient(self.app, raise_server_exceptions=False)

    def __enter__(self) -> Self:
        self._http.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.__exit__(kind, error, trace)

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = None,
        content: bytes | None = None,
    ) -> httpx.Response:
        """One request; `path` below the root of both APIs, or txlake's own, whole."""
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        extra: dict[str, Any] = {"content": content} if content is not None else {"json": body}
        if content is None and body is None:
            extra = {}
        whole = path if path.startswith((OWN_ROOT, ICEBERG_ROOT)) else f"{ROOT}{path}"
        return self._http.request(method, whole, headers=headers, **extra)

    # Tables

    def url(self, table: str) -> str:
        """The path of a table in the Delta API; `table` may name its schema."""
        return f"{_schema(table)}/tables/{table.rpartition('.')[2]}"

    def handle(self, table: str) -> Handle:
        """A table of the lake."""
        found = self.engine.find(TableName(tuple(table.split("."))), "default")
        assert found is not None
        return found

    def store(self, table: str) -> Store:
        """A table's folder."""
        return self.handle(table).store

    def load(self, table: str) -> dict[str, Any]:
        """What the server says of a table."""
        answer = self.call("GET", self.url(table))
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def version(self, table: str) -> int:
        """The table's newest version."""
        return self.handle(table).log.latest().version

    def next_time(self) -> int:
        """A time after all before, those of other clients too."""
        now_ms = self.engine.system.now_ms() + 1_000_000
        Client._time_ms = max(Client._time_ms + 1000, now_ms)
        return Client._time_ms

    # Commits

    def stage(self, table: str, *actions: Action, version: int | None = None) -> StagedFile:
        """Stages a commit, of the next version."""
        wanted = self.version(table) + 1 if version is None else version
        return stage(self.store(table), wanted, self.next_time(), *actions)

    def commit(self, table: str, staged: StagedFile, **changes: object) -> httpx.Response:
        """Asks for a staged commit; `changes` in what is told of it."""
        return self.call("POST", self.url(table), self.request(table, staged, **changes))

    def request(self, table: str, staged: StagedFile, **changes: object) -> dict[str, Any]:
        """The body that asks for it."""
        commit = {
            "version": staged.version,
            "timestamp": staged.timestamp_ms,
            "file-name": staged.name,
            "file-size": staged.size_bytes,
            "file-modification-timestamp": staged.timestamp_ms,
        }
        told = {name.replace("_", "-"): value for name, value in changes.items()}
        return {
            "requirements": [{"type": "assert-table-uuid", "uuid": self.uuid(table)}],
            "updates": [{"action": "add-commit", "commit": {**commit, **told}}],
        }

    def uuid(self, table: str) -> str:
        """The table's id."""
        entry = self.handle(table).entry
        assert entry is not None
        return entry.id

    # New tables

    def staging(self, table: str) -> dict[str, Any]:
        """Asks for a place for a new table."""
        path = f"{_schema(table)}/staging-tables"
        answer = self.call("POST", path, {"name": table.rpartition(".")[2]})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def write_first(
        self,
        staging: dict[str, Any],
        *,
        lacking: Sequence[str] = (),
        without: Sequence[str] = (),
        properties: dict[str, str] | None = None,
    ) -> int:
        """Write a new table's first commit, as it was asked for; its time.

        Without the features that are `lacking`, and `without` these properties.
        """
        required = staging["required-protocol"]
        protocol = Protocol(
            min_reader_version=required["min-reader-version"],
            min_writer_version=required["min-writer-version"],
            reader_features=_but(required["reader-features"], lacking),
            writer_features=_but(required["writer-features"], lacking),
        )
        configuration = {**staging["required-properties"], **(properties or {})}
        for key in without:
            del configuration[key]
        metadata = Metadata(id="of the client", schema_string=SCHEMA, configuration=configuration)
        time = self.next_time()
        info = told(time, f"first {time}", "CREATE TABLE")
        store = self.engine.store_at(staging["location"])
        store.put(commit_path(0), encode_actions([info, protocol, metadata]))
        return time

    def create_request(self, table: str, staging: dict[str, Any], time: int) -> dict[str, Any]:
        """The body that asks for a new table's name."""
        return {
            "name": table.rpartition(".")[2],
            "location": staging["location"],
            "table-type": "MANAGED",
            "columns": {"type": "struct", "fields": []},
            "protocol": staging["required-protocol"],
            "properties": staging["required-properties"],
            "last-commit-timestamp-ms": time,
        }

    def create(self, table: str) -> httpx.Response:
        """Make a table, as a client does."""
        staging = self.staging(table)
        time = self.write_first(staging)
        return self.call(
            "POST", f"{_schema(table)}/tables", self.create_request(table, staging, time)
        )


def _schema(table: str) -> str:
    return f"/delta/v1/catalogs/{CATALOG}/schemas/{table.rpartition('.')[0] or 'default'}"


def _but(names: Sequence[str], lacking: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in lacking)


def file(path: str, rows: int = 1) -> Add:
    """A data file that is said to be there."""
    return Add(
        path=path,
        partition_values={},
        size=1,
        modification_time=1,
        data_change=True,
        stats=f'{{"numRecords":{rows}}}',
    )


def failed(answer: httpx.Response, status: int, kind: str, told: str = "") -> None:
    """The answer is the API's error of that kind, and says so; the older API has other names."""
    assert answer.status_code == status, answer.text
    found = answer.json()
    if "error_code" in found:
        assert found["error_code"] == kind, answer.text
        assert found["details"][0]["reason"] == kind
        message = found["message"]
    else:
        assert (found["error"]["code"], found["error"]["type"]) == (status, kind), answer.text
        message = found["error"]["message"]
    assert told in message, message
