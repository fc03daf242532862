"""The Python data source of a lake's own streams, and its registration with Spark.

Its class is pickled by value to processes without txlake, where it loads the package that is sent
along (`spark.shipping`). Users' format "txlake" is in `spark_integration.data_source`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from txlake.spark.package_loading import module_loader
from txlake.spark.shipping import whole_package
from txlake.spark.spark_sessions import is_connect

LAKE_FORMAT = "txlake_stream"
"""The format of a lake's own streams."""


def register(spark: SparkSession) -> None:
    """Register the data source with a Spark session; doing it again is harmless."""
    module = module_loader(whole_package(spark), carries=is_connect(spark))
    spark.dataSource.register(_data_source_class(module))


def _data_source_class(module: Callable[[str], Any]) -> type[DataSource]:
    """Return the data source's class, which loads txlake's modules with `module`."""

    class LakeStream(DataSource):
        """A table as a stream: see `txlake.lake.streaming`."""

        @classmethod
        def name(cls) -> str:
            return LAKE_FORMAT

        def schema(self) -> StructType:
            columns: StructType = module("lake.streaming.reader").stream_columns(dict(self.options))
            return columns

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
            """Return the reader of the stream."""
            reader = module("lake.streaming.reader")
            streamed: DataSourceStreamReader = reader.stream_reader(dict(self.options), schema)
            return streamed

    return LakeStream
