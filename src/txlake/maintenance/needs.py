"""What a table needs: a function of its snapshot, its policy and a few facts of its log.

Each need has its reason in numbers, what meeting it gains, and what it costs. Gains and costs are
in requests to a store: a request counts as much as one MiB that is read or written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from txlake.log.cubes import plan_clustering
from txlake.log.file_columns import FileColumns
from txlake.log.files import adds_of, live_row_count
from txlake.log.small_files import PackingLimits, deleted_share, files_to_purge, small_files
from txlake.log.snapshot import Snapshot
from txlake.maintenance.policy import Policy, Work
from txlake.protocol.actions import Add
from txlake.protocol.clustering import FEATURE, clustered_by, cube_of

MIB = 1024 * 1024
EXPIRED_BYTES_MIN = 64 * MIB
"""So many bytes that nobody needs any more are deleted, however few files they are."""
_UNLIMITED = 1 << 62
_CHECKPOINTS_MISSED = 2
_LOG_FILES_MIN = 20
_VACUUM_REQUESTS = 6  # two commits, the plan and the note
_FULL_VACUUM_GAIN = 5.0
# A log that lacks commits is so again as long as a branch or a transaction keeps what they removed.
_LISTED_AGAIN_MS = 86_400_000
_QUIET_MS_MAX = 86_400_000
# The process that commits publishes its version as Iceberg metadata at once, where it can.
_ICEBERG_BEHIND_MS = 60_000
_ICEBERG_BEHIND_MAX = 10


@dataclass(frozen=True, slots=True)
class Expired:
    """The files that the log shows to be past their retention, and their bytes."""

    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """What is known of a table.

    Attributes:
        table: its newest version.
        now_ms: the time, in milliseconds since the epoch.
        target_file_bytes: how large files are written that OPTIMIZE makes.
        checkpoint_version: that of the newest checkpoint; None without one.
        checkpoint_interval: how many versions are between checkpoints.
        expired_log_files: how many files of the log are past its retention.
        next_log_expiry_ms: when more of them will be, if nobody commits; None for never.
        expired: data files past their retention; None if the log doesn't reach back to the last
            VACUUM, so that only a listing of the table finds them.
        next_file_expiry_ms: when more data files may be, if nobody commits; None for never.
        full_vacuum_ms: when a VACUUM listed the table last; None for never.
        iceberg_version: the newest version that its Iceberg metadata shows, -1 for none; None if it
            maintains none.
    """

    table: Snapshot
    now_ms: int
    target_file_bytes: int
    checkpoint_version: int | None
    checkpoint_interval: int
    expired_log_files: int
    next_log_expiry_ms: int | None
    expired: Expired | None
    next_file_expiry_ms: int | None
    full_vacuum_ms: int | None
    iceberg_version: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Work that is due on a table.

    Attributes:
        work: its kind.
        why: the reason, in numbers.
        gain, cost: what it is worth and what it takes, in requests.
        cost_bytes: how many bytes of data are read and written.
        files, size_bytes, rows: how many files fewer a reader opens or the store holds, how many
            bytes are freed, or are in rows that are deleted, and how many deleted rows are dropped.
    """

    work: Work
    why: str
    gain: float
    cost: float
    cost_bytes: int = 0
    files: int = 0
    size_bytes: int = 0
    rows: int = 0


def needs_of(facts: TableFacts, policy: Policy) -> list[Need]:
    """Return what a table needs, by its policy; in no order."""
    return [need for find in _FINDERS for need in find(facts, policy) if policy.allows(need.work)]


def quiet_until_ms(facts: TableFacts, policy: Policy) -> int:
    """Return until when a table that needs nothing still needs nothing if nobody commits to it, in
    milliseconds since the epoch; a day from now at most.
    """
    times_ms: list[int | None] = [facts.now_ms + _QUIET_MS_MAX]
    if policy.allows(Work.LOG_CLEANUP):
        times_ms.append(facts.next_log_expiry_ms)
    if policy.allows(Work.VACUUM):
        times_ms += [facts.next_file_expiry_ms, _full_vacuum_due_ms(facts, policy)]
    shown = facts.iceberg_version
    if policy.allows(Work.ICEBERG) and shown is not None and shown < facts.table.version:
        times_ms.append(facts.table.timestamp_ms + _ICEBERG_BEHIND_MS)
    return min(time_ms for time_ms in times_ms if time_ms is not None)


def packing_limits(facts: TableFacts, policy: Policy, bytes_max: int) -> PackingLimits:
    """Return the limits by which a table's files are packed or purged, so many bytes at once."""
    default = PackingLimits()
    return PackingLimits(
        files_min=policy.small_files_min,
        file_bytes_max=facts.table.properties.target_file_size or default.file_bytes_max,
        bytes_max=bytes_max,
        files_max=_UNLIMITED if bytes_max == _UNLIMITED else default.files_max,
        deleted_share_min=policy.deleted_share_min,
    )


