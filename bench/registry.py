"""The works of the bench: what each one runs, by which engines, how often, and what is to reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.sources.merges import DELETES, INSERTS, UPSERTS
from bench.stage import Stage
from bench.suites import (
    contention,
    growth,
    lake,
    logs,
    merges,
    retail,
    rows,
    scale,
    served,
    start,
    tpch,
    transactions,
)

SPARK, DELTA, RS, TXLAKE = "spark", "delta-spark", "delta-rs", "txlake"
DUCKLAKE = "ducklake"
ALL = (SPARK, DELTA, RS, TXLAKE)
TABLES = (DELTA, RS, TXLAKE)
LOGS = (RS, TXLAKE)
ALONE = (TXLAKE,)
STARTED = (SPARK, TXLAKE)
VERSIONS = (DELTA, TXLAKE)
LAKES = (DUCKLAKE, TXLAKE)


@dataclass(frozen=True, slots=True)
class Target:
    """txlake's value is to be at most `factor` times that engine's; without one, `factor`."""

    factor: float
    against: str | None


@dataclass(frozen=True, slots=True)
class Work:
    """A row of the table.

    Attributes:
        name: its key in the results.
        suite: what it is chosen by on the command line.
        process: works of one suite with the same one share a process of each engine, in order.
        title: its words in the table; `{}` names are those of `Sizes.words`.
        run: one repeat: gets the stage and the repeat's number, gives the value.
        repeats: in each round; all rounds' repeats give the median.
        engines: those that can do it.
        target: what txlake has to reach.
        unit: of the value; less is better.
        check: run once after the repeats, where they don't check themselves.
        warms_up: whether it is run on little before all works are measured.
    """

    name: str
    suite: str
    process: str
    title: str
    run: Callable[[Stage, int], float]
    repeats: int
    engines: tuple[str, ...]
    target: Target
    unit: str = "s"
    check: Callable[[Stage], None] | None = None
    warms_up: bool = True


WORKS = (
    Work("sum", "rows", "rows", "sum over {rows} rows", rows.sum_rows, 5, ALL, Target(1.15, SPARK)),
    Work(
        "sum-deleted", "rows", "rows", "same, a deletion vector on every file",
        rows.sum_deleted, 5, TABLES, Target(0.6, DELTA),
    ),
    Work("append", "rows", "rows", "append {half} rows", rows.append, 2, ALL, Target(1.2, SPARK)),
    Work(
        "update-one", "rows", "rows", "UPDATE 1 row in {rows}",
        rows.update_one, 3, TABLES, Target(1.0, RS),
    ),
    Work(
        "delete-one", "rows", "rows", "DELETE 1 row in {rows}",
        rows.delete_one, 3, TABLES, Target(0.1, DELTA),
    ),
    Work(
        "update-tenth", "rows", "rows", "UPDATE {tenth} rows",
        rows.update_tenth, 2, TABLES, Target(0.5, DELTA),
    ),
    Work(
        "merge", "rows", "rows", "MERGE {hundredth} rows",
        rows.merge, 2, TABLES, Target(1.2, RS),
    ),
    Work(
        "insert", "rows", "rows", "INSERT of a few rows",
        rows.insert_few, 15, TABLES, Target(1.5, RS), check=rows.inserted_few,
    ),
    Work(
        "compact-deleted", "rows", "rows", "compact {rows} rows, a deletion vector on every file",
        rows.compact_deleted, 5, TABLES, Target(1.0, RS),
    ),
    Work(
        "few-sum", "few", "few", "sum over {few} rows",
        rows.of_few(rows.sum_rows), 15, ALL, Target(1.15, SPARK),
    ),
    Work(
        "few-sum-deleted", "few", "few", "same, {few} rows, a deletion vector on every file",
        rows.of_few(rows.sum_deleted), 15, TABLES, Target(0.6, DELTA),
    ),
    Work(
        "few-update-one", "few", "few", "UPDATE 1 row in {few}",
        rows.of_few(rows.update_one), 3, TABLES, Target(1.0, RS),
    ),
    Work(
        "few-delete-one", "few", "few", "DELETE 1 row in {few}",
        rows.of_few(rows.delete_one), 3, TABLES, Target(0.1, DELTA),
    ),
    Work(
        "few-merge", "few", "few", "MERGE {few_hundredth} rows into {few}",
        rows.of_few(rows.merge), 2, TABLES, Target(1.2, RS),
    ),
    Work(
        "few-insert", "few", "few", "INSERT of a few rows into {few}",
        rows.of_few(rows.insert_few), 15, TABLES, Target(1.5, RS), check=rows.inserted_into_few,
    ),
    Work(
        "start-sum", "start", "cold", "first statement of a session: sum over {few} rows",
        rows.cold_sum, 1, ALL, Target(1.1, SPARK), warms_up=False,
    ),
    Work(
        "start-process", "start", "process", "a process to its first answer: sum over {few} rows",
        start.first_sum, 2, ALL, Target(1.1, SPARK), warms_up=False,
    ),
    Work(
        "start-command", "start", "process", "same, SELECT 1; txlake by its command line",
        start.select_one, 2, STARTED, Target(1.1, SPARK), warms_up=False,
    ),
    Work(
        "start-view", "start", "process", "same, a view of the catalog, by the command line",
        start.view, 2, ALONE, Target(1.5, None), warms_up=False,
    ),
    Work(
        "start-show", "start", "process", "same, SHOW TABLES, by the command line",
        start.show, 2, ALONE, Target(1.5, None), warms_up=False,
    ),
    Work(
        "point-clustered", "point", "point", "1 row of {rows} by its key, each file its own keys",
        rows.clustered_row, 9, ALL, Target(0.3, DELTA), unit="ms",
    ),
    Work(
        "point-scattered", "point", "point", "1 row of {rows} by its key, all keys in each file",
        rows.scattered_row, 9, ALL, Target(0.3, DELTA), unit="ms",
    ),
    *(
        Work(
            f"merge-{group}", "merge", "merge", "Delta's own MERGE cases, {few} rows: " + group,
            merges.of_group(group), 1, TABLES, Target(0.5, DELTA),
        )
        for group in (INSERTS, DELETES, UPSERTS)
    ),
    Work(
        "longevity", "retail", "retail",
        "LST-Bench's longevity, TPC-DS at {retail_scale}: queries of round 5 to round 1",
        retail.longevity, 1, TABLES, Target(1.3, None), unit="x",
    ),
    Work(
        "maintained-longevity", "retail", "maintained",
        "same with txlake maintain: queries of round {retail_rounds} to round 1",
        retail.maintained_longevity, 1, ALONE, Target(1.05, None), unit="x", warms_up=False,
    ),
    Work(
        "time-travel", "retail", "retail", "same queries of the oldest version",
        retail.time_travel, 1, VERSIONS, Target(1.0, DELTA),
    ),
    Work(
        "beside-optimize", "retail", "retail", "same queries beside OPTIMIZE, to them alone",
        retail.beside_compaction, 3, TABLES, Target(1.0, DELTA), unit="x",
    ),
    Work(
        "grow-rows-sum", "growth", "growth", "sum: {rows} rows to a tenth as many",
        growth.in_rows(growth.total, "sum"), 1, TABLES, Target(10.0, None), unit="x",
    ),
    Work(
        "grow-rows-update", "growth", "growth", "UPDATE 1 row: {rows} rows to a tenth as many",
        growth.in_rows(growth.update, "UPDATE 1 row"), 1, TABLES, Target(3.0, None), unit="x",
    ),
    Work(
        "grow-files-sum", "growth", "growth", "sum: {small_files} files to a tenth as many",
        growth.in_files(growth.total, "sum"), 1, TABLES, Target(10.0, None), unit="x",
    ),
    Work(
        "grow-files-insert", "growth", "growth",
        "INSERT of a few rows: {small_files} files to a tenth as many",
        growth.in_files(growth.insert, "INSERT of a few rows"), 1, TABLES, Target(1.5, None),
        unit="x",
    ),
    Work(
        "contend-1", "contention", "contention", "1 writer UPDATEs 4 rows of one file: each",
        contention.writers(1), 1, TABLES, Target(0.3, DELTA), unit="ms",
    ),
    Work(
        "contend-4", "contention", "contention",
        "4 writers UPDATE 16 rows of one file: each that is committed",
        contention.writers(4), 1, TABLES, Target(0.05, DELTA), unit="ms",
    ),
    Work(
        "contend-16", "contention", "contention",
        "16 writers UPDATE 64 rows of one file: each that is committed",
        contention.writers(16), 1, TABLES, Target(0.05, DELTA), unit="ms",
    ),
    Work(
        "contend-same", "contention", "contention",
        "4 writers UPDATE the same 4 rows: each that is committed",
        contention.writers(4, same_rows=True), 1, TABLES, Target(1.0, DELTA), unit="ms",
    ),
    Work(
        "contend-processes", "contention", "contention",
        "4 processes UPDATE 16 rows of one file: each that is committed",
        contention.writers(4, processes=True), 1, TABLES, Target(1.0, RS), unit="ms",
        warms_up=False,
    ),
    Work(
        "contend-compactor", "contention", "contention",
        "UPDATE 1 row while another compacts, 99th percentile",
        contention.beside_a_compactor, 1, TABLES, Target(150.0, None), unit="ms",
    ),
    Work(
        "contend-more", "contention", "contention",
        "1 to 16 writers UPDATE rows of one file: a commit, to the cheapest with fewer",
        contention.more_writers, 1, TABLES, Target(1.1, None), unit="x",
    ),
    Work(
        "sum-small", "files", "files", "read {small_files} files, planning included",
        rows.sum_small_files, 5, ALL, Target(0.3, DELTA),
    ),
    Work(
        "compact-small", "files", "files", "compact {small_files} small files",
        rows.compact_small_files, 3, TABLES, Target(1.0, RS),
    ),
    Work(
        "open-commits", "log", "log", "open {log_files} files from JSON",
        logs.open_commits, 3, LOGS, Target(1.0, RS),
    ),
    Work(
        "open-checkpoint", "log", "log", "open {log_files} files from a checkpoint",
        logs.open_checkpoint, 3, LOGS, Target(1.0, RS),
    ),
    Work(
        "refresh", "log", "log", "refresh it by one commit",
        logs.refresh, 10, LOGS, Target(5.0, None), unit="ms",
    ),
    Work(
        "open-large", "log", "large log", "open {large_log_files} files from a checkpoint",
        logs.open_large, 3, LOGS, Target(1.0, RS),
    ),
    Work(
        "plan", "log", "large log", "plan one partition of them",
        logs.plan_partition, 5, LOGS, Target(1.0, RS), unit="ms",
    ),
    Work(
        "memory", "log", "large log", "most memory for both",
        logs.peak_memory, 1, LOGS, Target(1.0, RS), unit="MiB",
    ),
    Work(
        "tpch", "tpch", "tpch", "TPC-H at scale {scale}, sum of {queries} queries",
        tpch.queries, 1, ALL, Target(1.1, SPARK),
    ),
    Work(
        "rf1", "tpch", "tpch", "RF1: insert 0.1 % of orders and lineitems",
        tpch.insert_orders, 3, TABLES, Target(0.4, DELTA),
    ),
    Work(
        "rf2", "tpch", "tpch", "RF2: delete 0.1 % of them by key",
        tpch.delete_orders, 3, TABLES, Target(0.4, DELTA),
    ),
    Work(
        "ratify-sqlite", "lake", "ledger", "ratify a commit of 2 tables, 8 threads, SQLite",
        lake.ratify("SQLite"), 1, ALONE, Target(1.0, None), unit="ms",
    ),
    Work(
        "ratify-postgresql", "lake", "ledger", "ratify a commit of 2 tables, 8 threads, PostgreSQL",
        lake.ratify("PostgreSQL"), 1, ALONE, Target(1.0, None), unit="ms",
    ),
    Work(
        "commit-sqlite", "lake", "ledger", "begin, ratify, publish it, 8 threads, SQLite",
        lake.commit("SQLite"), 3, ALONE, Target(3.0, None), unit="ms",
    ),
    Work(
        "commit-postgresql", "lake", "ledger", "begin, ratify, publish it, 8 threads, PostgreSQL",
        lake.commit("PostgreSQL"), 3, ALONE, Target(4.0, None), unit="ms",
    ),
    Work(
        "lock-two", "lake", "ledger", "lock 2 tables that nobody uses",
        lake.two_locks, 1, ALONE, Target(5.0, None), unit="ms",
    ),
    Work(
        "beside-short", "lake", "ledger", "commit {staged_files} files beside 4 quick writers",
        lake.beside_short_ones, 1, ALONE, Target(6.0, None), unit="attempts",
    ),
    Work(
        "two-frames", "lake", "rows", "transaction: write 1 row to 2 tables, median",
        lake.two_rows, 1, ALONE, Target(40.0, None), unit="ms",
    ),
    Work(
        "many-tables", "lake", "growth", "transaction: write 1 row to each of {many_tables} tables",
        lake.many_tables, 1, ALONE, Target(1_000.0, None), unit="ms",
    ),
    Work(
        "many-commits", "lake", "growth",
        "{many_commits} commits on one table: the last to the first",
        lake.many_appends, 1, ALONE, Target(1.3, None), unit="x",
    ),
    Work(
        "many-replacements", "lake", "growth",
        "{replacements} commits that replace a file: the last to the first",
        lake.many_replacements, 1, ALONE, Target(1.3, None), unit="x",
    ),
    Work(
        "many-replacements-open", "lake", "growth",
        "opening that log: after the last to after the first",
        lake.many_replacements_opened, 1, ALONE, Target(1.3, None), unit="x",
    ),
    Work(
        "simulated-writers", "lake", "growth",
        "1 to 64 simulated writers of one table: a commit, to the cheapest with fewer",
        lake.simulated_writers, 1, ALONE, Target(1.1, None), unit="x",
    ),
    Work(
        "order-spark", "lake", "sql", "same in a Spark session, median",
        lake.order_by_sql, 1, ALONE, Target(40.0, None), unit="ms",
    ),
    Work(
        "served", "served", "served", "32 clients' commits through one server: each",
        served.commits, 1, ALONE, Target(1.0, None), unit="ms", warms_up=False,
    ),
    Work(
        "two-rows", "transactions", "one", "BEGIN; INSERT 1 row into each of 2 tables; COMMIT",
        transactions.one_writer(transactions.two_rows), 1, LAKES, Target(1.0, DUCKLAKE), unit="ms",
    ),
    Work(
        "order", "transactions", "one", "BEGIN; INSERT 1 row; UPDATE 1 row; COMMIT",
        transactions.one_writer(transactions.an_order), 1, LAKES, Target(2.0, DUCKLAKE), unit="ms",
    ),
    *(
        Work(
            f"race-{count}-{database.lower()}{'-same' if same else ''}", "transactions", "race",
            f"{count} processes UPDATE {'the same row' if same else 'own rows'} of 2 tables, "
            f"{database}: each committed",
            transactions.race(count, database, same_rows=same), 1, LAKES, Target(1.0, DUCKLAKE),
            unit="ms", warms_up=False,
        )
        for count in (4, 16)
        for database in ("SQLite", "PostgreSQL")
        for same in (False, True)
    ),
    Work(
        "scale-open", "scale", "files", "open {huge_files} files from a checkpoint in parts, CPU",
        scale.open_files, 1, ALONE, Target(12.0, None), warms_up=False,
    ),
    Work(
        "scale-plan", "scale", "files", "plan one day of them, CPU",
        scale.plan_files, 5, ALONE, Target(500.0, None), unit="ms", warms_up=False,
    ),
    Work(
        "scale-commit", "scale", "files", "commit a file there, CPU",
        scale.commit_file, 9, ALONE, Target(500.0, None), unit="ms", warms_up=False,
    ),
    Work(
        "scale-checkpoint", "scale", "files", "checkpoint of them, CPU",
        scale.checkpoint_files, 1, ALONE, Target(60.0, None), warms_up=False,
    ),
    Work(
        "scale-memory", "scale", "files", "most memory for all of it",
        logs.peak_memory, 1, ALONE, Target(6_000.0, None), unit="MiB", warms_up=False,
    ),
    Work(
        "scale-history", "scale", "commits", "open a log of {huge_commits} commits, CPU",
        scale.open_history, 3, ALONE, Target(500.0, None), unit="ms", warms_up=False,
    ),
    Work(
        "scale-next", "scale", "commits", "commit to it and see its last 10 versions, CPU",
        scale.commit_to_history, 5, ALONE, Target(50.0, None), unit="ms", warms_up=False,
    ),
    Work(
        "scale-clean", "scale", "commits", "clean-up of it, CPU",
        scale.clean_history, 1, ALONE, Target(30.0, None), warms_up=False,
    ),
    Work(
        "scale-clean-memory", "scale", "commits", "most memory for that",
        logs.peak_memory, 1, ALONE, Target(2_000.0, None), unit="MiB", warms_up=False,
    ),
    Work(
        "scale-tables", "scale", "tables", "open a lake of {lake_tables} tables, SHOW TABLES, CPU",
        scale.show_tables, 3, ALONE, Target(500.0, None), unit="ms", warms_up=False,
    ),
    Work(
        "scale-one", "scale", "tables", "INSERT of 1 row into one of them, CPU",
        scale.insert_into_one, 5, ALONE, Target(50.0, None), unit="ms", warms_up=False,
    ),
    Work(
        "scale-all", "scale", "tables", "transaction over all of them: each, CPU",
        scale.insert_into_all, 2, ALONE, Target(10.0, None), unit="ms", warms_up=False,
    ),
    Work(
        "scale-console", "scale", "console",
        "pages of the console, a table of {console_versions} versions: each, CPU",
        scale.console_pages, 3, ALONE, Target(200.0, None), unit="ms", warms_up=False,
    ),
    Work(
        "scale-month", "scale", "month", "files of a log for each commit of the 30 days it keeps",
        scale.month_of_commits, 1, ALONE, Target(2.3, None), unit="files", warms_up=False,
    ),
    Work(
        "scale-statements", "scale", "statements",
        "memory of a session, from a tenth of {statements} statements to all: growth",
        scale.memory_of_statements, 1, ALONE, Target(64.0, None), unit="MiB", warms_up=False,
    ),
)  # fmt: skip

STARTS = {"cold": 3}
"""How often a round starts a process whose work is the first that it does; others once."""

SUITES = tuple(dict.fromkeys(work.suite for work in WORKS))
