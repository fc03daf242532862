from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.session.tables import environment, metadata_of, schema
from tests.zones import BERLIN
from txlake.commands.convert import convert_folder
from txlake.commit.change import Change
from txlake.errors import InvalidRequest
from txlake.protocol.actions import Add
from txlake.protocol.types import parse_schema
from txlake.sql.statements import ConvertToDelta
from txlake.storage import open_store


def write(folder: Path, name: str, table: pa.Table, **options: object) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)


def converted(folder: Path, *partitions: tuple[str, str], statistics: bool = True) -> Change:
    statement = ConvertToDelta(
        location=str(folder), partition_columns=partitions, statistics=statistics
    )
    return convert_folder(statement, open_store(folder), environment(), time_zone=BERLIN)


def adds_of(change: Change) -> dict[str, Add]:
    return {action.path: action for action in change.actions if isinstance(action, Add)}


def test_a_folder_becomes_a_table(tmp_path: Path) -> None:
    write(tmp_path, "a b.parquet", pa.table({"i": [1, 2, None], "t": ["x", None, "y"]}))
    write(tmp_path, "sub/c.parquet", pa.table({"t": ["z"], "n": [1.5], "s": [{"f": 2.5, "i": 1}]}))
    write(tmp_path, "_hidden/d.parquet", pa.table({"z": [1]}))
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".part.crc").touch()
    change = converted(tmp_path)
    assert change.operation == "CONVERT"
    assert change.parameters == {
        "numFiles": 2,
        "partitionedBy": "[]",
        "collectStats": True,
        "sourceFormat": "parquet",
    }
    assert change.metrics == {"numConvertedFiles": 2}
    assert parse_schema(metadata_of(change).schema_string) == schema(
        "i long, t string, n double, s struct<f: double, i: long>"
    )
    adds = adds_of(change)
    assert set(adds) == {"a%20b.parquet", "sub/c.parquet"}
    first = adds["a%20b.parquet"]
    assert first.size == (tmp_path / "a b.parquet").stat().st_size
    stats = json.loads(first.stats or "")
    assert stats["numRecords"] == 3
    assert stats["minValues"] == {"i": 1, "t": "x"}
    assert stats["maxValues"] == {"i": 2, "t": "y"}
    assert stats["nullCount"] == {"i": 1, "t": 1}
    second = json.loads(adds["sub/c.parquet"].stats or "")
    assert second["minValues"] == {"t": "z", "s": {"i": 1}}, "a float's bounds may hide a NaN"
    assert second["nullCount"] == {"t": 0, "n": 0, "s": {"f": 0, "i": 0}}