def _checkpoint(facts: TableFacts, policy: Policy) -> Iterator[Need]:
    """Yield a checkpoint if two were missed: writers whose checkpoints fail go on without."""
    before = -1 if facts.checkpoint_version is None else facts.checkpoint_version
    commits = facts.table.version - before
    if commits >= _CHECKPOINTS_MISSED * facts.checkpoint_interval:
        yield Need(
            work=Work.CHECKPOINT,
            why=f"{commits:,} commits since the last checkpoint, and one is due every "
            f"{facts.checkpoint_interval}",
            gain=float(commits),
            cost=1 + len(facts.table.files) / 10_000,
        )


def _log_cleanup(facts: TableFacts, policy: Policy) -> Iterator[Need]:
    """Yield a clean-up of the log if many of its files are past its retention."""
    count = facts.expired_log_files
    if count >= _LOG_FILES_MIN and facts.table.properties.enable_expired_log_cleanup:
        yield Need(
            work=Work.LOG_CLEANUP,
            why=f"{count:,} files of the log are older than delta.logRetentionDuration",
            gain=count / 100,
            cost=1 + count / 1_000,
            files=count,
        )


def _vacuum(facts: TableFacts, policy: Policy) -> Iterator[Need]:
    """Yield a VACUUM by the log if files have expired; now and then one that lists the table."""
    expired, reason = facts.expired, _full_vacuum_reason(facts, policy)
    if reason is not None:
        known = expired or Expired(0, 0)
        yield Need(
            work=Work.FULL_VACUUM,
            why=reason,
            gain=_FULL_VACUUM_GAIN,
            cost=_VACUUM_REQUESTS + (len(facts.table.files) + known.files) / 1_000,
            files=known.files,
            size_bytes=known.size_bytes,
        )
    elif expired is not None and _is_enough(expired, policy):
        yield Need(
            work=Work.VACUUM,
            why=f"{expired.files:,} files of {_size(expired.size_bytes)} were removed longer ago "
            "than delta.deletedFileRetentionDuration",
            gain=expired.size_bytes / MIB / 10 + expired.files / 100,
            cost=_VACUUM_REQUESTS + expired.files / 1_000,
            files=expired.files,
            size_bytes=expired.size_bytes,
        )


def _is_enough(expired: Expired, policy: Policy) -> bool:
    """Return whether so many files, or bytes, are deleted."""
    return expired.files >= policy.expired_files_min or expired.size_bytes >= EXPIRED_BYTES_MIN


def _full_vacuum_reason(facts: TableFacts, policy: Policy) -> str | None:
    """Return why VACUUM has to list the table now; None if it hasn't to."""
    if facts.now_ms < _full_vacuum_due_ms(facts, policy):
        return None
    last_ms, created_ms = facts.full_vacuum_ms, facts.table.metadata.created_time
    if facts.expired is None:
        return (
            "the log doesn't reach back to the last VACUUM, so that only a listing finds old files"
        )
    since_ms = created_ms if last_ms is None else last_ms
    if since_ms is None:
        return "it isn't known when the table was created, nor when VACUUM last listed it"
    return (
        f"the table was {'created' if last_ms is None else 'listed by VACUUM'} "
        f"{_days(facts.now_ms - since_ms)} ago, and is listed every "
        f"{_days(policy.full_vacuum_interval_ms)} for files that no commit names"
    )


def _full_vacuum_due_ms(facts: TableFacts, policy: Policy) -> int:
    """Return when VACUUM has to list the table, which may be in the past."""
    last_ms, interval_ms = facts.full_vacuum_ms, policy.full_vacuum_interval_ms
    if facts.expired is None:
        return 0 if last_ms is None else last_ms + min(interval_ms, _LISTED_AGAIN_MS)
    since_ms = facts.table.metadata.created_time if last_ms is None else last_ms
    return 0 if since_ms is None else since_ms + interval_ms


def _iceberg(facts: TableFacts, policy: Policy) -> Iterator[Need]:
    """Yield the conversion of versions that the Iceberg metadata lacks: a publication failed, its
    process was killed, or another engine commits. Young ones are left to their writer.
    """
    if facts.iceberg_version is None:
        return
    behind = facts.table.version - facts.iceberg_version
    is_old = facts.now_ms - facts.table.timestamp_ms >= _ICEBERG_BEHIND_MS
    if behind >= _ICEBERG_BEHIND_MAX or (behind > 0 and is_old):
        shown = f"version {facts.iceberg_version:,}" if facts.iceberg_version >= 0 else "none"
        yield Need(
            work=Work.ICEBERG,
            why=f"Iceberg's readers see {shown}, {behind:,} behind version {facts.table.version:,}",
            gain=float(behind),
            cost=4.0 + behind,
        )


