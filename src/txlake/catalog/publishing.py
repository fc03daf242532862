"""Which ratified versions are published: the notes of it, written at once or carried.

Owns the notes that this process keeps until its next ratification carries them, or a thread of
their own writes them a moment later, and what a note does to the rows: the bytes of a commit are
cleared, which the file in the log has by then.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog.database import Database
from txlake.catalog.fence import EPOCH, Fence
from txlake.catalog.group_commit import GroupCommit, Interrupted
from txlake.catalog.heartbeat import DelayedCall
from txlake.catalog.prepared import Prepared, Row
from txlake.catalog.relations import commits, tables
from txlake.errors import TxlakeError
from txlake.ports import VersionRange

_log = logging.getLogger(__name__)

# Long enough for the next ratification of a busy process, short enough that others rarely compare
# the files of commits which nobody noted yet.
DEFERRED_MS = 100

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
    """A version of a table whose file was written, by who ratified it."""

    table_id: str
    version: int
    transaction_id: str


def confirmed_versions(
    connection: Connection, notes: Collection[PublicationNote]
) -> dict[str, list[VersionRange]]:
    """What the notes vouch for, by table.

    A version that isn't the noting transaction's any more is left out: its table has gone back
    since, or the catalog has.
    """
    if not notes:
        return {}
    ids = sorted({note.transaction_id for note in notes})
    made = {PublicationNote(*row) for row in _MADE_BY.rows(connection, ids=ids)}
    vouched: dict[str, list[VersionRange]] = {}
    for note in notes:
        if note in made:
            vouched.setdefault(note.table_id, []).append(VersionRange(note.version, note.version))
    return vouched


@dataclass(frozen=True, slots=True)
class PublicationStep:
    """A table's published versions grow."""

    table_id: str
    before: int
    until: int


def publication_step(
    table_id: str, published: int, head: int | None, vouched: Sequence[VersionRange]
) -> PublicationStep | None:
    """How far a table's published versions grow: those that follow one another are vouched for."""
    if head is None:
        return None
    until = min(_last_contiguous(published, vouched), head)
    return PublicationStep(table_id, published, until) if until > published else None


def _last_contiguous(published: int, vouched: Sequence[VersionRange]) -> int:
    for some in sorted(vouched, key=lambda one: one.first):
        if some.first <= published + 1:
            published = max(published, some.last)
    return published


def write_steps(connection: Connection, steps: Sequence[PublicationStep]) -> None:
    """Notes them; the bytes of those commits aren't needed any more."""
    rows = [{"of": one.table_id, "before": one.before, "until": one.until} for one in steps]
    _CLEAR.run_all(connection, rows)
    _PUBLISH.run_all(connection, rows)


class Publications:
    """The notes of one process, for any number of threads."""

    def __init__(self, on: Database, fence: Fence) -> None:
        self._on = on
        self._fence = fence
        self._group: GroupCommit[Mapping[str, VersionRange], bool] = GroupCommit(
            self._write_batch, turn=on.turn
        )
        self._deferred: list[PublicationNote] = []
        self._writing = threading.Lock()  # for those at the beginning
        self._later = DelayedCall(self._write_later, DEFERRED_MS)

    def note(self, versions: Mapping[str, VersionRange]) -> None:
        """Notes them now."""
        while True:
            try:
                self._group.submit(versions)
            except Interrupted:
                continue  # noting it twice is as good as once
            return

    def defer(self, transaction_id: str, versions: Mapping[str, int]) -> None:
        """Keeps a note for each table's version, which is written soon. Touches no database."""
        self._deferred += [PublicationNote(*one, transaction_id) for one in versions.items()]
        self._later.schedule()

    def deferred_of(self, table_id: str) -> frozenset[tuple[int, str]]:
        """The versions and transactions of a table's notes."""
        mine = (note for note in tuple(self._deferred) if note.table_id == table_id)
        return frozenset((note.version, note.transaction_id) for note in mine)

    @contextmanager
    def take_deferred(self) -> Iterator[Sequence[PublicationNote]]:
        """The notes that a transaction of the database takes along; kept on where it fails."""
        with self._writing:
            taken = tuple(self._deferred)
            yield taken
            del self._deferred[: len(taken)]  # threads add to the end alone

    def write_deferred(self) -> None:
        """Writes what is kept. Raises Unavailable, and as `Fence.check_epoch`."""
        if not self._deferred:
            return
        with (
            self._on.turn(),
            self.take_deferred() as notes,
            self._on.writing_relaxed() as connection,
        ):
            rows = self._lock_tables(connection, {note.table_id for note in notes})
            self._advance(connection, rows, confirmed_versions(connection, notes))

    def close(self) -> None:
        """Writes what is kept, if that can be done; nothing is written later."""
        self._later.stop()
        self._write_later()

    def _write_later(self) -> None:
        try:
            self._on.run_shielded(self.write_deferred)
        except TxlakeError as error:
            _log.warning("who opens these tables next notes their publication: %s", error)

    def _write_batch(self, requests: Sequence[Mapping[str, VersionRange]]) -> Sequence[bool]:
        vouched: dict[str, list[VersionRange]] = {}
        for versions in requests:
            for table_id, some in versions.items():
                vouched.setdefault(table_id, []).append(some)
        with self._on.writing_relaxed() as connection:
            self._advance(connection, self._lock_tables(connection, vouched), vouched)
        return [True] * len(requests)

    def _lock_tables(self, connection: Connection, ids: Collection[str]) -> Sequence[Row]:
        """The tables' rows, locked. Raises as `Fence.check_epoch`."""
        rows = _PUBLISHED.rows(connection, ids=sorted(ids))
        for row in rows[:1]:
            self._fence.check_epoch(row.epoch)
        return rows

    def _advance(
        self,
        connection: Connection,
        rows: Sequence[Row],
        vouched: Mapping[str, Sequence[VersionRange]],
    ) -> None:
        steps = [
            publication_step(row.id, row.published, row.head, vouched.get(row.id, ()))
            for row in rows
        ]
        write_steps(connection, [one for one in steps if one is not None])
