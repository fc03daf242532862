"""Reading and writing data files by their encoded URLs, through the stores of `storage`.

Files on this machine are written and read piece by piece, files of other stores as a whole.
`options` are those of the bucket's store, or of HDFS.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from io import BytesIO
from typing import BinaryIO, Self
from urllib.parse import unquote

import pyarrow as pa

from txlake.errors import TxlakeError
from txlake.ports import Store
from txlake.storage import local_path, open_store
from txlake.storage.local import make_folders, sync_folder

Options = Mapping[str, str]

_UPLOADS_MAX = 16
_PENDING_BYTES_MAX = 64 * 1024 * 1024


def create(url: str) -> pa.NativeFile:
    """Return the sink for a new file; `finish` completes the file.

    On this machine missing folders are created, and an existing file is emptied at once. For other
    stores the sink holds the bytes in memory.
    """
    path = local_path(url)
    if path is None:
        return pa.BufferOutputStream()
    make_folders(os.path.dirname(path))
    return pa.OSFile(path, "wb")


class Uploads:
    """Files on their way to other stores than this machine, which are written side by side.

    As a context it waits for them at the end of the block.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._pending: list[Future[None]] = []
        self._pending_bytes = 0
        self._begun: list[tuple[str, Options]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Wait for the files; if the block raised, remove them."""
        if kind is None:
            self.wait()
        else:
            self.discard()

    def put(self, url: str, data: bytes, options: Options) -> None:
        """Begin to write a file. Waits first while other files of 64 MiB are on their way."""
        if self._pending_bytes + len(data) > _PENDING_BYTES_MAX:
            self.wait()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_UPLOADS_MAX)
        store, name = store_and_name(url, options)
        self._begun.append((url, options))
        self._pending_bytes += len(data)
        self._pending.append(self._pool.submit(store.put, name, data))

    @property
    def pending_bytes(self) -> int:
        """The bytes of the files that may be on their way."""
        return self._pending_bytes

    def wait(self) -> None:
        """Wait until all files are written. If one can't be, removes all and raises what its store
        raised.
        """
        try:
            for upload in self._finished():
                upload.result()
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Remove the files, also those that were written; their errors are ignored."""
        self._finished()
        for url, options in self._begun:
            remove(url, options)
        self._begun = []

    def _finished(self) -> list[Future[None]]:
        """Wait until no file is on its way. Return the files that were."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        return pending


class DeferredUploads:
    """Uploads that their caller waits for later, and before anybody reads the files."""

    def __init__(self) -> None:
        self._uploads: list[Uploads] = []
        self._pending_bytes = 0

    def add(self, uploads: Uploads) -> None:
        """Add uploads; waits for the earlier ones while they hold 64 MiB."""
        if self._pending_bytes + uploads.pending_bytes > _PENDING_BYTES_MAX:
            self.wait()
        self._pending_bytes += uploads.pending_bytes
        self._uploads.append(uploads)

    def wait(self) -> None:
        """Wait until all files are written. Raises as `Uploads.wait`."""
        self._pending_bytes = 0
        while self._uploads:
            self._uploads.pop().wait()


_deferred: ContextVar[DeferredUploads | None] = ContextVar("deferred_uploads", default=None)


@contextmanager
def deferring_uploads(uploads: DeferredUploads) -> Iterator[None]:
    """Let the block go on while the files that it writes are on their way to other stores."""
    token = _deferred.set(uploads)
    try:
        yield
    finally:
        _deferred.reset(token)


def wait_or_defer(uploads: Uploads) -> None:
    """Wait for the uploads, unless a caller waits for them later (`deferring_uploads`)."""
    deferred = _deferred.get()
    if deferred is None:
        uploads.wait()
    else:
        deferred.add(uploads)


def finish(
    sink: pa.NativeFile,
    url: str,
    options: Options,
    uploads: Uploads,
    change: Callable[[BinaryIO], object] | None = None,
) -> None:
    """Make a written file durable; one of another store is only handed to `uploads`.

    `change` is called before with the whole file, open for reading and writing. Closes the sink of
    a local file. Raises what the store raises.
    """
    path = local_path(url)
    if path is None:
        file = BytesIO(sink.getvalue().to_pybytes())
        if change is not None:
            change(file)
        uploads.put(url, file.getvalue(), options)
        return
    sink.close()
    if change is not None:
        with open(path, "r+b") as written:
            change(written)
    sync(path)
    sync_folder(os.path.dirname(path))


def remove(url: str, options: Options) -> None:
    """Remove a file. A TxlakeError is ignored: the file is then an orphan for VACUUM."""
    try:
        store, name = store_and_name(url, options)
        store.delete([name])
    except TxlakeError:  # VACUUM removes orphans
        return


def open_file(url: str, options: Options) -> pa.NativeFile:
    """Open a file for random reads; of other stores than this machine it is read whole.

    Raises FileNotFoundError.
    """
    path = local_path(url)
    if path is not None:
        return pa.OSFile(path, "rb")
    store, name = store_and_name(url, options)
    return pa.BufferReader(store.get(name))


def read_range(url: str, offset: int, length: int, options: Options) -> bytes:
    """Return `length` bytes of a file from `offset`. Raises FileNotFoundError."""
    store, name = store_and_name(url, options)
    return store.get_range(name, offset, length)


def store_and_name(url: str, options: Options) -> tuple[Store, str]:
    """Return the store of a file's folder, given by its encoded URL, and the file's name,
    decoded.
    """
    folder, _, name = url.rpartition("/")
    return open_store(folder, options), unquote(name, errors="surrogateescape")


def sync(path: str) -> None:
    """Flush a local file to stable storage, so that it survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
