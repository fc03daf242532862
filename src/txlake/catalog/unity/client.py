"""Send requests to a Unity Catalog's server, and read its responses.

Owns the address, the token, and which errors mean that nothing was changed. Source: Unity Catalog's
API, and its Delta API, "Errors".
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from txlake.errors import InvalidRequest, Unavailable
from txlake.ports import System

if TYPE_CHECKING:
    from urllib3 import PoolManager

_SCHEMES = ("uc+https", "uc+http")
_ROOT = "/api/2.1/unity-catalog"
_DELTA = "/delta/v1"
_TXLAKE_ROOT = "/api/txlake/v1"
# Errors for a missing object, as opposed to a missing endpoint.
_OBJECT_NOT_FOUND = frozenset(
    {"NoSuchTableException", "NoSuchSchemaException", "NoSuchCatalogException"}
)
_TIMEOUT_S = 60.0
_CONNECT_S = 10.0
_ATTEMPTS = 4
_WAIT_MS = 200.0
BUSY = 429
_PAGES_MAX = 10_000

Response = Mapping[str, Any]


def is_unity(url: str | None) -> bool:
    """Return whether a URL is the address of a Unity Catalog."""
    return url is not None and url.partition(":")[0].lower() in _SCHEMES


class RequestRefused(Exception):
    """The server refused a request and changed nothing. `kind`: the API's type of the error."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class ResponseLost(Exception):
    """The outcome of a request is unknown: its response was lost, or the server failed."""


