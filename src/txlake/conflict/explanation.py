"""The conflicts that a statement could meet, predicted by running the rules.

Owns the kinds of concurrent writers, and the smallest table on which the statement meets each of
them; the rules decide. Source: docs/how-a-commit-works.md.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

import msgspec
from pyroaring import BitMap64

from txlake.conflict.check import check
from txlake.conflict.concurrent_commit import ConcurrentCommit
from txlake.conflict.context import CheckContext, FileRows
from txlake.conflict.evidence import Conflicted
from txlake.conflict.footprint import Footprint, Read
from txlake.conflict.granularity import Granularity
from txlake.conflict.levels import Level, checked_at
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add, DeletionVector, Metadata
from txlake.protocol.sources import SOURCES_TAG, Source, sources_text


class Effect(Enum):
    """A statement's effect on a table. By value: in words."""

    APPENDS = "adds rows"
    CHANGES = "deletes or changes rows"
    REPLACES = "replaces files whole"
    COMPACTS = "moves rows in order, changes none"
    SORTS = "moves rows to another order, changes none"


class ConcurrentWriter(Enum):
    """A writer that commits first. By value: in words."""

    BLIND_INSERT = "INSERT of rows that it reads, which didn't read the table"
    READING_INSERT = "INSERT or MERGE that read the table, of rows that it reads"
    OTHER_INSERT = "INSERT of rows that it doesn't read"
    DELETE_SAME = "DELETE of the same rows"
    UPDATE_SAME = "UPDATE or MERGE of the same rows, which it still reads then"
    SAME_FILES = "DELETE or UPDATE of other rows in the same files"
    OTHER_FILES = "DELETE or UPDATE of other files"
    OPTIMIZE = "OPTIMIZE"
    ZORDER = "OPTIMIZE ... ZORDER BY, or of a clustered table, of up to 10 million rows"
    ALTER = "ALTER TABLE of columns or properties"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStatement:
    """A statement that isn't run.

    Attributes:
        base: the table that it is for.
        effect: what it does to the table.
        level: the isolation level of its reads.
        granularity: what two transactions may not both change.
        reads: what it would depend on; a read without a predicate is the whole table.
        by_row: whether its conditions can be evaluated row by row.
    """

    base: Snapshot
    effect: Effect
    level: Level
    granularity: Granularity = Granularity.ROW
    reads: tuple[Read, ...] = ()
    by_row: bool = True

    @property
    def changes_data(self) -> bool:
        """Whether it changes a row."""
        return self.effect not in (Effect.COMPACTS, Effect.SORTS)

    @property
    def grain(self) -> Granularity:
        """The granularity at which its conflicts are found."""
        if self.granularity is not Granularity.ROW:
            return self.granularity
        is_by_row = self.by_row and self.base.properties.enable_deletion_vectors
        return Granularity.ROW if is_by_row else Granularity.FILE


@dataclass(frozen=True, slots=True)
class Prediction:
    """The conflict of the statement with a concurrent writer; None if both commit."""

    writer: ConcurrentWriter
    conflict: Conflicted | None


def explain(intent: PlannedStatement) -> tuple[Prediction, ...]:
    """Return the prediction for each kind of writer that commits first."""
    return tuple(
        Prediction(writer, _Scenario(intent, writer).outcome()) for writer in ConcurrentWriter
    )


_ROWS = 10
_TAKEN, _OTHER = 3, 6


