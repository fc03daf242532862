"""Makes TPC-DS's tables, refresh sets and answers, in the environment .cache/ducklake.

The arguments are a folder, the scale factor and the number of rounds. See sources/retail.py.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import duckdb

_TABLES = (
    *("store_sales", "store_returns", "date_dim", "item"),
    *("store", "customer", "household_demographics"),
)
_QUERIES = (1, 3, 42, 43, 52, 53, 55, 63, 73, 89, 98)
_FACTS = (("store_sales", "ss"), ("store_returns", "sr"))
_FILES = 4
_NTH = 50
_OFFSET = 10_000_000_000


def main(out: str, scale: str, rounds: str) -> None:
    """Leaves TABLE/data, queries.json, refresh.json, answers.json and the files to insert."""
    folder = Path(out)
    duck = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    site = Path(str(duckdb.__file__)).parent.parent
    [extension] = (site / "duckdb_extension_tpcds").rglob("*.duckdb_extension")
    duck.execute(f"LOAD '{extension}'")
    duck.execute(f"CALL dsdgen(sf = {float(scale)})")
    for table in _TABLES:
        _write_table(duck, table, folder)
    queries = {f"q{number}": _query(duck, number) for number in _QUERIES}
    (folder / "queries.json").write_text(json.dumps(queries), encoding="utf-8")
    conditions, answers = [], [_answers(duck, queries)]
    for number in range(int(rounds)):
        conditions.append(_refresh(duck, folder, number))
        answers.append(_answers(duck, queries))
    (folder / "refresh.json").write_text(json.dumps(conditions), encoding="utf-8")
    (folder / "answers.json").write_text(json.dumps(answers), encoding="utf-8")


def _write_table(duck: duckdb.DuckDBPyConnection, table: str, folder: Path) -> None:
    data = folder / table / "data"
    data.mkdir(parents=True)
    prefix = dict(_FACTS).get(table)
    files = 1 if prefix is None else _FILES
    for number in range(files):
        where = "" if prefix is None else f"WHERE {prefix}_ticket_number % {files} = {number}"
        out = data / f"part-{number:05}.parquet"
        duck.execute(f"COPY (FROM {table} {where}) TO '{out}' (FORMAT parquet)")


def _query(duck: duckdb.DuckDBPyConnection, number: int) -> str:
    """Without its LIMIT, as rows that are alike in what they are sorted by come in any order."""
    found = duck.execute("SELECT query FROM tpcds_queries() WHERE query_nr = ?", [number])
    row = found.fetchone()
    assert row is not None
    return re.sub(r"\s*LIMIT\s+\d+\s*;?\s*$|;\s*$", "", str(row[0]), flags=re.IGNORECASE)


def _refresh(duck: duckdb.DuckDBPyConnection, folder: Path, number: int) -> dict[str, str]:
    """Copies of every 50th ticket under new numbers, and as many rows of some days are gone."""
    conditions = {}
    for table, prefix in _FACTS:
        key = f"{prefix}_ticket_number"
        out = folder / f"insert-{table}-{number}.parquet"
        duck.execute(
            f"COPY (SELECT * REPLACE ({key} + {_OFFSET * (number + 1)} AS {key}) FROM {table} "
            f"WHERE {key} < {_OFFSET} AND {key} % {_NTH} = {number}) TO '{out}' (FORMAT parquet)"
        )
        [inserted] = _row(duck, f"SELECT count(*) FROM '{out}'")
        duck.execute(f"INSERT INTO {table} FROM '{out}'")
        date = "ss_sold_date_sk" if prefix == "ss" else "sr_returned_date_sk"
        part = 0.1 + 0.15 * (number % 6)
        [first] = _row(duck, f"SELECT quantile_disc({date}, {part}) FROM {table}")
        last = _row(
            duck,
            f"SELECT {date} FROM {table} WHERE {date} >= {first} ORDER BY {date} "
            f"LIMIT 1 OFFSET {inserted}",
        )
        conditions[table] = f"{date} >= {first} AND {date} < {last[0]}"
        duck.execute(f"DELETE FROM {table} WHERE {conditions[table]}")
    return conditions


def _row(duck: duckdb.DuckDBPyConnection, query: str) -> list[int]:
    row = duck.execute(query).fetchone()
    assert row is not None
    return list(row)


def _answers(
    duck: duckdb.DuckDBPyConnection, queries: dict[str, str]
) -> dict[str, list[list[object]]]:
    return {
        name: [[_plain(value) for value in row] for row in duck.execute(text).fetchall()]
        for name, text in queries.items()
    }


def _plain(value: object) -> object:
    if value is None or isinstance(value, str):
        return value
    try:
        return float(value)  # type: ignore[arg-type]
    except TypeError:
        return str(value)


if __name__ == "__main__":
    main(*sys.argv[1:])
