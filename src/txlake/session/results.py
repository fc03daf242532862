"""Values become the DataFrames that a statement answers with.

They are made when the statement is over, so what Spark raises here is translated here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from txlake.protocol.types import Field, Primitive, Struct
from txlake.spark.spark_errors import spark_errors
from txlake.spark.types import spark_schema
from txlake.views.describe import Rows


@spark_errors()
def counts_frame(spark: SparkSession, counts: Mapping[str, int]) -> DataFrame:
    """One row of counts, named as Databricks names them. Spark knows it without a job."""
    columns = (f"CAST({count} AS BIGINT) AS {name}" for name, count in counts.items())
    return spark.sql(f"SELECT {', '.join(columns)}")


def rows_frame(
    spark: SparkSession, schema: Struct, rows: Sequence[tuple[object, ...]]
) -> DataFrame:
    """Rows of a given schema."""
    return values_frame(spark, spark_schema(schema), rows)


@spark_errors()
def values_frame(
    spark: SparkSession, schema: T.StructType, rows: Sequence[tuple[object, ...]]
) -> DataFrame:
    """Rows of a schema of Spark's."""
    return spark.createDataFrame(list(rows), schema)


def schema_rows(schema: T.StructType) -> Rows:
    """A query's columns, as DESCRIBE QUERY lists them."""
    columns = Struct(
        tuple(Field(name, Primitive("string")) for name in ("col_name", "data_type", "comment"))
    )
    rows = [(item.name, item.dataType.simpleString(), None) for item in schema]
    return Rows(schema=columns, rows=rows)


@spark_errors()
def nothing(spark: SparkSession) -> DataFrame:
    """What statements without a result answer: no rows, no columns."""
    return spark.sql("SELECT 1 WHERE false").select()
