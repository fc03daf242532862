"""The choice of the files of `_delta_log` that build a version: a checkpoint, compactions, commits.

Decides by names alone and reads nothing; checking the contents of the chosen files is `replay`'s.
Source: PROTOCOL.md, "Checkpoints", "Log Compaction Files", "Metadata Cleanup".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from txlake.errors import CorruptTable, InvalidRequest
from txlake.protocol.file_names import (
    Checksum,
    ClassicCheckpoint,
    CommitFile,
    Compaction,
    LastCheckpoint,
    LogFile,
    MultiPartCheckpoint,
    StagedCommit,
    V2Checkpoint,
    commit_path,
    log_path,
    parse_name,
)


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One file of a listing of `_delta_log`. `modified_ms` is the store's, since the epoch."""

    file: LogFile
    size_bytes: int
    modified_ms: int

    @property
    def path(self) -> str:
        """The file's path relative to the table."""
        return log_path(self.file)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint: one file, or all parts in order."""

    version: int
    parts: tuple[LogEntry, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """Its files, relative to the table; sidecars not included."""
        return tuple(entry.path for entry in self.parts)


@dataclass(frozen=True, slots=True)
class Segment:
    """The files to read, in order, for one version.

    Attributes:
        version: the version that results.
        checkpoint: where to begin; None is the empty table.
        deltas: compactions and commits after the checkpoint, oldest first, without a gap.
        newest: the commit file of `version`, if it still exists.
        checksum: the checksum file of `version`, if it exists.
    """

    version: int
    checkpoint: Checkpoint | None
    deltas: tuple[LogEntry, ...]
    newest: LogEntry | None
    checksum: LogEntry | None = None


CheckpointName: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of `_delta_log` that replay uses, sorted by kind and version."""

    commits: Mapping[int, LogEntry] = field(default_factory=dict)
    checkpoints: tuple[Checkpoint, ...] = ()  # complete ones, oldest first
    broken_checkpoints: tuple[LogEntry, ...] = ()  # parts of incomplete checkpoints
    compactions: tuple[LogEntry, ...] = ()
    checksums: Mapping[int, LogEntry] = field(default_factory=dict)

    @classmethod
    def of(cls, files: Iterable[tuple[str, int, int]]) -> Listing:
        """Return the listing of (path or name, size in bytes, modification time in ms); skips other
        names.
        """
        entries = (
            LogEntry(file, size, modified)
            for name, size, modified in files
            if (file := parse_name(name)) is not None
        )
        return cls.of_entries(entries)

    @classmethod
    def of_entries(cls, entries: Iterable[LogEntry]) -> Listing:
        """Return the listing of these files. Hints and staged commits are left out."""
        commits: dict[int, LogEntry] = {}
        checksums: dict[int, LogEntry] = {}
        compactions: list[LogEntry] = []
        checkpoints: list[Checkpoint] = []
        parts: dict[tuple[int, int], dict[int, LogEntry]] = defaultdict(dict)
        for entry in entries:
            match entry.file:
                case CommitFile(version):
                    commits[version] = entry
                case Checksum(version):
                    checksums[version] = entry
                case Compaction():
                    compactions.append(entry)
                case ClassicCheckpoint(version) | V2Checkpoint(version):
                    checkpoints.append(Checkpoint(version, (entry,)))
                case MultiPartCheckpoint(version, part, of):
                    parts[version, of][part] = entry
                case LastCheckpoint() | StagedCommit():
                    pass
        broken: list[LogEntry] = []
        for (version, of), found in parts.items():
            if len(found) == of:
                whole = tuple(found[part] for part in range(1, of + 1))
                checkpoints.append(Checkpoint(version, whole))
            else:
                broken.extend(found.values())
        checkpoints.sort(key=_preference)
        return cls(commits, tuple(checkpoints), tuple(broken), tuple(compactions), checksums)

    @property
    def latest_version(self) -> int:
        """The newest version with a commit or a checkpoint; -1 without any."""
        newest_checkpoint = self.checkpoints[-1].version if self.checkpoints else -1
        return max(max(self.commits, default=-1), newest_checkpoint)

    @property
    def is_empty(self) -> bool:
        """Whether the listing has no file of a Delta table."""
        return not (
            self.commits
            or self.checkpoints
            or self.broken_checkpoints
            or self.compactions
            or self.checksums
        )

    @property
    def earliest_version(self) -> int | None:
        """The oldest version that can be rebuilt: version 0, or the oldest usable checkpoint's.
        None if there is neither.
        """
        if 0 in self.commits:
            return 0
        return self.checkpoints[0].version if self.checkpoints else None

    @property
    def earliest_commit(self) -> int | None:
        """The version of the oldest commit file; None if there is none."""
        return min(self.commits, default=None)


