"""Statements that look after tables: OPTIMIZE, REORG, VACUUM, RESTORE, GENERATE, CONVERT.

Owns how they run in a session and the rows that they answer with.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from urllib.parse import unquote

from txlake.commands import convert as converted
from txlake.commands import generate as generated
from txlake.commands.iceberg import for_iceberg
from txlake.commands.restore import restore
from txlake.commands.tables import environment_of
from txlake.conflict.locking import LockMode
from txlake.errors import InvalidRequest
from txlake.log.cubes import Clustering, plan_clustering
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add, Remove
from txlake.protocol.clustering import FEATURE, clustered_by
from txlake.protocol.paths import absolute_url, is_absolute
from txlake.protocol.schema_rules import column_text
from txlake.protocol.types import Field, Primitive, Struct
from txlake.session.catalog_access import registered
from txlake.session.command import R, command, giving_counts, giving_nothing, giving_rows, its_table
from txlake.session.context import Context
from txlake.session.engine import Handle
from txlake.statements import (
    ConvertToDelta,
    Expression,
    Generate,
    Optimize,
    RefreshTable,
    Reorg,
    Restore,
    TableName,
    TablePath,
    Vacuum,
)
from txlake.storage import local_path
from txlake.transaction.change import Change
from txlake.transaction.data_plane import AnswerRows, TableData
from txlake.transaction.vacuum import OthersOpen, plan_vacuum, vacuum
from txlake.views.describe import Rows

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


class Optimized:
    """What an OPTIMIZE did, and the row that says so."""

    def __init__(
        self, handle: Handle, considered: int, change: Change, plan: Clustering | None = None
    ) -> None:
        self._place = local_path(handle.store.url) or handle.store.url
        self._considered = considered
        self._change = change
        self._plan = plan

    def __call__(self, by: AnswerRows[R], /) -> R:
        """One row: the table's place and the metrics, named as Delta names them."""
        added = [one for one in self._change.actions if isinstance(one, Add)]
        removed = [one for one in self._change.actions if isinstance(one, Remove)]
        partitions = {tuple(sorted(one.partition_values.items())) for one in added}
        metrics = (
            len(added),
            len(removed),
            _sizes([one.size for one in added]),
            _sizes([one.size or 0 for one in removed]),
            len(partitions),
            self._zordered(removed, len(partitions)),
            None if self._plan is None else _clustering_counts(self._plan),
            1 if added else 0,
            self._considered,
            self._considered - len(removed),
            not (self._plan or self._change.parameters.get("zOrderBy")),
        )
        return by.frame(_OPTIMIZED, [(self._place, metrics)])

    def _zordered(self, removed: Sequence[Remove], partitions: int) -> tuple[object, ...] | None:
        """Each partition is one cube, made anew from all of its files."""
        if not self._change.parameters.get("zOrderBy"):
            return None
        merged = (len(removed), sum(one.size or 0 for one in removed))
        return ("all", (0, 0), merged, 0, merged, partitions, None)


def _clustering_counts(plan: Clustering) -> tuple[object, ...]:
    merged = (len(plan.files), sum(add.size for add in plan.files))
    return (
        (plan.in_cubes.number, plan.in_cubes.size),
        (plan.others.number, plan.others.size),
        plan.cubes_before,
        merged,
        len(plan.cubes),
    )


def _sizes(sizes: Sequence[int]) -> tuple[int | None, int | None, float, int, int]:
    if not sizes:
        return (None, None, 0.0, 0, 0)
    return (min(sizes), max(sizes), sum(sizes) / len(sizes), len(sizes), sum(sizes))


def optimize(context: Context, statement: Optimize) -> Optimized:
    """OPTIMIZE [FULL] [WHERE] [ZORDER BY]: a clustered table is clustered, others are packed.

    Raises InvalidRequest for a clause that the table doesn't allow.
    """
    handle = context.require(statement.table)
    work = context.work(handle)
    plan = _clustering(context, statement, work.snapshot)
    if plan is not None:
        change = work.cluster(plan)
    elif statement.zorder_by:
        change = work.zorder(statement.zorder_by, statement.where)
    else:
        change = work.compact(statement.where)
    context.transaction.stage(handle, change)
    return Optimized(handle, _considered(work, statement.where), change, plan)


