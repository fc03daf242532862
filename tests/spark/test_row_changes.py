"""DELETE and UPDATE: with deletion vectors and by copies, the same rows and the right actions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec import structs
from pyroaring import BitMap64

from tests.spark.tables import NO_VECTORS, VECTORS, PathTable, table
from txlake.errors import CorruptTable, InvalidRequest
from txlake.local import candidate_rows, choice
from txlake.log.files import files_table
from txlake.log.predicates import Comparison, Opaque, Operator
from txlake.protocol.actions import Add, Remove
from txlake.spark import dml, driver_frames
from txlake.spark.deletions import delete_positions
from txlake.spark.table_access import TableAccess
from txlake.sql.statements import NativeColumn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=3)

MODES = pytest.mark.parametrize("properties", [VECTORS, NO_VECTORS], ids=["vectors", "copies"])


@pytest.fixture(params=["here", "found by Spark", "in tasks"])
def writer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who finds and writes the few rows of a statement: this process, or Spark as for many rows."""
    if request.param == "found by Spark":
        monkeypatch.setattr(candidate_rows, "find_candidates", lambda *_, **__: None)
    if request.param == "in tasks":
        monkeypatch.setattr(choice, "ONE_TASK_BYTES", -1)
        monkeypatch.setattr(choice, "MANY_BYTES", -1)


def _table(folder: Path, spark: SparkSession, properties: Mapping[str, str]) -> PathTable:
    """Rows 0 to 9 in two files, half of them without a text."""
    t = table(folder / "t", spark, "id INT, v STRING", properties=properties)
    columns = ("CAST(id AS INT) id", "IF(id % 2 = 0, NULL, 'v' || id) v")
    t.append(spark.range(0, 5, 1, 1).selectExpr(*columns))
    t.append(spark.range(5, 10, 1, 1).selectExpr(*columns))
    return t


@pytest.fixture(scope="module", params=[VECTORS, NO_VECTORS], ids=["vectors", "copies"])
def base(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> PathTable:
    """A table that tests may try changes on, without committing them."""
    return _table(tmp_path_factory.mktemp("base"), spark, request.param)


@pytest.mark.broad(keep=3)
@pytest.mark.usefixtures("writer")
@pytest.mark.parametrize(
    ("condition", "left"),
    [
        ("id = 3", {0, 1, 2, 4, 5, 6, 7, 8, 9}),
        ("id IN (3, 7) OR v = 'v9'", {0, 1, 2, 4, 5, 6, 8}),
        ("v IS NULL", {1, 3, 5, 7, 9}),
        ("v <> 'v3'", {0, 2, 3, 4, 6, 8}),
        ("t.id < 5", {5, 6, 7, 8, 9}),
        ("id > 100", set(range(10))),
        ("true", set()),
        ("NULL", set(range(10))),
        ("length(v) = 2 AND id % 3 = 1", {0, 2, 3, 4, 5, 6, 8, 9}),
    ],
)
def test_delete(base: PathTable, condition: str, left: set[int]) -> None:
    change, rows = base.tried(f"DELETE FROM t WHERE {condition}")
    assert [row[0] for row in rows] == sorted(left)
    assert change.affected == {"num_affected_rows": 10 - len(left)}
    assert change.metrics["numDeletedRows"] == 10 - len(left)
    assert change.parameters == {"predicate": [condition]}


def _rows_of(numbers: range) -> list[tuple[int, str | None]]:
    return [(i, None if i % 2 == 0 else f"v{i}") for i in numbers]


@pytest.mark.broad(keep=3)
@pytest.mark.usefixtures("writer")
@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("UPDATE t SET v = 'new' WHERE id = 3", {3: "new"}),
        ("UPDATE t SET v = v || id WHERE id IN (1, 7)", {1: "v11", 7: "v77"}),
        (
            "UPDATE t SET v = NULL WHERE v IS NOT NULL",
            {1: None, 3: None, 5: None, 7: None, 9: None},
        ),
        ("UPDATE t SET v = 'x' WHERE v <> 'v1'", {3: "x", 5: "x", 7: "x", 9: "x"}),
        ("UPDATE t AS target SET target.v = 'x' WHERE target.id = 9", {9: "x"}),
        ("UPDATE t SET v = 'x' WHERE id > 100", {}),
        ("UPDATE t SET v = CAST(id AS STRING)", {i: str(i) for i in range(10)}),
    ],
)
def test_update(base: PathTable, sql: str, expected: dict[int, str | None]) -> None:
    change, rows = base.tried(sql)
    assert rows == sorted({**dict(_rows_of(range(10))), **expected}.items(), key=repr)
    assert change.affected == {"num_affected_rows": len(expected)}
    if not expected:
        assert change.actions == ()


