"""What the tasks of orders_dag.py do: a day's orders come in, and are booked from the stock.

Plain functions of a warehouse and a day. Each may run again after it failed, or after it succeeded:
Airflow does that, and the lake is then as after one run.
"""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pyarrow as pa

import txlake


def prepare(warehouse: str) -> None:
    """Create the tables where they aren't there yet."""
    with txlake.connect(warehouse) as lake:
        lake.sql("CREATE TABLE IF NOT EXISTS orders (day STRING, item STRING, pieces BIGINT)")
        lake.sql("CREATE TABLE IF NOT EXISTS stock (item STRING, pieces BIGINT)")
        lake.sql("CREATE TABLE IF NOT EXISTS booked (day STRING)")


def load(warehouse: str, incoming: str, day: str) -> None:
    """Put a day's file, `<day>.json` with an order a line, in place of what the day has so far.

    Raises ValueError for a day that isn't one, FileNotFoundError where the file isn't there.
    """
    day = date.fromisoformat(day).isoformat()
    lines = (Path(incoming) / f"{day}.json").read_text(encoding="utf-8").splitlines()
    orders = [json.loads(line) for line in lines]
    rows = pa.table(
        {
            "day": pa.array([day] * len(orders), pa.string()),
            "item": pa.array([order["item"] for order in orders], pa.string()),
            "pieces": pa.array([order["pieces"] for order in orders], pa.int64()),
        }
    )
    with txlake.connect(warehouse) as lake:
        lake.write(rows, "orders", mode="overwrite", replace_where=f"day = '{day}'")


def book(warehouse: str, day: str) -> None:
    """Take a day's orders from the stock, once: the stock and the note of it are one transaction.

    Of two runs at once one loses, runs again, finds the note and does nothing.
    """

    def work(tx: txlake.Transaction) -> None:
        if tx.sql("SELECT day FROM booked WHERE day = :day", {"day": day}).collect():
            return
        tx.sql(
            "MERGE INTO stock USING (SELECT item, sum(pieces) AS pieces FROM orders "
            "WHERE day = :day GROUP BY item) AS sold ON stock.item = sold.item "
            "WHEN MATCHED THEN UPDATE SET pieces = stock.pieces - sold.pieces "
            "WHEN NOT MATCHED THEN INSERT (item, pieces) VALUES (sold.item, -sold.pieces)",
            {"day": day},
        )
        tx.sql("INSERT INTO booked VALUES (:day)", {"day": day})

    with txlake.connect(warehouse) as lake:
        lake.run(work, isolation="serializable")


def compact(warehouse: str) -> None:
    """Rewrites small files of the orders; this aborts no writer."""
    with txlake.connect(warehouse) as lake:
        lake.sql("OPTIMIZE orders")
