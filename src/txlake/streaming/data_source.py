"""The class that Spark knows as the data source of a lake's own streams, and how it gets it.

It goes to processes without txlake: by value, and it takes what it needs from the package that was
sent along (`spark.shipping`). Users' format "txlake" is in `spark_integration.data_source`.
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
    """Lets a session read the lake's streams. Doing it again changes nothing."""
    module = module_loader(whole_package(spark), carries=is_connect(spark))
    spark.dataSource.register(_travelling(module))


def _travelling(module: Callable[[str], Any]) -> type[DataSource]:
    """The class for a lake's streams, whose code `module` gives."""

    class LakeStream(DataSource):
        """A table as a stream: see `txlake.streaming`."""

        @classmethod
        def name(cls) -> str:
            return LAKE_FORMAT

        def schema(self) -> StructType:
            found: StructType = module("streaming.reader").stream_columns(dict(self.options))
            return found

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
            reader = module("streaming.reader")
            made: DataSourceStreamReader = reader.stream_reader(dict(self.options), schema)
            return made

    return LakeStream
