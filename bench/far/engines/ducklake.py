"""DuckLake, its catalog in PostgreSQL, in the environment of tools/python_peer.sh ducklake."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

import duckdb

from bench.far.measuring import Meter

_EXTENSIONS = ("ducklake", "postgres_scanner", "httpfs")
_MERGE = (
    "MERGE INTO merged t USING ({changes}) c ON t.id = c.id "
    "WHEN MATCHED THEN UPDATE SET v = t.v + c.v "
    "WHEN NOT MATCHED THEN INSERT (id, k, v, s) VALUES (c.id, 0, c.v, '')"
)


def measure(meter: Meter) -> None:
    """Measure the statements of one connection."""
    task = meter.task
    numbers = itertools.count(10**6)
    duck = _connect(meter)

    def insert(*names: str, connection: duckdb.DuckDBPyConnection = duck) -> None:
        statements = [f"INSERT INTO {name} VALUES ({next(numbers)}, 0)" for name in names]
        if len(names) > 1:
            statements = ["BEGIN", *statements, "COMMIT"]
        for statement in statements:
            connection.execute(statement)

    names = [f"t{number}" for number in range(task.sizes["tables"])]
    with meter.undelayed():
        duck.execute(f"CREATE TABLE t AS {_rows(task.sizes['rows'])}")
        for name in names:
            duck.execute(f"CREATE TABLE {name} AS {_rows(1)}")
        other = _connect(meter)
    meter.run("insert", lambda n: insert("t"))
    meter.run("update", lambda n: duck.execute(f"UPDATE t SET value = {n} WHERE id = {100 + n}"))
    meter.run("delete", lambda n: duck.execute(f"DELETE FROM t WHERE id = {200 + n}"))
    meter.run("select", lambda n: duck.execute(f"SELECT * FROM t WHERE id = {300 + n}").fetchall())
    meter.run(
        "select_after",
        lambda n: duck.execute(f"SELECT * FROM t WHERE id = {400 + n}").fetchall(),
        before=lambda: insert("t", connection=other),
    )
    meter.run("two_tables", lambda n: insert("t0", "t1"))
    meter.run("ten_inserts", lambda n: insert(*["t2"] * 10))
    meter.run("many_tables", lambda n: insert(*names))
    files = Path(task.data) / f"rows-{task.sizes['merge_rows']}-{task.sizes['merge_files']}/data"
    meter.run(
        "merge",
        lambda n: duck.execute(_MERGE.format(changes=_changes(task.sizes["merge_rows"], n))),
        prepare=lambda: duck.execute(
            f"CREATE TABLE merged AS SELECT * FROM read_parquet('{files}/*.parquet')"
        ),
    )

    def prepare() -> None:
        for _ in range(task.sizes["commits"]):
            insert("t3")

    opened: list[duckdb.DuckDBPyConnection] = []

    def open_again(number: int) -> None:
        opened.append(_connect(meter))
        opened[-1].execute("DESCRIBE t3").fetchall()

    meter.run("open", open_again, prepare=prepare)


def _connect(meter: Meter) -> duckdb.DuckDBPyConnection:
    task = meter.task
    duck = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    site = Path(str(duckdb.__file__)).parent.parent
    for name in _EXTENSIONS:
        [extension] = (site / f"duckdb_extension_{name}").rglob("*.duckdb_extension")
        duck.execute(f"LOAD '{extension}'")
    if task.storage_options:
        duck.execute(_secret(task.storage_options))
    place = task.url.removeprefix("file://")
    duck.execute(f"ATTACH 'ducklake:{task.database}' AS lake (DATA_PATH '{place}')")
    duck.execute("USE lake")
    return duck


def _secret(options: Mapping[str, str]) -> str:
    """Return the statement that gives the store's options."""
    endpoint = options["aws_endpoint_url"].removeprefix("http://")
    return (
        f"CREATE SECRET (TYPE s3, KEY_ID '{options['aws_access_key_id']}', "
        f"SECRET '{options['aws_secret_access_key']}', REGION '{options['aws_region']}', "
        f"ENDPOINT '{endpoint}', URL_STYLE 'path', USE_SSL false)"
    )


def _rows(count: int) -> str:
    return f"SELECT range AS id, range AS value FROM range({count})"


def _changes(count: int, number: int) -> str:
    """The rows of `tables.changes`, as a query."""
    step = count // 500
    return (
        f"SELECT {number} + range * {step} AS id, 0.5 AS v FROM range(500) UNION ALL "
        f"SELECT {count + number * 500} + range, 0.5 FROM range(500)"
    )
