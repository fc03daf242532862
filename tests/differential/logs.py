"""A table's log, read without either engine."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.differential.schemas import TableShape, read_shape

# Properties that each engine chooses by itself: physical names, ids, instants.
_OWN_PROPERTIES = (
    "delta.columnMapping.maxColumnId",
    "delta.rowTracking.",
    "delta.inCommitTimestampEnablement",
)
_CONSTRAINT = "delta.constraints."
_OWN_METADATA = ("delta.columnMapping.", "delta.identity.highWaterMark", "parquet.")
FEED = "delta.enableChangeDataFeed"
_METRICS = frozenset(
    {
        "numOutputRows",
        "numSourceRows",
        "numDeletedRows",
        "numUpdatedRows",
        "numTargetRowsInserted",
        "numTargetRowsUpdated",
        "numTargetRowsDeleted",
        "numTargetRowsMatchedUpdated",
        "numTargetRowsMatchedDeleted",
        "numTargetRowsNotMatchedBySourceUpdated",
        "numTargetRowsNotMatchedBySourceDeleted",
    }
)


@dataclass(frozen=True, slots=True)
class Commit:
    """One version: its commitInfo, and whether it has other actions."""

    operation: str
    metrics: Mapping[str, str]
    is_empty: bool
    has_feed: bool


@dataclass(frozen=True, slots=True)
class Log:
    """The newest definition of a table, and all commits."""

    metadata: Mapping[str, Any]
    commits: tuple[Commit, ...]

    @property
    def version(self) -> int:
        """The newest version."""
        return len(self.commits) - 1

    @property
    def shape(self) -> TableShape:
        """The table as statements are generated for it."""
        schema = json.loads(self.metadata["schemaString"])
        return read_shape(schema, self.metadata["partitionColumns"], self.metadata["configuration"])

    def definition(self) -> dict[str, Any]:
        """Return columns, partitioning and properties, without those that an engine chooses by
        itself.
        """
        return {
            "columns": _plain(json.loads(self.metadata["schemaString"])["fields"]),
            "partitioned by": self.metadata["partitionColumns"],
            "properties": {
                key: _unspaced(value) if key.startswith(_CONSTRAINT) else value
                for key, value in sorted(self.metadata["configuration"].items())
                if not key.startswith(_OWN_PROPERTIES)
            },
            "comment": self.metadata.get("description") or None,
        }


def read_log(folder: Path) -> Log | None:
    """Return the log of the table in a folder; None without a table."""
    metadata: Mapping[str, Any] = {}
    commits = []
    for path in sorted((folder / "_delta_log").glob("0*.json")):
        if not path.stem.isdigit():
            continue
        actions = [json.loads(line) for line in path.read_text().splitlines() if line]
        info: dict[str, Any] = {}
        for action in actions:
            info = action.get("commitInfo", info)
            metadata = action.get("metaData", metadata)
        shown = _row_counts(info.get("operationMetrics", {}))
        is_empty = all(set(action) == {"commitInfo"} for action in actions)
        has_feed = metadata.get("configuration", {}).get(FEED) == "true"
        commits.append(Commit(info.get("operation", "?"), shown, is_empty, has_feed))
    return Log(metadata, tuple(commits)) if commits else None


def _row_counts(metrics: Mapping[str, str]) -> dict[str, str]:
    """Return the counts of rows; a MERGE's output without copied rows, which depend on the
    files.
    """
    counts = {key: value for key, value in metrics.items() if key in _METRICS}
    if "numTargetRowsCopied" in metrics and "numOutputRows" in counts:
        copied = int(metrics["numTargetRowsCopied"])
        counts["numOutputRows"] = str(int(counts["numOutputRows"]) - copied)
    return counts


def _unspaced(condition: str) -> str:
    """Return a condition without the blanks between its words, which Delta Spark changes."""
    parts = re.split(r"('[^']*'|`[^`]*`)", condition)
    return "".join(part if part[:1] in ("'", "`") else "".join(part.split()) for part in parts)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _plain(item) for key, item in value.items() if not key.startswith(_OWN_METADATA)
        }
    return [_plain(item) for item in value] if isinstance(value, list) else value
