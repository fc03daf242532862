"""Compaction of tables whose files differ in age, place and writer."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from tests.spark.tables import VECTORS, PathTable, table
from txlake.commit.change import Change
from txlake.errors import CorruptTable
from txlake.local import compaction
from txlake.protocol.actions import Add
from txlake.protocol.deletion_vectors import inline
from txlake.protocol.sources import SOURCES_TAG
from txlake.settings import Settings
from txlake.spark import compact

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=3)


@pytest.fixture(autouse=True, params=["driver", "spark"])
def packer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to pack files do the same."""
    if request.param == "spark":
        monkeypatch.setattr(compaction, "ONE_TASK_BYTES", 0)


OLD_SPARK = {"org.apache.spark.version": "2.4.8"}


def _put(
    t: PathTable,
    path: str,
    rows: pa.Table,
    *,
    place: Path | None = None,
    deleted: list[int] | None = None,
    partition: Mapping[str, str | None] | None = None,
) -> Add:
    """Add a file to the table as another writer might: with the statistics it must have."""
    place = place or t.folder / path
    pq.write_table(rows, place)
    add = Add(
        path=path,
        partition_values=dict(partition or {}),
        size=place.stat().st_size,
        modification_time=0,
        data_change=True,
        stats=None if deleted is None else json.dumps({"numRecords": rows.num_rows}),
        deletion_vector=None if deleted is None else inline(BitMap64(deleted)),
    )
    t.commit(Change(operation="WRITE", actions=(add,)))
    return add


def _told(add: Add) -> list[list[Any]]:
    told: list[list[Any]] = json.loads(str((add.tags or {})[SOURCES_TAG]))
    return told


def _days(*days: date, legacy: bool = False) -> pa.Table:
    rows = pa.table({"d": pa.array(days, pa.date32())})
    return rows.replace_schema_metadata(OLD_SPARK) if legacy else rows


