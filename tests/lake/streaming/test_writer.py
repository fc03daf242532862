"""The sink of `writeStream.format("txlake")`, called as Spark calls it, without Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import DecimalType, StructType

import txlake
from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.lake.streaming.options import sink_options
from txlake.lake.streaming.staged import StagedFiles
from txlake.lake.streaming.writer import stream_writer
from txlake.ports import PutOutcome
from txlake.storage.local import LocalStore

QUERY = "0000-1111"
_TYPES: dict[str, Any] = {
    "INT": "integer",
    "BIGINT": "long",
    "STRING": "string",
    "TIMESTAMP": "timestamp",
    "BINARY": "binary",
    "DOUBLE": "double",
    "DECIMAL(3,2)": DecimalType(3, 2),
}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "metadata").write_text(json.dumps({"id": QUERY}))
    return folder


class Stream:
    """A query's micro-batches."""

    def __init__(self, place: object, checkpoint: Path, **options: str) -> None:
        self._options = {"path": str(place), "checkpointlocation": str(checkpoint), **options}

    def stage(
        self, rows: pa.Table, schema: str, overwrite: bool = False
    ) -> tuple[Any, StagedFiles]:
        wanted = StructType()
        for column in schema.split(", "):
            name, kind = column.split(" ")
            wanted = wanted.add(name, _TYPES[kind])
        made = stream_writer(self._options, wanted, overwrite)
        return made, made.write(iter(rows.to_batches()))

    def batch(
        self, number: int, rows: pa.Table, schema: str = "id INT, p STRING", overwrite: bool = False
    ) -> None:
        made, staged = self.stage(rows, schema, overwrite)
        made.commit([staged], number)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int32()), "p": [f"p{one % 2}" for one in ids]})


def ids(place: Path) -> list[int]:
    paths = txlake.Log(place).snapshot().files()["path"].to_pylist()
    found = [pq.read_table(place / path, partitioning=None) for path in paths]
    return sorted(number for one in found for number in one["id"].to_pylist())


def test_the_first_batch_makes_the_table_and_each_counts_once(
    tmp_path: Path, checkpoint: Path
) -> None:
    stream = Stream(tmp_path / "t", checkpoint, partitionby="p", usermetadata="by hand")
    stream.batch(0, rows(1, 2))
    stream.batch(1, rows(3))
    for again in (0, 1):
        stream.batch(again, rows(4))
    stream.batch(2, rows())
    assert ids(tmp_path / "t") == [1, 2, 3]
    log = txlake.Log(tmp_path / "t")
    assert log.snapshot().partition_columns == ["p"]
    assert log.snapshot().app_version(QUERY) == 2
    newest = log.history()[0]
    assert (newest["operation"], newest["userMetadata"]) == ("STREAMING UPDATE", "by hand")
    assert newest["operationParameters"] == {
        "outputMode": "Append",
        "queryId": QUERY,
        "epochId": "2",
    }


def test_files_hold_partition_columns_where_the_table_asks_for_it(
    tmp_path: Path, checkpoint: Path
) -> None:
    place = tmp_path / "t"
    with txlake.connect(str(tmp_path / "lake")) as lake:
        lake.sql(
            f"CREATE TABLE delta.`{place}` (id INT, p STRING) PARTITIONED BY (p) "
            "TBLPROPERTIES ('delta.feature.materializePartitionColumns' = 'supported')"
        )
    Stream(place, checkpoint).batch(0, rows(1, 2))
    paths = txlake.Log(place).snapshot().files()["path"].to_pylist()
    held = [pq.read_table(place / path, partitioning=None).to_pylist() for path in paths]
    assert sorted(held, key=str) == [[{"id": 1, "p": "p1"}], [{"id": 2, "p": "p0"}]]


def test_complete_mode_replaces_every_row(tmp_path: Path, checkpoint: Path) -> None:
    stream = Stream(tmp_path / "t", checkpoint)
    stream.batch(0, rows(1, 2), overwrite=True)
    stream.batch(1, rows(3), overwrite=True)
    assert ids(tmp_path / "t") == [3]


