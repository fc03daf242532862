"""The data source `txlake`, asked as Spark's processes ask it: pickled, without a Spark session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from pyspark.sql import types as T

import txlake
from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.lake.streaming import planning
from txlake.lake.streaming.staged import StagedFiles
from txlake.spark_integration.data_source import TxlakeDataSource, TxlakeWriter

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "p": ["a", "b", "a", None],
        "s": pa.array([{"a": 1}, {"a": 2}, None, {"a": 4}], pa.struct([("a", pa.int32())])),
    }
)
ID = T.StructType([T.StructField("id", T.LongType())])


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[txlake.Lake]:
    """A lake that starts no Spark as long as nobody asks for a DataFrame."""
    with txlake.connect(str(tmp_path / "lake")) as opened:
        yield opened
        assert not opened._session.engine.plane.is_started


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "a table")


def source(**options: object) -> TxlakeDataSource:
    return TxlakeDataSource({name: str(value) for name, value in options.items()})


def sent(value: Any) -> Any:
    """As Spark sends it to another process."""
    return cloudpickle.loads(cloudpickle.dumps(value))


def read(asked: TxlakeDataSource) -> list[dict[str, Any]]:
    reader = sent(asked.reader(asked.schema()))
    found: list[dict[str, Any]] = []
    for part in reader.partitions():
        for batch in reader.read(sent(part)):
            found += batch.to_pylist()
    return sorted(found, key=lambda row: row["id"])


def writer(asked: TxlakeDataSource, schema: T.StructType = ID) -> Any:
    return sent(asked.writer(schema, False))


def batches(*numbers: int | None) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"id": pa.array(numbers, pa.int64())})


def ids(place: str, **options: object) -> list[int]:
    return [row["id"] for row in read(source(path=place, **options))]


def files(place: str) -> int:
    return len(list(Path(place).rglob("*.parquet")))


def test_rows_and_partitions_are_read(lake: txlake.Lake, place: str) -> None:
    lake.write(ROWS, place, partition_by="p")
    assert read(source(path=place)) == ROWS.to_pylist()
    schema = source(path=place).schema()
    assert schema.simpleString() == "struct<id:bigint,p:string,s:struct<a:int>>"
    reader = source(path=place).reader(schema)
    [batch] = list(reader.read(reader.partitions()[0]))[:1]
    assert batch.schema.names == ["id", "p", "s"]


def test_an_older_version(lake: txlake.Lake, place: str) -> None:
    lake.write(ROWS, place)
    moment = txlake.Log(place).snapshot().timestamp_ms
    lake.write(ROWS, place, mode="append")
    assert len(ids(place)) == 8
    assert len(ids(place, versionAsOf=0)) == 4
    iso = f"{pa.scalar(moment, pa.timestamp('ms')).as_py().isoformat(sep=' ')}"
    assert len(ids(place, timestampAsOf=iso)) == 4


def test_many_files_are_read_by_few_tasks(
    lake: txlake.Lake, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        lake.write(ROWS, place, mode="append")
    asked = source(path=place)
    assert len(asked.reader(asked.schema()).partitions()) == 1
    monkeypatch.setattr(planning, "_PARTITION_BYTES", 1)
    assert len(asked.reader(asked.schema()).partitions()) == 3


def test_tasks_write_and_one_process_commits(lake: txlake.Lake, place: str) -> None:
    lake.write(pa.table({"id": pa.array([0], pa.int64())}), place)
    own = writer(source(path=place, userMetadata="mine"))
    staged = [sent(own.write(batches(1, 2))), sent(own.write(batches(3))), own.write(iter(()))]
    assert ids(place) == [0]
    sent(own).commit(staged)
    assert ids(place) == [0, 1, 2, 3]
    log = txlake.Log(place)
    assert log.snapshot().version == 1
    [newest] = log.history(1)
    assert (newest["operation"], newest["userMetadata"]) == ("WRITE", "mine")


def test_an_overwrite_is_refused(lake: txlake.Lake, place: str) -> None:
    lake.write(ROWS.select(["id"]), place)
    with pytest.raises(UnsupportedFeature, match=r"can't overwrite.*txlake\.enable"):
        source(path=place).writer(ID, True)


def test_partitions_and_absent_columns_are_written(lake: txlake.Lake, place: str) -> None:
    lake.write(ROWS, place, partition_by="p")
    schema = T.StructType(
        [T.StructField("P", T.StringType()), T.StructField("id", T.IntegerType())]
    )
    own = writer(source(path=place), schema=schema)
    rows = pa.RecordBatch.from_pydict(
        {"P": ["b", "", "b", "c"], "id": pa.array([5, 6, 7, 8], pa.int32())}
    )
    own.commit([own.write(iter([rows]))])
    new = read(source(path=place))[4:]
    assert [(row["id"], row["p"], row["s"]) for row in new] == [
        (5, "b", None), (6, None, None), (7, "b", None), (8, "c", None),
    ]  # fmt: skip
    folders = {path.parent.name for path in Path(place).rglob("*.parquet")}
    assert folders == {"p=a", "p=b", "p=c", "p=__HIVE_DEFAULT_PARTITION__"}


def test_one_application_version_is_written_once(lake: txlake.Lake, place: str) -> None:
    lake.write(ROWS.select(["id"]), place)
    for _ in range(2):
        own = writer(source(path=place, txnAppId="job", txnVersion=7))
        own.commit([own.write(batches(9))])
    assert ids(place) == [1, 2, 3, 4, 9]
    assert files(place) == 2


def test_tables_of_a_lake_by_name(lake: txlake.Lake, tmp_path: Path) -> None:
    lake.write(ROWS.select(["id"]), "t")
    options = {"lake": tmp_path / "lake", "path": "default.t"}
    own = writer(source(**options))
    own.commit([own.write(batches(9))])
    assert [row["id"] for row in read(source(**options))] == [1, 2, 3, 4, 9]
    # By its place alone it is the lake's all the same, which has to be asked.
    by_place = writer(source(path=tmp_path / "lake" / "t"))
    staged = by_place.write(batches(10))
    with pytest.raises(InvalidRequest, match="belongs to the catalog"):
        by_place.commit([staged])
    assert files(str(tmp_path / "lake" / "t")) == 2
    assert [row["id"] for row in read(source(**options))] == [1, 2, 3, 4, 9]


def test_a_failed_task_leaves_nothing(lake: txlake.Lake, place: str) -> None:
    log = txlake.Log(place)
    schema = {"type": "struct", "fields": [
        {"name": "id", "type": "long", "nullable": False, "metadata": {}}]}  # fmt: skip
    log.start_transaction().commit(
        [{"metaData": {"schemaString": json.dumps(schema), "partitionColumns": []}}]
    )
    own = writer(source(path=place))
    with pytest.raises(InvalidRequest, match="NOT NULL of column 'id' is violated"):
        own.write(iter([*batches(1), *batches(None)]))
    assert files(place) == 0


def staged_beside(place: str) -> tuple[TxlakeWriter, StagedFiles, int]:
    before = files(place)
    own = writer(source(path=place))
    staged = own.write(batches(5, 6))
    assert files(place) == before + 1
    return own, staged, before


def test_a_commit_that_cannot_stand_leaves_nothing(lake: txlake.Lake, place: str) -> None:
    lake.write(ROWS.select(["id"]), place)
    own, staged, before = staged_beside(place)
    lake.write(ROWS.select(["id", "p"]), place, mode="append", merge_schema=True)
    with pytest.raises(InvalidRequest, match="changed while the rows were written"):
        own.commit([staged])
    assert files(place) == before + 1  # the other writer's
    assert len(ids(place)) == 8


def test_an_aborted_write_is_removed_and_a_tried_one_is_not(lake: txlake.Lake, place: str) -> None:
    lake.write(ROWS.select(["id"]), place)
    own, staged, before = staged_beside(place)
    own.abort([staged, None])
    assert files(place) == before
    own, staged, before = staged_beside(place)
    own.commit([staged])
    own.abort([staged])  # Spark's, when it doesn't learn that the commit stands
    assert len(ids(place)) == 6


def test_a_rule_that_comes_while_rows_are_written_is_kept(lake: txlake.Lake, place: str) -> None:
    lake.write(ROWS.select(["id"]), place)
    own, staged, before = staged_beside(place)
    log = txlake.Log(place)
    now: Any = log.snapshot()
    rule = {**now.metadata["configuration"], "delta.constraints.small": "id < 5"}
    features = [*now.protocol["writerFeatures"], "checkConstraints"]
    log.start_transaction().commit(
        [
            {"protocol": {**now.protocol, "writerFeatures": features}},
            {"metaData": {**now.metadata, "configuration": rule}},
        ]
    )
    with pytest.raises(InvalidRequest, match="changed while the rows were written"):
        own.commit([staged])
    assert files(place) == before
    assert ids(place) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "no table is given"),
        ({"path": "t"}, "no lake is given"),
        ({"path": "./nothing"}, "is not a Delta table"),
        ({"path": "./nothing", "versionAsOf": "x y"}, "Invalid value 'x y'"),
    ],
)
def test_bad_reads(options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        TxlakeDataSource(options).schema()


def test_another_schema_is_refused(lake: txlake.Lake, place: str) -> None:
    lake.write(ROWS, place)
    with pytest.raises(InvalidRequest, match="has the schema"):
        source(path=place).reader(ID)


def test_columns_without_values_and_chars_are_read(lake: txlake.Lake, place: str) -> None:
    text = {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}
    fields = [
        {"name": "id", "type": "long", "nullable": False, "metadata": {}},
        {"name": "v", "type": "void", "nullable": True, "metadata": {}},
        {"name": "c", "type": "string", "nullable": True, "metadata": text},
    ]
    schema = json.dumps({"type": "struct", "fields": fields})
    log = txlake.Log(place)
    log.start_transaction().commit([{"metaData": {"schemaString": schema, "partitionColumns": []}}])
    pq.write_table(pa.table({"id": pa.array([1], pa.int64()), "c": ["x"]}), f"{place}/a.parquet")
    size = Path(place, "a.parquet").stat().st_size
    add = {"path": "a.parquet", "partitionValues": {}, "size": size, "modificationTime": 0}
    log.start_transaction().commit([{"add": {**add, "dataChange": True}}])
    assert read(source(path=place)) == [{"id": 1, "v": None, "c": "x  "}]
    assert all(one.nullable for one in source(path=place).schema())


def test_streams_are_read_and_written(lake: txlake.Lake, place: str, tmp_path: Path) -> None:
    lake.write(ROWS.select(["id"]), place)
    asked = source(path=place, maxFilesPerTrigger=1, **{"storage.timeout": "9s"})
    reader: Any = asked.streamReader(asked.schema())
    parts = reader.partitions(
        reader.initialOffset(), reader._table.source.newest(reader._began).to_json()
    )
    found = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert sorted(row["id"] for row in found) == [1, 2, 3, 4]
    reader.stop()
    (tmp_path / "metadata").write_text('{"id": "a query"}')
    made = source(path=place, checkpointLocation=tmp_path)
    for _ in range(2):
        sink = made.streamWriter(ID, False)
        sink.commit([sink.write(batches(9))], 0)
    assert ids(place) == [1, 2, 3, 4, 9]
    assert files(place) == 2


@pytest.mark.parametrize("start", [{"startingVersion": 1}, {}])
@pytest.mark.parametrize("name", ["readChangeFeed", "readChangeData"])
def test_changes_are_streamed(
    lake: txlake.Lake, place: str, name: str, start: dict[str, object]
) -> None:
    lake.write(ROWS.select(["id"]), place)
    with pytest.raises(InvalidRequest, match="recorded no changes"):
        source(path=place, **{name: "true"}).schema()
    log = txlake.Log(place)
    metadata = dict(log.snapshot().metadata)
    metadata["configuration"] = {"delta.enableChangeDataFeed": "true"}
    log.start_transaction().commit([{"metaData": metadata}])
    asked = source(path=place, **{name: "true"}, **start)
    schema = asked.schema()
    assert schema.names == ["id", "_change_type", "_commit_version", "_commit_timestamp"]
    reader = sent(asked.streamReader(schema))
    assert reader.initialOffset()["readsChangeFeed"] is True
    reader.stop()


@pytest.mark.parametrize("end", [{}, {"endingVersion": 1}])
def test_a_batch_of_changes_is_refused(
    lake: txlake.Lake, place: str, end: dict[str, object]
) -> None:
    lake.write(ROWS.select(["id"]), place)
    asked = source(path=place, readChangeFeed="true", startingVersion=0, **end)
    with pytest.raises(UnsupportedFeature, match=r"batch of changes isn't read .* lake\.changes"):
        asked.reader(ID)
    if end:
        with pytest.raises(UnsupportedFeature, match="batch of changes"):
            asked.schema()


def test_options_of_a_stream_are_checked_when_it_is_made(lake: txlake.Lake, place: str) -> None:
    lake.write(ROWS, place)
    with pytest.raises(InvalidRequest, match="maxFilesPerTrigger"):
        source(path=place, maxFilesPerTrigger="0").schema()


@pytest.mark.parametrize(
    ("option", "value"),
    [("mergeSchema", "true"), ("overwriteSchema", "true"), ("dataChange", "false")],
)
def test_options_of_other_ways_are_refused(
    lake: txlake.Lake, place: str, option: str, value: str
) -> None:
    lake.write(ROWS, place)
    with pytest.raises(UnsupportedFeature, match=rf"{option} isn't known .* txlake\.enable"):
        source(path=place, **{option: value}).writer(ID, False)


def test_rows_that_do_not_fit_are_refused(lake: txlake.Lake, place: str) -> None:
    lake.write(pa.table({"id": pa.array([1], pa.int8())}), place)
    unknown = T.StructType([T.StructField("other", T.LongType())])
    with pytest.raises(
        InvalidRequest,
        match=r"the rows have 'other', the table has id; to add columns use lake\.write",
    ):
        source(path=place).writer(unknown, False)
    own = writer(source(path=place))
    with pytest.raises(InvalidRequest, match="can't hold a value"):
        own.write(batches(300))
    assert files(place) == 1
