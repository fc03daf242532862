"""The works on transactions over many tables of a lake, which no other engine here has.

What a commit costs on its own, with others and beside a long one. Every work checks that as many
versions as were committed are there. Except for those by SQL, no Spark is started.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

import txlake
from bench.engines.spark import Txlake
from bench.points import note, tenths, worst_step
from bench.sources.lakes import (
    ROW,
    SYSTEM,
    StagedLake,
    StagedTransaction,
    data_file,
    lock_on,
    staged_lake,
)
from bench.stage import Stage
from txlake.commit.table_log import TableLog
from txlake.errors import Unavailable
from txlake.ports import HeadsMoved, Ratification, Ratified, TableCommit
from txlake.protocol.actions import Add
from txlake.protocol.file_names import commit_path
from txlake.settings import RetrySettings, Settings
from txlake.storage import open_store

THREADS = 8
SIMULATED_WRITERS = (1, 4, 16, 64)
_TIMES = 3
SHORT_WRITERS = 4
MEDIAN_PART = 80
"""Of the sizes' transactions, of which the median is taken."""
_OUT_OF_REACH = 1_000_000
_LONG_ATTEMPTS_MAX = 15
_ROWS = ("orders", "payments")
_ORDER = """
BEGIN;
INSERT INTO orders VALUES ('o', {number});
UPDATE payments SET n = n + 1 WHERE k = 'first';
COMMIT
"""


