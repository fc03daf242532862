"""TIMESTAMP partition values without a zone are read in the session's, and rewritten in UTC.

Every Delta Spark before UTC values wrote them. Source: PROTOCOL.md, "Partition Value
Serialization".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import txlake
from tests.lake.rows import query
from txlake.errors import Conflict

pytestmark = pytest.mark.broad(keep=6)

ZONE = "spark.sql.session.timeZone"
LOCAL = "2024-07-01 10:00:00"
UTC = "2024-07-01T14:00:00.000000Z"
FEED = {"delta.enableChangeDataFeed": "true"}


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[txlake.Lake]:
    """One lake for all of the tests."""
    with txlake.connect(str(tmp_path_factory.mktemp("local")), spark=spark) as opened:
        yield opened


@contextmanager
def zone(spark: SparkSession, name: str) -> Iterator[None]:
    """The session's time zone for a while."""
    before = spark.conf.get(ZONE)
    spark.conf.set(ZONE, name)
    try:
        yield
    finally:
        spark.conf.set(ZONE, str(before))


@pytest.fixture(autouse=True)
def in_new_york(spark: SparkSession) -> Iterator[None]:
    """The zone of the tables' writer."""
    with zone(spark, "America/New_York"):
        yield


def add_of(folder: Path, name: str, k: int, text: str | None) -> dict[str, object]:
    rows = {"k": pa.array([k], pa.int32()), "same": pa.array([datetime(2024, 7, 1, 14)])}  # noqa: DTZ001
    schema = pa.schema([("k", pa.int32()), ("same", pa.timestamp("us", "UTC"))])
    table = pa.table(rows).cast(schema)
    pq.write_table(table, folder / name)
    return {
        "path": name,
        "partitionValues": {"ts": text},
        "size": (folder / name).stat().st_size,
        "modificationTime": 1_700_000_000_000,
        "dataChange": True,
        "stats": '{"numRecords":1}',
    }


def made(
    folder: Path, texts: Sequence[str | None] = (LOCAL,), properties: dict[str, str] | None = None
) -> str:
    """A table with a file for each partition value, k from 1."""
    (folder / "_delta_log").mkdir(parents=True)
    columns = (("k", "integer"), ("same", "timestamp"), ("ts", "timestamp"))
    schema = {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns
        ],
    }
    metadata = {
        "id": "a1b2c3d4-0000-0000-0000-000000000001",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": ["ts"],
        "configuration": properties or {},
        "createdTime": 1,
    }
    log: list[dict[str, object]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}},
        {"metaData": metadata},
    ]
    log += [
        {"add": add_of(folder, f"{k}.parquet", k, text)} for k, text in enumerate(texts, start=1)
    ]
    commit(folder, 0, log)
    return str(folder)


def commit(folder: Path, version: int, actions: Sequence[dict[str, object]]) -> None:
    """A commit of another engine."""
    path = folder / "_delta_log" / f"{version:020d}.json"
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))


def written(folder: str, version: int) -> set[str | None]:
    """The partition values of the files that a version added."""
    log = Path(folder, "_delta_log", f"{version:020d}.json").read_text().splitlines()
    actions = [json.loads(line) for line in log]
    return {action["add"]["partitionValues"]["ts"] for action in actions if "add" in action}


def test_they_are_read_in_the_sessions_zone(
    lake: txlake.Lake, spark: SparkSession, tmp_path: Path
) -> None:
    place = made(tmp_path / "t", [LOCAL, None, UTC, "2024-07-01 10:00:00.5"])
    shown = f"SELECT k, CAST(ts AS STRING), ts = same FROM delta.`{place}`"
    fraction = "2024-07-01 10:00:00.5"
    assert query(lake, shown) == [
        *((1, LOCAL, True), (2, None, None), (3, LOCAL, True), (4, fraction, False)),
    ]
    found = lake.read(place).where(f"ts = TIMESTAMP'{LOCAL}'").select("k").collect()
    assert sorted(row[0] for row in found) == [1, 3]
    for where, expected in (
        (f"ts = TIMESTAMP'{LOCAL}'", [(1,), (3,)]),
        (f"ts = '{UTC}'", [(1,), (3,)]),
        (f"ts > TIMESTAMP'{LOCAL}'", [(4,)]),
        ("ts IS NULL", [(2,)]),
        (f"k > 0 AND ts <= TIMESTAMP'{LOCAL}'", [(1,), (3,)]),
    ):
        assert query(lake, f"SELECT k FROM delta.`{place}` WHERE {where}") == expected, where
    assert lake.sql(f"SHOW PARTITIONS delta.`{place}`").count() == 3
    with zone(spark, "Asia/Tokyo"):
        assert query(lake, shown)[0] == (1, LOCAL, False)
        assert query(lake, f"SELECT k FROM delta.`{place}` WHERE ts = '{UTC}'") == [(3,)]


