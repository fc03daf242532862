"""The works of the bench: what each one runs, by which engines, how often, and what is to reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.stage import Stage
from bench.suites import contention, lake, logs, rows, tpch, transactions

SPARK, DELTA, RS, TXLAKE = "spark", "delta-spark", "delta-rs", "txlake"
DUCKLAKE = "ducklake"
ALL = (SPARK, DELTA, RS, TXLAKE)
TABLES = (DELTA, RS, TXLAKE)
LOGS = (RS, TXLAKE)
ALONE = (TXLAKE,)
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
        rows.compact_deleted, 1, TABLES, Target(1.0, RS),
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
        "sum-small", "files", "files", "read {small_files} files, planning included",
        rows.sum_small_files, 5, ALL, Target(0.3, DELTA),
    ),
    Work(
        "compact-small", "files", "files", "compact {small_files} small files",
        rows.compact_small_files, 1, TABLES, Target(1.0, RS),
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
        lake.commit("SQLite"), 1, ALONE, Target(3.0, None), unit="ms",
    ),
    Work(
        "commit-postgresql", "lake", "ledger", "begin, ratify, publish it, 8 threads, PostgreSQL",
        lake.commit("PostgreSQL"), 1, ALONE, Target(4.0, None), unit="ms",
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
        "order-spark", "lake", "sql", "same in a Spark session, median",
        lake.order_by_sql, 1, ALONE, Target(40.0, None), unit="ms",
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
)  # fmt: skip

SUITES = tuple(dict.fromkeys(work.suite for work in WORKS))
