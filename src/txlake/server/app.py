"""The ASGI application: routes, and the checks that every request passes before its handler runs.

Owns the order of the checks: caller, free capacity, body size, time. A handler runs in a thread,
with a session of the lake to itself. A request that times out is answered at once; its thread
finishes what it has begun.
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
from txlake.server import commits, creation, delta, iceberg, names, served_sql
from txlake.server.api_errors import ApiError, api_error_of
from txlake.server.calls import ApiResponse, Call, Handler, ServedLake
from txlake.server.siblings import Siblings
from txlake.server.tokens import Caller, Tokens

ROOT = "/api/2.1/unity-catalog"
OWN_ROOT = "/api/txlake/v1"
ICEBERG_ROOT = "/iceberg/v1"
_DELTA = f"{ROOT}/delta/v1"
_NAMESPACE = f"{ICEBERG_ROOT}/namespaces/{{namespace}}"
_VIEW = f"{_NAMESPACE}/views/{{view}}"
_TABLES = f"{_DELTA}/catalogs/{{catalog}}/schemas/{{schema}}/tables"
# The most that a cancelled statement takes to end (`txlake.spark.served`).
_CANCELLATION_S = 60.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A route.

    Attributes:
        changes: whether a read-only caller is refused.
        runs_sql: whether it runs statements, which have a time limit of their own.
        session_of: returns the client session that a request's path and body name, or None.
    """

    method: str
    path: str
    handler: Handler
    changes: bool = False
    runs_sql: bool = False
    session_of: Callable[[Mapping[str, str], bytes], str | None] | None = None


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
    # A read-only caller's statements are checked one by one.
    Endpoint(
        "POST",
        f"{OWN_ROOT}/sql",
        served_sql.run,
        runs_sql=True,
        session_of=lambda _, content: served_sql.session_of_script(content),
    ),
    Endpoint("POST", f"{OWN_ROOT}/sessions", served_sql.begin_session),
    Endpoint(
        "DELETE",
        f"{OWN_ROOT}/sessions/{{session}}",
        served_sql.end_session,
        session_of=lambda path, _: path["session"],
    ),
    Endpoint("GET", f"{ICEBERG_ROOT}/config", iceberg.config),
    Endpoint("GET", f"{ICEBERG_ROOT}/namespaces", iceberg.namespaces),
    Endpoint("GET", _NAMESPACE, iceberg.namespace),
    Endpoint("HEAD", _NAMESPACE, iceberg.namespace_exists),
    Endpoint("GET", f"{_NAMESPACE}/tables", iceberg.tables),
    Endpoint("GET", f"{_NAMESPACE}/tables/{{table}}", iceberg.table),
    Endpoint("HEAD", f"{_NAMESPACE}/tables/{{table}}", iceberg.table_exists),
    Endpoint("POST", f"{_NAMESPACE}/tables/{{table}}/metrics", iceberg.metrics),
    *(
        Endpoint(method, path, iceberg.refuse, changes=True)
        for method, path in (
            ("POST", f"{ICEBERG_ROOT}/namespaces"),
            ("DELETE", _NAMESPACE),
            ("POST", f"{_NAMESPACE}/properties"),
            ("POST", f"{_NAMESPACE}/tables"),
            ("POST", f"{_NAMESPACE}/tables/{{table}}"),
            ("DELETE", f"{_NAMESPACE}/tables/{{table}}"),
            ("POST", f"{_NAMESPACE}/register"),
            ("POST", f"{ICEBERG_ROOT}/tables/rename"),
            ("POST", f"{ICEBERG_ROOT}/transactions/commit"),
            ("POST", f"{_NAMESPACE}/views"),
            ("POST", _VIEW),
            ("DELETE", _VIEW),
            ("POST", f"{ICEBERG_ROOT}/views/rename"),
        )
    ),
)
"""All routes of the server."""


def application(
    served_lake: ServedLake, tokens: Tokens, siblings: Siblings | None = None
) -> Starlette:
    """Return the ASGI application that serves a lake; `siblings` are the server's other processes,
    if there are any.
    """
    dispatcher = _Dispatcher(served_lake, tokens, siblings)
    # HEAD before GET: starlette would answer HEAD by GET's route.
    ordered = sorted(ENDPOINTS, key=lambda endpoint: endpoint.method != "HEAD")
    routes = [
        Route(
            endpoint.path,
            dispatcher.asgi_endpoint(endpoint),
            methods=[endpoint.method],
            name=f"{endpoint.method} {endpoint.path}",
        )
        for endpoint in ordered
    ]
    return Starlette(
        routes=routes,
        exception_handlers={HTTPException: _no_such_route, Exception: _internal_error},
        lifespan=dispatcher.lifespan,
    )


