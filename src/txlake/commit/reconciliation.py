"""Log reconciliation: a catalog table's log and its catalog are made to agree again.

Published versions stay: versions that the catalog doesn't know are adopted. If a version has both a
ratified commit and another commit's file, the ratified commit wins, unless that file is txlake's
own: then it was published for a catalog that knew more than this one. The losing commit is moved
into a folder of the log, and its version becomes an empty commit: no version number is used twice,
so that a request to the store that arrives late, or a recovery that was suspended, destroys no
later commit. Source: docs/internals/catalog.md, "Recovery".
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from txlake.commit.commit_info import ENGINE
from txlake.commit.in_commit_time import is_enabled
from txlake.commit.publication import commit_content, made_by_txlake, put_ratified
from txlake.commit.table_log import TableLog
from txlake.errors import CorruptTable, InvalidRequest, Unavailable, UnsupportedFeature
from txlake.log.replay import commit_info_of
from txlake.log.snapshot import Snapshot
from txlake.ports import LoggedVersion, PutOutcome, Store, TableCommit
from txlake.protocol.actions import CommitInfo, encode_actions
from txlake.protocol.file_names import (
    LAST_CHECKPOINT_PATH,
    LOG_FOLDER,
    VERSIONS_END,
    Checksum,
    ClassicCheckpoint,
    CommitFile,
    Compaction,
    MultiPartCheckpoint,
    V2Checkpoint,
    commit_path,
    listing_start,
    parse_name,
)

ASIDE_FOLDER = f"{LOG_FOLDER}/_set_aside"
RECOVER = "RECOVER"
"""The operation, in a table's history, of a version whose commit was set aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReconciliation:
    """The result: log and catalog agree once the catalog has recorded it.

    Attributes:
        kept: the newest version of the catalog that stays.
        found: later versions, which the catalog has to record.
        summary: what was done, a sentence each.
    """

    kept: int
    found: tuple[LoggedVersion, ...] = ()
    summary: tuple[str, ...] = ()

    @property
    def newest(self) -> int:
        """The table's newest version afterwards."""
        return self.found[-1].version if self.found else self.kept


@dataclass(slots=True)
class _LogFiles:
    """The commits in a log from a version on, and the newest checkpoint."""

    store: Store
    versions: list[int] = field(default_factory=list)
    newest_checkpoint: int = -1

    @classmethod
    def of(cls, store: Store, from_version: int) -> _LogFiles:
        """Return the commits of a log from a version on, without trust in the listing alone.

        Versions that it lacks are looked up: gaps, and what follows its newest.
        """
        found = cls(store)
        listed: set[int] = set()
        for stored in store.list(LOG_FOLDER, listing_start(from_version), VERSIONS_END):
            match parse_name(stored.path):
                case CommitFile(version):
                    listed.add(version)
                case (
                    ClassicCheckpoint(version)
                    | MultiPartCheckpoint(version)
                    | V2Checkpoint(version)
                ):
                    found.newest_checkpoint = max(found.newest_checkpoint, version)
                case _:
                    pass
        # A listing may not know the newest files yet, or one of them.
        oldest = max(from_version, 0)
        version = max([oldest - 1, found.newest_checkpoint, *listed]) + 1
        gaps = [one for one in range(oldest, version) if one not in listed]
        listed.update(one for one in gaps if store.head(commit_path(one)) is not None)
        while store.head(commit_path(version)) is not None:
            listed.add(version)
            version += 1
        found.versions = sorted(listed)
        return found

    @property
    def newest(self) -> int:
        return max([*self.versions, self.newest_checkpoint])

    def bytes_at(self, version: int) -> bytes | None:
        return self.store.get(commit_path(version)) if version in self.versions else None


def newest_in_log(store: Store, published: int) -> int:
    """Return a log's newest version, of a commit or a checkpoint; versions up to `published` exist.

    Only versions from `published` on are looked for; -1, or the version before it, if there is
    none.
    """
    return _LogFiles.of(store, published).newest


