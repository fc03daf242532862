"""The works on what has grown large: files, commits, tables, statements. No Spark is started.

Times are CPU time, which other work on the machine changes little.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from starlette.testclient import TestClient

import txlake
import txlake.dbapi
from bench.delta_log import PLAIN, metadata
from bench.sources.huge_logs import (
    FILES_AT_COMMITS,
    day_of,
    make_huge_checkpoint,
    make_huge_history,
)
from bench.sources.lakes import data_file
from bench.sources.logs import DAYS, day_text
from bench.stage import Stage
from txlake.commit.checkpointing import write_checkpoint
from txlake.commit.log_cleanup import clean_log
from txlake.commit.table_log import TableLog
from txlake.commit.table_transaction import TableTransaction
from txlake.console.app import application
from txlake.console.serving import no_spark
from txlake.lake.lake import Lake, open_session
from txlake.protocol.actions import Action, decode_actions
from txlake.server.tokens import Tokens
from txlake.settings import Settings
from txlake.storage import open_store
from txlake.system import System

Answer = TypeVar("Answer")
_DAY_MS = 86_400_000
_MONTH_DAYS, _DAYS_BEFORE = 31, 9
"""The log of a table keeps 30 days, and the day that the clean-up is in."""
_SUFFIXES = ("json", "crc", "checkpoint.parquet")
_STATEMENTS_AFTER = 10


def cpu_seconds(action: Callable[[], Answer]) -> tuple[float, Answer]:
    """The seconds of CPU of this process, and what the action gave."""
    start = time.process_time()
    answer = action()
    return time.process_time() - start, answer


# Files


def open_files(stage: Stage, number: int) -> float:
    """From a checkpoint in parts. Seconds of CPU."""

    def made() -> Path:
        folder = stage.scratch / "huge"
        make_huge_checkpoint(folder, stage.sizes.huge_files)
        return folder

    folder = stage.keep("huge", made)
    log = txlake.Log(folder)
    seconds, snapshot = cpu_seconds(log.snapshot)
    stage.expect(len(snapshot._snapshot.files), stage.sizes.huge_files, folder)
    stage.kept["huge log"] = log
    return seconds


def plan_files(stage: Stage, number: int) -> float:
    """The files of one day, of the log that is open. Milliseconds of CPU."""
    files, log = stage.sizes.huge_files, _huge_log(stage)
    where = f"day = '{day_text(DAYS // 2)}'"
    seconds, found = cpu_seconds(lambda: log.snapshot().files(where=where))
    near = range(files // 2 - files // DAYS - 2, files // 2 + files // DAYS + 2)
    of_day = sum(day_of(each, files) == DAYS // 2 for each in near)
    stage.expect(found.num_rows, of_day, where)
    return 1_000 * seconds


def commit_file(stage: Stage, number: int) -> float:
    """One file more, depending on one day. Milliseconds of CPU."""
    log = _huge_log(stage)
    day = day_text(DAYS // 2)

    def commit() -> int:
        transaction = log.start_transaction()
        transaction.read(where=f"day = '{day}' AND id = {7 + number}")
        add = {
            "path": f"day={day}/more-{number}.parquet",
            "partitionValues": {"day": day},
            "size": 1,
            "modificationTime": 1,
            "dataChange": True,
            "stats": '{"numRecords":1}',
        }
        return transaction.commit([{"add": add}]).version

    before = log.snapshot().version
    seconds, version = cpu_seconds(commit)
    stage.expect(version, before + 1, "version")
    return 1_000 * seconds


def checkpoint_files(stage: Stage, number: int) -> float:
    """A checkpoint of them all. Seconds of CPU."""
    log = _huge_log(stage)
    seconds, version = cpu_seconds(lambda: write_checkpoint(log._log))
    found = txlake.Log(stage.scratch / "huge").snapshot()
    expected = (version, len(log.snapshot()._snapshot.files))
    stage.expect((found.version, len(found._snapshot.files)), expected, "a checkpoint")
    return seconds


def _huge_log(stage: Stage) -> txlake.Log:
    log = stage.kept["huge log"]
    assert isinstance(log, txlake.Log)
    return log


# Commits


def open_history(stage: Stage, number: int) -> float:
    """A log of many commit files, opened at its newest. Milliseconds of CPU."""

    def made() -> Path:
        folder = stage.scratch / "history"
        make_huge_history(folder, stage.sizes.huge_commits)
        return folder

    folder = stage.keep("history", made)
    log = txlake.Log(folder)
    seconds, snapshot = cpu_seconds(log.snapshot)
    stage.expect(len(snapshot._snapshot.files) >= FILES_AT_COMMITS, True, folder)
    stage.kept["history log"] = log
    return 1_000 * seconds


def commit_to_history(stage: Stage, number: int) -> float:
    """One commit more, and the newest ten versions of the history. Milliseconds of CPU."""
    log = stage.kept["history log"]
    assert isinstance(log, txlake.Log)

    def commit() -> int:
        txn = {"appId": "bench", "version": number}
        return log.start_transaction().commit([{"txn": txn}]).version

    before = log.snapshot().version
    seconds, version = cpu_seconds(commit)
    more, rows = cpu_seconds(lambda: log.history(limit=10))
    stage.expect((version, rows[0]["version"], len(rows)), (before + 1, version, 10), "versions")
    return 1_000 * (seconds + more)


def clean_history(stage: Stage, number: int) -> float:
    """The clean-up of all of its commit files, of which none has expired. Seconds of CPU."""
    log = stage.kept["history log"]
    assert isinstance(log, txlake.Log)
    seconds, deleted = cpu_seconds(lambda: clean_log(log._log, retention_ms=30 * _DAY_MS))
    stage.expect(deleted, [], "deleted files")
    return seconds


# Tables


def show_tables(stage: Stage, number: int) -> float:
    """Open a lake of many tables, and SHOW TABLES. Milliseconds of CPU."""
    tables = stage.sizes.lake_tables

    def made() -> Path:
        folder = stage.scratch / "tables"
        with txlake.dbapi.connect(str(folder)) as connection:
            for each in range(tables):
                connection.execute(f"CREATE TABLE t{each} (id BIGINT)")
        return folder

    folder = stage.keep("tables", made)

    def opened() -> tuple[txlake.dbapi.Connection, int]:
        connection = txlake.dbapi.connect(str(folder), autocommit=True)
        return connection, len(connection.execute("SHOW TABLES").fetchall())

    seconds, (connection, found) = cpu_seconds(opened)
    stage.expect(found, tables, "tables")
    stage.kept["connection"] = connection
    return 1_000 * seconds


def insert_into_one(stage: Stage, number: int) -> float:
    """A commit on one of the tables. Milliseconds of CPU."""
    connection = _connection(stage)
    text = f"INSERT INTO t{number} VALUES ({number})"
    seconds, _ = cpu_seconds(lambda: connection.execute(text))
    found = connection.execute(f"SELECT id FROM t{number}").fetchall()
    stage.expect(found, [(number,)], "rows")
    return 1_000 * seconds


def insert_into_all(stage: Stage, number: int) -> float:
    """A transaction that inserts a row into each. Milliseconds of CPU for each table."""
    connection, tables = _connection(stage), stage.sizes.lake_tables

    def run() -> None:
        connection.execute("BEGIN")
        for each in range(tables):
            connection.execute(f"INSERT INTO t{each} VALUES (-1)")
        connection.execute("COMMIT")

    seconds, _ = cpu_seconds(run)
    found = connection.execute(f"SELECT id FROM t{tables - 1} WHERE id = -1").fetchall()
    stage.expect(found, [(-1,)] * (number + 1), "rows")
    return 1_000 * seconds / tables


def _connection(stage: Stage) -> txlake.dbapi.Connection:
    connection = stage.kept["connection"]
    assert isinstance(connection, txlake.dbapi.Connection)
    return connection


# Statements


def memory_of_statements(stage: Stage, number: int) -> float:
    """By how many MiB a session's memory grows from a tenth of its statements to all of them.

    INSERT, UPDATE, DELETE, queries, errors, transactions and OPTIMIZE, on one small table.
    """
    statements, kept = stage.sizes.statements, []
    with txlake.dbapi.connect(str(stage.scratch / "statements"), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id BIGINT, v BIGINT)")
        connection.execute("INSERT INTO t VALUES (0, 0)")
        for each in range(1, statements + 1):
            _statement(connection, each)
            if each % (statements // 10) == 0:
                kept.append(resident_mib())
                stage.details[f"MiB after {each} statements"] = kept[-1]
        rows = connection.execute("SELECT id FROM t").fetchall()
    stage.expect(len(rows) <= 2, True, "rows")
    return max(kept[-1] - kept[0], 0.0)


def _statement(connection: txlake.dbapi.Connection, number: int) -> None:
    match number % 10:
        case 0:
            connection.execute("INSERT INTO t VALUES (?, ?)", [number, number])
        case 1:
            connection.execute(f"UPDATE t SET v = {number} WHERE id = 0")
        case 2:
            connection.execute(f"DELETE FROM t WHERE id = {number - 2}")
        case 3:
            connection.execute("SHOW TABLES").fetchall()
        case 4:
            connection.execute("BEGIN")
            connection.execute("SELECT * FROM t WHERE id = 0").fetchall()
            connection.execute("ROLLBACK")
        case 5:
            try:
                connection.execute(f"INSERT INTO nothing{number} VALUES (1)")
            except txlake.dbapi.ProgrammingError:
                return
            raise AssertionError("there is no such table")
        case _:
            connection.execute(f"SELECT id, v FROM t WHERE id = {number}").fetchall()
    if number % 500 == _STATEMENTS_AFTER:
        connection.execute("OPTIMIZE t")


def resident_mib() -> float:
    """The memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


