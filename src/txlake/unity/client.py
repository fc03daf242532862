"""Requests to a Unity Catalog's server, and its answers as values.

Owns the address, the token, and which failures say that nothing happened. Source: Unity Catalog's
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
_OWN_ROOT = "/api/txlake/v1"
# What isn't there is what the request names, not the way to ask.
_MISSING = frozenset({"NoSuchTableException", "NoSuchSchemaException", "NoSuchCatalogException"})
_TIMEOUT_S = 60.0
_CONNECT_S = 10.0
_TRIES = 4
_WAIT_MS = 200.0
BUSY = 429
_PAGES_MAX = 10_000

Answer = Mapping[str, Any]


def is_unity(url: str | None) -> bool:
    """Whether it is the address of a Unity Catalog."""
    return url is not None and url.partition(":")[0].lower() in _SCHEMES


class Declined(Exception):
    """The server said no, and nothing happened. `kind` is one of the API's types of errors."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class Unanswered(Exception):
    """Whether the request was carried out isn't known: its answer was lost, or says so."""


@dataclass(slots=True)
class UnityClient:
    """Calls one server. Threads may share it.

    Attributes:
        url: the root of its API, without a slash at the end.
        catalog: the catalog that is asked for, as the address names it; None: it names none.
    """

    url: str
    catalog: str | None
    system: System
    _token: str | None = field(default=None, repr=False)
    _pool: PoolManager | None = field(default=None, repr=False)

    @classmethod
    def at(cls, address: str, system: System, token: str | None = None) -> UnityClient:
        """The client of `uc+https://host[:port][/api/2.1/unity-catalog][?catalog=name]`.

        Raises InvalidRequest for what is no such address, and for a token that would travel to
        another host without TLS.
        """
        parts = urlsplit(address)
        query = dict(parse_qsl(parts.query))
        if parts.scheme not in _SCHEMES or not parts.hostname or query.keys() - {"catalog"}:
            raise InvalidRequest(
                "expected uc+https://host[:port][/api/2.1/unity-catalog][?catalog=name], found "
                f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
            )
        if parts.username is not None or parts.password is not None:
            raise InvalidRequest("a Unity Catalog's address has no user and password; give token=")
        scheme = parts.scheme.removeprefix("uc+")
        if token is not None and scheme == "http" and not _is_own(parts.hostname):
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

    def listed(self, path: str, key: str, query: Mapping[str, str]) -> list[Answer]:
        """All items of a list, page by page. Raises as `asked`."""
        found: list[Answer] = []
        page: str | None = None
        for _ in range(_PAGES_MAX):
            asked = {**query, **({"page_token": page} if page else {})}
            answer = self.asked(path, asked)
            found.extend(answer.get(key) or ())
            page = answer.get("next_page_token")
            if not page:
                return found
        raise Unavailable(f"{self.url}{path}: the list has no end")

    def asked(self, path: str, query: Mapping[str, str] | None = None) -> Answer:
        """What a GET answers; it is repeated while the server is busy or away.

        Raises Declined, Unavailable, and InvalidRequest where the server doesn't let us in.
        """
        said = ""
        for number in range(_TRIES):
            if number:
                self.system.wait_ms(_WAIT_MS * 2**number)
            try:
                return self._sent("GET", path, query=query)
            except Unanswered as error:
                said = str(error)
            except Declined as error:
                if error.status != BUSY:
                    raise
                said = str(error)
        raise Unavailable(f"{self.url}: no answer to {_TRIES} requests for {path}: {said}")

    def told(self, method: str, path: str, body: object = None) -> Answer:
        """What a request for a change answers; it is sent once.

        Raises Declined where nothing happened, Unanswered where it may have, Unavailable where the
        server can't be reached, InvalidRequest where it doesn't let us in.
        """
        return self._sent(method, path, body=body)

    def close(self) -> None:
        """Closes its connections; the next request opens another."""
        if self._pool is not None:
            self._pool.clear()

    @property
    def own_url(self) -> str | None:
        """Where txlake's own API is, if the server is txlake's; None: it can't be one."""
        root = self.url.removesuffix(_ROOT)
        return None if root == self.url else f"{root}{_OWN_ROOT}"

    def told_txlake(self, path: str, body: object) -> Answer | None:
        """As `told`, by POST of txlake's own API; None where the server isn't txlake's."""
        if self.own_url is None:
            return None
        try:
            return self._sent("POST", path, body=body, root=self.own_url)
        except Declined as error:
            if error.status in (404, 405, 501) and error.kind not in _MISSING:
                return None
            raise

    def _sent(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        root: str | None = None,
    ) -> Answer:
        try:
            import urllib3
            from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError
        except ImportError as error:
            raise InvalidRequest(
                'a Unity Catalog is asked by urllib3, which is missing: pip install "txlake[unity]"'
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
            answer = self._pool.request(
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
            raise Unanswered(f"{self.url}{path}: {error}") from error
        return self._read(path, answer.status, answer.data, is_deletion=method == "DELETE")

    def _read(self, path: str, status: int, data: bytes, *, is_deletion: bool) -> Answer:
        try:
            found = json.loads(data) if data.strip() else {}
        except ValueError:
            found = None
        if 200 <= status < 300 and isinstance(found, dict):
            return found
        if 200 <= status < 300 and is_deletion:  # whose answer says nothing, in plain text
            return {}
        kind, message = _failure(found, status)
        said = f"{self.url}{path}: {message}"
        if status in (401, 403):
            raise InvalidRequest(
                f"{self.url}{path}: is the token right, and may it do this? {message}"
            )
        if 400 <= status < 500 or status == 501:
            raise Declined(status, kind, said)
        raise Unanswered(f"{said} (status {status})")


def delta_path(*parts: str) -> str:
    """A path of the Delta API."""
    return f"{_DELTA}/{quoted(*parts)}"


def quoted(*parts: str) -> str:
    """Path segments, encoded."""
    return "/".join(quote(part, safe="") for part in parts)


def _failure(found: object, status: int) -> tuple[str, str]:
    """The type and the message of an error, as either API has them."""
    if isinstance(found, dict):
        error = found.get("error")
        if isinstance(error, dict):
            return str(error.get("type", "")), str(error.get("message", ""))[:500]
        if "message" in found:
            return str(found.get("error_code", "")), str(found["message"])[:500]
    return "", f"expected an answer in JSON, found status {status}"


def _is_own(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
