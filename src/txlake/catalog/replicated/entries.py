"""Entries of a catalog's log: what they say, their names, and their encoding.

An entry has the rows that one catalog transaction changed, as they are afterwards. Replaying it
depends on no clock, no order of rows and no version of SQLite. A change of the schema is an entry
with the whole database.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from txlake.errors import CorruptTable, InvalidRequest

LOG_FOLDER = "log"
SNAPSHOT_FOLDER = "snapshots"
_DIGITS = 20
_FORMAT = 1
_HEADER_BYTES = 9


class TableChanges(msgspec.Struct, array_like=True, frozen=True):
    """The changes of one relation.

    Attributes:
        relation: its name.
        removed: primary keys of the rows that are gone.
        rows: the rows that were inserted or updated, whole.
    """

    relation: str
    removed: list[list[Any]]
    rows: list[list[Any]]


class LogEntry(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """One entry of a catalog's log.

    Attributes:
        id: unique for each attempt to write an entry.
        previous: the id of the entry before; empty for an entry that may follow any.
        writer: the process that wrote it.
        time_ms: the writer's time, never earlier than that of the entry before.
        changes: the rows that were changed; none in an entry that only claims a turn.
        database: in place of changes, the whole SQLite database.
        latency_ms: how long the writer's requests take, for those that wait for its next entry.
    """

    id: bytes
    previous: bytes
    writer: str
    time_ms: int
    changes: list[TableChanges] = []
    database: bytes = b""
    latency_ms: int = 0

    @property
    def is_claim(self) -> bool:
        """Whether the entry only claims a turn: it may follow any entry."""
        return not (self.previous or self.changes or self.database)


def entry_path(number: int) -> str:
    """Return the path of an entry below the catalog's folder."""
    return f"{LOG_FOLDER}/{number:0{_DIGITS}}"


def snapshot_path(number: int) -> str:
    """Return the path of the snapshot of the database after an entry."""
    return f"{SNAPSHOT_FOLDER}/{number:0{_DIGITS}}"


def number_of(path: str) -> int | None:
    """Return the number of an entry or snapshot; None for a path that is neither's."""
    name = path.rpartition("/")[2]
    return int(name) if len(name) == _DIGITS and name.isdecimal() else None


def encode(entry: LogEntry) -> bytes:
    """Return the bytes of an entry: format, length, and compressed MessagePack."""
    return compress(msgspec.msgpack.encode(entry))


def decode(data: bytes, url: str) -> LogEntry:
    """Return the entry that the object at `url` has.

    Raises InvalidRequest for the format of a newer txlake, CorruptTable for anything else that is
    no entry.
    """
    try:
        return msgspec.msgpack.decode(decompress(data, url), type=LogEntry)
    except msgspec.MsgspecError as error:
        raise CorruptTable(f"{url}: expected an entry of the catalog's log: {error}") from error


def compress(content: bytes) -> bytes:
    """Return the content compressed, after its format and length."""
    header = bytes([_FORMAT]) + len(content).to_bytes(_HEADER_BYTES - 1, "big")
    return header + bytes(pa.compress(content, codec="zstd", asbytes=True))


def decompress(data: bytes, url: str) -> bytes:
    """Return the content of an object at `url`. Raises as `decode`."""
    if data[:1] != bytes([_FORMAT]):
        raise InvalidRequest(
            f"{url}: expected format {_FORMAT} of the catalog's log, found {data[:1].hex() or None}"
            "; a newer txlake wrote it: upgrade txlake"
        )
    length = int.from_bytes(data[1:_HEADER_BYTES], "big")
    try:
        content: bytes = pa.decompress(
            data[_HEADER_BYTES:], decompressed_size=length, codec="zstd", asbytes=True
        )
    except (OSError, OverflowError, MemoryError, pa.ArrowException) as error:
        raise CorruptTable(f"{url}: the object is damaged: {error}") from error
    return content
