"""One request as a handler sees it, and its answer; which session of the lake carries it out."""

from __future__ import annotations

import queue
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from txlake.errors import InvalidRequest
from txlake.server.conversations import Conversations
from txlake.server.failures import Failure
from txlake.server.tokens import Caller
from txlake.session.engine import Engine
from txlake.session.session import Session

# Unity Catalog's rule: a full name is taken apart at its periods.
_NO_NAME = re.compile(r"[.\s/\x00-\x1f\x7f]")
Body = TypeVar("Body", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one server takes.

    Attributes:
        workers: requests that are carried out at once.
        waiting_max: requests that wait for that; beyond them the answer is 429.
        body_bytes_max: of a request's body.
        commit_bytes_max: of a staged commit.
        request_s: how long a request's body may take to arrive, and its answer to be made.
        head_s: how long a request's head may take to arrive.
        sql_rows_max: rows of a query that are answered.
        statement_s: how long a script of SQL may run, in seconds.
        sql_lock_ms: how long a statement may wait for a lock, in a thread that others need.
        conversations_max: sessions that clients may keep at once.
        conversation_idle_s: how long one is kept that nobody uses.
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
    conversations_max: int = 64
    conversation_idle_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What a server serves.

    Attributes:
        engine: the lake's.
        sessions: its sessions, of which each is used by one request at a time.
        conversations: the sessions that clients keep.
        vends_credentials: whether the lake's own storage options are given to clients.
    """

    engine: Engine
    sessions: Sessions
    limits: Limits = field(default_factory=Limits)
    vends_credentials: bool = False
    conversations: Conversations = field(init=False)

    def __post_init__(self) -> None:
        made = Conversations(
            self.sessions.fresh,
            self.engine.system.now_ms,
            count_max=self.limits.conversations_max,
            idle_ms=int(1000 * self.limits.conversation_idle_s),
        )
        object.__setattr__(self, "conversations", made)

    def close(self) -> None:
        """Ends all sessions."""
        self.conversations.close()
        self.sessions.close()

    @property
    def catalog_names(self) -> frozenset[str]:
        """What the lake is called as a catalog, in lower case."""
        return self.engine.lake_names

    @property
    def catalog_name(self) -> str:
        """The name by which it is listed: its folder's."""
        names = sorted(self.catalog_names - {"spark_catalog"})
        return names[0] if names else "spark_catalog"


class Sessions:
    """Sessions of a lake, made when they are needed, and used again."""

    def __init__(self, make: Callable[[], Session]) -> None:
        self._make = make
        self._idle: queue.LifoQueue[Session] = queue.LifoQueue()

    @contextmanager
    def one(self) -> Iterator[Session]:
        """A session that nobody else uses meanwhile; it waits for no lock."""
        try:
            session = self._idle.get_nowait()
        except queue.Empty:
            session = self._make()
            session.lock_timeout_ms = 0
        try:
            yield session
        finally:
            self._idle.put(session)

    def fresh(self) -> Session:
        """A new one, which its user closes."""
        return self._make()

    def close(self) -> None:
        """Ends the sessions that are idle."""
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
        query: those of its query string.
        content: its body.
        accept: the form of answers that it asks for, as its header says it.
    """

    served: Served
    session: Session
    caller: Caller
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    content: bytes = b""
    accept: str = ""

    @property
    def engine(self) -> Engine:
        """The lake's."""
        return self.session.engine

    def body(self, kind: type[Body]) -> Body:
        """The body as a value. Raises Failure where it isn't one."""
        try:
            return msgspec.json.decode(self.content, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Failure(
                "InvalidParameterValueException",
                f"the request's body: {error}",
            ) from error

    def required(self, name: str) -> str:
        """A parameter of the query string. Raises Failure where it is missing."""
        value = self.query.get(name)
        if not value:
            raise Failure(
                "InvalidParameterValueException",
                f"the query parameter {name!r} is missing",
            )
        return value

    def check_catalog(self, name: str) -> None:
        """Raises Failure for another catalog's name."""
        if name.lower() not in self.served.catalog_names:
            raise Failure(
                "NoSuchCatalogException",
                f"there is no catalog {name!r} here; this is {self.served.catalog_name!r}",
            )

    def schema(self) -> str:
        """The schema that the path names, as the lake spells it. Raises Failure without it."""
        self.check_catalog(self.path["catalog"])
        return self.database(self.path["schema"])

    def database(self, name: str) -> str:
        """A schema's name as the lake spells it. Raises Failure where there is none."""
        found = self.engine.catalog.of_lake().database(name)
        if found is None:
            raise Failure("NoSuchSchemaException", f"there is no schema {name!r}")
        return found.name

    def page(self, total: int) -> tuple[int, int, str | None]:
        """From where to where a listing of so many goes, and the token of the next page."""
        try:
            start = int(self.query.get("page_token") or 0)
            size = int(self.query.get("max_results") or 0) or total
        except ValueError as error:
            raise Failure(
                "InvalidParameterValueException",
                f"the page's query parameters: {error}",
            ) from error
        if start < 0 or size < 0:
            raise Failure(
                "InvalidParameterValueException",
                "the page's query parameters are below 0",
            )
        end = min(start + size, total)
        return start, end, str(end) if end < total else None


@dataclass(frozen=True, slots=True)
class Answer:
    """A status and a body, which is JSON; None: there is none, or `content` of that type."""

    status: int
    body: object = None
    content: bytes = b""
    media: str | None = None


Handler = Callable[[Call], Answer]


def check_new_name(name: str) -> None:
    """Raises Failure for a name that requests couldn't say, or would take apart."""
    if not name or _NO_NAME.search(name):
        raise Failure(
            "InvalidParameterValueException",
            f"expected a name without periods, spaces, slashes and control characters, found "
            f"{name!r:.120}",
        )


def no_name(error: InvalidRequest) -> Failure:
    """The failure for what can't be a name."""
    return Failure("InvalidParameterValueException", str(error))