class _Dispatcher:
    """The admission of requests, and the threads that run them."""

    def __init__(self, served_lake: ServedLake, tokens: Tokens, siblings: Siblings | None) -> None:
        self._served_lake = served_lake
        self._tokens = tokens
        self._limits = served_lake.limits
        self._threads = ThreadPoolExecutor(self._limits.workers, "txlake-server")
        self._siblings = siblings
        # Of its own: processes whose workers all waited for each other's would never go on.
        self._forwarding = ThreadPoolExecutor(
            self._limits.workers + self._limits.waiting_max, "txlake-forwarding"
        )
        self._in_flight = 0  # only used in the event loop's thread

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Run the sweeper while the server runs. Running requests end before the sessions close."""
        sweeper = asyncio.create_task(self._sweep())
        try:
            yield
        finally:
            sweeper.cancel()
            await asyncio.to_thread(self._threads.shutdown)
            await asyncio.to_thread(self._forwarding.shutdown)
            self._served_lake.close()

    async def _sweep(self) -> None:
        """Close the client sessions that are idle, also while no requests arrive."""
        while True:
            await asyncio.sleep(self._limits.client_session_idle_s / 4)
            try:
                await asyncio.to_thread(self._served_lake.client_sessions.sweep)
            except TxlakeError as error:
                _log.warning("idle sessions are closed later: %s", error)

    def asgi_endpoint(self, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        """Return the function that starlette calls for an endpoint."""

        async def answer(request: Request) -> Response:
            """Answer a request, with an error's response where it fails."""
            try:
                return await self._dispatch(endpoint, request)
            except ApiError as error:
                return _error_response(error, request)

        return answer

    async def _dispatch(self, endpoint: Endpoint, request: Request) -> Response:
        """Admit a request, run its handler in a thread, and return the handler's response.

        Raises ApiError: the caller is unknown (401) or may only read (403), the server is busy
        (429), the body is too large or too slow (400), the time is up (500), or as the handler. A
        request that timed out occupies its thread until its handler ends.
        """
        now_ms = self._served_lake.engine.system.now_ms()
        caller = self._tokens.caller(request.headers.get("authorization"), now_ms)
        if endpoint.changes and caller.read_only:
            raise ApiError("PermissionDeniedException", f"{caller.name!r} may only read")
        if self._in_flight >= self._limits.workers + self._limits.waiting_max:
            raise ApiError("TooManyRequestsException", "the server is busy; try again in a moment")
        self._in_flight += 1
        is_submitted = False
        try:
            content = await self._read_body(request)
            work = self._submit(endpoint, caller, request, content)
            is_submitted = True
            work.add_done_callback(self._request_ended)
            return await self._response_in_time(work, endpoint)
        finally:
            if not is_submitted:
                self._in_flight -= 1

    def _submit(
        self, endpoint: Endpoint, caller: Caller, request: Request, content: bytes
    ) -> asyncio.Future[ApiResponse]:
        """Begin to run the handler, or to forward the request to the process of this server that
        holds its client session.
        """
        loop, siblings = asyncio.get_running_loop(), self._siblings
        if siblings is not None and endpoint.session_of is not None:
            session_id = endpoint.session_of(request.path_params, content)
            holder = None if session_id is None else siblings.holder_of(session_id)
            if holder is not None:
                return loop.run_in_executor(
                    self._forwarding,
                    siblings.forward,
                    holder,
                    request.method,
                    request.url.path,
                    dict(request.headers),
                    content,
                    self._timeout_s(endpoint),
                )
        return loop.run_in_executor(
            self._threads, self._run_handler, endpoint, caller, request, content
        )

    def _timeout_s(self, endpoint: Endpoint) -> float:
        """Return the time limit of a response, in seconds.

        An endpoint that runs SQL has the time of a statement and of its cancellation, if that is
        longer.
        """
        timeout_s = self._limits.request_s
        if endpoint.runs_sql:
            timeout_s = max(timeout_s, self._limits.statement_s + _CANCELLATION_S)
        return timeout_s

    def _request_ended(self, work: asyncio.Future[ApiResponse]) -> None:
        """Count a request as ended, in the event loop's thread."""
        self._in_flight -= 1
        if not work.cancelled():
            work.exception()  # retrieved: the response, if it is awaited still, carries it

    async def _read_body(self, request: Request) -> bytes:
        """Return the request's body.

        Raises ApiError (400 in all cases) if it is too large, too slow or cut off.
        """
        declared, size_max = request.headers.get("content-length"), self._limits.body_bytes_max
        too_large = ApiError(
            "BadRequestException", f"the request's body is larger than {size_max} bytes"
        )
        if declared is not None and (not declared.isdecimal() or int(declared) > size_max):
            raise too_large
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._limits.request_s):
                async for part in request.stream():
                    size += len(part)
                    if size > size_max:
                        raise too_large
                    parts.append(part)
        except TimeoutError as error:
            raise ApiError("BadRequestException", "the request's body came too slowly") from error
        except ClientDisconnect as error:
            raise ApiError("BadRequestException", "the request's body was cut off") from error
        return b"".join(parts)

    async def _response_in_time(
        self, work: asyncio.Future[ApiResponse], endpoint: Endpoint
    ) -> Response:
        """Return the response of a running handler.

        Raises ApiError as the handler does, and after the time limit (500), while the handler goes
        on.
        """
        timeout_s = self._timeout_s(endpoint)
        try:
            response = await asyncio.wait_for(asyncio.shield(work), timeout_s)
        except TimeoutError as error:
            kind = "CommitStateUnknownException" if endpoint.changes else None
            raise ApiError(
                kind or "InternalServerErrorException",
                f"no answer within {timeout_s:g} s; what was asked may still happen",
            ) from error
        if response.media is not None:
            return Response(
                response.content,
                response.status,
                headers=_headers_for(response.status),
                media_type=response.media,
            )
        return _json_response(response.status, response.body)

    def _run_handler(
        self, endpoint: Endpoint, caller: Caller, request: Request, content: bytes
    ) -> ApiResponse:
        """Run the handler, in a thread of the pool, with a session to itself.

        Raises ApiError for any error. One that isn't txlake's is logged, its text isn't sent, and
        it leaves the outcome of an endpoint that changes something unknown.
        """
        path: Mapping[str, str] = request.path_params
        try:
            with self._served_lake.sessions.borrow() as session:
                return endpoint.handler(
                    Call(
                        served_lake=self._served_lake,
                        session=session,
                        caller=caller,
                        path=path,
                        query=dict(request.query_params),
                        content=content,
                        accept=request.headers.get("accept", ""),
                    )
                )
        except ApiError:
            raise
        except TxlakeError as error:
            raise api_error_of(error) from error
        except Exception as error:
            _log.exception("%s %s", endpoint.method, endpoint.path)
            kind = "CommitStateUnknownException" if endpoint.changes else None
            raise ApiError(
                kind or "InternalServerErrorException", "the server failed; its log says why"
            ) from error


