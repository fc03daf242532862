"""What one statement does to one table, as a value that a transaction stages.

The data plane and the DDL handlers make Changes; a `TableTransaction` collects them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from txlake.conflict.footprint import Read
from txlake.protocol.actions import Action
from txlake.transaction.row_origins import Origins


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The outcome of a statement, not yet committed.

    Attributes:
        operation: its name in the table's history (`WRITE`, `DELETE`, `MERGE` ...).
        parameters: operationParameters; values that are not text are written as JSON.
        actions: in the order they happen; empty when the statement changed nothing.
        metrics: operationMetrics.
        reads: what the actions depend on.
        read_domains: metadata domains that the change depends on.
        affected: counts for the statement's result, named as Databricks names them
            (`num_affected_rows`, ...), in order.
        identity_marks: by physical name, the last value that was given in an identity column.
        origins: by path of a new file, which rows its rows were made of; told where the table has
            a change data feed. Rows of files that aren't here were made of no other.
        brings_back: the metadata is that of an earlier version, and the table's files are that
            version's afterwards.
        unmaps: the metadata maps columns no more, all files are rewritten with the columns' own
            names, and no other transaction may add one meanwhile, which `reads` has to say.
    """

    operation: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    actions: tuple[Action, ...] = ()
    metrics: Mapping[str, int] = field(default_factory=dict)
    reads: tuple[Read, ...] = ()
    read_domains: tuple[str, ...] = ()
    affected: Mapping[str, int] = field(default_factory=dict)
    identity_marks: Mapping[str, int] = field(default_factory=dict)
    origins: Mapping[str, Origins] = field(default_factory=dict, compare=False)
    brings_back: bool = False
    unmaps: bool = False
