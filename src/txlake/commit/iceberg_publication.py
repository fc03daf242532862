"""The publication of committed versions as Iceberg metadata, for tables that ask for it.

Owns when it happens (after the commit, in order, never before) and what a failure means: the
metadata stays behind, and the next commit or REPAIR TABLE ... SYNC METADATA converts what is
missing. `txlake.iceberg` owns the metadata. Source: Delta Lake's documentation, "Universal Format".
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from txlake.commit.branch_store import fork_version
from txlake.commit.table_log import Commit, TableLog
from txlake.errors import InvalidRequest, TxlakeError, Unavailable
from txlake.log.snapshot import Snapshot
from txlake.packages import WITHOUT_PYICEBERG, has_pyiceberg
from txlake.ports import PutOutcome, StoredObject
from txlake.protocol.actions import Add, Metadata, Remove
from txlake.protocol.iceberg import maintains_iceberg
from txlake.telemetry import count, span

if TYPE_CHECKING:
    from txlake.iceberg.conversion import Converted, DeltaVersion, Place
    from txlake.iceberg.metadata_files import MetadataFile

_log = logging.getLogger(__name__)

_ATTEMPTS_MAX = 20
_COMMITS_MAX = 1_000  # that are converted one by one; beyond them the newest version as a whole
# A cached metadata file is trusted for so long: later ones are deleted only after many commits.
_TRUSTED_MS = 60_000
_METADATA_FOLDER = "metadata/"
_WRITING_MS_MAX = 3_600_000  # from a manifest's writing to that of the metadata that names it


@dataclass(frozen=True, slots=True)
class PublishedVersion:
    """The newest version that Iceberg's readers see.

    Attributes:
        timestamp_ms: of the version's commit.
        path: the metadata file's, below the table.
        location: the same, as Iceberg names files.
    """

    version: int
    timestamp_ms: int
    path: str
    location: str


@dataclass(slots=True)
class _State:
    """What this process knows of a table's metadata; `lock` is held while it publishes."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    newest: tuple[MetadataFile, Converted] | None = None
    read_ms: float = 0.0


_states: WeakKeyDictionary[TableLog, _State] = WeakKeyDictionary()
_states_lock = threading.Lock()


def publish_after(log: TableLog, snapshot: Snapshot) -> None:
    """Publish a version that was just committed, if its table asks for it.

    Never raises: failures are logged, and the metadata stays behind.
    """
    if not maintains_iceberg(snapshot.metadata) or fork_version(log.store) is not None:
        return
    try:
        with span("iceberg_publication", table=log.name):
            publish_iceberg(log, snapshot)
        count("txlake.iceberg_publications", outcome="published")
    except Exception as error:
        count("txlake.iceberg_publications", outcome=type(error).__name__)
        _log.warning(
            "%s: version %d is committed, and its Iceberg metadata stays behind until the next "
            "commit or REPAIR TABLE ... SYNC METADATA: %s",
            log.name,
            snapshot.version,
            error,
        )


def publish_iceberg(log: TableLog, snapshot: Snapshot) -> PublishedVersion:
    """Publish all versions up to a committed one that aren't yet; return the newest published.

    Raises InvalidRequest without the extra `iceberg`, for a table that Iceberg v2 can't show, and
    where another writer's Iceberg table is in the folder; Unavailable and CorruptTable.
    """
    if not has_pyiceberg():
        raise InvalidRequest(f"{log.name}: {WITHOUT_PYICEBERG}")
    from txlake.iceberg.conversion import Place
    from txlake.iceberg.metadata_files import metadata_location, metadata_path
    from txlake.iceberg.store_io import StoreIO

    with _states_lock:
        state = _states.setdefault(log, _State())
    place = Place(StoreIO(log.store), log.store.url, log.system.new_id)
    with state.lock:
        newest = _brought_up(log, snapshot, state, place)
    return PublishedVersion(
        version=newest.version,
        timestamp_ms=int(newest.metadata.properties["delta-timestamp"]),
        path=metadata_path(newest.number),
        location=metadata_location(log.store.url, newest.number),
    )


