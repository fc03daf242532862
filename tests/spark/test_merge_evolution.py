"""MERGE WITH SCHEMA EVOLUTION: which columns and fields the table gains, and what they hold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.tables import table
from txlake.errors import InvalidRequest
from txlake.protocol.types import Array, Field, Primitive, Struct

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STARS = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
STRUCT = "k INT, x STRUCT<a: INT, b: INT, c: INT>"
TARGET_ROWS = "SELECT k, CAST(v AS INT) v FROM VALUES (0, 0), (1, 10), (3, 30) AS s(k, v)"
EXTRA = "SELECT * FROM VALUES (1, 1, 'e1'), (2, 2, 'e2') AS s(k, v, extra)"
ONE_STRUCT = "SELECT 1 k, named_struct('a', 1, 'b', 2, 'c', 3) x"


@dataclass(frozen=True)
class Case:
    """`without`: the message without schema evolution; None where that works and gives `plain`."""

    name: str
    clauses: str
    expected: list[tuple[Any, ...]]
    without: str | None = None
    plain: list[tuple[Any, ...]] | None = None
    source: str = EXTRA
    columns: str = "k INT, v INT"
    rows: str = TARGET_ROWS


CASES = [
    Case(
        "insert *",
        "WHEN NOT MATCHED THEN INSERT *",
        [(0, 0, None), (1, 10, None), (2, 2, "e2"), (3, 30, None)],
        plain=[(0, 0), (1, 10), (2, 2), (3, 30)],
    ),
    Case(
        "update *",
        "WHEN MATCHED THEN UPDATE SET *",
        [(0, 0, None), (1, 1, "e1"), (3, 30, None)],
        plain=[(0, 0), (1, 1), (3, 30)],
    ),
    Case(
        "update names the new column",
        "WHEN MATCHED THEN UPDATE SET extra = s.extra",
        [(0, 0, None), (1, 10, "e1"), (3, 30, None)],
        without="there is no column 'extra'",
    ),
    Case(
        "insert names the new column, by another's value",
        "WHEN NOT MATCHED THEN INSERT (k, extra) VALUES (s.k, CAST(s.v AS STRING))",
        [(0, 0, None), (1, 10, None), (2, None, "2"), (3, 30, None)],
        without="there is no column 'extra'",
    ),
    Case(
        "one clause adds it, another does not fill it",
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, s.v)",
        [(0, 0, None), (1, 1, "e1"), (2, 2, None), (3, 30, None)],
        plain=[(0, 0), (1, 1), (2, 2), (3, 30)],
    ),
    Case(
        "a new column in a condition is not added",
        "WHEN MATCHED AND s.extra = 'e1' THEN DELETE",
        [(0, 0), (3, 30)],
        plain=[(0, 0), (3, 30)],
    ),
    Case(
        "an old column from a new one",
        "WHEN MATCHED THEN UPDATE SET v = length(s.extra)",
        [(0, 0), (1, 2), (3, 30)],
        plain=[(0, 0), (1, 2), (3, 30)],
    ),
    Case(
        "rows of the target alone",
        "WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE AND t.k > 0 THEN UPDATE"
        " SET v = v + 1",
        [(0, 0, None), (1, 10, None), (2, 2, "e2"), (3, 31, None)],
        plain=[(0, 0), (1, 10), (2, 2), (3, 31)],
    ),
    Case(
        "the source lacks a column",
        STARS,
        [(0, 0), (1, 10), (2, None), (3, 30)],
        without="the source has no column 'v'",
        source="SELECT * FROM VALUES (1), (2) AS s(k)",
    ),
    Case(
        "fields are added at the end and found by name",
        STARS,
        [(1, (10, 20, 3, 30)), (2, (20, 30, None, 40))],
        without="can't be stored",
        source="SELECT k, named_struct('a', a, 'b', b, 'd', d) x"
        " FROM VALUES (1, 10, 20, 30), (2, 20, 30, 40) AS s(k, a, b, d)",
        columns=STRUCT,
        rows=ONE_STRUCT,
    ),
    Case(
        "fields that the source lacks stay in update *, and are null in insert *",
        STARS,
        [(1, (0, 2, 0)), (2, (0, None, 0))],
        without="lacks b",
        source="SELECT k, named_struct('a', 0, 'c', 0) x FROM VALUES (1), (2) AS s(k)",
        columns=STRUCT,
        rows=ONE_STRUCT,
    ),
    Case(
        "a whole struct assigned loses the fields that the value lacks",
        "WHEN MATCHED THEN UPDATE SET x = s.x",
        [(1, (0, None, 0))],
        without="lacks b",
        source="SELECT 1 k, named_struct('a', 0, 'c', 0) x",
        columns=STRUCT,
        rows=ONE_STRUCT,
    ),
    Case(
        "a null struct is null, where the target's has no more fields",
        STARS,
        [(1, None)],
        plain=[(1, None)],
        source="SELECT 1 k, CAST(NULL AS STRUCT<c: INT, b: INT, a: INT>) x",
        columns=STRUCT,
        rows=ONE_STRUCT,
    ),
    Case(
        "a null struct keeps the target's other fields",
        STARS,
        [(1, (None, 2, 3))],
        without="lacks b",
        source="SELECT 1 k, CAST(NULL AS STRUCT<a: INT>) x",
        columns=STRUCT,
        rows=ONE_STRUCT,
    ),
    Case(
        "only the field that is named is added",
        "WHEN MATCHED THEN UPDATE SET x.e = s.x.e",
        [(1, (1, 2, 3, 9))],
        without="there is no column 'x.e'",
        source="SELECT 1 k, named_struct('a', 0, 'e', 9, 'f', 8) x",
        columns=STRUCT,
        rows=ONE_STRUCT,
    ),
    Case(
        "a field that is not named is not added",
        "WHEN MATCHED THEN UPDATE SET x.a = s.x.a",
        [(1, (0, 2, 3))],
        plain=[(1, (0, 2, 3))],
        source="SELECT 1 k, named_struct('a', 0, 'e', 9, 'f', 8) x",
        columns=STRUCT,
        rows=ONE_STRUCT,
    ),
    Case(
        "structs in lists",
        STARS,
        [(1, [(2, None, 3)]), (2, [(2, None, 3)])],
        without="can't be stored",
        source="SELECT k, array(named_struct('z', 3, 'x', 2)) l FROM VALUES (1), (2) AS s(k)",
        columns="k INT, l ARRAY<STRUCT<x: INT, y: INT>>",
        rows="SELECT 1 k, array(named_struct('x', 1, 'y', 1)) l",
    ),
    Case(
        "names with dots",
        STARS,
        [(1, "new", 5)],
        plain=[(1, "new")],
        source="SELECT 1 k, 'new' `a.b`, 5 `c.d`",
        columns="k INT, `a.b` STRING",
        rows="SELECT 1 k, 'old' `a.b`",
    ),
]


@pytest.mark.broad(keep=2)
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_evolution(tmp_path: Path, spark: SparkSession, case: Case) -> None:
    t = table(tmp_path / "t", spark, case.columns)
    t.append(spark.sql(case.rows))
    sql = f"INTO t USING ({case.source}) s ON t.k = s.k {case.clauses}"
    if case.without is not None:
        with pytest.raises(InvalidRequest, match=case.without):
            t.tried(f"MERGE {sql}")
    else:
        _, rows = t.tried(f"MERGE {sql}")
        assert [tuple(row) for row in rows] == sorted(case.plain or [], key=repr)
    t.run(f"MERGE WITH SCHEMA EVOLUTION {sql}")
    assert t.rows() == sorted(case.expected, key=repr)


def test_new_columns_are_nullable_and_the_rest_stays(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "k INT NOT NULL, l ARRAY<STRUCT<x: INT>>")
    t.run("INSERT INTO t (k) VALUES (1)")
    t.run(
        "MERGE WITH SCHEMA EVOLUTION INTO t USING (SELECT 1L k, 5 w,"
        f" array(named_struct('x', 1, 'y', 2)) l) s ON t.k = s.k {STARS}"
    )
    assert t.snapshot.schema.fields[0] == Field("k", Primitive("integer"), False)
    assert t.snapshot.schema.fields[2] == Field("w", Primitive("integer"))
    element = Struct((Field("x", Primitive("integer")), Field("y", Primitive("integer"))))
    assert t.snapshot.schema.fields[1].type == Array(element)
    assert t.rows() == [(1, [(1, 2)], 5)]


def test_types_are_widened_where_the_table_allows_it(tmp_path: Path, spark: SparkSession) -> None:
    widening = {"delta.enableTypeWidening": "true"}
    t = table(tmp_path / "t", spark, "k INT, v SHORT, s STRUCT<a: SHORT>", properties=widening)
    t.append(spark.sql("SELECT 1 k, 1S v, named_struct('a', 1S) s"))
    t.run(
        "MERGE WITH SCHEMA EVOLUTION INTO t USING (SELECT 2 k, 100000 v,"
        f" named_struct('a', 5000000000L) s) s ON t.k = s.k {STARS}"
    )
    assert [item.type for item in t.snapshot.schema][:2] == [Primitive("integer")] * 2
    assert t.rows() == [(1, 1, (1,)), (2, 100000, (5000000000,))]
    t.run("UPDATE t SET v = v + 1 WHERE v = 1")
    assert t.rows()[0] == (1, 2, (1,))


def test_columns_named_by_mapping_get_ids(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "k INT", properties={"delta.columnMapping.mode": "name"})
    t.run("INSERT INTO t VALUES (1)")
    t.run(
        f"MERGE WITH SCHEMA EVOLUTION INTO t USING (SELECT 2 k, 5 `new one`) s ON t.k = s.k {STARS}"
    )
    new = t.snapshot.schema.fields[1]
    assert new.column_id is not None
    assert new.physical_name != "new one"
    assert t.rows() == [(1, None), (2, 5)]


def test_source_only_updates_do_not_evolve(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "k INT")
    t.run("INSERT INTO t VALUES (1)")
    with pytest.raises(InvalidRequest, match="there is no column 'extra'"):
        t.run(
            "MERGE WITH SCHEMA EVOLUTION INTO t USING (SELECT 2 k, 5 extra) s ON t.k = s.k"
            " WHEN NOT MATCHED BY SOURCE THEN UPDATE SET extra = 1"
        )
