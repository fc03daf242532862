"""`_last_checkpoint`: the hint where to start listing, and its checksum.

A hint is never trusted: it may be stale, damaged or wrong, and doesn't prove that files exist.
Source: PROTOCOL.md, "Last Checkpoint File Schema" and "JSON checksum".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote

import msgspec

from txlake.protocol.actions import Json
from txlake.protocol.file_names import (
    VERSION_MAX,
    ClassicCheckpoint,
    V2Checkpoint,
    log_path,
    parse_name,
)

HINT_BYTES_MAX = 256 * 1024
"""The size limit of a hint, into which writers may put the checkpoint's schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """A checkpoint that was just written.

    Attributes:
        version: the checkpoint's table version.
        actions: the number of its rows, sidecars' rows included.
        parts: the number of its files, for a multi-part checkpoint.
        size_bytes: the size of its files, sidecars included.
        add_files: the number of its live files.
        v2_path, v2_size_bytes, v2_modified_ms: name, size and time of a V2 checkpoint's manifest.
    """

    version: int
    actions: int
    parts: int | None = None
    size_bytes: int | None = None
    add_files: int | None = None
    v2_path: str | None = None
    v2_size_bytes: int = 0
    v2_modified_ms: int = 0


@dataclass(frozen=True, slots=True)
class HintedCheckpoint:
    """The checkpoint that a hint names.

    Attributes:
        version: its table version.
        path: its file, relative to the table; None for one in several parts.
    """

    version: int
    path: str | None


def read_hint(data: bytes) -> HintedCheckpoint | None:
    """Return the hint's checkpoint; None if the hint is unreadable, longer than any writer's, or
    fails its checksum.
    """
    if len(data) > HINT_BYTES_MAX:
        return None
    try:
        value = json.loads(data, object_pairs_hook=_unique)
        if not isinstance(value, dict):
            return None
        version, checksum = value.get("version"), value.get("checksum")
        if not isinstance(version, int) or isinstance(version, bool):
            return None
        if checksum is not None and checksum != checksum_of(value):
            return None
    except (ValueError, RecursionError):
        return None
    return HintedCheckpoint(version, _path(version, value)) if 0 <= version <= VERSION_MAX else None


def _path(version: int, value: Mapping[str, Json]) -> str | None:
    """Return the path of the hinted checkpoint's one file; None if it has several, or a name that
    isn't a V2 checkpoint's of the version.
    """
    v2 = value.get("v2Checkpoint")
    if isinstance(v2, Mapping):
        file = parse_name(str(v2.get("path")))
        is_own = isinstance(file, V2Checkpoint) and file.version == version
        return log_path(file) if file is not None and is_own else None
    return log_path(ClassicCheckpoint(version)) if value.get("parts") is None else None


def write_hint(hint: Hint) -> bytes:
    """Return the file's bytes, with checksum."""
    value: dict[str, Json] = {"version": hint.version, "size": hint.actions}
    if hint.parts is not None:
        value["parts"] = hint.parts
    if hint.size_bytes is not None:
        value["sizeInBytes"] = hint.size_bytes
    if hint.add_files is not None:
        value["numOfAddFiles"] = hint.add_files
    if hint.v2_path is not None:
        value["v2Checkpoint"] = {
            "path": hint.v2_path,
            "sizeInBytes": hint.v2_size_bytes,
            "modificationTime": hint.v2_modified_ms,
        }
    return msgspec.json.encode({**value, "checksum": checksum_of(value)})


def checksum_of(value: Mapping[str, Json]) -> str:
    """Return the MD5 of an object's canonical form, its own `checksum` left out."""
    return hashlib.md5(canonical_form(value).encode(), usedforsecurity=False).hexdigest()


def canonical_form(value: Mapping[str, Json]) -> str:
    """Return `"path"+"to"=value` pairs, sorted bytewise by path and joined by commas."""
    content = {key: item for key, item in value.items() if key != "checksum"}
    pairs = sorted(_pairs(content, ""), key=lambda pair: pair[0].encode())
    return ",".join(f"{path}={text}" for path, text in pairs)


def _pairs(value: Json, path: str) -> Iterator[tuple[str, str]]:
    """Yield the quoted path and value of each leaf below `path`; array elements by position
    from 0.
    """
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _pairs(item, _joined(path, _quoted(str(key))))
    elif isinstance(value, list | tuple):
        for position, item in enumerate(value):
            yield from _pairs(item, _joined(path, str(position)))
    else:
        yield path, _quoted(value) if isinstance(value, str) else json.dumps(value)


def _joined(path: str, segment: str) -> str:
    return f"{path}+{segment}" if path else segment


def _quoted(text: str) -> str:
    return f'"{quote(text, safe="-._~")}"'


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """Return the object of these pairs. Raises ValueError for duplicate keys."""
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("duplicate keys")
    return value
