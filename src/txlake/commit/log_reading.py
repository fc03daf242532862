"""Reading the files that build a version, from a store, damage included.

Owns the I/O and what to do when a file is damaged: an older checkpoint, plain commits for a
compaction, else the error that names the file. What to read is `log.segment`'s choice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

from txlake.commit.catalog_managed import LogFiles
from txlake.commit.in_commit_time import is_enabled
from txlake.commit.requested_files import RequestedFiles
from txlake.errors import CorruptTable, InvalidRequest
from txlake.log.replay import (
    Rebuild,
    commit_info_of,
    replay,
    sidecars_of,
    state_of_checkpoint,
)
from txlake.log.segment import (
    Checkpoint,
    CheckpointName,
    Listing,
    LogEntry,
    Segment,
    choose_segment,
)
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Action, CommitInfo, Remove, decode_actions
from txlake.protocol.checkpoints import CheckpointRows, read_checkpoint, read_removes
from txlake.protocol.checksums import StateFacts, read_checksum
from txlake.protocol.features import check_readable
from txlake.protocol.file_names import (
    LOG_FOLDER,
    VERSIONS_END,
    Compaction,
    commit_path,
    parse_name,
    sidecar_path,
)
from txlake.protocol.paths import decode_path

_log = logging.getLogger(__name__)

_HEAD_BYTES = 64 * 1024
_CHECKSUM_BYTES_MAX = 256 * 1024


class LogReader:
    """Builds versions of one table from listings of its log. Keeps no state."""

    def __init__(self, files: LogFiles, name: str) -> None:
        self._files = files
        self._name = name

    def request(self, paths: Iterable[str]) -> RequestedFiles:
        """Return the log's files with requests for some of them, for `load` or `replayed`."""
        return RequestedFiles(self._files, paths)

    def load(
        self,
        listing: Listing,
        version: int | None,
        damaged: frozenset[CheckpointName] = frozenset(),
        *,
        requested: RequestedFiles | None = None,
    ) -> tuple[Snapshot, Segment]:
        """Return a version (the latest for None) built from a listing, and the segment read.

        `damaged` names checkpoints that must not be used. A damaged checkpoint is replaced by an
        older one, a damaged compaction by its commits. `requested`: the log's files, if some were
        requested before the listing; the others are requested at once.

        Raises:
            InvalidRequest: the version isn't in the log.
            CorruptTable: a file that is needed is missing or damaged, or the log has no version.
            UnsupportedFeature: txlake can't read the table's protocol.
        """
        if listing.latest_version < 0:
            raise self._without_versions(listing)
        files = requested or self.request(())
        unusable = set(damaged)
        first_error: CorruptTable | None = None
        while True:
            try:
                segment = choose_segment(
                    listing, table=self._name, version=version, unusable=frozenset(unusable)
                )
            except (CorruptTable, InvalidRequest) as error:
                if first_error is not None:
                    raise first_error from error
                raise
            files.request(_paths(segment))
            base = Snapshot.empty(self._name)
            if segment.checkpoint is not None:
                try:
                    base = self._from_checkpoint(segment.checkpoint, frozenset(unusable), files)
                except CorruptTable as error:
                    _log.warning("%s: checkpoint not usable: %s", self._name, error)
                    unusable.add(segment.checkpoint.paths)
                    first_error = first_error or error
                    continue
            return self._built(base, segment, listing, files), segment

    def _without_versions(self, listing: Listing) -> CorruptTable:
        """Return the error for a log whose files make no version."""
        parts = ", ".join(sorted(entry.path for entry in listing.broken_checkpoints)[:5])
        return CorruptTable(
            f"{self._name}: _delta_log has neither a commit nor a whole checkpoint"
            + (f"; incomplete checkpoint: only {parts}" if parts else "")
        )

    def _built(
        self, base: Snapshot, segment: Segment, listing: Listing, files: RequestedFiles
    ) -> Snapshot:
        """Return the state after the segment, from plain commits if a compaction is damaged.

        Logs how it differs from the checksum file.
        """
        try:
            state = self.replayed(base, segment, files)
        except CorruptTable:
            if not any(isinstance(entry.file, Compaction) for entry in segment.deltas):
                raise
            plain = choose_segment(
                Listing(commits=listing.commits),
                table=self._name,
                version=segment.version,
                after=base.version,
            )
            state = self.replayed(base, plain, files)
        self._compare(state, segment, files)
        return state

    def read_checkpoint(self, checkpoint: Checkpoint) -> Snapshot:
        """Return the state that a checkpoint holds, all of it decoded.

        Raises CorruptTable naming the damaged file.
        """

        def give_up(error: CorruptTable) -> Snapshot:
            raise error

        state = self._state_of(checkpoint, give_up, self.request(checkpoint.paths))
        _ = state.files.table
        return state

    def _from_checkpoint(
        self, checkpoint: Checkpoint, unusable: frozenset[CheckpointName], files: RequestedFiles
    ) -> Snapshot:
        """Return a checkpoint's state. Damage to its statistics is found, and repaired from other
        files of the log, when they are used; other damage raises CorruptTable.
        """

        def rebuild(error: CorruptTable) -> Snapshot:
            _log.warning("%s: checkpoint not usable: %s", self._name, error)
            objects = self._files.list(LOG_FOLDER, before=VERSIONS_END)
            listing = Listing.of((item.path, item.size_bytes, item.modified_ms) for item in objects)
            try:
                return self.load(listing, checkpoint.version, unusable | {checkpoint.paths})[0]
            except (CorruptTable, InvalidRequest) as other:
                raise error from other

        return self._state_of(checkpoint, rebuild, files)

    def _state_of(
        self, checkpoint: Checkpoint, rebuild: Rebuild, files: RequestedFiles
    ) -> Snapshot:
        """Return the state of a checkpoint and its sidecars. Raises CorruptTable."""
        rows = list(self._rows(checkpoint.paths, files))
        own = [action for part in rows for action in part.others]
        sidecars = [sidecar_path(decode_path(item.path)) for item in sidecars_of(checkpoint, own)]
        if len(set(sidecars)) < len(sidecars):
            raise CorruptTable(
                f"{self._name}: {checkpoint.paths[0]}: expected each sidecar once, found "
                f"{len(sidecars)} names of {len(set(sidecars))} files"
            )
        rows += self._rows(sidecars, files)
        paths = (*checkpoint.paths, *sidecars)
        return state_of_checkpoint(
            self._name, checkpoint, rows, lambda: self._removes(paths), rebuild
        )

    def _rows(self, paths: Sequence[str], files: RequestedFiles) -> Iterator[CheckpointRows]:
        for path, data in self._read(paths, files):
            yield read_checkpoint(data, file=f"{self._name}: {path}")

    def _removes(self, paths: Sequence[str]) -> Iterator[Remove]:
        for path, data in self._read(paths, self.request(())):
            yield from read_removes(data, file=f"{self._name}: {path}")

    def replayed(
        self,
        base: Snapshot,
        segment: Segment,
        requested: RequestedFiles | None = None,
        *,
        keep: Callable[[LogEntry, Sequence[Action]], None] | None = None,
    ) -> Snapshot:
        """Return the state after the segment's commits on top of `base`; `requested` as in `load`.

        `keep` is called with each file that was replayed, and its actions.

        Raises CorruptTable for a missing or damaged file, and UnsupportedFeature for a protocol
        that txlake can't read.
        """
        files = requested or self.request(())
        state = replay(base, self._deltas(segment, files, keep), segment)
        check_readable(state.protocol, table=self._name)
        if is_enabled(state.metadata.configuration) and state.in_commit_timestamp_ms is None:
            return self._with_in_commit_timestamp(state, segment, files)
        return state

    def _deltas(
        self,
        segment: Segment,
        files: RequestedFiles,
        keep: Callable[[LogEntry, Sequence[Action]], None] | None,
    ) -> Iterator[Sequence[Action]]:
        """Yield the actions of the segment's commits and compactions, in order; `keep` as in
        `replayed`. Raises CorruptTable for a missing or damaged file.
        """
        contents = self._read([entry.path for entry in segment.deltas], files)
        for entry, (path, data) in zip(segment.deltas, contents):
            actions = decode_actions(data, file=f"{self._name}: {path}")
            if keep is not None:
                keep(entry, actions)
            yield actions

    def commit_info(
        self, version: int, requested: RequestedFiles | None = None
    ) -> CommitInfo | None:
        """Return a version's commitInfo, reading the file's head where that is enough; None if it
        has none. `requested` as in `load`.

        Raises FileNotFoundError, and CorruptTable for a damaged commit.
        """
        path = commit_path(version)
        head = (requested or self._files).get_range(path, 0, _HEAD_BYTES)
        is_whole = len(head) < _HEAD_BYTES
        if not is_whole and not (head.startswith(b'{"commitInfo"') and b"\n" in head):
            head = self._files.get(path)
        return commit_info_of(head, file=f"{self._name}: {path}")

    def not_a_table(self) -> InvalidRequest:
        """Return the error for a folder without a log."""
        return InvalidRequest(
            f"{self._name} is not a Delta table: no commit and no checkpoint in _delta_log. "
            "Check the path, or create the table first"
        )

    def _with_in_commit_timestamp(
        self, state: Snapshot, segment: Segment, files: RequestedFiles
    ) -> Snapshot:
        """Return the state with the in-commit timestamp of its commit file, if there is one.

        The checkpoint or compaction that the state was built from holds no commitInfo.
        """
        if segment.newest is None:
            return state
        try:
            info = self.commit_info(state.version, files)
        except FileNotFoundError:
            return state
        return state.apply(() if info is None else (info,), version=state.version)

    def _read(self, paths: Sequence[str], files: RequestedFiles) -> Iterator[tuple[str, bytes]]:
        """Yield the paths with their files' bytes, in order; they are requested at once.

        Raises CorruptTable for a missing file.
        """
        files.request(paths)
        for path in paths:
            yield path, self._get(path, files)

    def _get(self, path: str, files: RequestedFiles) -> bytes:
        """Return the file's bytes. Raises CorruptTable if it is missing."""
        try:
            return files.get(path)
        except FileNotFoundError as error:
            kind = "sidecar" if parse_name(path) is None else "file"
            raise CorruptTable(
                f"{self._name}: {path} is missing: the {kind} is named by the log but isn't there"
            ) from error

    def _compare(self, state: Snapshot, segment: Segment, files: RequestedFiles) -> None:
        """Log differences between the checksum file and the state; never fails a read."""
        entry = segment.checksum
        if entry is None or entry.size_bytes > _CHECKSUM_BYTES_MAX:
            return
        try:
            expected = read_checksum(files.get(entry.path))
        except FileNotFoundError:
            return
        if expected is not None:
            for difference in expected.contradictions(facts_of(state)):
                _log.warning("%s: %s: %s", self._name, entry.path, difference)


def _paths(segment: Segment) -> Iterator[str]:
    """Yield the paths of the files that a segment's version is built from, and its checksum's."""
    if segment.checkpoint is not None:
        yield from segment.checkpoint.paths
    for entry in segment.deltas:
        yield entry.path
    if segment.checksum is not None and segment.checksum.size_bytes <= _CHECKSUM_BYTES_MAX:
        yield segment.checksum.path


def facts_of(state: Snapshot) -> StateFacts:
    """Return what a checksum file says of a state."""
    totals = state.files.totals
    has_vectors = "deletionVectors" in state.features
    return StateFacts(
        table_size_bytes=totals.size_bytes,
        files=totals.files,
        table_id=state.metadata.id,
        deletion_vectors=totals.deletion_vectors if has_vectors else None,
        deleted_records=totals.deleted_records if has_vectors else None,
    )