def _clustering(context: Context, statement: Optimize, table: Snapshot) -> Clustering | None:
    """What is to be clustered; None for a table that isn't clustered by any column."""
    columns = clustered_by(table.schema, table.domains, table=table.table)
    shown = ", ".join(map(column_text, columns))
    if FEATURE in table.features and (statement.where is not None or statement.zorder_by):
        found = "WHERE" if statement.where is not None else "ZORDER BY"
        by = f"by ({shown})" if columns else "by no columns (CLUSTER BY NONE)"
        instead = (
            "OPTIMIZE without that clause clusters what isn't yet, OPTIMIZE ... FULL all of it, "
            "ALTER TABLE ... CLUSTER BY chooses other columns"
            if columns
            else "OPTIMIZE without that clause packs small files, ALTER TABLE ... CLUSTER BY "
            "(column, ...) chooses columns"
        )
        raise InvalidRequest(
            f"{table.table}: OPTIMIZE ... {found}: the table is clustered {by}, so it has no "
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


def reorg(context: Context, statement: Reorg) -> Optimized:
    """REORG TABLE ... APPLY.

    Raises InvalidRequest for a table that can't have icebergCompatV2, which is to have it.
    """
    handle = context.require(statement.table)
    work = context.work(handle)
    if statement.for_iceberg:
        change = for_iceberg(work, environment_of(context, handle))
    else:
        change = work.compact(statement.where, purge=True)
    context.transaction.stage(handle, change)
    return Optimized(handle, _considered(work, statement.where), change)


def _considered(work: TableData, where: Expression | None) -> int:
    return int(work.files_of_partitions(where).num_rows)


def vacuum_table(context: Context, statement: Vacuum) -> Rows:
    """VACUUM: with DRY RUN the files that it would delete, else the table's place."""
    return Rows(schema=_PATHS, rows=[(path,) for path in _vacuumed(context, statement)])


def _vacuumed(context: Context, statement: Vacuum) -> list[str]:
    handle = context.require(statement.table)
    retention_ms = None
    if statement.retain_hours is not None:
        retention_ms = int(statement.retain_hours * _HOUR_MS)
    check = context.plane.setting(_RETENTION_CHECK, "true").lower() != "false"
    others_open = _others_open(context)
    if statement.dry_run:
        plan = plan_vacuum(handle.log, retention_ms, retention_check=check, others_open=others_open)
        return [absolute_url(handle.store.url, path) for path in plan.paths]
    vacuum(
        handle.log,
        retention_ms,
        retention_check=check,
        begin=partial(registered, context.engine, context.transaction.session_number),
        others_open=others_open,
    )
    return [handle.store.url]


def _others_open(context: Context) -> OthersOpen:
    """Asks for the lake's other transactions: they may write path tables too."""
    return partial(context.engine.catalog.transactions.others_open, context.transaction.id)


def restore_table(context: Context, statement: Restore) -> dict[str, int]:
    """RESTORE TABLE ... TO."""
    handle = context.require(statement.table)
    wanted = context.snapshot(handle, statement.travel, newest_if_later=True)

    reach = context.engine.reach(handle)

    def is_there(add: Add) -> bool:
        if not _exists(context, reach.url(add.path)):
            return False
        vector = add.deletion_vector
        if vector is None or vector.storage_type == "i":
            return True
        place = reach.vector(vector)
        if is_absolute(place):
            return _exists(context, place)
        return handle.store.head(place) is not None

    restored = restore(context.snapshot(handle), wanted, context.engine.system.now_ms(), is_there)
    context.transaction.stage(handle, restored.change)
    return restored.counts


def generate(context: Context, statement: Generate) -> None:
    """GENERATE symlink_format_manifest."""
    handle = context.require(statement.table)
    reach = context.engine.reach(handle)
    generated.generate(statement.mode, context.snapshot(handle), handle.store, reach)


def convert(context: Context, statement: ConvertToDelta) -> None:
    """CONVERT TO DELTA: the Parquet files of a folder become a table. A Delta table stays one."""
    handle = context.engine.at(statement.location, TablePath(statement.location))
    if context.exists(handle):
        return
    change = converted.convert(
        statement, handle.store, environment_of(context), time_zone=context.zone()
    )
    context.transaction.stage(handle, change)


def _exists(context: Context, url: str) -> bool:
    folder, _, name = url.rpartition("/")
    return context.engine.store_at(folder).head(unquote(name)) is not None


def refresh(context: Context, statement: RefreshTable) -> None:
    """REFRESH TABLE: nothing is to be done, since each statement looks for the newest version.

    CACHE TABLE neither: a cache by name would go on showing one version. Raises InvalidRequest for
    a table that there isn't.
    """
    table = statement.table
    if context.find(table) is not None:
        return
    if isinstance(table, TableName) and context.viewed(table) is not None:
        return
    if context.spark.catalog.tableExists(str(statement.table)):
        context.command(statement.command)
    elif not statement.if_exists:
        context.require(statement.table)


COMMANDS = dict(
    (
        command(Optimize, optimize, its_table(LockMode.IX)),
        command(
            Reorg,
            reorg,
            lambda one: [(one.table, LockMode.SCH_M if one.for_iceberg else LockMode.IX)],
        ),
        command(Vacuum, giving_rows(vacuum_table), its_table(LockMode.IX), is_alone=True),
        command(Restore, giving_counts(restore_table), its_table(LockMode.SCH_M)),
        command(Generate, giving_nothing(generate), its_table(LockMode.SCH_S)),
        command(
            ConvertToDelta,
            giving_nothing(convert),
            lambda one: [(TablePath(one.location), LockMode.SCH_M)],
        ),
        command(RefreshTable, giving_nothing(refresh), its_table(LockMode.SCH_S)),
    )
)