def differs_from_catalog(
    store: Store,
    head: int,
    published: int,
    pending: Sequence[TableCommit],
    *,
    newest: int | None = None,
) -> bool:
    """Return whether a table's log has other versions than its catalog, or foreign commits.

    `pending` are the commits that may not be published yet; that isn't a difference. `newest`: the
    log's newest version before the catalog was read, where others may commit meanwhile. Raises
    CorruptTable when there is no log at all, so that nothing can be reconciled.
    """
    files = _LogFiles.of(store, published)
    _require_log(store, files, published)
    if (files.newest if newest is None else newest) > head or files.newest < published:
        return True
    return next(_conflicting_commits(files, pending), None) is not None


def reconcile_log(
    log: TableLog,
    head: int,
    published: int,
    pending: Sequence[TableCommit],
    check_exclusive: Callable[[], None],
) -> LogReconciliation:
    """Bring a table's log into a form that its catalog can adopt.

    `log` reads the table's folder without a catalog. No other process may write the table: before a
    file is overwritten or deleted `check_exclusive` is called, which raises otherwise. An
    interrupted reconciliation is repeated from the beginning.

    Raises CorruptTable when there is no log at all, Unavailable when the store can't be reached,
    and FileNotFoundError when a ratified commit's bytes are nowhere.
    """
    return _LogReconciler(log, head, published, pending, check_exclusive).run()


def newest_readable(log: TableLog) -> int | None:
    """Return the newest readable version of a log whose catalog is lost.

    Damaged commits at the log's end are skipped. None for a log without versions, with damage
    elsewhere, or with a checkpoint newer than any commit, which was left behind when a dropped
    table's folder was removed. Raises Unavailable where the store doesn't list a version yet.
    """
    files = _LogFiles.of(log.store, 0)
    if not files.versions or files.newest_checkpoint > files.versions[-1]:
        return None
    _require_listed(log, files.versions)
    for version in reversed(files.versions):
        if _is_readable(log, version, (version,)):
            return version
        if not _is_readable(log, version - 1, ()) and _is_valid_commit(log, version):
            return None
    return None


def set_aside_after(
    log: TableLog, newest: int, check_exclusive: Callable[[], None]
) -> LogReconciliation:
    """Set aside the commits after `newest`, the version that `newest_readable` returned.

    `check_exclusive` is called before a file is overwritten or deleted, and raises if another
    process may write the table.
    """
    return _LogReconciler(log, newest, newest, (), check_exclusive).set_aside_after(newest)


