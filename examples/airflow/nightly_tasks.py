"""What the tasks of nightly_dag.py do: a day is loaded on a branch, audited there, and published.

Plain functions of a warehouse and a day. Each may run again after it failed, or after it succeeded:
Airflow does that, and the lake is then as after one run. Readers see a day when it was published,
all tables of it at once, and never one that failed the audit.
"""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pyarrow as pa

import txlake
from txlake.errors import Conflict

KEPT_MS = 7 * 86_400_000
ATTEMPTS = 3
# Each finds what must not be there.
AUDITS = {
    "orders without a customer": (
        "SELECT o.id FROM orders o LEFT ANTI JOIN customers c ON o.customer = c.id"
    ),
    "orders that are there twice": "SELECT id FROM orders GROUP BY id HAVING count(*) > 1",
    "orders of no pieces": "SELECT id FROM orders WHERE pieces < 1",
}


class AuditFailed(ValueError):
    """The branch has rows that must not be published. It is kept, to look at."""


def prepare(warehouse: str) -> None:
    """Create the tables where they aren't there yet."""
    with txlake.connect(warehouse) as lake:
        lake.sql("CREATE TABLE IF NOT EXISTS customers (id BIGINT, orders BIGINT)")
        lake.sql(
            "CREATE TABLE IF NOT EXISTS orders "
            "(day STRING, id BIGINT, customer BIGINT, pieces BIGINT)"
        )
        lake.sql("CREATE TABLE IF NOT EXISTS nights (day STRING, is_published BOOLEAN)")


def branch_of(day: str) -> str:
    """Return the name of a day's branch. Raises ValueError for a day that isn't one."""
    return f"nightly/{date.fromisoformat(day).isoformat()}"


def branch(warehouse: str, day: str) -> None:
    """Make the day's branch; one that an earlier run left is dropped.

    Main notes that the day isn't published, and the branch will note that it is.
    """
    name = branch_of(day)

    def note(tx: txlake.Transaction) -> None:
        tx.sql("DELETE FROM nights WHERE day = :day", {"day": day})
        tx.sql("INSERT INTO nights VALUES (:day, false)", {"day": day})

    with txlake.connect(warehouse) as lake:
        lake.run(note)
        lake.sql(f"DROP BRANCH IF EXISTS `{name}`")
        lake.branch(name, create=True, retention_ms=KEPT_MS).close()


def load(warehouse: str, incoming: str, day: str) -> None:
    """Put a day's file, `<day>.json` with an order a line, in place of what the day has so far.

    Raises FileNotFoundError where the file isn't there.
    """
    name = branch_of(day)
    lines = (Path(incoming) / f"{day}.json").read_text(encoding="utf-8").splitlines()
    orders = [json.loads(line) for line in lines]
    numbers = {
        column: pa.array([order[column] for order in orders], pa.int64())
        for column in ("id", "customer", "pieces")
    }
    rows = pa.table({"day": pa.array([day] * len(orders), pa.string()), **numbers})

    def work(tx: txlake.Transaction) -> None:
        tx.write(rows, "orders", mode="overwrite", replace_where=f"day = '{day}'")
        tx.sql(
            "MERGE INTO customers c USING "
            "(SELECT customer, count(*) AS orders FROM orders GROUP BY customer) AS o "
            "ON c.id = o.customer WHEN MATCHED THEN UPDATE SET orders = o.orders"
        )
        tx.sql("UPDATE nights SET is_published = true WHERE day = :day", {"day": day})

    with txlake.connect(warehouse) as lake, lake.branch(name) as b:
        b.run(work)


def audit(warehouse: str, day: str) -> None:
    """Raise AuditFailed if the day's branch has what must not be there."""
    with txlake.connect(warehouse) as lake, lake.branch(branch_of(day)) as b:
        found = {what: [row[0] for row in b.sql(query).collect()] for what, query in AUDITS.items()}
    problems = [f"{what}: {rows}" for what, rows in found.items() if rows]
    if problems:
        raise AuditFailed("; ".join(problems))


def publish(warehouse: str, incoming: str, day: str) -> None:
    """Publish the day's branch; do nothing if an earlier run did.

    After a conflict with others' changes on main the day is loaded and audited anew, on what is
    there now. Raises the Conflict of the last of three attempts, AuditFailed, and ValueError if the
    branch is gone and wasn't published.
    """
    name = branch_of(day)
    for attempt in range(1, ATTEMPTS + 1):
        with txlake.connect(warehouse) as lake:
            branches = {row.name for row in lake.branches().collect()}
            if name not in branches:
                note = "SELECT day FROM nights WHERE day = :day AND is_published"
                if not lake.sql(note, {"day": day}).collect():
                    raise ValueError(f"{name} isn't published, and its branch is gone: load again")
                return
            try:
                lake.branch(name).publish()
            except Conflict:
                if attempt == ATTEMPTS:
                    raise
            else:
                return
        branch(warehouse, day)
        load(warehouse, incoming, day)
        audit(warehouse, day)