def ratify(database: str) -> Callable[[Stage, int], float]:
    """Milliseconds for each commit of two tables by the catalog alone: threads that have tables of
    their own; among the details the same where all have the same two.

    The transactions were begun and their bytes made before, those of a commit of one file.
    """

    def run(stage: Stage, number: int) -> float:
        share = stage.sizes.transactions // THREADS
        folder = stage.scratch / f"ratify {database} {number}"
        with staged_lake(folder, database, 2 * THREADS + 2) as lake:
            content = _content_of_one_file(lake, 2 * THREADS)
            rates = {}
            for name, of_same, each in (("", False, share), (", same tables", True, share // 8)):
                before = lake.catalog.ledger.sequence()
                begun = [[lake.begin() for _ in range(each)] for _ in range(THREADS)]
                works = [
                    partial(_ratify, lake, content, _pair(own, of_same), ids)
                    for own, ids in enumerate(begun)
                ]
                rates[name] = THREADS * each / _together(works)
                made = lake.catalog.ledger.sequence() - before
                stage.expect(made, THREADS * each, "instants")
                stage.details[f"ratified a second, {database}{name}"] = rates[name]
            _expect_heads(stage, lake, share, same=THREADS * (share // 8) + 1)
        return 1_000 / rates[""]

    return run


def commit(database: str) -> Callable[[Stage, int], float]:
    """Milliseconds for each whole commit of two tables, from its begin to its publication, by
    threads that have tables of their own; among the details the same where all have the same two.
    """

    def run(stage: Stage, number: int) -> float:
        share = stage.sizes.transactions // THREADS // 16
        few = share // 4 + 1
        folder = stage.scratch / f"commit {database} {number}"
        with staged_lake(folder, database, 2 * THREADS + 2) as lake:
            values = []
            for name, of_same, each in (("", False, share), (", same tables", True, few)):
                same = lake.logs(*_pair(0, of_same=True))
                logs = [
                    same if of_same else lake.logs(*_pair(own, of_same)) for own in range(THREADS)
                ]
                took: list[float] = []
                seconds = _together([partial(_commits, lake, pair, each, took) for pair in logs])
                title = f"commits, {database}{name}"
                stage.details[f"{title}: a second"] = THREADS * each / seconds
                _tell(stage, title, took)
                values.append(1_000 * seconds / (THREADS * each))
            _expect_heads(stage, lake, share, same=THREADS * few)
            stage.expect(lake.catalog.ledger.pending_tables(), [], "what isn't published")
        return values[0]

    return run


def two_rows(stage: Stage, number: int) -> float:
    """The median of a transaction's milliseconds that appends a row to each of two tables, from
    `begin` to the end of its commit; its 95th percentile is among the details.
    """
    row = pa.table({"k": ["o"], "n": pa.array([number], pa.int64())})
    with txlake.connect(str(stage.scratch / f"rows {number}")) as lake:
        _create(lake)

        def one() -> None:
            with lake.transaction() as tx:
                for name in _ROWS:
                    tx.write(row, name, mode="append")

        return _alone(stage, "two rows", one, stage.scratch / f"rows {number}")


def order_by_sql(stage: Stage, number: int) -> float:
    """The median of the milliseconds of an INSERT and an UPDATE of one row each, on two tables,
    between BEGIN and COMMIT; the 95th percentile is among the details.
    """
    engine = stage.engine
    assert isinstance(engine, Txlake)
    folder = stage.scratch / f"sql {number}"
    with txlake.connect(str(folder), spark=engine.spark) as lake:
        _create(lake)
        median = _alone(
            stage, "an order by SQL", lambda: lake.sql(_ORDER.format(number=number)), folder
        )
        [(changes,)] = lake.sql("SELECT n FROM payments WHERE k = 'first'").collect()
        stage.expect(changes, stage.sizes.transactions // MEDIAN_PART, "changes")
    return median


def beside_short_ones(stage: Stage, number: int) -> float:
    """How often a transaction over two tables has to try, each attempt of which takes long, while
    others commit small changes of other rows of the same tables as fast as they can.

    Among the details the same where it gets no turn however often it loses.
    """
    values = {}
    for name, reserve_after in (
        ("", RetrySettings().reserve_after),
        (", without a turn", _OUT_OF_REACH),
    ):
        settings = Settings(
            retry=RetrySettings(reserve_after=reserve_after, commit_attempts_max=_LONG_ATTEMPTS_MAX)
        )
        folder = stage.scratch / f"long {number}{name}"
        with staged_lake(folder, "SQLite", 2, settings) as lake:
            ended = _long_beside_short(lake, stage.sizes.staged_files)
            made = ended.is_committed + ended.short
            stage.expect([_head(lake, each) for each in (0, 1)], [made] * 2, "versions")
        title = f"a long transaction{name}"
        stage.details[f"{title}: lost"] = float(ended.attempts - ended.is_committed)
        stage.details[f"{title}: committed"] = float(ended.is_committed)
        stage.details[f"{title}: seconds"] = ended.seconds
        stage.details[f"{title}: short ones a second"] = ended.short / ended.seconds
        values[name] = float(ended.attempts)
    return values[""]


def many_tables(stage: Stage, number: int) -> float:
    """Milliseconds of a transaction that appends a row to each of many tables, from `begin` to the
    end of its commit; for the curve a tenth, and a hundredth, as many.
    """
    count = stage.sizes.many_tables
    row = pa.table({"k": ["o"], "n": pa.array([number], pa.int64())})
    folder = stage.scratch / f"many tables {number}"
    took = 0.0
    with txlake.connect(str(folder)) as lake:
        with lake.transaction() as tx:
            for each in range(count):
                tx.write(ROW, f"t{each}")
        sizes = tenths(count)
        for each in sizes:
            took = min(_appended_to(lake, row, each) for _ in range(_TIMES))
            note(stage, "tables", "append a row to each, and commit", each, took)
    for each in (0, count - 1):
        made = _TIMES * (len(sizes) if each == 0 else 1)
        path = folder / f"t{each}" / commit_path(made)
        stage.expect(path.exists(), True, path)
        stage.expect((folder / f"t{each}" / commit_path(made + 1)).exists(), False, "one more")
    return took


def _appended_to(lake: txlake.Lake, row: pa.Table, tables: int) -> float:
    start = time.perf_counter()
    with lake.transaction() as tx:
        for each in range(tables):
            tx.write(row, f"t{each}", mode="append")
    return 1_000 * (time.perf_counter() - start)


def many_appends(stage: Stage, number: int) -> float:
    """By how much commits that add a file get slower: the last hundredth of them to the second."""
    slower, _ = _many_commits(stage, "a commit that adds a file", stage.sizes.many_commits)
    return slower


def many_replacements(stage: Stage, number: int) -> float:
    """The same of a tenth as many that each replace the file of the one before, so that the table
    stays as large as it is.
    """
    count = stage.sizes.many_commits // 10
    slower, stage.kept["opening"] = _many_commits(
        stage, "a commit that replaces a file", count, replaces=True
    )
    return slower


def many_replacements_opened(stage: Stage, number: int) -> float:
    """By how much the log opens slower after all of those commits than after the first of them."""
    slower = stage.kept["opening"]
    assert isinstance(slower, float)
    return slower


def _many_commits(
    stage: Stage, title: str, count: int, *, replaces: bool = False
) -> tuple[float, float]:
    """By how much commits get slower, and by how much the opening of the log does.

    The last hundredth of the commits take turns with the second hundredth of as many in a new lake,
    and both logs are opened after them: the disk's pace, which changes within minutes, is the same
    for both. The curves have what both cost at a hundredth, a tenth and all of the
    commits, each the mean of a hundredth of them.
    """
    part = min(max(10, count // 100), count // 2)  # turns of checkpoints as a whole
    marks = {max(2 * part, mark): mark for mark in tenths(count)}
    folder = stage.scratch / title
    opening = 0.0
    with (
        staged_lake(folder / "old", "SQLite", 1) as lake,
        staged_lake(folder / "new", "SQLite", 1) as new_lake,
    ):
        old, new = (_Commits(one, one.logs(0), replaces) for one in (lake, new_lake))
        for version in range(1, count + 1):
            if version == count - part + 1:
                for _ in range(part):
                    new.commit()
            if version > count - part:
                new.commit()
            old.commit()
            if version in marks:
                note(stage, "commits", title, marks[version], 1_000 * sum(old.took[-part:]) / part)
                opening = _opened(stage, folder / "old" / "lake" / "t0", version, old.files)
                note(stage, "commits", f"open after {title}", marks[version], opening)
        heads = [_head(one, 0) for one in (lake, new_lake)]
        stage.expect(heads, [count, 2 * part], "versions")
        opening_of_new = _opened(stage, folder / "new" / "lake" / "t0", 2 * part, new.files)
    return sum(old.took[-part:]) / sum(new.took[-part:]), opening / opening_of_new


class _Commits:
    """Commits on one table that each add a file, and, with `replaces`, remove the one before.

    Attributes:
        took: the seconds of each.
        files: of the log that they leave, with the row that its first version has.
    """

    def __init__(self, lake: StagedLake, logs: Sequence[TableLog], replaces: bool) -> None:
        self.took = list[float]()
        self._lake = lake
        self._logs = logs
        self._replaces = replaces
        self._last: Add | None = None

    @property
    def files(self) -> int:
        return 2 if self._replaces else 1 + len(self.took)

    def commit(self) -> None:
        gone = self._last if self._replaces else None
        start = time.perf_counter()
        self._last = _committed_instead(self._lake, self._logs, gone)
        self.took.append(time.perf_counter() - start)


def _committed_instead(lake: StagedLake, logs: Sequence[TableLog], before: Add | None) -> Add:
    """Commit a file, instead of another one where there is one."""
    after = data_file("short")
    gone = () if before is None else (before.tombstone(timestamp_ms=SYSTEM.now_ms()),)
    tx = StagedTransaction(lake)
    tx.append(logs, [after, *gone])
    tx.commit()
    return after


def _opened(stage: Stage, folder: Path, version: int, expected: int) -> float:
    """The milliseconds of opening a log of so many versions and files, the best of some times."""
    took = []
    for _ in range(_TIMES):
        start = time.perf_counter()
        snapshot = txlake.Log(folder).snapshot()
        files = len(snapshot.files())
        took.append(1_000 * (time.perf_counter() - start))
        stage.expect((snapshot.version, files), (version, expected), "version, files")
    return min(took)


def simulated_writers(stage: Stage, number: int) -> float:
    """By how much commits a second fall, at worst, when there are four times as many writers."""
    took = []
    for count in SIMULATED_WRITERS:
        took.append(simulated_commit(stage, count, number))
        note(stage, "writers", "a commit, simulated", count, took[-1])
    return worst_step(took)


def simulated_commit(stage: Stage, count: int, number: int) -> float:
    """Milliseconds for each commit of so many simulated writers of one table.

    All of a turn's read the same version, then they commit one after the other, each with a log of
    its own as a process has, so that each meets all before it.
    """
    turns = max(1, stage.sizes.transactions // 1_000)
    with staged_lake(stage.scratch / f"simulated {count} {number}", "SQLite", 1) as lake:
        logs = [lake.logs(0) for _ in range(count)]
        seconds = 0.0
        for _ in range(turns * max(SIMULATED_WRITERS) // count):
            start = time.perf_counter()
            began = [StagedTransaction(lake) for _ in logs]
            for own, tx in enumerate(began):
                tx.append(logs[own], [data_file(f"own {own}")], f"k = 'own {own}'")
            for tx in began:
                tx.commit()
            seconds += time.perf_counter() - start
        commits = turns * max(SIMULATED_WRITERS)
        stage.expect(_head(lake, 0), commits, "versions")
    return 1_000 * seconds / commits


def two_locks(stage: Stage, number: int) -> float:
    """The median of the milliseconds in which a transaction has locks on two tables that nobody
    else asks for.
    """
    took = []
    with staged_lake(stage.scratch / f"locks {number}", "SQLite", 2) as lake:
        wanted = [lock_on(entry) for entry in lake.tables]
        locks = lake.catalog.locks
        for _ in range(stage.sizes.transactions // 10):
            transaction_id = lake.begin()
            start = time.perf_counter()
            locks.acquire(lake.session, transaction_id, wanted, -1)
            took.append(time.perf_counter() - start)
            lake.catalog.transactions.end(transaction_id)
            locks.forget_owner(transaction_id)
        stage.expect(locks.entries(), [], "locks")
    return _tell(stage, "two locks", took)


# Threads


def _together(works: Sequence[Callable[[], None]]) -> float:
    """The seconds until all have ended that began at once, each in a thread."""
    start = threading.Barrier(len(works) + 1)

    def one(work: Callable[[], None]) -> None:
        start.wait()
        work()

    with ThreadPoolExecutor(len(works)) as pool:
        running = [pool.submit(one, work) for work in works]
        start.wait()
        began = time.perf_counter()
        for each in running:
            each.result()
    return time.perf_counter() - began


def _pair(own: int, of_same: bool) -> tuple[int, int]:
    """The two tables of a thread; the last two are everybody's."""
    return (2 * THREADS, 2 * THREADS + 1) if of_same else (own, own + THREADS)


def _ratify(
    lake: StagedLake, content: bytes, pair: tuple[int, int], transaction_ids: Sequence[str]
) -> None:
    ids = [lake.tables[number].id for number in pair]
    heads = {lake.tables[number].id: _head(lake, number) for number in pair}
    for transaction_id in transaction_ids:
        while True:
            commits = tuple(
                TableCommit(
                    table_id=each, version=heads[each] + 1, content=content, operation="WRITE"
                )
                for each in ids
            )
            answer = lake.catalog.ledger.ratify(
                Ratification(transaction_id=transaction_id, commits=commits)
            )
            match answer:
                case Ratified():
                    heads = {one.table_id: one.version for one in commits}
                    break
                case HeadsMoved():
                    heads = {**heads, **answer.heads}
                case _:
                    raise AssertionError("nobody asks for a turn")


def _commits(lake: StagedLake, logs: Sequence[TableLog], count: int, took: list[float]) -> None:
    for _ in range(count):
        start = time.perf_counter()
        tx = StagedTransaction(lake)
        tx.append(logs, [data_file("short")])
        tx.commit()
        took.append(time.perf_counter() - start)


@dataclass(frozen=True, slots=True)
class _Ended:
    """How a long transaction ended, and how many short ones were committed meanwhile."""

    attempts: int
    is_committed: bool
    seconds: float
    short: int


def _long_beside_short(lake: StagedLake, files: int) -> _Ended:
    over = threading.Event()

    def short(own: int) -> int:
        logs, count = lake.logs(0, 1), 0  # as in a process of its own
        while not over.is_set():
            tx = StagedTransaction(lake)
            tx.append(logs, [data_file(f"short {own}")], f"k = 'short {own}'")
            with suppress(Unavailable):  # without turns a short one may lose too often as well
                tx.commit()
                count += 1
        return count

    long = StagedTransaction(lake)
    long.append(lake.logs(0, 1), [data_file("long") for _ in range(files)], "k = 'long'")
    with ThreadPoolExecutor(SHORT_WRITERS) as pool:
        running = [pool.submit(short, own) for own in range(SHORT_WRITERS)]
        began = time.perf_counter()
        try:
            attempts, is_committed = long.commit().attempts, True
        except Unavailable:  # it has lost as often as it may
            attempts, is_committed = _LONG_ATTEMPTS_MAX, False
        finally:
            seconds = time.perf_counter() - began
            over.set()
    return _Ended(attempts, is_committed, seconds, sum(each.result() for each in running))


# What is measured and checked


def _create(lake: txlake.Lake) -> None:
    with lake.transaction() as tx:
        for name in _ROWS:
            tx.write(ROW, name)


def _alone(stage: Stage, title: str, one: Callable[[], object], folder: Path) -> float:
    """The median of one transaction's milliseconds after another, each a version of two tables."""
    took = []
    count = stage.sizes.transactions // MEDIAN_PART
    for _ in range(count):
        start = time.perf_counter()
        one()
        took.append(time.perf_counter() - start)
    for name in _ROWS:
        for version, is_there in ((count, True), (count + 1, False)):
            path = folder / name / commit_path(version)
            stage.expect(path.exists(), is_there, path)
    return _tell(stage, title, took)


def _tell(stage: Stage, title: str, took: Sequence[float]) -> float:
    """Keep the percentiles of some durations; gives their median, milliseconds."""
    median, late = (1_000 * float(np.percentile(took, percent)) for percent in (50, 95))
    stage.details[f"{title}: p50 ms"] = median
    stage.details[f"{title}: p95 ms"] = late
    return median


def _content_of_one_file(lake: StagedLake, table: int) -> bytes:
    """The bytes of a commit of one file, which the table's first one is."""
    tx = StagedTransaction(lake)
    tx.append(lake.logs(table, table + 1), [data_file("short")])
    tx.commit()
    return open_store(lake.tables[table].location).get(commit_path(1))


def _head(lake: StagedLake, table: int) -> int:
    found = lake.catalog.ledger.head(lake.tables[table].id)
    return -1 if found is None else found.version


def _expect_heads(stage: Stage, lake: StagedLake, each: int, *, same: int) -> None:
    heads = [_head(lake, number) for number in range(2 * THREADS + 2)]
    stage.expect(heads, [each] * (2 * THREADS) + [same] * 2, "versions")
