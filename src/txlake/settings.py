"""Frozen settings, passed to constructors. Nothing here reads the environment."""

from __future__ import annotations

from dataclasses import dataclass, field

PUBLISH = BEFORE_ANSWER, AFTER_ANSWER = "before_answer", "after_answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """Waits of the commit loop and `Lake.run` between attempts: growing, jittered, bounded.

    `queue_ms_max`: how long commits of one process to one table wait for each other before they
    race, and its autocommitted DELETEs and UPDATEs for one of its slots.
    `reserve_after`: after how many lost attempts a transaction over tables of a lake gets the next
    turn on them.
    """

    commit_attempts_max: int = 200
    wait_ms_min: int = 5
    wait_ms_max: int = 2_000
    queue_ms_max: int = 2_000
    reserve_after: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings, with defaults that suit a laptop and a cluster alike.

    Attributes:
        retry: waits between attempts.
        target_file_bytes: the size up to which OPTIMIZE packs small files.
        told_rows_max: up to how many rows of one ZORDER BY or cube a sorting OPTIMIZE records
            where each row went, so that concurrent deletions are carried over.
        broadcast_vector_bytes_max: larger deletion vectors are read by the executors.
        scratch_url: a folder that the Spark driver can read, for scan manifests; a temporary
            folder of this process when None.
        checkpoint_part_rows_max: rows in one part of a multi-part checkpoint; a checkpoint with
            fewer rows is one classic file.
        conflict_granularity: `row`, `file` or `table`: how conflicts are detected, unless
            a database or table sets a coarser one.
        probe_bytes_max: up to how many bytes of undecided data files the driver reads at a commit.
        allow_outside_paths: folders, as paths or URLs, in which a table's log may name files,
            besides its own folder and, for a table of a lake, the lake's; `"*"` allows all places.
            Where another table's log is read, the places that hold for its files.
        lease_ms: a session without a sign of life for this long is ended by the first process that
            notices, with its transactions and locks; on a server after half as long again.
        tables_cached: for how many tables, those used last, a lake keeps the newest state in
            memory; a state that a transaction uses is kept as long as the transaction.
        commits_kept: for how many of the lake's newest transactions the catalog keeps the versions
            that they made; older ones only as far as open transactions read them. The tables' own
            histories don't depend on it.
        catalog_log_retention_ms: for how long a catalog in a store keeps the entries of its log
            that snapshots have replaced, at least 3,600,000 (an hour); None keeps all. A process
            that was suspended for longer loads a snapshot. Processes may have different values:
            the shortest decides.
        dropped_table_retention_ms: for how long a dropped table can be undropped; its database
            may set another time; the files are kept as long. 0 removes them at once.
        relisted_files_max: for up to how many files one commit changes log entries alone, to
            give them row ids when the table gets row tracking.
        listing_age_ms_max: a commit of a path table that arrives later than this after the log was
            listed is followed by another listing, which proves that no clean-up of the log had
            deleted the version before.
        inline_commit_bytes_max: a commit of a catalog table is stored in the catalog up to this,
            and in a file that the catalog names beyond.
        publish: when a commit of a lake's table becomes a file of its log, where the store is far:
            `before_answer`, or `after_answer`, which saves a round trip; plain Delta readers then
            see the commit a moment later than the statement is answered. txlake's readers always
            see it.
        openlineage: the namespace of the jobs, if transactions are told to OpenLineage; None tells
            nobody. Its client's configuration says where to.
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
    catalog_log_retention_ms: int | None = None
    dropped_table_retention_ms: int = 7 * 24 * 3_600_000
    publish: str = BEFORE_ANSWER
    openlineage: str | None = None