def test_assignments_see_the_old_values(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "a INT, b INT, s STRUCT<x: INT, y: STRUCT<z: INT, w: INT>>")
    t.append(
        spark.sql(
            "SELECT 1 a, 2 b, named_struct('x', 3, 'y', named_struct('z', 4, 'w', 5)) s"
            " UNION ALL SELECT 7, 8, NULL"
        )
    )
    t.run("UPDATE t SET a = b, b = a, s.x = a + b, s.y.w = s.y.z")
    assert t.rows() == [(2, 1, (3, (4, 4))), (8, 7, (15, (None, None)))]
    t.run("UPDATE t SET S.Y = named_struct('w', 1, 'z', 2) WHERE A = 2")
    assert t.rows()[0] == (2, 1, (3, (2, 1)))


def test_partition_values_can_be_updated(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "id INT, p STRING", partitioned_by="p")
    t.run("INSERT INTO t VALUES (1, 'a'), (2, 'a'), (3, 'b')")
    t.run("UPDATE t SET p = 'c' WHERE id <= 2 AND p = 'a' AND id > 1")
    assert t.rows() == [(1, "a"), (2, "c"), (3, "b")]
    assert {add.partition_values["p"] for add in t.adds()} == {"a", "b", "c"}


def test_a_vector_marks_rows_and_grows(tmp_path: Path, spark: SparkSession) -> None:
    t = _table(tmp_path, spark, VECTORS)
    before = t.data_files()
    for number, (gone, live) in enumerate(((1, 4), (3, 3)), 1):
        change = t.run(f"DELETE FROM t WHERE id = {gone}")
        remove, add = change.actions
        assert isinstance(remove, Remove)
        assert isinstance(add, Add)
        assert remove.path == add.path
        assert add.deletion_vector is not None
        assert add.deletion_vector.cardinality == number
        stats = json.loads(str(add.stats))
        assert (stats["numRecords"], stats["tightBounds"]) == (5, False)
        assert len([row for row in t.rows() if row[0] < 5]) == live
        assert change.metrics["numDeletionVectorsAdded"] == 1
        assert change.metrics["numDeletionVectorsRemoved"] == number - 1
    assert t.data_files() == before
    # A file that has no row left goes away whole, without a look at its rows' places.
    change = t.run("DELETE FROM t WHERE id < 5 AND id >= 0")
    assert [type(action) for action in change.actions] == [Remove]
    assert change.metrics["numRemovedFiles"] == 1


@pytest.mark.parametrize("stats", [None, '{"nullCount":{"id":0}}'])
@pytest.mark.parametrize("absolute", [False, True])
def test_a_file_whose_rows_nobody_counted_gets_a_vector(
    tmp_path: Path, spark: SparkSession, stats: str | None, absolute: bool
) -> None:
    t = _table(tmp_path, spark, VECTORS)
    for version in (1, 2):
        commit = t.folder / "_delta_log" / f"{version:020}.json"
        lines = [json.loads(line) for line in commit.read_text().splitlines()]
        for line in lines:
            if "add" in line:
                line["add"] |= {"stats": stats}
                if absolute:
                    line["add"]["path"] = f"{t.folder.as_uri()}/{line['add']['path']}"
        commit.write_text("\n".join(map(json.dumps, lines)))
    t.log.forget()
    _, add = t.run("DELETE FROM t WHERE id = 3").actions
    assert isinstance(add, Add)
    left = {} if stats is None else json.loads(stats)
    assert json.loads(str(add.stats)) == {**left, "numRecords": 5, "tightBounds": False}
    assert [row[0] for row in t.rows()] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    change = t.run("UPDATE t SET id = id + 100 WHERE id >= 5")
    assert sum(isinstance(action, Remove) for action in change.actions) == 1
    assert change.metrics["numRemovedFiles"] == 1  # it has no row left
    assert sorted(row[0] for row in t.rows()) == [0, 1, 2, 4, 105, 106, 107, 108, 109]


def test_a_file_that_is_shorter_than_the_log_says_gets_no_vector(
    tmp_path: Path, spark: SparkSession
) -> None:
    t = _table(tmp_path, spark, VECTORS)
    (file, *_) = t.adds()
    work = t.work()
    wrong = structs.replace(file, stats=None, size=file.size - 1)
    with pytest.raises(CorruptTable, match=f"expected a Parquet file of {wrong.size} bytes"):
        delete_positions(work, files_table([wrong]), {0: BitMap64([0])})


