"""Columns mapped by name and by id, and columns whose type was widened, in files of any age."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.spark.tables import PathTable, table
from txlake.commit.change import Change

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=2)

MODES = pytest.mark.parametrize("mode", ["name", "id"])


def _redefine(t: PathTable, change: Any) -> None:
    """Commit another schema: `change` gets the parsed one and changes it in place."""
    metadata = t.snapshot.metadata
    schema = json.loads(str(metadata.schema_string))
    change(schema["fields"])
    changed = msgspec.structs.replace(metadata, schema_string=json.dumps(schema))
    t.commit(Change(operation="CHANGE COLUMN", actions=(changed,)))


@MODES
def test_renamed_and_dropped_columns(tmp_path: Path, spark: SparkSession, mode: str) -> None:
    t = table(
        tmp_path / "t",
        spark,
        "k INT, old STRING, gone INT, s STRUCT<a: INT, b: STRUCT<c: INT>>, p INT",
        partitioned_by="p",
        properties={"delta.columnMapping.mode": mode},
    )
    t.append(
        spark.sql(
            "SELECT 1 k, 'x' old, 7 gone, named_struct('a', 2, 'b', named_struct('c', 3)) s, 5 p"
        )
    )

    def change(fields: list[dict[str, Any]]) -> None:
        fields[1]["name"] = "gone"
        fields[3]["type"]["fields"][1]["name"] = "renamed"
        fields[4]["name"] = "part"
        del fields[2]

    def partition(t: PathTable) -> None:
        metadata = t.snapshot.metadata
        schema = json.loads(str(metadata.schema_string))
        change(schema["fields"])
        changed = msgspec.structs.replace(
            metadata, schema_string=json.dumps(schema), partition_columns=["part"]
        )
        t.commit(Change(operation="RENAME COLUMN", actions=(changed,)))

    partition(t)
    assert t.frame().columns == ["k", "gone", "s", "part"]
    assert t.rows() == [(1, "x", (2, (3,)), 5)]
    t.append(spark.sql("SELECT 2 k, 'y' gone, named_struct('a', 4, 'renamed', NULL) s, 6 part"))
    t.run("UPDATE t SET s.renamed.c = 9, gone = gone || '!' WHERE part = 5")
    t.run("DELETE FROM t WHERE gone = 'y' AND part = 6")
    assert t.rows() == [(1, "x!", (2, (9,)), 5)]
    assert t.frame().where("part = 5 AND s.a = 2").count() == 1


@MODES
def test_statistics_and_partitions_by_physical_names_still_skip(
    tmp_path: Path, spark: SparkSession, mode: str
) -> None:
    from txlake.log.predicates import bind, parse_predicate

    t = table(
        tmp_path / "t",
        spark,
        "k INT, p STRING",
        partitioned_by="p",
        properties={"delta.columnMapping.mode": mode},
    )
    t.append(spark.sql("SELECT * FROM VALUES (1, 'a'), (2, 'b') AS x(k, p)").coalesce(1))
    snapshot = t.snapshot
    for text in ("p = 'a'", "k = 2"):
        assert snapshot.select(bind(parse_predicate(text), snapshot.schema)).num_rows == 1
    assert t.rows() == [(1, "a"), (2, "b")]


def test_files_of_a_narrower_type(tmp_path: Path, spark: SparkSession) -> None:
    columns = (
        "i INT, s SHORT, f FLOAT, d DECIMAL(4,1), day DATE, n INT, e INT, l ARRAY<SHORT>,"
        " t STRUCT<a: BYTE>, m MAP<STRING, INT>"
    )
    t = table(tmp_path / "t", spark, columns, properties={"delta.enableTypeWidening": "true"})
    t.append(
        spark.sql(
            "SELECT 1 i, 2S s, 0.5F f, 12.5BD d, DATE'2026-01-31' day, 3 n, 4 e, array(5S) l,"
            " named_struct('a', 6Y) t, map('k', 7) m"
        )
    )
    wider = {
        "i": "long", "s": "integer", "f": "double", "d": "decimal(10,3)", "day": "timestamp_ntz",
        "n": "double", "e": "decimal(12,1)",
    }  # fmt: skip

    def change(fields: list[dict[str, Any]]) -> None:
        def widen(item: dict[str, Any], new: str, path: str | None = None) -> None:
            old = item["type"] if path is None else None
            note = {
                "fromType": old or {"element": "short", "value": "integer"}[str(path)],
                "toType": new,
            }
            item["metadata"]["delta.typeChanges"] = [
                note if path is None else {**note, "fieldPath": path}
            ]
            if path is None:
                item["type"] = new

        for item in fields:
            if item["name"] in wider:
                widen(item, wider[item["name"]])
        fields[7]["type"]["elementType"] = "integer"
        widen(fields[7], "integer", "element")
        widen(fields[8]["type"]["fields"][0], "long")
        fields[9]["type"]["valueType"] = "long"
        widen(fields[9], "long", "value")

    _redefine(t, change)
    t.append(
        spark.sql(
            "SELECT 5000000000L i, 100000 s, 0.1D f, 1234567.125BD d,"
            " TIMESTAMP_NTZ'2026-01-31 12:00:00' day, 0.5D n, 99999999999.5BD e, array(100000) l,"
            " named_struct('a', 5000000000L) t, map('k', 5000000000L) m"
        )
    )
    seen = t.frame().selectExpr(
        "i", "s", "f", "STRING(d) d", "STRING(day) day", "n", "STRING(e) e", "l", "t.a", "m['k']"
    )
    assert sorted(map(tuple, seen.collect())) == [
        (1, 2, 0.5, "12.500", "2026-01-31 00:00:00", 3.0, "4.0", [5], 6, 7),
        (5000000000, 100000, 0.1, "1234567.125", "2026-01-31 12:00:00", 0.5, "99999999999.5",
         [100000], 5000000000, 5000000000),
    ]  # fmt: skip
    assert t.frame().where("i = 1 AND s = 2").count() == 1
    t.run("UPDATE t SET n = n + 0.25 WHERE i = 1")
    t.compact()
    assert sorted(row[0] for row in t.frame().select("n").collect()) == [0.5, 3.25]