def test_a_table_of_the_lake_commits_through_its_catalog(tmp_path: Path, checkpoint: Path) -> None:
    place = str(tmp_path / "lake")
    with txlake.connect(place) as lake:
        lake.write(rows(1), "db.t")
        stream = Stream("db.t", checkpoint, lake=place)
        stream.batch(0, rows(2))
        stream.batch(0, rows(2))
        stream.batch(1, rows(3))
        lake.write(rows(4), "db.t", "append")
    assert ids(tmp_path / "lake" / "db.db" / "t") == [1, 2, 3, 4]
    other = Stream("db.u", checkpoint, lake=place)
    with pytest.raises(InvalidRequest, match=r"is that of the stream into db\.t"):
        other.batch(2, rows(5))
    assert not (tmp_path / "lake" / "db.db" / "u").exists()


@pytest.mark.parametrize("number", [1, 3])
def test_a_micro_batch_is_not_written_where_those_before_it_are_missing(
    tmp_path: Path, checkpoint: Path, number: int
) -> None:
    stream = Stream(tmp_path / "t", checkpoint)
    if number > 1:
        stream.batch(0, rows(1))
        stream.batch(1, rows(2))
    with pytest.raises(InvalidRequest, match="the rows between are missing"):
        stream.batch(number, rows(3))
    assert ids(tmp_path / "t") == ([1, 2] if number > 1 else [])


def test_a_table_may_let_the_numbers_of_micro_batches_go(tmp_path: Path, checkpoint: Path) -> None:
    with txlake.connect(str(tmp_path / "lake")) as lake:
        lake.sql(
            f"CREATE TABLE delta.`{tmp_path / 't'}` (id INT, p STRING) "
            "TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 1 days')"
        )
    Stream(tmp_path / "t", checkpoint).batch(4, rows(1))
    assert ids(tmp_path / "t") == [1]


def test_a_number_that_a_checkpoint_let_go_is_found_in_the_commits(
    tmp_path: Path, checkpoint: Path
) -> None:
    """delta-io/delta-kernel-rs #3001: the marker of a batch expired, and a restart doubles it."""
    place, stream = tmp_path / "t", Stream(tmp_path / "t", checkpoint)
    stream.batch(0, rows(1))
    stream.batch(1, rows(2))
    log = txlake.Log(place)
    metadata = log.snapshot().metadata
    expiring = {
        "delta.setTransactionRetentionDuration": "interval 0 seconds",
        "delta.checkpointInterval": "1",
    }
    changed = {**metadata, "configuration": expiring}
    log.start_transaction().commit([{"metaData": changed}], operation="SET TBLPROPERTIES")
    assert txlake.Log(place).snapshot().app_version(QUERY) is None
    for number in (0, 1):
        stream.batch(number, rows(3))
    assert ids(place) == [1, 2]
    stream.batch(2, rows(4))
    assert ids(place) == [1, 2, 4]


@pytest.mark.parametrize("arrives", ["before", "after", "never"])
def test_another_process_takes_a_query_over_while_a_reply_is_lost(
    tmp_path: Path,
    checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
    arrives: str,
) -> None:
    """MaterializeInc/materialize #38333: the batch is committed by both."""
    place = tmp_path / "t"
    stream = Stream(place, checkpoint)
    stream.batch(0, rows(1))
    put = LocalStore.put_if_absent
    taken_over: list[str] = []

    def unanswered(store: LocalStore, path: str, data: bytes) -> PutOutcome:
        if taken_over or not re.fullmatch(r"_delta_log/\d{20}\.json", path):
            return put(store, path, data)
        taken_over.append(path)
        if arrives == "before":
            put(store, path, data)
        for number in (1, 2):
            Stream(place, checkpoint).batch(number, rows(number + 1))
        if arrives == "after":
            put(store, path, data)
        return PutOutcome.UNKNOWN

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "put_if_absent", unanswered)
        stream.batch(1, rows(2))
    assert taken_over
    assert ids(place) == [1, 2, 3]


