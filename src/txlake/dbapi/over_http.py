"""A lake behind `txlake serve`, as a connection's backend: a session over HTTP.

Owns the address, the requests, and the errors that responses carry. Source: docs/open-lake.md, "SQL
for programs that aren't Python".
"""

from __future__ import annotations

import dataclasses
import http.client
import json
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import pyarrow as pa

from txlake import errors
from txlake.catalog.unity.client import is_loopback
from txlake.conflict.levels import Level, parse_level
from txlake.dbapi.fetching import ResultSet, of_arrow
from txlake.errors import (
    Conflict,
    Evidence,
    InvalidRequest,
    OutcomeUnknown,
    TxlakeError,
    Unavailable,
)
from txlake.sql import parse
from txlake.sql.markers import Arguments
from txlake.sql.statements import Begin, Statement
from txlake.sql.typed_parameters import to_json

_ROOT = "/api/txlake/v1"
_ARROW = "application/vnd.apache.arrow.stream"
_FORM = "txlake+http://host[:port] or txlake+https://host[:port]"
_LEVELS = {
    Level.SNAPSHOT: "SNAPSHOT",
    Level.WRITE_SERIALIZABLE: "WRITE SERIALIZABLE",
    Level.SERIALIZABLE: "SERIALIZABLE",
}
_EVIDENCE = frozenset(field.name for field in dataclasses.fields(Evidence))
_NOT_FOUND = 404


class Disconnected(Unavailable):
    """The server can't be reached, or has ended the session and rolled its transaction back."""


class _SessionGone(Disconnected):
    """The server ended the session, and rolled its transaction back."""


class _ResponseLost(Exception):
    """A request was sent, and its response didn't arrive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server listens."""

    is_secure: bool
    host: str
    port: int | None
    token: str | None

    def __str__(self) -> str:
        port = "" if self.port is None else f":{self.port}"
        return f"{'https' if self.is_secure else 'http'}://{self.host}{port}"


def address_of(dsn: str, token: str | None) -> Address:
    """Return the address of `txlake+http[s]://host[:port]`.

    Raises InvalidRequest for another form, and for a token that would travel to another host
    without TLS.
    """
    try:
        parts = urlsplit(dsn)
        port = parts.port
    except ValueError as error:
        raise InvalidRequest(f"expected {_FORM}, found an invalid host or port: {error}") from error
    if parts.username is not None or parts.password is not None:
        raise InvalidRequest("a server's address has no user and password; give token=")
    if (
        parts.scheme not in ("txlake+http", "txlake+https")
        or not parts.hostname
        or parts.path.strip("/")
        or parts.query
        or parts.fragment
    ):
        raise InvalidRequest(
            f"expected {_FORM}, found {parts.scheme}://{parts.hostname or ''}{parts.path}"
        )
    is_secure = parts.scheme == "txlake+https"
    if token is not None and not is_secure and not is_loopback(parts.hostname):
        raise InvalidRequest(
            f"{parts.hostname}: a token would travel over HTTP for everybody to read; use "
            "txlake+https"
        )
    if token is not None and (not token.isascii() or not token.isprintable() or " " in token):
        raise InvalidRequest("token: expected one word of printable ASCII")
    return Address(is_secure=is_secure, host=parts.hostname, port=port, token=token)


