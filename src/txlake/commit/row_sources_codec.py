"""The row sources of a commit's new files as bytes, for a commit that is published with others.

A transaction forgets them when it has committed. A line of commits of a table with a change data
feed keeps them until it is published as one: its changes are those of `net_changes` over the net
actions of its commits, with the sources of all of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import msgspec

from txlake.commit.row_origins import Origins, RowSources
from txlake.datafiles.origins import pack_origins, unpack_origins
from txlake.errors import CorruptTable, InvalidRequest
from txlake.protocol.sources import parse_sources, sources_text

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
