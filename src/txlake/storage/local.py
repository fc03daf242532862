"""The store in a local folder, by the operating system's own calls.

Owns durability: a file under its final name is whole, and survives a power cut. obstore isn't used,
because it has no fsync and reserves some names with `#`.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import logging
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile

from txlake.errors import InvalidRequest, TxlakeError, Unavailable
from txlake.ports import PutOutcome, StoredObject
from txlake.storage.locations import StoreKind, StoreRoot, join_path, validate_path
from txlake.storage.proof import PROBE_FOLDER, Proof
from txlake.storage.temporary import is_temporary, temporary_name

_log = logging.getLogger(__name__)

_CREATE_ATTEMPTS_MAX = 5

_NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK}
_NOT_THERE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)

# What the caller can do about an error. Other errors may pass by themselves: `Unavailable`.
_ADVICE = {
    errno.ENOSPC: "free space on the disk and try again",
    errno.EDQUOT: "free space or raise the quota, and try again",
    errno.EROFS: "the file system is read-only: mount it writable or use another folder",
    errno.EACCES: "give this user the permission, or use another folder",
    errno.EPERM: "give this user the permission, or use another folder",
    errno.ENAMETOOLONG: "use a shorter path",
    errno.ENOTDIR: "a file stands where a folder is needed: use another folder",
    errno.EISDIR: "a folder stands where the file belongs: move it away",
    errno.ENOTEMPTY: "a folder stands where the file belongs: move it away",
    errno.EEXIST: "a file stands where a folder is needed: use another folder",
    errno.ELOOP: "symbolic links go in a circle: repair them",
    errno.EFBIG: "the file is larger than the file system takes",
    errno.EILSEQ: "the file system doesn't take this name",
    errno.EINVAL: "the file system doesn't take this name or operation",
}


class LocalStore:
    """`ports.Store` on a folder of this machine. Safe to use from many threads and after a fork.

    `looks_first`: a put-if-absent of a file that is there already is refused without an attempt;
    not in the self-test, which has to see that the attempt is refused.
    """

    __slots__ = ("_looks_first", "_proof", "_root", "_url")

    def __init__(self, place: StoreRoot, proof: Proof, *, looks_first: bool = True) -> None:
        self._root = place.folder
        self._url = place.url
        self._proof = proof
        self._looks_first = looks_first

    @property
    def url(self) -> str:
        return self._url

    @property
    def excludes_late_writes(self) -> bool:
        return True

    def get(self, path: str) -> bytes:
        """Return the file's bytes. Raises FileNotFoundError."""
        file = self._file(path)
        with _Reading(file), open(file, "rb") as stream:
            return stream.read()

    def get_range(self, path: str, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset`, fewer at the file's end. Raises
        FileNotFoundError.
        """
        file = self._file(path)
        with _Reading(file), open(file, "rb", buffering=0) as stream:
            parts: list[bytes] = []
            # pread allocates the whole length before it reads: never request more than there is.
            length = min(length, os.fstat(stream.fileno()).st_size - offset)
            while length > 0 and (part := os.pread(stream.fileno(), length, offset)):
                parts.append(part)
                offset += len(part)
                length -= len(part)
            return b"".join(parts)

    def head(self, path: str) -> StoredObject | None:
        """Return the file's size and time; None if it is missing or isn't a regular file."""
        file = self._file(path)
        with _Translating("read", file):
            try:
                return _stored(path, os.stat(file))
            except _NOT_THERE:
                return None

    def list(
        self, prefix: str, start_after: str | None = None, before: str | None = None
    ) -> Iterator[StoredObject]:
        """Yield the regular files below the folder `prefix` by path, without temporary files."""
        path = prefix.rstrip("/")
        folder = self._file(path) if path else self._root
        found = _listed(folder, path, start_after or "", frozenset())
        return takewhile(lambda each: before is None or each.path < before, found)

    def put(self, path: str, data: bytes) -> None:
        """Write the file whole, replacing an existing one, and sync it and its folder to
        the disk.
        """
        file = self._file(path)
        with _Translating("write", file), _temporary(file, data) as temporary:
            os.replace(temporary, file)
            sync_folder(os.path.dirname(file))

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """Create the file unless it exists, synced to the disk; UNKNOWN if its folder can't be
        synced.

        Raises InvalidRequest if the file system can't create a file without overwriting another.
        """
        file = self._file(path)
        with _Translating("write", file):
            # A lost commit, or one that another process published, needs no file of its own.
            if self._looks_first and os.path.isfile(file):
                return _synced(file, PutOutcome.EXISTS)
            with _temporary(file, data) as temporary:
                is_mine = _publish(temporary, file)
                if not is_mine and os.path.isdir(file):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
                return _synced(file, PutOutcome.CREATED if is_mine else PutOutcome.EXISTS)

    def put_unsynced(self, path: str, data: bytes) -> None:
        """Create the file unless it exists, without syncing it to the disk."""
        file = self._file(path)
        with _Translating("write", file), _temporary(file, data, is_synced=False) as temporary:
            _publish(temporary, file)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete the files, except folders, missing files, and files that a link puts outside the
        root.
        """
        outside = functools.cache(self._is_outside)
        for path in paths:
            file = self._file(path)
            if outside(os.path.dirname(file)):
                _log.warning("%s isn't deleted: a symbolic link leads out of %s", file, self._root)
                continue
            with _Translating("delete", file):
                try:
                    os.unlink(file)
                except _NOT_THERE:
                    continue
                except PermissionError:
                    if not os.path.isdir(file):  # what some systems raise for folders
                        raise

    def sweep(self, prefix: str, before_ms: int) -> None:
        """Delete the temporary files below `prefix`, at any depth, that are older than
        `before_ms`.
        """
        path = prefix.rstrip("/")
        folder = self._file(path) if path else self._root
        with _Translating("clean up", folder):
            for parent, _, names in os.walk(folder):
                for name in filter(is_temporary, names):
                    file = os.path.join(parent, name)
                    with suppress(*_NOT_THERE):
                        if os.stat(file).st_mtime_ns // 1_000_000 < before_ms:
                            os.unlink(file)

    def ensure_safe(self) -> None:
        """Test put-if-absent once per folder, and remove the probe's folder."""
        place = StoreRoot(StoreKind.LOCAL, "", self._root)
        if self._proof.ensure(LocalStore(place, self._proof, looks_first=False)):
            with suppress(OSError):
                os.rmdir(self._file(PROBE_FOLDER))  # only while no other process tries the store

    def at(self, path: str) -> LocalStore:
        """Return the store of the folder `path` below this one, with the same self-test; '' is this
        one.
        """
        folder = path.rstrip("/")
        return LocalStore(
            StoreRoot(StoreKind.LOCAL, "", self._file(folder) if folder else self._root),
            self._proof,
        )

    def __repr__(self) -> str:
        return f"LocalStore({self._url!r})"

    def _is_outside(self, folder: str) -> bool:
        """Return whether a symbolic link leads the folder out of the root."""
        root = os.path.realpath(self._root)
        return os.path.commonpath((root, os.path.realpath(folder))) != root

    def _file(self, path: str) -> str:
        return os.path.join(self._root, validate_path(path))


def translate_error(error: OSError, action: str, file: str) -> TxlakeError:
    """Return txlake's error for one of the operating system's, after a failed `action` on `file`.

    It is an InvalidRequest with advice if a repetition would fail too (no space, no permission),
    else Unavailable.
    """
    reason = error.strerror or str(error)
    if error.errno in _ADVICE:
        return InvalidRequest(f"can't {action} {file}: {reason}; {_ADVICE[error.errno]}")
    return Unavailable(f"can't {action} {file}: {reason}; try again when the disk answers")


class _Translating:
    """Translates the operating system's errors of a failed `action` on `file` into txlake's."""

    __slots__ = ("_action", "_file")

    def __init__(self, action: str, file: str) -> None:
        self._action = action
        self._file = file

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError):
            raise translate_error(error, self._action, self._file) from error


class _Reading(_Translating):
    """As `_Translating` for reading, but a missing file raises FileNotFoundError."""

    __slots__ = ()

    def __init__(self, file: str) -> None:
        super().__init__("read", file)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, _NOT_THERE):
            raise FileNotFoundError(errno.ENOENT, "no such file", self._file) from error
        super().__exit__(kind, error, trace)


def _stored(path: str, status: os.stat_result) -> StoredObject | None:
    """Return the entry of a regular file; None for anything else."""
    if not stat.S_ISREG(status.st_mode):
        return None
    return StoredObject(path, status.st_size, status.st_mtime_ns // 1_000_000)


def _listed(
    folder: str, path: str, start_after: str, above: frozenset[tuple[int, int]]
) -> Iterator[StoredObject]:
    """Yield the files below `folder`, whose path in the store is `path`, sorted by path.

    A folder sorts as its name with the slash, so that walking it in place keeps the whole order.
    `above` has the device and inode of the folders on the way down: a symbolic link back to one of
    them is not followed. A missing folder has no files.
    """
    with _Translating("list", folder):
        try:
            status = os.stat(folder)
            with os.scandir(folder) as found:
                entries = sorted(_after(found, path, start_after))
        except _NOT_THERE:
            return
    identity = (status.st_dev, status.st_ino)
    if identity in above:
        return
    for name in entries:
        below, place = join_path(path, name), os.path.join(folder, name)
        if name.endswith("/"):
            yield from _listed(place[:-1], below[:-1], start_after, above | {identity})
        elif not is_temporary(name):
            with _Translating("list", place):
                try:
                    found_file = _stored(below, os.stat(place))
                except _NOT_THERE:
                    continue  # deleted meanwhile, or a link to nothing
            if found_file is not None:
                yield found_file


def _after(found: Iterator[os.DirEntry[str]], path: str, start_after: str) -> Iterator[str]:
    """Yield the names of a folder's entries that may contain paths after `start_after`; those of
    folders end with a slash.

    A log has thousands of files before the requested ones.
    """
    above = f"{path}/" if path else ""
    for entry in found:
        below = above + entry.name
        if below > start_after:
            yield entry.name + "/" * entry.is_dir()
        elif entry.is_dir():
            within = f"{below}/"
            if within > start_after or start_after.startswith(within):
                yield f"{entry.name}/"


def _synced(file: str, outcome: PutOutcome) -> PutOutcome:
    """Return the outcome once the file's folder is on the disk, UNKNOWN if that fails.

    Also for another writer's file, which its writer may not have synced yet.
    """
    try:
        sync_folder(os.path.dirname(file))
    except OSError:
        return PutOutcome.UNKNOWN  # it is visible, but may not outlive a power cut
    return outcome


@contextmanager
def _temporary(file: str, data: bytes, *, is_synced: bool = True) -> Iterator[str]:
    """Create a hidden file with `data` beside `file`, yield its path, and delete it afterwards.

    Creates missing folders. With `is_synced` the data is on the disk when the path is yielded.
    Raises OSError.
    """
    temporary, descriptor = _create_beside(file)
    try:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if is_synced:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        yield temporary
    finally:
        with suppress(OSError):
            os.unlink(temporary)


def _create_beside(file: str) -> tuple[str, int]:
    """Create an empty temporary file in the folder of `file`, which is made if missing.

    Returns the temporary file's path and its open descriptor, which the caller closes. Raises
    OSError.
    """
    folder = os.path.dirname(file)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    for _ in range(_CREATE_ATTEMPTS_MAX):
        temporary = os.path.join(folder, temporary_name())
        try:
            return temporary, os.open(temporary, flags, 0o666)
        except FileNotFoundError:
            make_folders(folder)  # again when someone removed the empty folder meanwhile
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)


def make_folders(folder: str) -> None:
    """Create `folder` and its missing parents, each one durable. Raises OSError."""
    missing: list[str] = []
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for each in reversed(missing):
        try:
            os.mkdir(each)
        except FileExistsError:
            if not os.path.isdir(each):
                raise
        sync_folder(os.path.dirname(each))


def sync_folder(folder: str) -> None:
    """Make the folder's list of files survive a power cut. Raises OSError, but not where the file
    system can't sync folders at all.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems can't sync a folder and report so; nothing more can be done.
        if error.errno not in {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}:
            raise
    finally:
        os.close(descriptor)


def _publish(temporary: str, file: str) -> bool:
    """Give the finished `temporary` the name `file`; return False if that is taken.

    The temporary name may remain, for the caller to remove. Raises InvalidRequest if the file
    system has no way that never overwrites, else OSError.
    """
    try:
        os.link(temporary, file)
    except FileExistsError:
        # On NFS the reply of a successful link can get lost, and its repetition fails like this.
        return os.stat(temporary).st_nlink > 1
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return _rename_without_replacing(temporary, file)
    return True


def _rename_without_replacing(temporary: str, file: str) -> bool:
    """Rename `temporary` to `file` where there are no hard links; return False if `file` exists.

    Raises InvalidRequest if the file system has no such rename, OSError if it fails.
    """
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None or not sys.platform.startswith("linux"):
        raise _no_safe_name(file)
    at_folder, no_replace = -100, 1  # AT_FDCWD, RENAME_NOREPLACE of Linux
    if rename(at_folder, os.fsencode(temporary), at_folder, os.fsencode(file), no_replace) == 0:
        return True
    number = ctypes.get_errno()
    if number == errno.EEXIST:
        return False
    if number in {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}:
        raise _no_safe_name(file)
    raise OSError(number, os.strerror(number))


def _no_safe_name(file: str) -> InvalidRequest:
    """Return the error for a file system on which a new file may overwrite another."""
    return InvalidRequest(
        f"can't write {file}: the file system has neither hard links nor a rename that refuses to "
        "overwrite, so it is unsafe for commits; use a folder on another file system"
    )
