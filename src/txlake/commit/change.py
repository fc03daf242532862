"""What one statement does to one table, as a value that a transaction stages.

The data plane and the DDL handlers make Changes; a `TableTransaction` collects them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from txlake.commit.row_origins import RowSources
from txlake.conflict.footprint import Read
from txlake.protocol.actions import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The outcome of a statement, not yet committed.

    Attributes:
        operation: its name in the table's history (`WRITE`, `DELETE`, `MERGE` ...).
        parameters: operationParameters; values that aren't text are written as JSON.
        actions: in the order in which they happen; empty if the statement changed nothing.
        metrics: operationMetrics.
        reads: the reads that the actions depend on.
        read_domains: metadata domains that the change depends on.
        affected: counts for the statement's result, named as Databricks names them
            (`num_affected_rows`, ...), in order.
        identity_marks: by physical name, the last value generated for an identity column.
        origins: by path of a new file, the rows that its rows were made from, for a table with a
            change data feed. Rows of other files were made from no row, but for those that a file
            without a change of data says itself.
        brings_back: the metadata is that of an earlier version, and the table's files are that
            version's afterwards.
        unmaps: the metadata turns column mapping off, all files are rewritten with the columns' own
            names, and no other transaction may add a file meanwhile, which `reads` has to say.
    """

    operation: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    actions: tuple[Action, ...] = ()
    metrics: Mapping[str, int] = field(default_factory=dict)
    reads: tuple[Read, ...] = ()
    read_domains: tuple[str, ...] = ()
    affected: Mapping[str, int] = field(default_factory=dict)
    identity_marks: Mapping[str, int] = field(default_factory=dict)
    origins: Mapping[str, RowSources] = field(default_factory=dict, compare=False)
    brings_back: bool = False
    unmaps: bool = False
