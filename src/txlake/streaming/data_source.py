"""The classes that Spark knows as data sources of streams, and how a session gets them.

`TxlakeDataSource` is the format "txlake" of users, who register it where txlake is installed on
every machine. The lake's own streams are read by a class that goes to processes without txlake: by
value, and it takes what it needs from the package that was sent along (`spark.shipping`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, DataSourceStreamWriter
from pyspark.sql.types import StructType

from txlake.spark.shipping import Package, whole_package
from txlake.streaming.reader import stream_columns, stream_reader
from txlake.streaming.writer import stream_writer

FORMAT = "txlake"
LAKE_FORMAT = "txlake_stream"
"""The format of a lake's own streams."""


class TxlakeDataSource(DataSource):
    """Tables of Delta Lake's as streams of PySpark's, in and out.

        spark.dataSource.register(txlake.TxlakeDataSource)
        spark.readStream.format("txlake").option("maxFilesPerTrigger", 10).load("/data/orders")
        df.writeStream.format("txlake").option("checkpointLocation", place).start("/data/copies")

    What `load` and `start` are given is the path or URL of a table; its name where `lake` says the
    location of its lake and, where it isn't in the warehouse, `catalog` the URL of its catalog as
    `txlake.connect` takes it. `storage.<key>` are storage options. The others are Delta Spark's.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """The table's columns, all of them nullable."""
        return stream_columns(dict(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Reads the whole table first, then what each commit adds."""
        return stream_reader(dict(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Writes each micro-batch once; in complete mode it replaces all rows."""
        made: DataSourceStreamWriter = stream_writer(dict(self.options), schema, overwrite)
        return made


def register(spark: SparkSession) -> None:
    """Lets a session read the lake's streams. Doing it again changes nothing."""
    spark.dataSource.register(_travelling(whole_package(spark)))


def loader(package: Package, *, carries: bool = False) -> Callable[[str], Any]:
    """Gives a module of the package by its name, also in a process that has no txlake.

    Some processes that Spark runs beside its driver aren't told what was sent to it. On the
    machine of the user's program they find the archive where it was made; `carries` takes it along
    for those on others.
    """
    name, archive = package.name, package.archive
    data = Path(archive).read_bytes() if carries else b""

    # Of plain values alone, so that it can go anywhere by value.
    def module(place: str) -> Any:  # noqa: ANN401 - the caller knows the module
        import os
        import sys
        import tempfile
        from importlib import import_module
        from importlib.util import find_spec

        if find_spec(name) is None:
            found = archive
            if data and not os.path.exists(archive):
                found = os.path.join(tempfile.mkdtemp(prefix="txlake-code-"), f"{name}.zip")
                with open(found, "wb") as file:
                    file.write(data)
            sys.path.insert(0, found)
        return import_module(f"{name}.{place}")

    return module


def _travelling(package: Package) -> type[DataSource]:
    """The class for a lake's streams, whose code is that of a package."""
    module = loader(package)

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