def _preference(checkpoint: Checkpoint) -> tuple[int, bool, int, str]:
    """Return the sort key: by version, then from the least to the most preferred, a single file."""
    single = len(checkpoint.parts) == 1
    return (checkpoint.version, single, -len(checkpoint.parts), checkpoint.parts[0].path)


def choose_segment(
    listing: Listing,
    *,
    table: str,
    version: int | None = None,
    after: int | None = None,
    unusable: frozenset[CheckpointName] = frozenset(),
) -> Segment:
    """Return the files that build `version` (the latest when None) with the fewest reads.

    `after` is a version whose state is known, to which only commits and compactions are added.
    `unusable` names checkpoints (by their paths) that turned out damaged. Raises InvalidRequest
    when the version isn't in the log (never was, or cleaned up), and CorruptTable when a file
    between the checkpoint and the version is missing, naming it.
    """
    target = listing.latest_version if version is None else version
    if target > listing.latest_version or target < 0:
        raise InvalidRequest(_no_such_version(listing, table, target))
    checkpoint = next(
        (
            item
            for item in reversed(listing.checkpoints)
            if after is None and item.version <= target and item.paths not in unusable
        ),
        None,
    )
    known = after if checkpoint is None else checkpoint.version
    start = 0 if known is None else known + 1
    deltas = _deltas(listing, start, target)
    if isinstance(deltas, int):
        raise _gap(listing, table, known, missing=deltas, target=target, asked=version)
    return Segment(
        target,
        checkpoint,
        deltas,
        listing.commits.get(target),
        listing.checksums.get(target),
    )


def _deltas(listing: Listing, start: int, target: int) -> tuple[LogEntry, ...] | int:
    """Return commits and compactions from `start` to `target`, or the first missing version."""
    longest: dict[int, LogEntry] = {}
    for compaction in listing.compactions:
        file = compaction.file
        if isinstance(file, Compaction) and file.end <= target:
            known = longest.get(file.start)
            if known is None or _end(known) < file.end:
                longest[file.start] = compaction
    deltas: list[LogEntry] = []
    at = start
    while at <= target:
        entry: LogEntry | None = longest.get(at) or listing.commits.get(at)
        if entry is None:
            return at
        deltas.append(entry)
        at = max(at, _end(entry)) + 1
    return tuple(deltas)


def _end(entry: LogEntry) -> int:
    """Return the last version of a compaction; -1 for a commit."""
    return entry.file.end if isinstance(entry.file, Compaction) else -1


def _gap(
    listing: Listing,
    table: str,
    known: int | None,
    *,
    missing: int,
    target: int,
    asked: int | None,
) -> CorruptTable | InvalidRequest:
    """Return the error for a missing commit: InvalidRequest if it was cleaned up, CorruptTable if
    lost.
    """
    earliest = listing.earliest_version
    first = listing.earliest_commit
    if asked is not None and known is None and earliest is not None and target < earliest:
        return InvalidRequest(_no_such_version(listing, table, target))
    if known is not None and known >= 0:
        expected = f"every commit from {known + 1} to {target}"
    elif first is None or missing < first:
        expected = f"a usable checkpoint, or every commit from 0 to {target}"
    else:
        expected = f"every commit from 0 to {target}"
    parts = ", ".join(sorted(entry.path for entry in listing.broken_checkpoints)[:5])
    also = f"; incomplete checkpoint: only {parts}" if parts else ""
    return CorruptTable(
        f"{table}: version {target} can't be built: {commit_path(missing)} is missing "
        f"(expected {expected}{also}); restore the file from a backup, or read an older version"
    )


def _no_such_version(listing: Listing, table: str, version: int) -> str:
    """Return the message for a version before the oldest or after the newest."""
    earliest, latest = listing.earliest_version, listing.latest_version
    said = f"[DELTA_VERSION_NOT_FOUND] {table}: version {version}"
    if version > latest:
        return (
            f"{said} doesn't exist; the latest version is {latest}. "
            f"Ask for a version from {max(earliest or 0, 0)} to {latest}"
        )
    if version < 0:
        return f"{said} doesn't exist; versions start at 0"
    return (
        f"{said} was cleaned up; the log can rebuild versions {earliest} to "
        f"{latest}. Ask for one of those, or raise delta.logRetentionDuration for the future"
    )
