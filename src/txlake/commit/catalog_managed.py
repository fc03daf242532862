"""The log of a catalog table as its ledger defines it.

Owns the log's part of a table's store, filtered by the ledger: files beyond the head don't exist,
and ratified commits do, published or not. Source: docs/internals/catalog.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from txlake.commit.parallel import is_far
from txlake.commit.publication import commit_content, publish_pending
from txlake.errors import CorruptTable, Evidence, MetadataChangedException
from txlake.log.replay import commit_info_of
from txlake.ports import Head, Ledger, Store, StoredObject, TableCommit
from txlake.protocol.file_names import (
    LOG_FOLDER,
    ClassicCheckpoint,
    CommitFile,
    MultiPartCheckpoint,
    V2Checkpoint,
    commit_path,
    parse_name,
    version_of,
)

_LOOKS = 4
# For so long a commit's publication is left to the process that ratified it.
_PUBLISHED_MS_MAX = 5_000


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """The ledger that ratifies a table's versions, and the table's id there."""

    ledger: Ledger
    table_id: str


def came_later(catalog_table: CatalogTable, table: str, sequence: int) -> MetadataChangedException:
    """Return the conflict with a table that was created after the instant that is read."""
    head = catalog_table.ledger.head(catalog_table.table_id)
    version = -1 if head is None else head.version
    advice = "Run the transaction again: it then reads an instant at which the table is there."
    evidence = Evidence(
        table=table,
        read_version=-1,
        winning_version=version,
        rule=came_later.__name__,
        advice=advice,
    )
    return MetadataChangedException(
        f"{table}: this transaction reads the lake as of instant {sequence}; the table was created "
        f"or attached after that, and is at version {version} now (rule {came_later.__name__}; a "
        f"plain retry can succeed). {advice}",
        evidence,
    )


class LogFiles(Protocol):
    """The files of a log, as `ports.Store` has them."""

    @property
    def url(self) -> str:
        """The table's URL."""
        ...

    def get(self, path: str) -> bytes:
        """Return the file's bytes. Raises FileNotFoundError."""
        ...

    def get_range(self, path: str, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset`. Raises FileNotFoundError."""
        ...

    def head(self, path: str) -> StoredObject | None:
        """Return the file's size and time, or None when there is none."""
        ...

    def list(
        self, prefix: str, start_after: str | None = None, before: str | None = None
    ) -> Iterator[StoredObject]:
        """Return the files below a folder, by path, after `start_after` and before `before`."""
        ...


class CatalogManagedFiles:
    """LogFiles of a catalog table, as of the head that the ledger returned last.

    A log that is ahead of its ledger is refused: the ledger was restored from a backup, or another
    writer bypassed it.

    Unpublished commits that the ledger returns are published; their bytes are read from the ledger
    if the store refuses that, or if `is_committing` returns that a thread of this process is about
    to publish. Thread-safe: the cached head is replaced as a whole.
    """

    def __init__(
        self,
        store: Store,
        catalog_table: CatalogTable,
        table: str,
        is_committing: Callable[[], bool],
        monotonic_ms: Callable[[], float],
    ) -> None:
        self._store = store
        self._catalog_table = catalog_table
        self._table = table
        self._is_committing = is_committing
        self._monotonic_ms = monotonic_ms
        # When this object met the oldest unpublished version, by its number.
        self._met_ms: dict[int, float] = {}
        self._head: Head | None = None
        self._head_lock = threading.Lock()

    @property
    def url(self) -> str:
        """The table's URL."""
        return self._store.url

    def refresh(self, read_version: int | None = None) -> Head | None:
        """Return the table's head, newly requested from the ledger; None if not in the catalog.

        `read_version`: the newest version that the caller has. If the head is later, the caller
        lists the log next, which finds versions beyond the head too.

        Publishes the commits that are pending, as the class says. Raises CorruptTable when a file
        of the log isn't what was ratified, or has a version that wasn't ratified, and Unavailable.
        """
        newest = -1 if self._head is None else self._head.version
        head = self._request_head()
        # What is beyond the head was ratified since it was asked for, or never.
        for _ in range(_LOOKS):
            if head is None:
                break
            is_listed_next = read_version is not None and head.version > read_version
            beyond = newest if is_listed_next else max(newest, self._newest_from(head.version))
            if beyond <= head.version:
                break
            head = self._request_head()
            if head is not None and head.version < beyond:
                raise self._log_ahead_error(head, beyond)
        return self._adopt(head)

    def _adopt(self, head: Head | None) -> Head | None:
        """Cache a head, unless a newer one is cached, and return the cached one."""
        with self._head_lock:
            known = self._head
            if head is not None and known is not None and known.version > head.version:
                return known  # a thread that asked later was answered sooner
            self._head = head
        return head

    def use_known(self) -> Head | None:
        """Return the table's head as this process last saw it in the ledger.

        The caller lists the log next. Nothing is published: pending commits are read from the
        ledger, and left to the process that ratified them. None if they have been pending for long,
        or the store is no network's: the caller has to `refresh`, which publishes them. None also
        for a table that isn't in the catalog.
        """
        head = self._catalog_table.ledger.known_head(self._catalog_table.table_id)
        if head is None or (head.pending and not self._is_left_to_its_writer(head)):
            return None
        return self._adopt(head)

    def _is_left_to_its_writer(self, head: Head) -> bool:
        """Return whether the process that ratified the pending commits may still publish them."""
        oldest, now_ms = head.pending[0].version, self._monotonic_ms()
        self._met_ms = {oldest: self._met_ms.get(oldest, now_ms)}
        return is_far(self._store) and now_ms - self._met_ms[oldest] < _PUBLISHED_MS_MAX

    def _request_head(self) -> Head | None:
        """Return the head by one request; None if the table isn't in the catalog. Publish what is
        pending, unless a thread of this process is committing.
        """
        ledger, table_id = self._catalog_table.ledger, self._catalog_table.table_id
        if self._is_committing():
            return ledger.head(table_id)
        return publish_pending(self._store, ledger, table_id, table=self._table)

    def _newest_from(self, version: int) -> int:
        """Return the version after this one if the log has it, else this one."""
        return version if self._store.head(commit_path(version + 1)) is None else version + 1

    def _log_ahead_error(self, head: Head, version: int) -> CorruptTable:
        """Return the error for a version in the log that the catalog didn't ratify."""
        return CorruptTable(
            f"{self._table}: the lake's catalog has it at version {head.version}, and there is "
            f"{commit_path(version)} in its log, which that catalog didn't ratify: the catalog was "
            "restored from a backup, or another writer went past it. Nothing was changed; stop "
            "other writers, then lake.recover() brings the catalog up to the log"
        )

    def get(self, path: str) -> bytes:
        """Return the file's bytes; from the ledger for an unpublished ratified commit.

        Raises FileNotFoundError.
        """
        self._require(path)
        commit = self._pending(path)
        # Until it is published, a file at its version may be another writer's.
        return self._store.get(path) if commit is None else commit_content(self._store, commit)

    def get_range(self, path: str, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset`; from the ledger for an unpublished ratified commit.

        Raises FileNotFoundError.
        """
        self._require(path)
        if self._pending(path) is None:
            return self._store.get_range(path, offset, length)
        return self.get(path)[offset : offset + length]

    def head(self, path: str) -> StoredObject | None:
        """Return the file's size and time; for an unpublished commit, those of its content. None if
        it doesn't exist, or belongs to a version beyond the head.
        """
        if not self._is_there(path):
            return None
        found = self._store.head(path)
        if found is not None:
            return found
        commit = self._pending(path)
        return None if commit is None else self._unpublished(commit)

    def list(
        self, prefix: str, start_after: str | None = None, before: str | None = None
    ) -> Iterator[StoredObject]:
        """Return the files up to the head by path, as `visible` those of the store's listing."""
        if self._head is None:
            self.refresh()
        listed = list(self._store.list(prefix, start_after, before))
        return self.visible(prefix, listed, start_after, before)

    def visible(
        self,
        prefix: str,
        listed: Sequence[StoredObject],
        start_after: str | None = None,
        before: str | None = None,
    ) -> Iterator[StoredObject]:
        """Return those files of the store's folder that are up to the head, by path, and the
        unpublished commits; `start_after` and `before` say which part of the folder was listed.

        The head was requested before they were listed. Raises CorruptTable if the log has a version
        beyond it, or lacks the newest published one.
        """
        if prefix == LOG_FOLDER:
            self._check_end(max((_committed_version(item.path) for item in listed), default=-1))
        found = {item.path: item for item in listed if version_of(item.path) <= self._version}
        if prefix == LOG_FOLDER and self._head is not None:
            for commit in self._head.pending:
                path = commit_path(commit.version)
                is_in_range = path > (start_after or "") and (before is None or path < before)
                if path not in found and is_in_range:
                    found[path] = self._unpublished(commit)
        return iter([found[path] for path in sorted(found)])

    def _check_end(self, newest: int) -> None:
        """Raise CorruptTable if a listing ends beyond the ledger's head, which is requested again
        first, or if the newest published commit's file is missing.

        `newest` is the listing's newest version, -1 if it has none. Unpublished commits may be
        missing in the listing.
        """
        if newest > self._version:
            head = self.refresh()
            if head is not None and newest > head.version:
                raise self._log_ahead_error(head, newest)
        head = self._head
        if head is None:
            return
        published = head.version - len(head.pending)
        if newest < published and self._store.head(commit_path(published)) is None:
            raise CorruptTable(
                f"{self._table}: the lake's catalog has published version {published}, and "
                f"{commit_path(published)} isn't there: the log was restored from a backup, or its "
                "files were removed. Restore the missing files; where they are lost, "
                "lake.recover() makes the log's newest version the table's"
            )

    @property
    def _version(self) -> int:
        return -1 if self._head is None else self._head.version

    def _is_there(self, path: str) -> bool:
        """Return whether a file's version is at most the head's, which is requested again for a
        later one.
        """
        version = version_of(path)
        if version > self._version:
            self.refresh()
        return version <= self._version

    def _require(self, path: str) -> None:
        if not self._is_there(path):
            raise FileNotFoundError(path)

    def _pending(self, path: str) -> TableCommit | None:
        pending = () if self._head is None else self._head.pending
        return next((one for one in pending if commit_path(one.version) == path), None)

    def _unpublished(self, commit: TableCommit) -> StoredObject:
        """Return the size of an unpublished commit, and its commitInfo's time; 0 if it has none."""
        data = commit_content(self._store, commit)
        path = commit_path(commit.version)
        info = commit_info_of(data, file=f"{self._table}: {path}")
        return StoredObject(path, len(data), (info and info.number("timestamp")) or 0)


def _committed_version(path: str) -> int:
    """Return the version of a commit or checkpoint file; -1 for other files."""
    match parse_name(path):
        case (
            CommitFile(version)
            | ClassicCheckpoint(version)
            | MultiPartCheckpoint(version)
            | V2Checkpoint(version)
        ):
            return version
        case _:
            return -1
