"""Frozen settings, passed to constructors. Nothing here reads the environment."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """How the commit loop and `Lake.run` wait between attempts: growing, jittered, bounded.

    `queue_ms_max`: commits of one process to one table wait for each other up to this long, and
    race then. `reserve_after`: a transaction over tables of a lake that lost this often has the
    next turn on them.
    """

    commit_attempts_max: int = 200
    wait_ms_min: int = 5
    wait_ms_max: int = 2_000
    queue_ms_max: int = 2_000
    reserve_after: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be tuned, with the defaults that suit a laptop and a cluster alike.

    Attributes:
        retry: waits between attempts.
        target_file_bytes: what OPTIMIZE packs small files up to.
        told_rows_max: an OPTIMIZE that sorts says where each row went, so that deletions made
            meanwhile are carried over, up to so many rows of one ZORDER BY or cube.
        broadcast_vector_bytes_max: deletion vectors beyond this are read by the executors.
        scratch_url: a folder that the Spark driver can read, for scan manifests; a temporary
            folder of this process when None.
        checkpoint_part_rows_max: rows in one part of a multi-part checkpoint; classic single-file
            checkpoints below.
        conflict_granularity: `row`, `file` or `table`, what conflicts are found by where no
            database or table asks for a coarser one.
        probe_bytes_max: data files in doubt at a commit are read by the driver up to this.
        allow_outside_paths: folders, as paths or URLs, in which files may lie that a table's log
            names beside those in the table's own folder and, for a table of a lake, in the lake's;
            `"*"` allows every place. Where another's log is read, that is whose files it may name.
        lease_ms: a session that the catalog hears nothing of for this long is ended by the first
            process that notices, with its transactions and locks; on a server after half as long
            again.
        tables_cached: of how many tables a lake keeps the newest state in memory, those that were
            used last; what a transaction uses stays as long as that does.
        commits_kept: of how many of the lake's newest transactions the catalog remembers the
            versions that they made; older ones only as far as open transactions read them. The
            tables' own histories don't depend on it.
        dropped_table_retention_ms: for how long a dropped table can come back, where its database
            doesn't say; its files are kept as long. 0: they are removed at once.
        relisted_files_max: of how many files one commit changes what the log says of them alone:
            row ids for a table that gets row tracking.
        listing_age_ms_max: a commit of a path table that arrives later than this after the log was
            listed is followed by another listing, which proves that no clean-up of the log had
            deleted the version before.
        inline_commit_bytes_max: a commit of a catalog table goes into the catalog itself up to
            this, and into a file that the catalog names beyond.
    """

    retry: RetrySettings = field(default_factory=RetrySettings)
    target_file_bytes: int = 256 * 1024 * 1024
    told_rows_max: int = 10_000_000
    broadcast_vector_bytes_max: int = 128 * 1024 * 1024
    scratch_url: str | None = None
    checkpoint_part_rows_max: int = 5_000_000
    conflict_granularity: str = "row"
    probe_bytes_max: int = 32 * 1024 * 1024
    inline_commit_bytes_max: int = 1024 * 1024
    listing_age_ms_max: int = 60_000
    relisted_files_max: int = 100_000
    allow_outside_paths: tuple[str, ...] = ()
    lease_ms: int = 30_000
    tables_cached: int = 256
    commits_kept: int = 100_000
    dropped_table_retention_ms: int = 7 * 24 * 3_600_000
