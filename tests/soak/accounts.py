"""Two tables whose rows tell what was lost or doubled: accounts with a sum, and rows with own ids.

`accounts` has 200 rows, whose pieces transfers move; `added` has an id in each row, which no other
row has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import txlake
from txlake.session.command import AsRows
from txlake.session.views.describe import Rows

ACCOUNTS, PIECES = 200, 100


def make_accounts(folder: Path, properties: Mapping[str, str]) -> None:
    """A lake with both tables, which have these properties."""
    given = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    values = ", ".join(f"({one}, {PIECES})" for one in range(ACCOUNTS))
    with txlake.connect(str(folder)) as lake:
        for text in (
            f"CREATE TABLE accounts (id INT, pieces INT) TBLPROPERTIES ({given})",
            f"INSERT INTO accounts VALUES {values}",
            f"CREATE TABLE added (id BIGINT) TBLPROPERTIES ({given})",
        ):
            lake._run_sql(text, None, AsRows())


def audit(folder: Path, added: Collection[int], unknown: Collection[int]) -> list[str]:
    """What is wrong with the tables. `added`: the ids that were acknowledged; `unknown`: those of
    which it isn't known whether they were added.
    """
    with txlake.connect(str(folder)) as lake:
        pieces = values(lake, "SELECT pieces FROM accounts")
        ids = values(lake, "SELECT id FROM added")
    faults = []
    if sum(pieces) != ACCOUNTS * PIECES or len(pieces) != ACCOUNTS:
        faults.append(f"{len(pieces)} accounts have {sum(pieces)} pieces")
    present = set(ids)
    if len(present) != len(ids):
        faults.append("a row is there twice")
    if lost := set(added) - present:
        faults.append(f"{len(lost)} acknowledged rows are lost")
    if strange := present - set(added) - set(unknown):
        faults.append(f"{len(strange)} rows are there that nobody added")
    return faults


def values(lake: Any, query: str) -> list[Any]:
    """The values of a query's first column; a lake's or a transaction's."""
    rows = lake._run_sql(query, None, AsRows())
    listed = rows.rows if isinstance(rows, Rows) else [tuple(row) for row in rows.collect()]
    return [row[0] for row in listed]
