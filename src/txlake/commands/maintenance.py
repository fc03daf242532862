"""Commands that maintain tables: OPTIMIZE, REORG, VACUUM, RESTORE, GENERATE, CONVERT, REFRESH,
REPAIR.

Owns how they run in a session and their result rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from urllib.parse import unquote

from txlake.commands.convert import convert_folder
from txlake.commands.generate import write_manifests
from txlake.commands.iceberg import sync_metadata, upgrade_to_iceberg
from txlake.commands.restore import restore
from txlake.commands.tables import environment_of
from txlake.commit.change import Change
from txlake.commit.data_plane import ResultRows, TableData
from txlake.commit.vacuum import ReadOpenTransactions, plan_vacuum, vacuum
from txlake.conflict.locking import LockMode
from txlake.errors import InvalidRequest
from txlake.log.cubes import ClusteringPlan, plan_clustering
from txlake.log.small_files import PackingLimits
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add, Remove
from txlake.protocol.clustering import FEATURE, clustered_by
from txlake.protocol.paths import absolute_url, is_absolute
from txlake.protocol.schema_rules import column_text
from txlake.protocol.types import Field, Primitive, Struct
from txlake.session.auto_compaction import packing_limits
from txlake.session.branches import drop_expired
from txlake.session.catalog_access import registered
from txlake.session.command import (
    R,
    command,
    giving_counts,
    giving_nothing,
    giving_rows,
    its_table,
    served,
)
from txlake.session.context import Context
from txlake.session.engine import Engine, Handle
from txlake.session.views.describe import Rows
from txlake.sql.statements import (
    ConvertToDelta,
    Expression,
    Generate,
    Optimize,
    RefreshTable,
    Reorg,
    RepairTable,
    Restore,
    TableName,
    TablePath,
    Vacuum,
)
from txlake.storage import local_path

_RETENTION_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
_PATHS = Struct((Field("path", Primitive("string"), False),))
_HOUR_MS = 3_600_000
_LONG = Primitive("long")
_SIZES = Struct(
    (
        Field("min", _LONG),
        Field("max", _LONG),
        Field("avg", Primitive("double")),
        Field("totalFiles", _LONG),
        Field("totalSize", _LONG),
    )
)
_FILES = Struct((Field("num", _LONG, False), Field("size", _LONG, False)))
_FILE_COUNT = Struct((Field("numFiles", _LONG, False), Field("size", _LONG, False)))
_ZORDERED = Struct(
    (
        Field("strategyName", Primitive("string")),
        Field("inputCubeFiles", _FILES),
        Field("inputOtherFiles", _FILES),
        Field("inputNumCubes", _LONG, False),
        Field("mergedFiles", _FILES),
        Field("numOutputCubes", _LONG, False),
        Field("mergedNumCubes", _LONG),
    )
)
_CLUSTERED = Struct(
    (
        Field("inputZCubeFiles", _FILE_COUNT),
        Field("inputOtherFiles", _FILE_COUNT),
        Field("inputNumZCubes", _LONG, False),
        Field("mergedFiles", _FILE_COUNT),
        Field("numOutputZCubes", _LONG, False),
    )
)
_METRICS = Struct(
    (
        Field("numFilesAdded", _LONG, False),
        Field("numFilesRemoved", _LONG, False),
        Field("filesAdded", _SIZES),
        Field("filesRemoved", _SIZES),
        Field("partitionsOptimized", _LONG, False),
        Field("zOrderStats", _ZORDERED),
        Field("clusteringStats", _CLUSTERED),
        Field("numBatches", _LONG, False),
        Field("totalConsideredFiles", _LONG, False),
        Field("totalFilesSkipped", _LONG, False),
        Field("preserveInsertionOrder", Primitive("boolean"), False),
    )
)
_OPTIMIZED = Struct((Field("path", Primitive("string")), Field("metrics", _METRICS)))


class OptimizeResult:
    """The result of an OPTIMIZE or REORG: one row of metrics."""

    def __init__(
        self, handle: Handle, considered: int, change: Change, plan: ClusteringPlan | None = None
    ) -> None:
        self._place = local_path(handle.store.url) or handle.store.url
        self._considered = considered
        self._change = change
        self._plan = plan

    def __call__(self, by: ResultRows[R], /) -> R:
        """Return one row: the table's location and the metrics by Delta's names."""
        added = [action for action in self._change.actions if isinstance(action, Add)]
        removed = [action for action in self._change.actions if isinstance(action, Remove)]
        partitions = {tuple(sorted(add.partition_values.items())) for add in added}
        metrics = (
            len(added),
            len(removed),
            _size_statistics([add.size for add in added]),
            _size_statistics([remove.size or 0 for remove in removed]),
            len(partitions),
            self._zorder_counts(removed, len(partitions)),
            None if self._plan is None else _clustering_counts(self._plan),
            1 if added else 0,
            self._considered,
            self._considered - len(removed),
            not (self._plan or self._change.parameters.get("zOrderBy")),
        )
        return by.frame(_OPTIMIZED, [(self._place, metrics)])

    def _zorder_counts(
        self, removed: Sequence[Remove], partitions: int
    ) -> tuple[object, ...] | None:
        """Return Delta's `zOrderStats`: each partition is one cube of all its files. None without
        ZORDER BY.
        """
        if not self._change.parameters.get("zOrderBy"):
            return None
        merged = (len(removed), sum(remove.size or 0 for remove in removed))
        return ("all", (0, 0), merged, 0, merged, partitions, None)


def _clustering_counts(plan: ClusteringPlan) -> tuple[object, ...]:
    """Return Delta's `clusteringStats` for a plan."""
    merged = (len(plan.files), sum(add.size for add in plan.files))
    return (
        (plan.in_cubes.number, plan.in_cubes.size),
        (plan.others.number, plan.others.size),
        plan.cubes_before,
        merged,
        len(plan.cubes),
    )


