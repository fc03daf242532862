"""The server of Flight SQL: its address, its threads, TLS, and what it ends when it is idle."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from txlake.errors import InvalidRequest
from txlake.server.calls import ServedLake
from txlake.server.flight.handles import Handles
from txlake.server.flight.service import Service
from txlake.server.tokens import Tokens

# One message of a client; a stream of rows has many.
_MESSAGE_BYTES_MAX = 256 * 1024 * 1024
_OPTIONS = (
    ("grpc.so_reuseport", 0),  # a port that is taken is an error
    ("grpc.max_receive_message_length", _MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", -1),
    # A client whose host has vanished is noticed.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
)
_logger = logging.getLogger(__name__)


class FlightServer:
    """Serves a lake over Flight SQL until `stop`. `address` is where, with the port chosen."""

    def __init__(
        self,
        served: ServedLake,
        tokens: Tokens,
        *,
        host: str,
        port: int,
        certificate: tuple[Path, Path] | None = None,
    ) -> None:
        """Listen. Raises InvalidRequest if the address isn't available, or for a certificate that
        can't be used.
        """
        limits = served.limits
        self._handles = Handles(served)
        self._grace_s = limits.request_s
        self._sweep_s = limits.client_session_idle_s / 4
        self._stopped = threading.Event()
        # A stream keeps its thread while its client reads: each call that is taken has one.
        threads = 4 * (limits.workers + limits.waiting_max)
        self._server = grpc.server(
            ThreadPoolExecutor(threads, "txlake-flight"),
            handlers=(Service(served, tokens, self._handles).handler(),),
            options=_OPTIONS,
            maximum_concurrent_rpcs=threads,
        )
        shown = f"[{host}]" if ":" in host else host
        try:
            if certificate is None:
                bound = self._server.add_insecure_port(f"{shown}:{port}")
            else:
                bound = self._server.add_secure_port(f"{shown}:{port}", _credentials(*certificate))
        except RuntimeError as error:
            raise _not_started(host, port) from error
        if not bound:
            raise _not_started(host, port)
        self.address = f"{'grpc' if certificate is None else 'grpc+tls'}://{shown}:{bound}"
        self._server.start()
        self._sweeper = threading.Thread(target=self._sweep, name="txlake-sweep", daemon=True)
        self._sweeper.start()

    def _sweep(self) -> None:
        """End what is idle, also while no calls arrive."""
        while not self._stopped.wait(self._sweep_s):
            try:
                self._handles.sweep()
            except Exception as error:
                _logger.warning("what is idle is ended later: %s", error)

    def stop(self) -> None:
        """Take no more calls, wait for those that run, and roll back the open transactions."""
        self._stopped.set()
        self._server.stop(self._grace_s).wait()
        self._sweeper.join()
        self._handles.close()


def _not_started(host: str, port: int) -> InvalidRequest:
    return InvalidRequest(f"Flight SQL couldn't start at {host}:{port}: is the port in use?")


def _credentials(chain: Path, key: Path) -> grpc.ServerCredentials:
    """Return the server's certificate. Raises InvalidRequest for files that can't be read."""
    try:
        return grpc.ssl_server_credentials(((key.read_bytes(), chain.read_bytes()),))
    except OSError as error:
        raise InvalidRequest(f"{error.filename}: {error.strerror}") from error
