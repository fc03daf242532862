"""Rows that polars and DuckDB read are written back, judged from the version that they read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

import txlake
from tests.interop import DuckDB
from tests.lake.rows import rows
from tests.peers import need
from txlake.errors import Conflict, InvalidRequest, UnsupportedFeature

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "v": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture(params=["sqlite", "store", "path"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the table `t` is known: by a catalog of one of the two kinds, or by its path alone."""
    return str(request.param)


@pytest.fixture
def lake(place: str, tmp_path: Path, spark: SparkSession) -> Iterator[txlake.Lake]:
    catalog = "warehouse" if place == "store" else None
    with txlake.connect(str(tmp_path / "lake"), catalog=catalog, spark=spark) as opened:
        yield opened


@pytest.fixture
def t(lake: txlake.Lake, place: str, tmp_path: Path) -> tuple[str, Path]:
    """The table's name, or its path, and its folder."""
    name = str(tmp_path / "t") if place == "path" else "t"
    lake.write(ROWS, name)
    folder = tmp_path / "t" if place == "path" else tmp_path / "lake" / "default" / "t"
    location = lake.table(name).detail().collect()[0].location
    return name, Path(location.removeprefix("file://")) if place != "path" else folder


def elsewhere(lake: txlake.Lake, name: str, identity: int) -> None:
    """Another session updates a row."""
    with lake.session() as other:
        other.table(name).update(f"id = {identity}", {"v": "v + 100"})


def values(lake: txlake.Lake, name: str) -> list[object]:
    return [v for _, v in rows(lake.read(name))]


@pytest.mark.broad(keep=1)
def test_polars_reads_and_txlake_writes(lake: txlake.Lake, t: tuple[str, Path]) -> None:
    name, folder = t
    table = DeltaTable(str(folder))
    version, read = table.version(), pl.read_delta(table)
    changed = read.with_columns(v=pl.col("v") * 10)
    elsewhere(lake, name, 2)
    for reads in (None, "id < 3"):
        with pytest.raises(Conflict, match="is what was read: read the table again"):
            lake.write(changed, name, mode="overwrite", read_version=version, reads=reads)
    with pytest.raises(Conflict):
        lake.write(changed.head(1), name, mode="append", read_version=version)
    assert values(lake, name) == [1, 102, 3]
    third = changed.filter(pl.col("id") == 3)
    lake.write(
        *(third, name, "overwrite"),
        replace_where="id = 3",
        read_version=version,
        reads="id = 3",
    )
    lake.table(name, read_version=version).update("id = 1", {"v": "10"})
    assert values(lake, name) == [10, 102, 30]


@pytest.mark.peer("duckdb")
def test_duckdb_reads_and_txlake_writes(lake: txlake.Lake, t: tuple[str, Path]) -> None:
    """It tells no version, which is asked for before."""
    name, folder = t
    python = Path(__file__).parents[2] / ".cache/duckdb-delta/bin/python"
    need("duckdb", found=python.exists())
    version = txlake.Log(str(folder)).snapshot().version
    with closing(DuckDB(python)) as duckdb:
        read = duckdb.rows(folder)
    assert isinstance(read, pa.Table)
    assert read.num_rows == 3
    elsewhere(lake, name, 2)
    with pytest.raises(Conflict):
        lake.write(read, name, mode="overwrite", read_version=version)
    first = read.filter(pc.equal(read["id"], 1))
    lake.write(first, name, mode="append", read_version=version, reads="id = 1")
    assert values(lake, name) == [1, 1, 102, 3]


@pytest.mark.broad
def test_the_writers_option(lake: txlake.Lake, t: tuple[str, Path], spark: SparkSession) -> None:
    name, folder = t
    version = DeltaTable(str(folder)).version()
    elsewhere(lake, name, 2)
    one = spark.createDataFrame([(1, 7)], "id BIGINT, v BIGINT")
    txlake.enable(spark, lake)
    try:
        of_version = one.write.format("txlake").mode("append").option("readVersion", version)
        for write in (of_version.save, of_version.saveAsTable, of_version.insertInto):
            if name == "t" and write != of_version.save:
                with pytest.raises(Conflict):
                    write(name)
        with pytest.raises(Conflict):
            of_version.save(str(folder))
        of_version.option("reads", "id = 1").save(str(folder))
        if name == "t":
            again = one.writeTo(name).option("readVersion", str(version))
            with pytest.raises(Conflict):
                again.append()
            again.option("reads", "id = 3").append()
            with pytest.raises(UnsupportedFeature, match="readVersion goes with append"):
                one.writeTo("u").option("readVersion", "1").create()
        with pytest.raises(InvalidRequest, match="readVersion"):
            one.write.format("txlake").mode("append").option("readVersion", -1).save(str(folder))
    finally:
        txlake.disable(spark)
    assert values(lake, name).count(7) == (2 if name == "t" else 1)
