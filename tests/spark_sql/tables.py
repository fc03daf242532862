"""The tables and functions that Spark's SQL tests find in every session."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import PandasUDFType, pandas_udf

from tests.spark_sql.inputs import data

_UNIQUE = (
    "unique1 int, unique2 int, two int, four int, ten int, twenty int, hundred int, thousand int, "
    "twothousand int, fivethous int, tenthous int, odd int, even int, stringu1 string, "
    "stringu2 string, string4 string"
)
_GIVEN = {
    "aggtest": ("agg", "a int, b float"),
    "onek": ("onek", _UNIQUE),
    "tenk1": ("tenk", _UNIQUE),
}
_COMPUTED = {
    "testdata": "SELECT CAST(id AS int) AS key, CAST(id AS string) AS value FROM range(1, 101)",
    "arraydata": "SELECT array(n, n + 1, n + 2) AS arraycol, "
    "array(array(n, n + 1, n + 2)) AS nestedarraycol FROM VALUES (1), (2) AS t(n)",
    "mapdata": "SELECT map_from_arrays(sequence(1, 6 - n), "
    "transform(sequence(1, 6 - n), k -> substr('abcde', k, 1) || n)) AS mapcol "
    "FROM VALUES (1), (2), (3), (4), (5) AS t(n)",
}
NAMES = (*_COMPUTED, *_GIVEN)


def write_tables(spark: SparkSession, jar: Path, folder: Path) -> None:
    """Write the rows of the test tables as Parquet, each in a folder of its name."""
    for name, query in _COMPUTED.items():
        spark.sql(query).coalesce(1).write.parquet(f"{folder}/{name}")
    for name, (file, schema) in _GIVEN.items():
        text = folder / f"{file}.data"
        text.write_text(data(jar, file))
        rows = spark.read.csv(str(text), schema=schema, sep="\t")
        rows.coalesce(1).write.parquet(f"{folder}/{name}")


FUNCTIONS = {
    "udf": "(x STRING) RETURNS STRING RETURN x",
    "booleq": "(x BOOLEAN, y BOOLEAN) RETURNS BOOLEAN RETURN x = y",
    "boolne": "(x BOOLEAN, y BOOLEAN) RETURNS BOOLEAN RETURN x <> y",
    "vol": "(x STRING) RETURNS STRING RETURN x",
    "udaf": "",
}


def make_functions(session: SparkSession, names: Iterable[str]) -> None:
    """Give a session stand-ins of the functions that Spark's suites register in Scala."""
    for name in names:
        if FUNCTIONS[name]:
            session.sql(f"CREATE TEMPORARY FUNCTION {name}{FUNCTIONS[name]}")
        else:
            count = pandas_udf(_count, "int", PandasUDFType.GROUPED_AGG)
            session.udf.register(name, count)


def _count(values: pd.Series) -> int:
    return int(values.count())
