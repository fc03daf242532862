"""The line to a PostgreSQL server: counts round trips, and breaks at COMMIT when it is told to.

A proxy on a socket of its own: what is lost is lost on the way, whatever sends it. It understands
as much of PostgreSQL's protocol as it needs. Source: PostgreSQL's manual, "Message Formats".
"""

from __future__ import annotations

import socket
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import sqlalchemy as sa

_LENGTH = 4
_END_LIMIT_S = 60
_READ_SIZE = 1 << 16
_COMPLETE, _READY, _FLUSH, _SYNC = b"C", b"Z", b"H", b"S"


class ServerLine:
    """The line from this process to a server.

    Attributes:
        lost_before: before so many COMMITs of changes the line breaks: they never arrive.
        lost_after: after so many COMMITs of changes the line breaks: their answers are lost.
        round_trips: how often a client has waited for the server since this was set to 0.
    """

    def __init__(self, upstream: str) -> None:
        self.lost_before = self.lost_after = 0
        self.round_trips = 0
        self._upstream = upstream
        self._lock = threading.Lock()

    def serve(self, listening: socket.socket) -> None:
        """Take clients until the socket is closed."""
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                _Connection(self, client, self._upstream).start()

    def takes_commit(self) -> bool:
        """Count a COMMIT that was sent; return whether it arrives."""
        with self._lock:
            is_lost = self.lost_before > 0
            self.lost_before -= is_lost
            return not is_lost

    def returns_commit(self) -> bool:
        """Count a COMMIT that was carried out; return whether its answer arrives."""
        with self._lock:
            is_lost = self.lost_after > 0
            self.lost_after -= is_lost
            return not is_lost

    def count_round_trip(self) -> None:
        """Count a wait for the server."""
        with self._lock:
            self.round_trips += 1


class _Connection:
    """One client's connection, and the server's for it."""

    def __init__(self, line: ServerLine, client: socket.socket, upstream: str) -> None:
        self._line = line
        self._client = client
        self._server = socket.socket(socket.AF_UNIX)
        self._server.connect(upstream)
        self._texts: dict[bytes, bytes] = {}  # those of prepared statements, by name
        self._reads = False
        self._both_end = threading.Barrier(2)

    def start(self) -> None:
        for work in (self._carry_requests, self._carry_answers):
            threading.Thread(target=self._carry, args=(work,), daemon=True).start()

    def _carry(self, work: Callable[[], None]) -> None:
        with suppress(OSError, EOFError):
            work()
        for end in (self._client, self._server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        if self._both_end.wait(_END_LIMIT_S) == 0:
            self._client.close()
            self._server.close()

    def _carry_requests(self) -> None:
        source = _Messages(self._client)
        self._server.sendall(source.startup())
        before = b""
        while True:
            kind, body = source.message()
            if self._is_commit(kind, body) and not self._line.takes_commit():
                return
            if kind == _FLUSH and before != _SYNC:  # the answers are waited for before the Sync
                self._line.count_round_trip()
            before = kind
            self._server.sendall(kind + struct.pack("!i", len(body) + _LENGTH) + body)

    def _is_commit(self, kind: bytes, body: bytes) -> bool:
        """Return whether a message makes the server commit changes."""
        if kind == b"P":
            name, text, _ = body.split(b"\0", 2)
            self._texts[name] = text
            return False
        if kind not in (b"B", b"Q"):
            return False
        text = body[:-1] if kind == b"Q" else self._texts[body.split(b"\0", 2)[1]]
        if text.startswith(b"BEGIN"):
            self._reads = b"REPEATABLE READ" in text
        return text == b"COMMIT" and not self._reads

    def _carry_answers(self) -> None:
        source = _Messages(self._server)
        while True:
            kind, body = source.message()
            has_committed = kind == _COMPLETE and body == b"COMMIT\0" and not self._reads
            if has_committed and not self._line.returns_commit():
                return
            if kind == _READY:
                self._line.count_round_trip()
            self._client.sendall(kind + struct.pack("!i", len(body) + _LENGTH) + body)


class _Messages:
    """The messages that come from one end. Raises EOFError at their end."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._read = b""

    def startup(self) -> bytes:
        """Return the first message of a client, which has no kind."""
        (length,) = struct.unpack("!i", self._take(_LENGTH))
        return struct.pack("!i", length) + self._take(length - _LENGTH)

    def message(self) -> tuple[bytes, bytes]:
        """Return the next message's kind and body."""
        kind = self._take(1)
        (length,) = struct.unpack("!i", self._take(_LENGTH))
        return kind, self._take(length - _LENGTH)

    def _take(self, size: int) -> bytes:
        while len(self._read) < size:
            more = self._end.recv(_READ_SIZE)
            if not more:
                raise EOFError
            self._read += more
        taken, self._read = self._read[:size], self._read[size:]
        return taken


@contextmanager
def line_to(url: str) -> Iterator[tuple[str, ServerLine]]:
    """Yield the URL of a PostgreSQL database through a line, and the line; `url` has the folder of
    the server's socket.
    """
    server = sa.make_url(url)
    name = f".s.PGSQL.{server.port or 5432}"
    line = ServerLine(str(Path(str(server.query["host"])) / name))
    with (
        tempfile.TemporaryDirectory(prefix="line_") as folder,
        socket.socket(socket.AF_UNIX) as listening,
    ):
        listening.bind(str(Path(folder) / name))
        listening.listen(64)
        threading.Thread(target=line.serve, args=(listening,), daemon=True).start()
        through = server.update_query_dict({"host": folder})
        yield through.render_as_string(hide_password=False), line
        listening.shutdown(socket.SHUT_RDWR)