class _Scenario:
    """A table of two files of ten rows; the statement reads and changes row 3 of the first file."""

    def __init__(self, intent: PlannedStatement, writer: ConcurrentWriter) -> None:
        self._intent = intent
        self._writer = writer
        self._vectors = _VectorStore()
        self._first, self._second = _file("first"), _file("second")
        base = intent.base
        # Without partitions nothing is known of the files but what `matching` says.
        metadata = msgspec.structs.replace(base.metadata, partition_columns=())
        self._base = Snapshot.empty(base.table).apply(
            [base.protocol, metadata, self._first, self._second], version=0, timestamp_ms=0
        )

    def outcome(self) -> Conflicted | None:
        """Return the conflict of the statement with the writer; None if both commit."""
        intent, footprint = self._intent, self._footprint()
        context = CheckContext(
            base=self._base,
            metadata=self._base.metadata,
            protocol=self._base.protocol,
            level=checked_at(intent.level, changes_data=intent.changes_data),
            granularity=intent.granularity,
            vectors=self._vectors,
            probe=self,
        )
        found = check(footprint, self._winner(), context)
        return found if isinstance(found, Conflicted) else None

    def matching(self, read: Read, rows: Sequence[FileRows]) -> Sequence[FileRows]:
        """Return the rows that may match: by files, and by rows if conflicts are found by rows."""
        return [one for one in rows if read.predicate is None or self._may_match(one)]

    def _may_match(self, one: FileRows) -> bool:
        """Return whether the read may match these rows of one of the scenario's files.

        A read matches row 3 of the first file and no row of the second. A new file holds rows that
        it matches, unless the writer is OTHER_INSERT.
        """
        if one.file.path == "new":
            return self._writer is not ConcurrentWriter.OTHER_INSERT
        if one.file.path == self._second.path:
            return False
        is_by_row = self._intent.grain is Granularity.ROW and one.positions is not None
        return not is_by_row or _TAKEN in (one.positions or ())

    def _footprint(self) -> Footprint:
        """Return what the statement reads and changes, by its effect: row 3, or the first file
        whole.
        """
        intent = self._intent
        ours = Footprint(read_version=0, reads=intent.reads)
        new = _file("ours")
        match intent.effect:
            case Effect.APPENDS:
                return replace(ours, added=(new,))
            case Effect.CHANGES if self._base.properties.enable_deletion_vectors:
                return self._deleting(ours, _TAKEN)
            case Effect.CHANGES | Effect.REPLACES:
                return replace(ours, removed=(self._first.tombstone(timestamp_ms=0),), added=(new,))
            case Effect.COMPACTS | Effect.SORTS:
                return self._rewriting(ours, "ours")

    def _deleting(self, footprint: Footprint, row: int) -> Footprint:
        """Return the footprint with a row of the first file deleted by a deletion vector."""
        return replace(
            footprint,
            removed=(self._first.tombstone(timestamp_ms=0),),
            added=(self._vectors.marked(self._first, row),),
        )

    def _rewriting(self, footprint: Footprint, path: str) -> Footprint:
        """Return the footprint with the first file rewritten to `path`, its rows in order."""
        source = Source(path=self._first.path, vector_id=None, first=0, rows=_ROWS)
        tags: dict[str, str | None] = {SOURCES_TAG: sources_text([source])}
        output = msgspec.structs.replace(_file(path), data_change=False, tags=tags)
        gone = self._first.tombstone(timestamp_ms=0, data_change=False)
        return replace(footprint, removed=(gone,), added=(output,))

    def _winner(self) -> ConcurrentCommit:
        """Return the commit of the concurrent writer."""
        nothing = Footprint(read_version=0)
        match self._writer:
            case (
                ConcurrentWriter.BLIND_INSERT
                | ConcurrentWriter.OTHER_INSERT
                | ConcurrentWriter.READING_INSERT
            ):
                is_blind = self._writer is not ConcurrentWriter.READING_INSERT
                return ConcurrentCommit(
                    version=1, operation="WRITE", is_blind_append=is_blind, added=(_file("new"),)
                )
            case (
                ConcurrentWriter.DELETE_SAME
                | ConcurrentWriter.UPDATE_SAME
                | ConcurrentWriter.SAME_FILES
            ):
                row = _OTHER if self._writer is ConcurrentWriter.SAME_FILES else _TAKEN
                has_vectors = self._base.properties.enable_deletion_vectors
                theirs = self._deleting(nothing, row)
                left = theirs.added if has_vectors else (_file("rest"),)
                is_update = self._writer is ConcurrentWriter.UPDATE_SAME
                return ConcurrentCommit(
                    version=1,
                    operation="UPDATE" if is_update else "DELETE",
                    removed=theirs.removed,
                    added=(*left, _file("new")) if is_update else left,
                )
            case ConcurrentWriter.OTHER_FILES:
                gone = self._second.tombstone(timestamp_ms=0)
                return ConcurrentCommit(version=1, operation="DELETE", removed=(gone,))
            case ConcurrentWriter.OPTIMIZE | ConcurrentWriter.ZORDER:
                theirs = self._rewriting(nothing, "theirs")
                return ConcurrentCommit(
                    version=1, operation="OPTIMIZE", removed=theirs.removed, added=theirs.added
                )
            case ConcurrentWriter.ALTER:
                return ConcurrentCommit(
                    version=1,
                    operation="SET TBLPROPERTIES",
                    metadata=_with_altered_property(self._base.metadata),
                )


class _VectorStore:
    """The deletion vectors of the scenario's table."""

    def __init__(self) -> None:
        self._known: dict[str, BitMap64] = {}

    def of(self, vector: DeletionVector) -> BitMap64:
        return self.of_id(vector.unique_id)

    def of_id(self, vector_id: str) -> BitMap64:
        return self._known[vector_id]

    def marked(self, file: Add, row: int) -> Add:
        """Return the file with this row deleted."""
        vector = DeletionVector(
            storage_type="u",
            path_or_inline_dv=f"{len(self._known):020d}",
            offset=1,
            size_in_bytes=1,
            cardinality=1,
        )
        self._known[vector.unique_id] = BitMap64([row])
        return msgspec.structs.replace(file, deletion_vector=vector)


def _file(path: str) -> Add:
    """Return a file of ten rows without partition values."""
    return Add(
        path=path,
        partition_values={},
        size=1,
        modification_time=0,
        data_change=True,
        stats=json.dumps({"numRecords": _ROWS}),
    )


def _with_altered_property(metadata: Metadata) -> Metadata:
    """Return the metadata with one more property."""
    return msgspec.structs.replace(
        metadata, configuration={**metadata.configuration, "altered": "true"}
    )
