"""The grammar of OPTIMIZE, VACUUM, RESTORE, GENERATE, CONVERT, REORG, ANALYZE, REFRESH, REPAIR."""

from __future__ import annotations

from txlake.sql.clauses import expression, scope_of, time_travel
from txlake.sql.columns import data_type
from txlake.sql.cursor import Cursor
from txlake.sql.spark_commands import spark_command
from txlake.sql.statements import (
    AnalyzeTable,
    ConvertTable,
    ConvertToDelta,
    Generate,
    Optimize,
    RefreshTable,
    Reorg,
    RepairTable,
    Restore,
    SparkCommand,
    TablePath,
    Vacuum,
    is_place,
)
from txlake.sql.tokens import Kind


def optimize(cursor: Cursor) -> Optimize:
    """Parse OPTIMIZE t [FULL] [WHERE condition] [ZORDER BY (columns)]."""
    cursor.expect("OPTIMIZE")
    table = cursor.table_or_place()
    full = cursor.accept("FULL")
    where = None
    if cursor.accept("WHERE"):
        where = expression(cursor, scope_of(table, None), ["ZORDER"], what="a condition")
    zorder_by: tuple[str, ...] = ()
    if cursor.accept("ZORDER"):
        cursor.expect("BY")

        def column() -> str:
            return ".".join(cursor.path())

        zorder_by = (
            cursor.parenthesized(column) if cursor.at("(") else cursor.comma_separated(column)
        )
    if not cursor.at_end:
        cursor.fail("FULL, WHERE, ZORDER BY or the end of the statement")
    return Optimize(table=table, where=where, zorder_by=zorder_by, full=full)


def reorg(cursor: Cursor) -> Reorg:
    """Parse REORG TABLE t { [WHERE condition] APPLY (PURGE) | APPLY (UPGRADE UNIFORM (...)) }."""
    cursor.expect("REORG", "TABLE")
    table = cursor.table_or_place()
    where = None
    if cursor.accept("WHERE"):
        where = expression(cursor, scope_of(table, None), ["APPLY"], what="a condition")
    cursor.expect("APPLY", "(")
    if where is None and cursor.accept("UPGRADE"):
        cursor.expect("UNIFORM", "(", "ICEBERG_COMPAT_VERSION", "=")
        if cursor.token.text != "2":
            cursor.refuse("ICEBERG_COMPAT_VERSION = 2 is the one that is written here")
        cursor.advance()
        cursor.expect(")", ")")
        cursor.expect_end()
        return Reorg(table=table, for_iceberg=True)
    cursor.expect("PURGE", ")")
    cursor.expect_end()
    return Reorg(table=table, where=where)


def vacuum(cursor: Cursor) -> Vacuum:
    """Parse VACUUM t [FULL | LITE] [RETAIN n HOURS] [DRY RUN], the options in any order."""
    cursor.expect("VACUUM")
    table = cursor.table_or_place()
    retain_hours: float | None = None
    dry_run = False
    kind: str | None = None
    while not cursor.at_end:
        if kind is None and cursor.at_any("FULL", "LITE"):
            kind = cursor.advance().upper
        elif retain_hours is None and cursor.accept("RETAIN"):
            token = cursor.token
            if token.kind is not Kind.NUMBER or not token.text.replace(".", "", 1).isdecimal():
                cursor.fail("a number of hours, 0 or more")
            retain_hours = float(cursor.advance().text)
            cursor.expect_any("HOURS", "HOUR")
        elif not dry_run and cursor.at("DRY"):
            cursor.expect("DRY", "RUN")
            dry_run = True
        elif cursor.at("USING"):
            cursor.refuse("VACUUM USING INVENTORY is not known")
        else:
            cursor.fail("FULL, LITE, RETAIN n HOURS, DRY RUN or the end of the statement")
    return Vacuum(table=table, retain_hours=retain_hours, dry_run=dry_run, lite=kind == "LITE")


def restore(cursor: Cursor) -> Restore:
    """Parse RESTORE [TABLE] t [TO] { VERSION | TIMESTAMP } AS OF moment."""
    cursor.expect("RESTORE")
    if cursor.at("TABLE") and cursor.ahead().text != ".":
        cursor.advance()
    table = cursor.table_or_place()
    cursor.accept("TO")
    travel = time_travel(cursor)
    if travel is None:
        cursor.fail("TO VERSION AS OF n, or TO TIMESTAMP AS OF '...'")
    cursor.expect_end()
    return Restore(table, travel)