class _LogReconciler:
    def __init__(
        self,
        log: TableLog,
        head: int,
        published: int,
        pending: Sequence[TableCommit],
        check_exclusive: Callable[[], None],
    ) -> None:
        self._log = log
        self._store = log.store
        self._head = head
        self._published = published
        self._pending = pending
        self._check_exclusive = check_exclusive
        self._summary: list[str] = []

    def run(self) -> LogReconciliation:
        """Carry out `reconcile_log`."""
        files = _LogFiles.of(self._store, self._published)
        _require_log(self._store, files, self._published)
        if files.newest < self._published:
            return self._adopt_restored_log()
        kept = self._head
        contested = next(_conflicting_commits(files, self._pending), None)
        if contested is not None:
            commit, found = contested
            if made_by_txlake(found):
                kept = commit.version - 1
                self._discard_ratified(commit.version)
            else:
                self._replace_foreign_commits(files, commit.version)
        for commit in self._pending:
            if commit.version <= kept:
                put_ratified(self._store, commit, self._log.name)
        self._log.forget()
        return LogReconciliation(
            kept=kept, found=self._adopt_unknown_versions(kept), summary=tuple(self._summary)
        )

    def _adopt_restored_log(self) -> LogReconciliation:
        """Follow a log that was restored from a backup: its newest version becomes the table's.

        Ratified commits that weren't published are set aside.
        """
        newest = _LogFiles.of(self._store, 0).newest
        self._discard_ratified(self._published + 1)
        self._report(
            f"{_versions_text(range(newest + 1, self._published + 1))}: gone with the log's files; "
            f"the table is at version {newest} again"
        )
        return LogReconciliation(kept=newest, summary=tuple(self._summary))

    def _discard_ratified(self, first: int) -> None:
        """Put ratified commits from a version on into the folder of commits set aside.

        A commit whose bytes are gone is only reported.
        """
        for commit in self._pending:
            if commit.version < first:
                continue
            try:
                kept = self._set_aside(commit.version, commit_content(self._store, commit))
            except FileNotFoundError:
                kept = "nowhere: its staged file is gone"
            self._report(
                f"version {commit.version} as this catalog ratified it ({commit.operation}) was "
                f"never published, and isn't part of the table; its actions are in {kept}: look "
                "whether its transaction has to be run again"
            )

    def _replace_foreign_commits(self, files: _LogFiles, first: int) -> None:
        """Set aside the log's commits from a version on, and publish the ratified commits there.

        The first version is replaced last: as long as it holds the foreign commit, a repeated
        recovery knows that later ones were built on it.
        """
        self._remove_derived(first)
        ratified = {one.version: commit_content(self._store, one) for one in self._pending}
        before = _commit_time_of(ratified[self._head])
        for version in sorted((one for one in files.versions if one >= first), reverse=True):
            content = ratified.get(version)
            if content is not None:
                kept = self._replace_commit(version, content)
                self._report_if_set_aside(
                    kept,
                    f"{commit_path(version)} wasn't the commit that the lake ratified: it is in "
                    f"{kept} now, and the ratified commit is published",
                )
            else:
                kept = self._put_empty_commit(version, self._head, before)
                self._report_if_set_aside(
                    kept,
                    f"version {version} was no commit of the lake's: it is in {kept} now, and the "
                    "version holds nothing",
                )

    def _remove_derived(self, first: int) -> None:
        """Delete checkpoints, checksums and compactions from a version on, and the hint.

        They describe states that were never the table's.
        """
        derived = [LAST_CHECKPOINT_PATH]
        for stored in self._store.list(LOG_FOLDER, before=VERSIONS_END):
            match parse_name(stored.path):
                case (
                    ClassicCheckpoint(version)
                    | MultiPartCheckpoint(version)
                    | V2Checkpoint(version)
                    | Checksum(version)
                    | Compaction(_, version)
                ) if version >= first:
                    derived.append(stored.path)
                case _:
                    pass
        self._remove(derived)

    def _remove(self, paths: Sequence[str]) -> None:
        self._check_exclusive()
        self._store.delete(paths)

    def _put_empty_commit(self, version: int, base: int, before: _CommitTime) -> str | None:
        """Replace a version by an empty commit with a time after that of version `base`.

        Returns where the old one was moved, None if it is that empty commit already.
        """
        return self._replace_commit(
            version, _empty_commit(self._store.url, version, version - base, before)
        )

    def _replace_commit(self, version: int, content: bytes) -> str | None:
        """Replace a version's commit; return where the old one was moved, None if it has this
        content.
        """
        path = commit_path(version)
        data = self._store.get(path)
        if data == content:
            return None
        kept = self._set_aside(version, data)
        self._check_exclusive()
        self._store.put(path, content)
        return kept

    def _set_aside(self, version: int, data: bytes) -> str:
        """Put the bytes into the folder of commits set aside; return the path."""
        # No reader takes a file with such a name for a commit.
        path = f"{ASIDE_FOLDER}/{version:020d}.{self._log.system.new_id()}.aside"
        self._store.put(path, data)
        return path

    def _adopt_unknown_versions(self, kept: int) -> tuple[LoggedVersion, ...]:
        """Return the versions after those of the catalog; the unreadable ones at the end become
        empty commits.

        Raises CorruptTable when the catalog's newest version can't be read either.
        """
        files = _LogFiles.of(self._store, kept + 1)
        versions = [version for version in files.versions if version > kept]
        if not versions:
            return ()
        _require_listed(self._log, versions)
        sound = self._readable_prefix(versions)
        if not sound and not _is_readable(self._log, kept, ()):
            raise CorruptTable(
                f"{self._log.name}: version {kept}, up to which the catalog knows the table, can't "
                f"be read, so that versions {versions[0]} to {versions[-1]} can't be judged; "
                "restore the log's files, then run lake.recover() again"
            )
        found = [self._found_commit(version) for version in sound]
        if found:
            self._make_durable(found[-1].version)
            self._report(
                f"{_versions_text(sound)}, which the catalog didn't have, "
                f"{'is' if len(sound) == 1 else 'are'} in it now: "
                f"{', '.join(sorted({one.operation or 'an unnamed operation' for one in found}))}"
            )
        return (*found, *self._empty_unreadable(versions[len(sound) :]))

    def _make_durable(self, version: int) -> None:
        """Make a log's commits up to a version survive a power cut. Raises Unavailable if that
        isn't certain.

        Their writer may have died, or been suspended, before it did so.
        """
        path = commit_path(version)
        if self._store.put_if_absent(path, self._store.get(path)) is PutOutcome.UNKNOWN:
            raise Unavailable(f"{self._log.name}: {path} can't be made durable; try again")

    def set_aside_after(self, newest: int) -> LogReconciliation:
        """Replace the commits after `newest` by empty ones."""
        self._make_durable(newest)
        versions = _LogFiles.of(self._store, newest + 1).versions
        found = self._empty_unreadable([version for version in versions if version > newest])
        return LogReconciliation(kept=newest, found=found, summary=tuple(self._summary))

    def _empty_unreadable(self, versions: Sequence[int]) -> tuple[LoggedVersion, ...]:
        """Replace the unreadable versions at a log's end by empty commits, and return these
        versions.
        """
        if not versions:
            return ()
        base = versions[0] - 1
        before = _CommitTime.of(self._log.snapshot(base))
        self._remove_derived(versions[0])
        for version in reversed(versions):
            kept = self._put_empty_commit(version, base, before)
            self._report_if_set_aside(
                kept,
                f"version {version} can't be read as one: it is in {kept} now, and the version "
                "holds nothing",
            )
        return tuple(self._found_commit(version) for version in versions)

    def _readable_prefix(self, versions: Sequence[int]) -> Sequence[int]:
        """Return the longest prefix of the versions at whose last one the table can be read.

        In-commit timestamps have to increase in it. A version that needs an unknown table feature
        counts as readable.
        """
        if _is_readable(self._log, versions[-1], versions):
            return versions
        for count in range(len(versions) - 1, 0, -1):
            if _is_readable(self._log, versions[count - 1], versions[:count]):
                return versions[:count]
        return ()

    def _found_commit(self, version: int) -> LoggedVersion:
        """Return what the catalog records of a version."""
        info = self._log.commit_info(version)
        if info is None:
            return LoggedVersion(version)
        return LoggedVersion(version, info.text("txnId"), info.text("operation"))

    def _report(self, what: str) -> None:
        self._summary.append(f"{self._log.name}: {what}")

    def _report_if_set_aside(self, kept: str | None, what: str) -> None:
        """Add a sentence to the summary if a commit was set aside."""
        if kept is not None:
            self._report(what)