OVERWRITE = (
    "INSERT OVERWRITE {} PARTITION (ts = TIMESTAMP'2024-07-01 10:00:00') "
    "SELECT 9, same FROM {} WHERE k = 1"
)
MERGE = (
    "MERGE INTO {} t USING (SELECT TIMESTAMP'2024-07-01 10:00:00' AS at) s "
    "ON t.ts = s.at AND t.k = 1 WHEN MATCHED THEN UPDATE SET k = 9"
)


@pytest.mark.parametrize(
    ("statement", "left"),
    [
        ("DELETE FROM {} WHERE ts = TIMESTAMP'2024-07-01 10:00:00'", []),
        ("DELETE FROM {} WHERE ts < TIMESTAMP'2024-07-01 10:00:00'", [(1, True), (2, True)]),
        ("DELETE FROM {} WHERE k = 2", [(1, True)]),
        ("UPDATE {} SET k = k + 10", [(11, True), (12, True)]),
        ("UPDATE {} SET k = 12 WHERE ts = same AND k = 2", [(1, True), (12, True)]),
        (OVERWRITE, [(9, True)]),
        (MERGE, [(2, True), (9, True)]),
        ("OPTIMIZE {}", [(1, True), (2, True)]),
        ("OPTIMIZE {} WHERE ts = TIMESTAMP'2024-07-01 10:00:00'", [(1, True), (2, True)]),
    ],
)
def test_statements_take_and_keep_the_rows_of_that_instant(
    lake: txlake.Lake, spark: SparkSession, tmp_path: Path, statement: str, left: list[object]
) -> None:
    """What is rewritten is of the same instant then for every session."""
    place = made(tmp_path / "t", [LOCAL, LOCAL])
    table = f"delta.`{place}`"
    lake.sql(statement.replace("{}", table))
    shown = f"SELECT k, ts = same FROM {table}"
    assert query(lake, shown) == left
    assert Path(place, "_delta_log", f"{1:020d}.json").exists() == (
        left != [(1, True), (2, True)]
    ) or ("OPTIMIZE" in statement)
    if "UPDATE {} SET k = k" in statement or "OPTIMIZE" in statement:
        assert written(place, 1) == {UTC}
        with zone(spark, "Asia/Tokyo"):
            assert query(lake, shown) == left


def test_rows_that_move_unchanged_keep_their_instant(
    lake: txlake.Lake, spark: SparkSession, tmp_path: Path
) -> None:
    place = made(tmp_path / "t")
    for kind in ("DEEP", "SHALLOW"):
        lake.sql(f"CREATE OR REPLACE TABLE c {kind} CLONE delta.`{place}`")
        assert query(lake, "SELECT ts = same FROM c") == [(True,)]
    lake.sql(f"UPDATE delta.`{place}` SET k = 2")
    lake.sql(f"RESTORE TABLE delta.`{place}` TO VERSION AS OF 0")
    assert query(lake, f"SELECT k, ts = same FROM delta.`{place}`") == [(1, True)]
    with zone(spark, "UTC"):
        assert query(lake, f"SELECT k, ts = same FROM delta.`{place}`") == [(1, False)]


def test_changes_are_of_that_instant(lake: txlake.Lake, tmp_path: Path) -> None:
    place = made(tmp_path / "t", properties=FEED)
    lake.sql(f"UPDATE delta.`{place}` SET k = 2")
    changes = f"SELECT _change_type, k, ts = same FROM table_changes_by_path('{place}', 0)"
    assert query(lake, changes) == [
        *(("insert", 1, True), ("update_postimage", 2, True), ("update_preimage", 1, True)),
    ]


