"""Why a data file that a version needs is gone: its replacement, the VACUUM, the versions left.

Owns that search in a table's log. It reads all remaining commits, so it is for reads that have
failed already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from txlake.commit.table_log import TableLog
from txlake.errors import TxlakeError
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add, Cdc, Remove
from txlake.protocol.paths import decode_path, is_absolute

_VACUUMS = ("VACUUM START", "VACUUM END")


@dataclass(frozen=True, slots=True)
class _RemovalHistory:
    """By decoded path, the version that replaced a file; the times of VACUUM."""

    replaced: Mapping[str, int]
    changes: Mapping[str, int]
    vacuums: tuple[tuple[int, int], ...]

    def vacuumed_ms(self, after: int) -> int | None:
        """Return when the newest VACUUM after a version ran; None if the log has none."""
        return next((ms for version, ms in reversed(self.vacuums) if version > after), None)


def explain_missing_file(log: TableLog, path: str, versions: Iterable[int] = ()) -> str | None:
    """Return the message for a missing file; None if the log has no reason for it, or can't be
    read.

    Reasons are that a version removed the file, or that it is change data. `path` is decoded.
    `versions` were read by this process: those that need the file are named.
    """
    try:
        latest = log.latest()
        past = _removal_history(log, latest.version)
        if path in past.changes:
            return _of_changes(log, path, past)
        replaced = past.replaced.get(path)
        if replaced is None:
            return None
        needing = [one for one in sorted(set(versions)) if one < replaced and _has(log, one, path)]
        first = _readable_from(log, latest, replaced, past)
    except TxlakeError:  # the log can't be read either: what failed first counts
        return None
    subject = f"versions before {replaced}" if len(needing) != 1 else f"version {needing[0]}"
    return (
        f"{log.name}: {subject} can't be read any more: data file {path!r}, which version "
        f"{replaced} replaced, is gone{_when(past.vacuumed_ms(replaced))}. Versions from {first} "
        "on can be read"
    )


def _of_changes(log: TableLog, path: str, past: _RemovalHistory) -> str:
    """Return the message for a missing change data file."""
    version = past.changes[path]
    return (
        f"{log.name}: the changes of version {version} can't be read any more: change data file "
        f"{path!r} is gone{_when(past.vacuumed_ms(version))}. Read the changes from a later "
        "version on"
    )


def _when(vacuumed_ms: int | None) -> str:
    """Return the end of the sentence that says when VACUUM ran."""
    if vacuumed_ms is None:
        return " (VACUUM removes files that no newer version needs)"
    moment = datetime.fromtimestamp(vacuumed_ms / 1000, UTC)
    return f": VACUUM removed it at {moment:%Y-%m-%d %H:%M:%S} UTC"


def _removal_history(log: TableLog, latest: int) -> _RemovalHistory:
    """Return which version removed each file last, from all commits that the log still has."""
    replaced: dict[str, int] = {}
    changes: dict[str, int] = {}
    vacuums: list[tuple[int, int]] = []
    for version in sorted(log.listing().commits):
        commit = log.commit(version) if version <= latest else None
        if commit is None:
            continue
        for action in commit.actions:
            if isinstance(action, Remove):
                replaced[decode_path(action.path)] = version
            elif isinstance(action, Cdc):
                changes[decode_path(action.path)] = version
        for action in commit.actions:
            if isinstance(action, Add):  # listed again with another deletion vector, or restored
                replaced.pop(decode_path(action.path), None)
        if commit.info is not None and commit.info.text("operation") in _VACUUMS:
            vacuums.append((version, commit.timestamp_ms))
    return _RemovalHistory(replaced, changes, tuple(vacuums))


def _has(log: TableLog, version: int, path: str) -> bool:
    """Return whether a version has the file; False if the version can't be read."""
    try:
        snapshot = log.snapshot(version)
    except TxlakeError:
        return False
    return any(decode_path(add.path) == path for add in snapshot.files.adds())


def _readable_from(log: TableLog, latest: Snapshot, version: int, past: _RemovalHistory) -> int:
    """Return the first version from this one on whose files all exist, the newest at the latest."""
    while version < latest.version:
        snapshot = log.snapshot(version)
        gone = [
            past.replaced.get(path, latest.version)
            for path in (
                decode_path(add.path)
                for add in snapshot.files.adds()
                if add.key not in latest.files and not is_absolute(add.path)
            )
            if path in past.replaced and log.store.head(path) is None
        ]
        if not gone:
            return version
        version = max(version + 1, *gone)
    return latest.version