@dataclass(frozen=True, slots=True)
class _CommitTime:
    """A version's time in ms since the epoch; `is_carried`: it is an in-commit timestamp."""

    time_ms: int
    is_carried: bool

    @classmethod
    def of(cls, snapshot: Snapshot) -> _CommitTime:
        summary = [snapshot.timestamp_ms, snapshot.in_commit_before_ms or 0]
        return cls(max(summary), is_enabled(snapshot.metadata.configuration))


def _commit_time_of(content: bytes) -> _CommitTime:
    """Return the time of a commit that txlake wrote."""
    info = commit_info_of(content, file="") or CommitInfo({})
    carried = info.in_commit_timestamp_ms
    return _CommitTime(carried or info.number("timestamp") or 0, carried is not None)


def _empty_commit(place: str, version: int, count: int, before: _CommitTime) -> bytes:
    """Return a commit without changes, `count` ms after another one.

    The bytes depend only on the arguments.
    """
    time_ms = before.time_ms + count
    values: dict[str, object] = {"inCommitTimestamp": time_ms} if before.is_carried else {}
    values |= {
        "timestamp": time_ms,
        "operation": RECOVER,
        "operationParameters": {},
        "isBlindAppend": True,
        "engineInfo": ENGINE,
        "txnId": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{place}/{commit_path(version)}")),
    }
    return encode_actions([CommitInfo(values)])


