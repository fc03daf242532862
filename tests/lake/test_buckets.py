"""A lake in a bucket, for a Spark that has no client of its own for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import txlake
from tests.lake.rows import query
from tests.storage.conftest import (  # noqa: F401
    Placed,
    azure_options,
    gcs_options,
    place,
    s3_options,
    servers_folder,
)
from tests.where.marks import everywhere
from txlake.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broad(keep=1)

ROWS = pa.table({"id": [1, 2], "p": ["a", "b c"]})


@pytest.mark.parametrize("in_warehouse", [True, False])
@pytest.mark.parametrize("place", ["s3", "azure", "gcs"], indirect=True)
def test_a_lake_in_a_bucket(
    place: Placed,  # noqa: F811
    spark: SparkSession,
    tmp_path: Path,
    in_warehouse: bool,
) -> None:
    names = None if in_warehouse else f"sqlite:///{tmp_path / 'names.db'}"
    with txlake.connect(
        place.url, catalog=names, spark=spark, storage_options=place.options
    ) as lake:
        lake.write(ROWS, "t", partition_by="p")
        lake.write(spark.createDataFrame(ROWS), "t", "append")
        lake.write(ROWS.slice(1), "t", "overwrite", partition_overwrite="dynamic")
        with pytest.raises(InvalidRequest, match="nope"):
            lake.write(pa.table({"nope": [1]}), "t", "append")
        table = f"{place.url}/t"
        assert lake.table(table).history().count() == 3
        assert query(lake, "SELECT id FROM t") == [(1,), (1,), (2,)]
    log = txlake.Log(table, storage_options=place.options)
    assert log.snapshot().version == 2
    assert sorted(set(log.snapshot().files().column("path").to_pylist()))[0].startswith("p=a/")


@everywhere
def test_spark_reads_a_bucket_without_a_client_of_its_own(
    s3_options: dict[str, str],  # noqa: F811
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    names = f"sqlite:///{tmp_path / 'names.db'}"
    with txlake.connect(
        "s3://lake/wh", catalog=names, spark=spark, storage_options=s3_options
    ) as lake:
        lake.write(ROWS, "t", partition_by="p")
        lake.sql("INSERT INTO t SELECT id + 10, p FROM t")
        lake.sql("UPDATE t SET id = 20 WHERE id = 2")
        lake.sql("DELETE FROM t WHERE id = 1")
        lake.sql("OPTIMIZE t")
        assert query(lake, "SELECT * FROM t") == [(11, "a"), (12, "b c"), (20, "b c")]
        assert lake.read("t", version=0, where="p = 'a'").count() == 1
        with pytest.raises(InvalidRequest, match=r"no client.*hadoop-aws"):
            lake.sql("COPY INTO t FROM 's3://lake/wh/t' FILEFORMAT = PARQUET")
