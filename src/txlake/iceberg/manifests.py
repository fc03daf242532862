"""Manifests: those of added files, and those that stay when files are removed.

A commit writes a manifest for what it adds, and rewrites just the manifests that have a file which
it removes. Source: Iceberg's specification, "Manifests", "Manifest Lists".
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from cachetools import LRUCache
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType

from txlake.iceberg.full_doubles import full_partitions

FORMAT_VERSION: Final = 2
ENTRIES_MAX = 1_000  # of a manifest: a commit that removes one of its files rewrites so many
MERGED_FROM = 100  # small manifests of a snapshot, from which on they are merged
_CODEC: Final = "deflate"
_MANIFESTS_KEPT = 256
_PARTITION = 3  # the place of a data file's partition among its fields

# The paths of live files by manifest, whose files never change.
_paths: LRUCache[str, frozenset[str]] = LRUCache(_MANIFESTS_KEPT)
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Remaining:
    """What a commit leaves of a snapshot's manifests.

    Attributes:
        manifests: those that stay, rewritten ones among them, and that of removed files.
        removed: the files that were removed.
    """

    manifests: list[ManifestFile]
    removed: list[DataFile]


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestWriting:
    """The writing of one snapshot's manifests.

    Attributes:
        io: reads and writes below the table.
        folder: the location of the metadata files.
        schema: the snapshot's.
        specs: the table's partition specs by id.
        snapshot_id, parent_id, sequence_number: the snapshot's.
        new_id: makes a unique name.
    """

    io: FileIO
    folder: str
    schema: Schema
    specs: Mapping[int, PartitionSpec]
    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    new_id: Callable[[], str]

    def added(self, files: Sequence[DataFile]) -> list[ManifestFile]:
        """Write the manifests of added files, which all have one partition spec."""
        made: list[ManifestFile] = []
        for start in range(0, len(files), ENTRIES_MAX):
            part = files[start : start + ENTRIES_MAX]
            entries = [_added_entry(file, self.snapshot_id) for file in part]
            made.append(self._written(part[0].spec_id, entries))
        return made

    def without(self, manifests: Sequence[ManifestFile], paths: Set[str]) -> Remaining:
        """Rewrite the manifests that have a file at one of these locations.

        Locations that none of them has are passed over.
        """
        kept: list[ManifestFile] = []
        removed: list[ManifestEntry] = []
        for manifest in manifests:
            if not paths or live_paths(manifest, self.io).isdisjoint(paths):
                kept.append(manifest)
                continue
            entries = self._entries(manifest)
            gone = [entry for entry in entries if entry.data_file.file_path in paths]
            stay = [entry for entry in entries if entry.data_file.file_path not in paths]
            removed += gone
            if stay:
                kept.append(self._written(manifest.partition_spec_id, map(_existing, stay)))
        for spec_id in sorted({entry.data_file.spec_id for entry in removed}):
            of_spec = [entry for entry in removed if entry.data_file.spec_id == spec_id]
            deleted = (_deleted(entry, self.snapshot_id) for entry in of_spec)
            kept.append(self._written(spec_id, deleted))
        return Remaining(kept, [entry.data_file for entry in removed])

    def merged(self, manifests: Sequence[ManifestFile]) -> list[ManifestFile]:
        """Merge small manifests of earlier snapshots where there are many; others stay."""
        small = [each for each in manifests if _live_count(each) <= ENTRIES_MAX // 2]
        if len(small) < MERGED_FROM:
            return list(manifests)
        kept = [each for each in manifests if _live_count(each) > ENTRIES_MAX // 2]
        for spec_id in sorted({each.partition_spec_id for each in small}):
            of_spec = [each for each in small if each.partition_spec_id == spec_id]
            for group in _groups(of_spec):
                entries = (entry for each in group for entry in self._entries(each))
                kept.append(self._written(spec_id, map(_existing, entries)))
        return kept

    def listed(self, manifests: Sequence[ManifestFile]) -> str:
        """Write the snapshot's manifest list; return its location."""
        location = f"{self.folder}/snap-{self.snapshot_id}-{self.new_id()}.avro"
        with write_manifest_list(
            FORMAT_VERSION,
            self.io.new_output(location),
            self.snapshot_id,
            self.parent_id,
            self.sequence_number,
            _CODEC,
        ) as writer:
            writer.add_manifests(list(manifests))
        return location

    def _entries(self, manifest: ManifestFile) -> list[ManifestEntry]:
        """Return a manifest's live entries, with partition values as they were written."""
        entries = manifest.fetch_manifest_entry(self.io)
        sources = {each.source_id for each in self.specs[manifest.partition_spec_id].fields}
        if any(isinstance(self.schema.find_type(source), DoubleType) for source in sources):
            partitions = full_partitions(self.io.new_input(manifest.manifest_path))
            for entry in entries:
                entry.data_file[_PARTITION] = partitions[entry.data_file.file_path]
        return entries

    def _written(
        self, spec_id: int, entries: Collection[ManifestEntry] | Iterator[ManifestEntry]
    ) -> ManifestFile:
        location = f"{self.folder}/{self.new_id()}-m0.avro"
        with write_manifest(
            FORMAT_VERSION,
            self.specs[spec_id],
            self.schema,
            self.io.new_output(location),
            self.snapshot_id,
            _CODEC,
        ) as writer:
            live: list[str] = []
            for entry in entries:
                writer.add_entry(entry)
                if entry.status is not ManifestEntryStatus.DELETED:
                    live.append(entry.data_file.file_path)
        with _lock:
            _paths[location] = frozenset(live)
        return writer.to_manifest_file()


def live_manifests(manifests: Sequence[ManifestFile]) -> list[ManifestFile]:
    """Return the manifests that have live files: those of removed files alone end with their
    snapshot.
    """
    return [each for each in manifests if each.has_added_files() or each.has_existing_files()]


def live_paths(manifest: ManifestFile, io: FileIO) -> frozenset[str]:
    """Return the locations of a manifest's live files."""
    with _lock:
        known = _paths.get(manifest.manifest_path)
    if known is None:
        entries = manifest.fetch_manifest_entry(io)
        known = frozenset(entry.data_file.file_path for entry in entries)
        with _lock:
            _paths[manifest.manifest_path] = known
    return known


def _live_count(manifest: ManifestFile) -> int:
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


def _groups(manifests: Sequence[ManifestFile]) -> Iterator[list[ManifestFile]]:
    """Yield runs of manifests with at most ENTRIES_MAX entries together."""
    group: list[ManifestFile] = []
    count = 0
    for manifest in manifests:
        if group and count + _live_count(manifest) > ENTRIES_MAX:
            yield group
            group, count = [], 0
        group.append(manifest)
        count += _live_count(manifest)
    if group:
        yield group


def _added_entry(file: DataFile, snapshot_id: int) -> ManifestEntry:
    """Return the entry of a new file, which inherits its sequence number from the manifest."""
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, data_file=file
    )


def _existing(entry: ManifestEntry) -> ManifestEntry:
    return _with_status(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id)


def _deleted(entry: ManifestEntry, snapshot_id: int) -> ManifestEntry:
    return _with_status(entry, ManifestEntryStatus.DELETED, snapshot_id)


def _with_status(
    entry: ManifestEntry, status: ManifestEntryStatus, snapshot_id: int | None
) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )
