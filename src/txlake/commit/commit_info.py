"""The commitInfo line: who changed the table, how, and under which isolation level.

Owns its fields, their order and their spelling, which other engines read. Source: PROTOCOL.md,
"Commit Provenance Information".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from txlake.conflict.concurrent_commit import READS_ELSEWHERE
from txlake.conflict.levels import Level
from txlake.protocol.actions import CommitInfo
from txlake.release import VERSION

PRODUCT = "txlake"
"""What `engineInfo` begins with, before a slash and the release."""

ENGINE = f"{PRODUCT}/{VERSION}"

# The metrics that count change data files.
_CHANGE_FILES = frozenset({"numAddedChangeFiles", "numTargetChangeFilesAdded"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementInfo:
    """The history entry of one statement."""

    operation: str
    parameters: Mapping[str, object]
    metrics: Mapping[str, int]


def combine_statements(statements: Sequence[StatementInfo], *, change_files: int) -> StatementInfo:
    """Return the history entry of a commit: of one statement its own, of several the sum.

    Statements of one kind keep its name and the last one's parameters; of several kinds the
    operation is TRANSACTION. Statements without parameters and metrics are left out if others have
    some. `change_files`: the number of the commit's change data files, whatever the statements
    counted.
    """
    reported = [one for one in statements if one.metrics or one.parameters] or list(statements)
    kinds = list(dict.fromkeys(one.operation for one in reported))
    metrics: dict[str, int] = {}
    for one in reported:
        for name, count in one.metrics.items():
            metrics[name] = metrics.get(name, 0) + count
    for name in _CHANGE_FILES & metrics.keys():
        metrics[name] = change_files
    if len(kinds) == 1:
        return StatementInfo(
            operation=kinds[0], parameters=reported[-1].parameters, metrics=metrics
        )
    names = [one.operation for one in reported]
    return StatementInfo(operation="TRANSACTION", parameters={"statements": names}, metrics=metrics)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The parts of a commitInfo that are the same at every attempt.

    Attributes:
        operation: its name in the table's history.
        parameters: its parameters; values that aren't text are written as JSON.
        metrics: counts, written as text.
        level: the level that the transaction was checked at.
        is_blind_append: whether it only adds files and read nothing of the table.
        reads_elsewhere: ids of the other tables that a blind append read.
        read_version: the version that was read; -1 when the table didn't exist.
        txn_id: the id by which the commit is found again after a lost reply.
        tags: free key-value pairs.
        user_metadata: a free text of the user's.
        user_name: the committing user, if known.
    """

    operation: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    metrics: Mapping[str, object] = field(default_factory=dict)
    level: Level
    is_blind_append: bool
    reads_elsewhere: frozenset[str] = frozenset()
    read_version: int
    txn_id: str
    tags: Mapping[str, str] = field(default_factory=dict)
    user_metadata: str | None = None
    user_name: str | None = None


def commit_info(
    provenance: Provenance,
    *,
    now_ms: int,
    in_commit_ms: int | None,
    tags: Mapping[str, str] | None = None,
    rebased_over: int = 0,
    retries: int = 0,
) -> CommitInfo:
    """Return the commitInfo of one attempt.

    Times are in milliseconds since the epoch; `tags` are added to those of `provenance`.
    `rebased_over`: the number of versions between the version read and this one; `retries`: the
    number of lost attempts. The metrics include them unless they are 0.
    """
    values: dict[str, object] = {}
    if in_commit_ms is not None:
        values["inCommitTimestamp"] = in_commit_ms
    values["timestamp"] = now_ms
    if provenance.user_name is not None:
        values["userName"] = provenance.user_name
    values["operation"] = provenance.operation
    values["operationParameters"] = {
        key: _text(item) for key, item in provenance.parameters.items()
    }
    if provenance.read_version >= 0:
        values["readVersion"] = provenance.read_version
    values["isolationLevel"] = provenance.level.delta_name
    values["isBlindAppend"] = provenance.is_blind_append
    others = {"numRebasedCommits": rebased_over, "numCommitRetries": retries}
    metrics = {**provenance.metrics, **{key: count for key, count in others.items() if count}}
    values["operationMetrics"] = {key: _text(item) for key, item in metrics.items()}
    if provenance.user_metadata is not None:
        values["userMetadata"] = provenance.user_metadata
    all_tags = {**(tags or {}), **provenance.tags}
    if provenance.is_blind_append and provenance.reads_elsewhere:
        all_tags[READS_ELSEWHERE] = _text(sorted(provenance.reads_elsewhere)) or ""
    if all_tags:
        values["tags"] = all_tags
    values["engineInfo"] = ENGINE
    values["txnId"] = provenance.txn_id
    return CommitInfo(values)


def _text(value: object) -> str | None:
    """Return the value as other engines expect it: text as it is, anything else as JSON text; None
    for None.
    """
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)
