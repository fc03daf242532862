"""The row sources of a branch's commits, kept in their commitInfo until the branch is published.

A transaction forgets them when it has committed. A branch of a table with a change data feed is
published as one commit: its changes are those of `net_changes` over the net actions of its commits,
with the sources of all of them.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from txlake.commit.feed_rules import has_feed, packed_sources
from txlake.commit.row_origins import Origins, RowSources
from txlake.commit.table_log import Commit
from txlake.datafiles.origins import pack_origins, unpack_origins
from txlake.errors import CorruptTable, InvalidRequest
from txlake.log.files import canonical_path
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add, Metadata, Protocol, Remove
from txlake.protocol.sources import parse_sources, sources_text

ROW_SOURCES_TAG = "txlake.rowSources"
"""The tag of a branch's commit: row sources as `encode_row_sources` has them, in base64."""

_VERSION = 1


class _Origins(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`Origins` with its arrays packed."""

    sources: tuple[str, ...]
    is_update: bool
    packed: bytes


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """By canonical path of new files: origins of single rows, or runs as in the tag of sources."""

    version: int
    origins: dict[str, _Origins]
    runs: dict[str, str]


_DECODER = msgspec.msgpack.Decoder(_Record)


def encode_row_sources(row_sources: Mapping[str, RowSources]) -> bytes:
    """Return the row sources, by canonical path of new files, as bytes."""
    origins = {
        path: _Origins(one.sources, one.is_update, pack_origins(one.files, one.rows))
        for path, one in row_sources.items()
        if isinstance(one, Origins)
    }
    runs = {
        path: sources_text(one) for path, one in row_sources.items() if not isinstance(one, Origins)
    }
    return msgspec.msgpack.encode(_Record(_VERSION, origins, runs))


def decode_row_sources(data: bytes, *, file: str) -> dict[str, RowSources]:
    """Return the row sources: the inverse of `encode_row_sources`.

    Raises CorruptTable naming `file` for bytes of another form or version: without the sources the
    changes of rows aren't known.
    """
    try:
        record = _DECODER.decode(data)
        if record.version != _VERSION:
            raise ValueError(f"expected version {_VERSION}, found {record.version}")
        found: dict[str, RowSources] = {
            path: parse_sources(text) for path, text in record.runs.items()
        }
        for path, one in record.origins.items():
            files, rows = unpack_origins(one.packed)
            found[path] = Origins(
                sources=one.sources, files=files, rows=rows, is_update=one.is_update
            )
    except (ValueError, zlib.error, InvalidRequest) as error:
        raise CorruptTable(
            f"{file}: the sources of a commit's rows can't be read: {error}"
        ) from error
    return found


def row_sources_tag(row_sources: Mapping[str, RowSources]) -> dict[str, str]:
    """Return the tag of a commit with these row sources; none without any."""
    if not row_sources:
        return {}
    return {ROW_SOURCES_TAG: base64.b64encode(encode_row_sources(row_sources)).decode()}


@dataclass(frozen=True, slots=True)
class KnownSources:
    """What a line of commits tells of its new files' rows.

    Attributes:
        row_sources: the sources, by canonical path.
        untracked_files: canonical paths of rewritten files whose rows' sources weren't recorded.
        has_gaps: whether a commit changed rows while the table had no change data feed, so that it
            recorded no sources.
    """

    row_sources: Mapping[str, RowSources]
    untracked_files: frozenset[str]
    has_gaps: bool


NO_SOURCES = KnownSources({}, frozenset(), has_gaps=False)


def known_sources(base: Snapshot, commits: Iterable[Commit]) -> KnownSources:
    """Return what the commits that follow a version tell of their new files' rows.

    Raises CorruptTable naming the version for a tag that can't be read.
    """
    state = base
    found: dict[str, RowSources] = {}
    untracked: set[str] = set()
    seen: set[str] = set()
    has_gaps = False
    for commit in commits:
        settings = [one for one in commit.actions if isinstance(one, Metadata | Protocol)]
        state = state.apply(settings) if settings else state
        changed = [one for one in commit.actions if isinstance(one, Add | Remove)]
        new = [
            one
            for one in changed
            if isinstance(one, Add)
            and canonical_path(one.path) not in seen
            and base.files.by_path(one.path) is None
        ]
        seen.update(canonical_path(one.path) for one in new)
        for path, runs in packed_sources(new, base.files).items():
            if runs:
                found[path] = runs
            else:
                untracked.add(path)
        text = _tag_of(commit)
        if text is not None:
            found |= _decoded(text, file=f"{base.table}, version {commit.version}")
        rewrites = any(isinstance(one, Remove) and one.data_change for one in changed) and any(
            one.data_change for one in new
        )
        has_gaps |= rewrites and not has_feed(state)
    return KnownSources(found, frozenset(untracked - found.keys()), has_gaps)


def _tag_of(commit: Commit) -> str | None:
    """Return the text of a commit's tag; None if it has none."""
    tags = None if commit.info is None else commit.info.values.get("tags")
    text = tags.get(ROW_SOURCES_TAG) if isinstance(tags, dict) else None
    return text if isinstance(text, str) else None


def _decoded(text: str, *, file: str) -> dict[str, RowSources]:
    """Return the row sources of a tag's text. Raises CorruptTable naming `file`."""
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise CorruptTable(
            f"{file}: the sources of a commit's rows aren't base64: {error}"
        ) from error
    return decode_row_sources(data, file=file)
