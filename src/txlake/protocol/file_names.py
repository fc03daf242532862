"""The names of files in `_delta_log`, parsed and formatted.

Owns names alone; contents and usability are decided elsewhere. Source: PROTOCOL.md, "Delta Log
Entries", "Checkpoint Naming Scheme", "Log Compaction Files".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

from txlake.errors import CorruptTable

LOG_FOLDER = "_delta_log"
SIDECAR_FOLDER = "_delta_log/_sidecars"
STAGED_FOLDER = "_delta_log/_staged_commits"
BRANCHES_FOLDER = "_delta_log/_branches"
LAST_CHECKPOINT_PATH = "_delta_log/_last_checkpoint"
# After the files of all versions, and before all other names that Delta has in the folder.
VERSIONS_END = "_delta_log/:"
VERSION_MAX = 2**63 - 1

_NAME = re.compile(
    r"(?P<version>\d{20})\."
    r"(?:(?P<commit>json)"
    r"|(?P<checksum>crc)"
    r"|checkpoint\.(?:"
    r"(?P<classic>parquet)"
    r"|(?P<part>\d{10})\.(?P<parts>\d{10})\.parquet"
    r"|(?P<id>[^./]+)\.(?P<format>json|parquet))"
    r"|(?P<end>\d{20})\.compacted\.json)",
    re.ASCII,
)
_STAGED = re.compile(r"_staged_commits/(?P<version>\d{20})\.(?P<id>[^./]+)\.json", re.ASCII)


@dataclass(frozen=True, slots=True)
class CommitFile:
    """`n.json`: the actions of version n."""

    version: int


@dataclass(frozen=True, slots=True)
class ClassicCheckpoint:
    """`n.checkpoint.parquet`: of either spec."""

    version: int


@dataclass(frozen=True, slots=True)
class MultiPartCheckpoint:
    """`n.checkpoint.o.p.parquet`: part `part` (from 1) of `parts`."""

    version: int
    part: int
    parts: int


@dataclass(frozen=True, slots=True)
class V2Checkpoint:
    """`n.checkpoint.u.json` or `.parquet`: a manifest that may name sidecars."""

    version: int
    id: str
    format: Literal["json", "parquet"]


@dataclass(frozen=True, slots=True)
class Compaction:
    """`x.y.compacted.json`: the reconciled actions of versions x to y, both included."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Checksum:
    """`n.crc`: facts about the state at version n."""

    version: int


@dataclass(frozen=True, slots=True)
class LastCheckpoint:
    """`_last_checkpoint`: a hint where to start listing."""


@dataclass(frozen=True, slots=True)
class StagedCommit:
    """`_staged_commits/n.u.json`: proposed as version n; the catalog knows whether it was
    ratified.
    """

    version: int
    id: str


LogFile: TypeAlias = (
    CommitFile
    | ClassicCheckpoint
    | MultiPartCheckpoint
    | V2Checkpoint
    | Compaction
    | Checksum
    | LastCheckpoint
    | StagedCommit
)


@lru_cache(maxsize=4_096)
def parse_name(name: str) -> LogFile | None:
    """Return the kind of log file that a name, relative to `_delta_log/`, stands for; None for
    others.

    `name` may carry the folder (`_delta_log/...`). Numbers beyond 2^63 - 1 are no versions.
    """
    name = name.removeprefix(f"{LOG_FOLDER}/")
    if name == "_last_checkpoint":
        return LastCheckpoint()
    match = _NAME.fullmatch(name)
    if match is None:
        staged = _STAGED.fullmatch(name)
        return None if staged is None else StagedCommit(int(staged["version"]), staged["id"])
    version = int(match["version"])
    if version > VERSION_MAX:
        return None
    if match["commit"]:
        return CommitFile(version)
    if match["checksum"]:
        return Checksum(version)
    if match["classic"]:
        return ClassicCheckpoint(version)
    if match["part"]:
        part, parts = int(match["part"]), int(match["parts"])
        return MultiPartCheckpoint(version, part, parts) if 1 <= part <= parts else None
    if match["id"]:
        return V2Checkpoint(
            version, match["id"], "json" if match["format"] == "json" else "parquet"
        )
    end = int(match["end"])
    return Compaction(version, end) if version < end <= VERSION_MAX else None


def version_of(path: str) -> int:
    """Return the version that a file of the log belongs to, of a compaction its last one; -1 for
    other files, staged commits included.
    """
    match parse_name(path):
        case (
            CommitFile(version)
            | Checksum(version)
            | ClassicCheckpoint(version)
            | MultiPartCheckpoint(version)
            | V2Checkpoint(version)
        ):
            return version
        case Compaction(_, end):
            return end
        case _:
            return -1


def log_path(file: LogFile) -> str:
    """Return the file's path relative to the table."""
    return f"{LOG_FOLDER}/{_name(file)}"


def _name(file: LogFile) -> str:
    """Return the file's name relative to `_delta_log/`."""
    match file:
        case CommitFile(version):
            return f"{version:020d}.json"
        case ClassicCheckpoint(version):
            return f"{version:020d}.checkpoint.parquet"
        case MultiPartCheckpoint(version, part, parts):
            return f"{version:020d}.checkpoint.{part:010d}.{parts:010d}.parquet"
        case V2Checkpoint(version, identifier, form):
            return f"{version:020d}.checkpoint.{identifier}.{form}"
        case Compaction(start, end):
            return f"{start:020d}.{end:020d}.compacted.json"
        case Checksum(version):
            return f"{version:020d}.crc"
        case StagedCommit(version, identifier):
            return f"_staged_commits/{version:020d}.{identifier}.json"
        case LastCheckpoint():
            return "_last_checkpoint"


@lru_cache(maxsize=256)
def commit_path(version: int) -> str:
    """Return `_delta_log/<20 digits>.json`."""
    return log_path(CommitFile(version))


def checksum_path(version: int) -> str:
    """Return `_delta_log/<20 digits>.crc`."""
    return log_path(Checksum(version))


def listing_start(version: int) -> str:
    """Return the `start_after` for a listing of all files of `version` and later."""
    return f"{LOG_FOLDER}/{max(version, 0):020d}"


def sidecar_path(path_in_log: str) -> str:
    """Return a sidecar's path relative to the table, from its (decoded) path in the manifest.

    Sidecars always lie in `_delta_log/_sidecars`, so that the last segment of the path is enough.
    Raises CorruptTable for a path whose last segment is no name.
    """
    name = path_in_log.rpartition("/")[2]
    if name in {"", ".", ".."} or "\0" in name:
        raise CorruptTable(
            f"a checkpoint names the sidecar {path_in_log!r}: expected the name of a file in "
            f"{SIDECAR_FOLDER}"
        )
    return f"{SIDECAR_FOLDER}/{name}"