def version_in_iceberg(log: TableLog, snapshot: Snapshot) -> int:
    """Return the newest version that the table's Iceberg metadata shows; -1 if it shows none.

    Raises InvalidRequest without the extra `iceberg`, and where another writer's Iceberg table is
    in the folder.
    """
    if not has_pyiceberg():
        raise InvalidRequest(f"{log.name}: {WITHOUT_PYICEBERG}")
    from txlake.iceberg.metadata_files import newest_file

    found = newest_file(log.store)
    return -1 if found is None or not _is_same_table(found, snapshot) else found.version


def needed_by_iceberg(
    log: TableLog, snapshot: Snapshot, old: Mapping[str, StoredObject]
) -> Iterator[str]:
    """Yield the paths of old files that Iceberg's readers and publishers need; by path in `old`.

    All Iceberg metadata files where the needed ones can't be told, and none if the table doesn't
    maintain such metadata any more.
    """
    own = {path: item for path, item in old.items() if path.startswith(_METADATA_FOLDER)}
    if not own or not maintains_iceberg(snapshot.metadata):
        return
    try:
        if not has_pyiceberg():
            raise InvalidRequest(WITHOUT_PYICEBERG)
        from txlake.iceberg.metadata_files import needed_paths

        yield from needed_paths(log.store)
    except (TxlakeError, FileNotFoundError) as error:
        _log.warning("%s: its Iceberg metadata files are kept: %s", log.name, error)
        yield from own
    written_since_ms = log.system.now_ms() - _WRITING_MS_MAX
    yield from (path for path, item in own.items() if item.modified_ms >= written_since_ms)


def _brought_up(log: TableLog, snapshot: Snapshot, state: _State, place: Place) -> MetadataFile:
    """Return the newest metadata file, once it shows the version or a later one."""
    from txlake.iceberg.metadata_files import MetadataFile, finish, put_metadata

    for _ in range(_ATTEMPTS_MAX):
        known = _newest(log, state, place)
        if known is not None and _is_current(known[0], snapshot):
            return known[0]
        converted = _converted(log, snapshot, known, place)
        number = 1 if known is None else known[0].number + 1
        made = MetadataFile(number, converted.metadata)
        if put_metadata(log.store, made) is PutOutcome.CREATED:
            state.newest = (made, converted)
            finish(log.store, number)
            return made
        state.newest = None  # another process publishes too, or the reply was lost
    raise Unavailable(
        f"{log.name}: {_ATTEMPTS_MAX} attempts to publish Iceberg metadata lost to other processes"
    )


def _newest(log: TableLog, state: _State, place: Place) -> tuple[MetadataFile, Converted] | None:
    """Return the newest metadata file and its state; None without any."""
    from txlake.iceberg.conversion import Converted
    from txlake.iceberg.metadata_files import newest_file, repair_hint

    now_ms = log.system.monotonic_ms()
    if state.newest is not None and now_ms - state.read_ms < _TRUSTED_MS:
        return state.newest
    state.read_ms = now_ms
    found = newest_file(log.store)
    if found is None:
        state.newest = None
        return None
    repair_hint(log.store, found.number)
    current = found.metadata.current_snapshot()
    manifests = [] if current is None else current.manifests(place.io)
    state.newest = (found, Converted(found.metadata, manifests))
    return state.newest


def _is_current(file: MetadataFile, snapshot: Snapshot) -> bool:
    """Return whether a metadata file shows the version, or a later one, of the same table."""
    return _is_same_table(file, snapshot) and file.version >= snapshot.version


def _is_same_table(file: MetadataFile, snapshot: Snapshot) -> bool:
    from txlake.iceberg.snapshots import table_uuid

    return file.metadata.table_uuid == table_uuid(snapshot.metadata.id)


