"""Data files in other stores than this machine, of which a statement fetches the bytes that it
needs.

Owns the requests: how many bytes one asks for, that they are sent side by side, and that a
statement fetches no byte twice. `file_rows` decides which parts of a file it needs.
"""

from __future__ import annotations

import io
import threading
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from txlake.commit.parallel import begin
from txlake.errors import InvalidRequest
from txlake.local.choice import FETCHED_BYTES_MAX, Declined
from txlake.ports import Store

if TYPE_CHECKING:
    from pyroaring import BitMap64

Range = tuple[int, int]
"""Bytes of a file: the first, and the one after the last."""

# One connection sends about so many bytes in the time that one more request takes, all together so
# many.
_SMALL_BYTES = 2 * 1024 * 1024
_SMALL_BYTES_OF_ALL = 16 * 1024 * 1024
_FOOTER_BYTES = 65_536  # as many as pyarrow reads at first
_GAP_BYTES_MAX = 64 * 1024
_REQUEST_BYTES_MAX = 8 * 1024 * 1024


def small_bytes_max(file_count: int) -> int:
    """Return how many bytes of each of so many files are better fetched than awaiting one more
    request.
    """
    return min(_SMALL_BYTES, _SMALL_BYTES_OF_ALL // max(1, file_count))


def likely_bytes_max(file_count: int, group_count: int) -> int:
    """Return how many bytes are better fetched than awaiting the answer whether they are needed.

    They are of columns in so many files and row groups, needed only if a row of these matches. If
    there is only one row group, one probably does.
    """
    if group_count <= 1:
        return _SMALL_BYTES_OF_ALL
    return file_count * small_bytes_max(file_count)


class StatementReads:
    """What one statement has read of a table's files: bytes of remote ones, and deletion vectors.

    Safe to use from many threads.
    """

    def __init__(self) -> None:
        self._files: dict[tuple[str, str], RemoteFile] = {}
        self._vectors: dict[str, BitMap64] = {}
        self._bytes_left = FETCHED_BYTES_MAX
        self.lock = threading.RLock()

    def file(self, store: Store, path: str, size_bytes: int) -> RemoteFile:
        """Return the file at a path of a store, one for the statement."""
        new = RemoteFile(self, store, path, size_bytes)
        return self._files.setdefault((store.url, path), new)

    def vector(self, unique_id: str, load: Callable[[], BitMap64]) -> BitMap64:
        """Return the deletion vector with this unique id, loaded at the first call. It mustn't be
        changed.
        """
        if unique_id not in self._vectors:
            self._vectors[unique_id] = load()
        return self._vectors[unique_id]

    def fetch(self, ranges_by_file: Sequence[tuple[RemoteFile, Sequence[Range]]]) -> None:
        """Fetch the bytes of these files that weren't fetched before, all side by side.

        Ranges close to each other are fetched in one request, long ones in several. Raises
        Declined, having fetched nothing, if the statement would fetch too much; Declined if the
        store refuses, ValueError if a file is shorter than the log says, FileNotFoundError, and
        Unavailable.
        """
        with self.lock:
            requests = [
                (file, *each) for file, ranges in ranges_by_file for each in file.requests(ranges)
            ]
            size_bytes = sum(end - start for _, start, end in requests)
            if size_bytes > self._bytes_left:
                raise Declined(f"more than {FETCHED_BYTES_MAX:,} bytes would have to be fetched")
            self._bytes_left -= size_bytes
            replies = [
                begin(partial(file.get, start, end), store=file.store)
                for file, start, end in requests
            ]
            for (file, start, _), reply in zip(requests, replies, strict=True):
                file.add_part(start, reply())


class RemoteFile:
    """One data file in another store, with the parts of it that a statement has fetched."""

    def __init__(self, reads: StatementReads, store: Store, path: str, size_bytes: int) -> None:
        self.store = store
        self._path = path
        self._size_bytes = size_bytes
        self._reads = reads
        self._parts: list[tuple[int, bytes]] = []

    def footer_range(self, whole_bytes_max: int) -> Range:
        """Return the file's last 64 KiB, which most footers fit in; the whole file if it has up to
        `whole_bytes_max` bytes.
        """
        is_small = self._size_bytes <= max(whole_bytes_max, _FOOTER_BYTES)
        return (0 if is_small else self._size_bytes - _FOOTER_BYTES, self._size_bytes)

    def open(self) -> pa.NativeFile:
        """Return the file for random reads. They fetch what is missing, and raise as
        `StatementReads.fetch`.
        """
        if len(self._parts) == 1 and len(self._parts[0][1]) == self._size_bytes:
            return pa.BufferReader(self._parts[0][1])
        return pa.PythonFile(_Handle(self, self._size_bytes), mode="r")

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset`, fewer at the file's end. Raises as
        `StatementReads.fetch`.
        """
        end = min(offset + length, self._size_bytes)
        pieces = []
        with self._reads.lock:
            if offset < end:
                self._reads.fetch([(self, [(offset, end)])])
            index = self._index_at(offset)
            while offset < end:
                start, data = self._parts[index]
                pieces.append(data[offset - start : end - start])
                offset, index = start + len(data), index + 1
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def get(self, start: int, end: int) -> bytes:
        """Return these bytes from the store, by one request. Raises as `StatementReads.fetch`."""
        try:
            data = self.store.get_range(self._path, start, end - start)
        except InvalidRequest as error:  # Spark may have a client and credentials of its own
            raise Declined(str(error)) from error
        if len(data) != end - start:
            raise ValueError(f"{len(data)} bytes at {start}, not {end - start} as the log says")
        return data

    def add_part(self, start: int, data: bytes) -> None:
        """Keep bytes that were fetched; none of them was kept before."""
        insort(self._parts, (start, data), key=lambda part: part[0])

    def missing_bytes(self, ranges: Iterable[Range]) -> int:
        """Return how many bytes of the ranges weren't fetched."""
        return sum(end - start for start, end in self._missing(ranges))

    def requests(self, ranges: Iterable[Range]) -> Iterator[Range]:
        """Yield the ranges to ask the store for, ascending, so that `ranges` are fetched; none of
        their bytes was fetched before.
        """
        joined: list[Range] = []
        for start, end in self._missing(ranges):
            if joined and self._is_small_gap(joined[-1][1], start):
                joined[-1] = (joined[-1][0], end)
            else:
                joined.append((start, end))
        for start, end in joined:
            for first in range(start, end, _REQUEST_BYTES_MAX):
                yield first, min(end, first + _REQUEST_BYTES_MAX)

    def _is_small_gap(self, start: int, end: int) -> bool:
        """Return whether so few bytes lie between two ranges, none of them fetched, that one
        request is better than two.
        """
        return start == end or (
            end - start <= _GAP_BYTES_MAX and list(self._missing([(start, end)])) == [(start, end)]
        )

    def _missing(self, ranges: Iterable[Range]) -> Iterable[Range]:
        """Yield the parts of the ranges that weren't fetched, ascending and without overlaps."""
        done = 0
        for start, end in sorted(ranges):
            start = max(start, done)
            done = max(done, end)
            index = max(0, self._index_at(start))
            for held, data in self._parts[index:]:
                if held >= end:
                    break
                if held > start:
                    yield start, held
                start = max(start, held + len(data))
            if start < end:
                yield start, end

    def _index_at(self, offset: int) -> int:
        """Return the index of the last part that begins at or before the offset; -1 for none."""
        return bisect_right(self._parts, offset, key=lambda part: part[0]) - 1


class _Handle(io.RawIOBase):
    """A remote file as Python's file objects are read."""

    def __init__(self, file: RemoteFile, size_bytes: int) -> None:
        self._file = file
        self._size_bytes = size_bytes
        self._offset = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._offset, io.SEEK_END: self._size_bytes}[whence]
        self._offset = base + offset
        return self._offset

    def tell(self) -> int:
        return self._offset

    def read(self, size: int = -1) -> bytes:
        length = self._size_bytes - self._offset if size < 0 else size
        data = self._file.read(self._offset, length)
        self._offset += len(data)
        return data
