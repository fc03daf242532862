"""icebergCompatV2: files hold what Iceberg's readers look for, and the rules are kept by all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlake
from txlake.errors import InvalidRequest
from txlake.log.snapshot import Snapshot
from txlake.protocol.column_mapping import nested_ids
from txlake.protocol.iceberg import VERSION_TAG
from txlake.protocol.paths import decode_path
from txlake.protocol.types import Field
from txlake.sql.statements import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ON = "'delta.enableIcebergCompatV2' = 'true'"
COLUMNS = (
    "id INT, p INT, at TIMESTAMP, l ARRAY<INT>, "
    "m MAP<STRING, ARRAY<STRUCT<x: INT, y: ARRAY<STRING>>>>"
)
VALUES = (
    "TIMESTAMP'2020-01-01 00:00:00', array(1, 2), map('k', array(named_struct('x', 1, 'y', a)))"
)


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[txlake.Lake]:
    with txlake.connect(str(tmp_path / "lake"), spark=spark) as opened:
        yield opened


def newest(lake: txlake.Lake) -> Snapshot:
    handle = lake._session.engine.find(TableName(("t",)), "default")
    assert handle is not None
    return handle.log.latest()


def ids(item: pa.Field) -> dict[str, str | None]:
    """The field ids in a file, by path; lists and maps name their parts as the protocol does."""
    found: dict[str, str | None] = {}

    def walk(one: pa.Field, path: str) -> None:
        identity = (one.metadata or {}).get(b"PARQUET:field_id")
        found[path] = None if identity is None else identity.decode()
        if pa.types.is_list(one.type):
            walk(one.type.value_field, f"{path}.element")
        elif pa.types.is_map(one.type):
            walk(one.type.key_field, f"{path}.key")
            walk(one.type.item_field, f"{path}.value")
        elif pa.types.is_struct(one.type):
            for inner in one.type:
                walk(inner, f"{path}.{inner.name}")

    walk(item, item.name)
    return found


def expected(item: Field) -> dict[str, str]:
    """The ids of a column of lists and maps in the table's schema, but for structs inside."""
    own = {item.physical_name: item.column_id}
    return {key: str(value) for key, value in {**own, **nested_ids(item)}.items()}


def check_files(folder: Path, table: Snapshot) -> None:
    for add in table.files.adds():
        file = pq.ParquetFile(folder / decode_path(add.path))
        for item in table.schema:
            held = ids(file.schema_arrow.field(item.physical_name))
            assert expected(item).items() <= held.items()
            assert None not in held.values()
        at = file.metadata.schema.column(1)
        assert at.physical_type == "INT64"
        assert add.tags is not None
        assert VERSION_TAG.items() <= add.tags.items()
        assert '"numRecords"' in str(add.stats)


def insert(start: int) -> str:
    return (
        f"INSERT INTO t SELECT CAST(id AS INT), CAST(id % 2 AS INT), {VALUES} "
        f"FROM (SELECT id, array('y') AS a FROM range({start}, {start + 4}, 1, 1))"
    )


@pytest.mark.broad(keep=1)
@pytest.mark.parametrize("mode", ["name", "id"])
def test_files_hold_the_ids_and_the_partition_columns(lake: txlake.Lake, mode: str) -> None:
    lake.sql(
        f"CREATE TABLE t ({COLUMNS}) PARTITIONED BY (p) "
        f"TBLPROPERTIES ({ON}, 'delta.columnMapping.mode' = '{mode}')"
    )
    location = lake.sql("DESCRIBE DETAIL t").collect()[0]["location"]
    folder = Path(str(location).removeprefix("file:"))
    lake.sql(insert(0))
    lake.sql(insert(4))
    check_files(folder, newest(lake))
    lake.sql("UPDATE t SET l = array(id) WHERE id IN (1, 2)")
    lake.sql("DELETE FROM t WHERE id = 3")
    assert all(add.deletion_vector is None for add in newest(lake).files.adds())
    check_files(folder, newest(lake))
    lake.sql("OPTIMIZE t ZORDER BY (id)")
    check_files(folder, newest(lake))
    lake.sql(insert(8))
    lake.sql("OPTIMIZE t")
    check_files(folder, newest(lake))
    lake.sql("ALTER TABLE t ADD COLUMNS (n ARRAY<INT>)")
    lake.sql("UPDATE t SET n = array(5)")
    check_files(folder, newest(lake))
    rows = {row["id"]: (row["l"], row["n"]) for row in lake.sql("SELECT * FROM t").collect()}
    assert rows.keys() == {*range(12)} - {3}
    assert rows[1] == ([1], [5])
    assert rows[8] == ([1, 2], [5])


def test_rules_are_turned_on_once_vectors_are_gone(lake: txlake.Lake) -> None:
    lake.sql(f"CREATE TABLE t ({COLUMNS}) TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    lake.sql(insert(0))
    lake.sql("DELETE FROM t WHERE id = 1")
    both = f"ALTER TABLE t SET TBLPROPERTIES ({ON}, 'delta.enableDeletionVectors' = 'false')"
    with pytest.raises(InvalidRequest, match="1 files have one"):
        lake.sql(both)
    lake.sql("REORG TABLE t APPLY (PURGE)")
    lake.sql(both)
    lake.sql("UPDATE t SET l = NULL")
    (add,) = newest(lake).files.adds()
    assert add.tags is not None
    assert VERSION_TAG.items() <= add.tags.items()
    lake.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.enableIcebergCompatV2' = 'false')")
    lake.sql(insert(9))
    tags = [one.tags or {} for one in newest(lake).files.adds()]
    assert any(VERSION_TAG.keys().isdisjoint(one) for one in tags)


def test_reorg_makes_a_table_and_all_of_its_files_keep_the_rules(lake: txlake.Lake) -> None:
    lake.sql(f"CREATE TABLE t ({COLUMNS}) PARTITIONED BY (p)")
    lake.sql(insert(0))
    lake.sql("DELETE FROM t WHERE id = 1")
    rows = sorted(map(tuple, lake.sql("SELECT id, p, l FROM t").collect()))
    location = lake.sql("DESCRIBE DETAIL t").collect()[0]["location"]
    folder = Path(str(location).removeprefix("file:"))
    upgrade = "REORG TABLE t APPLY (UPGRADE UNIFORM (ICEBERG_COMPAT_VERSION = 2))"
    before = newest(lake)
    (row,) = lake.sql(upgrade).collect()
    after = newest(lake)
    assert after.version == before.version + 1
    assert row["metrics"]["numFilesRemoved"] == len(before.files)
    assert after.is_iceberg_compatible
    assert not after.properties.enable_deletion_vectors
    check_files(folder, after)
    assert sorted(map(tuple, lake.sql("SELECT id, p, l FROM t").collect())) == rows
    # Files that keep them already stay.
    lake.sql(upgrade)
    assert newest(lake).version == after.version
    lake.sql(
        "ALTER TABLE t SET TBLPROPERTIES ('delta.enableIcebergCompatV2' = 'false', "
        "'delta.enableDeletionVectors' = 'true')"
    )
    lake.sql(insert(4))
    lake.sql("DELETE FROM t WHERE id = 2")
    kept = {add.path for add in after.files.adds()} & {
        add.path for add in newest(lake).files.adds() if add.deletion_vector is None
    }
    lake.sql(upgrade)
    check_files(folder, newest(lake))
    assert kept
    assert kept <= {add.path for add in newest(lake).files.adds()}
    assert {row["id"] for row in lake.sql("SELECT id FROM t").collect()} == {0, 3, 4, 5, 6, 7}
