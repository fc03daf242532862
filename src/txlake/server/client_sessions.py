"""Sessions that clients keep over several requests, each with its own open transaction.

Owns each session's owner, its use by one request at a time, and its end when it is idle: the open
transaction is rolled back then.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from txlake.errors import TxlakeError
from txlake.server.api_errors import ApiError
from txlake.session.session import Session

_ID_BYTES = 16


@dataclass(slots=True)
class _ClientSession:
    owner: Hashable
    session: Session
    used_ms: int
    lock: threading.Lock = field(default_factory=threading.Lock)


class ClientSessions:
    """The client sessions of one server, each its owner's: whoever opened it, with what he may do.
    Thread-safe.

    `count_max`: how many may be open; `idle_ms`: milliseconds until an idle session is closed;
    `prefix`: what their ids begin with.
    """

    def __init__(
        self,
        make: Callable[[], Session],
        now_ms: Callable[[], int],
        *,
        count_max: int,
        idle_ms: int,
        prefix: str = "",
    ) -> None:
        self._make = make
        self._now_ms = now_ms
        self._count_max = count_max
        self._idle_ms = idle_ms
        self._prefix = prefix
        self._open: dict[str, _ClientSession] = {}
        self._lock = threading.Lock()

    def begin(self, owner: Hashable, prepare: Callable[[Session], None]) -> str:
        """Open a session, and return its id, which can't be guessed. Idle ones are closed first.

        Raises ApiError (429) if too many are open, and what `prepare` raises; the session is closed
        then.
        """
        self.sweep()
        session = self._make()
        try:
            prepare(session)
            session_id = f"{self._prefix}{secrets.token_hex(_ID_BYTES)}"
            with self._lock:
                if len(self._open) >= self._count_max:
                    raise ApiError(
                        "ResourceExhaustedException",
                        f"{self._count_max} sessions are open, and no more may be; end some",
                    )
                self._open[session_id] = _ClientSession(owner, session, self._now_ms())
        except BaseException:
            session.close()
            raise
        return session_id

    @contextmanager
    def acquire(self, session_id: str, owner: Hashable) -> Iterator[Session]:
        """Yield the session of an id, for this request alone.

        Raises ApiError if the caller has no such session (404), or another request uses it (409).
        """
        self.sweep()
        entry = self._find(session_id, owner)
        if not entry.lock.acquire(blocking=False):
            raise _busy()
        try:
            if self._open.get(session_id) is not entry:
                raise no_such_session()
            yield entry.session
        finally:
            entry.used_ms = self._now_ms()
            entry.lock.release()

    def touch(self, session_id: str) -> None:
        """Note that a session is in use, if it is open."""
        entry = self._open.get(session_id)
        if entry is not None:
            entry.used_ms = self._now_ms()

    def end(self, session_id: str, owner: Hashable) -> None:
        """Roll back the session's transaction, and close it. Raises ApiError as `acquire`."""
        entry = self._find(session_id, owner)
        if not entry.lock.acquire(blocking=False):
            raise _busy()
        try:
            with self._lock:
                self._open.pop(session_id, None)
            entry.session.close()
        finally:
            entry.lock.release()

    def sweep(self) -> None:
        """Close the sessions that are idle, and roll back their transactions.

        A session in use by a request stays open.
        """
        oldest = self._now_ms() - self._idle_ms
        with self._lock:
            idle = [
                session_id for session_id, entry in self._open.items() if entry.used_ms < oldest
            ]
            expired = [
                self._open.pop(session_id)
                for session_id in idle
                if self._open[session_id].lock.acquire(False)
            ]
        for entry in expired:
            entry.session.close()
            entry.lock.release()

    def fail_idle(self, idle_ms: int, cause: TxlakeError) -> None:
        """Roll back the transactions of sessions that are idle for so long, and keep the sessions:
        their next statement is refused because of `cause`.
        """
        oldest = self._now_ms() - idle_ms
        with self._lock:
            idle = [
                entry
                for entry in self._open.values()
                if entry.used_ms < oldest and entry.lock.acquire(blocking=False)
            ]
        for entry in idle:
            try:
                entry.session.fail(cause)
            finally:
                entry.lock.release()

    def close(self) -> None:
        """Close all sessions, each after the request that uses it."""
        with self._lock:
            remaining = list(self._open.values())
            self._open.clear()
        for entry in remaining:
            with entry.lock:
                entry.session.close()

    def _find(self, session_id: str, owner: Hashable) -> _ClientSession:
        """Return the session of an id. Raises ApiError (404) if it is closed, or another
        caller's.
        """
        entry = self._open.get(session_id)
        if entry is None or entry.owner != owner:
            raise no_such_session()
        return entry


def no_such_session() -> ApiError:
    """Return the error for an id without an open session of the caller."""
    return ApiError(
        "NotFoundException",
        "there is no such session: it was ended, or was idle for too long; its open transaction "
        "was rolled back",
    )


def _busy() -> ApiError:
    """Return the error for a session that another request uses."""
    return ApiError(
        "ResourceExhaustedException",
        "the session carries out another request; send one after the other",
        status=409,
    )