def test_rows_with_structs_need_no_spark(tmp_path: Path, checkpoint: Path) -> None:
    wanted = StructType().add("s", StructType().add("a", "integer"))
    table = pa.table({"s": pa.array([{"a": 1}], pa.struct([("a", pa.int32())]))})
    options = {"path": str(tmp_path / "t"), "checkpointlocation": str(checkpoint)}
    made = stream_writer(options, wanted, False)
    made.commit([made.write(iter(table.to_batches()))], 0)
    [path] = txlake.Log(tmp_path / "t").snapshot().files()["path"].to_pylist()
    assert pq.read_table(tmp_path / "t" / path) == table


def test_columns_go_by_name_and_narrower_numbers_fit(tmp_path: Path, checkpoint: Path) -> None:
    log = txlake.Log(tmp_path / "t")
    txlake_rows = pa.table({"id": pa.array([], pa.int64()), "p": pa.array([], pa.string())})
    with txlake.connect(str(tmp_path / "lake")) as lake:
        lake.write(txlake_rows, str(tmp_path / "t"))
    stream = Stream(tmp_path / "t", checkpoint)
    narrow = pa.table({"P": ["x"], "ID": pa.array([7], pa.int32())})
    stream.batch(0, narrow, "P STRING, ID INT")
    stream.batch(1, pa.table({"id": pa.array([8], pa.int64())}), "id BIGINT")
    assert ids(tmp_path / "t") == [7, 8]
    assert log.snapshot().arrow_schema.names == ["id", "p"]


def test_decimals_become_the_nearest_doubles(tmp_path: Path, checkpoint: Path) -> None:
    with txlake.connect(str(tmp_path / "lake")) as lake:
        lake.write(pa.table({"v": pa.array([], pa.float64())}), str(tmp_path / "t"))
    given = [Decimal(n).scaleb(-2) for n in range(1000)]
    stream = Stream(tmp_path / "t", checkpoint)
    stream.batch(0, pa.table({"v": pa.array(given, pa.decimal128(3, 2))}), "v DECIMAL(3,2)")
    [path] = txlake.Log(tmp_path / "t").snapshot().files()["path"].to_pylist()
    assert pq.read_table(tmp_path / "t" / path)["v"].to_pylist() == [float(one) for one in given]


def test_a_double_in_a_decimal_column_is_refused(tmp_path: Path, checkpoint: Path) -> None:
    with txlake.connect(str(tmp_path / "lake")) as lake:
        lake.write(pa.table({"v": pa.array([], pa.decimal128(9, 2))}), str(tmp_path / "t"))
    with pytest.raises(InvalidRequest, match=re.escape("the rows' is double; cast it")):
        Stream(tmp_path / "t", checkpoint).stage(pa.table({"v": [1.005]}), "v DOUBLE")


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("id INT, q INT", "the rows have 'q', the table has id, p; say mergeSchema=true"),
        ("id STRING, p STRING", "column 'id' is integer, the rows' is string; cast it"),
        ("id TIMESTAMP, p STRING", "column 'id' is integer, the rows' is timestamp; cast it"),
    ],
)
def test_rows_that_dont_fit_are_refused_before_they_are_written(
    tmp_path: Path, checkpoint: Path, schema: str, said: str
) -> None:
    stream = Stream(tmp_path / "t", checkpoint)
    stream.batch(0, rows(1))
    with pytest.raises(InvalidRequest, match=re.escape(said)):
        stream.stage(rows(1), schema)


def test_new_columns_are_added_where_the_option_says_so(tmp_path: Path, checkpoint: Path) -> None:
    Stream(tmp_path / "t", checkpoint).batch(0, rows(1))
    wider = pa.table({"id": pa.array([2], pa.int32()), "q": pa.array([5], pa.int64())})
    stream = Stream(tmp_path / "t", checkpoint, mergeschema="true")
    stream.batch(1, wider, "id INT, q BIGINT")
    assert txlake.Log(tmp_path / "t").snapshot().arrow_schema.names == ["id", "p", "q"]
    assert ids(tmp_path / "t") == [1, 2]


