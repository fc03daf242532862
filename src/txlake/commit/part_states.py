"""States of a transaction's part on one table, for savepoints and for its other parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from txlake.commit.commit_info import StatementInfo
from txlake.commit.merge_actions import StagedChanges
from txlake.commit.row_origins import RowSources
from txlake.conflict.footprint import Footprint


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSavepoint:
    """A savepoint of a transaction's part on one table: its staged changes at that point.

    Attributes:
        staged: the net changes.
        reads: how many reads had been noted.
        app_ids: the application ids that the transaction depended on.
        statements: what the history will say of the statements.
        tags: tags of the commit.
        marks: the last values given in identity columns, by the metadata's table id and the
            column's physical name.
        row_sources: for a table with a change data feed, the sources of new files' rows, by the
            files' canonical paths.
        untracked_files: canonical paths of rewritten files whose rows' sources are unknown.
    """

    staged: StagedChanges = field(default_factory=StagedChanges)
    reads: int = 0
    app_ids: frozenset[str] = frozenset()
    statements: tuple[StatementInfo, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    marks: Mapping[tuple[str, str], int] = field(default_factory=dict)
    row_sources: Mapping[str, RowSources] = field(default_factory=dict)
    untracked_files: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSummary:
    """A transaction's part on one table, as its parts on other tables see it.

    Attributes:
        part: the part itself, which is compared by identity.
        table_ids: the metadata's table id; two ids if the table is replaced.
        footprint: its reads and changes so far, without those that depend on other parts.
    """

    part: object
    table_ids: frozenset[str]
    footprint: Footprint


class PartSummaries:
    """The summaries of a transaction's parts on all tables, as each part needs those of the others.

    What they have in common is computed once, since a transaction may have thousands.
    """

    def __init__(self, parts: Iterable[PartSummary] = ()) -> None:
        self._by_part = {id(one.part): one for one in parts}
        every = self._by_part.values()
        self._read = _Some(one for one in every if one.footprint.read_anything)
        self._changed = _Some(one for one in every if not one.footprint.is_empty)
        self._changing_data = _Some(
            one for one in every if not one.footprint.is_empty and one.footprint.changes_data
        )

    def of(self, part: object) -> PartSummary | None:
        """Return a part's own summary; None if it isn't among them."""
        return self._by_part.get(id(part))

    def read_beside(self, part: object) -> frozenset[str]:
        """Return the table ids of the other parts that have read something."""
        return self._read.table_ids_beside(part)

    def changed_beside(self, part: object) -> frozenset[str]:
        """Return the table ids of the other parts that have changes."""
        return self._changed.table_ids_beside(part)

    def has_changes_beside(self, part: object) -> bool:
        """Return whether another part has changes."""
        return self._changed.has_others(part)

    def changes_data_beside(self, part: object) -> bool:
        """Return whether another part changes data."""
        return self._changing_data.has_others(part)


class _Some:
    """Some of a transaction's parts, and how many of them have each table id."""

    def __init__(self, parts: Iterable[PartSummary]) -> None:
        self._parts = {id(one.part): one for one in parts}
        self._counts = Counter(item for one in self._parts.values() for item in one.table_ids)
        self._table_ids = frozenset(self._counts)

    def table_ids_beside(self, part: object) -> frozenset[str]:
        own = self._parts.get(id(part))
        if own is None:
            return self._table_ids
        return self._table_ids - {item for item in own.table_ids if self._counts[item] == 1}

    def has_others(self, part: object) -> bool:
        return len(self._parts) > (id(part) in self._parts)