class OverHttp:
    """A backend that keeps a session of a server; each request has a connection of its own."""

    def __init__(
        self,
        address: Address,
        *,
        isolation: str | None,
        database: str | None,
        timeout_s: float,
    ) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._level = None if isolation is None else parse_level(isolation)
        self._is_open = False
        level = None if self._level is None else self._level.value
        settings = {"isolation": level, "database": database}
        try:
            answer = json.loads(self._request("POST", "/sessions", settings))
        except _ResponseLost as error:
            raise Disconnected(f"{address}: no answer: {error.__cause__}") from error
        except ValueError as error:
            raise Unavailable(f"{address} isn't a txlake server: {error}") from error
        self._session = str(answer["session"])

    @property
    def in_transaction(self) -> bool:
        return self._is_open

    @property
    def isolation(self) -> str | None:
        return None if self._level is None else self._level.value

    def set_isolation(self, level: str | None) -> None:
        if level is None:
            if self._level is not None:
                raise InvalidRequest(
                    "isolation_level: a session of a server keeps the level that it was given; "
                    "open another connection for the database's own"
                )
            return
        parsed = parse_level(level)
        self.run(f"SET TRANSACTION ISOLATION LEVEL {_LEVELS[parsed]}", None)
        self._level = parsed

    def parsed(self, text: str, args: Arguments | None) -> Sequence[Statement] | None:
        try:
            return parse(text, args)
        except InvalidRequest:
            return None  # the server says what is wrong, and fails its transaction

    def begin(self) -> None:
        self.run("BEGIN", None)

    def commit(self) -> None:
        try:
            self._sql("COMMIT", None, unknown=True)
        finally:
            self._is_open = False

    def rollback(self) -> None:
        try:
            self._sql("ROLLBACK", None)
        except (_SessionGone, InvalidRequest):
            pass  # nothing is open there
        finally:
            self._is_open = False

    def run(
        self, text: str, args: Arguments | None, statements: Sequence[Statement] | None = None
    ) -> ResultSet:
        begins = any(isinstance(one, Begin) for one in statements or ())
        try:
            table = self._sql(text, args, unknown=not self._is_open)
        except TxlakeError:
            self._is_open = self._is_open or begins
            raise
        metadata = table.schema.metadata or {}
        self._is_open = b"transaction" in metadata
        total = int(metadata.get(b"total", table.num_rows))
        if total > table.num_rows:
            raise InvalidRequest(
                f"the query has {total} rows, and the server sends at most {table.num_rows}: add "
                "a condition or a LIMIT, or open the lake in this process"
            )
        made = of_arrow(table)
        made.identity = int(metadata[b"identity"]) if b"identity" in metadata else None
        return made

    def _sql(self, text: str, args: Arguments | None, *, unknown: bool = False) -> pa.Table:
        """Run a script and return its rows.

        Raises the error of the response; OutcomeUnknown if that was lost and `unknown` is set, else
        Disconnected.
        """
        parameters = None if args is None else _encoded(args)
        body = {"statement": text, "parameters": parameters, "session": self._session}
        try:
            content = self._request("POST", "/sql", body)
        except _ResponseLost as error:
            reason = f"{self._address}: the answer was lost: {error.__cause__}"
            if unknown:
                raise OutcomeUnknown(
                    f"{reason}; look whether the change is there before you repeat it"
                ) from error
            raise Disconnected(f"{reason}; roll back, and begin again") from error
        try:
            with pa.ipc.open_stream(content) as stream:
                return stream.read_all()
        except pa.ArrowException as error:
            raise Unavailable(f"{self._address} isn't a txlake server: {error}") from error

    def close(self) -> None:
        with suppress(_ResponseLost, Unavailable):  # the server ends the session when it is idle
            self._request("DELETE", f"/sessions/{self._session}", None)

    def _request(self, method: str, path: str, body: object) -> bytes:
        """Send a request once, and return the response's content.

        Raises Disconnected if the server can't be reached, _ResponseLost after the request was
        sent, and the error of the response.
        """
        headers = {"accept": _ARROW}
        if self._address.token is not None:
            headers["authorization"] = f"Bearer {self._address.token}"
        content = None
        if body is not None:
            headers["content-type"] = "application/json"
            content = json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")
        connection = self._connected()
        try:
            connection.request(method, f"{_ROOT}{path}", content, headers)
            response = connection.getresponse()
            data = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise _ResponseLost from error
        finally:
            connection.close()
        if response.status >= 300:
            raise _error_of(self._address, response.status, data)
        return data

    def _connected(self) -> http.client.HTTPConnection:
        """Return a connection to the server. Raises Disconnected if it can't be reached."""
        address = self._address
        if address.is_secure:
            made: http.client.HTTPConnection = http.client.HTTPSConnection(
                address.host,
                address.port,
                timeout=self._timeout_s,
                context=ssl.create_default_context(),
            )
        else:
            made = http.client.HTTPConnection(address.host, address.port, timeout=self._timeout_s)
        try:
            made.connect()
        except OSError as error:
            raise Disconnected(f"{address}: the server can't be reached: {error}") from error
        return made


def _encoded(args: Arguments) -> object:
    """Return a statement's parameters as JSON values. Raises InvalidRequest as `to_json`."""
    if isinstance(args, Mapping):
        return {str(name): to_json(value) for name, value in args.items()}
    return [to_json(value) for value in args]


def _error_of(address: Address, status: int, content: bytes) -> TxlakeError:
    """Return the error of a response: of the class that it names, else by its status."""
    try:
        body = json.loads(content)["error"]
        message, kind = str(body["message"]), body.get("class")
        evidence = body.get("evidence")
    except (ValueError, KeyError, TypeError, AttributeError):
        message, kind, evidence = f"{address} answered with status {status}", None, None
    made = getattr(errors, str(kind), None)
    if isinstance(made, type) and issubclass(made, TxlakeError):
        numbers = ", ".join(str(code) for code in made.codes)
        message = message.removesuffix(f" (error {numbers})")
        if issubclass(made, Conflict) and isinstance(evidence, dict):
            return made(message, _evidence(evidence))
        return made(message)
    if kind is None and status == _NOT_FOUND:
        return _SessionGone(message)
    if status in (409, 429) or status >= 502:
        return Unavailable(message)
    if status >= 500:
        return OutcomeUnknown(message)
    return InvalidRequest(message)


def _evidence(found: Mapping[str, object]) -> Evidence:
    """Return the evidence of a response; fields that this version doesn't know are left out."""
    known = {name: value for name, value in found.items() if name in _EVIDENCE}
    for name in ("files", "rows"):
        value = known.get(name, ())
        known[name] = tuple(value) if isinstance(value, list) else ()
    return Evidence(**known)  # type: ignore[arg-type]
