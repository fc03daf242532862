"""A lake behind a server of Flight SQL, and ADBC's connections to it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import adbc_driver_flightsql.dbapi as flightsql
import pytest

import txlake
from txlake.commands import HANDLERS
from txlake.server.calls import Limits, ServedLake, SessionPool
from txlake.server.flight.serving import FlightServer
from txlake.server.serving import restricted_engine
from txlake.server.tokens import Token, Tokens
from txlake.session import Session
from txlake.system import System

WRITER, READER, AGENT = "a-token-for-everything", "a-token-that-only-reads", "a-token-for-branches"
TOKENS = (
    Token(token=WRITER, name="etl"),
    Token(token=READER, name="reports", read_only=True),
    Token(token=AGENT, name="agent", branches=True),
)
HEADER = "adbc.flight.sql.authorization_header"
CALL_HEADER = "adbc.flight.sql.rpc.call_header."
COOKIES = "adbc.flight.sql.rpc.with_cookie_middleware"


class ServedFlight:
    """Serves a lake in this process."""

    def __init__(self, lake: txlake.Lake, limits: Limits | None = None) -> None:
        engine = restricted_engine(lake._session.engine, owns_spark=False)
        self.served = ServedLake(
            engine=engine,
            sessions=SessionPool(lambda: Session(engine, HANDLERS)),
            limits=limits or Limits(),
        )
        self.server = FlightServer(self.served, Tokens(TOKENS), host="127.0.0.1", port=0)
        self.address = self.server.address

    @property
    def handles(self) -> Any:
        """What the clients keep."""
        return self.server._handles

    @contextlib.contextmanager
    def connect(
        self, token: str = WRITER, *, auto: bool = True, options: Mapping[str, str] | None = None
    ) -> Iterator[Any]:
        """A connection of ADBC; its cursors are closed with it."""
        kwargs = {HEADER: f"Bearer {token}", **(options or {})}
        con = flightsql.connect(self.address, db_kwargs=kwargs, autocommit=auto)
        try:
            yield con
        finally:
            for cursor in list(con._cursors):
                cursor.close()
            con.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.server.stop()
        self.served.close()


def rows(con: Any, text: str, *args: Any) -> list[tuple[Any, ...]]:
    """The rows of a query, in their order by value."""
    with con.cursor() as cursor:
        cursor.execute(text, *args)
        return sorted(cursor.fetchall())


def changed(con: Any, text: str, *args: Any) -> int:
    """How many rows a statement changed."""
    with con.cursor() as cursor:
        cursor.execute(text, *args)
        count: int = cursor.rowcount
        return count


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds, half a minute at most."""
    for _ in range(600):
        if holds():
            return
        System().wait_ms(50)
    pytest.fail("it doesn't hold")
