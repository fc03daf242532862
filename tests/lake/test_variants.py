"""VARIANT columns as users write them, on Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import txlake
from txlake.errors import InvalidRequest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=3)

_NOW = {"availableNow": True}
_SHREDDING = {
    "spark.sql.variant.writeShredding.enabled": "true",
    "spark.sql.variant.forceShreddingSchemaForTest": "a int",
    "spark.sql.variant.allowReadingShredded": "true",
}


def _shown(lake: txlake.Lake, query: str = "SELECT * FROM t") -> dict[int, str | None]:
    rows = lake.sql(f"SELECT id, to_json(v) v FROM ({query})").collect()
    return {row.id: row.v for row in rows}


def _files(lake: txlake.Lake, name: str = "t") -> list[dict[str, Any]]:
    place = lake.sql(f"DESCRIBE DETAIL {name}").collect()[0].location
    found: list[dict[str, Any]] = txlake.Log(place).snapshot().files().to_pylist()
    return found


def _made(lake: txlake.Lake, *properties: str) -> None:
    given = f"TBLPROPERTIES ({', '.join(properties)})" if properties else ""
    lake.sql(f"CREATE TABLE t (id LONG, v VARIANT) {given}")
    lake.sql(
        "INSERT INTO t SELECT id, CASE WHEN id % 3 = 0 THEN NULL "
        "ELSE parse_json(concat('{\"a\":', id, '}')) END FROM range(9)"
    )


_ROWS = {id: None if id % 3 == 0 else f'{{"a":{id}}}' for id in range(9)}


def test_statements_that_change_rows(lake: txlake.Lake) -> None:
    _made(lake)
    assert _shown(lake) == _ROWS
    lake.sql("INSERT INTO t VALUES (9, parse_json('[1, null]')), (10, NULL)")
    lake.sql('UPDATE t SET v = parse_json(\'{"b":"x"}\') WHERE id IN (0, 1)')
    lake.sql("UPDATE t SET v = NULL WHERE variant_get(v, '$.a', 'int') = 2")
    lake.sql("DELETE FROM t WHERE try_variant_get(v, '$.a', 'int') = 4")
    lake.sql(
        "MERGE INTO t USING (SELECT id, parse_json(string(id)) v FROM range(5, 12) WHERE id <> 6) s"
        " ON t.id = s.id AND t.id < 8 WHEN MATCHED AND s.id = 7 THEN UPDATE SET v = NULL "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED AND s.id = 11 THEN INSERT *"
    )
    expected = {0: '{"b":"x"}', 1: '{"b":"x"}', 2: None, 3: None, 5: "5", 6: None, 7: None}
    expected |= {8: '{"a":8}', 9: "[1,null]", 10: None, 11: "11"}
    assert _shown(lake) == expected
    lake.sql("OPTIMIZE t")
    lake.sql("REORG TABLE t APPLY (PURGE)")
    assert _shown(lake) == expected
    assert _shown(lake, "SELECT * FROM t WHERE v IS NULL").keys() == {2, 3, 6, 7, 10}
    lake.sql("INSERT OVERWRITE t SELECT 1, NULL")
    assert _shown(lake) == {1: None}


def test_an_update_beside_a_compaction(lake: txlake.Lake) -> None:
    _made(lake)
    lake.sql("INSERT INTO t SELECT id, NULL FROM range(9, 12)")
    one, other = lake.begin(), lake.begin()
    one.sql("UPDATE t SET v = parse_json('true') WHERE id = 4")
    other.sql("OPTIMIZE t")
    other.commit()
    one.commit()
    assert _shown(lake) == _ROWS | {9: None, 10: None, 11: None, 4: "true"}


def test_variants_inside_of_other_types(lake: txlake.Lake) -> None:
    lake.sql(
        "CREATE TABLE n (id INT, s STRUCT<v: VARIANT, x: INT>, l ARRAY<VARIANT>, "
        "m MAP<STRING, VARIANT>) TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    lake.sql(
        "INSERT INTO n SELECT 1, named_struct('v', parse_json('1'), 'x', 1), "
        "array(parse_json('2'), NULL), map('k', parse_json('3'), 'none', NULL)"
    )
    lake.sql("INSERT INTO n SELECT 2, NULL, NULL, NULL")
    lake.sql("INSERT INTO n SELECT 3, named_struct('v', NULL, 'x', 3), array(), map()")
    lake.sql("UPDATE n SET id = id + 10 WHERE id > 0")
    lake.sql("OPTIMIZE n")
    found = lake.sql("SELECT id, to_json(struct(s, l, m)) j FROM n ORDER BY id").collect()
    assert [(row.id, json.loads(row.j)) for row in found] == [
        (11, {"s": {"v": 1, "x": 1}, "l": [2, None], "m": {"k": 3, "none": None}}),
        (12, {}),
        (13, {"s": {"x": 3}, "l": [], "m": {}}),
    ]


def test_the_nulls_are_counted_and_nothing_is_bounded(lake: txlake.Lake) -> None:
    _made(
        lake, "'delta.checkpointInterval' = '2'", "'delta.checkpoint.writeStatsAsStruct' = 'true'"
    )
    lake.sql("INSERT INTO t SELECT 20, NULL")
    lake.sql("INSERT INTO t SELECT 21, parse_json('1')")
    stats = [json.loads(one["stats"]) for one in _files(lake)]
    assert sum(one["nullCount"]["v"] for one in stats) == 4
    assert all("v" not in one["minValues"] and "v" not in one["maxValues"] for one in stats)
    lake.sql("ANALYZE TABLE t COMPUTE STATISTICS")
    assert _shown(lake, "SELECT * FROM t WHERE v IS NULL").keys() == {0, 3, 6, 20}


@pytest.mark.no_interop("the Delta kernel takes no default but NULL")
def test_a_column_is_added_with_a_default_and_a_rule(lake: txlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id INT)")
    lake.sql("INSERT INTO t VALUES (1)")
    lake.sql("ALTER TABLE t ADD COLUMN v VARIANT")
    lake.sql("ALTER TABLE t ALTER COLUMN v SET DEFAULT parse_json('{\"a\":0}')")
    lake.sql("ALTER TABLE t ADD CONSTRAINT c CHECK (v IS NULL OR variant_get(v, '$.a', 'int') < 5)")
    lake.sql("INSERT INTO t (id) VALUES (2)")
    lake.sql("INSERT INTO t VALUES (3, DEFAULT)")
    with pytest.raises(InvalidRequest, match="constraint c"):
        lake.sql("INSERT INTO t VALUES (4, parse_json('{\"a\":7}'))")
    assert _shown(lake) == {1: None, 2: '{"a":0}', 3: '{"a":0}'}


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE TABLE u (i INT, v VARIANT) PARTITIONED BY (v)", "v"),
        ("CREATE TABLE u (i INT, v VARIANT) CLUSTER BY (v)", "no order"),
        (
            "CREATE TABLE u (s STRING, v VARIANT GENERATED ALWAYS AS (parse_json(s)))",
            "can't be variants",
        ),
    ],
)
def test_what_a_variant_cant_be(lake: txlake.Lake, statement: str, message: str) -> None:
    _made(lake)
    with pytest.raises(InvalidRequest, match=message):
        lake.sql(statement)
    assert _shown(lake) == _ROWS


def test_the_change_feed(lake: txlake.Lake) -> None:
    _made(lake, "'delta.enableChangeDataFeed' = 'true'")
    lake.sql("UPDATE t SET v = parse_json('1') WHERE id IN (0, 1)")
    lake.sql("DELETE FROM t WHERE id = 3")
    found = lake.sql(
        "SELECT _change_type kind, id, to_json(v) v FROM table_changes('t', 2)"
    ).collect()
    assert {(row.kind, row.id, row.v) for row in found} == {
        ("update_preimage", 0, None),
        ("update_postimage", 0, "1"),
        ("update_preimage", 1, '{"a":1}'),
        ("update_postimage", 1, "1"),
        ("delete", 3, None),
    }


def test_a_stream(lake: txlake.Lake, tmp_path: Path) -> None:
    _made(lake)
    lake.sql("CREATE TABLE copied (id LONG, v VARIANT)")
    for _ in range(2):
        frame = lake.read_stream("t")
        checkpoint = str(tmp_path / "checkpoint")
        query = lake.write_stream(frame, "copied", checkpoint=checkpoint, trigger=_NOW)
        query.awaitTermination()
        lake.sql("INSERT INTO t SELECT 30, parse_json('[]')")
    assert _shown(lake, "SELECT * FROM copied") == _ROWS | {30: "[]"}


def _shredded(spark: SparkSession, place: Path) -> None:
    before = {key: spark.conf.get(key, None) for key in _SHREDDING}
    try:
        for key, value in _SHREDDING.items():
            spark.conf.set(key, value)
        rows = spark.sql(
            "SELECT id, CASE WHEN id % 3 = 0 THEN NULL "
            "ELSE parse_json(concat('{\"a\":', id, '}')) END v FROM range(9)"
        )
        rows.repartition(2).write.parquet(str(place))
    finally:
        for key, old in before.items():
            spark.conf.unset(key) if old is None else spark.conf.set(key, old)


def test_files_that_are_shredded(lake: txlake.Lake, spark: SparkSession, tmp_path: Path) -> None:
    _shredded(spark, tmp_path / "shredded")
    lake.sql(f"CONVERT TO DELTA parquet.`{tmp_path}/shredded`")
    lake.sql(f"CREATE TABLE t USING DELTA LOCATION '{tmp_path}/shredded'")
    [row] = lake.sql("DESCRIBE DETAIL t").collect()
    assert {"variantType", "variantShredding"} <= set(row.tableFeatures)
    assert _shown(lake) == _ROWS
    lake.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    lake.sql("UPDATE t SET v = parse_json('{\"b\":true}') WHERE id = 1")
    lake.sql("DELETE FROM t WHERE id = 0")
    expected = {id: v for id, v in _ROWS.items() if id} | {1: '{"b":true}'}
    assert _shown(lake) == expected
    writer, optimizer = lake.begin(), lake.begin()
    writer.sql("DELETE FROM t WHERE id = 4")
    optimizer.sql("OPTIMIZE t")
    optimizer.commit()
    writer.commit()
    assert len(_files(lake)) == 1
    assert _shown(lake) == {id: v for id, v in expected.items() if id != 4}
    lake.sql("REORG TABLE t APPLY (PURGE)")
    assert _shown(lake) == {id: v for id, v in expected.items() if id != 4}


def test_a_stream_says_that_it_cant_read_shredded_files(
    lake: txlake.Lake, spark: SparkSession, tmp_path: Path
) -> None:
    _shredded(spark, tmp_path / "shredded")
    lake.sql(f"CONVERT TO DELTA parquet.`{tmp_path}/shredded`")
    lake.sql(f"CREATE TABLE t USING DELTA LOCATION '{tmp_path}/shredded'")
    lake.sql("CREATE TABLE copied (id LONG, v VARIANT)")
    checkpoint = str(tmp_path / "c")
    query = lake.write_stream(lake.read_stream("t"), "copied", checkpoint=checkpoint, trigger=_NOW)
    with pytest.raises(Exception, match="it holds shredded variants"):
        query.awaitTermination()
    assert _shown(lake, "SELECT * FROM copied") == {}
