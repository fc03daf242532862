"""A lake behind a server that listens, for clients that have a socket."""

from __future__ import annotations

import socket
import threading
from typing import Any

import uvicorn

import txlake
import txlake.dbapi
from tests.server.client import Client
from txlake.dbapi import Connection
from txlake.server.calls import Limits
from txlake.server.tokens import Token

TOKEN, READER = "a-token-for-everything", "a-token-that-only-reads"


class Served:
    """A lake behind a server that listens; `dsn` is its address."""

    def __init__(self, lake: txlake.Lake) -> None:
        self.tokens = (
            Token(token=TOKEN, name="etl"),
            Token(token=READER, name="r", read_only=True),
        )
        self.client = Client(lake, tokens=self.tokens, limits=Limits(sql_rows_max=100))
        config = uvicorn.Config(self.client.app, port=0, lifespan="off", log_level="warning")
        self._server = uvicorn.Server(config)
        self.dsn = ""
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Listen, in a thread."""
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        self.dsn = f"txlake+http://127.0.0.1:{listening.getsockname()[1]}"
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listening]}, daemon=True
        )
        self._thread.start()

    def connect(self, **options: Any) -> Connection:
        return txlake.dbapi.connect(self.dsn, **{"token": TOKEN, **options})

    def end_idle_sessions(self) -> None:
        """What happens when each client is silent for five minutes."""
        sessions = self.client.served.client_sessions
        sessions._idle_ms = -1
        sessions.sweep()
        sessions._idle_ms = 300_000

    def stop(self) -> None:
        """Listen no more."""
        self._server.should_exit = True
        assert self._thread is not None
        self._thread.join(60)
