"""Rows that break a rule of the table: the error names row and rule, and nothing stays written."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.spark.tables import NO_VECTORS, VECTORS, PathTable, table
from txlake.commit.data_plane import Placement
from txlake.errors import InvalidRequest
from txlake.spark import inserts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=3)

# Columns, a statement that fails, what the message says.
VIOLATIONS: list[tuple[str, str, str]] = [
    (
        "id INT NOT NULL, v INT",
        "INSERT INTO t SELECT * FROM VALUES (1, 1), (NULL, 7) AS x(id, v)",
        "NOT NULL of column 'id' is violated by the row {\"v\":7}",
    ),
    (
        "id INT NOT NULL, v INT",
        "INSERT INTO t (v) SELECT 7",
        "NOT NULL of column 'id' is violated: it has no default, and no value is given",
    ),
    (
        "s STRUCT<a: INT NOT NULL, b: INT>",
        "INSERT INTO t SELECT named_struct('a', CAST(NULL AS INT), 'b', 2)",
        "NOT NULL of column 's.a' is violated",
    ),
    (
        "id INT, v INT, CONSTRAINT positive CHECK (v > 0)",
        "INSERT INTO t SELECT 1, 0",
        'CHECK constraint positive (v > 0) is violated by the row {"id":1,"v":0}',
    ),
    (
        "id INT, v INT, CONSTRAINT positive CHECK (v > 0)",
        "INSERT INTO t VALUES (5, -1)",
        'CHECK constraint positive (v > 0) is violated by the row {"id":5,"v":-1}',
    ),
    (
        "id INT, v INT, CONSTRAINT positive CHECK (v > 0)",
        "INSERT INTO t VALUES (5, NULL)",
        "CHECK constraint positive (v > 0) is violated",
    ),
    (
        "s STRUCT<a: INT>, CONSTRAINT inner CHECK (s.a > 0)",
        "INSERT INTO t SELECT named_struct('a', -1)",
        'CHECK constraint inner (s.a > 0) is violated by the row {"s":{"a":-1}}',
    ),
    (
        "id INT, g INT GENERATED ALWAYS AS (id * 2)",
        "INSERT INTO t (id, g) SELECT 1, 3",
        "generated column 'g' = id * 2 is violated",
    ),
    (
        "c CHAR(2), v VARCHAR(3)",
        "INSERT INTO t SELECT 'abc', 'x'",
        "length 2 of column 'c' is violated",
    ),
    (
        "c CHAR(2), v VARCHAR(3)",
        "INSERT INTO t VALUES ('ab', 'wxyz')",
        "length 3 of column 'v' is violated",
    ),
]


@pytest.mark.parametrize(("columns", "sql", "message"), VIOLATIONS)
def test_violations(
    tmp_path: Path, spark: SparkSession, columns: str, sql: str, message: str
) -> None:
    t = table(tmp_path / "t", spark, columns)
    with pytest.raises(InvalidRequest, match=f"^t: .*{re.escape(message)}"):
        t.run(sql)
    assert t.data_files() == set()
    assert t.snapshot.version == 0


@pytest.mark.parametrize("properties", [VECTORS, NO_VECTORS], ids=["vectors", "copies"])
@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE t SET v = v - 5 WHERE id = 2",
        "MERGE INTO t USING (SELECT 2 id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = -3",
        (
            "MERGE INTO t USING (SELECT 9 id) s ON t.id = s.id"
            " WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, -3)"
        ),
        (
            "MERGE INTO t USING (SELECT 1 id) s ON t.id = s.id"
            " WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = -3"
        ),
    ],
)
def test_changed_rows_are_checked(
    tmp_path: Path, spark: SparkSession, sql: str, properties: dict[str, str]
) -> None:
    columns = "id INT, v INT, CONSTRAINT positive CHECK (v > 0)"
    t = table(tmp_path / "t", spark, columns, properties=properties)
    t.run("INSERT INTO t VALUES (1, 1), (2, 2)")
    files = t.data_files()
    with pytest.raises(InvalidRequest, match=r"CHECK constraint positive.*\"v\":-3"):
        t.run(sql)
    assert t.data_files() == files
    assert t.snapshot.version == 1
    # Rows that go away are nobody's business.
    t.run("DELETE FROM t WHERE id = 1")
    assert t.rows() == [(2, 2)]


def test_invariants_of_old_tables(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "v INT")
    _with_metadata(t, {"delta.invariants": json.dumps({"expression": {"expression": "v > 3"}})})
    with pytest.raises(InvalidRequest, match=r"invariant 'v > 3' of column 'v' is violated"):
        t.run("INSERT INTO t VALUES (3)")
    t.run("INSERT INTO t VALUES (4)")
    assert t.rows() == [(4,)]


def _with_metadata(t: PathTable, metadata: dict[str, str]) -> None:
    """Put metadata on the first column, as an older writer would have."""
    import msgspec

    from txlake.commit.change import Change

    snapshot = t.snapshot
    schema = json.loads(str(snapshot.metadata.schema_string))
    schema["fields"][0]["metadata"].update(metadata)
    changed = msgspec.structs.replace(snapshot.metadata, schema_string=json.dumps(schema))
    t.commit(Change(operation="SET", actions=(changed,)))


def test_defaults_and_generated_values(tmp_path: Path, spark: SparkSession) -> None:
    t = table(
        tmp_path / "t",
        spark,
        "id INT, d INT DEFAULT 7, u STRING DEFAULT upper('x'),"
        " g INT GENERATED ALWAYS AS (d * 2), p INT GENERATED ALWAYS AS (id % 3)",
        partitioned_by="p",
        properties={"delta.feature.allowColumnDefaults": "supported"},
    )
    t.run("INSERT INTO t (id) VALUES (1)")
    t.run("INSERT INTO t (id, d, u) VALUES (2, DEFAULT, DEFAULT), (3, NULL, 'y')")
    t.run("INSERT INTO t (id, d) SELECT 4, 1")
    t.run("INSERT INTO t (id, g) VALUES (5, 14)")
    t.append(spark.sql("SELECT 6 id, 3 d, 6 g"))
    t.run("UPDATE t SET d = DEFAULT WHERE id = 4")
    t.run(
        "MERGE INTO t USING (SELECT 9 id, 2 d) s ON t.id = s.id"
        " WHEN NOT MATCHED THEN INSERT (id, d) VALUES (s.id, DEFAULT)"
    )
    assert t.rows() == [
        (1, 7, "X", 14, 1),
        (2, 7, "X", 14, 2),
        (3, None, "y", None, 0),
        (4, 7, "X", 14, 1),
        (5, 7, "X", 14, 2),
        (6, 3, "X", 6, 0),
        (9, 7, "X", 14, 0),
    ]


def test_generated_columns_follow_updates(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "id INT, g INT GENERATED ALWAYS AS (id * 2)")
    t.run("INSERT INTO t (id) VALUES (1), (2)")
    t.run("UPDATE t SET id = id + 10 WHERE id = 1")
    t.run(
        "MERGE INTO t USING (SELECT 2 id) s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET id = 20 WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
    )
    assert t.rows() == [(11, 22), (20, 40)]
    with pytest.raises(InvalidRequest, match=r"generated column 'g'"):
        t.run("UPDATE t SET g = 5")


def test_rows_of_the_driver_are_checked_too(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "id INT NOT NULL, v INT")
    rows = pa.table({"id": pa.array([1, None], pa.int32()), "v": pa.array([1, 2], pa.int32())})
    with pytest.raises(InvalidRequest, match=r"NOT NULL of column 'id' is violated by row 2 of 2"):
        inserts.append(t.without_spark().work(), rows, Placement())
    assert t.data_files() == set()


def test_one_bad_row_among_many_tasks_leaves_nothing(tmp_path: Path, spark: SparkSession) -> None:
    t = table(
        tmp_path / "t", spark, "id INT, p INT, CONSTRAINT c CHECK (id <> 63)", partitioned_by="p"
    )
    frame = spark.range(0, 64, 1, 8).selectExpr("CAST(id AS INT) id", "CAST(id % 3 AS INT) p")
    with pytest.raises(InvalidRequest, match=r'CHECK constraint c .*"id":63,"p":0'):
        t.append(frame)
    assert t.data_files() == set()


def test_a_null_struct_whose_fields_are_not_null(tmp_path: Path, spark: SparkSession) -> None:
    """Arrow takes no null for a struct with such a field; the rule is the table's to check."""
    t = table(tmp_path / "t", spark, "id INT, s STRUCT<a: INT NOT NULL, b: INT>")
    t.run("INSERT INTO t VALUES (1, NULL), (2, named_struct('a', 1, 'b', NULL))")
    t.run("UPDATE t SET id = id + 10")
    t.run("UPDATE t SET id = 3 WHERE id = 11")
    with pytest.raises(InvalidRequest, match=r"NOT NULL of column 's\.a' is violated"):
        t.run("UPDATE t SET s.a = NULL WHERE id = 12")
    assert t.rows() == [(12, (1, None)), (3, None)]  # by their text
