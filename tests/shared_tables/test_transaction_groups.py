"""Every reader reads tables whose commits name the transaction that they are part of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import txlake
from tests.shared_tables.workers import Worker

pytestmark = [
    pytest.mark.broad(keep=1),
    pytest.mark.timeout(900),
    pytest.mark.no_interop("all engines read every version here"),
]
OPEN = "TBLPROPERTIES ('delta.feature.catalogManaged' = 'supported')"


@pytest.mark.parametrize("properties", ["", OPEN], ids=["closed", "open, then detached"])
def test_readers_take_no_notice(
    spark: SparkSession, workers: dict[str, Worker], tmp_path: Path, properties: str
) -> None:
    with txlake.connect(str(tmp_path / "lake"), spark=spark) as lake:
        for name in ("a", "b"):
            lake.sql(f"CREATE TABLE {name} (id INT, n INT) {properties}")
        for number in range(12):  # past a checkpoint
            row = f"VALUES ({number}, {number})"
            lake.sql(f"BEGIN; INSERT INTO a {row}; INSERT INTO b {row}; COMMIT")
        lake.sql("BEGIN; DELETE FROM a WHERE id = 3; UPDATE b SET n = 0 WHERE id < 2; COMMIT")
        place = Path(lake.detach("a").removeprefix("file://"))
        if properties:
            lake.sql(f"ALTER TABLE delta.`{place}` DROP FEATURE vacuumProtocolCheck")
    [commit] = place.glob("_delta_log/*00012.json")
    assert '"transactionGroup"' in commit.read_text()
    everything = [{"id": one, "n": one} for one in range(12)]
    left = [one for one in everything if one["id"] != 3]
    newest = max(int(one.stem) for one in place.glob("_delta_log/*.json"))
    expected = {1: everything[:1], 12: everything, 13: left, newest: left}
    readers = ["txlake", "delta-spark", "delta-rs", "polars"]
    if properties:  # until it was detached, only its catalog could be asked for it
        expected, readers = {newest: left}, readers[:-1]
    for reader in readers:
        for version, found in zip(expected, workers[reader].read(place, [*expected]), strict=True):
            rows = sorted(map(json.loads, found), key=lambda row: row["id"])
            assert rows == expected[version], (reader, version)
