"""The ASGI application: routes, and what every request has to pass before a handler sees it.

Owns the order: who calls, whether there is room, how large the body is and how long it takes. A
handler runs in a thread, with a session of the lake that it has to itself. A request that takes
too long is answered without waiting for its thread, which ends what it has begun.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from txlake.errors import TxlakeError
from txlake.server import commits, creation, delta, names, served_sql
from txlake.server.calls import Answer, Call, Handler, Served
from txlake.server.failures import Failure, failure_of
from txlake.server.tokens import Caller, Tokens

ROOT = "/api/2.1/unity-catalog"
OWN_ROOT = "/api/txlake/v1"
_DELTA = f"{ROOT}/delta/v1"
_TABLES = f"{_DELTA}/catalogs/{{catalog}}/schemas/{{schema}}/tables"
# How long a statement that is cancelled takes to end, at most (`txlake.spark.served`).
_AFTER_STATEMENT_S = 60.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A route.

    Attributes:
        changes: whether a caller who may only read doesn't get it.
        runs_sql: whether it runs statements, which have a time of their own.
    """

    method: str
    path: str
    handler: Handler
    changes: bool = False
    runs_sql: bool = False


ENDPOINTS = (
    Endpoint("GET", f"{_DELTA}/config", delta.config),
    Endpoint(
        "POST",
        f"{_DELTA}/catalogs/{{catalog}}/schemas/{{schema}}/staging-tables",
        creation.stage,
        changes=True,
    ),
    Endpoint("POST", _TABLES, creation.create, changes=True),
    Endpoint("GET", f"{_TABLES}/{{table}}", delta.load),
    Endpoint("HEAD", f"{_TABLES}/{{table}}", delta.exists),
    Endpoint("POST", f"{_TABLES}/{{table}}", commits.update, changes=True),
    Endpoint("DELETE", f"{_TABLES}/{{table}}", delta.delete, changes=True),
    Endpoint("POST", f"{_TABLES}/{{table}}/rename", delta.rename, changes=True),
    Endpoint("GET", f"{_TABLES}/{{table}}/credentials", delta.credentials),
    Endpoint("POST", f"{_TABLES}/{{table}}/metrics", delta.metrics),
    Endpoint(
        "GET",
        f"{_DELTA}/staging-tables/{{table_id}}/credentials",
        delta.staging_credentials,
        changes=True,
    ),
    Endpoint("GET", f"{_DELTA}/temporary-path-credentials", delta.path_credentials),
    Endpoint("GET", f"{ROOT}/metastore_summary", names.summary),
    Endpoint("GET", f"{ROOT}/catalogs", names.catalogs),
    Endpoint("GET", f"{ROOT}/catalogs/{{name}}", names.catalog),
    Endpoint("GET", f"{ROOT}/schemas", names.schemas),
    Endpoint("POST", f"{ROOT}/schemas", names.create_schema, changes=True),
    Endpoint("GET", f"{ROOT}/schemas/{{full_name}}", names.schema),
    Endpoint("DELETE", f"{ROOT}/schemas/{{full_name}}", names.delete_schema, changes=True),
    Endpoint("GET", f"{ROOT}/tables", names.tables),
    Endpoint("POST", f"{ROOT}/tables", names.create_table, changes=True),
    Endpoint("GET", f"{ROOT}/tables/{{full_name}}", names.table),
    Endpoint("DELETE", f"{ROOT}/tables/{{full_name}}", names.delete_table, changes=True),
    Endpoint("POST", f"{ROOT}/temporary-table-credentials", names.table_credentials),
    Endpoint("POST", f"{OWN_ROOT}/transactions", commits.transact, changes=True),
    # What a caller may say who may only read is told statement by statement.
    Endpoint("POST", f"{OWN_ROOT}/sql", served_sql.run, runs_sql=True),
    Endpoint("POST", f"{OWN_ROOT}/sessions", served_sql.begin_session),
    Endpoint("DELETE", f"{OWN_ROOT}/sessions/{{session}}", served_sql.end_session),
)
"""All that the server answers."""


def application(served: Served, tokens: Tokens) -> Starlette:
    """The server of a lake, for any ASGI server to run."""
    desk = _Desk(served, tokens)
    # HEAD before GET, which starlette answers HEAD by.
    ordered = sorted(ENDPOINTS, key=lambda one: one.method != "HEAD")
    routes = [
        Route(one.path, desk.answering(one), methods=[one.method], name=f"{one.method} {one.path}")
        for one in ordered
    ]
    return Starlette(
        routes=routes,
        exception_handlers={HTTPException: _unrouted, Exception: _broken},
        lifespan=desk.lifespan,
    )


