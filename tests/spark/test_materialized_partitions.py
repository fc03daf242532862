"""Tables whose data files hold the partition columns too: every way to write a file keeps to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlake
from txlake.log.snapshot import Snapshot
from txlake.protocol.partition_values import parse_value
from txlake.protocol.paths import decode_path
from txlake.sql.statements import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEATURE = "'delta.feature.materializePartitionColumns' = 'supported'"
KINDS = {
    "vectors": (
        "'delta.columnMapping.mode' = 'id', 'delta.enableRowTracking' = 'true', "
        "'delta.enableDeletionVectors' = 'true'"
    ),
    "copies": "'delta.enableDeletionVectors' = 'false', 'delta.enableChangeDataFeed' = 'true'",
}
DAY = "DATE'2020-01-02'"
MERGE = (
    f"MERGE INTO t USING (SELECT 1 AS p, id, 'm' AS v, {DAY} AS day FROM VALUES (1), (7) AS r(id)) "
    "s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
)
STATEMENTS = {
    "constants": (
        f"INSERT INTO t VALUES (1, 1, 'a', {DAY}), (1, 2, 'b', {DAY}), (NULL, 3, 'c', NULL)"
    ),
    "a query": f"INSERT INTO t SELECT 1, CAST(id AS INT), 'q', {DAY} FROM range(10, 14, 1, 2)",
    "an update": "UPDATE t SET v = 'u' WHERE id IN (2, 3)",
    "a merge": MERGE,
    "a deletion": "DELETE FROM t WHERE id = 10",
    "packing": "OPTIMIZE t",
    "sorting": "OPTIMIZE t ZORDER BY (id)",
    "a replacement": f"INSERT INTO t REPLACE WHERE p IS NULL SELECT NULL, 8, 'r', {DAY}",
}
AFTER = {(1, 1, "m"), (1, 2, "u"), (1, 7, "m"), (None, 8, "r")} | {
    (1, n, "q") for n in (11, 12, 13)
}


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[txlake.Lake]:
    with txlake.connect(str(tmp_path / "lake"), spark=spark) as opened:
        yield opened


def created(lake: txlake.Lake, properties: str) -> Path:
    """The folder of the empty table `t`."""
    lake.sql(
        "CREATE TABLE t (p INT, id INT, v STRING, day DATE) PARTITIONED BY (p, day) "
        f"TBLPROPERTIES ({properties})"
    )
    return Path(str(lake.sql("DESCRIBE DETAIL t").collect()[0]["location"]).removeprefix("file:"))


def newest(lake: txlake.Lake) -> Snapshot:
    handle = lake._session.engine.find(TableName(("t",)), "default")
    assert handle is not None
    return handle.log.latest()


def check_files(folder: Path, table: Snapshot) -> None:
    """Every live file holds the values that the log says, in columns of the right names and ids."""
    for add in table.files.adds():
        held = pq.read_table(folder / decode_path(add.path), partitioning=None)
        for name in table.partition_columns:
            item = table.schema.find(name)
            assert item is not None
            expected = parse_value(add.partition_values[item.physical_name], item.type)
            assert set(held[item.physical_name].to_pylist()) == {expected}
            about = held.schema.field(item.physical_name).metadata or {}
            assert about.get(b"PARQUET:field_id") == (
                None if item.column_id is None else str(item.column_id).encode()
            )
            assert f'"{item.physical_name}"' not in (add.stats or "")


@pytest.mark.broad(keep=1)
@pytest.mark.parametrize("kind", KINDS)
def test_every_statement_writes_them(lake: txlake.Lake, kind: str) -> None:
    folder = created(lake, f"{FEATURE}, {KINDS[kind]}")
    for statement in STATEMENTS.values():
        before = {add.path for add in newest(lake).files.adds()}
        lake.sql(statement)
        assert {add.path for add in newest(lake).files.adds()} - before or "DELETE" in statement
        check_files(folder, newest(lake))
    assert {tuple(row) for row in lake.sql("SELECT p, id, v FROM t").collect()} == AFTER
    for path in (folder / "_change_data").rglob("*.parquet"):
        assert pq.read_schema(path).names == ["id", "v", "_change_type", "p", "day"]


def test_files_of_before_stay_and_are_packed_with_those_of_after(lake: txlake.Lake) -> None:
    folder = created(lake, "'own' = 'x'")
    lake.sql(STATEMENTS["constants"])
    (before, _) = (folder / decode_path(add.path) for add in newest(lake).files.adds())
    assert "p" not in pq.read_schema(before).names
    key = "delta.enableMaterializePartitionColumnsFeature"
    lake.sql(f"ALTER TABLE t SET TBLPROPERTIES ('{key}' = 'true')")
    lake.sql(STATEMENTS["a query"])
    rows = {tuple(row) for row in lake.sql("SELECT * FROM t").collect()}
    assert len(rows) == 7
    lake.sql("OPTIMIZE t")
    assert {tuple(row) for row in lake.sql("SELECT * FROM t").collect()} == rows
    # The file that stood alone in its partition stayed as it was.
    packed = [add for add in newest(lake).files.adds() if add.partition_values["p"] is not None]
    assert len(packed) == 1
    assert pq.read_schema(folder / decode_path(packed[0].path)).names == ["id", "v", "p", "day"]
    lake.sql("ALTER TABLE t DROP FEATURE materializePartitionColumns")
    lake.sql("INSERT INTO t VALUES (5, 5, 'e', NULL)")
    (last,) = (add for add in newest(lake).files.adds() if add.partition_values["p"] == "5")
    assert pq.read_schema(folder / decode_path(last.path)).names == ["id", "v"]


def test_rows_that_this_process_holds(lake: txlake.Lake) -> None:
    folder = created(lake, FEATURE)
    rows: dict[str, Any] = {"p": [1, 2], "id": [1, 2], "v": ["a", "b"], "day": [None, None]}
    types = {"p": pa.int32(), "id": pa.int32(), "v": pa.string(), "day": pa.date32()}
    held = pa.table({name: pa.array(rows[name], types[name]) for name in types})
    lake.write(held, "t", "append")
    check_files(folder, newest(lake))
    assert len(lake.sql("SELECT * FROM t").collect()) == 2
