"""The change data feed of a table that both engines write: both tell it alike, of every version.

What it tells is tried elsewhere against the rows that versions differ by; here Delta Spark judges.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.shared_tables.features.one_session import Peers

pytestmark = pytest.mark.no_interop("Delta Spark reads every version here")

TABLES = {
    "copies": ("", {"delta.enableDeletionVectors": "false"}),
    "vectors": ("", {"delta.enableDeletionVectors": "true"}),
    "partitions": ("PARTITIONED BY (s)", {"delta.enableDeletionVectors": "true"}),
    "mapped, with times and row ids": (
        "PARTITIONED BY (s)",
        {
            "delta.columnMapping.mode": "id",
            "delta.enableDeletionVectors": "true",
            "delta.enableInCommitTimestamps": "true",
            "delta.enableRowTracking": "true",
        },
    ),
}
MERGE = (
    "MERGE INTO {t} t USING (SELECT * FROM VALUES {rows} AS r(id, k, s)) u ON t.id = u.id "
    "WHEN MATCHED AND u.k = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET k = u.k "
    "WHEN NOT MATCHED THEN INSERT *"
)
# Each is one commit; both engines write it, first one and then, on other rows, the other.
STEPS = (
    "INSERT INTO {t} SELECT id + {n}, id, concat('s', id % 2) FROM range(0, 8, 1, 1)",
    "UPDATE {t} SET k = k + 10 WHERE id IN ({n} + 1, {n} + 2)",
    "UPDATE {t} SET s = 's2' WHERE id = {n} + 1",
    "DELETE FROM {t} WHERE id = {n} + 3",
    MERGE.replace("{rows}", "({n}L + 4, 9L, 's0'), ({n}L + 5, 0L, 's1'), ({n}L + 20, 1L, NULL)"),
    "OPTIMIZE {t}",
    "DELETE FROM {t} WHERE id >= {n} + 6 AND id < {n} + 20",
)
TOGETHER = (
    "BEGIN",
    "INSERT INTO {t} VALUES (900, 1, 's0'), (901, 1, 's1')",
    "UPDATE {t} SET k = k + 1 WHERE id >= 900 OR id = 1",
    "UPDATE {t} SET k = k + 1 WHERE id = 1",
    "DELETE FROM {t} WHERE id = 901 OR id = 2",
    "COMMIT",
)


@pytest.mark.broad
@pytest.mark.parametrize("kind", TABLES)
def test_both_engines_tell_the_same(kind: str, peers: Peers, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    table = f"delta.`{folder}`"
    clause, properties = TABLES[kind]
    given = {"delta.enableChangeDataFeed": "true", **properties}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    peers.txlake.sql(
        f"CREATE TABLE {table} (id BIGINT, k BIGINT, s STRING) {clause} TBLPROPERTIES ({listed})"
    )
    for statement in STEPS:
        peers.txlake.sql(statement.format(t=table, n=0))
        peers.delta.sql(statement.format(t=table, n=100))
    for statement in TOGETHER:
        peers.txlake.sql(statement.format(t=table))
    together = len(list((folder / "_delta_log").glob("*.json"))) - 1
    for engine in (peers.delta, peers.txlake):
        engine.sql(f"RESTORE TABLE {table} TO VERSION AS OF 5")
        engine.sql(f"INSERT OVERWRITE {table} VALUES (1, 1, 's0')")
    ours, theirs = feed(peers, "txlake", folder), feed(peers, "delta", folder)
    assert ours == theirs
    kinds = Counter((row["_commit_version"], row["_change_type"]) for row in ours)
    assert {kind: n for (at, kind), n in kinds.items() if at == together} == {
        "update_preimage": 1,
        "update_postimage": 1,
        "insert": 1,
        "delete": 1,
    }


def feed(peers: Peers, engine: str, folder: Path) -> list[dict[str, object]]:
    rows = {"txlake": peers.txlake, "delta": peers.delta}[engine].sql(
        "SELECT id, k, s, _change_type, _commit_version, "
        "unix_millis(_commit_timestamp) AS _commit_timestamp "
        f"FROM table_changes_by_path('{folder}', 0)"
    )
    return [json.loads(row) for row in rows]
