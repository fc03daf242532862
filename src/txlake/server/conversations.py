"""Sessions that clients keep over many requests, each with its own open transaction.

Owns whose they are, that a request has one to itself, and their end when nobody asks any more: what
was open is rolled back then.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from txlake.server.failures import Failure
from txlake.session.session import Session

_ID_BYTES = 16


@dataclass(slots=True)
class _Conversation:
    owner: str
    session: Session
    used_ms: int
    lock: threading.Lock = field(default_factory=threading.Lock)


class Conversations:
    """Those of one server. Safe to use from many threads.

    `count_max`: how many there may be; `idle_ms`: how long one is kept that nobody uses.
    """

    def __init__(
        self,
        make: Callable[[], Session],
        now_ms: Callable[[], int],
        *,
        count_max: int,
        idle_ms: int,
    ) -> None:
        self._make = make
        self._now_ms = now_ms
        self._count_max = count_max
        self._idle_ms = idle_ms
        self._open: dict[str, _Conversation] = {}
        self._lock = threading.Lock()

    def begin(self, owner: str, prepare: Callable[[Session], None]) -> str:
        """A new one's id; nobody else can guess it.

        Raises Failure where there are too many, and what `prepare` raises.
        """
        self.sweep()
        session = self._make()
        try:
            prepare(session)
            name = secrets.token_hex(_ID_BYTES)
            with self._lock:
                if len(self._open) >= self._count_max:
                    raise Failure(
                        "ResourceExhaustedException",
                        f"{self._count_max} sessions are open, and no more may be; end some",
                    )
                self._open[name] = _Conversation(owner, session, self._now_ms())
        except BaseException:
            session.close()
            raise
        return name

    @contextmanager
    def one(self, name: str, owner: str) -> Iterator[Session]:
        """The session of that id, which no other request uses meanwhile.

        Raises Failure for one that isn't the caller's, or is in use.
        """
        self.sweep()
        found = self._found(name, owner)
        if not found.lock.acquire(blocking=False):
            raise _busy()
        try:
            if self._open.get(name) is not found:
                raise _gone()
            yield found.session
        finally:
            found.used_ms = self._now_ms()
            found.lock.release()

    def end(self, name: str, owner: str) -> None:
        """Rolls back what is open, and forgets it. Raises Failure as `one`."""
        found = self._found(name, owner)
        if not found.lock.acquire(blocking=False):
            raise _busy()
        try:
            with self._lock:
                self._open.pop(name, None)
            found.session.close()
        finally:
            found.lock.release()

    def sweep(self) -> None:
        """Ends those that nobody used for long."""
        oldest = self._now_ms() - self._idle_ms
        with self._lock:
            idle = [name for name, one in self._open.items() if one.used_ms < oldest]
            gone = [self._open.pop(name) for name in idle if self._open[name].lock.acquire(False)]
        for one in gone:
            one.session.close()
            one.lock.release()

    def close(self) -> None:
        """Ends all of them."""
        with self._lock:
            left = list(self._open.values())
            self._open.clear()
        for one in left:
            with one.lock:
                one.session.close()

    def _found(self, name: str, owner: str) -> _Conversation:
        found = self._open.get(name)
        if found is None or found.owner != owner:
            raise _gone()
        return found


def _gone() -> Failure:
    return Failure(
        "NotFoundException",
        "there is no such session: it was ended, or nobody used it for too long; what it had open "
        "was rolled back",
    )


def _busy() -> Failure:
    return Failure(
        "ResourceExhaustedException",
        "the session carries out another request; send one after the other",
        status=409,
    )
