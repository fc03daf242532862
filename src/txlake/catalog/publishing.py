"""Record which ratified versions are published: at once, or deferred.

Deferred notes are written with this process's next ratification, or by a thread 100 ms later. A
note raises a table's published version, and clears the bytes of the commits, which the files in
the log have by then.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog.database import Database
from txlake.catalog.fence import EPOCH, Fence
from txlake.catalog.group_commit import GroupCommit, Interrupted
from txlake.catalog.heartbeat import DelayedCall
from txlake.catalog.prepared import Prepared, Row, pipelined
from txlake.catalog.relations import commits, tables
from txlake.errors import TxlakeError
from txlake.ports import VersionRange

_log = logging.getLogger(__name__)

# Long enough for the next ratification of a busy process, short enough that other processes rarely
# have to compare the files of commits that aren't noted yet.
DEFERRED_MS = 100
# To a server a statement sends a dozen requests: over a network it takes longer than that.
DEFERRED_BY_SERVER_MS = 500
# Where a note is a request to a store: readers take the bytes of a commit that isn't noted yet from
# the catalog.
DEFERRED_IN_STORE_MS = 2_000

_PUBLISHED = Prepared(
    lambda ids: (
        sa.select(tables.c.id, tables.c.published, tables.c.head, EPOCH)
        .where(tables.c.id.in_(ids))
        .order_by(tables.c.id)
        .with_for_update(of=tables)
    ),
    "ids",
)
_MADE_BY = Prepared(
    lambda ids: sa.select(commits.c.table_id, commits.c.version, commits.c.transaction_id).where(
        commits.c.transaction_id.in_(ids)
    ),
    "ids",
)
_CLEAR = Prepared(
    sa.update(commits)
    .where(
        commits.c.table_id == sa.bindparam("of"),
        commits.c.version > sa.bindparam("before"),
        commits.c.version <= sa.bindparam("until"),
    )
    .values(content=None)
)
_PUBLISH = Prepared(
    sa.update(tables)
    .where(tables.c.id == sa.bindparam("of"))
    .values(published=sa.bindparam("until"))
)


@dataclass(frozen=True, slots=True)
class PublicationNote:
    """A version of a table whose file is in the log, and the transaction that was ratified."""

    table_id: str
    version: int
    transaction_id: str


def send_confirmation(
    connection: Connection, notes: Collection[PublicationNote]
) -> Callable[[], dict[str, list[VersionRange]]]:
    """Send the query for the notes' transactions; return a function that waits for it, and returns
    the versions of the notes, by table id, that the catalog still has.

    A version that isn't the note's transaction's any more is left out: the table, or the catalog,
    was restored to an earlier state since.
    """
    if not notes:
        return dict
    read_ratified = _MADE_BY.send(connection, ids=sorted({note.transaction_id for note in notes}))

    def read() -> dict[str, list[VersionRange]]:
        ratified = {PublicationNote(*row) for row in read_ratified()}
        confirmed: dict[str, list[VersionRange]] = {}
        for note in notes:
            if note in ratified:
                versions = VersionRange(note.version, note.version)
                confirmed.setdefault(note.table_id, []).append(versions)
        return confirmed

    return read


@dataclass(frozen=True, slots=True)
class PublicationStep:
    """The growth of a table's published versions, from `before` to `until`."""

    table_id: str
    before: int
    until: int


def publication_step(
    table_id: str, published: int, head: int | None, confirmed: Sequence[VersionRange]
) -> PublicationStep | None:
    """Return how far a table's published versions grow, without a gap and up to the head; None if
    they don't.
    """
    if head is None:
        return None
    until = min(_last_contiguous(published, confirmed), head)
    return PublicationStep(table_id, published, until) if until > published else None


def _last_contiguous(published: int, confirmed: Sequence[VersionRange]) -> int:
    """Return the last version that the ranges reach from `published` on without a gap."""
    for versions in sorted(confirmed, key=lambda versions: versions.first):
        if versions.first <= published + 1:
            published = max(published, versions.last)
    return published


def write_steps(connection: Connection, steps: Sequence[PublicationStep]) -> None:
    """Write the tables' published versions, and clear the bytes of the published commits."""
    rows = [{"of": step.table_id, "before": step.before, "until": step.until} for step in steps]
    _CLEAR.run_all(connection, rows)
    _PUBLISH.run_all(connection, rows)