def _headers_for(status: int) -> dict[str, str]:
    """Return the headers that a response of this status has besides its content's."""
    headers = {"retry-after": "1"} if status in (429, 503) else {}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return headers


def _error_response(error: ApiError, request: Request) -> Response:
    """Return an error as a response, in the form of the API that the path belongs to.

    A 429 or 503 has a Retry-After of one second, as a later try may succeed, and a 401 the scheme.
    """
    headers = _headers_for(error.status)
    path = request.url.path
    is_older_api = path.startswith(f"{ROOT}/") and not path.startswith(f"{_DELTA}/")
    return _json_response(*error.response(is_older_api=is_older_api), headers)


def _json_response(status: int, body: object, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response of JSON; without content where the body is None."""
    content = b"" if body is None else msgspec.json.encode(body)
    media = None if body is None else "application/json"
    return Response(content, status, headers=dict(headers or {}), media_type=media)


async def _no_such_route(request: Request, error: Exception) -> Response:
    """Answer an unknown path with 404, and a method that the path doesn't have with 501, the status
    of the Delta API's NotImplementedException.
    """
    status = error.status_code if isinstance(error, HTTPException) else 404
    kind = "NotImplementedException" if status == 405 else "NotFoundException"
    message = f"{request.method} {request.url.path}: this server doesn't have that"
    return _error_response(
        ApiError(kind, message[:300], status=501 if status == 405 else status), request
    )


async def _internal_error(request: Request, error: Exception) -> Response:
    """Log an error that nothing else caught, and return its response without its text."""
    _log.error("%s %s", request.method, request.url.path, exc_info=error)
    api_error = ApiError("InternalServerErrorException", "the server failed; its log says why")
    return _error_response(api_error, request)
