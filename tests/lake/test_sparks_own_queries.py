"""Queries in syntax that Spark alone understands, over tables of the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import txlake
from tests.lake.rows import query, rows
from txlake.errors import Conflict, InvalidRequest
from txlake.spark.query_names import relations_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=6)

# Two intervals' units in one literal, the second with a sign.
OWN = "-interval -1 day 1 hour -1 minute 1 second"


@pytest.fixture
def t(lake: txlake.Lake) -> txlake.Lake:
    """The lake with t (1, 1), (2, 2)."""
    lake.sql("CREATE TABLE t (id INT, v INT); INSERT INTO t VALUES (1, 1), (2, 2)")
    return lake


def names(spark: SparkSession, text: str) -> list[tuple[str, str, bool]] | None:
    found = relations_in(spark, text)
    if found is None:
        return None
    return [(".".join(one.parts), text[one.start :][:3], one.has_alias) for one in found]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"SELECT {OWN}", []),
        ("SELECT 'é😀' FROM a.`b c` AS x, t", [("a.b c", "a.`", True), ("t", "t", False)]),
        (
            "SELECT (SELECT max(a) FROM s) FROM t WHERE EXISTS (TABLE e) AND x IN (TABLE i)",
            [("s", "s) ", False), ("e", "e) ", False), ("i", "i)", False), ("t", "t W", False)],
        ),
        ("WITH c AS (TABLE C) SELECT * FROM c, d", [("C", "C) ", False), ("d", "d", False)]),
        (
            "WITH RECURSIVE c AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM c) TABLE c",
            [],
        ),
        ("SELECT * FROM t TABLESAMPLE (1 ROWS) AS x", [("t", "t T", True)]),
        ("SELECT * FROM a, LATERAL (TABLE b)", [("b", "b)", True), ("a", "a, ", False)]),
        ("FROM t |> WHERE a > (SELECT min(x) FROM p)", [("p", "p)", False), ("t", "t |", False)]),
        ("VALUES ((SELECT max(v) FROM w))", [("w", "w))", False)]),
        ("SELECT * FROM f(TABLE(t) PARTITION BY a)", [("t", "t) ", False)]),
        ("SELECT sum(a) OVER w FROM t WINDOW w AS (ORDER BY b)", [("t", "t W", False)]),
        # What may read a table in another way than by its name gives no names.
        ("SELECT ) FROM t", None),
        ("SHOW TABLES", None),
        ("FROM t INSERT INTO u SELECT *", None),
        ("SELECT * FROM t VERSION AS OF 3", None),
        ("SELECT * FROM IDENTIFIER('a' || x)", None),
        ("SELECT * FROM STREAM t", None),
        ("SELECT sum(a) OVER w FROM t WINDOW w AS (ORDER BY (SELECT max(b) FROM q))", None),
    ],
)
def test_the_names_that_sparks_parser_finds(
    spark: SparkSession, text: str, found: list[tuple[str, str, bool]] | None
) -> None:
    assert names(spark, text) == found


def test_tables_of_the_lake_stand_in_a_query_of_sparks_own(t: txlake.Lake) -> None:
    text = f"SELECT t.v, CAST({OWN} AS STRING) IS NULL FROM default.t WHERE id = 2"
    assert query(t, text) == [(2, False)]
    t.sql(f"CREATE VIEW w AS SELECT v FROM t WHERE timestamp'2026-01-01' > now() + {OWN} OR v > 1")
    assert query(t, "SELECT * FROM w") == [(2,)]
    t.sql(f"CREATE TABLE u AS SELECT id FROM t VERSION AS OF 0 WHERE {OWN} IS NULL")
    assert rows(t.read("u")) == []


def test_what_a_query_of_sparks_own_reads_is_read_by_its_transaction(t: txlake.Lake) -> None:
    tx = t.begin(isolation="serializable")
    tx.sql(f"INSERT INTO t SELECT id + 10, v FROM t WHERE v > 1 AND {OWN} IS NOT NULL")
    with t.session() as other:
        other.sql("INSERT INTO t VALUES (3, 3)")
    with pytest.raises(Conflict):
        tx.commit()


def test_what_neither_understands_is_refused_at_its_place(t: txlake.Lake) -> None:
    with pytest.raises(InvalidRequest, match="not understood at line 1, column 8"):
        t.sql("SELECT ) FROM t")


def test_an_enabled_session_reads_the_lakes_tables_in_it(
    t: txlake.Lake, spark: SparkSession
) -> None:
    txlake.enable(spark, t)
    try:
        found = spark.sql(f"SELECT v FROM t WHERE v > 1 AND {OWN} IS NOT NULL")
        assert [row.v for row in found.collect()] == [2]
    finally:
        txlake.disable(spark)
