"""What Spark's tasks do with the bytes of data files, on file systems, in buckets and in HDFS.

This module travels with the job, see `executor`. Files are named by encoded URLs; `options` are
those of the bucket's store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from txlake.azure import account_options
from txlake.redaction import redacted, secrets_of
from txlake.storage.hdfs.webhdfs import OPTIONS_PREFIX, SCHEMES, client_of, path_of, patiently

if TYPE_CHECKING:
    from obstore.store import ObjectStore

Options = Mapping[str, str]
T = TypeVar("T")
_LOCAL = "file://"
_RETRIES = 6  # of requests to HDFS; buckets' clients repeat theirs
_HDFS = tuple(f"{scheme}://" for scheme in SCHEMES)


def create(url: str) -> pa.NativeFile:
    """What a new file is written to, until `finish`. Missing folders are made."""
    if not url.startswith(_LOCAL):
        return pa.BufferOutputStream()
    path = local_path(url)
    _make_folder(os.path.dirname(path))
    return pa.OSFile(path, "wb")


def finish(sink: pa.NativeFile, url: str, options: Options) -> None:
    """Makes a written file durable, and visible in a bucket or in HDFS."""
    if url.startswith(_HDFS):
        client, data = client_of(url, options), sink.getvalue().to_pybytes()
        patiently(lambda: client.create(path_of(url), data), _RETRIES)
        return
    if not url.startswith(_LOCAL):
        import obstore

        data = sink.getvalue().to_pybytes()
        _asked(lambda: obstore.put(*_place(url, options), data), options)
        return
    sink.close()
    path = local_path(url)
    sync(path)
    sync(os.path.dirname(path))


def remove(url: str, options: Options) -> None:
    """Removes a file, if that works; what stays is an orphan for VACUUM."""
    try:
        if url.startswith(_LOCAL):
            os.remove(local_path(url))
        elif url.startswith(_HDFS):
            client_of(url, options).delete(path_of(url))
        else:
            import obstore

            obstore.delete(*_place(url, options))
    except Exception:  # an orphan is harmless
        return


def open_file(url: str, options: Options) -> pa.NativeFile:
    """A file to read anywhere in. Raises FileNotFoundError."""
    if url.startswith(_LOCAL):
        return pa.OSFile(local_path(url), "rb")
    if url.startswith(_HDFS):
        client = client_of(url, options)
        return pa.BufferReader(patiently(lambda: client.read(path_of(url)), _RETRIES))
    import obstore

    return pa.BufferReader(
        _asked(lambda: obstore.get(*_place(url, options)).bytes().to_bytes(), options)
    )


def read_range(url: str, offset: int, length: int, options: Options) -> bytes:
    """Some of a file's bytes. Raises FileNotFoundError."""
    if url.startswith(_LOCAL):
        with open(local_path(url), "rb") as file:
            # What is asked for is set aside before it is read: never more than there is.
            length = min(length, os.fstat(file.fileno()).st_size - offset)
            file.seek(offset)
            return file.read(max(length, 0))
    if url.startswith(_HDFS):
        client = client_of(url, options)
        return patiently(lambda: client.read_range(path_of(url), offset, length), _RETRIES)
    import obstore

    return _asked(
        lambda: obstore.get_range(*_place(url, options), start=offset, length=length).to_bytes(),
        options,
    )


def _asked(call: Callable[[], T], options: Options) -> T:
    """What the store answers. Its errors, which Spark logs, are raised without credentials."""
    try:
        return call()
    except Exception as error:
        failure = error
    # Raised out here, so that the original text is nobody's __context__.
    text = str(failure).split("\n\nDebug source")[0]
    raise type(failure)(redacted(text, secrets_of(options)))


def local_path(url: str) -> str:
    """The path that a `file://` URL names."""
    return unquote(url.removeprefix(_LOCAL), errors="surrogateescape")


def _make_folder(path: str) -> None:
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    _make_folder(parent)
    os.makedirs(path, exist_ok=True)
    sync(parent)


def sync(path: str) -> None:
    """Returns once a local file, or a folder's list of files, would outlive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _place(url: str, options: Options) -> tuple[ObjectStore, str]:
    """The bucket's store and the object's key in it."""
    from obstore.store import AzureStore, GCSStore, S3Store

    parts = urlsplit(url)
    config = {
        name: value
        for name, value in options.items()
        if name != "max_retries" and not name.lower().startswith(OPTIONS_PREFIX)
    }
    key = unquote(parts.path.lstrip("/"))
    if parts.scheme == "s3":
        return S3Store(parts.netloc, config=config), key  # type: ignore[arg-type]
    if parts.scheme == "gs":
        return GCSStore(parts.netloc, config=config), key  # type: ignore[arg-type]
    container, _, host = parts.netloc.partition("@")
    config = account_options(host) | config
    return AzureStore(container, config=config), key  # type: ignore[arg-type]
