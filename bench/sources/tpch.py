"""TPC-H by tpchgen-cli, with refresh sets of our own and DuckDB's answers.

tpchgen makes no refresh sets. RF1 inserts the numbered copy of every thousandth order with its
lineitems, under keys that TPC-H leaves free (it uses the first eight of each 32); RF2 deletes
every thousandth order, another one, with its lineitems.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import duckdb

from bench.delta_log import write_live_log
from bench.sources import made_once
from bench.tpch_queries import QUERIES

TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")
REFRESHES = 3
_PARTS = 4
_EVERY = 1000
_FIRST_DELETED = 500

Row = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Tpch:
    """The data set: `TABLE/data`, `TABLE/logs`, the refresh sets and the answers."""

    folder: Path

    def data(self, table: str) -> Path:
        return self.folder / table / "data"

    def log(self, table: str) -> Path:
        return self.folder / table / "logs" / "live.json"

    def inserted(self, table: str, number: int) -> Path:
        """What RF1 of that number inserts into `orders` or `lineitem`."""
        return self.folder / f"rf1-{table}-{number}.parquet"

    def deleted(self, number: int) -> Path:
        """The keys of the orders that RF2 of that number deletes: one column, `orderkey`."""
        return self.folder / f"rf2-{number}.parquet"

    def answers(self) -> dict[str, list[list[object]]]:
        """The rows of each query, as JSON keeps them: numbers and texts."""
        found: dict[str, list[list[object]]] = json.loads(
            (self.folder / "answers.json").read_text(encoding="utf-8")
        )
        return found

    def sums(self) -> dict[str, list[int]]:
        """Rows and the price in cents of `orders` and `lineitem`, and of each refresh set."""
        found: dict[str, list[int]] = json.loads(
            (self.folder / "sums.json").read_text(encoding="utf-8")
        )
        return found


def tpch(folder: Path, scale: float) -> Tpch:
    """The data set of a scale factor."""
    return Tpch(made_once(folder / f"tpch-{scale:g}", lambda made: _make(made, scale)))


def checking_query(table: str) -> str:
    """Rows and sum of the price of `orders` or `lineitem`."""
    price = {"orders": "o_totalprice", "lineitem": "l_extendedprice"}[table]
    return f"SELECT count(*) AS number, sum({price}) AS price FROM {table}"


def _make(folder: Path, scale: float) -> None:
    generator = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"
    made = folder / "generated"
    subprocess.run(
        [
            *(str(generator), "parquet", "--quiet", "--scale-factor", f"{scale:g}"),
            *("--parts", str(_PARTS), "--field-ids=false", "--output-dir", str(made)),
        ],
        check=True,
    )
    with duckdb.connect() as duck:
        for table in TABLES:
            data = folder / table / "data"
            data.mkdir(parents=True)
            for path in (made / table).iterdir():
                path.rename(data / path.name)
            write_live_log(folder / table / "logs", data)
            duck.execute(f"CREATE VIEW {table} AS FROM '{data}/*.parquet'")
        shutil.rmtree(made)
        sums = {table: _sums(duck, table, table) for table in ("orders", "lineitem")}
        for number in range(REFRESHES):
            sums.update(_refresh_sets(duck, Tpch(folder), number))
        answers = {name: duck.execute(text).fetchall() for name, text in QUERIES.items()}
    (folder / "sums.json").write_text(json.dumps(sums), encoding="utf-8")
    texts = {name: [plain(row) for row in rows] for name, rows in answers.items()}
    (folder / "answers.json").write_text(json.dumps(texts), encoding="utf-8")


def plain(row: Row) -> list[object]:
    """The row with numbers as floats, everything else as text."""
    return [_plain(value) for value in row]


def _plain(value: object) -> object:
    if value is None or isinstance(value, str):
        return value
    try:
        return float(value)  # type: ignore[arg-type]
    except TypeError:
        return str(value)


def _refresh_sets(
    duck: duckdb.DuckDBPyConnection, source: Tpch, number: int
) -> dict[str, list[int]]:
    sums = {}
    nth = "(o_orderkey // 32 * 8 + o_orderkey % 32) % " + str(_EVERY)
    for table, key in (("orders", "o_orderkey"), ("lineitem", "l_orderkey")):
        chosen = f"{key} IN (SELECT o_orderkey FROM orders WHERE {nth} = {{}})"
        out = source.inserted(table, number)
        duck.execute(
            f"COPY (SELECT * REPLACE ({key} + 8 AS {key}) FROM {table} WHERE "
            f"{chosen.format(number)} ORDER BY {key}) TO '{out}' (FORMAT parquet)"
        )
        sums[f"rf1-{table}-{number}"] = _sums(duck, table, f"'{out}'")
        gone = f"(FROM {table} WHERE {chosen.format(_FIRST_DELETED + number)})"
        sums[f"rf2-{table}-{number}"] = _sums(duck, table, gone)
    duck.execute(
        f"COPY (SELECT o_orderkey AS orderkey FROM orders WHERE {nth} = "
        f"{_FIRST_DELETED + number} ORDER BY 1) TO '{source.deleted(number)}' (FORMAT parquet)"
    )
    return sums


def _sums(duck: duckdb.DuckDBPyConnection, table: str, source: str) -> list[int]:
    text = checking_query(table).replace(f"FROM {table}", f"FROM {source}")
    row = duck.execute(text).fetchone()
    assert row is not None
    return [int(row[0]), int((row[1] or 0) * 100)]
