"""A nightly load on a branch: five tables are loaded and checked, then published or thrown away.

`python examples/nightly.py FOLDER` makes a small shop in a lake at FOLDER and loads three nights.
The second night's delivery has an order without a customer: its branch is dropped, and the shop
never had any of it. In the third night somebody corrects a price while the load is under way: the
load has read that price, so publishing conflicts, and the load runs anew on what is there now.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import pyarrow as pa

import txlake
from txlake.errors import Conflict

TABLES = (
    "CREATE TABLE IF NOT EXISTS customers (id BIGINT, name STRING)",
    "CREATE TABLE IF NOT EXISTS products (id BIGINT, price DECIMAL(9, 2))",
    "CREATE TABLE IF NOT EXISTS orders (id BIGINT, customer BIGINT)",
    "CREATE TABLE IF NOT EXISTS items (order_id BIGINT, product BIGINT, amount DECIMAL(9, 2))",
    "CREATE TABLE IF NOT EXISTS loads (night BIGINT, orders BIGINT)",
)
# Each finds what must not be there.
AUDITS = {
    "orders without a customer": (
        "SELECT o.id FROM orders o LEFT ANTI JOIN customers c ON o.customer = c.id"
    ),
    "orders without items": "SELECT o.id FROM orders o LEFT ANTI JOIN items i ON o.id = i.order_id",
    "amounts below zero": "SELECT order_id FROM items WHERE amount < 0",
}
ATTEMPTS = 3


def load(b: txlake.Branch, night: int, customer: int) -> None:
    """Load a night's delivery: one order, of a product at its present price."""
    b.write(pa.table({"id": [night], "customer": [customer]}), "orders", mode="append")
    b.write(pa.table({"id": [night], "name": [f"customer {night}"]}), "customers", mode="append")
    b.sql(f"INSERT INTO items SELECT {night}, id, price FROM products WHERE id = 1")
    b.sql(f"INSERT INTO loads VALUES ({night}, 1)")
    b.sql("UPDATE products SET price = price * 1.01 WHERE id = 2")


def failed_audits(b: txlake.Branch) -> list[str]:
    """Return what the checks found on the branch."""
    found = ((what, [row[0] for row in b.sql(query).collect()]) for what, query in AUDITS.items())
    return [f"{what}: {rows}" for what, rows in found if rows]


def run_night(
    lake: txlake.Lake, night: int, customer: int, meanwhile: Callable[[], None] = lambda: None
) -> str:
    """Load a night on a branch, check it, and publish it; return what happened.

    `meanwhile` is what others do while it is under way.
    """
    for attempt in range(1, ATTEMPTS + 1):
        with lake.branch(f"night-{night}", create=True, retention_ms=7 * 86_400_000) as b:
            load(b, night, customer)
            problems = failed_audits(b)
            if problems:
                b.drop()
                return f"night {night}: not published: {'; '.join(problems)}"
            if attempt == 1:
                meanwhile()
            try:
                b.publish()
            except Conflict as conflict:
                print(f"night {night}: {type(conflict).__name__}: {conflict}")
                b.drop()
            else:
                return f"night {night}: published by attempt {attempt}"
    return f"night {night}: gave up after {ATTEMPTS} attempts"


def main(folder: str) -> list[str]:
    """Load three nights, and return what happened in each."""
    with txlake.connect(folder) as lake:
        for statement in TABLES:
            lake.sql(statement)
        lake.sql("INSERT INTO products VALUES (1, 9.90), (2, 20.00)")
        outcomes = [run_night(lake, 1, customer=1), run_night(lake, 2, customer=99)]
        corrects = "UPDATE products SET price = 8.90 WHERE id = 1"
        outcomes.append(run_night(lake, 3, customer=1, meanwhile=lambda: corrected(lake, corrects)))
        for outcome in outcomes:
            print(outcome)
        lake.sql("SELECT * FROM items ORDER BY order_id").show()
    return outcomes


def corrected(lake: txlake.Lake, statement: str) -> None:
    """Run somebody else's statement on main."""
    lake.session().sql(statement)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