def generate(cursor: Cursor) -> Generate:
    """Parse GENERATE mode FOR TABLE t; whether the mode exists isn't checked."""
    cursor.expect("GENERATE")
    mode = cursor.name("symlink_format_manifest")
    cursor.expect("FOR", "TABLE")
    table = cursor.table_or_place()
    cursor.expect_end()
    return Generate(table, mode)


def repair(cursor: Cursor) -> RepairTable:
    """Parse [MSCK] REPAIR TABLE t SYNC METADATA."""
    cursor.accept("MSCK")
    cursor.expect("REPAIR", "TABLE")
    table = cursor.table_or_place()
    if cursor.at_any("ADD", "DROP") or (cursor.at("SYNC") and cursor.ahead().upper == "PARTITIONS"):
        cursor.refuse("a table's partitions are in its log: only SYNC METADATA is known")
    cursor.expect("SYNC", "METADATA")
    cursor.expect_end()
    return RepairTable(table)


def convert(cursor: Cursor) -> ConvertToDelta | ConvertTable:
    """Parse CONVERT TO DELTA { t | parquet.`place` } [NO STATISTICS] [PARTITIONED BY (p type,
    ...)].

    Return ConvertToDelta for a place, ConvertTable for a name.
    """
    cursor.expect("CONVERT", "TO", "DELTA")
    start = cursor.token
    table = cursor.table("parquet.`place`, or the name of a Parquet table")
    if isinstance(table, TablePath):
        cursor.refuse("expected parquet.`place`, a folder of Parquet files, or a name", start)
    statistics = not cursor.accept("NO", "STATISTICS")
    columns: tuple[tuple[str, str], ...] = ()
    if cursor.accept("PARTITIONED", "BY"):
        columns = cursor.parenthesized(lambda: (cursor.name("a column"), data_type(cursor)))
    cursor.expect_end()
    if len(table.parts) == 2 and table.parts[0].lower() == "parquet":
        return ConvertToDelta(location=table.name, partition_columns=columns, statistics=statistics)
    if is_place(table.name):
        cursor.refuse(
            "only Parquet files are converted: expected parquet.`place`, or a name", start
        )
    return ConvertTable(table=table, partition_columns=columns, statistics=statistics)


def analyze(cursor: Cursor) -> AnalyzeTable:
    """Parse ANALYZE TABLE t COMPUTE [DELTA] STATISTICS [NOSCAN | FOR COLUMNS ... | FOR ALL
    COLUMNS].
    """
    cursor.expect("ANALYZE")
    if cursor.at("TABLES"):
        cursor.refuse("ANALYZE takes one table: ANALYZE TABLE t COMPUTE STATISTICS")
    cursor.expect("TABLE")
    table = cursor.table()
    if cursor.at("PARTITION"):
        cursor.refuse("statistics are those of a whole Delta table: leave PARTITION out")
    cursor.expect("COMPUTE")
    delta = cursor.accept("DELTA")
    cursor.expect("STATISTICS")
    columns: tuple[tuple[str, ...], ...] = ()
    if cursor.accept("FOR", "COLUMNS"):
        columns = (
            cursor.parenthesized(cursor.path)
            if cursor.at("(")
            else cursor.comma_separated(cursor.path)
        )
    elif not cursor.accept("FOR", "ALL", "COLUMNS"):
        cursor.accept("NOSCAN")
    if not cursor.at_end:
        cursor.fail("NOSCAN, FOR COLUMNS, FOR ALL COLUMNS or the end of the statement")
    return AnalyzeTable(table=table, delta=delta, columns=columns)


def refresh(cursor: Cursor) -> RefreshTable | SparkCommand:
    """Parse REFRESH [TABLE] t; REFRESH FUNCTION and REFRESH 'path' are commands for Spark."""
    cursor.expect("REFRESH")
    names = {Kind.WORD, Kind.QUOTED}
    if cursor.token.kind not in names or (cursor.at("FUNCTION") and cursor.ahead().kind in names):
        return spark_command(cursor)
    if cursor.at("TABLE") and cursor.ahead().kind in names:
        cursor.advance()
    table = cursor.table()
    cursor.expect_end()
    return RefreshTable(table, spark_command(cursor).command)
