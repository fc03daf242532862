"""The tables that a transaction has opened: the snapshot of each that it reads, its staged changes.

Owns the transaction's instant, and the isolation level and conflict granularity of each table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from txlake.catalog import DatabaseEntry
from txlake.catalog.lookup import CatalogView
from txlake.commit.membership import catalog_required_error, is_open
from txlake.commit.parallel import is_far, parallel_map
from txlake.commit.part_states import TableSavepoint
from txlake.commit.rebase import check_read_unchanged
from txlake.commit.table_transaction import TableTransaction
from txlake.conflict.footprint import Read
from txlake.conflict.granularity import PROPERTY as GRANULARITY
from txlake.conflict.granularity import Granularity, coarsest, parse_granularity
from txlake.conflict.levels import Level, parse_level, strictest
from txlake.errors import Conflict, InvalidRequest, TxlakeError
from txlake.log.snapshot import Snapshot
from txlake.session.engine import Engine, Handle


@dataclass(slots=True, kw_only=True)
class OpenedTables:
    """The parts of one transaction, one for each table that it has used.

    Attributes:
        level: the isolation level that the transaction requests; None leaves it to databases and
            tables.
        instant: the instant of the lake that it reads; None until it uses a table of the lake.
        begins_unseen: a path table in a far store is opened at the version that this process
            knows.
        writes: the statement that opens tables may change them.
    """

    engine: Engine
    level: Level | None
    instant: int | None = None
    begins_unseen: bool = False
    writes: bool = False
    # By the key of a table's handle.
    _parts: dict[str, TableTransaction] = field(default_factory=dict)
    _handles: dict[str, Handle] = field(default_factory=dict)
    # The keys of path tables among them, in the order in which they were opened.
    _outside_lake: dict[str, None] = field(default_factory=dict)
    # By name. A transaction that uses a database keeps others from changing its settings.
    _databases: dict[str, DatabaseEntry | None] = field(default_factory=dict)
    # By table id, at the instant.
    _versions: dict[str, int] = field(default_factory=dict)
    # By key, tables at the instant that aren't opened yet.
    _bases: dict[str, Snapshot] = field(default_factory=dict)
    # By table name, what to do after a conflict that repeats with the version that was read: a
    # DataFrame's, or the caller's.
    _advice: dict[str, str] = field(default_factory=dict)
    # By key, tables that are read at an older version than that at the instant.
    _begun_earlier: dict[str, int] = field(default_factory=dict)
    # Checks of what was read that the next answer waits for.
    _checks: list[Callable[[], None]] = field(default_factory=list)

    def __iter__(self) -> Iterator[tuple[Handle, TableTransaction]]:
        return ((self._handles[key], part) for key, part in self._parts.items())

    def written(
        self, *, outside_lake_only: bool = False
    ) -> Iterator[tuple[Handle, TableTransaction]]:
        """Yield the tables on which changes are staged; `outside_lake_only`: path tables alone."""
        for key in self._outside_lake if outside_lake_only else self._parts:
            if self._parts[key].has_changes:
                yield self._handles[key], self._parts[key]

    @property
    def versions(self) -> Mapping[str, int]:
        """By name, the version of each table that was opened; -1 of one that doesn't exist yet."""
        opened = list(self._handles.items())
        return {handle.name: self._parts[key].base.version for key, handle in opened}

    def learn(self, view: CatalogView) -> None:
        """Adopt the view's instant, unless the transaction has one, and its versions and databases.

        Do nothing for a view without an instant.
        """
        if view.instant is None:
            return
        if self.instant is None:
            self.instant = view.instant
        self._versions.update(view.versions)
        for entry in (*view.tables.values(), *view.places.values()):
            self._databases.setdefault(entry.database, view.databases.get(entry.database.lower()))

    def raise_level(self, level: Level) -> None:
        """Request a level, which the caller has made no looser, for this and all opened tables."""
        self.level = level
        for part in self._parts.values():
            part.raise_level(level)

    def needs_instant(self, handle: Handle) -> bool:
        """Return whether an instant has to be fixed before the table can be opened.

        That is so for the first table of a lake with instants.
        """
        is_first = self.instant is None and handle.key not in self._parts
        return is_first and handle.entry is not None and self.engine.catalog.is_lake

    def read_ahead(self, handles: Iterable[Handle]) -> None:
        """Read tables of the lake that a statement may open, side by side, if there are several in
        stores over a network.

        Does nothing before the instant is fixed. A table that can't be read is left out: opening it
        raises the error.
        """
        unread = {
            handle.key: handle
            for handle in handles
            if handle.entry is not None
            and is_far(handle.store)
            and handle.key not in self._parts
            and handle.key not in self._bases
        }
        if self.instant is None or len(unread) < 2 or not self.engine.catalog.is_lake:
            return
        snapshots = parallel_map(
            self._readable_base, list(unread.values()), store=lambda handle: handle.store
        )
        self._bases.update(
            (key, snapshot) for key, snapshot in zip(unread, snapshots) if snapshot is not None
        )

    def _readable_base(self, handle: Handle) -> Snapshot | None:
        """Return the table as `_base_of`; None if it can't be read."""
        try:
            return self._base_of(handle)
        except TxlakeError:
            return None

    def open(self, handle: Handle) -> TableTransaction:
        """Return the transaction's part on a table; the first call fixes the table's snapshot.

        That is the table at the transaction's instant, or the newest version of a path table.
        Raises UnsupportedFeature for a path table whose versions a catalog decides.
        """
        part = self._parts.get(handle.key)
        if part is None:
            part = self._unseen_part(handle) or self._part_from(handle, self._base_of(handle))
            self._add(handle, part)
        return part

    def open_at(self, handle: Handle, base: Snapshot) -> TableTransaction:
        """Return a new part on a version of the table that is older than the transaction's instant.

        It commits as a transaction that began then.
        """
        return self._add(handle, self._part_from(handle, base))

    def begin_at(self, handle: Handle, version: int) -> TableTransaction:
        """Return the part on a table at a version that the caller read elsewhere.

        It commits as a transaction that began then.

        Raises InvalidRequest if the transaction reads another version of the table; if the table
        doesn't have the version yet, or any more; and at the level SNAPSHOT, which has one instant
        for all reads, if the transaction uses another table and this version is older than that.
        """
        part = self._parts.get(handle.key)
        base = self._base_of(handle) if part is None else part.base
        if base is None or base.version < 0:
            raise InvalidRequest(
                f"{handle.name}: read_version={version}, and the table has no version before this "
                "transaction's commit; leave it out"
            )
        if part is not None and base.version != version:
            raise InvalidRequest(
                f"{handle.name}: read_version={version}, and the transaction reads version "
                f"{base.version}; give read_version with its first statement that uses the table, "
                "or begin another transaction"
            )
        if version > base.version:
            raise InvalidRequest(
                f"{handle.name}: read_version={version}, and the newest version that the "
                f"transaction sees is {base.version}; give the version that was read of this table"
            )
        self._advice[handle.name] = (
            f"read_version={version} of {handle.name} is what was read: read the table again, and "
            "give the version that you read then."
        )
        if part is not None:
            return part
        if version == base.version:
            return self._add(handle, self._part_from(handle, base))
        self._begun_earlier[handle.key] = version
        return self.open_at(handle, handle.log.snapshot(version))

    def _unseen_part(self, handle: Handle) -> TableTransaction | None:
        """Return the part on a path table at the version that this process knows, while the log's
        newest one is read; None if the transaction doesn't begin unseen, or the table isn't known.
        """
        begun = handle.log.begin_reading() if self.begins_unseen and not handle.in_lake else None
        if begun is None or is_open(begun[0].protocol):
            return None
        part = self._part_from(handle, begun[0])
        part.reading = begun[1]
        return part

    def _add(self, handle: Handle, part: TableTransaction) -> TableTransaction:
        """Record a part as the transaction's part on the handle's table, and return it.

        Raises InvalidRequest at the level SNAPSHOT for parts that don't read the same instant.
        """
        self._require_one_instant(handle, part)
        self._parts[handle.key] = part
        self._handles[handle.key] = handle
        if not handle.in_lake:
            self._outside_lake[handle.key] = None
        return part

    def _require_one_instant(self, handle: Handle, part: TableTransaction) -> None:
        """Raise InvalidRequest if a part would read another instant than a part at SNAPSHOT."""
        if not self._begun_earlier:
            return
        others = {key: one for key, one in self._parts.items() if key != handle.key}
        parts = {**others, handle.key: part}
        for key, version in self._begun_earlier.items():
            if others and key in parts and parts[key].level is Level.SNAPSHOT:
                name = parts[key].base.table
                raise InvalidRequest(
                    f"{name}: read_version={version} is older than what the transaction reads of "
                    f"other tables ({', '.join(sorted(one.base.table for one in parts.values()))} "
                    "are used), and at the level snapshot all reads are of one instant; use the "
                    "level serializable or write_serializable, or a transaction for this table "
                    "alone"
                )

    def get(self, handle: Handle) -> TableTransaction | None:
        """Return the part on a table; None if the table wasn't opened."""
        return self._parts.get(handle.key)

    def remove(self, handle: Handle) -> None:
        """Remove a path table from the transaction, which may open it as a lake's table next."""
        self._parts.pop(handle.key, None)
        self._handles.pop(handle.key, None)
        self._outside_lake.pop(handle.key, None)

    def writes_from(self, url: str) -> None:
        """Record that the transaction writes rows read from the table at a URL, if it opened that.

        Its plain reads then count as reads for writes.
        """
        for handle, part in self:
            if handle.place == url:
                part.promote_plain_reads()

    def read_frame(self, handle: Handle, shown: Snapshot, read: Read) -> None:
        """Record as read the rows of a DataFrame that shows a version of a table.

        If the table wasn't used yet and the version is older than the one at the transaction's
        instant, the transaction reads the table at that version from here on. Otherwise, and at the
        level SNAPSHOT, which has one instant for all reads, both versions must have the same rows
        of the read.

        Raises a Conflict when they don't, and InvalidRequest if the transaction doesn't see the
        table.
        """
        part = self._parts.get(handle.key)
        base = self._base_of(handle) if part is None else part.base
        if base is None:
            raise InvalidRequest(
                f"the DataFrame shows version {shown.version} of {handle.name}, which the "
                "transaction doesn't see; read the table again"
            )
        older, newer = sorted((base, shown), key=lambda snapshot: snapshot.version)
        if part is None:
            part = self._part_from(handle, older)
            may_begin_earlier = part.level is not Level.SNAPSHOT and shown is older
            if not may_begin_earlier:
                part = self._part_from(handle, base)
            self._add(handle, part)
        if shown.version < base.version:
            self._advice[handle.name] = (
                f"A DataFrame shows version {shown.version} of {handle.name}: read the table again."
            )
        if part.base is not shown and older.version < newer.version:
            try:
                check_read_unchanged(handle.log, older, newer, read)
            except Conflict as conflict:
                raise self.explain_outdated(conflict) from None
        part.add_read(read)

    def check_reads(self) -> None:
        """Raise CorruptTable if a table that was read has versions that the lake doesn't know.

        Before this, nothing of what was read is answered or committed.
        """
        while self._checks:
            self._checks.pop()()

    def operation_on(self, name: str) -> str | None:
        """Return the operation staged on a table, as its history would show it, else None."""
        return next((part.operation for handle, part in self if handle.name == name), None)

    def explain_outdated(self, conflict: Conflict) -> Conflict:
        """Return the conflict; if a DataFrame of an older version, or a version that the caller
        read elsewhere, led to it, it is changed to say so.

        Message and evidence then advise to read the table again, and say that a plain retry can't
        succeed.
        """
        facts = conflict.evidence
        advice = None if facts is None else self._advice.get(facts.table)
        if facts is None or advice is None:
            return conflict
        conflict.evidence = replace(facts, retry=False, advice=advice)
        message = str(conflict).replace("plain retry can succeed", "plain retry cannot succeed")
        conflict.args = (message.replace(facts.advice, advice),)
        return conflict

    def savepoint(self) -> dict[str, TableSavepoint]:
        """Return what `rollback_to` needs to undo the changes that are staged from here on."""
        return {key: part.savepoint() for key, part in self._parts.items()}

    def rollback_to(self, tokens: Mapping[str, TableSavepoint]) -> None:
        """Undo the changes that were staged since a savepoint; what was read stays recorded.

        A table that was opened after the savepoint loses all of its changes.
        """
        for key, part in self._parts.items():
            part.rollback_to(tokens.get(key))

    def _part_from(self, handle: Handle, base: Snapshot | None) -> TableTransaction:
        """Return a new part on a snapshot, with the level and granularity of the database."""
        database = self._database_of(handle)
        return TableTransaction(
            handle.log, base, self._level_in(database), self._granularity_in(database)
        )

    def _base_of(self, handle: Handle) -> Snapshot | None:
        """Return the table at the transaction's instant, or its newest version if it has none.

        None for a table that doesn't exist yet. Raises UnsupportedFeature for a path table whose
        versions a catalog decides.
        """
        if handle.entry is None:
            latest = handle.log.latest_or_none()
            if latest is not None and is_open(latest.protocol):
                raise catalog_required_error(latest)
            return latest
        if not self.engine.catalog.is_lake:  # another system's, which has no instants
            return None if handle.is_new else handle.log.latest_or_none()
        if handle.is_new:
            return None
        base = self._bases.pop(handle.key, None)
        if base is not None:
            return base
        assert self.instant is not None, "an instant is fixed before a table of the lake is opened"
        version = self._versions.get(handle.entry.id)
        if self.writes and version is not None and is_far(handle.store):
            handle.log.look_for(version)  # the commit wants to know
        return handle.log.at_sequence(self.instant, version, postpone=self._checks.append)

    def _database_of(self, handle: Handle) -> DatabaseEntry | None:
        """Return the table's database in the lake, read once; None for a path table."""
        entry = handle.entry
        if entry is None or not self.engine.catalog.is_lake:
            return None
        if entry.database not in self._databases:
            self._databases[entry.database] = self.engine.catalog.database(entry.database)
        return self._databases[entry.database]

    def _level_in(self, database: DatabaseEntry | None) -> Level | None:
        """Return the stricter level of the table's database and the transaction; None if neither
        has one.
        """
        if database is None or database.isolation is None:
            return self.level
        return strictest(parse_level(database.isolation), self.level)

    def _granularity_in(self, database: DatabaseEntry | None) -> Granularity:
        """Return the coarser of the granularities of the table's database and the lake."""
        lake = parse_granularity(self.engine.settings.conflict_granularity)
        text = None if database is None else database.properties.get(GRANULARITY)
        return coarsest(lake, None if text is None else parse_granularity(text))
