"""Values that a partition changes ('' is NULL, zero has no sign): seen changed by every check."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from tests.spark.tables import PathTable, table
from txlake.commit.data_plane import Placement
from txlake.datafiles.partition_texts import partition_values
from txlake.datafiles.stage_task import StagedColumn, StageTask
from txlake.datafiles.write_task import Layout, WriteTask
from txlake.errors import InvalidRequest
from txlake.protocol.partition_values import format_value, parse_value
from txlake.protocol.types import Field, Primitive, to_arrow_type
from txlake.spark.writing import partition_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=10)

NOON = datetime.datetime(2026, 1, 31, 12, 0, 0, 250, datetime.UTC)
VALUES: dict[str, Sequence[Any]] = {
    "string": ["", " ", "a", "A", "a\0b", "__HIVE_DEFAULT_PARTITION__", "%00", "é", None],
    "binary": [b"", b" ", b"a\0", None],
    "double": [-0.0, 0.0, math.nan, math.inf, -math.inf, 5e-324, 1e23, None],
    "float": [-0.0, 0.0, math.nan, math.inf, 1.401298464324817e-45, None],
    "byte": [-128, 0, None],
    "short": [-(2**15), 0, None],
    "integer": [-(2**31), 0, None],
    "long": [-(2**63), 0, None],
    "boolean": [True, False, None],
    "decimal(4,2)": [Decimal("-0.10"), Decimal("0.00"), None],
    "date": [datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None],
    "timestamp": [NOON, None],
    "timestamp_ntz": [NOON.replace(tzinfo=None), None],
}


def same(one: object, other: object) -> bool:
    """Whether two values are one, NaN and the sign of zero told apart."""
    return repr(one) == repr(other) if isinstance(one, float) else one == other


def array(name: str) -> pa.Array:
    return pa.array(VALUES[name], to_arrow_type(Primitive(name)))


@pytest.mark.parametrize("name", VALUES)
def test_arrow_holds_what_the_log_gives_back(name: str) -> None:
    item = Field("p", Primitive(name))
    held = partition_values(array(name), item).to_pylist()
    back = [parse_value(format_value(one, item.type), item.type) for one in array(name).to_pylist()]
    assert len(held) == len(back)
    assert all(map(same, held, back)), (held, back)


@pytest.mark.broad(keep=3)
@pytest.mark.parametrize("name", VALUES)
def test_spark_holds_what_is_read_back(tmp_path: Path, spark: SparkSession, name: str) -> None:
    """Both ways of writing: by Spark's tasks, and by the driver."""
    t = table(tmp_path / "t", spark, f"p {_sql(name)}, n INT", partitioned_by="p")
    rows = pa.table({"p": array(name), "n": pa.array(range(len(VALUES[name])), pa.int32())})
    frame = spark.createDataFrame(rows)
    item = Field("p", Primitive(name))
    found = frame.select("n", partition_value(F.col("p"), item)).collect()
    expected: dict[int, Any] = {row[0]: row[1] for row in found}
    t.append(frame)
    assert _read(t) == {n: repr(value) for n, value in expected.items()}
    t.commit(t.work().overwrite(rows, Placement(by_name=True)))
    assert _read(t) == {n: repr(value) for n, value in expected.items()}


def _sql(name: str) -> str:
    return {"integer": "INT", "long": "BIGINT", "short": "SMALLINT", "byte": "TINYINT"}.get(
        name, name
    )


def _read(t: PathTable) -> dict[int, str]:
    return {n: repr(value) for value, n in t.frame().collect()}


# Ways to give p a value, with v = 9; the table has ('a', 1).
WAYS = {
    "values": "INSERT INTO t VALUES ({p}, 9)",
    "a query": "INSERT INTO t SELECT {p}, 9",
    "a query by name": "INSERT INTO t BY NAME SELECT 9 AS v, {p} AS p",
    "overwrite": "INSERT OVERWRITE t SELECT {p}, 9",
    "update": "UPDATE t SET p = {p}, v = 9 WHERE v = 1",
    "update of one by itself": "UPDATE t SET p = substring(p, 1, 0), v = 9 WHERE v = 1",
    "merge inserts": "MERGE INTO t USING (SELECT {p} AS p, 9 AS v) s ON t.v = s.v "
    "WHEN NOT MATCHED THEN INSERT *",
    "merge updates": "MERGE INTO t USING (SELECT {p} AS p, 1 AS k) s ON t.v = s.k "
    "WHEN MATCHED THEN UPDATE SET p = s.p, v = 9",
    "merge updates the rest": "MERGE INTO t USING (SELECT 5 AS k) s ON t.v = s.k "
    "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET p = {p}, v = 9",
}
RULES = {
    "CHECK": ("", ", CONSTRAINT filled CHECK (p IS NOT NULL)", "CHECK constraint filled"),
    "NOT NULL": (" NOT NULL", "", "NOT NULL of column 'p' is violated"),
}


