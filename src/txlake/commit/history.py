"""A table's history: one row a commit, with delta-spark's columns.

Owns what the columns are and where their values come from. Source: the columns of `DESCRIBE
HISTORY` in Delta's documentation, and PROTOCOL.md, "Commit Provenance Information".
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa

from txlake.protocol.actions import CommitInfo

_TEXTS = pa.map_(pa.string(), pa.string())
HISTORY_SCHEMA = pa.schema(
    [
        ("version", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("userId", pa.string()),
        ("userName", pa.string()),
        ("operation", pa.string()),
        ("operationParameters", _TEXTS),
        (
            "job",
            pa.struct(
                [
                    ("jobId", pa.string()),
                    ("jobName", pa.string()),
                    ("jobRunId", pa.string()),
                    ("runId", pa.string()),
                    ("jobOwnerId", pa.string()),
                    ("triggerType", pa.string()),
                ]
            ),
        ),
        ("notebook", pa.struct([("notebookId", pa.string())])),
        ("clusterId", pa.string()),
        ("readVersion", pa.int64()),
        ("isolationLevel", pa.string()),
        ("isBlindAppend", pa.bool_()),
        ("operationMetrics", _TEXTS),
        ("userMetadata", pa.string()),
        ("engineInfo", pa.string()),
    ]
)
"""The columns of a history, newest commit first."""

HistoryRow = Mapping[str, object]


def history_row(version: int, info: CommitInfo | None, timestamp_ms: int) -> HistoryRow:
    """Return a commit's row, with `timestamp` in milliseconds since the epoch.

    Columns that the commitInfo doesn't have are None.
    """
    about = info or CommitInfo({})
    return {
        "version": version,
        "timestamp": timestamp_ms,
        "userId": about.text("userId"),
        "userName": about.text("userName"),
        "operation": about.text("operation"),
        "operationParameters": _texts(about.values.get("operationParameters")),
        "job": _struct(about.values.get("job"), "job"),
        "notebook": _struct(about.values.get("notebook"), "notebook"),
        "clusterId": about.text("clusterId"),
        "readVersion": about.number("readVersion"),
        "isolationLevel": about.text("isolationLevel"),
        "isBlindAppend": about.flag("isBlindAppend"),
        "operationMetrics": _texts(about.values.get("operationMetrics")),
        "userMetadata": about.text("userMetadata"),
        "engineInfo": about.text("engineInfo"),
    }


def _texts(value: object) -> dict[str, str | None] | None:
    """Return a JSON object as text by text: what isn't text is written as JSON. None for anything
    else.
    """
    if not isinstance(value, Mapping):
        return None
    return {str(key): _text(item) for key, item in value.items()}


def _text(value: object) -> str | None:
    """Return the value as text: None and text as they are, others as JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _struct(value: object, column: str) -> dict[str, str | None] | None:
    """Return the members that the struct column has, as text; None for what is no JSON object."""
    if not isinstance(value, Mapping):
        return None
    members = HISTORY_SCHEMA.field(column).type
    return {member.name: _text(value.get(member.name)) for member in members}
