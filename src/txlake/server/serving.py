"""The server's process: a lake is opened and served until it is told to stop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from txlake.errors import InvalidRequest
from txlake.server.app import application
from txlake.server.calls import Limits, Served, Sessions
from txlake.server.heads import prompt_protocol
from txlake.server.tokens import Tokens, is_own
from txlake.session.engine import Engine
from txlake.session.session import Session
from txlake.spark.plane import SparkPlane
from txlake.spark.served import ServedPlane


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """How a lake is served.

    Attributes:
        token_file: the tokens that are good; None: everybody may call, from this host alone.
        certificate: TLS: a file with the certificate's chain, and one with its key.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    token_file: Path | None = None
    certificate: tuple[Path, Path] | None = None
    vends_credentials: bool = False
    limits: Limits = field(default_factory=Limits)


def serve(session: Session, how: Serving, *, started: Callable[[str], None]) -> None:
    """Serves the session's lake until the process is told to stop.

    `started` is called with the server's address once it takes requests.

    Raises InvalidRequest: the token file can't be read, there is none and others than this host
    could call, or the address can't be had.
    """
    tokens = tokens_of(how)
    engine, level = engine_for_others(session.engine, owns_spark=True), session.level
    served = Served(
        engine=engine,
        sessions=Sessions(lambda: Session(engine, level=level)),
        limits=how.limits,
        vends_credentials=how.vends_credentials,
    )
    try:
        listen(application(served, tokens), how, started=started)
    finally:
        engine.plane.close()


def listen(app: ASGIApp, how: Serving, *, started: Callable[[str], None]) -> None:
    """Answers requests by an application until the process is told to stop.

    Raises InvalidRequest where the address can't be had.
    """
    certificate, key = how.certificate or (None, None)
    config = uvicorn.Config(
        app,
        host=how.host,
        port=how.port,
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        # Of those that are open; each may have one request inside.
        limit_concurrency=4 * (how.limits.workers + how.limits.waiting_max),
        timeout_keep_alive=30,
        http=prompt_protocol(how.limits.head_s),
        timeout_graceful_shutdown=int(how.limits.request_s),
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    # Java's client asks for HTTP/2 with each connection, and goes on without it.
    logging.getLogger("uvicorn.error").addFilter(_is_no_upgrade)
    server = _Server(config, started)
    server.run()
    if not server.started:
        raise InvalidRequest(f"the server couldn't start at {how.host}:{how.port}")


def _is_no_upgrade(record: logging.LogRecord) -> bool:
    return record.msg != "Unsupported upgrade request."


def engine_for_others(engine: Engine, *, owns_spark: bool) -> Engine:
    """The same lake for callers who don't own the machine; its Spark runs what is judged alone.

    `owns_spark`: whether the server may end Spark's process where a statement can't be ended
    otherwise.
    """
    plane = engine.plane
    if not isinstance(plane, SparkPlane):
        return engine
    made = ServedPlane(
        make_spark=plane.make_spark,
        system=plane.system,
        settings=plane.settings,
        open_store=plane.open_store,
        storage_options=plane.storage_options,
        options_at=plane.options_at,
        owns_spark=owns_spark,
    )
    return engine.with_plane(made)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, told: Callable[[str], None]) -> None:
        super().__init__(config)
        self._told = told

    async def startup(self, sockets: object = None) -> None:
        """Tells the address, which has the port that the system chose where it was asked for."""
        await super().startup(sockets)  # type: ignore[arg-type]
        if not self.started:
            return
        scheme = "https" if self.config.is_ssl else "http"
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        self._told(f"{scheme}://{shown}:{port}")


def tokens_of(how: Serving) -> Tokens:
    """The tokens of the file. Raises InvalidRequest without any where others could call."""
    if how.token_file is None:
        if not is_own(how.host):
            raise InvalidRequest(
                f"--host {how.host}: others than this host could call, and there are no tokens; "
                "give --token-file"
            )
        return Tokens()
    try:
        text = how.token_file.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{how.token_file}: {error.strerror}") from error
    return Tokens.parse(text, source=str(how.token_file))
