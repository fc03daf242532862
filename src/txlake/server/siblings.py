"""The server's other processes, which hold the client sessions that they opened.

Owns how a request for such a session gets there: each process also listens on a socket in a folder
that only this user can open, and a session's id begins with the name of its process.
"""

from __future__ import annotations

import http.client
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from txlake.errors import OutcomeUnknown
from txlake.server.api_errors import ApiError, api_error_of
from txlake.server.calls import ApiResponse
from txlake.server.client_sessions import no_such_session

_SEPARATOR = "."
_FORWARDED_HEADERS = ("authorization", "accept", "content-type")


@dataclass(frozen=True, slots=True)
class Siblings:
    """The processes of one server.

    Attributes:
        folder: has the socket of each process, under the process's name.
        own: the name of this process.
    """

    folder: Path
    own: str

    @property
    def own_socket(self) -> Path:
        """The socket of this process."""
        return self.folder / self.own

    @property
    def session_prefix(self) -> str:
        """What the ids of this process's sessions begin with."""
        return f"{self.own}{_SEPARATOR}"

    def holder_of(self, session_id: str) -> str | None:
        """Return the name of the other process that a session's id names; None for one of this
        process, and for an id without a process.
        """
        name, separator, _ = session_id.partition(_SEPARATOR)
        is_name = bool(separator) and name.isascii() and name.isdecimal()
        return name if is_name and name != self.own else None

    def forward(
        self,
        holder: str,
        method: str,
        target: str,
        headers: Mapping[str, str],
        content: bytes,
        timeout_s: float,
    ) -> ApiResponse:
        """Send a request to another process of this server, and return the response.

        Raises ApiError: 404 if that process has ended, and with it its sessions; as OutcomeUnknown
        if it ends before it answers.
        """
        connection = _LocalConnection(self.folder / holder, timeout_s)
        kept = {name: headers[name] for name in _FORWARDED_HEADERS if name in headers}
        try:
            try:
                connection.connect()
            except OSError as error:
                raise no_such_session() from error
            try:
                connection.request(method, target, content, kept)
                response = connection.getresponse()
                body = response.read()
            except (OSError, http.client.HTTPException) as error:
                raise _unanswered() from error
        finally:
            connection.close()
        media = response.headers.get("content-type")
        return ApiResponse(response.status, content=body, media=media)


def _unanswered() -> ApiError:
    """Return the error for a process that ended while it carried out a request."""
    error = OutcomeUnknown(
        "the process of the server that held the session ended before it answered; look whether "
        "what was asked took effect before asking again"
    )
    api_error = api_error_of(error)
    api_error.details = {"class": type(error).__name__, "codes": list(error.codes)}
    return api_error


class _LocalConnection(http.client.HTTPConnection):
    """A connection to a process of this machine, by its socket's path."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket. Raises OSError if nobody listens there."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(self.timeout)
            connection.connect(str(self._path))
        except BaseException:
            connection.close()
            raise
        self.sock = connection
