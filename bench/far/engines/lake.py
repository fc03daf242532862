"""txlake's statements on a lake, whose catalog is the task's variant."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import Any

import txlake
from bench.far.engines import tables
from bench.far.measuring import Meter, Task
from txlake.settings import Settings

MERGE = (
    "MERGE INTO {table} t USING changes c ON t.id = c.id "
    "WHEN MATCHED THEN UPDATE SET v = t.v + c.v "
    "WHEN NOT MATCHED THEN INSERT (id, k, v, s) VALUES (c.id, 0, c.v, '')"
)


def open_lake(task: Task) -> txlake.Lake:
    """Open the task's lake: its variant is the catalog, and maybe a value of `Settings.publish`."""
    catalog, _, publish = task.variant.partition(" ")
    changed: dict[str, Any] = {"publish": publish} if publish else {}
    if catalog == "sqlite":
        catalog = f"sqlite:///{task.scratch}/catalog.db"
    elif catalog == "postgresql":
        catalog = task.database
    return txlake.connect(
        task.url,
        catalog=catalog,
        storage_options=task.storage_options,
        settings=replace(Settings(), **changed),
    )


def measure(meter: Meter) -> None:
    """Measure every statement of one session."""
    with meter.undelayed():
        statements = _Statements(meter)
    statements.of_one_row()
    statements.of_several_tables()
    statements.merge()
    statements.opening()
    statements.close()


@dataclass
class _Statements:
    """A lake of a table `t` of many rows, and tables of one row."""

    meter: Meter
    lake: txlake.Lake = field(init=False)
    opened: list[txlake.Lake] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(10**6))

    def __post_init__(self) -> None:
        self.lake = open_lake(self.meter.task)
        self.lake.write(tables.rows(0, self.meter.task.sizes["rows"]), "t")

    def of_one_row(self) -> None:
        """INSERT, UPDATE, DELETE and SELECT of one row of `t`."""
        run, sql, url = self.meter.run, self.lake.sql, f"{self.meter.task.url}-path"
        run("insert", lambda n: self._insert("t"))
        run(
            "insert_path",
            lambda n: self._insert(f"delta.`{url}`"),
            prepare=lambda: self.lake.write(tables.rows(0, 10), url),
        )
        run("update", lambda n: sql(f"UPDATE t SET value = {n} WHERE id = {100 + n}"))
        run("delete", lambda n: sql(f"DELETE FROM t WHERE id = {200 + n}"))
        run("select", lambda n: sql(f"SELECT * FROM t WHERE id = {300 + n}").collect())
        if self.meter.wants("select_after"):
            with open_lake(self.meter.task) as other:
                run(
                    "select_after",
                    lambda n: sql(f"SELECT * FROM t WHERE id = {400 + n}").collect(),
                    before=lambda: other.sql(f"INSERT INTO t VALUES ({next(self.numbers)}, 0)"),
                )

    def of_several_tables(self) -> None:
        """Transactions of several INSERTs."""
        names = [f"t{number}" for number in range(self.meter.task.sizes["tables"])]

        def prepare() -> None:
            with self.lake.transaction() as tx:
                for name in names:
                    tx.write(tables.rows(0, 1), name)

        if not self.meter.wants("two_tables", "ten_inserts", "many_tables"):
            return
        with self.meter.undelayed():
            prepare()
        self.meter.run("two_tables", lambda n: self._insert("t0", "t1"))
        self.meter.run("ten_inserts", lambda n: self._insert(*["t2"] * 10))
        self.meter.run("many_tables", lambda n: self._insert(*names))

    def merge(self) -> None:
        """MERGE of 1,000 rows into a table of given files."""
        task, url = self.meter.task, f"{self.meter.task.url}-merged"

        def prepare() -> None:
            tables.upload(tables.merge_rows(task), url, task.storage_options)
            self.lake.sql(f"CREATE TABLE merged USING DELTA LOCATION '{url}'")

        number = itertools.count()
        self.meter.run(
            "merge",
            lambda n: self.lake.sql(MERGE.format(table="merged")),
            prepare=prepare,
            before=lambda: self._set_changes(next(number)),
        )

    def opening(self) -> None:
        """Opening the lake, and a table that many commits have made."""

        def prepare() -> None:
            self.lake.write(tables.rows(0, 1), "history")
            for _ in range(self.meter.task.sizes["commits"] - 1):
                self._insert("history")

        def work(number: int) -> None:
            lake = open_lake(self.meter.task)
            self.opened.append(lake)
            lake.read("history")

        self.meter.run("open", work, prepare=prepare, before=self._close_opened)
        self._close_opened()

    def close(self) -> None:
        """Close the lake."""
        with self.meter.undelayed():
            self.lake.close()

    def _insert(self, *names: str) -> None:
        """Insert a row into each table: a statement by itself for one, else a transaction."""
        if len(names) == 1:
            self.lake.sql(f"INSERT INTO {names[0]} VALUES ({next(self.numbers)}, 0)")
            return
        tx = self.lake.begin()
        for name in names:
            tx.sql(f"INSERT INTO {name} VALUES ({next(self.numbers)}, 0)")
        tx.commit()

    def _set_changes(self, number: int) -> None:
        from txlake.lake.lake import local_spark

        source = tables.changes(self.meter.task, number)
        local_spark().createDataFrame(source).createOrReplaceTempView("changes")

    def _close_opened(self) -> None:
        while self.opened:
            self.opened.pop().close()