# The console


def console_pages(stage: Stage, number: int) -> float:
    """The console's pages of a table of many versions, and of its lake. Milliseconds of CPU each.

    The table has them from before it was attached.
    """

    def made() -> Lake:
        folder = stage.scratch / "long"
        make_huge_history(folder, stage.sizes.console_versions)
        lake = Lake(open_session(str(stage.scratch / "console"), make_spark=no_spark))
        lake.attach(str(folder), "long")
        return lake

    lake = stage.keep("console", made)
    app = application(lake._session.engine, Tokens(()))
    pages = ("/tables", "/tables/default.long", "/history")
    with TestClient(app, "http://127.0.0.1") as browser:
        browser.get("/")
        seconds, answers = cpu_seconds(lambda: [browser.get(page) for page in pages])
    stage.expect([answer.status_code for answer in answers], [200] * len(pages), pages)
    newest = f"{stage.sizes.console_versions}"
    stage.expect(newest in answers[1].text.replace(",", ""), True, f"version {newest}")
    return 1_000 * seconds / len(pages)


# A month


class _Clock(System):
    """A clock that is set."""

    def __init__(self, now_ms: int) -> None:
        super().__init__()
        self.time_ms = now_ms

    def now_ms(self) -> int:
        return self.time_ms


def month_of_commits(stage: Stage, number: int) -> float:
    """The files that a log has for each commit of the 30 days that it keeps.

    Commits in even distances over 40 days of a clock that is set, each with its checksum; the
    checkpoints and clean-ups are the table's own. The bytes are in the details.
    """
    folder = stage.scratch / f"month {number}"
    shutil.rmtree(folder, ignore_errors=True)
    days = _MONTH_DAYS + _DAYS_BEFORE
    commits = stage.sizes.month_commits // days * days
    start = System().now_ms() // _DAY_MS * _DAY_MS - days * _DAY_MS
    clock = _Clock(start)
    log = TableLog(open_store(str(folder)), clock, Settings(), name="month")
    for version in range(commits):
        clock.time_ms = start + version * days * _DAY_MS // commits
        base = log.latest() if version else None
        part = TableTransaction(log, base)
        actions: Sequence[Action] = [data_file("month")] if version else _definition()
        part.stage(actions, operation="WRITE")
        stage.expect(part.commit().version, version, "version")
        for name in (f"{version:020}.{suffix}" for suffix in _SUFFIXES):
            path = folder / "_delta_log" / name
            if path.exists():
                os.utime(path, (clock.time_ms / 1_000,) * 2)
    found = Counter[str]()
    for path in (folder / "_delta_log").iterdir():
        kind = path.name.split(".", 1)[1] if path.name[0].isdigit() else path.name
        found[kind] += 1
        name = f"month: bytes of {kind}"
        stage.details[name] = stage.details.get(name, 0.0) + path.stat().st_size
    for kind, count in found.items():
        stage.details[f"month: {kind}"] = float(count)
    kept = found["json"]
    stage.expect(kept < commits, True, "commits that were cleaned up")
    stage.expect(kept >= commits * 30 // days, True, "the commits of 30 days")
    return sum(found.values()) / (commits * 30 / days)


def _definition() -> Sequence[Action]:
    schema = pa.schema({"k": pa.string(), "n": pa.int64()})
    lines = [json.dumps(action) for action in (PLAIN, metadata(schema, partitioned_by=["k"]))]
    return decode_actions("\n".join(lines).encode(), file="bench")
