"""What clients keep on the server by handles, which can't be guessed and are their owners' alone.

Owns transactions, sessions, prepared statements and results that weren't fetched yet; their
numbers, and their end when they are idle.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from txlake.errors import InvalidRequest, TxlakeError, Unavailable
from txlake.server.api_errors import ApiError
from txlake.server.calls import ServedLake
from txlake.server.client_sessions import ClientSessions
from txlake.server.flight.results import Result, lost_rows
from txlake.server.tokens import Caller
from txlake.session.session import Session
from txlake.sql.markers import Arguments

_COUNT_MAX = 10_000
_SESSIONS_MAX = 1_000
# What holds no locks is kept for so long.
_LONG_MS = 3_600_000
_ID_BYTES = 16
Value = TypeVar("Value")


@dataclass(slots=True)
class Prepared:
    """A prepared statement.

    Attributes:
        transaction: the handle of the transaction that it is part of.
        rows: the values that were bound, for each execution; None as long as there are none.
    """

    text: str
    transaction: str | None
    rows: Sequence[Arguments] | None = None


@dataclass(slots=True)
class _Entry(Generic[Value]):
    owner: Caller
    value: Value
    used_ms: int


class Store(Generic[Value]):
    """Values of one kind by handles. Thread-safe.

    `what` is the kind's name in messages; a value that `is_used` isn't idle.
    """

    def __init__(
        self,
        what: str,
        now_ms: Callable[[], int],
        idle_ms: int,
        is_used: Callable[[Value], bool] = lambda _: False,
    ) -> None:
        self._what, self._now_ms, self._idle_ms = what, now_ms, idle_ms
        self._is_used = is_used
        self._entries: dict[str, _Entry[Value]] = {}
        self._lock = threading.Lock()

    def add(self, owner: Caller, value: Value) -> str:
        """Keep a value, and return its handle. Raises ApiError (429) if there are too many."""
        handle = secrets.token_hex(_ID_BYTES)
        with self._lock:
            if len(self._entries) >= _COUNT_MAX:
                raise ApiError(
                    "ResourceExhaustedException",
                    f"{_COUNT_MAX} {self._what}s are open, and no more may be; close some",
                )
            self._entries[handle] = _Entry(owner, value, self._now_ms())
        return handle

    def find(self, handle: str, owner: Caller) -> Value:
        """Return the value of a handle. Raises ApiError (404) if the owner has no such one."""
        entry = self._entries.get(handle)
        if entry is None or entry.owner != owner:
            raise ApiError(
                "NotFoundException",
                f"there is no such {self._what}: it was closed, or was idle for too long",
            )
        entry.used_ms = self._now_ms()
        return entry.value

    def touch(self, handle: str) -> None:
        """Note that a value is in use, if it is still kept."""
        entry = self._entries.get(handle)
        if entry is not None:
            entry.used_ms = self._now_ms()

    def remove(self, handle: str, owner: Caller) -> Value | None:
        """Return a value that isn't kept any more; None if the owner has no such one."""
        with self._lock:
            entry = self._entries.get(handle)
            if entry is None or entry.owner != owner:
                return None
            del self._entries[handle]
        return entry.value

    def values(self) -> list[Value]:
        """Return all values."""
        with self._lock:
            return [entry.value for entry in self._entries.values()]

    def sweep(self) -> list[Value]:
        """Forget the values that nobody has used for long, and return them."""
        oldest = self._now_ms() - self._idle_ms
        with self._lock:
            idle = [
                key
                for key, one in self._entries.items()
                if one.used_ms < oldest and not self._is_used(one.value)
            ]
            return [self._entries.pop(handle).value for handle in idle]


class Handles:
    """Everything that the clients of one server keep."""

    def __init__(self, served: ServedLake) -> None:
        now_ms = served.engine.system.now_ms
        idle_ms = int(1000 * served.limits.client_session_idle_s)
        self._served = served
        self.prepared: Store[Prepared] = Store("prepared statement", now_ms, _LONG_MS)
        self.results: Store[Result] = Store(
            "result", now_ms, idle_ms, lambda result: result.is_working
        )
        self.transactions = ClientSessions(
            served.sessions.create, now_ms, count_max=_SESSIONS_MAX, idle_ms=idle_ms
        )
        self.sessions = ClientSessions(
            served.sessions.create, now_ms, count_max=_SESSIONS_MAX, idle_ms=_LONG_MS
        )
        self._idle_ms = idle_ms

    @contextmanager
    def transaction(self, handle: str, caller: Caller) -> Iterator[Session]:
        """Yield the session of an open transaction, for one call alone.

        Raises ApiError if the caller has no such transaction (404) or another call uses it, and
        InvalidRequest if a statement of its own has ended it.
        """
        try:
            with self.transactions.acquire(handle, caller) as session:
                if session.current is None:
                    raise InvalidRequest(
                        "the transaction has ended, by a COMMIT or ROLLBACK of its own; begin "
                        "another one"
                    )
                yield session
        except ApiError as error:
            if error.kind == "NotFoundException":
                raise _no_such_transaction() from error
            raise

    def lose_rows(self, transaction: str) -> None:
        """Send no more rows of a transaction that was rolled back."""
        for result in self.results.values():
            if result.transaction == transaction:
                result.lose(lost_rows())

    def sweep(self) -> None:
        """End what is idle; idle transactions are rolled back."""
        self.prepared.sweep()
        for result in self.results.sweep():
            result.abandon()
        self.transactions.sweep()
        self.sessions.sweep()
        self.sessions.fail_idle(
            self._idle_ms,
            Unavailable(f"the session was idle for more than {self._idle_ms / 1000:g} s"),
        )

    def close(self) -> None:
        """Roll back all transactions, each after the call that uses it."""
        for sessions in (self.transactions, self.sessions):
            with suppress(TxlakeError):
                sessions.close()


def _no_such_transaction() -> ApiError:
    return ApiError(
        "NotFoundException",
        "there is no such transaction: it has ended, or was idle for too long and was rolled back; "
        "begin another one",
    )
