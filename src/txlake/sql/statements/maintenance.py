"""Statements that maintain a table's files and history."""

from __future__ import annotations

from dataclasses import dataclass

from txlake.log.small_files import PackingLimits
from txlake.sql.statements.descriptions import DescribeDetail, DescribeHistory
from txlake.sql.statements.expressions import Expression, SqlText
from txlake.sql.statements.names import Table, TableName, TimeTravel


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimize:
    """OPTIMIZE t [FULL] [WHERE partitions] [ZORDER BY columns].

    With `is_automatic`, which SQL can't say, it packs what `delta.autoOptimize.autoCompact` is for,
    by these `limits` or the table's own.
    """

    table: Table
    where: Expression | None = None
    zorder_by: tuple[str, ...] = ()
    full: bool = False
    is_automatic: bool = False
    limits: PackingLimits | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reorg:
    """REORG TABLE t [WHERE partitions] APPLY (PURGE): rewrite files with deleted rows.

    With `limits`, which SQL can't say, only those that have many.

    With `for_iceberg` APPLY (UPGRADE UNIFORM (ICEBERG_COMPAT_VERSION = 2)), without a condition:
    make the table and all its files compatible with icebergCompatV2.
    """

    table: Table
    where: Expression | None = None
    for_iceberg: bool = False
    limits: PackingLimits | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuum:
    """VACUUM t [LITE | FULL] [RETAIN hours HOURS] [DRY RUN]."""

    table: Table
    retain_hours: float | None = None
    dry_run: bool = False
    lite: bool = False


@dataclass(frozen=True, slots=True)
class Restore:
    """RESTORE [TABLE] t TO { VERSION | TIMESTAMP } AS OF."""

    table: Table
    travel: TimeTravel


@dataclass(frozen=True, slots=True)
class Generate:
    """GENERATE symlink_format_manifest FOR TABLE t."""

    table: Table
    mode: str


@dataclass(frozen=True, slots=True)
class RepairTable:
    """[MSCK] REPAIR TABLE t SYNC METADATA: publish its versions as Iceberg metadata."""

    table: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertToDelta:
    """CONVERT TO DELTA parquet.`place` [NO STATISTICS] [PARTITIONED BY (p type, ...)]."""

    location: str
    partition_columns: tuple[tuple[str, str], ...] = ()
    statistics: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertTable:
    """CONVERT TO DELTA t: a Parquet table of Spark's catalog becomes a named table of the lake.

    Attributes:
        partition_columns: of PARTITIONED BY; () takes them from Spark's catalog.
    """

    table: TableName
    partition_columns: tuple[tuple[str, str], ...] = ()
    statistics: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeTable:
    """ANALYZE TABLE t COMPUTE [DELTA] STATISTICS [NOSCAN | FOR COLUMNS ... | FOR ALL COLUMNS].

    Attributes:
        delta: recompute the files' statistics in the log.
        only_missing: only of files that have none, which SQL can't say.
        columns: the columns named, each a path.
    """

    table: Table
    delta: bool = False
    columns: tuple[tuple[str, ...], ...] = ()
    only_missing: bool = False


@dataclass(frozen=True, slots=True)
class RefreshTable:
    """REFRESH TABLE t, CACHE TABLE t, UNCACHE TABLE t.

    `command` is run for a table or view of Spark's; a lake's table needs nothing.
    """

    table: Table
    command: SqlText
    if_exists: bool = False


MaintenanceStatement = (
    Optimize
    | Reorg
    | Vacuum
    | Restore
    | Generate
    | RepairTable
    | ConvertToDelta
    | ConvertTable
    | AnalyzeTable
    | RefreshTable
    | DescribeHistory
    | DescribeDetail
)
