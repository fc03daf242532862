"""OPTIMIZE, VACUUM, RESTORE and their kin; SHOW, DESCRIBE, USE."""

from __future__ import annotations

import pytest

from tests.sql.parsing import name, one, refused, sql
from txlake.statements import (
    AnalyzeTable,
    ConvertToDelta,
    DescribeDatabase,
    DescribeDetail,
    DescribeHistory,
    DescribeTable,
    Generate,
    Optimize,
    RefreshTable,
    Reorg,
    Restore,
    ShowColumns,
    ShowCreateTable,
    ShowDatabases,
    ShowPartitions,
    ShowProperties,
    ShowTables,
    SparkCommand,
    SqlText,
    Statement,
    TablePath,
    TimeTravel,
    UseDatabase,
    Vacuum,
)

T = name("t")
P = TablePath("/p")
V3 = TimeTravel(version=3)


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("OPTIMIZE t", Optimize(table=T)),
        ("OPTIMIZE '/p'", Optimize(table=P)),
        ("OPTIMIZE delta.`/p` FULL", Optimize(table=P, full=True)),
        (
            "OPTIMIZE d.t WHERE d.t.p = 'x' AND q IN (1) ZORDER BY (a, b.c)",
            Optimize(
                table=name("d.t"),
                where=SqlText("d.t.p = 'x' AND q IN (1)", (), ((0, 3, "t"),)),
                zorder_by=("a", "b.c"),
            ),
        ),
        ("OPTIMIZE t ZORDER BY a, b", Optimize(table=T, zorder_by=("a", "b"))),
        ("REORG TABLE t APPLY (PURGE)", Reorg(table=T)),
        ("REORG TABLE t WHERE p = 1 APPLY (PURGE)", Reorg(table=T, where=sql("p = 1"))),
        ("VACUUM t", Vacuum(table=T)),
        ("VACUUM '/p' DRY RUN", Vacuum(table=P, dry_run=True)),
        (
            "VACUUM t LITE RETAIN 0 HOURS DRY RUN",
            Vacuum(table=T, lite=True, retain_hours=0.0, dry_run=True),
        ),
        ("VACUUM t DRY RUN RETAIN 1.5 HOURS", Vacuum(table=T, retain_hours=1.5, dry_run=True)),
        ("VACUUM t FULL", Vacuum(table=T)),
        ("RESTORE TABLE t TO VERSION AS OF 3", Restore(T, V3)),
        ("RESTORE t VERSION AS OF 3", Restore(T, V3)),
        ("RESTORE delta.`/p` TO VERSION AS OF 3", Restore(P, V3)),
        (
            "RESTORE t TO TIMESTAMP AS OF '2026-01-01'",
            Restore(T, TimeTravel(timestamp="2026-01-01")),
        ),
        (
            "RESTORE TABLE t TO TIMESTAMP AS OF date_sub(current_date(), 1)",
            Restore(T, TimeTravel(timestamp_expression="date_sub(current_date(), 1)")),
        ),
        ("ANALYZE TABLE t COMPUTE STATISTICS", AnalyzeTable(table=T)),
        ("ANALYZE TABLE t COMPUTE STATISTICS NOSCAN", AnalyzeTable(table=T)),
        ("ANALYZE TABLE t COMPUTE STATISTICS FOR ALL COLUMNS", AnalyzeTable(table=T)),
        (
            "ANALYZE TABLE t COMPUTE STATISTICS FOR COLUMNS a, b.c",
            AnalyzeTable(table=T, columns=(("a",), ("b", "c"))),
        ),
        ("ANALYZE TABLE t COMPUTE DELTA STATISTICS", AnalyzeTable(table=T, delta=True)),
        ("REFRESH TABLE t", RefreshTable(T, sql("REFRESH TABLE t"))),
        ("REFRESH d.t", RefreshTable(name("d.t"), sql("REFRESH d.t"))),
        ("REFRESH table", RefreshTable(name("table"), sql("REFRESH table"))),
        ("REFRESH FUNCTION f", SparkCommand(sql("REFRESH FUNCTION f"))),
        ("REFRESH '/p'", SparkCommand(sql("REFRESH '/p'"))),
        ("GENERATE symlink_format_manifest FOR TABLE t", Generate(T, "symlink_format_manifest")),
        ("CONVERT TO DELTA parquet.`/p`", ConvertToDelta(location="/p")),
        (
            "CONVERT TO DELTA parquet.`/p` NO STATISTICS PARTITIONED BY (a INT, b DATE)",
            ConvertToDelta(
                location="/p",
                partition_columns=(("a", "INT"), ("b", "DATE")),
                statistics=False,
            ),
        ),
        ("DESCRIBE HISTORY t", DescribeHistory(T)),
        ("DESC HISTORY delta.`/p` LIMIT 3", DescribeHistory(P, 3)),
        ("DESCRIBE HISTORY '/p'", DescribeHistory(P)),
        ("DESCRIBE DETAIL d.t", DescribeDetail(name("d.t"))),
        ("DESCRIBE t", DescribeTable(table=T)),
        ("DESC TABLE t", DescribeTable(table=T)),
        ("DESCRIBE TABLE EXTENDED d.t", DescribeTable(table=name("d.t"), extended=True)),
        ("DESCRIBE FORMATTED t", DescribeTable(table=T, extended=True)),
        ("DESCRIBE t a.b", DescribeTable(table=T, column=("a", "b"))),
        ("DESCRIBE history", DescribeTable(table=name("history"))),
        ("DESCRIBE detail.t", DescribeTable(table=name("detail.t"))),
        ("DESCRIBE extended", DescribeTable(table=name("extended"))),
        ("DESCRIBE HISTORY history", DescribeHistory(name("history"))),
        ("DESCRIBE DATABASE EXTENDED d", DescribeDatabase("d", True)),
        ("DESCRIBE SCHEMA d", DescribeDatabase("d")),
        ("SHOW TABLES", ShowTables()),
        ("SHOW TABLES FROM d LIKE 'a*|b'", ShowTables("d", "a*|b")),
        ("SHOW TABLES IN d 'a*'", ShowTables("d", "a*")),
        ("SHOW DATABASES", ShowDatabases()),
        ("SHOW SCHEMAS LIKE 'a*'", ShowDatabases("a*")),
        ("SHOW CREATE TABLE t", ShowCreateTable(T)),
        ("SHOW TBLPROPERTIES t", ShowProperties(T)),
        ("SHOW TBLPROPERTIES t ('a')", ShowProperties(T, "a")),
        ("SHOW TBLPROPERTIES t (delta.appendOnly)", ShowProperties(T, "delta.appendOnly")),
        ("SHOW COLUMNS IN t", ShowColumns(T)),
        ("SHOW COLUMNS FROM t FROM d", ShowColumns(name("d.t"))),
        ("SHOW PARTITIONS d.t", ShowPartitions(name("d.t"))),
        ("USE d", UseDatabase("d")),
        ("USE SCHEMA `my d`", UseDatabase("my d")),
        ("USE database", UseDatabase("database")),
    ],
)
def test_what_upkeep_and_inspection_say(text: str, statement: Statement) -> None:
    assert one(text) == statement


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("OPTIMIZE", "1:9", "expected a table's name"),
        ("OPTIMIZE t x", "1:12", "expected FULL, WHERE"),
        ("OPTIMIZE t WHERE", "1:17", "expected a condition"),
        ("OPTIMIZE t ZORDER (a)", "1:19", "expected BY"),
        ("REORG TABLE t APPLY (UPGRADE UNIFORM (a = 1))", "1:22", "not known"),
        ("ANALYZE TABLES COMPUTE STATISTICS", "1:9", "takes one table"),
        ("ANALYZE TABLE t PARTITION (a) COMPUTE STATISTICS", "1:17", "leave PARTITION out"),
        ("ANALYZE TABLE t COMPUTE STATISTICS FOR COLUMN a", "1:36", "expected NOSCAN"),
        ("REFRESH TABLE t u", "1:17", "expected the end"),
        ("SELECT * FROM (DESCRIBE QUERY SELECT 1)", "1:25", "HISTORY, DETAIL or TABLE"),
        ("SELECT * FROM (DESCRIBE HISTORY t x)", "1:35", "expected )"),
        ("VACUUM t RETAIN x HOURS", "1:17", "a number of hours"),
        ("VACUUM t RETAIN -1 HOURS", "1:17", "a number of hours"),
        ("VACUUM t RETAIN 5 DAYS", "1:19", "expected HOURS"),
        ("VACUUM t DRY", "1:13", "expected RUN"),
        ("VACUUM t DRY RUN DRY RUN", "1:18", "the end of the statement"),
        ("VACUUM t USING INVENTORY (SELECT 1)", "1:10", "not known"),
        ("RESTORE t", "1:10", "expected TO VERSION AS OF"),
        ("RESTORE t TO 3", "1:14", "expected TO VERSION AS OF"),
        ("RESTORE t TO VERSION AS OF x", "1:28", "a version is a whole number"),
        ("RESTORE t TO VERSION AS OF 3 x", "1:30", "expected the end"),
        ("GENERATE x t", "1:12", "expected FOR"),
        ("CONVERT TO DELTA t", "1:18", "parquet.`place`"),
        ("CONVERT TO DELTA orc.`/p`", "1:18", "parquet.`place`"),
        ("DESCRIBE HISTORY t LIMIT x", "1:26", "a number of versions"),
        ("DESCRIBE HISTORY t x", "1:20", "expected the end"),
        ("DESCRIBE t PARTITION (a = 1)", "1:12", "no description of its own"),
        ("DESCRIBE t AS JSON", "1:12", "not known"),
        ("SHOW", "1:5", "expected TABLES"),
        ("SHOW LOCKS", "1:6", "expected TABLES"),
        ("SHOW TABLES IN a.b", "1:16", "one part"),
        ("SHOW TABLES x", "1:13", "expected the end"),
        ("SHOW COLUMNS t", "1:14", "expected FROM or IN"),
        ("SHOW COLUMNS IN d.t IN d", "1:24", "its database already"),
        ("USE", "1:4", "expected a database's name"),
        ("USE CATALOG c", "1:5", "one catalog"),
    ],
)
def test_malformed_upkeep_is_shown(text: str, place: str, problem: str) -> None:
    refused(text, place, problem)
