"""The class that Spark knows as the data source of a lake's own streams, and how it gets it.

It goes to processes without txlake: by value, and it takes what it needs from the package that was
sent along (`spark.shipping`). Users' format "txlake" is in `doors.data_source`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from txlake.spark.shipping import Package, whole_package

LAKE_FORMAT = "txlake_stream"
"""The format of a lake's own streams."""


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
