"""States of a transaction's part on one table, for savepoints and for its other parts."""

from __future__ import annotations

from collections.abc import Mapping
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
