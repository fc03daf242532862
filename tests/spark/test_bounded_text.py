"""CHAR(n) and VARCHAR(n) are stored, read and compared as Spark does it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark.tables import NO_VECTORS, VECTORS, table
from txlake.errors import InvalidRequest
from txlake.protocol.type_text import CHAR_VARCHAR_TYPE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=3)

SCHEMA = "id INT, c CHAR(3), v VARCHAR(3)"


def stored(folder: Path) -> list[tuple[str, str]]:
    rows = pa.concat_tables([pq.read_table(path) for path in folder.rglob("*.parquet")])
    return sorted((row["c"], row["v"]) for row in rows.to_pylist())


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t VALUES (1, 'a', 'a'), (2, 'abc', 'abc'), (3, '', '')",
        "INSERT INTO t SELECT * FROM VALUES (1, 'a', 'a'), (2, 'abc', 'abc'), (3, '', '')",
        (
            "MERGE INTO t USING (SELECT * FROM VALUES (1, 'a', 'a'), (2, 'abc', 'abc'),"
            " (3, '', '') AS s(id, c, v)) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
        ),
    ],
    ids=["values", "query", "merge"],
)
def test_a_short_char_gets_spaces(tmp_path: Path, spark: SparkSession, sql: str) -> None:
    t = table(tmp_path / "t", spark, SCHEMA)
    t.run(sql)
    assert t.rows() == [(1, "a  ", "a"), (2, "abc", "abc"), (3, "   ", "")]
    assert stored(tmp_path / "t") == [("   ", ""), ("a  ", "a"), ("abc", "abc")]


def test_a_text_that_is_too_long_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, SCHEMA)
    for sql in (
        "SELECT 1, 'a  b', ''",
        "SELECT 1, '', 'a  b'",
        "SELECT 1, 'abc ', ''",
        "SELECT 1, '', 'abc '",
    ):
        with pytest.raises(InvalidRequest, match=r"length 3 of column '[cv]' is violated"):
            t.run(f"INSERT INTO t {sql}")
    assert t.data_files() == set()


@pytest.mark.parametrize("properties", [VECTORS, NO_VECTORS], ids=["vectors", "copies"])
def test_a_short_literal_equals_a_char(
    tmp_path: Path, spark: SparkSession, properties: dict[str, str]
) -> None:
    t = table(tmp_path / "t", spark, SCHEMA, properties=properties)
    t.run("INSERT INTO t VALUES (1, 'a', 'a'), (2, 'b', 'b'), (3, 'c', 'c'), (4, NULL, NULL)")
    t.run("UPDATE t SET c = 'x', id = 11 WHERE c = 'a'")
    t.run("DELETE FROM t WHERE c IN ('b', 'zz')")
    t.run(
        "MERGE INTO t USING (SELECT 3 AS id) s ON t.id = s.id AND t.c = 'c' "
        "WHEN MATCHED THEN UPDATE SET c = 'y'"
    )
    assert t.rows() == [(11, "x  ", "a"), (3, "y  ", "c"), (4, None, None)]
    assert t.frame().where("c = 'x'").count() == 1
    declared = [one.metadata.get(CHAR_VARCHAR_TYPE) for one in t.frame().schema]
    assert declared == [None, "char(3)", "varchar(3)"]


@pytest.mark.no_interop("a file is exchanged for one of another size")
def test_what_was_stored_without_spaces_is_read_with_them(
    tmp_path: Path, spark: SparkSession
) -> None:
    t = table(tmp_path / "t", spark, SCHEMA)
    t.run("INSERT INTO t VALUES (1, 'a', 'a')")
    (path,) = (tmp_path / "t").rglob("*.parquet")
    kept = pq.read_table(path)
    pq.write_table(kept.set_column(1, kept.schema.field(1), pa.array(["a"])), path)
    assert stored(tmp_path / "t") == [("a", "a")]
    assert t.rows() == [(1, "a  ", "a")]
    t.run("UPDATE t SET id = 2 WHERE c = 'a'")
    assert t.rows() == [(2, "a  ", "a")]


def test_constraints_and_defaults_see_a_char_as_it_is_stored(
    tmp_path: Path, spark: SparkSession
) -> None:
    t = table(tmp_path / "t", spark, "id INT, c CHAR(3) DEFAULT 'd', CONSTRAINT k CHECK (c < 'e')")
    t.run("INSERT INTO t (id) VALUES (1)")
    t.run("INSERT INTO t VALUES (2, 'a')")
    assert t.rows() == [(1, "d  "), (2, "a  ")]
    with pytest.raises(InvalidRequest, match="CHECK constraint k"):
        t.run("INSERT INTO t VALUES (3, 'e')")


def test_texts_inside_of_others(tmp_path: Path, spark: SparkSession) -> None:
    t = table(
        tmp_path / "t",
        spark,
        "s STRUCT<c: CHAR(3), n: INT>, l ARRAY<CHAR(2)>, m MAP<STRING, VARCHAR(2)>",
    )
    t.run("INSERT INTO t SELECT named_struct('c', 'a', 'n', 1), array('b', NULL), map('k', 'v ')")
    ((struct, texts, pairs),) = t.rows()
    assert (tuple(struct), texts, pairs) == (("a  ", 1), ["b ", None], {"k": "v "})
    for values in (
        "named_struct('c', 'long', 'n', 1), array(), map()",
        "NULL, array('long'), map()",
        "NULL, NULL, map('k', 'long')",
    ):
        with pytest.raises(InvalidRequest, match=r"bounded by \d.*can't hold the value long"):
            t.run(f"INSERT INTO t SELECT {values}")
    assert len(t.rows()) == 1
