"""The bytes of data files, which encoded URLs name, by the stores of `storage`.

Owns that a file of this machine is written and read piece by piece, any other one whole. `options`
are those of the bucket's store, or of HDFS.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import BinaryIO
from urllib.parse import unquote

import pyarrow as pa

from txlake.errors import TxlakeError
from txlake.ports import Store
from txlake.storage import local_path, open_store
from txlake.storage.local import make_folders, sync_folder

Options = Mapping[str, str]


def create(url: str) -> pa.NativeFile:
    """What a new file is written to, until `finish`. Missing folders are made."""
    path = local_path(url)
    if path is None:
        return pa.BufferOutputStream()
    make_folders(os.path.dirname(path))
    return pa.OSFile(path, "wb")


def finish(
    sink: pa.NativeFile,
    url: str,
    options: Options,
    change: Callable[[BinaryIO], object] | None = None,
) -> None:
    """Makes a written file durable, and visible in a bucket or in HDFS.

    With `change` the file is given to it before, whole, to be read and written.
    """
    path = local_path(url)
    if path is None:
        file = BytesIO(sink.getvalue().to_pybytes())
        if change is not None:
            change(file)
        store, name = store_and_name(url, options)
        store.put(name, file.getvalue())
        return
    sink.close()
    if change is not None:
        with open(path, "r+b") as written:
            change(written)
    sync(path)
    sync_folder(os.path.dirname(path))


def remove(url: str, options: Options) -> None:
    """Removes a file, if that works; what stays is an orphan for VACUUM."""
    try:
        store, name = store_and_name(url, options)
        store.delete([name])
    except TxlakeError:  # an orphan is harmless
        return


def open_file(url: str, options: Options) -> pa.NativeFile:
    """A file to read anywhere in. Raises FileNotFoundError."""
    path = local_path(url)
    if path is not None:
        return pa.OSFile(path, "rb")
    store, name = store_and_name(url, options)
    return pa.BufferReader(store.get(name))


def read_range(url: str, offset: int, length: int, options: Options) -> bytes:
    """Some of a file's bytes. Raises FileNotFoundError."""
    store, name = store_and_name(url, options)
    return store.get_range(name, offset, length)


def store_and_name(url: str, options: Options) -> tuple[Store, str]:
    """The store of a file's folder, and the file's name there."""
    folder, _, name = url.rpartition("/")
    return open_store(folder, options), unquote(name, errors="surrogateescape")


def sync(path: str) -> None:
    """Returns once a local file would outlive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
