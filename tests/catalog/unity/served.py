"""A lake's server on a socket of this machine, and another system's catalog, played.

Both can lose answers: a request is carried out, or isn't, and its sender never learns.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import txlake
from txlake import Lake
from txlake.commands import HANDLERS
from txlake.server.app import OWN_ROOT, ROOT, application
from txlake.server.calls import ServedLake, SessionPool
from txlake.server.tokens import Token, Tokens
from txlake.session.command import AsRows
from txlake.session.session import Session
from txlake.session.views.describe import Rows

START_S = 30
OPEN = "TBLPROPERTIES ('delta.feature.catalogManaged' = 'supported')"


def run(lake: Lake, text: str) -> list[tuple[object, ...]]:
    """The rows of a script's last statement, without Spark."""
    found = lake._run_sql(text, None, AsRows())
    if isinstance(found, Rows):
        return [tuple(row) for row in found.rows]
    return [tuple(row) for row in found.collect()]


class Lossy:
    """An ASGI app whose answers may be lost.

    `lose` says of a request "before", "after", "denied" (the token isn't good any more) or "".
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.lose: Callable[[str, str], str] = lambda method, path: ""
        self.asked: list[tuple[str, str]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method, path = scope["method"], scope["path"]
        self.asked.append((method, path))
        lost = self.lose(method, path)
        if lost == "denied":
            await _error(401, "NotAuthorizedException", "the token has expired")(
                scope, receive, send
            )
            return
        if lost == "before":
            raise ConnectionError("the request is lost")

        async def into_nothing(message: Message) -> None:
            return None

        await self._app(scope, receive, into_nothing if lost else send)
        if lost:
            raise ConnectionError("the answer is lost")


class _Server(uvicorn.Server):
    """Says when it takes requests, or failed to."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = threading.Event()

    async def startup(self, sockets: object = None) -> None:
        try:
            await super().startup(sockets)  # type: ignore[arg-type]
        finally:
            self.is_up.set()


@contextmanager
def on_a_socket(app: ASGIApp, **config: Any) -> Iterator[str]:
    """The app's address, as `catalog=` takes it; `config` is uvicorn's."""
    server = _Server(uvicorn.Config(app, port=0, log_level="critical", lifespan="on", **config))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert server.is_up.wait(START_S)
    assert server.started
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"uc+http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(START_S)


@dataclass
class LakeServer:
    """A lake, its server, and its address."""

    lake: Lake
    server: Lossy
    address: str

    def client(self, **options: Any) -> Lake:
        """A client of the server."""
        return txlake.connect(catalog=self.address, **options)


@contextmanager
def served(
    place: Path | str,
    *,
    tokens: tuple[Token, ...] = (),
    vends_credentials: bool = False,
    **options: Any,
) -> Iterator[LakeServer]:
    """A lake, served; `options` are those of `connect`."""
    with txlake.connect(str(place), **options) as lake:
        engine = lake._session.engine
        made = ServedLake(
            engine=engine,
            sessions=SessionPool(lambda: Session(engine, HANDLERS)),
            vends_credentials=vends_credentials,
        )
        server = Lossy(application(made, Tokens(tokens)))
        with on_a_socket(server) as address:
            yield LakeServer(lake, server, address)


@dataclass
class _Table:
    id: str
    location: str
    version: int = 0
    commits: list[dict[str, Any]] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)