def _size_statistics(sizes: Sequence[int]) -> tuple[int | None, int | None, float, int, int]:
    """Return Delta's statistics of file sizes in bytes: minimum, maximum, average, number, sum;
    for no files None for the first two, and zeros.
    """
    if not sizes:
        return (None, None, 0.0, 0, 0)
    return (min(sizes), max(sizes), sum(sizes) / len(sizes), len(sizes), sum(sizes))


def optimize(context: Context, statement: Optimize) -> OptimizeResult:
    """Carry out OPTIMIZE [FULL] [WHERE] [ZORDER BY]: cluster a clustered table, compact others.

    Raises InvalidRequest for a clause that the table doesn't allow, and for an unknown table.
    """
    handle = context.tables.require(statement.table)
    work = context.work(handle)
    plan = None
    if statement.is_automatic:
        # None if it was switched off
        limits = statement.limits or packing_limits(context.engine, work.snapshot)
        change = work.compact(limits=limits or PackingLimits(bytes_max=0))
    elif (plan := _clustering(context, statement, work.snapshot)) is not None:
        change = work.cluster(plan)
    elif statement.zorder_by:
        change = work.zorder(statement.zorder_by, statement.where)
    else:
        change = work.compact(statement.where)
    context.transaction.stage(handle, change)
    return OptimizeResult(handle, _considered(work, statement.where), change, plan)


def _clustering(context: Context, statement: Optimize, table: Snapshot) -> ClusteringPlan | None:
    """Return the plan by which OPTIMIZE clusters the table; None without clustering columns.

    Raises InvalidRequest for WHERE or ZORDER BY on a clustered table, and FULL on any other.
    """
    columns = clustered_by(table.schema, table.domains, table=table.table)
    column_names = ", ".join(map(column_text, columns))
    if FEATURE in table.features and (statement.where is not None or statement.zorder_by):
        clause = "WHERE" if statement.where is not None else "ZORDER BY"
        by = f"by ({column_names})" if columns else "by no columns (CLUSTER BY NONE)"
        instead = (
            "OPTIMIZE without that clause clusters what isn't yet, OPTIMIZE ... FULL all of it, "
            "ALTER TABLE ... CLUSTER BY chooses other columns"
            if columns
            else "OPTIMIZE without that clause packs small files, ALTER TABLE ... CLUSTER BY "
            "(column, ...) chooses columns"
        )
        raise InvalidRequest(
            f"{table.table}: OPTIMIZE ... {clause}: the table is clustered {by}, so it has no "
            f"partitions and no other order; {instead}"
        )
    if not columns or FEATURE not in table.features:
        if statement.full:
            raise InvalidRequest(
                f"{table.table}: OPTIMIZE ... FULL is for clustered tables, and this one is "
                "clustered by no columns; ALTER TABLE ... CLUSTER BY (column, ...) clusters it, "
                "OPTIMIZE without FULL packs small files"
            )
        return None
    target = table.properties.target_file_size or context.engine.settings.target_file_bytes
    return plan_clustering(
        table.files.adds(), columns, full=statement.full, target_file_bytes=target
    )


