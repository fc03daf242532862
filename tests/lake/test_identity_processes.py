"""Processes that fill one identity column at once, some of them killed: no value comes twice."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import txlake
from tests.lake.programs import ended, start
from txlake.protocol.identity import marks_of
from txlake.protocol.types import parse_schema

WRITES = 12
SCHEMA = {
    "type": "struct",
    "fields": [
        {
            "name": "id",
            "type": "long",
            "nullable": True,
            "metadata": {
                "delta.identity.start": 10,
                "delta.identity.step": -3,
                "delta.identity.allowExplicitInsert": False,
            },
        },
        {"name": "name", "type": "string", "nullable": True, "metadata": {}},
    ],
}

WRITING = """
import sys
import pyarrow as pa
import txlake

lake = txlake.connect(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[3])):
    names = [f"{sys.argv[2]} {number} {part}" for part in "ab"]
    if number % 3 == 2:
        with lake.transaction() as tx:
            for name in names:
                tx.write(pa.table({"name": [name]}), "t", mode="append")
    elif number % 3 == 1:
        tx = lake.begin()
        tx.write(pa.table({"name": ["rolled back"]}), "t", mode="append")
        tx.rollback()
        lake.write(pa.table({"name": names}), "t", mode="append")
    else:
        lake.write(pa.table({"name": names}), "t", mode="append")
    print("\\n".join(names), flush=True)
lake.close()
"""


@pytest.mark.broad
@pytest.mark.no_interop("its files are read here")
def test_values_of_processes_that_are_killed(tmp_path: Path) -> None:
    place = tmp_path / "t"
    log = txlake.Log(str(place))
    log.start_transaction().commit(
        [{"metaData": {"schemaString": json.dumps(SCHEMA), "partitionColumns": []}}],
        operation="CREATE TABLE",
    )
    warehouse = str(tmp_path / "warehouse")
    with txlake.connect(warehouse) as lake:
        lake.attach(str(place), "t")
    writers = [start(WRITING, warehouse, name, WRITES) for name in ("one", "two", "dies", "falls")]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    told: list[str] = []
    for writer in writers[2:]:
        assert writer.stdout is not None
        told += [writer.stdout.readline().strip() for _ in range(4)]
        writer.kill()
        told += writer.communicate(timeout=120)[0].split("\n")
    for writer in writers[:2]:
        told += ended(writer).split("\n")

    with txlake.connect(warehouse):
        pass  # what was ratified is published
    snapshot = txlake.Log(str(place)).snapshot()
    files = snapshot.files().column("path").to_pylist()
    rows = [row for file in files for row in pq.read_table(place / file).to_pylist()]
    names = [row["name"] for row in rows]
    acknowledged = [name for name in told if name]
    assert len(acknowledged) >= 2 * 2 * WRITES + 8
    assert set(acknowledged) <= set(names)
    assert len(set(names)) == len(names)
    assert "rolled back" not in names
    ids = [row["id"] for row in rows]
    assert len(set(ids)) == len(ids)
    assert all(value <= 10 and (10 - value) % 3 == 0 for value in ids)
    [mark] = marks_of(parse_schema(json.dumps(snapshot.schema)), "t").values()
    assert mark == min(ids)
