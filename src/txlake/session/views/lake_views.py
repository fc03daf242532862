"""txlake's own views, `txlake.*`: conflicts, open transactions, ratified commits, branches,
maintenance.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from txlake.catalog.maintenance_book import DUE, MaintenanceEntry, with_sessions
from txlake.session.views.describe import Rows
from txlake.session.views.view import EntrySource, RowValues, utc_time, view


def _conflicts(entries: EntrySource) -> Iterator[RowValues]:
    """Yield a row for each of the latest thousand conflicts, the oldest first.

    Without evidence a row has only the time, the transaction, the error and its message.
    """
    for entry in reversed(entries.conflicts()):
        common = {
            "time": utc_time(entry.time_ms),
            "transaction_id": entry.transaction_id,
            "error": entry.error,
            "message": entry.message,
        }
        facts = entry.evidence
        if facts is None:
            yield common
            continue
        yield {
            **common,
            "table": facts.table,
            "read_version": facts.read_version,
            "winning_version": facts.winning_version,
            "winning_operation": facts.winning_operation,
            "winning_time": utc_time(facts.winning_timestamp_ms),
            "winning_user": facts.winning_user,
            "rule": facts.rule,
            "predicate": facts.predicate,
            "files": list(facts.files),
            "rows": [json.dumps(dict(row), default=str) for row in facts.rows],
            "isolation": facts.isolation,
            "retry": facts.retry,
            "advice": facts.advice,
        }


def _transactions(entries: EntrySource) -> Iterator[RowValues]:
    """Yield a row for each open transaction that a user began."""
    for entry in entries.transactions():
        if entry.explicit:
            yield {
                "transaction_id": entry.id,
                "number": entry.number,
                "session_id": entry.session_id,
                "transaction_begin_time": utc_time(entry.begin_ms),
                "state": entry.state,
                "isolation": entry.isolation,
                "read_only": entry.read_only,
                "sequence": entry.sequence,
                "host": entry.host,
                "process": entry.process,
                "user": entry.user_name,
                "lost_attempts": entry.lost_attempts,
            }


def _commits(entries: EntrySource) -> Iterator[RowValues]:
    """Yield a row for each recent version, in the order of ratification."""
    for entry in reversed(entries.commits()):
        yield {
            "sequence": entry.sequence,
            "time": utc_time(entry.time_ms),
            "transaction_id": entry.transaction_id,
            "table": entry.table,
            "version": entry.version,
            "operation": entry.operation,
            "is_published": entry.is_published,
        }


def _branches(entries: EntrySource) -> Iterator[RowValues]:
    """Yield a row for each branch and tag, by name."""
    used = entries.branches()
    kept = entries.kept_alone() if used else {}
    for one in used:
        entry = one.entry
        yield {
            "name": entry.name,
            "kind": entry.kind,
            "parent": one.parent,
            "owner": entry.user_name,
            "created_time": utc_time(entry.created_ms),
            "age_seconds": one.age_ms // 1000,
            "kept_until": utc_time(entry.kept_until_ms),
            "is_expired": one.is_expired,
            "sequence": entry.fork_sequence,
            "changed_tables": one.changed_tables,
            "versions": one.versions,
            "size_in_bytes": None if kept is None else kept.get(entry.number, 0),
            "is_in_use": one.is_in_use,
        }


def _maintenance(entries: EntrySource) -> Iterator[RowValues]:
    """Yield a row for each work of maintenance, the oldest first; what is due comes last."""
    in_order = sorted(entries.maintenance(), key=lambda one: one.state == DUE)
    for entry, session in with_sessions(in_order, entries.sessions()):
        row = _maintenance_row(entry)
        yield row if session is None else {**row, "host": session.host, "process": session.process}


def _maintenance_row(entry: MaintenanceEntry) -> dict[str, object]:
    """Return the columns of a work of maintenance that don't depend on its session."""
    return {
        "time": utc_time(entry.time_ms),
        "table": entry.table_name,
        "need": entry.need,
        "state": entry.state,
        "action": entry.action,
        "reason": entry.reason,
        "files": entry.files,
        "size_in_bytes": entry.size_bytes,
        "rows": entry.row_count,
        "duration_ms": entry.duration_ms,
        "error": entry.error,
    }


def maintenance_rows(entries: Iterable[MaintenanceEntry]) -> Rows:
    """Return works of maintenance, in their order, as rows of `txlake.maintenance`."""
    names = MAINTENANCE.schema.names
    rows = [_maintenance_row(entry) for entry in entries]
    return Rows(
        schema=MAINTENANCE.schema, rows=[tuple(row.get(name) for name in names) for row in rows]
    )


CONFLICTS = view(
    "txlake",
    """
    time TIMESTAMP, transaction_id STRING, error STRING, table STRING, read_version BIGINT,
    winning_version BIGINT, winning_operation STRING, winning_time TIMESTAMP,
    winning_user STRING, rule STRING, predicate STRING, files ARRAY<STRING>, rows ARRAY<STRING>,
    isolation STRING, retry BOOLEAN, advice STRING, message STRING
    """,
    _conflicts,
)
"""The latest thousand conflicts, the oldest first; `rows` are JSON."""

TRANSACTIONS = view(
    "txlake",
    """
    transaction_id STRING, number BIGINT, session_id BIGINT, transaction_begin_time TIMESTAMP,
    state STRING, isolation STRING, read_only BOOLEAN, sequence BIGINT, host STRING,
    process BIGINT, user STRING, lost_attempts BIGINT
    """,
    _transactions,
)
"""Explicit transactions (BEGIN, `lake.begin` and the like), the oldest first.

`sequence` is the instant that a transaction reads, `lost_attempts` how many of its attempts to
commit lost to a concurrent commit.
"""

COMMITS = view(
    "txlake",
    """
    sequence BIGINT, time TIMESTAMP, transaction_id STRING, table STRING, version BIGINT,
    operation STRING, is_published BOOLEAN
    """,
    _commits,
)
"""The latest thousand versions in the order of ratification.

`table` is NULL for a dropped table that was removed.
"""

BRANCHES = view(
    "txlake",
    """
    name STRING, kind STRING, parent STRING, owner STRING, created_time TIMESTAMP,
    age_seconds BIGINT, kept_until TIMESTAMP, is_expired BOOLEAN, sequence BIGINT,
    changed_tables BIGINT, versions BIGINT, size_in_bytes BIGINT, is_in_use BOOLEAN
    """,
    _branches,
)
"""Branches and tags by name (`kind`), `sequence` the instant that each began at.

`size_in_bytes` are the data files and deletion vectors that it alone keeps, NULL if a log can't be
read; for that the logs of tables are read that aren't the same on main and all branches.
`is_in_use`: an open transaction has locks on its tables or databases.
"""

MAINTENANCE = view(
    "txlake",
    """
    time TIMESTAMP, table STRING, need STRING, state STRING, action STRING, reason STRING,
    files BIGINT, size_in_bytes BIGINT, rows BIGINT, duration_ms BIGINT, error STRING, host STRING,
    process BIGINT
    """,
    _maintenance,
)
"""What maintenance did, the latest thousand works, and then what the last round left, in order.

`state`: running, done, nothing (another process had met the need), yielded (others worked on the
table: it comes later), failed, interrupted (the process was killed) or due. `files`,
`size_in_bytes` and `rows` are what was gained; of work that is due, what is expected. `table` is
NULL for the lake itself.
"""
