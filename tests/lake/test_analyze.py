"""ANALYZE TABLE ... COMPUTE DELTA STATISTICS: files get statistics, and no writer is in the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import txlake
from tests.lake.rows import query

pytestmark = pytest.mark.broad(keep=2)


@pytest.fixture
def place(lake: txlake.Lake, tmp_path: Path) -> str:
    """A partitioned table of two files, whose entries another writer made without statistics."""
    path = str(tmp_path / "foreign")
    lake.sql(
        f"CREATE TABLE delta.`{path}` (p INT, id BIGINT, s STRING) PARTITIONED BY (p) "
        "TBLPROPERTIES ('delta.enableRowTracking' = 'true')"
    )
    for p in (1, 2):
        lake.sql(
            f"INSERT INTO delta.`{path}` SELECT {p}, id, 'x' || id FROM range({p}0, {p}5, 1, 1)"
        )
    log = txlake.Log(path)
    files = log.snapshot().files().to_pylist()
    entries = [
        {
            "add": {
                "path": f["path"],
                "partitionValues": dict(f["partition_values"]),
                "size": f["size"],
                "modificationTime": 1,
                "dataChange": False,
                "tags": {"from": "them"},
                "baseRowId": f["base_row_id"],
                "defaultRowCommitVersion": f["default_row_commit_version"],
            }
        }
        for f in files
    ]
    version = log.snapshot().version + 1
    text = "".join(json.dumps(entry) + "\n" for entry in entries)
    Path(path, "_delta_log", f"{version:020}.json").write_text(text)
    return path


def analyze(place: str) -> str:
    return f"ANALYZE TABLE delta.`{place}` COMPUTE DELTA STATISTICS"


def added(place: str, version: int | None = None) -> list[dict[str, Any]]:
    """The adds of a commit, the newest without a version; by partition."""
    log = Path(place, "_delta_log")
    newest = txlake.Log(place).snapshot().version if version is None else version
    lines = map(json.loads, (log / f"{newest:020}.json").read_text().splitlines())
    adds = [line["add"] for line in lines if "add" in line]
    return sorted(adds, key=lambda one: str(one["partitionValues"]["p"]))


def files(place: str) -> dict[str, Any]:
    """Each live file's statistics, by partition."""
    found = txlake.Log(place).snapshot().files().to_pylist()
    return {dict(one["partition_values"])["p"]: json.loads(one["stats"]) for one in found}


def test_files_get_the_statistics_of_their_footers(lake: txlake.Lake, place: str) -> None:
    before = added(place)
    assert all("stats" not in one for one in before)
    lake.sql(analyze(place))
    after = added(place)
    assert [{k: v for k, v in one.items() if k != "stats"} for one in after] == before
    assert json.loads(after[0]["stats"]) == {
        "numRecords": 5,
        "minValues": {"id": 10, "s": "x10"},
        "maxValues": {"id": 14, "s": "x14"},
        "nullCount": {"id": 0, "s": 0},
        "tightBounds": True,
    }
    [newest] = query(
        lake,
        "SELECT operation, operationMetrics['numFiles'], isBlindAppend "
        f"FROM (DESCRIBE HISTORY delta.`{place}` LIMIT 1)",
    )
    assert newest == ("COMPUTE STATS", "2", True)
    version = txlake.Log(place).snapshot().version
    lake.sql(analyze(place))
    assert txlake.Log(place).snapshot().version == version


def test_the_columns_are_those_that_the_properties_name(lake: txlake.Lake, place: str) -> None:
    lake.sql(analyze(place))
    lake.sql(
        f"ALTER TABLE delta.`{place}` SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 's')"
    )
    lake.sql(analyze(place))
    assert {p: list(stats["minValues"]) for p, stats in files(place).items()} == {
        "1": ["s"],
        "2": ["s"],
    }


