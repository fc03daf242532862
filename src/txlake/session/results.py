"""Values become the DataFrames that a statement answers with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from txlake.protocol.types import Struct
from txlake.spark.types import spark_schema


def counts_frame(spark: SparkSession, counts: Mapping[str, int]) -> DataFrame:
    """One row of counts, named as Databricks names them."""
    schema = T.StructType([T.StructField(name, T.LongType(), False) for name in counts])
    return spark.createDataFrame([tuple(counts.values())], schema)


def rows_frame(
    spark: SparkSession, schema: Struct, rows: Sequence[tuple[object, ...]]
) -> DataFrame:
    """Rows of a given schema."""
    return spark.createDataFrame(list(rows), spark_schema(schema))


def nothing(spark: SparkSession) -> DataFrame:
    """What statements without a result answer: no rows, no columns."""
    return spark.createDataFrame([], T.StructType([]))
