"""MERGE: which sources this process holds, and which of the target's files their keys leave."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyroaring import BitMap64
from pyspark.sql import functions as F

from tests.spark.tables import VECTORS, PathTable, table
from txlake.commit.change import Change
from txlake.errors import InvalidRequest
from txlake.local.caller_rows import schema_of
from txlake.local.merge_keys import LocalSource, key_predicate
from txlake.log.predicates import Always
from txlake.spark import merge_source
from txlake.spark.merge_source import CollectedSource, collect_source
from txlake.sql import parse
from txlake.sql.statements import MatchedUpdate, Merge, NativeColumn, NativeFrame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.broad(keep=3)

UPSERT = (
    "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, s.v)"
)


def merge_of(sql: str) -> Merge:
    (statement,) = parse(sql)
    assert isinstance(statement, Merge)
    return statement


def of_frame(frame: DataFrame, on: str, clauses: str = UPSERT) -> Merge:
    """A MERGE as DeltaTable gives it: a frame whose alias, if it has one, is its own affair."""
    sql = f"MERGE INTO t USING (SELECT 1) s ON {on} {clauses}"
    return replace(merge_of(sql), source=NativeFrame(frame), source_alias=None)


def held(t: PathTable, statement: Merge) -> LocalSource | None:
    return collect_source(t.work(), statement, t._rows(statement.source))


@pytest.fixture
def t(tmp_path: Path, spark: SparkSession) -> PathTable:
    """Rows k = v = 0 to 19."""
    made = table(tmp_path / "t", spark, "k INT, v INT", properties=VECTORS)
    made.append(spark.sql("SELECT CAST(id AS INT) k, CAST(id AS INT) v FROM range(0, 20, 1, 1)"))
    return made


def test_a_nondeterministic_source_is_read_once(t: PathTable) -> None:
    sql = (
        "MERGE INTO t USING (SELECT CAST(rand() * 40 AS INT) k, 7 v FROM range(400)) s"
        " ON t.k = s.k WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (k, v) VALUES (k, v)"
    )
    change = t.run(sql)
    inserted = [k for k, v in t.rows() if v == 7 and k >= 20]
    assert len(inserted) == change.affected["num_inserted_rows"] > 0
    kept = [k for k, _ in t.rows() if k < 20]
    assert len(kept) == 20 - change.affected["num_deleted_rows"]


def test_a_source_that_changes_meanwhile_is_seen_once(
    t: PathTable, spark: SparkSession, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"
    path = str(calls)
    noted = F.udf(lambda number: open(path, "a").write("x") * number, "int")  # noqa: SIM115
    source = spark.range(0, 3, 1, 1).select(
        noted(F.col("id").cast("int") * 10).alias("k"), F.lit(7).alias("v")
    )
    t.commit(t.change_of(of_frame(source.alias("s"), "t.k = s.k")))
    assert calls.read_text() == "xxx"
    # The last was there before.
    assert [row for row in t.rows() if row[1] == 7] == [(0, 7), (10, 7), (20, 7), (7, 7)]


def test_rows_that_violate_a_constraint_leave_no_file(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "k INT, v INT, CONSTRAINT small CHECK (k < 10)")
    t.run("INSERT INTO t VALUES (1, 1)")
    before = t.data_files()
    with pytest.raises(InvalidRequest, match=r"small .*\"k\":11.*nothing was written"):
        t.run(f"MERGE INTO t USING (SELECT explode(array(1, 11)) k, 5 v) s ON t.k = s.k {UPSERT}")
    assert t.data_files() == before


def test_inserts_alone(t: PathTable, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = (
        "MERGE INTO t USING (SELECT * FROM VALUES (1, 0), (20, 0), (20, 1), (NULL, 2) AS x(k, v)) s"
        " ON {on} WHEN NOT MATCHED AND s.v < 2 THEN INSERT *"
    )
    for bytes_max in (merge_source.SOURCE_BYTES_MAX, 0):
        monkeypatch.setattr(merge_source, "SOURCE_BYTES_MAX", bytes_max)
        change, rows = t.tried(sql.format(on="t.k = s.k"))
        assert [row for row in rows if row[0] != row[1]] == [(20, 0), (20, 1)]
        assert change.affected["num_inserted_rows"] == change.metrics["numOutputRows"] == 2
        assert t.tried(sql.format(on="t.k >= s.k"))[0].affected["num_inserted_rows"] == 2
        assert t.tried(sql.format(on="true"))[0].actions == ()


def test_frames_keep_their_names(t: PathTable, spark: SparkSession) -> None:
    source = spark.sql("SELECT explode(array(1, 30)) k, 5 v")
    wanted = [(1, 5), (30, 5)]

    def result(statement: Merge) -> list[Any]:
        change = t.change_of(statement)
        after = t.snapshot.apply(change.actions)
        frame = replace(t.work(), snapshot=after).scan(after.select(None))
        return sorted(map(tuple, frame.where("k <> v").collect()))

    named = of_frame(source.alias("s"), "t.k = s.k")
    found = held(t, named)
    assert found is not None
    assert found.alias == "s"
    assert result(named) == wanted
    source.createOrReplaceTempView("names")
    view = of_frame(spark.table("names"), "t.k = names.k", UPSERT.replace("s.", "names."))
    assert result(view) == wanted
    spark.catalog.dropTempView("names")
    # Columns of the frame itself, which no other frame has.
    update, insert = named.clauses
    assert isinstance(update, MatchedUpdate)
    assert isinstance(update.assignments, tuple)
    (one,) = update.assignments
    bound = replace(one, value=NativeColumn(source["v"]))
    own = replace(named, clauses=(replace(update, assignments=(bound,)), insert))
    assert result(replace(own, source=NativeFrame(source), on=NativeColumn(F.expr("t.k") ==
                  source["k"]), clauses=own.clauses[:1])) == wanted[:1]  # fmt: skip


def test_which_sources_are_collected(
    t: PathTable, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one(select: str, clauses: str = "WHEN MATCHED THEN DELETE") -> bool:
        sql = f"MERGE INTO t USING ({select}) s ON t.k = s.k {clauses}"
        return held(t, merge_of(sql)) is not None

    joined = "SELECT a.id k FROM range(1000) a JOIN range(1000) b ON a.id = b.id + 990"
    nested = "SELECT 1 k, array(named_struct('a', 1D)) a, map('x', DATE'2020-01-01') m"
    assert one("SELECT 1 k")
    assert one(nested)
    assert not one("SELECT 1 k, parse_json('1') j")
    assert not one("SELECT 1 k, 2 v, 3 K")
    monkeypatch.setattr(merge_source, "SOURCE_BYTES_MAX", 1000)
    assert one(joined)  # which Spark takes for a million rows
    assert one("SELECT id k FROM range(125)")
    assert not one("SELECT id k FROM range(126)")
    assert not one("SELECT 1 k, repeat('x', 5000) v")


def test_a_null_beside_structs_of_literals_is_collected(
    tmp_path: Path, spark: SparkSession
) -> None:
    kinds = "k INT, s STRUCT<x: INT>, l ARRAY<STRUCT<x: INT>>, m MAP<STRING, STRUCT<x: INT>>"
    t = table(tmp_path / "t", spark, kinds)
    one = "named_struct('x', 1)"
    t.run(
        f"MERGE INTO t USING (SELECT 1 k, {one} s, array({one}) l, map('a', {one}) m UNION ALL "
        "SELECT 2, NULL, array(NULL), map('b', NULL)) s ON t.k = s.k WHEN NOT MATCHED THEN INSERT *"
    )
    assert t.rows() == [(1, (1,), [(1,)], {"a": (1,)}), (2, None, [None], {"b": None})]


def test_the_time_is_one_to_a_statement(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "k INT, at TIMESTAMP", properties=VECTORS)
    t.run("INSERT INTO t VALUES (1, TIMESTAMP'2020-01-01 00:00:00Z')")
    sql = "MERGE INTO t USING (SELECT explode(array(1, 2)) k) s ON t.k = s.k"
    update = "WHEN MATCHED THEN UPDATE SET at = now()"
    insert = "WHEN NOT MATCHED THEN INSERT (k, at) VALUES (s.k, current_timestamp())"
    assert held(t, merge_of(f"{sql} {update}")) is not None
    assert held(t, merge_of(f"{sql} {insert}")) is not None
    assert held(t, merge_of(f"{sql} {update} {insert}")) is None
    t.run(f"{sql} {update} {insert}")
    (_, first), (_, second) = t.rows()
    assert first == second


def test_row_numbers_of_the_remaining_rows(spark: SparkSession) -> None:
    rows = pa.table({"k": ["a", None, "c"]})
    frame = spark.createDataFrame(rows)
    source = CollectedSource(rows, schema_of(rows), None, frame.schema)
    left = source.frame(spark, without=BitMap64([1]))
    assert [tuple(row) for row in left.collect()] == [("a", 0), ("c", 2)]


# Keys

_DAY = dt.date(2020, 1, 1)
_DAYS = [_DAY, dt.date(2021, 1, 1), dt.date(2022, 1, 1)]
_TIMES = [
    dt.datetime(2020, 1, 1, 12, 0, 0, 1, dt.UTC),
    dt.datetime(2021, 1, 1, tzinfo=dt.UTC),
    dt.datetime(2022, 1, 1, tzinfo=dt.UTC),
]
_DECIMALS = [Decimal("1.10"), Decimal(5), Decimal(9)]
_LONG = "x" * 40
# A column, its values in three files, keys of the source as SQL, and the files that are left.
KEYS: list[tuple[str, str, list[Any], str, list[int]]] = [
    ("few", "INT", [1, 5, 9], "array(1, 9)", [0, 2]),
    ("none", "INT", [1, 5, 9], "array(CAST(NULL AS INT))", []),
    ("in no file", "INT", [1, 5, 9], "array(2, 8, 100)", []),
    ("wider", "INT", [1, 5, 9], "array(5L, 5000000000L)", [1]),
    ("narrower", "LONG", [1, 5, 9], "array(5S)", [1]),
    ("many", "LONG", [1, 500, 2000], "sequence(0L, 400L) || sequence(1900L, 2300L)", [0, 2]),
    (
        "of all sizes",
        "LONG",
        [-(2**63), 5, 2**63 - 1],
        "sequence(10L, 500L) || array(-9223372036854775808L, 9223372036854775807L)",
        [0, 2],
    ),
    ("texts", "STRING", ["a", "m", "z"], "array('m', 'mm')", [1]),
    (
        "many texts",
        "STRING",
        ["a", "m5", "z"],
        "transform(sequence(0, 200), x -> 'm' || x)",
        [1],
    ),
    ("cut texts", "STRING", [_LONG + "a", "y", "z"], f"array('{_LONG}a')", [0]),
    ("dates", "DATE", _DAYS, f"array(DATE'{_DAY}')", [0]),
    (
        "many dates",
        "DATE",
        _DAYS,
        f"sequence(DATE'{_DAY}', DATE'2020-12-01')",
        [0],
    ),
    (
        "decimals",
        "DECIMAL(9, 2)",
        _DECIMALS,
        "array(CAST(1.1 AS DECIMAL(9, 2)))",
        [0],
    ),
    (
        "timestamps",
        "TIMESTAMP",
        _TIMES,
        "array(TIMESTAMP'2020-01-01 13:00:00.000001+01:00')",
        [0],
    ),
    (
        "many timestamps",
        "TIMESTAMP",
        _TIMES,
        "sequence(TIMESTAMP'2020-12-01', TIMESTAMP'2021-03-01', INTERVAL 1 HOUR)",
        [1],
    ),
    (
        "local times",
        "TIMESTAMP_NTZ",
        [time.replace(tzinfo=None) for time in _TIMES],
        "array(TIMESTAMP_NTZ'2021-01-01 00:00:00')",
        [1],
    ),
    # What may compare otherwise than it seems keeps every file.
    (
        "two kinds of times",
        "TIMESTAMP",
        _TIMES,
        "array(TIMESTAMP_NTZ'2021-01-01 00:00:00')",
        [0, 1, 2],
    ),
    ("another scale", "DECIMAL(9, 2)", _DECIMALS, "array(1.0BD)", [0, 1, 2]),
    ("doubles", "DOUBLE", [1.0, 5.0, 9.0], "array(1D)", [0, 1, 2]),
    ("text and number", "STRING", ["1", "5", "9"], "array(1)", [0, 1, 2]),
    ("collated", "STRING", ["a", "m", "z"], "array('M' COLLATE UTF8_LCASE)", [0, 1, 2]),
]  # fmt: skip


def _three_files(tmp_path: Path, spark: SparkSession, kind: str, values: list[Any]) -> PathTable:
    t = table(tmp_path / "t", spark, f"k {kind}, v INT", properties=VECTORS)
    for value in values:
        t.append(spark.createDataFrame([(value, 0)], t.frame().schema).coalesce(1))
    return t


def _left(t: PathTable, sql: str) -> list[int]:
    """Which of the three files the keys leave, by the order in which they came."""
    statement = merge_of(sql)
    source = held(t, statement)
    assert source is not None
    kept = t.snapshot.select(key_predicate(t.work(), statement, source))
    order = [add.path for change in t.changes for add in change.actions]  # type: ignore[union-attr]
    return sorted(order.index(path) for path in kept.column("path").to_pylist())


@pytest.mark.broad(keep=2)
@pytest.mark.parametrize(
    ("kind", "values", "keys", "left"), [row[1:] for row in KEYS], ids=[row[0] for row in KEYS]
)
def test_keys(
    tmp_path: Path, spark: SparkSession, kind: str, values: list[Any], keys: str, left: list[int]
) -> None:
    t = _three_files(tmp_path, spark, kind, values)
    sql = f"MERGE INTO t USING (SELECT explode({keys}) q) s ON t.k = s.q WHEN MATCHED THEN DELETE"
    assert _left(t, sql) == left


def test_conditions_whose_keys_count(tmp_path: Path, spark: SparkSession) -> None:
    t = _three_files(tmp_path, spark, "INT", [1, 5, 9])
    sql = "MERGE INTO t USING (SELECT explode(array(1, NULL)) q, 0 v, named_struct('k', 9) r) s ON "
    delete = " WHEN MATCHED THEN DELETE"
    every = [0, 1, 2]
    for on, left in (
        ("t.k = s.q", [0]),
        ("s.q = t.k AND t.v >= 0", [0]),
        ("q = `k`", [0]),
        ("t.v = s.v AND k = q", [0]),
        ("t.k <=> s.q", every),
        ("t.k = s.q OR t.v = 1", every),
        ("NOT t.k = s.q", every),
        ("t.k = s.q + 8", every),
        ("CAST(t.k AS LONG) = s.q", every),
        ("t.k = s.r.k", every),
        ("t.k >= s.q", every),
        ("t.k > s.q", [1, 2]),
        ("t.k <= s.q", [0]),
        ("t.k < s.q", []),
        ("s.q < t.k", [1, 2]),
        ("s.q >= t.k AND t.v = s.v", [0]),
        ("t.k BETWEEN s.q AND s.q", [0]),
        ("t.k NOT BETWEEN s.q AND s.q", every),
        ("s.q BETWEEN t.v AND t.k", every),
        ("t.k <> s.q", every),
        ("t.k = t.v", every),
        ("true", every),
    ):
        assert _left(t, sql + on + delete) == left, on
    gone = " WHEN NOT MATCHED BY SOURCE THEN DELETE"
    # The keys are those of rows that match; the clause's rows are read beside them.
    assert _left(t, f"{sql} t.k = s.q {gone}") == [0]
    assert t.tried(f"{sql} t.k = s.q {gone}")[1] == [(1, 0)]
    same = sql.replace("(array(1, NULL)) q", "(array(1, NULL)) s")
    assert _left(t, f"{same} t.k = s.s {delete}") == [0]  # the alias comes first


@pytest.mark.parametrize("column", ["INT", "ARRAY<INT>", "STRUCT<k: INT>", "MAP<STRING, INT>"])
def test_an_alias_that_a_column_has_as_its_name(
    tmp_path: Path, spark: SparkSession, column: str
) -> None:
    """Spark looks for `alias.column` before it looks for the field of a column."""
    t = table(tmp_path / "t", spark, f"k INT, t {column}, s {column}, v INT", properties=VECTORS)
    value = {
        "INT": "0",
        "ARRAY<INT>": "array(0)",
        "STRUCT<k: INT>": "struct(9 - id)",
        "MAP<STRING, INT>": "map('k', 0)",
    }[column]
    rows = f"SELECT CAST(id AS INT), CAST({value} AS {column}), CAST({value} AS {column}), 0"
    for start in (1, 5, 9):
        t.append(spark.sql(f"{rows} FROM range({start}, {start + 1})").toDF(*t.frame().columns))
    source = f"(SELECT 5 k, CAST({value} AS {column}) t, CAST({value} AS {column}) s FROM range(1))"
    merge = f"MERGE INTO t USING {source} s ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = 1"
    assert _left(t, merge.replace("id", "8")) == [1]
    t.run(merge.replace("id", "8"))
    assert sorted((row.k, row.v) for row in t.frame().collect()) == [(1, 0), (5, 1), (9, 0)]


def test_a_frame_whose_struct_looks_like_an_alias(t: PathTable, spark: SparkSession) -> None:
    """`s.k` is a field of the column `s` where the frame has no alias."""
    frame = spark.sql("SELECT 3 AS k, 0 AS v, struct(5 AS k, 0 AS v, 1 AS s) AS s")
    statement = of_frame(frame, "t.k = s.k", "WHEN MATCHED THEN DELETE")
    source = held(t, statement)
    assert source is not None
    assert key_predicate(t.work(), statement, source) == Always(True)


def test_ranges_of_a_few_rows_and_of_many(tmp_path: Path, spark: SparkSession) -> None:
    t = _three_files(tmp_path, spark, "INT", [1, 500, 990])
    sql = "MERGE INTO t USING ({}) s ON t.k >= s.a AND t.k < s.b WHEN MATCHED THEN UPDATE SET v = 1"
    few = "SELECT * FROM VALUES (0, 2), (980, 1000), (NULL, 600), (700, 600) AS v (a, b)"
    assert _left(t, sql.format(few)) == [0, 2]
    many = "SELECT id + 400 AS a, id + 401 AS b FROM range(200)"
    assert _left(t, sql.format(many)) == [1]
    assert _left(t, sql.format("SELECT CAST(NULL AS INT) AS a, 5 AS b")) == []
    t.run(sql.format(few))
    assert sorted((row.k, row.v) for row in t.frame().collect()) == [(1, 1), (500, 0), (990, 1)]


def test_a_time_that_python_has_no_value_for_leaves_files_out(
    tmp_path: Path, spark: SparkSession
) -> None:
    t = _three_files(tmp_path, spark, "TIMESTAMP", _TIMES)
    late = "SELECT timestamp_seconds(400000000000L) q"
    sql = f"MERGE INTO t USING ({late}) s ON t.k = s.q WHEN MATCHED THEN DELETE"
    assert _left(t, sql) == []
    t.append(spark.sql(f"SELECT q AS k, 0 AS v FROM ({late})"))
    t.run(sql)
    assert t.frame().count() == 3


def test_files_without_keys_are_not_read(t: PathTable, spark: SparkSession) -> None:
    t.append(spark.sql("SELECT 500 k, 500 v"))
    gone = t.folder / min(t.adds(), key=lambda add: "500" in (add.stats or "")).path
    gone.unlink()
    sql = "MERGE INTO t USING (SELECT explode(array(500, 900)) k, 1 v) s ON t.k = s.k"
    change: Change = t.run(f"{sql} {UPSERT}")
    assert change.affected == {
        "num_affected_rows": 2,
        "num_updated_rows": 1,
        "num_deleted_rows": 0,
        "num_inserted_rows": 1,
    }
