"""The outcomes of a conflict check, and the messages of conflicts.

Every message names the table, the version read, the winner, the rule, the predicate or files, the
isolation level, and what to do next. Source: docs/how-a-commit-works.md, "Evidence".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeAlias

from txlake.conflict.concurrent_commit import ConcurrentCommit
from txlake.conflict.context import CheckContext
from txlake.conflict.footprint import Footprint, Read
from txlake.errors import Conflict, Evidence
from txlake.protocol.actions import Add, Remove
from txlake.protocol.paths import decode_path

_FILES_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflicted:
    """A conflict: the transaction must not commit after the winner.

    Attributes:
        error: the exception that users know this conflict by.
        finding: what the winner did, the middle of the message's sentence.
        evidence: the facts.
    """

    error: type[Conflict]
    finding: str
    evidence: Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class NoConflict:
    """The transaction may commit unchanged; `context` is for checking the next winner."""

    context: CheckContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebased:
    """The transaction may commit after adopting changes of the winner.

    Attributes:
        footprint: the transaction as if it had read the winner's version.
        context: for checking the next winner, with the metadata and protocol to adopt.
        adopted: the adopted changes in words, for the log.
    """

    footprint: Footprint
    context: CheckContext
    adopted: tuple[str, ...]


Outcome: TypeAlias = NoConflict | Rebased | Conflicted


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule's reason why the transaction conflicts with the winner.

    Attributes:
        error: the exception that users know this conflict by.
        text: what the winner did, the middle of the message's sentence.
        advice: what to do next, a sentence.
        read: the read that isn't true any more.
        files: the files concerned.
        rows: samples of the rows in them.
        retry: whether a plain retry can succeed.
    """

    error: type[Conflict]
    text: str
    advice: str = field(kw_only=True)
    read: Read | None = None
    files: Sequence[Add | Remove] = ()
    rows: tuple[Mapping[str, object], ...] = ()
    retry: bool = True


def conflict_from_finding(
    found: Finding, rule: str, footprint: Footprint, winner: ConcurrentCommit, context: CheckContext
) -> Conflicted:
    """Return the conflict for a rule's finding, with its evidence. `rule` is the rule's name."""
    files = found.files
    where = _partition_text(files[0].partition_values, context) if files else ""
    return Conflicted(
        error=found.error,
        finding=found.text + where,
        evidence=Evidence(
            table=context.table,
            read_version=footprint.read_version,
            winning_version=winner.version,
            winning_operation=winner.operation,
            winning_timestamp_ms=winner.timestamp_ms,
            winning_user=winner.user,
            rule=rule,
            predicate=None if found.read is None else found.read.text,
            files=tuple(decode_path(file.path) for file in files),
            rows=found.rows,
            isolation=context.level.value,
            retry=found.retry,
            advice=found.advice,
        ),
    )


def _partition_text(values: Mapping[str, str | None] | None, context: CheckContext) -> str:
    """Return the first file's partition as text, ` [day=2026-01-05, k=1]`; empty if unknown."""
    fields = (context.base.schema.find(name) for name in context.base.partition_columns)
    known = [item for item in fields if item is not None]
    if not values or not known:
        return ""
    parts = (f"{item.name}={values.get(item.physical_name) or 'null'}" for item in known)
    return f" [{', '.join(parts)}]"


def conflict_error(conflict: Conflicted) -> Conflict:
    """Return the exception of a conflict, with its evidence as an attribute and in the message."""
    return conflict.error(message_of(conflict), conflict.evidence)


def is_futile(conflict: Conflict) -> bool:
    """Return whether the same work, run again, would meet the same conflict again.

    That is certain only for a conflict without a winning version which a retry can't resolve. After
    a conflict with another transaction the work may look at the new state and do something else,
    e.g. write to the table that it was to create.
    """
    facts = conflict.evidence
    return facts is not None and not facts.retry and facts.winning_version < 0


def message_of(conflict: Conflicted) -> str:
    """Return the message of a conflict in two sentences: what happened, and what to do."""
    facts = conflict.evidence
    details = [f"rule {facts.rule}", f"isolation {facts.isolation}"]
    if facts.predicate is not None:
        details.append(f"predicate {facts.predicate}")
    if facts.files:
        shown = ", ".join(facts.files[:_FILES_SHOWN])
        more = len(facts.files) - _FILES_SHOWN
        details.append(f"files {shown}" + (f" and {more} more" if more > 0 else ""))
    details += [_row_text(row) for row in facts.rows if "count" in row]
    details.append(f"a plain retry {'can' if facts.retry else 'cannot'} succeed")
    return (
        f"{facts.table}: this transaction read version {facts.read_version}; since then "
        f"{_winner_text(facts)} {conflict.finding} ({'; '.join(details)}). {facts.advice}"
    )


def _row_text(row: Mapping[str, object]) -> str:
    return f"{row['count']} rows of {row['file']}, at positions {row['positions']}"


def _winner_text(facts: Evidence) -> str:
    """Return the winner in words."""
    return commit_text(
        facts.winning_version,
        facts.winning_operation,
        facts.winning_user,
        facts.winning_timestamp_ms,
    )


def commit_text(
    version: int, operation: str | None, user: str | None, timestamp_ms: int | None
) -> str:
    """Return a commit in words: `version 5 (WRITE) by ann at 2026-01-05T10:00:00.000Z`, without
    unknown parts.
    """
    what = f" ({operation})" if operation else ""
    who = f" by {user}" if user else ""
    return f"version {version}{what}{who}{_time_text(timestamp_ms)}"


def _time_text(timestamp_ms: int | None) -> str:
    """Return ` at <time in UTC>`, with milliseconds; '' for an unknown or impossible time."""
    if timestamp_ms is None:
        return ""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return ""
    return f" at {moment.isoformat(timespec='milliseconds').replace('+00:00', 'Z')}"