def test_a_partition_with_values_in_both_notations_is_one(
    lake: txlake.Lake, spark: SparkSession, tmp_path: Path
) -> None:
    """Dynamic overwrite replaces it whole; compaction makes one file of it."""
    place = made(tmp_path / "t", [LOCAL, UTC, "2024-07-02 10:00:00"])
    lake.sql(f"OPTIMIZE delta.`{place}`")
    assert len(txlake.Log(place).snapshot().files()) == 2
    place = made(tmp_path / "u", [LOCAL, UTC, "2024-07-02 10:00:00"])
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        row = f"9, NULL, TIMESTAMP'{LOCAL}'"
        lake.sql(f"INSERT OVERWRITE delta.`{place}` VALUES ({row})")
    finally:
        spark.conf.set("spark.sql.sources.partitionOverwriteMode", "static")
    assert query(lake, f"SELECT k FROM delta.`{place}`") == [(3,), (9,)]


@pytest.mark.parametrize(
    ("text", "conflicts"),
    [(LOCAL, True), ("2024-07-01 20:00:00", False), ("2024-07-03 10:00:00", False)],
)
def test_rows_of_others_are_those_that_the_session_would_read(
    lake: txlake.Lake, tmp_path: Path, text: str, *, conflicts: bool
) -> None:
    """A value without a zone may be of any, so that Spark looks at the rows."""
    place = made(tmp_path / "t")
    tx = lake.begin("serializable")
    tx.sql(f"UPDATE delta.`{place}` SET k = 2 WHERE ts = '{UTC}'")
    folder = Path(place)
    commit(folder, 1, [{"add": add_of(folder, "o.parquet", 5, text)}])
    if conflicts:
        with pytest.raises(Conflict):
            tx.commit()
    else:
        tx.commit()


def test_in_another_zone_than_the_statements_such_rows_are_in_doubt(
    lake: txlake.Lake, spark: SparkSession, tmp_path: Path
) -> None:
    place = made(tmp_path / "t")
    tx = lake.begin("serializable")
    tx.sql(f"UPDATE delta.`{place}` SET k = 2 WHERE ts = '{UTC}'")
    folder = Path(place)
    commit(folder, 1, [{"add": add_of(folder, "o.parquet", 5, "2024-07-01 20:00:00")}])
    with zone(spark, "Asia/Tokyo"), pytest.raises(Conflict):
        tx.commit()


def test_without_spark_such_a_value_is_in_doubt(tmp_path: Path) -> None:
    log = txlake.Log(made(tmp_path / "t", [LOCAL, "2024-07-03 10:00:00", UTC])).snapshot()

    def paths(where: str) -> list[str]:
        return sorted(log.files(where=where)["path"].to_pylist())

    assert paths("ts = '2024-07-01T10:00:00Z'") == ["1.parquet"]
    assert paths(f"ts = '{UTC}'") == ["1.parquet", "3.parquet"]
    assert paths("ts = '2024-07-02T03:59:59Z'") == ["1.parquet"]
    assert paths("ts = '2024-07-03T04:00:00Z'") == ["2.parquet"]
    assert paths("ts > '2024-07-05T00:00:00Z'") == []
    assert paths("ts IS NULL") == []


@pytest.mark.parametrize("texts", [[LOCAL, UTC], [UTC]])
def test_checkpoints_type_only_instants(
    lake: txlake.Lake, tmp_path: Path, texts: Sequence[str]
) -> None:
    properties = {
        "delta.checkpoint.writeStatsAsStruct": "true",
        "delta.checkpointInterval": "1",
    }
    place = made(tmp_path / "t", texts, properties)
    lake.sql(f"INSERT INTO delta.`{place}` VALUES (7, NULL, TIMESTAMP'{UTC}')")
    (checkpoint,) = Path(place, "_delta_log").glob("*1.checkpoint.parquet")
    add = pq.read_table(checkpoint).schema.field("add").type
    assert (add.get_field_index("partitionValues_parsed") >= 0) == (LOCAL not in texts)
    found = query(lake, f"SELECT k FROM delta.`{place}` WHERE ts = TIMESTAMP'{LOCAL}'")
    assert found == [(k,) for k in [*range(1, len(texts) + 1), 7]]


def test_what_knows_no_zone_refuses_to_read_the_value(spark: SparkSession, tmp_path: Path) -> None:
    place = made(tmp_path / "t")
    spark.dataSource.register(txlake.TxlakeDataSource)
    with pytest.raises(PySparkException, match="TIMESTAMP without a time zone"):
        spark.read.format("txlake").load(place).collect()
