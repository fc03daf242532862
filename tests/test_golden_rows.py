"""Every version of every golden table: Spark reads the rows that the manifest says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

from tests.golden import golden_tables, render_rows
from txlake.commit.table_log import TableLog
from txlake.errors import CorruptTable, UnsupportedFeature
from txlake.log.snapshot import Snapshot
from txlake.protocol.reach import ANYWHERE
from txlake.protocol.types import Struct, to_arrow_schema, type_to_json
from txlake.settings import Settings
from txlake.spark.manifest import Manifests
from txlake.spark.spark_errors import spark_errors
from txlake.spark.table_access import TableAccess
from txlake.storage import open_store
from txlake.system import System

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Described = Mapping[str, Any]

_SYSTEM = System()
_MANIFESTS = Manifests(_SYSTEM)
# What one table's versions hold, by what they are read from: most old versions differ in nothing
# that a reader sees, and are not read twice.
_read_before: dict[tuple[str, str], tuple[int, str]] = {}


def _versions(*statuses: str) -> list[Any]:
    return [
        pytest.param(
            table,
            version,
            id=f"{table['id']}@{version['version']}",
            marks=pytest.mark.xdist_group(str(table["id"])),
        )
        for table in golden_tables()
        for version in cast("Sequence[Described]", table["versions"])
        if version["expect"]["status"].startswith(statuses)
        and not version["expect"].get("must_refuse")
    ]


def _work(spark: SparkSession, golden: Path, table: Described, version: Described) -> TableAccess:
    store = open_store(str(golden / str(table["path"])))
    log = TableLog(store, _SYSTEM, Settings(), name=str(table["id"]))
    return TableAccess(
        start=lambda: spark,
        manifests=_MANIFESTS,
        system=_SYSTEM,
        settings=Settings(),
        snapshot=log.snapshot(int(version["version"])),
        store=store,
        allowed=lambda: (ANYWHERE,),
    )


def _frame(work: TableAccess) -> DataFrame:
    return work.scan(work.snapshot.select(None))


@pytest.mark.broad(keep=12)
@pytest.mark.parametrize(("table", "version"), _versions("rows-"))
def test_rows(spark: SparkSession, golden: Path, table: Described, version: Described) -> None:
    work = _work(spark, golden, table, version)
    same = json.dumps([type_to_json(work.snapshot.schema), version["active_files_sha256"]])
    key = (str(table["id"]), same)
    if key not in _read_before:
        _read_before[key] = _count_and_digest(work.snapshot, _frame(work))
    expect = version["expect"]
    assert _read_before[key] == (expect["num_rows"], expect["content_sha256"])


def _count_and_digest(snapshot: Snapshot, frame: DataFrame) -> tuple[int, str]:
    schema = cast(dict[str, Any], type_to_json(snapshot.schema))
    for item in schema["fields"]:
        if str(item["type"]).startswith(("geometry", "geography")):
            item["type"] = "binary"  # the renderer has no form for it, and no rows need one
    rows = render_rows().rows_of(_arrow(snapshot.schema, frame), schema)
    return len(rows), render_rows().digest(rows, schema)[0]


def _arrow(schema: Struct, frame: DataFrame) -> pa.Table:
    """The rows in Arrow. PySpark's `toArrow` fails on nulls among variants in lists and maps."""
    if "variant" not in json.dumps(type_to_json(schema)):
        return frame.toArrow()
    rows = [row.asDict(recursive=False) for row in frame.collect()]
    plain = [{name: _plain(value) for name, value in row.items()} for row in rows]
    return pa.Table.from_pylist(plain, schema=to_arrow_schema(schema))


def _plain(value: Any) -> Any:
    """PySpark's values as pyarrow takes them: a variant is its two binaries."""
    from pyspark.sql import Row
    from pyspark.sql.types import VariantVal

    if isinstance(value, VariantVal):
        return {"value": value.value, "metadata": value.metadata}
    if isinstance(value, Row):
        return {name: _plain(item) for name, item in value.asDict().items()}
    if isinstance(value, dict):
        return [(key, _plain(item)) for key, item in value.items()]
    return [_plain(item) for item in value] if isinstance(value, list) else value


@pytest.mark.broad(keep=5)
@pytest.mark.parametrize(("table", "version"), _versions("snapshot-only"))
def test_absent_data_files_are_named(
    spark: SparkSession, golden: Path, table: Described, version: Described
) -> None:
    work = _work(spark, golden, table, version)
    assert len(work.snapshot.files) == version["num_active_files"]
    with (
        pytest.raises(CorruptTable, match=r"data file file:///\S+ is in the log but not"),
        spark_errors(str(table["id"])),
    ):
        _frame(work).collect()


@pytest.mark.parametrize(("table", "version"), _versions("unread", "no-schema"))
def test_what_nobody_could_read(
    spark: SparkSession, golden: Path, table: Described, version: Described
) -> None:
    work = _work(spark, golden, table, version)
    try:
        with spark_errors(str(table["id"])):
            rows = _frame(work).collect()
    except (CorruptTable, UnsupportedFeature):
        return
    expected = version.get("num_rows", version["expect"].get("num_rows"))
    assert expected is None or len(rows) == expected