def reorg(context: Context, statement: Reorg) -> OptimizeResult:
    """Carry out REORG TABLE ... APPLY (PURGE), or (UPGRADE UNIFORM ...).

    Raises InvalidRequest for an upgrade of a table that can't have icebergCompatV2.
    """
    handle = context.tables.require(statement.table)
    work = context.work(handle)
    if statement.for_iceberg:
        change = upgrade_to_iceberg(work, environment_of(context, handle))
    else:
        change = work.compact(statement.where, purge=True, limits=statement.limits)
    context.transaction.stage(handle, change)
    return OptimizeResult(handle, _considered(work, statement.where), change)


def _considered(work: TableData, where: Expression | None) -> int:
    """Return the number of files in the partitions of the condition."""
    return int(work.files_of_partitions(where).num_rows)


def vacuum_table(context: Context, statement: Vacuum) -> Rows:
    """Carry out VACUUM: return the table's location, with DRY RUN the URLs of the files to delete.

    Files are deleted at once, after expired branches and tags were dropped. Raises
    InvalidRequest for a retention that is too short, unless the session has turned the check off.
    """
    return Rows(schema=_PATHS, rows=[(path,) for path in _vacuumed_paths(context, statement)])


def _vacuumed_paths(context: Context, statement: Vacuum) -> list[str]:
    """Carry out VACUUM and return the result's paths."""
    handle = context.tables.require(statement.table)
    retention_ms = None
    if statement.retain_hours is not None:
        retention_ms = int(statement.retain_hours * _HOUR_MS)
    check = context.plane.setting(_RETENTION_CHECK, "true").lower() != "false"
    others_open = _others_open(context)
    gone = _end_expired(context.engine, dry_run=statement.dry_run)
    other_lines = partial(context.engine.other_lines, handle, without=gone)
    is_of_lake = handle.in_lake and context.engine.catalog.is_lake
    open_branches = context.engine.open_branches if is_of_lake else None
    if statement.dry_run:
        plan = plan_vacuum(
            handle.log,
            retention_ms,
            lite=statement.lite,
            retention_check=check,
            others_open=others_open,
            other_lines=other_lines,
            open_branches=open_branches,
        )
        return [absolute_url(handle.store.url, path) for path in plan.paths]
    vacuum(
        handle.log,
        retention_ms,
        lite=statement.lite,
        retention_check=check,
        begin=partial(registered, context.engine, context.transaction.session_number),
        others_open=others_open,
        other_lines=other_lines,
        open_branches=open_branches,
    )
    return [handle.store.url]


def _end_expired(engine: Engine, *, dry_run: bool) -> Collection[int]:
    """Drop the expired branches and tags; with `dry_run` return the numbers of those that
    would be dropped.
    """
    if not engine.catalog.is_lake or engine.branch is not None:
        return ()
    if dry_run:
        return {entry.number for entry in engine.catalog.of_lake().branches.expired()}
    drop_expired(engine)
    return ()


def _others_open(context: Context) -> ReadOpenTransactions:
    """Return the query for the lake's other open transactions, which may write path tables too."""
    return partial(context.engine.catalog.transactions.others_open, context.transaction.id)