def test_copies_keep_the_other_rows_in_one_new_file(tmp_path: Path, spark: SparkSession) -> None:
    t = _table(tmp_path, spark, NO_VECTORS)
    change = t.run("DELETE FROM t WHERE id = 1")
    assert [type(action) for action in change.actions] == [Remove, Add]
    assert change.metrics["numCopiedRows"] == 4
    assert change.metrics["numRemovedFiles"] == change.metrics["numAddedFiles"] == 1
    change = t.run("UPDATE t SET v = 'x' WHERE id = 7")
    assert change.metrics["numCopiedRows"] == 4
    assert len(t.rows()) == 9


@pytest.mark.no_interop("its data files are destroyed")
@MODES
def test_whole_partitions_go_without_reading_them(
    tmp_path: Path, spark: SparkSession, properties: Mapping[str, str]
) -> None:
    t = table(tmp_path / "t", spark, "id INT, p INT", partitioned_by="p", properties=properties)
    t.run("INSERT INTO t VALUES (1, 1), (2, 1), (3, 2)")
    t.run("DELETE FROM t WHERE id = 1")
    for file in t.data_files():
        (t.folder / file).write_bytes(b"not Parquet")
    change = t.run("DELETE FROM t WHERE p = 1")
    assert change.affected == {"num_affected_rows": 1}
    assert all(isinstance(action, Remove) for action in change.actions)
    change = t.run("DELETE FROM t")
    assert change.affected == {"num_affected_rows": 1}
    assert t.adds() == []


def test_tables_that_had_vectors_once(tmp_path: Path, spark: SparkSession) -> None:
    """Copies of a file leave out what its vector deletes."""
    t = _table(tmp_path, spark, VECTORS)
    t.run("DELETE FROM t WHERE id IN (1, 2)")
    import msgspec

    from txlake.commit.change import Change

    changed = msgspec.structs.replace(t.snapshot.metadata, configuration=dict(NO_VECTORS))
    t.commit(Change(operation="SET TBLPROPERTIES", actions=(changed,)))
    change = t.run("DELETE FROM t WHERE id = 4")
    assert change.metrics["numCopiedRows"] == 2
    assert change.metrics["numDeletionVectorsRemoved"] == 1
    assert [row[0] for row in t.rows()] == [0, 3, 5, 6, 7, 8, 9]
    assert all(add.deletion_vector is None for add in t.adds())


