"""Tables whose texts have collations are read; other engines write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlake
from tests.lake.rows import query, rows
from tests.spark.session_settings import settings_made
from txlake.errors import UnsupportedFeature

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.no_interop("delta-rs knows no collations")


def column(name: str, data_type: object = "string", **collations: str) -> dict[str, Any]:
    metadata = {"__COLLATIONS": collations} if collations else {}
    return {"name": name, "type": data_type, "nullable": True, "metadata": metadata}


_LOWER = "spark.UTF8_LCASE"

SCHEMA = {
    "type": "struct",
    "fields": [
        column("id", "integer"),
        column("s", s=_LOWER),
        column("b", b="spark.UTF8_BINARY"),
        column("p", p=_LOWER),
    ],
}


def written(
    folder: Path, schema: dict[str, Any], partitioned_by: list[str], adds: list[dict[str, Any]]
) -> str:
    """Write the log of a table with collations, and return its folder."""
    actions: list[dict[str, Any]] = [
        {
            "protocol": {
                "minReaderVersion": 1,
                "minWriterVersion": 7,
                "writerFeatures": ["collations-preview", "domainMetadata"],
            }
        },
        {
            "metaData": {
                "id": "a", "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(schema), "partitionColumns": partitioned_by,
                "configuration": {}, "createdTime": 1,
            }
        },
        *adds,
    ]  # fmt: skip
    (folder / "_delta_log").mkdir(parents=True)
    log = "\n".join(map(json.dumps, actions))
    (folder / "_delta_log" / f"{0:020}.json").write_text(log)
    return str(folder)


@pytest.fixture
def place(tmp_path: Path) -> str:
    """Two files, whose minima and maxima are in the order of bytes, in two partitions."""
    folder = tmp_path / "collated"
    adds: list[dict[str, Any]] = []
    for number, (low, high, part) in enumerate(
        (("Apple", "banana", "P"), ("apple", "cherry", "p"))
    ):
        name = f"p={part}/{number}.parquet"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        table = pa.table(
            {"id": pa.array([number, number + 10], pa.int32()), "s": [low, high], "b": [low, high]}
        )
        pq.write_table(table, folder / name)
        bounds = {"s": low, "b": low}, {"s": high, "b": high}
        stats = {
            "numRecords": 2,
            "minValues": bounds[0],
            "maxValues": bounds[1],
            "nullCount": {"s": 0, "b": 0},
        }
        adds.append(
            {
                "add": {
                    "path": quote(name), "partitionValues": {"p": part}, "modificationTime": 1,
                    "size": (folder / name).stat().st_size, "dataChange": True,
                    "stats": json.dumps(stats),
                }
            }
        )  # fmt: skip
    return written(folder, SCHEMA, ["p"], adds)


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("s = 'APPLE'", [0, 1]),
        ("s IN ('CHERRY', 'x')", [11]),
        ("s > 'BANANA'", [11]),
        ("s < 'B'", [0, 1]),
        ("s <=> 'Banana'", [10]),
        ("s LIKE 'CH%'", [11]),
        ("startswith(s, 'CH')", [11]),
        ("b = 'Apple'", [0]),
        ("b < 'a'", [0]),
        ("p = 'P'", [0, 1, 10, 11]),
        ("p IN ('p')", [0, 1, 10, 11]),
        ("p = 'q'", []),
    ],
)
def test_no_file_is_left_out_that_has_rows(
    condition: str, ids: list[int], place: str, lake: txlake.Lake
) -> None:
    found = lake.read(place, where=condition).select("id")
    assert sorted(row[0] for row in found.collect()) == ids
    asked = query(lake, f"SELECT id FROM delta.`{place}` WHERE {condition}")
    assert sorted(asked, key=repr) == sorted([(one,) for one in ids], key=repr)
    files = txlake.Log(place).snapshot().files(where=condition)
    # By what has no collation files are left out as ever.
    assert files.num_rows == (1 if condition.startswith("b") else 2)


def test_types_are_shown_and_kept(place: str, lake: txlake.Lake) -> None:
    schema = lake.read(place).schema
    assert schema["s"].dataType.simpleString() == "string collate UTF8_LCASE"
    assert schema["b"].dataType.simpleString() == "string"
    assert schema["p"].dataType.simpleString() == "string collate UTF8_LCASE"
    assert lake.sql(f"SELECT * FROM delta.`{place}` WHERE id = 1").schema == schema
    described = rows(lake.sql(f"DESCRIBE delta.`{place}`").limit(4).select("col_name", "data_type"))
    assert ("s", "string collate UTF8_LCASE") in described
    snapshot = txlake.Log(place).snapshot()
    assert snapshot.schema == SCHEMA
    assert snapshot.arrow_schema.field("s").type == pa.string()
    assert (
        query(
            lake, f"SELECT lower(s), count(*) FROM delta.`{place}` GROUP BY s HAVING s = 'APPLE'"
        )[0][1]
        == 2
    )


def test_a_collated_field_of_any_name_is_read(lake: txlake.Lake, tmp_path: Path) -> None:
    fields = [column("group", group=_LOWER), column("two words", "integer")]
    schema = {"type": "struct", "fields": [column("s", {"type": "struct", "fields": fields})]}
    folder = tmp_path / "nested"
    folder.mkdir()
    types = pa.struct({"group": pa.string(), "two words": pa.int32()})
    structs = pa.array([{"group": "A", "two words": 1}], types)
    pq.write_table(pa.table({"s": structs}), folder / "0.parquet")
    size = (folder / "0.parquet").stat().st_size
    add = {"path": "0.parquet", "partitionValues": {}, "modificationTime": 1, "size": size}
    place = written(tmp_path / "nested", schema, [], [{"add": {**add, "dataChange": True}}])
    reserved = {"spark.sql.ansi.enforceReservedKeywords": "true"}
    with settings_made(lake.sql("SELECT 1").sparkSession, reserved):
        found = query(lake, f"SELECT s.`two words` FROM delta.`{place}` WHERE s.`group` = 'a'")
    assert found == [(1,)]


@pytest.mark.broad
def test_streams_compare_alike(
    place: str, lake: txlake.Lake, spark: SparkSession, tmp_path: Path
) -> None:
    frame = lake.read_stream(place).where("s = 'APPLE'")
    once = {"availableNow": True}
    stream = lake.write_stream(frame, "out", checkpoint=str(tmp_path / "c"), trigger=once)
    stream.awaitTermination()
    assert query(lake, "SELECT id, s FROM out") == [(0, "Apple"), (1, "apple")]
    spark.dataSource.register(txlake.TxlakeDataSource)
    assert spark.read.format("txlake").load(place).where("s = 'APPLE'").count() == 2


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO {} (id) VALUES (3)",
        "UPDATE {} SET id = 3",
        "DELETE FROM {} WHERE id = 1",
        "OPTIMIZE {}",
        "ALTER TABLE {} ADD COLUMN z INT",
        "CREATE TABLE copied SHALLOW CLONE {}",
    ],
)
def test_writing_is_refused_by_name(statement: str, place: str, lake: txlake.Lake) -> None:
    with pytest.raises(UnsupportedFeature, match="collations"):
        lake.sql(statement.format(f"delta.`{place}`"))
    assert len(list(Path(place, "_delta_log").iterdir())) == 1
