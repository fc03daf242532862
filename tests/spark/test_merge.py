"""MERGE: which clause takes which row, whose names are meant, and what is an error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.spark.tables import NO_VECTORS, VECTORS, PathTable, table
from txlake.errors import InvalidRequest
from txlake.spark import merge_source
from txlake.spark.merge_source import SOURCE_BYTES_MAX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=3)

Rows = list[tuple[Any, ...]]
UPDATE = "WHEN MATCHED THEN UPDATE SET k = s.k, v = s.v"
DELETE = "WHEN MATCHED THEN DELETE"
INSERT = "WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, s.v)"
GONE = "WHEN NOT MATCHED BY SOURCE THEN DELETE"


@dataclass(frozen=True)
class Case:
    """Target and source are rows (k, v); `result` None: several source rows meet a target row."""

    name: str
    source: Rows
    clauses: str
    result: Rows | None
    target: tuple[tuple[Any, ...], ...] = ((1, 1), (2, 2))
    on: str = "t.k = s.k"


CASES = [
    Case("update", [(0, 0), (1, 10), (3, 30)], UPDATE, [(1, 10), (2, 2)]),
    Case("update, a target row twice", [(1, 10), (1, 11), (2, 20)], UPDATE, None),
    Case(
        "conditions on either side",
        [(0, 0), (1, 10), (2, 20), (3, 30)],
        "WHEN MATCHED AND s.v <> 20 AND t.v <> 3 THEN UPDATE SET v = s.v",
        [(1, 10), (2, 2), (3, 3)],
        target=((1, 1), (2, 2), (3, 3)),
    ),
    Case(
        "the condition leaves one of two",
        [(1, 10), (1, 11)],
        "WHEN MATCHED AND s.v = 10 THEN UPDATE SET v = s.v",
        [(1, 10), (2, 2)],
    ),
    Case("delete", [(0, 0), (1, 10), (3, 30)], DELETE, [(2, 2)]),
    Case("delete, a target row twice", [(1, 10), (1, 100), (3, 30)], DELETE, [(2, 2)]),
    Case(
        "conditional delete, a target row twice",
        [(1, 10), (1, 100)],
        "WHEN MATCHED AND s.v >= 10 THEN DELETE",
        None,
    ),
    Case(
        "update, else delete",
        [(0, 0), (1, 10), (2, 20)],
        f"WHEN MATCHED AND s.k <> 1 THEN UPDATE SET v = s.v {DELETE}",
        [(2, 20), (3, 3)],
        target=((1, 1), (2, 2), (3, 3)),
    ),
    Case(
        "the first clause that holds: update",
        [(1, 10), (2, 20), (3, 30)],
        "WHEN MATCHED AND s.k <> 1 THEN UPDATE SET v = s.v WHEN MATCHED AND s.k <> 2 THEN DELETE",
        [(2, 20), (3, 30), (4, 4)],
        target=((1, 1), (2, 2), (3, 3), (4, 4)),
    ),
    Case(
        "the first clause that holds: delete",
        [(1, 10), (2, 20), (3, 30)],
        "WHEN MATCHED AND s.k <> 2 THEN DELETE WHEN MATCHED AND s.k <> 1 THEN UPDATE SET v = s.v",
        [(2, 20), (4, 4)],
        target=((1, 1), (2, 2), (3, 3), (4, 4)),
    ),
    Case("insert", [(0, 0), (1, 10), (3, 30)], INSERT, [(0, 0), (1, 1), (2, 2), (3, 30)]),
    Case(
        "insert alone, source rows twice",
        [(1, 10), (1, 100), (3, 30), (3, 300)],
        INSERT,
        [(1, 1), (2, 2), (3, 30), (3, 300)],
    ),
    Case(
        "delete and insert, rows twice",
        [(1, 10), (1, 100), (3, 30), (3, 300)],
        f"{DELETE} {INSERT}",
        [(2, 2), (3, 30), (3, 300)],
    ),
    Case(
        "conditional inserts, the first that holds",
        [(0, 0), (3, 30), (4, 40)],
        "WHEN NOT MATCHED AND s.v < 10 THEN INSERT (k) VALUES (s.k)"
        " WHEN NOT MATCHED AND s.v < 40 THEN INSERT (k, v) VALUES (s.k, -s.v)",
        [(0, None), (1, 1), (2, 2), (3, -30)],
    ),
    Case(
        "upsert with conditions",
        [(0, 0), (1, 10), (2, 20), (3, 30), (4, 40)],
        "WHEN MATCHED AND s.k < 2 THEN UPDATE SET k = s.k, v = s.v"
        " WHEN MATCHED AND s.k < 3 THEN DELETE"
        " WHEN NOT MATCHED AND s.k > 1 THEN INSERT *",
        [(1, 10), (3, 3), (4, 40)],
        target=((1, 1), (2, 2), (3, 3)),
    ),
    Case(
        "ON speaks of one side too",
        [(-1, -10), (0, 0), (1, 10), (2, 20), (3, 30), (4, 40), (5, 50)],
        "WHEN MATCHED AND s.k < 2 THEN UPDATE SET v = s.v WHEN MATCHED AND s.k < 3 THEN DELETE"
        " WHEN NOT MATCHED AND s.k > 1 THEN INSERT *",
        [(-1, -1), (1, 10), (3, 3), (4, 40), (5, 5), (5, 50)],
        target=((-1, -1), (1, 1), (2, 2), (3, 3), (5, 5)),
        on="s.k = t.k AND t.v > 0 AND s.k < 5",
    ),
    Case("not matched by source: delete", [(1, 10), (3, 30)], GONE, [(1, 1)]),
    Case(
        "not matched by source: update, else delete",
        [(1, 10)],
        f"WHEN NOT MATCHED BY SOURCE AND t.k = 2 THEN UPDATE SET v = t.v + 100 {GONE}",
        [(1, 1), (2, 102)],
        target=((1, 1), (2, 2), (3, 3)),
    ),
    Case(
        "all kinds of clauses",
        [(1, 10), (2, 20), (4, 40)],
        f"WHEN MATCHED AND s.v = 20 THEN DELETE {UPDATE} {INSERT}"
        " WHEN NOT MATCHED BY SOURCE AND t.k = 3 THEN UPDATE SET v = -1 " + GONE,
        [(1, 10), (3, -1), (4, 40)],
        target=((1, 1), (2, 2), (3, 3), (9, 9)),
    ),
    Case(
        "not matched by source counts once for rows matched twice",
        [(1, 10), (1, 100)],
        "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = 0",
        [(1, 1), (2, 0)],
    ),
    Case(
        "nulls never match",
        [(None, 10), (1, 11)],
        f"{UPDATE} {INSERT}",
        [(1, 11), (None, 10), (None, 5)],
        target=((1, 1), (None, 5)),
    ),
    Case(
        "nulls match by <=>",
        [(None, 10), (1, 11)],
        f"{UPDATE} {INSERT}",
        [(1, 11), (None, 10)],
        target=((1, 1), (None, 5)),
        on="t.k <=> s.k",
    ),
    Case(
        "nulls not matched by source",
        [(1, 10)],
        GONE,
        [(1, 1)],
        target=((1, 1), (None, 5)),
    ),
    Case(
        "a null condition does not hold",
        [(1, None)],
        "WHEN MATCHED AND s.v > 0 THEN DELETE",
        [(1, 1), (2, 2)],
    ),
    Case("an empty source", [], f"{UPDATE} {INSERT}", [(1, 1), (2, 2)]),
    Case("an empty source and by source", [], f"{UPDATE} {GONE}", []),
    Case("an empty target", [(1, 10)], f"{UPDATE} {INSERT} {GONE}", [(1, 10)], target=()),
    Case(
        "stars",
        [(1, 10), (3, 30)],
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        [(1, 10), (2, 2), (3, 30)],
    ),
    Case(
        "one source row for many target rows",
        [(1, 10)],
        "WHEN MATCHED THEN UPDATE SET v = s.v + t.v",
        [(1, 11), (2, 12)],
        on="s.k = 1",
    ),
    Case(
        "names without a side are the target's or the source's where only that is seen",
        [(1, 10), (3, 30)],
        "WHEN MATCHED THEN UPDATE SET v = s.v"
        " WHEN NOT MATCHED AND v > 0 THEN INSERT (k, v) VALUES (k + 100, v + 1)"
        " WHEN NOT MATCHED BY SOURCE AND k = 2 AND v = 2 THEN UPDATE SET v = v + k",
        [(1, 10), (2, 4), (103, 31)],
    ),
    Case(
        "and are not computed for the other rows",
        [(0, 0), (1, 10), (5, 0)],
        "WHEN MATCHED THEN UPDATE SET v = s.v"
        " WHEN NOT MATCHED AND v <> 0 THEN INSERT (k, v) VALUES (k, 10 / v)"
        " WHEN NOT MATCHED BY SOURCE AND v <> 0 THEN UPDATE SET v = 10 / v",
        [(0, 0), (1, 10), (2, 5), (7, 0)],
        target=((0, 1), (1, 1), (2, 2), (7, 0)),
    ),
    Case(
        "a clause that never holds, beside an insert",
        [(1, 10), (5, 50)],
        f"WHEN MATCHED AND 1 = 0 THEN UPDATE SET v = s.v {INSERT}",
        [(1, 1), (2, 2), (5, 50)],
    ),
    Case(
        "clauses that never hold",
        [(1, 10), (5, 50)],
        "WHEN MATCHED AND NULL THEN DELETE WHEN NOT MATCHED AND false THEN INSERT *"
        " WHEN NOT MATCHED BY SOURCE AND 1 = 0 THEN DELETE",
        [(1, 1), (2, 2)],
    ),
    Case(
        "names without a side are the target's where its own rows alone are changed",
        [(1, 10)],
        "WHEN NOT MATCHED BY SOURCE AND k > 1 THEN UPDATE SET v = v + k",
        [(1, 1), (2, 4)],
    ),
]


# Sources that are held, and sources that take part in one job, however small they are.
@pytest.fixture(
    scope="module",
    params=[(VECTORS, SOURCE_BYTES_MAX), (NO_VECTORS, 0)],
    ids=["vectors, held", "copies, at once"],
)
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> tuple[dict[tuple[tuple[Any, ...], ...], PathTable], int]:
    """A table for each target of the cases, and how many bytes of a source are held."""
    properties, bytes_max = request.param
    folder = tmp_path_factory.mktemp("targets")
    made: dict[tuple[tuple[Any, ...], ...], PathTable] = {}
    for case in CASES:
        if case.target not in made:
            t = table(folder / str(len(made)), spark, "k INT, v INT", properties=properties)
            if case.target:
                t.append(_frame(spark, list(case.target)).repartition(1))
            made[case.target] = t
    return made, bytes_max


@pytest.fixture
def targets(
    made: tuple[dict[tuple[tuple[Any, ...], ...], PathTable], int], monkeypatch: pytest.MonkeyPatch
) -> dict[tuple[tuple[Any, ...], ...], PathTable]:
    """The tables, on which merges are tried and not committed; so much of a source is held."""
    tables, bytes_max = made
    monkeypatch.setattr(merge_source, "SOURCE_BYTES_MAX", bytes_max)
    return tables


def _frame(spark: SparkSession, rows: Rows, schema: str = "k INT, v INT") -> Any:
    return spark.createDataFrame(rows, schema)


@pytest.mark.broad(keep=4)
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_clauses(
    targets: Mapping[tuple[tuple[Any, ...], ...], PathTable], spark: SparkSession, case: Case
) -> None:
    t = targets[case.target]
    _frame(spark, case.source).createOrReplaceTempView("txlake_source")
    sql = f"MERGE INTO t USING (SELECT * FROM txlake_source) s ON {case.on} {case.clauses}"
    if case.result is None:
        message = r"2 source rows match the target row \{\"k\":1,\"v\":1\}.*Nothing was written"
        files = t.data_files()
        with pytest.raises(InvalidRequest, match=message):
            t.tried(sql)
        assert t.data_files() == files
        return
    change, rows = t.tried(sql)
    assert rows == sorted(case.result, key=repr)
    counts = change.affected
    assert counts["num_affected_rows"] == sum(
        counts[f"num_{kind}_rows"] for kind in ("updated", "deleted", "inserted")
    )
    grown = counts["num_inserted_rows"] - counts["num_deleted_rows"]
    assert len(rows) == len(case.target) + grown
    if not counts["num_affected_rows"]:
        assert change.actions == ()


def test_the_rows_of_a_local_source_are_counted(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "k INT, v INT", properties=VECTORS)
    t.append(_frame(spark, [(i, i) for i in range(6)]).repartition(1))
    source = pa.table({"k": pa.array([1, 9, 10], pa.int32()), "v": pa.array([0, 0, 0], pa.int32())})
    spark.createDataFrame(source).createOrReplaceTempView("txlake_source")
    change = t.run(
        "MERGE INTO t USING (SELECT * FROM txlake_source) s ON t.k = s.k"
        " WHEN MATCHED THEN UPDATE SET v = s.v"
    )
    assert change.metrics["numSourceRows"] == 3
    assert change.metrics["numTargetRowsUpdated"] == 1


@pytest.mark.broad(keep=1)
@pytest.mark.parametrize("properties", [VECTORS, NO_VECTORS])
def test_a_struct_that_is_null_where_the_source_has_fields_that_never_are(
    tmp_path: Path, spark: SparkSession, properties: Mapping[str, str]
) -> None:
    t = table(tmp_path / "t", spark, "k INT, s STRUCT<x: INT, y: STRING>", properties=properties)
    t.run("INSERT INTO t VALUES (1, NULL), (2, named_struct('x', 1, 'y', 'a')), (3, NULL)")
    t.run(
        "MERGE INTO t USING (SELECT 2 AS k, named_struct('x', 2, 'y', 'b') AS s) AS q ON t.k = q.k "
        "WHEN MATCHED THEN UPDATE SET s = named_struct('x', 3, 'y', 'c') "
        "WHEN NOT MATCHED BY SOURCE AND k = 3 THEN DELETE"
    )
    assert [(row[0], row[1] and tuple(row[1])) for row in t.rows()] == [(1, None), (2, (3, "c"))]


def test_metrics_and_parameters(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "k INT, v INT", properties=VECTORS)
    t.append(_frame(spark, [(i, i) for i in range(6)]).repartition(1))
    change = t.run(
        "MERGE INTO t USING (SELECT * FROM VALUES (1, 10), (2, 20), (9, 90) AS x(k, v)) s"
        " ON t.k = s.k"
        " WHEN MATCHED AND s.v = 20 THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v"
        " WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE AND t.k = 0 THEN DELETE"
        " WHEN NOT MATCHED BY SOURCE AND t.k > 4 THEN UPDATE SET v = 0"
    )
    assert t.rows() == [(1, 10), (3, 3), (4, 4), (5, 0), (9, 90)]
    wanted = {
        "numTargetRowsInserted": 1,
        "numTargetRowsUpdated": 2,
        "numTargetRowsDeleted": 2,
        "numTargetRowsMatchedUpdated": 1,
        "numTargetRowsMatchedDeleted": 1,
        "numTargetRowsNotMatchedBySourceUpdated": 1,
        "numTargetRowsNotMatchedBySourceDeleted": 1,
        "numOutputRows": 3,
        "numTargetDeletionVectorsAdded": 1,
    }
    assert {name: change.metrics[name] for name in wanted} == wanted
    assert change.parameters == {
        "predicate": ["t.k = s.k"],
        "matchedPredicates": [
            {"actionType": "delete", "predicate": "s.v = 20"},
            {"actionType": "update"},
        ],
        "notMatchedPredicates": [{"actionType": "insert"}],
        "notMatchedBySourcePredicates": [
            {"actionType": "delete", "predicate": "t.k = 0"},
            {"actionType": "update", "predicate": "t.k > 4"},
        ],
    }


def test_rows_that_are_copied_are_output_too(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "k INT, v INT", properties=NO_VECTORS)
    t.append(_frame(spark, [(i, i) for i in range(6)]).repartition(1))
    change = t.run(
        "MERGE INTO t USING (SELECT 1 AS k) s ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = 7"
    )
    assert change.metrics["numTargetRowsCopied"] == 5
    assert change.metrics["numOutputRows"] == 6


def test_what_a_merge_depends_on(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_source, "SOURCE_BYTES_MAX", 0)  # whose keys would say more
    t = table(tmp_path / "t", spark, "k INT, v INT, p STRING", partitioned_by="p")
    t.run("INSERT INTO t VALUES (1, 1, 'a'), (2, 2, 'b')")
    source = "MERGE INTO t USING (SELECT 1 k, 'a' q) s"
    (read,) = t.run(f"{source} ON t.k = s.k AND t.p = 'a' WHEN MATCHED THEN DELETE").reads
    assert "'a'" in repr(read.predicate)
    assert "q" not in repr(read.predicate)
    for on, clause in (
        ("t.k = s.k", "WHEN MATCHED THEN DELETE"),
        ("t.k = s.k AND q = 'a'", "WHEN MATCHED THEN DELETE"),
        ("t.p = 'a' AND t.k = s.k", "WHEN NOT MATCHED BY SOURCE THEN DELETE"),
    ):
        (read,) = t.run(f"{source} ON {on} {clause}").reads
        assert read.predicate is None
        assert read.text == on
    on, clause = "t.p = 'a' AND t.k = s.k", "WHEN NOT MATCHED BY SOURCE AND t.p = 'z' THEN DELETE"
    (read,) = t.run(f"{source} ON {on} {clause}").reads
    assert re.findall(r"(\w+)\(|value=('\w')", repr(read.predicate)) == [
        ("Or", ""), ("Comparison", ""), ("", "'a'"), ("Comparison", ""), ("", "'z'"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("clauses", "message"),
    [
        ("WHEN MATCHED THEN UPDATE SET v = v", "ambiguous"),
        ("WHEN MATCHED THEN UPDATE SET q = 1", "there is no column 'q'"),
        ("WHEN MATCHED THEN UPDATE SET s.v = 1", "there is no column 's.v'"),
        ("WHEN MATCHED THEN UPDATE SET k = 1, K = 2", "assigned twice"),
        ("WHEN NOT MATCHED THEN INSERT (k, v) VALUES (1, t.v)", "t`.`v`"),
        ("WHEN NOT MATCHED THEN INSERT (q) VALUES (1)", "there is no column 'q'"),
        ("WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = s.v", "s`.`v`"),
        ("WHEN MATCHED THEN UPDATE SET v = max(s.v)", "for that row: it can't be"),
        (
            "WHEN MATCHED THEN DELETE WHEN MATCHED THEN UPDATE SET v = 1",
            "only the last WHEN MATCHED",
        ),
        ("WHEN MATCHED AND x.y = 1 THEN DELETE", "x`.`y`"),
    ],
)
def test_clauses_that_make_no_sense(
    tmp_path: Path, spark: SparkSession, clauses: str, message: str
) -> None:
    t = table(tmp_path / "t", spark, "k INT, v INT")
    t.run("INSERT INTO t VALUES (1, 1)")
    with pytest.raises(InvalidRequest, match=re.escape(message)):
        t.run(f"MERGE INTO t USING (SELECT 1 k, 5 v) s ON t.k = s.k {clauses}")
    assert len(t.data_files()) == 1


def test_conditions_by_chance_are_refused_in_on(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "k INT, v INT")
    t.run("INSERT INTO t VALUES (1, 1)")
    with pytest.raises(InvalidRequest, match=r"(?i)non.?deterministic"):
        t.run(
            "MERGE INTO t USING (SELECT 1 k) s ON t.k = s.k AND rand() > 0.5"
            " WHEN MATCHED THEN DELETE"
        )


def test_stars_go_by_name(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "k INT, name STRING, s STRUCT<a: INT, b: STRING>")
    t.append(spark.sql("SELECT 1 k, 'old' name, named_struct('a', 1, 'b', 'x') s"))
    t.run(
        "MERGE INTO t USING (SELECT named_struct('B', 'y', 'A', 2L) S, 'new' NAME, K, 9 extra"
        " FROM VALUES (1), (2) AS v(K)) src ON t.k = src.k"
        " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert t.rows() == [(1, "new", (2, "y")), (2, "new", (2, "y"))]
    with pytest.raises(InvalidRequest, match="the source has no column 's', which `\\*` needs"):
        t.run(
            "MERGE INTO t USING (SELECT 1 k, 'x' name) src ON t.k = src.k"
            " WHEN MATCHED THEN UPDATE SET *"
        )


def test_the_alias_of_the_table_comes_before_a_struct_of_that_name(
    tmp_path: Path, spark: SparkSession
) -> None:
    t = table(tmp_path / "t", spark, "a INT, t STRUCT<a: INT>")
    t.append(spark.sql("SELECT 1 a, named_struct('a', 2) t"))
    merge = "MERGE INTO t AS t USING (SELECT 3 a, named_struct('a', 5) t) s ON 1 = 1 WHEN MATCHED"
    assert t.tried(f"{merge} THEN UPDATE SET t.a = s.a")[1] == [(3, (2,))]
    assert t.tried(f"{merge} THEN UPDATE SET t.t.a = s.t.a")[1] == [(1, (5,))]


def test_partitions_and_generated_columns(tmp_path: Path, spark: SparkSession) -> None:
    t = table(
        tmp_path / "t",
        spark,
        "k INT, v INT, g INT GENERATED ALWAYS AS (v * 2), p INT GENERATED ALWAYS AS (k % 2)",
        partitioned_by="p",
    )
    t.run("INSERT INTO t (k, v) VALUES (1, 1), (2, 2)")
    t.run(
        "MERGE INTO t USING (SELECT * FROM VALUES (1, 10), (4, 40), (5, 50) AS x(k, v)) s"
        " ON t.k = s.k"
        " WHEN MATCHED THEN UPDATE SET v = s.v"
        " WHEN NOT MATCHED AND s.k = 4 THEN INSERT (k, v, g) VALUES (s.k, s.v, 80)"
        " WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, s.v)"
    )
    assert t.rows() == [(1, 10, 20, 1), (2, 2, 4, 0), (4, 40, 80, 0), (5, 50, 100, 1)]
    with pytest.raises(InvalidRequest, match="generated column 'g'"):
        t.run(
            "MERGE INTO t USING (SELECT 1 k) s ON t.k = s.k"
            " WHEN MATCHED AND s.k = 1 THEN UPDATE SET g = 1 WHEN MATCHED THEN UPDATE SET v = 2"
        )


def test_a_merge_with_itself(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "k INT, v INT")
    t.run("INSERT INTO t VALUES (1, 1), (2, 2)")
    t.frame().createOrReplaceTempView("txlake_self")
    t.run(
        "MERGE INTO t USING (SELECT * FROM txlake_self) s ON t.k = s.k + 1"
        " WHEN MATCHED THEN UPDATE SET v = s.v + 100 WHEN NOT MATCHED THEN INSERT *"
    )
    assert t.rows() == [(1, 1), (2, 101), (2, 2)]
