"""HDFS over HTTP (WebHDFS): the calls that a store and Spark's tasks need, each sent once.

Owns the protocol: redirects to the data node, failover to the active name node, and whether a
failed request may have been carried out.

Source: Hadoop's page "WebHDFS REST API".
"""

from __future__ import annotations

import http.client
import json
import posixpath
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlencode, urlsplit

T = TypeVar("T")

SCHEMES = ("hdfs", "webhdfs", "swebhdfs")
ENDPOINT, USER, TOKEN, TIMEOUT = (
    "webhdfs_endpoint",
    "webhdfs_user",
    "webhdfs_token",
    "webhdfs_timeout",
)
OPTIONS_PREFIX = "webhdfs_"
_TIMEOUT_S_DEFAULT = 60.0
_PORT, _TLS_PORT = 9870, 9871
_ROOT = "/webhdfs/v1"
_ADDRESS = re.compile(r"https?://([^/@:\[\]]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
_ERROR_BYTES_MAX = 1 << 16
_FIRST_WAIT_S, _WAIT_S_MAX = 0.1, 5.0
# Exceptions of requests that are refused for good; for replies without one, the statuses below.
REFUSALS = frozenset(
    {
        *("AccessControlException", "DSQuotaExceededException", "FileAlreadyExistsException"),
        *("IllegalArgumentException", "InvalidPathException", "NSQuotaExceededException"),
        *("ParentNotDirectoryException", "PathComponentTooLongException", "SecurityException"),
        "UnsupportedOperationException",
    }
)
REFUSING_STATUSES = frozenset({400, 401, 403, 404, 405, 501})
_NOT_ACTIVE = frozenset({"StandbyException", "RetriableException", "SafeModeException"})


class WebHdfsError(OSError):
    """A call that failed.

    Attributes:
        kind: Hadoop's name of the exception, empty where the server gave none.
        status: the HTTP status; None without a reply.
        may_be_done: whether the request may have been carried out.
    """

    def __init__(self, text: str, *, kind: str = "", status: int | None, may_be_done: bool) -> None:
        super().__init__(text)
        self.kind = kind
        self.status = status
        self.may_be_done = may_be_done and not self.is_refused

    @property
    def is_refused(self) -> bool:
        """Whether the request was refused for good. False where the failure may pass by itself."""
        return self.kind in REFUSALS if self.kind else self.status in REFUSING_STATUSES


@dataclass(frozen=True, slots=True)
class FileStatus:
    """The name node's entry of a file or a folder; `name` is empty for the requested path
    itself.
    """

    name: str
    is_folder: bool
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class WebHdfs:
    """The name nodes of one HDFS, of which one is active. Paths are absolute and not encoded.

    Every call raises WebHdfsError. Reads and deletions raise FileNotFoundError for a missing file;
    a rename doesn't, because a request that arrived twice finds the file gone too.
    """

    endpoints: tuple[str, ...]
    user: str | None = None
    token: str | None = field(default=None, repr=False)
    timeout_s: float = _TIMEOUT_S_DEFAULT

    def read(self, path: str) -> bytes:
        """Return a file's bytes."""
        return self._data(path, {})

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset`, fewer at the end of the file and none beyond it."""
        try:
            return self._data(path, {"offset": str(offset), "length": str(length)})
        except WebHdfsError as error:
            if "out of the range" in str(error):
                return b""
            raise

    def status(self, path: str) -> FileStatus:
        """Return the status of a file or a folder."""
        answer = self._asked("GET", path, {"op": "GETFILESTATUS"})
        return _read(answer, lambda found: _file_status(found["FileStatus"]))

    def list(self, path: str) -> list[FileStatus]:
        """Return the entries of a folder; for a file, only its own, whose name is empty."""
        answer = self._asked("GET", path, {"op": "LISTSTATUS"})
        return _read(
            answer,
            lambda found: [_file_status(each) for each in found["FileStatuses"]["FileStatus"]],
        )

    def create(self, path: str, data: bytes) -> None:
        """Write a file, replacing an existing one, and create the folders above it.

        Until it returns, a reader may see only the file's beginning.
        """
        self._moved("PUT", path, {"op": "CREATE", "overwrite": "true"}, data)

    def rename(self, path: str, target: str, *, overwrite: bool = False) -> bool:
        """Rename a file atomically; return False if `target` exists and not `overwrite`.

        Raises WebHdfsError also where the file is missing or the server can't replace a file; a
        gateway that ignores `renameoptions` may return False for a missing file.
        """
        options = "OVERWRITE" if overwrite else "NONE"
        try:
            answer = self._asked(
                "PUT", path, {"op": "RENAME", "destination": target, "renameoptions": options}
            )
        except WebHdfsError as error:
            if error.kind == "FileAlreadyExistsException" and not overwrite:
                return False
            raise
        # Gateways that ignore the options answer as the older rename does, which never overwrites.
        renamed = not answer or _read(answer, _flag)
        if overwrite and not renamed:
            raise WebHdfsError(
                f"{target} can't be replaced by a rename there",
                kind="UnsupportedOperationException",
                status=200,
                may_be_done=True,
            )
        return renamed

    def delete(self, path: str) -> bool:
        """Delete a file or an empty folder; return False if the server says that it didn't
        exist.
        """
        return _read(self._asked("DELETE", path, {"op": "DELETE"}), _flag)

    def _data(self, path: str, parameters: Mapping[str, str]) -> bytes:
        return self._moved("GET", path, {"op": "OPEN", **parameters})

    def _asked(self, method: str, path: str, parameters: Mapping[str, str]) -> bytes:
        return self._of_active(method, path, parameters)[1]

    def _moved(
        self, method: str, path: str, parameters: Mapping[str, str], data: bytes = b""
    ) -> bytes:
        """Transfer bytes to or from the data node that the name node names, and return the reply's
        body. Raises WebHdfsError or FileNotFoundError for a failure.
        """
        place, answer = self._of_active(method, path, parameters)
        if place is None:
            if method == "GET":
                return answer
            raise WebHdfsError("no place to write to was named", status=200, may_be_done=False)
        parts = urlsplit(place)
        target = f"{_ROOT}{_encoded(path)}?{quote(parts.query, safe='=&%:/,+')}"
        return self._sent(f"{parts.scheme}://{parts.netloc}", method, target, data)[1]

    def _of_active(
        self, method: str, path: str, parameters: Mapping[str, str]
    ) -> tuple[str | None, bytes]:
        """Return the active name node's reply: the redirect's target, if any, and the body.

        The next name node is tried after one that can't be reached, isn't active or refuses the
        request. Raises the last one's error, and FileNotFoundError at once.
        """
        who: dict[str, str] = {}
        if self.token is not None:
            who["delegation"] = self.token
        elif self.user is not None:
            who["user.name"] = self.user
        query = urlencode({**parameters, **who}, quote_via=quote, safe="/")
        *others, last = self.endpoints
        for endpoint in others:
            try:
                return self._sent(endpoint, method, f"{_ROOT}{_encoded(path)}?{query}")
            except WebHdfsError as error:
                if error.may_be_done:
                    raise
        return self._sent(last, method, f"{_ROOT}{_encoded(path)}?{query}")

    def _sent(
        self, endpoint: str, method: str, target: str, data: bytes = b""
    ) -> tuple[str | None, bytes]:
        """Send one request on a new connection, which can't be stale.

        Returns the redirect's target and an empty body, or None and the body. Raises WebHdfsError
        or FileNotFoundError for a failure.
        """
        parts = urlsplit(endpoint)
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        try:
            connection = kind(parts.netloc, timeout=self.timeout_s)
            connection.connect()
        except (OSError, http.client.HTTPException) as error:
            raise WebHdfsError(
                f"{parts.netloc} can't be reached: {error}", status=None, may_be_done=False
            ) from error
        try:
            try:
                headers = {"Content-Type": "application/octet-stream"} if method == "PUT" else {}
                connection.request(method, target, data, headers)
                response = connection.getresponse()
                body = response.read(_ERROR_BYTES_MAX if response.status >= 300 else None)
            except (OSError, http.client.HTTPException) as error:
                raise WebHdfsError(
                    f"the reply of {parts.netloc} was lost: {type(error).__name__}: {error}",
                    status=None,
                    may_be_done=True,
                ) from error
        finally:
            connection.close()
        if response.status in {301, 302, 303, 307, 308}:
            return response.headers["Location"], b""
        if response.status >= 300:
            raise _failure(method, response.status, response.reason, body)
        return None, body


def client_of(url: str, options: Mapping[str, str]) -> WebHdfs:
    """Return the client of the HDFS that a URL of one of SCHEMES is in. Sends nothing.

    `webhdfs_endpoint` names the name nodes' HTTP addresses, `http://host:9870`, with commas between
    them; without it the one name node is at the URL's host and, unless the scheme is hdfs, its
    port. `webhdfs_user` is the requesting user; `webhdfs_token`, which goes first, is a delegation
    token of a secured cluster; `webhdfs_timeout` is how long to wait for a reply, in seconds (60).
    Options of other stores are ignored.

    Raises:
        ValueError: an option is not known, or its value can't be used.
    """
    own = {
        name.lower(): value
        for name, value in options.items()
        if name.lower().startswith(OPTIONS_PREFIX)
    }
    if unknown := sorted(own.keys() - {ENDPOINT, USER, TOKEN, TIMEOUT}):
        known = f"{ENDPOINT}, {USER}, {TOKEN} and {TIMEOUT}"
        raise ValueError(f"the storage option {unknown[0]} is not known; known are {known}")
    endpoints = tuple(
        each.strip().rstrip("/") for each in own.get(ENDPOINT, _endpoint(url)).split(",")
    )
    for each in endpoints:
        if not _ADDRESS.fullmatch(each):
            shown = re.sub("//.*@", "//***@", each)  # no password
            raise ValueError(
                f"the storage option {ENDPOINT} is like http://host:9870, not {shown!r}"
            )
    try:
        timeout_s = float(own.get(TIMEOUT, _TIMEOUT_S_DEFAULT))
    except ValueError:
        timeout_s = 0
    if not 0 < timeout_s < float("inf"):
        raise ValueError(
            f"the storage option {TIMEOUT} is a number of seconds, not {own[TIMEOUT]!r}"
        )
    return WebHdfs(endpoints, own.get(USER), own.get(TOKEN), timeout_s)


def patiently(work: Callable[[], T], retries: int) -> T:
    """Return the result of `work`, which is repeated after each WebHdfsError that isn't a refusal.

    Waits between the tries, 0.1 s at first and then twice as long each time, at most 5 s. Raises
    the last error after `retries` repetitions.
    """
    wait_s = _FIRST_WAIT_S
    for _ in range(retries):
        try:
            return work()
        except WebHdfsError as error:
            if error.is_refused:
                raise
        threading.Event().wait(wait_s)
        wait_s = min(2 * wait_s, _WAIT_S_MAX)
    return work()


def path_of(url: str) -> str:
    """Return the absolute path, decoded, of an encoded URL."""
    return posixpath.join("/", unquote(urlsplit(url).path))


def _endpoint(url: str) -> str:
    """Return the HTTP address of a URL's name node, with the default port where the URL has none or
    is `hdfs:`.
    """
    parts = urlsplit(url)
    scheme, port = ("https", _TLS_PORT) if parts.scheme == "swebhdfs" else ("http", _PORT)
    if parts.port is not None and parts.scheme != "hdfs":
        port = parts.port
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{scheme}://{host}:{port}"


def _encoded(path: str) -> str:
    return quote(path, safe="/")


def _read(answer: bytes, meaning: Callable[[Any], T]) -> T:
    """Return what `meaning` makes of a reply's JSON. Raises WebHdfsError, with `may_be_done`, for a
    reply that isn't WebHDFS's.
    """
    try:
        return meaning(json.loads(answer))
    except (ValueError, LookupError, TypeError) as error:
        raise WebHdfsError(
            f"an answer that isn't WebHDFS's: {answer[:100]!r}", status=200, may_be_done=True
        ) from error


def _flag(found: Mapping[str, Any]) -> bool:
    """Return the boolean of a reply. Raises KeyError or TypeError if it has none."""
    flag = found["boolean"]
    if not isinstance(flag, bool):
        raise TypeError
    return flag


def _file_status(found: Mapping[str, Any]) -> FileStatus:
    """Return the entry in a reply's JSON. Raises KeyError, TypeError or ValueError if it
    isn't one.
    """
    return FileStatus(
        str(found["pathSuffix"]),
        found["type"] == "DIRECTORY",
        int(found["length"]),
        int(found["modificationTime"]),
    )


def _failure(method: str, status: int, reason: str, body: bytes) -> Exception:
    """Return the error for a failed request, from Hadoop's RemoteException in the body if it has
    one.

    It is FileNotFoundError where a read or deletion has no file, else WebHdfsError.
    """
    kind, text = "", f"{status} {reason}"
    try:
        found = json.loads(body)["RemoteException"]
        # Only the first line: the server's stack trace follows.
        kind, text = str(found["exception"]), str(found["message"]).split("\n")[0]
    except (ValueError, LookupError, TypeError):
        pass
    below_a_file = kind == "ParentNotDirectoryException" or "(is not a directory)" in text
    if method != "PUT" and (below_a_file or kind == "FileNotFoundException"):
        return FileNotFoundError(text)
    shown = f"{kind}: {text}" if kind else text
    return WebHdfsError(shown, kind=kind, status=status, may_be_done=kind not in _NOT_ACTIVE)