def test_a_value_that_is_too_large_fails_the_task(tmp_path: Path, checkpoint: Path) -> None:
    stream = Stream(tmp_path / "t", checkpoint)
    stream.batch(0, rows(1))
    large = pa.table({"id": pa.array([2**40], pa.int64())})
    with pytest.raises(InvalidRequest, match="column 'id' can't hold a value"):
        stream.stage(large, "id BIGINT")


def test_a_null_in_a_required_column_fails_the_task(tmp_path: Path, checkpoint: Path) -> None:
    required = pa.schema([pa.field("id", pa.int32(), False), pa.field("p", pa.string())])
    with txlake.connect(str(tmp_path / "lake")) as lake:
        lake.write(rows(1).cast(required), str(tmp_path / "t"))
    _require(tmp_path / "t")
    stream = Stream(tmp_path / "t", checkpoint)
    with pytest.raises(InvalidRequest, match="NOT NULL of column 'id' is violated by 1 rows"):
        stream.stage(pa.table({"id": pa.array([None], pa.int32())}), "id INT")
    with pytest.raises(InvalidRequest, match="id"):
        stream.stage(pa.table({"p": ["x"]}), "p STRING")


def _require(place: Path) -> None:
    """Column `id` of the table is NOT NULL."""
    log = txlake.Log(place)
    metadata = dict(log.snapshot().metadata)
    schema = json.loads(str(metadata["schemaString"]))
    schema["fields"][0]["nullable"] = False
    metadata["schemaString"] = json.dumps(schema)
    log.start_transaction().commit([{"metaData": metadata}], operation="CHANGE COLUMN")


def test_a_table_that_changed_meanwhile_isnt_written(tmp_path: Path, checkpoint: Path) -> None:
    stream = Stream(tmp_path / "t", checkpoint)
    stream.batch(0, rows(1))
    made, staged = stream.stage(rows(2), "id INT, p STRING")
    metadata = dict(txlake.Log(tmp_path / "t").snapshot().metadata)
    metadata["configuration"] = {"delta.appendOnly": "true"}
    txlake.Log(tmp_path / "t").start_transaction().commit([{"metaData": metadata}])
    with pytest.raises(InvalidRequest, match="changed while the rows were written; start the"):
        made.commit([staged], 1)
    made.abort([staged], 1)
    assert ids(tmp_path / "t") == [1]
    assert len(list((tmp_path / "t").glob("*.parquet"))) == 1


@pytest.mark.parametrize("is_of_lake", [False, True])
def test_files_that_vacuum_removed_arent_committed(
    tmp_path: Path, checkpoint: Path, is_of_lake: bool
) -> None:
    """The batch that runs again writes them anew."""
    place = tmp_path / "lake"
    table = place / "db.db" / "t" if is_of_lake else tmp_path / "t"
    name = "db.t" if is_of_lake else str(table)
    with txlake.connect(str(place)) as lake:
        lake.write(rows(1), name)
    stream = Stream(name, checkpoint, **({"lake": str(place)} if is_of_lake else {}))
    made, one = stream.stage(rows(2, 3), "id INT, p STRING")
    two = made.write(_batches(rows(4)))
    [gone] = [path for path in table.rglob("*.parquet") if ids_in(path) == [4]]
    gone.unlink()
    with pytest.raises(InvalidRequest, match=r"1 of 2 files that were written .* are gone, .*run"):
        made.commit([one, two], 0)
    assert ids(table) == [1]
    assert len(list(table.rglob("*.parquet"))) == 1
    stream.batch(0, rows(2, 3, 4))
    assert ids(table) == [1, 2, 3, 4]


def ids_in(path: Path) -> list[int]:
    return [int(number) for number in pq.read_table(path, partitioning=None)["id"].to_pylist()]


def test_rows_of_a_task_that_says_nothing_arent_passed_over(
    tmp_path: Path, checkpoint: Path
) -> None:
    stream = Stream(tmp_path / "t", checkpoint)
    stream.batch(0, rows(1))
    made, staged = stream.stage(rows(2), "id INT, p STRING")
    with pytest.raises(InvalidRequest, match="the files of 2 tasks, found those of 1"):
        made.commit([staged, None], 1)
    assert ids(tmp_path / "t") == [1]


