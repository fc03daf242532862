"""One request as a handler sees it, its response, and the session that carries it out."""

from __future__ import annotations

import queue
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from txlake.errors import InvalidRequest
from txlake.server.api_errors import ApiError
from txlake.server.client_sessions import ClientSessions
from txlake.server.tokens import Caller
from txlake.session.engine import Engine
from txlake.session.session import Session

# Unity Catalog's rule: a full name is split at its periods.
_FORBIDDEN_IN_NAMES = re.compile(r"[.\s/\x00-\x1f\x7f]")
Body = TypeVar("Body", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a server.

    Attributes:
        workers: requests that run at once.
        waiting_max: requests that wait for a worker; beyond them the response is 429.
        body_bytes_max: size of a request's body.
        commit_bytes_max: size of a staged commit.
        request_s: seconds for a request's body to arrive, and for its response to be made.
        head_s: seconds for a request's head to arrive.
        sql_rows_max: rows of a query that are returned.
        statement_s: seconds that a script of SQL may run.
        sql_lock_ms: milliseconds that a statement may wait for a lock, as it occupies a worker.
        client_sessions_max: sessions that clients may keep at once.
        client_session_idle_s: seconds until an idle client session is closed.
    """

    workers: int = 8
    waiting_max: int = 64
    body_bytes_max: int = 4 * 1024 * 1024
    commit_bytes_max: int = 64 * 1024 * 1024
    request_s: float = 60.0
    head_s: float = 10.0
    sql_rows_max: int = 10_000
    statement_s: float = 300.0
    sql_lock_ms: int = 5_000
    client_sessions_max: int = 64
    client_session_idle_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedLake:
    """A lake, and what its server uses to serve it.

    Attributes:
        engine: the lake's engine.
        sessions: the pool of its sessions; each is used by one request at a time.
        client_sessions: the sessions that clients keep.
        vends_credentials: whether the lake's own storage options are given to clients.
        session_prefix: what the ids of client sessions begin with.
    """

    engine: Engine
    sessions: SessionPool
    limits: Limits = field(default_factory=Limits)
    vends_credentials: bool = False
    session_prefix: str = ""
    client_sessions: ClientSessions = field(init=False)

    def __post_init__(self) -> None:
        client_sessions = ClientSessions(
            self.sessions.create,
            self.engine.system.now_ms,
            count_max=self.limits.client_sessions_max,
            idle_ms=int(1000 * self.limits.client_session_idle_s),
            prefix=self.session_prefix,
        )
        object.__setattr__(self, "client_sessions", client_sessions)

    def close(self) -> None:
        """Close all sessions; a client session in use is waited for."""
        self.client_sessions.close()
        self.sessions.close()

    @property
    def catalog_names(self) -> frozenset[str]:
        """Return the names of the lake as a catalog, in lower case."""
        return self.engine.lake_names

    @property
    def catalog_name(self) -> str:
        """Return the name under which the catalog is listed: that of its folder."""
        names = sorted(self.catalog_names - {"spark_catalog"})
        return names[0] if names else "spark_catalog"


class SessionPool:
    """A pool of a lake's sessions, made on demand."""

    def __init__(self, make: Callable[[], Session]) -> None:
        self._make = make
        self._idle: queue.LifoQueue[Session] = queue.LifoQueue()

    @contextmanager
    def borrow(self) -> Iterator[Session]:
        """Borrow a session, for one user at a time; a new one if all are in use.

        Its lock timeout is 0: a lock that isn't free raises LockTimeout at once.
        """
        try:
            session = self._idle.get_nowait()
        except queue.Empty:
            session = self._make()
            session.lock_timeout_ms = 0
        try:
            yield session
        finally:
            self._idle.put(session)

    def create(self) -> Session:
        """Return a new session outside the pool, with the default lock timeout.

        The caller closes it.
        """
        return self._make()

    def close(self) -> None:
        """Close the idle sessions; borrowed ones stay open."""
        while True:
            try:
                self._idle.get_nowait().close()
            except queue.Empty:
                return


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request.

    Attributes:
        path: the parameters of its path.
        query: the parameters of its query string.
        content: its body.
        accept: its Accept header.
    """

    served_lake: ServedLake
    session: Session
    caller: Caller
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    content: bytes = b""
    accept: str = ""

    @property
    def engine(self) -> Engine:
        """Return the lake's engine."""
        return self.session.engine

    def body(self, kind: type[Body]) -> Body:
        """Return the body, decoded. Raises ApiError (400) if it isn't such JSON."""
        try:
            return msgspec.json.decode(self.content, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ApiError(
                "InvalidParameterValueException",
                f"the request's body: {error}",
            ) from error

    def required(self, name: str) -> str:
        """Return a parameter of the query string. Raises ApiError (400) if it is missing or
        empty.
        """
        value = self.query.get(name)
        if not value:
            raise ApiError(
                "InvalidParameterValueException",
                f"the query parameter {name!r} is missing",
            )
        return value

    def check_catalog(self, name: str) -> None:
        """Raise ApiError (404) unless it is one of the lake's names as a catalog, in any letter
        case.
        """
        if name.lower() not in self.served_lake.catalog_names:
            raise ApiError(
                "NoSuchCatalogException",
                f"there is no catalog {name!r} here; this is {self.served_lake.catalog_name!r}",
            )

    def schema(self) -> str:
        """Return the path's schema, as the lake spells it.

        Raises ApiError (404) if it doesn't exist, or the path has another catalog.
        """
        self.check_catalog(self.path["catalog"])
        return self.database(self.path["schema"])

    def database(self, name: str) -> str:
        """Return a schema's name as the lake spells it. Raises ApiError (404) if it doesn't
        exist.
        """
        entry = self.engine.catalog.of_lake().database(name)
        if entry is None:
            raise ApiError("NoSuchSchemaException", f"there is no schema {name!r}")
        return entry.name

    def page(self, total: int) -> tuple[int, int, str | None]:
        """Return the bounds of the listing's page, end exclusive, and the next page's token.

        A page without `max_results`, or with 0, ends with the listing; the last page's token is
        None. Raises ApiError (400) for invalid parameters.
        """
        try:
            start = int(self.query.get("page_token") or 0)
            size = int(self.query.get("max_results") or 0) or total
        except ValueError as error:
            raise ApiError(
                "InvalidParameterValueException",
                f"the page's query parameters: {error}",
            ) from error
        if start < 0 or size < 0:
            raise ApiError(
                "InvalidParameterValueException",
                "the page's query parameters are below 0",
            )
        end = min(start + size, total)
        return start, end, str(end) if end < total else None


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A status and a body: encoded as JSON, or `content` of the type `media`, or none."""

    status: int
    body: object = None
    content: bytes = b""
    media: str | None = None


Handler = Callable[[Call], ApiResponse]


def check_new_name(name: str) -> None:
    """Raise ApiError (400) for a name that is empty, or has a period, slash, space or control
    character: a path couldn't carry it, or it would be split.
    """
    if not name or _FORBIDDEN_IN_NAMES.search(name):
        raise ApiError(
            "InvalidParameterValueException",
            f"expected a name without periods, spaces, slashes and control characters, found "
            f"{name!r:.120}",
        )


def invalid_name(error: InvalidRequest) -> ApiError:
    """Return the API's error for an invalid name."""
    return ApiError("InvalidParameterValueException", str(error))
