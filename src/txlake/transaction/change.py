"""What one statement does to one table, as a value that a transaction stages.

The data plane and the DDL handlers make Changes; a `TableTransaction` collects them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from txlake.log.predicates import Predicate
from txlake.protocol.actions import Action
from txlake.transaction.row_origins import Origins


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Rows that a change depends on. No predicate: the whole table.

    `text` is the predicate as its author wrote it, for messages and for exact row checks. Without
    `files` only rows that a concurrent transaction adds count against it. With `guard` it has to
    stay true at every isolation level: the table would be wrong otherwise, whatever the order.
    With `takes_all` the change takes away every row that it depends on. `condition` is what the
    data plane evaluates where rows are looked at.
    """

    predicate: Predicate | None = None
    text: str | None = None
    files: bool = True
    guard: bool = False
    takes_all: bool = False
    condition: object = field(default=None, compare=False)


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