def test_a_column_that_comes_twice_is_refused(tmp_path: Path, checkpoint: Path) -> None:
    stream = Stream(tmp_path / "t", checkpoint)
    stream.batch(0, rows(1))
    with pytest.raises(InvalidRequest, match="the rows have the column 'ID' twice"):
        stream.stage(rows(2), "id INT, ID INT")


def test_bytes_of_a_partition_that_are_no_text_are_refused(
    tmp_path: Path, checkpoint: Path
) -> None:
    table = pa.table({"id": pa.array([1], pa.int32()), "p": pa.array([b"\xff"], pa.binary())})
    stream = Stream(tmp_path / "t", checkpoint, partitionby="p")
    with pytest.raises(InvalidRequest, match="expected text in UTF-8, found the bytes FF"):
        stream.stage(table, "id INT, p BINARY")
    assert not list((tmp_path / "t").rglob("*.parquet"))


def test_a_table_with_rules_of_sparks_is_refused_by_name(tmp_path: Path, checkpoint: Path) -> None:
    stream = Stream(tmp_path / "t", checkpoint)
    stream.batch(0, rows(1))
    log = txlake.Log(tmp_path / "t")
    metadata = dict(log.snapshot().metadata)
    metadata["configuration"] = {"delta.constraints.positive": "id > 0"}
    protocol: dict[str, Any] = dict(log.snapshot().protocol)
    protocol["writerFeatures"] = [*protocol["writerFeatures"], "checkConstraints"]
    log.start_transaction().commit([{"metaData": metadata}, {"protocol": protocol}])
    with pytest.raises(UnsupportedFeature, match=r"rules that Spark checks .*lake\.write_stream"):
        stream.stage(rows(2), "id INT, p STRING")


def test_a_table_with_an_identity_column_is_refused_by_name(
    tmp_path: Path, checkpoint: Path
) -> None:
    with txlake.connect(str(tmp_path / "lake")) as lake:
        lake.sql(
            f"CREATE TABLE delta.`{tmp_path / 't'}` "
            "(id BIGINT GENERATED ALWAYS AS IDENTITY, p STRING)"
        )
    stream = Stream(tmp_path / "t", checkpoint)
    with pytest.raises(UnsupportedFeature, match=r"an identity column.*lake\.write_stream"):
        stream.stage(pa.table({"p": ["x"]}), "p STRING")


def test_bad_options_say_what_is_wrong(tmp_path: Path, checkpoint: Path) -> None:
    with pytest.raises(InvalidRequest, match="checkpointLocation isn't given"):
        sink_options({"path": "t"})
    with pytest.raises(InvalidRequest, match="did you mean mergeSchema"):
        sink_options({"checkpointLocation": "c", "mergeSchemas": "true"})
    with pytest.raises(
        InvalidRequest, match="a name means a table of a lake, and no lake is given"
    ):
        Stream("orders", checkpoint).stage(rows(1), "id INT, p STRING")
    (checkpoint / "metadata").unlink()
    with pytest.raises(InvalidRequest, match="expected the id of a streaming query"):
        Stream(tmp_path / "t", checkpoint).batch(0, rows(1))


def test_rows_of_two_tasks_become_one_commit(tmp_path: Path, checkpoint: Path) -> None:
    stream = Stream(tmp_path / "t", checkpoint, partitionby="p")
    made, one = stream.stage(rows(1, 2, 3, 4), "id INT, p STRING")
    two = made.write(_batches(rows(5), rows(6)))
    made.commit([one, two], 0)
    assert ids(tmp_path / "t") == [1, 2, 3, 4, 5, 6]
    snapshot = txlake.Log(tmp_path / "t").snapshot()
    assert snapshot.files().num_rows == 4
    assert snapshot.version == 1


def _batches(*tables: pa.Table) -> Iterator[pa.RecordBatch]:
    for table in tables:
        yield from table.to_batches()