class OtherCatalog:
    """A Unity Catalog that publishes nothing and judges nothing: it only counts versions.

    One schema, `s`, of one catalog, `main`; one table at a time is committed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tables: dict[str, _Table] = {}
        self.places: dict[str, str] = {}
        self.external: dict[str, str] = {}
        self.updates: list[dict[str, Any]] = []

    def app(self) -> Starlette:
        """The server."""
        tables = f"{ROOT}/delta/v1/catalogs/main/schemas/s/tables"
        routes = (
            ("GET", f"{ROOT}/catalogs", self._catalogs),
            ("GET", f"{ROOT}/schemas", self._schemas),
            ("GET", f"{ROOT}/schemas/main.s", self._schema),
            ("POST", tables.replace("/tables", "/staging-tables"), self._stage),
            ("POST", tables, self._create),
            ("GET", f"{tables}/{{name}}", self._load),
            ("POST", f"{tables}/{{name}}", self._update),
            ("DELETE", f"{tables}/{{name}}", self._drop),
        )
        return Starlette(routes=[Route(path, do, methods=[how]) for how, path, do in routes])

    async def _catalogs(self, request: Request) -> Response:
        return JSONResponse({"catalogs": [{"name": "main"}, {"name": "other"}]})

    async def _schemas(self, request: Request) -> Response:
        return JSONResponse({"schemas": [{"name": "s", "catalog_name": "main"}]})

    async def _schema(self, request: Request) -> Response:
        return JSONResponse({"name": "s", "catalog_name": "main"})

    async def _stage(self, request: Request) -> Response:
        name = (await request.json())["name"]
        table_id = f"00000000-0000-4000-8000-{len(self.places):012d}"
        self.places[table_id] = f"file://{self.folder}/{table_id}"
        required = ["catalogManaged", "deletionVectors", "inCommitTimestamp", "v2Checkpoint"]
        return JSONResponse(
            {
                "table-id": table_id,
                "table-type": "MANAGED",
                "location": self.places[table_id],
                "storage-credentials": [],
                "required-protocol": {
                    "min-reader-version": 3,
                    "min-writer-version": 7,
                    "reader-features": required[:2],
                    "writer-features": required,
                },
                "required-properties": {
                    "io.unitycatalog.tableId": table_id,
                    "delta.enableInCommitTimestamps": "true",
                    "delta.checkpointPolicy": "v2",
                    "asked-for": name,
                },
            }
        )

    async def _create(self, request: Request) -> Response:
        told = await request.json()
        if told["name"] in self.tables:
            return _error(409, "AlreadyExistsException", "it exists")
        table_id = told["location"].rpartition("/")[2]
        self.tables[told["name"]] = _Table(
            id=table_id, location=told["location"], properties=told["properties"]
        )
        return await self._load(request, told["name"])

    async def _load(self, request: Request, name: str | None = None) -> Response:
        name = name or request.path_params["name"]
        if name in self.external:
            return JSONResponse(
                {"metadata": _metadata("e" * 8, self.external[name], "EXTERNAL", {})}
            )
        table = self.tables.get(name)
        if table is None:
            return _error(404, "NoSuchTableException", f"there is no table {name}")
        return JSONResponse(
            {
                "metadata": _metadata(table.id, table.location, "MANAGED", table.properties),
                "commits": table.commits[::-1],
                "latest-table-version": table.version,
            }
        )

    async def _update(self, request: Request) -> Response:
        told = await request.json()
        table = self.tables[request.path_params["name"]]
        self.updates.extend(told["updates"])
        [required] = told["requirements"]
        if required != {"type": "assert-table-uuid", "uuid": table.id}:
            return _error(409, "UpdateRequirementConflictException", "another table")
        for update in told["updates"]:
            if update["action"] == "add-commit":
                commit = update["commit"]
                if commit in table.commits:
                    continue
                if commit["version"] != table.version + 1:
                    return _error(409, "CommitVersionConflictException", "taken")
                table.version = commit["version"]
                table.commits.append(commit)
            elif update["action"] == "set-latest-backfilled-version":
                until = update["latest-published-version"]
                table.commits = [one for one in table.commits if one["version"] > until]
            elif update["action"] == "set-properties":
                table.properties |= update["updates"]
            elif update["action"] == "remove-properties":
                for key in update["removals"]:
                    del table.properties[key]
        return await self._load(request)

    async def _drop(self, request: Request) -> Response:
        del self.tables[request.path_params["name"]]
        return Response(status_code=204)


def _metadata(
    table_id: str, location: str, kind: str, properties: dict[str, str]
) -> dict[str, object]:
    return {
        "etag": "1",
        "table-type": kind,
        "table-uuid": table_id,
        "location": location,
        "created-time": 1,
        "updated-time": 1,
        "columns": {"type": "struct", "fields": []},
        "properties": properties,
    }


def _error(status: int, kind: str, message: str) -> Response:
    return JSONResponse({"error": {"message": message, "type": kind, "code": status}}, status)


def without_own_api(app: ASGIApp) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """The app as if it weren't txlake's: it has no routes but the API's."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(OWN_ROOT):
            body = json.dumps({"detail": "Not Found"}).encode()
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 404, "headers": headers})
            await send({"type": "http.response.body", "body": body})
            return
        await app(scope, receive, send)

    return answer
