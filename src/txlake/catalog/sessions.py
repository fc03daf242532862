"""The lake's sessions: a row each, kept by a lease that a thread of this process renews.

Leases are by the database's clock. Owns no lock and no transaction: `owners` says what ends with a
session.
"""

from __future__ import annotations

import logging
import os
import pwd
import socket
import threading
from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog.database import Database
from txlake.catalog.heartbeat import Heartbeat
from txlake.catalog.names import next_number
from txlake.catalog.owners import end_sessions
from txlake.catalog.tables import sessions
from txlake.errors import TxlakeError

_log = logging.getLogger(__name__)
_COUNTER = "session"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEntry:
    """A session: where it runs, since when, and until when it counts as alive."""

    id: int
    host: str
    process: int
    user_name: str | None
    begin_ms: int
    lease_ms: int


class Sessions:
    """The sessions of one catalog; those that were opened here are kept alive until closed."""

    def __init__(self, on: Database, lease_ms: int) -> None:
        self._on = on
        self._lease_ms = lease_ms
        self._open: set[int] = set()
        self._changing = threading.Lock()
        # In one order, which who reaps keeps too.
        in_order = (
            sa.select(sessions.c.id)
            .where(sessions.c.id.in_(sa.bindparam("ids", expanding=True)))
            .order_by(sessions.c.id)
            .with_for_update()
        )
        self._renewal = (
            sa.update(sessions)
            .where(sessions.c.id.in_(in_order))
            .values(lease_ms=on.now() + lease_ms)
            .returning(sessions.c.id)
        )
        self._heartbeat = Heartbeat(self.renew, lease_ms / 3)

    def open(self) -> int:
        """A new session's number."""
        with self._on.noting() as connection:
            session_id = next_number(connection, _COUNTER)
            self._insert(connection, session_id)
        with self._changing:
            self._open.add(session_id)
        self._heartbeat.start()
        return session_id

    def close(self, session_id: int) -> None:
        """Ends a session, its transactions and its locks."""
        with self._changing:
            self._open.discard(session_id)
        with self._on.noting() as connection:
            end_sessions(connection, [session_id])

    def listed(self) -> list[SessionEntry]:
        """The living sessions of all processes, by number."""
        query = sa.select(sessions).where(sessions.c.lease_ms > self._on.now())
        with self._on.reading() as connection:
            found = connection.execute(query.order_by(sessions.c.id)).all()
        return [SessionEntry(**row._mapping) for row in found]

    def ensure(self, connection: Connection, session_ids: Collection[int]) -> None:
        """Renews sessions' leases, whether they lived on or were found dead and removed."""
        for session_id in set(session_ids) - self._renewed(connection, session_ids):
            self._insert(connection, session_id)

    def renew(self) -> None:
        """Renews the leases of all sessions that were opened here; logs when it can't."""
        with self._changing:
            mine = sorted(self._open)
        if not mine:
            return
        try:
            with self._on.noting() as connection:
                renewed = self._renewed(connection, mine)
        except TxlakeError as error:
            _log.warning("the leases of sessions %s were not renewed: %s", mine, error)
            return
        lost = sorted(set(mine) - renewed)
        if lost:
            _log.warning(
                "sessions %s weren't heard of for %d ms and lost their transactions",
                lost,
                self._lease_ms,
            )

    def stop(self) -> None:
        """Stops renewing, and ends the sessions that are still open here, if that can be done."""
        self._heartbeat.stop()
        with self._changing:
            mine, self._open = sorted(self._open), set()
        if not mine:
            return
        try:
            with self._on.noting() as connection:
                end_sessions(connection, mine)
        except TxlakeError as error:
            _log.warning("sessions %s end when their leases do: %s", mine, error)

    def _renewed(self, connection: Connection, session_ids: Collection[int]) -> set[int]:
        return set(connection.scalars(self._renewal, {"ids": sorted(session_ids)}))

    def _insert(self, connection: Connection, session_id: int) -> None:
        connection.execute(
            sa.insert(sessions).values(
                id=session_id,
                host=socket.gethostname(),
                process=os.getpid(),
                user_name=_user_name(),
                begin_ms=self._on.now(),
                lease_ms=self._on.now() + self._lease_ms,
            )
        )


def _user_name() -> str | None:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user may have no name
        return None