def test_without_statistics(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", pa.table({"i": [1]}))
    (add,) = adds_of(converted(tmp_path, statistics=False)).values()
    assert add.stats is None


def test_partitions_come_from_folders(tmp_path: Path) -> None:
    write(tmp_path, "Day=2020-01-02/n=01/a.parquet", pa.table({"i": [1]}))
    write(
        tmp_path,
        "Day=__HIVE_DEFAULT_PARTITION__/n=2/ts=2020-06-01 12%3A00%3A00/b.parquet",
        pa.table({"i": [1]}),
    )
    with pytest.raises(InvalidRequest, match=r"PARTITIONED BY \(day, n, ts\) doesn't fit Day="):
        converted(tmp_path, ("day", "date"), ("n", "int"), ("ts", "timestamp"))
    (tmp_path / "Day=2020-01-02/n=01/a.parquet").rename(tmp_path / "a.parquet")
    with pytest.raises(InvalidRequest, match=r"a.parquet, whose folders say \(\)"):
        converted(tmp_path, ("day", "date"), ("n", "int"), ("ts", "timestamp"))
    (tmp_path / "a.parquet").unlink()
    change = converted(tmp_path, ("day", "date"), ("n", "int"), ("ts", "timestamp"))
    metadata = metadata_of(change)
    assert metadata.partition_columns == ("day", "n", "ts")
    assert parse_schema(metadata.schema_string) == schema("i long, day date, n int, ts timestamp")
    ((path, add),) = adds_of(change).items()
    assert path.endswith("ts=2020-06-01%2012%253A00%253A00/b.parquet")
    assert add.partition_values == {"day": None, "n": "2", "ts": "2020-06-01T10:00:00.000000Z"}


def test_a_partition_column_that_files_hold_too_keeps_its_place(tmp_path: Path) -> None:
    write(tmp_path, "p=1/a.parquet", pa.table({"p": ["1"], "i": [5]}))
    change = converted(tmp_path, ("P", "int"))
    assert parse_schema(metadata_of(change).schema_string) == schema("p int, i long")
    (add,) = adds_of(change).values()
    assert json.loads(add.stats or "")["minValues"] == {"i": 5}


def test_types_of_other_writers(tmp_path: Path) -> None:
    moment = datetime.datetime(2020, 1, 2, 3, 4, 5, 678_900, tzinfo=datetime.UTC)
    naive = moment.replace(tzinfo=None)
    table = pa.table(
        {
            "d": pa.array([datetime.date(2020, 1, 2)]),
            "dec": pa.array([Decimal("-1.25")], pa.decimal128(10, 2)),
            "big": pa.array([Decimal("1.25")], pa.decimal128(38, 2)),
            "instant": pa.array([moment], pa.timestamp("us", "UTC")),
            "s": pa.array([{"x": 1, "l": [1, 2]}]),
            "m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())),
            "b": pa.array([b"\x00"]),
            "flag": pa.array([True]),
        }
    )
    write(tmp_path, "a.parquet", table)
    change = converted(tmp_path)
    assert parse_schema(metadata_of(change).schema_string) == schema(
        "d date, dec decimal(10,2), big decimal(38,2), instant timestamp,"
        " s struct<x: long, l: array<long>>, m map<string, int>, b binary, flag boolean"
    )
    (add,) = adds_of(change).values()
    stats = json.loads(add.stats or "", parse_float=Decimal)
    assert stats["minValues"] == {
        "d": "2020-01-02",
        "dec": Decimal("-1.25"),
        "big": Decimal("1.25"),
        "instant": "2020-01-02T03:04:05.678900Z",
        "s": {"x": 1},
    }
    old = pa.table({"instant": pa.array([naive], pa.timestamp("ns"))})
    folder = tmp_path / "int96"
    write(folder, "a.parquet", old, use_deprecated_int96_timestamps=True)
    found = converted(folder)
    assert parse_schema(metadata_of(found).schema_string) == schema("instant timestamp")
    folder = tmp_path / "ntz"
    write(folder, "a.parquet", pa.table({"wall": pa.array([naive], pa.timestamp("us"))}))
    found = converted(folder)
    assert parse_schema(metadata_of(found).schema_string) == schema("wall timestamp_ntz")


def test_spark_names_types_that_parquet_does_not(tmp_path: Path) -> None:
    spark = {
        "type": "struct",
        "fields": [
            {"name": "i", "type": "byte", "nullable": False, "metadata": {"comment": "small"}}
        ],
    }
    table = pa.table({"i": pa.array([1], pa.int8())}).replace_schema_metadata(
        {"org.apache.spark.sql.parquet.row.metadata": json.dumps(spark)}
    )
    write(tmp_path, "a.parquet", table)
    assert parse_schema(metadata_of(converted(tmp_path)).schema_string) == schema(
        "i byte COMMENT 'small'"
    )


def test_what_cannot_be_converted(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no Parquet files"):
        converted(tmp_path)
    write(tmp_path, "a.parquet", pa.table({"i": pa.array([1], pa.int64())}))
    write(tmp_path, "b.parquet", pa.table({"i": ["x"]}))
    with pytest.raises(InvalidRequest, match=r"b.parquet: column i has .*, in other files bigint"):
        converted(tmp_path)
    write(tmp_path, "b.parquet", pa.table({"i": pa.array([1], pa.int32())}))
    with pytest.raises(InvalidRequest, match=r"b.parquet: column i has type int, in other"):
        converted(tmp_path)
    write(tmp_path, "b.parquet", pa.table({"odd name": [1]}))
    with pytest.raises(InvalidRequest, match="contains ' '"):
        converted(tmp_path)
    (tmp_path / "b.parquet").write_text("no Parquet")
    with pytest.raises(InvalidRequest, match=r"b.parquet can't be converted, it isn't a Parquet"):
        converted(tmp_path)
    (tmp_path / "b.parquet").unlink()
    (tmp_path / "a.parquet").rename(tmp_path / "i.parquet")
    write(tmp_path, "p=x/a.parquet", pa.table({"i": [1]}))
    (tmp_path / "i.parquet").unlink()
    with pytest.raises(InvalidRequest, match="the folder says p=x, which is no int"):
        converted(tmp_path, ("p", "int"))