def test_a_file_with_deleted_rows_keeps_its_vector(lake: txlake.Lake, place: str) -> None:
    lake.sql(f"DELETE FROM delta.`{place}` WHERE id = 12")
    lake.sql(analyze(place))
    [first, _] = added(place)
    stats = json.loads(first["stats"])
    assert first["deletionVector"]["cardinality"] == 1
    assert (stats["numRecords"], stats["tightBounds"]) == (5, False)
    assert stats["maxValues"] == {"id": 14, "s": "x14"}
    assert query(lake, f"SELECT count(*) FROM delta.`{place}`") == [(9,)]


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM {t} WHERE p = 1",
        "DELETE FROM {t} WHERE id = 12",
        "UPDATE {t} SET s = 'y' WHERE id = 12",
        "OPTIMIZE {t} WHERE p = 1",
        "REORG TABLE {t} APPLY (PURGE)",
    ],
)
def test_a_change_of_a_file_that_came_first_wins(
    lake: txlake.Lake, place: str, change: str
) -> None:
    lake.sql(f"DELETE FROM delta.`{place}` WHERE id = 11")
    lake.sql(f"INSERT INTO delta.`{place}` VALUES (1, 19, 'x19')")
    tx = lake.begin(isolation="serializable")
    tx.sql(analyze(place))
    lake.sql(change.format(t=f"delta.`{place}`"))
    rows = query(lake, f"SELECT id, s FROM delta.`{place}`")
    listed = {one["path"] for one in txlake.Log(place).snapshot().files().to_pylist()}
    tx.commit()
    assert query(lake, f"SELECT id, s FROM delta.`{place}`") == rows
    found = txlake.Log(place).snapshot().files().to_pylist()
    assert {one["path"] for one in found} == listed
    assert files(place)["2"]["minValues"] == {"id": 20, "s": "x20"}


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM {t} WHERE p = 1",
        "DELETE FROM {t} WHERE id = 12",
        "UPDATE {t} SET s = 'y' WHERE id = 12",
        "INSERT INTO {t} SELECT p, id + 100, s FROM {t}",
        "OPTIMIZE {t}",
    ],
)
def test_statistics_that_came_first_abort_nobody(
    lake: txlake.Lake, place: str, change: str
) -> None:
    lake.sql(f"INSERT INTO delta.`{place}` VALUES (1, 19, 'x19')")
    tx = lake.begin(isolation="serializable")
    tx.sql(change.format(t=f"delta.`{place}`"))
    rows = query(tx, f"SELECT id, s FROM delta.`{place}`")
    lake.sql(analyze(place))
    tx.commit()
    assert query(lake, f"SELECT id, s FROM delta.`{place}`") == rows


def test_rows_that_the_transaction_added_stay_new(lake: txlake.Lake, tmp_path: Path) -> None:
    path = str(tmp_path / "own")
    lake.sql(f"CREATE TABLE delta.`{path}` (p INT, a INT, b INT) PARTITIONED BY (p)")
    with lake.transaction() as tx:
        tx.sql(f"INSERT INTO delta.`{path}` VALUES (1, 1, 2)")
        tx.sql(
            f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 'b')"
        )
        tx.sql(analyze(path))
    [entry] = added(path)
    assert entry["dataChange"] is True
    assert json.loads(entry["stats"])["minValues"] == {"b": 2}


def test_a_lake_table(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t (a INT, b INT)")
    lake.sql("INSERT INTO t VALUES (1, 2)")
    lake.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 'b')")
    tx = lake.begin()
    tx.sql("ANALYZE TABLE t COMPUTE DELTA STATISTICS")
    lake.sql("DELETE FROM t")
    tx.commit()
    assert query(lake, "SELECT * FROM t") == []
    lake.sql("INSERT INTO t VALUES (3, 4)")
    lake.sql("ANALYZE TABLE t COMPUTE DELTA STATISTICS")
    assert query(lake, "SELECT * FROM t") == [(3, 4)]


@pytest.mark.no_interop("a data file is missing")
def test_a_file_that_is_gone_is_named(lake: txlake.Lake, place: str) -> None:
    [first, _] = added(place)
    Path(place, first["path"]).unlink()
    with pytest.raises(txlake.errors.CorruptTable, match="expected a Parquet file of"):
        lake.sql(analyze(place))


def test_a_read_only_transaction_refuses_it(lake: txlake.Lake, place: str) -> None:
    tx = lake.begin(read_only=True)
    with pytest.raises(txlake.errors.InvalidRequest, match="read-only transaction"):
        tx.sql(analyze(place))
    tx.rollback()
