"""The lake's sessions, a row each, with a lease that this process's heartbeat renews.

Leases are measured by the clock of leases (`Database.lease_now`). `owners` decides when a session
is dead, and what ends with it.
"""

from __future__ import annotations

import logging
import os
import pwd
import socket
import threading
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from weakref import WeakMethod

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog.abandoned import AbandonedResources
from txlake.catalog.counter_rows import next_number, raise_number
from txlake.catalog.database import Database
from txlake.catalog.heartbeat import Heartbeat
from txlake.catalog.owners import end_sessions, is_expired
from txlake.catalog.prepared import Prepared
from txlake.catalog.relations import sessions
from txlake.catalog.shielding import shielded
from txlake.errors import TxlakeError

_log = logging.getLogger(__name__)
SESSION_COUNTER = "session"
# Numbers of sessions that have no row yet are random ones up to this.
_NUMBER_MAX = 2**31 - 2


_PRESENT = Prepared(lambda ids: sa.select(sessions.c.id).where(sessions.c.id.in_(ids)), "ids")


def _renewal(database: Database, lease_ms: int) -> Prepared:
    """Return the query that renews sessions' leases and returns the numbers of those that exist.

    Rows are locked in the order of their ids, as in `reap`, so that the two don't deadlock.
    """
    return Prepared(
        lambda ids: (
            sa.update(sessions)
            .where(
                sessions.c.id.in_(
                    sa.select(sessions.c.id)
                    .where(sessions.c.id.in_(ids))
                    .order_by(sessions.c.id)
                    .with_for_update()
                )
            )
            .values(lease_ms=database.lease_now() + lease_ms, length_ms=lease_ms, warned=False)
            .returning(sessions.c.id)
        ),
        "ids",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEntry:
    """A session.

    Attributes:
        host, process, user_name: where the session runs, and as whom.
        begin_ms: when the session was opened, by the database's clock.
        lease_ms: when the lease ends, by the clock of leases.
        length_ms: how long a lease is.
        warned: the lease had expired and was extended one last time.
        holder: the heartbeat object of the session's process, in a catalog in a store.
    """

    id: int
    host: str
    process: int
    user_name: str | None
    begin_ms: int
    lease_ms: int
    length_ms: int
    warned: bool
    holder: str | None = None


@shielded()
class Sessions:
    """The sessions of one catalog; those that this object opened are kept alive until closed.

    `upkeep` is called after each renewal of leases, and when a session is opened.
    """

    def __init__(
        self, database: Database, lease_ms: int, upkeep: Callable[[], None] = lambda: None
    ) -> None:
        self._database = database
        self._upkeep = upkeep
        self._lease_ms = lease_ms
        self._open: set[int] = set()
        self._with_row: set[int] = set()
        self._changing = threading.Lock()
        self._resources: AbandonedResources[int] = AbandonedResources()
        self._callbacks: list[WeakMethod[Callable[[], None]]] = []
        # The state of a replica after the last upkeep.
        self._state_kept: Hashable = None
        self._renewal = _PRESENT if database.is_replicated else _renewal(database, lease_ms)
        self.on_heartbeat(self.end_abandoned)
        self._heartbeat = Heartbeat(self.renew, lease_ms / 3)

    def open(self, holder: object = None) -> int:
        """Open a session and return its number. The session ends when `holder` is
        garbage-collected.
        """
        session_id = self._new_session()
        with self._changing:
            self._open.add(session_id)
        if holder is not None:
            self._resources.track(session_id, holder)
        self._heartbeat.start()
        self._upkeep()
        return session_id

    def _new_session(self) -> int:
        """Return the number of a new session, which has a row unless the database is a replica.

        A session of a replica gets its row with its first transaction or lock (`revive`).
        """
        if self._database.is_replicated:
            return 1 + int(self._database.system.random() * _NUMBER_MAX)

        def work(connection: Connection) -> int:
            session_id = next_number(connection, SESSION_COUNTER)
            self._insert(connection, session_id)
            return session_id

        return self._database.write_relaxed(work)

    def close(self, session_id: int) -> None:
        """End a session with its transactions and locks."""
        with self._changing:
            self._open.discard(session_id)
        self._remove_row(session_id)
        self._resources.forget(session_id)

    def _remove_row(self, session_id: int) -> None:
        """Remove a session's row, with those of its transactions and locks, if it has one."""
        if session_id in self._with_row:
            self._database.write_relaxed(lambda connection: end_sessions(connection, [session_id]))
            self._with_row.discard(session_id)

    def end_abandoned(self) -> None:
        """End the sessions whose holders were garbage-collected. Each heartbeat calls it too."""
        for session_id in self._resources.abandoned():
            self.close(session_id)

    def entries(self) -> list[SessionEntry]:
        """Return the living sessions of all processes, ordered by number."""
        self._database.observe_leases(is_urgent=True)
        query = sa.select(sessions).where(~is_expired(self._database))
        with self._database.reading_once() as connection:
            rows = connection.execute(query.order_by(sessions.c.id)).all()
        return [SessionEntry(**row._mapping) for row in rows]

    def send_renewal(
        self, connection: Connection, session_ids: Collection[int]
    ) -> Callable[[], set[int]]:
        """Send the query that renews leases; return a function that waits for the numbers of the
        sessions that exist.
        """
        renewed = self._renewal.send(connection, ids=sorted(session_ids))
        return lambda: {row.id for row in renewed()}

    def revive(self, connection: Connection, gone: Collection[int]) -> None:
        """Insert sessions of this process again whose rows were removed."""
        if gone and not self._database.is_replicated:
            # A catalog that was restored from a backup would give these numbers to other sessions.
            raise_number(connection, SESSION_COUNTER, max(gone))
        for session_id in gone:
            self._insert(connection, session_id)

    def ensure_row(self, connection: Connection, session_id: int) -> None:
        """Insert the row of a session that has none yet, because the database is a replica."""
        if self._database.is_replicated:
            self.revive(connection, {session_id} - self.send_renewal(connection, [session_id])())

    def on_heartbeat(self, work: Callable[[], None]) -> None:
        """Register a bound method to be called at each heartbeat, while its object is alive."""
        self._callbacks.append(WeakMethod(work))

    def renew(self) -> None:
        """Call the registered methods and renew the leases of the open sessions; log failures."""
        if self._database.is_replicated:
            self._run_callbacks()
            self._keep_alive()
        else:
            self._renew_rows()

    def _renew_rows(self) -> None:
        """Call the registered methods and renew the leases of the open sessions; log failures."""
        self._run_callbacks()
        with self._changing:
            session_ids = sorted(self._open)
        if not session_ids:
            return
        try:
            renewed = self._database.write_relaxed(
                lambda connection: self.send_renewal(connection, session_ids)()
            )
        except TxlakeError as error:
            _log.warning("the leases of sessions %s were not renewed: %s", session_ids, error)
            return
        self._warn_of_lost(set(session_ids) - renewed)
        self._upkeep()

    def _keep_alive(self) -> None:
        """Renew the lease of this process's sessions that have rows in a replica."""
        expected = self._open & self._with_row
        try:
            present = self._database.keep_alive()
        except TxlakeError as error:
            _log.warning("the leases of sessions %s were not renewed: %s", sorted(expected), error)
            return
        self._warn_of_lost(expected - present)
        self._with_row -= expected - present
        if self._database.known_state != self._state_kept:
            self._upkeep()
            self._state_kept = self._database.known_state

    def _warn_of_lost(self, lost: Collection[int]) -> None:
        if lost:
            _log.warning(
                "sessions %s weren't heard of for %d ms and lost their transactions",
                sorted(lost),
                self._lease_ms,
            )

    def stop(self) -> None:
        """Stop the heartbeat and end the open sessions; log if they can't be ended."""
        self._heartbeat.stop()
        with self._changing:
            session_ids = sorted(each for each in self._open if each in self._with_row)
            self._open = set()
        if not session_ids:
            return
        try:
            self._database.write_relaxed(lambda connection: end_sessions(connection, session_ids))
        except TxlakeError as error:
            _log.warning("sessions %s end when their leases do: %s", session_ids, error)

    def _run_callbacks(self) -> None:
        """Call the methods that `on_heartbeat` registered; log a TxlakeError and go on."""
        for reference in self._callbacks:
            work = reference()
            try:
                if work is not None:
                    work()
            except TxlakeError as error:
                _log.warning(
                    "a task of the heartbeat failed, and the next heartbeat repeats it: %s", error
                )

    def _insert(self, connection: Connection, session_id: int) -> None:
        """Insert the row of a session of this process, with a new lease."""
        holder = self._database.holder
        connection.execute(
            sa.insert(sessions).values(
                id=session_id,
                host=socket.gethostname(),
                process=os.getpid(),
                user_name=_user_name(),
                begin_ms=self._database.now(),
                lease_ms=self._database.lease_now() + self._lease_ms,
                length_ms=self._lease_ms,
                warned=False,
                **({} if holder is None else {"holder": holder}),
            )
        )
        self._with_row.add(session_id)


def _user_name() -> str | None:
    """Return the operating system's name of the user; None if the user has none."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user may have no name
        return None