@dataclass(slots=True)
class UnityClient:
    """A client of one server. Thread-safe.

    Attributes:
        url: the root of the server's API, without a slash at the end.
        catalog: the catalog's name in the address; None if the address has none.
    """

    url: str
    catalog: str | None
    system: System
    _token: str | None = field(default=None, repr=False)
    _pool: PoolManager | None = field(default=None, repr=False)

    @classmethod
    def from_address(cls, address: str, system: System, token: str | None = None) -> UnityClient:
        """Return the client of `uc+https://host[:port][/api/2.1/unity-catalog][?catalog=name]`.

        Raises InvalidRequest for an invalid address, and for a token that would travel to another
        host without TLS.
        """
        try:
            parts = urlsplit(address)
            _ = parts.port
        except ValueError as error:
            raise InvalidRequest(
                f"expected uc+https://host[:port], found an invalid host or port: {error}"
            ) from error
        query = dict(parse_qsl(parts.query))
        if parts.scheme not in _SCHEMES or not parts.hostname or query.keys() - {"catalog"}:
            raise InvalidRequest(
                "expected uc+https://host[:port][/api/2.1/unity-catalog][?catalog=name], found "
                f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
            )
        if parts.username is not None or parts.password is not None:
            raise InvalidRequest("a Unity Catalog's address has no user and password; give token=")
        scheme = parts.scheme.removeprefix("uc+")
        if token is not None and scheme == "http" and not is_loopback(parts.hostname):
            raise InvalidRequest(
                f"{parts.hostname}: a token would travel over uc+http for everybody to read; use "
                "uc+https"
            )
        if token is not None and (not token.isascii() or not token.isprintable() or " " in token):
            raise InvalidRequest("token: expected one word of printable ASCII")
        path = parts.path.rstrip("/") or _ROOT
        port = "" if parts.port is None else f":{parts.port}"
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return cls(f"{scheme}://{host}{port}{path}", query.get("catalog"), system, token)

    def list_all(self, path: str, key: str, query: Mapping[str, str]) -> list[Response]:
        """Return all items of a list, page by page. Raises as `get`."""
        items: list[Response] = []
        page: str | None = None
        for _ in range(_PAGES_MAX):
            page_query = {**query, **({"page_token": page} if page else {})}
            response = self.get(path, page_query)
            items.extend(response.get(key) or ())
            page = response.get("next_page_token")
            if not page:
                return items
        raise Unavailable(f"{self.url}{path}: the list has no end")

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Response:
        """Return the response to a GET, which is repeated while the server is busy or unreachable.

        Raises RequestRefused, Unavailable, and InvalidRequest if the server denies access.
        """
        reason = ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                self.system.wait_ms(_WAIT_MS * 2**attempt)
            try:
                return self._request("GET", path, query=query)
            except ResponseLost as error:
                reason = str(error)
            except RequestRefused as error:
                if error.status != BUSY:
                    raise
                reason = str(error)
        raise Unavailable(f"{self.url}: no answer to {_ATTEMPTS} requests for {path}: {reason}")

    def send(self, method: str, path: str, body: object = None) -> Response:
        """Return the response to a request for a change, which is sent once.

        Raises:
            RequestRefused: the server changed nothing.
            ResponseLost: the outcome is unknown.
            Unavailable: the server can't be reached.
            InvalidRequest: the server denies access.
        """
        return self._request(method, path, body=body)

    def close(self) -> None:
        """Close the connections; the next request opens another."""
        if self._pool is not None:
            self._pool.clear()

    @property
    def txlake_url(self) -> str | None:
        """The root of txlake's own API; None if the server can't be txlake's."""
        root = self.url.removesuffix(_ROOT)
        return None if root == self.url else f"{root}{_TXLAKE_ROOT}"

    def post_to_txlake(self, path: str, body: object) -> Response | None:
        """POST to txlake's own API and return the response; None if the server isn't txlake's.
        Raises as `send`.
        """
        if self.txlake_url is None:
            return None
        try:
            return self._request("POST", path, body=body, root=self.txlake_url)
        except RequestRefused as error:
            if error.status in (404, 405, 501) and error.kind not in _OBJECT_NOT_FOUND:
                return None
            raise

    def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        root: str | None = None,
    ) -> Response:
        """Send a request once and return its response. Raises as `send`."""
        try:
            import urllib3
            from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError
        except ImportError as error:
            raise InvalidRequest(
                'a Unity Catalog needs urllib3, which is missing: pip install "txlake[unity]"'
            ) from error

        url = f"{root or self.url}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = {"accept": "application/json"}
        if self._token is not None:
            headers["authorization"] = f"Bearer {self._token}"
        content = None
        if body is not None:
            headers["content-type"] = "application/json"
            content = json.dumps(body, ensure_ascii=False).encode()
        if self._pool is None:
            self._pool = urllib3.PoolManager(maxsize=16, retries=False)
        try:
            response = self._pool.request(
                method,
                url,
                body=content,
                headers=headers,
                redirect=False,
                timeout=urllib3.Timeout(connect=_CONNECT_S, read=_TIMEOUT_S),
            )
        except (NewConnectionError, ConnectTimeoutError) as error:
            raise Unavailable(f"{self.url}: the catalog's server can't be reached: {error}") from (
                error
            )
        except HTTPError as error:
            raise ResponseLost(f"{self.url}{path}: {error}") from error
        return self._parse(path, response.status, response.data, is_deletion=method == "DELETE")

    def _parse(self, path: str, status: int, data: bytes, *, is_deletion: bool) -> Response:
        """Return a response's JSON object, or raise its error as `send`."""
        try:
            body = json.loads(data) if data.strip() else {}
        except ValueError:
            body = None
        if 200 <= status < 300 and isinstance(body, dict):
            return body
        if 200 <= status < 300 and is_deletion:  # its response is empty plain text
            return {}
        kind, message = _error_of(body, status)
        detail = f"{self.url}{path}: {message}"
        if status in (401, 403):
            raise InvalidRequest(
                f"{self.url}{path}: is the token right, and may it do this? {message}"
            )
        if 400 <= status < 500 or status == 501:
            raise RequestRefused(status, kind, detail)
        raise ResponseLost(f"{detail} (status {status})")


def delta_path(*parts: str) -> str:
    """Return a path of the Delta API."""
    return f"{_DELTA}/{quoted(*parts)}"


def quoted(*parts: str) -> str:
    """Return path segments, percent-encoded."""
    return "/".join(quote(part, safe="") for part in parts)


def _error_of(body: object, status: int) -> tuple[str, str]:
    """Return the type and message of an error of the Delta API or Unity Catalog's own; the type is
    empty for another body.
    """
    if isinstance(body, dict):
        error = body.get("error")
        if isinstance(error, dict):
            return str(error.get("type", "")), str(error.get("message", ""))[:500]
        if "message" in body:
            return str(body.get("error_code", "")), str(body["message"])[:500]
    return "", f"expected an answer in JSON, found status {status}"


def is_loopback(host: str) -> bool:
    """Return whether a host is `localhost` or a loopback address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
