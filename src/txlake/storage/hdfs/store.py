"""The store in HDFS, over HTTP: no Java is needed in the driver.

Owns put-if-absent in HDFS: a hidden file is written whole, and then renamed, which fails if the
name is taken. The HTTP calls are `webhdfs`'s.

A client of the RPC protocol wasn't taken: hdfs-native 0.14 repeats every call, `rename` too, once
after an I/O error. A rename whose reply was lost would then fail because the name is taken, and a
commit that happened would be reported as another writer's. Its tokens come from the environment of
the process, not from a lake's options, and it can't pass gateways (HttpFS, Knox).
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar

from txlake.errors import InvalidRequest, TxlakeError, Unavailable
from txlake.ports import PutOutcome, StoredObject
from txlake.storage.hdfs.webhdfs import (
    FileStatus,
    WebHdfs,
    WebHdfsError,
    client_of,
    path_of,
    patiently,
)
from txlake.storage.locations import StoreKind, StoreRoot, join_path, join_url, validate_path
from txlake.storage.options import RETRIES, is_of_hdfs, retries_of
from txlake.storage.proof import PROBE_FOLDER, Proof
from txlake.storage.temporary import is_temporary, temporary_name

T = TypeVar("T")

_DELETERS = 8
_ADVICE = {
    "AccessControlException": "give this user (webhdfs_user) the permission, or use another folder",
    "DSQuotaExceededException": "free space or raise the folder's quota",
    "FileAlreadyExistsException": "a file or a folder stands in the way: move it away",
    "IllegalArgumentException": "correct the location or storage_options",
    "InvalidPathException": "HDFS takes no name with a colon: use another",
    "NSQuotaExceededException": "delete files or raise the folder's quota",
    "ParentNotDirectoryException": "a file or a folder stands in the way: move it away",
    "PathComponentTooLongException": "use a shorter name",
    "SecurityException": "give a delegation token in webhdfs_token, or a webhdfs_user",
    "UnsupportedOperationException": "use the name node's own WebHDFS instead of this gateway",
}
# For replies without Hadoop's name of the exception.
_ADVICE_ELSE = "correct the location or webhdfs_endpoint"
_ADVICE_BY_STATUS: dict[int | None, str] = {
    400: _ADVICE_ELSE,
    401: "give a delegation token in webhdfs_token, or a webhdfs_user",
    403: "give a delegation token in webhdfs_token, or a webhdfs_user",
    404: _ADVICE_ELSE,
    405: _ADVICE_ELSE,
    501: _ADVICE_ELSE,
}
_REASON_CHARACTERS_MAX = 600


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """One HDFS with its options; shared by all stores in it.

    Attributes:
        client: sends each call once.
        retries: how often a failed call is repeated, where that is harmless.
        proof: the self-test of put-if-absent, done once for the cluster.
    """

    client: WebHdfs
    retries: int
    proof: Proof = field(default_factory=Proof)


def cluster_at(base: str, storage_options: Mapping[str, str]) -> Cluster:
    """Return the HDFS at a URL like `hdfs://namenode`. Sends nothing.

    The options are those of `webhdfs.client_of`, and `max_retries`: how often a failed read or
    plain write is repeated; others are ignored.

    Raises:
        InvalidRequest: an option's value can't be used.
    """
    own = {
        name: value
        for name, value in storage_options.items()
        if name == RETRIES or is_of_hdfs(name)
    }
    return _cluster_at(base, tuple(sorted(own.items())))


class HdfsStore:
    """`ports.Store` on a folder of a `Cluster`. Safe to use from many threads and after a fork."""

    __slots__ = ("_cluster", "_place", "_root", "_url")

    def __init__(self, place: StoreRoot, cluster: Cluster) -> None:
        self._place = place
        self._url = place.url
        self._root = path_of(self._url).rstrip("/")
        self._cluster = cluster

    @property
    def url(self) -> str:
        return self._url

    @property
    def excludes_late_writes(self) -> bool:
        return False

    def get(self, path: str) -> bytes:
        """Return the file's bytes. Raises FileNotFoundError."""
        file = self._file(path)
        return self._read(path, lambda: self._client.read(file))

    def get_range(self, path: str, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset`, fewer at the file's end. Raises FileNotFoundError,
        except for a length of 0.
        """
        file = self._file(path)
        if length <= 0:
            return b""
        return self._read(path, lambda: self._client.read_range(file, offset, length))

    def head(self, path: str) -> StoredObject | None:
        """Return the file's size and time; None if it is missing or a folder."""
        file = self._file(path)
        try:
            found = self._patient("read", path, lambda: self._client.status(file))
        except FileNotFoundError:
            return None
        return None if found.is_folder else _stored(path, found)

    def list(
        self, prefix: str, start_after: str | None = None, before: str | None = None
    ) -> Iterator[StoredObject]:
        """Yield the files below the folder `prefix` by path, without temporary files."""
        path = prefix.rstrip("/")
        if path:
            validate_path(path)
        for each in self._listed(path, start_after or ""):
            if before is not None and each.path >= before:
                return
            if not is_temporary(each.path.rpartition("/")[2]):
                yield each

    def put(self, path: str, data: bytes) -> None:
        """Write a hidden file and rename it over an existing one; both are repeated if they
        fail.
        """
        file = self._file(path)

        def work() -> None:
            # The write is repeated too: a rename whose reply was lost has moved the file away.
            temporary = self._written_beside(file, data)
            try:
                self._client.rename(temporary, file, overwrite=True)
            except BaseException:
                self._drop(temporary)
                raise

        self._patient("write", path, work)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """Create the file unless it exists: a hidden file is written and renamed once.

        Returns UNKNOWN if the rename's reply was lost, or the name was refused but doesn't exist.
        """
        file = self._file(path)
        with _translating("write", self._url_of(path)):
            temporary = self._written_beside(file, data)
            try:
                created = self._client.rename(temporary, file)
            except WebHdfsError as error:
                self._drop(temporary)
                if error.may_be_done:
                    return PutOutcome.UNKNOWN
                raise
        if created:
            return PutOutcome.CREATED
        self._drop(temporary)
        # Gateways also answer so when the hidden file is gone because a request arrived twice.
        return PutOutcome.UNKNOWN if self.head(path) is None else PutOutcome.EXISTS

    def put_unsynced(self, path: str, data: bytes) -> None:
        self.put_if_absent(path, data)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete the files, 8 at a time. Skips missing files and folders that aren't empty."""
        files = [(path, self._file(path)) for path in paths]
        with ThreadPoolExecutor(_DELETERS) as pool:
            for _ in pool.map(lambda each: self._delete(*each), files):
                pass

    def sweep(self, prefix: str, before_ms: int) -> None:
        """Delete the temporary files below `prefix`, at any depth, that are older than
        `before_ms`.
        """
        for each in self._listed(prefix.rstrip("/"), ""):
            if is_temporary(each.path.rpartition("/")[2]) and each.modified_ms < before_ms:
                self._delete(each.path, self._file(each.path))

    def ensure_safe(self) -> None:
        """Test put-if-absent once per cluster, and remove the probe's folder."""
        if self._cluster.proof.ensure(self):
            with suppress(TxlakeError):
                self._delete(PROBE_FOLDER, self._file(PROBE_FOLDER))  # only while it is empty

    def at(self, path: str) -> HdfsStore:
        """Return the store of the folder `path`, or of this one for ''; both share the cluster."""
        below = path.rstrip("/")
        folder = (
            join_path(self._place.folder, validate_path(below)) if below else self._place.folder
        )
        return HdfsStore(StoreRoot(StoreKind.HDFS, self._place.base, folder), self._cluster)

    def __repr__(self) -> str:
        return f"HdfsStore({self._url!r})"

    @property
    def _client(self) -> WebHdfs:
        return self._cluster.client

    def _file(self, path: str) -> str:
        return f"{self._root}/{validate_path(path)}"

    def _url_of(self, path: str) -> str:
        return join_url(self._url, path)

    def _read(self, path: str, work: Callable[[], T]) -> T:
        """Return the result of a read, repeated if it fails. A FileNotFoundError names the file's
        URL.
        """
        try:
            return self._patient("read", path, work)
        except FileNotFoundError as error:
            missing = error
        url = self._url_of(path)
        raise FileNotFoundError(errno.ENOENT, "no such file", url) from missing

    def _delete(self, path: str, file: str) -> None:
        """Delete a file or an empty folder; a missing file and a folder with entries are no
        error.
        """

        def work() -> None:
            try:
                self._client.delete(file)
            except FileNotFoundError:
                return
            except WebHdfsError as error:
                if error.kind != "PathIsNotEmptyDirectoryException":
                    raise

        self._patient("delete", path, work)

    def _listed(self, path: str, start_after: str) -> Iterator[StoredObject]:
        """Yield the files below a folder sorted by path, hidden ones too; none if it is missing.

        A folder sorts as its name with the slash, so that walking it in place keeps the order.
        """
        folder = f"{self._root}/{path}" if path else self._root or "/"
        try:
            found = self._patient("list", path, lambda: self._client.list(folder))
        except FileNotFoundError:
            return
        entries = [(each.name + "/" * each.is_folder, each) for each in found if each.name]
        for name, each in sorted(entries, key=lambda entry: entry[0]):
            below = join_path(path, name)
            if each.is_folder:
                if below > start_after or start_after.startswith(below):
                    yield from self._listed(below[:-1], start_after)
            elif below > start_after:
                yield _stored(below, each)

    def _written_beside(self, file: str, data: bytes) -> str:
        """Write `data` to a new hidden file beside `file`, whose folder is created; return its
        path.

        Raises WebHdfsError, after an attempt to delete the hidden file.
        """
        temporary = f"{os.path.dirname(file)}/{temporary_name()}"
        try:
            self._client.create(temporary, data)
        except BaseException:
            self._drop(temporary)
            raise
        return temporary

    def _drop(self, temporary: str) -> None:
        """Delete a hidden file, which also cancels a rename of it that may still be on its way.
        Raises nothing if that fails.
        """
        with suppress(WebHdfsError, FileNotFoundError):
            self._client.delete(temporary)

    def _patient(self, action: str, path: str, work: Callable[[], T]) -> T:
        """Return the result of `work`, repeated if it fails, and translate WebHdfsError;
        FileNotFoundError passes.
        """
        with _translating(action, self._url_of(path)):
            return patiently(work, self._cluster.retries)


@functools.lru_cache(maxsize=64)
def _cluster_at(base: str, storage_options: tuple[tuple[str, str], ...]) -> Cluster:
    """Make the cluster at `base`. Calls with equal options share one result.

    Raises InvalidRequest if an option isn't known or its value can't be used.
    """
    options = dict(storage_options)
    retries = retries_of(options)
    try:
        return Cluster(client_of(base, options), retries)
    except ValueError as error:
        raise InvalidRequest(f"can't open {base}: {error}; correct storage_options") from error


@contextmanager
def _translating(action: str, url: str) -> Iterator[None]:
    """Raise txlake's error for a WebHdfsError of the block, after a failed `action` on `url`."""
    try:
        yield
    except WebHdfsError as error:
        raise translate_error(error, action, url) from error


def translate_error(error: WebHdfsError, action: str, url: str) -> TxlakeError:
    """Return txlake's error for one of WebHDFS's, after a failed `action` on the file at `url`.

    It is an InvalidRequest with advice for a refused request, else Unavailable.
    """
    begin = f"can't {action} {url}: {' '.join(str(error).split())[:_REASON_CHARACTERS_MAX]}"
    if error.is_refused:
        advice = _ADVICE[error.kind] if error.kind else _ADVICE_BY_STATUS[error.status]
        return InvalidRequest(f"{begin}; {advice}")
    return Unavailable(f"{begin}; try again when HDFS answers")


def _stored(path: str, found: FileStatus) -> StoredObject:
    return StoredObject(path, found.size_bytes, found.modified_ms)
