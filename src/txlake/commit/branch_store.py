"""The store of a table on a branch: the parent's log up to the base version, then the branch's own.

Owns where each file of a branch's log is. The layout is that of Delta's branching RFC
(protocol_rfcs/table-branching.md in delta-io/delta, pull request 7440): the commits of a branch are
numbered from the base version plus one, and are in `_delta_log/_branches/<branch id>/_delta_log`
below the table's root. Data files, deletion vectors and change data are the table's, wherever they
were written.

A reader that doesn't know the layout can't read a branch by taking the branch's folder for a table:
the versions up to the base aren't there, the relative paths of data files begin at the table's
root, and the Delta kernel takes the outer `_delta_log` in a path for the log's folder.

The RFC leaves open, and is decided here:

- Checkpoints, checksums, `_last_checkpoint`, `_sidecars` and `_staged_commits` of a branch are in
  its own `_delta_log`, as in any table. No file of a version up to the base is written there.
- A branch of a branch is in `_delta_log/_branches` of the table too. Its parent is known to the
  catalog alone.
- Versions before the base are the parent's, for time travel. They end where the branch's log
  begins after a clean-up that deleted versions of the branch.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from txlake.commit.parallel import begin
from txlake.errors import InvalidRequest
from txlake.ports import PutOutcome, Store, StoredObject
from txlake.protocol.file_names import (
    BRANCHES_FOLDER,
    LOG_FOLDER,
    SIDECAR_FOLDER,
    ClassicCheckpoint,
    MultiPartCheckpoint,
    V2Checkpoint,
    commit_path,
    listing_start,
    parse_name,
    version_of,
)

Value = TypeVar("Value")


def fork_version(store: Store) -> int | None:
    """Return the last version that a branch's log has in common with the line that it was made
    from; None for the store of a table's main line.
    """
    return store.base if isinstance(store, BranchStore) else None


class BranchStore:
    """`ports.Store` of a table as a branch has it; `url` is the table's.

    `store` is the parent's: the table's, or another branch's `BranchStore`. A file of the log is
    the parent's if its version is at most `base`, and such a file is read-only: writing it raises
    InvalidRequest, and `delete` ignores it, so that a clean-up of the branch's log leaves the
    parent's as it is. Later files and those without a version are the branch's. A sidecar that the
    branch doesn't have is read from the parent, since its checkpoints name it; `list` has the
    branch's sidecars only. The parent's files of later versions, its hint and its staged commits
    don't exist here.

    Files outside of the log are the table's, and can be written and deleted. `list("")` has all of
    them, those that only the parent or other branches need included, and the branch's log in the
    place of the table's. So a VACUUM that knows this branch's versions alone must not delete files.

    Paths below `_delta_log/_branches` are the table's, and can be used to remove a branch; `list`
    has them if it is of a folder there.

    A branch may begin with a version that hasn't been put into its parent's log yet. Where a commit
    up to the base is missing, `publish_parent` is called, which puts such commits there.
    """

    __slots__ = ("_folder", "_parent", "_publish_parent", "base")

    def __init__(
        self,
        store: Store,
        branch_id: str,
        base: int,
        publish_parent: Callable[[], None] = lambda: None,
    ) -> None:
        if not branch_id or "/" in branch_id or branch_id in {".", ".."}:
            raise InvalidRequest(
                f"{store.url}: expected a branch's id to be the name of a folder, found "
                f"{branch_id!r}; use the id that the catalog gave to the branch"
            )
        if base < 0:
            raise InvalidRequest(
                f"{store.url}: expected a branch to begin at a version from 0 on, found {base}; "
                "create the branch when the table has a version"
            )
        self._parent = store
        self._folder = f"{BRANCHES_FOLDER}/{branch_id}"
        self._publish_parent = publish_parent
        self.base = base

    @property
    def url(self) -> str:
        """The table's URL."""
        return self._parent.url

    @property
    def excludes_late_writes(self) -> bool:
        return self._parent.excludes_late_writes

    def get(self, path: str) -> bytes:
        """Return the file's bytes. Raises FileNotFoundError."""
        return self._read(path, self._parent.get)

    def get_range(self, path: str, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset`. Raises FileNotFoundError."""
        return self._read(path, lambda place: self._parent.get_range(place, offset, length))

    def _read(self, path: str, read: Callable[[str], Value]) -> Value:
        """Read a file from its place; a sidecar that isn't there from the parent's."""
        try:
            return read(self._place(path))
        except FileNotFoundError:
            if self._is_inherited_commit(path):
                self._publish_parent()
            elif not path.startswith(f"{SIDECAR_FOLDER}/"):
                raise
            return read(path)

    def head(self, path: str) -> StoredObject | None:
        """Return the file's size and time; None if it doesn't exist for this branch."""
        found = self._parent.head(self._place(path))
        if found is None and path.startswith(f"{SIDECAR_FOLDER}/"):
            return self._parent.head(path)
        if found is None and self._is_inherited_commit(path):
            self._publish_parent()
            return self._parent.head(path)
        return None if found is None else _at(path, found)

    def list(
        self, prefix: str, start_after: str | None = None, before: str | None = None
    ) -> Iterator[StoredObject]:
        """Return the files below the folder by path, as the class says.

        In a store over a network the parent's log and the branch's are listed at the same time; the
        parent's isn't if `start_after` is beyond the base.
        """
        folder = prefix.rstrip("/")
        if folder == LOG_FOLDER:
            return self._list_log(start_after, before)
        if folder:
            return self._list_place(folder, start_after, before)
        outside = (
            item
            for item in self._parent.list("", start_after, before)
            if not item.path.startswith(f"{LOG_FOLDER}/")
        )
        return heapq.merge(outside, self._list_log(start_after, before), key=_path)

    def _list_place(
        self, folder: str, start_after: str | None, before: str | None
    ) -> Iterator[StoredObject]:
        """Yield the files of a folder from its place, with their paths in this store."""
        place = self._place(folder)
        moved = place.removesuffix(folder)
        found = self._parent.list(
            place,
            None if start_after is None else moved + start_after,
            None if before is None else moved + before,
        )
        for item in found:
            path = item.path.removeprefix(moved)
            if not self._is_inherited(path):
                yield _at(path, item)

    def _list_log(self, start_after: str | None, before: str | None) -> Iterator[StoredObject]:
        """Return the files of the log by path."""
        list_own = partial(self._list_place, LOG_FOLDER, start_after, before)
        first = listing_start(self.base + 1)
        if start_after is not None and start_after >= first:
            return list_own()
        wait = begin(lambda: list(list_own()), store=self._parent)
        end = first if before is None else min(before, first)
        inherited = self._list_inherited(start_after, end)
        newest = commit_path(self.base)
        is_in_range = newest < end and (start_after is None or newest > start_after)
        if is_in_range and all(item.path != newest for item in inherited):
            self._publish_parent()
            inherited = self._list_inherited(start_after, end)
        own = wait()
        if self._is_cleaned_up(own):
            return iter(own)
        return heapq.merge(inherited, own, key=_path)

    def _list_inherited(self, start_after: str | None, before: str) -> Sequence[StoredObject]:
        """Return the files of the parent's log that are this branch's too."""
        listed = self._parent.list(LOG_FOLDER, start_after, before)
        return tuple(item for item in listed if self._is_inherited(item.path))

    def _is_cleaned_up(self, own: Iterable[StoredObject]) -> bool:
        """Return whether a clean-up deleted the branch's first versions, by the log's own files.

        It leaves a checkpoint to begin with. Without this, versions after the base would be taken
        for missing ones.
        """
        paths = {item.path for item in own}
        return commit_path(self.base + 1) not in paths and any(map(_is_checkpoint, paths))

    def put(self, path: str, data: bytes) -> None:
        """Write the file whole, replacing an existing one. Raises InvalidRequest for a file of the
        parent's log.
        """
        self._parent.put(self._writable(path), data)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """Create the file unless it exists. Raises InvalidRequest for a file of the parent's
        log.
        """
        return self._parent.put_if_absent(self._writable(path), data)

    def put_unsynced(self, path: str, data: bytes) -> None:
        """Create the file unless it exists, not durably. Raises InvalidRequest for a file of the
        parent's log.
        """
        self._parent.put_unsynced(self._writable(path), data)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete the files; those of the parent's log stay."""
        self._parent.delete(self._place(path) for path in paths if not self._is_inherited(path))

    def sweep(self, prefix: str, before_ms: int) -> None:
        """Delete the temporary files that killed writers left below the folder; of logs, below the
        branch's own unless `prefix` is the whole table.
        """
        self._parent.sweep(self._place(prefix), before_ms)

    def ensure_safe(self) -> None:
        """Prove that the table's store refuses to overwrite. Raises InvalidRequest."""
        self._parent.ensure_safe()

    def at(self, path: str) -> Store:
        """Return the store of a folder below the table that isn't its log's; this one for ''.

        Raises InvalidRequest for a folder of the log.
        """
        folder = path.rstrip("/")
        if not folder:
            return self
        if _is_in_log(folder):
            raise InvalidRequest(
                f"{self.url}: a branch's {folder} isn't one folder: expected a folder outside of "
                f"{LOG_FOLDER}; use the branch's store"
            )
        return self._parent.at(folder)

    def __repr__(self) -> str:
        return f"BranchStore({self._parent!r}, {self._folder!r}, base={self.base})"

    def _place(self, path: str) -> str:
        """Return where the parent's store has a file or folder."""
        if not _is_in_log(path) or self._is_inherited(path) or _is_of_branches(path):
            return path
        return f"{self._folder}/{path}"

    def _writable(self, path: str) -> str:
        """Return where the parent's store gets a file. Raises InvalidRequest for a file of the
        parent's log.
        """
        if self._is_inherited(path):
            raise InvalidRequest(
                f"{self.url}: {path} can't be written on a branch: its own versions begin after "
                f"{self.base}, and earlier files are its parent's; write it without the branch"
            )
        return self._place(path)

    def _is_inherited(self, path: str) -> bool:
        """Return whether a file is the parent's: of the log, and of a version up to the base."""
        return _is_in_log(path) and 0 <= version_of(path) <= self.base

    def _is_inherited_commit(self, path: str) -> bool:
        return self._is_inherited(path) and path == commit_path(version_of(path))


def _is_in_log(path: str) -> bool:
    """Return whether a path is the log's folder, or below it."""
    return path == LOG_FOLDER or path.startswith(f"{LOG_FOLDER}/")


def _is_of_branches(path: str) -> bool:
    """Return whether a path is the folder of the table's branches, or below it."""
    return path == BRANCHES_FOLDER or path.startswith(f"{BRANCHES_FOLDER}/")


def _is_checkpoint(path: str) -> bool:
    return isinstance(parse_name(path), ClassicCheckpoint | MultiPartCheckpoint | V2Checkpoint)


def _at(path: str, found: StoredObject) -> StoredObject:
    """Return the object under another path."""
    return StoredObject(path, found.size_bytes, found.modified_ms)


def _path(item: StoredObject) -> str:
    return item.path