def test_few_rows_need_no_python_worker(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    t = table(tmp_path / "t", spark, "id INT, p INT", partitioned_by="p", properties=VECTORS)
    t.append(spark.range(0, 10, 1, 1).selectExpr("CAST(id AS INT) id", "CAST(id % 2 AS INT) p"))
    t.run("DELETE FROM t WHERE id = 4")
    with monkeypatch.context() as patch:
        patch.setattr(type(spark.range(1)), "mapInArrow", lambda *_: pytest.fail("a worker runs"))
        t.run("DELETE FROM t WHERE id = 5")
        change = t.run("UPDATE t SET id = id + 100 WHERE id >= 6 OR id = 4")
        patch.setattr(choice, "FEW_ROWS", 7)
        with pytest.raises(pytest.fail.Exception):
            t.run("UPDATE t SET id = id + 100 WHERE true")
    assert change.affected == {"num_affected_rows": 4}
    adds = [one for one in change.actions if isinstance(one, Add) and one.deletion_vector is None]
    assert sorted(add.partition_values["p"] or "" for add in adds) == ["0", "1"]
    expected = [0, 1, 2, 3, 106, 107, 108, 109]
    assert sorted(row[0] for row in t.rows()) == expected


def test_more_rows_than_this_process_writes_are_all_written_once(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    t = _table(tmp_path, spark, VECTORS)
    monkeypatch.setattr(choice, "FEW_ROWS", 3)
    monkeypatch.setattr(choice, "MANY_ROWS", 3)
    assert t.run("UPDATE t SET id = id + 10 WHERE id < 3").affected == {"num_affected_rows": 3}
    assert t.run("UPDATE t SET id = id + 20 WHERE id < 10").affected == {"num_affected_rows": 7}
    assert t.run("DELETE FROM t WHERE id > 22").affected == {"num_affected_rows": 7}
    assert sorted(row[0] for row in t.rows()) == [10, 11, 12]


def test_many_rows_are_written_here_where_this_process_computes_them(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    t = _table(tmp_path, spark, VECTORS)
    monkeypatch.setattr(choice, "FEW_ROWS", 3)
    monkeypatch.setattr(choice, "ONE_TASK_BYTES", 0)
    with monkeypatch.context() as patch:
        patch.setattr(TableAccess, "scan", lambda *_, **__: pytest.fail("Spark reads"))
        patch.setattr(driver_frames, "rows_at", lambda *_: pytest.fail("Spark gets many rows"))
        assert t.run("UPDATE t SET id = id + 20 WHERE id < 9").affected == {"num_affected_rows": 9}
        assert t.run("DELETE FROM t WHERE id > 22").affected == {"num_affected_rows": 6}
        with pytest.raises(pytest.fail.Exception):  # Spark's values
            t.run("UPDATE t SET v = upper(v) WHERE id > 8")
        monkeypatch.setattr(choice, "MANY_BYTES", 0)
        with pytest.raises(pytest.fail.Exception):
            t.run("DELETE FROM t WHERE id > 8")
    assert sorted(row[0] for row in t.rows()) == [9, 20, 21, 22]


@MODES
def test_random_conditions_are_evaluated_once(
    tmp_path: Path, spark: SparkSession, properties: Mapping[str, str]
) -> None:
    t = table(tmp_path / "t", spark, "id LONG", properties=properties)
    t.append(spark.range(0, 1000, 1, 2))
    change = t.run("DELETE FROM t WHERE rand() < 0.5")
    assert len(t.rows()) == 1000 - change.affected["num_affected_rows"]
    before = len(t.rows())
    change = t.run("UPDATE t SET id = -1 WHERE rand() < 0.5")
    rows = t.rows()
    assert len(rows) == before
    assert sum(row == (-1,) for row in rows) == change.affected["num_affected_rows"]


def test_conditions_as_columns(tmp_path: Path, spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    t = _table(tmp_path, spark, VECTORS)
    change = dml.delete(t.work(), NativeColumn(F.col("id") == 3))
    assert isinstance(change.reads[0].predicate, Opaque)
    t.commit(change)
    assert len(t.rows()) == 9


def test_what_a_change_depends_on(tmp_path: Path, spark: SparkSession) -> None:
    t = _table(tmp_path, spark, VECTORS)
    for sql in ("DELETE FROM t WHERE id = 7", "UPDATE t SET v = 'x' WHERE T.ID = 8"):
        (read,) = t.run(sql).reads
        assert isinstance(read.predicate, Comparison)
        assert (read.predicate.column, read.predicate.op) == (("id",), Operator.EQUAL)
    (read,) = t.run("UPDATE t SET v = 'y'").reads
    assert (read.predicate, read.text) == (None, None)


@pytest.mark.no_interop("its deletion vectors are destroyed")
def test_a_missing_vector_file_is_named(tmp_path: Path, spark: SparkSession) -> None:
    from txlake.errors import CorruptTable

    t = _table(tmp_path, spark, VECTORS)
    t.run("DELETE FROM t WHERE id = 1")
    (vector,) = t.folder.glob("deletion_vector_*.bin")
    data = vector.read_bytes()
    vector.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CorruptTable, match=vector.name):
        t.rows()
    vector.unlink()
    with pytest.raises(CorruptTable, match=f"{vector.name} is in the log but.* by VACUUM"):
        t.rows()


def test_ambiguous_assignments_are_refused(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "a INT, s STRUCT<x: INT>")
    t.run("INSERT INTO t (a) VALUES (1)")
    for sql in (
        "UPDATE t SET a = 1, A = 2",
        "UPDATE t SET s.x = 1, s.X = 2",
        "UPDATE t SET s.x = 1, s = NULL",
        "UPDATE t SET a.x = 1",
    ):
        with pytest.raises(InvalidRequest, match=r"assigned twice|no column|is assigned"):
            t.run(sql)
    assert t.snapshot.version == 1


def test_what_no_row_could_take_is_refused_without_rows(
    tmp_path: Path, spark: SparkSession
) -> None:
    t = table(tmp_path / "t", spark, "id INT, s STRUCT<x: INT>")
    with pytest.raises(InvalidRequest, match="'id'"):
        t.run("UPDATE t SET id = s")
    with pytest.raises(InvalidRequest, match="DATATYPE_MISMATCH"):
        t.run("DELETE FROM t WHERE id = s")
    assert t.run("DELETE FROM t WHERE id + 1 = 2").actions == ()
    t.run("INSERT INTO t VALUES (1, NULL)")
    with pytest.raises(InvalidRequest, match="'id'"):
        t.run("UPDATE t SET id = s WHERE id = 99")
    assert t.run("UPDATE t SET id = 7 WHERE id = 99").actions == ()
