"""What a transaction read and changed in one table, relative to the version that it read.

The rules of `rules` decide over it. Source: docs/how-a-commit-works.md, the table of a
footprint's parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

from pyroaring import BitMap64

from txlake.conflict.concurrent_commit import ConcurrentCommit
from txlake.conflict.levels import Level
from txlake.conflict.positions import RowMoves
from txlake.log.files import canonical_path
from txlake.log.predicates import Predicate
from txlake.log.snapshot import ROW_TRACKING_DOMAIN
from txlake.protocol.actions import Add, DomainMetadata, Metadata, Protocol, Remove


class ReadKind(Enum):
    """The reason of a read, which decides at which isolation levels it has to stay true."""

    FOR_WRITE = "for_write"  # the transaction's writes depend on it
    PLAIN = "plain"  # a SELECT: has to stay true under SERIALIZABLE alone
    GUARD = "guard"  # the commit is valid only while it is true, at every level (ADD CONSTRAINT)


class MarkUse(Enum):
    """What a transaction requires of the high-water marks of a table's identity columns."""

    FOLLOWED = "followed"  # a winner's are taken over
    STATED = "stated"  # its metadata states those that it read: none may have moved since
    MOVED = "moved"  # it moved them, and its values are new in the definition that it read alone


_KINDS_CHECKED: Mapping[Level, frozenset[ReadKind]] = {
    Level.SNAPSHOT: frozenset({ReadKind.GUARD}),
    Level.WRITE_SERIALIZABLE: frozenset({ReadKind.GUARD, ReadKind.FOR_WRITE}),
    Level.SERIALIZABLE: frozenset(ReadKind),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Rows that a transaction read, described by a predicate.

    Attributes:
        predicate: bound to the schema of the version read; None is the whole table.
        text: the predicate as its author wrote it, for evidence.
        kind: the reason of the read.
        files: whether the read covers existing files too. Otherwise only rows that a winner adds
            conflict with it (a dynamic partition overwrite, which removes all existing rows
            anyway).
        deletes_all: whether the transaction deletes every row that the predicate matches.
        is_assumed: whether the read wasn't declared: the transaction deletes rows, and may have
            read any row before.
        condition: the condition that the data plane evaluates when rows are probed; the rules
            ignore it.
    """

    predicate: Predicate | None = None
    text: str | None = None
    kind: ReadKind = ReadKind.FOR_WRITE
    files: bool = True
    deletes_all: bool = False
    is_assumed: bool = False
    condition: object = field(default=None, compare=False)


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """One transaction's reads and changes of one table.

    Attributes:
        read_version: the version that it read; -1 when the table didn't exist.
        reads: its reads by predicate.
        read_files: paths, as in the log, of files that it read without a predicate.
        read_app_ids: application ids that it depends on, including those that it sets.
        read_domains: metadata domains that it depends on.
        reads_elsewhere: ids, from their metadata, of the other tables that the transaction read.
        writes_elsewhere: ids of the other tables that it changes; None: any, as it drops or renames
            tables.
        changes_elsewhere: whether it changes another table, or a name, at the same instant: then
            its reads of this table have to hold even if it doesn't change this table.
        added: files that it adds.
        restated: canonical paths of added files that the version read has too, and that only get
            new statistics.
        removed: files that it removes, including files that are listed again with a larger deletion
            vector.
        unwritten: by canonical path, all deleted positions of an added file whose deletion vector
            isn't written yet, because it was reconciled with a winner.
        moves: where it moves rows of files that it rewrites; computed on first use.
        metadata: the metadata that it sets.
        protocol: the protocol that it sets.
        app_ids: application ids that it sets.
        domains: metadata domains that it sets.
        change_files: whether it adds change data files.
        marks: its use of the high-water marks of identity columns.
        syncs_marks: whether it moves a mark and adds no row: its commit claims that no row's value
            is beyond the mark.
    """

    read_version: int
    reads: tuple[Read, ...] = ()
    read_files: frozenset[str] = frozenset()
    read_app_ids: frozenset[str] = frozenset()
    read_domains: frozenset[str] = frozenset()
    reads_elsewhere: frozenset[str] = frozenset()
    writes_elsewhere: frozenset[str] | None = frozenset()
    changes_elsewhere: bool = False
    added: tuple[Add, ...] = ()
    restated: frozenset[str] = frozenset()
    removed: tuple[Remove, ...] = ()
    unwritten: Mapping[str, BitMap64] = field(default_factory=dict)
    moves: RowMoves | None = field(default=None, compare=False, repr=False)
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    app_ids: frozenset[str] = frozenset()
    domains: tuple[DomainMetadata, ...] = ()
    change_files: bool = False
    marks: MarkUse = MarkUse.FOLLOWED
    syncs_marks: bool = False

    @cached_property
    def removed_by_path(self) -> Mapping[str, Remove]:
        """The removed files by canonical path."""
        return {canonical_path(file.path): file for file in self.removed}

    @cached_property
    def added_by_path(self) -> Mapping[str, Add]:
        """The added files by canonical path."""
        return {canonical_path(file.path): file for file in self.added}

    @property
    def is_empty(self) -> bool:
        """Whether it changes nothing of the table, so that it adds no version."""
        return not (
            self.added
            or self.removed
            or self.metadata is not None
            or self.protocol is not None
            or self.app_ids
            or self.domains
            or self.change_files
        )

    @property
    def changes_nothing(self) -> bool:
        """Whether the transaction changes nothing in any table, so that it can't conflict."""
        return self.is_empty and not self.changes_elsewhere

    def reads_checked_at(self, level: Level) -> tuple[Read, ...]:
        """Return the reads that have to stay true at an isolation level."""
        kinds = _KINDS_CHECKED[level]
        return tuple(read for read in self.reads if read.kind in kinds)

    def depends_on_table(self, level: Level) -> bool:
        """Return whether a concurrent commit could invalidate a read at this isolation level.

        Application ids and domains that the transaction depends on count as reads at every level.
        """
        kinds = _KINDS_CHECKED[level]
        return bool(self.read_app_ids or self.read_domains) or (
            any(read.kind in kinds for read in self.reads)
            or bool(self.read_files and level is not Level.SNAPSHOT)
        )

    @property
    def changes_data(self) -> bool:
        """Whether any row is added or deleted."""
        return any(file.data_change for file in self.added) or any(
            file.data_change for file in self.removed
        )

    @property
    def writes_files(self) -> bool:
        """Whether it adds change data, or data files that the version read doesn't have."""
        known = self.restated | self.removed_by_path.keys()
        return self.change_files or any(path not in known for path in self.added_by_path)

    @property
    def changes_definition_only(self) -> bool:
        """Whether it changes no file and read no rows, so at most the table's definition.

        Reads of kind GUARD don't count: the rows stay as they were, whatever the metadata says.
        """
        reads_rows = self.read_files or any(read.kind is not ReadKind.GUARD for read in self.reads)
        return not (self.added or self.removed or self.change_files or reads_rows)

    @property
    def read_anything(self) -> bool:
        """Whether any row of this table was read."""
        return bool(self.reads or self.read_files)

    @property
    def is_blind_append(self) -> bool:
        """Whether the transaction only adds files and read nothing of this table, as Delta defines
        it.

        Reads of other tables don't count, nor does setting an application id. True for a footprint
        that changes nothing and read nothing.
        """
        return not (
            self.read_anything
            or self.removed
            or self.metadata is not None
            or self.protocol is not None
            or any(domain.domain != ROW_TRACKING_DOMAIN for domain in self.domains)
            or self.change_files
        )

    def without_stale_statistics(self, winner: ConcurrentCommit) -> Footprint:
        """Return the transaction without new statistics of files that a winner touched.

        The statistics describe the file before the winner; listing the file again would restore one
        that the winner removed. Everything else stays.
        """
        if not self.restated:
            return self
        removed = {canonical_path(file.path) for file in winner.removed}
        listed = {canonical_path(file.path) for file in winner.added}
        lost = self.restated & (removed | listed)
        kept = tuple(file for file in self.added if canonical_path(file.path) not in lost)
        return replace(self, added=kept, restated=self.restated - lost)

    def can_precede(self, winner: ConcurrentCommit) -> bool:
        """Return whether a transaction that missed a winner's rows can be ordered before it.

        The winner has to be a blind append, which read nothing of this table. It must not have read
        a table that this transaction changes either: there it would have to come first, and here
        second. If which tables this transaction changes isn't known, it must have read no other.
        """
        if not winner.is_blind_append:
            return False
        if self.writes_elsewhere is None:
            return not winner.reads_elsewhere
        return self.writes_elsewhere.isdisjoint(winner.reads_elsewhere)