class _Desk:
    """Lets requests in, and gives each to a thread."""

    def __init__(self, served: Served, tokens: Tokens) -> None:
        self._served = served
        self._tokens = tokens
        self._limits = served.limits
        self._threads = ThreadPoolExecutor(self._limits.workers, "txlake-server")
        self._inside = 0  # touched by the event loop's thread alone

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """While the server runs; what was begun is ended before the sessions are."""
        sweeping = asyncio.create_task(self._sweep())
        try:
            yield
        finally:
            sweeping.cancel()
            await asyncio.to_thread(self._threads.shutdown)
            self._served.close()

    async def _sweep(self) -> None:
        """Ends the sessions that clients left behind, though nobody asks for anything."""
        while True:
            await asyncio.sleep(self._limits.conversation_idle_s / 4)
            try:
                await asyncio.to_thread(self._served.conversations.sweep)
            except TxlakeError as error:
                _log.warning("sessions that nobody uses end later: %s", error)

    def answering(self, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        """The function that starlette calls for an endpoint."""

        async def answer(request: Request) -> Response:
            try:
                return await self._answer(endpoint, request)
            except Failure as failure:
                return _refusal(failure, request)

        return answer

    async def _answer(self, endpoint: Endpoint, request: Request) -> Response:
        now_ms = self._served.engine.system.now_ms()
        caller = self._tokens.caller(request.headers.get("authorization"), now_ms)
        if endpoint.changes and caller.read_only:
            raise Failure("PermissionDeniedException", f"{caller.name!r} may only read")
        if self._inside >= self._limits.workers + self._limits.waiting_max:
            raise Failure("TooManyRequestsException", "the server is busy; try again in a moment")
        self._inside += 1
        is_handed_on = False
        try:
            content = await self._content(request)
            work = asyncio.get_running_loop().run_in_executor(
                self._threads, self._carried_out, endpoint, caller, request, content
            )
            is_handed_on = True
            work.add_done_callback(self._left)
            return await self._in_time(work, endpoint)
        finally:
            if not is_handed_on:
                self._inside -= 1

    def _left(self, work: asyncio.Future[Answer]) -> None:
        self._inside -= 1
        if not work.cancelled():
            work.exception()  # told to the client, or to nobody any more

    async def _content(self, request: Request) -> bytes:
        """The body, as far as it is allowed. Raises Failure: too large, too slow, or cut off."""
        told, most = request.headers.get("content-length"), self._limits.body_bytes_max
        too_large = Failure(
            "BadRequestException", f"the request's body is larger than {most} bytes"
        )
        if told is not None and (not told.isdecimal() or int(told) > most):
            raise too_large
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._limits.request_s):
                async for part in request.stream():
                    size += len(part)
                    if size > most:
                        raise too_large
                    parts.append(part)
        except TimeoutError as error:
            raise Failure("BadRequestException", "the request's body came too slowly") from error
        except ClientDisconnect as error:
            raise Failure("BadRequestException", "the request's body was cut off") from error
        return b"".join(parts)

    async def _in_time(self, work: asyncio.Future[Answer], endpoint: Endpoint) -> Response:
        most_s = self._limits.request_s
        if endpoint.runs_sql:
            most_s = max(most_s, self._limits.statement_s + _AFTER_STATEMENT_S)
        try:
            answer = await asyncio.wait_for(asyncio.shield(work), most_s)
        except TimeoutError as error:
            kind = "CommitStateUnknownException" if endpoint.changes else None
            raise Failure(
                kind or "InternalServerErrorException",
                f"no answer within {most_s:g} s; what was asked may still happen",
            ) from error
        if answer.media is not None:
            return Response(answer.content, answer.status, media_type=answer.media)
        return _response(answer.status, answer.body)

    def _carried_out(
        self, endpoint: Endpoint, caller: Caller, request: Request, content: bytes
    ) -> Answer:
        """In a thread of the pool."""
        path: Mapping[str, str] = request.path_params
        try:
            with self._served.sessions.one() as session:
                return endpoint.handler(
                    Call(
                        served=self._served,
                        session=session,
                        caller=caller,
                        path=path,
                        query=dict(request.query_params),
                        content=content,
                        accept=request.headers.get("accept", ""),
                    )
                )
        except Failure:
            raise
        except TxlakeError as error:
            raise failure_of(error) from error
        except Exception as error:
            _log.exception("%s %s", endpoint.method, endpoint.path)
            kind = "CommitStateUnknownException" if endpoint.changes else None
            raise Failure(
                kind or "InternalServerErrorException", "the server failed; its log says why"
            ) from error


def _refusal(failure: Failure, request: Request) -> Response:
    headers = {"retry-after": "1"} if failure.status in (429, 503) else {}
    if failure.status == 401:
        headers["www-authenticate"] = "Bearer"
    path = request.url.path
    older = path.startswith(f"{ROOT}/") and not path.startswith(f"{_DELTA}/")
    return _response(*failure.answer(older=older), headers)


def _response(status: int, body: object, headers: Mapping[str, str] | None = None) -> Response:
    content = b"" if body is None else msgspec.json.encode(body)
    media = None if body is None else "application/json"
    return Response(content, status, headers=dict(headers or {}), media_type=media)


async def _unrouted(request: Request, error: Exception) -> Response:
    """A path that there isn't, or not with this method."""
    status = error.status_code if isinstance(error, HTTPException) else 404
    kind = "NotImplementedException" if status == 405 else "NotFoundException"
    told = f"{request.method} {request.url.path}: this server doesn't have that"
    return _refusal(Failure(kind, told[:300], status=501 if status == 405 else status), request)


async def _broken(request: Request, error: Exception) -> Response:
    _log.error("%s %s", request.method, request.url.path, exc_info=error)
    failure = Failure("InternalServerErrorException", "the server failed; its log says why")
    return _refusal(failure, request)
