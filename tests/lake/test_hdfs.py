"""A lake in HDFS: what txlake writes by HTTP, Spark reads with its own client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pyarrow as pa
import pytest

import txlake
from tests.lake.rows import query
from tests.storage.conftest import hdfs, servers_folder  # noqa: F401
from txlake.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.peer("hdfs"), pytest.mark.broad]

ROWS = pa.table({"id": [1, 2], "p": ["a", "b c"]})


@pytest.fixture
def options(hdfs: tuple[str, dict[str, str]]) -> dict[str, str]:  # noqa: F811
    url, options = hdfs
    return {**options, "webhdfs_endpoint": url.replace("webhdfs:", "http:")}


@pytest.mark.parametrize("scheme", ["webhdfs", "hdfs"])
def test_a_lake_in_hdfs(
    hdfs: tuple[str, dict[str, str]],  # noqa: F811
    options: dict[str, str],
    spark: SparkSession,
    tmp_path: Path,
    scheme: str,
) -> None:
    root = hdfs[0] if scheme == "webhdfs" else _by_rpc(options["webhdfs_endpoint"])
    warehouse = f"{root}/wh {scheme}"
    names = f"sqlite:///{tmp_path / 'names.db'}"
    with txlake.connect(warehouse, catalog=names, spark=spark, storage_options=options) as lake:
        lake.write(ROWS, "t", partition_by="p")
        lake.sql("INSERT INTO t SELECT id + 10, p FROM t")
        lake.sql("UPDATE t SET id = 20 WHERE id = 2")
        lake.sql("DELETE FROM t WHERE id = 1")
        lake.sql("OPTIMIZE t")
        assert query(lake, "SELECT * FROM t") == [(11, "a"), (12, "b c"), (20, "b c")]
        assert lake.read("t", version=0, where="p = 'a'").count() == 1
        with pytest.raises(InvalidRequest, match="nope"):
            lake.write(pa.table({"nope": [1]}), "t", "append")
        lake.sql("CREATE TABLE u AS SELECT * FROM t")
        with lake.transaction() as both:
            both.sql("INSERT INTO u VALUES (7, 'x')")
            both.sql("DELETE FROM t WHERE id = 11")
        assert query(lake, "SELECT id FROM u WHERE p = 'x'") == [(7,)]
        lake.sql(f"CREATE TABLE delta.`{root}/paths {scheme}/v` AS SELECT 1 AS id")
        lake.sql(
            f"MERGE INTO delta.`{root}/paths {scheme}/v` v USING t ON v.id = t.id "
            "WHEN NOT MATCHED THEN INSERT (id) VALUES (t.id)"
        )
        assert query(lake, f"SELECT id FROM delta.`{root}/paths {scheme}/v`") == [
            (1,),
            (12,),
            (20,),
        ]
        lake.sql("VACUUM t")
        lake.sql("DROP TABLE u")
    log = txlake.Log(f"{root}/paths {scheme}/v", storage_options=options)
    assert log.snapshot().version == 1


def _by_rpc(endpoint: str) -> str:
    """The URL of the same HDFS by the port of Hadoop's own protocol."""
    name = "Hadoop:service=NameNode,name=NameNodeStatus"
    with urlopen(f"{endpoint}/jmx?qry={name}", timeout=30) as answer:
        return f"hdfs://{json.load(answer)['beans'][0]['HostAndPort']}"