def restore_table(context: Context, statement: Restore) -> dict[str, int]:
    """Carry out RESTORE TABLE ... TO, and return its counts.

    A time after the newest commit means that one. Raises InvalidRequest if there is no such
    version, and as `restore`.
    """
    handle = context.tables.require(statement.table)
    if statement.travel.branch_or_tag is not None:
        raise InvalidRequest(
            f"RESTORE TABLE {statement.table}: expected a version or a time, found "
            f"{statement.travel}; PUBLISH BRANCH brings a branch's changes here, and INSERT "
            "OVERWRITE the rows of a branch or a tag"
        )
    target = context.snapshot(handle, statement.travel, newest_if_later=True)
    reach = context.engine.reach(handle)

    def exists(add: Add) -> bool:
        """Return whether a file and its deletion vector's file exist."""
        if not _exists(context, reach.url(add.path)):
            return False
        vector = add.deletion_vector
        if vector is None or vector.storage_type == "i":
            return True
        place = reach.vector(vector)
        if is_absolute(place):
            return _exists(context, place)
        return handle.store.head(place) is not None

    result = restore(context.snapshot(handle), target, context.engine.system.now_ms(), exists)
    context.transaction.stage(handle, result.change)
    return result.counts


def generate(context: Context, statement: Generate) -> None:
    """Carry out GENERATE symlink_format_manifest, at once.

    Raises InvalidRequest inside an explicit transaction, whose files nobody else may see yet, and
    as `write_manifests`.
    """
    handle = context.tables.require(statement.table)
    if context.transaction.explicit:
        raise InvalidRequest(
            f"{statement.table}: GENERATE writes manifests for other programs at once, which can't "
            "be part of a transaction; COMMIT or ROLLBACK first"
        )
    if handle.chain:
        raise InvalidRequest(
            f"{statement.table}: GENERATE writes manifests for other programs into the table's "
            "folder, where they find main's rows; run it there, after the branch is published"
        )
    reach = context.engine.reach(handle)
    write_manifests(statement.mode, context.snapshot(handle), handle.store, reach)


def convert(context: Context, statement: ConvertToDelta) -> None:
    """Carry out CONVERT TO DELTA of a folder of Parquet files; a Delta table is left alone.

    Raises as `convert_folder`.
    """
    handle = context.engine.at(statement.location, TablePath(statement.location))
    if context.tables.exists(handle):
        return
    change = convert_folder(
        statement, handle.store, environment_of(context), time_zone=context.zone()
    )
    context.transaction.stage(handle, change)


def _exists(context: Context, url: str) -> bool:
    folder, _, name = url.rpartition("/")
    return context.engine.store_at(folder).head(unquote(name)) is not None


def refresh(context: Context, statement: RefreshTable) -> None:
    """Carry out REFRESH TABLE and CACHE TABLE: nothing to do for a table or view of the lake.

    Each statement reads the newest version, and a cache by name would keep showing one version.
    Spark carries the statement out for its own tables. Raises InvalidRequest for an unknown table,
    unless IF EXISTS passes over it.
    """
    table = statement.table
    if context.tables.find(table) is not None:
        return
    if isinstance(table, TableName) and context.tables.viewed(table) is not None:
        return
    if context.spark.catalog.tableExists(str(statement.table)):
        context.command(statement.command)
    elif not statement.if_exists:
        context.tables.require(statement.table)


COMMANDS = {
    **served(
        command(Optimize, optimize, its_table(LockMode.IX)),
        command(
            Reorg,
            reorg,
            lambda statement: [
                (statement.table, LockMode.SCH_M if statement.for_iceberg else LockMode.IX)
            ],
        ),
        command(RepairTable, giving_rows(sync_metadata), its_table(LockMode.SCH_S), is_alone=True),
        command(Vacuum, giving_rows(vacuum_table), its_table(LockMode.IX), is_alone=True),
        command(Restore, giving_counts(restore_table), its_table(LockMode.SCH_M)),
    ),
    **dict(
        (
            command(Generate, giving_nothing(generate), its_table(LockMode.SCH_S)),
            command(
                ConvertToDelta,
                giving_nothing(convert),
                lambda statement: [(TablePath(statement.location), LockMode.SCH_M)],
            ),
            command(RefreshTable, giving_nothing(refresh), its_table(LockMode.SCH_S)),
        )
    ),
}