@pytest.mark.broad(keep=5)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("way", WAYS)
def test_an_empty_text_is_null_to_checks(
    tmp_path: Path, spark: SparkSession, way: str, rule: str
) -> None:
    column, constraint, said = RULES[rule]
    t = table(tmp_path / "t", spark, f"p STRING{column}, v INT{constraint}", partitioned_by="p")
    t.run("INSERT INTO t VALUES ('a', 1)")
    files = t.data_files()
    with pytest.raises(InvalidRequest, match=said):
        t.run(WAYS[way].format(p="''"))
    assert t.data_files() == files
    assert t.rows() == [("a", 1)]


@pytest.mark.broad(keep=2)
@pytest.mark.parametrize(
    ("kind", "value", "condition"),
    [
        ("STRING", "''", "p = ''"),
        ("STRING", "''", "p <=> ''"),
        ("BINARY", "X''", "p = X''"),
        ("DOUBLE", "-0.0D", "CAST(p AS STRING) = '-0.0'"),
    ],
)
def test_rows_that_do_not_match_once_they_are_written(
    tmp_path: Path, spark: SparkSession, kind: str, value: str, condition: str
) -> None:
    """Written again and again they would add up: what they replace isn't what they are."""
    t = table(tmp_path / "t", spark, f"p {kind}, v INT", partitioned_by="p")
    for source in (f"VALUES ({value}, 1)", f"SELECT {value}, 1"):
        with pytest.raises(InvalidRequest, match="DELTA_REPLACE_WHERE_MISMATCH"):
            t.run(f"INSERT INTO t REPLACE WHERE {condition} {source}")
    assert t.data_files() == set()


def test_an_empty_text_replaces_the_null_partition(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "p STRING, v INT", partitioned_by="p")
    for _ in range(2):
        t.run("INSERT INTO t REPLACE WHERE p IS NULL VALUES ('', 1), (NULL, 2)")
    assert t.rows() == [(None, 1), (None, 2)]


@pytest.mark.broad(keep=3)
@pytest.mark.parametrize("way", [way for way in WAYS if way != "overwrite"])
def test_generated_columns_are_of_what_is_written(
    tmp_path: Path, spark: SparkSession, way: str
) -> None:
    """PROTOCOL.md, "Generated Columns": the value is that of the expression, row by row."""
    columns = "p STRING, v INT, g INT GENERATED ALWAYS AS (coalesce(length(p), -1))"
    t = table(tmp_path / "t", spark, columns, partitioned_by="p")
    t.run("INSERT INTO t (p, v) VALUES ('a', 1)")
    statement = WAYS[way].format(p="''").replace("INTO t VALUES", "INTO t (p, v) VALUES")
    t.run(statement.replace("INTO t SELECT", "INTO t (p, v) SELECT"))
    assert (None, 9, -1) in t.rows()


def test_a_generated_column_given_as_of_before(tmp_path: Path, spark: SparkSession) -> None:
    columns = "p STRING, v INT, g INT GENERATED ALWAYS AS (coalesce(length(p), -1))"
    t = table(tmp_path / "t", spark, columns, partitioned_by="p")
    with pytest.raises(InvalidRequest, match="generated column 'g'"):
        t.run("INSERT INTO t (p, v, g) VALUES ('', 1, 0)")
    t.run("INSERT INTO t (p, v, g) VALUES ('', 1, -1)")
    assert t.rows() == [(None, 1, -1)]


def test_zero_without_a_sign(tmp_path: Path, spark: SparkSession) -> None:
    columns = "p DOUBLE, v INT, g STRING GENERATED ALWAYS AS (CAST(p AS STRING))"
    t = table(tmp_path / "t", spark, columns, partitioned_by="p")
    t.run("INSERT INTO t (p, v) VALUES (-0.0D, 1)")
    assert [(repr(p), g) for p, _, g in t.rows()] == [("0.0", "0.0")]


def test_rows_of_the_driver(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "p STRING NOT NULL, v INT", partitioned_by="p")
    rows = pa.table({"p": ["a", ""], "v": pa.array([1, 2], pa.int32())})
    with pytest.raises(InvalidRequest, match=r"NOT NULL of column 'p' is violated by row 2 of 2"):
        t.without_spark().commit(t.without_spark().work().append(rows, Placement(by_name=True)))
    assert t.data_files() == set()


def test_rows_that_tasks_stage() -> None:
    item = Field("p", Primitive("string"), nullable=False)
    write = WriteTask(
        schema=pa.schema([("v", pa.int32())]).serialize().to_pybytes(),
        layout=Layout(data=1, partition=(1,)),
        root="memory://nowhere",
        job_id="job",
        folder_of=lambda values: "",
    )
    columns = (
        StagedColumn(name="v", source=1, nullable=True),
        StagedColumn(name="p", source=0, nullable=False, partition=item),
    )
    schema = pa.schema([("v", pa.int32()), ("p", pa.string())])
    task = StageTask(
        table="t", columns=columns, schema=schema.serialize().to_pybytes(), write=write
    )
    rows = pa.RecordBatch.from_pydict({"p": [""], "v": pa.array([1], pa.int32())})
    with pytest.raises(InvalidRequest, match="NOT NULL of column 'p' is violated by 1 rows"):
        task(iter([rows]), "part")