def _statistics(facts: TableFacts, policy: Policy) -> Iterator[Need]:
    """Yield the statistics of files that have none, which no query can skip."""
    candidates = adds_of(facts.table.files.where(_may_lack_statistics))
    without = [add for add in candidates if live_row_count(add) is None]
    if without:
        yield Need(
            work=Work.STATISTICS,
            why=f"{len(without):,} of {len(facts.table.files):,} files have no statistics, so that "
            "no query can skip them",
            gain=_mib(without) + len(without),
            cost=2.0 * len(without),
        )


def _may_lack_statistics(files: FileColumns) -> pa.BooleanArray:
    """Return which files' statistics are missing, or have to be decoded to see that."""
    masks = [
        pc.invert(pc.fill_null(pc.match_substring(chunk, '"numRecords"'), False))
        for chunk in files.column("stats").iterchunks()
    ]
    return pa.concat_arrays(masks) if masks else pa.array([], pa.bool_())


def _rewrites(facts: TableFacts, policy: Policy) -> Iterator[Need]:
    """Yield clustering, or else packing of small files and dropping of deleted rows."""
    clustering = list(_clustering(facts, policy)) if policy.allows(Work.CLUSTER) else []
    yield from clustering or _packing(facts, policy)
    if not clustering:
        yield from _purge(facts, policy)


def _clustering(facts: TableFacts, policy: Policy) -> Iterator[Need]:
    """Yield clustering if many of the table's bytes are in no cube."""
    table = facts.table
    columns = clustered_by(table.schema, table.domains, table=table.table)
    if not columns or FEATURE not in table.features:
        return
    target = table.properties.target_file_size or facts.target_file_bytes
    plan = plan_clustering(table.files.adds(), columns, full=False, target_file_bytes=target)
    unclustered = [add for add in plan.files if cube_of(add) is None]
    total_bytes = table.files.totals.size_bytes
    loose_bytes = sum(add.size for add in unclustered)
    if not unclustered or loose_bytes < policy.unclustered_share_min * total_bytes:
        return
    cost_bytes = 2 * sum(add.size for add in plan.files)
    yield Need(
        work=Work.CLUSTER,
        why=f"{len(unclustered):,} files of {_size(loose_bytes)} aren't clustered by "
        f"({', '.join(plan.names)}), {_percent(loose_bytes, total_bytes)} of the table",
        gain=_mib(unclustered) + len(unclustered),
        cost=2 * cost_bytes / MIB + len(plan.files),
        cost_bytes=cost_bytes,
        files=max(0, len(plan.files) - len(plan.cubes)),
    )


def _packing(facts: TableFacts, policy: Policy) -> Iterator[Need]:
    """Yield packing if a partition has many small files."""
    groups = list(small_files(facts.table, packing_limits(facts, policy, _UNLIMITED)))
    files = [add for group in groups for add in group]
    if files:
        cost_bytes = 2 * sum(add.size for add in files)
        yield Need(
            work=Work.OPTIMIZE,
            why=f"{len(files):,} small files of {_size(cost_bytes // 2)} fit into {len(groups):,}",
            gain=float(len(files) - len(groups)),
            cost=cost_bytes / MIB + len(files) / 10,
            cost_bytes=cost_bytes,
            files=len(files) - len(groups),
        )


def _purge(facts: TableFacts, policy: Policy) -> Iterator[Need]:
    """Yield a rewriting of the files of which many rows are deleted."""
    if not facts.table.files.totals.deletion_vectors:
        return
    limits = packing_limits(facts, policy, _UNLIMITED)
    files = files_to_purge(facts.table.files.adds(), limits)
    if files:
        rows = sum(add.deletion_vector.cardinality for add in files if add.deletion_vector)
        freed_bytes = sum(round(add.size * deleted_share(add)) for add in files)
        cost_bytes = 2 * sum(add.size for add in files) - freed_bytes
        yield Need(
            work=Work.PURGE,
            why=f"{rows:,} rows are deleted in {len(files):,} files, in each at least "
            f"{policy.deleted_share_min:.0%} of its rows",
            gain=freed_bytes / MIB + len(files),
            cost=cost_bytes / MIB + len(files),
            cost_bytes=cost_bytes,
            size_bytes=freed_bytes,
            rows=rows,
        )


_FINDERS = (_checkpoint, _log_cleanup, _vacuum, _iceberg, _statistics, _rewrites)


def _mib(files: list[Add]) -> float:
    return sum(add.size for add in files) / MIB


def _percent(part: int, whole: int) -> str:
    return f"{part / max(1, whole):.0%}"


def _days(duration_ms: int) -> str:
    return f"{duration_ms / 86_400_000:.1f} days"


def _size(size_bytes: int) -> str:
    """Return a size in words, such as `12.3 MiB`."""
    size = float(size_bytes)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"