def _converted(
    log: TableLog, snapshot: Snapshot, known: tuple[MetadataFile, Converted] | None, place: Place
) -> Converted:
    """Convert the versions after the known one; the version as a whole where that isn't possible,
    or gives other files than the table has.
    """
    from txlake.iceberg.conversion import convert_commit, convert_whole
    from txlake.iceberg.metadata_files import metadata_location
    from txlake.iceberg.table_metadata import with_previous_file

    if known is None or not _is_same_table(known[0], snapshot):
        return convert_whole(_whole(snapshot), None, place)
    file, converted = known
    made: Converted | None = converted
    try:
        for version in _versions(log, file.version, snapshot):
            made = None if version is None or made is None else convert_commit(version, made, place)
    except InvalidRequest as error:
        _log.info("%s: the whole version is converted: %s", log.name, error)
        made = None
    if made is None or not _has_files_of(made, snapshot):
        made = convert_whole(_whole(snapshot), file.metadata, place)
    location = metadata_location(log.store.url, file.number)
    metadata = with_previous_file(made.metadata, location, file.metadata.last_updated_ms)
    return type(made)(metadata, made.manifests)


def _has_files_of(converted: Converted, snapshot: Snapshot) -> bool:
    """Return whether the current snapshot has as many files and bytes as the Delta version."""
    current = converted.metadata.current_snapshot()
    assert current is not None
    assert current.summary is not None
    totals = snapshot.files.totals
    found = (current.summary["total-data-files"], current.summary["total-files-size"])
    return found == (str(len(snapshot.files)), str(totals.size_bytes))


def _whole(snapshot: Snapshot) -> DeltaVersion:
    from txlake.iceberg.conversion import DeltaVersion

    return DeltaVersion(
        version=snapshot.version,
        timestamp_ms=snapshot.timestamp_ms,
        metadata=snapshot.metadata,
        adds=list(snapshot.files.adds()),
        expire_before_ms=snapshot.timestamp_ms - snapshot.properties.log_retention_ms,
    )


def _versions(log: TableLog, after: int, snapshot: Snapshot) -> Iterator[DeltaVersion | None]:
    """Yield the versions after one up to the snapshot's; None where they can't be read."""
    from txlake.iceberg.conversion import DeltaVersion

    commits = _commits(log, after, snapshot.version)
    metadata = None if commits is None else _metadata_before(log, after, commits, snapshot)
    if commits is None or metadata is None:
        yield None
        return
    for commit in commits:
        metadata = _metadata_in(commit) or metadata
        at_ms = commit.timestamp_ms
        retention_ms = _vacuumed_after_ms(commit)
        if retention_ms is None:
            retention_ms = snapshot.properties.log_retention_ms
        yield DeltaVersion(
            version=commit.version,
            timestamp_ms=at_ms,
            metadata=metadata,
            adds=[one for one in commit.actions if isinstance(one, Add)],
            removes=[one for one in commit.actions if isinstance(one, Remove)],
            expire_before_ms=at_ms - retention_ms,
        )


def _commits(log: TableLog, after: int, up_to: int) -> list[Commit] | None:
    """Return the commits after one version up to another; None if there are too many, or one was
    cleaned up.
    """
    if up_to - after > _COMMITS_MAX:
        return None
    found = [log.commit(version) for version in range(after + 1, up_to + 1)]
    return None if None in found else [one for one in found if one is not None]


def _metadata_in(commit: Commit) -> Metadata | None:
    return next((one for one in reversed(commit.actions) if isinstance(one, Metadata)), None)


def _metadata_before(
    log: TableLog, after: int, commits: Sequence[Commit], snapshot: Snapshot
) -> Metadata | None:
    """Return the metadata in force before the commits; None if that version can't be read."""
    if not any(map(_metadata_in, commits)) or _metadata_in(commits[0]) is not None:
        return snapshot.metadata
    try:
        return log.snapshot(after).metadata
    except TxlakeError:
        return None


def _vacuumed_after_ms(commit: Commit) -> int | None:
    """Return the retention of the VACUUM that begins with this commit; None for other commits."""
    if commit.info is None or commit.info.text("operation") != "VACUUM START":
        return None
    parameters = commit.info.values.get("operationParameters")
    if not isinstance(parameters, dict):
        return None
    for key in ("specifiedRetentionMillis", "defaultRetentionMillis"):
        try:
            return int(json.loads(str(parameters[key])))
        except (KeyError, ValueError):
            continue
    return None