def _delay_ms(database: Database) -> int:
    """Return after how long a note is written that no ratification has carried."""
    if database.is_replicated:
        return DEFERRED_IN_STORE_MS
    return DEFERRED_MS if database.has_single_writer else DEFERRED_BY_SERVER_MS


class Publications:
    """The publication notes of one process. Thread-safe."""

    def __init__(self, database: Database, fence: Fence) -> None:
        self._database = database
        self._fence = fence
        self._group: GroupCommit[Mapping[str, VersionRange], bool] = GroupCommit(
            self._write_batch, turn=database.turn
        )
        self._deferred: list[PublicationNote] = []
        self._writing = threading.Lock()  # held while the first deferred notes are being written
        self._later = DelayedCall(self._write_later, _delay_ms(database))

    def note(self, versions: Mapping[str, VersionRange]) -> None:
        """Record published versions by table id, now. Raises Unavailable."""
        while True:
            try:
                self._group.submit(versions)
            except Interrupted:
                continue  # noting it twice is as good as once
            return

    def defer(self, transaction_id: str, versions: Mapping[str, int]) -> None:
        """Defer a note of each table's version, to be written soon. Touches no database."""
        self._deferred += [
            PublicationNote(table_id, version, transaction_id)
            for table_id, version in versions.items()
        ]
        self._later.schedule()

    def deferred_of(self, table_id: str) -> frozenset[tuple[int, str]]:
        """Return (version, transaction id) of a table's deferred notes."""
        notes = (note for note in tuple(self._deferred) if note.table_id == table_id)
        return frozenset((note.version, note.transaction_id) for note in notes)

    @contextmanager
    def take_deferred(self) -> Iterator[Sequence[PublicationNote]]:
        """Yield the deferred notes, for the block to write; they stay deferred if it fails."""
        with self._writing:
            notes = tuple(self._deferred)
            yield notes
            del self._deferred[: len(notes)]  # other threads only append

    def write_deferred(self) -> None:
        """Write the deferred notes. Raises Unavailable, also in another epoch."""
        if not self._deferred:
            return

        def work(connection: Connection) -> None:
            with pipelined(connection):
                read_tables = _send_table_locks(connection, {note.table_id for note in notes})
                read_confirmed = send_confirmation(connection, notes)
            self._advance(connection, read_tables(), read_confirmed())

        with self._database.turn(), self.take_deferred() as notes:
            self._database.write_relaxed(work)

    def close(self) -> None:
        """Write the deferred notes, log if that fails, and write none later."""
        self._later.stop()
        self._write_later()

    def _write_later(self) -> None:
        """Write the deferred notes; log a failure."""
        try:
            self._database.run_shielded(self.write_deferred)
        except TxlakeError as error:
            _log.warning("publications are recorded when the tables are next opened: %s", error)

    def _write_batch(self, requests: Sequence[Mapping[str, VersionRange]]) -> Sequence[bool]:
        """Write the notes of several threads in one transaction; return True for each request."""
        by_table: dict[str, list[VersionRange]] = {}
        for request in requests:
            for table_id, versions in request.items():
                by_table.setdefault(table_id, []).append(versions)

        def work(connection: Connection) -> None:
            self._advance(connection, _send_table_locks(connection, by_table)(), by_table)

        self._database.write_relaxed(work)
        return [True] * len(requests)

    def _advance(
        self,
        connection: Connection,
        rows: Sequence[Row],
        confirmed: Mapping[str, Sequence[VersionRange]],
    ) -> None:
        """Raise the published versions of locked tables, write them, and commit. Raises as
        `Fence.check_epoch`.
        """
        for row in rows[:1]:
            self._fence.check_epoch(row.epoch)
        steps = [
            publication_step(row.id, row.published, row.head, confirmed.get(row.id, ()))
            for row in rows
        ]
        with pipelined(connection, commits=True):
            write_steps(connection, [step for step in steps if step is not None])


def _send_table_locks(connection: Connection, ids: Collection[str]) -> Callable[[], Sequence[Row]]:
    """Send the query that locks tables' rows; return a function that waits for the rows."""
    return _PUBLISHED.send(connection, ids=sorted(ids))
