"""The server's process: it opens a lake and serves it until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from txlake.commands import HANDLERS
from txlake.errors import InvalidRequest
from txlake.server.app import application
from txlake.server.calls import Limits, ServedLake, SessionPool
from txlake.server.head_timeout import protocol_with_head_timeout
from txlake.server.processes import Shared
from txlake.server.siblings import Siblings
from txlake.server.tokens import Tokens, is_loopback
from txlake.session.engine import Engine
from txlake.session.session import Session
from txlake.spark.plane import SparkPlane
from txlake.spark.served import ServedPlane

_BACKLOG = 2048
HEALTH = "/health"
"""The path that needs no token, and tells nothing but that the process answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The settings of a lake's server.

    Attributes:
        token_file: the valid tokens; None: everybody on this host may call.
        certificate: for TLS, the file of the certificate's chain and the file of its key.
        vends_credentials: whether the lake's own storage options are given to clients.
        flight_port: where Flight SQL is served; None: nowhere.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    token_file: Path | None = None
    certificate: tuple[Path, Path] | None = None
    vends_credentials: bool = False
    flight_port: int | None = None
    limits: Limits = field(default_factory=Limits)


def serve(
    session: Session,
    settings: ServerSettings,
    *,
    on_started: Callable[[str], None],
    shared: Shared | None = None,
) -> None:
    """Serve the session's lake until the process is stopped.

    `on_started` is called with the server's addresses once it accepts requests. `shared`: what this
    process shares with others that serve the same lake at one address.

    Raises InvalidRequest as `load_tokens` and `listen`, and ModuleNotFoundError for Flight SQL
    without the packages of the extra `flight`.
    """
    tokens = load_tokens(settings)
    engine, level = restricted_engine(session.engine, owns_spark=True), session.level
    siblings = None if shared is None else Siblings(shared.folder, str(os.getpid()))
    served = ServedLake(
        engine=engine,
        sessions=SessionPool(lambda: Session(engine, HANDLERS, level=level)),
        limits=settings.limits,
        vends_credentials=settings.vends_credentials,
        session_prefix="" if siblings is None else siblings.session_prefix,
    )
    try:
        with _flight(served, tokens, settings) as address:
            suffix = "" if address is None else f" with Flight SQL at {address}"
            listen(
                application(served, tokens, siblings),
                settings,
                on_started=lambda url: on_started(f"{url}{suffix}"),
                listener=None if shared is None else shared.listener,
                siblings_socket=None if siblings is None else siblings.own_socket,
            )
    finally:
        engine.plane.close()


@contextmanager
def _flight(served: ServedLake, tokens: Tokens, settings: ServerSettings) -> Iterator[str | None]:
    """Serve Flight SQL during the block, if the settings say so; yield its address, or None."""
    if settings.flight_port is None:
        yield None
        return
    from txlake.server.flight.serving import FlightServer

    server = FlightServer(
        served,
        tokens,
        host=settings.host,
        port=settings.flight_port,
        certificate=settings.certificate,
    )
    try:
        yield server.address
    finally:
        server.stop()


def listen(
    app: ASGIApp,
    settings: ServerSettings,
    *,
    on_started: Callable[[str], None],
    listener: socket.socket | None = None,
    siblings_socket: Path | None = None,
) -> None:
    """Serve an application until the process is stopped.

    `on_started` is called with the server's URL once it accepts requests. `listener`: a listening
    socket that other processes accept connections from too, instead of the settings' address.
    `siblings_socket`: where the application is served to these processes. Raises InvalidRequest if
    the address isn't available or the application can't start.
    """
    certificate, key = settings.certificate or (None, None)
    config = uvicorn.Config(
        with_health(app),
        host=settings.host,
        port=settings.port,
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        # Connections; each may have one request in flight.
        limit_concurrency=4 * (settings.limits.workers + settings.limits.waiting_max),
        timeout_keep_alive=30,
        http=protocol_with_head_timeout(settings.limits.head_s),
        timeout_graceful_shutdown=int(settings.limits.request_s),
        ssl_certfile=certificate,
        ssl_keyfile=key,
        # As many connections are accepted at once: one, so that other processes get the next.
        backlog=_BACKLOG if listener is None else 1,
    )
    # Java's client asks for HTTP/2 on each connection, and continues without it.
    logging.getLogger("uvicorn.error").addFilter(_is_not_upgrade_warning)
    server = _Server(config, on_started, siblings_socket)
    server.run(None if listener is None else [listener])
    if not server.started:
        raise InvalidRequest(f"the server couldn't start at {settings.host}:{settings.port}")


def with_health(app: ASGIApp) -> ASGIApp:
    """Return the application with a route that says that the process answers, to everybody."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == HEALTH:
            await JSONResponse({"status": "ok"})(scope, receive, send)
        else:
            await app(scope, receive, send)

    return answer


def _is_not_upgrade_warning(record: logging.LogRecord) -> bool:
    return record.msg != "Unsupported upgrade request."


def restricted_engine(engine: Engine, *, owns_spark: bool) -> Engine:
    """Return an engine of the same lake for callers who don't own the machine.

    Its Spark runs checked plans only. An engine without Spark is returned as it is. `owns_spark`:
    whether the server may end Spark's process where a statement can't be ended otherwise.
    """
    plane = engine.plane
    if not isinstance(plane, SparkPlane):
        return engine
    served_plane = ServedPlane(
        make_spark=plane.make_spark,
        system=plane.system,
        settings=plane.settings,
        open_store=plane.open_store,
        storage_options=plane.storage_options,
        options_at=plane.options_at,
        owns_spark=owns_spark,
    )
    return engine.with_plane(served_plane)


class _Server(uvicorn.Server):
    def __init__(
        self,
        config: uvicorn.Config,
        on_started: Callable[[str], None],
        siblings_socket: Path | None,
    ) -> None:
        super().__init__(config)
        self._on_started = on_started
        self._siblings_socket = siblings_socket

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Report the address, with the port that the system chose if port 0 was requested."""
        await super().startup(sockets)
        if not self.started:
            return
        for listener in sockets or ():
            listener.listen(_BACKLOG)  # asyncio has made it as long as what it accepts at once
        if self._siblings_socket is not None:
            await self._serve_siblings(self._siblings_socket)
        scheme = "https" if self.config.is_ssl else "http"
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        printed_host = f"[{host}]" if ":" in host else host
        self._on_started(f"{scheme}://{printed_host}:{port}")

    async def _serve_siblings(self, path: Path) -> None:
        """Serve the application at a socket of this machine too, without TLS."""
        make: Callable[..., asyncio.Protocol] = self.config.http_protocol_class

        def protocol() -> asyncio.Protocol:
            return make(
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state
            )

        path.unlink(missing_ok=True)  # of a process of the same number, which was killed
        loop = asyncio.get_running_loop()
        self.servers.append(await loop.create_unix_server(protocol, str(path)))


def load_tokens(settings: ServerSettings) -> Tokens:
    """Return the token file's tokens; if the settings name no file none, so that everybody may
    call.

    Raises InvalidRequest if they name no file although other hosts could call, if the file can't
    be read, and as `Tokens.parse`.
    """
    if settings.token_file is None:
        if not is_loopback(settings.host):
            raise InvalidRequest(
                f"--host {settings.host}: others than this host could call, and there are no "
                "tokens; "
                "give --token-file"
            )
        return Tokens()
    try:
        text = settings.token_file.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{settings.token_file}: {error.strerror}") from error
    return Tokens.parse(text, source=str(settings.token_file))