@pytest.mark.no_interop("delta-rs knows no other calendar")
def test_files_that_cannot_be_copied_exactly_stay(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    t = table(tmp_path / "t", spark, "d DATE", properties=VECTORS)
    old = _put(t, "old", _days(date(1500, 1, 1), date(1501, 1, 1), legacy=True), deleted=[0])
    _put(t, "one", _days(date(2001, 1, 1)))
    before = t.rows()
    with caplog.at_level(logging.WARNING, "txlake.local.compaction"):
        assert t.compact().actions == ()  # one file alone wins nothing
    assert "old stays as it is: it holds times before 1900" in caplog.text
    assert {add.path for add in t.adds()} == {"old", "one"}
    assert t.data_files() == set()  # nothing was left behind
    _put(t, "two", _days(date(2002, 1, 1), legacy=True))
    t.compact()
    assert t.rows() == sorted([*before, (date(2002, 1, 1),)], key=repr)
    kept, output = sorted(t.adds(), key=lambda add: add.path)
    assert kept.key == old.key
    assert sorted(_told(output)) == [["one", None, 0, 1], ["two", None, 0, 1]]
    assert t.compact(purge=True).actions == ()


def test_counts_are_those_of_the_files(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "n LONG", properties=VECTORS)
    first = _put(t, "a", pa.table({"n": [1, 2, 3]}), deleted=[0, 7])  # no row 7 is there
    gone = _put(t, "b", pa.table({"n": [4, 5]}), deleted=[0, 1])
    _put(t, "c", pa.table({"n": pa.array([], pa.int64())}))
    change = t.compact()
    (output,) = t.adds()
    assert sorted(_told(output)) == sorted(
        [["a", first.key[1], 0, 2], ["b", gone.key[1], 0, 0], ["c", None, 0, 0]]
    )
    assert json.loads(str(output.stats))["numRecords"] == 2
    assert change.metrics["numDeletionVectorsRemoved"] == 2
    assert t.rows() == [(2,), (3,)]


def test_files_without_live_rows_leave_nothing(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "n LONG", properties=VECTORS)
    _put(t, "a", pa.table({"n": [1]}), deleted=[0])
    _put(t, "b", pa.table({"n": [2, 3]}), deleted=[0, 1])
    change = t.compact()
    assert (change.metrics["numRemovedFiles"], change.metrics["numAddedFiles"]) == (2, 0)
    assert t.adds() == []
    assert t.rows() == []


def test_partition_values_stay_as_the_log_has_them(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "n LONG, p INT, q STRING", partitioned_by="p, q")
    (t.folder / "any").mkdir()
    for number, (p, q) in enumerate((("01", "a/b c%"), ("01", "a/b c%"), (None, None), ("", None))):
        rows = pa.table({"n": [number], "p": [99]})  # what a file says of them doesn't count
        _put(t, f"any/{number}", rows, partition={"p": p, "q": q})
    before = t.rows()
    t.compact()
    assert sorted((add.partition_values for add in t.adds()), key=repr) == [
        {"p": "01", "q": "a/b c%"},
        {"p": None, "q": None},
    ]
    assert t.rows() == before
    assert [row[1:] for row in before] == [(1, "a/b c%"), (1, "a/b c%"), (None, None), (None, None)]


def test_files_and_vectors_of_other_tables(tmp_path: Path, spark: SparkSession) -> None:
    """As shallow clones have them; by executors, and by vectors that travel."""
    other = table(tmp_path / "other table", spark, "n LONG", properties=VECTORS)
    other.append(spark.range(0, 10, 1, 1).selectExpr("id n"))
    other.run("DELETE FROM t WHERE n % 3 = 0")
    (add,) = other.adds()
    vector = add.deletion_vector
    assert vector is not None
    for name, budget in (("shipped", 1_000_000), ("read", 0)):
        settings = Settings(broadcast_vector_bytes_max=budget, allow_outside_paths=("*",))
        t = table(tmp_path / name, spark, "n LONG", properties=VECTORS, settings=settings)
        place = (other.folder / add.path).as_uri()
        bitmap = next(other.folder.glob("*.bin"))
        foreign = Add(
            path=place,
            partition_values={},
            size=add.size,
            modification_time=0,
            data_change=True,
            stats=add.stats,
            deletion_vector=type(vector)(
                storage_type="p",
                path_or_inline_dv=bitmap.as_uri(),
                offset=vector.offset,
                size_in_bytes=vector.size_in_bytes,
                cardinality=vector.cardinality,
            ),
        )
        t.commit(Change(operation="CLONE", actions=(foreign,)))
        _put(t, "inline", pa.table({"n": [100, 101, 102]}), deleted=[0, 2])
        before = t.rows()
        t.compact()
        (output,) = t.adds()
        assert not output.path.startswith("file:")
        assert t.rows() == before == sorted([(n,) for n in (1, 2, 4, 5, 7, 8, 101)], key=repr)


def test_damaged_and_missing_files_are_named(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "n LONG")
    _put(t, "a", pa.table({"n": [1]}))
    _put(t, "b", pa.table({"n": [2]}))
    (t.folder / "b").write_bytes(b"nothing")
    with pytest.raises(CorruptTable, match=r"t: data file file:\S+/b can't be read"):
        t.compact()
    (t.folder / "b").unlink()
    with pytest.raises(CorruptTable, match=r"t: a file of the table is gone: .*/b"):
        t.compact()
    assert t.data_files() == set()


@pytest.mark.parametrize("packer", ["spark"], indirect=True)
@pytest.mark.parametrize("tasks", [2, 64])
def test_many_bins_become_as_many_files(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tasks: int
) -> None:
    monkeypatch.setattr(compact, "_TASKS_MIN", tasks)
    t = table(tmp_path / "t", spark, "n LONG, p LONG", partitioned_by="p")
    for _ in range(2):
        rows = spark.range(0, 90, 1, 1).selectExpr("id n", "id % 9 p")
        t.append(rows)
    before = t.rows()
    t.compact()
    assert len(t.adds()) == 9
    attempts = {add.path.split(".")[0].rsplit("-", 1)[1] for add in t.adds()}
    assert len(attempts) == min(tasks, 9)
    assert all(len(_told(add)) == 2 for add in t.adds())
    assert t.rows() == before
