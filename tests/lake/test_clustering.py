"""CLUSTER BY and OPTIMIZE as users write them, on Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from txlake.errors import InvalidRequest

if TYPE_CHECKING:
    import txlake

pytestmark = pytest.mark.broad(keep=2)

_ROWS = """
    SELECT INT(pmod(hash(id, 1), 1000)) x, named_struct('y', INT(pmod(hash(id, 2), 1000))) s,
           id, uuid() pad
    FROM range({}, {})
"""


def _files(lake: txlake.Lake, name: str, where: str | None = None) -> list[dict[str, Any]]:
    place = lake.sql(f"DESCRIBE DETAIL {name}").collect()[0].location
    import txlake

    found: list[dict[str, Any]] = txlake.Log(place).snapshot().files(where).to_pylist()
    return found


def _made(lake: txlake.Lake) -> None:
    lake.sql(
        "CREATE TABLE t (x INT, s STRUCT<y: INT>, id LONG, pad STRING) CLUSTER BY (x, s.y) "
        "TBLPROPERTIES ('delta.targetFileSize' = '40kb')"
    )
    for number in range(3):
        lake.sql(f"INSERT INTO t {_ROWS.format(number * 2000, (number + 1) * 2000)}")


def test_a_table_is_clustered_beside_writers(lake: txlake.Lake) -> None:
    _made(lake)
    lake.sql("DELETE FROM t WHERE id % 100 = 7")
    writer, clusterer = lake.begin(), lake.begin()
    writer.sql("DELETE FROM t WHERE id % 100 = 8")
    [row] = clusterer.sql("OPTIMIZE t").collect()
    lake.sql("UPDATE t SET pad = 'new' WHERE id % 100 = 9")
    clusterer.commit()
    writer.commit()
    found = lake.sql("SELECT id, pad FROM t").collect()
    assert sorted(one.id for one in found) == [id for id in range(6000) if id % 100 not in (7, 8)]
    assert sorted(one.id for one in found if one.pad == "new") == list(range(9, 6000, 100))
    stats = row.metrics.clusteringStats
    assert stats.inputOtherFiles == stats.mergedFiles
    assert stats.mergedFiles.numFiles == row.metrics.numFilesRemoved >= 3
    assert (stats.inputNumZCubes, stats.numOutputZCubes) == (0, 1)
    assert row.metrics.zOrderStats is None
    by_provider = {one["clustering_provider"] for one in _files(lake, "t")}
    assert by_provider == {"liquid", None}  # the UPDATE's new rows wait for the next OPTIMIZE
    for one in _files(lake, "t"):
        assert {"x", "s"} <= set(json.loads(one["stats"])["minValues"])
    assert len(_files(lake, "t", "x < 100 AND s.y < 100")) < len(_files(lake, "t")) / 2


def test_a_second_time_there_is_nothing_to_do(lake: txlake.Lake) -> None:
    _made(lake)
    lake.sql("OPTIMIZE t")
    [row] = lake.sql("OPTIMIZE t FULL").collect()
    assert row.metrics.numFilesAdded == row.metrics.numFilesRemoved == 0
    lake.sql("DELETE FROM t WHERE id = 5")
    lake.sql("REORG TABLE t APPLY (PURGE)")
    [row] = lake.sql("OPTIMIZE t").collect()
    assert row.metrics.numFilesAdded == 0  # a purged file stays in its cube
    assert lake.sql("SELECT count(*) FROM t").collect()[0][0] == 5999


def test_clustering_columns_have_statistics(lake: txlake.Lake) -> None:
    with pytest.raises(InvalidRequest, match="column s has no statistics"):
        lake.sql(
            "CREATE TABLE u (x INT, s STRING) CLUSTER BY (s) "
            "TBLPROPERTIES ('delta.dataSkippingNumIndexedCols' = '1')"
        )
    lake.sql("CREATE TABLE u (x INT, s STRING) CLUSTER BY (s)")
    lake.sql("ALTER TABLE u SET TBLPROPERTIES ('delta.dataSkippingNumIndexedCols' = '1')")
    lake.sql("INSERT INTO u VALUES (1, 'a')")
    lake.sql("INSERT INTO u SELECT INT(id), STRING(id) FROM range(1000)")
    for one in _files(lake, "u"):
        assert set(json.loads(one["stats"])["minValues"]) == {"x", "s"}


def test_clustering_columns_are_shown_as_a_property(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t (x INT, s STRUCT<y: INT>) CLUSTER BY (x, s.y)")
    (row,) = lake.sql("SHOW TBLPROPERTIES t ('clusteringColumns')").collect()
    assert row.value == '[["x"],["s","y"]]'
    (made,) = lake.sql("SHOW CREATE TABLE t").collect()
    assert "clusteringColumns" not in made[0]
    lake.sql("ALTER TABLE t CLUSTER BY NONE")
    assert "clusteringColumns" not in [
        row.key for row in lake.sql("SHOW TBLPROPERTIES t").collect()
    ]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE TABLE u (x INT) CLUSTER BY AUTO", "CLUSTER BY AUTO"),
        ("ALTER TABLE t CLUSTER BY AUTO", "CLUSTER BY AUTO"),
        ("CREATE TABLE u (x BOOLEAN) CLUSTER BY (x)", "no order"),
        ("CREATE TABLE u (x BINARY) CLUSTER BY (x)", "no order"),
        ("CREATE TABLE u (x ARRAY<INT>) CLUSTER BY (x)", "no order"),
        ("CREATE TABLE u (x VARIANT) CLUSTER BY (x)", "no order"),
        ("ALTER TABLE t CLUSTER BY (s)", "no order"),
        ("ALTER TABLE t CLUSTER BY (x, id, pad, s.y, x)", "at most 4 columns"),
        ("OPTIMIZE t WHERE x = 1", "OPTIMIZE ... WHERE"),
        ("ALTER TABLE t SET TBLPROPERTIES (clusteringColumns = 'x')", "is given by CLUSTER BY"),
        ("ALTER TABLE t UNSET TBLPROPERTIES (ClusteringColumns)", "is given by CLUSTER BY"),
        ("CREATE TABLE u (x INT) TBLPROPERTIES (clusteringColumns = 'x')", "by CLUSTER BY"),
    ],
)
def test_what_cannot_be_clustered_is_refused(
    lake: txlake.Lake, statement: str, message: str
) -> None:
    lake.sql("CREATE TABLE t (x INT, s STRUCT<y: INT>, id LONG, pad STRING) CLUSTER BY (x)")
    with pytest.raises(InvalidRequest, match=message):
        lake.sql(statement)


def test_changes_in_a_transaction_that_clusters_are_told(lake: txlake.Lake) -> None:
    """A change data feed knows rows again that were sorted in between; identities stay."""
    lake.sql(
        "CREATE TABLE t (key BIGINT GENERATED ALWAYS AS IDENTITY, x INT, y INT) CLUSTER BY (x, y) "
        "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    for number in range(2):
        lake.sql(f"INSERT INTO t (x, y) SELECT 97 * id % 50, id FROM range({number * 40}, 40)")
        lake.sql(f"INSERT INTO t (x, y) SELECT 97 * id % 50, id FROM range(40, {80 + number})")
    before = {row.key: (row.x, row.y) for row in lake.sql("SELECT * FROM t").collect()}
    with lake.transaction() as tx:
        tx.sql("UPDATE t SET y = -1 WHERE x < 5")
        tx.sql("OPTIMIZE t FULL")
        tx.sql("UPDATE t SET y = y - 1 WHERE x < 10")
        tx.sql("DELETE FROM t WHERE x = 20")
    version = lake.sql("DESCRIBE HISTORY t LIMIT 1").collect()[0].version
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for row in lake.changes("t", version).collect():
        found.setdefault(row[-3], {})[row.key] = (row.x, row.y)
    changed = {key: (x, y) for key, (x, y) in before.items() if x < 10}
    assert found == {
        "update_preimage": changed,
        "update_postimage": {key: (x, -2 if x < 5 else y - 1) for key, (x, y) in changed.items()},
        "delete": {key: (x, y) for key, (x, y) in before.items() if x == 20},
    }
    assert lake.sql("SELECT count(DISTINCT key) FROM t").collect()[0][0] == len(before) - len(
        found["delete"]
    )
