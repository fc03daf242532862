"""The change data feed on Spark: what each statement writes, how it is read, what is refused."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import txlake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FEED = "delta.enableChangeDataFeed = true"
KINDS = {
    "vectors": ("id INT, p STRING, n INT", "", FEED),
    "copies": ("id INT, p STRING, n INT", "", f"{FEED}, delta.enableDeletionVectors = false"),
    "partitions": ("id INT, p STRING, n INT", "PARTITIONED BY (p)", FEED),
    "row tracking": ("id INT, p STRING, n INT", "", f"{FEED}, delta.enableRowTracking = true"),
    "mapped by name": (
        "id INT, p STRING, n INT",
        "PARTITIONED BY (p)",
        f"{FEED}, delta.columnMapping.mode = name",
    ),
    "mapped by id": ("id INT, p STRING, n INT", "", f"{FEED}, delta.columnMapping.mode = id"),
}
MERGE = """
    MERGE INTO t USING (SELECT * FROM VALUES (1, 'a', 7), (90, 'z', 8) AS v(id, p, n)) s
    ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET n = s.n
    WHEN NOT MATCHED THEN INSERT *
    WHEN NOT MATCHED BY SOURCE AND t.id = 4 THEN DELETE
    WHEN NOT MATCHED BY SOURCE AND t.id = 5 THEN UPDATE SET p = 'moved'
"""
# By statement, the kinds of change that it makes; None: no change data file is needed for them.
STATEMENTS: dict[str, tuple[str, dict[str, int]]] = {
    "append": ("INSERT INTO t VALUES (10, 'c', 1)", {"insert": 1}),
    "delete": ("DELETE FROM t WHERE id IN (2, 6)", {"delete": 2}),
    "delete all": ("DELETE FROM t", {"delete": 8}),
    "update": (
        "UPDATE t SET n = n + 100 WHERE id IN (1, 6)",
        {"update_preimage": 2, "update_postimage": 2},
    ),
    "update of all": (
        "UPDATE t SET p = 'q'",
        {"update_preimage": 8, "update_postimage": 8},
    ),
    "merge": (
        MERGE,
        {"update_preimage": 2, "update_postimage": 2, "insert": 1, "delete": 1},
    ),
    "overwrite": ("INSERT OVERWRITE t VALUES (1, 'x', 1)", {"delete": 8, "insert": 1}),
    "replace where": (
        "INSERT INTO t REPLACE WHERE id > 6 VALUES (9, 'x', 1)",
        {"delete": 2, "insert": 1},
    ),
    "replace using": (
        "INSERT INTO t REPLACE USING (id) VALUES (1, 'x', 1), (77, 'x', 1)",
        {"delete": 1, "insert": 2},
    ),
    "truncate": ("TRUNCATE TABLE t", {"delete": 8}),
    "optimize": ("OPTIMIZE t", {}),
    "zorder": ("OPTIMIZE t ZORDER BY (id)", {}),
    "add a column": ("ALTER TABLE t ADD COLUMN more STRING", {}),
}


def make(lake: txlake.Lake, kind: str) -> None:
    columns, clause, properties = KINDS[kind]
    lake.sql(f"CREATE TABLE t ({columns}) {clause} TBLPROPERTIES ({properties})")
    for half in ("(1, 'a', 1), (2, 'a', 2), (3, 'b', 3), (4, 'b', 4)", "(5, 'a', 5), (6, 'b', 6)"):
        lake.sql(f"INSERT INTO t VALUES {half}")
    lake.sql("INSERT INTO t VALUES (7, 'a', 7), (8, NULL, NULL)")


def counted(frame: DataFrame) -> Counter[tuple[object, ...]]:
    return Counter(map(tuple, frame.collect()))


def changes(lake: txlake.Lake, version: int, table: str = "t") -> dict[str, Counter[object]]:
    """A version's changes by kind; and that they are what its rows differ by."""
    frame = lake.changes(table, version, version)
    columns = frame.columns[:-3]
    after = lake.read(table, version=version).select(*columns)
    before = lake.read(table, version=version - 1)
    for name in columns:
        if name not in before.columns:
            before = before.selectExpr("*", f"CAST(NULL AS STRING) AS {name}")
    found: dict[str, Counter[object]] = {}
    told: Counter[tuple[object, ...]] = Counter()
    for *values, kind, at, moment in frame.collect():
        assert at == version
        assert moment is not None
        found.setdefault(kind, Counter())[tuple(values)] += 1
        told[tuple(values)] += -1 if kind in ("delete", "update_preimage") else 1
    difference = counted(after)
    difference.subtract(counted(before.select(*columns)))
    assert {row: n for row, n in told.items() if n} == {r: n for r, n in difference.items() if n}
    return found


def newest(lake: txlake.Lake, table: str = "t") -> int:
    return int(lake.sql(f"DESCRIBE HISTORY {table} LIMIT 1").collect()[0]["version"])


def actions(folder: Path, version: int) -> list[dict[str, dict[str, object]]]:
    log = folder / "_delta_log" / f"{version:020d}.json"
    return [json.loads(line) for line in log.read_text().splitlines()]


def change_files(folder: Path, version: int) -> list[dict[str, object]]:
    return [line["cdc"] for line in actions(folder, version) if "cdc" in line]


@pytest.mark.broad
@pytest.mark.parametrize("kind", KINDS)
def test_what_each_statement_tells(lake: txlake.Lake, kind: str) -> None:
    make(lake, kind)
    start = newest(lake)
    for name, (statement, expected) in STATEMENTS.items():
        lake.sql(statement)
        version = newest(lake)
        found = {one: rows.total() for one, rows in changes(lake, version).items()}
        assert found == expected, name
        lake.sql(f"RESTORE TABLE t TO VERSION AS OF {start}")
        changes(lake, newest(lake))