def _require_listed(log: TableLog, versions: Sequence[int]) -> None:
    """Raise Unavailable for a version that exists but isn't listed yet, and would seem damaged."""
    listed = log.listing(versions[0]).commits
    absent = next((version for version in versions if version not in listed), None)
    if absent is not None:
        raise Unavailable(
            f"{log.name}: {commit_path(absent)} is there, and the store doesn't list it; run "
            "lake.recover() again in a while"
        )


def _is_readable(log: TableLog, version: int, new: Sequence[int]) -> bool:
    """Return whether the table can be read at a version, and the new versions' times increase.

    True for an unknown table feature: a newer release can read it.
    """
    try:
        snapshot = log.snapshot(version)
        if not new or not is_enabled(snapshot.metadata.configuration):
            return True
        times = [_in_commit_time(log, one) for one in new]
    except UnsupportedFeature:
        return True  # for who has the feature
    except (CorruptTable, InvalidRequest):
        return False
    earlier = [_in_commit_time(log, new[0] - 1)] if new[0] > 0 else []
    if len(new) == 1:
        earlier.append(snapshot.in_commit_before_ms)
    before = max((time for time in earlier if time is not None), default=-1)
    known = [time for time in times if time is not None]
    return len(known) == len(times) and [before, *known] == sorted({before, *known})


def _in_commit_time(log: TableLog, version: int) -> int | None:
    """Return a version's in-commit timestamp; None if it has none, or its commit is gone."""
    try:
        info = log.commit_info(version)
    except FileNotFoundError:
        return None
    return None if info is None else info.in_commit_timestamp_ms


def _is_valid_commit(log: TableLog, version: int) -> bool:
    """Return whether a file of the log is a valid commit, whatever came before it."""
    try:
        return log.commit(version) is not None
    except CorruptTable:
        return False


def _require_log(store: Store, files: _LogFiles, published: int) -> None:
    """Raise CorruptTable if the log has no file of a version at all, though some were published."""
    if files.newest < published and _LogFiles.of(store, 0).newest < 0:
        raise CorruptTable(
            f"there is no log at {store.url} any more; put the folder back, or drop the table"
        )


def _conflicting_commits(
    files: _LogFiles, pending: Sequence[TableCommit]
) -> Iterator[tuple[TableCommit, bytes]]:
    """Yield the ratified commits whose versions have other bytes in the log, with these bytes."""
    for commit in pending:
        found = files.bytes_at(commit.version)
        if found is not None and found != commit_content(files.store, commit):
            yield commit, found


def _versions_text(versions: Sequence[int]) -> str:
    """Return the versions in words; they are consecutive."""
    if len(versions) == 1:
        return f"version {versions[0]}"
    return f"versions {versions[0]} to {versions[-1]}"
